//! Two damages at once, and runs of up to 64 KiB of zeros or other bytes; `ANNALS_FAULTS=n` says how many.

use std::path::Path;

use annals::vfs::MemoryVfs;

use crate::harm::harm;
use crate::judge::Depth;
use crate::made::{Made, kind, made};
use crate::run::{Case, nothing_lost, one_batch_lost, run};
use crate::support::number_from_env;
use crate::support::random::Random;

/// Whether a disk is as it was, by chance.
fn is_as_it_was(disk: &MemoryVfs, made: &Made) -> bool {
    made.paths
        .iter()
        .all(|path| disk.read(Path::new(path)).is_ok_and(|found| found == made.content(path)))
}

#[test]
fn two_damages() {
    let first = number_from_env("ANNALS_FIRST_SEED", 0);
    let count = number_from_env("ANNALS_FAULTS", 500);
    for close in [true, false] {
        let made = made(close);
        let name = if close { "closed" } else { "killed" };
        let tally = run(
            &format!("two damages of a {name} store, from seed {first}"),
            &made,
            count,
            |number| {
                let seed = first.wrapping_add(number);
                let mut random = Random::new(seed);
                let disk = made.copy();
                let done = [(); 2].map(|()| harm(&disk, &made, &mut random, true));
                (!is_as_it_was(&disk, &made)).then(|| Case {
                    name: format!("seed {seed}: {}", done.join("; ")),
                    kind: "two",
                    disk,
                    hit: None,
                    depth: Depth::Background,
                })
            },
        );
        if close {
            nothing_lost(&tally);
        }
        one_batch_lost(&tally);
    }
}

#[test]
fn runs_of_zeros_and_of_other_bytes() {
    let first = number_from_env("ANNALS_FIRST_SEED", 0);
    let count = number_from_env("ANNALS_FAULTS", 400);
    for close in [true, false] {
        let made = made(close);
        let name = if close { "closed" } else { "killed" };
        let tally =
            run(&format!("runs in a {name} store, from seed {first}"), &made, count, |number| {
                let seed = first.wrapping_add(number);
                let mut random = Random::new(seed);
                let path = random.pick(&made.paths);
                let mut content = made.content(path);
                let before = content.clone();
                let len = usize::try_from(random.between(1 << 10, 64 << 10)).unwrap();
                let start = random.index(content.len());
                let run = start..content.len().min(start + len);
                let zeros = random.one_in(2);
                for byte in &mut content[run.clone()] {
                    *byte = if zeros { 0 } else { u8::try_from(random.below(256)).unwrap() };
                }
                // Bytes of a log that become zeros may cut it off where a kill could have.
                (content != before).then(|| Case {
                    name: format!(
                        "seed {seed}: {path} {run:?} {}",
                        if zeros { "zeroed" } else { "overwritten" }
                    ),
                    kind: kind(path),
                    disk: made.with(path, &content),
                    hit: None,
                    depth: Depth::Background,
                })
            });
        if close {
            nothing_lost(&tally);
        }
    }
}
