//! Revisions, ranges, puts and deletes.

use std::time::Duration;

use annals::{
    DeleteRangeRequest, ErrorKind, Op, PutRequest, RangeRequest, Result, SortOrder, SortTarget,
    delete, get, put, txn, version,
};

use crate::{five, fresh, keys, numbers, one};

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
            ErrorKind::Compacted { requested: 3, compacted: 4, .. }
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
    store.lease_grant(7, Duration::from_secs(60))?;
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
    store.lease_grant(7, Duration::from_secs(60))?;
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
