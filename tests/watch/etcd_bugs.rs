//! Bugs that etcd's watches have had, by the numbers of their issues, and that these must not have.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use annals::vfs::{CrashMode, MemoryVfs};
use annals::{ChangeKind, Durability, ErrorKind, Options};

use crate::support::watchdog::Watchdog;
use crate::support::{DIRECTORY, open_tiny};
use crate::{fresh, next, options, told};

/// A notice of progress overtook events of its revision and before.
#[test]
fn issue_15220_progress_comes_after_every_event_before_it() {
    const LAST: u64 = 3_000;
    let watchdog = Watchdog::new(Duration::from_secs(60));
    watchdog.begin("progress beside a writer");
    let options = Options::new().vfs(Arc::new(MemoryVfs::new())).durability(Durability::Buffered);
    let store = options.open(DIRECTORY).unwrap();
    let mut watch = store.watch("a").start().unwrap();
    let handle = watch.handle();
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..LAST {
                store.put("a", "").unwrap();
                if n % 20 == 0 {
                    // So that the watch has told everything now and then.
                    thread::sleep(Duration::from_micros(100));
                }
            }
        });
        let (mut told, mut notices) = (1, 0);
        while told < LAST {
            handle.request_progress();
            let batch = next(&mut watch);
            if batch.is_progress() {
                // Every revision changes the key.
                assert_eq!(batch.revision(), told);
                notices += 1;
            } else {
                assert_eq!(batch.revision(), told + 1);
                told += 1;
            }
        }
        handle.request_progress();
        assert!(next(&mut watch).is_progress());
        assert!(notices > 0);
    });
}

/// What was asked for is at least as new as what was visible then: a list from a cache relies on it.
#[test]
fn issue_15220_progress_reaches_what_was_visible_when_it_was_asked_for() {
    let store = fresh(true);
    let mut watch = store.watch("a").start().unwrap();
    for n in 0..300 {
        let visible = store.put(if n % 3 == 0 { "a" } else { "b" }, "").unwrap().revision;
        watch.handle().request_progress();
        loop {
            let batch = next(&mut watch);
            if batch.is_progress() {
                assert_eq!(batch.revision(), visible);
                break;
            }
        }
    }
}

/// After a crash a watch went back in time, or told events twice.
#[test]
fn issue_15271_and_17247_a_resumed_watch_goes_on_where_it_was() {
    let mut disk = MemoryVfs::new();
    let (mut resume, mut told, mut put) = (2, Vec::new(), 1);
    for round in 0..12 {
        let store = open_tiny(Arc::new(disk.clone())).unwrap();
        let mut watch = store.watch("a").from(resume).start().unwrap();
        for n in 0..20 {
            put = store.put("a", format!("{round} {n}")).unwrap().revision;
            if n == 10 && round % 3 == 0 {
                store.reorganise().unwrap();
            }
            for _ in 0..2 {
                // It lags behind at first, and catches up in the end.
                if n > round
                    && let Some(batch) = watch.try_next()
                {
                    let batch = batch.unwrap();
                    assert_eq!(batch.revision(), resume);
                    told.push((batch.revision(), batch.events()[0].kv.value.clone()));
                    resume = watch.resume_revision();
                }
            }
        }
        // What the disk has: nothing that was not synced.
        disk = disk.crash(round, CrashMode::LoseAll);
        drop(store);
    }
    let store = open_tiny(Arc::new(disk)).unwrap();
    assert_eq!(store.revision(), put);
    for batch in store.watch("a").from(resume).start().unwrap() {
        let batch = batch.unwrap();
        told.push((batch.revision(), batch.events()[0].kv.value.clone()));
        if batch.revision() == put {
            break;
        }
    }
    let log = store.log(2..).with_values().map(|transaction| {
        let transaction = transaction.unwrap();
        (transaction.revision, transaction.changes[0].value.clone().unwrap())
    });
    assert_eq!(told, log.collect::<Vec<_>>());
}

/// Slow watches kept others from being told, and a compaction then took their events.
#[test]
fn issue_17529_slow_watches_and_a_compaction_starve_nobody() {
    let watchdog = Watchdog::new(Duration::from_secs(60));
    watchdog.begin("slow watches");
    let store = fresh(true);
    for _ in 0..200 {
        store.put("a", "x".repeat(100)).unwrap();
    }
    let mut slow: Vec<_> =
        (0..64).map(|_| store.watch("a").from(2).catch_up_bytes(1).start().unwrap()).collect();
    for watch in &mut slow {
        assert_eq!(next(watch).revision(), 2);
    }
    let mut live = store.watch("a").start().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                let _ = store.compact(store.revision());
            }
        });
        for revision in 202..1_000 {
            store.put("a", "y").unwrap();
            match live.next_timeout(crate::LONG).unwrap() {
                Ok(batch) => assert_eq!(batch.revision(), revision),
                // Told late, which the compactor here takes as an invitation: it goes on from there.
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Compacted { .. }), "{error}");
                    assert_eq!(live.resume_revision(), revision);
                    live = store.watch("a").from(revision + 1).start().unwrap();
                }
            }
        }
        done.store(true, Ordering::Release);
    });
    for watch in &mut slow {
        assert!(matches!(crate::end(watch).kind(), ErrorKind::Compacted { requested: 3, .. }));
    }
}

/// A delete at the compacted revision was not told to a watch from there.
#[test]
fn issue_18089_and_19179_a_delete_at_the_compacted_revision_is_told() {
    for (events, reorganise) in [(false, false), (false, true), (true, true)] {
        let store = fresh(false);
        store.put("a", "1").unwrap();
        store.put("b", "1").unwrap();
        let mut begun = store.watch("a").prev_kv().start().unwrap();
        let gone = store.delete("a").unwrap().revision;
        if events {
            store.reorganise().unwrap();
        }
        store.compact(gone).unwrap();
        if reorganise {
            store.reorganise().unwrap();
        }
        let late = store.watch("a").from(gone).prev_kv().start().unwrap();
        for mut watch in [begun, late] {
            let batch = next(&mut watch);
            let [event] = batch.events() else { panic!("{batch:?}") };
            assert_eq!((batch.revision(), event.kind), (gone, ChangeKind::Delete));
            assert_eq!(event.prev_kv.as_ref().unwrap().value, "1");
        }
        begun = store.watch("a").start().unwrap();
        assert!(told(&mut begun).is_empty());
    }
}

/// A watch of the future was told of the past, also after a restore.
#[test]
fn issue_20221_a_watch_of_the_future_is_told_nothing_of_the_past() {
    for background in [true, false] {
        let options = options(background);
        let mut store = options.open(Path::new(DIRECTORY)).unwrap();
        for _ in 0..5 {
            store.put("a", "").unwrap();
        }
        let mut watch = store.watch("a").from(60).start().unwrap();
        for round in 0..2 {
            watch.handle().request_progress();
            for _ in 0..20 {
                store.put("a", "").unwrap();
                assert!(watch.try_next().is_none());
            }
            assert_eq!(watch.resume_revision(), 60);
            if round == 0 {
                store.close().unwrap();
                store = options.open(Path::new(DIRECTORY)).unwrap();
                watch = store.watch("a").from(60).start().unwrap();
            }
        }
        for _ in 46..=60 {
            store.put("a", "").unwrap();
        }
        let mut first = next(&mut watch);
        if first.is_progress() {
            // It was asked for long ago.
            assert_eq!(first.revision(), 59);
            first = next(&mut watch);
        }
        assert_eq!(first.revision(), 60);
    }
}
