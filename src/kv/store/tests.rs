//! Answers after a failure of the log: what they may tell, and what they say has been done.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::Store;
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::kv::request::CommitOptions;
use crate::kv::{
    DeleteRangeRequest, PutRequest, Retention, TxnRequest, get, put, txn, value, version,
};
use crate::options::{Durability, Options};
use crate::vfs::{CrashMode, Fault, FaultVfs, MemoryVfs, Operation};

fn store(durability: Durability) -> (MemoryVfs, FaultVfs, Store) {
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    let options = Options::new().vfs(Arc::new(faulty.clone())).background(false);
    let store = options.durability(durability).open("store").unwrap();
    (disk, faulty, store)
}

/// From now on no sync succeeds.
fn break_down(faulty: &FaultVfs) {
    faulty.fail(Some(Operation::Sync), faulty.op_count_of(Operation::Sync), Fault::Io, true);
}

fn buffered() -> CommitOptions {
    CommitOptions { durability: Some(Durability::Buffered), ..CommitOptions::default() }
}

/// A comparison that fails, with an answer that shows `k`.
fn failing() -> TxnRequest {
    txn().when([value("k").eq("no")]).then([put("k", "x")]).or_else([get("k")])
}

type Call = fn(&Store) -> Result<()>;

/// Requests that do nothing, each for a reason of its own.
const IDLE: [(&str, Call); 6] = [
    ("a revoke of no lease", |store| store.lease_revoke(99).map(drop)),
    ("a put that keeps the value of no key", |store| {
        store.put_with(PutRequest::new("absent", "").ignore_value()).map(drop)
    }),
    ("a comparison that fails", |store| store.transact(failing()).map(drop)),
    ("a delete of no key", |store| store.delete("absent").map(drop)),
    ("a delete of an empty range", |store| {
        store.delete_range(DeleteRangeRequest::new("x").range_end("z")).map(drop)
    }),
    ("a compaction to the future", |store| store.compact(1_000).map(drop)),
];

fn poisoned(what: &str, error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Poisoned { .. }), "{what}: {error}");
    assert_eq!(error.effect(), Effect::None, "{what}");
}

#[test]
fn a_poisoned_store_answers_no_transaction_from_what_is_lost() {
    let (disk, faulty, store) = store(Durability::Buffered);
    store.put("k", "durable").unwrap();
    store.flush().unwrap();
    store.put("k", "lost").unwrap();
    assert_eq!(store.transact(failing()).unwrap().responses[0].kvs()[0].value, "lost");
    break_down(&faulty);
    store.flush().unwrap_err();
    assert_eq!((store.get("k").unwrap().unwrap().value, store.revision()), ("durable".into(), 2));
    for (what, call) in IDLE {
        poisoned(what, &call(&store).unwrap_err());
    }
    poisoned("a ticket", &store.submit(failing()).unwrap_err());
    let sync = store.txn().when([version("k").eq(9)]).durability(Durability::Sync);
    poisoned("one that waits", &sync.commit().unwrap_err());
    // What only reads is answered from what is left, unless it asks for more than there is.
    let seen = store.transact(txn().then([get("k")])).unwrap();
    assert_eq!(seen.responses[0].kvs()[0].value, "durable");
    drop(store);
    let disk = disk.crash(1, CrashMode::LoseAll);
    let store = Options::new().vfs(Arc::new(disk)).open("store").unwrap();
    assert_eq!(store.get("k").unwrap().unwrap().value, "durable");
}

#[test]
fn a_failure_while_a_transaction_is_evaluated_counts_too() {
    let (_, faulty, store) = store(Durability::Buffered);
    store.put("k", "lost").unwrap();
    break_down(&faulty);
    let request = failing();
    let answer = store.write(&CommitOptions::default(), |evaluation| {
        let answer = evaluation.transaction(&request);
        store.flush().unwrap_err();
        answer
    });
    poisoned("decided before the failure", &answer.map(|_| ()).unwrap_err());
}

#[test]
fn what_is_durable_is_answered_from_after_a_failure() {
    let (_, faulty, store) = store(Durability::Buffered);
    store.put("k", "durable").unwrap();
    store.flush().unwrap();
    let before = store.submit(failing()).unwrap();
    break_down(&faulty);
    store.put("other", "lost").unwrap();
    store.flush().unwrap_err();
    assert_eq!(before.wait().unwrap().responses[0].kvs()[0].value, "durable");
}

#[test]
fn of_what_did_nothing_the_outcome_is_known() {
    for first in 0..IDLE.len() {
        let (_, faulty, store) = store(Durability::Sync);
        store.put("k", "v").unwrap();
        store.transact_with(txn().then([put("other", "")]), buffered()).unwrap();
        let refusal = store.submit(failing()).unwrap();
        let mut awaited = pin!(store.submit(failing()).unwrap());
        let commit = store.submit(txn().then([put("k", "w")])).unwrap();
        break_down(&faulty);
        // The first one leads the sync that fails, and each is the first once.
        for (what, call) in IDLE.iter().cycle().skip(first).take(IDLE.len()) {
            poisoned(what, &call(&store).unwrap_err());
        }
        poisoned("a ticket", &refusal.wait().unwrap_err());
        match awaited.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => poisoned("a ticket that is awaited", &answer.unwrap_err()),
            Poll::Pending => panic!("nobody is left to wait for"),
        }
        let error = commit.wait().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::OutcomeUnknown { revision: 4, .. }), "{error}");
    }
}

#[test]
fn in_a_sync_store_a_buffered_answer_depends_on_what_is_ordered() {
    let (disk, _, store) = store(Durability::Sync);
    store.put("k", "durable").unwrap();
    store.transact_with(txn().then([put("k", "ordered")]), buffered()).unwrap();
    assert_eq!(store.get("k").unwrap().unwrap().value, "durable");
    let told = store.transact_with(failing(), buffered()).unwrap();
    assert_eq!((told.revision, &told.responses[0].kvs()[0].value[..]), (3, &b"ordered"[..]));
    let read = store.transact_with(txn().then([get("k")]), buffered()).unwrap();
    assert_eq!(read.responses[0].kvs()[0].value, "durable");
    let image = disk.crash(1, CrashMode::LoseAll);
    let crashed = Options::new().vfs(Arc::new(image)).open("store").unwrap();
    assert_eq!(crashed.get("k").unwrap().unwrap().value, "durable");
    // One that waits is answered when that is durable.
    assert_eq!(store.transact(failing()).unwrap().responses[0].kvs()[0].value, "ordered");
    assert_eq!(store.get("k").unwrap().unwrap().value, "ordered");
}

#[test]
fn a_read_that_asks_for_it_waits_until_what_it_saw_is_durable() {
    let (_, _, store) = store(Durability::Buffered);
    store.put("k", "v").unwrap();
    let read = || store.txn().then([get("k")]);
    assert_eq!(read().commit().unwrap().responses[0].kvs().len(), 1);
    assert_eq!(store.durable_revision(), 1);
    assert_eq!(read().durability(Durability::Sync).commit().unwrap().responses[0].kvs().len(), 1);
    assert_eq!(store.durable_revision(), 2);
}

#[test]
fn a_get_as_of_a_revision_answers_what_a_view_does() {
    let disk = Arc::new(MemoryVfs::new());
    let store = Options::new().vfs(disk).background(false).open("store").unwrap();
    let keys = ["/kept/a", "/kept/b", "/other", "/absent"];
    let compare = |what: &str| {
        let (mut found, mut refused) = (0, 0);
        for revision in 0..store.revision() + 2 {
            for key in keys {
                let by_view = store.at(revision).and_then(|view| view.get(key));
                let said = |error: Error| error.to_string();
                let by_view = by_view.map_err(said);
                let by_get = store.get_at(key, revision).map_err(said);
                assert_eq!(by_get, by_view, "{what}: {key} at {revision}");
                found += usize::from(matches!(by_get, Ok(Some(_))));
                refused += usize::from(by_get.is_err());
            }
        }
        (found, refused)
    };
    for round in 0..5 {
        store.put("/kept/a", format!("a {round}")).unwrap();
        store.put("/other", format!("other {round}")).unwrap();
        store.put("/kept/b", format!("b {round}")).unwrap();
        store.delete(keys[round % 3]).unwrap();
    }
    // Of each key, only revision 0 and that after the last are refused.
    let (in_memory, refused) = compare("in memory");
    assert_eq!(refused, 2 * keys.len());
    store.reorganise().unwrap();
    assert_eq!(compare("in files"), (in_memory, refused));
    store.compact(9).unwrap();
    let (after, refused) = compare("compacted");
    assert!(after < in_memory && refused > 8 * keys.len());
    store.set_retention("/kept/", Some(Retention::forever())).unwrap();
    store.compact(15).unwrap();
    store.reorganise().unwrap();
    let (kept, limited) = compare("kept by a rule");
    assert!(limited > refused && kept > 0);
    assert!(store.get_at("/kept/a", 10).unwrap().is_some());
    let error = store.get_at("/other", 10).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Compacted { .. }), "{error}");
    let other = store.clone();
    store.close().unwrap();
    let error = other.get_at("/other", 20).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed), "{error}");
}
