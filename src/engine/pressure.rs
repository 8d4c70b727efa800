//! Back-pressure: commits slow down before memory runs out, and wait only when it has.
//!
//! Flush takes a generation as long as it takes; writers can fill the next one sooner. To let them
//! run free until no more memory is allowed, and then stop them until a whole generation has been
//! flushed, bounds the memory but makes the store stand still for seconds. So there are two steps:
//!
//! 1. **Slow.** From [`FROZEN_MAX`] frozen generations on, the one that takes the writes is the last
//!    that is allowed. Every commit now *pays* for its bytes with a pause ([`Core::slow_down`]). The
//!    price of a byte is the time in which flush has lately written one, times a factor that grows
//!    with how full the last generation is: from zero, so that nothing changes at once, to
//!    [`STEEPNESS`]. To fill the whole generation takes twice as long as to flush one, so normally
//!    the flush is done before; on the way the writers' rate approaches that of the flush. A flush
//!    that takes longer than the last ones, because the disk is slow or other work goes first,
//!    raises the price while it runs: what has run for a time is taken to need that time again, so
//!    that it may take nine times as long as the last ones before there is no room left.
//! 2. **Wait.** With more frozen generations than that nothing can be taken in: commits wait until
//!    one is flushed ([`Core::wait_for_flush`]), but for compactions and rules of retention, which may be
//!    what gives the disk the space for a flush. Any number of them may come past that while there is
//!    room for one more generation, and each may need one for itself. So the chain asks again where
//!    it would begin one ([`has_room`]), and sends back the commit that came too late.
//!
//! What a writer may also have to wait for is room in the log ([`Core::wait_for_log`]): what is ordered has to be written,
//! so `wal/ahead.rs` is asked before. Usually a file is ready long before it is needed.
//!
//! The pauses of all writers form one queue in time: `paid_until` is the time up to which what has
//! been written is paid for. Each commit moves it on by the price of what has been written since it
//! was last moved, with one CAS, and sleeps until then. So 64 writers together are held to the rate
//! that one would be held to. A pause that is too short for a sleep is left to those that come
//! after.
//!
//! Invariants:
//!
//! 1. No pause is longer than [`DELAY_NANOS_MAX`], whatever is measured: `paid_until` is never moved
//!    further than that ahead of now.
//! 2. A commit pauses after it has its place, with nothing pinned and nothing held: nobody conflicts
//!    with it meanwhile, and reclamation goes on. What only reads does not pause.
//! 3. Without pressure a commit loads one word, twice, relaxed, and does nothing else here.
//! 4. Nobody pauses or waits for a flush that will not come: not in a store that is closed or takes
//!    no more writes, nor for one for which the disk has no space, of which a commit that needs it is told. Without a
//!    background thread nobody pauses either, and a commit that finds no room does the background work itself.

use std::time::Duration;

use crate::clock::Stopwatch;
use crate::error::Result;
use crate::sync::plain::{AtomicI64, AtomicU64, lock};
use crate::sync::{Ordering, epoch, sleep};

use super::core::Core;
use super::tables::Tables;

/// Frozen generations that may wait for their flush before committers wait for it too.
const FROZEN_MAX: usize = 2;

/// A generation that is quite full.
const FULL: u64 = 1024;

/// How many times the time of its flush a byte costs when the last generation is full. Over the
/// whole generation half of it on average.
const STEEPNESS: u64 = 4;

/// The longest pause.
const DELAY_NANOS_MAX: u64 = 50_000_000;

/// What is too short for a sleep, which takes about as long by itself.
const DELAY_NANOS_MIN: u64 = 50_000;

/// How far `paid_until` may lie behind: this much of what writers did not use, and of what they
/// overslept, they are given back.
const CREDIT_NANOS: u64 = 250_000;

/// Nanoseconds that flush is taken to need for a KiB before one was measured: 128 MiB/s.
const PACE_FIRST: u64 = 7_600;

/// The slowest flush that is believed, in nanoseconds for a KiB: 16 KiB/s.
const PACE_MAX: u64 = 61_000_000;

/// Bits of a mark for the memory of a generation; the rest is its number.
const MARK_BITS: u32 = 40;

/// How long a commit that waits sleeps at most before it looks again by itself.
const PATIENCE: Duration = Duration::from_millis(100);

/// What is known of how far flush is behind.
#[derive(Debug)]
pub(super) struct Pressure {
    /// Frozen generations. For a moment it may be behind the tables, either way, even negative.
    frozen: AtomicI64,
    age: Stopwatch,
    /// Since when flush has had to do with the oldest frozen generation, in microseconds of `age`.
    since: AtomicU64,
    /// Nanoseconds that flush has lately needed for a KiB, all its waiting for other work included.
    pace: AtomicU64,
    /// [`Backlog::mark`] up to which has been charged for.
    charged: AtomicU64,
    /// Until when what has been written is paid for, in nanoseconds of `age`.
    paid_until: AtomicU64,
}

/// Frozen generations, and the one that takes the writes, as of one moment.
#[derive(Clone, Copy, Debug)]
struct Backlog {
    /// Memory of the oldest frozen generation.
    oldest: u64,
    /// Number of the generation that takes the writes.
    id: u64,
    /// Its memory.
    current: u64,
    /// How full that is, in [`FULL`]ths.
    fill: u64,
}

impl Backlog {
    /// How far the writes have come: the number of the generation, then its memory.
    fn mark(&self) -> u64 {
        self.id << MARK_BITS | self.current.min((1 << MARK_BITS) - 1)
    }
}

impl Pressure {
    pub(super) fn new() -> Self {
        Self {
            frozen: AtomicI64::new(0),
            age: Stopwatch::start(),
            since: AtomicU64::new(0),
            pace: AtomicU64::new(PACE_FIRST),
            charged: AtomicU64::new(0),
            paid_until: AtomicU64::new(0),
        }
    }

    /// A generation has been frozen.
    pub(super) fn froze(&self) {
        if self.frozen.fetch_add(1, Ordering::Relaxed) == 0 {
            self.since.store(self.age.micros(), Ordering::Relaxed);
        }
    }

    /// The oldest frozen generation, of this many bytes, has been flushed; a usual one has
    /// `usual_bytes`. Called by one thread at a time.
    pub(super) fn flushed(&self, bytes: u64, usual_bytes: u64) {
        let now = self.age.micros();
        let took = now.saturating_sub(self.since.swap(now, Ordering::Relaxed));
        let mean = mean_pace(self.pace.load(Ordering::Relaxed), took, bytes, usual_bytes);
        self.pace.store(mean, Ordering::Relaxed);
        self.frozen.fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    fn is_at_least(&self, frozen: usize) -> bool {
        usize::try_from(self.frozen.load(Ordering::Relaxed)).is_ok_and(|now| now >= frozen)
    }

    /// Charges for what has been written, and says how long the caller has to pause for it.
    fn charge(&self, backlog: Backlog) -> Option<Duration> {
        let now = self.age.micros();
        let running = now.saturating_sub(self.since.load(Ordering::Relaxed));
        let pace = expected_pace(self.pace.load(Ordering::Relaxed), running, backlog.oldest);
        // Only ever upwards: memory may be given back, and a late look may show less.
        let before = self.charged.fetch_max(backlog.mark(), Ordering::Relaxed);
        let written = backlog.mark().saturating_sub(before.max(backlog.id << MARK_BITS));
        let pause = self.queue(now.saturating_mul(1_000), price(written, backlog.fill, pace));
        (pause >= DELAY_NANOS_MIN).then(|| Duration::from_nanos(pause))
    }

    /// Takes the next place in the queue: nanoseconds until what costs `price` is paid for.
    fn queue(&self, now: u64, price: u64) -> u64 {
        let moved = |paid: u64| {
            let from = paid.max(now.saturating_sub(CREDIT_NANOS));
            from.saturating_add(price).min(now.saturating_add(DELAY_NANOS_MAX))
        };
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let (Ok(paid) | Err(paid)) =
            self.paid_until.fetch_update(success, failure, |paid| Some(moved(paid)));
        moved(paid).saturating_sub(now)
    }
}

/// Nanoseconds that `bytes` cost when the last generation is `fill` of [`FULL`] full, and flush
/// needs `pace` nanoseconds for a KiB. Grows with each of them; nothing as long as it is empty.
fn price(bytes: u64, fill: u64, pace: u64) -> u64 {
    let flush = bytes.saturating_mul(pace) / 1024;
    let factor = STEEPNESS * fill.min(FULL);
    (flush.saturating_mul(factor) / FULL).min(DELAY_NANOS_MAX)
}

/// Nanoseconds for a KiB, if `bytes` take this long.
fn pace_of(micros: u64, bytes: u64) -> u64 {
    (micros.saturating_mul(1_000 * 1024) / bytes.max(1)).min(PACE_MAX)
}

/// The pace of a flush that has been running for so long, when the last ones had this one: what has
/// run for a time is taken to need that time again.
fn expected_pace(pace: u64, running_micros: u64, bytes: u64) -> u64 {
    pace.max(pace_of(running_micros.saturating_mul(2), bytes))
}

/// The pace after one more flush. A usual generation counts as much as all before it, and a small
/// one, whose flush says little of the next large one's, as much less as it is smaller.
fn mean_pace(pace: u64, micros: u64, bytes: u64, usual_bytes: u64) -> u64 {
    let whole = usual_bytes.max(1);
    let weight = bytes.min(whole);
    let sum = |a: u64, b: u64| u128::from(a) * u128::from(b);
    let total = sum(pace, 2 * whole - weight) + sum(pace_of(micros, bytes), weight);
    u64::try_from(total / (2 * u128::from(whole))).unwrap_or(PACE_MAX)
}

/// Whether one more generation may be begun, with the ones that these tables have.
pub(super) fn has_room(tables: &Tables) -> bool {
    tables.frozen().count() <= FROZEN_MAX
}

impl Core {
    /// Whether there are more frozen generations than allowed, so that a commit with something to write has to
    /// [wait](Self::wait_for_flush) before it is ordered, and memory stays bounded.
    #[inline]
    pub(super) fn must_wait_for_flush(&self) -> bool {
        self.shared.pressure.is_at_least(FROZEN_MAX + 1)
    }

    /// For a commit that finds no room, and holds and pins nothing: waits until there is some.
    #[cold]
    pub(super) fn wait_for_flush(&self) -> Result<()> {
        let has_room = || has_room(self.shared.tables.load(&epoch::pin()));
        if has_room() {
            return Ok(());
        }
        self.counters.waits.fetch_add(1, Ordering::Relaxed);
        let waited = Stopwatch::start();
        let mut outcome = Ok(());
        // Where nothing can be written nothing has to wait: what only reads goes on.
        // Who comes after a failure of the log is told of that, whatever else is lacking.
        let may_write = || self.check_writable().is_ok() && !self.chain.is_poisoned();
        while outcome.is_ok() && !has_room() && may_write() {
            if !self.shared.worker.is_attended() {
                outcome = self.run_unit_or_leave().map(drop);
                continue;
            }
            if let Some(error) = self.no_room() {
                outcome = Err(error);
                continue;
            }
            self.shared.worker.ring();
            let waiting = lock(&self.flushed_lock);
            if !has_room() && may_write() {
                drop(self.flushed.wait_timeout(waiting, PATIENCE));
            }
        }
        self.counters.wait_micros.fetch_add(waited.micros(), Ordering::Relaxed);
        outcome
    }

    /// For a commit for whose frame the log has no room behind what is ordered, and which holds and pins nothing:
    /// makes room, without waiting for a sync, or where there is no space for that waits until what is ordered is
    /// written. Of the two numbers one is how many bytes of frames there would be with it, the other its own.
    #[cold]
    pub(super) fn wait_for_log(&self, (logged, own): (u64, u64), compacts: bool) -> Result<()> {
        let Some(files) = self.shared.log_files.get() else { return Ok(()) };
        self.counters.waits.fetch_add(1, Ordering::Relaxed);
        let waited = Stopwatch::start();
        let mut outcome = self.make_log(files, (logged, own), compacts);
        if outcome.is_err() && files.has_room_for(own, compacts) {
            // Whatever comes of that, this commit is not part of it: it asks again.
            let _ = self.chain.wait_durable(self.chain.applied());
            outcome = Ok(());
        }
        self.counters.wait_micros.fetch_add(waited.micros(), Ordering::Relaxed);
        outcome
    }

    /// Whether a commit may [pause](Self::slow_down) when it has its place.
    #[inline]
    pub(super) fn would_pause(&self) -> bool {
        self.shared.pressure.is_at_least(FROZEN_MAX)
    }

    /// For a commit that has its place, and holds and pins nothing: pauses if flush is behind.
    #[inline]
    pub(super) fn slow_down(&self) {
        if self.would_pause() {
            self.pause();
        }
    }

    #[cold]
    fn pause(&self) {
        let lost = self.check_writable().is_err() || self.chain.is_poisoned();
        if lost || !self.shared.worker.is_attended() {
            return;
        }
        let Some(backlog) = self.backlog() else { return };
        let Some(pause) = self.shared.pressure.charge(backlog) else { return };
        let paused = Stopwatch::start();
        sleep(pause);
        self.counters.delays.fetch_add(1, Ordering::Relaxed);
        self.counters.delay_micros.fetch_add(paused.micros(), Ordering::Relaxed);
    }

    /// How far flush is behind; `None` if it is not.
    fn backlog(&self) -> Option<Backlog> {
        let guard = epoch::pin();
        let tables = self.shared.tables.load(&guard);
        let frozen = tables.frozen().count();
        let oldest = tables.frozen().next().filter(|_| frozen >= FROZEN_MAX)?;
        let generation = tables.generations.first()?;
        let (id, current) = (generation.id(), generation.bytes_used() as u64);
        let size = self.shared.generation_bytes().max(1);
        // One more than allowed: there is no last one to fill.
        let fill = if frozen > FROZEN_MAX { FULL } else { current.saturating_mul(FULL) / size };
        Some(Backlog { oldest: oldest.bytes_used() as u64, id, current, fill: fill.min(FULL) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every order of magnitude, and the ends.
    fn sizes() -> impl Iterator<Item = u64> + Clone {
        (0..64).map(|shift| 1 << shift).chain([0, 3, 1_000, 1_000_000, u64::MAX])
    }

    #[test]
    fn nothing_is_paid_below_the_threshold_and_never_more_than_the_most() {
        for (bytes, pace) in sizes().flat_map(|bytes| sizes().map(move |pace| (bytes, pace))) {
            assert_eq!(price(bytes, 0, pace), 0);
            assert!(price(bytes, FULL, pace) <= DELAY_NANOS_MAX);
            assert_eq!(price(bytes, u64::MAX / STEEPNESS, pace), price(bytes, FULL, pace));
        }
        assert_eq!(price(u64::MAX, FULL, u64::MAX), DELAY_NANOS_MAX);
    }

    #[test]
    fn the_price_grows_with_the_bytes_the_fill_and_the_time_of_a_flush() {
        let mut sorted: Vec<u64> = sizes().collect();
        sorted.sort_unstable();
        let fills: Vec<u64> = (0..=FULL).step_by(128).collect();
        for pair in sorted.windows(2) {
            for (other, fill) in sizes().flat_map(|other| fills.iter().map(move |f| (other, *f))) {
                assert!(price(pair[0], fill, other) <= price(pair[1], fill, other));
                assert!(price(other, fill, pair[0]) <= price(other, fill, pair[1]));
            }
        }
        for pair in fills.windows(2) {
            assert!(price(4096, pair[0], PACE_FIRST) < price(4096, pair[1], PACE_FIRST));
        }
    }

    /// What the module promises: the last generation takes twice as long to fill as one to flush.
    #[test]
    fn a_generation_that_is_filled_under_pressure_takes_two_flushes() {
        let (size, step, pace) = (32_u64 << 20, 256_u64, 10_000_u64);
        let paid: u64 = (0..size / step).map(|n| price(step, n * step * FULL / size, pace)).sum();
        let flush = size / 1024 * pace;
        assert!(paid.abs_diff(2 * flush) < flush / 50, "{paid} for a flush of {flush}");
    }

    /// What the module promises of a flush that takes far longer than those before it.
    #[test]
    fn a_flush_may_take_nine_times_as_long_as_the_last_ones() {
        let (size, step, pace) = (32_u64 << 20, 4096_u64, 10_000_u64);
        let flush = size / 1024 * pace;
        let mut now = 0;
        for n in 0..size / step {
            let pace = expected_pace(pace, now / 1_000, size);
            now += price(step, n * step * FULL / size, pace);
        }
        assert!(now > 9 * flush, "{now} for a flush of {flush}");
    }

    #[test]
    fn the_queue_is_shared_bounded_and_gives_credit_for_a_little_time() {
        let pressure = Pressure::new();
        let now = 10 * DELAY_NANOS_MAX;
        assert_eq!(pressure.queue(now, CREDIT_NANOS), 0, "what was not used is given back");
        for n in 1..=10 {
            assert_eq!(pressure.queue(now, 1_000_000), n * 1_000_000, "one after the other");
        }
        for _ in 0..100 {
            assert!(pressure.queue(now, DELAY_NANOS_MAX) <= DELAY_NANOS_MAX);
        }
        assert_eq!(pressure.queue(now, u64::MAX), DELAY_NANOS_MAX);
        // Later it is paid for, and no more than the credit is saved up.
        assert_eq!(pressure.queue(100 * now, CREDIT_NANOS + 5), 5);
    }

    #[test]
    fn small_pauses_add_up_and_what_is_charged_once_is_not_charged_again() {
        let pressure = Pressure::new();
        pressure.pace.store(PACE_MAX, Ordering::Relaxed);
        let at = |id, current| Backlog { oldest: 1 << 20, id, current, fill: FULL };
        assert!(pressure.charge(at(7, 1 << 20)).is_some());
        let paid = pressure.paid_until.load(Ordering::Relaxed);
        // Nothing new; memory given back; and a look at the generation before.
        for (id, current) in [(7, 1 << 20), (7, (1 << 20) - 64), (6, 2 << 20)] {
            let _ = pressure.charge(at(id, current));
            assert_eq!(pressure.paid_until.load(Ordering::Relaxed), paid, "nothing new");
        }
        assert_eq!(pressure.charged.load(Ordering::Relaxed), at(7, 1 << 20).mark());
        // All of the next generation is new.
        let mark = |id, current| at(id, current).mark();
        let _ = pressure.charge(at(8, 64));
        assert_eq!(pressure.charged.load(Ordering::Relaxed), mark(8, 64));
    }

    #[test]
    fn the_pace_follows_the_flushes_and_small_ones_count_little() {
        let usual = 1 << 20;
        // 2 s for a MiB is as much again for every flush as it was off before.
        let target = pace_of(2_000_000, usual);
        let mut pace = PACE_FIRST;
        for _ in 0..40 {
            let next = mean_pace(pace, 2_000_000, usual, usual);
            assert!(next >= pace && next <= target);
            pace = next;
        }
        assert!(target - pace <= 1, "{pace} is not {target}");
        let small = mean_pace(PACE_FIRST, 1_000_000, 1024, usual);
        assert!(small < PACE_FIRST + PACE_MAX / 1024, "{small}");
        assert!(mean_pace(u64::MAX, u64::MAX, u64::MAX, u64::MAX / 2) >= PACE_MAX);
        assert_eq!(pace_of(u64::MAX, 0), PACE_MAX);
    }

    #[test]
    fn the_count_of_frozen_generations_may_be_late_either_way() {
        let pressure = Pressure::new();
        pressure.flushed(1, 1);
        assert!(!pressure.is_at_least(1), "below nothing");
        pressure.froze();
        assert!(pressure.is_at_least(0) && !pressure.is_at_least(1));
        pressure.froze();
        assert!(pressure.is_at_least(1));
    }
}
