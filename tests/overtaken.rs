//! A compaction that overtakes a reader which has begun takes nothing from it, although its space is
//! wanted; and what begins after it is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use annals::vfs::MemoryVfs;
use annals::{At, Diff, ErrorKind, Store};
use support::open_tiny;

const KEYS: u64 = 10;
const WRITES: u64 = 1_000;

fn key(revision: u64) -> String {
    format!("k{}", revision % KEYS)
}

/// What a revision has written: too long for its superseded versions to fit into one file.
fn value(revision: u64) -> String {
    format!("{revision} {}", "x".repeat(100))
}

/// Every revision from 2 to `WRITES` + 1 has written one key; most of it is in files.
fn filled() -> Store {
    let store = open_tiny(Arc::new(MemoryVfs::new())).unwrap();
    for revision in 2..WRITES + 2 {
        assert_eq!(store.put(key(revision), value(revision)).unwrap().revision, revision);
        while store.run_background().unwrap() {}
    }
    store
}

/// Compacts to the newest revision, and gives back what nobody holds on to.
fn overtake(store: &Store) {
    store.compact(store.revision()).unwrap();
    store.reorganise().unwrap();
}

/// The reader was in the way of what `overtake` wanted to give back; once it has gone, it goes.
fn assert_was_held(store: &Store, before: u64) {
    assert!(store.stats().history.bytes < before / 10);
}

#[test]
fn a_log_that_was_begun_goes_on_to_its_end_with_every_value() {
    let store = filled();
    let mut log = store.log(..).with_values();
    let mut not_begun = store.log(..);
    let first = log.next().unwrap().unwrap();
    assert_eq!(first.revision, 2);
    overtake(&store);
    let held = store.stats().history.bytes;
    for revision in 3..WRITES + 2 {
        let found = log.next().unwrap().unwrap();
        let [change] = &*found.changes else { panic!("{found:?}") };
        assert_eq!((found.revision, &*change.key), (revision, key(revision).as_bytes()));
        assert_eq!(change.value.as_deref(), Some(value(revision).as_bytes()), "{revision}");
    }
    assert!(log.next().is_none());
    // When the first item is taken does not matter.
    assert_eq!(not_begun.by_ref().map(Result::unwrap).count() as u64, WRITES);
    drop((log, not_begun));
    store.reorganise().unwrap();
    assert_was_held(&store, held);
    let mut refused = store.log(2..);
    let error = refused.next().unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Compacted { requested: 2, .. }), "{error}");
    assert!(refused.next().is_none());
    // Without a lower bound it begins with what is left.
    let left: Vec<u64> = store.log(..).map(|found| found.unwrap().revision).collect();
    assert_eq!(left, [WRITES + 1]);
}

#[test]
fn a_difference_that_was_begun_goes_on_to_its_end() {
    let store = filled();
    let (from, to) = (WRITES / 4, WRITES / 2);
    let mut differences = store.diff(from, to, ..).unwrap();
    let first = differences.next().unwrap().unwrap();
    overtake(&store);
    let held = store.stats().history.bytes;
    let mut found = vec![first];
    found.extend(differences.by_ref().map(Result::unwrap));
    assert_eq!(found.len() as u64, KEYS);
    for difference in found {
        let Diff::Changed { old, new } = difference else { panic!("{difference:?}") };
        // The last one before each revision that wrote the key.
        let last = |upto: u64| (upto + 1 - KEYS..=upto).find(|n| key(*n).as_bytes() == old.key);
        assert_eq!((Some(old.mod_revision), Some(new.mod_revision)), (last(from), last(to)));
        assert_eq!(old.value, value(old.mod_revision));
        assert_eq!(new.value, value(new.mod_revision));
    }
    drop(differences);
    store.reorganise().unwrap();
    assert_was_held(&store, held);
    let error = store.diff(from, to, ..).unwrap_err();
    // Whichever of the two it names, both are gone.
    assert!(matches!(error.kind(), ErrorKind::Compacted { .. }), "{error}");
}

#[test]
fn a_search_by_time_that_is_overtaken_is_not_refused_for_what_it_looked_at() {
    let store = filled();
    store.compact(WRITES / 2).unwrap();
    let (ended, mut searches) = (AtomicBool::new(false), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..WRITES * 4 {
                store.put("k", "v").unwrap();
                store.compact(store.compacted_revision() + 1).unwrap();
                while store.run_background().unwrap() {}
            }
            ended.store(true, Ordering::SeqCst);
        });
        while !ended.load(Ordering::SeqCst) {
            // Earlier than every transaction.
            let error = store.at(At::Time(0)).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::NoRevisionAtTime { .. }), "{error}");
            searches += 1;
        }
    });
    assert!(searches > 0);
}

#[test]
fn the_newest_state_is_never_refused_however_it_is_asked_for() {
    let store = open_tiny(Arc::new(MemoryVfs::new())).unwrap();
    store.put("k", "").unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3_000 {
                let revision = store.put("k", "").unwrap().revision;
                store.compact(revision).unwrap();
                while store.run_background().unwrap() {}
            }
            over.store(true, Ordering::Relaxed);
        });
        while !over.load(Ordering::Relaxed) {
            assert!(store.get_at("k", At::Latest).unwrap().is_some());
            assert!(store.at(At::Latest).unwrap().get("k").unwrap().is_some());
        }
    });
}
