//! The parts of a segment beside its blocks: golden files, every bit flipped, every length cut, and
//! damage under a checksum that holds, which no decoder may panic on.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test that is how to fail")]

mod harness;

use annals_format::checksum::FileSeed;
use annals_format::events::{EventKind, EventRef, Transaction, TransactionBuilder};
use annals_format::limits::NUMBER_MAX;
use annals_format::page::{
    Child, Handle, PAGE_HEADER_BYTES, PAGE_LAYOUT, Page, PageBuilder, Separator,
};
use annals_format::segment::{FOOTER_BYTES, Footer, HEADER_BYTES, Header};
use annals_format::{FileKind, Place, Problem, StoreId, dictionary};
use harness::{Dump, NEVER, damage_everywhere, golden};

const STORE: StoreId = StoreId(*b"annals of a test");
/// Where the samples stand in the file.
const OFFSET: u64 = 4096;

fn place(kind: FileKind) -> Place {
    Place { store: STORE, kind, file: 12, offset: OFFSET }
}

fn seed(kind: FileKind) -> FileSeed {
    FileSeed::new(&place(kind))
}

fn page() -> Vec<u8> {
    let mut builder = PageBuilder::new(0);
    let mut push = |key: &[u8], revision, number, rank| {
        let handle = Handle { offset: 64 + 1000 * u64::from(number), bytes: 1000, number };
        let separator = Separator { key: key.to_vec(), revision };
        builder.push(Child { separator, handle, rank });
    };
    push(b"\x01/pods/a", u64::MAX, 5, 300);
    push(b"\x01/pods/default/x", 77, 6, 317);
    push(b"\x01/pods/default/y", u64::MAX, 7, -2);
    let mut out = Vec::new();
    builder.finish(&mut out, seed(FileKind::Head), OFFSET);
    out
}

fn footer() -> Footer {
    Footer {
        place: place(FileKind::History).at(9000),
        class: 3,
        incarnation: 5,
        entries: 70,
        keys: 9,
        tombstones: 2,
        value_bytes: 6500,
        min_revision: 5,
        max_revision: 300,
        death_after: 5,
        death_upto: 310,
        block_count: 4,
        page_count: 1,
        index_offset: 7000,
        root: Handle { offset: 7000, bytes: 500, number: 0 },
        height: 1,
        filter_offset: 7500,
        filter_bytes: 96,
        dictionary_bytes: 1404,
        living: -68,
    }
}

fn transaction() -> Vec<u8> {
    let put = EventRef {
        kind: EventKind::Put,
        key: b"/a",
        sub: 0,
        create_revision: 7,
        version: 3,
        lease: -1,
        value_bytes: 300,
        value: None,
    };
    let repeated = EventRef { key: b"/c", sub: 2, value_bytes: 5, value: Some(b"value"), ..put };
    let delete = EventRef {
        kind: EventKind::Delete,
        key: b"/b",
        sub: 1,
        create_revision: 0,
        version: 0,
        lease: 0,
        value_bytes: 0,
        value: None,
    };
    let mut builder = TransactionBuilder::new();
    builder.push(&put);
    builder.push(&delete);
    builder.push(&repeated);
    assert_eq!(builder.count(), 3);
    let mut out = Vec::new();
    builder.finish(1, 1_700_000_000_000_000, b"me", &mut out);
    let read = Transaction::decode(&out).unwrap();
    assert_eq!((read.flags, read.time, read.metadata), (1, 1_700_000_000_000_000, &b"me"[..]));
    assert_eq!(read.events().collect::<Result<Vec<_>, _>>(), Ok(vec![put, delete, repeated]));
    out
}

#[test]
fn header_is_golden() {
    let sample = Header { place: place(FileKind::History).at(0), class: 3, incarnation: 5 };
    let mut encoded = Vec::new();
    sample.encode(&mut encoded);
    let mut dump = Dump::new("the header of HISTORY file 12", &encoded);
    dump.layout(&Header::LAYOUT);
    let bytes = golden("segment-header-v1.hex", &dump.finish());
    assert_eq!(bytes.len(), HEADER_BYTES);
    let decode = |bytes: &[u8]| Header::decode(bytes, &sample.place);
    assert_eq!(decode(&bytes), Ok(sample));
    damage_everywhere(&bytes, true, &|bytes| decode(bytes).map(drop), NEVER);
    for other in [
        Place { store: StoreId([0; 16]), ..sample.place },
        Place { kind: FileKind::Head, ..sample.place },
        Place { file: 13, ..sample.place },
    ] {
        let error = Header::decode(&bytes, &other).unwrap_err();
        assert!(matches!(error.problem, Problem::Checksum { .. }), "{error}");
    }
}

#[test]
fn footer_is_golden() {
    let mut encoded = Vec::new();
    footer().encode(&mut encoded);
    let mut dump = Dump::new("the footer of HISTORY file 12", &encoded);
    dump.layout(&Footer::LAYOUT);
    let bytes = golden("segment-footer-v1.hex", &dump.finish());
    assert_eq!(bytes.len(), FOOTER_BYTES);
    let decode = |bytes: &[u8]| Footer::decode(bytes, &footer().place);
    assert_eq!(decode(&bytes), Ok(footer()));
    damage_everywhere(&bytes, true, &|bytes| decode(bytes).map(drop), NEVER);
}

/// Under a checksum that holds, so that it is the number that is refused.
#[test]
fn numbers_of_incarnations_that_are_never_given_are_refused() {
    for incarnation in [0, NUMBER_MAX + 1, u64::MAX] {
        let (mut header, mut end) = (Vec::new(), Vec::new());
        let place = place(FileKind::History).at(0);
        Header { place, class: 3, incarnation }.encode(&mut header);
        Footer { incarnation, ..footer() }.encode(&mut end);
        let of_header = Header::decode(&header, &place).map(drop);
        let of_footer = Footer::decode(&end, &footer().place).map(drop);
        for decoded in [of_header, of_footer] {
            let error = decoded.unwrap_err();
            assert_eq!((error.field, error.offset), ("incarnation", 40), "{incarnation}");
        }
    }
}

#[test]
fn footers_whose_places_do_not_add_up_are_refused() {
    let good = footer();
    let root = |offset, bytes| Handle { offset, bytes, ..good.root };
    for bad in [
        Footer { index_offset: 63, ..good },
        Footer { index_offset: 7001, ..good },
        Footer { filter_offset: 7499, ..good },
        Footer { filter_bytes: u64::MAX, ..good },
        Footer { dictionary_bytes: 1403, ..good },
        Footer { root: root(7000, 499), ..good },
        Footer { root: root(6999, 501), ..good },
        Footer { root: root(u64::MAX, 501), ..good },
        Footer { height: 0, ..good },
        Footer { height: 25, ..good },
        Footer { block_count: 0, ..good },
        Footer { block_count: 7001, ..good },
        Footer { page_count: 0, ..good },
        Footer { entries: 3, ..good },
        Footer { living: 71, ..good },
        Footer { living: i64::MIN, ..good },
    ] {
        let mut bytes = Vec::new();
        bad.encode(&mut bytes);
        let error = Footer::decode(&bytes, &good.place).unwrap_err();
        assert!(matches!(error.problem, Problem::Mismatch { .. }), "{bad:?}: {error}");
    }
}

#[test]
fn page_is_golden() {
    let encoded = page();
    let mut dump = Dump::new("a leaf with three blocks", &encoded);
    dump.layout(&PAGE_LAYOUT);
    for index in 0..3 {
        dump.bytes(8, &format!("head {index}"));
    }
    for index in 0..3 {
        dump.bytes(4, &format!("item_offset {index}"));
    }
    dump.bytes(7, "prefix");
    for suffix_bytes in [1, 9, 9] {
        dump.bytes(8, "revision");
        dump.bytes(8, "child_offset");
        dump.bytes(4, "child_bytes");
        dump.bytes(4, "rank");
        dump.bytes(suffix_bytes, "key suffix");
    }
    let bytes = golden("segment-page-v1.hex", &dump.finish());
    let decode = |bytes: &[u8]| {
        Page::check_crc(bytes, seed(FileKind::Head), OFFSET)?;
        Page::decode(bytes).map(drop)
    };
    damage_everywhere(&bytes, false, &decode, &|_, error| {
        matches!(error.problem, Problem::Checksum { .. })
    });
    let page = Page::decode(&bytes).unwrap();
    assert_eq!((page.level(), page.count(), page.prefix()), (0, 3, &b"\x01/pods/"[..]));
    let mut keys = Vec::new();
    page.check(|key, item| keys.push((key.to_vec(), item.child.number, item.rank))).unwrap();
    let children: Vec<_> = keys.iter().map(|(_, number, rank)| (*number, *rank)).collect();
    assert_eq!(children, [(5, 300), (6, 317), (7, -2)]);
    for (key, at, expected) in [
        (&b""[..], 0, 0),
        (b"\x01/pods", u64::MAX, 0),
        (b"\x01/pods/a", u64::MAX, 0),
        (b"\x01/pods/default/x", u64::MAX, 0),
        (b"\x01/pods/default/x", 78, 0),
        (b"\x01/pods/default/x", 77, 1),
        (b"\x01/pods/default/xx", u64::MAX, 1),
        (b"\x01/pods/default/y", u64::MAX, 2),
        (b"\x01/q", 0, 2),
    ] {
        assert_eq!(page.search(key, at), Ok(expected), "{key:?} at {at}");
    }
}

#[test]
fn no_damage_to_a_page_panics_even_under_a_good_checksum() {
    let good = page();
    let read = |bytes: &[u8]| {
        let Ok(page) = Page::decode(bytes) else { return };
        for key in [&b""[..], b"\x01/pods/default/x", b"\xff"] {
            let _ = page.search(key, 7);
        }
        let _ = page.item(0);
        let _ = page.item(usize::MAX - 1);
        let _ = page.check(|_, _| ());
    };
    for at in 0..good.len() {
        for value in 0..=255 {
            let mut bad = good.clone();
            bad[at] = value;
            read(&bad);
        }
        read(&good[..at]);
    }
    assert!(good.len() > PAGE_HEADER_BYTES);
}

#[test]
fn dictionary_is_golden() {
    let mut encoded = Vec::new();
    dictionary::encode(&mut encoded, b"what zstd learnt", seed(FileKind::History), OFFSET);
    let mut dump = Dump::new("a dictionary section", &encoded);
    dump.layout(&dictionary::DICTIONARY_LAYOUT);
    dump.bytes(16, "content");
    let bytes = golden("segment-dictionary-v1.hex", &dump.finish());
    let decode = |bytes: &[u8]| {
        dictionary::decode(bytes, seed(FileKind::History), OFFSET).map(<[u8]>::to_vec)
    };
    assert_eq!(decode(&bytes), Ok(b"what zstd learnt".to_vec()));
    damage_everywhere(&bytes, true, &|bytes| decode(bytes).map(drop), &|_, error| {
        matches!(error.problem, Problem::Checksum { .. } | Problem::NotZero)
    });
}

#[test]
fn transaction_is_golden_and_never_panics() {
    let encoded = transaction();
    let mut dump = Dump::new("what one transaction changed: a put and a delete", &encoded);
    dump.varint("flags");
    dump.bytes(8, "time");
    dump.prefixed("metadata");
    dump.varint("count");
    dump.bytes(1, "kind");
    dump.prefixed("key");
    for name in ["sub", "create_revision", "version", "lease", "value_bytes"] {
        dump.varint(name);
    }
    dump.bytes(1, "kind");
    dump.prefixed("key");
    dump.varint("sub");
    dump.bytes(1, "kind");
    dump.prefixed("key");
    for name in ["sub", "create_revision", "version", "lease"] {
        dump.varint(name);
    }
    dump.prefixed("value");
    let bytes = golden("segment-transaction-v1.hex", &dump.finish());
    let read = |bytes: &[u8]| {
        Transaction::decode(bytes).and_then(|t| t.events().try_for_each(|e| e.map(drop)))
    };
    for at in 0..bytes.len() {
        for value in 0..=255 {
            let mut bad = bytes.clone();
            bad[at] = value;
            let _ = read(&bad);
        }
        read(&bytes[..at]).unwrap_err();
    }
    let longer = [&bytes[..], &[0]].concat();
    read(&longer).unwrap_err();
}
