//! One flipped bit: every bit of every file with `ANNALS_FLIPS=all`, a sample of them else.

use annals_format::sector::SECTOR_BYTES;

use crate::judge::{Depth, Hit};
use crate::made::{Made, kind, made};
use crate::parts::{Parts, parts};
use crate::run::{Case, nothing_lost, run, spread, wanted};
use crate::support::number_from_env;

/// Every bit of some files, numbered.
struct Bits<'a> {
    made: &'a Made,
    /// Path, content, parts, number of the first bit.
    files: Vec<(String, Vec<u8>, Parts, u64)>,
    all: u64,
}

impl<'a> Bits<'a> {
    fn of(made: &'a Made, wanted: impl Fn(&str) -> bool) -> Self {
        let mut all = 0;
        let mut files = Vec::new();
        for path in made.paths.iter().filter(|path| wanted(path)) {
            let content = made.content(path);
            let bits = content.len() as u64 * 8;
            files.push((path.clone(), content, parts(made, path), all));
            all += bits;
        }
        Self { made, files, all }
    }

    fn case(&self, number: u64) -> Case {
        let at = self.files.partition_point(|(_, _, _, first)| *first <= number) - 1;
        let (path, content, parts, first) = &self.files[at];
        self.flip(path, content, parts, number - first)
    }

    /// Every file as often as any other, however small it is.
    fn of_file(&self, number: u64) -> Case {
        let mut random = crate::support::random::Random::new(number);
        let (path, content, parts, _) = random.pick(&self.files);
        self.flip(path, content, parts, random.below(content.len() as u64 * 8))
    }

    fn flip(&self, path: &str, content: &[u8], parts: &Parts, bit: u64) -> Case {
        let (byte, bit) = (usize::try_from(bit / 8).unwrap(), bit % 8);
        let mut content = content.to_vec();
        content[byte] ^= 1 << bit;
        Case {
            name: format!("bit {bit} of byte {byte} of {path}"),
            kind: kind(path),
            disk: self.made.with(path, &content),
            hit: Some(Hit { path: path.to_owned(), span: parts.at(byte as u64) }),
            // One bit of every eight bytes with all that follows from it. Of a segment, opening reads the ends
            // whoever opens it, so of the others one of every byte is opened for writing.
            depth: match bit == (byte % 8) as u64 {
                true if byte % 8 == 0 => Depth::Background,
                false if path.contains("/seg/") => Depth::Look,
                _ => Depth::Open,
            },
        }
    }
}

fn flip(what: &str, bits: &Bits<'_>, sampled: u64) {
    let first = number_from_env("ANNALS_FIRST_SEED", 0);
    let count = wanted("ANNALS_FLIPS", sampled, bits.all);
    println!(
        "{what}: {count} of {} bits of {} files, from seed {first}",
        bits.all,
        bits.files.len()
    );
    let tally = run(what, bits.made, count, |number| {
        let all = count == bits.all;
        Some(if all || number % 2 == 0 {
            bits.case(spread(number, count, bits.all, first))
        } else {
            bits.of_file(first.wrapping_add(number))
        })
    });
    assert_eq!(tally.cases(), count);
    nothing_lost(&tally);
}

#[test]
fn a_bit_of_a_closed_store() {
    let made = made(true);
    flip("bits of a closed store", &Bits::of(&made, |_| true), 1_500);
}

/// The segments are those of the closed one; what differs is the log and what names it.
#[test]
fn a_bit_of_the_log_of_a_killed_store() {
    let made = made(false);
    flip("bits of a killed store's log", &Bits::of(&made, |path| !path.contains("/seg/")), 800);
}

/// In the log of a killed store, nothing but a zeroed sector looks like a write cut off.
#[test]
fn a_bit_in_every_sector_of_a_killed_stores_log() {
    let made = made(false);
    let bits = Bits::of(&made, |path| path.contains("/wal/"));
    let sectors = bits.all / (8 * SECTOR_BYTES as u64);
    let tally = run("a bit in every sector of a killed store's log", &made, sectors, |number| {
        let mut random = crate::support::random::Random::new(number);
        let within = random.below(8 * SECTOR_BYTES as u64);
        Some(bits.case(number * 8 * SECTOR_BYTES as u64 + within))
    });
    nothing_lost(&tally);
}
