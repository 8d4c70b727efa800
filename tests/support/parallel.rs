//! Many cases, in as many threads as there are processors; `ANNALS_THREADS=n` in how many.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::check::{Found, caught};
use super::number_from_env;
use super::watchdog::Watchdog;

/// Failures after which no more cases are begun.
const ENOUGH: usize = 4;

/// Does cases number 0 to `count - 1`; fails with what was found, panics among it. Each tells the watchdog, which ends
/// it after a minute, what it is called: so is what it finds.
pub fn each(count: u64, one: impl Fn(u64, &Watchdog) -> Found + Sync) {
    let (next, failures) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let processors = std::thread::available_parallelism().map_or(2, usize::from) as u64;
    std::thread::scope(|scope| {
        for _ in 0..number_from_env("ANNALS_THREADS", processors) {
            scope.spawn(|| {
                let watchdog = Watchdog::new(Duration::from_secs(60));
                while failures.lock().unwrap().len() < ENOUGH {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    if let Err(found) = caught(|| one(number, &watchdog)) {
                        failures.lock().unwrap().push(format!("{}: {found}", watchdog.case()));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Every how many of so many cases one is done: with `ANNALS_STRIDE=n` every n-th, else so many that about `usual` are.
pub fn sample<C>(cases: &[C], usual: u64) -> Vec<&C> {
    let usual = (cases.len() as u64 / usual).max(1);
    let stride = usize::try_from(number_from_env("ANNALS_STRIDE", usual)).unwrap().max(1);
    // Not always the same residue, where the ways to fail are as many as the stride.
    let chosen = (0..cases.len()).filter(|n| (n + n / stride).is_multiple_of(stride));
    chosen.map(|n| &cases[n]).collect()
}
