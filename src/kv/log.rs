//! The transactions of a span of revisions, one after the other: owned, or in place.

use std::fmt;
use std::ops::ControlFlow;

use annals_format::events::{EventKind, EventRef};
use bytes::Bytes;
use smallvec::SmallVec;

use crate::error::{Error, Result};

use super::range::KeyRange;
use super::seam::{self, Engine};
use super::space;
use super::types::{Change, ChangeKind, Transaction};

/// Iterates over transactions, oldest first; made by [`Store::log`](crate::Store::log). What it has
/// to tell, values included, stays readable as long as it lives, whatever is compacted meanwhile.
///
/// Short keys and values share memory with those beside them: to keep one keeps up to 4 KiB. Who keeps few of
/// many copies them.
#[must_use = "iterators are lazy"]
pub struct Log {
    engine: Engine,
    transactions: Option<seam::Log>,
    error: Option<Error>,
    with_values: bool,
}

impl Log {
    pub(super) fn new(engine: &Engine, first: Option<u64>, end: u64, range: &KeyRange) -> Self {
        let (transactions, error) = match seam::log(engine, first, end, range) {
            Ok(log) => (Some(log), None),
            Err(error) => (None, Some(error)),
        };
        Self { engine: engine.clone(), transactions, error, with_values: false }
    }

    /// Reads the values written, too. One of up to [`event_value_bytes`](crate::Options::event_value_bytes)
    /// costs nothing more; a longer one that is no longer in memory costs a look-up in the files.
    pub fn with_values(mut self) -> Self {
        self.with_values = true;
        if let Some(log) = &mut self.transactions {
            log.with_values();
        }
        self
    }

    /// Shows `each` the transactions that come next, in place, until it breaks or there are no more; answers
    /// what it broke with. After that the log goes on behind the last one it was shown.
    ///
    /// For who goes through much of the past and keeps little: an iterator makes each transaction, here keys and
    /// values are where they lie, in memory or in the block of a file, and a change costs some 0.6 of that.
    ///
    /// # Errors
    ///
    /// As the items of the iterator; after one there is nothing more.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use std::ops::ControlFlow;
    ///
    /// store.put("/a", "1")?;
    /// store.put("/b", "22")?;
    /// store.put("/a", "333")?;
    /// // How much was written, up to the first value of three bytes.
    /// let mut bytes = 0;
    /// let long = store.log(..).with_values().visit(|transaction| {
    ///     for change in transaction.changes() {
    ///         let value = change.value.unwrap_or_default();
    ///         if value.len() == 3 {
    ///             return ControlFlow::Break(transaction.revision());
    ///         }
    ///         bytes += value.len();
    ///     }
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!((long, bytes), (Some(4), 3));
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn visit<B>(
        &mut self,
        mut each: impl FnMut(&TransactionRef<'_>) -> ControlFlow<B>,
    ) -> Result<Option<B>> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let Some(log) = &mut self.transactions else { return Ok(None) };
        let (engine, with_values, held) = (&self.engine, self.with_values, log.held().clone());
        let mut see = |found: seam::TransactionRef<'_>| {
            let found = TransactionRef(found);
            if with_values && found.0.events.iter().any(lacks_value) {
                found.with_all_values(engine, &held, &mut each)
            } else {
                Ok(each(&found))
            }
        };
        loop {
            match log.see_next(&mut see).transpose().and_then(Option::transpose) {
                Ok(Some(ControlFlow::Continue(()))) => {}
                Ok(Some(ControlFlow::Break(with))) => return Ok(Some(with)),
                Ok(None) => return Ok(None),
                Err(error) => {
                    self.transactions = None;
                    return Err(error);
                }
            }
        }
    }
}

impl Iterator for Log {
    type Item = Result<Transaction>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.error.take() {
            return Some(Err(error));
        }
        let log = self.transactions.as_mut()?;
        let mut item = log.next_as::<Vec<Change>>()?;
        if self.with_values
            && let Ok(found) = &mut item
            && let Err(error) = look_up_missing(&self.engine, log.held(), found)
        {
            item = Err(error);
        }
        if item.is_err() {
            self.transactions = None;
        }
        Some(item)
    }
}

impl std::iter::FusedIterator for Log {}

/// Looks up the values that the log did not bring.
fn look_up_missing(engine: &Engine, held: &seam::Held, found: &mut Transaction) -> Result<()> {
    let lacks = |change: &&mut Change| change.kind == ChangeKind::Put && change.value.is_none();
    let mut view = None;
    for change in found.changes.iter_mut().filter(lacks) {
        let view = view.get_or_insert_with(|| engine.view_of_log(held, found.revision));
        let record = view.get(&space::user(&change.key))?;
        change.value = record.map(|record| record.value);
    }
    Ok(())
}

impl seam::Gather for Vec<Change> {
    type Whole = Transaction;

    fn with_room(events: usize) -> Self {
        Self::with_capacity(events)
    }

    #[inline]
    fn add(&mut self, event: seam::Event) {
        self.push(Change {
            kind: if event.delete { ChangeKind::Delete } else { ChangeKind::Put },
            key: event.key,
            sub: event.sub,
            create_revision: event.create_revision,
            version: event.version,
            lease: event.lease,
            value: event.value,
        });
    }

    #[inline]
    fn whole(self, revision: u64, time: i64, metadata: Bytes) -> Transaction {
        Transaction { revision, time, metadata, changes: self }
    }
}

/// One committed transaction where it lies, as [`Log::visit`] shows it.
pub struct TransactionRef<'a>(seam::TransactionRef<'a>);

/// One change of a [`TransactionRef`]: a [`Change`] where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeRef<'a> {
    /// Put or delete.
    pub kind: ChangeKind,
    /// The key.
    pub key: &'a [u8],
    /// The place of the change in its transaction, from 0.
    pub sub: u32,
    /// The key's create revision after the change; 0 after a delete.
    pub create_revision: u64,
    /// The key's version after the change; 0 after a delete.
    pub version: u64,
    /// The key's lease after the change; 0 for none.
    pub lease: i64,
    /// The value written: `None` for deletes, and for puts unless [values were asked for](Log::with_values).
    pub value: Option<&'a [u8]>,
}

impl<'a> TransactionRef<'a> {
    /// Its revision.
    pub fn revision(&self) -> u64 {
        self.0.revision
    }

    /// When it was ordered, in microseconds since the Unix epoch; never less than the one before.
    pub fn time(&self) -> i64 {
        self.0.time
    }

    /// The opaque metadata its writer attached; empty for none.
    pub fn metadata(&self) -> &'a [u8] {
        self.0.metadata
    }

    /// What it changed, in the order it did so.
    pub fn changes(&self) -> impl ExactSizeIterator<Item = ChangeRef<'a>> {
        self.0.events.iter().map(change_of)
    }

    /// A copy to keep.
    pub fn to_transaction(&self) -> Transaction {
        Transaction {
            revision: self.revision(),
            time: self.time(),
            metadata: Bytes::copy_from_slice(self.metadata()),
            changes: self.changes().map(ChangeRef::to_change).collect(),
        }
    }

    /// Shows it with the values that the log did not bring.
    #[cold]
    fn with_all_values<B>(
        &self,
        engine: &Engine,
        held: &seam::Held,
        each: &mut impl FnMut(&TransactionRef<'_>) -> B,
    ) -> Result<B> {
        let seam::TransactionRef { revision, time, metadata, ref events } = self.0;
        let view = engine.view_of_log(held, revision);
        let look_up = |event: &EventRef<'_>| {
            let record = lacks_value(event).then(|| view.get(&space::user(event.key)));
            Ok(record.transpose()?.flatten().map(|record| record.value))
        };
        let values: SmallVec<[Option<Bytes>; 1]> =
            events.iter().map(look_up).collect::<Result<_>>()?;
        let filled = events.iter().zip(&values);
        let filled = filled
            .map(|(event, value)| EventRef { value: value.as_deref().or(event.value), ..*event });
        let events = filled.collect();
        Ok(each(&TransactionRef(seam::TransactionRef { revision, time, metadata, events })))
    }
}

impl ChangeRef<'_> {
    /// A copy to keep.
    pub fn to_change(self) -> Change {
        let Self { kind, key, sub, create_revision, version, lease, value } = self;
        let (key, value) = (Bytes::copy_from_slice(key), value.map(Bytes::copy_from_slice));
        Change { kind, key, sub, create_revision, version, lease, value }
    }
}

impl fmt::Debug for TransactionRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut transaction = f.debug_struct("TransactionRef");
        transaction.field("revision", &self.revision()).field("time", &self.time());
        transaction.field("metadata", &self.metadata());
        transaction.field("changes", &self.changes().collect::<Vec<_>>()).finish()
    }
}

fn lacks_value(event: &EventRef<'_>) -> bool {
    event.kind == EventKind::Put && event.value.is_none()
}

fn change_of<'a>(event: &EventRef<'a>) -> ChangeRef<'a> {
    let EventRef { key, sub, create_revision, version, lease, value, .. } = *event;
    let kind = match event.kind {
        EventKind::Put => ChangeKind::Put,
        EventKind::Delete => ChangeKind::Delete,
    };
    ChangeRef { kind, key, sub, create_revision, version, lease, value }
}
