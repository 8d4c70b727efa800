//! What the object layer needs of a store below it: reads as of a revision, transactions decided by
//! compare-and-swap, leases, and changes in order. [`Store`] has it; anything that keeps etcd's revisions can.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;

use crate::kv::{
    ChangeKind, KeyRange, KeyValue, LeaseGrantRequest, RangeIter, RangeRequest, RangeResponse,
    Store, TxnRequest, TxnResponse, Version,
};
use crate::watch::{Batch, Event, Watch};

use super::status::{Details, Reason, Status};

/// A transactional store that numbers its commits, in the vocabulary of etcd.
///
/// Every method answers as etcd would: a range at a past revision still names the newest one, a compacted
/// revision is [`Compacted`](crate::ErrorKind::Compacted), a future one
/// [`FutureRevision`](crate::ErrorKind::FutureRevision).
pub trait Kv: Send + Sync + 'static {
    /// What [`scan`](Self::scan) answers. All of it is of one revision, also what is taken late.
    type Scan: Iterator<Item = crate::Result<KeyValue>> + Send + 'static;

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

    /// The last change of a key at a revision or before; `None` where there is none, or none that is known. Its `prev_kv` is not
    /// looked at, and may be `None`.
    ///
    /// The provided one reads the key at that revision, as any store of etcd's kind can. So it knows of no deletions, and
    /// of a key that was not there then nothing: a [history](crate::object::Objects::history) ends where the object was
    /// created, and is empty once it is deleted. A store that knows more should say so.
    ///
    /// # Errors
    ///
    /// What the store says: [`Compacted`](crate::ErrorKind::Compacted) where the key cannot be read at that revision any more.
    fn last_change(&self, key: &[u8], at: u64) -> crate::Result<Option<KvEvent>> {
        let found = self.get(key, Some(at))?.0;
        Ok(found.map(|kv| KvEvent { kv, is_delete: false, prev_kv: None }))
    }

    /// The key-values of a range in the order of their keys, and the revision they are of: the one asked for, or
    /// the newest. It is lazy, and takes little memory however much there is.
    ///
    /// # Errors
    ///
    /// What the store says; the scan itself ends after an error.
    fn scan(&self, request: ScanRequest<'_>) -> crate::Result<(Self::Scan, u64)>;

    /// How many keys a scan would give.
    ///
    /// # Errors
    ///
    /// What the store says.
    fn count(&self, request: ScanRequest<'_>) -> crate::Result<u64>;

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

    /// Follows a key, or all keys that begin with it, each change with what was there before.
    ///
    /// # Errors
    ///
    /// What the store says, at once or as the first thing that the watch tells.
    fn watch(&self, request: WatchRequest<'_>) -> crate::Result<Self::Watch>;
}

/// A part of the keys as of a revision.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::exhaustive_structs,
    reason = "stores that are not of this crate are asked with it"
)]
pub struct ScanRequest<'a> {
    /// All keys begin with this.
    pub prefix: &'a [u8],
    /// The first key that may be in it.
    pub start: &'a [u8],
    /// As of this revision; `None` for the newest.
    pub at: Option<u64>,
}

impl ScanRequest<'_> {
    pub(super) fn range(&self) -> KeyRange {
        let start = self.start.max(self.prefix);
        match KeyRange::prefix(self.prefix).end() {
            Some(end) => KeyRange::between(start, end),
            None => KeyRange::from_key(start),
        }
    }
}

/// Which keys to watch.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::exhaustive_structs,
    reason = "stores that are not of this crate are asked with it"
)]
pub struct WatchRequest<'a> {
    /// The key, or what all keys begin with.
    pub key: &'a [u8],
    /// Whether it is the beginning of keys.
    pub is_prefix: bool,
    /// The first revision of which to tell.
    pub from: u64,
    /// After so much time without a change a notice of progress is told; `None` for never.
    pub progress_every: Option<Duration>,
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

/// Changes that a task can wait for: with it, a watch of objects is a [`Stream`].
pub trait PollKvWatch: KvWatch {
    /// The next changes, all of one revision; where there are none, the task is woken when there may be, or when the watch has
    /// ended.
    ///
    /// # Errors
    ///
    /// Those of [`next_timeout`](KvWatch::next_timeout).
    fn poll_changes(&mut self, context: &mut Context<'_>) -> Poll<crate::Result<Changes>>;
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

/// What the store below says is told as it is; 413 for what is too large, 504 where the outcome is unknown or no answer came
/// in time, 410 for what has been compacted, else 500: that of a store which cannot be reached says to come again.
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
            Kind::KeyTooLong { .. } | Kind::EmptyKey | Kind::LeaseTtlTooLarge { .. } => {
                Self::bad_request(error.to_string())
            }
            Kind::ValueTooLong { .. } | Kind::TransactionTooLarge { .. } => {
                Self::new(Reason::RequestEntityTooLarge, error.to_string())
            }
            Kind::Io { source, .. } => match source.kind() {
                io::ErrorKind::TimedOut => Self::new(Reason::Timeout, format!("Timeout: {error}")),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted => {
                    let details = Details { retry_after_seconds: 2, ..Details::default() };
                    Self::new(Reason::ServerTimeout, error.to_string()).with_details(details)
                }
                _ => Self::internal(error),
            },
            _ => Self::internal(error),
        }
    }
}

impl Kv for Store {
    type Scan = RangeIter;
    type Watch = StoreWatch;

    fn revision(&self) -> crate::Result<u64> {
        Ok(Self::revision(self))
    }

    fn get(&self, key: &[u8], at: Option<u64>) -> crate::Result<(Option<KeyValue>, u64)> {
        let RangeResponse { mut kvs, revision, .. } =
            self.range(RangeRequest { revision: at, ..RangeRequest::new(key) })?;
        Ok((kvs.pop(), revision))
    }

    fn last_change(&self, key: &[u8], at: u64) -> crate::Result<Option<KvEvent>> {
        let Some(version) = self.at(at)?.history(key).next().transpose()? else { return Ok(None) };
        let Version {
            key, value, tombstone, create_revision, mod_revision, version, lease, ..
        } = version;
        let kv = KeyValue { key, value, create_revision, mod_revision, version, lease };
        Ok(Some(KvEvent { kv, is_delete: tombstone, prev_kv: None }))
    }

    fn scan(&self, request: ScanRequest<'_>) -> crate::Result<(RangeIter, u64)> {
        let view = match request.at {
            Some(revision) => self.at(revision)?,
            None => self.latest()?,
        };
        Ok((view.range(request.range()), view.revision()))
    }

    fn count(&self, request: ScanRequest<'_>) -> crate::Result<u64> {
        match request.at {
            Some(revision) => self.at(revision)?.count(request.range()),
            None => self.latest()?.count(request.range()),
        }
    }

    fn transact(&self, request: TxnRequest) -> crate::Result<TxnResponse> {
        Self::transact(self, request)
    }

    fn grant(&self, ttl: i64) -> crate::Result<i64> {
        Ok(self.lease_grant_with(LeaseGrantRequest::new(0, ttl))?.id)
    }

    fn watch(&self, request: WatchRequest<'_>) -> crate::Result<StoreWatch> {
        let mut watch = Self::watch(self, request.key).from(request.from).prev_kv();
        if request.is_prefix {
            watch = watch.prefix();
        }
        if let Some(time) = request.progress_every {
            watch = watch.progress_every(time);
        }
        Ok(StoreWatch(watch.start()?))
    }
}

/// A watch of a [`Store`].
#[derive(Debug)]
pub struct StoreWatch(Watch);

impl KvWatch for StoreWatch {
    fn next_timeout(&mut self, timeout: Duration) -> crate::Result<Option<Changes>> {
        let mut item = self.0.next_timeout(timeout);
        if item.is_none() {
            if !self.0.handle().is_ended() {
                return Ok(None);
            }
            // It has ended since it was asked, and may still have to say why.
            item = self.0.try_next();
        }
        changes(item).map(Some)
    }

    fn canceller(&self) -> Box<dyn Fn() + Send + Sync> {
        let handle = self.0.handle();
        Box::new(move || handle.cancel())
    }
}

impl PollKvWatch for StoreWatch {
    fn poll_changes(&mut self, context: &mut Context<'_>) -> Poll<crate::Result<Changes>> {
        Pin::new(&mut self.0).poll_next(context).map(changes)
    }
}

/// Of what a watch of the store tells, or has ended.
fn changes(told: Option<crate::Result<Batch>>) -> crate::Result<Changes> {
    let batch = told.unwrap_or_else(|| Err(crate::ErrorKind::Closed.into()))?;
    let events = batch.events().iter().map(KvEvent::from).collect();
    Ok(Changes { revision: batch.revision(), events })
}
