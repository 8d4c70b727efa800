//! Every sector of every file zeroed, and every one overwritten with other bytes.

use crate::judge::{Depth, Fate};
use crate::made::{kind, made, made_with_small_last};
use crate::run::{Case, Tally, nothing_lost, one_batch_lost, run};
use crate::support::random::Random;

const SECTOR: usize = 512;

#[test]
fn a_sector_zeroed_or_overwritten() {
    for (name, close, part) in [("closed", true, ""), ("killed", false, "/wal/")] {
        let made = made(close);
        let sectors = made.sectors(part);
        for zeros in [true, false] {
            let what = format!(
                "sectors of a {name} store {}",
                if zeros { "zeroed" } else { "overwritten" }
            );
            let tally = run(&what, &made, sectors.len() as u64, |number| {
                let (path, at) = &sectors[usize::try_from(number).unwrap()];
                let mut content = made.content(path);
                let before = content.clone();
                let end = content.len().min(at + SECTOR);
                let mut random = Random::new(number);
                for byte in &mut content[*at..end] {
                    *byte = if zeros { 0 } else { u8::try_from(random.below(256)).unwrap() };
                }
                (content != before).then(|| Case {
                    name: format!(
                        "{path}: sector at {at} {}",
                        if zeros { "zeroed" } else { "overwritten" }
                    ),
                    kind: kind(path),
                    disk: made.with(path, &content),
                    hit: None,
                    depth: Depth::Background,
                })
            });
            if close || !zeros {
                nothing_lost(&tally);
            } else {
                // The documented exception: a sector of the very last batch, dropped and reported. It is whole pages.
                let dropped = tally.of(Fate::DroppedAndReported);
                assert!(dropped > 0 && dropped.is_multiple_of(8), "{dropped} dropped");
                one_batch_lost(&tally);
            }
        }
    }
}

/// Zeroes pieces of the log, each of so many sectors, where the last batch has its bytes in one.
fn zeroed_where_the_last_batch_is_small(sectors: usize) -> Tally {
    let made = made_with_small_last();
    let mut starts = made.sectors("/wal/");
    starts.retain(|(_, at)| at.is_multiple_of(sectors * SECTOR));
    let what = format!("{sectors} sectors zeroed, the last batch has its bytes in one");
    run(&what, &made, starts.len() as u64, |number| {
        let (path, at) = &starts[usize::try_from(number).unwrap()];
        let mut content = made.content(path);
        let before = content.clone();
        let end = content.len().min(at + sectors * SECTOR);
        content[*at..end].fill(0);
        (content != before).then(|| Case {
            name: format!("{path}: {sectors} sectors at {at} zeroed"),
            kind: kind(path),
            disk: made.with(path, &content),
            hit: None,
            depth: Depth::Open,
        })
    })
}

/// The smallest batch has seven sectors that tell of the eighth.
#[test]
fn a_sector_of_a_small_last_batch() {
    let tally = zeroed_where_the_last_batch_is_small(1);
    assert_eq!(tally.of(Fate::DroppedAndReported), 8);
    one_batch_lost(&tally);
}

/// A last batch of which every sector reads as never written leaves no trace of itself. The store is what it was
/// before the last commit, whole; no other commit can be lost this way.
#[test]
fn all_of_a_small_last_batch() {
    let tally = zeroed_where_the_last_batch_is_small(8);
    assert_eq!(tally.of(Fate::DroppedAndReported), 0);
    assert_eq!(tally.of(Fate::NeverWritten), 1);
}
