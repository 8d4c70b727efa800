//! Pacing: what folds, merges and trims may write beside commits, and when they pause.
//!
//! A device that syncs the log has to write out whatever else has been given to it, so a fold at full
//! speed makes every commit several times slower. Background work therefore *owes* for what it writes,
//! and every sync of the log gives it `background_bytes_per_sync` of credit: a sync then waits for a
//! bounded number of bytes that are not its own, however fast commits come. While it owes, background
//! work pauses. It does not owe
//!
//! - while nobody syncs: [`IDLE_MICROS`] after the last sync, with no other running, it is free;
//! - for what it is far behind with: the price of a byte falls, evenly, from the whole at the number of
//!   files that makes work due to nothing at twice that ([`price`]). So work that the credit does not
//!   suffice for speeds up little by little, and there is no number of files at which commits suddenly
//!   become slow;
//! - when somebody waits for it: a caller who does background work in a thread of their own, or who
//!   waits until the worker has finished its piece ([`Credit::hurry`]).
//!
//! A flush never owes: it makes room in memory, and commits pay for it ([`super::pressure`]).
//!
//! Invariants:
//!
//! 1. Only the background thread pauses, and inside a pause it does what is more urgent than its work:
//!    files of the log, flushes, folds inside a merge.
//! 2. A pause holds `busy` and nothing else. It ends at once when the store is closed; whoever takes
//!    `busy` for a piece of work says so first, and ends it too ([`Core::take_busy`]).
//! 3. Nothing is saved up but the credit of one sync, and nothing is owed but what was written since
//!    the last pause.
//! 4. A commit pays two words, written by the one thread that syncs, for each sync; not for each commit.

use crate::clock::Stopwatch;
use crate::sync::plain::{AtomicI64, AtomicU64, MutexGuard, Ordering, lock};

use super::core::Core;
use super::shared::Shared;
use super::windows;
use super::worker::nap;

/// How long after the last sync of the log the store counts as idle. A sync takes from a tenth of a
/// millisecond to some; who commits one after the other comes back sooner than this.
const IDLE_MICROS: u64 = 5_000;

/// The whole price.
const FULL: u64 = 1024;

/// What background work may write; see the module.
#[derive(Debug)]
pub(super) struct Credit {
    /// Bytes that each sync gives.
    per_sync: i64,
    /// Bytes that may be written; below zero they are owed.
    balance: AtomicI64,
    /// How many syncs are running: one at a time.
    syncing: AtomicU64,
    /// When the last one ended, in microseconds of `age`.
    synced_at: AtomicU64,
    /// How many threads wait for background work to be done.
    hurried: AtomicU64,
    age: Stopwatch,
}

/// Somebody waits for background work as long as this lives.
#[derive(Debug)]
pub(super) struct Hurry<'a>(&'a Credit);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.hurried.fetch_sub(1, Ordering::Release);
    }
}

impl Credit {
    /// No sync has been made yet.
    pub(super) fn new(bytes_per_sync: u64) -> Self {
        let per_sync = i64::try_from(bytes_per_sync).unwrap_or(i64::MAX / 2);
        Self {
            per_sync,
            balance: AtomicI64::new(per_sync),
            syncing: AtomicU64::new(0),
            synced_at: AtomicU64::new(0),
            hurried: AtomicU64::new(0),
            age: Stopwatch::start(),
        }
    }

    /// A sync of the log begins.
    pub(super) fn sync_begins(&self) {
        self.syncing.fetch_add(1, Ordering::Relaxed);
    }

    /// It has ended, well or not.
    pub(super) fn sync_ends(&self) {
        self.synced(self.age.micros());
        // After the time: who sees that none is running sees when the last one ended.
        self.syncing.fetch_sub(1, Ordering::Release);
    }

    fn synced(&self, now: u64) {
        self.synced_at.store(now, Ordering::Relaxed);
        let more = |balance: i64| balance.saturating_add(self.per_sync).min(self.per_sync);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.balance.fetch_update(success, failure, |balance| Some(more(balance)));
    }

    /// Whether nobody has synced for a while.
    fn is_idle(&self, now: u64) -> bool {
        self.syncing.load(Ordering::Acquire) == 0
            && now.saturating_sub(self.synced_at.load(Ordering::Relaxed)) >= IDLE_MICROS
    }

    /// These bytes have been written, at this price of [`FULL`].
    fn owe(&self, bytes: u64, price: u64) {
        let owed = u128::from(bytes) * u128::from(price.min(FULL)) / u128::from(FULL);
        let owed = i64::try_from(owed).unwrap_or(i64::MAX);
        let less = |balance: i64| balance.saturating_sub(owed);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.balance.fetch_update(success, failure, |balance| Some(less(balance)));
    }

    /// Whether nothing is owed, at a price of [`FULL`] for what comes next. What does not count any
    /// more is forgotten.
    fn is_clear(&self, now: u64, price: u64) -> bool {
        let forgets = price == 0 || self.hurried.load(Ordering::Acquire) > 0 || self.is_idle(now);
        if forgets {
            self.balance.fetch_max(0, Ordering::Relaxed);
        }
        forgets || self.balance.load(Ordering::Relaxed) >= 0
    }

    /// Keeps background work from pausing.
    pub(super) fn hurry(&self) -> Hurry<'_> {
        self.hurried.fetch_add(1, Ordering::AcqRel);
        Hurry(self)
    }
}

/// The price of a byte in [`FULL`]ths, for work that is due from `limit` files on, where there are
/// `files`: falls evenly from there to twice the limit.
fn price(files: usize, limit: usize) -> u64 {
    let (files, limit) = (files as u64, (limit as u64).max(1));
    let room = limit.saturating_mul(2).saturating_sub(files).min(limit);
    (u128::from(room) * u128::from(FULL) / u128::from(limit)).try_into().unwrap_or(FULL)
}

impl Core {
    /// The price of a byte now: the lower of what folds and merges of windows cost.
    fn price(&self) -> u64 {
        let files = self.shared.tables().files;
        let limits = self.limits();
        let folds = price(files.l0.len(), limits.l0_files_max);
        let windows = match self.rules_seen() {
            None => files.windows.len(),
            Some(rules) => windows::most(&files, &self.left_alone, &rules.floors(0)),
        };
        folds.min(price(windows, limits.history_windows_max))
    }

    /// For background work that has written: notes that.
    pub(super) fn owe(&self, bytes: u64) {
        self.shared.credit.owe(bytes, self.price());
    }

    /// For background work: whether it owes, and nobody waits for it.
    pub(super) fn must_pause(&self) -> bool {
        let Shared { credit, worker, .. } = &*self.shared;
        let may_pause = worker.is_own_thread() && self.failed.get().is_none();
        may_pause && !credit.is_clear(credit.age.micros(), self.price())
    }

    /// A moment of a pause; shorter if the worker's bell rings.
    pub(super) fn nap(&self) {
        let begun = Stopwatch::start();
        nap();
        self.counters.background_pause_micros.fetch_add(begun.micros(), Ordering::Relaxed);
    }

    /// Takes `busy`, for a piece of background work: has the background thread not pause meanwhile.
    pub(super) fn take_busy(&self) -> MutexGuard<'_, ()> {
        let _hurry = self.hurry();
        lock(&self.busy)
    }

    fn hurry(&self) -> Option<Hurry<'_>> {
        // The thread itself is not in a hurry.
        let Shared { credit, worker, .. } = &*self.shared;
        (!worker.is_own_thread()).then(|| {
            let hurry = credit.hurry();
            worker.ring();
            hurry
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: u64 = 100;
    /// A moment at which nothing is idle that was synced at it.
    const NOW: u64 = 1_000_000;

    /// A log that has been synced just now, often enough.
    fn busy() -> Credit {
        let credit = Credit::new(SYNC);
        credit.synced(NOW);
        credit
    }

    fn is_clear(credit: &Credit) -> bool {
        credit.is_clear(NOW, FULL)
    }

    #[test]
    fn what_is_written_is_paid_for_by_that_many_syncs() {
        let credit = busy();
        credit.owe(SYNC, FULL);
        assert!(is_clear(&credit), "one sync is in hand");
        credit.owe(4 * SYNC, FULL);
        for _ in 0..4 {
            assert!(!is_clear(&credit));
            credit.synced(NOW);
        }
        assert!(is_clear(&credit));
    }

    #[test]
    fn no_more_than_one_sync_is_saved_up() {
        let credit = busy();
        for _ in 0..1_000 {
            credit.synced(NOW);
        }
        credit.owe(SYNC + 1, FULL);
        assert!(!is_clear(&credit));
    }

    #[test]
    fn nothing_is_owed_where_nobody_syncs() {
        let credit = busy();
        credit.owe(1_000 * SYNC, FULL);
        assert!(!credit.is_clear(NOW + IDLE_MICROS - 1, FULL));
        // A sync that takes long is not idleness.
        credit.sync_begins();
        assert!(!credit.is_clear(NOW + 100 * IDLE_MICROS, FULL));
        credit.synced(NOW + 100 * IDLE_MICROS);
        credit.syncing.fetch_sub(1, Ordering::Release);
        assert!(!credit.is_clear(NOW + 100 * IDLE_MICROS, FULL));
        assert!(credit.is_clear(NOW + 101 * IDLE_MICROS, FULL));
        // And what was owed before is forgotten.
        credit.synced(NOW + 101 * IDLE_MICROS);
        assert!(credit.is_clear(NOW + 101 * IDLE_MICROS, FULL));
        let credit = Credit::new(SYNC);
        credit.owe(1_000 * SYNC, FULL);
        assert!(credit.is_clear(IDLE_MICROS, FULL), "there never was a sync");
    }

    #[test]
    fn whoever_waits_ends_the_pause() {
        let credit = busy();
        credit.owe(3 * SYNC, FULL);
        assert!(!is_clear(&credit));
        let (one, other) = (credit.hurry(), credit.hurry());
        drop(one);
        credit.owe(1_000 * SYNC, FULL);
        assert!(is_clear(&credit));
        drop(other);
        assert!(is_clear(&credit), "what was written meanwhile was for them");
        credit.owe(1, FULL);
        assert!(!is_clear(&credit));
    }

    #[test]
    fn the_price_falls_evenly_to_nothing_at_twice_the_limit() {
        for limit in [1, 2, 4, 12, 64, 1_024] {
            assert_eq!((price(0, limit), price(limit, limit)), (FULL, FULL));
            assert_eq!((price(2 * limit, limit), price(usize::MAX, limit)), (0, 0));
            let prices: Vec<u64> = (limit..=2 * limit).map(|files| price(files, limit)).collect();
            let step = FULL / limit as u64;
            for pair in prices.windows(2) {
                assert!((step..=step + 1).contains(&(pair[0] - pair[1])), "{limit}: {prices:?}");
            }
        }
        let half = usize::MAX / 2;
        assert_eq!((price(1, 0), price(half, half)), (FULL, FULL));
        let credit = busy();
        credit.owe(3 * SYNC, FULL / 3);
        assert!(is_clear(&credit), "a third of the price");
        credit.owe(3 * SYNC, FULL);
        assert!(!is_clear(&credit) && credit.is_clear(NOW, 0), "far behind");
    }

    #[test]
    fn no_size_is_too_large() {
        for bytes in [0, 1, u64::MAX / 2, u64::MAX] {
            let credit = Credit::new(bytes);
            credit.synced(NOW);
            credit.owe(u64::MAX, FULL);
            credit.owe(u64::MAX, FULL);
            credit.owe(u64::MAX, u64::MAX);
            assert!(!is_clear(&credit));
            credit.synced(NOW);
        }
    }
}
