//! Two damages at once, and runs of up to 64 KiB of zeros or other bytes; `ANNALS_FAULTS=n` says how many.

use std::path::Path;

use annals::vfs::MemoryVfs;

use crate::judge::Depth;
use crate::made::{Made, kind, made};
use crate::run::{Case, nothing_lost, one_batch_lost, run};
use crate::support::number_from_env;
use crate::support::random::Random;

/// Damages a file of a disk in one of many ways; answers what was done.
fn damage(disk: &MemoryVfs, made: &Made, random: &mut Random) -> String {
    let path = random.pick(&made.paths);
    let name = Path::new(path);
    let Ok(mut content) = disk.read(name) else { return String::new() };
    if content.is_empty() {
        return String::new();
    }
    let at = random.index(content.len());
    let sector = at - at % 512..content.len().min(at - at % 512 + 512);
    let what = match random.below(8) {
        0..3 => {
            let bit = random.below(8);
            content[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} flipped")
        }
        3 => {
            content.truncate(at);
            format!("cut to {at}")
        }
        4 => {
            content[sector.clone()].fill(0);
            format!("sector at {} zeroed", sector.start)
        }
        5 => {
            for byte in &mut content[sector.clone()] {
                *byte = u8::try_from(random.below(256)).unwrap();
            }
            format!("sector at {} overwritten", sector.start)
        }
        6 => {
            disk.forget(name);
            return format!("{path} removed");
        }
        _ => {
            let other = random.pick(&made.paths);
            content = made.content(other);
            format!("is {other}")
        }
    };
    disk.overwrite(name, &content);
    format!("{path} {what}")
}

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
                let mut random = Random::new(first.wrapping_add(number));
                let disk = made.copy();
                let done = [damage(&disk, &made, &mut random), damage(&disk, &made, &mut random)];
                let seed = first.wrapping_add(number);
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
