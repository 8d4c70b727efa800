//! How much of its past a rebuilt store can have.
//!
//! The damaged store is read as anybody would read it: that answers with what is true, or with an error. From the revision on
//! behind which every transaction can be read, values included, the past is known, if what it begins with is: the
//! versions that were the newest at that revision, which are put together from all files. Where a later transaction
//! does not follow from these, since it changes a key of which a version is lost, the past begins behind it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use annals::{Change, ChangeKind, Store};
use bytes::Bytes;

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
}

/// The past of a damaged store.
pub(super) struct Past {
    pub(super) store: Store,
    /// The first revision at which every key could be read before the damage.
    oldest: u64,
    /// The first at which any could, by whatever rule.
    floor: u64,
    /// Behind this every transaction can be read.
    pub(super) from: u64,
    pub(super) newest: u64,
}

/// The first revision at which any key of the damaged store can be read, by whatever rule; `None` if it cannot be
/// opened.
pub(super) fn floor(global: &Global) -> Option<u64> {
    global.read().ok().map(|store| floor_of(&store))
}

fn floor_of(store: &Store) -> u64 {
    let floors = store.retention().into_iter().map(|rule| rule.floor.max(1));
    let all = store.oldest_readable(..).min(store.compacted_revision());
    floors.fold(all.max(1), u64::min)
}

impl Past {
    /// Reads all that was written; `None` where nothing behind any revision is known.
    pub(super) fn of(global: &Global) -> Option<Self> {
        let store = global.read().ok()?;
        let view = store.latest().ok()?;
        let (oldest, newest) = (store.oldest_readable(..).max(1), view.revision());
        drop(view);
        let floor = floor_of(&store);
        let mut past = Self { store, oldest, floor, from: oldest, newest };
        past.find_whole();
        (past.from < past.newest).then_some(past)
    }

    /// Whether there was something before `from`, which is not taken along.
    pub(super) fn begins_late(&self) -> bool {
        self.from > self.floor
    }

    /// When the first transaction behind `from` was ordered.
    pub(super) fn time_behind(&self) -> Outcome<i64> {
        let next = self.store.log(self.from + 1..).next().transpose()?;
        Ok(next.map_or(0, |transaction| transaction.time))
    }

    /// Finds from where on every transaction can be read.
    fn find_whole(&mut self) {
        let mut progress = Progress::new(Some(self.newest - self.oldest), "revisions");
        let (mut next, mut errors) = (self.oldest + 1, 0_u64);
        while next <= self.newest {
            let begun = next;
            for transaction in self.store.log(next..=self.newest).with_values() {
                let Ok(transaction) = transaction else { break };
                let has_value =
                    |change: &Change| change.kind == ChangeKind::Delete || change.value.is_some();
                if !transaction.changes.iter().all(has_value) {
                    break;
                }
                next = transaction.revision + 1;
                progress.set(next - self.oldest, || Cow::Borrowed("looked at"));
            }
            if next > self.newest {
                return;
            }
            // What comes next cannot be read, or not whole.
            errors = if next == begun { errors + 1 } else { 1 };
            let skipped = errors.saturating_sub(ERRORS).max(1);
            self.from = (next + skipped - 1).min(self.newest);
            next = self.from + 1;
        }
    }

    /// Whether every transaction behind `from` follows from what was read up to there. If not, `from` is raised.
    pub(super) fn follows(&mut self, salvage: &mut Salvage) -> Outcome<bool> {
        let Salvage { keys, gaps, newest_gaps, .. } = salvage;
        if gaps.is_empty() {
            return Ok(true);
        }
        let mut alive: BTreeMap<Bytes, Living> = BTreeMap::new();
        let mut bytes = 0;
        keys.each(&mut |key, found| {
            let Some(newest) = &found.newest else { return Ok(()) };
            if let Some(kv) = newest.alive.as_ref()
                && bytes <= BYTES
                && is_within(gaps, key)
            {
                bytes += key.len() + OVERHEAD;
                // One version of a key was the newest at `from`. If that is in a file that can be read, it was found there.
                let is_sure = !newest.by_event && !is_within(newest_gaps, key);
                let numbers = (kv.create_revision, kv.version);
                alive.insert(key.clone(), Living { numbers, is_sure });
            }
            Ok(())
        })?;
        let mut later = None;
        for transaction in self.store.log(self.from + 1..=self.newest) {
            let Some(transaction) = transaction.ok().filter(|_| bytes <= BYTES) else {
                later = Some(self.newest);
                break;
            };
            for change in &transaction.changes {
                if !is_within(gaps, &change.key) {
                    continue;
                }
                let before = alive.remove(&change.key);
                let follows = match (change.kind, before) {
                    // It does not tell which version it ended.
                    (ChangeKind::Delete, before) => before.is_some_and(|before| before.is_sure),
                    (ChangeKind::Put, None) => change.version == 1,
                    (ChangeKind::Put, Some(Living { numbers: (created, version), .. })) => {
                        (change.create_revision, change.version) == (created, version + 1)
                    }
                };
                if !follows {
                    later = later.max(Some(transaction.revision));
                }
                if before.is_some() {
                    bytes -= change.key.len() + OVERHEAD;
                }
                if change.kind == ChangeKind::Put {
                    bytes += change.key.len() + OVERHEAD;
                    let numbers = (change.create_revision, change.version);
                    alive.insert(change.key.clone(), Living { numbers, is_sure: true });
                }
            }
        }
        self.from = later.unwrap_or(self.from);
        Ok(later.is_none())
    }
}
