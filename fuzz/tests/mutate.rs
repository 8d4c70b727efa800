//! What a fuzzer does to the inputs, on stable: every target over those inputs of its corpus that it accepts, changed by
//! the mutator. libFuzzer's own changes are stood in for by plain ones.
//!
//! `ANNALS_FUZZ_MUTATIONS=n` changes every input so often (default 30).

use std::path::Path;

use annals_fuzz::{FIX, TARGETS, mutate, run};

fn number() -> u32 {
    let wanted = std::env::var("ANNALS_FUZZ_MUTATIONS").ok();
    wanted.map_or(30, |wanted| wanted.parse().expect("ANNALS_FUZZ_MUTATIONS is a number"))
}

/// Sets, swaps, takes out or puts in a few bytes.
fn plain(data: &mut [u8], size: usize, max: usize, seed: u32) -> usize {
    if size == 0 {
        return 0;
    }
    let mut state = u64::from(seed) << 16 | 1;
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % bound as u64).expect("below a usize")
    };
    let at = below(size);
    match below(4) {
        0 => {
            let bytes = [0, 1, 0x7f, 0x80, 0xff];
            data[at] = bytes[below(bytes.len())];
            size
        }
        1 => {
            data.swap(at, below(size));
            size
        }
        2 if size > 1 => {
            data.copy_within(at + 1..size, at);
            size - 1
        }
        3 if size < max => {
            data.copy_within(at..size, at + 1);
            size + 1
        }
        _ => {
            data[at] ^= 1 << below(8);
            size
        }
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let entries = std::fs::read_dir(corpus).expect("every target has a corpus");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a file")).collect()
}

/// Inputs that the target accepts as they are. What a campaign adds to a corpus is mostly refused, changed or not.
fn accepted_inputs(target: &str) -> impl Iterator<Item = Vec<u8>> {
    corpus(target).into_iter().filter(move |input| run(target, input))
}

/// Changed inputs, of accepted ones, and those of them that were accepted again.
fn changed(target: &str, times: u32) -> (u32, u32) {
    let (mut count, mut accepted) = (0, 0);
    for input in accepted_inputs(target) {
        let max = input.len() + 100;
        for seed in 0..times {
            let mut data = input.clone();
            data.resize(max, 0);
            let mut step = seed.wrapping_mul(0x9e37_79b9);
            let size = mutate::mutate(
                target,
                &mut data,
                input.len(),
                max,
                seed,
                &mut |data, size, max| {
                    step = step.wrapping_add(77);
                    plain(data, size, max, step)
                },
            );
            assert!(size <= max, "{target}, seed {seed}");
            count += 1;
            accepted += u32::from(run(target, &data[..size]));
        }
    }
    (count, accepted)
}

#[test]
fn changed_inputs_get_past_the_checksums() {
    for (target, _) in TARGETS {
        // A directory or a program of operations takes a thousand times as long as a record.
        let slow = ["open_dir", "ops_vs_model", "copies", "backup"].contains(target);
        let (count, accepted) = changed(target, if slow { number().div_ceil(6) } else { number() });
        println!("{target}: {accepted} of {count} changed inputs were accepted");
        assert!(count > 0 && accepted * 50 > count, "{target}: {accepted} of {count}");
    }
}

#[test]
fn without_it_hardly_any_would() {
    // The same changes to the same inputs, with the flag taken away.
    for target in ["manifest", "current", "page", "wal_frame"] {
        let (mut count, mut accepted) = (0, 0);
        for input in accepted_inputs(target).filter(|input| input[0] & FIX != 0) {
            for seed in 0..number() {
                let mut data = input.clone();
                data[0] &= !FIX;
                let size = 1 + plain(&mut data[1..], input.len() - 1, input.len() - 1, seed);
                if data[1..size] != input[1..] {
                    count += 1;
                    accepted += u32::from(run(target, &data[..size]));
                }
            }
        }
        assert!(count > 0 && accepted * 10 < count, "{target}: {accepted} of {count}");
    }
}

/// libFuzzer's rules: a line is empty, a comment, or an entry, which may have a name, in double quotes.
fn is_dictionary_line(line: &str) -> bool {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return true;
    }
    let Some(inside) = line.strip_suffix('"').and_then(|line| line.split_once('"')) else {
        return false;
    };
    let mut chars = inside.1.chars();
    while let Some(c) = chars.next() {
        let escaped = match c {
            '\\' => chars.next(),
            '"' => return false,
            c if c.is_ascii_graphic() || c == ' ' => continue,
            _ => return false,
        };
        let hex =
            |chars: &mut std::str::Chars<'_>| chars.next().is_some_and(|c| c.is_ascii_hexdigit());
        match escaped {
            Some('\\' | '"') => {}
            Some('x') if hex(&mut chars) && hex(&mut chars) => {}
            _ => return false,
        }
    }
    !inside.1.is_empty()
}

#[test]
fn every_target_has_a_dictionary_and_a_small_corpus() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (target, _) in TARGETS {
        let text = std::fs::read_to_string(root.join("dict").join(target)).expect("a dictionary");
        for line in text.lines() {
            assert!(is_dictionary_line(line), "{target}: {line}");
        }
        let inputs = corpus(target);
        let bytes: usize = inputs.iter().map(Vec::len).sum();
        println!(
            "{target}: {} words, {} inputs, {bytes} bytes",
            text.lines().count() - 1,
            inputs.len()
        );
        assert!(
            inputs.len() <= 60 && bytes <= 200 << 10,
            "{target}: fuzz/minimise keeps them small"
        );
    }
}
