//! Files cut to every length (`ANNALS_CUTS=all`; a sample else), and lengthened.

use crate::judge::{Depth, Hit};
use crate::made::{Made, kind, made};
use crate::run::{Case, nothing_lost, run, spread, wanted};
use crate::support::number_from_env;
use crate::support::random::Random;

/// The file is named, wherever in it.
fn somewhere(path: &str) -> Hit {
    Hit { path: path.to_owned(), span: 0..u64::MAX }
}

fn cut(what: &str, made: &Made, part: &str, sampled: u64) {
    let files: Vec<(&String, Vec<u8>)> = made
        .paths
        .iter()
        .filter(|path| path.contains(part))
        .map(|path| (path, made.content(path)))
        .collect();
    let all: u64 = files.iter().map(|(_, content)| content.len() as u64).sum();
    let first = number_from_env("ANNALS_FIRST_SEED", 0);
    let count = wanted("ANNALS_CUTS", sampled, all);
    println!("{what}: {count} of {all} lengths of {} files, from seed {first}", files.len());
    let tally = run(what, made, count, |number| {
        let mut number = spread(number, count, all, first);
        let (path, content) = files.iter().find(|(_, content)| {
            let len = content.len() as u64;
            let is_it = number < len;
            number -= if is_it { 0 } else { len };
            is_it
        })?;
        let len = usize::try_from(number).unwrap();
        Some(Case {
            name: format!("{path} cut to {len} bytes"),
            kind: kind(path),
            disk: made.with(path, &content[..len]),
            hit: Some(somewhere(path)),
            depth: if len % 8 == 0 { Depth::Background } else { Depth::Open },
        })
    });
    assert_eq!(tally.cases(), count);
    nothing_lost(&tally);
}

#[test]
fn files_of_a_closed_store_cut() {
    cut("cuts of a closed store", &made(true), "", 800);
}

/// The log of a killed store cannot lose its end: its files have a length that is known.
#[test]
fn the_log_of_a_killed_store_cut() {
    cut("cuts of a killed store's log", &made(false), "/wal/", 300);
}

#[test]
fn files_made_longer() {
    for close in [true, false] {
        let made = made(close);
        let mut cases = Vec::new();
        for path in &made.paths {
            for more in [1, 511, 512, 4096] {
                cases.extend([(path, more, false), (path, more, true)]);
            }
        }
        let tally = run("files made longer", &made, cases.len() as u64, |number| {
            let (path, more, random) = cases[usize::try_from(number).unwrap()];
            let mut content = made.content(path);
            let len = content.len() + more;
            if path.contains("/wal/") && !random && len.is_power_of_two() {
                // A log file with the length it was made with: a crash while closing leaves that, too.
                return None;
            }
            let mut bytes = Random::new(number);
            let fill = || if random { u8::try_from(bytes.below(256)).unwrap() } else { 0 };
            content.resize_with(len, fill);
            Some(Case {
                name: format!(
                    "{path} made longer by {more} {}",
                    if random { "random bytes" } else { "zeros" }
                ),
                kind: kind(path),
                disk: made.with(path, &content),
                hit: Some(somewhere(path)),
                depth: Depth::Background,
            })
        });
        nothing_lost(&tally);
    }
}
