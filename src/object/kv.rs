//! What the object layer needs of a store below it: reads as of a revision, transactions decided by
//! compare-and-swap, leases, and changes in order. [`Store`] has it; anything that keeps etcd's revisions can.

use std::time::Duration;

use crate::kv::{
    ChangeKind, KeyRange, KeyValue, RangeRequest, RangeResponse, Store, TxnRequest, TxnResponse,
};
use crate::watch::{Event, Watch};

use super::status::{Reason, Status};

/// A transactional store that numbers its commits, in the vocabulary of etcd.
///
/// Every method answers as etcd would: a range at a past revision still names the newest one, a compacted
/// revision is [`Compacted`](crate::ErrorKind::Compacted), a future one
/// [`FutureRevision`](crate::ErrorKind::FutureRevision).
pub trait Kv: Send + Sync + 'static {
    /// What [`watch`](Self::watch) answers.
    type Watch: KvWatch;

    /// The newest revision that can be read.
    ///
    /// # Errors
    ///
    /// What the store says.
    fn revision(&self) -> crate::Result<u64>;

    /// The state of a key, the newest or that at a revision, and the newest revision.
    ///
    /// # Errors
    ///
    /// What the store says.
    fn get(&self, key: &[u8], at: Option<u64>) -> crate::Result<(Option<KeyValue>, u64)>;

    /// One page of a range of keys.
    ///
    /// # Errors
    ///
    /// What the store says.
    fn page(&self, request: PageRequest<'_>) -> crate::Result<Page>;

    /// How many keys begin with a prefix, and the newest revision.
    ///
    /// # Errors
    ///
    /// What the store says.
    fn count(&self, prefix: &[u8], at: Option<u64>) -> crate::Result<(u64, u64)>;

    /// Commits a transaction; returns when it is as durable as the store makes it.
    ///
    /// # Errors
    ///
    /// What the store says.
    fn transact(&self, request: TxnRequest) -> crate::Result<TxnResponse>;

    /// Grants a lease of so many seconds; answers its id.
    ///
    /// # Errors
    ///
    /// What the store says.
    fn grant(&self, ttl: i64) -> crate::Result<i64>;

    /// Follows all keys that begin with a prefix, from a revision on, each change with what was there before.
    ///
    /// # Errors
    ///
    /// What the store says.
    fn watch(
        &self,
        prefix: &[u8],
        from: u64,
        progress_every: Duration,
    ) -> crate::Result<Self::Watch>;
}

/// A part of a range of keys.
#[derive(Clone, Copy, Debug)]
pub struct PageRequest<'a> {
    /// The first key that may be in it.
    pub start: &'a [u8],
    /// All keys begin with this.
    pub prefix: &'a [u8],
    /// At most so many; 0 for all.
    pub limit: u64,
    /// As of this revision; `None` for the newest.
    pub at: Option<u64>,
}

/// The answer to a [`PageRequest`].
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The key-values in the order of their keys.
    pub kvs: Vec<KeyValue>,
    /// Whether there are more.
    pub more: bool,
    /// The revision that was read: the one asked for, or the newest.
    pub revision: u64,
}

/// Changes of some keys, in the order of their revisions.
pub trait KvWatch: Send {
    /// The next changes, all of one revision; `None` when there were none for so long.
    ///
    /// # Errors
    ///
    /// Why the watch has ended, as [`Compacted`](crate::ErrorKind::Compacted). After that the answer is
    /// [`Closed`](crate::ErrorKind::Closed) for ever.
    fn next_timeout(&mut self, timeout: Duration) -> crate::Result<Option<Changes>>;

    /// A function that ends it from another thread.
    fn canceller(&self) -> Box<dyn Fn() + Send + Sync>;
}

/// What one revision has changed of the keys that are watched; without events it is a notice of progress:
/// everything up to the revision has been told.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The revision.
    pub revision: u64,
    /// In the order in which the transaction made them.
    pub events: Vec<KvEvent>,
}

/// One key that has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvEvent {
    /// The key as the change left it; of a deletion only `key` and `mod_revision` say something.
    pub kv: KeyValue,
    /// Whether it is gone.
    pub is_delete: bool,
    /// What was there before; `None` where nothing was.
    pub prev_kv: Option<KeyValue>,
}

impl From<&Event> for KvEvent {
    fn from(event: &Event) -> Self {
        let is_delete = event.kind == ChangeKind::Delete;
        Self { kv: event.kv.clone(), is_delete, prev_kv: event.prev_kv.clone() }
    }
}

/// What the store below says is told as it is; 413 for what is too large, 504 where the outcome is unknown,
/// 410 for what has been compacted, else 500.
impl From<crate::Error> for Status {
    fn from(error: crate::Error) -> Self {
        use crate::ErrorKind as Kind;
        if error.effect() == crate::Effect::Unknown {
            return Self::unknown(error.to_string());
        }
        match error.kind() {
            Kind::Compacted { .. } => Self::expired(error.to_string()),
            Kind::FutureRevision { requested, current, .. } => {
                Self::too_large_resource_version(*requested, *current, 0)
            }
            Kind::KeyTooLong { .. } | Kind::EmptyKey => Self::bad_request(error.to_string()),
            Kind::ValueTooLong { .. } | Kind::TransactionTooLarge { .. } => {
                Self::new(Reason::RequestEntityTooLarge, error.to_string())
            }
            _ => Self::internal(error),
        }
    }
}

impl Kv for Store {
    type Watch = StoreWatch;

    fn revision(&self) -> crate::Result<u64> {
        Ok(Self::revision(self))
    }

    fn get(&self, key: &[u8], at: Option<u64>) -> crate::Result<(Option<KeyValue>, u64)> {
        let RangeResponse { mut kvs, revision, .. } =
            self.range(RangeRequest { revision: at, ..RangeRequest::new(key) })?;
        Ok((kvs.pop(), revision))
    }

    fn page(&self, request: PageRequest<'_>) -> crate::Result<Page> {
        let view = match request.at {
            Some(revision) => self.at(revision)?,
            None => self.latest()?,
        };
        let start = request.start.max(request.prefix);
        let range = match KeyRange::prefix(request.prefix).end() {
            Some(end) => KeyRange::between(start, end),
            None => KeyRange::from_key(start),
        };
        let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
        let mut page = Page { revision: view.revision(), ..Page::default() };
        for kv in view.range(range) {
            let kv = kv?;
            if limit != 0 && page.kvs.len() == limit {
                page.more = true;
                break;
            }
            page.kvs.push(kv);
        }
        Ok(page)
    }

    fn count(&self, prefix: &[u8], at: Option<u64>) -> crate::Result<(u64, u64)> {
        let request = RangeRequest { revision: at, ..RangeRequest::prefix(prefix) };
        let counted = self.range(request.count_only())?;
        Ok((counted.count, counted.revision))
    }

    fn transact(&self, request: TxnRequest) -> crate::Result<TxnResponse> {
        Self::transact(self, request)
    }

    fn grant(&self, ttl: i64) -> crate::Result<i64> {
        Ok(self.lease_grant(0, ttl)?.id)
    }

    fn watch(
        &self,
        prefix: &[u8],
        from: u64,
        progress_every: Duration,
    ) -> crate::Result<StoreWatch> {
        let watch = Self::watch(self, prefix).prefix().from(from).prev_kv();
        Ok(StoreWatch(watch.progress_every(progress_every).start()?))
    }
}

/// A watch of a [`Store`].
#[derive(Debug)]
pub struct StoreWatch(Watch);

impl KvWatch for StoreWatch {
    fn next_timeout(&mut self, timeout: Duration) -> crate::Result<Option<Changes>> {
        let Some(batch) = self.0.next_timeout(timeout).transpose()? else {
            return if self.0.handle().is_ended() {
                Err(crate::ErrorKind::Closed.into())
            } else {
                Ok(None)
            };
        };
        Ok(Some(Changes {
            revision: batch.revision(),
            events: batch.events().iter().map(KvEvent::from).collect(),
        }))
    }

    fn canceller(&self) -> Box<dyn Fn() + Send + Sync> {
        let handle = self.0.handle();
        Box::new(move || handle.cancel())
    }
}
