//! Every operation on the disk fails, in several ways, in every script; and the disk is full, at every size and from
//! every operation on.
//!
//! What a failing store owes: no call that reports an error without effect has had one; once a
//! write or a sync has failed, writes are refused until the store is reopened, while reads go on;
//! and after reopening everything acknowledged is there, and whole transactions only.
//!
//! | variable | what |
//! | --- | --- |
//! | `ANNALS_STRIDE` | every n-th case only; 1 for all of them. Without it short scripts are done wholly, of others about as many cases as of these |
//! | `ANNALS_WORKLOAD` | the scripts whose names contain this, alone |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod full;
#[path = "../support/mod.rs"]
mod support;
mod sweep;
#[path = "../workloads/mod.rs"]
mod workloads;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use support::check::{Found, caught};
use support::number_from_env;
use support::watchdog::Watchdog;
use workloads::{Workload, scripts};

/// The scripts that are asked for.
fn workloads() -> Vec<Workload> {
    let only = std::env::var("ANNALS_WORKLOAD").unwrap_or_default();
    scripts::all().into_iter().filter(|workload| workload.name.contains(&only)).collect()
}

/// Every how many cases one is done, of so many.
fn stride(cases: usize, usual: u64) -> usize {
    let usual = (cases as u64 / usual).max(1);
    usize::try_from(number_from_env("ANNALS_STRIDE", usual)).unwrap().max(1)
}

/// Does some cases by as many threads as there are processors, and tells how many. `usual` is how many it does if it
/// is not told.
fn each<C: Sync + std::fmt::Debug>(
    name: &str,
    what: &str,
    usual: u64,
    cases: &[C],
    one: impl Fn(&C) -> Found + Sync,
) -> usize {
    let stride = stride(cases.len(), usual);
    // Not always the same residue, where the ways to fail are as many as the stride.
    let chosen: Vec<&C> = cases
        .iter()
        .enumerate()
        .filter(|(n, _)| (n + n / stride).is_multiple_of(stride))
        .map(|it| it.1)
        .collect();
    let (next, failures, began) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                let watchdog = Watchdog::new(Duration::from_secs(60));
                while failures.lock().unwrap().len() < 4 {
                    let Some(case) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) else {
                        break;
                    };
                    let place = format!("{name}: {case:?}");
                    watchdog.begin(place.as_str());
                    if let Err(found) = caught(|| one(case)) {
                        failures.lock().unwrap().push(format!("{place}: {found}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let seconds = began.elapsed().as_secs_f64();
    println!("{name:14} {what}: {} of {} cases, {seconds:.1} s", chosen.len(), cases.len());
    chosen.len()
}
