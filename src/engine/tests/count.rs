//! Counts of keys, where they are sums and where they are walks.

use std::path::Path;
use std::sync::Arc;

use annals_format::entry::EntryRef;
use annals_format::{FileKind, FileMeta, StoreId, space};

use super::super::count::count;
use super::super::tables::{FileSet, SealedFile, Tables};
use super::{DIR, commit, delete, memory, open, put, tiny, user, without_blobs};
use crate::index::{Generation, GenerationSize};
use crate::segment::{NewSegment, SegmentContext, SegmentWriter};
use crate::vfs::Vfs;

const ALL: (&[u8], &[u8]) = (&[space::USER], b"");

#[test]
fn a_count_of_all_keys_reads_no_entry_of_a_file() {
    let (disk, vfs) = memory();
    let options = without_blobs(&vfs).l0_files_max(64);
    let engine = open(&options).unwrap();
    for n in 0..400 {
        commit(&engine, vec![put(user(format!("k{n:03}")), [7; 100])]).unwrap();
    }
    engine.reorganise().unwrap();
    for n in 0..100 {
        commit(&engine, vec![delete(user(format!("k{n:03}")))]).unwrap();
    }
    engine.0.door.0.chain.freeze();
    while engine.run_background().unwrap() {}
    let set = engine.0.door.0.shared.tables().files;
    assert!(set.head.len() > 2 && !set.l0.is_empty(), "{} {}", set.head.len(), set.l0.len());
    // All blocks but the first, which opening looks into, in each file.
    let blocks_of = |file: &Arc<SealedFile>| {
        let mut blocks = Vec::new();
        let each = &mut |block: crate::segment::BlockInfo| {
            blocks.push(usize::try_from(block.offset).unwrap()..);
            Ok(true)
        };
        let segment = file.open().unwrap();
        segment.blocks(each).unwrap();
        let end = usize::try_from(segment.footer().unwrap().index_offset).unwrap();
        (file.meta().clone(), blocks.get(1).map(|second| second.start..end))
    };
    let files: Vec<_> = set.l0.iter().chain(&set.head).map(blocks_of).collect();
    assert!(files.iter().filter(|(_, rest)| rest.is_some()).count() > 2);
    // In the log.
    commit(&engine, vec![put(user("k000"), "again"), delete(user("k399"))]).unwrap();
    engine.close().unwrap();
    for (meta, rest) in files {
        let path = engine.0.door.0.context.path(meta.kind, meta.number);
        let mut bytes = disk.read(&path).unwrap();
        bytes[rest.unwrap_or_default()].fill(0xee);
        disk.overwrite(&path, &bytes);
    }
    let engine = open(&options).unwrap();
    let view = engine.latest().unwrap();
    assert_eq!(view.count(ALL.0, ALL.1).unwrap(), 300);
    assert!(view.scan(ALL.0, ALL.1, true).any(|record| record.is_err()));
}

#[test]
fn a_count_before_the_last_flush_is_a_walk_and_one_after_it_is_not() {
    let (_, vfs) = memory();
    let engine = open(&tiny(&vfs)).unwrap();
    commit(&engine, vec![put(user("a"), "1"), put(user("b"), "1"), put(user("c"), "1")]).unwrap();
    let three = engine.latest().unwrap();
    commit(&engine, vec![delete(user("a")), put(user("d"), "1")]).unwrap();
    commit(&engine, vec![delete(user("b"))]).unwrap();
    let two = engine.latest().unwrap();
    let counts = || [&three, &two].map(|view| view.count(ALL.0, ALL.1).unwrap());
    assert_eq!(counts(), [3, 2]);
    engine.reorganise().unwrap();
    assert_eq!(counts(), [3, 2]);
    // In the same generation: put anew, changed, and deleted again.
    for value in [Some("2"), Some("3"), None, Some("4")] {
        let key = user("a");
        let write = value.map_or_else(|| delete(key.clone()), |value| put(key.clone(), value));
        commit(&engine, vec![write]).unwrap();
    }
    let newest = engine.revision();
    let found = (newest - 4..=newest)
        .map(|revision| engine.view(revision).unwrap().count(ALL.0, ALL.1).unwrap());
    assert_eq!(found.collect::<Vec<_>>(), [2, 3, 3, 2, 3]);
    let view = engine.latest().unwrap();
    let count = |start: &str, end: &str| view.count(&user(start), &user(end)).unwrap();
    assert_eq!([count("a", "c"), count("b", "e"), count("d", "c"), count("x", "y")], [1, 2, 0, 0]);
}

/// Tables of one L0 file, in which "a" and "c" were deleted.
fn two_deleted(vfs: &Arc<dyn Vfs>, folded_to: &[u8]) -> Tables {
    let dir = Path::new(DIR);
    vfs.create_dir_all(&dir.join("seg")).unwrap();
    let context = Arc::new(SegmentContext::new(dir, StoreId([7; 16]), 1, &tiny(vfs)));
    let mut writer = SegmentWriter::create(&context, NewSegment::new(FileKind::L0, 1)).unwrap();
    for key in ["a", "c"] {
        let key = &user(key);
        let (revision, tombstone, first, lived) = (5, true, 5, true);
        let entry = EntryRef { key, revision, tombstone, first, lived, ..EntryRef::default() };
        writer.add(&entry).unwrap();
    }
    let meta = FileMeta { folded_to: folded_to.to_vec(), ..writer.finish().unwrap() };
    let files = Arc::new(FileSet::new([SealedFile::alone(&context, meta)]));
    let generation = Generation::new(1, GenerationSize { arena_bytes: 4096, keys: 16 });
    Tables { generations: [generation].into(), files }
}

#[test]
fn fewer_keys_than_none_are_an_error() {
    let tables = two_deleted(&memory().1, b"");
    let error = count(&tables, ALL, 9).unwrap_err();
    assert!(error.corruption().is_some(), "{error}");
    assert_eq!(count(&tables, (&user("d"), b""), 9).unwrap(), 0);
}

#[test]
fn what_is_folded_out_of_a_flushed_file_does_not_count() {
    let tables = two_deleted(&memory().1, &user("b"));
    assert_eq!(count(&tables, (&user("a"), &user("b")), 9).unwrap(), 0);
    let living = tables.files.l0[0].open().unwrap().living(&user("b"), &[2]).unwrap();
    assert_eq!(living, -1, "and the rest does");
    assert!(count(&tables, ALL, 9).unwrap_err().to_string().contains("-1"));
}
