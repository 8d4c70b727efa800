//! The room, by a clock that a test moves.

mod claims;
mod notes;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::table::{Renewal, Table};
use super::{leases, queue};
use crate::clock::ManualClock;
use crate::error::ErrorKind;
use crate::kv::{Lease, LeaseGrantRequest, PutRequest, Store};
use crate::options::Options;
use crate::vfs::{Fault, FaultVfs, MemoryVfs, Operation};

const SECOND: i64 = 1_000_000;

fn options() -> (Options, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000_000));
    let vfs = Arc::new(MemoryVfs::new());
    (Options::new().vfs(vfs).clock(clock.clone()).background(false), clock)
}

fn granted(store: &Store, id: i64, ttl: i64) -> Lease {
    let request = LeaseGrantRequest { ttl_min: 1, ..LeaseGrantRequest::new(id, ttl) };
    let lease = store.lease_grant_with(request).unwrap();
    store.put_with(PutRequest::new(format!("/of/{id}"), "").lease(id)).unwrap();
    lease
}

fn settle(store: &Store) {
    while store.run_background().unwrap() {}
}

fn lives(store: &Store, id: i64) -> bool {
    let key = store.get(format!("/of/{id}")).unwrap().is_some();
    assert_eq!(store.lease_info(id, false).unwrap().is_some(), key, "lease {id} and its key");
    key
}

fn not_found<T: std::fmt::Debug>(answer: crate::Result<T>, id: i64) {
    let kind = answer.unwrap_err().into_kind();
    assert!(matches!(kind, ErrorKind::LeaseNotFound { lease } if lease == id), "{kind:?}");
}

#[test]
fn a_lease_ends_at_its_time_and_not_before() {
    let (options, clock) = options();
    let store = options.open("store").unwrap();
    granted(&store, 7, 2);
    granted(&store, 8, 3);
    store.put_with(PutRequest::new("/another", "").lease(7)).unwrap();
    store.put("/free", "").unwrap();
    // The queue tells ticks, and looks at a lease before its end.
    let next = store.stats().lease_next_micros;
    assert!(next.is_some_and(|next| next <= 2_000_000), "{next:?}");
    clock.advance(2 * SECOND - 1);
    settle(&store);
    assert!(lives(&store, 7));
    clock.advance(1);
    settle(&store);
    assert!(!lives(&store, 7) && lives(&store, 8));
    // Both keys at one revision, as a log tells it.
    let told: Vec<_> = store.log(6..).collect::<Result<_, _>>().unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].revision, told[0].changes.len()), (6, 2));
    clock.advance(SECOND);
    settle(&store);
    assert!(!lives(&store, 8) && store.get("/free").unwrap().is_some());
    let stats = store.stats();
    assert_eq!((stats.leases, stats.leases_expired, stats.lease_overdue_micros), (0, 2, 0));
    assert!(!store.run_background().unwrap());
}

#[test]
fn a_renewed_lease_has_all_of_its_time_again() {
    let (options, clock) = options();
    let store = options.open("store").unwrap();
    granted(&store, 7, 10);
    for _ in 0..50 {
        clock.advance(9 * SECOND);
        settle(&store);
        assert_eq!(store.lease_keep_alive(7).unwrap(), 10);
        let status = store.lease_time_to_live(7, true).unwrap().unwrap();
        assert_eq!((status.remaining, status.granted_ttl), (Duration::from_secs(10), 10));
        assert_eq!(status.keys, ["/of/7"]);
    }
    assert_eq!(store.stats().lease_renewals, 50);
    clock.advance(4 * SECOND);
    let left = store.lease_time_to_live(7, false).unwrap().unwrap().remaining;
    assert_eq!(left, Duration::from_secs(6));
    clock.advance(6 * SECOND);
    settle(&store);
    assert!(!lives(&store, 7));
    not_found(store.lease_keep_alive(7), 7);
    assert_eq!(store.lease_time_to_live(7, true).unwrap(), None);
}

#[test]
fn a_late_renewal_waits_for_the_end_and_finds_nothing() {
    let (options, clock) = options();
    let store = options.open("store").unwrap();
    granted(&store, 7, 2);
    clock.advance(2 * SECOND);
    assert!(lives(&store, 7), "nobody has looked yet");
    assert_eq!(store.lease_time_to_live(7, false).unwrap().unwrap().remaining, Duration::ZERO);
    not_found(store.lease_keep_alive(7), 7);
    assert!(!lives(&store, 7));
    settle(&store);
    assert_eq!(store.stats().leases_expired, 1);
    // The id is free again.
    granted(&store, 7, 5);
    clock.advance(3 * SECOND);
    settle(&store);
    assert!(lives(&store, 7), "it is another lease");
}

#[test]
fn a_revoked_lease_is_not_renewed_and_its_id_can_be_granted_again() {
    let (options, clock) = options();
    let store = options.open("store").unwrap();
    for _ in 0..3 {
        granted(&store, 7, 2);
        not_granted_twice(&store);
        clock.advance(SECOND);
        assert_eq!(store.lease_revoke(7).unwrap().deleted, ["/of/7"]);
        not_found(store.lease_revoke(7), 7);
        not_found(store.lease_keep_alive(7), 7);
        assert_eq!(store.stats().leases, 0);
    }
    granted(&store, 7, 60);
    clock.advance(30 * SECOND);
    settle(&store);
    assert!(lives(&store, 7));
}

#[test]
fn a_lease_with_other_keys_than_those_given_lives_on() {
    let (options, clock) = options();
    let store = options.open("store").unwrap();
    not_found(store.lease_revoke_only(7, &["/of/7"]), 7);
    granted(&store, 7, 2);
    store.put_with(PutRequest::new("/another", "").lease(7)).unwrap();
    for keys in [&["/of/7"][..], &["/another", "/of/8"], &[]] {
        assert_eq!(store.lease_revoke_only(7, keys).unwrap(), None, "{keys:?}");
    }
    assert_eq!(store.revision(), 3);
    // Its time goes on, and it can be renewed.
    clock.advance(SECOND);
    assert_eq!(store.lease_keep_alive(7).unwrap(), 2);
    clock.advance(SECOND);
    settle(&store);
    assert!(lives(&store, 7));
    // A key that has another lease since is none of it.
    granted(&store, 8, 60);
    store.put_with(PutRequest::new("/another", "").lease(8)).unwrap();
    let revoked = store.lease_revoke_only(7, &["/of/8", "/of/7"]).unwrap().expect("no other");
    assert_eq!((revoked.deleted, revoked.revision), (vec!["/of/7".into()], 6));
    assert!(!lives(&store, 7) && lives(&store, 8));
    not_found(store.lease_keep_alive(7), 7);
    assert!(store.get("/another").unwrap().is_some());
}

fn not_granted_twice(store: &Store) {
    let kind = store.lease_grant(7, Duration::from_secs(60)).unwrap_err().into_kind();
    assert!(matches!(kind, ErrorKind::LeaseExists { lease: 7 }), "{kind:?}");
}

#[test]
fn what_is_left_survives_a_close() {
    let (options, clock) = options();
    let mut store = options.open("store").unwrap();
    for (id, ttl) in [(7, 100), (8, 100), (9, 3)] {
        granted(&store, id, ttl);
    }
    for n in 1..=9 {
        clock.advance(10 * SECOND);
        store.lease_keep_alive(8).unwrap();
        store.close().unwrap();
        clock.advance(1000 * SECOND);
        store = options.open("store").unwrap();
        let left = |id| store.lease_time_to_live(id, false).unwrap().map(|s| s.remaining.as_secs());
        assert_eq!((left(7), left(8)), (Some(100 - 10 * n), Some(100)));
        settle(&store);
        assert!(lives(&store, 7) && lives(&store, 8) && !lives(&store, 9));
    }
    // Of a reader no time passes.
    let reader = Store::open_read_only_with("store", &options).unwrap();
    clock.advance(9 * SECOND);
    let left = reader.lease_time_to_live(7, true).unwrap().unwrap();
    assert_eq!((left.remaining.as_secs(), left.keys.len()), (10, 1));
    let kind = reader.lease_keep_alive(7).unwrap_err().into_kind();
    assert!(matches!(kind, ErrorKind::ReadOnly), "{kind:?}");
    settle(&store);
    assert!(lives(&store, 7));
    clock.advance(SECOND);
    settle(&store);
    assert!(!lives(&store, 7) && lives(&store, 8));
}

#[test]
fn a_lease_lives_one_interval_longer_after_a_crash_at_most() {
    let (options, clock) = options();
    let disk = MemoryVfs::new();
    let mut options = options.vfs(Arc::new(disk.clone())).lease_checkpoint_interval_seconds(10);
    let mut store = options.open("store").unwrap();
    granted(&store, 7, 100);
    let mut image = disk;
    let mut left = 100;
    for _ in 0..3 {
        for _ in 0..25 {
            clock.advance(SECOND);
            settle(&store);
            left -= 1;
        }
        image = image.crash(1, crate::vfs::CrashMode::LoseAll);
        options = options.vfs(Arc::new(image.clone()));
        drop(store);
        store = options.open("store").unwrap();
        let after = store.lease_time_to_live(7, false).unwrap().unwrap().remaining.as_secs();
        assert!((left..=left + 10).contains(&after), "{after} s, not {left}");
        left = after;
    }
}

#[test]
fn a_guard_keeps_its_lease_and_its_drop_does_not_end_it() {
    let (options, clock) = options();
    let store = options.open("store").unwrap();
    let guard = store.lease(Duration::from_millis(2_500)).unwrap();
    assert_eq!(guard.ttl(), 3);
    store.put_with(PutRequest::new("a", "").lease(guard.id())).unwrap();
    let there = || {
        settle(&store);
        store.get("a").unwrap().is_some()
    };
    for _ in 0..20 {
        clock.advance(SECOND);
        assert!(there());
    }
    // Also where nobody looked in time: as long as it lives, so does the lease.
    clock.advance(100 * SECOND);
    assert_eq!(store.lease_keep_alive(guard.id()).unwrap(), 3);
    assert!(there());
    drop(guard);
    clock.advance(2 * SECOND);
    assert!(there());
    clock.advance(SECOND);
    assert!(!there());
    let guard = store.lease(Duration::from_secs(3)).unwrap();
    store.put_with(PutRequest::new("a", "").lease(guard.id())).unwrap();
    assert_eq!(guard.revoke().unwrap().deleted, ["a"]);
}

#[test]
fn a_guard_tells_whether_its_lease_is_alive() {
    let (options, clock) = options();
    let faulty = FaultVfs::new(Arc::new(MemoryVfs::new()));
    let options = options.vfs(Arc::new(faulty.clone()));
    let store = options.open("store").unwrap();
    let guard = store.lease(Duration::from_secs(3)).unwrap();
    let kept = store.lease(Duration::from_secs(3)).unwrap();
    assert!(guard.is_alive().unwrap());
    // Long after its time, before and after anybody has looked: others end then, and it does not.
    granted(&store, 7, 2);
    clock.advance(100 * SECOND);
    assert!(guard.is_alive().unwrap());
    settle(&store);
    assert!(guard.is_alive().unwrap() && !lives(&store, 7));

    let id = guard.id();
    store.clone().lease_revoke(id).unwrap();
    assert!(!guard.is_alive().unwrap() && kept.is_alive().unwrap());
    // Another one with its id is none of its own, and is left alone.
    granted(&store, id, 60);
    assert!(!guard.is_alive().unwrap());
    drop(guard);
    assert!(lives(&store, id));

    // Who might have been revoked is not told that it lives.
    faulty.fail(Some(Operation::Sync), faulty.op_count_of(Operation::Sync), Fault::Io, false);
    store.lease_revoke(kept.id()).unwrap_err();
    let error = kept.is_alive().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Poisoned { .. }), "{error}");
    store.close().unwrap_err();
    let error = kept.is_alive().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed), "{error}");
}

#[test]
fn where_expiry_is_off_a_guard_asks_the_record() {
    let (options, clock) = options();
    let store = options.lease_expiry(false).open("store").unwrap();
    let guard = store.lease(Duration::from_secs(3)).unwrap();
    clock.advance(100 * SECOND);
    settle(&store);
    assert!(guard.is_alive().unwrap());
    store.lease_revoke(guard.id()).unwrap();
    assert!(!guard.is_alive().unwrap());
    store.close().unwrap();
    let error = guard.is_alive().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed), "{error}");
}

#[test]
fn where_expiry_is_off_leases_are_state() {
    let (options, clock) = options();
    let store = options.clone().lease_expiry(false).open("store").unwrap();
    granted(&store, 7, 2);
    clock.advance(1000 * SECOND);
    settle(&store);
    assert!(lives(&store, 7));
    assert_eq!(store.lease_keep_alive(7).unwrap(), 2);
    not_found(store.lease_keep_alive(8), 8);
    assert_eq!(store.stats().leases, 0);
    let left = store.lease_time_to_live(7, false).unwrap().unwrap().remaining;
    assert_eq!(left.as_secs(), 2);
    store.close().unwrap();
    // Its time begins when somebody keeps it.
    let store = options.open("store").unwrap();
    settle(&store);
    assert!(lives(&store, 7));
    clock.advance(2 * SECOND);
    settle(&store);
    assert!(!lives(&store, 7));
}

#[test]
fn a_call_about_a_lease_comes_before_it_is_loaded() {
    let (options, clock) = options();
    let store = options.open("store").unwrap();
    for id in 1..=4 {
        granted(&store, id, 10);
    }
    clock.advance(4 * SECOND);
    store.close().unwrap();
    let store = options.open("store").unwrap();
    assert_eq!(store.lease_keep_alive(1).unwrap(), 10);
    store.lease_revoke(2).unwrap();
    not_found(store.lease_keep_alive(2), 2);
    store.lease_revoke(3).unwrap();
    granted(&store, 3, 8);
    clock.advance(6 * SECOND);
    settle(&store);
    assert_eq!([1, 2, 3, 4].map(|id| lives(&store, id)), [true, false, true, false]);
    clock.advance(2 * SECOND);
    settle(&store);
    assert_eq!([1, 2, 3].map(|id| lives(&store, id)), [true, false, false]);
    assert_eq!(store.stats().leases, 1);
}

#[test]
fn leases_are_listed_by_id_one_after_the_other() {
    let (options, _) = options();
    let store = options.open("store").unwrap();
    assert_eq!(store.leases().count(), 0);
    let ids = [i64::MIN, -3, 1, 2, 300, i64::MAX];
    for id in ids.iter().rev() {
        granted(&store, *id, 10);
    }
    let mut leases = store.leases();
    assert_eq!(leases.next().unwrap().unwrap().id, i64::MIN);
    // They are of one moment.
    store.lease_revoke(300).unwrap();
    let rest: Vec<i64> = leases.map(|lease| lease.unwrap().id).collect();
    assert_eq!(rest, ids[1..]);
    assert_eq!(store.lease_list().unwrap().len(), 5);
    store.clone().close().unwrap();
    let mut closed = store.leases();
    assert!(closed.next().unwrap().is_err() && closed.next().is_none());
}

#[test]
fn whoever_finds_a_lease_claimed_waits() {
    let clock = Arc::new(ManualClock::new(0));
    let table = Arc::new(Table::new(clock, 0));
    let value = annals_format::lease::Value { ttl: 10, remaining: None };
    assert_eq!(table.renew(7), Renewal::Unknown);
    table.claim(7).put(value, 0, false);
    for is_removed in [false, true] {
        let claim = table.claim(7);
        let (began, has_begun) = mpsc::channel();
        let its_own = Arc::clone(&table);
        let waiting = std::thread::spawn(move || {
            began.send(()).unwrap();
            its_own.renew(7)
        });
        has_begun.recv().unwrap();
        std::thread::yield_now();
        assert!(!waiting.is_finished());
        if is_removed {
            claim.remove();
        } else {
            drop(claim);
        }
        let expected = if is_removed { Renewal::Unknown } else { Renewal::Done(10) };
        assert_eq!(waiting.join().unwrap(), expected);
    }
    assert_eq!(table.counts(), (0, 1));
}

#[test]
fn what_is_left_in_the_queue_of_revoked_leases_goes() {
    let (options, clock) = options();
    let store = options.open("store").unwrap();
    for id in 1..=100 {
        granted(&store, id, 1_000_000);
        store.lease_revoke(id).unwrap();
    }
    let table = &leases(&store).unwrap().table;
    assert!(table.until_next().is_some());
    clock.advance(60 * SECOND + queue::TICK_MICROS);
    settle(&store);
    assert_eq!(table.until_next(), None);
}
