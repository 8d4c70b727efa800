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

use std::time::Instant;

use support::check::Found;
use support::parallel;
use workloads::scripts;

/// Does some of the cases of a script, and tells how many. `usual` is about how many it does if it is not told.
fn each<C: Sync + std::fmt::Debug>(
    name: &str,
    what: &str,
    usual: u64,
    cases: &[C],
    one: impl Fn(&C) -> Found + Sync,
) -> usize {
    let (chosen, began) = (parallel::sample(cases, usual), Instant::now());
    parallel::each(chosen.len() as u64, |number, watchdog| {
        let case = chosen[usize::try_from(number).unwrap()];
        watchdog.begin(format!("{name}: {case:?}"));
        one(case)
    });
    let seconds = began.elapsed().as_secs_f64();
    println!("{name:14} {what}: {} of {} cases, {seconds:.1} s", chosen.len(), cases.len());
    chosen.len()
}
