//! Transactions: comparisons, branches, limits, tickets, times.

use std::sync::Arc;
use std::time::Duration;

use annals::clock::ManualClock;
use annals::{
    At, COMMIT_TIME_MAX, COMMIT_TIME_MIN, Commit, DeleteRangeRequest, Durability, ErrorKind, Op,
    OpResponse, Outcome, PutRequest, RangeRequest, Result, TxnRequest, create_revision, delete,
    delete_prefix, get, lease, mod_revision, put, range, txn, value, version,
};

use crate::{five, fresh, keys, numbers, options};

// ---- Transactions ----

#[test]
fn comparisons() -> Result<()> {
    let store = fresh();
    store.lease_grant(7, Duration::from_secs(60))?;
    store.put("a", "m")?;
    store.put_with(PutRequest::new("a", "m").lease(7))?; // create 2, mod 3, version 2
    let holds = |compare| Ok::<_, annals::Error>(store.txn().when([compare]).commit()?.succeeded);
    assert!(holds(version("a").eq(2))? && holds(version("a").gt(1))?);
    assert!(holds(version("a").lt(3))? && holds(version("a").ne(1))?);
    assert!(!holds(version("a").gt(2))? && !holds(version("a").lt(2))?);
    assert!(holds(create_revision("a").eq(2))? && holds(mod_revision("a").eq(3))?);
    assert!(holds(lease("a").eq(7))? && holds(value("a").eq("m"))?);
    assert!(holds(value("a").gt("l"))? && holds(value("a").lt("ma"))? && holds(value("a").ne(""))?);
    Ok(())
}

#[test]
fn an_absent_key_compares_as_zero_but_its_value_as_nothing() -> Result<()> {
    let store = fresh();
    let holds = |compare| Ok::<_, annals::Error>(store.txn().when([compare]).commit()?.succeeded);
    assert!(holds(version("x").eq(0))? && holds(mod_revision("x").lt(1))?);
    assert!(holds(create_revision("x").eq(0))? && holds(lease("x").eq(0))?);
    let nothing = ["", "x"].map(|v| [value("x").eq(v), value("x").ne(v), value("x").gt(v)]);
    for compare in nothing.into_iter().flatten() {
        assert!(!holds(compare.clone())?, "{compare:?}");
    }
    Ok(())
}

#[test]
fn a_comparison_of_a_range_must_hold_for_every_key() -> Result<()> {
    let store = five()?;
    let holds = |compare| Ok::<_, annals::Error>(store.txn().when([compare]).commit()?.succeeded);
    assert!(holds(version("").prefix().gt(0))? && !holds(version("").prefix().eq(1))?);
    assert!(holds(version("d").range_end("\0").eq(1))?);
    assert!(holds(value("a").range_end("c").gt("v"))?);
    // A range without keys is an absent key.
    assert!(holds(create_revision("x").prefix().eq(0))?);
    assert!(!holds(value("x").prefix().ne("v"))?);
    assert!(holds(version("e").range_end("a").eq(0))?);
    Ok(())
}

#[test]
fn a_failed_comparison_takes_the_other_branch() -> Result<()> {
    let store = fresh();
    store.put("a", "1")?;
    let swap = |at| {
        let then = store.txn().when([mod_revision("a").eq(at)]).then([put("a", "2")]);
        then.or_else([get("a")]).commit()
    };
    let failed = swap(9)?;
    assert_eq!((failed.succeeded, failed.revision), (false, 2));
    assert_eq!(failed.responses[0].kvs()[0].mod_revision, 2);
    let done = swap(2)?;
    assert_eq!((done.succeeded, done.revision), (true, 3));
    let OpResponse::Put(answer) = &done.responses[0] else { panic!("{done:?}") };
    assert_eq!(answer.revision, 3);
    Ok(())
}

#[test]
fn deleting_and_creating_the_same_bytes_fails_a_swap_by_revision() -> Result<()> {
    let store = fresh();
    let before = store.put("a", "A")?.revision;
    store.delete("a")?;
    store.put("a", "A")?;
    let swap = store.txn().when([mod_revision("a").eq(before)]).then([put("a", "B")]).commit()?;
    assert!(!swap.succeeded);
    assert!(store.txn().when([value("a").eq("A")]).commit()?.succeeded);
    Ok(())
}

#[test]
fn operations_see_what_the_ones_before_them_did() -> Result<()> {
    let store = fresh();
    store.put("a", "old")?;
    store.put("b", "old")?;
    let done = store
        .txn()
        .then([range(""), put("a", "new"), get("a"), delete("b"), put("c", "new"), range("")])
        .commit()?;
    let revision = done.revision;
    assert_eq!(revision, 4);
    let seen = |at: usize| match &done.responses[at] {
        OpResponse::Range(range) => (range.revision, range.count, range.kvs.clone()),
        other => panic!("{other:?}"),
    };
    let (header, count, before) = seen(0);
    assert_eq!((header, count, numbers(&before[0])), (revision - 1, 2, (2, 2, 1)));
    let (header, _, changed) = seen(2);
    assert_eq!((header, numbers(&changed[0])), (revision, (2, revision, 2)));
    let (header, count, after) = seen(5);
    assert_eq!((header, count, keys(&after)), (revision, 2, vec!["a", "c"]));
    assert_eq!(numbers(&after[1]), (revision, revision, 1));
    Ok(())
}

#[test]
fn reads_in_a_transaction_may_be_of_the_past_but_not_of_its_own_revision() -> Result<()> {
    let store = fresh();
    store.put("a", "1")?;
    store.put("a", "2")?;
    let read = |at| Op::from(RangeRequest::new("a").at(at));
    let done = store.txn().then([put("a", "3"), read(2), read(3)]).commit()?;
    assert_eq!(done.responses[1].kvs()[0].value, "1");
    assert_eq!(done.responses[2].kvs()[0].value, "2");
    refused!(
        store.txn().then([put("a", "4"), read(5)]).commit(),
        ErrorKind::FutureRevision { requested: 5, current: 4 }
    );
    store.compact(3)?;
    refused!(
        store.txn().then([put("a", "4"), read(2)]).commit(),
        ErrorKind::Compacted { requested: 2, compacted: 3, .. }
    );
    // Only the branch taken is checked.
    assert_eq!(store.txn().then([put("a", "4")]).or_else([read(99)]).commit()?.revision, 5);
    Ok(())
}

#[test]
fn nested_comparisons_look_at_the_state_before_the_transaction() -> Result<()> {
    let store = fresh();
    let nested = txn().when([version("a").eq(0)]).then([get("a")]).or_else([put("b", "")]);
    let done = store.txn().then([put("a", "1"), nested.into()]).commit()?;
    let OpResponse::Txn(inner) = &done.responses[1] else { panic!("{done:?}") };
    assert_eq!((inner.revision, inner.succeeded), (0, true));
    // The comparison looked back, the read sees the put.
    assert_eq!(inner.responses[0].kvs()[0].value, "1");
    Ok(())
}

#[test]
fn a_key_written_twice_is_refused() -> Result<()> {
    let store = fresh();
    let twice = |ops: Vec<Op>| {
        refused!(store.txn().then(ops.clone()).commit(), ErrorKind::DuplicateKey { .. });
        refused!(store.txn().or_else(ops).commit(), ErrorKind::DuplicateKey { .. });
    };
    twice(vec![put("a", "1"), put("a", "2")]);
    twice(vec![put("a", "1"), delete("a")]);
    twice(vec![delete_prefix("a"), put("ab", "")]);
    twice(vec![put("a", ""), txn().then([put("a", "")]).into()]);
    twice(vec![put("a", ""), txn().or_else([put("a", "")]).into()]);
    twice(vec![delete_prefix("a"), txn().or_else([put("ab", "")]).into()]);
    twice(vec![txn().then([put("a", "")]).into(), txn().then([put("a", "")]).into()]);
    // etcd overlooks this one; with `ignore_lease` it then stops for good.
    twice(vec![DeleteRangeRequest::new("a").range_end("\0").into(), put("b", "")]);
    assert_eq!(store.revision(), 1);

    store.put("a", "")?;
    store.put("b", "")?;
    let branches = txn().then([put("a", "1")]).or_else([put("a", "2")]);
    store.txn().then([branches]).or_else([put("a", "3")]).commit()?;
    let overlapping = [delete("a"), delete_prefix(""), delete("b")];
    let done = store.txn().then(overlapping).commit()?;
    let deleted = done.responses.iter().map(|response| match response {
        OpResponse::DeleteRange(delete) => delete.deleted,
        other => panic!("{other:?}"),
    });
    assert_eq!(deleted.collect::<Vec<_>>(), [1, 1, 0]);
    Ok(())
}

#[test]
fn a_put_deleted_by_a_later_nested_transaction_leaves_one_version() -> Result<()> {
    let store = fresh();
    store.lease_grant(7, Duration::from_secs(60))?;
    store.put_with(PutRequest::new("was", "").lease(7))?;
    let puts = txn().then([put("new", "x"), put("was", "x"), put("kept", "x")]);
    let deletes = txn().then([delete("new"), delete("was")]);
    let ops = [Op::from(puts), range(""), deletes.into(), range("")];
    let done = store.txn().then(ops).commit()?;
    assert_eq!(done.revision, 3);
    let seen = |at: usize| keys(done.responses[at].kvs()).concat();
    assert_eq!((seen(1), seen(3)), ("keptnewwas".into(), "kept".into()));
    let OpResponse::Txn(deletes) = &done.responses[2] else { panic!("{done:?}") };
    assert!(matches!(&deletes.responses[0], OpResponse::DeleteRange(d) if d.deleted == 1));
    let log = store.log(3..).next().expect("the transaction")?;
    let changed = log.changes.iter().map(|c| c.key.to_vec()).collect::<Vec<_>>();
    assert_eq!(changed, [b"kept".to_vec(), b"was".to_vec()]);
    assert!(store.lease_info(7, true)?.expect("the lease").keys.is_empty());

    // Nothing is left of this one, so it takes no revision.
    let undone = [txn().then([put("new", "x")]), txn().then([delete("new")])];
    let done = store.txn().then(undone).commit()?;
    assert_eq!((done.revision, store.revision()), (3, 3));
    Ok(())
}

#[test]
fn limits_are_enforced_and_change_nothing() -> Result<()> {
    let store = options()
        .key_bytes_max(8)
        .value_bytes_max(16)
        .transaction_operations_max(4)
        .metadata_bytes_max(2)
        .transaction_bytes_max(4096)
        .open("store")?;
    refused!(store.put("123456789", ""), ErrorKind::KeyTooLong { bytes: 9, max: 8 });
    refused!(store.put("a", [0; 17]), ErrorKind::ValueTooLong { bytes: 17, max: 16 });
    let puts = |count: usize| (0..count).map(|n| put(n.to_string(), "")).collect::<Vec<_>>();
    refused!(store.txn().then(puts(5)).commit(), ErrorKind::TooManyOperations { count: 5, max: 4 });
    // A nested transaction has what its parent's longest list leaves.
    let nested = |inner: usize| store.txn().then([txn().then(puts(inner))]).commit();
    refused!(nested(4), ErrorKind::TooManyOperations { count: 5, max: 4 });
    assert_eq!(nested(3)?.revision, 2);
    refused!(
        store.txn().then(puts(1)).metadata("abc").commit(),
        ErrorKind::MetadataTooLong { bytes: 3, max: 2 }
    );
    let deep = (0..200).fold(TxnRequest::default(), |inner, _| txn().then([inner]));
    refused!(store.transact(deep), ErrorKind::TooManyOperations { .. });
    assert_eq!(store.revision(), 2);

    store.put("3", "")?;
    store.put("4", "")?;
    let five = DeleteRangeRequest::prefix("");
    refused!(store.delete_range(five), ErrorKind::TooManyOperations { count: 5, max: 4 });
    assert_eq!(store.latest()?.count(..)?, 5);

    let deep = (0..200).fold(TxnRequest::default(), |inner, _| txn().then([inner]));
    refused!(fresh().transact(deep), ErrorKind::InvalidArgument { .. });
    Ok(())
}

#[test]
fn a_transaction_too_large_is_refused_whole() -> Result<()> {
    let store = options().transaction_bytes_max(4096).open("store")?;
    let large = (0..5).map(|n| put(n.to_string(), [7; 1000]));
    refused!(store.txn().then(large).commit(), ErrorKind::TransactionTooLarge { max: 4096, .. });
    assert_eq!(store.revision(), 1);
    Ok(())
}

#[test]
fn tickets_tell_the_order_at_once() -> Result<()> {
    let store = fresh();
    let committed = store.submit(txn().then([put("a", "")]))?;
    assert_eq!(committed.outcome(), Outcome::Committed { revision: 2 });
    let failed = store.txn().when([version("a").eq(9)]).submit()?;
    assert_eq!(failed.outcome(), Outcome::Failed { as_of: 2 });
    let unchanged = store.txn().then([delete("b")]).submit()?;
    assert_eq!(unchanged.outcome(), Outcome::Unchanged { as_of: 2 });
    assert_eq!(committed.wait()?.revision, 2);
    assert!(!failed.wait()?.succeeded);
    assert!(unchanged.wait()?.succeeded);
    Ok(())
}

#[test]
fn an_acknowledgement_names_its_durability_and_time() -> Result<()> {
    let store = fresh();
    let Commit { durability, time, .. } = store.put("a", "")?;
    assert_eq!(durability, Durability::Sync);
    let buffered = store.txn().then([put("b", "")]).durability(Durability::Buffered);
    assert_eq!(buffered.time(5).commit()?.revision, 3);
    // Such a commit shows with the next sync.
    store.flush()?;
    let log = store.log(..).collect::<Result<Vec<_>>>()?;
    // Time never goes back, whatever was asked for.
    assert_eq!((log[0].time, log[1].time), (time, time));
    let later = store.txn().then([put("b", "")]).time(time + 50).metadata("m");
    later.commit()?;
    let last = store.log(4..).next().expect("the transaction")?;
    assert_eq!((last.time, last.metadata.as_ref()), (time + 50, &b"m"[..]));
    assert_eq!(store.at(At::Time(time + 49))?.revision(), 3);
    assert_eq!(store.at(At::Time(time + 50))?.revision(), 4);
    // Nothing was there before.
    assert_eq!(store.at(At::Time(time - 1))?.revision(), 1);
    store.compact(2)?;
    refused!(store.at(At::Time(time - 1)), ErrorKind::NoRevisionAtTime { .. });
    Ok(())
}

#[test]
fn the_time_of_a_commit_is_in_the_years_1_to_9999() -> Result<()> {
    let store = fresh();
    let at = |time: i64| store.txn().then([put("a", "")]).time(time);
    for time in [i64::MIN, COMMIT_TIME_MIN - 1, COMMIT_TIME_MAX + 1, i64::MAX] {
        refused!(at(time).commit(), ErrorKind::InvalidArgument { .. });
        refused!(at(time).submit(), ErrorKind::InvalidArgument { .. });
    }
    // The history of a library may begin before the epoch.
    let times = [COMMIT_TIME_MIN, -1, 0, 1_000, COMMIT_TIME_MAX];
    let clock = Arc::new(ManualClock::new(i64::MIN));
    let store = options().clock(clock.clone()).open("store")?;
    for time in times {
        store.txn().then([put("a", "")]).time(time).commit()?;
    }
    let log = store.log(..).collect::<Result<Vec<_>>>()?;
    assert_eq!(log.iter().map(|done| done.time).collect::<Vec<_>>(), times);
    Ok(())
}
