//! `live.json`: who writes it, when it goes, and that the store never minds it.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use annals::{Options, Store, check};
use serde_json::Value;

fn options() -> Options {
    Options::new().live_interval_seconds(1)
}

/// What the file says, once it says it.
fn said(directory: &Path, when: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        if let Ok(text) = fs::read_to_string(directory.join("live.json")) {
            // It is renamed: there is never a part of it.
            let json: Value = serde_json::from_str(&text).unwrap();
            if when(&json) {
                return json;
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "not in a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn it_is_there_while_the_store_is_open_and_keeps_up() {
    let directory = tempfile::tempdir().unwrap();
    let store = options().open(directory.path()).unwrap();
    let first = said(directory.path(), |_| true);
    assert_eq!(
        (&first["schema"], &first["pid"]),
        (&"annals.live/1".into(), &std::process::id().into())
    );
    store.put("a", "1").unwrap();
    let view = store.latest().unwrap();
    let later = said(directory.path(), |json| json["stats"]["pinned"] == 1);
    assert_eq!(later["stats"]["revision"], 2);
    assert_eq!(later["pins"], serde_json::json!([{ "revision": 2, "count": 1 }]));
    assert!(later["written"].as_i64() > first["written"].as_i64());
    drop(view);
    store.close().unwrap();
    let left: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("live")), "{left:?}");
}

#[test]
fn it_does_not_keep_the_store_open() {
    let directory = tempfile::tempdir().unwrap();
    let store = options().open(directory.path()).unwrap();
    said(directory.path(), |_| true);
    drop(store);
    options().open(directory.path()).unwrap().close().unwrap();
}

#[test]
fn without_the_option_there_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    store.put("a", "1").unwrap();
    store.reorganise().unwrap();
    assert!(!directory.path().join("live.json").exists());
}

/// A process that was killed leaves its file, and maybe one that was being written.
#[test]
fn what_is_left_of_one_is_minded_by_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("store"), directory.path().join("copy"));
    let store = Store::open(&path).unwrap();
    store.put("a", "1").unwrap();
    store.reorganise().unwrap();
    store.close().unwrap();
    let left = [path.join("live.json"), path.join("live.json.tmp")];
    for file in &left {
        fs::write(file, [0xff; 100]).unwrap();
    }
    let report = check(&path, &Options::new(), &mut |_, _| {}).unwrap();
    assert!(report.damage.is_empty() && report.unchecked.is_empty(), "{report:?}");
    assert_eq!(Store::open_read_only(&path).unwrap().revision(), 2);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.open_report().orphans_removed, 0);
    store.put("b", "2").unwrap();
    store.reorganise().unwrap();
    store.checkpoint(&copy).unwrap();
    assert!(left.iter().all(|file| file.exists()), "nobody takes them for rubbish");
    assert!(!copy.join("live.json").exists(), "nor for a part of the store");
    store.close().unwrap();

    let store = options().open(&path).unwrap();
    said_over(&path);
    store.close().unwrap();
    assert!(!left.iter().any(|file| file.exists()), "but by the next one that writes it");
}

/// Waits until the file is written anew.
fn said_over(directory: &Path) {
    let begun = Instant::now();
    while fs::read(directory.join("live.json")).unwrap().starts_with(&[0xff]) {
        assert!(begun.elapsed() < Duration::from_secs(60), "not in a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
    said(directory, |_| true);
}

/// The log and the manifest say what a store without `CURRENT` was, whatever else is there.
#[test]
fn a_store_that_has_lost_its_current_is_told_as_before() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    store.put("a", "1").unwrap();
    store.close().unwrap();
    fs::remove_file(directory.path().join("CURRENT")).unwrap();
    let before = Store::open(directory.path()).unwrap_err().to_string();
    fs::write(directory.path().join("live.json"), "{}").unwrap();
    assert_eq!(Store::open(directory.path()).unwrap_err().to_string(), before);
}
