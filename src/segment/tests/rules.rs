//! The rules of the writer, one by one.

use annals_format::FileKind;
use annals_format::block::Encoding;
use annals_format::segment::{FOOTER_BYTES, Footer};

use super::*;
use annals_format::entry::EntryRef;

#[test]
fn entries_out_of_order_are_refused_and_change_nothing() {
    let (_disk, context) = context(ReadMode::Mmap, HistoryCodec::ZstdBlocks);
    let mut writer = SegmentWriter::create(&context, NewSegment::new(FileKind::L0, 1)).unwrap();
    let entry = |key: &'static [u8], revision| EntryRef {
        key,
        revision,
        first: revision - 1,
        ..EntryRef::default()
    };
    writer.add(&EntryRef { first: 6, ..entry(b"b", 5) }).unwrap_err();
    writer.add(&entry(b"b", 5)).unwrap();
    writer.add(&entry(b"a", 9)).unwrap_err();
    writer.add(&entry(b"b", 5)).unwrap_err();
    writer.add(&entry(b"b", 6)).unwrap_err();
    writer.add(&entry(b"b", 4)).unwrap_err();
    writer.add(&entry(b"c", 4)).unwrap();
    writer.add(&EntryRef { tombstone: true, value: b"x", ..entry(b"d", 1) }).unwrap_err();
    let long = vec![b'd'; (1 << 20) + 17];
    writer.add(&EntryRef { key: &long, revision: 3, ..EntryRef::default() }).unwrap_err();
    let meta = writer.finish().unwrap();
    assert_eq!((meta.entries, meta.min_revision, meta.max_revision), (2, 3, 5));
    assert!(problems(&open(&context, &meta)).is_empty());
}

#[test]
fn a_segment_without_entries_is_a_segment() {
    for (kind, codec) in STORED {
        let (_disk, context) = context(ReadMode::Mmap, codec);
        let meta = write(&context, NewSegment::new(kind, 1), &[]);
        assert_eq!(meta.bytes, 256);
        let segment = open(&context, &meta);
        assert_eq!(problems(&segment), Vec::<String>::new());
        assert_eq!(segment.get(b"", u64::MAX).unwrap(), None);
        let mut cursor = segment.cursor();
        cursor.seek_first().unwrap();
        cursor.seek_last().unwrap();
        cursor.seek_before(b"x").unwrap();
        assert!(cursor.entry().is_none());
    }
}

#[test]
fn newest_versions_lie_uncompressed_and_are_not_copied() {
    let (_disk, context) = context(ReadMode::Mmap, HistoryCodec::ZstdBlocks);
    let entries = sample(FileKind::Head, 100, 200);
    let meta = write(&context, NewSegment::new(FileKind::Head, 1), &entries);
    let segment = open(&context, &meta);
    assert!(blocks(&segment).iter().all(|block| block.encoding == Encoding::Raw));
    let mut live = entries.iter().filter(|entry| !entry.version.tombstone);
    let key = &live.next().unwrap().key;
    let (one, two) = (segment.get(key, u64::MAX).unwrap(), segment.get(key, u64::MAX).unwrap());
    let value = |entry: Option<Entry>| entry.unwrap().version.value.as_ptr();
    assert_eq!(value(one), value(two));
}

#[test]
fn a_value_larger_than_a_block_has_a_block_of_its_own() {
    for kind in [FileKind::L0, FileKind::History] {
        let (_disk, context) = context(ReadMode::Mmap, HistoryCodec::ZstdBlocks);
        let mut entries = sample(kind, 30, 20);
        entries.retain(|entry| entry.version.revision < 1000);
        entries[7].version.value = vec![b'v'; 5000].into();
        entries[7].version.tombstone = false;
        let meta = write(&context, NewSegment::new(kind, 1), &entries);
        let segment = open(&context, &meta);
        assert!(problems(&segment).is_empty());
        let large: Vec<_> = blocks(&segment).into_iter().filter(|b| b.raw_bytes > 2000).collect();
        assert_eq!(large.len(), 1);
        assert_eq!((large[0].entry_count, &large[0].first_key[..]), (1, &entries[7].key[..]));
    }
}

#[test]
fn large_versions_of_one_key_are_stored_over_the_newest() {
    let (_disk, context) = context(ReadMode::Mmap, HistoryCodec::ZstdBlocks);
    let entries = near_copies(10, 20_000);
    let meta = write(&context, NewSegment::new(FileKind::History, 1), &entries);
    assert!(meta.bytes < 25_000, "{} bytes for ten near copies of 20,000", meta.bytes);
    let segment = open(&context, &meta);
    assert!(problems(&segment).is_empty());
    let blocks = blocks(&segment);
    assert_eq!(blocks.len(), 10);
    let first = blocks[0].offset;
    assert_eq!(blocks[0].base_offset, None);
    assert!(blocks[1..].iter().all(|block| block.base_offset == Some(first)));
    for entry in &entries {
        let found = segment.get(b"/one", entry.version.revision).unwrap();
        assert_eq!(found.as_ref(), Some(entry));
    }
}

#[test]
fn a_new_base_comes_when_differences_add_up() {
    let (_disk, context) = context(ReadMode::Mmap, HistoryCodec::ZstdBlocks);
    // Each version replaces another tenth of the value: the oldest has nothing of the newest.
    let mut entries = near_copies(40, 20_000);
    let noise = near_copies(41, 20_000).pop().unwrap().version.value;
    let mut value = noise.to_vec();
    for (nth, entry) in entries.iter_mut().enumerate() {
        let at = nth % 10 * 2000;
        for (index, byte) in value[at..at + 2000].iter_mut().enumerate() {
            *byte ^= noise[(index * 7 + nth * 13 + 1) % noise.len()];
        }
        entry.version.value = value.clone().into();
    }
    let meta = write(&context, NewSegment::new(FileKind::History, 1), &entries);
    let segment = open(&context, &meta);
    assert!(problems(&segment).is_empty());
    let full = blocks(&segment).iter().filter(|block| block.base_offset.is_none()).count();
    assert!((3..=15).contains(&full), "{full} of 40 blocks are stored in full");
    assert!(meta.bytes < 500_000, "{} bytes", meta.bytes);
    for entry in &entries {
        let found = segment.get(&entry.key, entry.version.revision).unwrap();
        assert_eq!(found.as_ref(), Some(entry));
    }
}

#[test]
fn a_dictionary_is_trained_where_it_pays() {
    let (_disk, context) = context(ReadMode::Mmap, HistoryCodec::ZstdBlocks);
    let dictionary_bytes = |segment: &Segment| segment.footer().unwrap().dictionary_bytes;
    let entries = sample(FileKind::History, 2000, 300);
    let meta = write(&context, NewSegment::new(FileKind::History, 1), &entries);
    let segment = open(&context, &meta);
    assert!(problems(&segment).is_empty());
    assert!(dictionary_bytes(&segment) > 0, "2 MB of like values");
    assert!(blocks(&segment).iter().any(|block| block.encoding == Encoding::ZstdDictionary));
    for entry in entries.iter().step_by(7) {
        let found = segment.get(&entry.key, entry.version.revision).unwrap();
        assert_eq!(found.as_ref(), Some(entry));
    }
    // Too little to learn from: none.
    let few = write(&context, NewSegment::new(FileKind::History, 3), &entries[..20]);
    assert_eq!(dictionary_bytes(&open(&context, &few)), 0);
}

#[test]
fn the_same_entries_make_the_same_bytes() {
    for (kind, codec) in STORED {
        let entries = sample(kind, 200, 100);
        let write = || {
            let (_disk, context) = context(ReadMode::Mmap, codec);
            write(&context, NewSegment::new(kind, 1), &entries).hash
        };
        let hashes: Vec<_> = (0..2).map(|_| write()).collect();
        assert_eq!(hashes[0], hashes[1]);
    }
}

#[test]
fn an_abandoned_segment_leaves_no_file() {
    let (disk, context) = context(ReadMode::Mmap, HistoryCodec::ZstdBlocks);
    let mut writer = SegmentWriter::create(&context, NewSegment::new(FileKind::L0, 1)).unwrap();
    writer.add(&sample(FileKind::L0, 1, 10)[0].as_ref()).unwrap();
    assert_eq!(writer.entries(), 1);
    assert!(writer.bytes() > 64);
    writer.abandon().unwrap();
    assert!(!disk.exists(&context.path(FileKind::L0, 1)).unwrap());
}

#[test]
fn a_file_of_another_place_is_refused() {
    let (disk, context) = context(ReadMode::Mmap, HistoryCodec::ZstdBlocks);
    let entries = sample(FileKind::L0, 50, 50);
    let meta = write(&context, NewSegment::new(FileKind::L0, 1), &entries);
    let bytes = disk.read(&context.path(FileKind::L0, 1)).unwrap();
    // The same bytes under another number, kind or store.
    let moved = [
        (FileMeta { number: 2, ..meta.clone() }, STORE),
        (FileMeta { kind: FileKind::Head, ..meta.clone() }, STORE),
        (meta, StoreId([8; 16])),
    ];
    for (meta, store) in moved {
        let context = SegmentContext { store, ..context.clone() };
        let path = context.path(meta.kind, meta.number);
        if !disk.exists(&path).unwrap() {
            disk.create(&path).unwrap();
        }
        disk.overwrite(&path, &bytes);
        let segment = open(&context, &meta);
        let error = segment.get(&entries[0].key, u64::MAX).unwrap_err();
        assert!(error.corruption().is_some(), "{error}");
        assert!(!problems(&segment).is_empty());
    }
}

#[test]
fn a_file_of_another_incarnation_is_refused_where_it_says_so() {
    let (disk, context) = context(ReadMode::Mmap, HistoryCodec::ZstdBlocks);
    let kinds = [FileKind::L0, FileKind::Head, FileKind::History, FileKind::Events];
    for (number, kind) in (1..).step_by(2).zip(kinds) {
        let entries = sample(kind, 50, 50);
        // A writer stays with that which its file was begun in.
        context.set_incarnation(5);
        let mut writer = SegmentWriter::create(&context, NewSegment::new(kind, number)).unwrap();
        context.set_incarnation(6);
        for entry in &entries {
            writer.add(&entry.as_ref()).unwrap();
        }
        let meta = writer.finish().unwrap();
        let later = write(&context, NewSegment::new(kind, number + 1), &entries);
        assert_eq!((meta.incarnation, later.incarnation), (5, 6));
        // What has gone on reads both.
        for meta in [&meta, &later] {
            let segment = open(&context, meta);
            assert_eq!(segment.footer().unwrap().incarnation, meta.incarnation);
            segment.get(&entries[0].key, u64::MAX).unwrap();
            assert_eq!(problems(&segment), [""; 0]);
        }

        // The manifest says another; and then header and footer of one file do.
        let path = context.path(kind, number);
        let good = disk.read(&path).unwrap();
        let footer_at = good.len() - FOOTER_BYTES;
        let place = context.place(kind, number).at(footer_at as u64);
        let footer = Footer::decode(&good[footer_at..], &place).unwrap();
        let mut mixed = good[..footer_at].to_vec();
        Footer { incarnation: 6, ..footer }.encode(&mut mixed);
        let of_sibling = FileMeta { incarnation: 6, ..meta.clone() };
        for (bytes, meta, offset) in
            [(&good, &of_sibling, 40), (&mixed, &meta, footer_at + 40), (&mixed, &of_sibling, 40)]
        {
            disk.overwrite(&path, bytes);
            let segment = open(&context, meta);
            let error = segment.get(&entries[0].key, u64::MAX).unwrap_err();
            let found = error.corruption().unwrap();
            assert_eq!((found.offset, found.file.ends_with(&path)), (offset as u64, true));
            assert!(found.structure.contains("incarnation, against the manifest"), "{error}");
            assert!(problems(&segment).iter().any(|problem| problem.contains("incarnation")));
        }
    }
}
