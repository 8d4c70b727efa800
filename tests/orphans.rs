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
    let is_gone = |name: &Path| is_segment(name) && older.contains_key(name);
    assert!(older.keys().any(|name| is_segment(name) && !newer.contains_key(name)));

    // Everything but the segments is as it was before.
    for name in newer.keys().filter(|name| !is_segment(name)) {
        std::fs::remove_file(directory.path().join(name)).unwrap();
    }
    for (name, content) in older.iter().filter(|(name, _)| !is_segment(name)) {
        std::fs::write(directory.path().join(name), content).unwrap();
    }
    let opened = options.open(directory.path());
    let read = opened.as_ref().map(|store| store.get("050").map(drop));
    println!("opened: {read:?}");
    drop(opened);

    // Whoever puts the newer manifest back has the store again.
    for name in newer.keys().filter(|name| is_segment(name) && !is_gone(name)) {
        assert!(directory.path().join(name).exists(), "{} is gone", name.display());
    }
    for name in files(directory.path()).keys().filter(|name| !is_segment(name)) {
        std::fs::remove_file(directory.path().join(name)).unwrap();
    }
    for (name, content) in newer.iter().filter(|(name, _)| !is_segment(name)) {
        std::fs::write(directory.path().join(name), content).unwrap();
    }
    let report = annals::check(directory.path(), &options, &mut |_, _| {}).unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    let store = options.open(directory.path()).unwrap();
    assert_eq!(store.revision(), 201);
    assert!(store.get("050").unwrap().unwrap().value.starts_with(b"2 "));
}
