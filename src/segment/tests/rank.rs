//! Counting by ranks: what two look-ups say is what looking at every entry says.

use annals_format::checksum::FileSeed;
use annals_format::living;
use annals_format::page::{Handle, PAGE_HEADER_BYTES, Page};
use annals_format::segment::FOOTER_BYTES;

use super::*;
use crate::segment::cache::BlockCache;

/// Entries of system keys and of user keys, put and deleted, that lived before and did not.
fn entries(kind: FileKind, keys: u64) -> Vec<Entry> {
    let mut random = 3_u64;
    let entry = |number: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let space = u8::from(number >= keys / 10);
        let tombstone = (random >> 60).is_multiple_of(4);
        // So long that a page has few.
        let key = format!("/pods/{}/ns-{:02}/{number:05}", "x".repeat(200), number / 50);
        let key = [&[space], key.as_bytes()].concat();
        let version = Version {
            revision: 100 + number,
            tombstone,
            create_revision: if tombstone { 0 } else { 100 },
            version: u64::from(!tombstone),
            first: if kind == FileKind::L0 { 90 } else { 0 },
            lived: kind == FileKind::L0 && (random >> 50).is_multiple_of(3),
            death: if kind == FileKind::History { 5000 } else { 0 },
            ..Version::default()
        };
        Entry { key: key.into(), version }
    };
    (0..keys).map(entry).collect()
}

/// By looking at every entry.
fn walked(kind: FileKind, entries: &[Entry], start: &[u8], end: &[u8]) -> i64 {
    let within = entries.iter().filter(|entry| start <= &entry.key[..] && &entry.key[..] < end);
    within.map(|entry| living::weight(kind, &entry.key, &entry.as_ref())).sum()
}

/// Bounds: keys, what lies between them, prefixes, and what lies outside.
fn bounds(entries: &[Entry]) -> Vec<Vec<u8>> {
    let mut bounds = vec![vec![1], vec![2], b"\x01/pods/x".to_vec(), b"\x01/q".to_vec()];
    for entry in entries.iter().step_by(entries.len() / 17) {
        bounds.extend([entry.key.to_vec(), [&entry.key[..], &[0]].concat()]);
    }
    bounds.sort();
    bounds
}

#[test]
fn ranks_tell_how_many_keys_live() {
    for read_mode in [ReadMode::Mmap, ReadMode::Pread] {
        for (kind, codec) in STORED.into_iter().filter(|(kind, _)| *kind != FileKind::Events) {
            let (_disk, context) = context(read_mode, codec);
            let entries = entries(kind, 1000);
            let segment = open(&context, &write(&context, NewSegment::new(kind, 1), &entries));
            assert_eq!(problems(&segment), Vec::<String>::new());
            let footer = segment.footer().unwrap();
            assert!(footer.height > 1 || kind == FileKind::History, "{kind:?} {footer:?}");
            let bounds = bounds(&entries);
            for (at, start) in bounds.iter().enumerate() {
                for end in &bounds[at..] {
                    let expected = walked(kind, &entries, start, end);
                    let found = segment.living(start, end).unwrap();
                    assert_eq!(found, expected, "{kind:?}: {start:?} to {end:?}");
                }
            }
        }
    }
}

#[test]
fn only_the_blocks_at_both_ends_are_read() {
    let (disk, context) = context(ReadMode::Pread, HistoryCodec::ZstdBlocks);
    let entries = entries(FileKind::Head, 1000);
    let meta = write(&context, NewSegment::new(FileKind::Head, 1), &entries);
    let path = context.path(meta.kind, meta.number);
    let mut bytes = disk.read(&path).unwrap();
    let segment = open(&context, &meta);
    let blocks_of = |key: &[u8]| segment.opened().unwrap().locate(key, u64::MAX).unwrap().unwrap();
    let index_offset = usize::try_from(segment.footer().unwrap().index_offset).unwrap();
    bytes[64..index_offset].fill(0xee);
    disk.overwrite(&path, &bytes);
    let damaged = open(&context, &meta);
    let (first, last) = (&entries[0].key[..], &entries[999].key[..]);
    let expected = walked(FileKind::Head, &entries, first, &[2]);
    assert_eq!(damaged.living(&[0], &[2]).unwrap(), expected, "nothing but the footer is read");
    let error = damaged.living(first, last).unwrap_err();
    assert!(error.corruption().is_some(), "{error}");
    // One that begins in a block and ends in another reads these two.
    let good = write(&context, NewSegment::new(FileKind::Head, 2), &entries);
    let (start, end) = (&entries[300].key[..], &entries[700].key[..]);
    let mut bytes = disk.read(&context.path(good.kind, good.number)).unwrap();
    let (one, two) = (blocks_of(start), blocks_of(end));
    let end_of = |handle: Handle| usize::try_from(handle.offset).unwrap() + handle.bytes as usize;
    let start_of = |handle: Handle| usize::try_from(handle.offset).unwrap();
    bytes[64..start_of(one)].fill(0xee);
    bytes[end_of(one)..start_of(two)].fill(0xee);
    bytes[end_of(two)..index_offset].fill(0xee);
    disk.overwrite(&context.path(good.kind, good.number), &bytes);
    let expected = walked(FileKind::Head, &entries, start, end);
    assert_eq!(open(&context, &good).living(start, end).unwrap(), expected);
}

/// The rank of each item of every page, changed under a checksum that holds, and the sum in the footer.
#[test]
fn a_wrong_rank_is_found_and_never_a_negative_count() {
    let (disk, context) = context(ReadMode::Mmap, HistoryCodec::ZstdBlocks);
    let entries = entries(FileKind::Head, 1000);
    let meta = write(&context, NewSegment::new(FileKind::Head, 1), &entries);
    let path = context.path(meta.kind, meta.number);
    let good = disk.read(&path).unwrap();
    let footer = *open(&context, &meta).footer().unwrap();
    let seed = FileSeed::new(&context.place(meta.kind, meta.number));
    let mut pages = Vec::new();
    open(&context, &meta)
        .pages(&mut |page| {
            pages.push((usize::try_from(page.offset).unwrap(), page.bytes as usize));
            Ok(true)
        })
        .unwrap();
    assert!(pages.len() > 2);
    let check = |bytes: &[u8], problem: &str| {
        disk.overwrite(&path, bytes);
        let fresh = SegmentContext { cache: BlockCache::new(1 << 20), ..context.clone() };
        let segment = open(&fresh, &meta);
        let found = problems(&segment);
        assert!(found.iter().any(|found| found.contains(problem)), "{found:?} without {problem}");
        for start in entries.iter().step_by(97) {
            match segment.living(&start.key, &[2]) {
                Ok(living) => assert!((0..=1000).contains(&living), "{living}"),
                Err(error) => assert!(error.corruption().is_some(), "{error}"),
            }
        }
    };
    let mut refused = 0;
    for (at, length) in pages {
        let page = &good[at..at + length];
        for item in 0..Page::decode(page).unwrap().count() {
            let offsets = PAGE_HEADER_BYTES + 8 * Page::decode(page).unwrap().count();
            let offset = page[offsets + 4 * item..].first_chunk::<4>().unwrap();
            let rank = u32::from_le_bytes(*offset) as usize + 20;
            for wrong in [-1, i32::MIN, i32::MAX] {
                let mut bad = page.to_vec();
                bad[rank..rank + 4].copy_from_slice(&wrong.to_le_bytes());
                let crc = seed.crc(at as u64, &[&bad[..20], &bad[24..]]);
                bad[20..24].copy_from_slice(&crc.to_le_bytes());
                let mut bytes = good.clone();
                bytes[at..at + length].copy_from_slice(&bad);
                check(&bytes, "index page");
                let segment = open(&context, &meta);
                let start = &entries[500].key;
                refused += usize::from(segment.living(start, &[2]).is_err());
            }
        }
    }
    assert!(refused > 0, "counts that cannot be are refused");
    for living in [footer.living - 1, footer.living + 1] {
        let mut end = Vec::new();
        annals_format::segment::Footer { living, ..footer }.encode(&mut end);
        let mut bytes = good.clone();
        let at = bytes.len() - FOOTER_BYTES;
        bytes[at..].copy_from_slice(&end);
        check(&bytes, "footer: living");
    }
}
