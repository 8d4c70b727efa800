//! Blocks of groups: the golden file, searches against walks, and the header they stand behind.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test that is how to fail")]

mod groups_made;
mod harness;

use annals_format::block::{BLOCK_HEADER_BYTES, BlockHeader, Encoding};
use annals_format::checksum::FileSeed;
use annals_format::group::{FLAG_LEASE, FLAGS_COLUMNS, GROUPS_MAX, Groups, Scratch, VERSIONS_MAX};
use annals_format::{FileKind, Place, Problem, StoreId};
use groups_made::{
    Backwards, DICTIONARY, Made, Row, SAMPLE_COUNTS, block, header, rows, sample, sample_groups,
    sample_rows, shape,
};
use harness::{Dump, damage_everywhere, golden};
use xxhash_rust::xxh3::xxh3_64;

const OFFSET: u64 = 4096;

fn seed() -> FileSeed {
    let (store, kind) = (StoreId(*b"annals of a test"), FileKind::History);
    FileSeed::new(&Place { store, kind, file: 12, offset: OFFSET })
}

fn dump_group(dump: &mut Dump<'_>, group: &Made) {
    let versions = group.shape_of.len();
    dump.bytes(1, "flags");
    dump.bytes(1, "versions");
    dump.prefixed("key_suffix");
    dump.varint("revision");
    dump.varint("lived");
    dump.varint("sub");
    if dump.varint("version") != 0 {
        dump.varint("create");
    }
    if group.flags & FLAG_LEASE != 0 {
        dump.varint("lease");
    }
    for version in 1..versions {
        let width = usize::from(group.flags & 3) + 1;
        dump.bytes(width, &format!("revision_offset of version {version}"));
    }
    if group.flags & FLAGS_COLUMNS != 0 {
        dump.varint("columns_bytes");
        dump.bytes(1, "deaths: bitmap");
        dump.varint("lived of version 2");
        dump.bytes(1, "lifetimes: bitmap");
        dump.varint("version of version 2, a tombstone");
        dump.varint("version of version 3");
        dump.varint("create of version 3");
        for version in 1..versions {
            dump.varint(&format!("sub of version {version}"));
        }
        for version in 0..versions {
            dump.varint(&format!("lease of version {version}"));
        }
    }
    dump.bytes(versions, "shape_of");
    dump.bytes(1, "shape_count");
    dump.varint("ops_bytes");
    dump.bytes(1, "widths");
    let [value, payload, ops_at] = group.widths();
    for (field, width) in [
        ("kind", 1),
        ("base", 1),
        ("value_bytes", value),
        ("payload_bytes", payload),
        ("ops_at", ops_at),
    ] {
        for index in 0..if width == 0 { 0 } else { group.shapes.len() } {
            dump.bytes(width, &format!("{field} of shape {index}"));
        }
    }
    for index in 0..group.ops.len() / 3 {
        dump.comment(&format!("op {index}"));
        dump.varint("insert");
        dump.varint("copy");
        dump.varint("skip");
    }
    dump.comment("payloads");
    for (version, payload) in group.payloads.iter().enumerate() {
        dump.bytes(payload.len(), &format!("payload of version {version}"));
    }
}

#[test]
fn groups_are_golden() {
    let stored = sample();
    let mut encoded = Vec::new();
    let sample_header = header(&stored, SAMPLE_COUNTS.0, SAMPLE_COUNTS.1);
    sample_header.encode(&mut encoded, seed(), OFFSET, &stored);
    let title = "a block of groups of HISTORY file 12; frames are stood in for by bytes backwards";
    let mut dump = Dump::new(title, &encoded);
    dump.layout(&BlockHeader::LAYOUT);
    dump.bytes(2, "group_count");
    dump.prefixed("prefix");
    dump.bytes(4, "group_end");
    dump.bytes(4, "group_end");
    for index in 0..3 {
        dump.bytes(1, &format!("key_hash of group {index}"));
    }
    for (index, group) in sample_groups().iter().enumerate() {
        dump.comment(&format!("group {index}"));
        dump_group(&mut dump, group);
    }
    let bytes = golden("segment-groups-v1.hex", &dump.finish());

    let decode = |bytes: &[u8]| {
        BlockHeader::check_crc(bytes, seed(), OFFSET)?;
        BlockHeader::decode(bytes, FileKind::History).map(|(header, _)| header)
    };
    assert_eq!(decode(&bytes), Ok(sample_header));
    damage_everywhere(&bytes, false, &|bytes| decode(bytes).map(drop), &|_, error| {
        // A cut block has the wrong checksum as long as it has one at all.
        matches!(error.problem, Problem::Checksum { .. })
    });
    let (entries, values) = SAMPLE_COUNTS;
    assert_eq!(rows(&bytes[BLOCK_HEADER_BYTES..], entries, values), Ok(sample_rows()));
}

#[test]
fn headers_of_groups_have_rules_of_their_own() {
    let stored = sample();
    let good = header(&stored, 1, 0);
    let most = u32::try_from(GROUPS_MAX * VERSIONS_MAX).unwrap();
    for (header, kind, field) in [
        // Values may be empty and may be fewer bytes than their keys.
        (good, FileKind::History, None),
        (BlockHeader { raw_bytes: good.stored_bytes, ..good }, FileKind::History, None),
        (BlockHeader { entry_count: most, ..good }, FileKind::History, None),
        (BlockHeader { entry_count: most + 1, ..good }, FileKind::History, Some("entry_count")),
        (BlockHeader { entry_count: 0, ..good }, FileKind::History, Some("entry_count")),
        (BlockHeader { raw_bytes: u32::MAX, ..good }, FileKind::History, Some("raw_bytes")),
        (BlockHeader { base_distance: 1, ..good }, FileKind::History, Some("base_distance")),
        (BlockHeader { kind: FileKind::Head, ..good }, FileKind::Head, Some("encoding")),
        (BlockHeader { kind: FileKind::Events, ..good }, FileKind::Events, Some("encoding")),
    ] {
        let mut out = Vec::new();
        header.encode(&mut out, seed(), OFFSET, &stored);
        let decoded = BlockHeader::decode(&out, kind);
        assert_eq!(decoded.as_ref().err().map(|error| error.field), field, "{decoded:?}");
    }
    assert_eq!(Encoding::from_number(Encoding::Groups.number()), Some(Encoding::Groups));
    assert_eq!(Encoding::from_number(3), None, "groups of a draft");
}

#[test]
fn every_kind_and_column_is_read() {
    let stored = sample();
    assert_eq!(rows(&stored, SAMPLE_COUNTS.0, SAMPLE_COUNTS.1), Ok(sample_rows()));
}

/// What a search for a key finds, by looking at all.
fn expected(all: &[Row], key: &[u8], at: u64) -> Option<Row> {
    all.iter().find(|row| row.0 == key && row.1 <= at).cloned()
}

fn search_all(stored: &[u8], all: &[Row], keys: &[&[u8]], ats: &[u64]) {
    let groups = Groups::parse(stored).unwrap();
    let (mut codec, mut scratch) = (Backwards(DICTIONARY), Scratch::default());
    for key in keys {
        for &at in ats {
            let found = groups.find(key, at).unwrap().map(|(group, version)| {
                let fields = group.fields(version).unwrap();
                let value = groups.value_of(&group, version, &mut codec, &mut scratch).unwrap();
                assert_eq!(group.value_bytes(version).unwrap() as usize, value.as_ref().len());
                let entry = fields.entry(key, value.as_ref());
                assert_eq!(group.revision(version).unwrap(), entry.revision);
                groups_made::row(&entry)
            });
            assert_eq!(found, expected(all, key, at), "{key:?} at {at}");
        }
    }
}

#[test]
fn searches_find_what_a_walk_finds() {
    let mut ats: Vec<u64> = (0..1010).collect();
    ats.push(u64::MAX);
    let keys: [&[u8]; 9] = [
        b"",
        b"\x01",
        b"\x01/p",
        b"\x01/p/",
        b"\x01/p/a",
        b"\x01/p/aa",
        b"\x01/p/b",
        b"\x01/p/c",
        b"\x02",
    ];
    search_all(&sample(), &sample_rows(), &keys, &ats);
}

#[test]
fn revisions_are_found_at_every_width() {
    for width in 0..4_u8 {
        let step = 1_u64 << (8 * u32::from(width));
        // The last offset needs just this width.
        let offsets: Vec<u64> = (1..=63).map(|nth| nth * step.div_ceil(2) + nth / 2).collect();
        let mut made = Made { flags: width, life: (64, 1), ..Made::raw(b"", 1 << 40, b"") };
        made.lived = 9;
        made.shape_of = vec![0; 64];
        made.shapes = vec![shape(1, 0, 0, 0, 0)];
        made.payloads = vec![Vec::new()];
        made.offsets.clone_from(&offsets);
        made.life.1 = 1 << 39;
        let stored = block(b"k", &[made]);
        let all = rows(&stored, 64, 0).unwrap();
        assert_eq!(all.len(), 64);
        let around =
            |offset: &u64| [(1 << 40) - offset - 1, (1 << 40) - offset, (1 << 40) - offset + 1];
        let mut ats: Vec<u64> = offsets.iter().flat_map(around).collect();
        ats.extend([0, 1 << 40, u64::MAX]);
        search_all(&stored, &all, &[b"k", b"j", b"kk"], &ats);
    }
}

/// Keys whose hash is the same, side by side, each in one group or several; and all keys of two letters.
#[test]
fn keys_of_one_hash_are_told_apart() {
    let letters = || (b'a'..=b'z').chain(b'A'..=b'Z');
    let mut names: Vec<[u8; 2]> =
        letters().flat_map(|first| letters().map(move |second| [first, second])).collect();
    let hash = |name: &[u8; 2]| xxh3_64(name).to_le_bytes()[0];
    names.retain(|name| [hash(b"aa"), hash(b"Zz"), hash(b"fn"), hash(b"if")].contains(&hash(name)));
    names.sort_unstable();
    assert!(names.len() > 30 && names.windows(2).any(|pair| hash(&pair[0]) == hash(&pair[1])));
    let made = names.iter().zip(0_u64..).flat_map(|(name, nth)| {
        // One to four groups of one version, at revisions that go down by two.
        let name: &'static [u8] = Box::leak(name.to_vec().into_boxed_slice());
        (0..=nth % 4).map(move |older| Made::raw(name, 20 - 2 * older, b"v"))
    });
    let made: Vec<Made> = made.collect();
    let versions = u32::try_from(made.len()).unwrap();
    let stored = block(b"", &made);
    let all = rows(&stored, versions, versions).unwrap();
    let ats: Vec<u64> = (10..25).collect();
    let others: [&[u8]; 4] = [b"", b"a", b"aaa", b"zz"];
    let keys: Vec<&[u8]> = names.iter().map(|name| &name[..]).chain(others).collect();
    search_all(&stored, &all, &keys, &ats);
}
