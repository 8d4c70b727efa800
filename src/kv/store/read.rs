//! Reading: the newest state, the past, and what changed.

use std::ops::{Bound, RangeBounds};

use crate::error::{Error, Result};

use super::Store;
use super::watermark::RulesBefore;
use crate::kv::at::At;
use crate::kv::eval::reads::{Reads as _, key_value};
use crate::kv::eval::{check, select};
use crate::kv::log::Log;
use crate::kv::range::AsKeyRange;
use crate::kv::request::RangeRequest;
use crate::kv::response::RangeResponse;
use crate::kv::seam::Newest;
use crate::kv::space;
use crate::kv::types::KeyValue;
use crate::kv::view::{DiffIter, History, View};

impl Store {
    /// The newest version of `key`, or `None` when it is not alive. It takes no view, so it is cheaper
    /// than `latest()?.get(key)`.
    ///
    /// # Errors
    ///
    /// [`Corrupt`](crate::ErrorKind::Corrupt) or [`Io`](crate::ErrorKind::Io) from the files;
    /// [`Closed`](crate::ErrorKind::Closed).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<KeyValue>> {
        let (_, found) = self.engine.get_latest(&space::user(key.as_ref()))?;
        Ok(found.map(key_value))
    }

    /// The version of `key` as of a point in history, a revision or a time, or `None` when it was not alive
    /// then. It takes no view, so it is cheaper than `at(revision)?.get(key)`; for several reads of one
    /// revision, take the view.
    ///
    /// # Errors
    ///
    /// As [`Store::at`] and [`View::get`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// let first = store.put("/a", "one")?.revision;
    /// store.put("/a", "two")?;
    /// assert_eq!(store.get_at("/a", first)?.expect("it lived").value, "one");
    /// assert_eq!(store.get_at("/a", first - 1)?, None);
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn get_at(&self, key: impl AsRef<[u8]>, at: impl Into<At>) -> Result<Option<KeyValue>> {
        let at = at.into();
        if at == At::Latest {
            return self.get(key);
        }
        let revision = at.revision(&self.engine)?;
        Ok(self.engine.get_at(&space::user(key.as_ref()), revision)?.map(key_value))
    }

    /// Reads a range in etcd's terms: with order, filters, limit and count. To walk over many keys,
    /// [`View::range`] is the better way.
    ///
    /// # Errors
    ///
    /// [`EmptyKey`](crate::ErrorKind::EmptyKey), [`Compacted`](crate::ErrorKind::Compacted),
    /// [`FutureRevision`](crate::ErrorKind::FutureRevision).
    ///
    /// ```
    /// use annals::{RangeRequest, SortOrder, SortTarget};
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    ///
    /// for key in ["/a/1", "/a/2", "/a/3"] {
    ///     store.put(key, "")?;
    /// }
    /// let newest = RangeRequest::prefix("/a/").sort(SortTarget::Mod, SortOrder::Descend).limit(1);
    /// let answer = store.range(newest)?;
    /// assert_eq!((answer.kvs[0].key.as_ref(), answer.count, answer.more), (&b"/a/3"[..], 3, true));
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn range(&self, request: RangeRequest) -> Result<RangeResponse> {
        check::range(&request)?;
        if request.range_end.is_empty() && request.revision.is_none() {
            let (revision, found) = self.engine.get_latest(&space::user(&request.key))?;
            let found = found.map(key_value).into_iter().collect();
            return Ok(select::answer(found, &request, revision));
        }
        self.on_newest(|newest| {
            let revision = newest.revision();
            match request.revision {
                Some(at) if at != revision => {
                    check::readable(newest, &request, at)?;
                    select::past(newest, at, &request, revision)
                }
                _ => select::newest(newest, &request, revision),
            }
        })
    }

    /// Decides something on the newest visible state.
    pub(super) fn on_newest<T>(
        &self,
        mut decide: impl FnMut(&Newest<'_>) -> Result<T>,
    ) -> Result<T> {
        loop {
            let rules = RulesBefore::of(&self.engine);
            let newest = Newest::of(&self.engine)?;
            match decide(&newest) {
                Err(error) if rules.overtook(&self.engine, &error, newest.compacted()) => {}
                decided => return decided,
            }
        }
    }

    /// The store as of now; later writes do not show in it.
    ///
    /// # Errors
    ///
    /// [`Closed`](crate::ErrorKind::Closed).
    pub fn latest(&self) -> Result<View> {
        Ok(View::new(&self.engine, self.engine.latest()?))
    }

    /// The store as of a point in history: a revision, or a time. If only some keys are kept that far back
    /// ([`set_retention`](Self::set_retention)), reads of the others are refused, and so are ranges in
    /// which others can lie.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// let first = store.put("/a", "one")?.revision;
    /// store.put("/a", "two")?;
    /// assert_eq!(store.at(first)?.get("/a")?.expect("it lived").value, "one");
    /// let now = SystemTime::now() + Duration::from_secs(1);
    /// assert_eq!(store.at(now)?.get("/a")?.expect("it lives").value, "two");
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Compacted`](crate::ErrorKind::Compacted) if no key is kept that far back,
    /// [`FutureRevision`](crate::ErrorKind::FutureRevision);
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for revision 0; of a time,
    /// [`NoRevisionAtTime`](crate::ErrorKind::NoRevisionAtTime),
    /// [`TimeUnknown`](crate::ErrorKind::TimeUnknown), and `Compacted` also when the revision is compacted
    /// while it is looked for.
    pub fn at(&self, at: impl Into<At>) -> Result<View> {
        let view = match at.into() {
            At::Latest => self.engine.latest()?,
            at => self.engine.view(at.revision(&self.engine)?)?,
        };
        Ok(View::new(&self.engine, view))
    }

    /// The retained versions of `key`, newest first, with tombstones marked. [`History::since`] and
    /// [`History::until`] bound them by revisions or times.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// store.put("/a", "one")?;
    /// store.put("/a", "two")?;
    /// store.delete("/a")?;
    /// let versions = store.history("/a").collect::<Result<Vec<_>, _>>()?;
    /// let told: Vec<_> = versions.iter().map(|v| (v.mod_revision, v.tombstone)).collect();
    /// assert_eq!(told, [(4, true), (3, false), (2, false)]);
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn history(&self, key: impl AsRef<[u8]>) -> History {
        History::new(&self.engine, self.engine.latest(), key.as_ref())
    }

    /// What differs between the state at `from` and the state at `to`, in key order. Either may be a revision,
    /// a time or [`At::Latest`].
    ///
    /// Whether both revisions can be read is decided within this call: a compaction that is faster makes
    /// it answer [`Compacted`](crate::ErrorKind::Compacted), a later one takes nothing from the iterator.
    ///
    /// # Errors
    ///
    /// As [`Store::at`], for either revision; [`InvalidArgument`](crate::ErrorKind::InvalidArgument)
    /// when `from` is greater than `to`.
    ///
    /// ```
    /// use annals::Diff;
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    ///
    /// let from = store.put("/a", "one")?.revision;
    /// store.put("/a", "two")?;
    /// let to = store.put("/b", "new")?.revision;
    /// for difference in store.diff(from, to, "/"..)? {
    ///     match difference? {
    ///         Diff::Added(kv) => assert_eq!(kv.key, "/b"),
    ///         Diff::Changed { old, new } => assert_eq!((old.version, new.version), (1, 2)),
    ///         Diff::Removed(kv) => unreachable!("{kv:?}"),
    ///     }
    /// }
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn diff(
        &self,
        from: impl Into<At>,
        to: impl Into<At>,
        range: impl AsKeyRange,
    ) -> Result<DiffIter> {
        let [from, to] = [from.into(), to.into()];
        let (from, to) = (from.revision(&self.engine)?, to.revision(&self.engine)?);
        if from > to {
            let what = format!("a difference goes forward: from {from} to {to} does not");
            return Err(Error::invalid(what));
        }
        DiffIter::new(&self.engine, from, to, &range.to_key_range())
    }

    /// The transactions with these revisions, oldest first, with their times and metadata.
    ///
    /// An absent lower bound is the oldest retained transaction, an absent upper one the newest: both
    /// are those of this call, as is what can be read. A lower bound below the compacted revision makes
    /// [`Compacted`](crate::ErrorKind::Compacted) the first and last item. A compaction after this call
    /// takes nothing from the iterator, nor a value [asked for](Log::with_values).
    ///
    /// Where keys are [kept differently long](Self::set_retention), the oldest transaction is the first
    /// of which everything is kept; [`log_of`](Self::log_of) goes further back for keys that are.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use annals::put;
    ///
    /// store.txn().then([put("/a", "1"), put("/b", "2")]).metadata("by hand").commit()?;
    /// let all = store.log(..).collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!((all[0].metadata.as_ref(), all[0].changes.len()), (&b"by hand"[..], 2));
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn log(&self, revisions: impl RangeBounds<u64>) -> Log {
        self.log_of(revisions, ..)
    }

    /// As [`Store::log`], with what the transactions did to the keys of `range` alone; those that did
    /// nothing there are left out. How far it goes back depends on these keys.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use annals::{KeyRange, put};
    ///
    /// store.txn().then([put("/a", "1"), put("/b", "2")]).commit()?;
    /// store.put("/b", "3")?;
    /// let log = store.log_of(.., KeyRange::prefix("/a")).collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!((log.len(), &log[0].changes[0].key[..]), (1, &b"/a"[..]));
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn log_of(&self, revisions: impl RangeBounds<u64>, range: impl AsKeyRange) -> Log {
        let first = match revisions.start_bound() {
            Bound::Included(first) => Some(*first),
            Bound::Excluded(before) => Some(before.saturating_add(1)),
            Bound::Unbounded => None,
        };
        let end = match revisions.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        Log::new(&self.engine, first, end, &range.to_key_range())
    }
}
