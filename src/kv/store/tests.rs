//! Answers after a failure of the log: what they may tell, and what they say has been done.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::Store;
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::kv::request::CommitOptions;
use crate::kv::{DeleteRangeRequest, PutRequest, TxnRequest, get, put, txn, value, version};
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
