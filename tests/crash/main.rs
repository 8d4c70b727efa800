//! A power cut after every operation on the disk, of many scripts.
//!
//! | file | job |
//! | --- | --- |
//! | `record` | runs a script, and keeps the disk as it was before each operation that could matter |
//! | `verify` | whether an image is what a store may be after a power cut; the recovery cut off, too |
//!
//! At each point there are these images: nothing unsynced kept; all kept; every tear of the write in flight, with
//! what was unsynced before it lost or kept; every subset of what is unsynced where there are few, else random ones.
//! Images of a point with the same content count once. Each must open, hold every acknowledged commit, be the state
//! after some prefix of the commits, take a new commit, and hold that after a second power cut. Some are
//! crashed again while they recover, before each operation of the recovery, some of these once more.
//!
//! | variable | what |
//! | --- | --- |
//! | `ANNALS_IMAGES` | random images at each point |
//! | `ANNALS_EVERY` | all subsets where they are at most so many |
//! | `ANNALS_TEARS` | tears at each point, at most, of each kind |
//! | `ANNALS_DEEP` | crashes the recovery of every n-th image |
//! | `ANNALS_DEEPER` | crashes every n-th recovery of a crashed recovery |
//! | `ANNALS_SEQUENCES` | random scripts |
//! | `ANNALS_WORKLOAD` | the scripts whose names contain this, alone |
//! | `ANNALS_THREADS` | threads that verify |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod record;
#[path = "../support/mod.rs"]
mod support;
mod verify;
#[path = "../workloads/mod.rs"]
mod workloads;

use support::generate::{self, Taste};
use support::number_from_env;
use support::random::Random;
use verify::Figures;
use workloads::{Step, scripts};

#[test]
fn every_operation_of_every_script() {
    let mut sum = Figures::default();
    println!("{}", Figures::HEADER);
    let workloads = scripts::chosen();
    for workload in &workloads {
        let figures = verify::all(&record::script(workload));
        println!("{figures}");
        // What a script can lose is lost in some image, and in some it is kept.
        assert!(figures.images > figures.points, "{figures}");
        sum.add(&figures);
    }
    sum.name = format!("all {}", workloads.len());
    println!("{sum}");
}

#[test]
fn everything_at_random() {
    let mut sum = Figures::default();
    let first = number_from_env("ANNALS_FIRST_SEED", 0);
    let sequences = number_from_env("ANNALS_SEQUENCES", 4);
    for seed in first..first + sequences {
        let mut random = Random::new(seed);
        let mut taste = Taste::random(&mut random);
        taste.value_bytes = 700;
        taste.leases = true;
        let recorded = record::by(&format!("random {seed}"), true, |run| {
            run.step(&Step::Open)?;
            for _ in 0..90 {
                let model = run.driver.model().model.clone();
                match random.below(20) {
                    0 => run.step(&Step::Background(1000))?,
                    1 if random.one_in(2) => run.step(&Step::Kill)?,
                    1 => run.step(&Step::Drop)?,
                    2 if random.one_in(3) => run.step(&Step::Close)?,
                    _ => {
                        let request = generate::request(&mut random, &taste, &model);
                        run.step(&Step::Do(request))?;
                    }
                }
                run.step(&Step::Open)?;
            }
            Ok(())
        });
        sum.add(&verify::all(&recorded));
    }
    sum.name = format!("{sequences} at random");
    println!("{}\n{sum}", Figures::HEADER);
    assert!(sum.images > sum.points);
}
