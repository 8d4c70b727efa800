//! Who claims a lease, and what becomes of it when the claim is dropped or its writing fails.

use std::sync::Arc;
use std::time::Duration;

use annals_format::lease::Value;

use crate::clock::ManualClock;
use crate::engine::Attendant;
use crate::error::ErrorKind;
use crate::kv::Store;
use crate::lease::entry::Entry;
use crate::lease::table::{Found, Table};
use crate::lease::{RETRY, leases};
use crate::options::ReadMode;
use crate::vfs::{Fault, FaultVfs, MemoryVfs, Operation};

use super::{SECOND, granted, lives, not_found, options, settle};

const TEN: Value = Value { ttl: 10, remaining: None };

#[test]
fn a_lease_whose_id_is_claimed_by_somebody_who_does_not_know_it_is_not_taken_as_loaded() {
    let table = Table::new(Arc::new(ManualClock::new(0)), 0);
    let removals = table.removals()[Table::part(7)];
    let claim = table.claim(7);
    assert!(!table.adopt(7, Entry::new(TEN, 0), removals));
    drop(claim);
    assert!(table.get(7).is_none());
    assert!(table.adopt(7, Entry::new(TEN, 0), removals) && table.get(7).is_some());
    // One that is known stays what it is.
    let _claim = table.claim(7);
    assert!(table.adopt(7, Entry::new(TEN, 0), removals));
}

#[test]
fn a_due_lease_that_somebody_claims_goes_back_into_the_queue() {
    let clock = Arc::new(ManualClock::new(0));
    let table = Table::new(clock.clone(), 0);
    table.claim(7).put(TEN, 0, false);
    clock.advance(10 * SECOND);
    let mut found = Found::default();
    while table.look(&mut found) {}
    assert_eq!((found.take_due(), table.until_next()), (vec![7], None));
    let claim = table.claim(7);
    assert!(table.claim_due(7, true).is_none());
    drop(claim);
    let next = i64::try_from(table.until_next().unwrap()).unwrap();
    assert!(next <= SECOND / 10, "{next}");
    clock.advance(next);
    while table.look(&mut found) {}
    assert_eq!(found.take_due(), [7]);
    assert!(table.claim_due(7, true).is_some());
}

#[test]
fn nothing_is_renewed_after_a_failed_sync() {
    let (options, _) = options();
    let faulty = FaultVfs::new(Arc::new(MemoryVfs::new()));
    let store = options.vfs(Arc::new(faulty.clone())).open("store").unwrap();
    granted(&store, 7, 10);
    faulty.fail(Some(Operation::Sync), faulty.op_count_of(Operation::Sync), Fault::Io, true);
    store.put("a", "").unwrap_err();
    let kind = store.lease_keep_alive(7).unwrap_err().into_kind();
    assert!(matches!(kind, ErrorKind::Poisoned { .. }), "{kind:?}");
}

#[test]
fn a_store_open_for_reading_only_renews_nothing() {
    let (options, _) = options();
    let store = options.open("store").unwrap();
    granted(&store, 7, 10);
    let reader = Store::open_read_only_with("store", &options).unwrap();
    let kind = reader.lease_keep_alive(7).unwrap_err().into_kind();
    assert!(matches!(kind, ErrorKind::ReadOnly), "{kind:?}");
}

#[test]
fn an_id_whose_lease_is_over_is_free() {
    let (options, clock) = options();
    let store = options.open("store").unwrap();
    granted(&store, 7, 2);
    clock.advance(2 * SECOND);
    store.lease_grant(7, Duration::from_secs(60)).unwrap();
    assert_eq!(store.get("/of/7").unwrap(), None);
    assert_eq!((store.stats().leases, store.stats().leases_expired), (1, 1));
    clock.advance(59 * SECOND);
    settle(&store);
    assert_eq!(store.lease_keep_alive(7).unwrap(), 60);
}

#[test]
fn a_guard_dropped_late_leaves_its_lease_its_time() {
    let (options, clock) = options();
    let store = options.open("store").unwrap();
    let guard = store.lease(Duration::from_secs(3)).unwrap();
    let id = guard.id();
    store.put_with(crate::kv::PutRequest::new(format!("/of/{id}"), "").lease(id)).unwrap();
    // Nobody looks.
    clock.advance(100 * SECOND);
    drop(guard);
    settle(&store);
    assert!(lives(&store, id));
    clock.advance(3 * SECOND);
    settle(&store);
    assert!(!lives(&store, id));
    not_found(store.lease_keep_alive(id), id);
}

#[test]
fn a_lease_that_cannot_be_ended_keeps_no_other_waiting() {
    let (options, clock) = options();
    let faulty = FaultVfs::new(Arc::new(MemoryVfs::new()));
    let options = options.vfs(Arc::new(faulty.clone())).read_mode(ReadMode::Pread).cache_bytes(0);
    let store = options.open("store").unwrap();
    let many = 1..=200;
    many.clone().for_each(|id| drop(granted(&store, id, 2)));
    store.reorganise().unwrap();
    clock.advance(2 * SECOND);
    let room = leases(&store).unwrap();
    let of_the_first = faulty.op_count_of(Operation::Read);
    faulty.fail(Some(Operation::Read), of_the_first, Fault::Io, false);
    // One call of the thread's duty: it sleeps only when all that can be ended has ended.
    let again = room.work(&Attendant::default());
    assert_eq!(many.clone().filter(|id| lives(&store, *id)).count(), 1);
    assert!(again.is_some_and(|pause| pause <= RETRY), "{again:?}");
    clock.advance(2 * SECOND);
    assert_eq!(room.work(&Attendant::default()), None);
    assert_eq!(many.filter(|id| lives(&store, *id)).count(), 0);
}

#[test]
fn an_id_is_free_when_its_lease_is_over_that_was_not_loaded_yet() {
    let (options, clock) = options();
    let store = options.open("store").unwrap();
    granted(&store, 7, 2);
    store.close().unwrap();
    let store = options.open("store").unwrap();
    clock.advance(2 * SECOND);
    // Nothing was loaded: nobody ran what runs in the background.
    store.lease_grant(7, Duration::from_secs(60)).unwrap();
    assert_eq!(store.get("/of/7").unwrap(), None);
    assert_eq!(store.lease_keep_alive(7).unwrap(), 60);
    // One that is not over is left as it is.
    store.close().unwrap();
    let store = options.open("store").unwrap();
    let kind = store.lease_grant(7, Duration::from_secs(60)).unwrap_err().into_kind();
    assert!(matches!(kind, ErrorKind::LeaseExists { lease: 7 }), "{kind:?}");
}
