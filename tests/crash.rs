//! A power cut after every operation on the disk, of several scripts.
//!
//! Before each operation the disk is asked for images of what a crash could leave: every one where
//! they are few, else nothing kept, everything kept, and some random ones. Each image must open,
//! hold every acknowledged commit, be the state after some prefix of the commits, and take a new
//! commit. Some are crashed again while they recover.
//!
//! `ANNALS_IMAGES=n` takes n random images at each point; `ANNALS_DEEP=n` crashes every n-th
//! recovery again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod support;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals::clock::ManualClock;
use annals::inspect::StoreFiles;
use annals::vfs::{CrashMode, FaultVfs, MemoryVfs, Operation};
use annals::{ErrorKind, Store};
use annals_format::FileKind;
use annals_format::name::FileName;
use bytes::Bytes;
use support::check::{self, Depth, Found, caught, good};
use support::copies::changes_disk;
use support::drive::{Driver, Ended, Truth};
use support::generate::{self, Taste};
use support::model::Request;
use support::random::Random;
use support::watchdog::Watchdog;
use support::{DIRECTORY, START_TIME, number_from_env, open_tiny, tiny};

use annals::{Op, PutRequest, TxnRequest};

/// One script on one disk, and everything a crash image is held against.
struct Script {
    name: &'static str,
    disk: MemoryVfs,
    faulty: FaultVfs,
    driver: Driver,
    clock: Arc<ManualClock>,
    inspector: Arc<Inspector>,
}

/// Takes images and checks them.
#[derive(Debug)]
struct Inspector {
    name: &'static str,
    watchdog: Watchdog,
    /// Random images at each point.
    images: u64,
    /// Every how many images the recovery is crashed, too.
    deep: u64,
    points: AtomicU64,
    checked: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Script {
    fn new(name: &'static str) -> Self {
        let disk = MemoryVfs::new();
        let faulty = FaultVfs::new(Arc::new(disk.clone()));
        let clock = Arc::new(ManualClock::new(START_TIME));
        let driver = Driver::new(Arc::clone(&clock));
        let inspector = Arc::new(Inspector {
            name,
            watchdog: Watchdog::new(Duration::from_secs(60)),
            images: number_from_env("ANNALS_IMAGES", 3),
            deep: number_from_env("ANNALS_DEEP", 40),
            points: AtomicU64::new(0),
            checked: AtomicU64::new(0),
            failures: Mutex::default(),
        });
        let (below, shared, watching) =
            (disk.clone(), driver.shared.clone(), Arc::clone(&inspector));
        let dirty = Mutex::new(false);
        faulty.observe(move |number, kind| {
            // The operation before this one has left something new on the disk, or has not.
            let before = std::mem::replace(&mut *dirty.lock().unwrap(), changes_disk(kind));
            if before {
                let truth = shared.lock().clone();
                watching.look(&below, &truth, number, kind);
            }
        });
        Self { name, disk, faulty, driver, clock, inspector }
    }

    fn open(&self) -> Store {
        let vfs = Arc::new(self.faulty.clone());
        let store = tiny(vfs, Arc::clone(&self.clock)).open(Path::new(DIRECTORY));
        store.unwrap_or_else(|error| panic!("{}: open: {error}", self.name))
    }

    fn request(&self, store: &Store, request: &Request) {
        match self.driver.request(store, request) {
            Ok(Ended::AsExpected) => {}
            Ok(Ended::Failed(error)) => panic!("{}: {request:?}: {error}", self.name),
            Err(found) => panic!("{}: {found}", self.name),
        }
    }

    fn put(&self, store: &Store, key: &str, value: &str) {
        self.request(store, &Request::Put(PutRequest::new(key, value)));
    }

    fn background(&self, store: &Store) {
        while store.run_background().unwrap_or_else(|error| panic!("{}: {error}", self.name)) {}
    }

    fn close(&self, store: Store) {
        store.close().unwrap_or_else(|error| panic!("{}: close: {error}", self.name));
        self.driver.acknowledge_all();
    }

    /// Many transactions that may share a sync.
    fn burst(&self, store: &Store, count: u64, value: &str) {
        let flights: Vec<_> = (0..count)
            .filter_map(|n| {
                let request = transaction([
                    PutRequest::new(format!("burst/{n}"), value).into(),
                    PutRequest::new(format!("burst/{}", n + 1), "next").into(),
                ]);
                self.driver.submit(store, &request).unwrap_or_else(|found| panic!("{found}"))
            })
            .collect();
        for flight in flights {
            match self.driver.wait(flight) {
                Ok(Ended::AsExpected) => {}
                other => panic!("{}: {other:?}", self.name),
            }
        }
    }

    /// The end: one more look, and the verdict.
    fn finish(self) {
        let truth = self.driver.model().clone();
        self.inspector.look(&self.disk, &truth, self.faulty.op_count(), Operation::Exists);
        let (points, checked) = (&self.inspector.points, &self.inspector.checked);
        println!(
            "{}: {} operations, {} points, {} images",
            self.name,
            self.faulty.op_count(),
            points.load(Ordering::Relaxed),
            checked.load(Ordering::Relaxed)
        );
        let failures = self.inspector.failures.lock().unwrap();
        assert!(points.load(Ordering::Relaxed) > 0);
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}

fn transaction(ops: impl IntoIterator<Item = Op>) -> Request {
    let request = TxnRequest { success: ops.into_iter().collect(), ..TxnRequest::default() };
    Request::Txn { request, time: None, metadata: Bytes::from_static(b"by the script") }
}

/// The images of a disk, each with how it was made.
fn images(disk: &MemoryVfs, random: u64, most: usize) -> Vec<(String, MemoryVfs)> {
    if let Some(every) = disk.crash_every(most) {
        let number = |(n, image)| (format!("{n} of every"), image);
        return every.into_iter().enumerate().map(number).collect();
    }
    let fixed = [(CrashMode::LoseAll, 0), (CrashMode::KeepAll, 0)];
    let random = (0..random).map(|seed| (CrashMode::Random, seed));
    let made = fixed.into_iter().chain(random);
    made.map(|(mode, seed)| (format!("{mode:?} {seed}"), disk.crash(seed, mode))).collect()
}

impl Inspector {
    /// Takes the images of a point and checks them.
    fn look(&self, disk: &MemoryVfs, truth: &Truth, number: u64, kind: Operation) {
        if self.failures.lock().unwrap().len() >= 3 {
            return;
        }
        self.points.fetch_add(1, Ordering::Relaxed);
        for (made, image) in images(disk, self.images, 8) {
            let place = format!("before operation {number} ({kind:?}), image {made}");
            self.watchdog.begin(format!("{}: {place}", self.name));
            let checked = self.checked.fetch_add(1, Ordering::Relaxed);
            let deep = checked % self.deep == self.deep - 1;
            let seed = number ^ checked << 20;
            let again = image.crash(0, CrashMode::KeepAll);
            let found = caught(|| Self::image(&image, truth, seed))
                .and_then(|()| if deep { caught(|| self.recovery(&again, truth)) } else { Ok(()) });
            if let Err(found) = found {
                let mut failures = self.failures.lock().unwrap();
                failures.push(format!("{}: {place}: {found}", self.name));
            }
        }
    }

    /// Checks one image, and that the store goes on from there.
    fn image(image: &MemoryVfs, truth: &Truth, seed: u64) -> Found {
        let paths = image.paths();
        let thorough = seed.is_multiple_of(4);
        if thorough {
            sound(image, "before recovery")?;
            read_only(image, truth)?;
        }
        let store = good(|| format!("open ({paths:?})"), open_tiny(Arc::new(image.clone())))?;
        let (model, acknowledged) = (&truth.model, truth.acknowledged);
        let changes = check::recovered(&store, model, acknowledged, Depth::Sampled(seed))?;
        let next = model.entry_after(changes).revision + 1;
        let put = good(|| "put".into(), store.put("after", "the crash"))?;
        check::same(|| "the next revision".into(), &put.revision, &next)?;
        // A second crash right now must not take back what has been seen.
        let second = image.crash(seed, CrashMode::Random);
        drop(store);
        let store = good(|| "second open".into(), open_tiny(Arc::new(second)))?;
        check::same(|| "the revision after a second crash".into(), &store.revision(), &next)?;
        if thorough {
            sound(image, "after recovery")?;
            no_leftovers(image)?;
        }
        Ok(())
    }

    /// Crashes the recovery of an image at each of its operations.
    fn recovery(&self, image: &MemoryVfs, truth: &Truth) -> Found {
        let failure = Arc::new(Mutex::new(String::new()));
        let faulty = FaultVfs::new(Arc::new(image.clone()));
        let (below, truth, notes) = (image.clone(), truth.clone(), Arc::clone(&failure));
        let dirty = Mutex::new(false);
        let counted = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&counted);
        faulty.observe(move |number, kind| {
            let before = std::mem::replace(&mut *dirty.lock().unwrap(), changes_disk(kind));
            if !before || !notes.lock().unwrap().is_empty() {
                return;
            }
            for (made, image) in images(&below, 2, 4) {
                counter.fetch_add(1, Ordering::Relaxed);
                let found = caught(|| {
                    let vfs = Arc::new(image);
                    let store = good(|| "open".into(), open_tiny(vfs))?;
                    let depth = Depth::Sampled(number);
                    check::recovered(&store, &truth.model, truth.acknowledged, depth).map(|_| ())
                });
                if let Err(found) = found {
                    let mut notes = notes.lock().unwrap();
                    let _ = writeln!(
                        notes,
                        "recovery crashed before operation {number} ({kind:?}), image {made}: \
                         {found}"
                    );
                }
            }
        });
        drop(good(|| "open".into(), open_tiny(Arc::new(faulty)))?);
        self.checked.fetch_add(counted.load(Ordering::Relaxed), Ordering::Relaxed);
        let failure = failure.lock().unwrap();
        if failure.is_empty() { Ok(()) } else { Err(failure.clone()) }
    }
}

/// What a crash leaves is not damage.
fn sound(image: &MemoryVfs, when: &str) -> Found {
    let options = tiny(Arc::new(image.clone()), Arc::new(ManualClock::new(START_TIME)));
    match annals::check(Path::new(DIRECTORY), &options, &mut |_, _| {}) {
        Ok(report) => {
            check::same(|| format!("damage {when}"), &report.damage, &Vec::new())?;
            check::same(|| format!("unchecked {when}"), &report.unchecked.len(), &0)
        }
        // A crash before the store was made.
        Err(error) if matches!(error.kind(), ErrorKind::NoStore { .. }) => Ok(()),
        Err(error) => Err(format!("verify {when}: {error}")),
    }
}

/// A reader sees everything acknowledged, without writing.
fn read_only(image: &MemoryVfs, truth: &Truth) -> Found {
    let faulty = FaultVfs::new(Arc::new(image.clone()));
    let options = tiny(Arc::new(faulty.clone()), Arc::new(ManualClock::new(START_TIME)));
    match Store::open_read_only_with(Path::new(DIRECTORY), &options) {
        Ok(store) => {
            let depth = Depth::Sampled(1);
            check::recovered(&store, &truth.model, truth.acknowledged, depth)
                .map_err(|found| format!("read-only: {found}"))?;
            let refused = store.put("a", "b");
            if refused.is_ok() {
                return Err("a read-only store takes a write".into());
            }
        }
        Err(error) if matches!(error.kind(), ErrorKind::NoStore { .. }) => {
            check::same(|| "changes in no store".into(), &truth.acknowledged, &0)?;
        }
        Err(error) => return Err(format!("read-only: {error}")),
    }
    let writes = [
        Operation::CreateDir,
        Operation::Create,
        Operation::Rename,
        Operation::Remove,
        Operation::Write,
        Operation::SetLen,
        Operation::Lock,
    ];
    let writes: u64 = writes.into_iter().map(|kind| faulty.op_count_of(kind)).sum();
    check::same(|| "writes of a reader".into(), &writes, &0)
}

/// Every file is named by the manifest in force, and nothing is unfinished.
fn no_leftovers(image: &MemoryVfs) -> Found {
    let options = tiny(Arc::new(image.clone()), Arc::new(ManualClock::new(START_TIME)));
    let files = StoreFiles::open(Path::new(DIRECTORY), &options);
    let files = good(|| "manifest".into(), files)?;
    let manifest = files.manifest();
    let segments = manifest.files.iter().map(|meta| FileName::new(meta.kind, meta.number));
    let logs = manifest.wal.iter().map(|file| FileName::new(FileKind::Wal, file.number));
    let mut expected: Vec<String> = segments.chain(logs).map(|name| name.to_string()).collect();
    expected.push(FileName::new(FileKind::Manifest, manifest.number).to_string());
    expected.extend(["CURRENT".to_owned(), "LOCK".to_owned()]);
    let mut found = image.paths();
    let prefix = format!("{DIRECTORY}/");
    for path in &mut found {
        *path = path.replacen(&prefix, "", 1);
    }
    let last_log = manifest.wal.iter().map(|file| file.number).max().unwrap_or(0);
    // The log may have rolled over since the manifest was stored, and has a spare.
    found.retain(|path| {
        !matches!(FileName::parse(path), Some(name) if name.kind == FileKind::Wal && name.number > last_log)
    });
    expected.sort();
    found.sort();
    check::same(|| "files".into(), &found, &expected)
}

#[test]
fn commits_alone_and_in_groups_with_files_rolling_over() {
    let script = Script::new("commits");
    let store = script.open();
    for n in 0..12 {
        script.put(&store, &format!("key/{}", n % 5), &"value ".repeat(n * 8));
    }
    script.burst(&store, 9, &"burst ".repeat(40));
    script.request(&store, &transaction([PutRequest::new("big", "b".repeat(9_000)).into()]));
    script.burst(&store, 3, "");
    script.request(&store, &Request::DeleteRange(annals::DeleteRangeRequest::prefix("key/")));
    script.request(&store, &Request::Grant { id: 7, ttl: 60 });
    script.request(&store, &Request::Put(PutRequest::new("leased", "x").lease(7)));
    script.request(&store, &Request::Revoke(7));
    script.put(&store, "last", "one");
    drop(store);
    script.finish();
}

#[test]
fn flush_fold_merge_and_compact() {
    let script = Script::new("reclaim");
    let store = script.open();
    for round in 0..10 {
        for n in 0..8 {
            let value = format!("round {round} ").repeat(60 + n * 5);
            script.put(&store, &format!("key/{}", (n * 7 + round) % 20), &value);
        }
        if round % 3 == 1 {
            script.request(
                &store,
                &Request::DeleteRange(annals::DeleteRangeRequest::new("key/3").range_end("key/5")),
            );
        }
        if round % 4 == 3 {
            let revision = script.driver.model().model.revision() - 20;
            script.request(&store, &Request::Compact(revision));
        }
        script.background(&store);
    }
    let revision = script.driver.model().model.revision();
    script.request(&store, &Request::Compact(revision));
    script.background(&store);
    script.close(store);
    let store = script.open();
    script.background(&store);
    script.close(store);
    script.finish();
}

#[test]
fn open_close_and_open_again() {
    let script = Script::new("reopen");
    script.close(script.open());
    for round in 0..6 {
        let store = script.open();
        for n in 0..round {
            script.put(&store, &format!("key/{n}"), &format!("{round}").repeat(1_500));
        }
        if round % 2 == 0 {
            script.close(store);
        } else {
            drop(store);
        }
    }
    let store = script.open();
    script.burst(&store, 20, &"x".repeat(700));
    script.background(&store);
    drop(store);
    let store = script.open();
    script.background(&store);
    script.put(&store, "last", "one");
    script.close(store);
    script.finish();
}

#[test]
fn everything_at_random() {
    for seed in 0..number_from_env("ANNALS_SEQUENCES", 4) {
        let script = Script::new("random");
        let mut random = Random::new(seed);
        let mut taste = Taste::random(&mut random);
        taste.value_bytes = 700;
        taste.leases = true;
        let mut store = script.open();
        for _ in 0..90 {
            let model = script.driver.model().model.clone();
            match random.below(20) {
                0 => script.background(&store),
                1 => {
                    drop(store);
                    store = script.open();
                }
                2 if random.one_in(3) => {
                    script.close(store);
                    store = script.open();
                }
                _ => {
                    let request = generate::request(&mut random, &taste, &model);
                    script.request(&store, &request);
                }
            }
        }
        drop(store);
        script.finish();
    }
}
