//! Groups as they are written: read back they are the same entries, they pass the proof of the
//! decoder, and they are small where histories repeat themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test that is how to fail")]

#[path = "harness/history.rs"]
mod history;

use annals_format::FileKind;
use annals_format::block::{BLOCK_HEADER_BYTES, BlockHeader, Encoding};
use annals_format::group::{Favour, Groups, RawGroups, Scratch};
use history::{Rng, Runs, Version, dictionary, half_random, history, pod, write};
use proptest::prelude::*;

/// Of a block in the index: its handle, and a separator of about the length of a key.
const INDEX_BYTES: usize = 40;

fn header(block: &RawGroups) -> BlockHeader {
    BlockHeader {
        kind: FileKind::History,
        encoding: Encoding::Groups,
        raw_bytes: block.raw_bytes,
        stored_bytes: u32::try_from(block.stored.len()).unwrap(),
        entry_count: block.entry_count,
        base_distance: 0,
    }
}

/// Reads everything back, in order and one by one, and compares.
fn assert_holds(blocks: &[RawGroups], codec: &mut Runs, versions: &[Version]) {
    let mut scratch = Scratch::default();
    let mut found = Vec::new();
    for block in blocks {
        let groups = Groups::parse(&block.stored).unwrap();
        let from = found.len();
        groups
            .check(&header(block), codec, &mut scratch, |entry, _| found.push(Version::of(entry)))
            .unwrap();
        let of = |version: &Version| (version.key.clone(), version.revision);
        assert_eq!(block.first, of(&found[from]));
        assert_eq!(block.last, of(found.last().unwrap()));
        for version in &found[from..] {
            let found = groups.find(&version.key, version.revision).unwrap();
            let (group, number) = found.expect("a version that is there");
            let value = groups.value_of(&group, number, codec, &mut scratch).unwrap();
            assert_eq!(value.as_ref(), version.value);
        }
    }
    assert_eq!(found.len(), versions.len());
    for (found, version) in found.iter().zip(versions) {
        assert_eq!(found, version);
    }
}

fn assert_round_trip(favour: Favour, dictionary: Vec<u8>, block_bytes: usize, all: &[Version]) {
    let mut codec = Runs { dictionary };
    let blocks = write(favour, &mut codec, block_bytes, all.iter().cloned());
    assert_holds(&blocks, &mut codec, all);
    assert_eq!(blocks, write(favour, &mut codec, block_bytes, all.iter().cloned()));
}

/// How the values of a key come about.
#[derive(Clone, Copy, Debug)]
enum Values {
    /// Documents that differ in a few fields.
    Pods,
    /// Nothing in common.
    Random(u64),
    /// A text that is edited again and again.
    Edited(u64),
    /// Runs that the stand-in for zstd shortens, of many lengths.
    Runs(u64),
}

/// One key: its values, versions, and in how many of 16 cases something is out of the ordinary.
#[derive(Clone, Copy, Debug)]
struct Plan {
    values: Values,
    versions: u64,
    seed: u64,
    odd: u64,
}

fn values() -> impl Strategy<Value = Values> {
    prop_oneof![
        Just(Values::Pods),
        (0..600_u64).prop_map(Values::Random),
        (0..6_000_u64).prop_map(Values::Edited),
        (0..20_000_u64).prop_map(Values::Runs),
    ]
}

fn plan() -> impl Strategy<Value = Plan> {
    let versions = prop_oneof![3 => 1..8_u64, 1 => 8..200_u64];
    (values(), versions, any::<u64>(), 0..16_u64).prop_map(|(values, versions, seed, odd)| Plan {
        values,
        versions,
        seed,
        odd,
    })
}

/// The versions of one key, oldest first.
fn versions_of(key: &[u8], plan: Plan) -> Vec<Version> {
    let mut rng = Rng(plan.seed);
    let is_odd = |rng: &mut Rng| rng.below(64) < plan.odd;
    let mut all = Vec::<Version>::new();
    let mut text: Vec<u8> = Vec::new();
    let (mut revision, mut lease, mut life) = (rng.below(1000), 0_i64, (0, 0));
    for number in 0..plan.versions {
        let gap = if is_odd(&mut rng) { 1 << rng.below(40) } else { 1 };
        revision += gap;
        if is_odd(&mut rng) {
            lease = rng.word().cast_signed() >> rng.below(64);
        }
        let tombstone = life.1 > 0 && is_odd(&mut rng);
        life = match life {
            _ if tombstone => (0, 0),
            (0, _) => (revision, 1),
            (_, _) if is_odd(&mut rng) => (revision - rng.below(revision), 1 + rng.below(1 << 40)),
            (create, version) => (create, version + 1),
        };
        let value = match plan.values {
            _ if tombstone || is_odd(&mut rng) => Vec::new(),
            Values::Pods => pod(plan.seed % 1000, number),
            Values::Random(bytes) => (0..bytes).map(|_| rng.word().to_le_bytes()[0]).collect(),
            Values::Edited(bytes) => {
                edit(&mut text, usize::try_from(bytes).unwrap(), &mut rng);
                text.clone()
            }
            Values::Runs(bytes) => {
                let bytes = usize::try_from(rng.below(bytes + 1)).unwrap();
                let byte = rng.word().to_le_bytes()[0];
                (0..bytes).map(|at| byte.wrapping_add((at / 100).to_le_bytes()[0])).collect()
            }
        };
        all.push(Version {
            key: key.to_vec(),
            revision,
            sub: if is_odd(&mut rng) { u32::try_from(rng.below(1 << 32)).unwrap() } else { 0 },
            tombstone,
            create_revision: life.0,
            version: life.1,
            lease,
            death: 0,
            value,
        });
    }
    // Deaths follow from the next version, unless a revision between is out of the file.
    let mut death = revision + 1 + rng.below(9);
    for version in all.iter_mut().rev() {
        version.death = death;
        let gone = version.revision > 1 && is_odd(&mut rng);
        death = if gone { version.revision + 1 + rng.below(5) } else { version.revision };
    }
    all
}

/// Replaces a few words of the text.
fn edit(text: &mut Vec<u8>, bytes: usize, rng: &mut Rng) {
    while text.len() < bytes {
        text.extend(format!("word-{} = {}\n", text.len(), rng.below(1 << 30)).into_bytes());
    }
    for _ in 0..rng.below(4) {
        let at = usize::try_from(rng.below(text.len() as u64 + 1)).unwrap();
        let to = (at + usize::try_from(rng.below(12)).unwrap()).min(text.len());
        text.splice(at..to, rng.below(1 << 20).to_string().into_bytes());
    }
}

fn all_of(plans: &[Plan]) -> Vec<Version> {
    let mut all = Vec::new();
    for (index, plan) in plans.iter().enumerate() {
        let key = format!("\x01k/{:03}/{}", index / 2, "a".repeat(index % 7));
        let mut versions = versions_of(key.as_bytes(), *plan);
        versions.reverse();
        all.extend(versions);
    }
    all.sort_by(|a, b| a.key.cmp(&b.key).then(b.revision.cmp(&a.revision)));
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_history_is_read_back_as_it_was(
        plans in prop::collection::vec(plan(), 1..12),
        favour in prop_oneof![Just(Favour::Raw), Just(Favour::Fast), Just(Favour::Small)],
        dictionary_bytes in prop_oneof![Just(0_usize), 1..9_000_usize],
        block_bytes in prop_oneof![1..600_usize, Just(4096)],
    ) {
        let dictionary = dictionary(dictionary_bytes, pod);
        assert_round_trip(favour, dictionary, block_bytes, &all_of(&plans));
    }
}

#[test]
fn many_small_keys_share_blocks() {
    let value =
        |index: u64, version: u64| format!("{{\"n\":{index},\"v\":{version}}}").into_bytes();
    let all: Vec<_> = history(5_000, 2, value).collect();
    let mut codec = Runs::default();
    let blocks = write(Favour::Fast, &mut codec, 4096, all.iter().cloned());
    assert_holds(&blocks, &mut codec, &all);
    let (last, rest) = blocks.split_last().unwrap();
    assert!(rest.iter().all(|block| (3072..=4096).contains(&block.stored.len())));
    assert!(last.stored.len() <= 4096);
}

#[test]
fn a_huge_value_is_a_group_like_any_other() {
    let huge = |_: u64, version: u64| {
        let mut text = Vec::new();
        let mut rng = Rng(7);
        edit(&mut text, 1_500_000, &mut rng);
        edit(&mut text, 0, &mut Rng(version));
        text
    };
    let all: Vec<_> = history(2, 5, huge).collect();
    for favour in [Favour::Raw, Favour::Fast, Favour::Small] {
        let mut codec = Runs::default();
        let blocks = write(favour, &mut codec, 4096, all.iter().cloned());
        assert_holds(&blocks, &mut codec, &all);
        // The stand-in for zstd cannot shorten it, so a keyframe takes all of its bytes.
        let stored: usize = blocks.iter().map(|block| block.stored.len()).sum();
        assert!(stored < all.iter().map(|v| v.value.len()).sum::<usize>() / 4, "{stored}");
    }
}

fn tenths_a_version(favour: Favour, keys: u64, value: fn(u64, u64) -> Vec<u8>) -> usize {
    let mut codec = Runs { dictionary: dictionary(64 << 10, value) };
    let blocks = write(favour, &mut codec, 4096, history(keys, 100, value));
    let one = |block: &RawGroups| block.stored.len() + BLOCK_HEADER_BYTES + INDEX_BYTES;
    let stored: usize = blocks.iter().map(one).sum();
    stored / usize::try_from(keys * 10).unwrap()
}

/// Blocks of 16 KiB of the same versions take 184 bytes a version with zstd, level 3.
#[test]
fn documents_that_change_a_little_take_a_fifth_of_zstd_blocks() {
    let tenths = tenths_a_version(Favour::Fast, 40, pod);
    assert!(tenths < 2 * 184, "{tenths} tenths of a byte a version");
    assert!(tenths > 170, "less than what changes cannot be: {tenths}");
}

/// And of these 134 bytes, 128 of which are random.
#[test]
fn values_that_are_half_random_take_little_more_than_that_half() {
    let tenths = tenths_a_version(Favour::Fast, 40, half_random);
    assert!((1290..1500).contains(&tenths), "{tenths} tenths of a byte a version");
}
