//! Versions of a key in every place at once: memory, two L0 files, their windows of HISTORY, HEAD and
//! the window of a fold. Whatever work was done last, every revision is answered as the model does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::crash::changes_something;
use super::model::Model;
use super::random::writes;
use super::{Engine, commit, compact, memory, open, put, system, tiny, user};
use crate::options::Options;
use crate::vfs::{CrashMode, FaultVfs, MemoryVfs, Vfs};

/// Options under which nothing is done that is not asked for.
pub(super) fn patient(vfs: &Arc<dyn Vfs>) -> Options {
    tiny(vfs).memtable_bytes(4 << 20).l0_files_max(64).history_windows_max(64)
}

/// A store, and what it must answer.
pub(super) struct Both {
    pub(super) engine: Engine,
    pub(super) model: Model,
}

impl Both {
    pub(super) fn write(&mut self, changes: &[(&str, Option<&str>)]) {
        let owned = |(key, value): &(&str, Option<&str>)| {
            (user(key), value.map(|value| Bytes::copy_from_slice(value.as_bytes())))
        };
        let changes: Vec<(Bytes, Option<Bytes>)> = changes.iter().map(owned).collect();
        let outcome = commit(&self.engine, writes(&changes)).unwrap();
        self.model.commit(&changes);
        assert_eq!(outcome.position.revision, self.model.revision());
    }

    /// Moves what is in memory to files of its own.
    pub(super) fn flush(&self) {
        self.engine.0.door.0.chain.freeze();
        while self.engine.run_background().unwrap() {}
    }

    pub(super) fn fold(&self) {
        self.engine.0.door.0.fold_all().unwrap();
    }

    pub(super) fn compact(&mut self, revision: u64) {
        compact(&self.engine, revision).unwrap();
        self.model.compacted = revision;
    }

    pub(super) fn reopen(&mut self, options: &Options) {
        self.engine.close().unwrap();
        self.engine = open(options).unwrap();
    }

    /// Every key at every revision, by every kind of read, and the differences between all of them.
    pub(super) fn check(&self, what: &str) {
        eprintln!("{what}");
        let revisions: Vec<u64> = (1..=self.model.revision()).collect();
        self.model.check(&self.engine, &revisions);
        let readable = || revisions.iter().filter(|at| **at >= self.model.compacted.max(1));
        for from in readable() {
            for to in readable().filter(|to| *to >= from) {
                self.model.check_diff(&self.engine, *from, *to);
            }
        }
    }

    /// As [`check`](Self::check), at three revisions, for stores of many keys.
    pub(super) fn glance(&self, what: &str) {
        eprintln!("{what}");
        let newest = self.model.revision();
        let oldest = self.model.compacted.max(1);
        self.model.check(&self.engine, &[oldest, u64::midpoint(oldest, newest), newest]);
        self.model.check_diff(&self.engine, oldest, newest);
    }

    /// The versions of a key in HISTORY: the revision of each, and its death.
    pub(super) fn deaths(&self, key: &str) -> BTreeMap<u64, u64> {
        let key = user(key);
        let files = self.engine.0.door.0.shared.tables().files;
        let mut found = BTreeMap::new();
        for file in files.windows.iter().flat_map(|window| &window.files) {
            let mut cursor = file.open().unwrap().cursor();
            cursor.seek(&key, u64::MAX).unwrap();
            while let Some(entry) = cursor.entry().filter(|entry| entry.key == key) {
                let twice = found.insert(entry.revision, entry.death);
                assert_eq!(twice, None, "revision {} is in HISTORY twice", entry.revision);
                cursor.next().unwrap();
            }
        }
        found
    }

    /// How many files of L0, HEAD and how many windows there are.
    pub(super) fn layout(&self) -> (usize, usize, usize) {
        let files = self.engine.0.door.0.shared.tables().files;
        (files.l0.len(), files.head.len(), files.windows.len())
    }
}

/// A store in which the versions of some keys lie in every place there is.
pub(super) fn spread(options: &Options) -> Both {
    let mut both = Both { engine: open(options).unwrap(), model: Model::default() };
    both.write(&[("a", Some("1"))]);
    both.write(&[("a", Some("2")), ("b", Some("b1"))]);
    both.write(&[("a", Some("3"))]);
    both.write(&[("b", None), ("c", Some("c1"))]);
    both.check("in memory");
    both.flush();
    both.check("one L0");
    both.write(&[("a", Some("4"))]);
    both.write(&[("a", None), ("b", Some("b2"))]);
    both.write(&[("d", Some("d1"))]);
    both.write(&[("a", Some("5"))]);
    both.flush();
    both.check("two L0");
    both.fold();
    both.check("folded");
    for value in ["6", "7", "8"] {
        both.write(&[("a", Some(value))]);
    }
    // Deleted and created anew within one generation; and one that comes and goes.
    both.write(&[("c", None), ("e", Some("e1"))]);
    both.write(&[("c", Some("c2")), ("e", None)]);
    both.write(&[("b", None)]);
    both.flush();
    both.check("L0 over HEAD");
    both.write(&[("a", Some("9")), ("d", None)]);
    both.write(&[("a", Some("10")), ("d", Some("d2"))]);
    both.write(&[("c", None), ("b", Some("b3"))]);
    both.flush();
    both.check("two L0 over HEAD");
    both.write(&[("a", Some("11"))]);
    both.write(&[("b", Some("b4")), ("a", None)]);
    both.write(&[("a", Some("12")), ("e", Some("e2"))]);
    both.check("in every place");
    // HISTORY of three flushes that superseded something in themselves, and of the fold.
    assert_eq!(both.layout(), (2, 1, 5));
    both
}

#[test]
fn every_revision_is_answered_wherever_its_versions_lie() {
    let (_, vfs) = memory();
    let options = patient(&vfs);
    let mut both = spread(&options);
    both.reopen(&options);
    both.check("opened again");
    both.fold();
    both.check("folded again");
    assert_eq!(both.layout().0, 0);
    both.flush();
    both.fold();
    both.check("nothing in memory");
    both.reopen(&options.clone().history_windows_max(2));
    while both.engine.run_background().unwrap() {}
    assert_eq!(both.layout(), (0, 1, 2));
    both.check("merged");
    both.reopen(&options);
    both.check("opened once more");
}

#[test]
fn compaction_takes_nothing_that_can_be_asked_for() {
    // Where somebody reads an older revision, that is kept, too.
    for (pins, folds) in [(false, false), (false, true), (true, false)] {
        let (_, vfs) = memory();
        let options = patient(&vfs);
        let newest = spread(&options).model.revision();
        for watermark in 2..=newest {
            let (_, vfs) = memory();
            let options = patient(&vfs);
            let mut both = spread(&options);
            let pinned =
                pins.then(|| (both.engine.view(watermark / 2 + 1).unwrap(), both.model.clone()));
            both.compact(watermark);
            if folds {
                both.fold();
            }
            // The flush comes after the compaction: it leaves out what died before.
            both.flush();
            both.check("compacted and flushed");
            if let Some((view, then)) = pinned {
                Model { compacted: watermark, ..then }.check_view(&view);
            }
            both.engine.reorganise().unwrap();
            both.check("compacted");
            for deaths in ["a", "b", "c", "d", "e"].map(|key| both.deaths(key)) {
                let dead = deaths.into_iter().find(|(_, death)| *death < watermark);
                assert_eq!(dead, None, "below {watermark} nothing is left");
            }
            both.reopen(&options);
            both.check("opened again");
        }
    }
}

#[test]
fn a_version_dies_by_the_oldest_of_the_next_generation() {
    let (_, vfs) = memory();
    let mut both = Both { engine: open(&patient(&vfs)).unwrap(), model: Model::default() };
    both.write(&[("a", Some("2")), ("b", Some("2"))]);
    both.flush();
    both.fold();
    for value in ["3", "4", "5"] {
        both.write(&[("a", Some(value)), ("b", Some(value))]);
    }
    both.flush();
    assert_eq!(both.deaths("a"), BTreeMap::from([(3, 4), (4, 5)]));
    both.fold();
    assert_eq!(both.deaths("a"), BTreeMap::from([(2, 3), (3, 4), (4, 5)]));
    // Of the flush and of the fold, which folded that flush alone: of one span, and of the same keys.
    let files = both.engine.0.door.0.shared.tables().files;
    let spans: Vec<(u64, u64)> = files.windows.iter().map(|w| (w.after, w.upto)).collect();
    assert_eq!(spans, [(2, 5), (2, 5)]);
    both.check("two windows of one span");
    both.write(&[("a", Some("6")), ("b", Some("6"))]);
    both.compact(4);
    both.engine.reorganise().unwrap();
    assert_eq!(both.deaths("a"), BTreeMap::from([(3, 4), (4, 5), (5, 6)]));
    both.check("both trimmed");
}

#[test]
fn a_flush_says_which_version_was_the_oldest_and_whether_the_key_lived_before() {
    let (_, vfs) = memory();
    let mut both = Both { engine: open(&patient(&vfs)).unwrap(), model: Model::default() };
    let l0 = |both: &Both| {
        let files = both.engine.0.door.0.shared.tables().files;
        let mut cursor = files.l0[0].open().unwrap().cursor();
        cursor.seek_first().unwrap();
        let mut found = Vec::new();
        while let Some(entry) = cursor.entry() {
            let key = String::from_utf8(entry.key[1..].to_vec()).unwrap();
            found.push((key, entry.revision, entry.first, entry.tombstone, entry.lived));
            cursor.next().unwrap();
        }
        assert_eq!(files.l0[0].meta().min_revision, found.iter().map(|f| f.2).min().unwrap());
        found
    };
    both.write(&[("new", Some("1")), ("twice", Some("1")), ("gone", Some("1"))]);
    both.write(&[("twice", Some("2")), ("gone", None), ("back", Some("1"))]);
    both.flush();
    let entry = |key: &str, revision, first, tombstone, lived| {
        (key.to_owned(), revision, first, tombstone, lived)
    };
    let expected = [
        entry("back", 3, 3, false, false),
        entry("gone", 3, 2, true, false),
        entry("new", 2, 2, false, false),
        entry("twice", 3, 2, false, false),
    ];
    assert_eq!(l0(&both), expected);
    both.write(&[("back", None), ("gone", Some("2")), ("new", Some("2"))]);
    both.write(&[("back", Some("2")), ("new", None)]);
    both.write(&[("twice", None)]);
    both.flush();
    let expected = [
        entry("back", 5, 4, false, true),
        entry("gone", 4, 4, false, false),
        entry("new", 5, 4, true, true),
        entry("twice", 6, 6, true, true),
    ];
    assert_eq!(l0(&both), expected);
}

#[test]
fn history_opens_no_file_before_it_needs_it() {
    let (_, vfs) = memory();
    let options = patient(&vfs);
    let mut both = spread(&options);
    both.write(&[("a", Some("13"))]);
    both.reopen(&options);
    let opened = || {
        let files = both.engine.0.door.0.shared.tables().files;
        // Not L0 and HEAD: opening the store reads system keys there.
        let history = || files.windows.iter().flat_map(|window| &window.files);
        (history().filter(|file| file.is_open()).count(), history().count())
    };
    let view = both.engine.latest().unwrap();
    let mut history = view.history(&user("a"), false);
    let in_memory: Vec<_> = history.by_ref().take(4).map(Result::unwrap).collect();
    assert_eq!(in_memory[3].record.value, "11");
    assert_eq!(opened().0, 0);
    assert_eq!(history.next().unwrap().unwrap().record.value, "10");
    let (some, all) = opened();
    assert!(some < all / 2, "{some} of {all}: at most what may be as new as L0");
    assert_eq!(history.map(Result::unwrap).count() + 5, 15);
}

#[test]
fn old_reads_ask_history_first_once_most_keys_have_changed() {
    let (_, vfs) = memory();
    let options = patient(&vfs);
    let mut both = Both { engine: open(&options).unwrap(), model: Model::default() };
    let before = |both: &Both| both.engine.0.door.0.shared.tables().files.history_before;
    // Two that change all the time, a cold one, one that goes and, later, one that comes.
    both.write(&[("a", Some("1")), ("b", Some("1")), ("cold", Some("1")), ("gone", Some("1"))]);
    both.flush();
    assert_eq!(before(&both), 0, "nothing has died");
    let mut seen = 0;
    for round in 2..30 {
        let value = round.to_string();
        both.write(&[("a", Some(&value)), ("b", Some(&value))]);
        match round {
            9 => both.write(&[("gone", None)]),
            15 => both.write(&[("late", Some("1"))]),
            _ if round % 4 == 0 => both.flush(),
            _ if round % 7 == 0 => both.fold(),
            _ => {}
        }
        both.check(&format!("round {round}"));
        assert!(before(&both) >= seen, "never fewer changes since a revision");
        seen = before(&both);
    }
    let last = both.model.revision();
    // Five keys in files, and about two deaths a revision: some five revisions make ten deaths.
    assert!((last - 14..last).contains(&seen), "{seen} of {last}");
    both.reopen(&options);
    assert_eq!(before(&both), seen);
    both.check("opened again");
    both.compact(last - 3);
    both.check("compacted");
}

#[test]
fn of_a_system_key_a_flush_keeps_the_newest_version() {
    let (_, vfs) = memory();
    let engine = open(&patient(&vfs)).unwrap();
    let both = Both { engine, model: Model::default() };
    for round in 0..3 {
        for value in ["one", "two", "three"] {
            commit(&both.engine, vec![put(system("Llease-01"), value)]).unwrap();
        }
        both.flush();
        let files = both.engine.0.door.0.shared.tables().files;
        let entries: u64 = files.l0.iter().map(|file| file.meta().entries).sum();
        assert_eq!(
            (files.l0.len(), entries, files.windows.len()),
            (round + 1, round as u64 + 1, 0)
        );
        let found = both.engine.latest().unwrap().get(&system("Llease-01")).unwrap();
        assert_eq!(found.unwrap().value, "three");
    }
    both.fold();
    assert_eq!(both.layout(), (0, 1, 0));
    let found = both.engine.latest().unwrap().get(&system("Llease-01")).unwrap();
    assert_eq!(found.unwrap().value, "three");
}

#[test]
fn a_crash_at_any_operation_of_a_flush_and_a_fold_leaves_every_revision() {
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
    let mut both = spread(&patient(&vfs));
    both.compact(5);
    let images = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&images);
    faulty.observe(move |_, operation| {
        if changes_something(operation) {
            let modes = [CrashMode::LoseAll, CrashMode::KeepAll];
            taken.lock().unwrap().extend(modes.map(|mode| disk.crash(1, mode)));
        }
    });
    both.flush();
    both.fold();
    both.engine.reorganise().unwrap();
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.len() > 40, "{}", images.len());
    for image in images {
        let vfs: Arc<dyn Vfs> = Arc::new(image);
        let engine = open(&patient(&vfs)).unwrap();
        let after = Both { engine, model: both.model.clone() };
        after.check("after a crash");
        after.engine.reorganise().unwrap();
        after.check("after a crash and all work");
    }
}
