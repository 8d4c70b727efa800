//! What somebody does to a store's directory under a live writer: the writer must notice before it
//! writes into what another writer may own, and nothing acknowledged may get lost.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use annals::{Error, ErrorKind, Options, Store};

/// Files so small that names change all the time.
fn small() -> Options {
    let options = Options::new().wal_bytes(64 << 10).memtable_bytes(16 << 10);
    options.segment_bytes(4 << 10).l0_files_max(2)
}

fn closed_store(path: &Path, keys: u64) {
    let store = small().open(path).unwrap();
    for key in 0..keys {
        store.put(format!("theirs/{key}"), "kept").unwrap();
    }
    store.close().unwrap();
}

/// Puts until one is refused; how many were acknowledged.
fn put_until_refused(store: &Store, at_most: u64) -> (u64, Option<Error>) {
    for key in 0..at_most {
        if let Err(error) = store.put(format!("ours/{key}"), vec![7; 500]) {
            return (key, Some(error));
        }
    }
    (at_most, None)
}

fn count(path: &Path, prefix: &str) -> u64 {
    let store = small().open(path).unwrap();
    let count = store.latest().unwrap().count(annals::KeyRange::prefix(prefix)).unwrap();
    store.close().unwrap();
    count
}

/// The other tests name no relative path: the working directory belongs to the process.
#[test]
fn a_relative_path_outlives_a_change_of_the_working_directory() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    closed_store(&dir.path().join("b/data"), 50);
    let back = std::env::current_dir().unwrap();
    std::env::set_current_dir(dir.path().join("a")).unwrap();
    let store = small().open("data").unwrap();
    store.put("ours/first", "1").unwrap();
    std::env::set_current_dir(dir.path().join("b")).unwrap();
    let (acknowledged, refused) = put_until_refused(&store, 400);
    assert!(refused.is_none(), "{refused:?}");
    store.close().unwrap();
    std::env::set_current_dir(back).unwrap();
    assert_eq!(count(&dir.path().join("a/data"), "ours/"), acknowledged + 1);
    assert_eq!(count(&dir.path().join("b/data"), "theirs/"), 50);
}

#[test]
fn a_link_that_is_switched_leads_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second, link) =
        (dir.path().join("v1"), dir.path().join("v2"), dir.path().join("current"));
    closed_store(&first, 1);
    closed_store(&second, 50);
    symlink(&first, &link).unwrap();
    let store = small().open(&link).unwrap();
    fs::remove_file(&link).unwrap();
    symlink(&second, &link).unwrap();
    assert_eq!(put_until_refused(&store, 400).0, 400);
    store.close().unwrap();
    assert_eq!((count(&first, "ours/"), count(&second, "theirs/")), (400, 50));
    assert_eq!(count(&second, "ours/"), 0);
}

#[test]
fn a_directory_put_in_the_place_of_the_stores_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved, backup) =
        (dir.path().join("data"), dir.path().join("moved"), dir.path().join("backup"));
    closed_store(&backup, 50);
    let store = small().open(&path).unwrap();
    store.put("ours/first", "1").unwrap();
    fs::rename(&path, &moved).unwrap();
    fs::rename(&backup, &path).unwrap();
    let (acknowledged, refused) = put_until_refused(&store, 400);
    let refused = refused.expect("the writer notices");
    assert!(refused.to_string().contains("LOCK"), "{refused}");
    assert!(store.close().is_err());
    assert_eq!((count(&path, "theirs/"), count(&path, "ours/")), (50, 0));
    assert!(count(&moved, "ours/") > acknowledged);
}

#[test]
fn a_writer_whose_lock_file_was_removed_stops_before_the_next_one_starts() {
    let dir = tempfile::tempdir().unwrap();
    let store = small().open(dir.path()).unwrap();
    store.put("ours/first", "1").unwrap();
    fs::remove_file(dir.path().join("LOCK")).unwrap();
    let second = small().open(dir.path()).unwrap();
    for key in 0..11 {
        second.put(format!("theirs/{key}"), "kept").unwrap();
    }
    let (acknowledged, refused) = put_until_refused(&store, 400);
    assert_eq!(acknowledged, 0);
    let refused = refused.expect("the writer notices");
    assert!(matches!(refused.kind(), ErrorKind::OutcomeUnknown { .. }), "{refused}");
    assert!(store.close().is_err());
    second.close().unwrap();
    assert_eq!((count(dir.path(), "theirs/"), count(dir.path(), "ours/")), (11, 1));
}

#[test]
fn a_new_store_removes_nothing_it_did_not_make() {
    for name in ["wal/notes.tmp", "wal/precious.bin", "seg/00000001.txt", "notes.txt"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, [0; 100]).unwrap();
        let error = small().open(dir.path()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotAStore { .. }), "{name}: {error}");
        assert_eq!(fs::read(&path).unwrap(), [0; 100], "{name}");
    }
}

#[test]
fn a_path_that_leads_to_a_file_is_no_store() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data.db");
    fs::write(&file, b"of another engine").unwrap();
    let link = dir.path().join("link");
    symlink(&file, &link).unwrap();
    for path in [&file, &link, &file.join("below")] {
        let no_create = small().create(false);
        let errors = [
            small().open(path).unwrap_err(),
            no_create.open(path).unwrap_err(),
            Store::open_read_only(path).unwrap_err(),
            annals::inspect::StoreFiles::open(path, &small()).unwrap_err(),
            annals::check(path, &small(), &mut |_, _| {}).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error.kind(), ErrorKind::NotAStore { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains("data.db") || text.contains("link"), "{text}");
            assert!(text.contains("give the directory of a store"), "{text}");
        }
    }
    assert_eq!(fs::read(&file).unwrap(), b"of another engine");
}
