//! A manifest that is not the newest one must not cost what the newest one names.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use annals::{Options, Store};

/// The files of a directory and of those in it, with their contents.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for part in ["", "seg", "wal"] {
        for entry in std::fs::read_dir(directory.join(part)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                let name = Path::new(part).join(entry.file_name());
                found.insert(name, std::fs::read(entry.path()).unwrap());
            }
        }
    }
    found
}

fn fill(store: &Store, round: u32) {
    for n in 0..100 {
        store.put(format!("{n:03}"), format!("{round} {n:0200}")).unwrap();
    }
    store.reorganise().unwrap();
}

fn is_segment(name: &Path) -> bool {
    name.starts_with("seg")
}

/// Makes everything but the segments what it was then.
fn put_back(directory: &Path, then: &BTreeMap<PathBuf, Vec<u8>>) {
    for name in files(directory).keys().filter(|name| !is_segment(name)) {
        std::fs::remove_file(directory.join(name)).unwrap();
    }
    for (name, content) in then.iter().filter(|(name, _)| !is_segment(name)) {
        std::fs::write(directory.join(name), content).unwrap();
    }
}

#[test]
fn segments_that_an_older_manifest_does_not_name_are_kept_where_those_it_names_are_gone() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().background(false);
    let store = options.open(directory.path()).unwrap();
    fill(&store, 1);
    let older = files(directory.path());
    fill(&store, 2);
    store.close().unwrap();
    let newer = files(directory.path());
    let is_new = |name: &Path| is_segment(name) && !older.contains_key(name);
    assert!(older.keys().any(|name| is_segment(name) && !newer.contains_key(name)));

    put_back(directory.path(), &older);
    let read = options.open(directory.path()).and_then(|store| store.get("050"));
    let error = read.expect_err("a segment that the older manifest names is gone");
    assert!(error.corruption().is_some(), "{error}");

    // Whoever puts the newer manifest back has the store again.
    for name in newer.keys().filter(|name| is_new(name)) {
        assert!(directory.path().join(name).exists(), "{} is gone", name.display());
    }
    put_back(directory.path(), &newer);
    let report = annals::check(directory.path(), &options, &mut |_, _| {}).unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    let store = options.open(directory.path()).unwrap();
    assert_eq!(store.revision(), 201);
    assert!(store.get("050").unwrap().unwrap().value.starts_with(b"2 "));
}
