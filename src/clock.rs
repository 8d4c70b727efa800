//! Time, as the store sees it: the only file that asks the system what time it is.
//!
//! Two clocks are kept apart. *Wall time* dates the commits; it may jump either way, and the commit
//! chain makes it monotonic. *Elapsed time* drives leases and pacing; it never goes back.

use std::fmt::Debug;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::sync::plain::{AtomicI64, Ordering};

/// A source of time.
pub trait Clock: Send + Sync + Debug {
    /// Wall time in microseconds since the Unix epoch. It may jump.
    fn now_micros(&self) -> i64;

    /// Microseconds since some fixed instant. It never goes back.
    fn elapsed_micros(&self) -> i64;

    /// Whether elapsed time passes as fast as for the system, so that a thread can sleep until some time
    /// has come. Of another clock it looks again and again. Default: false.
    fn is_system(&self) -> bool {
        false
    }
}

/// The clock of the system.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// The clock of the system; elapsed time counts from now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_micros(&self) -> i64 {
        let now = SystemTime::now();
        match now.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |m| -m),
        }
    }

    fn elapsed_micros(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    fn is_system(&self) -> bool {
        true
    }
}

/// Measures how long something takes, by the system's clock whatever clock a store has been given:
/// for pauses between threads, which are real also where time is simulated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Begins to measure.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the start.
    pub(crate) fn nanos(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Microseconds since the start.
    pub(crate) fn micros(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// A clock that stands still until it is told to move; for tests and simulations.
///
/// ```
/// use annals::clock::{Clock, ManualClock};
///
/// let clock = ManualClock::new(1_000);
/// clock.advance(5);
/// assert_eq!(clock.now_micros(), 1_005);
/// clock.set_now(10); // a jump of the wall clock does not move elapsed time
/// assert_eq!((clock.now_micros(), clock.elapsed_micros()), (10, 5));
/// ```
#[derive(Debug, Default)]
pub struct ManualClock {
    now: AtomicI64,
    elapsed: AtomicI64,
}

impl ManualClock {
    /// A clock whose wall time is `now`, in microseconds since the Unix epoch.
    pub fn new(now: i64) -> Self {
        Self { now: AtomicI64::new(now), elapsed: AtomicI64::new(0) }
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, micros: i64) {
        self.now.fetch_add(micros, Ordering::SeqCst);
        self.elapsed.fetch_add(micros, Ordering::SeqCst);
    }

    /// Makes the wall clock jump.
    pub fn set_now(&self, now: i64) {
        self.now.store(now, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_micros(&self) -> i64 {
        self.now.load(Ordering::SeqCst)
    }

    fn elapsed_micros(&self) -> i64 {
        self.elapsed.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_is_after_2020_and_does_not_go_back() {
        let clock = SystemClock::new();
        assert!(clock.now_micros() > 1_577_836_800_000_000);
        let before = clock.elapsed_micros();
        assert!(clock.elapsed_micros() >= before);
    }
}
