//! Every sector of every file zeroed, and every one overwritten with other bytes.

use crate::judge::{Depth, Fate};
use crate::made::{kind, made, made_with_small_last};
use crate::run::{Case, nothing_lost, run};
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
                // The documented exception: a sector of the very last batch, dropped and reported.
                let dropped = tally.of(Fate::DroppedAndReported);
                assert!((1..=8).contains(&dropped), "{dropped} dropped");
                assert_eq!(tally.of(Fate::NeverWritten), 0);
            }
        }
    }
}

/// A batch of one sector that reads as never written leaves no trace of itself. The store is what it was before the
/// last commit, whole; no other commit can be lost this way.
#[test]
fn a_last_batch_of_one_sector() {
    let made = made_with_small_last();
    let sectors = made.sectors("/wal/");
    let tally =
        run("zeroed sectors, the last batch has one", &made, sectors.len() as u64, |number| {
            let (path, at) = &sectors[usize::try_from(number).unwrap()];
            let mut content = made.content(path);
            let before = content.clone();
            let end = content.len().min(at + SECTOR);
            content[*at..end].fill(0);
            (content != before).then(|| Case {
                name: format!("{path}: sector at {at} zeroed"),
                kind: kind(path),
                disk: made.with(path, &content),
                hit: None,
                depth: Depth::Open,
            })
        });
    assert_eq!(tally.of(Fate::DroppedAndReported), 0);
    assert_eq!(tally.of(Fate::NeverWritten), 1);
}
