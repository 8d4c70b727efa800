//! Random segments of every kind answer as a sorted map does.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use annals_format::FileKind;
use bytes::Bytes;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

use super::*;
use crate::segment::{ConcatCursor, Cursor, EntryCursor as _, MergeCursor, Want};

type Model = BTreeMap<(Vec<u8>, Reverse<u64>), Entry>;

/// Keys that share prefixes, are prefixes of each other, differ only in their last byte, or are long.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(prop_oneof![Just(0_u8), Just(b'a'), Just(b'b'), Just(0xff)], 1..5),
        (0..40_u32).prop_map(|n| format!("/registry/pods/ns-{}/pod-{n}", n % 3).into_bytes()),
        (0..4_u8).prop_map(|n| vec![b'k'; 300 + usize::from(n)]),
    ]
}

#[derive(Clone, Debug)]
struct Rest {
    sub: u32,
    tombstone: bool,
    same_lifetime: bool,
    lease: i64,
    lived: u64,
    value: Vec<u8>,
}

fn rest() -> impl Strategy<Value = Rest> {
    let lease = prop_oneof![4 => Just(0), 1 => any::<i64>()];
    let value = prop_oneof![
        8 => vec(any::<u8>(), 0..60),
        2 => (0..2000_usize).prop_map(|n| vec![b'v'; n]),
        1 => vec(any::<u8>(), 600..3000),
        // Long and alike, so that versions are stored over each other.
        1 => (4200..9000_usize).prop_map(|n| near_copies(1, 9000)[0].version.value[..n].to_vec()),
    ];
    (
        0..5_u32,
        prop::bool::weighted(0.2),
        any::<bool>(),
        lease,
        prop_oneof![Just(0), 1..50_u64],
        value,
    )
        .prop_map(|(sub, tombstone, same_lifetime, lease, lived, value)| Rest {
            sub,
            tombstone,
            same_lifetime,
            lease,
            lived,
            value,
        })
}

/// All versions of one key, by revision.
type Versions = BTreeMap<u64, Rest>;

fn model(kind: FileKind, keys: &BTreeMap<Vec<u8>, Versions>) -> Model {
    let mut model = Model::new();
    for (key, versions) in keys {
        let mut after = None;
        let mut number = versions.len() as u64;
        for (revision, rest) in versions.iter().rev() {
            let key = match kind {
                FileKind::Events => revision.to_be_bytes().to_vec(),
                _ => key.clone(),
            };
            let tombstone = rest.tombstone && kind != FileKind::Events;
            let death = match (kind, after) {
                (FileKind::History, Some(after)) if rest.lived == 0 => after,
                (FileKind::History, _) => revision + 1 + rest.lived,
                _ => 0,
            };
            // No older than its lifetime.
            let create_revision = (1 + u64::from(rest.same_lifetime)).min(*revision);
            let entry = Entry {
                key: Bytes::from(key.clone()),
                version: Version {
                    revision: *revision,
                    sub: rest.sub,
                    tombstone,
                    create_revision: if tombstone { 0 } else { create_revision },
                    version: if tombstone { 0 } else { number },
                    lease: rest.lease,
                    death,
                    first: if kind == FileKind::L0 { revision - rest.lived % revision } else { 0 },
                    lived: kind == FileKind::L0 && rest.same_lifetime,
                    value: if tombstone { Bytes::new() } else { Bytes::from(rest.value.clone()) },
                },
            };
            number -= 1;
            model.insert((key, Reverse(*revision)), entry);
            after = Some(*revision);
            if matches!(kind, FileKind::L0 | FileKind::Head) {
                break;
            }
        }
    }
    model
}

fn keys() -> impl Strategy<Value = BTreeMap<Vec<u8>, Versions>> {
    btree_map(key(), btree_map(1..200_u64, rest(), 1..12), 0..40)
}

/// The newest version of `key` at `at`, unless it had died by then.
fn newest<'m>(model: &'m Model, key: &[u8], at: u64) -> Option<&'m Entry> {
    let from = (key.to_vec(), Reverse(at));
    let (_, entry) = model.range(from..).next()?;
    let death = entry.version.death;
    (entry.key == key && (death == 0 || at < death)).then_some(entry)
}

fn assert_at(cursor: &Cursor, expected: Option<&Entry>) {
    assert_eq!(cursor.to_entry().as_ref(), expected);
}

fn check_reads(segment: &Arc<Segment>, model: &Model, probes: &[Vec<u8>]) {
    let all: Vec<&Entry> = model.values().collect();
    let keys: std::collections::BTreeSet<&[u8]> =
        all.iter().map(|e| &*e.key).chain(probes.iter().map(Vec::as_slice)).collect();
    let revisions: Vec<u64> = (0..202).chain([u64::MAX]).collect();
    for key in &keys {
        for at in &revisions {
            let found = segment.get(key, *at).unwrap();
            assert_eq!(found.as_ref(), newest(model, key, *at), "{key:?} at {at}");
            let fields = segment.find_at(key, *at, Want::Fields).unwrap();
            let expected = found
                .as_ref()
                .map(|entry| Version { value: Bytes::new(), ..entry.version.clone() });
            assert_eq!(fields, expected, "{key:?} at {at}");
            if found.is_some() {
                assert!(segment.may_contain(key).unwrap());
            }
        }
    }

    for cursor in [&mut segment.cursor(), &mut segment.cold_cursor()] {
        assert_at(cursor, None);
        cursor.seek_first().unwrap();
        for entry in &all {
            assert_at(cursor, Some(entry));
            cursor.next().unwrap();
        }
        for _ in 0..2 {
            assert_at(cursor, None);
            cursor.next().unwrap();
            cursor.prev().unwrap();
        }
        cursor.seek_last().unwrap();
        for entry in all.iter().rev() {
            assert_at(cursor, Some(entry));
            cursor.prev().unwrap();
        }
        assert_at(cursor, None);
        for key in &keys {
            for at in [0, 5, 100, u64::MAX] {
                let from = (key.to_vec(), Reverse(at));
                let mut here = model.range(from.clone()..).map(|(_, entry)| entry);
                cursor.seek(key, at).unwrap();
                let first = here.next();
                assert_at(cursor, first);
                if first.is_none() {
                    continue;
                }
                // One step forward, two back, so that every turn is taken somewhere.
                cursor.next().unwrap();
                let second = here.next();
                assert_at(cursor, second);
                if second.is_none() {
                    cursor.seek_last().unwrap();
                } else {
                    cursor.prev().unwrap();
                }
                assert_at(cursor, first);
                cursor.prev().unwrap();
                assert_at(cursor, model.range(..from).next_back().map(|(_, entry)| entry));
            }
            let below = (key.to_vec(), Reverse(u64::MAX));
            let bounds = (Bound::Unbounded, Bound::Excluded(below));
            cursor.seek_before(key).unwrap();
            assert_at(cursor, model.range(bounds).next_back().map(|(_, entry)| entry));
        }
    }
}

fn check(
    (kind, codec): (FileKind, HistoryCodec),
    read_mode: ReadMode,
    keys: &BTreeMap<Vec<u8>, Versions>,
    probes: &[Vec<u8>],
) {
    let model = model(kind, keys);
    let entries: Vec<Entry> = model.values().cloned().collect();
    let (_disk, context) = context(read_mode, codec);
    let meta = write(&context, NewSegment::new(kind, 1), &entries);
    assert_eq!(meta.entries, entries.len() as u64);
    let segment = open(&context, &meta);
    assert_eq!(problems(&segment), Vec::<String>::new());
    check_reads(&segment, &model, probes);

    let mut blocks = 0;
    let mut entry_count = 0;
    segment
        .blocks(&mut |block| {
            assert_eq!(block.number, blocks);
            blocks += 1;
            entry_count += u64::from(block.entry_count);
            Ok(true)
        })
        .unwrap();
    assert_eq!(entry_count, meta.entries);
    let mut pages = 0;
    segment
        .pages(&mut |_| {
            pages += 1;
            Ok(true)
        })
        .unwrap();
    assert_eq!(pages, segment.footer().unwrap().page_count);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn reads_agree_with_the_model(
        stored in prop::sample::select(&STORED[..]),
        read_mode in prop::sample::select(&[ReadMode::Mmap, ReadMode::Pread][..]),
        keys in keys(),
        probes in vec(key(), 0..5),
    ) {
        check(stored, read_mode, &keys, &probes);
    }

    #[test]
    fn divided_and_merged_segments_agree_with_the_model(
        keys in keys(),
        cuts in btree_set(0..200_usize, 0..4),
        owners in vec(0..3_usize, 1..20),
    ) {
        let model = model(FileKind::History, &keys);
        let entries: Vec<Entry> = model.values().cloned().collect();
        let (_disk, context) = context(ReadMode::Mmap, HistoryCodec::ZstdBlocks);

        // Cut into neighbours, also inside a key: one cursor over them is a cursor over all.
        let mut parts = Vec::new();
        let mut start = 0;
        let ends = cuts.into_iter().filter(|cut| *cut < entries.len()).chain([entries.len()]);
        for (number, end) in (1..).zip(ends) {
            if end > start {
                let meta = write(&context, NewSegment::new(FileKind::History, number), &entries[start..end]);
                parts.push(open(&context, &meta));
                start = end;
            }
        }
        let mut cursor = ConcatCursor::new(parts.into());
        cursor.seek_first().unwrap();
        for entry in &entries {
            assert_eq!(cursor.entry(), Some(entry.as_ref()));
            cursor.next().unwrap();
        }
        assert!(cursor.entry().is_none());

        // Dealt out to sources at random: the merge puts them together again.
        let mut sources = vec![Vec::new(); 3];
        for (index, entry) in entries.iter().enumerate() {
            sources[owners[index % owners.len()]].push(entry.clone());
        }
        let mut cursors: Vec<Box<dyn crate::segment::EntryCursor>> = Vec::new();
        for (number, source) in (100..).zip(&sources) {
            let meta = write(&context, NewSegment::new(FileKind::History, number), source);
            let mut cursor = open(&context, &meta).cursor();
            cursor.seek_first().unwrap();
            cursors.push(Box::new(cursor));
        }
        let mut merge = MergeCursor::new(cursors);
        for entry in &entries {
            assert_eq!(merge.entry(), Some(entry.as_ref()));
            merge.next().unwrap();
        }
        assert!(merge.entry().is_none());
    }
}
