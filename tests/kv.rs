//! etcd's semantics, edge by edge: revisions, ranges, puts and deletes, transactions, compaction,
//! leases; then what this interface adds. Each test is named by the rule it holds to.

#![allow(clippy::expect_used, reason = "a test stops where it fails")]

use std::sync::Arc;

use annals::clock::ManualClock;
use annals::vfs::MemoryVfs;
use annals::{
    COMMIT_TIME_MAX, COMMIT_TIME_MIN, Commit, DeleteRangeRequest, Diff, Durability, ErrorKind,
    KeyRange, KeyValue, LeaseGrantRequest, Op, OpResponse, Options, Outcome, PutRequest,
    RangeRequest, Result, SortOrder, SortTarget, Store, TxnRequest, Version, create_revision,
    delete, delete_prefix, get, lease, mod_revision, put, range, txn, value, version,
};

fn options() -> Options {
    Options::new().vfs(Arc::new(MemoryVfs::new())).memtable_bytes(1 << 20).wal_bytes(1 << 20)
}

fn fresh() -> Store {
    options().open("store").expect("a fresh store opens")
}

/// Asserts that a call fails with a kind of error.
macro_rules! refused {
    ($call:expr, $kind:pat $(if $guard:expr)?) => {
        match $call {
            Ok(done) => panic!("not refused: {done:?}"),
            Err(error) => match error.kind() {
                $kind $(if $guard)? => {}
                other => panic!("refused for another reason: {other:?}"),
            },
        }
    };
}

fn numbers(kv: &KeyValue) -> (u64, u64, u64) {
    (kv.create_revision, kv.mod_revision, kv.version)
}

fn keys(kvs: &[KeyValue]) -> Vec<&str> {
    kvs.iter().map(|kv| std::str::from_utf8(&kv.key).expect("text")).collect()
}

fn one(store: &Store, key: &str) -> Result<KeyValue> {
    Ok(store.get(key)?.expect("the key is alive"))
}

// ---- Revisions ----

#[test]
fn a_fresh_store_is_at_revision_1_and_the_first_write_makes_2() -> Result<()> {
    let store = fresh();
    assert_eq!((store.revision(), store.compacted_revision()), (1, 0));
    assert_eq!(store.put("a", "")?.revision, 2);
    assert_eq!((store.revision(), store.durable_revision()), (2, 2));
    assert_eq!(store.at(1)?.get("a")?, None);
    refused!(store.at(0), ErrorKind::InvalidArgument { .. });
    refused!(store.at(3), ErrorKind::FutureRevision { requested: 3, current: 2 });
    Ok(())
}

#[test]
fn every_put_is_a_version_and_a_delete_ends_the_lifetime() -> Result<()> {
    let store = fresh();
    store.put("a", "same")?;
    store.put("a", "same")?;
    assert_eq!(numbers(&one(&store, "a")?), (2, 3, 2));
    assert_eq!(store.delete("a")?.revision, 4);
    store.put("a", "same")?;
    assert_eq!(numbers(&one(&store, "a")?), (5, 5, 1));
    Ok(())
}

#[test]
fn what_changes_nothing_takes_no_revision() -> Result<()> {
    let store = fresh();
    store.put("a", "")?;
    assert_eq!(store.delete("absent")?.revision, 2);
    let nothing = DeleteRangeRequest::new("x").range_end("z");
    assert_eq!(store.delete_range(nothing.clone())?.revision, 2);
    assert_eq!(store.txn().commit()?.revision, 2);
    assert_eq!(store.txn().then([get("a")]).commit()?.revision, 2);
    assert_eq!(store.txn().then([nothing]).commit()?.revision, 2);
    let failed = store.txn().when([version("a").eq(7)]).then([put("a", "x")]);
    assert_eq!(failed.commit()?.revision, 2);
    assert_eq!(store.put("a", "")?.revision, 3);
    Ok(())
}

#[test]
fn a_transaction_has_one_revision_and_its_changes_are_in_the_order_of_its_operations() -> Result<()>
{
    let store = fresh();
    store.put("d", "")?;
    let done = store.txn().then([put("z", ""), delete("d"), put("a", "")]).commit()?;
    assert_eq!(done.revision, 3);
    let log = store.log(3..).collect::<Result<Vec<_>>>()?;
    let changes = log[0].changes.iter().map(|c| (c.key.to_vec(), c.sub)).collect::<Vec<_>>();
    assert_eq!(changes, [(b"z".to_vec(), 0), (b"d".to_vec(), 1), (b"a".to_vec(), 2)]);
    Ok(())
}

#[test]
fn the_header_of_a_read_of_the_past_has_the_current_revision() -> Result<()> {
    let store = fresh();
    for n in 0..3 {
        store.put("a", n.to_string())?;
    }
    let answer = store.range(RangeRequest::new("a").at(2))?;
    assert_eq!((answer.revision, answer.kvs[0].mod_revision), (4, 2));
    Ok(())
}

// ---- Ranges ----

fn five() -> Result<Store> {
    let store = fresh();
    for key in ["b", "a", "d", "c", "e"] {
        store.put(key, format!("value of {key}"))?; // revisions 2 to 6
    }
    store.put("c", "again")?; // 7
    Ok(store)
}

#[test]
fn range_ends() -> Result<()> {
    let store = five()?;
    let found = |key: &str, end: &str| -> Result<Vec<String>> {
        let answer = store.range(RangeRequest::new(key).range_end(end))?;
        assert_eq!(answer.count, answer.kvs.len() as u64);
        Ok(keys(&answer.kvs).iter().map(ToString::to_string).collect())
    };
    assert_eq!(found("b", "")?, ["b"]);
    assert_eq!(found("b", "d")?, ["b", "c"]);
    assert_eq!(found("d", "\0")?, ["d", "e"]);
    assert_eq!(found("\0", "\0")?, ["a", "b", "c", "d", "e"]);
    assert!(found("d", "b")?.is_empty() && found("d", "d")?.is_empty());
    assert_eq!(keys(&store.range(RangeRequest::prefix(""))?.kvs).len(), 5);
    refused!(store.range(RangeRequest::new("")), ErrorKind::EmptyKey);
    Ok(())
}

#[test]
fn the_count_ignores_limit_and_filters() -> Result<()> {
    let store = five()?;
    let all = RangeRequest::prefix("");
    let limited = store.range(all.clone().limit(2))?;
    assert_eq!((keys(&limited.kvs), limited.count, limited.more), (vec!["a", "b"], 5, true));
    let exactly = store.range(all.clone().limit(5))?;
    assert_eq!((exactly.kvs.len(), exactly.count, exactly.more), (5, 5, false));
    let filtered = RangeRequest { min_mod_revision: 4, max_mod_revision: 6, ..all.clone() };
    let answer = store.range(filtered.clone().limit(1))?;
    assert_eq!((keys(&answer.kvs), answer.count, answer.more), (vec!["d"], 5, true));
    let answer = store.range(filtered)?;
    assert_eq!((keys(&answer.kvs), answer.count, answer.more), (vec!["d", "e"], 5, false));
    let created = RangeRequest { min_create_revision: 5, max_create_revision: 5, ..all.clone() };
    assert_eq!(keys(&store.range(created)?.kvs), ["c"]);
    let counted = store.range(all.limit(1).count_only())?;
    assert_eq!((counted.kvs.len(), counted.count, counted.more), (0, 5, false));
    Ok(())
}

#[test]
fn sorting() -> Result<()> {
    let store = five()?;
    let sorted = |target, order, limit| -> Result<String> {
        let request = RangeRequest::prefix("").sort(target, order).limit(limit);
        Ok(keys(&store.range(request)?.kvs).concat())
    };
    assert_eq!(sorted(SortTarget::Key, SortOrder::None, 0)?, "abcde");
    assert_eq!(sorted(SortTarget::Key, SortOrder::Ascend, 2)?, "ab");
    assert_eq!(sorted(SortTarget::Key, SortOrder::Descend, 2)?, "ed");
    assert_eq!(sorted(SortTarget::Mod, SortOrder::Ascend, 0)?, "badec");
    assert_eq!(sorted(SortTarget::Mod, SortOrder::Descend, 2)?, "ce");
    assert_eq!(sorted(SortTarget::Create, SortOrder::Descend, 0)?, "ecdab");
    assert_eq!(sorted(SortTarget::Value, SortOrder::Ascend, 1)?, "c");
    // Ties stay in key order, both ways.
    assert_eq!(sorted(SortTarget::Version, SortOrder::Ascend, 0)?, "abdec");
    assert_eq!(sorted(SortTarget::Version, SortOrder::Descend, 0)?, "cabde");
    // A target without an order sorts upwards, but only what the limit let through.
    assert_eq!(sorted(SortTarget::Mod, SortOrder::None, 0)?, "badec");
    assert_eq!(sorted(SortTarget::Mod, SortOrder::None, 2)?, "ba");
    Ok(())
}

#[test]
fn keys_only_leaves_the_values_out_also_when_sorted_by_them() -> Result<()> {
    let store = five()?;
    let request = RangeRequest::prefix("").keys_only().sort(SortTarget::Value, SortOrder::Descend);
    let answer = store.range(request)?;
    assert_eq!(keys(&answer.kvs).concat(), "edbac");
    assert!(answer.kvs.iter().all(|kv| kv.value.is_empty()));
    Ok(())
}

#[test]
fn counting_and_key_only_reads_of_the_past_are_checked_too() -> Result<()> {
    let store = five()?;
    store.compact(4)?;
    for request in [RangeRequest::prefix("").count_only(), RangeRequest::prefix("").keys_only()] {
        refused!(
            store.range(request.clone().at(3)),
            ErrorKind::Compacted { requested: 3, compacted: 4 }
        );
        refused!(
            store.range(request.clone().at(8)),
            ErrorKind::FutureRevision { requested: 8, current: 7 }
        );
        assert_eq!(store.range(request.at(4))?.count, 3);
    }
    Ok(())
}

// ---- Puts and deletes ----

#[test]
fn keeping_the_value_or_the_lease() -> Result<()> {
    let store = fresh();
    store.lease_grant(7, 60)?;
    store.put_with(PutRequest::new("a", "one").lease(7))?;
    store.put_with(PutRequest::new("a", "").ignore_value().lease(7))?;
    assert_eq!((one(&store, "a")?.value.as_ref(), one(&store, "a")?.lease), (&b"one"[..], 7));
    store.put_with(PutRequest::new("a", "two").ignore_lease())?;
    assert_eq!((one(&store, "a")?.value.as_ref(), one(&store, "a")?.lease), (&b"two"[..], 7));
    let absent = PutRequest::new("b", "").ignore_value();
    refused!(store.put_with(absent), ErrorKind::KeyNotFound { .. });
    refused!(
        store.put_with(PutRequest::new("b", "x").ignore_lease()),
        ErrorKind::KeyNotFound { .. }
    );
    refused!(store.put_with(PutRequest::new("a", "x").ignore_value()), ErrorKind::ValueProvided);
    refused!(
        store.put_with(PutRequest::new("a", "x").ignore_lease().lease(7)),
        ErrorKind::LeaseProvided
    );
    // "Must exist" means before the transaction.
    let created = PutRequest::new("c", "").ignore_value();
    refused!(
        store.txn().then([Op::from(txn().then([put("b", "")])), created.into()]).commit(),
        ErrorKind::KeyNotFound { .. }
    );
    assert_eq!(store.revision(), 4);
    Ok(())
}

#[test]
fn a_put_without_a_lease_detaches_the_key() -> Result<()> {
    let store = fresh();
    store.lease_grant(7, 60)?;
    store.put_with(PutRequest::new("a", "").lease(7))?;
    store.put("a", "free")?;
    assert_eq!(one(&store, "a")?.lease, 0);
    assert!(store.lease_info(7, true)?.expect("the lease").keys.is_empty());
    assert!(store.lease_revoke(7)?.deleted.is_empty());
    assert_eq!(one(&store, "a")?.value, "free");
    Ok(())
}

#[test]
fn an_unknown_lease_refuses_the_whole_transaction() -> Result<()> {
    let store = fresh();
    let second = PutRequest::new("b", "").lease(404);
    refused!(store.put_with(second.clone()), ErrorKind::LeaseNotFound { lease: 404 });
    let ops = [put("a", ""), second.into()];
    refused!(store.txn().then(ops).commit(), ErrorKind::LeaseNotFound { lease: 404 });
    assert_eq!((store.revision(), store.get("a")?), (1, None));
    Ok(())
}

#[test]
fn the_key_value_before_a_put_or_a_delete() -> Result<()> {
    let store = fresh();
    assert_eq!(store.put_with(PutRequest::new("a", "1").prev_kv())?.prev_kv, None);
    let before = store.put_with(PutRequest::new("a", "2").prev_kv())?.prev_kv.expect("it was");
    assert_eq!((numbers(&before), before.value.as_ref()), ((2, 2, 1), &b"1"[..]));
    store.put("b", "3")?;
    let gone = store.delete_range(DeleteRangeRequest::prefix("").prev_kv())?;
    assert_eq!((gone.revision, gone.deleted), (5, 2));
    assert_eq!((keys(&gone.prev_kvs), numbers(&gone.prev_kvs[0])), (vec!["a", "b"], (2, 3, 2)));
    let without = store.delete_range(DeleteRangeRequest::new("a"))?;
    assert_eq!((without.deleted, without.prev_kvs.len()), (0, 0));
    Ok(())
}

#[test]
fn a_range_is_deleted_in_key_order() -> Result<()> {
    let store = fresh();
    for key in ["c", "a", "b"] {
        store.put(key, "")?;
    }
    store.delete_range(DeleteRangeRequest::prefix(""))?;
    let last = store.log(5..).next().expect("the delete")?;
    assert_eq!(last.changes.iter().map(|c| c.key.to_vec()).collect::<Vec<_>>().concat(), b"abc");
    Ok(())
}

#[test]
fn empty_keys_are_refused_everywhere() {
    let store = fresh();
    refused!(store.put("", ""), ErrorKind::EmptyKey);
    refused!(store.delete(""), ErrorKind::EmptyKey);
    refused!(store.txn().then([get("")]).commit(), ErrorKind::EmptyKey);
    refused!(store.txn().or_else([put("", "")]).commit(), ErrorKind::EmptyKey);
    refused!(store.txn().when([version("").eq(0)]).commit(), ErrorKind::EmptyKey);
    let nested = txn().or_else([delete("")]);
    refused!(store.txn().or_else([nested]).commit(), ErrorKind::EmptyKey);
    assert_eq!(store.revision(), 1);
}

// ---- Transactions ----

#[test]
fn comparisons() -> Result<()> {
    let store = fresh();
    store.lease_grant(7, 60)?;
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
        ErrorKind::Compacted { requested: 2, compacted: 3 }
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
    store.lease_grant(7, 60)?;
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
    assert_eq!(store.at_time(time + 49)?.revision(), 3);
    assert_eq!(store.at_time(time + 50)?.revision(), 4);
    refused!(store.at_time(time - 1), ErrorKind::NoRevisionAtTime { .. });
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

// ---- Compaction ----

#[test]
fn compaction_keeps_the_compacted_revision_readable() -> Result<()> {
    let store = fresh();
    for n in 2..=6 {
        store.put("a", n.to_string())?;
    }
    assert_eq!(store.compact(4)?.revision, 6);
    assert_eq!(store.compacted_revision(), 4);
    assert_eq!(store.at(4)?.get("a")?.expect("it was alive").value, "4");
    refused!(store.at(3), ErrorKind::Compacted { requested: 3, compacted: 4 });
    refused!(store.compact(4), ErrorKind::Compacted { requested: 4, compacted: 4 });
    refused!(store.compact(2), ErrorKind::Compacted { requested: 2, compacted: 4 });
    refused!(store.compact(7), ErrorKind::FutureRevision { requested: 7, current: 6 });
    assert_eq!(store.compact(6)?.revision, 6);
    assert_eq!(store.put("a", "7")?.revision, 7);
    Ok(())
}

#[test]
fn compacting_to_zero_succeeds_once() -> Result<()> {
    let store = fresh();
    assert_eq!(store.compact(0)?.revision, 1);
    refused!(store.compact(0), ErrorKind::Compacted { requested: 0, compacted: 0 });
    assert_eq!(store.compact(1)?.revision, 1);
    refused!(store.compact(0), ErrorKind::Compacted { requested: 0, compacted: 1 });
    Ok(())
}

#[test]
fn history_is_cut_at_the_watermark_and_a_tombstone_on_it_stays() -> Result<()> {
    let store = fresh();
    store.put("a", "2")?;
    store.put("a", "3")?;
    store.delete("a")?; // 4
    store.put("a", "5")?;
    let told = |store: &Store| -> Result<Vec<(u64, bool)>> {
        let versions = store.history("a").collect::<Result<Vec<Version>>>()?;
        Ok(versions.iter().map(|v| (v.mod_revision, v.tombstone)).collect())
    };
    assert_eq!(told(&store)?, [(5, false), (4, true), (3, false), (2, false)]);
    store.compact(3)?;
    assert_eq!(told(&store)?, [(5, false), (4, true), (3, false)]);
    store.compact(4)?;
    assert_eq!(told(&store)?, [(5, false), (4, true)]);
    store.compact(5)?;
    assert_eq!(told(&store)?, [(5, false)]);
    Ok(())
}

#[test]
fn a_view_outlives_the_compaction_of_its_revision() -> Result<()> {
    let store = fresh();
    store.put("a", "old")?;
    let view = store.latest()?;
    store.put("a", "new")?;
    store.compact(3)?;
    while store.run_background()? {}
    assert_eq!(view.get("a")?.expect("still there").value, "old");
    refused!(store.at(2), ErrorKind::Compacted { .. });
    Ok(())
}

// ---- Leases ----

#[test]
fn granting_leases() -> Result<()> {
    let store = fresh();
    let granted = store.lease_grant(7, 60)?;
    assert_eq!((granted.id, granted.ttl, granted.revision), (7, 60, 1));
    refused!(store.lease_grant(7, 60), ErrorKind::LeaseExists { lease: 7 });
    for ttl in [1, 0, -5] {
        assert_eq!(store.lease_grant(0, ttl)?.ttl, 2);
    }
    let short = LeaseGrantRequest { ttl_min: 1, ..LeaseGrantRequest::new(8, 1) };
    assert_eq!(store.lease_grant_with(short)?.ttl, 1);
    assert_eq!(store.lease_grant(9, 9_000_000_000)?.ttl, 9_000_000_000);
    refused!(store.lease_grant(10, 9_000_000_001), ErrorKind::LeaseTtlTooLarge { .. });
    let with_least = |ttl, ttl_min| {
        store.lease_grant_with(LeaseGrantRequest { ttl_min, ..LeaseGrantRequest::new(10, ttl) })
    };
    let ttl = i64::MAX;
    refused!(with_least(5, ttl), ErrorKind::LeaseTtlTooLarge { ttl: i64::MAX, .. });
    refused!(with_least(9_000_000_001, 5), ErrorKind::LeaseTtlTooLarge { .. });
    for ttl in [i64::MIN, -1, 0] {
        refused!(with_least(ttl, ttl), ErrorKind::InvalidArgument { .. });
    }
    let leases = store.lease_list()?;
    assert_eq!(leases.len(), 6);
    assert!(leases.iter().all(|lease| lease.id > 0));
    assert_eq!(store.revision(), 1);
    Ok(())
}

#[test]
fn revoking_deletes_the_keys_in_byte_order_at_one_revision() -> Result<()> {
    let store = fresh();
    store.lease_grant(7, 60)?;
    store.lease_grant(8, 60)?;
    for key in ["c", "a", "b", "moved", "gone"] {
        store.put_with(PutRequest::new(key, "").lease(7))?;
    }
    store.put_with(PutRequest::new("moved", "").lease(8))?;
    store.delete("gone")?; // 8
    let attached = store.lease_info(7, true)?.expect("the lease").keys;
    assert_eq!(attached, ["a", "b", "c"]);
    let revoked = store.lease_revoke(7)?;
    assert_eq!(revoked.revision, 9);
    assert_eq!(revoked.deleted, ["a", "b", "c"]);
    assert_eq!(store.log(9..).next().expect("the revoke")?.changes.len(), 3);
    assert_eq!(store.lease_info(7, false)?, None);
    refused!(store.lease_revoke(7), ErrorKind::LeaseNotFound { lease: 7 });
    assert_eq!(one(&store, "moved")?.lease, 8);
    assert_eq!(store.lease_info(8, true)?.expect("the lease").keys, ["moved"]);
    Ok(())
}

#[test]
fn a_lease_without_keys_is_revoked_without_a_revision() -> Result<()> {
    let store = fresh();
    store.put("a", "")?;
    store.lease_grant(7, 60)?;
    assert_eq!(store.lease_revoke(7)?.revision, 2);
    assert_eq!(store.lease_list()?, []);
    Ok(())
}

#[test]
fn negative_lease_ids_are_leases_too() -> Result<()> {
    let store = fresh();
    for id in [-1, i64::MIN, i64::MAX, 1] {
        store.lease_grant(id, 60)?;
        store.put_with(PutRequest::new(format!("of {id}"), "").lease(id))?;
    }
    let ids: Vec<i64> = store.lease_list()?.iter().map(|lease| lease.id).collect();
    assert_eq!(ids, [i64::MIN, -1, 1, i64::MAX]);
    assert_eq!(store.lease_revoke(-1)?.deleted, ["of -1"]);
    assert_eq!(store.latest()?.count(..)?, 3);
    Ok(())
}

#[test]
fn the_lease_table_is_not_among_the_keys() -> Result<()> {
    let store = fresh();
    store.lease_grant(7, 60)?;
    store.put_with(PutRequest::new("a", "").lease(7))?;
    assert_eq!(store.range(RangeRequest::prefix(""))?.count, 1);
    assert_eq!(store.latest()?.range(..).count(), 1);
    assert_eq!(store.diff(1, 2, ..)?.count(), 1);
    assert_eq!(store.log(..).next().expect("one")?.changes.len(), 1);
    Ok(())
}

// ---- Views, differences, the log ----

#[test]
fn views_are_read_from_both_ends() -> Result<()> {
    let store = five()?;
    let view = store.at(6)?;
    let names = |kvs: annals::RangeIter| -> Result<String> {
        let kvs = kvs.collect::<Result<Vec<_>>>()?;
        Ok(keys(&kvs).concat())
    };
    assert_eq!(names(view.range(..))?, "abcde");
    assert_eq!(names(view.range(..).rev())?, "edcba");
    assert_eq!(names(view.range("b".."e").rev().limit(2))?, "dc");
    assert_eq!(names(view.range("b"..="e").limit(9))?, "bcde");
    assert_eq!(names(view.range(.."c"))?, "ab");
    assert_eq!(names(view.range("e".."a"))?, "");
    assert_eq!(names(view.range(KeyRange::key("c")))?, "c");
    assert_eq!(names(view.prefix("d"))?, "d");
    let mut both = view.range(..);
    let mut met = Vec::new();
    while let (Some(front), back) = (both.next(), both.next_back()) {
        met.push(front?.key);
        met.extend(back.transpose()?.map(|kv| kv.key));
    }
    assert_eq!(met, ["a", "e", "b", "d", "c"]);
    assert_eq!((both.next().is_none(), both.next_back().is_none()), (true, true));
    assert_eq!(view.count("b"..)?, 4);
    let only_keys = view.range(..).keys_only().map(|kv| Ok(kv?.value.len()));
    assert_eq!(only_keys.sum::<Result<usize>>()?, 0);
    Ok(())
}

#[test]
fn a_difference_compares_states_not_changes() -> Result<()> {
    let store = fresh();
    store.put("/a", "1")?; // 2
    store.put("/b", "1")?; // 3
    store.put("/c", "1")?; // 4
    store.put("/b", "2")?; // 5
    store.delete("/c")?; // 6
    store.put("/d", "1")?; // 7
    store.put("/e", "1")?; // 8
    store.delete("/e")?; // 9
    store.put("other", "")?; // 10
    let told = |from, to| -> Result<Vec<String>> {
        let line = |diff| match diff {
            Diff::Added(kv) => format!("+{:?}", kv.key),
            Diff::Removed(kv) => format!("-{:?}", kv.key),
            Diff::Changed { old, new } => format!("{:?} {}-{}", new.key, old.version, new.version),
        };
        store.diff(from, to, "/".."0")?.map(|diff| diff.map(line)).collect()
    };
    assert_eq!(told(4, 10)?, ["b\"/b\" 1-2", "-b\"/c\"", "+b\"/d\""]);
    assert_eq!(told(1, 4)?, ["+b\"/a\"", "+b\"/b\"", "+b\"/c\""]);
    assert!(told(10, 10)?.is_empty());
    refused!(store.diff(5, 4, ..), ErrorKind::InvalidArgument { .. });
    refused!(store.diff(4, 11, ..), ErrorKind::FutureRevision { .. });
    store.compact(5)?;
    refused!(store.diff(4, 10, ..), ErrorKind::Compacted { .. });
    assert_eq!(told(5, 10)?, ["-b\"/c\"", "+b\"/d\""]);
    Ok(())
}

#[test]
fn the_log_tells_transactions_oldest_first() -> Result<()> {
    let store = fresh();
    store.put("a", "1")?;
    store.txn().then([put("b", "2"), delete("a")]).metadata("two at once").commit()?;
    store.put("a", "3")?;
    let log = store.log(..).with_values().collect::<Result<Vec<_>>>()?;
    assert_eq!(log.iter().map(|t| t.revision).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(log[1].metadata, "two at once");
    let values = |at: usize| {
        let values = log[at].changes.iter().map(|change| change.value.clone());
        values.map(|value| value.map(|bytes| bytes.to_vec())).collect::<Vec<_>>()
    };
    assert_eq!(values(1), [Some(b"2".to_vec()), None]);
    assert_eq!((log[2].changes[0].create_revision, log[2].changes[0].version), (4, 1));
    let revisions =
        |range| store.log(range).map(|t| t.map(|t| t.revision)).collect::<Result<Vec<_>>>();
    assert_eq!(revisions(3..4)?, [3]);
    store.compact(3)?;
    refused!(revisions(2..5), ErrorKind::Compacted { requested: 2, compacted: 3 });
    assert_eq!(revisions(3..5)?, [3, 4]);
    Ok(())
}

// ---- Many at once ----

#[test]
fn concurrent_swaps_lose_no_update() -> Result<()> {
    const THREADS: u64 = 4;
    const EACH: u64 = 50;
    let store = fresh();
    store.put("counter", "0")?;
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..THREADS).map(|_| scope.spawn(|| (0..EACH).try_for_each(|_| add(&store)))).collect();
        for worker in workers {
            worker.join().expect("no panic").expect("no error");
        }
    });
    let counter = one(&store, "counter")?;
    assert_eq!(counter.value, (THREADS * EACH).to_string());
    assert_eq!((counter.version, store.revision()), (THREADS * EACH + 1, THREADS * EACH + 2));
    Ok(())
}

/// Adds one to a counter, retrying from the answer of the other branch.
fn add(store: &Store) -> Result<()> {
    let mut seen = one(store, "counter")?;
    loop {
        let count: u64 = String::from_utf8_lossy(&seen.value).parse().expect("a number");
        let done = store
            .txn()
            .when([mod_revision("counter").eq(seen.mod_revision)])
            .then([put("counter", (count + 1).to_string())])
            .or_else([get("counter")])
            .commit()?;
        match done.responses.first() {
            Some(answer) if !done.succeeded => seen = answer.kvs()[0].clone(),
            _ => return Ok(()),
        }
    }
}

#[test]
fn concurrent_answers_show_their_own_revision() {
    let store = fresh();
    let run = |name: usize| -> Result<()> {
        for n in 0..100 {
            let (mine, value) = (format!("{name}"), format!("{n}"));
            let done = store.txn().then([put(&mine, &value), get(&mine)]).commit()?;
            let kv = &done.responses[1].kvs()[0];
            assert_eq!((kv.mod_revision, kv.value.as_ref()), (done.revision, value.as_bytes()));
            assert_eq!(store.at(done.revision)?.get(&mine)?.as_ref(), Some(kv));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|name| scope.spawn(move || run(name))).collect();
        for worker in workers {
            worker.join().expect("no panic").expect("no error");
        }
    });
    assert_eq!(store.revision(), 401);
}
