//! Two copies of one store share its id, and give their files the same numbers. A segment of one in the place of
//! the other's is refused, however much alike the two are; what both have of the store itself is read in both.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals::clock::ManualClock;
use annals::vfs::{CrashMode, MemoryVfs};
use annals::{Options, ReadMode, Store, put};
use support::{DIRECTORY, START_TIME};

const COPIES: [&str; 2] = ["copy-a", "copy-b"];
const KEYS: u64 = 60;

/// Small files; the incarnations of copies are by chance, as they always are but in simulations.
fn options(disk: &MemoryVfs) -> Options {
    Options::new()
        .memtable_bytes(16 << 10)
        .wal_bytes(64 << 10)
        .segment_bytes(4 << 10)
        .block_bytes(512)
        .history_block_bytes(512)
        .l0_files_max(2)
        .history_windows_max(3)
        .background(false)
        .read_mode(ReadMode::Pread)
        .vfs(Arc::new(disk.clone()))
        .clock(Arc::new(ManualClock::new(START_TIME)))
}

/// Writes every key `rounds` times, and has the background work done that is due. `name` is of one letter: what two
/// names make is as long and as many.
fn write(store: &Store, name: &str, rounds: u64) {
    for round in 0..rounds {
        for key in 0..KEYS {
            let put = put(format!("/{key:03}"), format!("{name} {round:03} {key:060}"));
            store.txn().then([put]).metadata(name).commit().unwrap();
        }
        // In the end a flush alone, so that its file stays in L0.
        while store.run_background().unwrap() && round + 1 < rounds {}
    }
}

/// A store and two copies of it, to which other values have been written since; none is open.
fn family() -> MemoryVfs {
    let disk = MemoryVfs::new();
    let store = options(&disk).open(DIRECTORY).unwrap();
    write(&store, "s", 5);
    store.reorganise().unwrap();
    write(&store, "t", 2);
    for copy in COPIES {
        let made = store.checkpoint(copy).unwrap();
        assert!(made.linked_files > 3, "{made:?}");
    }
    store.close().unwrap();
    for copy in COPIES {
        let store = options(&disk).open(copy).unwrap();
        write(&store, &copy[5..], 12);
        store.close().unwrap();
    }
    disk
}

/// The segment files of a store, by name, with what is in them.
fn segments(disk: &MemoryVfs, store: &str) -> BTreeMap<String, Vec<u8>> {
    let of_store = disk.paths().into_iter().filter_map(|path| {
        let at = path.find(&format!("{store}/seg/"))?;
        let content = disk.read(Path::new(&path)).unwrap();
        Some((path[at + store.len() + 1..].to_owned(), content))
    });
    of_store.collect()
}

/// Everything that can be read of a store; the files that are told to be damaged.
fn read(disk: &MemoryVfs, store: &str) -> (Vec<String>, BTreeSet<(PathBuf, u64)>) {
    let mut answers = Vec::new();
    let mut damaged = BTreeSet::new();
    let mut note = |error: annals::Error| {
        let corruption = error.corruption().unwrap_or_else(|| panic!("{error}"));
        damaged.insert((corruption.file.clone(), corruption.offset));
    };
    let store = match Store::open_read_only_with(store, &options(disk)) {
        Ok(store) => store,
        Err(error) => {
            note(error);
            return (answers, damaged);
        }
    };
    for revision in (1..=store.revision()).step_by(7) {
        for found in store.at(revision).unwrap().range(..) {
            match found {
                Ok(found) => answers.push(format!("{found:?}")),
                Err(error) => {
                    note(error);
                    break;
                }
            }
        }
    }
    for key in 0..KEYS {
        for version in store.history(format!("/{key:03}")) {
            match version {
                Ok(version) => answers.push(format!("{version:?}")),
                Err(error) => {
                    note(error);
                    break;
                }
            }
        }
    }
    for transaction in store.log(..) {
        match transaction {
            Ok(transaction) => answers.push(format!("{transaction:?}")),
            Err(error) => {
                note(error);
                break;
            }
        }
    }
    (answers, damaged)
}

#[test]
fn a_segment_of_a_sibling_is_refused_and_named() {
    let disk = family();
    let [ours, theirs] = COPIES.map(|copy| segments(&disk, copy));
    let original = segments(&disk, DIRECTORY);
    let alike: Vec<&String> = ours
        .iter()
        .filter(|(name, content)| {
            let other = theirs.get(*name);
            other.is_some_and(|other| other != *content && other.len() == content.len())
        })
        .map(|(name, _)| name)
        .collect();
    let shared = ours.iter().filter(|(name, content)| original.get(*name) == Some(content)).count();
    let (expected, damaged) = read(&disk, COPIES[0]);
    assert_eq!((damaged, shared > 0), (BTreeSet::new(), true));
    let mut unseen = Vec::new();
    for &name in &alike {
        let image = disk.crash(0, CrashMode::KeepAll);
        image.overwrite(&Path::new(COPIES[0]).join(name), &theirs[name]);
        let (answers, damaged) = read(&image, COPIES[0]);
        let is_it = |file: &Path| file.ends_with(name);
        // Where its header says of which copy it is.
        if damaged.is_empty() || damaged.iter().any(|(file, at)| !is_it(file) || *at != 40) {
            let wrong = answers.iter().filter(|answer| !expected.contains(answer)).count();
            unseen.push(format!("{name}: {wrong} wrong answers, damage {damaged:?}"));
        }
        let report = annals::check(COPIES[0], &options(&image), &mut |_, _| {}).unwrap();
        assert!(!report.damage.is_empty(), "{name}");
        assert!(report.damage.iter().all(|damage| is_it(&damage.file)), "{:?}", report.damage);
    }
    println!("{} segments, {shared} of them shared, {} alike: {alike:?}", ours.len(), alike.len());
    for kind in ["l0", "head", "hist", "events"] {
        assert!(alike.iter().any(|name| name.ends_with(kind)), "{kind}: {alike:?}");
    }
    assert!(unseen.is_empty(), "{}", unseen.join("\n"));
}
