//! Segments of groups: what they take, where they are read, what they refuse.

use annals_format::FileKind;
use annals_format::block::Encoding;

use super::*;

const CODECS: [HistoryCodec; 3] = [HistoryCodec::Raw, HistoryCodec::Fast, HistoryCodec::Small];

/// Writes HISTORY with a codec; every entry must be found in it.
fn history(
    read_mode: ReadMode,
    codec: HistoryCodec,
    entries: &[Entry],
) -> (SegmentContext, Arc<Segment>) {
    let (_disk, context) = context(read_mode, codec);
    let meta = write(&context, NewSegment::new(FileKind::History, 1), entries);
    let segment = open(&context, &meta);
    assert_eq!(problems(&segment), Vec::<String>::new());
    assert!(blocks(&segment).iter().all(|block| block.encoding == Encoding::Groups));
    for entry in entries {
        let found = segment.get(&entry.key, entry.version.revision).unwrap();
        assert_eq!(found.as_ref(), Some(entry));
    }
    (context, segment)
}

#[test]
fn near_copies_of_a_version_take_little_more_than_the_version() {
    for codec in CODECS {
        let entries = near_copies(10, 20_000);
        let (_context, segment) = history(ReadMode::Mmap, codec, &entries);
        let bytes = segment.meta().bytes;
        assert!(bytes < 21_000, "{codec:?}: {bytes} bytes for ten near copies of 20,000");
        let [block] = &blocks(&segment)[..] else { panic!("one block") };
        assert_eq!((block.entry_count, block.groups), (10, Some(1)));
        assert_eq!((&*block.first_key, block.first_revision), (&b"/one"[..], 19));
    }
}

#[test]
fn keys_of_few_versions_share_blocks() {
    let mut entries = sample(FileKind::History, 200, 20);
    entries.retain(|entry| entry.version.revision < 1000);
    let (_context, segment) = history(ReadMode::Mmap, HistoryCodec::Fast, &entries);
    let blocks = blocks(&segment);
    assert!((10..100).contains(&blocks.len()), "{} blocks of 200 keys", blocks.len());
    let groups: usize = blocks.iter().filter_map(|block| block.groups).sum();
    assert_eq!(groups, 200);
}

#[test]
fn a_dictionary_is_trained_on_what_is_stored_in_full() {
    let entries = sample(FileKind::History, 2000, 300);
    let bytes = |codec| {
        let (_context, segment) = history(ReadMode::Mmap, codec, &entries);
        (segment.meta().bytes, segment.footer().unwrap().dictionary_bytes)
    };
    let (raw, none) = bytes(HistoryCodec::Raw);
    assert_eq!(none, 0);
    for codec in [HistoryCodec::Fast, HistoryCodec::Small] {
        let (stored, dictionary) = bytes(codec);
        assert!(dictionary > 0 && dictionary <= 65 << 10, "{codec:?}: {dictionary} bytes");
        assert!(stored < raw, "{codec:?}: {stored} bytes, {raw} without a dictionary");
    }
}

#[test]
fn groups_are_read_in_place_from_a_map_and_through_the_cache_without_one() {
    let entries = sample(FileKind::History, 200, 100);
    let (context, _segment) = history(ReadMode::Mmap, HistoryCodec::Fast, &entries);
    assert_eq!(context.cache().bytes(), 0);
    let (context, segment) = history(ReadMode::Pread, HistoryCodec::Fast, &entries);
    let cached = context.cache().bytes();
    let stored: u64 = blocks(&segment).iter().map(|block| u64::from(block.bytes)).sum();
    assert!(cached >= stored, "{cached} bytes of {stored} are cached");
}

#[test]
fn long_frames_are_decoded_once() {
    let entries = sample(FileKind::History, 1, 50_000);
    let (context, segment) = history(ReadMode::Mmap, HistoryCodec::Fast, &entries);
    let cached = context.cache().bytes();
    assert!(cached >= 50_000, "{cached} bytes are cached");
    for entry in &entries {
        let found = segment.get(&entry.key, entry.version.revision).unwrap();
        assert_eq!(found.as_ref(), Some(entry));
    }
    assert_eq!(context.cache().bytes(), cached);
}

#[test]
fn a_cursor_leaves_out_values_nobody_wants() {
    let entries = sample(FileKind::History, 3, 100);
    let (_context, segment) = history(ReadMode::Mmap, HistoryCodec::Fast, &entries);
    let mut cursor = segment.cursor_for(Want::Fields);
    cursor.seek_first().unwrap();
    for entry in &entries {
        let expected = Version { value: Bytes::new(), ..entry.version.clone() };
        assert_eq!(cursor.to_entry().unwrap(), Entry { key: entry.key.clone(), version: expected });
        cursor.next().unwrap();
    }
    assert!(cursor.entry().is_none());
}

#[test]
fn a_version_no_group_can_hold_is_refused_and_changes_nothing() {
    let (_disk, context) = context(ReadMode::Mmap, HistoryCodec::Fast);
    let new = NewSegment::new(FileKind::History, 1);
    let mut writer = SegmentWriter::create(&context, new).unwrap();
    let entries = sample(FileKind::History, 2, 20);
    writer.add(&entries[0].as_ref()).unwrap();
    let next = &entries[1];
    assert!(!next.version.tombstone);
    for (version, create_revision) in [(0, next.version.create_revision), (1, u64::MAX)] {
        let changed = Version { create_revision, version, ..next.version.clone() };
        let changed = Entry { key: next.key.clone(), version: changed };
        writer.add(&changed.as_ref()).unwrap_err();
    }
    writer.add(&next.as_ref()).unwrap();
    let meta = writer.finish().unwrap();
    assert_eq!(meta.entries, 2);
    assert!(problems(&open(&context, &meta)).is_empty());
}
