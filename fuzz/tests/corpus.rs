//! Every target over its corpus, and over damaged copies of it: a fuzzer's first minute, on stable.

use std::path::{Path, PathBuf};

use annals_fuzz::{TARGETS, run, seeds};

/// Damaged copies of each input, unless `ANNALS_FUZZ_COPIES` says how many.
const COPIES: u64 = 40;

fn copies() -> u64 {
    let wanted = std::env::var("ANNALS_FUZZ_COPIES").ok();
    wanted.map_or(COPIES, |wanted| wanted.parse().expect("ANNALS_FUZZ_COPIES is a number"))
}

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

fn inputs(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(corpus(target)).expect("every target has a corpus");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(&path).expect("a file"))).collect()
}

/// Changes a few bytes, or cuts the end off, by the seed.
fn damage(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % bound.max(1) as u64).expect("below a usize")
    };
    let mut out = bytes.to_vec();
    match below(4) {
        0 => out.truncate(below(bytes.len())),
        1 => {
            let (from, to) = (below(bytes.len()), below(bytes.len()));
            let count = below(32).min(bytes.len() - from.max(to));
            out.copy_within(from..from + count, to);
        }
        _ => {
            for _ in 0..=below(4) {
                let at = below(out.len());
                if let Some(byte) = out.get_mut(at) {
                    *byte ^= 1 << below(8);
                }
            }
        }
    }
    out
}

fn replay(target: &str) {
    let inputs = inputs(target);
    let mut accepted = 0;
    for (path, bytes) in &inputs {
        println!("{target}: {}", path.display());
        accepted += usize::from(run(target, bytes));
    }
    // A corpus that nothing accepts was made for another format: `cargo run` makes a new one.
    assert!(accepted > 0, "no input of {target} is accepted");
    for (path, bytes) in &inputs {
        for seed in 0..copies() {
            let damaged = damage(bytes, seed);
            println!("{target}: {} damaged by seed {seed}", path.display());
            run(target, &damaged);
        }
    }
}

#[test]
fn every_target_has_a_test_and_a_corpus() {
    let source = include_str!("corpus.rs");
    for (target, _) in TARGETS {
        assert!(source.contains(&format!("fn {target}()")), "{target}");
        assert!(!inputs(target).is_empty(), "{target}");
    }
}

#[test]
fn seeds_of_the_encoders_are_accepted() {
    for (target, name, bytes) in seeds::all() {
        assert!(run(target, &bytes), "{target}/{name}");
    }
}

#[test]
fn wal_frame() {
    replay("wal_frame");
}

#[test]
fn wal_file() {
    replay("wal_file");
}

#[test]
fn block() {
    replay("block");
}

#[test]
fn groups() {
    replay("groups");
}

#[test]
fn page() {
    replay("page");
}

#[test]
fn segment() {
    replay("segment");
}

#[test]
fn manifest() {
    replay("manifest");
}

#[test]
fn current() {
    replay("current");
}

#[test]
fn events() {
    replay("events");
}

#[test]
fn bbolt() {
    replay("bbolt");
}

#[test]
fn backup() {
    replay("backup");
}

#[test]
fn object_patch() {
    replay("object_patch");
}

#[test]
fn open_dir() {
    replay("open_dir");
}

#[test]
fn ops_vs_model() {
    replay("ops_vs_model");
}

#[test]
fn object_apply() {
    replay("object_apply");
}

#[test]
fn object_list() {
    replay("object_list");
}

#[test]
fn selector() {
    replay("selector");
}

#[test]
fn records() {
    replay("records");
}

#[test]
fn built() {
    replay("built");
}

#[test]
fn import_line() {
    replay("import_line");
}

#[test]
fn txn() {
    replay("txn");
}
