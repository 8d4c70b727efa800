//! Damage where the records of leases and of rules lie, or would lie: opening asks for them, and for nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use annals::{Error, Options, Store};

fn options() -> Options {
    Options::new().block_bytes(512).segment_bytes(4096).memtable_bytes(64 << 10)
}

fn key(number: u32) -> String {
    format!("/k/{number:03}")
}

/// A store with several files of HEAD; with a lease if `leases`.
fn made(directory: &Path, leases: bool) -> Vec<PathBuf> {
    let store = options().open(directory).unwrap();
    if leases {
        store.lease_grant(7, Duration::from_secs(600)).unwrap();
    }
    for number in 0..200 {
        store.put(key(number), "v".repeat(100)).unwrap();
    }
    store.reorganise().unwrap();
    store.close().unwrap();
    let files = fs::read_dir(directory.join("seg")).unwrap().map(|entry| entry.unwrap().path());
    let mut head: Vec<_> = files.filter(|path| path.extension().unwrap() == "head").collect();
    head.sort();
    assert!(head.len() > 3, "{head:?}");
    head
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn is_damage(error: &Error) -> bool {
    error.corruption().is_some()
}

/// All but the keys of one file can be read.
fn reads_the_rest(store: &Store, damaged: std::ops::Range<u32>) {
    for number in 0..200 {
        match store.get(key(number)) {
            Ok(found) => assert_eq!(found.unwrap().value.len(), 100),
            Err(error) => {
                assert!(damaged.contains(&number) && is_damage(&error), "{number}: {error}");
            }
        }
    }
    assert!(store.get(key(damaged.start)).is_err(), "it is damaged");
    let view = store.latest().unwrap();
    let after = |range: annals::RangeIter| range.collect::<annals::Result<Vec<_>>>();
    let rest = after(view.range(key(damaged.end)..)).unwrap();
    assert_eq!(rest.len(), (damaged.end..200).len());
    let mut backward = view.range(key(damaged.end)..).rev().map(Result::unwrap);
    assert_eq!(backward.next().unwrap().key, key(199));
    assert!(after(view.range(..)).is_err(), "all of them are not there");
}

#[test]
fn a_damaged_first_block_keeps_no_store_from_being_opened() {
    // A flip in the first block, and one in the footer, without which no block can be read.
    for footer in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let head = made(directory.path(), false);
        let length = fs::read(&head[0]).unwrap().len();
        flip(&head[0], if footer { length - 20 } else { 100 });
        let damaged = 0..if footer { 50 } else { 10 };
        let reader = Store::open_read_only_with(directory.path(), &options()).unwrap();
        reads_the_rest(&reader, damaged.clone());
        assert_eq!(reader.lease_list().unwrap(), []);
        let store = options().open(directory.path()).unwrap();
        reads_the_rest(&store, damaged);
        store.put(key(150), "new").unwrap();
        store.put("/l", "new").unwrap();
        store.lease_grant(8, Duration::from_secs(600)).unwrap();
        store.close().unwrap();
        let store = options().open(directory.path()).unwrap();
        assert_eq!(store.get(key(150)).unwrap().unwrap().value, "new");
        assert_eq!(store.lease_list().unwrap().len(), 1);
    }
}

/// Without the leases it is not known what has to end, and without the rules of retention not which revisions can be read.
#[test]
fn damaged_records_of_the_system_are_told_when_it_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let head = made(directory.path(), true);
    flip(&head[0], 100);
    assert!(is_damage(&Store::open_read_only_with(directory.path(), &options()).unwrap_err()));
    assert!(is_damage(&options().open(directory.path()).unwrap_err()));
    flip(&head[0], 100);
    assert_eq!(options().open(directory.path()).unwrap().lease_list().unwrap().len(), 1);
}
