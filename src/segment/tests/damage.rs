//! Every flipped bit and every cut of a small segment is found, and never gives a wrong answer.

use annals_format::FileKind;

use super::*;
use crate::segment::cache::BlockCache;

/// A segment of this kind with several blocks.
fn small(context: &SegmentContext, kind: FileKind) -> (FileMeta, Vec<Entry>) {
    let keys = if kind == FileKind::History { 8 } else { 40 };
    let entries = sample(kind, keys, 20);
    (write(context, NewSegment::new(kind, 3), &entries), entries)
}

/// A segment whose index has several levels: long keys that differ only at their end.
fn deep(context: &SegmentContext) -> (FileMeta, Vec<Entry>) {
    let mut entries = sample(FileKind::L0, 15, 20);
    for entry in &mut entries {
        let mut key = vec![b'x'; 1500];
        key.extend_from_slice(&entry.key);
        entry.key = key.into();
    }
    let meta = write(context, NewSegment::new(FileKind::L0, 3), &entries);
    assert!(open(context, &meta).footer().unwrap().height > 1);
    (meta, entries)
}

/// Reads everything; whatever is answered must be right.
fn read_all(context: &SegmentContext, meta: &FileMeta, entries: &[Entry]) -> bool {
    let Ok(segment) = Segment::open(context, meta, &Arc::default()) else { return false };
    let segment = Arc::new(segment);
    let mut good = true;
    for entry in entries {
        match segment.get(&entry.key, entry.version.revision) {
            Ok(found) => assert_eq!(found.as_ref(), Some(entry)),
            Err(error) => {
                assert!(error.corruption().is_some(), "{error}");
                good = false;
            }
        }
    }
    match segment.get(b"/registry/pods/default/pod-0007x", u64::MAX) {
        Ok(found) => assert_eq!(found, None),
        Err(_) => good = false,
    }
    let mut cursor = segment.cursor();
    let mut walked = cursor.seek_first();
    for entry in entries {
        if walked.is_err() {
            return false;
        }
        assert_eq!(cursor.to_entry().as_ref(), Some(entry));
        walked = cursor.next();
    }
    let mut walked = walked.and_then(|()| cursor.seek_last());
    for entry in entries.iter().rev() {
        if walked.is_err() {
            return false;
        }
        assert_eq!(cursor.to_entry().as_ref(), Some(entry));
        walked = cursor.prev();
    }
    good && walked.is_ok()
}

/// Flips every `step`-th bit.
fn flip(
    disk: &MemoryVfs,
    context: &SegmentContext,
    meta: &FileMeta,
    entries: &[Entry],
    step: usize,
) {
    let path = context.path(meta.kind, meta.number);
    let mut bytes = disk.read(&path).unwrap();
    assert!(read_all(context, meta, entries));
    let mut unseen = 0;
    for bit in (0..bytes.len() * 8).step_by(step) {
        bytes[bit / 8] ^= 1 << (bit % 8);
        disk.overwrite(&path, &bytes);
        // What is cached was read before the damage, so every try has a cache of its own.
        let fresh = SegmentContext { cache: BlockCache::new(1 << 20), ..context.clone() };
        unseen += usize::from(read_all(&fresh, meta, entries));
        let found = problems(&Segment::open(&fresh, meta, &Arc::default()).unwrap());
        assert!(!found.is_empty(), "{:?}: bit {bit} of {}", meta.kind, bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert_eq!(unseen, 0, "flips in {:?} that no read met", meta.kind);
}

#[test]
fn every_flipped_bit_is_found_and_no_answer_is_wrong() {
    for (kind, codec) in STORED {
        let (disk, context) = context(ReadMode::Mmap, codec);
        let (meta, entries) = small(&context, kind);
        flip(&disk, &context, &meta, &entries, 1);
    }
}

#[test]
fn flipped_bits_are_found_without_maps() {
    for (kind, codec) in STORED {
        let (disk, context) = context(ReadMode::Pread, codec);
        let (meta, entries) = small(&context, kind);
        flip(&disk, &context, &meta, &entries, 7);
    }
}

#[test]
fn flipped_bits_are_found_in_a_deep_index() {
    let (disk, context) = context(ReadMode::Mmap, HistoryCodec::ZstdBlocks);
    let (meta, entries) = deep(&context);
    flip(&disk, &context, &meta, &entries, 13);
}

#[test]
fn flipped_bits_are_found_in_blocks_over_a_base() {
    let (disk, context) = context(ReadMode::Mmap, HistoryCodec::ZstdBlocks);
    let entries = near_copies(3, 4100);
    let meta = write(&context, NewSegment::new(FileKind::History, 3), &entries);
    let mut based = 0;
    let count = &mut |block: BlockInfo| {
        based += usize::from(block.base_offset.is_some());
        Ok(true)
    };
    open(&context, &meta).blocks(count).unwrap();
    assert_eq!(based, 2);
    flip(&disk, &context, &meta, &entries, 1);
}

#[test]
fn flipped_bits_are_found_in_blocks_over_a_dictionary() {
    let (disk, context) = context(ReadMode::Mmap, HistoryCodec::ZstdBlocks);
    let entries = sample(FileKind::History, 200, 100);
    let meta = write(&context, NewSegment::new(FileKind::History, 3), &entries);
    let footer = *open(&context, &meta).footer().unwrap();
    assert!(footer.dictionary_bytes > 0);
    flip(&disk, &context, &meta, &entries, 499);
}

#[test]
fn flipped_bits_are_found_in_groups_over_a_dictionary() {
    for codec in [HistoryCodec::Fast, HistoryCodec::Small] {
        let (disk, context) = context(ReadMode::Mmap, codec);
        let entries = sample(FileKind::History, 400, 300);
        let meta = write(&context, NewSegment::new(FileKind::History, 3), &entries);
        let footer = *open(&context, &meta).footer().unwrap();
        assert!(footer.dictionary_bytes > 0, "{codec:?}");
        flip(&disk, &context, &meta, &entries, 4999);
    }
}

#[test]
fn flipped_bits_are_found_in_frames_of_groups() {
    for read_mode in [ReadMode::Mmap, ReadMode::Pread] {
        let (disk, context) = context(read_mode, HistoryCodec::Fast);
        // Long and alike: frames, and what differs from them.
        let entries = sample(FileKind::History, 3, 6000);
        let meta = write(&context, NewSegment::new(FileKind::History, 3), &entries);
        assert!(meta.bytes < meta.value_bytes / 2, "{meta:?}");
        flip(&disk, &context, &meta, &entries, 3);
    }
}

#[test]
fn every_cut_and_every_tail_is_found() {
    for (kind, codec) in STORED {
        let (disk, context) = context(ReadMode::Mmap, codec);
        let (meta, entries) = small(&context, kind);
        let path = context.path(kind, 3);
        let bytes = disk.read(&path).unwrap();
        let longer = [&bytes[..], &[0]].concat();
        let cuts = (0..bytes.len()).map(|end| &bytes[..end]).chain([&longer[..]]);
        for cut in cuts {
            disk.overwrite(&path, cut);
            let error = Segment::open(&context, &meta, &Arc::default()).unwrap_err();
            assert!(error.corruption().is_some(), "{error}");
            // Even if the manifest had the wrong length too.
            let lying = FileMeta { bytes: cut.len() as u64, ..meta.clone() };
            assert!(!read_all(&context, &lying, &entries));
        }
    }
}
