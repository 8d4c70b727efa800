//! Figures of groups, printed: `cargo test --release -p annals-format --test groups_speed -- --ignored --nocapture`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a program that prints figures"
)]

#[path = "harness/history.rs"]
mod history;

use std::fs;
use std::hint::black_box;

use annals_format::block::{BLOCK_HEADER_BYTES, compare};
use annals_format::group::{Favour, Groups, GroupsBuilder, RawGroups, Scratch};
use history::{Rng, Runs, Version, half_random, pod};

/// Of a block in the index: its handle, and a separator of about the length of a key.
const INDEX_BYTES: usize = 40;

/// Time this thread has had a processor: what others do beside it counts little.
fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn figures(name: &str, favour: Favour, dictionary: usize, value: fn(u64, u64) -> Vec<u8>) {
    let versions: Vec<Version> = history::history(200, 100, value).collect();
    let raw: usize = versions.iter().map(|version| version.value.len()).sum();
    let mut codec = Runs { dictionary: history::dictionary(dictionary, value) };
    let mut builder = GroupsBuilder::new(favour, &codec.dictionary.clone(), 4096);
    let mut blocks: Vec<RawGroups> = Vec::new();
    let before = cpu_seconds();
    for version in &versions {
        builder.push(&version.entry(), &mut codec);
        if builder.is_full() {
            blocks.extend(builder.finish());
        }
    }
    blocks.extend(std::iter::from_fn(|| builder.finish()));
    let seconds = cpu_seconds() - before;
    let stored: usize = blocks.iter().map(|block| block.stored.len()).sum();
    let stored = stored + blocks.len() * (BLOCK_HEADER_BYTES + INDEX_BYTES);
    let count = versions.len() as f64;
    println!(
        "{name}: {:.1} B a version of {:.0}, {} blocks; encode {:.0} MB/s, get {:.0} ns",
        stored as f64 / count,
        raw as f64 / count,
        blocks.len(),
        raw as f64 / seconds / 1e6,
        gets(&versions, &blocks, &mut codec) * 1e9,
    );
}

/// Seconds of a get in random order: the search for the block, for the version, and its value.
fn gets(versions: &[Version], blocks: &[RawGroups], codec: &mut Runs) -> f64 {
    const GETS: u32 = 100_000;
    let parsed: Vec<_> = blocks.iter().map(|block| Groups::parse(&block.stored).unwrap()).collect();
    let mut rng = Rng(1);
    let wanted: Vec<&Version> = (0..GETS)
        .map(|_| &versions[usize::try_from(rng.below(versions.len() as u64)).unwrap()])
        .collect();
    let mut scratch = Scratch::default();
    let before = cpu_seconds();
    for version in wanted {
        let of = |block: &RawGroups| {
            compare(&block.first.0, block.first.1, &version.key, version.revision).is_le()
        };
        let block = &parsed[blocks.partition_point(of) - 1];
        let (group, number) = block.find(&version.key, version.revision).unwrap().unwrap();
        let value = block.value_of(&group, number, codec, &mut scratch).unwrap();
        assert_eq!(black_box(value.as_ref()).len(), version.value.len());
    }
    (cpu_seconds() - before) / f64::from(GETS)
}

#[test]
#[ignore = "prints figures and proves nothing"]
fn figures_of_generated_histories() {
    for favour in [Favour::Raw, Favour::Fast, Favour::Small] {
        for dictionary in [0, 64 << 10] {
            figures(&format!("pods, {favour:?}, dictionary {dictionary}"), favour, dictionary, pod);
            let name = format!("half random, {favour:?}, dictionary {dictionary}");
            figures(&name, favour, dictionary, half_random);
        }
    }
}
