//! All answers as data, with the feature `serde`: that each can be, and how it looks in JSON.

#![cfg(feature = "serde")]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeSet;
use std::sync::Arc;

use annals::clock::ManualClock;
use annals::vfs::MemoryVfs;
use annals::{
    BackupInfo, BackupReport, Batch, ChangeKind, Corruption, Durability, RestoreReport, Store,
};
use annals::{
    Change, CheckReport, Checkpoint, Commit, DeleteRangeResponse, Deleted, Diff, DroppedTail,
    Error, Event, FileStats, KeyValue, KvHash, Latency, Lease, LeaseRevokeResponse, LeaseStatus,
    Modified, OpResponse, OpenReport, Options, Origin, Outcome, PrefixSpace, PutResponse,
    RangeResponse, Retention, RetentionRule, Space, Stats, TornTail, Transaction, TxnResponse,
    Version, delete, get, put,
};
use serde::Serialize;
use serde_json::{Value, json};

macro_rules! names {
    ($($kind:ident)*) => {{
        fn can_be<T: Serialize>(_: std::marker::PhantomData<T>) {}
        $(can_be::<$kind>(std::marker::PhantomData);)*
        [$(stringify!($kind)),*]
    }};
}

/// What is no answer, or is one that goes on, or that of a caller's function: handles, iterators, requests, options, errors' parts.
const OTHERS: &str = "AsKeyRange At CommitOptions Compare CompareResult CompareTarget Comparing \
    ComparingValue DeleteRangeRequest DiffIter History HistoryCodec KeyRange Knob KnobRange \
    LeaseGrantRequest LeaseGuard LeaseIter Load Loading Log Modify Op Options RestoreOptions PutRequest RangeIter RangeRequest ReadMode \
    Result Slow SortOrder SortTarget SpaceOptions SpaceSurvey Store Ticket TxnBuilder TxnRequest View \
    Update Updated Watch WatchBuilder WatchHandle Effect ErrorKind ChangeRef TransactionRef";

#[test]
fn every_answer_that_is_public_can_be_serialized() {
    let answers = names!(BackupInfo BackupReport Batch Change ChangeKind CheckReport Checkpoint Commit Corruption
        DeleteRangeResponse Deleted Diff DroppedTail Durability Error Event FileStats KeyValue KvHash
        Latency Lease LeaseRevokeResponse LeaseStatus Modified OpResponse OpenReport Origin Outcome PrefixSpace
        PutResponse RangeResponse RestoreReport Retention RetentionRule Space Stats TornTail Transaction TxnResponse
        Version);
    let known: BTreeSet<&str> = OTHERS.split_whitespace().chain(answers).collect();
    let source = include_str!("../src/lib.rs");
    let exported = source.split("pub use ").skip(1).filter_map(|part| part.split_once(';'));
    let words =
        exported.flat_map(|(list, _)| list.split(|c: char| !c.is_alphanumeric() && c != '_'));
    let kinds: BTreeSet<&str> = words
        .filter(|word| word.chars().next().is_some_and(char::is_uppercase))
        .filter(|word| word.chars().any(char::is_lowercase))
        .collect();
    assert!(kinds.len() > 70, "{kinds:?}");
    assert!(
        kinds == known,
        "not told whether it is an answer: {:?}; gone: {:?}",
        kinds.difference(&known).collect::<Vec<_>>(),
        known.difference(&kinds).collect::<Vec<_>>()
    );
}

fn store() -> Store {
    let clock = Arc::new(ManualClock::new(1_000_000));
    let options = Options::new().vfs(Arc::new(MemoryVfs::new())).clock(clock).background(false);
    options.open("store").unwrap()
}

fn data(answer: impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap()
}

#[test]
fn answers_look_as_their_fields_are_called() {
    let store = store();
    let commit = store.put("a", "1").unwrap();
    assert_eq!(data(commit), json!({ "revision": 2, "time": 1_000_000, "durability": "sync" }));
    let kv = json!({ "key": [97], "value": [49], "create_revision": 2, "mod_revision": 2,
                     "version": 1, "lease": 0 });
    assert_eq!(data(store.get("a").unwrap()), kv);
    let answer = store.txn().then([get("a"), delete("a"), put("b", "2")]).commit().unwrap();
    let answer = data(answer);
    assert_eq!(answer["responses"][0]["range"]["kvs"], json!([kv]));
    assert_eq!(answer["responses"][1]["delete_range"]["deleted"], 1);
    let log: Vec<Transaction> = store.log(3..).map(Result::unwrap).collect();
    let first = &data(log)[0];
    assert_eq!((&first["revision"], &first["changes"][0]["kind"]), (&json!(3), &json!("delete")));
    let diff: Vec<Diff> = store.diff(2, 3, ..).unwrap().map(Result::unwrap).collect();
    assert_eq!(data(diff)[0]["removed"], kv);
    let history: Vec<Version> = store.history("a").map(Result::unwrap).collect();
    assert_eq!(data(history)[0]["tombstone"], true);
    assert_eq!(
        data(Retention::forever().keep_revisions(7)),
        json!({ "revisions": 7, "age_micros": null })
    );
    let updated = store.update(|update| update.put("c", "1")).unwrap();
    assert_eq!(data(updated), json!({ "value": null, "revision": 4, "changed": true }));
    assert_eq!(data(store.at(99).unwrap_err()), "revision 99 does not exist yet: the newest is 4");
}

#[test]
fn a_batch_tells_its_events_and_whether_more_follow() {
    let store = store();
    let mut watch = store.watch("a").start().unwrap();
    store.put("a", "1").unwrap();
    let batch = data(watch.try_next().unwrap().unwrap());
    assert_eq!(batch["events"][0]["kind"], "put");
    assert_eq!(batch["events"][0]["kv"]["key"], json!([97]));
    assert_eq!((&batch["revision"], &batch["is_progress"]), (&json!(2), &json!(false)));
    assert_eq!(batch["is_last_fragment"], true);
}

#[test]
fn figures_have_the_names_of_their_fields() {
    let store = store();
    store.put("a", "1").unwrap();
    let (stats, text) = (data(store.stats()), format!("{:#?}", store.stats()));
    let members = stats.as_object().unwrap();
    assert!(members.len() > 45);
    assert!(members.keys().all(|name| text.contains(&format!("\n    {name}: "))));
    assert_eq!(stats["sync_latency"]["count"], 1);
    assert_eq!(stats["head"]["files"], 0);
}
