//! Notes of what is left: what is written down is of the newest moment, and never too little.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crate::kv::Store;
use crate::lease::leases;
use crate::lease::table::Found;
use crate::options::Durability;
use crate::vfs::{CrashMode, MemoryVfs};

use super::{SECOND, granted, options, settle};

fn left(store: &Store, id: i64) -> u64 {
    store.lease_time_to_live(id, false).unwrap().unwrap().remaining.as_secs()
}

#[test]
fn notes_do_not_wait_for_leases_that_end() {
    let (options, clock) = options();
    let disk = MemoryVfs::new();
    let options = options.vfs(Arc::new(disk.clone())).lease_checkpoint_interval_seconds(60);
    let store = options.open("store").unwrap();
    granted(&store, 7, 3600);
    granted(&store, 8, 60);
    clock.advance(60 * SECOND);
    assert!(store.run_background().unwrap());
    assert_eq!(store.stats().leases_expired, 1);
    let image = disk.crash(1, CrashMode::LoseAll);
    assert_eq!(left(&options.vfs(Arc::new(image)).open("store").unwrap(), 7), 3600 - 60);
}

#[test]
fn of_two_notes_of_a_lease_the_newer_one_is_written() {
    let (options, clock) = options();
    let disk = MemoryVfs::new();
    let options = options.vfs(Arc::new(disk.clone())).lease_checkpoint_interval_seconds(60);
    let store = options.open("store").unwrap();
    granted(&store, 7, 3600);
    let mut found = Found::default();
    let room = leases(&store).unwrap();
    for count in 1..=3 {
        clock.advance(60 * SECOND);
        while room.table.look(&mut found) {}
        assert_eq!(found.notes.len(), count);
    }
    room.write_down(&found.notes, None).unwrap();
    let image = disk.crash(1, CrashMode::LoseAll);
    let store = options.vfs(Arc::new(image)).open("store").unwrap();
    assert_eq!(left(&store, 7), 3600 - 180);
}

#[test]
fn what_waits_to_be_written_down_is_written_on_close() {
    let (options, clock) = options();
    let options = options.lease_checkpoint_interval_seconds(60);
    let store = options.open("store").unwrap();
    granted(&store, 7, 3600);
    clock.advance(60 * SECOND);
    let room = leases(&store).unwrap();
    while room.table.look(&mut room.found.lock().unwrap()) {}
    assert_eq!(room.found.lock().unwrap().notes.len(), 1);
    store.close().unwrap();
    assert_eq!(left(&options.open("store").unwrap(), 7), 3600 - 60);
}

#[test]
fn a_note_that_is_under_way_does_not_land_behind_a_renewal() {
    let (options, clock) = options();
    let disk = MemoryVfs::new();
    let options = options.vfs(Arc::new(disk.clone())).lease_checkpoint_interval_seconds(10);
    let store = options.open("store").unwrap();
    granted(&store, 7, 100);
    clock.advance(50 * SECOND);
    let room = leases(&store).unwrap();
    let mut found = Found::default();
    while room.table.look(&mut found) {}
    assert_eq!(found.notes.len(), 1);
    let is_first = Cell::new(true);
    let evaluated = || {
        let current = found.notes.iter().filter(|note| room.table.is_current(note));
        let notes = current.map(|note| (note.id, note.value)).collect();
        if is_first.replace(false) {
            assert_eq!(store.lease_keep_alive(7).unwrap(), 100);
        }
        notes
    };
    room.records.note(&evaluated, None).unwrap();
    settle(&store);
    let image = disk.crash(1, CrashMode::LoseAll);
    let store = options.vfs(Arc::new(image)).open("store").unwrap();
    assert_eq!(left(&store, 7), 100);
}

#[test]
fn a_renewal_of_a_noted_lease_is_durable_whatever_the_stores_durability() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let (options, clock) = options();
        let disk = MemoryVfs::new();
        let options = options.vfs(Arc::new(disk.clone())).lease_checkpoint_interval_seconds(10);
        let options = options.durability(durability);
        let store = options.open("store").unwrap();
        granted(&store, 7, 100);
        clock.advance(50 * SECOND);
        settle(&store);
        let before = store.stats().batches;
        store.lease_keep_alive(7).unwrap();
        assert_eq!(store.stats().batches, before + 1, "its record said 50 s");
        for _ in 0..100 {
            clock.advance(5 * SECOND);
            settle(&store);
            store.lease_keep_alive(7).unwrap();
        }
        assert_eq!(store.stats().batches, before + 1, "it is renewed often");
        let image = disk.crash(1, CrashMode::LoseAll);
        let store = options.vfs(Arc::new(image)).open("store").unwrap();
        assert_eq!(left(&store, 7), 100);
    }
}

#[test]
fn notes_keep_the_limits_of_the_format_only() {
    let (options, clock) = options();
    let options = options.lease_checkpoint_interval_seconds(60).transaction_bytes_max(4096);
    let store = options.open("store").unwrap();
    for id in 1..=500 {
        store.lease_grant(id, Duration::from_secs(3600)).unwrap();
    }
    clock.advance(60 * SECOND);
    settle(&store);
    store.close().unwrap();
    let store = options.open("store").unwrap();
    assert!((1..=500).all(|id| left(&store, id) == 3540));
}

#[test]
fn what_is_left_is_written_down_when_the_last_handle_is_dropped() {
    let (options, clock) = options();
    let options = options.lease_checkpoint_interval_seconds(60);
    let store = options.open("store").unwrap();
    granted(&store, 7, 100);
    let other = store.clone();
    clock.advance(30 * SECOND);
    drop(store);
    clock.advance(10 * SECOND);
    drop(other);
    assert_eq!(left(&options.open("store").unwrap(), 7), 60);
}

#[test]
fn a_store_that_closes_does_not_wait_until_all_leases_are_loaded() {
    let (options, clock) = options();
    let store = options.open("store").unwrap();
    (1..=3).for_each(|id| drop(granted(&store, id, 100)));
    store.close().unwrap();
    let store = options.open("store").unwrap();
    let room = leases(&store).unwrap();
    let seen = Cell::new(0);
    let enough = || seen.replace(seen.get() + 1) == 2;
    assert!(!room.load(enough).unwrap());
    assert_eq!((seen.get(), store.stats().leases), (3, 2));
    clock.advance(SECOND);
    assert!(room.load(|| false).unwrap());
    assert_eq!(store.stats().leases, 3);
}
