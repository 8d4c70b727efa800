//! Files whose ends or index are damaged are read by their blocks.

use annals_format::FileKind;
use annals_format::block::BLOCK_MAGIC;
use annals_format::segment::HEADER_BYTES;

use super::*;
use crate::segment::Leaves;
use crate::vfs::Access;

fn content_of(context: &SegmentContext, meta: &FileMeta) -> Vec<u8> {
    let path = context.path(meta.kind, meta.number);
    let file = context.vfs.open(&path, Access::Read).unwrap();
    let bytes = usize::try_from(file.len().unwrap()).unwrap();
    file.read_vec_at(bytes, 0).unwrap()
}

fn replace(context: &SegmentContext, meta: &FileMeta, content: &[u8]) {
    let path = context.path(meta.kind, meta.number);
    context.vfs.remove(&path).unwrap();
    context.vfs.create(&path).unwrap().write_all_at(content, 0).unwrap();
}

fn regained(context: &SegmentContext, meta: &FileMeta) -> Option<Arc<Segment>> {
    let regained = Segment::regain(context, meta, &Arc::default(), u64::MAX).unwrap();
    regained.inspect(|segment| assert_eq!(segment.meta(), meta)).map(Arc::new)
}

/// From one key to another.
type Span = (Vec<u8>, Vec<u8>);

/// What of a segment can be read, and between which keys are the blocks that cannot.
fn readable(segment: &Arc<Segment>) -> (Vec<Entry>, Vec<Span>) {
    let (mut entries, mut lost) = (Vec::new(), Vec::new());
    Leaves::each(segment, &mut |block| {
        let read = block.read(&mut |entry, value, _| {
            let version = Version::new(entry, value().unwrap());
            entries.push(Entry { key: Bytes::copy_from_slice(entry.key), version });
        });
        if let Err(error) = read {
            assert!(error.corruption().is_some(), "{error}");
            lost.push((block.first().to_vec(), block.upto().to_vec()));
        }
        Ok(true)
    })
    .unwrap();
    (entries, lost)
}

#[test]
fn all_of_a_file_is_found_without_its_ends_and_its_index() {
    for (kind, codec) in STORED {
        let (_, context) = context(ReadMode::Pread, codec);
        let entries = sample(kind, 60, 40);
        let meta = write(&context, NewSegment::new(kind, 3), &entries);
        let whole = content_of(&context, &meta);
        let footer = *open(&context, &meta).footer().unwrap();
        let end = usize::try_from(footer.index_offset).unwrap();
        let filter = usize::try_from(footer.filter_offset).unwrap();
        let mut damaged = whole.clone();
        damaged[..HEADER_BYTES].fill(0);
        damaged[end..filter].fill(0);
        let mut files = vec![damaged.clone(), [&damaged[..], &[0; 4096]].concat()];
        let without_footer = damaged.len() - 192;
        damaged[without_footer..].fill(0);
        files.push(damaged.clone());
        if footer.dictionary_bytes == 0 {
            damaged[end..].fill(0);
            files.push(damaged);
            files.push(whole[..end].to_vec());
        }
        for (n, content) in files.iter().enumerate() {
            replace(&context, &meta, content);
            let (found, lost) = readable(&regained(&context, &meta).unwrap());
            assert!(found == entries, "{kind:?} {codec:?} {n}");
            assert_eq!(lost, [], "{kind:?} {codec:?} {n}");
        }
    }
}

#[test]
fn of_damaged_blocks_it_is_known_between_which_keys_they_are() {
    for (kind, codec) in STORED {
        let (_, context) = context(ReadMode::Pread, codec);
        let entries = sample(kind, 60, 40);
        let meta = write(&context, NewSegment::new(kind, 3), &entries);
        let whole = content_of(&context, &meta);
        let segment = open(&context, &meta);
        let (all, filter) = (blocks(&segment), segment.footer().unwrap().filter_offset);
        // Others may be made of what is in the first.
        let is_base = |n: usize| all.iter().any(|block| block.base_offset == Some(all[n].offset));
        for n in (0..all.len()).filter(|n| !is_base(*n)) {
            let mut damaged = whole.clone();
            let start = usize::try_from(all[n].offset).unwrap();
            damaged[start..start + 30].fill(0);
            let last = &all[all.len() - 1];
            let index = usize::try_from(last.offset).unwrap() + last.bytes as usize;
            damaged[index..usize::try_from(filter).unwrap()].fill(0);
            replace(&context, &meta, &damaged);
            let Some(segment) = regained(&context, &meta) else {
                assert_eq!(all.len(), 1);
                continue;
            };
            let (found, lost) = readable(&segment);
            let missing = entries.len() - found.len();
            assert_eq!(missing, all[n].entry_count as usize, "{kind:?} {codec:?} {n}");
            for entry in &entries {
                let is_lost = |(first, upto): &Span| **first <= *entry.key && *entry.key <= **upto;
                let is_there = found.contains(entry);
                assert!(is_there || lost.iter().any(is_lost), "{kind:?} {codec:?} {n}");
            }
            assert_eq!(lost.len(), 1, "{kind:?} {codec:?} {n}");
        }
    }
}

/// Of a key with versions in many blocks the last one is lost with all that is behind, and another: that there were more is
/// told by the number of entries alone.
#[test]
fn an_end_that_is_cut_off_is_told_where_the_last_key_goes_on() {
    for codec in [HistoryCodec::ZstdBlocks, HistoryCodec::Fast] {
        let (_, context) = context(ReadMode::Pread, codec);
        let entries = near_copies(250, 600);
        let meta = write(&context, NewSegment::new(FileKind::History, 3), &entries);
        let whole = content_of(&context, &meta);
        let segment = open(&context, &meta);
        let all = blocks(&segment);
        assert!(all.len() > 3, "{codec:?}");
        let filter = usize::try_from(segment.footer().unwrap().filter_offset).unwrap();
        let is_base = |n: usize| all.iter().any(|block| block.base_offset == Some(all[n].offset));
        let other = (0..all.len() - 2).find(|n| !is_base(*n));
        assert!(other.is_some(), "{codec:?}");
        for damaged in [None, other] {
            let last = usize::try_from(all[all.len() - 1].offset).unwrap();
            let mut content = whole.clone();
            content[last..filter].fill(0);
            let footer = content.len() - 192;
            content[footer..].fill(0);
            if let Some(n) = damaged {
                let start = usize::try_from(all[n].offset).unwrap();
                content[start + 4..start + 30].fill(0);
            }
            replace(&context, &meta, &content);
            let (found, lost) = readable(&regained(&context, &meta).unwrap());
            assert!(found.len() < entries.len(), "{codec:?}");
            assert!(!lost.is_empty(), "{codec:?} {damaged:?}");
            let (first, upto) = &lost[lost.len() - 1];
            assert_eq!((&first[..], &upto[..]), (&b"/one"[..], &b"/one"[..]), "{codec:?}");
            let all_lost = entries.len() - found.len();
            let upto_last: usize = damaged.map_or(0, |n| all[n].entry_count as usize);
            assert!(all_lost >= upto_last + all[all.len() - 1].entry_count as usize);
            assert_eq!(lost.len(), 1 + usize::from(damaged.is_some()), "{codec:?}");
        }
    }
}

/// The files of a copy of the store have the same names and are of the same store.
#[test]
fn a_file_of_another_incarnation_is_none() {
    let (_, context) = context(ReadMode::Pread, HistoryCodec::ZstdBlocks);
    let meta = write(&context, NewSegment::new(FileKind::Head, 3), &sample(FileKind::Head, 90, 40));
    let whole = content_of(&context, &meta);
    let other = FileMeta { incarnation: 2, ..meta.clone() };
    let without_footer = whole.len() - 192;
    for damaged in [0..0, 0..HEADER_BYTES, without_footer..whole.len()] {
        let mut content = whole.clone();
        content[damaged].fill(0);
        replace(&context, &meta, &content);
        assert!(regained(&context, &meta).is_some());
        assert!(regained(&context, &other).is_none());
    }
    let later = FileMeta { min_revision: 100, max_revision: 200, ..meta.clone() };
    let mut content = whole.clone();
    content[..HEADER_BYTES].fill(0);
    content[without_footer..].fill(0);
    replace(&context, &meta, &content);
    assert!(regained(&context, &meta).is_some());
    // Some of its entries may be of these revisions, but not all of a block.
    let found = regained(&context, &later).map_or(0, |segment| readable(&segment).0.len());
    assert!(found < 60, "{found}");
}

#[test]
fn what_only_looks_like_a_block_is_none() {
    let (_, context) = context(ReadMode::Pread, HistoryCodec::ZstdBlocks);
    let meta = write(&context, NewSegment::new(FileKind::Head, 3), &sample(FileKind::Head, 9, 40));
    let whole = content_of(&context, &meta);
    // At another place.
    let mut moved = whole.clone();
    moved.insert(HEADER_BYTES, 0);
    // Of another number.
    let other = FileMeta { number: 4, ..meta.clone() };
    // Each of these says that it goes on up to the end.
    let [low, high] = BLOCK_MAGIC.to_le_bytes();
    let mut many = Vec::new();
    while many.len() < 1 << 20 {
        let stored = u32::try_from((1 << 20) - many.len()).unwrap().saturating_sub(24);
        many.extend([low, high, FileKind::Head.number(), 0, 0, 0, 0, 0]);
        many.extend(stored.to_le_bytes());
    }
    for content in [&moved[..], &many, &[], &whole[..HEADER_BYTES]] {
        replace(&context, &meta, content);
        assert!(regained(&context, &meta).is_none());
    }
    context.vfs.create(&context.path(FileKind::Head, 4)).unwrap().write_all_at(&whole, 0).unwrap();
    assert!(regained(&context, &other).is_none());
    // Of keys that the manifest does not name for it.
    replace(&context, &meta, &whole);
    assert!(regained(&context, &meta).is_some());
    assert!(regained(&context, &FileMeta { last_key: b"/a".to_vec(), ..meta }).is_none());
}
