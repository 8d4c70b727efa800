//! A replay tells the same transactions as a cursor, from wherever it begins, and no damage gets past it.

use annals_format::FileKind;

use super::*;
use crate::error::Result;
use crate::segment::Replayed;
use crate::segment::cache::BlockCache;

/// Transactions of several blocks with gaps between their revisions, some of which do not compress.
fn transactions(context: &SegmentContext) -> (FileMeta, Vec<(u64, Bytes)>) {
    let mut random = 5_u64;
    let mut value = |bytes: u64, noise: bool| -> Bytes {
        let mut byte = |_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if noise { random.to_be_bytes()[0] } else { b'v' }
        };
        (0..bytes).map(&mut byte).collect()
    };
    // Over a boundary where the key's second to last byte changes, and one where more do.
    let revision = |n: u64| if n < 250 { 100 + n * 3 } else { 0x00ff_ff00 + n };
    let made: Vec<(u64, Bytes)> =
        (0..600).map(|n| (revision(n), value(n % 90, n % 7 < 5))).collect();
    let entry = |(revision, value): &(u64, Bytes)| Entry {
        key: Bytes::copy_from_slice(&revision.to_be_bytes()),
        version: Version { revision: *revision, value: value.clone(), ..Version::default() },
    };
    let entries: Vec<Entry> = made.iter().map(entry).collect();
    (write(context, NewSegment::new(FileKind::Events, 3), &entries), made)
}

fn replayed(segment: &Arc<Segment>, from: u64) -> Result<Vec<(u64, Bytes)>> {
    let mut told = Vec::new();
    let mut replay = segment.replay(from)?;
    while let Some(Replayed { revision, value, .. }) = replay.next()? {
        told.push((revision, Bytes::copy_from_slice(value)));
    }
    assert!(replay.next()?.is_none(), "the end is the end");
    Ok(told)
}

#[test]
fn every_transaction_is_told_once_from_any_revision() {
    for read_mode in [ReadMode::Mmap, ReadMode::Pread] {
        let (_disk, context) = context(read_mode, HistoryCodec::Fast);
        let (meta, made) = transactions(&context);
        let segment = open(&context, &meta);
        assert!(blocks(&segment).len() > 10);
        let gaps = made.iter().flat_map(|(revision, _)| [revision - 1, *revision, revision + 1]);
        for from in gaps.step_by(7).chain([0, 1, u64::MAX]) {
            let at = made.partition_point(|(revision, _)| *revision < from);
            assert_eq!(replayed(&segment, from).unwrap(), made[at..], "from {from}");
        }
    }
}

#[test]
fn a_replay_takes_nothing_from_the_cache_but_where_it_begins() {
    let (_disk, context) = context(ReadMode::Mmap, HistoryCodec::Fast);
    let (meta, made) = transactions(&context);
    let segment = open(&context, &meta);
    assert_eq!(replayed(&segment, 0).unwrap(), made);
    let block = context.cache().bytes();
    assert!(block > 0 && block < 3 * 1024, "{block} bytes");
    assert_eq!(replayed(&segment, 0).unwrap(), made);
    assert_eq!(context.cache().bytes(), block);
}

#[test]
fn no_flipped_bit_changes_what_is_told() {
    for read_mode in [ReadMode::Mmap, ReadMode::Pread] {
        let (disk, context) = context(read_mode, HistoryCodec::Fast);
        let (meta, made) = transactions(&context);
        let path = context.path(meta.kind, meta.number);
        let mut bytes = disk.read(&path).unwrap();
        let (mut tried, mut found) = (0, 0);
        for at in (0..bytes.len()).step_by(11) {
            let bit = 1 << (at % 8);
            bytes[at] ^= bit;
            disk.overwrite(&path, &bytes);
            let fresh = SegmentContext { cache: BlockCache::new(1 << 20), ..context.clone() };
            let (told, damaged) = until_damage(&fresh, &meta);
            assert_eq!(told, made[..told.len()], "byte {at}");
            assert!(damaged || told.len() == made.len(), "byte {at}");
            (tried, found) = (tried + 1, found + usize::from(damaged));
            bytes[at] ^= bit;
        }
        // A replay that meets all blocks and pages meets all but a part of what is between.
        assert!(found * 20 > tried * 19, "{found} of {tried}");
    }
}

/// What a replay tells before it meets damage, if it does.
fn until_damage(context: &SegmentContext, meta: &FileMeta) -> (Vec<(u64, Bytes)>, bool) {
    let mut told = Vec::new();
    let segment = Segment::open(context, meta, &Arc::default()).map(Arc::new);
    let Ok(mut replay) = segment.and_then(|segment| segment.replay(0)) else { return (told, true) };
    loop {
        match replay.next() {
            Ok(Some(found)) => told.push((found.revision, Bytes::copy_from_slice(found.value))),
            Ok(None) => return (told, false),
            Err(error) => {
                assert!(error.corruption().is_some(), "{error}");
                assert!(replay.next().unwrap().is_none(), "nothing follows damage");
                return (told, true);
            }
        }
    }
}
