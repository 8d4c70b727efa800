//! Threads that want different things of one lease: exactly one gets its way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use annals::clock::ManualClock;
use annals::vfs::{CrashMode, MemoryVfs};
use annals::{Options, Store};

use super::support::{DIRECTORY, START_TIME};
use super::{SECOND, attach, found, grant, settle};

fn open(disk: &MemoryVfs, clock: &Arc<ManualClock>) -> Store {
    let options = Options::new().background(false).memtable_bytes(1 << 20).wal_bytes(1 << 20);
    let clock: Arc<ManualClock> = Arc::clone(clock);
    options.vfs(Arc::new(disk.clone())).clock(clock).open(DIRECTORY).unwrap()
}

fn fresh() -> (MemoryVfs, Arc<ManualClock>, Store) {
    let (disk, clock) = (MemoryVfs::new(), Arc::new(ManualClock::new(START_TIME)));
    let store = open(&disk, &clock);
    (disk, clock, store)
}

/// Does background work in a thread of its own while something else is done.
fn beside_work<T>(store: &Store, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                settle(store);
                std::thread::yield_now();
            }
        });
        let answer = work();
        is_over.store(true, Ordering::Release);
        answer
    })
}

#[test]
fn a_lease_is_either_renewed_or_ended() {
    let (_, clock, store) = fresh();
    let (mut renewed, mut ended) = (0, 0);
    for round in 0..200_i64 {
        grant(&store, 7, 10).unwrap();
        attach(&store, "key", 7).unwrap();
        clock.advance(10 * SECOND - 1);
        let answers = beside_work(&store, || {
            std::thread::scope(|scope| {
                let renewals = [0, 1].map(|_| {
                    scope.spawn(|| {
                        let ttl = found(store.lease_keep_alive(7));
                        // Whoever is told that it has ended does not find its key any more.
                        assert!(ttl.is_some() || store.get("key").unwrap().is_none());
                        ttl
                    })
                });
                if round % 2 == 0 {
                    std::thread::yield_now();
                }
                clock.advance(1);
                renewals.map(|renewal| renewal.join().unwrap())
            })
        });
        settle(&store);
        let lives = store.lease_info(7, true).unwrap().is_some();
        assert_eq!(store.get("key").unwrap().is_some(), lives);
        // One that was renewed in time is there, and one that was late has ended.
        assert_eq!(answers.iter().any(Option::is_some), lives, "round {round}: {answers:?}");
        assert!(!lives || answers.iter().all(Option::is_some), "round {round}: {answers:?}");
        if lives {
            renewed += 1;
            store.lease_revoke(7).unwrap();
        } else {
            ended += 1;
        }
    }
    println!("{renewed} renewed, {ended} ended");
    assert_eq!(store.stats().leases, 0);
    assert_eq!(store.stats().leases_expired, ended);
}

#[test]
fn a_renewed_lease_has_all_its_time_after_a_crash_whatever_was_written_down_beside() {
    let (disk, clock, store) = fresh();
    for id in 1..=40 {
        grant(&store, id, 600).unwrap();
    }
    for round in 0..150 {
        // Long enough for all to be written down, by the thread beside this.
        clock.advance(60 * SECOND);
        let id = 1 + round % 40;
        beside_work(&store, || assert_eq!(store.lease_keep_alive(id).unwrap(), 600));
        let image = disk.crash(1, CrashMode::LoseAll);
        let again = open(&image, &clock);
        let left = again.lease_time_to_live(id, false).unwrap().unwrap().remaining;
        assert_eq!(left.as_secs(), 600, "round {round}");
        for id in 1..=40 {
            assert_eq!(store.lease_keep_alive(id).unwrap(), 600);
        }
    }
}

#[test]
fn a_lease_is_revoked_or_ended_or_granted_anew_by_one_of_many() {
    let (_, clock, store) = fresh();
    for round in 0..150 {
        grant(&store, 7, 1).unwrap();
        attach(&store, "key", 7).unwrap();
        clock.advance(SECOND - 1);
        let deleted = beside_work(&store, || {
            std::thread::scope(|scope| {
                let revokes = [0, 1].map(|_| scope.spawn(|| found(store.lease_revoke(7))));
                let grants = [0, 1].map(|_| scope.spawn(|| grant(&store, 7, 60).is_ok()));
                clock.advance(1);
                let granted = grants.map(|grant| grant.join().unwrap());
                let revoked = revokes.map(|revoke| revoke.join().unwrap());
                let deleted = revoked.iter().flatten().filter(|it| !it.deleted.is_empty()).count();
                (deleted, granted)
            })
        });
        let (deleted, granted) = deleted;
        assert!(deleted <= 1, "round {round}: the key was deleted once");
        assert_eq!(store.get("key").unwrap(), None);
        // What is there is known to the clock, and what is not there is not.
        let lives = store.lease_info(7, false).unwrap().is_some();
        assert!(!lives || granted.contains(&true));
        assert_eq!(store.stats().leases, u64::from(lives), "round {round}");
        assert_eq!(found(store.lease_keep_alive(7)).is_some(), lives);
        clock.advance(60 * SECOND);
        settle(&store);
        assert_eq!(store.lease_list().unwrap(), [], "round {round}");
    }
}
