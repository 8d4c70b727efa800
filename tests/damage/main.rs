//! A small store with files of every kind, closed or killed, damaged in every way: bits flipped, files cut, lengthened,
//! removed, swapped, put back from an older state, taken from another store, sectors lost or overwritten, several at once;
//! and files that were made to harm, with checksums that hold.
//!
//! Whatever the damage: no wrong answer, no panic, no hang, bounded memory, and `verify` reports it: of a flipped bit the file, the
//! structure that it lies in, and for a segment the revisions.
//!
//! `ANNALS_FLIPS`, `ANNALS_CUTS`, `ANNALS_FAULTS`, `ANNALS_HOSTILE` (a number, or `all`) say how many; `ANNALS_FIRST_SEED=n` where what is
//! random begins; `ANNALS_THREADS=n` in how many threads.

#![allow(unsafe_code, reason = "an allocator that counts is unsafe to write")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    unreachable_pub,
    missing_docs,
    reason = "tests fail by panicking and tell how much they did"
)]

#[path = "../support/mod.rs"]
mod support;

mod alive;
mod cuts;
mod faults;
mod files;
mod first;
mod flips;
mod harm;
mod heap;
mod hostile;
mod judge;
mod kept;
mod made;
mod parts;
mod run;
mod sectors;

use std::path::Path;

use judge::{read_all, verify};
use made::{made, options};
use support::DIRECTORY;

#[test]
fn a_sound_store_has_nothing_to_report() {
    for close in [true, false] {
        let made = made(close);
        let report = verify(&made.disk).unwrap().unwrap();
        assert_eq!(report.damage, []);
        assert!(report.torn.is_none());
        let store = options(&made.copy()).open(Path::new(DIRECTORY)).unwrap();
        assert_eq!(read_all(&store, &made.expected), Ok(0));
    }
}
