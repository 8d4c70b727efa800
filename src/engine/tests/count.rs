//! Counts of keys, where they are sums and where they are walks.

use std::sync::Arc;

use annals_format::{FileKind, space};

use super::super::count::count;
use super::super::tables::{FileSet, SealedFile, Tables};
use super::{DIR, commit, delete, memory, open, put, tiny, user};
use crate::index::{Generation, GenerationSize};
use crate::segment::{NewSegment, SegmentContext, SegmentWriter};
use annals_format::entry::EntryRef;

const ALL: (&[u8], &[u8]) = (&[space::USER], b"");

#[test]
fn a_count_of_all_keys_reads_no_entry_of_a_file() {
    let (disk, vfs) = memory();
    let options = tiny(&vfs).l0_files_max(64);
    let engine = open(&options).unwrap();
    for n in 0..400 {
        commit(&engine, vec![put(user(format!("k{n:03}")), [7; 100])]).unwrap();
    }
    engine.reorganise().unwrap();
    for n in 0..100 {
        commit(&engine, vec![delete(user(format!("k{n:03}")))]).unwrap();
    }
    engine.0.core.chain.freeze();
    while engine.run_background().unwrap() {}
    let set = engine.0.core.shared.tables().files;
    assert!(set.head.len() > 2 && !set.l0.is_empty(), "{} {}", set.head.len(), set.l0.len());
    let files: Vec<_> = set.l0.iter().chain(&set.head).map(|file| file.meta().clone()).collect();
    // In the log.
    commit(&engine, vec![put(user("k000"), "again"), delete(user("k399"))]).unwrap();
    engine.close().unwrap();
    for meta in files {
        let path = engine.0.core.context.path(meta.kind, meta.number);
        let mut bytes = disk.read(&path).unwrap();
        // The first block, which every file has.
        bytes[64..128].fill(0xee);
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

/// Files whose sums cannot be: more keys were deleted than there are.
#[test]
fn fewer_keys_than_none_are_an_error() {
    let (_disk, vfs) = memory();
    let options = tiny(&vfs);
    vfs.create_dir_all(&std::path::Path::new(DIR).join("seg")).unwrap();
    let store = annals_format::StoreId([7; 16]);
    let context = Arc::new(SegmentContext::new(std::path::Path::new(DIR), store, &options));
    let mut writer = SegmentWriter::create(&context, NewSegment::new(FileKind::L0, 1)).unwrap();
    let key = user("a");
    let lost = EntryRef {
        key: &key,
        revision: 5,
        tombstone: true,
        first: 5,
        lived: true,
        ..EntryRef::default()
    };
    writer.add(&lost).unwrap();
    let file = SealedFile::new(&context, writer.finish().unwrap());
    let generation = Generation::new(1, GenerationSize { arena_bytes: 4096, keys: 16 });
    let files = Arc::new(FileSet::new([file]));
    let tables = Tables { generations: [generation].into(), files };
    let error = count(&tables, ALL, 9).unwrap_err();
    assert!(error.corruption().is_some(), "{error}");
    assert_eq!(count(&tables, (&user("b"), b""), 9).unwrap(), 0);
}
