//! What hardly anything comes to in a segment: blocks, pages, filters and dictionaries at their limits, and small
//! questions about them.
#![allow(clippy::unwrap_used, reason = "in a test that is how to fail")]

use annals_format::block::{BlockHeader, Body, BodyBuilder, Encoding};
use annals_format::checksum::FileSeed;
use annals_format::entry::{self, EntryRef};
use annals_format::filter::{self, Filter, FilterKind};
use annals_format::limits::BLOCK_RAW_BYTES_MAX;
use annals_format::page::{self, Child, Handle, PAGE_BYTES_TARGET, Page, PageBuilder, Separator};
use annals_format::{FileKind, Place, Problem, StoreId, dictionary, segment};

const STORE: StoreId = StoreId([0xab; 16]);

fn place(kind: FileKind) -> Place {
    Place::start_of(STORE, kind, 3)
}

fn block_with(change: impl Fn(&mut BlockHeader)) -> Result<(), Problem> {
    let stored = [7; 40];
    let mut header = BlockHeader {
        kind: FileKind::History,
        encoding: Encoding::Raw,
        raw_bytes: 40,
        stored_bytes: 40,
        entry_count: 2,
        base_distance: 0,
    };
    change(&mut header);
    let mut bytes = Vec::new();
    header.encode(&mut bytes, FileSeed::new(&place(header.kind)), 64, &stored);
    assert_eq!(BlockHeader::block_bytes(&bytes), Ok(bytes.len() as u64));
    assert_eq!(BlockHeader::entry_count_of(&bytes), Ok(header.entry_count));
    let (again, found) = BlockHeader::decode(&bytes, header.kind).map_err(|error| error.problem)?;
    assert_eq!((again, found), (header, &stored[..]));
    Ok(())
}

#[test]
fn headers_of_blocks_at_their_limits() {
    let invalid = |found| Err(Problem::Invalid { found });
    assert_eq!(block_with(|_| ()), Ok(()));
    assert_eq!(block_with(|block| block.entry_count = 40), Ok(()));
    assert_eq!(block_with(|block| block.entry_count = 41), invalid(41));
    assert_eq!(block_with(|block| block.entry_count = 0), invalid(0));
    assert_eq!(block_with(|block| block.raw_bytes = 41), invalid(41));
    let encoded = |encoding, raw_bytes, base_distance| {
        block_with(|block| {
            (block.encoding, block.raw_bytes, block.base_distance) =
                (encoding, raw_bytes, base_distance);
        })
    };
    assert_eq!(encoded(Encoding::Zstd, 41, 0), Ok(()));
    assert_eq!(encoded(Encoding::Zstd, 40, 0), invalid(40));
    assert_eq!(encoded(Encoding::Zstd, 39, 0), invalid(39));
    assert_eq!(encoded(Encoding::ZstdDictionary, 41, 0), Ok(()));
    assert_eq!(encoded(Encoding::Groups, 3, 0), Ok(()));
    assert_eq!(encoded(Encoding::ZstdBase, 41, 1), Ok(()));
    assert_eq!(encoded(Encoding::ZstdBase, 41, 0), invalid(0));
    assert_eq!(encoded(Encoding::Zstd, 41, 1), invalid(1));
    let max = BLOCK_RAW_BYTES_MAX;
    let above = u32::try_from(max + 1).unwrap();
    assert_eq!(encoded(Encoding::Zstd, above - 1, 0), Ok(()));
    assert_eq!(encoded(Encoding::Zstd, above, 0), Err(Problem::TooLong { max, found: max + 1 }));
    let of_head =
        block_with(|block| (block.kind, block.encoding) = (FileKind::Head, Encoding::Groups));
    assert_eq!(of_head, invalid(5));

    let mut bytes = Vec::new();
    let header = BlockHeader {
        kind: FileKind::Head,
        encoding: Encoding::Raw,
        raw_bytes: 1,
        stored_bytes: 1,
        entry_count: 1,
        base_distance: 0,
    };
    header.encode(&mut bytes, FileSeed::new(&place(FileKind::Head)), 64, &[0]);
    let problem = |bytes: &[u8]| BlockHeader::decode(bytes, FileKind::Head).unwrap_err().problem;
    let wrong = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        bytes
    };
    let expected = u32::from(annals_format::block::BLOCK_MAGIC);
    let magic = Problem::Magic { expected, found: expected & 0xff00 };
    assert_eq!(problem(&wrong(0, 0)), magic);
    assert_eq!(BlockHeader::entry_count_of(&wrong(0, 0)).unwrap_err().problem, magic);
    let (l0, head) = (FileKind::L0.number(), FileKind::Head.number());
    let mismatch = Problem::Mismatch { expected: head.into(), found: l0.into() };
    assert_eq!(problem(&wrong(2, l0)), mismatch);
    assert_eq!(problem(&wrong(3, 5)), Problem::Invalid { found: 5 });
    assert_eq!(problem(&wrong(8, 2)), Problem::Mismatch { expected: 1, found: 2 });
}

#[test]
fn a_body_is_asked_about_itself() {
    let mut builder = BodyBuilder::new(FileKind::Head);
    assert!(builder.is_empty());
    let keys: Vec<Vec<u8>> = (0..40_u8).map(|number| vec![1, b'k', number]).collect();
    for key in &keys {
        let entry = EntryRef {
            key,
            revision: 9,
            create_revision: 9,
            version: 1,
            value: b"v",
            ..EntryRef::default()
        };
        builder.push(&entry);
        assert!(!builder.is_empty());
    }
    let expected = builder.raw_bytes();
    let raw = builder.finish();
    assert_eq!(raw.body.len(), expected);
    assert!(builder.is_empty(), "it starts over");
    let body = Body::parse(&raw.body, FileKind::Head).unwrap();
    assert_eq!(raw.body.len(), body.entries_bytes() + 4 * (body.run_count() + 1));
    assert!(body.run_count() > 1);
    for number in 0..body.run_count() {
        let mut run = body.run(number).unwrap();
        assert_eq!(
            (run.position(), run.neighbour().present),
            (body.run_offset(number).unwrap(), false)
        );
        let first = run.next().unwrap().unwrap();
        assert_eq!(body.run_of(first.offset), number);
        assert!(run.position() > first.offset && run.neighbour().present);
    }
    let count = |entry_count| body.check(entry_count, |_, _| ()).map_err(|error| error.problem);
    assert_eq!(count(40), Ok(()));
    assert_eq!(count(41), Err(Problem::Mismatch { expected: 41, found: 40 }));
    assert_eq!(count(39), Err(Problem::Mismatch { expected: 39, found: 40 }));
}

#[test]
fn a_page_is_full_when_it_has_two_items_and_its_bytes() {
    let separator = Separator::between((b"\x01pod-1", 9), b"\x01pod-27");
    assert_eq!(separator, Separator { key: b"\x01pod-2".to_vec(), revision: u64::MAX });
    assert_eq!(
        Separator::between((b"\x01a", 9), b"\x01a"),
        Separator { key: b"\x01a".to_vec(), revision: 8 }
    );
    assert_eq!(Separator::between((b"\x01a", 9), b"\x01ab").key, b"\x01ab");
    let mut builder = PageBuilder::new(0);
    assert!(builder.is_empty() && builder.first().is_none() && !builder.is_full());
    let child = |number: u32, bytes: usize| Child {
        separator: if number == 0 {
            Separator::first()
        } else {
            Separator { key: vec![u8::try_from(number).unwrap(); bytes], revision: 1 }
        },
        handle: Handle { offset: 64 + u64::from(number) * 10, bytes: 10, number },
        rank: 0,
    };
    builder.push(child(0, 0));
    assert!(!builder.is_empty() && !builder.is_full());
    builder.push(child(1, PAGE_BYTES_TARGET));
    assert!(builder.is_full());
    assert_eq!(builder.first(), Some(&child(0, 0)));
    let mut many = PageBuilder::new(0);
    let mut count = 0_u32;
    while !many.is_full() {
        many.push(child(count, 1));
        count += 1;
    }
    // Header 24; 24 of an item, 12 of its place, 1 of its key.
    assert_eq!(count, 111);
}

#[test]
fn parts_of_a_filter() {
    let seed = FileSeed::new(&place(FileKind::Head));
    for wanted in [FilterKind::Bloom, FilterKind::Fuse] {
        let mut bytes = Vec::new();
        filter::encode(&mut bytes, wanted, &[1, 2, 3 << 60], seed, 64);
        let filter = Filter::decode(&bytes).unwrap();
        let again = Filter::from_parts(filter.shape(), filter.table());
        for hash in [1, 2, 3 << 60, 4, u64::MAX] {
            assert_eq!(again.may_contain(hash), filter.may_contain(hash));
        }
        let nothing = Filter::from_parts(filter.shape(), &[]);
        assert!(nothing.may_contain(1), "a table that is not there rules nothing out");
        let wrong = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            Filter::decode(&bytes).unwrap_err().field
        };
        assert_eq!((wrong(4, 9), wrong(5, 99), wrong(16, 77)), ("kind", "shape", "parts"));
    }
}

#[test]
fn dictionaries_at_their_limit() {
    let seed = FileSeed::new(&place(FileKind::History));
    let decoded = |length: usize| {
        // By hand: the encoder takes no other.
        let content = vec![7; length];
        let length = u32::try_from(length).unwrap();
        let header = [dictionary::DICTIONARY_MAGIC, length, 0].map(u32::to_le_bytes).concat();
        let crc = seed.crc(64, &[&header, &content]).to_le_bytes();
        let bytes = [&header[..], &crc, &content].concat();
        let decoded = dictionary::decode(&bytes, seed, 64).map_err(|error| error.field)?;
        assert_eq!(decoded, content);
        Ok(())
    };
    let max = dictionary::DICTIONARY_BYTES_MAX;
    assert_eq!((decoded(1), decoded(max)), (Ok(()), Ok(())));
    assert_eq!((decoded(0), decoded(max + 1)), (Err("content_bytes"), Err("content_bytes")));
}

#[test]
fn a_segment_is_of_the_kind_that_its_name_says() {
    let header = |of: FileKind, says: FileKind| {
        let at = place(of);
        let mut bytes = Vec::new();
        segment::Header { place: at, class: 0, incarnation: 1 }.encode(&mut bytes);
        let kind =
            segment::Header::LAYOUT.fields.iter().find(|field| field.name == "kind").unwrap();
        bytes[kind.offset] = says.number();
        let end = bytes.len() - 4;
        let crc = FileSeed::new(&at).crc(0, &[&bytes[..end]]);
        bytes[end..].copy_from_slice(&crc.to_le_bytes());
        segment::Header::decode(&bytes, &at).map(drop).map_err(|error| error.field)
    };
    assert_eq!(header(FileKind::L0, FileKind::L0), Ok(()));
    assert_eq!(header(FileKind::L0, FileKind::Head), Err("kind"));
    assert_eq!(header(FileKind::Events, FileKind::History), Err("kind"));
    assert_eq!(header(FileKind::Wal, FileKind::Wal), Err("kind"));
}

#[test]
fn a_version_is_in_a_block_once() {
    // So many that the last begins a run of its own; none is superseded by the one before it.
    let count = 17_u64;
    let mut builder = BodyBuilder::new(FileKind::History);
    for number in 0..count {
        let revision = 90 - number;
        let entry = EntryRef {
            key: b"\x01k",
            revision,
            create_revision: 1,
            version: 1,
            death: 99,
            ..EntryRef::default()
        };
        builder.push(&entry);
    }
    let raw = builder.finish();
    let check = |bytes: &[u8]| {
        let body = Body::parse(bytes, FileKind::History).unwrap();
        assert_eq!(body.run_count(), 2);
        body.check(raw.entry_count, |_, _| ()).map_err(|error| error.problem)
    };
    assert_eq!(check(&raw.body), Ok(()));
    let start = Body::parse(&raw.body, FileKind::History).unwrap().run_offset(1).unwrap();
    // Nothing shared, two bytes of key, flags; then the revision.
    let at = start + 5;
    assert_eq!(raw.body[at], 74);
    for (revision, expected) in [(73, Ok(())), (75, Err(Problem::Order)), (76, Err(Problem::Order))]
    {
        let mut bytes = raw.body.clone();
        bytes[at] = revision;
        assert_eq!(check(&bytes), expected, "{revision} after 75");
    }
}

#[test]
fn flags_and_deaths_that_no_entry_has() {
    let entry = EntryRef {
        key: b"\x01k",
        revision: 9,
        create_revision: 1,
        version: 1,
        ..EntryRef::default()
    };
    for kind in [FileKind::L0, FileKind::Head, FileKind::History] {
        let history = kind == FileKind::History;
        let mut builder = BodyBuilder::new(kind);
        let first = if kind == FileKind::L0 { 9 } else { 0 };
        builder.push(&EntryRef { death: if history { 12 } else { 0 }, first, ..entry });
        let raw = builder.finish();
        let check = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = raw.body.clone();
            change(&mut bytes);
            let body = Body::parse(&bytes, kind).unwrap();
            body.check(raw.entry_count, |_, _| ()).map_err(|error| error.field)
        };
        assert_eq!(check(&|_| ()), Ok(()));
        // Nothing shared, two bytes of key; then flags, revision, sub, create_revision, version, and of HISTORY death.
        for flags in [entry::FLAG_FOLLOWS, entry::FLAG_SAME_LIFETIME, 1 << 5] {
            assert_eq!(check(&|bytes| bytes[4] = flags), Err("flags"), "{kind:?}: {flags}");
        }
        if history {
            assert_eq!(raw.body[9], 3);
            assert_eq!(check(&|bytes| bytes[9] = 0), Err("death"));
            assert_eq!(check(&|bytes| bytes[9] = 1), Ok(()));
        }
    }
}

#[test]
fn pages_that_are_too_long_or_whose_heads_are_wrong() {
    let long = |length: usize| {
        let mut bytes = vec![0; length];
        bytes[..2].copy_from_slice(&page::PAGE_MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
        Page::decode(&bytes).unwrap_err().field
    };
    let max = usize::try_from(annals_format::limits::PAGE_BYTES_MAX).unwrap();
    assert_eq!((long(max), long(max + 1)), ("count", "page_bytes"));

    let mut builder = PageBuilder::new(0);
    for number in 0..3 {
        let separator = match number {
            0 => Separator::first(),
            _ => Separator { key: vec![7, u8::try_from(number).unwrap()], revision: 4 },
        };
        let handle = Handle { offset: 64 + 10 * u64::from(number), bytes: 10, number };
        builder.push(Child { separator, handle, rank: 0 });
    }
    let mut bytes = Vec::new();
    builder.finish(&mut bytes, FileSeed::new(&place(FileKind::Head)), 64);
    Page::decode(&bytes).unwrap().check(|_, _| ()).unwrap();
    for index in 0..3 {
        let at = page::PAGE_HEADER_BYTES + 8 * index;
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        let error = Page::decode(&bytes).unwrap().check(|_, _| ()).unwrap_err();
        assert_eq!((error.field, error.offset), ("head", at as u64));
    }
}
