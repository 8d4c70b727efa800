//! A store has more files than descriptors: counted in `/proc`, on the real file system.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use annals::{Durability, Options, ReadMode, Store};

/// What ARCHITECTURE.md promises: segment files a store holds open, whatever it has.
const OPEN_FILES_MAX: usize = 128;

/// Options that make many small files.
fn options(read_mode: ReadMode) -> Options {
    Options::new()
        .memtable_bytes(128 << 10)
        .segment_bytes(4 << 10)
        .block_bytes(512)
        .history_block_bytes(512)
        .l0_files_max(2)
        .history_windows_max(12)
        .cache_bytes(0)
        .durability(Durability::Buffered)
        .background(false)
        .read_mode(read_mode)
}

/// Descriptors of segment files in `dir` that this process has, and how many of them have no name.
fn open_segments(dir: &Path) -> (usize, usize) {
    let dir = dir.join("seg");
    let links = fs::read_dir("/proc/self/fd").unwrap();
    let links = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
    let ours: Vec<_> = links.filter(|to| to.starts_with(&dir)).collect();
    let gone = ours.iter().filter(|to| to.to_string_lossy().ends_with("(deleted)")).count();
    (ours.len(), gone)
}

fn put_some(store: &Store, rounds: std::ops::Range<u64>) {
    for round in rounds {
        for key in 0..100_u64 {
            // Nothing that compresses, so that files fill up.
            let seed = (round * 100 + key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let words = (1..80_u64).map(|n| (seed ^ seed >> 29).wrapping_mul(n * 2 + 1));
            let value: Vec<u8> = words.flat_map(u64::to_be_bytes).collect();
            store.put(format!("/key/{key:03}"), value).unwrap();
        }
        store.flush().unwrap();
        while store.run_background().unwrap() {}
    }
}

/// The bytes of everything that can be read: latest, at old revisions, histories, the log.
fn read_all(store: &Store) -> Vec<u8> {
    let mut bytes = Vec::new();
    let newest = store.revision();
    for at in [newest, newest / 2, newest / 3, 150] {
        let view = store.at(at).unwrap();
        for kv in view.range(..) {
            bytes.extend_from_slice(&kv.unwrap().value);
        }
        for key in (0..100).step_by(7) {
            let kv = view.get(format!("/key/{key:03}")).unwrap().unwrap();
            bytes.extend_from_slice(&kv.value);
        }
    }
    for key in (0..100).step_by(9) {
        for version in store.history(format!("/key/{key:03}")) {
            bytes.extend_from_slice(&version.unwrap().mod_revision.to_be_bytes());
        }
    }
    for transaction in store.log(..) {
        bytes.extend_from_slice(&transaction.unwrap().revision.to_be_bytes());
    }
    bytes
}

fn files(store: &Store) -> u64 {
    let stats = store.stats();
    [stats.l0, stats.head, stats.history, stats.events].iter().map(|kind| kind.files).sum()
}

#[test]
fn a_store_holds_few_of_many_files_open() {
    for mode in [ReadMode::Mmap, ReadMode::Pread] {
        let dir = tempfile::tempdir().unwrap();
        let store = options(mode).open(dir.path()).unwrap();
        put_some(&store, 0..20);
        assert!(files(&store) > 200, "{} files", files(&store));
        read_all(&store);
        let (open, mut gone) = open_segments(dir.path());
        assert!(open <= OPEN_FILES_MAX, "{mode:?}: {open} of {} files are open", files(&store));
        assert!(open > 0, "{mode:?}: files are read");
        // The threads of the other tests may have held on to some until now.
        let patience = Instant::now() + Duration::from_secs(60);
        while gone > 0 {
            assert!(Instant::now() < patience, "{mode:?}: removed files keep their space");
            store.put("/more", "of the same").unwrap();
            store.reorganise().unwrap();
            (_, gone) = open_segments(dir.path());
        }
    }
}

#[test]
fn a_reader_beside_a_writer_keeps_what_the_writer_removes() {
    for mode in [ReadMode::Mmap, ReadMode::Pread] {
        let dir = tempfile::tempdir().unwrap();
        let writer = options(mode).open(dir.path()).unwrap();
        put_some(&writer, 0..20);
        let reader = Store::open_read_only_with(dir.path(), &options(mode)).unwrap();
        let (before, of) = (read_all(&reader), files(&reader));
        let (open, _) = open_segments(dir.path());
        if mode == ReadMode::Mmap {
            assert!(open <= 2 * OPEN_FILES_MAX, "{open} of {of} files are open, by two stores");
        }
        writer.compact(writer.revision()).unwrap();
        put_some(&writer, 20..22);
        writer.close().unwrap();
        let left = fs::read_dir(dir.path().join("seg")).unwrap().count() as u64;
        assert!(left < of / 2, "{left} of {of} files are left");
        assert_eq!(read_all(&reader), before, "{mode:?}");
    }
}
