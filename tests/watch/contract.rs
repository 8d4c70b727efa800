//! What the documentation of a watch promises, promise by promise.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use annals::clock::ManualClock;
use annals::vfs::{Fault, FaultVfs, MemoryVfs, Operation};
use annals::{
    ChangeKind, Durability, ErrorKind, KeyRange, Options, Retention, Slow, Store, delete, put, txn,
};

use crate::support::watchdog::Watchdog;
use crate::support::{DIRECTORY, START_TIME, tiny};
use crate::{LONG, end, fresh, next, options, told};

#[test]
fn what_cannot_be_watched_is_refused() {
    let store = fresh(false);
    let invalid = |error: annals::Error, what: &str| {
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    };
    let empty_key = |error: annals::Error| assert!(matches!(error.kind(), ErrorKind::EmptyKey));
    empty_key(store.watch("").start().unwrap_err());
    empty_key(store.watch("").range_end("").start().unwrap_err());
    invalid(store.watch("b").range_end("a").start().unwrap_err(), "empty");
    invalid(store.watch_range("b".."b").start().unwrap_err(), "empty");
    invalid(store.watch("a").from(0).start().unwrap_err(), "there is no revision 0");
    let soon = Duration::from_millis(99);
    invalid(store.watch("a").progress_every(soon).start().unwrap_err(), "100 ms");
    let builder = store.watch("a");
    store.clone().close().unwrap();
    assert!(matches!(builder.start().unwrap_err().kind(), ErrorKind::Closed));
}

#[test]
fn every_spelling_of_a_range_is_watched() {
    let store = fresh(false);
    let watches = [
        (store.watch("b"), vec![3]),
        (store.watch("b").range_end(""), vec![3]),
        (store.watch("b").range_end("c"), vec![3, 4]),
        (store.watch("b").range_end("\0"), vec![3, 4, 5]),
        (store.watch("b").prefix(), vec![3, 4]),
        (store.watch("").prefix(), vec![2, 3, 4, 5]),
        (store.watch_range(.."b"), vec![2]),
        (store.watch_range("ba"..="c"), vec![4, 5]),
        (store.watch_range(KeyRange::prefix("b")), vec![3, 4]),
    ];
    let mut watches = watches.map(|(builder, revisions)| (builder.start().unwrap(), revisions));
    for key in ["a", "b", "ba", "c"] {
        store.put(key, "").unwrap();
    }
    for (watch, revisions) in &mut watches {
        let found: Vec<u64> = told(watch).iter().map(|(revision, _)| *revision).collect();
        assert_eq!(found, *revisions, "{watch:?}");
    }
}

#[test]
fn the_changes_of_a_transaction_come_together_in_its_order() {
    let store = fresh(true);
    store.put("/c", "old").unwrap();
    let mut watch = store.watch("/").prefix().prev_kv().start().unwrap();
    assert_eq!((watch.created_at(), watch.resume_revision()), (2, 3));
    let ops = [put("/d", "1"), delete("/c"), put("other", ""), put("/a", "2")];
    store.txn().then(ops).metadata("by hand").commit().unwrap();
    let batch = next(&mut watch);
    assert_eq!((batch.revision(), &batch.metadata()[..]), (3, &b"by hand"[..]));
    assert_eq!(batch.time(), store.log(3..).next().unwrap().unwrap().time);
    assert!(!batch.is_progress() && batch.is_last_fragment() && batch.len() == 3);
    let told: Vec<_> = batch.events().iter().map(|e| (e.kind, &e.kv.key[..])).collect();
    let (puts, deletes) = (ChangeKind::Put, ChangeKind::Delete);
    assert_eq!(told, [(puts, &b"/d"[..]), (deletes, b"/c"), (puts, b"/a")]);
    let gone = &batch.events()[1];
    assert_eq!(gone.prev_kv.as_ref().unwrap().value, "old");
    assert_eq!((gone.kv.mod_revision, gone.kv.create_revision, gone.kv.version), (3, 0, 0));
    assert!(batch.events()[0].is_create() && !gone.is_create());
    assert_eq!(watch.resume_revision(), 4);
}

#[test]
fn a_watch_keeps_no_store_open() {
    let watchdog = Watchdog::new(Duration::from_secs(60));
    for close in [true, false] {
        watchdog.begin(format!("close: {close}"));
        let options = options(true);
        let store = options.open(DIRECTORY).unwrap();
        let mut blocked = store.watch("a").start().unwrap();
        let mut idle = store.watch("a").start().unwrap();
        let handle = idle.handle();
        let ended = thread::spawn(move || end(&mut blocked));
        if close {
            store.close().unwrap();
        } else {
            drop(store);
        }
        assert!(matches!(ended.join().unwrap().kind(), ErrorKind::Closed));
        assert!(matches!(end(&mut idle).kind(), ErrorKind::Closed));
        handle.request_progress();
        handle.cancel();
        options.open(DIRECTORY).unwrap().close().unwrap();
    }
}

#[test]
fn a_watch_begun_while_the_store_is_closed_is_refused_or_ends() {
    let watchdog = Watchdog::new(Duration::from_secs(60));
    let options = options(true);
    let (mut refused, mut ended, mut round) = (0, 0, 0_u64);
    while round < 300 || refused <= 100 || ended <= 20 {
        watchdog.begin(format!("round {round}: {refused} refused, {ended} ended"));
        let store = options.open(DIRECTORY).unwrap();
        let other = store.clone();
        let closing = thread::spawn(move || {
            // At another moment each time, and later ones where the machine has other work.
            (0..round % 50 * (100 + round)).for_each(|_| std::hint::spin_loop());
            other.close().unwrap();
        });
        for _ in 0..4 {
            match store.watch("a").start() {
                Ok(mut watch) if closing.is_finished() || round % 2 == 0 => {
                    assert!(matches!(end(&mut watch).kind(), ErrorKind::Closed));
                    ended += 1;
                }
                // It goes, and with it the hub's reader, until the next begins.
                Ok(watch) => drop(watch),
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Closed), "{error}");
                    refused += 1;
                }
            }
        }
        closing.join().unwrap();
        round += 1;
    }
}

#[test]
fn a_cancelled_watch_tells_nothing_more() {
    for background in [true, false] {
        let store = fresh(background);
        let mut watch = store.watch("a").from(1).start().unwrap();
        for _ in 0..100 {
            store.put("a", "").unwrap();
        }
        assert_eq!(next(&mut watch).revision(), 2);
        watch.handle().cancel();
        assert!(watch.next().is_none() && watch.next_timeout(LONG).is_none());
        let blocked = store.watch("a").start().unwrap();
        let handle = blocked.handle();
        assert!(!handle.is_ended());
        let told = thread::spawn(move || blocked.count());
        handle.cancel();
        assert_eq!(told.join().unwrap(), 0);
        let dropped = store.watch("a").start().unwrap();
        let handle = dropped.handle();
        drop(dropped);
        assert!(handle.is_ended());
        // The next one begins anew.
        let mut watch = store.watch("a").start().unwrap();
        store.put("a", "").unwrap();
        assert_eq!(next(&mut watch).revision(), 102);
    }
}

#[test]
fn a_store_open_for_reading_tells_what_is_there() {
    let options = options(true);
    let store = options.open(DIRECTORY).unwrap();
    for n in 0..50 {
        store.put("a", format!("{n}")).unwrap();
    }
    let reader = Store::open_read_only_with(DIRECTORY, &options).unwrap();
    store.put("a", "later").unwrap();
    let told: Vec<u64> =
        reader.watch("a").from(40).start().unwrap().map(|b| b.unwrap().revision()).collect();
    assert_eq!(told, (40..=51).collect::<Vec<_>>());
    assert_eq!(reader.watch("a").start().unwrap().count(), 0);
    assert_eq!(reader.watch("a").from(60).start().unwrap().count(), 0);
}

#[test]
fn a_watch_that_has_nothing_due_is_never_compacted() {
    let store = fresh(false);
    let mut watch = store.watch("quiet").start().unwrap();
    for n in 0..500 {
        store.put(format!("k{}", n % 7), "x".repeat(200)).unwrap();
    }
    store.compact(store.revision()).unwrap();
    store.reorganise().unwrap();
    store.put("quiet", "heard").unwrap();
    let batch = next(&mut watch);
    assert_eq!((batch.revision(), &batch.events()[0].kv.value[..]), (502, &b"heard"[..]));
}

#[test]
fn a_slow_watch_holds_nothing_up_and_is_told_what_it_missed() {
    let store = fresh(false);
    let filled = || {
        for n in 0..500 {
            store.put(format!("k{}", n % 7), format!("{n}{}", "x".repeat(200))).unwrap();
            while store.run_background().unwrap() {}
        }
        store.stats().history.bytes
    };
    let mut all = store.watch("k").prefix().start().unwrap();
    let mut begun = store.watch("k").prefix().from(2).catch_up_bytes(1).start().unwrap();
    let before = filled();
    assert_eq!(next(&mut begun).revision(), 2);
    store.compact(store.revision() - 3).unwrap();
    store.reorganise().unwrap();
    let after = store.stats().history.bytes;
    assert!(after < before / 5, "the past is given back: {before}, {after}");
    // What it remembers goes as far as there is room; what is due next is gone.
    for (watch, resume) in [(&mut all, 2), (&mut begun, 3)] {
        let error = end(watch);
        let &ErrorKind::Compacted { requested, compacted, prefix: None } = error.kind() else {
            panic!("{error}");
        };
        assert_eq!((requested, compacted, watch.resume_revision()), (resume, 498, resume));
    }
    let mut resumed = store.watch("k").prefix().from(498).prev_kv().start().unwrap();
    for revision in 498..=501 {
        let batch = next(&mut resumed);
        assert_eq!(batch.revision(), revision);
        // Also at the compacted revision itself.
        let previous = batch.events()[0].prev_kv.clone().unwrap();
        assert_eq!(previous.mod_revision, revision - 7);
        assert!(previous.value.starts_with(format!("{}x", revision - 9).as_bytes()));
    }
}

#[test]
fn only_what_is_durable_is_told_in_a_sync_store() {
    let store = fresh(false);
    let mut watch = store.watch("a").start().unwrap();
    let ticket = store.submit(txn().then([put("a", "1")])).unwrap();
    assert!(watch.try_next().is_none());
    ticket.wait().unwrap();
    assert_eq!(watch.try_next().unwrap().unwrap().revision(), 2);
}

#[test]
fn a_failed_log_ends_watches_after_what_is_durable() {
    for background in [true, false] {
        for durability in [Durability::Sync, Durability::Buffered] {
            let faulty = FaultVfs::new(Arc::new(MemoryVfs::new()));
            let clock = Arc::new(ManualClock::new(START_TIME));
            let options = tiny(Arc::new(faulty.clone()), clock).background(background);
            let store = options.durability(durability).open(Path::new(DIRECTORY)).unwrap();
            let mut watch = store.watch("a").start().unwrap();
            store.put("a", "1").unwrap();
            store.flush().unwrap();
            assert_eq!(next(&mut watch).revision(), 2);
            let syncs = faulty.op_count_of(Operation::Sync);
            faulty.fail(Some(Operation::Sync), syncs, Fault::Io, true);
            let _ = store.put("a", "2");
            store.flush().unwrap_err();
            loop {
                match watch.next_timeout(LONG).expect("told in time") {
                    // In a buffered store it was visible for a moment.
                    Ok(batch) => {
                        assert_eq!((batch.revision(), durability), (3, Durability::Buffered));
                    }
                    Err(error) => {
                        assert!(matches!(error.kind(), ErrorKind::Poisoned { .. }), "{error}");
                        break;
                    }
                }
            }
            assert!(watch.next().is_none());
        }
    }
}

#[test]
fn a_prefix_with_a_rule_of_its_own_is_watched_from_where_it_is_kept() {
    let store = fresh(false);
    store.set_retention("/audit/", Some(Retention::forever())).unwrap();
    for n in 0..20 {
        store.put("/audit/a", format!("{n}")).unwrap();
        store.put("/pods/a", format!("{n}")).unwrap();
    }
    store.compact(store.revision()).unwrap();
    store.reorganise().unwrap();
    let mut watch = store.watch("/audit/").prefix().from(2).prev_kv().start().unwrap();
    assert_eq!(told(&mut watch).len(), 20);
    let mut all = store.watch("/").prefix().from(2).start().unwrap();
    let error = end(&mut all);
    assert!(matches!(error.kind(), ErrorKind::Compacted { requested: 2, .. }), "{error}");
}

#[test]
fn a_watch_begins_after_a_time() {
    let clock = Arc::new(ManualClock::new(START_TIME));
    let options = tiny(Arc::new(MemoryVfs::new()), Arc::clone(&clock));
    let store = options.open(DIRECTORY).unwrap();
    for _ in 0..5 {
        clock.advance(1_000_000);
        store.put("a", "").unwrap();
    }
    let at = |seconds: u64| {
        let micros = START_TIME.cast_unsigned() + seconds * 1_000_000;
        SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
    };
    for (seconds, first) in [(0, 2), (1, 3), (3, 5)] {
        let mut watch = store.watch("a").from(at(seconds)).start().unwrap();
        assert_eq!(next(&mut watch).revision(), first);
    }
    store.compact(4).unwrap();
    assert_eq!(next(&mut store.watch("a").from(at(3)).start().unwrap()).revision(), 5);
    // What came after is not all there any more.
    let error = store.watch("a").from(at(1)).start().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoRevisionAtTime { .. }), "{error}");
}

#[test]
fn long_values_are_told_from_memory_and_from_files() {
    let options = options(false).event_value_bytes(16);
    let store = options.open(DIRECTORY).unwrap();
    let value = |n: u8| vec![b'a' + n; 3_000];
    let mut watches: Vec<_> = (0..2).map(|_| store.watch("a").prev_kv().start().unwrap()).collect();
    for n in 0..4 {
        store.put("a", value(n)).unwrap();
        if n == 1 {
            store.reorganise().unwrap();
        }
    }
    watches.push(store.watch("a").prev_kv().from(2).start().unwrap());
    for watch in &mut watches {
        for n in 0..4 {
            let batch = next(watch);
            let [event] = batch.events() else { panic!("{batch:?}") };
            assert_eq!(event.kv.value, value(n));
            let previous = event.prev_kv.as_ref().map(|kv| kv.value.to_vec());
            assert_eq!(previous, n.checked_sub(1).map(value));
        }
    }
}

#[test]
fn notices_of_progress_come_when_nothing_happens() {
    let clock = Arc::new(ManualClock::new(START_TIME));
    let options = tiny(Arc::new(MemoryVfs::new()), Arc::clone(&clock));
    let store = options.open(DIRECTORY).unwrap();
    let second = Duration::from_secs(1);
    let mut watch = store.watch("a").progress_every(second).start().unwrap();
    let mut future = store.watch("a").from(9).progress_every(second).start().unwrap();
    assert!(watch.try_next().is_none());
    store.put("b", "").unwrap();
    clock.advance(1_100_000);
    let batch = watch.try_next().unwrap().unwrap();
    assert!(batch.is_progress() && batch.is_empty() && batch.revision() == 2);
    assert!(watch.try_next().is_none());
    // Something has happened in the second second.
    store.put("a", "").unwrap();
    clock.advance(1_100_000);
    assert_eq!(watch.try_next().unwrap().unwrap().len(), 1);
    assert!(watch.try_next().is_none());
    clock.advance(1_100_000);
    assert_eq!(watch.try_next().unwrap().unwrap().revision(), 3);
    assert!(future.try_next().is_none(), "nothing of the past");
    while store.revision() < 8 {
        store.put("b", "").unwrap();
    }
    assert_eq!(future.try_next().unwrap().unwrap().revision(), 8);
    assert!(future.try_next().is_none());
}

#[test]
fn a_watch_that_wants_to_keep_up_says_that_it_does_not() {
    let store = fresh(false);
    for _ in 0..50 {
        store.put("a", "").unwrap();
    }
    let slow = Slow::Lagged { revisions: 10 };
    // What it begins with does not count.
    let mut watch = store.watch("a").from(2).when_slow(slow).start().unwrap();
    assert_eq!(told(&mut watch).len(), 50);
    for _ in 0..10 {
        store.put("a", "").unwrap();
    }
    assert_eq!(told(&mut watch).len(), 10);
    // Nor does what it does not want.
    for _ in 0..50 {
        store.put("b", "").unwrap();
    }
    assert_eq!(told(&mut watch), []);
    for _ in 0..11 {
        store.put("a", "").unwrap();
    }
    let error = end(&mut watch);
    assert!(matches!(error.kind(), ErrorKind::Lagged { resume: 112, current: 122 }), "{error:?}");
    assert_eq!(watch.resume_revision(), 112);
}

#[test]
fn ten_thousand_watches_are_told_apart() {
    let options = Options::new().vfs(Arc::new(MemoryVfs::new()));
    let store = options.durability(Durability::Buffered).open(DIRECTORY).unwrap();
    let mut single: Vec<_> =
        (0..5_000).map(|n| store.watch(format!("k{n}")).start().unwrap()).collect();
    let mut shared: Vec<_> =
        (0..5_000).map(|_| store.watch("k").prefix().start().unwrap()).collect();
    for n in 0..5_000 {
        store.put(format!("k{n}"), format!("{n}")).unwrap();
    }
    for (n, watch) in single.iter_mut().enumerate() {
        let batch = next(watch);
        assert_eq!((batch.revision(), batch.len()), (n as u64 + 2, 1));
        assert_eq!(batch.events()[0].kv.value, format!("{n}"));
    }
    for watch in shared.iter_mut().step_by(100) {
        assert_eq!(told(watch), (2..5_002).map(|revision| (revision, 1)).collect::<Vec<_>>());
    }
    assert!(single.iter_mut().all(|watch| watch.try_next().is_none()));
}
