//! Who shares a sync of the log, and who does not wait for it: syncs stand at a gate while others
//! come, so that the schedule of the threads decides nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use annals::clock::ManualClock;
use annals::vfs::{CrashMode, Fault, FaultVfs, MemoryVfs, Operation};
use annals::{
    CommitOptions, DeleteRangeRequest, Durability, ErrorKind, Modify, Options, Outcome, PutRequest,
    Store, Ticket, TxnRequest, put, txn,
};
use support::clients::{self, CLIENTS, Ended};
use support::gate::{GateVfs, log_syncs};
use support::tasks::block_on;
use support::watchdog::Watchdog;
use support::{DIRECTORY, START_TIME, open_tiny, tiny};

/// Commits of each client: all together have room in the first file of the log, as what is ordered must have.
const COMMITS: u64 = 150;

struct Setup {
    disk: MemoryVfs,
    faulty: FaultVfs,
    gate: GateVfs,
    options: Options,
    /// Ends the process if the case hangs; dropped with the case.
    watchdog: Watchdog,
}

/// A store whose syncs of the log pass a gate, with a memtable that takes the whole test.
fn setup(case: &str) -> Setup {
    let watchdog = Watchdog::new(Duration::from_secs(60));
    watchdog.begin(case);
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    let gate = GateVfs::new(Arc::new(faulty.clone()), log_syncs);
    let options = tiny(Arc::new(gate.clone()), Arc::new(ManualClock::new(START_TIME)))
        .memtable_bytes(8 << 20)
        .wal_bytes(1 << 20)
        .background(true);
    Setup { disk, faulty, gate, options, watchdog }
}

fn open(options: &Options) -> Store {
    options.open(Path::new(DIRECTORY)).unwrap()
}

fn request(key: &str) -> TxnRequest {
    txn().then([put(key, "value")])
}

fn revision(ticket: Ticket) -> u64 {
    ticket.wait().unwrap().revision
}

#[test]
fn sixty_four_tickets_share_a_sync() {
    let Setup { options, watchdog: _watchdog, .. } = setup("64 tickets");
    let store = open(&options.background(false));
    for round in 1..=3 {
        let tickets: Vec<Ticket> =
            (0..64).map(|n| store.submit(request(&format!("{n}"))).unwrap()).collect();
        assert_eq!(store.stats().batches, round - 1, "nobody waits yet");
        for (n, ticket) in tickets.into_iter().enumerate() {
            assert_eq!(revision(ticket), 2 + (round - 1) * 64 + n as u64);
        }
        let stats = store.stats();
        assert_eq!((stats.batches, stats.batch_transactions), (round, 64 * round));
        assert!((stats.transactions_per_sync() - 64.0).abs() < 1e-9, "{stats:?}");
        assert_eq!((stats.sync_latency.count, stats.commit_latency.count), (round, 0));
    }
    for n in 1..=3 {
        store.put("waits", "").unwrap();
        let stats = store.stats();
        assert_eq!((stats.sync_latency.count, stats.commit_latency.count), (3 + n, n));
        assert!(stats.commit_latency.max_nanos > 0 && stats.sync_latency.max_nanos > 0);
    }
    assert!(store.txn().when([annals::version("waits").eq(9)]).commit().is_ok());
    assert_eq!(store.stats().commit_latency.count, 3, "it has changed nothing");
}

/// However a commit is asked for that waits for its sync, how long it took is known.
#[test]
fn every_commit_that_waits_is_measured() {
    type Call = fn(&Store);
    let Setup { options, watchdog: _watchdog, .. } = setup("measured commits");
    let store = open(&options);
    let calls: [(&str, Call); 9] = [
        ("put", |store| {
            store.put("k", "1").unwrap();
        }),
        ("put_with", |store| {
            store.put_with(PutRequest::new("k", "2")).unwrap();
        }),
        ("compare_and_put", |store| {
            let seen = store.get("k").unwrap().unwrap().mod_revision;
            let outcome = store.compare_and_put("k", seen, "3").unwrap();
            assert!(matches!(outcome, Outcome::Committed { .. }));
        }),
        ("modify", |store| {
            store.modify("k", |_| Modify::put("4")).unwrap();
        }),
        ("txn", |store| {
            store.txn().then([put("k", "5")]).commit().unwrap();
        }),
        ("transact", |store| {
            store.transact(txn().then([put("k", "6")])).unwrap();
        }),
        ("transact_with", |store| {
            let durability = Some(Durability::Sync);
            let options = CommitOptions { durability, ..CommitOptions::default() };
            store.transact_with(txn().then([put("k", "7")]), options).unwrap();
        }),
        ("delete", |store| {
            store.delete("k").unwrap();
        }),
        ("delete_range", |store| {
            store.put("k", "8").unwrap();
            store.delete_range(DeleteRangeRequest::new("k")).unwrap();
        }),
    ];
    for (name, call) in calls {
        let before = store.stats();
        call(&store);
        let after = store.stats();
        let commits = after.commit_latency.count - before.commit_latency.count;
        assert_eq!(commits, after.revision - before.revision, "{name}");
        assert!(commits > 0, "{name}");
    }
}

#[test]
fn who_comes_during_a_sync_shares_the_next() {
    let Setup { gate, options, watchdog: _watchdog, .. } = setup("an open batch");
    let store = open(&options);
    gate.shut();
    thread::scope(|scope| {
        let first = store.submit(request("first")).unwrap();
        scope.spawn(|| revision(first));
        gate.wait_until_held();
        // All of these have their places before the gate opens; a third of them is awaited.
        let tickets = (0..63).map(|n| store.submit(request(&format!("{n}"))).unwrap());
        for (n, ticket) in tickets.collect::<Vec<_>>().into_iter().enumerate() {
            scope.spawn(move || {
                if n % 3 == 0 { block_on(ticket).unwrap().revision } else { revision(ticket) }
            });
        }
        gate.open();
    });
    let stats = store.stats();
    assert_eq!((stats.batches, stats.batch_transactions), (2, 64), "{stats:?}");
    assert_eq!(stats.durable_revision, 65);
}

#[test]
fn one_failed_sync_tells_everyone() {
    let Setup { faulty, gate, options, watchdog: _watchdog, .. } = setup("one failed sync");
    let store = open(&options);
    let durable = store.put("durable", "before").unwrap().revision;
    gate.shut();
    let tickets: Vec<Ticket> =
        (0..CLIENTS).map(|n| store.submit(request(&format!("{n}"))).unwrap()).collect();
    thread::scope(|scope| {
        for (n, ticket) in tickets.into_iter().enumerate() {
            scope.spawn(move || {
                let told = if n % 2 == 0 { block_on(ticket) } else { ticket.wait() };
                let ended = clients::ended(told.map(|answer| answer.revision));
                assert_eq!(ended, Ended::Unknown { revision: durable + 1 + n as u64 });
            });
        }
        gate.wait_until_held();
        faulty.fail(Some(Operation::Sync), faulty.op_count_of(Operation::Sync), Fault::Io, false);
        gate.open();
    });
    assert_eq!((store.revision(), store.durable_revision()), (durable, durable));
    clients::refuses_writes(&store);
    assert!(store.get("0").unwrap().is_none() && store.get("durable").unwrap().is_some());
}

/// Writers for which it is enough to be ordered, beside one whose sync stands still. Returns how
/// many they were told of.
fn write_beside(store: &Store, gate: &GateVfs, durability: Option<Durability>) -> u64 {
    thread::scope(|scope| {
        for writer in 1..CLIENTS {
            scope.spawn(move || {
                for n in 0..COMMITS {
                    let options = CommitOptions { durability, ..CommitOptions::default() };
                    let request = request(&format!("{writer}/{n}"));
                    store.transact_with(request, options).unwrap();
                }
            });
        }
    });
    // They have all ended, and the gate was shut all the time.
    gate.wait_until_held();
    assert_eq!(store.stats().batches, 0, "the sync is still under way");
    (CLIENTS - 1) * COMMITS
}

/// What a stuck sync ends in, and what is seen meanwhile.
fn stuck(level: Durability, fails: bool) {
    let Setup { disk, faulty, gate, options, watchdog: _watchdog } =
        setup(&format!("a stuck sync, {level:?}, fails: {fails}"));
    let store = open(&options.durability(level));
    gate.shut();
    let buffered = (level == Durability::Sync).then_some(Durability::Buffered);
    let told = thread::scope(|scope| {
        let victim = scope.spawn(|| {
            let durability = Some(Durability::Sync);
            let options = CommitOptions { durability, ..CommitOptions::default() };
            store.transact_with(request("victim"), options)
        });
        gate.wait_until_held();
        let others = write_beside(&store, &gate, buffered);
        // Others that want to be durable get their places all the same.
        let options = CommitOptions { durability: Some(Durability::Sync), ..Default::default() };
        let ticket = store.submit_with(request("ticket"), options).unwrap();
        let visible = if level == Durability::Buffered { others + 3 } else { 1 };
        assert_eq!((store.revision(), store.durable_revision()), (visible, 1));
        if fails {
            let syncs = faulty.op_count_of(Operation::Sync);
            faulty.fail(Some(Operation::Sync), syncs, Fault::Io, true);
        }
        gate.open();
        let told = [ticket.wait(), victim.join().unwrap()];
        told.map(|told| clients::ended(told.map(|answer| answer.revision)))
    });
    let all = 1 + 2 + (CLIENTS - 1) * COMMITS;
    let is_expected = |ended: &Ended| match ended {
        Ended::Unknown { .. } => fails,
        Ended::Acknowledged { .. } => !fails,
        _ => false,
    };
    assert!(told.iter().all(is_expected), "{told:?}");
    if fails {
        assert_eq!((store.revision(), store.durable_revision()), (1, 1));
        clients::refuses_writes(&store);
        assert_eq!(store.latest().unwrap().range(..).count(), 0);
    } else {
        store.flush().unwrap();
        assert_eq!((store.revision(), store.durable_revision()), (all, all));
    }
    let image = disk.crash(0, CrashMode::LoseAll);
    drop(store);
    let store = open_tiny(Arc::new(image)).unwrap();
    assert_eq!(store.revision(), if fails { 1 } else { all });
}

#[test]
fn a_stuck_sync_does_not_stop_buffered_commits_from_being_ordered() {
    for level in [Durability::Sync, Durability::Buffered] {
        for fails in [false, true] {
            stuck(level, fails);
        }
    }
}

/// The thread that writes the log finds somebody else leading, who has gathered before.
#[test]
fn what_is_ordered_during_a_sync_becomes_durable_though_nobody_waits() {
    for level in [Durability::Sync, Durability::Buffered] {
        let Setup { gate, options, watchdog: _watchdog, .. } =
            setup(&format!("a commit nobody waits for, {level:?}"));
        let store = open(&options.durability(level));
        let commit = |name: &str, durability| {
            let options = CommitOptions { durability: Some(durability), ..Default::default() };
            store.transact_with(request(name), options).unwrap()
        };
        gate.shut();
        thread::scope(|scope| {
            let first = scope.spawn(|| commit("first", Durability::Sync));
            gate.wait_until_held();
            commit("second", Durability::Buffered);
            // Long enough for whoever was rung for it to have looked.
            thread::sleep(Duration::from_millis(50));
            gate.open();
            first.join().unwrap();
        });
        while store.durable_revision() < 3 {
            thread::yield_now();
        }
    }
}

/// Also in a Sync store, and also if the ticket is held.
#[test]
fn a_commit_whose_ticket_nobody_waits_for_becomes_durable() {
    let Setup { options, watchdog: _watchdog, .. } = setup("tickets nobody waits for");
    let store = open(&options.durability(Durability::Sync));
    drop(store.submit(request("dropped")).unwrap());
    let held = store.submit(request("held")).unwrap();
    while store.durable_revision() < 3 || store.get("dropped").unwrap().is_none() {
        thread::yield_now();
    }
    // Again after a while in which there was nothing to do, and without a request.
    drop(store.submit_compare_and_put("swapped", 0, "").unwrap());
    while store.durable_revision() < 4 {
        thread::yield_now();
    }
    assert_eq!(held.wait().unwrap().revision, 3);
}

#[test]
fn a_ticket_gives_its_answer_once() {
    let Setup { options, watchdog: _watchdog, .. } = setup("a ticket awaited again");
    let store = open(&options);
    let mut ticket = store.submit(request("a")).unwrap();
    assert_eq!(block_on(&mut ticket).unwrap().revision, 2);
    let again = [block_on(&mut ticket).map(|_| ()), ticket.wait().map(|_| ())];
    for again in again {
        assert!(matches!(again.unwrap_err().kind(), ErrorKind::InvalidArgument { .. }));
    }
}
