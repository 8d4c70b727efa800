//! A backup is of one moment, whatever happens while it is made.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use annals::vfs::{CrashMode, MemoryVfs};
use annals::{Durability, Options, ReadMode, RestoreOptions, Retention, Store, restore};

use crate::support::DIRECTORY;
use crate::support::copies::{StopAtEnd, complete, hashes, options, scripted, write_until};
use crate::{COPY, backup, restored};

#[test]
fn backups_while_others_write_compact_and_reorganise() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new()
        .memtable_bytes(64 << 10)
        .wal_bytes(64 << 10)
        .segment_bytes(32 << 10)
        .l0_files_max(2)
        .durability(Durability::Buffered);
    let store = options.open(directory.path().join("store")).unwrap();
    let rule = Retention::forever().keep_revisions(500);
    store.set_retention("/1/", Some(rule)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || write_until(store, stop, writer));
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                store.reorganise().unwrap();
                store.apply_retention().unwrap();
                let newest = store.revision();
                if newest > store.compacted_revision() + 2_000 {
                    store.compact(newest - 1_000).unwrap();
                }
            }
        });
        let _stop = StopAtEnd(&stop);
        for n in 0..6 {
            let pinned = store.latest().unwrap();
            let mut stream = Vec::new();
            let made = store.backup(&mut stream).unwrap();
            assert!(made.revision >= pinned.revision());
            let path = directory.path().join(format!("{n}"));
            let report = restore(&stream[..], &path, &RestoreOptions::new()).unwrap();
            assert_eq!(report.hash, made.hash);
            let copy = options.open(&path).unwrap();
            assert_eq!(copy.revision(), made.revision);
            if pinned.revision() >= copy.compacted_revision() {
                // What was visible before it is in it, to the last version.
                let then: Vec<_> = pinned.range("/0/".."/1/").map(Result::unwrap).collect();
                let copied = copy.at(pinned.revision()).unwrap();
                let copied = copied.range("/0/".."/1/").map(Result::unwrap);
                assert_eq!(copied.collect::<Vec<_>>(), then);
            }
            copy.reorganise().unwrap();
            copy.close().unwrap();
            let report = annals::check(&path, &Options::new(), &mut |_, _| {}).unwrap();
            assert!(report.damage.is_empty(), "{:?}", report.damage);
        }
    });
}

/// A stream into which something happens while it is written.
struct Meanwhile<'a>(Vec<u8>, &'a mut dyn FnMut(u64), u64);

impl Write for Meanwhile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.1)(self.2);
        self.2 += 1;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_store_that_forgets_everything_meanwhile_is_backed_up_as_it_was() {
    for mode in [ReadMode::Mmap, ReadMode::Pread] {
        for at in (0..40).step_by(3) {
            let options = options(MemoryVfs::new()).read_mode(mode);
            let (store, model) = scripted(&options, at % 4);
            let expected = hashes(&store);
            let writer = store.clone();
            let mut forget = |n: u64| {
                if n != at {
                    return;
                }
                for n in 0..40 {
                    writer.put(format!("later/{n}"), "x".repeat(300)).unwrap();
                }
                writer.compact(writer.revision()).unwrap();
                writer.reorganise().unwrap();
            };
            let mut out = Meanwhile(Vec::new(), &mut forget, 0);
            let made = store.backup(&mut out).unwrap();
            let Meanwhile(stream, _, writes) = out;
            restored(&stream, &options, COPY).unwrap();
            assert_eq!(made.revision, model.revision());
            let found = complete(&options, COPY, &model, &expected);
            assert_eq!(found, Ok(true), "{mode:?}, at write {at} of {writes}");
        }
    }
}

#[test]
fn a_reader_beside_a_writer_backs_up_what_it_shows() {
    for mode in [ReadMode::Mmap, ReadMode::Pread] {
        let options = options(MemoryVfs::new()).read_mode(mode);
        let (store, model) = scripted(&options, 7);
        let expected = hashes(&store);
        let reader = Store::open_read_only_with(DIRECTORY, &options).unwrap();
        for n in 0..80 {
            store.put(format!("later/{n}"), "x".repeat(300)).unwrap();
        }
        store.compact(store.revision()).unwrap();
        store.reorganise().unwrap();
        let stream = backup(&reader);
        drop(store);
        restored(&stream, &options, COPY).unwrap();
        assert_eq!(complete(&options, COPY, &model, &expected), Ok(true), "{mode:?}");
    }
}

#[test]
fn what_is_visible_in_a_buffered_store_is_in_it() {
    let disk = MemoryVfs::new();
    let store = options(disk.clone()).durability(Durability::Buffered).open(DIRECTORY).unwrap();
    for n in 0..20 {
        store.put("/a", format!("{n}")).unwrap();
    }
    assert_eq!((store.revision(), store.durable_revision()), (21, 1));
    let expected = hashes(&store);
    restored(&backup(&store), &options(disk.clone()), COPY).unwrap();
    let lost = disk.crash(0, CrashMode::LoseAll);
    assert_eq!(hashes(&options(lost).open(COPY).unwrap()), expected);
}

#[test]
fn increments_while_others_write_compact_and_set_rules() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().memtable_bytes(64 << 10).segment_bytes(32 << 10).l0_files_max(2);
    let options = options.durability(Durability::Buffered);
    let store = options.open(directory.path().join("store")).unwrap();
    let stop = AtomicBool::new(false);
    let kept = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || write_until(store, stop, writer));
        }
        scope.spawn(|| {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                n += 1;
                let id = i64::try_from(n).unwrap();
                store.lease_grant(id, Duration::from_secs(600)).unwrap();
                if n % 3 == 0 {
                    store.lease_revoke(id - 1).unwrap();
                }
                let rule = Retention::forever().keep_revisions(1_000_000 + n);
                store.set_retention("/1/", (n % 5 > 0).then_some(rule)).unwrap();
                // What the next increment continues stays readable.
                let revision = kept.load(Ordering::Relaxed);
                if n % 7 == 0 && revision > store.compacted_revision() {
                    store.compact(revision).unwrap();
                }
                store.reorganise().unwrap();
            }
        });
        let _stop = StopAtEnd(&stop);
        for chain in 0..3 {
            let mut stream = Vec::new();
            let mut made = store.backup(&mut stream).unwrap();
            for _ in 0..4 {
                kept.store(made.revision, Ordering::Relaxed);
                made = store.backup_from(made.revision, &mut stream).unwrap();
            }
            let path = directory.path().join(format!("{chain}"));
            let report = restore(&stream[..], &path, &RestoreOptions::new()).unwrap();
            assert_eq!((report.hash, report.increments), (made.hash, 4));
            let found = annals::check(&path, &Options::new(), &mut |_, _| {}).unwrap();
            assert!(found.damage.is_empty(), "{:?}", found.damage);
        }
    });
}
