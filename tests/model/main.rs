//! Random sequences of everything a store can do, against a naive model.
//!
//! A failure prints its seed; `ANNALS_SEED=n` runs that one alone and tells every step.
//! `ANNALS_SEQUENCES=n` runs more or fewer than the default.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod reads;
mod run;
#[path = "../support/mod.rs"]
mod support;

use support::{number_from_env, parallel};

#[test]
fn random_sequences_answer_as_the_model() {
    if let Ok(seed) = std::env::var("ANNALS_SEED") {
        let seed = seed.parse().expect("ANNALS_SEED is a number");
        run::one(seed, true).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        return;
    }
    let sequences = number_from_env("ANNALS_SEQUENCES", 10_000);
    let first = number_from_env("ANNALS_FIRST_SEED", 0);
    parallel::each(sequences, |number, watchdog| {
        let seed = first + number;
        watchdog.begin(format!("seed {seed} (ANNALS_SEED={seed} repeats it)"));
        run::one(seed, false).map(drop)
    });
    println!("{sequences} sequences from seed {first}");
}

#[test]
fn the_same_seed_does_the_same_things_to_the_disk() {
    for seed in 0..40 {
        let traces = [(); 2]
            .map(|()| run::one(seed, false).unwrap_or_else(|found| panic!("seed {seed}: {found}")));
        assert_eq!(traces[0], traces[1], "seed {seed} is not deterministic");
    }
}
