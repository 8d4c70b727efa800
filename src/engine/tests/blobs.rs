//! Large values in files of their own: what is written again and what is not, what goes when, and what is damaged.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::crash::changes_something;
use super::split::{Both, patient};
use super::{DIR, memory, open, tiny, user};
use crate::check;
use crate::engine::jobs::Depth;
use crate::error::ErrorKind;
use crate::options::{Options, ReadMode};
use crate::reclaim::plan::TRIM_USUAL;
use crate::vfs::{CrashMode, FaultVfs, MemoryVfs, Vfs};

const LARGE: usize = 10;

/// A large value for each of some keys, in one transaction.
pub(super) fn large(both: &mut Both, keys: std::ops::Range<usize>, text: &str) {
    let value = text.repeat(600 / text.len());
    let keys: Vec<String> = keys.map(|number| format!("large-{number:02}")).collect();
    let changes: Vec<(&str, Option<&str>)> =
        keys.iter().map(|key| (key.as_str(), Some(value.as_str()))).collect();
    both.write(&changes);
}

/// Many small ones, between which the large ones lie.
fn small(both: &mut Both, text: &str) {
    let keys: Vec<String> = (0..60).map(|n| format!("large-{:02}/{n}", n % LARGE)).collect();
    let changes: Vec<(&str, Option<&str>)> =
        keys.iter().map(|key| (key.as_str(), Some(text))).collect();
    both.write(&changes);
}

/// A store in which all are in HEAD.
fn folded(options: &Options) -> Both {
    let mut both = Both { engine: open(options).unwrap(), model: super::model::Model::default() };
    large(&mut both, 0..LARGE, "first");
    small(&mut both, "one");
    both.flush();
    both.fold();
    assert_eq!(both.layout(), (0, 1, 0));
    both
}

impl Both {
    /// The blob files, and how many bytes of each entries refer to.
    fn blobs(&self) -> BTreeMap<u64, u64> {
        let files = self.engine.0.door.0.shared.tables().files;
        let of = |file: &Arc<crate::segment::SealedFile>| {
            (file.meta().number, files.referenced(file).all())
        };
        files.blobs.iter().map(of).collect()
    }

    fn move_some(&self, share: u64) -> bool {
        let core = &self.engine.0.door.0;
        let files = core.shared.tables().files;
        core.move_some_blobs(&files, &core.keep_floors(), share, u64::MAX).unwrap()
    }
}

#[test]
fn folds_do_not_write_large_values_again() {
    let (_, vfs) = memory();
    let mut both = folded(&patient(&vfs));
    let before = both.blobs();
    assert_eq!(before.len(), 1);
    for text in ["two", "three", "four"] {
        small(&mut both, text);
        both.flush();
        if text == "three" {
            let files = both.engine.0.door.0.shared.tables().files;
            both.engine.0.door.0.merge_some_l0(&files.l0).unwrap();
        }
        both.fold();
        assert_eq!(both.blobs(), before, "{text}");
        both.glance(text);
    }
    assert!(!both.move_some(16), "all of it is in use");
    both.reopen(&patient(&vfs));
    assert_eq!(both.blobs(), before);
    both.glance("opened again");
}

#[test]
fn what_is_superseded_goes_once_it_is_much() {
    let (disk, vfs) = memory();
    let mut both = folded(&patient(&vfs));
    let first = both.blobs();
    large(&mut both, 0..4, "second");
    both.flush();
    assert_eq!(both.blobs().len(), 2, "both until the fold");
    both.fold();
    let second = both.blobs();
    assert_eq!((second.len(), second.values().sum::<u64>()), (2, 600 * LARGE as u64));
    assert!(!both.move_some(TRIM_USUAL), "less than half of the first is superseded");
    both.glance("superseded in part");
    large(&mut both, 0..9, "third");
    both.flush();
    both.fold();
    // Nothing of the second is in use: it went with the fold.
    assert_eq!(both.blobs().len(), 2);
    assert!(both.move_some(TRIM_USUAL));
    let third = both.blobs();
    assert!(third.keys().all(|number| !first.contains_key(number)), "{third:?}");
    assert!(!both.move_some(TRIM_USUAL), "once");
    both.glance("moved");
    let on_disk = disk.paths().iter().filter(|path| path.contains(".blob")).count();
    assert_eq!(on_disk, third.len());
    // Deleted keys need none.
    let keys: Vec<String> = (0..LARGE).map(|number| format!("large-{number:02}")).collect();
    let changes: Vec<(&str, Option<&str>)> = keys.iter().map(|key| (key.as_str(), None)).collect();
    both.write(&changes);
    both.flush();
    both.fold();
    assert_eq!(both.blobs(), BTreeMap::new());
    both.glance("deleted");
}

#[test]
fn many_that_go_at_once_go_some_at_a_time() {
    let (disk, vfs) = memory();
    let mut both = folded(&patient(&vfs).segment_bytes(4 << 10));
    for round in 0..20 {
        let from = 100 * (round + 1);
        large(&mut both, from..from + 40, "many");
    }
    both.flush();
    both.fold();
    let before = both.blobs().len();
    assert!(before > 80, "{before}");
    let view = both.engine.latest().unwrap();
    let then = both.model.clone();
    let keys: Vec<String> = (0..20)
        .flat_map(|round| (0..40).map(move |n| format!("large-{:02}", 100 * (round + 1) + n)))
        .collect();
    let changes: Vec<(&str, Option<&str>)> = keys.iter().map(|key| (key.as_str(), None)).collect();
    both.write(&changes);
    both.engine.0.door.0.chain.freeze();
    while both.engine.0.door.0.unit_of(Depth::Folding).unwrap() {}
    both.fold();
    // Each is held open until it has lost its name.
    let left = both.blobs();
    assert!(left.len() > 3 && left.len() < before, "{} of {before}", left.len());
    both.glance("folded");
    while both.engine.run_background().unwrap() {}
    assert!(both.blobs().len() <= 3, "{:?}", both.blobs());
    let on_disk = disk.paths().iter().filter(|path| path.contains(".blob")).count();
    assert_eq!(on_disk, both.blobs().len());
    then.check_view(&view);
    both.glance("dropped");
}

#[test]
fn many_small_blob_files_become_few() {
    let (_, vfs) = memory();
    let options = patient(&vfs).history_windows_max(3).segment_bytes(1 << 20);
    let mut both = folded(&options);
    for number in 0..40 {
        large(&mut both, number..number + 1, "another");
        both.flush();
        both.fold();
        // Four times as many as there may be windows, and one more until the next unit of work.
        assert!(both.blobs().len() <= 13, "{:?}", both.blobs());
        both.glance("another");
    }
    while both.move_some(TRIM_USUAL) {}
    assert!(both.blobs().len() <= 12, "{:?}", both.blobs());
    both.glance("moved");
}

#[test]
fn who_reads_goes_on_with_files_that_are_gone() {
    for mode in [ReadMode::Mmap, ReadMode::Pread] {
        let (_, vfs) = memory();
        let mut both = folded(&patient(&vfs).read_mode(mode).cache_bytes(0));
        let view = both.engine.latest().unwrap();
        let then = both.model.clone();
        large(&mut both, 0..LARGE, "second");
        both.flush();
        both.fold();
        let newest = both.model.revision();
        both.compact(newest);
        both.engine.reorganise().unwrap();
        then.check_view(&view);
        both.glance("compacted");
    }
}

/// Every large value at the newest revision: how many can be read, and the files that the others name as damaged.
fn readable(options: &Options) -> (usize, Vec<String>) {
    let engine = open(options).unwrap();
    let view = engine.latest().unwrap();
    assert_eq!(view.get(&user("large-03/3")).unwrap().unwrap().value, "one");
    let (mut read, mut damaged) = (0, Vec::new());
    for number in 0..LARGE {
        match view.get(&user(format!("large-{number:02}"))).map_err(crate::Error::into_kind) {
            Ok(found) => read += usize::from(found.unwrap().value.starts_with(b"first")),
            Err(ErrorKind::Corrupt(found)) => damaged.push(found.file.display().to_string()),
            Err(other) => panic!("{other:?}"),
        }
    }
    damaged.dedup();
    (read, damaged)
}

#[test]
fn damage_of_a_value_is_that_of_its_key_alone() {
    for mode in [ReadMode::Mmap, ReadMode::Pread] {
        let (disk, vfs) = memory();
        let options = patient(&vfs).read_mode(mode).segment_bytes(1 << 20);
        folded(&options).engine.close().unwrap();
        assert_eq!(readable(&options), (LARGE, vec![]));
        let path = disk.paths().into_iter().find(|path| path.contains(".blob")).unwrap();
        let path = &Path::new("/").join(path);
        let good = disk.read(path).unwrap();
        let mut bad = good.clone();
        bad[64 + 3 * 700] ^= 1;
        disk.overwrite(path, &bad);
        let (read, files) = readable(&options);
        assert_eq!((read, files), (LARGE - 1, vec![path.display().to_string()]));
        let report = check(DIR, &options, &mut |_, _| ()).unwrap();
        assert!(report.damage.iter().all(|found| found.file == *path), "{:?}", report.damage);
        assert!(!report.damage.is_empty());

        disk.overwrite(path, &good[..good.len() - 1]);
        assert_eq!(readable(&options), (0, vec![path.display().to_string()]));
        disk.overwrite(path, &good);
        assert_eq!(check(DIR, &options, &mut |_, _| ()).unwrap().damage, vec![]);
        disk.forget(path);
        assert_eq!(readable(&options), (0, vec![path.display().to_string()]));
        assert!(!check(DIR, &options, &mut |_, _| ()).unwrap().damage.is_empty());
    }
}

#[test]
fn a_crash_at_any_operation_of_a_move_leaves_every_revision() {
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
    let mut both = folded(&patient(&vfs));
    large(&mut both, 0..9, "second");
    both.flush();
    both.fold();
    let images = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&images);
    faulty.observe(move |_, operation| {
        if changes_something(operation) {
            let modes = [CrashMode::LoseAll, CrashMode::KeepAll];
            taken.lock().unwrap().extend(modes.map(|mode| disk.crash(1, mode)));
        }
    });
    assert!(both.move_some(TRIM_USUAL));
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.len() > 10, "{}", images.len());
    for image in images {
        let vfs: Arc<dyn Vfs> = Arc::new(image.clone());
        let after = Both { engine: open(&tiny(&vfs)).unwrap(), model: both.model.clone() };
        after.glance("after a crash");
        after.engine.reorganise().unwrap();
        after.glance("after a crash, reorganised");
        let on_disk = image.paths().iter().filter(|path| path.contains(".blob")).count();
        assert_eq!(on_disk, after.blobs().len());
        after.engine.close().unwrap();
        assert_eq!(check(DIR, &tiny(&vfs), &mut |_, _| ()).unwrap().damage, vec![]);
    }
}
