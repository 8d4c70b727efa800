//! How fast connections are taken.
//!
//! To be connected and to leave again costs a client less than it costs the server, and a flood can do so thousands of
//! times a second. So connections are taken at a pace: those that come faster wait in the kernel, which holds a
//! number of them and makes further ones try again, and the calls of those that are connected go on. Clients that all
//! come at once, as after a restart, have a burst for it; see [`BURST`].

use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

/// What a connection takes of the time of a processor: five hundred come in a second for each there is.
const EVERY: Duration = Duration::from_millis(2);

/// A connection with TLS takes so many times as much, as its handshake does.
const WITH_TLS: u32 = 2;

/// Time that is saved up for connections that come at once: two thousand for each processor, or a thousand with TLS.
const BURST: Duration = Duration::from_secs(4);

/// The pace of all connections together.
#[derive(Debug)]
pub(crate) struct Arrivals {
    every: Duration,
    /// The time by which all that were taken are paid for.
    paid: Mutex<Instant>,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self::with(available_parallelism().map_or(1, NonZero::get))
    }
}

impl Arrivals {
    fn with(processors: usize) -> Self {
        let now = Instant::now();
        let every = EVERY / u32::try_from(processors).unwrap_or(u32::MAX);
        Self { every, paid: Mutex::new(now.checked_sub(BURST).unwrap_or(now)) }
    }

    /// Waits until the connection that has come may be served; whether that was at once.
    pub(crate) async fn wait(&self, secure: bool) -> bool {
        let wait = self.take(self.every * if secure { WITH_TLS } else { 1 });
        if wait.is_zero() {
            return true;
        }
        sleep(wait).await;
        false
    }

    fn take(&self, cost: Duration) -> Duration {
        let now = Instant::now();
        let mut paid = self.paid.lock();
        *paid = now.checked_sub(BURST).map_or(*paid, |earliest| paid.max(earliest)) + cost;
        paid.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_comes_at_once_and_the_rest_at_a_pace() {
        let arrivals = Arrivals::with(2);
        let begun = Instant::now();
        for _ in 0..4000 {
            assert!(arrivals.wait(false).await);
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        for _ in 0..1000 {
            arrivals.wait(false).await;
        }
        let took = begun.elapsed();
        assert!(
            took >= Duration::from_millis(999) && took < Duration::from_millis(1100),
            "{took:?}"
        );
        // Time in which nobody comes is saved up, but not for ever.
        tokio::time::advance(Duration::from_secs(3600)).await;
        let begun = Instant::now();
        for _ in 0..2000 {
            assert!(arrivals.wait(true).await);
        }
        assert!(!arrivals.wait(true).await);
        assert!(begun.elapsed() < Duration::from_millis(10));
    }
}
