//! Watches of stores that fail or end.

use std::path::Path;
use std::sync::Arc;

use annals::clock::ManualClock;
use annals::vfs::{Fault, FaultVfs, MemoryVfs, Operation};
use annals::{Durability, ErrorKind, put};

use crate::support::{DIRECTORY, START_TIME, tiny};
use crate::{end, fresh, next};

#[test]
fn a_watch_that_nobody_asks_holds_on_to_nothing() {
    let store = fresh(false);
    let _idle = store.watch("a").start().unwrap();
    for _ in 0..100 {
        store.put("b", "x".repeat(100)).unwrap();
    }
    store.compact(90).unwrap();
    assert_eq!(store.stats().oldest_pinned, Some(2));
    store.reorganise().unwrap();
    let held = store.stats().oldest_pinned;
    assert!(held.is_none_or(|revision| revision > 90), "{held:?}");
}

/// However far the reading for all watches has come: what is still there for it is not told to one that begins.
#[test]
fn a_watch_cannot_begin_below_the_watermark() {
    let store = fresh(false);
    let _early = store.watch("a").start().unwrap();
    for value in 2..6 {
        store.put("a", value.to_string()).unwrap();
    }
    store.compact(4).unwrap();
    let error = end(&mut store.watch("a").from(3).start().unwrap());
    let kind = error.kind();
    assert!(matches!(kind, ErrorKind::Compacted { requested: 3, compacted: 4, .. }), "{error}");
    let mut late = store.watch("a").from(4).start().unwrap();
    assert_eq!([next(&mut late).revision(), next(&mut late).revision()], [4, 5]);
}

#[test]
fn what_a_failed_log_has_lost_is_told_no_more() {
    let faulty = FaultVfs::new(Arc::new(MemoryVfs::new()));
    let clock = Arc::new(ManualClock::new(START_TIME));
    let options = tiny(Arc::new(faulty.clone()), clock).background(false);
    let store = options.durability(Durability::Buffered).open(Path::new(DIRECTORY)).unwrap();
    let mut told = store.watch("a").prefix().start().unwrap();
    let mut due = store.watch("a").prefix().start().unwrap();
    let mut pieces = store.watch("a").prefix().fragment(1).start().unwrap();
    store.put("a", "1").unwrap();
    store.flush().unwrap();
    for watch in [&mut told, &mut due, &mut pieces] {
        assert_eq!(next(watch).revision(), 2);
    }
    let commit = store.txn().then([put("a", "2"), put("a2", "2")]).commit().unwrap();
    assert_eq!(commit.revision, 3);
    // Visible, as one may see in a buffered store.
    assert_eq!(next(&mut told).revision(), 3);
    assert!(!next(&mut pieces).is_last_fragment());
    let syncs = faulty.op_count_of(Operation::Sync);
    faulty.fail(Some(Operation::Sync), syncs, Fault::Io, true);
    store.flush().unwrap_err();
    assert_eq!(store.revision(), 2);
    for watch in [&mut due, &mut pieces, &mut told] {
        let error = end(watch);
        assert!(matches!(error.kind(), ErrorKind::Poisoned { .. }), "{error}");
    }
    assert_eq!((due.resume_revision(), pieces.resume_revision()), (3, 3));
}

#[test]
fn a_failure_of_background_work_ends_watches_after_what_was_written() {
    for background in [true, false] {
        let faulty = FaultVfs::new(Arc::new(MemoryVfs::new()));
        let clock = Arc::new(ManualClock::new(START_TIME));
        let options = tiny(Arc::new(faulty.clone()), clock).background(background);
        let store = options.open(Path::new(DIRECTORY)).unwrap();
        let mut watch = store.watch("a").start().unwrap();
        store.put("a", "1").unwrap();
        let creations = faulty.op_count_of(Operation::Create);
        faulty.fail(Some(Operation::Create), creations, Fault::Io, true);
        store.reorganise().unwrap_err();
        assert_eq!(next(&mut watch).revision(), 2);
        let error = end(&mut watch);
        assert!(matches!(error.kind(), ErrorKind::Poisoned { .. }), "{error}");
    }
}

#[test]
fn an_error_that_passes_ends_no_watch() {
    let faulty = FaultVfs::new(Arc::new(MemoryVfs::new()));
    let clock = Arc::new(ManualClock::new(START_TIME));
    let options = tiny(Arc::new(faulty.clone()), clock).background(false);
    let store = options.open(Path::new(DIRECTORY)).unwrap();
    let mut watch = store.watch("a").start().unwrap();
    let mut quiet = store.watch("quiet").start().unwrap();
    for n in 0..300 {
        store.put(["a", "b"][n % 2], "x".repeat(200)).unwrap();
    }
    assert!(store.stats().events.files > 0, "not all of it is in memory");
    let reads = faulty.op_count_of(Operation::Read);
    faulty.fail(Some(Operation::Read), reads, Fault::Io, false);
    // The one reader for all watches meets it.
    assert!(quiet.try_next().is_none());
    assert_eq!(faulty.fired(), 1);
    for n in (0..300).step_by(2) {
        assert_eq!(next(&mut watch).revision(), n + 2);
    }
    store.put("quiet", "").unwrap();
    assert_eq!(next(&mut quiet).revision(), 302);
}
