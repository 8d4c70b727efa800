//! A store of which a sealed file is damaged goes on: background work does what does not need the file, commits are taken, and
//! what they wrote is there, also after closing and opening it again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annals::clock::ManualClock;
use annals::vfs::{Fault, FaultVfs, MemoryVfs, Operation};
use annals::{ErrorKind, KeyRange, Modify, Options, ReadMode, Retention, Store};
use bytes::Bytes;

use crate::judge::is_refusal;
use crate::made::{Expected, RULED, kind, made, options};
use crate::support::{DIRECTORY, START_TIME, tiny};

/// Commits: several memtables full, so that flushes, folds and merges are due again and again.
const WRITES: usize = 200;

/// Every so many commits all background work is done that there is.
const WORK: usize = 20;

/// Does all background work that there is, in spite of damage. Answers how often that was met.
pub fn background(store: &Store) -> Result<u64, String> {
    let mut met = 0;
    // Each file is met once.
    while met < 100 {
        match store.run_background() {
            Ok(true) => {}
            Ok(false) => return Ok(met),
            Err(error) if is_refusal(&error) => met += 1,
            Err(error) => return Err(format!("background work ends with {error}")),
        }
    }
    Err("background work meets damage without end".into())
}

fn reads(store: &Store, written: &BTreeMap<Bytes, Bytes>) -> Result<(), String> {
    for (key, value) in written {
        let found = store.get(key).map_err(|error| format!("{key:?} reads as {error}"))?;
        if found.map(|kv| kv.value).as_ref() != Some(value) {
            return Err(format!("{key:?} reads as another value"));
        }
    }
    Ok(())
}

/// Writes keys that there are and new ones, in between does background work, and closes the store and opens it again.
/// A commit may be refused because of the damage; what was taken must be there.
pub fn goes_on(store: Store, disk: &MemoryVfs, expected: &Expected) -> Result<(), String> {
    let state = expected.states.last().map(|(_, state)| state.as_slice()).unwrap_or_default();
    let mut written = BTreeMap::new();
    for n in 0..WRITES {
        let old = state.get(n % state.len().max(1)).filter(|_| n % 3 == 0).map(|kv| kv.key.clone());
        let key = old.unwrap_or_else(|| format!("/after/{:02}", n * 7 % 50).into());
        // Some of them go to blob files.
        let value = Bytes::from(format!("{n} of {key:?} ").repeat(5 + n % 40));
        match store.put(&key, &value) {
            Ok(_) => drop(written.insert(key, value)),
            Err(error) if is_refusal(&error) => {}
            Err(error) => return Err(format!("a commit ends with {error}")),
        }
        if n % WORK == 0 {
            background(&store)?;
        }
    }
    if written.len() < 40 {
        return Err(format!("{} keys of {WRITES} commits", written.len()));
    }
    background(&store)?;
    if store.stats().generations > 2 {
        return Err(format!("{} memtables are left", store.stats().generations));
    }
    reads(&store, &written)?;
    store.close().map_err(|error| format!("close ends with {error}"))?;
    let store = options(disk).open(Path::new(DIRECTORY));
    let store = store.map_err(|error| format!("open ends with {error}"))?;
    reads(&store, &written)?;
    background(&store)?;
    reads(&store, &written)?;
    store.put("/after/all", "1").map_err(|error| format!("a commit ends with {error}"))?;
    store.close().map_err(|error| format!("close ends with {error}"))
}

#[test]
fn a_store_with_a_damaged_file_is_written_on() {
    let made = made(true);
    let mut left = BTreeSet::new();
    for path in made.paths.iter().filter(|path| path.contains("/seg/")) {
        let content = made.content(path);
        for part in [1, 2, 3] {
            let mut content = content.clone();
            let at = content.len() * part / 4;
            content[at] ^= 0x10;
            let disk = made.with(path, &content);
            let store = options(&disk).open(Path::new(DIRECTORY)).unwrap();
            goes_on(store, &disk, &made.expected)
                .unwrap_or_else(|error| panic!("byte {at} of {path}: {error}"));
            let store = options(&disk).open(Path::new(DIRECTORY)).unwrap();
            let mut outcome = store.reorganise();
            if kind(path) == ".events" {
                // What is forgotten in part is written again.
                store.set_retention(RULED, None).unwrap();
                for revision in made.expected.compacted + 1..=made.expected.revision {
                    if outcome.is_ok() {
                        store.compact(revision).unwrap();
                        outcome = store.reorganise();
                    }
                }
            }
            let stats = store.stats();
            if stats.damaged_files > 0 {
                left.insert(kind(path));
                // Told, also when it is asked for again, and no end of writing.
                for outcome in [outcome, store.reorganise()] {
                    let error = outcome.expect_err("what is damaged cannot be folded or merged");
                    assert!(error.corruption().is_some(), "{error}");
                }
                assert_eq!(stats.failure, None);
                let is_newest = [".head", ".l0", ".blob"].contains(&kind(path));
                assert_eq!(stats.damage.is_some(), is_newest, "{path}: {stats:?}");
            } else {
                outcome.unwrap();
            }
            store.put("/after/all", "2").unwrap();
        }
    }
    for kind in [".head", ".l0", ".hist", ".events", ".blob"] {
        assert!(left.contains(kind), "{left:?}");
    }
}

/// However long it goes on, L0 has few files: they are merged with each other.
#[test]
fn what_cannot_be_folded_is_merged() {
    let made = made(true);
    let path = made.paths.iter().find(|path| kind(path) == ".head").unwrap();
    let mut content = made.content(path);
    // Not what stands before: the rules of retention, without which no store opens.
    let middle = content.len() / 4..content.len() * 3 / 4;
    for byte in content[middle].iter_mut().step_by(256) {
        *byte ^= 0x10;
    }
    let disk = made.with(path, &content);
    let store = options(&disk).open(Path::new(DIRECTORY)).unwrap();
    let mut most = 0;
    for n in 0..2_000 {
        let put = store.put(format!("/after/{n:04}"), "x".repeat(200));
        if let Err(error) = put {
            assert!(matches!(error.kind(), ErrorKind::Corrupt(_)), "{error}");
        }
        background(&store).unwrap();
        most = most.max(store.stats().l0.files);
    }
    let stats = store.stats();
    assert!(stats.flushes > 20 && stats.damaged_files == 1, "{stats:?}");
    assert!(most < 10, "{most} files of L0");
}

/// A map shows what is in the file now, also behind what was checked: once damage is known nobody trusts that any more.
#[test]
fn what_was_checked_is_checked_again_once_damage_was_met() {
    let directory = tempfile::tempdir().unwrap();
    let store = Options::new().background(false).open(directory.path()).unwrap();
    let value = |n: u32| format!("value {n:04} ").repeat(20);
    for n in 0..1_000 {
        store.put(format!("{n:04}"), value(n)).unwrap();
    }
    store.reorganise().unwrap();
    let read = |n: u32| store.get(format!("{n:04}")).map(|kv| kv.unwrap().value);
    assert_eq!(read(500).unwrap(), value(500));
    assert_eq!(read(10).unwrap(), value(10));
    let files =
        fs::read_dir(directory.path().join("seg")).unwrap().map(|file| file.unwrap().path());
    let head = files.filter(|path| path.extension().is_some_and(|kind| kind == "head"));
    for path in head {
        let content = fs::read(&path).unwrap();
        let is_there = |window: &[u8]| window == b"value 0500 ";
        let Some(at) = content.windows(11).position(is_there) else { continue };
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(b"0666", at as u64 + 6).unwrap();
    }
    let error = store.backup(std::io::sink()).unwrap_err();
    assert!(error.corruption().is_some(), "{error}");
    let error = read(500).unwrap_err();
    assert!(error.corruption().is_some(), "{error}");
    assert_eq!(read(10).unwrap(), value(10));
    // Nor is it copied into a commit.
    let error = store.modify("0500", |_| Modify::put("new")).unwrap_err();
    assert!(error.corruption().is_some(), "{error}");
}

/// Rules of retention read files, too, and the same ones again each time that they are applied.
#[test]
fn a_rule_that_meets_what_cannot_be_read_is_applied_another_time() {
    let disk = FaultVfs::new(Arc::new(made(true).copy()));
    let clock = Arc::new(ManualClock::new(START_TIME + 10_000_000_000));
    let options = tiny(Arc::new(disk.clone()), clock.clone()).lease_expiry(false);
    let store = options.read_mode(ReadMode::Pread).cache_bytes(0).open(DIRECTORY).unwrap();
    let second = Retention::forever().keep_for(Duration::from_secs(1));
    store.set_retention("/after/", Some(second)).unwrap();
    for n in 0..20 {
        store.put(format!("/after/{n}"), "v").unwrap();
    }
    let mut met = 0;
    for _ in 0..5 {
        disk.fail(Some(Operation::Read), disk.op_count_of(Operation::Read), Fault::Io, true);
        clock.advance(61_000_000);
        while let done = store.run_background()
            && !matches!(done, Ok(false))
        {
            met += u64::from(done.is_err());
            assert!(met < 1_000, "{done:?}");
        }
        disk.heal();
        assert_eq!(store.stats().failure, None);
        store.put("/after/x", "1").unwrap();
    }
    assert!(met > 0);
    clock.advance(61_000_000);
    background(&store).unwrap();
    assert!(store.oldest_readable(KeyRange::prefix("/after/")) > 50);
}
