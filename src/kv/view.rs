//! Reads as of a fixed revision, and the iterators they return.
//!
//! Every iterator here is lazy, bounded in memory, owns what it needs, and ends after an error. Views
//! and iterators hold the engine, which closes with the last of its owners; only differences, which
//! need no more than the files and the memory they compare, do not.

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};

use super::at::At;
use super::eval::reads::key_value;
use super::range::{AsKeyRange, KeyRange};
use super::seam::{self, Engine};
use super::space;
use super::types::{Diff, KeyValue, Origin, Version};

/// The store as of one revision.
///
/// A view never blocks and is never blocked; what it can see stays readable as long as it lives,
/// whatever is compacted meanwhile. It keeps the store open, and its directory locked, also when
/// every [`Store`](crate::Store) has been dropped; after a [`close`](crate::Store::close) it answers
/// [`Closed`](crate::ErrorKind::Closed). Cloning is cheap.
///
/// Where [rules of retention](crate::Store::set_retention) keep only some keys as far back as its revision,
/// it reads those, and answers [`Compacted`](crate::ErrorKind::Compacted) for others, and for ranges in
/// which others can lie.
#[derive(Clone)]
pub struct View {
    engine: Engine,
    view: seam::View,
}

impl View {
    pub(super) fn new(engine: &Engine, view: seam::View) -> Self {
        Self { engine: engine.clone(), view }
    }

    /// The revision the view shows.
    pub fn revision(&self) -> u64 {
        self.view.position().revision
    }

    /// The version of `key` as of the view, or `None` when it was not alive.
    ///
    /// # Errors
    ///
    /// [`Corrupt`](crate::ErrorKind::Corrupt) or [`Io`](crate::ErrorKind::Io) from the files;
    /// [`Compacted`](crate::ErrorKind::Compacted), [`Closed`](crate::ErrorKind::Closed).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<KeyValue>> {
        Ok(self.view.get(&space::user(key.as_ref()))?.map(key_value))
    }

    /// The place that the change to the version of `key` as of the view had in its transaction, as
    /// [`Change::sub`](crate::Change::sub) tells it; `None` when it was not alive.
    ///
    /// # Errors
    ///
    /// As [`View::get`].
    pub fn sub_of(&self, key: impl AsRef<[u8]>) -> Result<Option<u32>> {
        Ok(self.view.get(&space::user(key.as_ref()))?.map(|record| record.sub))
    }

    /// The keys in `range`, in byte order, from either end.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// # for key in ["/pods/a", "/pods/b", "/pods/c"] { store.put(key, "")?; }
    /// let view = store.latest()?;
    /// for kv in view.range("/pods/".."/pods0").rev().limit(2) {
    ///     let kv = kv?;
    ///     println!("{:?} at revision {}", kv.key, kv.mod_revision);
    /// }
    /// assert_eq!(view.range(..).count(), 3);
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn range(&self, range: impl AsKeyRange) -> RangeIter {
        RangeIter::new(self.clone(), range.to_key_range())
    }

    /// The keys that begin with `prefix`; the empty prefix is every key.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> RangeIter {
        self.range(KeyRange::prefix(prefix))
    }

    /// How many keys are alive in `range`.
    ///
    /// In a view of the newest revision this takes time for what has been written since the last flush
    /// (at most [`memtable_bytes`](crate::Options::memtable_bytes) and what waits to be flushed, as far
    /// as it lies in the range) and two look-ups in each file that the range begins or ends in,
    /// whatever lies between. In a view of a revision before the last flush it takes a walk over all
    /// keys of the range.
    ///
    /// # Errors
    ///
    /// As [`View::get`].
    pub fn count(&self, range: impl AsKeyRange) -> Result<u64> {
        let range = range.to_key_range();
        if range.is_empty() {
            return Ok(0);
        }
        let (start, end) = space::user_range(&range);
        self.view.count(&start, &end)
    }

    /// The retained versions of `key` up to the view's revision, newest first.
    pub fn history(&self, key: impl AsRef<[u8]>) -> History {
        History::new(&self.engine, Ok(self.view.clone()), key.as_ref())
    }
}

/// Iterates over key-values in byte order; made by [`View::range`].
#[must_use = "iterators are lazy"]
pub struct RangeIter {
    /// Keeps the store open.
    view: View,
    range: KeyRange,
    keys_only: bool,
    reversed: bool,
    left: u64,
    /// Made when the first item is asked for, so that the settings above are known.
    scan: Option<seam::Scan>,
}

impl RangeIter {
    fn new(view: View, range: KeyRange) -> Self {
        Self { view, range, keys_only: false, reversed: false, left: u64::MAX, scan: None }
    }

    /// Leaves the values out. To be called before the first item is taken.
    pub fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    /// Turns the direction around. (It takes the place of [`Iterator::rev`], so that the other
    /// settings stay within reach.)
    pub fn rev(mut self) -> Self {
        self.reversed = !self.reversed;
        self
    }

    /// Ends after `limit` items.
    pub fn limit(mut self, limit: u64) -> Self {
        self.left = self.left.min(limit);
        self
    }

    fn step(&mut self, from_back: bool) -> Option<Result<KeyValue>> {
        if self.left == 0 || self.range.is_empty() {
            return None;
        }
        let scan = self.scan.get_or_insert_with(|| {
            let (start, end) = space::user_range(&self.range);
            self.view.view.scan(&start, &end, self.keys_only)
        });
        let item = if from_back { scan.next_back() } else { scan.next() };
        self.left = match &item {
            Some(Ok(_)) => self.left - 1,
            _ => 0,
        };
        Some(item?.map(key_value))
    }
}

impl Iterator for RangeIter {
    type Item = Result<KeyValue>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(self.reversed)
    }
}

impl DoubleEndedIterator for RangeIter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(!self.reversed)
    }
}

impl std::iter::FusedIterator for RangeIter {}

/// Iterates over the versions of a key, newest first; made by
/// [`Store::history`](crate::Store::history).
#[must_use = "iterators are lazy"]
pub struct History {
    engine: Engine,
    key: Bytes,
    keys_only: bool,
    with_origin: bool,
    since: Option<Result<u64>>,
    /// The oldest version given.
    oldest: u64,
    state: HistoryState,
}

enum HistoryState {
    /// Not begun, so that the settings can still be made.
    Before(Result<seam::View>),
    Within(Box<seam::History>),
    Ended,
}

impl History {
    pub(super) fn new(engine: &Engine, view: Result<seam::View>, key: &[u8]) -> Self {
        let (engine, key) = (engine.clone(), Bytes::from(space::user(key).into_vec()));
        let state = HistoryState::Before(view);
        let (keys_only, with_origin, since, oldest) = (false, false, None, 0);
        Self { engine, key, keys_only, with_origin, since, oldest, state }
    }

    /// Leaves the values out. To be called before the first version is taken.
    pub fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    /// Looks up the time and metadata of each version's transaction, too, as far as they are [kept](Version::origin): one
    /// more read each.
    pub fn with_origin(mut self) -> Self {
        self.with_origin = true;
        self
    }

    /// Goes back to a point in history and no further: the last version given is the one that the key had
    /// then, if it was alive. The revision must be one at which the key can be read, or
    /// [`Compacted`](crate::ErrorKind::Compacted) is the first and last item; a time before all that is kept
    /// makes that [`NoRevisionAtTime`](crate::ErrorKind::NoRevisionAtTime). To be called before the first version is taken.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// for value in ["one", "two", "three", "four"] { store.put("/a", value)?; }
    /// store.put("/b", "at revision 6")?;
    ///
    /// let between = store.history("/a").since(3).until(4);
    /// let values = between.map(|version| Ok(version?.value)).collect::<annals::Result<Vec<_>>>()?;
    /// assert_eq!(values, ["three", "two"]);
    /// let now = store.history("/a").since(6).next().expect("one")?;
    /// assert_eq!(now.value, "four");
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn since(mut self, at: impl Into<At>) -> Self {
        self.since = Some(at.into().revision(&self.engine));
        self
    }

    /// Begins with the version that the key had at a point in history; one later than the view's changes
    /// nothing. To be called before the first version is taken.
    pub fn until(mut self, at: impl Into<At>) -> Self {
        if let HistoryState::Before(Ok(view)) = &self.state {
            match at.into().revision(&self.engine) {
                Ok(until) if until >= view.revision() => {}
                until => {
                    let view = until.and_then(|until| self.engine.view(until));
                    self.state = HistoryState::Before(view);
                }
            }
        }
        self
    }

    fn begin(&mut self, view: &seam::View) -> Result<()> {
        let versions = view.history(&self.key, self.keys_only);
        self.state = HistoryState::Within(Box::new(versions));
        if let Some(since) = self.since.take().transpose()? {
            // Asked after the history was begun: if the key can be read then now, the history goes back as far.
            let then = self.engine.view(since)?.newest(&self.key)?;
            if since > view.revision() {
                let until = view.revision();
                let what = format!("a history since revision {since} cannot end at {until}");
                return Err(Error::invalid(what));
            }
            let was_there = then.filter(|stub| !stub.tombstone || stub.revision == since);
            self.oldest = was_there.map_or(since, |stub| stub.revision);
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Option<Version>> {
        if let HistoryState::Before(view) = &mut self.state {
            let view = std::mem::replace(view, Err(ErrorKind::Closed.into()))?;
            self.begin(&view)?;
        }
        let HistoryState::Within(versions) = &mut self.state else { return Ok(None) };
        let Some(found) = versions.next().transpose()? else { return Ok(None) };
        if found.record.mod_revision < self.oldest {
            return Ok(None);
        }
        let mut version = version(found);
        if self.with_origin {
            version.origin = origin(&self.engine, &version.key, version.mod_revision)?;
        }
        Ok(Some(version))
    }
}

impl Iterator for History {
    type Item = Result<Version>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if !matches!(step, Ok(Some(_))) {
            self.state = HistoryState::Ended;
        }
        step.transpose()
    }
}

impl std::iter::FusedIterator for History {}

fn version(version: seam::HistoryRecord) -> Version {
    let seam::HistoryRecord { record, tombstone } = version;
    let kv = key_value(record);
    Version {
        key: kv.key,
        value: kv.value,
        tombstone,
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        lease: kv.lease,
        origin: None,
    }
}

/// The origin of a version, as far as it is still kept.
fn origin(engine: &Engine, key: &Bytes, revision: u64) -> Result<Option<Origin>> {
    let log = if_kept(seam::log(engine, Some(revision), revision + 1, &KeyRange::key(key)))?;
    if let Some(found) = log.and_then(|mut log| log.next()).transpose()? {
        return Ok(Some(Origin { time: found.time, metadata: found.metadata }));
    }
    // The change goes with the floor of its key, and may take the metadata along. The time stays until the least floor
    // of all keys has passed.
    let time = if_kept(engine.time_of(revision))?.flatten();
    Ok(time.map(|time| Origin { time, metadata: Bytes::new() }))
}

/// What was answered, unless it is compacted.
fn if_kept<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Err(error) if seam::is_compacted(&error) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Iterates over differences in key order; made by [`Store::diff`](crate::Store::diff). What both
/// revisions show stays readable as long as it lives, whatever is compacted meanwhile.
#[must_use = "iterators are lazy"]
pub struct DiffIter {
    differences: Option<seam::Differences>,
}

impl DiffIter {
    pub(super) fn new(engine: &Engine, from: u64, to: u64, range: &KeyRange) -> Result<Self> {
        // Also for an empty range both revisions have to be there.
        let (start, end) = space::user_range(range);
        let differences = engine.view(to)?.diff(from, &start, &end)?;
        Ok(Self { differences: (!range.is_empty()).then_some(differences) })
    }
}

impl Iterator for DiffIter {
    type Item = Result<Diff>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let difference = match self.differences.as_mut()?.next() {
                Some(Ok(difference)) => difference,
                Some(Err(error)) => {
                    self.differences = None;
                    return Some(Err(error));
                }
                None => {
                    self.differences = None;
                    return None;
                }
            };
            let seam::Difference { old, new, .. } = difference;
            return Some(Ok(match (old.map(key_value), new.map(key_value)) {
                (None, Some(new)) => Diff::Added(new),
                (Some(old), None) => Diff::Removed(old),
                (Some(old), Some(new)) => Diff::Changed { old, new },
                (None, None) => continue,
            }));
        }
    }
}

impl std::iter::FusedIterator for DiffIter {}
