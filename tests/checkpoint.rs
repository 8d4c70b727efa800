//! Checkpoints: complete or no store, whatever stops them; equal to the store at every revision; and no
//! harm to the store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod support;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals::vfs::{CrashMode, Fault, FaultVfs, MemoryVfs, Operation};
use annals::{At, Durability, ErrorKind, Options, ReadMode, Store};
use support::check::{self, Depth, caught, good};
use support::copies::{
    StopAtEnd, changes_disk, clock, complete, hashes, images, is_not_empty, options, scripted,
    sound, write_until,
};
use support::gate::{GateVfs, log_syncs};
use support::{DIRECTORY, tiny};

const COPY: &str = "copy";

/// Crashes a checkpoint before each of its operations; `wrap` stands between the store and the disk.
fn crashed(wrap: fn(FaultVfs) -> Options) {
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    let (store, model) = scripted(&wrap(faulty.clone()), 5);
    let expected = Arc::new(hashes(&store));
    let failures = Arc::new(Mutex::new(Vec::<String>::new()));
    let stores = Arc::new(AtomicU64::new(0));
    let checked = Arc::new(AtomicU64::new(0));
    let look = {
        let (disk, model, expected) = (disk.clone(), model.clone(), Arc::clone(&expected));
        let (failures, stores, checked) =
            (Arc::clone(&failures), Arc::clone(&stores), Arc::clone(&checked));
        move |place: String| {
            for image in images(&disk) {
                let found = caught(|| {
                    checked.fetch_add(1, Ordering::Relaxed);
                    let is_store = complete(&options(image.clone()), COPY, &model, &expected)?;
                    stores.fetch_add(u64::from(is_store), Ordering::Relaxed);
                    // Whatever the copy has done meanwhile, and whether it is there or not.
                    let source = options(image).open(DIRECTORY);
                    let source = good(|| "open the store".into(), source)?;
                    check::store(&source, &model, Depth::Sampled(1))?;
                    check::same(|| "hashes of the store".into(), &hashes(&source), &expected)
                });
                if let Err(found) = found {
                    failures.lock().unwrap().push(format!("{place}: {found}"));
                }
            }
        }
    };
    let (dirty, before) = (AtomicBool::new(true), look.clone());
    let active = Arc::new(AtomicBool::new(true));
    let looking = Arc::clone(&active);
    faulty.observe(move |number, kind| {
        if looking.load(Ordering::Relaxed) && dirty.swap(changes_disk(kind), Ordering::Relaxed) {
            before(format!("before operation {number} ({kind:?})"));
        }
    });
    let made = store.checkpoint(COPY).unwrap();
    assert_eq!(made.revision, model.revision());
    active.store(false, Ordering::Relaxed);
    let before = stores.load(Ordering::Relaxed);
    look("at the end".into());
    assert!(stores.load(Ordering::Relaxed) > before, "what has returned is durable");
    assert_eq!(hashes(&store), *expected);
    println!(
        "{} images, {} stores: {made:?}",
        checked.load(Ordering::Relaxed),
        stores.load(Ordering::Relaxed)
    );
    let failures = failures.lock().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(checked.load(Ordering::Relaxed) > 60);
    assert_eq!((made.linked_files + made.copied_files > 5, made.log_bytes > 1000), (true, true));
}

#[test]
fn a_crash_leaves_no_store_or_all_of_it() {
    crashed(options);
}

/// The gate knows no links, so that files are copied.
#[test]
fn a_crash_leaves_no_store_or_all_of_it_where_files_are_copied() {
    crashed(|faulty| options(GateVfs::new(Arc::new(faulty), log_syncs)));
}

#[test]
fn a_failure_leaves_the_store_as_it_was() {
    let ways: [fn(FaultVfs) -> Options; 2] =
        [options, |faulty| options(GateVfs::new(Arc::new(faulty), log_syncs))];
    for (way, wrap) in ways.into_iter().enumerate() {
        let disk = MemoryVfs::new();
        let faulty = FaultVfs::new(Arc::new(disk.clone()));
        let (store, model) = scripted(&wrap(faulty.clone()), 6);
        let expected = hashes(&store);
        for fault in [Fault::Io, Fault::NoSpace, Fault::Torn, Fault::Short] {
            let mut failed = 0;
            for nth in 0.. {
                let to = format!("copy-{fault:?}-{nth}");
                let (fired, count) = (faulty.fired(), faulty.op_count());
                faulty.fail(None, count + nth, fault, false);
                let made = store.checkpoint(&to);
                let done = faulty.op_count() - count;
                faulty.heal();
                let is_store = complete(&options(disk.clone()), &to, &model, &expected);
                let is_store =
                    is_store.unwrap_or_else(|found| panic!("{way} {fault:?} {nth}: {found}"));
                assert!(made.is_err() || is_store, "{way} {fault:?} {nth}");
                failed += u64::from(made.is_err());
                if faulty.fired() == fired {
                    assert!(nth >= done && made.is_ok());
                    break;
                }
            }
            assert_eq!(failed > 30, fault != Fault::Short, "{way} {fault:?}: {failed}");
        }
        assert_eq!(hashes(&store), expected);
        store.put("still", "writes").unwrap();
        store.reorganise().unwrap();
        store.close().unwrap();
        sound(&options(disk), DIRECTORY).unwrap();
    }
}

#[test]
fn checkpoints_while_others_write_compact_and_reorganise() {
    let directory = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let options = Options::new().memtable_bytes(64 << 10).wal_bytes(64 << 10);
        let options =
            options.segment_bytes(32 << 10).l0_files_max(2).durability(Durability::Buffered);
        options.open(directory.path().join(name)).unwrap()
    };
    let store = open("store");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || write_until(store, stop, writer));
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                store.reorganise().unwrap();
                let newest = store.revision();
                if newest > store.compacted_revision() + 2_000 {
                    store.compact(newest - 1_000).unwrap();
                }
            }
        });
        let _stop = StopAtEnd(&stop);
        let mut linked = 0;
        for n in 0..12 {
            let pinned = store.latest().unwrap();
            let made = store.checkpoint(directory.path().join(format!("{n}"))).unwrap();
            assert!(made.revision >= pinned.revision());
            linked += made.linked_files;
            let copy = open(&format!("{n}"));
            assert_eq!(copy.revision(), made.revision);
            let (from, compacted) = (pinned.revision(), copy.compacted_revision());
            if from < compacted {
                continue;
            }
            // What was visible before it is in it, to the last version.
            let then: Vec<_> = pinned.range(..).map(Result::unwrap).collect();
            let copied = copy.at(from).unwrap();
            assert_eq!(copied.range(..).map(Result::unwrap).collect::<Vec<_>>(), then);
            // Both tell the same of what came until it was made.
            let last = made.revision.saturating_sub(50).max(2)..=made.revision;
            let log = store.log(last.clone()).with_values();
            let of_copy = copy.log(last).with_values();
            if let (Ok(log), Ok(of_copy)) = (
                log.collect::<annals::Result<Vec<_>>>(),
                of_copy.collect::<annals::Result<Vec<_>>>(),
            ) {
                assert_eq!(log, of_copy);
            }
            copy.reorganise().unwrap();
            copy.close().unwrap();
            let path = directory.path().join(format!("{n}"));
            let report = annals::check(&path, &Options::new(), &mut |_, _| {}).unwrap();
            assert!(report.damage.is_empty(), "{:?}", report.damage);
        }
        assert!(linked > 0);
    });
    store.close().unwrap();
    let path = directory.path().join("store");
    let report = annals::check(&path, &Options::new(), &mut |_, _| {}).unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
}

#[test]
fn a_reader_beside_a_writer_copies_what_it_shows() {
    for mode in [ReadMode::Mmap, ReadMode::Pread] {
        let disk = MemoryVfs::new();
        let options = options(disk.clone()).read_mode(mode);
        let (store, model) = scripted(&options, 7);
        let expected = hashes(&store);
        let reader = Store::open_read_only_with(DIRECTORY, &options).unwrap();
        let first = reader.checkpoint("first").unwrap();
        assert!(first.linked_files > 3 && first.copied_files == 0, "{first:?}");
        // The writer removes files that the reader shows.
        for n in 0..80 {
            store.put(format!("later/{n}"), "x".repeat(300)).unwrap();
        }
        store.compact(store.revision()).unwrap();
        store.reorganise().unwrap();
        let second = reader.checkpoint("second").unwrap();
        assert!(second.copied_files > 2, "{second:?}");
        store.close().unwrap();
        for copy in ["first", "second"] {
            assert_eq!(complete(&options, copy, &model, &expected), Ok(true), "{mode:?} {copy}");
        }
    }
}

#[test]
fn the_store_and_its_copy_go_their_own_ways_and_share_their_files() {
    let disk = MemoryVfs::new();
    let options = options(disk.clone());
    let (store, _) = scripted(&options, 8);
    store.reorganise().unwrap();
    let (used, expected) = (disk.used_bytes(), hashes(&store));
    let made = store.checkpoint(COPY).unwrap();
    assert_eq!((made.copied_files, made.log_bytes), (0, 0));
    let files = store.stats();
    let files =
        [files.l0, files.head, files.history, files.events, files.blobs].map(|kind| kind.bytes);
    assert_eq!(made.linked_bytes, files.iter().sum::<u64>());
    assert!(disk.used_bytes() - used < 64 << 10, "{} of {used}", disk.used_bytes() - used);
    let copy = options.open(COPY).unwrap();
    assert_eq!(hashes(&copy), expected);
    // Each forgets, writes and reorganises for itself.
    for n in 0..50 {
        store.put(format!("store/{n}"), "s".repeat(400)).unwrap();
        copy.put(format!("copy/{n}"), "c".repeat(200)).unwrap();
    }
    copy.compact(copy.revision()).unwrap();
    store.reorganise().unwrap();
    copy.reorganise().unwrap();
    assert_eq!(hashes(&store)[..expected.len()], expected[..]);
    assert_eq!(copy.get("store/0").unwrap(), None);
    drop((store, copy));
    for path in [DIRECTORY, COPY] {
        sound(&options, path).unwrap();
    }
    // A copy of the copy, too.
    let copy = options.open(COPY).unwrap();
    copy.checkpoint("again").unwrap();
    assert_eq!(hashes(&options.open("again").unwrap()), hashes(&copy));
}

#[test]
fn a_long_tail_is_written_in_several_batches_and_files() {
    let disk = MemoryVfs::new();
    let options = Options::new().vfs(Arc::new(disk.clone())).background(false);
    let store = options.open(DIRECTORY).unwrap();
    for n in 0..24_u64 {
        store.put(format!("key/{n}"), vec![7; usize::try_from(n * 40_000 + 1).unwrap()]).unwrap();
    }
    store.put("long", vec![8; 9 << 20]).unwrap();
    let made = store.checkpoint(COPY).unwrap();
    assert_eq!(made.linked_files, 0);
    assert!(made.log_bytes > 20_000_000, "{made:?}");
    assert!(disk.paths().iter().filter(|path| path.starts_with("copy/wal/")).count() > 2);
    let copy = options.open(COPY).unwrap();
    assert_eq!(hashes(&copy), hashes(&store));
}

#[test]
fn what_is_visible_in_a_buffered_store_is_durable_in_the_copy() {
    let disk = MemoryVfs::new();
    let options = options(disk.clone()).durability(Durability::Buffered);
    let store = options.open(DIRECTORY).unwrap();
    for n in 0..20 {
        store.put("/a", format!("{n}")).unwrap();
    }
    assert_eq!((store.revision(), store.durable_revision()), (21, 1));
    store.checkpoint(COPY).unwrap();
    let expected = hashes(&store);
    let lost = disk.crash(0, CrashMode::LoseAll);
    let copy = tiny(Arc::new(lost.clone()), clock()).open(COPY).unwrap();
    assert_eq!(hashes(&copy), expected);
    assert_eq!(tiny(Arc::new(lost), clock()).open(DIRECTORY).unwrap().revision(), 1);
}

#[test]
fn a_store_that_accepts_no_write_any_more_can_still_be_copied() {
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    let (store, model) = scripted(&options(faulty.clone()), 9);
    let expected = hashes(&store);
    faulty.fail(Some(Operation::Sync), faulty.op_count_of(Operation::Sync), Fault::Io, false);
    assert!(store.put("not", "durable").is_err());
    assert!(store.put("nor", "this").is_err());
    store.checkpoint(COPY).unwrap();
    assert_eq!(complete(&options(disk), COPY, &model, &expected), Ok(true));
}

#[test]
fn other_directories_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    let store = Store::open(path("store")).unwrap();
    store.put("/a", "1").unwrap();
    let has = |to: &str, found: Option<&str>| {
        is_not_empty(&store.checkpoint(path(to)).unwrap_err(), to, found);
    };
    let refused = |to: PathBuf| {
        let error = store.checkpoint(to).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
        error.to_string()
    };
    std::fs::create_dir(path("full")).unwrap();
    std::fs::write(path("full").join("notes"), "mine").unwrap();
    has("full", Some("notes"));
    assert_eq!(std::fs::read_dir(path("full")).unwrap().count(), 1, "not even a lock is left");
    for inside in ["store", "store/copy", "store/seg/copy", "full/../store/copy"] {
        assert!(refused(path(inside)).contains("the directory of its store"), "{inside}");
    }
    for lost in ["missing/../store", "missing/../store/copy", "missing/../beside"] {
        assert!(refused(path(lost)).contains("no directory before the .."), "{lost}");
    }
    assert!(!path("store/copy").exists() && !path("missing").exists());
    assert!(!path("store/LOADING").exists());
    std::fs::create_dir(path("empty")).unwrap();
    store.checkpoint(path("empty")).unwrap();
    has("empty", Some("CURRENT"));
    store.checkpoint(path("store/../beside/deep")).unwrap();
    assert_eq!(Store::open(path("beside/deep")).unwrap().revision(), 2);

    // Whoever makes a store there has it to himself.
    let other = Store::open(path("other")).unwrap();
    let error = store.checkpoint(path("other")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Locked { .. }), "{error}");
    drop(other);
    has("other", Some("CURRENT"));

    // What a crash leaves, after CURRENT and before it.
    assert!(!path("empty/LOADING").exists());
    std::fs::create_dir_all(path("stopped/seg")).unwrap();
    std::fs::write(path("stopped/seg/00000001.head"), "data").unwrap();
    for stopped in ["empty", "stopped"] {
        std::fs::write(path(stopped).join("LOADING"), "").unwrap();
        has(stopped, None);
        for opened in [Store::open(path(stopped)), Store::open_read_only(path(stopped))] {
            let error = opened.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::NotAStore { .. }), "{error}");
        }
    }

    let other = store.clone();
    store.close().unwrap();
    let error = other.checkpoint(path("late")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed), "{error}");
    assert!(!path("late").exists());
}

#[test]
fn rules_of_retention_and_leases_go_with_it() {
    let disk = MemoryVfs::new();
    let options = options(disk);
    let store = options.open(DIRECTORY).unwrap();
    store.set_retention("/a/", Some(annals::Retention::forever().keep_revisions(5))).unwrap();
    for n in 0..30 {
        store.put(format!("/a/{}", n % 3), "v").unwrap();
        store.put(format!("/b/{}", n % 3), "v").unwrap();
    }
    store.apply_retention().unwrap();
    store.reorganise().unwrap();
    store.lease_grant(9, Duration::from_secs(60)).unwrap();
    store.checkpoint(COPY).unwrap();
    let copy = options.open(COPY).unwrap();
    assert_eq!(copy.retention(), store.retention());
    assert_eq!(copy.lease_list().unwrap(), store.lease_list().unwrap());
    assert_eq!(copy.oldest_readable(..), store.oldest_readable(..));
    assert_eq!(copy.hash_at(At::Latest).unwrap(), store.hash_at(At::Latest).unwrap());
    assert!(copy.incarnation() > store.incarnation() + 1, "another history");
}
