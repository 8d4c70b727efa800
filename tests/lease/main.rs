//! Leases with a clock: none ends early, none lives for ever.
//!
//! | file | job |
//! | --- | --- |
//! | `model` | random calls, steps of the clock, closes and crashes, held against a model |
//! | `race` | a renewal beside the end, a revocation, and the writing down of what is left |
//! | `crash` | a power cut at every operation on the disk |
//! | `many` | very many leases at once, and leases with very many keys |
//! | `threads` | the background thread: it does its work, and keeps no store open |
//!
//! Time is a clock that the tests move, so nothing here depends on how fast the machine is.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    missing_docs,
    reason = "tests fail by panicking and tell how much they did"
)]

mod crash;
mod many;
mod model;
mod race;
#[path = "../support/mod.rs"]
mod support;
mod threads;

use annals::{ErrorKind, LeaseGrantRequest, PutRequest, Result, Store};

/// In microseconds, as the clocks count.
const SECOND: i64 = 1_000_000;

/// A lease ends at most this much too late, where somebody looks.
const TICK: i64 = SECOND / 10;

fn grant(store: &Store, id: i64, ttl: i64) -> Result<i64> {
    let request = LeaseGrantRequest { ttl_min: 1, ..LeaseGrantRequest::new(id, ttl) };
    store.lease_grant_with(request).map(|lease| lease.id)
}

fn attach(store: &Store, key: &str, id: i64) -> Result<()> {
    store.put_with(PutRequest::new(key, "attached").lease(id)).map(drop)
}

/// Has everything done that is due.
fn settle(store: &Store) {
    while store.run_background().unwrap() {}
}

/// The answer, or `None` where there is no such lease.
fn found<T>(answer: Result<T>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::LeaseNotFound { .. }), "{error}");
            None
        }
    }
}
