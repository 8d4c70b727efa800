//! Writers that are faster than flush: commits slow down, wait only where no memory is left, and
//! what they do shows in the figures.
//!
//! Time decides nothing here: segment files are written when the test says so, or slowly. That one
//! pause is bounded is tested where it is computed, in `engine/pressure.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use annals::clock::{Clock, ManualClock};
use annals::vfs::{Fault, FaultVfs, MemoryVfs, Operation};
use annals::{Durability, ErrorKind, Options, Store};
use support::gate::{self, GateVfs};
use support::watchdog::Watchdog;
use support::{DIRECTORY, open_tiny, tiny};

/// The generation that takes the writes, two that wait for their flush, and one more, which has
/// just become full.
const GENERATIONS_MAX: u64 = 4;

const MEMTABLE_BYTES: u64 = 16 << 10;

struct Setup {
    disk: MemoryVfs,
    faulty: FaultVfs,
    gate: GateVfs,
    store: Store,
    /// Ends the process if the case hangs; dropped with the case.
    watchdog: Watchdog,
}

/// A store that is flushed by its own thread, through the gate.
fn setup(case: &str, change: impl FnOnce(Options) -> Options) -> Setup {
    let watchdog = Watchdog::new(Duration::from_secs(60));
    watchdog.begin(case);
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    let gate = GateVfs::new(Arc::new(faulty.clone()), gate::segments);
    let options = tiny(Arc::new(gate.clone()), Arc::new(ManualClock::new(support::START_TIME)))
        .memtable_bytes(MEMTABLE_BYTES)
        // The log has room for all that is in memory.
        .wal_bytes(4 << 20)
        .durability(Durability::Buffered)
        .background(true);
    let store = change(options).open(Path::new(DIRECTORY)).unwrap();
    Setup { disk, faulty, gate, store, watchdog }
}

/// Writes, in a thread, until the store refuses; counts what it has acknowledged.
fn writer(store: &Store) -> (Arc<AtomicU64>, JoinHandle<ErrorKind>) {
    let (store, acknowledged) = (store.clone(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&acknowledged);
    let thread = thread::spawn(move || {
        loop {
            match store.put("key", [7; 200]) {
                Ok(_) => count.fetch_add(1, Ordering::SeqCst),
                Err(error) => return error.into_kind(),
            };
        }
    });
    (acknowledged, thread)
}

/// Fills the two generations that may wait for their flush, which stands still, and lets so much
/// time pass that flush is seen to be slow.
fn fall_behind(gate: &GateVfs, store: &Store) -> u64 {
    gate.shut();
    let mut commits = 0;
    while store.stats().generations < GENERATIONS_MAX - 1 {
        store.put("key", [7; 200]).unwrap();
        commits += 1;
    }
    thread::sleep(Duration::from_millis(30));
    commits
}

/// Returns when a commit waits for a flush that does not come.
fn wait_until_one_waits(store: &Store) {
    while store.stats().waits == 0 {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn commits_slow_down_and_all_of_them_finish() {
    const WRITERS: u64 = 8;
    const COMMITS: u64 = 400;
    let Setup { watchdog: _watchdog, disk, gate, store, .. } =
        setup("slow segments", |options| options);
    gate.slow(Duration::from_millis(1));
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || {
                for n in 0..COMMITS {
                    store.put(format!("{writer}/{}", n % 40), [7; 200]).unwrap();
                    let stats = store.stats();
                    assert!(stats.generations <= GENERATIONS_MAX, "{stats:?}");
                    assert!(stats.memtable_bytes <= GENERATIONS_MAX * 2 * MEMTABLE_BYTES);
                    assert!(stats.flush_backlog_bytes <= stats.memtable_bytes);
                }
            });
        }
    });
    let stats = store.stats();
    assert_eq!(stats.revision, 1 + WRITERS * COMMITS);
    assert!(stats.flushes > 10, "{stats:?}");
    assert!(stats.delays > 0 && stats.delay_micros > 0, "{stats:?}");
    gate.slow(Duration::ZERO);
    store.close().unwrap();
    let store = open_tiny(Arc::new(disk)).unwrap();
    assert_eq!(store.revision(), 1 + WRITERS * COMMITS);
}

#[test]
fn a_flush_that_stands_still_slows_commits_and_then_stops_them() {
    let Setup { watchdog: _watchdog, gate, store, .. } = setup("a shut gate", |options| options);
    let free = fall_behind(&gate, &store);
    // Of those commits only the last one came with two generations waiting.
    assert!(store.stats().delays <= 1, "two generations are filled freely");
    let (acknowledged, thread) = writer(&store);
    wait_until_one_waits(&store);
    let stats = store.stats();
    // And the third one slowly.
    assert_eq!((stats.generations, stats.flushes), (GENERATIONS_MAX, 0), "{stats:?}");
    assert!(stats.flush_backlog_bytes > 2 * MEMTABLE_BYTES, "{stats:?}");
    assert!(stats.delays > 0 && stats.delay_micros > 0, "{stats:?}");
    assert_eq!(stats.waits, 1);
    let before = acknowledged.load(Ordering::SeqCst);
    assert!(before >= free / 3, "{before} commits in the last generation, {free} in two");
    gate.open();
    while acknowledged.load(Ordering::SeqCst) < 5 * before {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(store.stats().flushes > 0);
    store.close().unwrap();
    assert!(matches!(thread.join().unwrap(), ErrorKind::Closed));
}

#[test]
fn nothing_is_slowed_while_flush_keeps_up() {
    let Setup { watchdog: _watchdog, store, .. } = setup("no pressure", |options| options);
    let mut n = 0;
    while store.stats().flushes < 4 {
        n += 1;
        store.put(format!("{}", n % 10), [7; 200]).unwrap();
        while store.stats().flush_backlog_bytes > 0 {
            thread::yield_now();
        }
    }
    let stats = store.stats();
    assert_eq!((stats.delays, stats.delay_micros, stats.waits, stats.wait_micros), (0, 0, 0, 0));
    assert_eq!((stats.generations, stats.flush_backlog_bytes), (1, 0));
}

#[test]
fn a_commit_that_waits_learns_that_the_flush_has_failed() {
    let Setup { watchdog: _watchdog, disk, faulty, gate, store, .. } =
        setup("a failed flush", |options| options);
    gate.shut();
    let (acknowledged, thread) = writer(&store);
    wait_until_one_waits(&store);
    gate.wait_until_held();
    let acknowledged = acknowledged.load(Ordering::SeqCst);
    // What stands before the gate is the first write or sync of the segment.
    for kind in [Operation::Write, Operation::Sync] {
        faulty.fail(Some(kind), faulty.op_count_of(kind), Fault::Io, true);
    }
    gate.open();
    assert!(matches!(thread.join().unwrap(), ErrorKind::Poisoned { .. }));
    assert!(store.stats().failure.is_some());
    // Reads go on, and nothing that was durable is lost.
    assert!(store.latest().unwrap().get("key").unwrap().is_some());
    let durable = store.durable_revision();
    assert!(durable <= 1 + acknowledged);
    drop(store);
    faulty.heal();
    assert!(open_tiny(Arc::new(disk)).unwrap().revision() >= durable);
}

#[test]
fn a_commit_that_waits_ends_when_the_store_is_closed() {
    let Setup { watchdog: _watchdog, gate, store, .. } =
        setup("closed meanwhile", |options| options);
    gate.shut();
    let (acknowledged, thread) = writer(&store);
    wait_until_one_waits(&store);
    let closing = thread::spawn(move || store.close());
    // Close itself waits for the thread that stands before the gate; the commit does not.
    assert!(matches!(thread.join().unwrap(), ErrorKind::Closed));
    gate.open();
    closing.join().unwrap().unwrap();
    assert!(acknowledged.load(Ordering::SeqCst) > 0);
}

#[test]
fn without_a_background_thread_commits_flush_themselves() {
    let Setup { watchdog: _watchdog, store, .. } =
        setup("no worker", |options| options.background(false));
    thread::scope(|scope| {
        for writer in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..200 {
                    store.put(format!("{writer}/{n}"), [7; 200]).unwrap();
                    assert!(store.stats().generations <= GENERATIONS_MAX);
                }
            });
        }
    });
    let stats = store.stats();
    assert!(stats.waits > 0 && stats.flushes > 0, "{stats:?}");
    assert_eq!((stats.delays, stats.delay_micros), (0, 0), "a pause would help nobody");
}

/// A clock that keeps a number of those who ask for the time until all of them have come. A commit
/// asks when it has found room and been evaluated, and has no place yet.
#[derive(Debug)]
struct Rendezvous {
    start: Barrier,
    /// How many are still to come.
    left: AtomicU64,
}

impl Clock for Rendezvous {
    fn now_micros(&self) -> i64 {
        let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
        if self.left.fetch_update(success, failure, |left| left.checked_sub(1)).is_ok() {
            self.start.wait();
        }
        support::START_TIME
    }

    fn elapsed_micros(&self) -> i64 {
        0
    }
}

#[test]
fn memory_is_bounded_when_many_writers_find_room_at_once() {
    const WRITERS: u64 = 64;
    const VALUE: &[u8] = &[7; 64 << 10];
    let clock = Arc::new(Rendezvous {
        start: Barrier::new(usize::try_from(WRITERS).unwrap()),
        left: AtomicU64::new(0),
    });
    let Setup { watchdog: _watchdog, gate, store, .. } =
        setup("a rendezvous", |options| options.clock(clock.clone()));
    // So that the first generation is not empty: to flush that would write no file, and pass the gate.
    store.put("before", "all others").unwrap();
    gate.shut();
    clock.left.store(WRITERS, Ordering::SeqCst);
    let acknowledged = AtomicU64::new(0);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, acknowledged) = (&store, &acknowledged);
            scope.spawn(move || {
                store.put(format!("{writer}"), VALUE).unwrap();
                acknowledged.fetch_add(1, Ordering::SeqCst);
            });
        }
        // All of them came while there was room; each has either got its place or waits by now.
        while acknowledged.load(Ordering::SeqCst) + store.stats().waits < WRITERS {
            thread::sleep(Duration::from_millis(1));
        }
        let stats = store.stats();
        // Before any of these fails: the store could not be closed otherwise.
        gate.open();
        assert!(stats.generations <= GENERATIONS_MAX, "{stats:?}");
        assert!(stats.waits > WRITERS / 2, "{stats:?}");
        // The first generation, and three of which each may have been begun with twice the room of the
        // one before, so that who lost the race for that one finds a place.
        let bound = 2 * MEMTABLE_BYTES + (1 + 2 + 4) * (VALUE.len() as u64 + MEMTABLE_BYTES);
        assert!(stats.memtable_bytes <= bound, "{stats:?}");
        while acknowledged.load(Ordering::SeqCst) < WRITERS {
            let stats = store.stats();
            assert!(stats.generations <= GENERATIONS_MAX, "{stats:?}");
            thread::yield_now();
        }
    });
    assert_eq!(store.revision(), 2 + WRITERS);
    store.close().unwrap();
}

#[test]
fn what_only_reads_is_not_slowed() {
    let Setup { watchdog: _watchdog, gate, store, .. } = setup("reads", |options| options);
    fall_behind(&gate, &store);
    let (_, thread) = writer(&store);
    wait_until_one_waits(&store);
    let delays = store.stats().delays;
    assert!(delays > 0);
    let view = store.latest().unwrap();
    for _ in 0..100 {
        assert!(view.get("key").unwrap().is_some());
        assert!(store.get("key").unwrap().is_some());
    }
    assert_eq!(store.stats().delays, delays);
    gate.open();
    store.close().unwrap();
    assert!(matches!(thread.join().unwrap(), ErrorKind::Closed));
}

/// Who must not wait is refused where others would pause or wait, and nothing has happened then.
#[test]
fn who_must_not_wait_is_told() {
    let store = open_tiny(Arc::new(MemoryVfs::new())).unwrap();
    let request = |n: u64| annals::txn().then([annals::put(format!("k{n}"), "v".repeat(1_000))]);
    let mut tickets = Vec::new();
    let refused = loop {
        match store.try_submit(&request(tickets.len() as u64)) {
            Ok(ticket) => tickets.push(ticket),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused.kind(), ErrorKind::WouldWait), "{refused}");
    let count = tickets.len() as u64;
    // Two generations of it wait for their flush, at least.
    assert!(count > 20, "{count}");
    assert_eq!(store.stats().waits, 0);
    // Who may wait has it flushed, and goes on.
    assert_eq!(store.transact(request(count)).unwrap().revision, count + 2);
    for (ticket, revision) in tickets.into_iter().zip(2..) {
        assert_eq!(ticket.wait().unwrap().revision, revision);
    }
    while store.run_background().unwrap() {}
    assert!(store.try_submit(&request(0)).is_ok());
}
