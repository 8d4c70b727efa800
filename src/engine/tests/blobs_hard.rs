//! Blob files in stores made to break them: short values and long keys, little of L0 over much of HEAD, options that change,
//! failures, damage, and manifests that lie.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::blobs::large;
use super::model::Model;
use super::random::writes;
use super::split::{Both, patient};
use super::{DIR, Numbers, commit, memory, open, put, tiny, user};
use crate::check;
use crate::options::{Options, ReadMode};
use crate::reclaim::plan::TRIM_USUAL;
use crate::vfs::{MemoryVfs, Vfs};

/// blob number -> (bytes of values, by HEAD, by L0)
fn uses(both: &Both) -> BTreeMap<u64, (u64, u64, u64)> {
    let files = both.engine.0.door.0.shared.tables().files;
    let mut all = BTreeMap::new();
    for blob in &files.blobs {
        let by = |set: &[Arc<crate::segment::SealedFile>]| {
            set.iter()
                .flat_map(|file| &file.meta().blobs)
                .filter(|of| of.file == blob.meta().number)
                .map(|of| of.bytes)
                .sum::<u64>()
        };
        let meta = blob.meta();
        all.insert(meta.number, (meta.value_bytes, by(&files.head), by(&files.l0)));
    }
    all
}

fn move_some(both: &Both, share: u64) -> bool {
    let core = &both.engine.0.door.0;
    let files = core.shared.tables().files;
    core.move_some_blobs(&files, &core.keep_floors(), share, u64::MAX).unwrap()
}

fn new(options: &Options) -> Both {
    Both { engine: open(options).unwrap(), model: Model::default() }
}

fn long_key(n: u64) -> Bytes {
    // Nothing of it is shared with a neighbour.
    let mut key = format!("{n:06}").into_bytes();
    let mut numbers = Numbers::new(n);
    while key.len() < 400 {
        key.extend_from_slice(format!("{:016x}", numbers.next()).as_bytes());
    }
    user(key)
}

/// Values that are short beside their keys: a full blob file has few bytes of values.
#[test]
fn what_has_been_moved_is_not_moved_again() {
    let (_, vfs) = memory();
    let options =
        patient(&vfs).memtable_bytes(8 << 20).segment_bytes(256 << 10).history_windows_max(2);
    let engine = open(&options).unwrap();
    let value = "v".repeat(64);
    let all = |from: u64, upto: u64| {
        for chunk in (from..upto).collect::<Vec<_>>().chunks(100) {
            commit(&engine, chunk.iter().map(|n| put(long_key(*n), &value)).collect()).unwrap();
        }
        engine.0.door.0.chain.freeze();
        while engine.run_background().unwrap() {}
        engine.0.door.0.fold_all().unwrap();
    };
    all(0, 4000);
    all(0, 2000);
    let both = Both { engine, model: Model::default() };
    let mut moves = 0;
    while moves < 40 && move_some(&both, TRIM_USUAL) {
        moves += 1;
    }
    assert!(moves < 40, "moved {moves} times, and no end");
}

/// Where HEAD is large beside L0, L0 files are merged with each other. What the merges make dead in blob files that only L0
/// refers to has to go, too.
#[test]
fn blob_files_that_only_l0_refers_to_do_not_pile_up() {
    let (_, vfs) = memory();
    let options = tiny(&vfs).memtable_bytes(4 << 20).segment_bytes(64 << 10).blob_value_bytes(512);
    let mut both = new(&options);
    // HEAD of small values.
    for part in 0..40 {
        let keys: Vec<Bytes> = (0..500).map(|n| user(format!("k{n:03}/{part:02}"))).collect();
        commit(&both.engine, keys.into_iter().map(|key| put(key, "small ".repeat(10))).collect())
            .unwrap();
    }
    both.flush();
    both.fold();
    let mut peak = 0;
    for round in 0..200_u64 {
        let hot = (0..20)
            .map(|n| put(user(format!("k{:03}/hot", n * 25)), format!("{round:06}").repeat(100)));
        let cold = [put(
            user(format!("k{:03}/cold{round:04}", round * 7 % 500)),
            format!("{round:06}").repeat(100),
        )];
        commit(&both.engine, hot.chain(cold).collect()).unwrap();
        let newest = both.engine.revision();
        super::compact(&both.engine, newest).unwrap();
        both.flush();
        let uses = uses(&both);
        let all: u64 = uses.values().map(|(bytes, ..)| bytes).sum();
        let used: u64 = uses.values().map(|(_, head, l0)| head + l0).sum();
        peak = peak.max(all * 100 / used.max(1));
    }
    // Also when nobody writes any more.
    both.reopen(&options);
    while both.engine.run_background().unwrap() {}
    let uses = uses(&both);
    let all: u64 = uses.values().map(|(bytes, ..)| bytes).sum();
    let used: u64 = uses.values().map(|(_, head, l0)| head + l0).sum();
    assert!(all <= 3 * used, "{all} bytes of values, of which {used} are in use");
}

/// What the manifest says of blob files is what the entries say; and nothing is left that nothing refers to.
fn consistent(engine: &super::Engine, disk: &MemoryVfs, what: &str) {
    let files = engine.0.door.0.shared.tables().files;
    for file in files.l0.iter().chain(&files.head) {
        let mut found: BTreeMap<u64, u64> = BTreeMap::new();
        let mut cursor = file.open().unwrap().cold_cursor();
        cursor.seek_first().unwrap();
        while let Some(entry) = cursor.entry() {
            if let Some(blob) = entry.blob {
                *found.entry(blob.file).or_default() += blob.bytes;
                assert_eq!(cursor.value().unwrap().len() as u64, blob.bytes, "{what}");
            }
            cursor.next().unwrap();
        }
        let said: BTreeMap<u64, u64> =
            file.meta().blobs.iter().map(|b| (b.file, b.bytes)).collect();
        assert_eq!(found, said, "{what}");
    }
    let referred: std::collections::BTreeSet<u64> =
        files.l0.iter().chain(&files.head).flat_map(|f| &f.meta().blobs).map(|b| b.file).collect();
    let there: std::collections::BTreeSet<u64> =
        files.blobs.iter().map(|f| f.meta().number).collect();
    assert_eq!(referred, there, "{what}");
    let on_disk = disk.paths().iter().filter(|path| path.contains(".blob")).count();
    assert_eq!(on_disk, there.len(), "{what}");
}

fn pick(numbers: &mut Numbers, below: usize) -> usize {
    usize::try_from(numbers.below(below as u64)).unwrap()
}

#[expect(clippy::too_many_lines, reason = "a list of what can be done")]
fn random_store(seed: u64) {
    let (disk, vfs) = memory();
    let mut numbers = Numbers::new(seed);
    let options = |numbers: &mut Numbers| {
        let limit = [64, 200, 1000, 1 << 32][pick(numbers, 4)];
        let mode = [ReadMode::Mmap, ReadMode::Pread][pick(numbers, 2)];
        let mut options = tiny(&vfs).blob_value_bytes(limit).read_mode(mode);
        if numbers.below(2) == 0 {
            options = options.cache_bytes(0);
        }
        if numbers.below(3) == 0 {
            options = options.segment_bytes(4 << 10).history_windows_max(2);
        }
        options
    };
    let mut now = options(&mut numbers);
    let mut both = new(&now);
    let mut views: Vec<(super::super::View, Model)> = Vec::new();
    let mut readers: Vec<(super::Engine, Model)> = Vec::new();
    for step in 0..160 {
        let what = format!("seed {seed} step {step}");
        match numbers.below(20) {
            0 => {
                views.clear();
                now = options(&mut numbers);
                both.reopen(&now);
            }
            1 => while both.engine.run_background().unwrap() {},
            2 => both.engine.0.door.0.fold_all().unwrap(),
            3 => {
                if !both.engine.0.door.0.shared.tables().files.l0.is_empty() {
                    both.engine.0.door.0.fold_some().unwrap();
                }
            }
            4 => both.engine.0.door.0.chain.freeze(),
            5 => while move_some(&both, 16) && numbers.below(4) > 0 {},
            6 => views.push((both.engine.latest().unwrap(), both.model.clone())),
            7 if !views.is_empty() => {
                let at = pick(&mut numbers, views.len());
                let (view, model) = views.remove(at);
                Model { compacted: both.model.compacted.max(model.compacted), ..model }
                    .check_view(&view);
            }
            8 => {
                both.engine.flush().unwrap();
                let engine = super::Engine::open_read_only(
                    std::path::Path::new(DIR),
                    &options(&mut numbers),
                );
                let engine = engine.unwrap().0;
                readers.push((engine, both.model.clone()));
                if readers.len() > 2 {
                    let (engine, model) = readers.remove(0);
                    model.check(&engine, &[model.compacted.max(1), model.revision()]);
                }
            }
            9 => {
                let compacted = both.model.compacted.max(1);
                let newest = both.model.revision();
                let at = compacted + numbers.below(newest - compacted + 1);
                if at > both.model.compacted && at > 1 {
                    both.compact(at);
                }
            }
            10 if numbers.below(4) == 0 => both.engine.reorganise().unwrap(),
            _ => {
                let mut changes: BTreeMap<Bytes, Option<Bytes>> = BTreeMap::new();
                for _ in 0..=numbers.below(12) {
                    let key = user(format!("k{}", numbers.below(60)));
                    let long = [0, 30, 64, 65, 199, 200, 600, 1000, 5000][pick(&mut numbers, 9)];
                    let fill = numbers.next().to_be_bytes();
                    let value: Vec<u8> = fill.iter().copied().cycle().take(long).collect();
                    let dies = numbers.below(6) == 0;
                    if dies && !both.model.lives(&key) {
                        continue;
                    }
                    changes.insert(key, (!dies).then(|| value.into()));
                }
                let changes: Vec<_> = changes.into_iter().collect();
                if !changes.is_empty() {
                    commit(&both.engine, writes(&changes)).unwrap();
                    both.model.commit(&changes);
                }
            }
        }
        if step % 20 == 19 {
            both.glance(&what);
            consistent(&both.engine, &disk, &what);
        }
    }
    for (view, model) in views {
        Model { compacted: both.model.compacted.max(model.compacted), ..model }.check_view(&view);
    }
    for (engine, model) in readers {
        model.check(&engine, &[model.compacted.max(1), model.revision()]);
    }
    both.engine.close().unwrap();
    assert_eq!(check(DIR, &now, &mut |_, _| ()).unwrap().damage, vec![], "seed {seed}");
}

#[test]
fn random_stores_of_changing_options() {
    (1..=10).for_each(random_store);
}

/// Damage of one value, which nobody asks for, and what becomes of a store that has nothing to do.
#[test]
fn damage_of_one_value_does_not_end_writing_of_a_store_that_is_left_alone() {
    let (disk, vfs) = memory();
    let options = patient(&vfs).segment_bytes(1 << 20);
    let mut both = new(&options);
    large(&mut both, 0..10, "first!");
    both.flush();
    both.fold();
    let path = disk.paths().into_iter().find(|path| path.contains(".blob")).unwrap();
    large(&mut both, 0..6, "second");
    both.flush();
    both.fold();
    let path = std::path::Path::new("/").join(path);
    let mut bytes = disk.read(&path).unwrap();
    bytes[64 + 8 * 700] ^= 1;
    disk.overwrite(&path, &bytes);
    both.reopen(&options);
    let mut outcome = Ok(true);
    while let Ok(true) = outcome {
        outcome = both.engine.run_background();
    }
    let written = commit(&both.engine, vec![put(user("a"), "b")]);
    assert!(written.is_ok(), "{written:?}");
}

/// Whatever operation of a flush, a fold and a move finds no space, or fails: nothing is left over, nothing is lost.
#[test]
fn a_failure_at_any_operation_loses_nothing() {
    use crate::vfs::{CrashMode, Fault, FaultVfs};
    for fault in [Fault::NoSpace, Fault::Io, Fault::Torn] {
        for nth in 0_u64.. {
            let disk = MemoryVfs::new();
            let faulty = FaultVfs::new(Arc::new(disk.clone()));
            let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
            let options = patient(&vfs).segment_bytes(4 << 10);
            let mut both = new(&options);
            large(&mut both, 0..30, "first!");
            both.flush();
            both.fold();
            large(&mut both, 0..20, "second");
            faulty.fail(None, faulty.op_count() + nth, fault, false);
            both.engine.0.door.0.chain.freeze();
            let mut outcome = Ok(true);
            while let Ok(true) = outcome {
                outcome = both.engine.run_background();
            }
            let outcome = outcome.map(|_| ()).and_then(|()| {
                both.engine.0.door.0.fold_all()?;
                let core = &both.engine.0.door.0;
                let files = core.shared.tables().files;
                core.move_some_blobs(&files, &core.keep_floors(), TRIM_USUAL, u64::MAX)?;
                Ok(())
            });
            let fired = faulty.fired();
            if fired == 0 {
                assert!(nth > 50, "{nth}");
                break;
            }
            // (What cannot be removed is left over.)
            let unremoved = format!("{outcome:?}").contains("remove a segment");
            if outcome.is_err() && !unremoved && both.engine.stats().failure.is_none() {
                let on_disk: Vec<String> =
                    disk.paths().into_iter().filter(|path| path.contains("/seg/")).collect();
                let known = both.engine.0.door.0.shared.tables().files.all().count();
                assert_eq!(on_disk.len(), known, "{fault:?} {nth}: {outcome:?} {on_disk:?}");
            }
            both.glance(&format!("{fault:?} {nth} {outcome:?}"));
            let image: Arc<dyn Vfs> = Arc::new(disk.crash(nth, CrashMode::LoseAll));
            let after = Both { engine: open(&tiny(&image)).unwrap(), model: both.model.clone() };
            after.glance("after a crash");
            after.engine.reorganise().unwrap();
            after.glance("reorganised");
        }
    }
}

/// A manifest that counts wrongly, with checksums that are right.
#[test]
fn a_manifest_that_counts_wrongly_is_no_panic_and_no_endless_work() {
    use crate::manifest::ManifestStore;
    for bytes in [1, 1 << 62, u64::MAX] {
        for value_bytes in [None, Some(0), Some(1_u64 << 50)] {
            let (disk, vfs) = memory();
            let options = patient(&vfs).segment_bytes(4 << 10);
            let mut both = new(&options);
            for text in ["first!", "second"] {
                let value = text.repeat(100);
                let keys: Vec<String> = (0..30).map(|n| format!("large-{n:02}")).collect();
                let changes: Vec<(&str, Option<&str>)> =
                    keys.iter().map(|k| (k.as_str(), Some(value.as_str()))).collect();
                both.write(&changes);
                both.flush();
                if text == "first!" {
                    both.fold();
                }
            }
            let vfs: Arc<dyn Vfs> = Arc::new(disk.crash(1, crate::vfs::CrashMode::KeepAll));
            let options = patient(&vfs).segment_bytes(4 << 10);
            let store = ManifestStore::new(Arc::clone(&vfs), std::path::Path::new(DIR));
            let mut manifest = store.load().unwrap().unwrap();
            for file in &mut manifest.files {
                file.blobs.iter_mut().for_each(|blob| blob.bytes = bytes);
                if file.kind == annals_format::FileKind::Blob {
                    file.value_bytes = value_bytes.unwrap_or(file.value_bytes);
                }
            }
            store.store(&mut manifest).unwrap();
            // It may be refused.
            let Ok(engine) = open(&options) else { continue };
            let after = Both { engine, model: both.model.clone() };
            let _ = after.engine.stats();
            after.glance("hostile");
            let mut units = 0;
            while after.engine.run_background().unwrap() {
                units += 1;
                assert!(units < 1000);
            }
            after.engine.reorganise().unwrap();
            after.glance("hostile, reorganised");
        }
    }
}
