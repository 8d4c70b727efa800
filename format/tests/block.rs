//! Blocks: the golden file, every bit flipped, every length cut, and damage under a checksum that
//! holds, which no decoder may panic on.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test that is how to fail")]

mod harness;

use annals_format::block::{
    BLOCK_HEADER_BYTES, BlockHeader, Body, BodyBuilder, Encoding, RawBlock,
};
use annals_format::checksum::FileSeed;
use annals_format::entry::{
    BlobRef, EntryRef, FLAG_FOLLOWS, FLAG_LEASE, FLAG_SAME_LIFETIME, FLAG_TOMBSTONE,
};
use annals_format::{DecodeError, FileKind, Place, Problem, StoreId};
use harness::{Dump, damage_everywhere, golden};

const STORE: StoreId = StoreId(*b"annals of a test");
/// Where the sample stands in the file.
const OFFSET: u64 = 4096;

fn seed(kind: FileKind) -> FileSeed {
    FileSeed::new(&Place { store: STORE, kind, file: 12, offset: OFFSET })
}

/// Versions that use every flag.
fn entries() -> [EntryRef<'static>; 5] {
    let of = |key, revision, death| EntryRef { key, revision, death, ..EntryRef::default() };
    [
        EntryRef {
            create_revision: 7,
            version: 3,
            value: b"v3",
            lease: -5,
            ..of(b"\x01/a", 90, 300)
        },
        EntryRef { create_revision: 7, version: 2, value: b"v2", ..of(b"\x01/a", 40, 90) },
        EntryRef { tombstone: true, ..of(b"\x01/a", 6, 7) },
        EntryRef { create_revision: 5, version: 1, value: b"v1", sub: 2, ..of(b"\x01/a", 5, 6) },
        EntryRef { create_revision: 8, version: 1, ..of(b"\x01/ab", 8, 301) },
    ]
}

fn body() -> RawBlock {
    let mut builder = BodyBuilder::new(FileKind::History);
    for entry in &entries() {
        builder.push(entry);
    }
    builder.finish()
}

fn block() -> Vec<u8> {
    block_of(FileKind::History, body())
}

fn block_of(kind: FileKind, raw: RawBlock) -> Vec<u8> {
    let RawBlock { body, entry_count } = raw;
    let bytes = u32::try_from(body.len()).unwrap();
    let header = BlockHeader {
        kind,
        encoding: Encoding::Raw,
        raw_bytes: bytes,
        stored_bytes: bytes,
        entry_count,
        base_distance: 0,
    };
    let mut out = Vec::new();
    header.encode(&mut out, seed(kind), OFFSET, &body);
    out
}

/// What L0 says of keys: one written once, one that lived before, one that came and went.
fn flushed() -> [EntryRef<'static>; 3] {
    let of = |key, revision, first| EntryRef { key, revision, first, ..EntryRef::default() };
    [
        EntryRef { create_revision: 90, version: 1, value: b"new", ..of(b"\x01/a", 90, 90) },
        EntryRef {
            create_revision: 7,
            version: 3,
            lived: true,
            value: b"v3",
            ..of(b"\x01/b", 91, 40)
        },
        EntryRef { tombstone: true, ..of(b"\x01/c", 300, 88) },
    ]
}

#[test]
fn block_is_golden() {
    let encoded = block();
    let mut dump = Dump::new("a block of HISTORY file 12, uncompressed", &encoded);
    dump.layout(&BlockHeader::LAYOUT);
    for (index, entry) in entries().iter().enumerate() {
        dump.comment(&format!("entry {index}"));
        dump.varint("shared");
        dump.prefixed("suffix");
        let flags = dump.bytes(1, "flags")[0];
        dump.varint("revision");
        dump.varint("sub");
        if flags & (FLAG_TOMBSTONE | FLAG_SAME_LIFETIME) == 0 {
            dump.varint("create_revision");
            dump.varint("version");
        }
        if flags & FLAG_LEASE != 0 {
            dump.varint("lease");
        }
        if flags & FLAG_FOLLOWS == 0 {
            dump.varint("death");
        }
        dump.prefixed("value");
        assert_eq!(flags & FLAG_TOMBSTONE != 0, entry.tombstone);
    }
    dump.comment("restart points");
    dump.bytes(4, "restart_offset");
    dump.bytes(4, "restart_count");
    let bytes = golden("segment-block-v1.hex", &dump.finish());

    let decode = |bytes: &[u8]| {
        BlockHeader::check_crc(bytes, seed(FileKind::History), OFFSET)?;
        BlockHeader::decode(bytes, FileKind::History).map(|(header, stored)| (header, stored.len()))
    };
    let (header, stored) = decode(&bytes).unwrap();
    assert_eq!((header.entry_count, stored), (5, bytes.len() - BLOCK_HEADER_BYTES));
    damage_everywhere(&bytes, false, &|bytes| decode(bytes).map(drop), &|_, error| {
        // A cut block has the wrong checksum as long as it has one at all.
        matches!(error.problem, Problem::Checksum { .. })
    });

    let stored = &bytes[BLOCK_HEADER_BYTES..];
    let body = Body::parse(stored, FileKind::History).unwrap();
    let mut found = Vec::new();
    body.check(5, |entry, key| found.push((key.to_vec(), *entry))).unwrap();
    for ((key, found), expected) in found.iter().zip(&entries()) {
        assert_eq!(EntryRef { key, ..*found }, *expected);
    }
    assert_eq!(found.len(), 5);
}

#[test]
fn l0_block_is_golden() {
    let mut builder = BodyBuilder::new(FileKind::L0);
    for entry in &flushed() {
        builder.push(entry);
    }
    let encoded = block_of(FileKind::L0, builder.finish());
    let mut dump = Dump::new("a block of L0 file 12", &encoded);
    dump.layout(&BlockHeader::LAYOUT);
    for (index, entry) in flushed().iter().enumerate() {
        dump.comment(&format!("entry {index}"));
        dump.varint("shared");
        dump.prefixed("suffix");
        dump.bytes(1, "flags");
        dump.varint("revision");
        dump.varint("sub");
        if !entry.tombstone {
            dump.varint("create_revision");
            dump.varint("version");
        }
        dump.varint("first_lived");
        dump.prefixed("value");
    }
    dump.comment("restart points");
    dump.bytes(4, "restart_offset");
    dump.bytes(4, "restart_count");
    let bytes = golden("segment-block-l0-v1.hex", &dump.finish());

    let body = Body::parse(&bytes[BLOCK_HEADER_BYTES..], FileKind::L0).unwrap();
    let mut expected = flushed().into_iter();
    body.check(3, |entry, key| {
        assert_eq!(Some(EntryRef { key, ..*entry }), expected.next());
    })
    .unwrap();
    assert_eq!(expected.next(), None);
}

#[test]
fn a_block_that_refers_to_a_value_is_golden() {
    let of = |key, revision| EntryRef {
        key,
        revision,
        create_revision: revision,
        version: 1,
        ..EntryRef::default()
    };
    let blob = Some(BlobRef { file: 300, bytes: 70_000 });
    let sample =
        [EntryRef { blob, ..of(b"\x01/a", 90) }, EntryRef { value: b"v", ..of(b"\x01/b", 91) }];
    let mut builder = BodyBuilder::new(FileKind::Head);
    for entry in &sample {
        builder.push(entry);
    }
    let encoded = block_of(FileKind::Head, builder.finish());
    let mut dump = Dump::new("a block of HEAD file 12", &encoded);
    dump.layout(&BlockHeader::LAYOUT);
    for (index, entry) in sample.iter().enumerate() {
        dump.comment(&format!("entry {index}"));
        dump.varint("shared");
        dump.prefixed("suffix");
        dump.bytes(1, "flags");
        for name in ["revision", "sub", "create_revision", "version"] {
            dump.varint(name);
        }
        if entry.blob.is_some() {
            dump.varint("blob_file");
            dump.varint("value_bytes");
        } else {
            dump.prefixed("value");
        }
    }
    dump.comment("restart points");
    dump.bytes(4, "restart_offset");
    dump.bytes(4, "restart_count");
    let bytes = golden("segment-block-blob-v1.hex", &dump.finish());

    let body = &bytes[BLOCK_HEADER_BYTES..];
    let mut expected = sample.into_iter();
    let parsed = Body::parse(body, FileKind::Head).unwrap();
    parsed
        .check(2, |entry, key| assert_eq!(Some(EntryRef { key, ..*entry }), expected.next()))
        .unwrap();
    assert_eq!(expected.next(), None);
    // No other kind of file refers to values, no tombstone has one, and none is empty or in file 0.
    let refused = |kind, at: usize, byte| {
        let mut body = body.to_vec();
        body[at] = byte;
        let body = Body::parse(&body, kind).unwrap();
        body.check(2, |_, _| ()).unwrap_err().field
    };
    assert_eq!(refused(FileKind::Blob, 5, 16), "flags");
    assert_eq!(refused(FileKind::History, 5, 16), "flags");
    assert_eq!(refused(FileKind::Head, 5, 17), "flags");
    let at = body.windows(2).position(|pair| pair == [0xac, 2]).unwrap();
    assert_eq!(refused(FileKind::Head, at, 0), "blob_file");
    let at = body.windows(3).position(|bytes| bytes == [0xf0, 0xa2, 4]).unwrap();
    assert_eq!(refused(FileKind::Head, at, 0), "value_bytes");
}

#[test]
fn an_oldest_version_after_the_newest_is_refused() {
    let entry = EntryRef { key: b"k", revision: 9, first: 4, ..EntryRef::default() };
    let mut builder = BodyBuilder::new(FileKind::L0);
    builder.push(&entry);
    let good = builder.finish().body;
    // shared, suffix with its length, flags, revision, sub, create_revision, version
    let at = 1 + 2 + 1 + 1 + 1 + 2;
    assert_eq!(good[at], 10);
    for (found, first) in [(0, Some(9)), (17, Some(1)), (19, Some(0)), (20, None), (127, None)] {
        let mut body = good.clone();
        body[at] = found;
        let body = Body::parse(&body, FileKind::L0).unwrap();
        match (body.find(b"k", 9), first) {
            (Ok(Some(item)), Some(first)) => {
                assert_eq!((item.fields.first, item.fields.lived), (first, found % 2 == 1));
            }
            (Err(error), None) => {
                assert_eq!(error.field, "first_lived");
                assert_eq!(error.problem, Problem::Invalid { found: found.into() });
            }
            (other, _) => panic!("{found}: {other:?}"),
        }
    }
}

#[test]
fn impossible_block_headers_are_refused_under_a_good_checksum() {
    let RawBlock { body, entry_count } = body();
    let bytes = u32::try_from(body.len()).unwrap();
    let good = BlockHeader {
        kind: FileKind::History,
        encoding: Encoding::Raw,
        raw_bytes: bytes,
        stored_bytes: bytes,
        entry_count,
        base_distance: 0,
    };
    for (bad, field) in [
        (BlockHeader { kind: FileKind::Head, ..good }, "kind"),
        (BlockHeader { raw_bytes: bytes + 1, ..good }, "raw_bytes"),
        (BlockHeader { raw_bytes: u32::MAX, ..good }, "raw_bytes"),
        (BlockHeader { encoding: Encoding::Zstd, ..good }, "raw_bytes"),
        (BlockHeader { entry_count: 0, ..good }, "entry_count"),
        (BlockHeader { entry_count: bytes + 1, ..good }, "entry_count"),
        (BlockHeader { base_distance: 1, ..good }, "base_distance"),
        (
            BlockHeader { encoding: Encoding::ZstdBase, raw_bytes: bytes + 1, ..good },
            "base_distance",
        ),
    ] {
        let mut out = Vec::new();
        bad.encode(&mut out, seed(FileKind::History), OFFSET, &body);
        BlockHeader::check_crc(&out, seed(FileKind::History), OFFSET).unwrap();
        let error = BlockHeader::decode(&out, FileKind::History).unwrap_err();
        assert_eq!(error.field, field, "{error}");
    }
}

/// Runs everything that reads a body, for the sake of not panicking.
fn read_body(bytes: &[u8], kind: FileKind) -> Result<(), DecodeError> {
    let body = Body::parse(bytes, kind)?;
    for key in [&b""[..], b"\x01/a", b"\x01/aa", b"\x01/ab", b"\xff"] {
        for at in [0, 5, 6, 41, u64::MAX] {
            let _ = body.find(key, at);
            let _ = body.seek(key, at);
        }
    }
    for run in 0..body.run_count().min(50) {
        let _ = body.run(run).map(Iterator::count);
    }
    let _ = body.run_of(usize::MAX);
    body.check(5, |_, _| ())
}

#[test]
fn no_damage_to_a_body_panics_even_under_a_good_checksum() {
    let good = body().body;
    for kind in [FileKind::History, FileKind::L0] {
        for at in 0..good.len() {
            for value in 0..=255 {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = read_body(&bad, kind);
            }
        }
        for cut in 0..good.len() {
            let _ = read_body(&good[..cut], kind);
        }
    }
    read_body(&good, FileKind::History).unwrap();
    let mut random = 1_u64;
    for _ in 0..20_000 {
        let noise: Vec<u8> = (0..40)
            .map(|_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Small numbers are the more interesting lengths.
                random.to_be_bytes()[0] >> (random % 7)
            })
            .collect();
        let _ = read_body(&noise, FileKind::History);
    }
}

#[test]
fn bodies_that_lie_are_found_by_the_check() {
    let of = |key, revision| EntryRef { key, revision, ..EntryRef::default() };
    for (kind, entries, field) in [
        // Keys that do not ascend.
        (FileKind::L0, vec![of(b"b", 1), of(b"a", 1)], "suffix"),
        // Two versions of a key where there is one.
        (FileKind::Head, vec![of(b"a", 2), of(b"a", 1)], "suffix"),
        (FileKind::L0, vec![of(b"a", 2), of(b"a", 1)], "suffix"),
        // More entries than there are.
        (FileKind::L0, vec![of(b"a", 1)], "entry_count"),
    ] {
        let mut builder = BodyBuilder::new(kind);
        for entry in &entries {
            builder.push(entry);
        }
        let raw = builder.finish();
        let body = Body::parse(&raw.body, kind).unwrap();
        let error = body.check(2, |_, _| ()).unwrap_err();
        assert_eq!(error.field, field, "{error}");
    }
}
