//! A handle whose commits have metadata.

use std::time::Duration;

use annals::{
    CommitOptions, DeleteRangeRequest, ErrorKind, Modify, Outcome, PutRequest, Result, Store,
    TxnRequest, put, txn,
};

use crate::{fresh, options};

/// The metadata of all commits so far.
fn told(store: &Store) -> Result<Vec<String>> {
    let all = store.log(..).map(|one| Ok(String::from_utf8_lossy(&one?.metadata).into_owned()));
    all.collect()
}

#[test]
fn every_way_of_writing_has_that_of_its_handle() -> Result<()> {
    let store = fresh();
    let by = store.with_metadata("ada")?;
    let one = |key: &str| -> TxnRequest { txn().then([put(key, "1")]) };
    by.put("a", "1")?;
    by.put_with(PutRequest::new("a", "2").prev_kv())?;
    by.delete("a")?;
    by.txn().then([put("a", "1"), put("b", "1"), put("c", "1")]).commit()?;
    by.delete_range(DeleteRangeRequest::new("b"))?;
    by.transact(one("a"))?;
    by.submit(one("a"))?.wait()?;
    by.try_submit(&one("a"))?.wait()?;
    let seen = by.get("a")?.map_or(0, |kv| kv.mod_revision);
    assert!(matches!(by.compare_and_put("a", seen, "2")?, Outcome::Committed { .. }));
    by.submit_compare_and_put("a", seen + 1, "3")?.wait()?;
    by.modify("a", |_| Modify::put("4"))?;
    by.modify("a", |_| Modify::Delete)?;
    by.submit_modify("a", |_| Modify::put("5"))?.wait()?;
    by.update(|update| update.put("a", "6"))?;
    by.submit_update(|update| update.put("a", "7"))?.1.wait()?;
    let count = 15;
    assert_eq!(told(&store)?, vec!["ada"; count]);

    // Leases that are revoked, in each way.
    for (id, key) in [(7, "l"), (8, "m"), (9, "n")] {
        by.lease_grant(id, Duration::from_secs(60))?;
        by.put_with(PutRequest::new(key, "").lease(id))?;
    }
    by.lease_revoke(7)?;
    by.lease_revoke_with(8, CommitOptions::default())?;
    by.lease_revoke_only(9, &["n"])?;
    let session = by.clone().lease(Duration::from_secs(60))?;
    by.put_with(PutRequest::new("o", "").lease(session.id()))?;
    session.revoke()?;
    assert_eq!(told(&store)?, vec!["ada"; count + 8]);
    Ok(())
}

#[test]
fn what_a_commit_says_goes_before_it_and_other_handles_are_what_they_were() -> Result<()> {
    let store = fresh();
    let by = store.with_metadata("ada")?;
    let clone = by.clone();
    let another = by.with_metadata("bob")?;
    let none = by.with_metadata("")?;
    let said = || CommitOptions { metadata: "said".into(), ..CommitOptions::default() };
    let one = || -> TxnRequest { txn().then([put("a", "1")]) };
    by.txn().then([put("a", "1")]).metadata("said").commit()?;
    by.transact_with(one(), said())?;
    by.submit_with(one(), said())?.wait()?;
    by.try_submit_with(&one(), &said())?.wait()?;
    by.update(|update| {
        update.metadata("said");
        update.put("a", "2")
    })?;
    by.lease_grant(7, Duration::from_secs(60))?;
    by.put_with(PutRequest::new("l", "").lease(7))?;
    by.lease_revoke_with(7, said())?;
    for handle in [&store, &by, &clone, &another, &none] {
        handle.put("a", "1")?;
    }
    let said = ["said", "said", "said", "said", "said", "ada", "said"];
    assert_eq!(told(&store)?, [&said[..], &["", "ada", "ada", "bob", ""]].concat());
    Ok(())
}

#[test]
fn metadata_that_is_too_long_is_refused() -> Result<()> {
    let store = options().metadata_bytes_max(8).open("store")?;
    refused!(store.with_metadata("123456789"), ErrorKind::MetadataTooLong { bytes: 9, max: 8 });
    store.with_metadata("12345678")?.put("a", "1")?;
    assert_eq!(told(&store)?, ["12345678"]);
    Ok(())
}
