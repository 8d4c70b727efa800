//! Gets that take no pin, of the newest state and of earlier ones: exactly what was visible, whatever goes on
//! meanwhile.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;

use super::{Numbers, commit, compact, delete, memory, open, put, submit, tiny, user};
use crate::engine::{Engine, Plan};
use crate::error::{Error, ErrorKind};
use crate::options::Durability;
use crate::sync::epoch;
use crate::vfs::{Fault, FaultVfs, Operation, Vfs};

const WRITERS: usize = 2;
const KEYS: usize = 30;
const ROUNDS: usize = 60;

/// What a get answered.
struct Sample {
    key: usize,
    revision: u64,
    value: Option<Bytes>,
}

/// What a writer does to a key in a round: every fourth time it deletes it.
fn written(key: usize, round: usize) -> Option<String> {
    (round % 4 != 3).then(|| format!("{key} {round} {}", "x".repeat(key * 37 % 300)))
}

fn name(key: usize) -> Bytes {
    user(format!("/registry/{key:03}"))
}

fn value(engine: &Engine, key: impl AsRef<[u8]>) -> Option<Bytes> {
    engine.get_latest(&user(key)).unwrap().1.map(|record| record.value)
}

fn is_compacted(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Compacted { .. })
}

/// Two threads write keys of their own, one flushes, folds and compacts without a pause, two get. What
/// the getters saw is compared afterwards with what the writers had written by that revision.
fn run(durability: Durability) {
    let (_, vfs) = memory();
    let engine = open(&tiny(&vfs).durability(durability)).unwrap();
    let keys = WRITERS * KEYS;
    // The revision of each write of a key, by round.
    let writes: Vec<Mutex<Vec<u64>>> = (0..keys).map(|_| Mutex::default()).collect();
    let acked: Vec<AtomicU64> = (0..keys).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let samples = Mutex::new(Vec::new());
    let past = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (engine, writes, acked) = (&engine, &writes, &acked);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        for key in writer * KEYS..(writer + 1) * KEYS {
                            let write = match written(key, round) {
                                Some(value) => put(name(key), value),
                                None => delete(name(key)),
                            };
                            let revision = commit(engine, vec![write]).unwrap().position.revision;
                            writes[key].lock().unwrap().push(revision);
                            acked[key].store(revision, Ordering::Release);
                        }
                    }
                })
            })
            .collect();
        for seed in 0..2 {
            let (engine, acked, stop, samples) = (&engine, &acked, &stop, &samples);
            let past = &past;
            scope.spawn(move || {
                let (mut numbers, mut mine, mut last) = (Numbers::new(seed), Vec::new(), 0);
                while !stop.load(Ordering::Acquire) {
                    let key = usize::try_from(numbers.below(keys as u64)).unwrap();
                    let before = acked[key].load(Ordering::Acquire);
                    let (revision, found) = engine.get_latest(&name(key)).unwrap();
                    assert!(revision >= before, "{before} was acknowledged, {revision} is shown");
                    assert!(revision >= last, "{revision} after {last}");
                    last = revision;
                    if durability == Durability::Sync {
                        assert!(revision <= engine.durable_revision(), "shown, but not durable");
                    }
                    let value = found.map(|record| record.value);
                    mine.push(Sample { key, revision, value });
                    let revision = last - numbers.below(last.min(30));
                    match engine.get_at(&name(key), revision) {
                        Ok(found) => {
                            let value = found.map(|record| record.value);
                            mine.push(Sample { key, revision, value });
                            past.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => assert!(is_compacted(&error), "{revision}: {error}"),
                    }
                }
                samples.lock().unwrap().append(&mut mine);
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                let to = engine.durable_revision();
                if to > engine.compacted_revision() {
                    compact(&engine, to).unwrap();
                }
                engine.reorganise().unwrap();
            }
        });
        let joined: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        // Before anybody panics, or the others would go on for ever.
        stop.store(true, Ordering::Release);
        assert!(joined.iter().all(std::thread::Result::is_ok));
    });
    assert!(engine.stats().dropped_files > 0, "nothing was folded and dropped meanwhile");
    assert!(past.into_inner() > 0, "nothing but the newest state was read");
    let samples = samples.into_inner().unwrap();
    assert!(!samples.is_empty());
    for Sample { key, revision, value } in samples {
        let round = writes[key].lock().unwrap().partition_point(|write| *write <= revision);
        let expected = round.checked_sub(1).and_then(|round| written(key, round));
        assert_eq!(value.as_deref(), expected.as_ref().map(String::as_bytes), "at {revision}");
    }
}

#[test]
fn a_sync_store_shows_exactly_its_newest_durable_state() {
    run(Durability::Sync);
}

#[test]
fn a_buffered_store_shows_exactly_its_newest_state() {
    run(Durability::Buffered);
}

#[test]
fn a_state_is_read_in_tables_that_have_all_of_it() {
    let (_, vfs) = memory();
    let engine = open(&tiny(&vfs)).unwrap();
    commit(&engine, vec![put(user("a"), "old"), put(user("b"), "old")]).unwrap();
    let core = &engine.0.door.0;
    let mut asked = 0;
    let guard = epoch::pin();
    let (tables, place) = core
        .settled(&guard, || {
            asked += 1;
            let before = core.visible_place();
            match asked {
                // New memory is published, with something in it that is visible, before the state is
                // taken: the tables that were loaded lack it.
                1 => {
                    let id = core.shared.tables().generations[0].id();
                    while core.shared.tables().generations[0].id() == id {
                        commit(&engine, vec![put(user("a"), "new")]).unwrap();
                    }
                    core.visible_place()
                }
                // All of the state is superseded, and dropped from the files, after it was taken: the
                // tables that come after lack it.
                2 => {
                    let newest = commit(&engine, vec![put(user("b"), "later")]).unwrap();
                    compact(&engine, newest.position.revision).unwrap();
                    engine.reorganise().unwrap();
                    before
                }
                _ => before,
            }
        })
        .unwrap();
    assert_eq!(asked, 3, "both changes were noticed, and the last round was undisturbed");
    let at = |key| crate::engine::read::get(tables, &user(key), place.position.revision).unwrap();
    assert_eq!((at("a").unwrap().value, at("b").unwrap().value), ("new".into(), "later".into()));
    assert_eq!(place.position.revision, core.visible().revision);
}

#[test]
fn what_a_sync_store_has_not_made_durable_is_not_shown() {
    let (_, below) = memory();
    let faulty = FaultVfs::new(below);
    let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
    let engine = open(&tiny(&vfs)).unwrap();
    commit(&engine, vec![put(user("a"), "durable")]).unwrap();
    let newer = |value| Plan { writes: vec![put(user("a"), value)].into(), ..Plan::default() };
    let outcome = submit(&engine, &newer("newer")).unwrap();
    assert_eq!(value(&engine, "a").unwrap(), "durable");
    engine.wait(&outcome).unwrap();
    assert_eq!(value(&engine, "a").unwrap(), "newer");
    faulty.fail(Some(Operation::Sync), faulty.op_count_of(Operation::Sync), Fault::Io, true);
    let outcome = submit(&engine, &newer("never durable")).unwrap();
    engine.wait(&outcome).unwrap_err();
    assert_eq!(value(&engine, "a").unwrap(), "newer", "also after the failure");
}

#[test]
fn once_the_log_has_failed_a_buffered_store_shows_what_is_durable() {
    let (_, below) = memory();
    let faulty = FaultVfs::new(below);
    let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
    let engine = open(&tiny(&vfs).durability(Durability::Buffered)).unwrap();
    commit(&engine, vec![put(user("a"), "durable")]).unwrap();
    engine.flush().unwrap();
    commit(&engine, vec![put(user("a"), "lost"), put(user("b"), "lost")]).unwrap();
    assert_eq!(value(&engine, "a").unwrap(), "lost", "shown while it may become durable");
    faulty.fail(Some(Operation::Sync), faulty.op_count_of(Operation::Sync), Fault::Io, true);
    engine.flush().unwrap_err();
    assert_eq!(value(&engine, "a").unwrap(), "durable");
    assert_eq!(value(&engine, "b"), None);
}

#[test]
fn a_value_outlives_what_it_was_read_from() {
    let (_, vfs) = memory();
    let engine = open(&tiny(&vfs)).unwrap();
    let (short, long) = ("s".repeat(100), "l".repeat(3_000));
    commit(&engine, vec![put(user("short"), &short), put(user("long"), &long)]).unwrap();
    let mut kept = Vec::new();
    for _ in 0..3 {
        // From the memtable, then from a file, then from one that has lost its name.
        kept.extend(["short", "long"].map(|key| value(&engine, key).unwrap()));
        engine.reorganise().unwrap();
    }
    commit(&engine, vec![put(user("short"), "new"), put(user("long"), "new")]).unwrap();
    compact(&engine, engine.revision()).unwrap();
    engine.reorganise().unwrap();
    engine.close().unwrap();
    let error = engine.get_latest(&user("short")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed), "{error}");
    let error = engine.get_at(&user("short"), 1).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed), "{error}");
    drop(engine);
    for pair in kept.chunks(2) {
        assert_eq!((&pair[0], &pair[1]), (&Bytes::from(short.clone()), &Bytes::from(long.clone())));
    }
}
