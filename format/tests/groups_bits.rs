//! Written groups, damaged: what the check lets through, every other way of reading agrees with, and
//! a flipped bit that changes nothing is one of those that say how values are made.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test that is how to fail")]

#[path = "harness/history.rs"]
mod history;

use std::ops::Range;

use annals_format::DecodeError;
use annals_format::FileKind;
use annals_format::block::{BlockHeader, Encoding};
use annals_format::cursor::Reader;
use annals_format::group::{
    FLAG_LEASE, FLAGS_COLUMNS, FLAGS_WIDTH, Favour, Groups, RawGroups, Scratch,
};
use history::{Runs, Version, write};
use proptest::prelude::*;

/// A few keys, some of whose versions are tombstones, end lifetimes, have leases and subs, or died
/// otherwise than by the version after.
fn versions() -> Vec<Version> {
    let mut out = Vec::new();
    for key in 0..4_u64 {
        for nth in 0..10 {
            let tombstone = key == 1 && nth == 4;
            let revision = 500 + 40 * (10 - nth) - key;
            let text = format!("{{\"at\":\"T01:{:02}:{:02}Z\",\"node\":\"worker\"}}", nth, 7 * nth);
            // Some are long runs, which the stand-in for zstd shortens.
            let value = if nth == 7 { vec![b'a'; 400] } else { text.repeat(2).into_bytes() };
            out.push(Version {
                key: format!("\x01/pods/pod-{key}").into_bytes(),
                revision,
                sub: u32::from(key == 2 && nth > 5),
                tombstone,
                create_revision: if tombstone { 0 } else { 100 },
                version: if tombstone { 0 } else { 20 - nth },
                lease: if key == 3 || (key == 2 && nth == 2) { 77 } else { 0 },
                death: if nth == 3 { revision + 7 } else { revision + 40 },
                value: if tombstone { Vec::new() } else { value },
            });
        }
    }
    out
}

fn codec() -> Runs {
    Runs { dictionary: b"{\"at\":\"T01:33:10Z\",\"node\":\"other\"}".to_vec() }
}

fn block(favour: Favour) -> RawGroups {
    let mut blocks = write(favour, &mut codec(), 1 << 20, versions());
    assert_eq!(blocks.len(), 1);
    blocks.remove(0)
}

fn check(block: &RawGroups, stored: &[u8]) -> Result<Vec<Version>, DecodeError> {
    let header = BlockHeader {
        kind: FileKind::History,
        encoding: Encoding::Groups,
        raw_bytes: block.raw_bytes,
        stored_bytes: u32::try_from(stored.len()).unwrap(),
        entry_count: block.entry_count,
        base_distance: 0,
    };
    let mut all = Vec::new();
    let each = |entry: &annals_format::entry::EntryRef<'_>, _: &[u8]| all.push(Version::of(entry));
    Groups::parse(stored)?.check(&header, &mut codec(), &mut Scratch::default(), each)?;
    Ok(all)
}

/// The bytes that say how values are made: of each group the shapes, ops and payloads.
fn makings(stored: &[u8]) -> Vec<Range<usize>> {
    let mut reader = Reader::new("groups", stored);
    let count = usize::from(reader.u16("group_count").unwrap());
    reader.prefixed("prefix", 100).unwrap();
    let mut ends: Vec<usize> =
        (1..count).map(|_| reader.u32("group_end").unwrap() as usize).collect();
    ends.push(stored.len());
    reader.bytes("key_hash", count).unwrap();
    let group = |end: usize| {
        let flags = reader.u8("flags").unwrap();
        let versions = usize::from(reader.u8("versions").unwrap());
        reader.prefixed("key_suffix", 100).unwrap();
        for field in ["revision", "lived", "sub"] {
            reader.varint(field).unwrap();
        }
        if reader.varint("version").unwrap() != 0 {
            reader.varint("create").unwrap();
        }
        if flags & FLAG_LEASE != 0 {
            reader.varint("lease").unwrap();
        }
        let width = usize::from(flags & FLAGS_WIDTH) + 1;
        reader.bytes("revision_offset", width * (versions - 1)).unwrap();
        if flags & FLAGS_COLUMNS != 0 {
            reader.prefixed("columns", 10_000).unwrap();
        }
        // `shape_count`, which follows, cannot be another.
        reader.bytes("shape_of", versions).unwrap();
        let start = reader.position() + 1;
        reader.bytes("shapes", end - reader.position()).unwrap();
        start..end
    };
    ends.into_iter().map(group).collect()
}

#[test]
fn every_flipped_bit_is_found_or_says_something_else() {
    for favour in [Favour::Raw, Favour::Fast, Favour::Small] {
        let block = block(favour);
        let good = check(&block, &block.stored).unwrap();
        assert_eq!(good, versions());
        let makings = makings(&block.stored);
        let mut found = 0;
        for bit in 0..block.stored.len() * 8 {
            let mut bad = block.stored.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            match check(&block, &bad) {
                Err(_) => found += 1,
                // The checksum of the block tells.
                Ok(all) if all != good => {}
                Ok(_) => {
                    let making = makings.iter().any(|range| range.contains(&(bit / 8)));
                    assert!(making, "{favour:?}: bit {bit} says nothing");
                }
            }
        }
        assert!(found > 1000, "{favour:?}: the check finds only {found}");
    }
}

#[test]
fn a_walk_that_keeps_bases_reads_the_same() {
    for favour in [Favour::Raw, Favour::Fast, Favour::Small] {
        let block = block(favour);
        let groups = Groups::parse(&block.stored).unwrap();
        let (mut codec, mut kept) = (codec(), Scratch::default());
        let mut places: Vec<_> = (0..groups.count())
            .flat_map(|group| {
                let versions = groups.group(group).unwrap().len();
                (0..versions).map(move |version| (group, version))
            })
            .collect();
        // Down, up, and from one group to another.
        let down = places.clone();
        places.extend(down.iter().rev());
        places.extend((0..down.len()).map(|nth| down[nth * 17 % down.len()]));
        for (group, version) in places {
            kept.of_block(1);
            let group = groups.group(group).unwrap();
            let found = groups.value_of(&group, version, &mut codec, &mut kept).unwrap();
            let mut fresh = Scratch::default();
            let alone = groups.value_of(&group, version, &mut codec, &mut fresh).unwrap();
            assert_eq!(found.as_ref(), alone.as_ref(), "{favour:?}: {}, {version}", group.number());
        }
        // Another block under another number: nothing of the first is taken for it.
        let changed: Vec<Version> = versions()
            .into_iter()
            .map(|version| {
                let value = version.value.to_ascii_uppercase();
                Version { value, ..version }
            })
            .collect();
        let other = write(favour, &mut codec, 1 << 20, changed.iter().cloned()).remove(0);
        let groups = Groups::parse(&other.stored).unwrap();
        kept.of_block(2);
        for version in &changed {
            let (group, number) = groups.find(&version.key, version.revision).unwrap().unwrap();
            let value = groups.value_of(&group, number, &mut codec, &mut kept).unwrap();
            assert_eq!(value.as_ref(), version.value);
        }
    }
}

/// Whatever the bytes are, reading ends; and if the check lets them through, all reads agree.
fn reads_agree(block: &RawGroups, stored: &[u8]) {
    let checked = check(block, stored);
    let Ok(groups) = Groups::parse(stored) else { return };
    let (mut codec, mut scratch) = (codec(), Scratch::default());
    for version in checked.iter().flatten() {
        let (group, number) = groups.find(&version.key, version.revision).unwrap().unwrap();
        let fields = group.fields(number).unwrap();
        let value = groups.value_of(&group, number, &mut codec, &mut scratch).unwrap();
        assert_eq!(Version::of(&fields.entry(&version.key, value.as_ref())), *version);
        let before = fields.death.saturating_sub(1);
        let (newest, at) = groups.find(&version.key, before).unwrap().unwrap();
        assert!((newest.number(), at) <= (group.number(), number));
    }
    for number in 0..groups.count().min(8) {
        let Ok(group) = groups.group(number) else { continue };
        for version in 0..group.len() {
            let _ = group.fields(version);
            if group.value_bytes(version).is_ok_and(|bytes| bytes < 1 << 16) {
                let _ = groups.value_of(&group, version, &mut codec, &mut scratch);
            }
        }
    }
    let _ = groups.find(b"\x01/pods/pod-2", 640);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn damaged_groups_are_read_without_panic(
        small in any::<bool>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let block = block(if small { Favour::Small } else { Favour::Fast });
        let mut stored = block.stored.clone();
        for (at, byte) in damage {
            let at = at.index(stored.len());
            stored[at] = byte;
        }
        if let Some(cut) = cut {
            stored.truncate(cut.index(stored.len()));
        }
        reads_agree(&block, &stored);
    }

    #[test]
    fn arbitrary_bytes_are_read_without_panic(
        head in prop::collection::vec(0..4_u8, 0..24),
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let block = block(Favour::Raw);
        reads_agree(&block, &[&[1, 0], &head[..], &rest].concat());
    }
}
