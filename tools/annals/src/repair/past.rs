//! How much of its past a rebuilt store can have.
//!
//! The damaged store is read as anybody would read it: that answers with what is true, or with an error. What EVENTS do not tell
//! any more is put together from the versions where these are whole ([`mend`]), and values that EVENTS do not repeat are looked
//! for in all of these. One that is in none is *lost*: the version stands in the new store without it, so that what comes later
//! follows, and its key gives up its past up to what superseded it, so that nobody reads it.
//!
//! From the revision on behind which every transaction is known so far, the past is known, if what it begins with is: the
//! versions that were the newest at that revision, which are put together from all files. Where a later transaction
//! tells that one of these is another, which is lost, it stands in, too.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use annals::inspect::StoreFiles;
use annals::{Change, ChangeKind, KeyValue, Options, Store, Transaction};
use bytes::Bytes;

use super::mend::{self, Gap};
use super::salvage::{Salvage, is_within};
use crate::args::Global;
use crate::exit::Outcome;
use crate::progress::Progress;

/// What the keys within the gaps may take in memory. Of more the past is given up.
const BYTES: usize = 32 << 20;

/// What one takes beside its bytes: about.
const OVERHEAD: usize = 128;

/// Errors one after another before revisions are skipped, more each time: a file that is not there would cost one for
/// each of its revisions.
const ERRORS: u64 = 256;

/// What is known of a key in a gap.
#[derive(Clone, Copy)]
struct Living {
    /// When it came to live, and how often it was written since.
    numbers: (u64, u64),
    /// No other version can be lost that came later.
    is_sure: bool,
    /// It was at `from`.
    is_base: bool,
}

/// Options for reading a damaged store once, front to back, and for writing another one of it: what they keep in memory they
/// keep beside what a repair has found.
pub(super) fn sparing(global: &Global) -> Outcome<Options> {
    global.options_over(Options::new().memtable_bytes(4 << 20).cache_bytes(4 << 20))
}

/// The past of a damaged store.
pub(super) struct Past {
    /// `None` where it cannot be opened, and all that is known is in `transactions`.
    pub(super) store: Option<Store>,
    /// Transactions up to this one may be lost of any key.
    lost_upto: Option<u64>,
    /// The first revision at which every key could be read before the damage.
    oldest: u64,
    /// The first at which any could, by whatever rule.
    floor: u64,
    /// Behind this every transaction can be read.
    pub(super) from: u64,
    pub(super) newest: u64,
    /// Revisions behind `from` of which it is not known who wrote them, and when, in order.
    pub(super) mended: Vec<Gap>,
    /// Transactions behind `from` that cannot be read as they are.
    transactions: BTreeMap<u64, Transaction>,
    /// Those versions of them whose values are lost, by revision and key: they have none.
    lost: HashSet<(u64, Bytes)>,
    /// What stands for versions at `from` that are lost, of keys that are written later. `None`: there was none.
    pub(super) stand_ins: BTreeMap<Bytes, Option<KeyValue>>,
}

/// The first revision at which any key of the damaged store can be read, by whatever rule; `None` if it cannot be
/// opened.
pub(super) fn floor(global: &Global) -> Option<u64> {
    global.read().ok().map(|store| floor_of(&store))
}

pub(super) fn floor_of(store: &Store) -> u64 {
    let floors = store.retention().into_iter().map(|rule| rule.floor.max(1));
    let all = store.oldest_readable(..).min(store.compacted_revision());
    floors.fold(all.max(1), u64::min)
}

impl Past {
    /// Reads all that was written; `None` where nothing behind any revision is known.
    pub(super) fn of(global: &Global, files: &StoreFiles) -> Option<Self> {
        let store = Store::open_read_only_with(global.data().ok()?, &sparing(global).ok()?).ok()?;
        let view = store.latest().ok()?;
        let (oldest, newest) = (store.oldest_readable(..).max(1), view.revision());
        drop(view);
        let floor = floor_of(&store);
        let mut past = Self {
            store: Some(store),
            lost_upto: None,
            oldest,
            floor,
            from: oldest,
            newest,
            mended: Vec::new(),
            transactions: BTreeMap::new(),
            lost: HashSet::new(),
            stand_ins: BTreeMap::new(),
        };
        let gaps = past.gaps();
        past.mend(files, &gaps);
        (past.from < past.newest).then_some(past)
    }

    /// What the log alone tells of a store that cannot be opened: these transactions, which follow each other. `lost_upto`:
    /// the last of those that are lost.
    pub(super) fn of_log(
        transactions: BTreeMap<u64, Transaction>,
        lost_upto: Option<u64>,
    ) -> Option<Self> {
        let (first, newest) =
            (*transactions.first_key_value()?.0, *transactions.last_key_value()?.0);
        let from = first.checked_sub(1)?;
        Some(Self {
            store: None,
            lost_upto,
            oldest: from,
            floor: 1,
            from,
            newest,
            mended: Vec::new(),
            transactions,
            lost: HashSet::new(),
            stand_ins: BTreeMap::new(),
        })
    }

    /// Whether there was something before `from`, which is not taken along.
    pub(super) fn begins_late(&self) -> bool {
        self.from > self.floor
    }

    /// Whether all of it is known, but for who wrote it, and when.
    pub(super) fn is_all(&self) -> bool {
        !self.begins_late() && self.lost.is_empty() && self.stand_ins.is_empty()
    }

    /// Whether what a change wrote is lost.
    pub(super) fn is_lost(&self, revision: u64, key: &Bytes) -> bool {
        !self.lost.is_empty() && self.lost.contains(&(revision, key.clone()))
    }

    /// When the first transaction behind `from` was ordered.
    pub(super) fn time_behind(&self) -> Outcome<i64> {
        let next = self.transactions().next().transpose()?;
        Ok(next.map_or(0, |transaction| transaction.time))
    }

    /// The transactions behind `from`, with values.
    pub(super) fn transactions(&self) -> impl Iterator<Item = annals::Result<Transaction>> + '_ {
        // What is read as it is, and what follows it that is not.
        let mut pieces = Vec::new();
        let mut next = self.from + 1;
        for gap in gaps_of(self.transactions.keys().copied()) {
            pieces.push((next, gap.0 - 1, Some(gap)));
            next = gap.1 + 1;
        }
        pieces.push((next, self.newest, None));
        pieces.into_iter().flat_map(|(first, last, gap)| {
            let store = self.store.as_ref().filter(|_| first <= last);
            let read = store.map(|store| store.log(first..=last).with_values());
            let known = gap.map(|(first, last)| self.transactions.range(first..=last));
            let known = known.into_iter().flatten().map(|(_, transaction)| transaction.clone());
            read.into_iter().flatten().chain(known.map(Ok))
        })
    }

    /// The revisions whose transactions cannot be read, or not whole.
    fn gaps(&self) -> Vec<Gap> {
        let mut progress = Progress::new(Some(self.newest - self.oldest), "revisions");
        let mut gaps: Vec<Gap> = Vec::new();
        let (mut next, mut errors) = (self.oldest + 1, 0_u64);
        while next <= self.newest {
            let end = self.readable(next, self.newest, |revision| {
                progress.set(revision - self.oldest, || Cow::Borrowed("looked at"));
            });
            if end > self.newest {
                break;
            }
            errors = if end == next { errors + 1 } else { 1 };
            let skipped = errors.saturating_sub(ERRORS).max(1);
            let last = (end + skipped - 1).min(self.newest);
            match gaps.last_mut().filter(|gap| gap.1 + 1 == end) {
                Some(gap) => gap.1 = last,
                None => gaps.push((end, last)),
            }
            next = last + 1;
        }
        // What was skipped may be readable from somewhere on.
        for gap in &mut gaps {
            let (mut bad, mut good) = (gap.0, gap.1 + 1);
            while good - bad > 1 {
                let middle = bad + (good - bad) / 2;
                let is_good = self.readable(middle, good - 1, |_| {}) == good;
                if is_good { good = middle } else { bad = middle }
            }
            gap.1 = good - 1;
        }
        gaps
    }

    /// The first of these revisions whose transaction cannot be read whole; the one behind the last if all can.
    fn readable(&self, first: u64, last: u64, mut step: impl FnMut(u64)) -> u64 {
        let mut next = first;
        let read = self.store.iter().flat_map(|store| store.log(first..=last).with_values());
        for transaction in read {
            let Ok(transaction) = transaction else { break };
            let has_value =
                |change: &Change| change.kind == ChangeKind::Delete || change.value.is_some();
            // One that changes nothing cannot be written again.
            if transaction.changes.is_empty() || !transaction.changes.iter().all(has_value) {
                break;
            }
            next = transaction.revision + 1;
            step(transaction.revision);
        }
        next
    }

    /// Puts together what is in the gaps, but for what comes before a revision where that cannot be done: behind that
    /// `from` is.
    fn mend(&mut self, files: &StoreFiles, gaps: &[Gap]) {
        let Some((_, end)) = gaps.last() else { return };
        let (told, versions) = (mend::told(files, gaps), mend::versions(files, gaps));
        let (Some(mut told), Some(mut versions)) = (told, versions) else {
            self.from = *end;
            return;
        };
        let mut unknown = Vec::new();
        'all: for (first, last) in gaps.iter().copied().rev() {
            // It is not known when that was, but that it was not later than what came next.
            let is_last = last == self.newest;
            let store = self.store.as_ref().filter(|_| !is_last);
            let next = store.and_then(|store| store.log(last + 1..).next());
            let mut time = match next {
                Some(Ok(next)) => Some(next.time),
                None if is_last && files.manifest().flushed_revision == last => {
                    Some(files.manifest().flushed_time)
                }
                _ => None,
            };
            for revision in (first..=last).rev() {
                let known = match told.remove(&revision) {
                    Some(told) => Some(self.filled(told, &versions.changes)),
                    None => versions.whole(revision).zip(time).map(|(changes, time)| {
                        unknown.push(revision);
                        Transaction { revision, time, metadata: Bytes::new(), changes }
                    }),
                };
                let Some(known) = known.filter(|known| !known.changes.is_empty()) else {
                    self.from = revision;
                    break 'all;
                };
                time = Some(known.time);
                self.transactions.insert(revision, known);
            }
        }
        unknown.retain(|revision| *revision > self.from);
        unknown.reverse();
        self.mended = gaps_of(unknown.into_iter());
    }

    /// What EVENTS tell of a transaction, with the values that the versions have.
    fn filled(
        &mut self,
        mut told: Transaction,
        versions: &BTreeMap<u64, Vec<Change>>,
    ) -> Transaction {
        let versions = versions.get(&told.revision).map_or(&[][..], Vec::as_slice);
        for change in &mut told.changes {
            if change.kind == ChangeKind::Delete || change.value.is_some() {
                continue;
            }
            let from = versions.partition_point(|version| version.sub < change.sub);
            let mut there = versions.iter().skip(from);
            let same = there.find(|version| version.sub != change.sub || is_same(version, change));
            let same = same.filter(|version| version.sub == change.sub);
            change.value = same.and_then(|version| version.value.clone());
            if change.value.is_none() {
                self.lost.insert((told.revision, change.key.clone()));
                change.value = Some(Bytes::new());
            }
        }
        told
    }

    /// Has the past begin behind a revision.
    fn raise(&mut self, from: u64) {
        self.from = from;
        self.transactions = self.transactions.split_off(&(from + 1));
        self.lost.retain(|(revision, _)| *revision > from);
        self.mended.retain(|gap| gap.1 > from);
        if let Some(first) = self.mended.first_mut() {
            first.0 = first.0.max(from + 1);
        }
    }

    /// Whether every transaction behind `from` follows from what was read up to there, or from what can stand in for that.
    /// If not, `from` is raised.
    pub(super) fn follows(&mut self, salvage: &mut Salvage) -> Outcome<bool> {
        let Salvage { keys, gaps, newest_gaps, .. } = salvage;
        self.stand_ins.clear();
        if gaps.is_empty() && self.lost_upto.is_none() {
            return Ok(true);
        }
        let mut changed: HashSet<Bytes> = HashSet::new();
        if self.lost_upto.is_some() {
            let transactions = self.transactions.values();
            let changes = transactions.flat_map(|transaction| &transaction.changes);
            changed.extend(changes.map(|change| change.key.clone()));
        }
        let may_be_lost = |key: &[u8]| changed.contains(key) || is_within(gaps, key);
        let mut alive: BTreeMap<Bytes, Living> = BTreeMap::new();
        let mut bytes = 0;
        keys.each(&mut |key, found| {
            let Some(newest) = &found.newest else { return Ok(()) };
            if let Some(kv) = newest.alive.as_ref()
                && bytes <= BYTES
                && may_be_lost(key)
            {
                bytes += key.len() + OVERHEAD;
                // One version of a key was the newest at `from`. If that is in a file that can be read, it was found there.
                let is_after_lost = self.lost_upto.is_none_or(|upto| newest.revision > upto);
                let is_sure = is_after_lost && !newest.by_event && !is_within(newest_gaps, key);
                let numbers = (kv.create_revision, kv.version);
                alive.insert(key.clone(), Living { numbers, is_sure, is_base: true });
            }
            Ok(())
        })?;
        // Those that have been written, so that what comes next follows from that.
        let mut written: HashSet<Bytes> = HashSet::new();
        let (mut later, mut stand_ins) = (None, BTreeMap::new());
        for transaction in self.transactions() {
            let Ok(transaction) = transaction else {
                later = Some(self.newest);
                break;
            };
            if bytes > BYTES {
                // Of half as many it may fit.
                later = Some(u64::midpoint(self.from, self.newest).max(self.from + 1));
                break;
            }
            for change in &transaction.changes {
                if !may_be_lost(&change.key) {
                    continue;
                }
                let before = alive.remove(&change.key);
                let follows = match (change.kind, before) {
                    // It does not tell which version it ended.
                    (ChangeKind::Delete, before) => before.is_some_and(|before| before.is_sure),
                    (ChangeKind::Put, None) => change.version == 1,
                    (ChangeKind::Put, Some(Living { numbers: (created, version), .. })) => {
                        let next = (created, version.checked_add(1));
                        (change.create_revision, Some(change.version)) == next
                    }
                };
                let is_first =
                    before.map_or_else(|| !written.contains(&change.key), |before| before.is_base);
                if !follows {
                    match stand_in(change, before, self.from).filter(|_| is_first) {
                        Some(stands) => {
                            bytes += change.key.len() + OVERHEAD;
                            stand_ins.insert(change.key.clone(), stands);
                        }
                        None => later = later.max(Some(transaction.revision)),
                    }
                }
                if before.is_some() {
                    bytes -= change.key.len() + OVERHEAD;
                }
                if is_first && written.insert(change.key.clone()) {
                    bytes += change.key.len() + OVERHEAD;
                }
                if change.kind == ChangeKind::Put {
                    bytes += change.key.len() + OVERHEAD;
                    let numbers = (change.create_revision, change.version);
                    let living = Living { numbers, is_sure: true, is_base: false };
                    alive.insert(change.key.clone(), living);
                }
            }
        }
        if let Some(later) = later {
            self.raise(later);
        } else {
            self.stand_ins = stand_ins;
        }
        Ok(later.is_none())
    }
}

/// What can stand for the version of a key at `from` that is not what its first change behind that follows from: `found`, or
/// none, was read. `None` where nothing can; `Some(None)` where there was no such key.
#[expect(clippy::option_option, reason = "whether it is known, and what it is")]
fn stand_in(change: &Change, found: Option<Living>, from: u64) -> Option<Option<KeyValue>> {
    let of = |create_revision: u64, version: u64| {
        // It has been written at least so late. What was written at `from` itself has its place in a transaction.
        let mod_revision = create_revision.checked_add(version)?.checked_sub(1)?;
        (create_revision > 1 && mod_revision < from).then(|| KeyValue {
            key: change.key.clone(),
            value: Bytes::new(),
            create_revision,
            mod_revision,
            version,
            lease: 0,
        })
    };
    match (change.kind, change.version) {
        (ChangeKind::Put, 1) => Some(None),
        (ChangeKind::Put, version) => of(change.create_revision, version.checked_sub(1)?).map(Some),
        (ChangeKind::Delete, _) => {
            let (created, version) = found.map_or((2, 1), |found| found.numbers);
            of(created, version).map(Some)
        }
    }
}

/// Whether a version is the one that this change has put.
fn is_same(version: &Change, change: &Change) -> bool {
    version.key == change.key && version.kind == ChangeKind::Put
}

/// Revisions, which ascend, as spans of those that follow each other.
fn gaps_of(revisions: impl Iterator<Item = u64>) -> Vec<Gap> {
    let mut gaps: Vec<Gap> = Vec::new();
    for revision in revisions {
        match gaps.last_mut().filter(|gap| gap.1 + 1 == revision) {
            Some(gap) => gap.1 = revision,
            None => gaps.push((revision, revision)),
        }
    }
    gaps
}
