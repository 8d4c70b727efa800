//! What a watch tells: the changes of one revision, or how far it is.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::engine::{Event as Changed, Gather};
use crate::kv::{ChangeKind, KeyValue};
use crate::sync::Arc;
use crate::sync::plain::OnceLock;

/// One change that a [`Watch`](crate::Watch) tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Event {
    /// Put or delete.
    pub kind: ChangeKind,
    /// The key as the change left it; of a delete only `key` and `mod_revision` say something. The value
    /// is empty too where [only keys](crate::WatchBuilder::keys_only) were asked for.
    pub kv: KeyValue,
    /// The key as it was before: `None` where it did not live, or was
    /// [not asked for](crate::WatchBuilder::prev_kv).
    pub prev_kv: Option<KeyValue>,
}

impl Event {
    /// Whether the change created the key: etcd's `IsCreate`.
    pub fn is_create(&self) -> bool {
        self.kind == ChangeKind::Put && self.kv.create_revision == self.kv.mod_revision
    }
}

/// The changes of one revision that a [`Watch`](crate::Watch) wants, in the order in which the
/// transaction did them; or a notice of progress. Cloning is cheap, and watches that want the same of the same
/// range mostly tell the same one.
#[derive(Clone, PartialEq, Eq)]
pub struct Batch(Arc<Told>);

/// Mostly one, which needs no memory of its own.
pub(super) type Events = SmallVec<[Event; 1]>;

#[derive(Debug)]
struct Told {
    revision: u64,
    time: i64,
    metadata: Bytes,
    events: Events,
    kind: Kind,
    derived: Derived,
}

/// See [`Batch::derived`]. Its end is foreign code, and ends with no panic what it interrupts.
#[derive(Default)]
struct Derived(OnceLock<AssertUnwindSafe<Arc<dyn Any + Send + Sync>>>);

impl Drop for Derived {
    fn drop(&mut self) {
        let made = self.0.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(made)));
    }
}

impl fmt::Debug for Derived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Derived").finish_non_exhaustive()
    }
}

impl Told {
    fn new((revision, time, metadata): (u64, i64, &Bytes), events: Events, kind: Kind) -> Self {
        let (metadata, derived) = (metadata.clone(), Derived::default());
        Self { revision, time, metadata, events, kind, derived }
    }
}

/// What is derived of it says nothing of its own.
impl PartialEq for Told {
    fn eq(&self, other: &Self) -> bool {
        let Self { revision, time, metadata, events, kind, derived: _ } = self;
        (*revision, *time, *kind) == (other.revision, other.time, other.kind)
            && *metadata == other.metadata
            && *events == other.events
    }
}

impl Eq for Told {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All events of the revision, or the last of them.
    Last,
    /// There are more.
    Fragment,
    Progress,
}

impl Batch {
    /// The revision whose changes these are. Of a notice of progress, the one up to which everything has been
    /// told.
    pub fn revision(&self) -> u64 {
        self.0.revision
    }

    /// When the transaction was ordered, in microseconds since the Unix epoch. 0 for a notice of progress.
    pub fn time(&self) -> i64 {
        self.0.time
    }

    /// The opaque metadata that the writer attached to the transaction; empty for none.
    pub fn metadata(&self) -> &Bytes {
        &self.0.metadata
    }

    /// The changes, in the order in which the transaction did them.
    pub fn events(&self) -> &[Event] {
        &self.0.events
    }

    /// How many changes there are.
    pub fn len(&self) -> usize {
        self.0.events.len()
    }

    /// Whether there is no change: only in a notice of progress.
    pub fn is_empty(&self) -> bool {
        self.0.events.is_empty()
    }

    /// Whether it only says that everything up to its revision has been told.
    pub fn is_progress(&self) -> bool {
        self.0.kind == Kind::Progress
    }

    /// Whether nothing more of its revision follows. Only of watches that asked for
    /// [fragments](crate::WatchBuilder::fragment) it is ever false.
    pub fn is_last_fragment(&self) -> bool {
        self.0.kind != Kind::Fragment
    }

    /// What `make` makes of the batch, such as its bytes on a wire: made once for all who tell this batch, and kept as
    /// long as it is. Once it is made this costs two atomic operations.
    ///
    /// Changes that several watches are told as they come are read once, and watches of the same range and wishes
    /// share their batches; so a server with a thousand watches of a prefix encodes each change once. What is read
    /// again later, by a watch that was behind, is another batch, as is what a watch reads that looks in the moment in which
    /// the change is read for all. Of two threads that ask at the same time both
    /// may make it. One type is kept, that which was asked for first: another one is made each time.
    ///
    /// What is made must not hold the batch, or neither ever ends. The store itself keeps some hundred of the last batches that
    /// several watches were told, at most 8 MiB of them, each counted twice for what was made of it; so what is made
    /// may be dropped by the thread `annals-watch`, under no lock. As long as that takes no other watch is told anything;
    /// a panic there ends nothing.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// let mut watches = [store.watch("/pods/").prefix().start()?, store.watch("/pods/").prefix().start()?];
    /// store.put("/pods/a", "1")?;
    /// for watch in &mut watches {
    ///     let batch = watch.next().expect("it goes on")?;
    ///     let line = batch.derived(|batch| format!("{}: {} changes", batch.revision(), batch.len()));
    ///     assert_eq!(*line, "2: 1 changes");
    /// }
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn derived<T: Send + Sync + 'static>(&self, make: impl FnOnce(&Self) -> T) -> Arc<T> {
        let Derived(derived) = &self.0.derived;
        let held = || Arc::clone(derived.get()?).downcast().ok();
        held().unwrap_or_else(|| {
            let made = Arc::new(make(self));
            let _ = derived.set(AssertUnwindSafe(Arc::<T>::clone(&made)));
            made
        })
    }

    /// Everything up to `revision` has been told.
    pub(super) fn progress(revision: u64) -> Self {
        Self(Arc::new(Told::new((revision, 0, &Bytes::new()), Events::new(), Kind::Progress)))
    }

    /// The events of a revision in batches whose keys and values take at most so many bytes, or are one
    /// event. None if there are no events.
    pub(super) fn of(
        head: (u64, i64, &Bytes),
        events: Events,
        bytes_max: Option<usize>,
        each: &mut impl FnMut(Self),
    ) {
        let mut batch = |events, kind| each(Self(Arc::new(Told::new(head, events, kind))));
        let mut part = Events::new();
        let mut bytes = 0;
        let Some(bytes_max) = bytes_max else {
            if !events.is_empty() {
                batch(events, Kind::Last);
            }
            return;
        };
        for event in events {
            let more = event.bytes();
            if bytes + more > bytes_max && !part.is_empty() {
                batch(std::mem::take(&mut part), Kind::Fragment);
                bytes = 0;
            }
            bytes += more;
            part.push(event);
        }
        if !part.is_empty() {
            batch(part, Kind::Last);
        }
    }

    /// What it takes in memory, as far as it is counted.
    pub(super) fn bytes(&self) -> usize {
        let events = self.0.events.iter().map(|event| size_of::<Event>() + event.bytes());
        size_of::<Told>() + self.0.metadata.len() + events.sum::<usize>()
    }
}

/// The events of a transaction that is told as a whole, put where they are to stay: moving them takes as long as
/// reading them.
pub(super) struct Gathering {
    events: Events,
    lacks_values: bool,
}

/// All of a transaction, which nobody else has yet.
pub(super) struct Gathered {
    batch: Batch,
    /// Whether the value of a put is still to be looked up: it is empty.
    pub(super) lacks_values: bool,
}

impl Gather for Gathering {
    type Whole = Gathered;

    fn with_room(events: usize) -> Self {
        Self { events: Events::with_capacity(events), lacks_values: false }
    }

    #[inline]
    fn add(&mut self, changed: Changed) {
        let kind = if changed.delete { ChangeKind::Delete } else { ChangeKind::Put };
        self.lacks_values |= !changed.delete && changed.value.is_none();
        let kv = KeyValue {
            key: changed.key,
            value: changed.value.unwrap_or_default(),
            create_revision: changed.create_revision,
            // Known when all are there.
            mod_revision: 0,
            version: changed.version,
            lease: changed.lease,
        };
        self.events.push(Event { kind, kv, prev_kv: None });
    }

    #[inline]
    fn whole(mut self, revision: u64, time: i64, metadata: Bytes) -> Gathered {
        debug_assert!(
            !self.events.is_empty(),
            "the log of a range leaves out what changed nothing there"
        );
        for event in &mut self.events {
            event.kv.mod_revision = revision;
        }
        let Self { events, lacks_values } = self;
        let (kind, derived) = (Kind::Last, Derived::default());
        let told = Told { revision, time, metadata, events, kind, derived };
        Gathered { batch: Batch(Arc::new(told)), lacks_values }
    }
}

impl Gathered {
    pub(super) fn revision(&self) -> u64 {
        self.batch.revision()
    }

    pub(super) fn events_mut(&mut self) -> &mut [Event] {
        let told = Arc::get_mut(&mut self.batch.0);
        debug_assert!(told.is_some(), "nobody else has it yet");
        told.map_or(&mut [], |told| &mut told.events)
    }

    pub(super) fn into_batch(self) -> Batch {
        self.batch
    }
}

impl Event {
    fn bytes(&self) -> usize {
        let bytes = |kv: &KeyValue| kv.key.len() + kv.value.len();
        bytes(&self.kv) + self.prev_kv.as_ref().map_or(0, bytes)
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Told { revision, time, metadata, events, kind, derived: _ } = &*self.0;
        let mut batch = f.debug_struct("Batch");
        batch.field("revision", revision).field("kind", kind);
        batch.field("time", time).field("metadata", metadata).field("events", events).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(bytes: usize) -> Event {
        let value = Bytes::from(vec![b'v'; bytes - 1]);
        let kv = KeyValue { key: Bytes::from_static(b"k"), value, ..KeyValue::default() };
        Event { kind: ChangeKind::Put, kv, prev_kv: None }
    }

    fn lens(sizes: &[usize], bytes_max: Option<usize>) -> Vec<(usize, bool)> {
        let mut found = Vec::new();
        let events = sizes.iter().map(|bytes| put(*bytes)).collect();
        Batch::of((7, 1, &Bytes::new()), events, bytes_max, &mut |batch: Batch| {
            assert!(batch.revision() == 7 && !batch.is_progress() && !batch.is_empty());
            found.push((batch.len(), batch.is_last_fragment()));
        });
        found
    }

    #[test]
    fn a_batch_is_cut_only_where_it_was_asked_for() {
        assert_eq!(lens(&[10, 10, 10], None), [(3, true)]);
        assert_eq!(lens(&[10, 10, 10], Some(30)), [(3, true)]);
        assert_eq!(lens(&[10, 10, 10], Some(29)), [(2, false), (1, true)]);
        assert_eq!(lens(&[50, 10, 10, 50], Some(20)), [(1, false), (2, false), (1, true)]);
        assert_eq!(lens(&[], Some(20)), []);
        assert_eq!(lens(&[], None), []);
    }

    #[test]
    fn a_batch_is_safe_to_keep_over_a_panic() {
        fn is_safe<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
        is_safe::<Batch>();
    }

    #[test]
    fn what_is_derived_is_made_once_and_of_one_type_only() {
        let mut batches = Vec::new();
        Batch::of((7, 1, &Bytes::new()), [put(10)].into(), None, &mut |batch| batches.push(batch));
        let batch = batches.pop().expect("a batch");
        let (clone, other) = (batch.clone(), Batch::progress(7));
        let first = batch.derived(|batch| batch.revision() + 1);
        assert_eq!(*first, 8);
        let again = clone.derived(|_| -> u64 { unreachable!("it is made already") });
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(*batch.derived(|_| "another type"), "another type");
        assert_eq!(*batch.derived(|_| "made anew"), "made anew");
        assert_eq!(*batch.derived(|_| 0_u64), 8);
        assert_eq!(*other.derived(|_| 1_u64), 1);
        // It makes no difference between batches.
        let mut same = Vec::new();
        Batch::of((7, 1, &Bytes::new()), [put(10)].into(), None, &mut |batch| same.push(batch));
        assert_eq!(batch, same[0]);
        assert_ne!(batch, other);
    }

    #[test]
    fn what_a_batch_takes_is_more_than_keys_and_values() {
        let bytes = |events: usize, metadata: usize| {
            let (mut bytes, metadata) = (0, Bytes::from(vec![0; metadata]));
            let events = (0..events).map(|_| put(10)).collect();
            Batch::of((7, 1, &metadata), events, None, &mut |batch| bytes += batch.bytes());
            bytes
        };
        assert!(bytes(1, 0) >= 10 + size_of::<Event>());
        assert_eq!(bytes(1, 5_000) - bytes(1, 0), 5_000);
        assert_eq!(bytes(100, 0) - bytes(99, 0), 10 + size_of::<Event>());
    }

    #[test]
    fn a_create_is_told_from_a_change() {
        let mut event = put(5);
        (event.kv.create_revision, event.kv.mod_revision) = (4, 4);
        assert!(event.is_create());
        event.kv.mod_revision = 5;
        assert!(!event.is_create());
        event.kind = ChangeKind::Delete;
        event.kv.create_revision = 5;
        assert!(!event.is_create());
    }
}
