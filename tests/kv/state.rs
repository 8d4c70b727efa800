//! Compaction, leases, views, differences, the log, and many callers at once.

use std::time::Duration;

use annals::{
    Diff, ErrorKind, KeyRange, LeaseGrantRequest, PutRequest, RangeRequest, Result, Store, Version,
    delete, get, mod_revision, put,
};

use crate::{five, fresh, keys, one};

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
    refused!(store.at(3), ErrorKind::Compacted { requested: 3, compacted: 4, .. });
    refused!(store.compact(4), ErrorKind::Compacted { requested: 4, compacted: 4, .. });
    refused!(store.compact(2), ErrorKind::Compacted { requested: 2, compacted: 4, .. });
    refused!(store.compact(7), ErrorKind::FutureRevision { requested: 7, current: 6 });
    assert_eq!(store.compact(6)?.revision, 6);
    assert_eq!(store.put("a", "7")?.revision, 7);
    Ok(())
}

#[test]
fn compacting_to_zero_succeeds_once() -> Result<()> {
    let store = fresh();
    assert_eq!(store.compact(0)?.revision, 1);
    refused!(store.compact(0), ErrorKind::Compacted { requested: 0, compacted: 0, .. });
    assert_eq!(store.compact(1)?.revision, 1);
    refused!(store.compact(0), ErrorKind::Compacted { requested: 0, compacted: 1, .. });
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
    let granted = store.lease_grant(7, Duration::from_secs(60))?;
    assert_eq!((granted.id, granted.ttl, granted.revision), (7, 60, 1));
    refused!(store.lease_grant(7, Duration::from_secs(60)), ErrorKind::LeaseExists { lease: 7 });
    for ttl in [1, 0, -5] {
        assert_eq!(store.lease_grant_with(LeaseGrantRequest::new(0, ttl))?.ttl, 2);
    }
    let short = LeaseGrantRequest { ttl_min: 1, ..LeaseGrantRequest::new(8, 1) };
    assert_eq!(store.lease_grant_with(short)?.ttl, 1);
    assert_eq!(store.lease_grant(11, Duration::from_millis(2_001))?.ttl, 3);
    assert_eq!(store.lease_grant(9, Duration::from_secs(9_000_000_000))?.ttl, 9_000_000_000);
    refused!(
        store.lease_grant(10, Duration::from_secs(9_000_000_001)),
        ErrorKind::LeaseTtlTooLarge { .. }
    );
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
    assert_eq!(leases.len(), 7);
    assert!(leases.iter().all(|lease| lease.id > 0));
    assert_eq!(store.revision(), 1);
    Ok(())
}

#[test]
fn revoking_deletes_the_keys_in_byte_order_at_one_revision() -> Result<()> {
    let store = fresh();
    store.lease_grant(7, Duration::from_secs(60))?;
    store.lease_grant(8, Duration::from_secs(60))?;
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
    store.lease_grant(7, Duration::from_secs(60))?;
    assert_eq!(store.lease_revoke(7)?.revision, 2);
    assert_eq!(store.lease_list()?, []);
    Ok(())
}

#[test]
fn negative_lease_ids_are_leases_too() -> Result<()> {
    let store = fresh();
    for id in [-1, i64::MIN, i64::MAX, 1] {
        store.lease_grant(id, Duration::from_secs(60))?;
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
    store.lease_grant(7, Duration::from_secs(60))?;
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
    refused!(revisions(2..5), ErrorKind::Compacted { requested: 2, compacted: 3, .. });
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
