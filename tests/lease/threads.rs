//! The background thread.

use std::sync::Arc;
use std::time::Duration;

use annals::clock::ManualClock;
use annals::vfs::MemoryVfs;
use annals::{ErrorKind, Options, Store};

use super::support::watchdog::Watchdog;
use super::support::{DIRECTORY, START_TIME};
use super::{SECOND, TICK, attach, found, grant};

/// Long enough for anything.
const LONG: Duration = Duration::from_secs(120);

fn open() -> (Options, Arc<ManualClock>, Store) {
    let clock = Arc::new(ManualClock::new(START_TIME));
    let options = Options::new().vfs(Arc::new(MemoryVfs::new())).clock(clock.clone());
    let options = options.memtable_bytes(1 << 20).wal_bytes(1 << 20);
    let store = options.open(DIRECTORY).unwrap();
    (options, clock, store)
}

/// Waits for something that must come.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let watchdog = Watchdog::new(LONG);
    watchdog.begin(what);
    while !is_so() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_thread_ends_what_is_due() {
    let (options, clock, mut store) = open();
    for round in 1..=3 {
        for id in 1..=100 {
            grant(&store, id, 10).unwrap();
            attach(&store, &format!("{id}"), id).unwrap();
        }
        store.lease_keep_alive(100).unwrap();
        clock.advance(10 * SECOND + TICK);
        until("all have ended", || store.lease_list().unwrap().is_empty());
        assert_eq!(store.latest().unwrap().count(..).unwrap(), 0);
        // Also of those that were there on opening.
        grant(&store, 1000, 10).unwrap();
        clock.advance(4 * SECOND);
        store.close().unwrap();
        store = options.open(DIRECTORY).unwrap();
        until("it is loaded", || store.stats().leases == 1);
        clock.advance(6 * SECOND - 1);
        assert!(store.lease_info(1000, false).unwrap().is_some(), "round {round}");
        clock.advance(SECOND);
        until("it has ended", || store.lease_info(1000, false).unwrap().is_none());
    }
}

#[test]
fn a_guard_lives_in_the_thread() {
    let (_, clock, store) = open();
    let guard = store.lease(Duration::from_secs(3)).unwrap();
    attach(&store, "key", guard.id()).unwrap();
    for _ in 0..20 {
        clock.advance(SECOND);
        let left = || store.lease_time_to_live(guard.id(), false).unwrap().unwrap().remaining;
        until("it is renewed", || left() == Duration::from_secs(3));
    }
    assert!(store.get("key").unwrap().is_some());
    drop(guard);
    clock.advance(3 * SECOND + TICK);
    until("it has ended", || store.get("key").unwrap().is_none());
}

#[test]
fn no_thread_keeps_a_store_open_nor_a_close_waiting() {
    let (options, clock, mut store) = open();
    for round in 0..20 {
        for id in 1..=300 {
            drop(grant(&store, id, 10));
            let _ = found(attach(&store, &format!("{id}"), id));
        }
        // In the middle of many ends, of handles that renew, and of a guard.
        let guard = store.lease(Duration::from_secs(100)).unwrap();
        clock.advance(10 * SECOND);
        let watchdog = Watchdog::new(LONG);
        watchdog.begin("the store is closed");
        if round % 2 == 0 {
            let others = [store.clone(), store.clone()].map(|store| {
                std::thread::spawn(move || {
                    for id in (1..=300).cycle() {
                        match store.lease_keep_alive(id).map_err(annals::Error::into_kind) {
                            Ok(_) | Err(ErrorKind::LeaseNotFound { .. }) => {}
                            Err(ErrorKind::Closed) => break,
                            Err(other) => panic!("{other:?}"),
                        }
                    }
                })
            });
            store.close().unwrap();
            for other in others {
                other.join().unwrap();
            }
            drop(guard);
        } else {
            drop((store, guard));
        }
        // The directory is free, and nothing half done.
        store = options.open(DIRECTORY).unwrap();
        for lease in store.leases() {
            let lease = store.lease_info(lease.unwrap().id, true).unwrap();
            let lease = lease.filter(|lease| lease.id <= 300);
            assert!(lease.is_none_or(|lease| lease.keys.len() == 1));
        }
    }
}

#[test]
fn a_dropped_store_writes_down_what_is_left() {
    let (options, clock, store) = open();
    grant(&store, 7, 100).unwrap();
    clock.advance(30 * SECOND);
    drop(store);
    let store = options.open(DIRECTORY).unwrap();
    let left = store.lease_time_to_live(7, false).unwrap().unwrap().remaining;
    assert_eq!(left.as_secs(), 70);
}
