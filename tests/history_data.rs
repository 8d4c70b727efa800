//! Loads a real history and asks for it back: states, single values, lists, at many revisions.
//!
//! The history is seven public repositories of Kubernetes objects, each commit one transaction; the
//! oracle's answers were computed from git, not from the records. By default the first 400 records
//! are loaded; with `ANNALS_TEST_WHOLE=1` all of them (2.7 GB of values). Every answer of the oracle
//! within the loaded prefix is checked after loading, after reopening, and, from the compacted
//! revision on, after compacting. Record n is revision n + 1. The first records are loaded and checked
//! once more into the smallest memtable and the smallest files there can be.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test stops where it fails, and says what it skipped"
)]

mod recorded;

use annals::{Durability, Options, Store, put};
use recorded::oracle::Oracle;
use recorded::{bytes, json_lines, path};
use serde_json::Value;

/// Loaded unless the whole history is asked for.
const RECORDS: usize = 400;

#[test]
fn a_real_history_is_answered_as_git_does() {
    let whole = std::env::var_os("ANNALS_TEST_WHOLE").is_some_and(|value| value == "1");
    // Small enough that every kind of file comes to be, and is folded and merged.
    let options = Options::new()
        .durability(Durability::Buffered)
        .memtable_bytes(if whole { 32 << 20 } else { 1 << 20 })
        .wal_bytes(if whole { 64 << 20 } else { 1 << 20 })
        .segment_bytes(if whole { 32 << 20 } else { 1 << 20 });
    load_and_check(&options, if whole { usize::MAX } else { RECORDS }, 60);
}

#[test]
fn a_real_history_in_the_smallest_files_is_answered_as_git_does() {
    let options = Options::new()
        .durability(Durability::Buffered)
        .memtable_bytes(16 << 10)
        .wal_bytes(64 << 10)
        .segment_bytes(4 << 10)
        .block_bytes(512)
        .history_block_bytes(512)
        .cache_bytes(64 << 10)
        .l0_files_max(2)
        .history_windows_max(3);
    load_and_check(&options, RECORDS, 60);
}

fn load_and_check(options: &Options, records: usize, answers_min: u64) {
    let names = ["k8s-manifests-history.jsonl.zst", "k8s-manifests-oracle.json"];
    let [Some(history), Some(oracle)] = names.map(path) else { return };
    let oracle = Oracle::read(oracle);

    let directory = tempfile::tempdir().expect("a directory");
    let store = options.open(directory.path()).expect("a fresh store");
    let records = json_lines(history).take(records);
    let mut loaded = 0;
    for record in records {
        loaded += 1;
        load(&store, &record, loaded);
    }
    let stats = store.stats();
    println!("{} flushes, {} folds, {} merges", stats.flushes, stats.folds, stats.merges);
    let answers = oracle.check(&store, 1, loaded);
    assert!(answers >= answers_min, "only {answers} answers checked");

    store.close().expect("the store closes");
    let store = options.open(directory.path()).expect("the store opens again");
    assert_eq!(store.revision(), loaded + 1);
    assert_eq!(oracle.check(&store, 1, loaded), answers);
    the_log_is_the_file(&store, &names.map(path)[0].clone().expect("as before"), loaded.min(50));

    let compacted = loaded / 2;
    store.compact(compacted + 1).expect("it is compacted");
    oracle.check(&store, compacted, loaded);
    while store.run_background().expect("background work is done") {}
    let left = oracle.check(&store, compacted, loaded);
    println!("{loaded} records: {answers} answers, {left} after compaction");

    store.close().expect("the store closes");
    let store = options.open(directory.path()).expect("the store opens again");
    assert_eq!((store.revision(), store.compacted_revision()), (loaded + 1, compacted + 1));
    assert_eq!(oracle.check(&store, compacted, loaded), left);
}

/// Makes one record one transaction.
fn load(store: &Store, record: &Value, number: u64) {
    let puts = record["puts"].as_object().expect("puts");
    let deletes = record["deletes"].as_array().expect("deletes");
    let puts = puts.iter().map(|(key, value)| put(key, bytes(value)));
    let deletes = deletes.iter().map(|key| annals::delete(key.as_str().expect("a key")));
    let commit = record["commit"].as_str().expect("a commit");
    let time = record["time"].as_i64().expect("a time") * 1_000_000;
    let done = store.txn().then(puts.chain(deletes)).metadata(commit).time(time).commit();
    assert_eq!(done.expect("the record is loaded").revision, number + 1, "record {number}");
}

/// The first transactions of the log have the commits and the changed keys of the file.
fn the_log_is_the_file(store: &Store, history: &std::path::Path, count: u64) {
    let records = json_lines(history.to_owned());
    let mut checked = 0;
    for (transaction, record) in store.log(..=count + 1).zip(records) {
        let transaction = transaction.expect("a transaction");
        assert_eq!(transaction.metadata, record["commit"].as_str().expect("a commit"));
        let puts = record["puts"].as_object().expect("puts").keys().map(String::as_str);
        let deletes = record["deletes"].as_array().expect("deletes").iter();
        let keys = puts.chain(deletes.map(|key| key.as_str().expect("a key")));
        assert!(
            transaction.changes.iter().map(|change| &change.key[..]).eq(keys.map(str::as_bytes))
        );
        checked += 1;
    }
    assert_eq!(checked, count);
}
