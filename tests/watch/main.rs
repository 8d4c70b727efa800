//! Watches: what is told, in which order, how often, and when a watch ends. Random histories against a
//! naive model, threads against each other, etcd's known bugs by their numbers, crashes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod contract;
mod crash;
mod etcd_bugs;
mod failures;
mod figures;
mod model;
mod rules;
mod shared;
#[path = "../support/mod.rs"]
mod support;
mod tasks;
mod threads;

use std::sync::Arc;
use std::time::Duration;

use annals::clock::ManualClock;
use annals::vfs::MemoryVfs;
use annals::{Batch, Options, Store, Watch};

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(60);

/// A store in memory, with background threads or without.
fn options(background: bool) -> Options {
    let clock = Arc::new(ManualClock::new(support::START_TIME));
    support::tiny(Arc::new(MemoryVfs::new()), clock).background(background)
}

fn fresh(background: bool) -> Store {
    options(background).open("store").unwrap()
}

/// Waits for the next batch.
fn next(watch: &mut Watch) -> Batch {
    watch.next_timeout(LONG).expect("told in time").expect("no error")
}

/// Waits for an error, which is the last item.
fn end(watch: &mut Watch) -> annals::Error {
    let error = watch.next_timeout(LONG).expect("told in time").expect_err("an error");
    assert!(watch.next().is_none() && watch.try_next().is_none() && watch.handle().is_ended());
    error
}

/// All that a watch has to tell by now: the revisions, and how many events each has.
fn told(watch: &mut Watch) -> Vec<(u64, usize)> {
    watch.handle().request_progress();
    let mut told = Vec::new();
    loop {
        let batch = next(watch);
        if batch.is_progress() {
            return told;
        }
        told.push((batch.revision(), batch.len()));
    }
}
