//! Background work that owes for what it has written: who ends its pause, and what goes on inside it.
//!
//! How long a pause takes is decided by what the tests do, not by time: a sync of the log that takes
//! for ever keeps the store from being idle.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::{Engine, commit, memory, open, put, tiny, user};
use crate::options::{Durability, Options};
use crate::vfs::Vfs;

/// L0 files that make work due. More come while the test looks, and lower the price, but not to nothing.
const L0_FILES: u64 = 16;

fn options(vfs: &Arc<dyn Vfs>) -> Options {
    let options = tiny(vfs).background(true).durability(Durability::Buffered);
    options.l0_files_max(L0_FILES).background_bytes_per_sync(4 << 10)
}

/// One more version of one of forty keys.
fn write(engine: &Engine, n: u64) {
    commit(engine, vec![put(user(format!("k{}", n % 40)), [7; 400])]).unwrap();
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < patience, "not in a minute: {what}");
        thread::sleep(Duration::from_micros(100));
    }
}

/// A store whose first fold has begun, and pauses until it owes no more: `bytes`, and what it has
/// written. Answers also how many versions were written.
fn pausing(options: &Options, bytes: u64) -> (Engine, u64) {
    let engine = open(options).unwrap();
    engine.0.door.0.shared.credit.sync_begins();
    engine.0.door.0.owe(bytes);
    let mut versions = 0;
    while engine.stats().l0.files < L0_FILES {
        write(&engine, versions);
        versions += 1;
    }
    until("the fold pauses", || engine.stats().background_pause_micros > 0);
    assert_eq!(engine.stats().folds, 0);
    (engine, versions)
}

/// Calls what must not wait for a pause to end.
fn soon(what: &str, engine: &Engine, call: fn(&Engine) -> crate::Result<()>) {
    let (done, outcome) = mpsc::channel();
    let engine = engine.clone();
    thread::spawn(move || done.send(call(&engine)));
    match outcome.recv_timeout(Duration::from_secs(60)) {
        Ok(outcome) => outcome.unwrap_or_else(|error| panic!("{what}: {error}")),
        Err(timeout) => panic!("{what} waits: {timeout}"),
    }
}

#[test]
fn a_flush_goes_first_and_a_close_ends_it() {
    let (_, vfs) = memory();
    let options = options(&vfs);
    let (engine, versions) = pausing(&options, 1 << 40);
    let before = engine.stats();
    let mut more = versions;
    until("a flush inside the pause", || {
        write(&engine, more);
        more += 1;
        engine.stats().flushes > before.flushes
    });
    assert_eq!(engine.stats().folds, 0, "and the fold goes on pausing");
    soon("a close", &engine, Engine::close);
    drop(engine);
    let engine = open(&options.background(false)).unwrap();
    assert_eq!(engine.revision(), 1 + more);
    assert!(engine.stats().l0.files > before.l0.files, "the fold was given up");
    while engine.run_background().unwrap() {}
    assert!(engine.stats().folds > 0);
    for n in more - 40..more {
        let found = engine.latest().unwrap().get(&user(format!("k{}", n % 40))).unwrap().unwrap();
        assert_eq!((&found.value[..], found.mod_revision), (&[7; 400][..], 2 + n));
    }
}

#[test]
fn whoever_waits_for_background_work_ends_it() {
    let (_, vfs) = memory();
    let (engine, _) = pausing(&options(&vfs), 1 << 40);
    soon("a reorganisation", &engine, |engine| engine.reorganise());
    let stats = engine.stats();
    assert!(stats.folds > 0 && stats.l0.files == 0, "{stats:?}");
    assert!(stats.background_pauses > 0, "{stats:?}");
}

#[test]
fn syncs_pay_for_it() {
    let (_, vfs) = memory();
    let (engine, _) = pausing(&options(&vfs), 0);
    let credit = &engine.0.door.0.shared.credit;
    until("the fold is paid for", || {
        credit.sync_begins();
        credit.sync_ends();
        engine.stats().folds > 0
    });
    assert!(engine.stats().background_pauses > 0);
}

#[test]
fn a_store_that_is_idle_owes_nothing() {
    let (_, vfs) = memory();
    let (engine, _) = pausing(&options(&vfs), 1 << 40);
    engine.0.door.0.shared.credit.sync_ends();
    until("the fold is done", || engine.stats().folds > 0);
}

#[test]
fn who_does_the_work_in_a_thread_of_their_own_never_pauses() {
    let (_, vfs) = memory();
    let engine = open(&options(&vfs).background(false)).unwrap();
    engine.0.door.0.shared.credit.sync_begins();
    engine.0.door.0.owe(1 << 40);
    for n in 0..2_000 {
        write(&engine, n);
        while engine.run_background().unwrap() {}
    }
    let stats = engine.stats();
    assert!(stats.folds > 0, "{stats:?}");
    assert_eq!((stats.background_pauses, stats.background_pause_micros), (0, 0));
}

/// Where every commit waits for its sync, too, the next memtable is made ahead of need. Else all threads that find
/// the last one full make one each, at the same time.
#[test]
fn the_next_memtable_is_made_ahead_whoever_syncs() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let (_disk, vfs) = memory();
        let options = tiny(&vfs).background(true).durability(durability).memtable_bytes(256 << 10);
        let engine = open(&options).unwrap();
        let shared = &engine.0.door.0.shared;
        // It is rung when it begins, and that turn could make the memtable by itself.
        until("the log thread has nothing to do", || !shared.logger.is_rung());
        let used = || shared.tables().generations.first().map_or(0, |g| g.bytes_used());
        let mut n = 0;
        while used() < 160 << 10 {
            n += 1;
            write(&engine, n);
        }
        until("a memtable is made ahead", || shared.made_next().is_some());
    }
}
