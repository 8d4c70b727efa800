//! Backups: what is restored equals the store at every revision, whoever writes meanwhile; a restore that is
//! stopped leaves no store; a damaged stream is refused.
//!
//! | file | job |
//! | --- | --- |
//! | `equal` | what is restored is what was there |
//! | `forged` | streams whose checksums hold, and which lie |
//! | `increments` | what came later, and raised revisions |
//! | `meanwhile` | others write, compact and reorganise |
//! | `crash` | a power cut and a failure at every operation of a restore |
//! | `damage` | every bit and every length of a stream |
//! | `refused` | what cannot be, and that nothing is touched then |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod crash;
mod damage;
mod equal;
mod forged;
mod increments;
mod meanwhile;
mod refused;
#[path = "../support/mod.rs"]
mod support;

use annals::{Options, RestoreOptions, RestoreReport, Store, restore};

const COPY: &str = "copy";

fn backup(store: &Store) -> Vec<u8> {
    let mut out = Vec::new();
    let made = store.backup(&mut out).unwrap();
    assert_eq!(made.bytes, out.len() as u64);
    assert_eq!(store.hash_at(made.revision).unwrap(), made.hash);
    out
}

fn restored(from: &[u8], options: &Options, to: &str) -> annals::Result<RestoreReport> {
    restore(from, to, &RestoreOptions::new().options(options.clone()))
}
