//! What compaction gives back, and when.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{DIR, Engine, commit, compact, delete, memory, open, put, tiny, user};
use crate::clock::ManualClock;
use crate::engine::Scope;
use crate::error::ErrorKind;
use crate::vfs::{FaultVfs, Operation, Vfs};

/// Writes `count` versions over ten keys, and moves all of it to files.
fn filled(options: &crate::options::Options, count: u64) -> Engine {
    let engine = open(options).unwrap();
    for n in 0..count {
        commit(&engine, vec![put(user(format!("k{}", n % 10)), noise(n))]).unwrap();
    }
    engine.reorganise().unwrap();
    engine
}

/// What does not compress.
fn noise(seed: u64) -> Vec<u8> {
    let mut numbers = super::Numbers::new(seed);
    (0..40).flat_map(|_| numbers.next().to_le_bytes()).collect()
}

/// How many windows there are, whatever files each has.
fn windows(engine: &Engine) -> usize {
    engine.0.door.0.shared.tables().files.windows.len()
}

fn history_bytes(engine: &Engine) -> u64 {
    engine.stats().history.bytes
}

/// Until the worker has given back nine tenths of `before`, with nobody asking it to.
fn wait_until_given_back(engine: &Engine, before: u64) {
    let patience = Instant::now() + Duration::from_secs(60);
    while history_bytes(engine) > before / 10 {
        assert!(Instant::now() < patience, "{} of {before}", history_bytes(engine));
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn work(engine: &Engine) {
    while engine.run_background().unwrap() {}
}

#[test]
fn what_is_dead_in_a_window_is_given_back_when_it_is_half_of_it() {
    let (_, vfs) = memory();
    let engine = filled(&tiny(&vfs).history_windows_max(2), 2_000);
    let before = history_bytes(&engine);
    assert!(before > 2_000 * 300, "{before}");
    let newest = engine.revision();
    compact(&engine, newest).unwrap();
    work(&engine);
    // What died at the watermark itself is kept: the value before the event there.
    assert!(history_bytes(&engine) < before / 50, "{} of {before}", history_bytes(&engine));
    for key in 0..10 {
        let found = engine.view(newest).unwrap().get(&user(format!("k{key}"))).unwrap();
        assert_eq!(found.unwrap().value, noise(1_990 + key));
    }
    let error = engine.view(newest - 1).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Compacted { .. }), "{error}");
}

#[test]
fn a_small_dead_part_waits_until_it_grows_or_space_is_asked_for() {
    let (_, vfs) = memory();
    let options = tiny(&vfs).memtable_bytes(4 << 20).l0_files_max(64);
    let engine = filled(&options, 2_000);
    assert_eq!(engine.0.door.0.shared.tables().files.windows.len(), 1);
    let before = history_bytes(&engine);
    compact(&engine, 500).unwrap();
    work(&engine);
    assert_eq!(history_bytes(&engine), before, "a quarter is not worth the writing");
    engine.reorganise().unwrap();
    let rest = history_bytes(&engine);
    assert!(rest < before * 4 / 5 && rest > before * 7 / 10, "{rest} of {before}");
    for revision in [500, 501, 1_000, 1_999] {
        let n = revision - 2;
        let found = engine.view(revision).unwrap().get(&user(format!("k{}", n % 10))).unwrap();
        assert_eq!(found.unwrap().value, noise(n), "at {revision}");
    }
}

#[test]
fn a_quarter_is_given_back_when_nobody_has_committed_for_a_while() {
    let (_, vfs) = memory();
    let clock = Arc::new(ManualClock::new(1_000));
    let options = tiny(&vfs).memtable_bytes(4 << 20).l0_files_max(64).clock(clock.clone());
    let engine = filled(&options, 2_000);
    let before = history_bytes(&engine);
    compact(&engine, 600).unwrap();
    for n in 0..3 {
        clock.advance(4_999_999);
        work(&engine);
        assert_eq!(history_bytes(&engine), before, "not while somebody commits");
        commit(&engine, vec![put(user("k"), noise(n))]).unwrap();
    }
    clock.advance(5_000_000);
    work(&engine);
    let rest = history_bytes(&engine);
    assert!(rest < before * 3 / 4 && rest > before * 6 / 10, "{rest} of {before}");
    compact(&engine, 900).unwrap();
    clock.advance(5_000_000);
    work(&engine);
    assert_eq!(history_bytes(&engine), rest, "less than a quarter waits");
    let found = engine.view(900).unwrap().get(&user("k8")).unwrap();
    assert_eq!(found.unwrap().value, noise(898));
}

#[test]
fn the_worker_looks_again_when_that_time_has_come() {
    let (_, vfs) = memory();
    let clock = Arc::new(ManualClock::new(1_000));
    let options = tiny(&vfs).memtable_bytes(4 << 20).l0_files_max(64).clock(clock.clone());
    let engine = filled(&options.background(true), 2_000);
    let before = history_bytes(&engine);
    compact(&engine, 600).unwrap();
    clock.advance(4_999_000);
    // It learns that there is a millisecond left, or finds that it has passed.
    engine.0.door.0.shared.worker.ring();
    clock.advance(1_000);
    let patience = Instant::now() + Duration::from_secs(60);
    while history_bytes(&engine) == before {
        assert!(Instant::now() < patience, "nothing is given back");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn tombstones_nobody_can_ask_for_go_when_the_store_is_quiet() {
    let (_, vfs) = memory();
    let clock = Arc::new(ManualClock::new(1_000));
    let options = tiny(&vfs).clock(clock.clone());
    let engine = open(&options).unwrap();
    let key = |n: u64| user(format!("k{n:04}"));
    for n in 0..300 {
        commit(&engine, vec![put(key(n), noise(n))]).unwrap();
    }
    let pinned = engine.latest().unwrap();
    // All of the first hundred, every other one of the second, and every tenth of the third.
    let dies = |n: u64| n < 100 || n < 200 && n.is_multiple_of(2) || n.is_multiple_of(10);
    for n in (0..300).filter(|n| dies(*n)) {
        commit(&engine, vec![delete(key(n))]).unwrap();
    }
    engine.reorganise().unwrap();
    let before = engine.stats().head.entries;
    assert_eq!(before, 300);
    commit(&engine, vec![put(user("z"), "1")]).unwrap();
    compact(&engine, engine.revision()).unwrap();
    clock.advance(5_000_000);
    work(&engine);
    assert_eq!(engine.stats().head.entries, before, "somebody may ask for all of them");
    drop(pinned);
    work(&engine);
    let merges = engine.stats().merges;
    let rest = engine.stats().head.entries;
    assert!((130..170).contains(&rest), "{rest} of {before}");
    clock.advance(5_000_000);
    work(&engine);
    assert_eq!(engine.stats().merges, merges, "no file is swept twice");
    for round in 0..2 {
        let view = engine.latest().unwrap();
        for n in 0..300 {
            let found = view.get(&key(n)).unwrap().map(|record| record.value);
            assert_eq!(found, (!dies(n)).then(|| noise(n).into()), "round {round}: {n}");
        }
        let scanned = view.scan(&user("k"), &user("l"), false).count() as u64;
        assert_eq!(scanned, (0..300).filter(|n| !dies(*n)).count() as u64);
        // And with the next fold on top.
        commit(&engine, vec![put(user("a"), "1"), put(user("y"), "1")]).unwrap();
        engine.reorganise().unwrap();
    }
}

#[test]
fn who_lets_go_of_a_revision_wakes_the_worker() {
    let (_, vfs) = memory();
    let engine = filled(&tiny(&vfs).background(true), 500);
    let view = engine.view(2).unwrap();
    compact(&engine, engine.revision()).unwrap();
    engine.reorganise().unwrap();
    let before = history_bytes(&engine);
    assert!(before > 300 * 300, "{before}");
    assert_eq!(view.get(&user("k0")).unwrap().unwrap().value, noise(0));
    drop(view);
    wait_until_given_back(&engine, before);
}

#[test]
fn a_missing_file_is_named_by_what_needs_it_and_the_rest_can_be_read() {
    let (disk, vfs) = memory();
    let engine = filled(&tiny(&vfs), 500);
    let newest = engine.revision();
    engine.close().unwrap();
    let history =
        |path: &String| Path::new(path).extension().is_some_and(|extension| extension == "hist");
    let lost: Vec<String> = disk.paths().into_iter().filter(history).collect();
    assert!(!lost.is_empty());
    for path in &lost {
        disk.remove(Path::new(path)).unwrap();
    }
    let (reader, _) = Engine::open_read_only(Path::new(DIR), &tiny(&vfs)).unwrap();
    for key in 0..10 {
        let found = reader.latest().unwrap().get(&user(format!("k{key}"))).unwrap();
        assert_eq!(found.unwrap().value, noise(490 + key));
    }
    assert_eq!(reader.revision(), newest);
    let error = reader.view(100).unwrap().get(&user("k0")).unwrap_err();
    let damage = error.corruption().unwrap_or_else(|| panic!("{error}"));
    assert!(history(&damage.file.to_string_lossy().into_owned()), "{damage}");
}

#[test]
fn the_worker_reclaims_once_a_compaction_is_durable_not_before() {
    let (_, below) = memory();
    let faulty = FaultVfs::new(below);
    let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
    let engine = filled(&tiny(&vfs).background(true), 500);
    let before = history_bytes(&engine);
    // A sync that takes so long that the worker looks, finds nothing, and sleeps again meanwhile.
    faulty.observe(|_, operation| {
        if operation == Operation::Sync {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    compact(&engine, engine.revision()).unwrap();
    wait_until_given_back(&engine, before);
}

#[test]
fn a_window_begins_where_the_watermark_was_and_is_not_written_twice() {
    let (_, vfs) = memory();
    let options = tiny(&vfs).memtable_bytes(4 << 20).l0_files_max(64);
    let engine = filled(&options, 200);
    compact(&engine, engine.revision()).unwrap();
    work(&engine);
    let merges = engine.stats().merges;
    for n in 200..400 {
        commit(&engine, vec![put(user(format!("k{}", n % 10)), noise(n))]).unwrap();
    }
    engine.reorganise().unwrap();
    let new = engine.stats().merges - merges;
    assert_eq!(
        new, 2,
        "nothing dead is in the windows of flush and fold, which become one; and EVENTS"
    );
    assert_eq!(windows(&engine), 1);
    engine.reorganise().unwrap();
    assert_eq!(engine.stats().merges, merges + 2, "and that is all");
    assert_eq!(engine.view(300).unwrap().get(&user("k7")).unwrap().unwrap().value, noise(297));
}

/// A store with three windows, as they were flushed, and its clock; nothing is done by itself.
fn of_three_windows(vfs: &Arc<dyn Vfs>) -> (Engine, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(1_000));
    let options = tiny(vfs).clock(clock.clone()).memtable_bytes(4 << 20).l0_files_max(64);
    let engine = open(&options.segment_bytes(1 << 20)).unwrap();
    for round in 0..3 {
        for n in round * 200..(round + 1) * 200 {
            commit(&engine, vec![put(user(format!("k{}", n % 10)), noise(n))]).unwrap();
        }
        engine.0.door.0.chain.freeze();
        work(&engine);
    }
    assert_eq!(windows(&engine), 3, "one for each flush");
    (engine, clock)
}

/// Nobody has to ask for it.
#[test]
fn a_quiet_store_merges_its_windows() {
    let (_, vfs) = memory();
    let (engine, clock) = of_three_windows(&vfs);
    let merges = engine.stats().merges;
    assert_eq!(engine.0.door.0.until_quiet_work(), Some(5_000_000));
    clock.advance(5_000_000);
    work(&engine);
    assert_eq!((windows(&engine), engine.stats().merges), (1, merges + 1));
    assert_eq!(engine.0.door.0.until_quiet_work(), None, "that is all");
    for revision in [50, 199, 201, 350, 599] {
        let view = engine.view(revision + 1).unwrap();
        let key = user(format!("k{}", (revision - 1) % 10));
        assert_eq!(view.get(&key).unwrap().unwrap().value, noise(revision - 1));
    }
}

#[test]
fn windows_are_not_merged_for_nothing_on_a_full_disk() {
    let (disk, vfs) = memory();
    let (engine, clock) = of_three_windows(&vfs);
    disk.set_capacity(Some(disk.used_bytes() + 1000));
    clock.advance(5_000_000);
    work(&engine);
    assert_eq!((windows(&engine), engine.stats().no_space), (3, None), "nothing is lacking");
    let used = disk.used_bytes();
    engine.0.door.0.reorganise().unwrap_or_else(|error| {
        assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }), "a fold needs space: {error}");
    });
    assert!(disk.used_bytes() <= used, "what was begun is gone");
    commit(&engine, vec![put(user("k0"), "goes on")]).unwrap();
    disk.set_capacity(None);
    engine.reorganise().unwrap();
    assert_eq!(windows(&engine), 1);
}

/// Else whoever writes meanwhile could keep it going without end.
#[test]
fn windows_that_come_later_are_not_taken_up() {
    let (_, vfs) = memory();
    let (engine, _) = of_three_windows(&vfs);
    let core = &engine.0.door.0;
    let files = core.shared.tables().files;
    let upto = files.windows[1].upto;
    assert!(core.merge_eagerly(&files, &core.keep_floors(), upto).unwrap());
    assert_eq!(windows(&engine), 2);
    let files = core.shared.tables().files;
    assert!(!core.merge_eagerly(&files, &core.keep_floors(), upto).unwrap());
    assert!(core.merge_eagerly(&files, &core.keep_floors(), u64::MAX).unwrap());
    assert_eq!(windows(&engine), 1);
}

fn event_bytes(engine: &Engine) -> u64 {
    engine.stats().events.bytes
}

/// The revisions of the changes that are kept.
fn kept_changes(engine: &Engine) -> Vec<u64> {
    let log = engine.log(engine.stats().compacted_revision, engine.revision(), Scope::All).unwrap();
    log.map(|transaction| transaction.unwrap().revision).collect()
}

/// A store of one EVENTS file, small enough that its successors never make compaction drop it whole.
fn of_one_events_file(vfs: &Arc<dyn Vfs>) -> (Engine, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(1_000));
    let options = tiny(vfs).memtable_bytes(4 << 20).l0_files_max(64).clock(clock.clone());
    let engine = filled(&options.segment_bytes(16 << 20), 2_000);
    assert_eq!(engine.stats().events.files, 1);
    (engine, clock)
}

#[test]
fn changes_that_are_forgotten_are_given_back_when_space_is_asked_for() {
    let (_, vfs) = memory();
    let (engine, _) = of_one_events_file(&vfs);
    let before = event_bytes(&engine);
    compact(&engine, 1_000).unwrap();
    work(&engine);
    assert_eq!(event_bytes(&engine), before, "not while somebody commits");
    engine.reorganise().unwrap();
    let rest = event_bytes(&engine);
    assert!(rest > before * 4 / 10 && rest < before * 6 / 10, "{rest} of {before}");
    assert_eq!(kept_changes(&engine), (1_000..=2_001).collect::<Vec<u64>>());
    let merges = engine.stats().merges;
    engine.reorganise().unwrap();
    assert_eq!(engine.stats().merges, merges, "and not written twice for it");
    compact(&engine, 2_001).unwrap();
    engine.reorganise().unwrap();
    assert_eq!(kept_changes(&engine), [2_001]);
    assert!(event_bytes(&engine) < before / 50, "{} of {before}", event_bytes(&engine));
}

#[test]
fn changes_that_are_forgotten_are_given_back_when_the_store_is_quiet() {
    let (_, vfs) = memory();
    let (engine, clock) = of_one_events_file(&vfs);
    let core = &engine.0.door.0;
    let before = event_bytes(&engine);
    compact(&engine, 400).unwrap();
    clock.advance(5_000_000);
    work(&engine);
    assert_eq!(event_bytes(&engine), before, "a fifth is not worth the writing");
    assert_eq!(core.until_quiet_work(), None);
    compact(&engine, 600).unwrap();
    assert_eq!(core.until_quiet_work(), Some(5_000_000));
    clock.advance(5_000_000);
    work(&engine);
    assert!(event_bytes(&engine) < before * 3 / 4, "{} of {before}", event_bytes(&engine));
    assert_eq!(kept_changes(&engine), (600..=2_001).collect::<Vec<u64>>());
    assert_eq!(core.until_quiet_work(), None);
}
