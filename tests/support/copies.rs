//! What tests of copies of a store share: a store that has everything, and whether a copy of it is complete.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use annals::clock::ManualClock;
use annals::vfs::{MemoryVfs, Operation};
use annals::{Error, ErrorKind, KvHash, Options, Store};

use super::check::{self, Depth, Found, good};
use super::drive::{Driver, Ended};
use super::generate::{self, Taste};
use super::images::{self, Take};
use super::model::{Model, Request};
use super::random::Random;
use super::{DIRECTORY, START_TIME, tiny};

pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(START_TIME))
}

pub fn options(vfs: impl annals::vfs::Vfs + 'static) -> Options {
    tiny(Arc::new(vfs), clock())
}

/// A store with files of every kind, a compaction, leases, and a part in memory alone.
pub fn scripted(options: &Options, seed: u64) -> (Store, Model) {
    let clock = clock();
    let store = options.clone().clock(Arc::clone(&clock) as _).open(DIRECTORY).unwrap();
    let driver = Driver::new(clock);
    let mut random = Random::new(seed);
    let mut taste = Taste::random(&mut random);
    taste.value_bytes = 3_000;
    taste.leases = true;
    for n in 0..300 {
        let model = driver.model().model.clone();
        let request = match n {
            150 => Request::Compact(model.revision() / 2),
            _ => generate::request(&mut random, &taste, &model),
        };
        match driver.request(&store, &request) {
            Ok(Ended::AsExpected) => {}
            other => panic!("{request:?}: {other:?}"),
        }
        match n {
            60 => store.reorganise().unwrap(),
            200 => while store.run_background().unwrap() {},
            _ if n % 20 == 0 => drop(store.run_background().unwrap()),
            _ => {}
        }
    }
    let model = driver.model().model.clone();
    (store, model)
}

/// Holds an error to be about something in the directory `to`; `found` is its name, or `None` for a store that was
/// not finished.
pub fn is_not_empty(error: &Error, to: &str, found: Option<&str>) {
    let ErrorKind::NotEmpty { path, found: told, unfinished } = error.kind() else {
        panic!("{error}")
    };
    assert!(path.ends_with(to), "{error}");
    assert_eq!((told.as_str(), *unfinished), (found.unwrap_or("LOADING"), found.is_none()));
    let says = if *unfinished { "not finished: remove it" } else { told };
    assert!(error.to_string().contains(says), "{error}");
}

/// The hash at each revision that can be read.
pub fn hashes(store: &Store) -> Vec<KvHash> {
    let oldest = store.compacted_revision().max(1);
    (oldest..=store.revision()).map(|revision| store.hash_at(revision).unwrap()).collect()
}

/// Checks a directory after the making of a copy has ended or been stopped. Answers whether it is a store.
pub fn complete(
    options: &Options,
    path: &str,
    model: &Model,
    expected: &[KvHash],
) -> Result<bool, String> {
    let store = match options.clone().create(false).open(path) {
        Err(error)
            if matches!(error.kind(), ErrorKind::NoStore { .. } | ErrorKind::NotAStore { .. }) =>
        {
            return Ok(false);
        }
        opened => good(|| "open the copy".into(), opened)?,
    };
    check::same(|| "clean".into(), &store.open_report().clean, &true)?;
    whole(store, options, path, model, expected)?;
    Ok(true)
}

/// Checks all that a copy has, and that it can be written on; closes it.
pub fn whole(
    store: Store,
    options: &Options,
    path: &str,
    model: &Model,
    expected: &[KvHash],
) -> Found {
    check::store(&store, model, Depth::Everything)?;
    check::same(|| "hashes".into(), &hashes(&store), &expected.to_vec())?;
    let put = good(|| "put".into(), store.put("its", "own"))?;
    check::same(|| "the next revision".into(), &put.revision, &(model.revision() + 1))?;
    good(|| "reorganise".into(), store.reorganise())?;
    good(|| "close".into(), store.close())?;
    sound(options, path)
}

/// Tells those who wait for it to stop, also when a test fails.
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Puts and deletes keys of one writer until it is told to stop.
pub fn write_until(store: &Store, stop: &AtomicBool, writer: u64) {
    let mut random = Random::new(writer);
    while !stop.load(Ordering::Relaxed) {
        let key = format!("/{writer}/{}", random.below(200));
        match random.below(5) {
            0 => drop(store.delete(key).unwrap()),
            _ => drop(store.put(key, "value ".repeat(30)).unwrap()),
        }
    }
}

pub fn sound(options: &Options, path: &str) -> Found {
    let report = annals::check(Path::new(path), options, &mut |_, _| {});
    let report = good(|| format!("verify {path}"), report)?;
    check::same(|| "damage".into(), &report.damage, &Vec::new())?;
    check::same(|| "unchecked".into(), &report.unchecked.len(), &0)
}

/// Whether the disk may be another one after this.
pub fn changes_disk(kind: Operation) -> bool {
    matches!(
        kind,
        Operation::CreateDir
            | Operation::Create
            | Operation::Rename
            | Operation::Link
            | Operation::Remove
            | Operation::SyncDir
            | Operation::Lock
            | Operation::Write
            | Operation::Sync
            | Operation::SetLen
    )
}

/// What a power cut could leave of a disk.
pub fn images(disk: &MemoryVfs) -> Vec<MemoryVfs> {
    let take = Take { random: 3, every: 8, tears: 1 }.or_env();
    images::of(disk, take, disk.op_count()).into_iter().map(|(_, image)| image).collect()
}
