//! What is to be watched, and how.

use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::kv::{AsKeyRange, At, KeyRange, Store, space};
use crate::sync::Arc;

use super::consumer::Watch;
use super::hub::{After, Hub};
use super::slot::Slot;
use super::tell::Wants;

/// What a watch reads ahead while it catches up, unless told otherwise. It is to stay in the processor's caches,
/// and to be memory that the allocator does not give back in between: with 1 MiB each change took twice as long.
const CATCH_UP_BYTES: usize = 128 << 10;

/// Shortest time between notices of progress.
const PROGRESS_MIN: Duration = Duration::from_millis(100);

/// What becomes of a watch that is not asked as fast as the store is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Slow {
    /// It goes on from where it is, as long as that is kept.
    #[default]
    Wait,
    /// It ends with [`Lagged`](crate::ErrorKind::Lagged) when it is asked and the store is more than so many
    /// revisions ahead of what is due. What it [began with](WatchBuilder::from) does not count.
    Lagged {
        /// Revisions by which it may be behind.
        revisions: u64,
    },
}

/// What is to be watched; made by [`Store::watch`] and [`Store::watch_range`].
#[derive(Clone, Debug)]
#[must_use = "a watch begins with `start`"]
pub struct WatchBuilder {
    store: Store,
    range: Wanted,
    from: At,
    wants: Wants,
    slow: Slow,
    catch_up_bytes: usize,
    progress: Option<Duration>,
}

#[derive(Clone, Debug)]
enum Wanted {
    Key(Bytes),
    Prefix(Bytes),
    Etcd(Bytes, Bytes),
    Range(KeyRange),
}

impl Store {
    /// Watches one key; [`prefix`](WatchBuilder::prefix) and [`range_end`](WatchBuilder::range_end) make it
    /// more.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// let mut watch = store.watch("/config").start()?;
    /// store.put("/config", "new")?;
    /// let batch = watch.next().expect("it goes on")?;
    /// assert_eq!(batch.events()[0].kv.value, "new");
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn watch(&self, key: impl AsRef<[u8]>) -> WatchBuilder {
        WatchBuilder::new(self, Wanted::Key(Bytes::copy_from_slice(key.as_ref())))
    }

    /// Watches the keys of a range.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// let mut watch = store.watch_range("/pods/".."/pods0").keys_only().start()?;
    /// store.put("/pods/a", "1")?;
    /// let batch = watch.next().expect("it goes on")?;
    /// assert!(batch.events()[0].is_create());
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn watch_range(&self, range: impl AsKeyRange) -> WatchBuilder {
        WatchBuilder::new(self, Wanted::Range(range.to_key_range()))
    }
}

impl WatchBuilder {
    fn new(store: &Store, range: Wanted) -> Self {
        let wants =
            Wants { puts: true, deletes: true, keys_only: false, prev_kv: false, fragment: None };
        Self {
            store: store.clone(),
            range,
            from: At::Latest,
            wants,
            slow: Slow::default(),
            catch_up_bytes: CATCH_UP_BYTES,
            progress: None,
        }
    }

    /// Watches every key that begins with the key given; if that is empty, all keys. Of a watch of a range
    /// it is the start of the range.
    pub fn prefix(mut self) -> Self {
        self.range = Wanted::Prefix(self.key());
        self
    }

    /// Watches the keys from the key given up to and without `end`, with etcd's meaning of special ends:
    /// an empty one is the single key, `"\0"` is every key from there on.
    pub fn range_end(mut self, end: impl AsRef<[u8]>) -> Self {
        self.range = Wanted::Etcd(self.key(), Bytes::copy_from_slice(end.as_ref()));
        self
    }

    fn key(&self) -> Bytes {
        match &self.range {
            Wanted::Key(key) | Wanted::Prefix(key) | Wanted::Etcd(key, _) => key.clone(),
            Wanted::Range(range) => range.start().clone(),
        }
    }

    /// The first revision told, past or future; of a time, the first revision after it. Without it, or from
    /// [`At::Latest`], it is the one after the [newest](Store::revision) at [`start`](Self::start).
    ///
    /// From a past one, all is told that has happened since, and then what happens. If it has been
    /// compacted, that is the first item. From a future one, nothing is told before it is reached.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// let yesterday = std::time::SystemTime::now() - std::time::Duration::from_secs(86_400);
    /// store.put("/a", "1")?;
    /// let mut watch = store.watch("/a").from(yesterday).start()?;
    /// assert_eq!(watch.next().expect("it is there")?.revision(), 2);
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn from(mut self, at: impl Into<At>) -> Self {
        self.from = at.into();
        self
    }

    /// Tells how each key was before, too: one more look-up a change. Also of a change exactly at the compacted
    /// revision.
    pub fn prev_kv(mut self) -> Self {
        self.wants.prev_kv = true;
        self
    }

    /// Leaves all values out.
    pub fn keys_only(mut self) -> Self {
        self.wants.keys_only = true;
        self
    }

    /// Leaves puts out: etcd's filter `NOPUT`.
    pub fn no_puts(mut self) -> Self {
        self.wants.puts = false;
        self
    }

    /// Leaves deletes out: etcd's filter `NODELETE`.
    pub fn no_deletes(mut self) -> Self {
        self.wants.deletes = false;
        self
    }

    /// Tells a [notice of progress](crate::Batch::is_progress) whenever nothing has happened to the range
    /// for so long, which must be at least 100 ms, by the [clock](crate::Options::clock) of the store. It
    /// takes a store with [background threads](crate::Options::background), or somebody who asks.
    pub fn progress_every(mut self, time: Duration) -> Self {
        self.progress = Some(time);
        self
    }

    /// Cuts a batch whose keys and values take more than so many bytes: every part but the last
    /// [says so](crate::Batch::is_last_fragment). One event is never cut. Only the batches get smaller:
    /// the transaction is in memory as a whole while it is told.
    pub fn fragment(mut self, bytes: usize) -> Self {
        self.wants.fragment = Some(bytes);
        self
    }

    /// What becomes of the watch when it is not asked as fast as the store is written.
    pub fn when_slow(mut self, slow: Slow) -> Self {
        self.slow = slow;
        self
    }

    /// How much a watch that is behind reads ahead, in bytes of keys, values and metadata and what each batch
    /// and event takes beside them; 128 KiB unless set. One transaction is read as a whole in any case.
    pub fn catch_up_bytes(mut self, bytes: usize) -> Self {
        self.catch_up_bytes = bytes;
        self
    }

    /// Begins to watch: of what becomes visible after this call nothing is missed.
    ///
    /// The first watch of a store begins its thread `annals-watch`, which stays until the store is closed.
    /// Each costs some hundred bytes and, while it has nothing due, nothing else.
    ///
    /// # Errors
    ///
    /// [`EmptyKey`](crate::ErrorKind::EmptyKey); [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for
    /// an empty range, revision 0, or too short a time between notices;
    /// [`NoRevisionAtTime`](crate::ErrorKind::NoRevisionAtTime) if of what came after the time a part has been
    /// compacted; [`Closed`](crate::ErrorKind::Closed).
    pub fn start(self) -> Result<Watch> {
        let range = match &self.range {
            Wanted::Key(key) if key.is_empty() => return Err(ErrorKind::EmptyKey.into()),
            Wanted::Key(key) => KeyRange::key(key),
            Wanted::Prefix(prefix) => KeyRange::prefix(prefix),
            Wanted::Etcd(key, end) if key.is_empty() && end.is_empty() => {
                return Err(ErrorKind::EmptyKey.into());
            }
            Wanted::Etcd(key, end) => KeyRange::from_etcd(key, end),
            Wanted::Range(range) => range.clone(),
        };
        if range.is_empty() {
            return Err(Error::invalid("the range to watch is empty: no key lies in it"));
        }
        if self.from == At::Revision(0) {
            let what = "there is no revision 0 to watch from: leave `from` out for what comes from now \
                        on; 1 is all there ever was";
            return Err(Error::invalid(what));
        }
        if self.progress.is_some_and(|time| time < PROGRESS_MIN) {
            return Err(Error::invalid("notices of progress are at least 100 ms apart"));
        }
        let hub = Hub::of(&self.store)?;
        let created_at = hub.door.latest()?.revision();
        let after = match self.from {
            At::Latest => After::Newest(created_at),
            At::Revision(from) => After::Revision(from - 1),
            At::Time(_) => After::Revision(self.last_before()?),
        };
        let how = (self.wants, self.slow, self.catch_up_bytes);
        if hub.door.is_read_only() {
            // What is there is all there will be.
            let (After::Newest(after) | After::Revision(after)) = after;
            let slot = Arc::new(Slot::new(range, after, after));
            return Ok(Watch::new(hub, slot, how, created_at, created_at, false));
        }
        let (start, end) = space::user_range(&range);
        let (slot, scanned) = hub.register(&self.store, range, after)?;
        // The hub may not have come as far as the watermark, and would tell what is still there. It depends
        // on no thread's speed whether a watch can begin: this one is to read the log by itself, which refuses it.
        let refused = slot.after < created_at && slot.after + 1 < hub.door.oldest_of(&start..&end);
        let scanned = if refused { scanned.max(slot.after + 1) } else { scanned };
        let created_at = if self.from == At::Latest { slot.after } else { created_at };
        if let Some(time) = self.progress {
            hub.ask_progress_every(&slot, i64::try_from(time.as_micros()).unwrap_or(i64::MAX));
        }
        Ok(Watch::new(hub, slot, how, created_at, scanned, true))
    }

    /// The last revision that is not after the time from which is to be watched.
    fn last_before(&self) -> Result<u64> {
        match self.store.resolve(self.from) {
            // Nothing is that old, nor ever was: all of it came after.
            Err(error)
                if matches!(error.kind(), ErrorKind::NoRevisionAtTime { .. })
                    && self.store.oldest_readable(..) <= 2 =>
            {
                Ok(1)
            }
            // It may tell more than was asked for, but nothing less.
            Err(error) => match *error.kind() {
                ErrorKind::TimeUnknown { first, .. } => Ok(first),
                _ => Err(error),
            },
            resolved => resolved,
        }
    }
}
