//! Folds a step at a time, and L0 files that become one: after each step, and after a crash within it,
//! every revision is answered as before.

use std::sync::{Arc, Mutex};

use super::crash::changes_something;
use super::model::Model;
use super::split::{Both, patient, spread};
use super::{memory, open, user};
use crate::engine::folds::is_begun;
use crate::engine::jobs::Depth;
use crate::options::Options;
use crate::vfs::{CrashMode, FaultVfs, MemoryVfs, Vfs};

const KEYS: usize = 60;

fn stepwise(vfs: &Arc<dyn Vfs>) -> Options {
    patient(vfs).segment_bytes(4 << 10).blob_value_bytes(1 << 30)
}

/// Puts to every `every`th key, deletes of every `every`th after the first, in one transaction.
fn update(both: &mut Both, every: usize, text: &str) {
    let key = |number: usize| format!("key-{number:03}");
    let value = text.repeat(600 / text.len());
    let keys: Vec<(String, bool)> = (0..KEYS)
        .filter(|number| number % every < 2)
        .map(|number| (key(number), every == 1 || number % every == 0))
        // What is dead already is not deleted.
        .filter(|(key, put)| *put || both.model.lives(&user(key)))
        .collect();
    let changes: Vec<(&str, Option<&str>)> =
        keys.iter().map(|(key, put)| (key.as_str(), put.then_some(value.as_str()))).collect();
    both.write(&changes);
}

/// HEAD of many files, and two L0 files with newer versions of some keys of each.
fn layered(options: &Options) -> Both {
    let mut both = Both { engine: open(options).unwrap(), model: Model::default() };
    update(&mut both, 1, "one");
    both.flush();
    both.fold();
    update(&mut both, 7, "two");
    update(&mut both, 11, "three");
    both.flush();
    update(&mut both, 7, "four");
    update(&mut both, 5, "five");
    both.flush();
    assert!(both.layout().1 > 8, "{:?}", both.layout());
    both
}

fn begun(both: &Both) -> bool {
    is_begun(&both.engine.0.door.0.shared.tables().files)
}

#[test]
fn a_fold_shows_the_same_after_every_step() {
    for between in ["nothing", "a flush", "another opening", "a compaction", "a merge"] {
        let (_, vfs) = memory();
        let options = stepwise(&vfs);
        let mut both = layered(&options);
        let mut steps = 0;
        loop {
            both.engine.0.door.0.fold_some().unwrap();
            steps += 1;
            both.glance(between);
            if !begun(&both) {
                break;
            }
            match between {
                "a flush" if steps < 4 => {
                    update(&mut both, 13, "more");
                    let core = &both.engine.0.door.0;
                    core.chain.freeze();
                    while core.unit_of(Depth::Folding).unwrap() {}
                    assert_eq!((begun(&both), both.layout().0), (true, 2 + steps));
                }
                "another opening" => both.reopen(&options),
                "a compaction" if steps == 1 => both.compact(4),
                "a merge" => {
                    let merged = options.clone().history_windows_max(2);
                    both.reopen(&merged);
                    while both.engine.run_background().unwrap() {}
                }
                _ => {}
            }
            both.glance(between);
        }
        // The unit of work that merges goes on with the fold by itself.
        assert!(steps > 2 || between == "a merge", "{between}: {steps} steps");
        both.fold();
        assert_eq!(both.layout().0, 0);
        both.glance("all folded");
        for number in (0..KEYS).step_by(5) {
            // Fails where a version is in HISTORY twice.
            both.deaths(&format!("key-{number:03}"));
        }
        both.engine.reorganise().unwrap();
        both.glance("reorganised");
    }
}

#[test]
fn what_is_asked_for_is_folded_whole_with_what_came_meanwhile() {
    let (_, vfs) = memory();
    let mut both = layered(&stepwise(&vfs));
    both.engine.0.door.0.fold_some().unwrap();
    update(&mut both, 3, "late");
    both.engine.reorganise().unwrap();
    assert_eq!(both.layout().0, 0);
    both.glance("reorganised in the middle of a fold");
}

#[test]
fn merged_l0_files_show_the_same() {
    for (from, upto) in [(0, 2), (1, 3), (0, 3)] {
        let (_, vfs) = memory();
        let options = stepwise(&vfs);
        let mut both = layered(&options);
        update(&mut both, 4, "six");
        both.flush();
        let files = both.engine.0.door.0.shared.tables().files;
        both.engine.0.door.0.merge_some_l0(&files.l0[from..upto]).unwrap();
        assert_eq!(both.layout().0, 3 + from - upto + 1);
        both.glance("merged");
        both.reopen(&options);
        both.glance("opened again");
        // Newer than what was merged, though its number may be lower.
        update(&mut both, 6, "seven");
        both.flush();
        both.glance("flushed over it");
        both.fold();
        both.glance("folded");
        for number in (0..KEYS).step_by(7) {
            both.deaths(&format!("key-{number:03}"));
        }
    }
}

#[test]
fn small_l0_files_are_merged_until_they_are_worth_a_fold() {
    let (_, vfs) = memory();
    let mut both = layered(&stepwise(&vfs));
    both.fold();
    both.reopen(&stepwise(&vfs).l0_files_max(2));
    let mut merged = 0;
    let mut folded = 0;
    for round in 0..12 {
        let name = format!("k-{round}");
        // Keys of the first and the last file: a fold would write all of HEAD again.
        both.write(&[("key-001", Some(&name)), ("key-059", Some("v"))]);
        let before = both.engine.stats();
        both.flush();
        let after = both.engine.stats();
        merged += after.merges - before.merges;
        folded += after.folds - before.folds;
        assert!(both.layout().0 < 4, "{:?}", both.layout());
    }
    assert_eq!((merged, folded), (3, 0), "a few keys do not make a fold due");
    both.glance("merged");
    for round in 0..3 {
        update(&mut both, 1, &format!("all-{round}"));
        both.flush();
    }
    assert!(both.engine.stats().folds > 0);
    both.glance("folded");
}

#[test]
fn a_merge_of_l0_files_keeps_what_shadows_head() {
    let (_, vfs) = memory();
    let mut both = spread(&patient(&vfs));
    both.write(&[("e", None)]);
    both.flush();
    let newest = both.model.revision();
    both.compact(newest);
    let files = both.engine.0.door.0.shared.tables().files;
    both.engine.0.door.0.merge_some_l0(&files.l0).unwrap();
    assert_eq!(both.layout().0, 1);
    both.glance("deleted keys stay deleted");
}

#[test]
fn a_crash_at_any_operation_of_a_step_leaves_every_revision() {
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
    let both = layered(&stepwise(&vfs));
    let images = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&images);
    faulty.observe(move |number, operation| {
        if changes_something(operation) && number.is_multiple_of(5) {
            let modes = [CrashMode::LoseAll, CrashMode::KeepAll];
            taken.lock().unwrap().extend(modes.map(|mode| disk.crash(1, mode)));
        }
    });
    let files = both.engine.0.door.0.shared.tables().files;
    both.engine.0.door.0.merge_some_l0(&files.l0).unwrap();
    both.fold();
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.len() > 20, "{}", images.len());
    for image in images {
        let vfs: Arc<dyn Vfs> = Arc::new(image);
        let engine = open(&stepwise(&vfs)).unwrap();
        let after = Both { engine, model: both.model.clone() };
        after.glance("after a crash");
        after.fold();
        after.glance("after a crash, folded");
    }
}
