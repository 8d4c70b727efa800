//! The watermark of compactions: what a manifest says of it must be durable, and nothing depends on
//! the thread that asked for it.

use std::sync::Arc;

use super::{DIR, Engine, Plan, commit, compact, memory, open, put, tiny, user};
use crate::commit::Below;
use crate::error::{ErrorKind, Result};
use crate::index::Stub;
use crate::manifest::ManifestStore;
use crate::options::Durability;
use crate::sync::epoch;
use crate::vfs::{CrashMode, Fault, FaultVfs, MemoryVfs, Operation, Vfs};

/// Nothing is older than memory.
struct Nothing;

impl Below for Nothing {
    fn newest(&self, _key: &[u8], _generation: u64) -> Result<Option<Stub>> {
        Ok(None)
    }
}

fn write(engine: &Engine, keys: u64, value: &str) {
    for key in 0..keys {
        commit(engine, vec![put(user(format!("k{key}")), value)]).unwrap();
    }
}

/// Opens what a crash leaves now, and asks it what any store must be able to answer.
fn check_crashed(disk: &MemoryVfs, what: &str) -> (u64, u64) {
    let image: Arc<dyn Vfs> = Arc::new(disk.crash(1, CrashMode::LoseAll));
    let engine = open(&tiny(&image)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let (revision, compacted) = (engine.revision(), engine.compacted_revision());
    assert!(compacted <= revision, "{what}: compacted {compacted}, but {revision} is the last");
    assert_eq!(engine.latest().unwrap().revision(), revision, "{what}");
    (revision, compacted)
}

#[test]
fn a_buffered_compaction_is_in_no_manifest_before_it_is_durable() {
    let (disk, vfs) = memory();
    let engine = open(&tiny(&vfs).durability(Durability::Buffered)).unwrap();
    for round in 0..4 {
        write(&engine, 40, &format!("old {round}"));
        engine.reorganise().unwrap();
    }
    write(&engine, 8, "new, and not durable");
    let revision = engine.revision();
    compact(&engine, revision).unwrap();
    assert_eq!(engine.compacted_revision(), revision, "seen at once");
    check_crashed(&disk, "before any work");
    let mut units = 0;
    while engine.run_background().unwrap() {
        units += 1;
        check_crashed(&disk, &format!("after unit {units}"));
    }
    engine.reorganise().unwrap();
    assert_eq!(check_crashed(&disk, "at the end"), (revision, revision));
    assert!(engine.stats().dropped_files > 0, "what was compacted went");
}

#[test]
fn after_the_log_has_failed_only_what_is_durable_counts_compactions_too() {
    let (disk, below) = memory();
    let faulty = FaultVfs::new(below);
    let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
    let engine = open(&tiny(&vfs).durability(Durability::Buffered)).unwrap();
    write(&engine, 20, "old");
    engine.flush().unwrap();
    let durable = engine.revision();
    write(&engine, 5, "never durable");
    compact(&engine, durable + 3).unwrap();
    assert_eq!((engine.revision(), engine.compacted_revision()), (durable + 5, durable + 3));
    faulty.fail(Some(Operation::Sync), faulty.op_count_of(Operation::Sync), Fault::Io, true);
    let error = engine.flush().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::OutcomeUnknown { .. }), "{error}");
    assert_eq!((engine.revision(), engine.compacted_revision()), (durable, 0));
    // What is shown can be read, and is what a crash leaves.
    assert_eq!(engine.view(2).unwrap().get(&user("k0")).unwrap().unwrap().value, "old");
    assert_eq!(engine.latest().unwrap().get(&user("k1")).unwrap().unwrap().value, "old");
    drop(engine);
    assert_eq!(check_crashed(&disk, "after the failure"), (durable, 0));
}

#[test]
fn a_compaction_needs_nothing_more_of_the_thread_that_asked_for_it() {
    let (disk, vfs) = memory();
    let engine = open(&tiny(&vfs)).unwrap();
    write(&engine, 40, "old");
    {
        // As if the thread stopped for ever as soon as it had a place.
        let guard = epoch::pin();
        let chain = &engine.0.door.0.chain;
        let plan = Plan { compact: Some(30), ..Plan::default() };
        chain.order(&chain.begin(&guard), &plan, &Nothing).unwrap();
    }
    assert_eq!(engine.compacted_revision(), 0, "not durable yet");
    commit(&engine, vec![put(user("a"), "1")]).unwrap();
    assert_eq!(engine.compacted_revision(), 30);
    // The record goes with its file of the log; the manifest must know by then.
    for round in 0..20 {
        write(&engine, 40, &format!("new {round}"));
        engine.reorganise().unwrap();
    }
    assert_eq!(check_crashed(&disk, "flushed").1, 30);
}

#[test]
fn a_watermark_above_the_last_revision_is_corruption() {
    let (disk, vfs) = memory();
    let engine = open(&tiny(&vfs)).unwrap();
    write(&engine, 3, "v");
    let vfs: Arc<dyn Vfs> = Arc::new(disk.crash(1, CrashMode::KeepAll));
    let store = ManifestStore::new(Arc::clone(&vfs), std::path::Path::new(DIR));
    let mut manifest = store.load().unwrap().unwrap();
    manifest.compacted = 5;
    store.store(&mut manifest).unwrap();
    let refused = [
        open(&tiny(&vfs)).unwrap_err(),
        Engine::open_read_only(std::path::Path::new(DIR), &tiny(&vfs)).unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(error.kind(), ErrorKind::Corrupt(_)), "{error}");
        assert!(error.to_string().contains("watermark"), "{error}");
    }
}
