//! Long random runs of a whole store on a simulated disk, each a function of its seed.
//!
//! One thread does everything: requests and transactions, groups of them, leases and a clock that moves, compaction,
//! rules of retention, background work unit by unit, copies and backups, views that are kept, watches that are
//! asked now and then, closing and opening. At random operations the disk fails, once or from then on, or the power
//! does. Every answer is held against the naive model; after each opening everything is.
//!
//! | file | job |
//! | --- | --- |
//! | `run` | one run: its steps, and what becomes of faults and power cuts |
//! | `watched` | watches: told each transaction once, in order, and only what survives |
//! | `leased` | time passes: no lease ends early, each with all its keys at one revision |
//!
//! A failure prints its seed and the command that repeats it. `ANNALS_SEED=n` runs that one alone and tells
//! every step; `ANNALS_SEEDS=n` runs so many, from `ANNALS_FIRST_SEED` on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod leased;
mod run;
#[path = "../support/mod.rs"]
mod support;
mod watched;
#[path = "../workloads/mod.rs"]
mod workloads;

use std::sync::Mutex;
use std::time::Instant;

use run::Counts;
use support::{number_from_env, parallel};

fn replay(seed: u64) -> String {
    format!("ANNALS_SEED={seed} cargo test -p annals --test simulation random_runs -- --nocapture")
}

#[test]
fn random_runs_answer_as_the_model() {
    if let Ok(seed) = std::env::var("ANNALS_SEED") {
        let seed = seed.parse().expect("ANNALS_SEED is a number");
        let counts = run::one(seed, true).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        println!("{counts:?}");
        return;
    }
    let (first, seeds) =
        (number_from_env("ANNALS_FIRST_SEED", 0), number_from_env("ANNALS_SEEDS", 300));
    let (sum, began) = (Mutex::new(Counts::default()), Instant::now());
    parallel::each(seeds, |number, watchdog| {
        let seed = first + number;
        watchdog.begin(format!("seed {seed} ({})", replay(seed)));
        sum.lock().unwrap().add(&run::one(seed, false)?);
        Ok(())
    });
    let sum = sum.into_inner().unwrap();
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    println!("{seeds} seeds from {first} in {minutes:.2} minutes: {sum:?}");
    if seeds >= 300 {
        // What the random choices are meant to bring about comes about.
        assert!(sum.power_cuts > seeds && sum.fired > seeds / 2 && sum.poisoned > 20, "{sum:?}");
        assert!(sum.events > seeds && sum.expired > 20 && sum.copies > 20, "{sum:?}");
    }
}

#[test]
fn the_same_seed_does_the_same_things_to_the_disk() {
    let first = number_from_env("ANNALS_FIRST_SEED", 0);
    let mut different = std::collections::BTreeSet::new();
    let seeds = number_from_env("ANNALS_SEEDS", 300).div_ceil(10);
    for seed in first..first + seeds {
        let traces = [(); 2].map(|()| {
            let counts = run::one(seed, false);
            counts.unwrap_or_else(|found| panic!("seed {seed}: {found}\n{}", replay(seed))).trace
        });
        assert_eq!(traces[0], traces[1], "seed {seed} is not deterministic");
        different.insert(traces[0]);
    }
    assert_eq!(different.len() as u64, seeds, "each seed is another run");
    println!("{seeds} seeds twice");
}
