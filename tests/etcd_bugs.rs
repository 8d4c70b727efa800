//! Bugs of correctness that etcd has had, by the numbers of their issues, and that annals must not have.
//!
//! Those of watches are in `tests/watch/etcd_bugs.rs` (15220, 15271, 17247, 17529, 18089, 19179,
//! 20221). 14571 is one of the server's users and roles, which a library has not. What a bug was is
//! said with each test in the words of this store, not of etcd: a defragmentation is a
//! reorganisation here, a raft log the WAL.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use annals::clock::ManualClock;
use annals::vfs::{CrashMode, FaultVfs, MemoryVfs};
use annals::{ErrorKind, Op, PutRequest, RangeRequest, Store, TxnRequest};
use support::copies::changes_disk;
use support::gate::{self, GateVfs};
use support::watchdog::Watchdog;
use support::{DIRECTORY, START_TIME, number_from_env, open_tiny, tiny};

const ALL: [CrashMode; 3] = [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random];

fn open(vfs: Arc<dyn annals::vfs::Vfs>, background: bool) -> Store {
    let clock = Arc::new(ManualClock::new(START_TIME));
    tiny(vfs, clock).background(background).open(Path::new(DIRECTORY)).unwrap()
}

/// Does `work` on a store, and has `look` judge every image that a crash could leave between any two
/// of its operations. Returns how many images there were.
fn crashed_everywhere(
    before: &MemoryVfs,
    work: impl FnOnce(&Store),
    look: impl Fn(MemoryVfs) + Send + Sync + 'static,
) -> u64 {
    let look = Arc::new(look);
    let images = Arc::new(AtomicU64::new(0));
    let faulty = FaultVfs::new(Arc::new(before.clone()));
    let store = open(Arc::new(faulty.clone()), false);
    let (below, counter) = (before.clone(), Arc::clone(&images));
    let judge = Arc::clone(&look);
    let dirty = Mutex::new(true);
    faulty.observe(move |number, kind| {
        if !std::mem::replace(&mut *dirty.lock().unwrap(), changes_disk(kind)) {
            return;
        }
        for mode in ALL {
            judge(below.crash(number, mode));
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    work(&store);
    drop(store);
    for mode in ALL {
        // The last operation has none after it.
        look(before.crash(1, mode));
    }
    images.load(Ordering::Relaxed)
}

/// 13766: after a crash under load, the stored state and the number of the last applied entry were
/// of two moments, so that entries were applied twice or never.
#[test]
fn issue_13766_a_crash_under_load_applies_everything_exactly_once() {
    const THREADS: u64 = 4;
    let mut disk = MemoryVfs::new();
    let mut commits = 0;
    for round in 0..number_from_env("ANNALS_ROUNDS", 6) {
        let store = open(Arc::new(disk.clone()), true);
        let enough = AtomicBool::new(false);
        let image = thread::scope(|scope| {
            for thread in 0..THREADS {
                let (store, enough) = (&store, &enough);
                scope.spawn(move || {
                    while !enough.load(Ordering::Relaxed) {
                        // Two keys that are always changed together, and one that all share.
                        let own = format!("own/{thread}");
                        let pair = [own.as_str(), "shared", &format!("pair/{thread}")]
                            .map(|key| Op::from(PutRequest::new(key, "x".repeat(300))));
                        store.txn().then(pair).commit().unwrap();
                    }
                });
            }
            while store.revision() < commits + 150 {
                thread::yield_now();
            }
            let image = disk.crash(round, ALL[usize::try_from(round % 3).unwrap()]);
            enough.store(true, Ordering::Relaxed);
            image
        });
        drop(store);
        disk = image;
        let store = open_tiny(Arc::new(disk.clone())).unwrap();
        // Every commit writes the shared key: it has been written once for each revision.
        commits = store.revision();
        let version = |key: &str| store.get(key).unwrap().map_or(0, |kv| kv.version);
        assert_eq!(version("shared"), commits - 1);
        let own = (0..THREADS).map(|thread| version(&format!("own/{thread}")));
        assert_eq!(own.sum::<u64>(), commits - 1);
        for thread in 0..THREADS {
            assert_eq!(version(&format!("own/{thread}")), version(&format!("pair/{thread}")));
        }
        assert_eq!(store.log(2..).count() as u64, commits - 1);
    }
    println!("{commits} commits");
}

/// 14370: a single member acknowledged a write before its log was synced.
#[test]
fn issue_14370_what_was_acknowledged_is_there_when_everything_unsynced_is_lost() {
    let disk = MemoryVfs::new();
    let store = open(Arc::new(disk.clone()), true);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (store, disk) = (&store, &disk);
            scope.spawn(move || {
                for n in 0..40 {
                    let done = store.put(format!("{thread}"), format!("{n}").repeat(200)).unwrap();
                    let lost = open_tiny(Arc::new(disk.crash(0, CrashMode::LoseAll))).unwrap();
                    let kept = lost.at(done.revision).unwrap().get(format!("{thread}")).unwrap();
                    assert_eq!(kept.unwrap().value, format!("{n}").repeat(200));
                }
            });
        }
    });
}

/// 14685: a crash in the middle of a defragmentation left a state of two moments.
#[test]
fn issue_14685_a_crash_during_a_reorganisation_changes_nothing() {
    let disk = MemoryVfs::new();
    let store = open(Arc::new(disk.clone()), false);
    for n in 0..60 {
        store.put(format!("{}", n % 7), format!("{n}").repeat(120)).unwrap();
    }
    store.delete("3").unwrap();
    store.compact(20).unwrap();
    let hash = store.hash_at(store.revision()).unwrap();
    let old = store.hash_at(40).unwrap();
    drop(store);
    let images = crashed_everywhere(
        &disk,
        |store| store.reorganise().unwrap(),
        move |image| {
            let store = open_tiny(Arc::new(image)).unwrap();
            assert_eq!(store.revision(), 62);
            assert_eq!(store.hash_at(62).unwrap(), hash);
            assert_eq!(store.hash_at(40).unwrap(), old);
        },
    );
    assert!(images > 50, "{images}");
}

/// 17780: where the newest revision was a deletion, a compaction at it removed it, and after a crash
/// the store went on from an older one.
#[test]
fn issue_17780_a_crash_during_a_compaction_never_lowers_the_revision() {
    for close in [false, true] {
        let disk = MemoryVfs::new();
        let store = open(Arc::new(disk.clone()), false);
        for n in 0..20 {
            store.put(format!("{}", n % 4), "x".repeat(200)).unwrap();
        }
        for n in 0..4 {
            store.delete(format!("{n}")).unwrap();
        }
        let newest = store.revision();
        if close {
            store.close().unwrap();
        } else {
            drop(store);
        }
        let images = crashed_everywhere(
            &disk,
            |store| {
                store.compact(newest).unwrap();
                store.reorganise().unwrap();
                while store.run_background().unwrap() {}
            },
            move |image| {
                let store = open_tiny(Arc::new(image)).unwrap();
                assert_eq!(store.revision(), newest);
                assert_eq!(store.put("next", "").unwrap().revision, newest + 1);
            },
        );
        assert!(images > 50, "{images}");
        let store = open_tiny(Arc::new(disk)).unwrap();
        assert_eq!((store.revision(), store.compacted_revision()), (newest, newest));
    }
}

/// 18667: a transaction that read at a compacted revision was refused or not, and had an effect or
/// not, depending on whether the compaction had been carried out.
#[test]
fn issue_18667_a_transaction_that_reads_what_is_compacted_changes_nothing() {
    let disk = MemoryVfs::new();
    let mut store = open(Arc::new(disk.clone()), false);
    for n in 0..20 {
        store.put(format!("k{n}"), "v").unwrap();
    }
    let newest = store.revision();
    let request = |at| TxnRequest {
        success: vec![
            PutRequest::new("written", "x").into(),
            RangeRequest::new("k1").at(at).into(),
            PutRequest::new("written too", "x").into(),
        ],
        ..TxnRequest::default()
    };
    store.compact(newest).unwrap();
    for stage in ["called for", "carried out", "read again after a crash", "closed and opened"] {
        match stage {
            "carried out" => store.reorganise().unwrap(),
            "read again after a crash" => {
                let image = disk.crash(0, CrashMode::LoseAll);
                drop(store);
                store = open_tiny(Arc::new(image)).unwrap();
            }
            "closed and opened" => {
                store.close().unwrap();
                store = open_tiny(Arc::new(disk.clone())).unwrap();
            }
            _ => {}
        }
        for at in [1, newest - 1] {
            let refused = store.transact(request(at)).unwrap_err();
            let is_compacted = matches!(
                refused.kind(),
                ErrorKind::Compacted { requested, compacted, .. }
                    if (*requested, *compacted) == (at, newest)
            );
            assert!(is_compacted, "{stage}: {refused}");
            assert_eq!(store.revision(), newest, "{stage}");
            assert!(store.get("written").unwrap().is_none(), "{stage}");
        }
    }
    // What is kept is read, and the branch that is not taken reads nothing.
    let mut kept = request(newest);
    kept.failure = vec![RangeRequest::new("k1").at(1).into()];
    assert!(store.transact(kept).unwrap().succeeded);
    assert_eq!(store.revision(), newest + 1);
}

/// 20418: a process that had been paused answered with what was newest before. Here the thread that
/// carries the commits of all is held in its sync: meanwhile nobody is shown less than was
/// acknowledged, nor anything that may still be lost.
#[test]
fn issue_20418_while_and_after_a_pause_reads_are_of_the_newest() {
    let watchdog = Watchdog::new(Duration::from_secs(60));
    watchdog.begin("a paused sync");
    let disk = MemoryVfs::new();
    let gate = GateVfs::new(Arc::new(disk.clone()), gate::log_syncs);
    let store = open(Arc::new(gate.clone()), true);
    for round in 0..20_u64 {
        let acknowledged = store.put("a", format!("{round}")).unwrap().revision;
        let view = store.latest().unwrap();
        gate.shut();
        let pending = thread::scope(|scope| {
            let paused = scope.spawn(|| store.put("a", "pending").unwrap().revision);
            gate.wait_until_held();
            for _ in 0..20 {
                let read = store.get("a").unwrap().unwrap();
                assert_eq!(
                    (read.mod_revision, read.value),
                    (acknowledged, format!("{round}").into())
                );
                assert_eq!(store.revision(), acknowledged);
            }
            gate.open();
            paused.join().unwrap()
        });
        let read = store.get("a").unwrap().unwrap();
        assert_eq!((read.mod_revision, read.value), (pending, "pending".into()));
        // A view is of its revision for ever, by contract; the store never is of an older one.
        assert_eq!(view.get("a").unwrap().unwrap().mod_revision, acknowledged);
    }
}

/// 14098: a log whose unsynced end was lost could not be opened any more.
#[test]
fn issue_14098_a_log_that_lost_what_was_not_synced_opens() {
    let disk = MemoryVfs::new();
    let acknowledged = Arc::new(AtomicU64::new(1));
    let known = Arc::clone(&acknowledged);
    let images = crashed_everywhere(
        &disk,
        |store| {
            for n in 0..60_usize {
                // Of all sizes, so that the log rolls over at any place.
                let done = store.put("key", "v".repeat(n * n * 3 % 9_000)).unwrap();
                acknowledged.store(done.revision, Ordering::Relaxed);
            }
        },
        move |image| {
            let store = open_tiny(Arc::new(image)).unwrap();
            let least = known.load(Ordering::Relaxed);
            assert!((least..=least + 1).contains(&store.revision()), "{}", store.revision());
        },
    );
    assert!(images > 300, "{images}");
}

/// 6368: the name of a new log file was not durable when the first write in it was acknowledged.
#[test]
fn issue_6368_the_names_of_new_files_are_durable_before_what_is_in_them() {
    let disk = MemoryVfs::new();
    let store = open(Arc::new(disk.clone()), false);
    let mut files = std::collections::BTreeSet::new();
    for n in 0..40 {
        // The log rolls over every third time or so.
        let done = store.put(format!("{}", n % 5), "v".repeat(20_000)).unwrap();
        let lost = disk.crash(0, CrashMode::LoseAll);
        files.extend(lost.paths());
        let store = open_tiny(Arc::new(lost)).unwrap();
        assert_eq!(store.revision(), done.revision);
        if n % 7 == 6 {
            // New segments, a new manifest.
            while store.run_background().unwrap() {}
        }
    }
    let logs = files.iter().filter(|path| path.contains("/wal/")).count();
    assert!(logs > 8, "{logs} log files");
}

/// 6378: of two appends before one sync the second one had arrived and the first one had not; the
/// log was then refused.
#[test]
fn issue_6378_writes_that_arrive_in_another_order_are_a_cut_end() {
    let disk = MemoryVfs::new();
    let (before, after) = ("before".to_owned(), "v".repeat(5_000));
    let store = open(Arc::new(disk.clone()), false);
    store.put("key", &before).unwrap();
    drop(store);
    let images = Arc::new(Mutex::new((0, 0)));
    let seen = Arc::clone(&images);
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    let store = open(Arc::new(faulty.clone()), false);
    let wanted = [before, after.clone()];
    faulty.observe(move |number, _| {
        if disk.is_settled() {
            return;
        }
        // A batch of more than five thousand bytes has two pages of eight sectors: every subset of them is too many.
        let every = disk.crash_every(2_000).unwrap_or_else(|| {
            (0..300).map(|seed| disk.crash(number << 10 | seed, CrashMode::Random)).collect()
        });
        for image in every {
            let store = open_tiny(Arc::new(image)).unwrap();
            let found = store.get("key").unwrap().unwrap();
            let which = wanted.iter().position(|value| found.value == *value).unwrap();
            assert_eq!(usize::try_from(found.version).unwrap(), which + 1);
            let mut seen = seen.lock().unwrap();
            *(if which == 0 { &mut seen.0 } else { &mut seen.1 }) += 1;
        }
    });
    store.put("key", &after).unwrap();
    drop(store);
    let (without, with) = *images.lock().unwrap();
    println!("{without} images without the commit, {with} with it");
    assert!(without > 100 && with > 0);
}
