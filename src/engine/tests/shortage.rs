//! A full disk ends no writing: background work gives back what it has begun, and is done when there is space.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::model::Model;
use super::random::{random_changes, writes};
use super::{Numbers, Plan, commit, compact, memory, open, put, tiny, user};
use crate::engine::Engine;
use crate::error::Result;
use crate::options::{Durability, Options};
use crate::vfs::{CrashMode, Fault, FaultVfs, MemoryVfs, Operation, Vfs};
use crate::{Effect, ErrorKind};

/// Much to flush, fold, merge and trim.
fn filled(options: &Options, model: &mut Model) -> Engine {
    let engine = open(options).unwrap();
    let mut numbers = Numbers::new(5);
    for step in 0..120 {
        let changes = random_changes(&mut numbers, model, 40);
        model.commit(&changes);
        commit(&engine, writes(&changes)).unwrap();
        if step == 60 {
            engine.reorganise().unwrap();
        }
    }
    model.compacted = 50;
    compact(&engine, 50).unwrap();
    engine
}

/// All the background work there is.
fn work(engine: &Engine) -> Result<()> {
    while engine.run_background()? {}
    engine.reorganise()
}

fn check(engine: &Engine, model: &Model) {
    let revision = model.revision();
    let oldest = model.compacted.max(1);
    model.check(engine, &[oldest, oldest.midpoint(revision), revision]);
}

/// How many segment files there are beside those that the store knows.
fn leftovers(disk: &MemoryVfs, engine: &Engine) -> usize {
    let files = engine.0.door.0.shared.tables().files;
    disk.paths().iter().filter(|path| path.contains("/seg/")).count() - files.all().count()
}

#[test]
fn whatever_operation_of_background_work_finds_no_space_it_is_done_again() {
    let kinds = [
        Operation::Create,
        Operation::Write,
        Operation::Sync,
        Operation::SyncDir,
        Operation::Rename,
    ];
    let ended = fail_each(Fault::NoSpace, &kinds);
    // Only where it is not known which manifest is in force.
    assert_eq!(ended, [Operation::Rename, Operation::SyncDir]);
}

#[test]
fn whatever_operation_of_background_work_finds_no_descriptor_it_is_done_again() {
    // A directory is opened to be synced, or read.
    let kinds = [Operation::Create, Operation::Open, Operation::SyncDir, Operation::List];
    assert_eq!(fail_each(Fault::NoDescriptor, &kinds), []);
}

/// Fails each operation of these kinds of all background work, one in each run. Answers of which kinds those are that ended
/// writing.
fn fail_each(fault: Fault, concerned: &[Operation]) -> Vec<Operation> {
    // What is done without a fault.
    let mut kinds = Vec::new();
    let mut first = 0;
    let mut ended = BTreeMap::new();
    let mut tried = 0;
    for nth in 0_u64.. {
        let disk = MemoryVfs::new();
        let faulty = FaultVfs::new(Arc::new(disk.clone()));
        let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
        let mut model = Model::default();
        let engine = filled(&tiny(&vfs), &mut model);
        let begin = faulty.op_count();
        if nth == 0 {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let to = Arc::clone(&seen);
            faulty.observe(move |_, operation| to.lock().unwrap().push(operation));
            work(&engine).unwrap();
            kinds = seen.lock().unwrap().clone();
            first = begin;
            continue;
        }
        assert_eq!(begin, first);
        let Some(kind) = kinds.get(usize::try_from(nth).unwrap() - 1) else { break };
        if !concerned.contains(kind) {
            continue;
        }
        faulty.fail(None, begin + nth - 1, fault, false);
        let outcome = work(&engine);
        assert_eq!(faulty.fired(), 1);
        tried += 1;
        if let Err(error) = &outcome {
            assert!(error.is_shortage(), "{nth}: {error}");
        }
        if engine.stats().failure.is_some() {
            *ended.entry(*kind).or_insert(0) += 1;
        } else {
            assert_eq!(leftovers(&disk, &engine), 0, "{nth} {kind:?}: {:?}", disk.paths());
            assert_eq!(engine.stats().no_space.is_some(), outcome.is_err(), "{nth} {kind:?}");
            check(&engine, &model);
            if outcome.is_err() {
                // What a crash leaves now has everything.
                let image: Arc<dyn Vfs> = Arc::new(disk.crash(nth, CrashMode::LoseAll));
                check(&open(&tiny(&image)).unwrap(), &model);
            }
            let changes = random_changes(&mut Numbers::new(nth), &model, 40);
            model.commit(&changes);
            commit(&engine, writes(&changes)).unwrap();
            work(&engine).unwrap();
            assert_eq!(leftovers(&disk, &engine), 0, "{nth} {kind:?}: {:?}", disk.paths());
            assert_eq!(engine.stats().no_space, None);
            check(&engine, &model);
        }
        drop(engine);
        let image: Arc<dyn Vfs> = Arc::new(disk.crash(nth, CrashMode::LoseAll));
        check(&open(&tiny(&image)).unwrap(), &model);
    }
    assert!(tried > 50, "{tried}");
    let times: u64 = ended.values().sum();
    assert!(times * 4 < tried, "{ended:?} of {tried}");
    ended.into_keys().collect()
}

#[test]
fn a_disk_that_is_full_keeps_background_work_back_and_nothing_else() {
    let (disk, vfs) = memory();
    let mut model = Model::default();
    let engine = filled(&tiny(&vfs), &mut model);
    disk.set_capacity(Some(disk.used_bytes()));
    let used = disk.used_bytes();
    for _ in 0..3 {
        let error = work(&engine).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }), "{error}");
        assert_eq!(disk.used_bytes(), used, "what was begun is given back");
    }
    assert!(engine.stats().no_space.unwrap().contains("no space left"));
    assert_eq!(engine.stats().failure, None);
    check(&engine, &model);
    disk.set_capacity(None);
    let changes = random_changes(&mut Numbers::new(1), &model, 40);
    model.commit(&changes);
    commit(&engine, writes(&changes)).unwrap();
    work(&engine).unwrap();
    assert_eq!(engine.stats().no_space, None);
    check(&engine, &model);
    engine.close().unwrap();
    check(&open(&tiny(&vfs)).unwrap(), &model);
}

/// With threads: a commit that finds no room in memory is told so and changes nothing, and goes on when there is space.
#[test]
fn commits_are_refused_while_there_is_no_space_and_taken_when_there_is() {
    let (disk, vfs) = memory();
    let options = tiny(&vfs).background(true).wal_bytes(4 << 20);
    let engine = open(&options).unwrap();
    commit(&engine, vec![put(user("first"), "1")]).unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    let mut taken = Vec::new();
    let mut write = |number: u32| {
        let key = user(format!("{number:05}"));
        commit(&engine, vec![put(key.clone(), [7; 500])]).map(|_| taken.push(key))
    };
    let error = (0..500).find_map(|number| write(number).err()).expect("memory has an end");
    assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }), "{error}");
    assert_eq!(error.effect(), Effect::None);
    assert!(engine.stats().failure.is_none() && engine.stats().no_space.is_some());
    disk.set_capacity(None);
    let begun = Instant::now();
    for number in 1_000..1_200 {
        // The first may still be small enough for what is left of memory.
        while let Err(error) = write(number) {
            assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }), "{error}");
            assert!(begun.elapsed() < Duration::from_secs(120), "it is not tried again");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let view = engine.latest().unwrap();
    for key in &taken {
        assert!(view.get(key).unwrap().is_some(), "{key:?}");
    }
    assert_eq!(engine.revision(), 2 + taken.len() as u64);
    drop(view);
    engine.close().unwrap();
    assert_eq!(open(&options).unwrap().revision(), 2 + taken.len() as u64);
}

/// With threads: what a long transaction lacks says nothing of short ones.
#[test]
fn short_commits_are_taken_while_there_is_no_space_for_a_long_one() {
    let (disk, vfs) = memory();
    let options = tiny(&vfs).background(true).memtable_bytes(64 << 20).wal_bytes(64 << 10);
    let engine = open(&options).unwrap();
    commit(&engine, vec![put(user("first"), "1")]).unwrap();
    disk.set_capacity(Some(disk.used_bytes() + (500 << 10)));
    let error = commit(&engine, vec![put(user("long"), vec![7; 4 << 20])]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }), "{error}");
    for number in 0..40 {
        commit(&engine, vec![put(user(format!("{number:05}")), [7; 1000])]).unwrap();
    }
}

/// With threads: a file of the log that cannot be made is not tried again with each commit.
#[test]
fn an_error_of_the_next_file_of_the_log_is_given_time() {
    let (_, vfs) = memory();
    let faulty = FaultVfs::new(vfs);
    let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
    let options = tiny(&vfs).background(true).memtable_bytes(64 << 20).wal_bytes(256 << 10);
    let engine = open(&options).unwrap();
    let created = faulty.op_count_of(Operation::Create);
    faulty.fail(Some(Operation::Create), created, Fault::Io, true);
    let begun = Instant::now();
    let write = |number: u32| {
        // The background thread has time to try.
        std::thread::sleep(Duration::from_millis(2));
        let key = user(format!("{number:05}"));
        commit(&engine, vec![put(key, [7; 1000])])
    };
    let refused = (0..1_000).find_map(|number| write(number).err()).expect("the file has an end");
    assert!(matches!(refused.kind(), ErrorKind::Io { .. }), "{refused}");
    assert_eq!(refused.effect(), Effect::None);
    let stats = engine.stats();
    assert_eq!((stats.failure, stats.no_space), (None, None));
    let tried = faulty.op_count_of(Operation::Create) - created;
    assert!(tried <= 3 + begun.elapsed().as_secs(), "{tried} times");
}

/// Threads commit short and long values to a disk that fills up: each commit is taken and durable, or refused and without
/// effect, and the log never finds itself without room for what was taken.
#[test]
fn the_log_takes_no_more_than_it_has_room_for() {
    for seed in 0..12 {
        let (disk, vfs) = memory();
        let durability = if seed % 3 == 0 { Durability::Buffered } else { Durability::Sync };
        let options = tiny(&vfs)
            .background(seed % 2 == 0)
            .durability(durability)
            // Nothing is flushed, which would give space back.
            .memtable_bytes(64 << 20)
            .wal_bytes([64 << 10, 256 << 10, 1 << 20][usize::try_from(seed % 3).unwrap()]);
        let engine = open(&options).unwrap();
        commit(&engine, vec![put(user("first"), "1")]).unwrap();
        let taken = Mutex::new(Vec::new());
        let threads = 4;
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (engine, taken, disk) = (&engine, &taken, &disk);
                scope.spawn(move || {
                    let mut numbers = Numbers::new(seed * 100 + thread);
                    for number in 0..300 {
                        if thread == 0 && number % 60 == 10 {
                            disk.set_capacity(Some(disk.used_bytes() + numbers.below(200 << 10)));
                        }
                        let longest = if numbers.below(20) == 0 { 400_000 } else { 3_000 };
                        let value = vec![7; usize::try_from(numbers.below(longest)).unwrap()];
                        let key = user(format!("{thread}-{number:05}"));
                        match commit(engine, vec![put(key.clone(), &value)]) {
                            Ok(_) => taken.lock().unwrap().push((key, value.len())),
                            Err(error) => {
                                let is_space = matches!(error.kind(), ErrorKind::NoSpace { .. });
                                assert!(is_space, "seed {seed}: {error}");
                                assert_eq!(error.effect(), Effect::None);
                                let newest = engine.latest().unwrap().get(&key).unwrap();
                                assert!(newest.is_none(), "seed {seed}: it is there");
                            }
                        }
                    }
                });
            }
        });
        let mut taken = taken.into_inner().unwrap();
        // Who ran last may have found room that the log had made before.
        disk.set_capacity(Some(disk.used_bytes()));
        let refused = (0..1_000).find_map(|number| {
            let key = user(format!("full-{number:05}"));
            let error = commit(&engine, vec![put(key.clone(), vec![7; 30_000])]).err();
            if error.is_none() {
                taken.push((key, 30_000));
            }
            error
        });
        let error = refused.expect("the disk is full");
        assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }), "seed {seed}: {error}");
        assert_eq!(engine.stats().failure, None, "seed {seed}");
        assert!(engine.stats().no_space.is_some(), "seed {seed}");
        // What is refused takes no memory, however often it comes.
        let refuse = |number: u32| {
            let put = put(user(format!("refused-{number}")), vec![7; 2 << 20]);
            commit(&engine, vec![put]).unwrap_err()
        };
        let error = refuse(0);
        assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }), "seed {seed}: {error}");
        let before = engine.stats().memtable_bytes;
        (1..100).for_each(|number| drop(refuse(number)));
        assert_eq!(engine.stats().memtable_bytes, before, "seed {seed}");
        // There is room for this still.
        compact(&engine, 2).unwrap();
        disk.set_capacity(None);
        let last = Plan { writes: vec![put(user("last"), [1; 100_000])].into(), ..Plan::default() };
        let write_last = || {
            let outcome = engine.transact(Some(Durability::Sync), &mut |_, plan| {
                plan.clone_from(&last);
                Ok(true)
            })?;
            engine.wait(&outcome)
        };
        let begun = Instant::now();
        while let Err(error) = write_last() {
            assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }), "seed {seed}: {error}");
            assert!(
                begun.elapsed() < Duration::from_secs(120),
                "seed {seed}: it is not tried again"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        let image: Arc<dyn Vfs> = Arc::new(disk.crash(seed, CrashMode::KeepAll));
        for engine in [engine, open(&tiny(&image)).unwrap()] {
            let view = engine.latest().unwrap();
            for (key, bytes) in &taken {
                let found = view.get(key).unwrap().map(|record| record.value.len());
                assert_eq!(found, Some(*bytes), "seed {seed}: {key:?}");
            }
            assert_eq!(engine.revision(), 3 + taken.len() as u64, "seed {seed}");
        }
    }
}

/// More log than memtables take, as a process leaves it that found no space for flushes.
#[test]
fn a_store_is_opened_without_space_for_what_its_log_holds_and_a_compaction_makes_some() {
    let (disk, vfs) = memory();
    let mut model = Model::default();
    {
        let engine = open(&tiny(&vfs).memtable_bytes(64 << 20)).unwrap();
        let mut numbers = Numbers::new(11);
        for _ in 0..150 {
            let value: Vec<u8> = (0..3_000).map(|_| numbers.below(256).to_le_bytes()[0]).collect();
            let key = user(format!("{:02}", numbers.below(20)));
            let changes = vec![(key, Some(value.into()))];
            model.commit(&changes);
            commit(&engine, writes(&changes)).unwrap();
        }
        drop(engine);
    }
    let (mut opened, mut least) = (0, None);
    for room in (0..700_u64).step_by(20).map(|room| room << 10) {
        let image = disk.crash(room, CrashMode::KeepAll);
        let vfs: Arc<dyn Vfs> = Arc::new(image.clone());
        for memtable_bytes in [16 << 10, 1 << 20] {
            image.set_capacity(Some(image.used_bytes() + room));
            let options = tiny(&vfs).memtable_bytes(memtable_bytes);
            let engine = match open(&options) {
                Ok(engine) => engine,
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }), "{error}");
                    assert!(!image.paths().iter().any(|path| path.contains("/seg/")));
                    image.set_capacity(None);
                    check(&open(&options).unwrap(), &model);
                    break;
                }
            };
            opened += 1;
            least = least.or(Some(room));
            check(&engine, &model);
            if memtable_bytes == 16 << 10 {
                drop(engine);
                continue;
            }
            // What is kept of it takes 60 KiB.
            if room >= 300 << 10 {
                let newest = model.revision();
                compact(&engine, newest).unwrap();
                work(&engine).unwrap();
                assert!(image.used_bytes() < 350 << 10, "{}", image.used_bytes());
                assert_eq!(engine.stats().no_space, None);
                let mut model = model.clone();
                model.compacted = newest;
                check(&engine, &model);
            }
            image.set_capacity(None);
            work(&engine).unwrap();
            engine.close().unwrap();
        }
    }
    assert!(opened > 40 && least < Some(150 << 10), "{opened} {least:?}");
}
