//! Very many leases at once, and leases with more keys than a transaction may have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use annals::clock::ManualClock;
use annals::vfs::MemoryVfs;
use annals::{Durability, ErrorKind, LeaseGrantRequest, Options, PutRequest, put, txn};

use super::support::{DIRECTORY, START_TIME};
use super::{SECOND, attach, grant, settle};

fn options() -> (Options, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(START_TIME));
    let options = Options::new().background(false).vfs(Arc::new(MemoryVfs::new()));
    (options.clock(clock.clone()).memtable_bytes(8 << 20).wal_bytes(8 << 20), clock)
}

const MANY: u64 = 100_000;

#[test]
fn a_hundred_thousand_leases_end_together_while_others_commit() {
    let (options, clock) = options();
    let store = options.durability(Durability::Buffered).open(DIRECTORY).unwrap();
    for n in 0..MANY {
        let id = i64::try_from(n + 1).unwrap();
        store.lease_grant_with(LeaseGrantRequest::new(id, 30)).unwrap();
        store.put_with(PutRequest::new(format!("session/{n:06}"), "").lease(id)).unwrap();
        if n % 1000 == 0 {
            while store.stats().flush_backlog_bytes > 0 && store.run_background().unwrap() {}
        }
    }
    assert_eq!(store.stats().leases, MANY);
    clock.advance(29 * SECOND);
    settle(&store);
    assert_eq!(store.latest().unwrap().count(..).unwrap(), MANY);
    let before = store.revision();
    clock.advance(2 * SECOND);
    let is_over = AtomicBool::new(false);
    let commits: u64 = std::thread::scope(|scope| {
        let commits = [0, 1].map(|thread| {
            let (store, is_over) = (&store, &is_over);
            scope.spawn(move || {
                let mut count = 0;
                while !is_over.load(Ordering::Acquire) && count < 10_000 {
                    store.put(format!("other/{thread}/{count}"), "").unwrap();
                    count += 1;
                }
                count
            })
        });
        settle(&store);
        is_over.store(true, Ordering::Release);
        commits.map(|commits| commits.join().unwrap()).iter().sum()
    });
    let stats = store.stats();
    assert_eq!((stats.leases, stats.leases_expired), (0, MANY));
    assert_eq!(store.latest().unwrap().prefix("session/").count(), 0);
    assert_eq!(store.latest().unwrap().prefix("other/").count() as u64, commits);
    // One revision each.
    assert_eq!(store.revision(), before + MANY + commits);
    println!("{MANY} ends beside {commits} commits");
}

#[test]
fn ends_share_their_syncs() {
    let (options, clock) = options();
    let store = options.open(DIRECTORY).unwrap();
    for id in 1..=640 {
        grant(&store, id, 30).unwrap();
        attach(&store, &format!("{id}"), id).unwrap();
    }
    clock.advance(30 * SECOND);
    let before = store.stats().batches;
    settle(&store);
    assert_eq!(store.stats().leases_expired, 640);
    assert_eq!(store.stats().batches - before, 40, "16 leases to a sync");
}

#[test]
fn a_lease_with_more_keys_than_a_transaction_may_change_ends_all_the_same() {
    let (options, clock) = options();
    let options = options.transaction_operations_max(4).transaction_bytes_max(4096);
    let store = options.open(DIRECTORY).unwrap();
    for id in [7, 8] {
        grant(&store, id, 30).unwrap();
        for n in 0..100 {
            attach(&store, &format!("{id}/{n:0>200}"), id).unwrap();
        }
    }
    let too_many = store.transact(txn().then((0..5).map(|n| put(format!("{n}"), "")))).unwrap_err();
    assert!(matches!(too_many.kind(), ErrorKind::TooManyOperations { max: 4, .. }), "{too_many}");
    let before = store.revision();
    assert_eq!(store.lease_revoke(8).unwrap().deleted.len(), 100);
    clock.advance(30 * SECOND);
    settle(&store);
    assert_eq!(store.latest().unwrap().count(..).unwrap(), 0);
    assert_eq!(store.revision(), before + 2);
    // What follows is held to the limits again.
    assert!(store.transact(txn().then((0..5).map(|n| put(format!("{n}"), "")))).is_err());
    store.reorganise().unwrap();
    let most = store.log(1..).map(|transaction| transaction.unwrap().changes.len()).max();
    assert_eq!(most, Some(100), "the log tells it as one transaction");
}
