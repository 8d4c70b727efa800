//! Power cuts before every operation, and every operation failing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::model::Model;
use super::random::{random_changes, writes};
use super::{DIR, Numbers, compact, memory, open, put, tiny, user};
use crate::clock::ManualClock;
use crate::engine::Engine;
use crate::error::Result;
use crate::options::{Durability, Options};
use crate::vfs::{CrashMode, Fault, FaultVfs, MemoryVfs, Operation, Vfs};
use crate::{Effect, ErrorKind};

/// What has been acknowledged, for somebody who looks from outside.
#[derive(Debug, Default)]
struct Acked {
    revision: AtomicU64,
    compacted: AtomicU64,
    /// Also what was asked for and not acknowledged may be there after a crash.
    asked_compaction: AtomicU64,
}

/// Does the same as [`super::random`], with an eye on what was acknowledged; ends at the first
/// error.
fn work(options: &Options, seed: u64, steps: u64, model: &mut Model, acked: &Acked) -> Result<()> {
    let mut numbers = Numbers::new(seed);
    let clock = Arc::new(ManualClock::new(1_000));
    let options = &options.clone().clock(clock.clone());
    let mut engine = open(options)?;
    for step in 0..steps {
        match numbers.below(100) {
            0..80 => {
                let changes = random_changes(&mut numbers, model, 40);
                // Into the model first: it may be in the log whatever the answer.
                model.commit(&changes);
                super::commit(&engine, writes(&changes))?;
                acked.revision.store(model.revision(), Ordering::SeqCst);
            }
            80..95 => {
                // Also what is done only when nobody commits for a while.
                if step % 3 == 0 {
                    clock.advance(5_000_000);
                }
                engine.run_background()?;
            }
            95 => engine.reorganise()?,
            96..98 => {
                let to = model.compacted + numbers.below(model.revision() - model.compacted + 1);
                if to > model.compacted {
                    acked.asked_compaction.store(to, Ordering::SeqCst);
                    compact(&engine, to)?;
                    model.compacted = to;
                    acked.compacted.store(to, Ordering::SeqCst);
                }
            }
            _ => {
                engine.close()?;
                drop(engine);
                engine = open(options)?;
            }
        }
    }
    engine.close()
}

/// Opens what a crash has left and checks that it is the state after some prefix of the commits,
/// with everything that was acknowledged.
fn check_image(disk: &MemoryVfs, model: &Model, acked: &Acked, what: &str) -> Engine {
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let engine = match open(&tiny(&vfs)) {
        Ok(engine) => engine,
        Err(error) => panic!("{what}: {error}"),
    };
    let (revision, compacted) = (engine.revision(), engine.compacted_revision());
    let acked_revision = acked.revision.load(Ordering::SeqCst);
    assert!(revision >= acked_revision, "{what}: {acked_revision} was acknowledged, {revision} is");
    assert!(revision <= model.revision(), "{what}: a revision from nowhere");
    let (least, most) = (&acked.compacted, &acked.asked_compaction);
    let possible = [least.load(Ordering::SeqCst), most.load(Ordering::SeqCst)];
    assert!(possible.contains(&compacted), "{what}: compacted {compacted}, not {possible:?}");
    let mut then = model.truncated(revision);
    then.compacted = compacted;
    let middle = compacted.max(1).midpoint(revision);
    then.check(&engine, &[middle, revision]);
    engine
}

/// Every file on the disk is one that the store knows.
fn check_no_leftovers(disk: &MemoryVfs, engine: &Engine) {
    let files = engine.0.door.0.shared.tables().files;
    let segments = disk.paths().iter().filter(|path| path.contains("/seg/")).count();
    assert_eq!(segments, files.all().count(), "{:?}", disk.paths());
    let leftovers = disk.paths().into_iter().filter(|path| path.contains(".tmp"));
    assert_eq!(leftovers.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn after_a_power_cut_before_any_operation_everything_acknowledged_is_there() {
    for seed in 1..=1 {
        let disk = MemoryVfs::new();
        let faulty = FaultVfs::new(Arc::new(disk.clone()));
        let acked = Arc::new(Acked::default());
        // The same history without power cuts: what every image must be a prefix of.
        let mut model = Model::default();
        {
            let (_, vfs) = memory();
            work(&tiny(&vfs), seed, 350, &mut model, &Acked::default()).unwrap();
        }
        let (seen, its_disk) = (Arc::clone(&acked), disk);
        let images = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&images);
        let whole = model.clone();
        faulty.observe(move |number, operation| {
            if !changes_something(operation) {
                return;
            }
            count.fetch_add(1, Ordering::Relaxed);
            let modes = [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random];
            // All modes at every operation would take minutes.
            let mode = modes[usize::try_from(number % 3).unwrap()];
            let image = its_disk.crash(number, mode);
            let what = format!("seed {seed}, operation {number} ({operation:?}), {mode:?}");
            let engine = check_image(&image, &whole, &seen, &what);
            if number % 16 == 0 {
                check_no_leftovers(&image, &engine);
                super::commit(&engine, vec![put(user("again"), "1")]).unwrap();
            }
        });
        let vfs: Arc<dyn Vfs> = Arc::new(faulty);
        let mut again = Model::default();
        work(&tiny(&vfs), seed, 350, &mut again, &acked).unwrap();
        assert_eq!(again.log, model.log);
        assert!(images.load(Ordering::Relaxed) > 300);
    }
}

/// A crash before an operation that changes nothing is the crash before the one after it.
pub(super) fn changes_something(operation: Operation) -> bool {
    !matches!(
        operation,
        Operation::Read
            | Operation::Exists
            | Operation::Len
            | Operation::List
            | Operation::Map
            | Operation::Lock
    )
}

#[test]
fn a_crash_during_recovery_is_recovered_from() {
    let disk = MemoryVfs::new();
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let mut model = Model::default();
    let acked = Acked::default();
    let mut numbers = Numbers::new(5);
    {
        let engine = open(&tiny(&vfs).memtable_bytes(1 << 20)).unwrap();
        for _ in 0..400 {
            let changes = random_changes(&mut numbers, &model, 40);
            super::commit(&engine, writes(&changes)).unwrap();
            model.commit(&changes);
        }
        // Killed: no close.
        std::mem::forget(engine);
    }
    acked.revision.store(model.revision(), Ordering::SeqCst);
    let killed = disk.crash(0, CrashMode::LoseAll);
    let operations = {
        let counted = killed.crash(0, CrashMode::KeepAll);
        check_image(&counted, &model, &acked, "uninterrupted");
        counted.op_count()
    };
    // With a smaller memtable, so that recovery itself writes files.
    for stop in 0..operations {
        let image = killed.crash(0, CrashMode::KeepAll);
        let faulty = FaultVfs::new(Arc::new(image.clone()));
        faulty.stop_after(stop);
        let vfs: Arc<dyn Vfs> = Arc::new(faulty);
        let opened = open(&tiny(&vfs));
        drop(opened);
        let image = image.crash(stop, CrashMode::Random);
        let what = format!("stopped after {stop}");
        let engine = check_image(&image, &model, &acked, &what);
        check_no_leftovers(&image, &engine);
    }
}

/// Runs the work with one failing operation, and answers what is on the disk afterwards.
fn work_with_fault(nth: u64, kind: Operation, fault: Fault, sticky: bool) -> bool {
    let what = format!("{kind:?} {nth} fails with {fault:?}, sticky {sticky}");
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    faulty.fail(Some(kind), nth, fault, sticky);
    let (mut model, acked) = (Model::default(), Acked::default());
    let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
    let outcome = work(&tiny(&vfs), 3, 300, &mut model, &acked);
    let fired = faulty.fired() > 0;
    if let Err(error) = &outcome {
        assert!(fired, "{what}: {error}");
        if fault == Fault::NoSpace {
            let told =
                matches!(error.kind(), ErrorKind::NoSpace { .. } | ErrorKind::Poisoned { .. })
                    || error.effect() == Effect::Unknown;
            assert!(told, "{what}: {error:?}");
        }
    }
    faulty.heal();
    for mode in [CrashMode::LoseAll, CrashMode::KeepAll] {
        let image = disk.crash(nth, mode);
        let engine = check_image(&image, &model, &acked, &format!("{what}, {mode:?}"));
        check_no_leftovers(&image, &engine);
    }
    fired
}

#[test]
fn whatever_operation_fails_nothing_acknowledged_is_lost() {
    use Operation::{Create, Open, Read, Remove, Rename, SetLen, Sync, SyncDir, Write};
    for kind in [Create, Open, Read, Remove, Rename, SetLen, Sync, SyncDir, Write] {
        let faults = match kind {
            Read => &[Fault::Io, Fault::Short, Fault::Interrupted][..],
            Write => &[Fault::Io, Fault::NoSpace, Fault::Torn, Fault::Short, Fault::Interrupted],
            Create => &[Fault::Io, Fault::NoSpace],
            _ => &[Fault::Io],
        };
        for &fault in faults {
            let mut nth = 0;
            let mut step = 1;
            while work_with_fault(nth, kind, fault, nth % 2 == 1) {
                nth += step;
                step += 1 + nth / 15;
            }
            assert!(nth > 3, "{kind:?} never came");
        }
    }
}

#[test]
fn after_a_failed_flush_reads_go_on_and_writes_are_refused() {
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk));
    let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
    let engine = open(&tiny(&vfs)).unwrap();
    super::commit(&engine, vec![put(user("a"), "1")]).unwrap();
    faulty.fail(Some(Operation::Create), faulty.op_count_of(Operation::Create), Fault::Io, true);
    let error = engine.reorganise().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error}");
    let error = super::commit(&engine, vec![put(user("a"), "2")]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Poisoned { .. }), "{error}");
    assert_eq!(engine.latest().unwrap().get(&user("a")).unwrap().unwrap().value, "1");
    drop(engine);
    faulty.heal();
    let engine = open(&tiny(&vfs)).unwrap();
    assert_eq!(engine.latest().unwrap().get(&user("a")).unwrap().unwrap().value, "1");
    super::commit(&engine, vec![put(user("a"), "2")]).unwrap();
}

#[test]
fn buffered_commits_come_back_as_a_prefix() {
    for seed in 0..20 {
        let disk = MemoryVfs::new();
        let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
        let engine = open(&tiny(&vfs).durability(Durability::Buffered)).unwrap();
        let (mut model, acked) = (Model::default(), Acked::default());
        let mut numbers = Numbers::new(seed);
        for _ in 0..300 {
            let changes = random_changes(&mut numbers, &model, 20);
            super::commit(&engine, writes(&changes)).unwrap();
            model.commit(&changes);
            if numbers.below(20) == 0 {
                engine.run_background().unwrap();
            }
            acked.revision.store(engine.durable_revision(), Ordering::SeqCst);
        }
        let what = format!("seed {seed}");
        check_image(&disk.crash(seed, CrashMode::Random), &model, &acked, &what);
    }
}

#[test]
fn a_store_that_lost_current_is_corrupt_and_not_new() {
    let (disk, vfs) = memory();
    let engine = open(&tiny(&vfs)).unwrap();
    super::commit(&engine, vec![put(user("a"), "1")]).unwrap();
    engine.close().unwrap();
    vfs.remove(&std::path::Path::new(DIR).join("CURRENT")).unwrap();
    let error = open(&tiny(&vfs)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupt(_)), "{error}");
    drop(disk);
}
