//! A full disk from which a compaction frees whole files, though there is no space for a flush.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use annals::clock::ManualClock;
use annals::vfs::MemoryVfs;
use annals::{ErrorKind, Retention, Store, get, txn};
use support::{DIRECTORY, START_TIME, tiny};

fn noise(n: u32) -> Vec<u8> {
    (0..300_u32).map(|i| ((n.wrapping_mul(7919) + i * i * 31) >> 3).to_le_bytes()[0]).collect()
}

/// A store with much that a compaction to its newest revision lets go as whole files, on a disk that has room for
/// manifests and not for a flush. The log has megabytes of room.
fn full(background: bool) -> (MemoryVfs, Arc<ManualClock>, Store) {
    let disk = MemoryVfs::new();
    let clock = Arc::new(ManualClock::new(START_TIME));
    let options = tiny(Arc::new(disk.clone()), clock.clone())
        .wal_bytes(4 << 20)
        .segment_bytes(64 << 10)
        .background(background);
    let store = options.open(Path::new(DIRECTORY)).unwrap();
    for n in 0..3_000 {
        store.put(format!("k{}", n % 7), noise(n)).unwrap();
    }
    store.reorganise().unwrap();
    disk.set_capacity(Some(disk.used_bytes() + 9_000));
    (disk, clock, store)
}

#[test]
fn before_anything_is_frozen_a_compaction_gives_space_back() {
    let (disk, _, store) = full(false);
    let before = disk.used_bytes();
    store.compact(store.revision()).unwrap();
    while store.run_background().unwrap() {}
    assert!(disk.used_bytes() + 300_000 < before);
}

#[test]
fn with_memory_full_too_a_compaction_is_taken_and_ends_it() {
    for background in [true, false] {
        let (_disk, clock, store) = full(background);
        let newest = store.revision();
        let refused = (0..).find_map(|n| store.put("k", noise(n)).err()).unwrap();
        assert!(matches!(refused.kind(), ErrorKind::NoSpace { .. }), "{refused}");
        let read = store.submit(txn().then([get("k")])).map(drop);
        let rule = Retention::forever().keep_revisions(5);
        let ruled = store.set_retention("/x/", Some(rule)).map(drop);
        let compacted = store.compact(newest).map(drop);
        assert!(
            compacted.is_ok() && read.is_ok() && ruled.is_ok(),
            "background {background}: compact {compacted:?}, a rule {ruled:?}, a submitted read {read:?}"
        );
        // With what that gives back writing goes on.
        let patience = Instant::now() + Duration::from_secs(60);
        while let Err(error) = store.put("k", "again") {
            assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }), "{error}");
            assert!(Instant::now() < patience, "background {background}: {error}");
            // What has been put off is due some time.
            clock.advance(1_000_000);
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_flush_that_finds_no_space_keeps_no_dead_file() {
    let (disk, _, store) = full(false);
    let newest = store.revision();
    let mut n = 0;
    while store.stats().generations < 3 {
        store.put("k", noise(n)).unwrap();
        n += 1;
    }
    store.compact(newest).unwrap();
    let before = disk.used_bytes();
    while let Ok(true) = store.run_background() {}
    assert!(disk.used_bytes() + 300_000 < before, "{before} -> {}", disk.used_bytes());
}
