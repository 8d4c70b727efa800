//! A closed store of small files, one of every kind, damaged in every way: bits flipped, files cut,
//! lengthened, removed, swapped, put back from an older state.
//!
//! Whatever the damage: no wrong answer, no panic, no hang, and `verify` reports it.
//!
//! `ANNALS_FLIPS=n`, `ANNALS_CUTS=n` set how many; `ANNALS_FIRST_SEED=n` where they begin.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use annals::clock::ManualClock;
use annals::vfs::{CrashMode, MemoryVfs};
use annals::{Corruption, DeleteRangeRequest, Error, ErrorKind, PutRequest, Store};
use support::check::{self, caught, same};
use support::drive::{Driver, Ended};
use support::model::{Model, Request};
use support::random::Random;
use support::watchdog::Watchdog;
use support::{DIRECTORY, START_TIME, number_from_env, open_tiny, tiny};

/// A closed store, an older state of it, and what it must answer.
struct Closed {
    disk: MemoryVfs,
    older: MemoryVfs,
    model: Model,
    /// Every file that is not empty.
    paths: Vec<String>,
}

fn closed() -> Closed {
    made(true)
}

/// Makes the store, and closes it or leaves it as a killed process does.
fn made(close: bool) -> Closed {
    let disk = MemoryVfs::new();
    let clock = Arc::new(ManualClock::new(START_TIME));
    let driver = Driver::new(Arc::clone(&clock));
    let options = tiny(Arc::new(disk.clone()), clock).l0_files_max(3);
    let mut older = None;
    let do_it = |store: &Store, request: Request| match driver.request(store, &request) {
        Ok(Ended::AsExpected) => {}
        other => panic!("{other:?}"),
    };
    let store = options.open(Path::new(DIRECTORY)).unwrap();
    do_it(&store, Request::Grant { id: 5, ttl: 60 });
    for round in 0..9_u64 {
        for n in 0..12_u64 {
            let value = format!("round {round} of {n} ").repeat(30 + usize::try_from(n).unwrap());
            let lease = if n == 3 { 5 } else { 0 };
            let key = format!("/registry/pods/{}", (n * 5 + round) % 17);
            do_it(&store, Request::Put(PutRequest::new(key, value).lease(lease)));
        }
        if round == 5 {
            let delete = DeleteRangeRequest::new("/registry/pods/2").range_end("/registry/pods/4");
            do_it(&store, Request::DeleteRange(delete));
            do_it(&store, Request::Compact(30));
        }
        if round < 7 {
            while store.run_background().unwrap() {}
        }
        if round == 6 {
            older = Some(disk.crash(0, CrashMode::KeepAll));
        }
    }
    if close {
        store.close().unwrap();
    } else {
        std::mem::forget(store);
    }
    let disk = disk.crash(0, CrashMode::KeepAll);
    let paths: Vec<String> = disk
        .paths()
        .into_iter()
        .filter(|path| !disk.read(Path::new(path)).unwrap().is_empty())
        .collect();
    for kind in ["CURRENT", "MANIFEST-", ".wal", ".l0", ".head", ".hist", ".events"] {
        assert!(paths.iter().any(|path| path.contains(kind)), "no {kind} in {paths:?}");
    }
    let model = driver.model().model.clone();
    Closed { disk, older: older.unwrap(), model, paths }
}

impl Closed {
    fn copy(&self) -> MemoryVfs {
        self.disk.crash(0, CrashMode::KeepAll)
    }

    fn content(&self, path: &str) -> Vec<u8> {
        self.disk.read(Path::new(path)).unwrap()
    }

    /// Every sector of the files whose path contains a text.
    fn sectors(&self, part: &str) -> Vec<(String, usize)> {
        let paths = self.paths.iter().filter(|path| path.contains(part));
        let sectors = paths.flat_map(|path| {
            let sectors = self.content(path).len().div_ceil(512);
            (0..sectors).map(|sector| (path.clone(), sector * 512))
        });
        sectors.collect()
    }

    /// A copy with another content of one file.
    fn with(&self, path: &str, content: &[u8]) -> MemoryVfs {
        let copy = self.copy();
        copy.overwrite(Path::new(path), content);
        copy
    }
}

/// What came of a damage that was not answered wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// The store did not open.
    RefusedToOpen,
    /// The store opened, and some reads were refused.
    RefusedToRead,
    /// Nothing that was read was damaged.
    Unnoticed,
    /// The end of the log was taken for a write cut off by a kill, and reported as such.
    DroppedAndReported,
}

/// What a damaged store may answer instead of the truth. Damage to a version is damage, not a newer
/// format: every checksum is compared before the version that it covers.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Corrupt(_) | ErrorKind::NotAStore { .. } | ErrorKind::NoStore { .. }
    )
}

fn verify(disk: &MemoryVfs) -> Result<Vec<Corruption>, Error> {
    let clock = Arc::new(ManualClock::new(START_TIME));
    let options = tiny(Arc::new(disk.clone()), clock);
    let report = annals::check(Path::new(DIRECTORY), &options, &mut |_, _| {})?;
    match report.unchecked.first() {
        Some(unchecked) => Err(unchecked.clone()),
        None => Ok(report.damage),
    }
}

/// Looks at a damaged store from all sides.
fn judge(disk: &MemoryVfs, model: &Model) -> Result<Fate, String> {
    match verify(disk) {
        Ok(found) if found.is_empty() => return Err("verify reports nothing".into()),
        Ok(_) => {}
        Err(error) if is_refusal(&error) => {}
        Err(error) => return Err(format!("verify ends with {error:?}")),
    }
    let store = match open_tiny(Arc::new(disk.clone())) {
        Ok(store) => store,
        Err(error) if is_refusal(&error) => return Ok(Fate::RefusedToOpen),
        Err(error) => return Err(format!("open ends with {error:?}")),
    };
    let mut refused = read_all(&store, model)?;
    // Background work must not turn damage into something that looks sound.
    loop {
        match store.run_background() {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) if is_refusal(&error) || refused > 0 => break,
            Err(error) => return Err(format!("background work ends with {error:?}")),
        }
    }
    refused += read_all(&store, model)?;
    Ok(if refused > 0 { Fate::RefusedToRead } else { Fate::Unnoticed })
}

/// Reads everything; returns how many reads were refused.
fn read_all(store: &Store, model: &Model) -> Result<u64, String> {
    let mut refused = 0;
    let mut is = |what: &str, error: &Error| {
        refused += 1;
        if is_refusal(error) { Ok(()) } else { Err(format!("{what} ends with {error:?}")) }
    };
    same(|| "revision".into(), &store.revision(), &model.revision())?;
    same(|| "compacted".into(), &store.compacted_revision(), &model.compacted())?;
    let (oldest, newest) = (model.compacted().max(1), model.revision());
    for revision in [oldest, oldest.midpoint(newest), newest] {
        let view = store.at(revision).map_err(|error| format!("view: {error}"))?;
        let expected: Vec<_> = model.state_at(revision).into_values().collect();
        let mut wanted = expected.iter();
        for found in view.range(..) {
            match found {
                Ok(found) => same(|| format!("scan at {revision}"), &Some(&found), &wanted.next())?,
                Err(error) => {
                    is("scan", &error)?;
                    wanted = [].iter();
                    break;
                }
            }
        }
        same(|| format!("end of scan at {revision}"), &wanted.next(), &None)?;
        for kv in &expected {
            match view.get(&kv.key) {
                Ok(found) => same(|| format!("get at {revision}"), &found.as_ref(), &Some(kv))?,
                Err(error) => is("get", &error)?,
            }
        }
    }
    for key in model.keys() {
        match store.history(key).collect::<annals::Result<Vec<_>>>() {
            Ok(found) => same(|| format!("history of {key:?}"), &found, &model.history(key))?,
            Err(error) => is("history", &error)?,
        }
    }
    match store.log(..).with_values().collect::<annals::Result<Vec<_>>>() {
        Ok(found) => same(|| "log".into(), &found, &model.transactions(0))?,
        Err(error) => is("log", &error)?,
    }
    match store.lease_info(5, true) {
        Ok(found) => {
            let found = found.map(|lease| lease.keys);
            same(|| "lease".into(), &found, &Some(model.attached(5)))?;
        }
        Err(error) => is("lease", &error)?,
    }
    Ok(refused)
}

/// As [`judge`], for a killed store in which a sector that was written reads as never written. That
/// can look like a write that was cut off by the kill: then what it held is dropped, and said so.
fn judge_zeroed(disk: &MemoryVfs, model: &Model) -> Result<Fate, String> {
    let options = tiny(Arc::new(disk.clone()), Arc::new(ManualClock::new(START_TIME)));
    let report = annals::check(Path::new(DIRECTORY), &options, &mut |_, _| {});
    let report = report.map_err(|error| format!("verify ends with {error:?}"))?;
    if report.torn.is_none() {
        return judge(disk, model);
    }
    let store = open_tiny(Arc::new(disk.clone()));
    let store = store.map_err(|error| format!("verify says torn, open says {error}"))?;
    if store.open_report().dropped.is_none() {
        return Err("verify says torn, open does not".into());
    }
    check::recovered(&store, model, 0, check::Depth::Sampled(1))?;
    Ok(Fate::DroppedAndReported)
}

/// Judges many damages, each made from a number, and counts what came of them.
fn judge_all(
    closed: &Closed,
    count: u64,
    damage: impl Fn(u64) -> Option<(String, MemoryVfs)> + Sync,
) -> BTreeMap<Fate, u64> {
    judge_all_by(judge, closed, count, damage)
}

fn judge_all_by(
    judge: fn(&MemoryVfs, &Model) -> Result<Fate, String>,
    closed: &Closed,
    count: u64,
    damage: impl Fn(u64) -> Option<(String, MemoryVfs)> + Sync,
) -> BTreeMap<Fate, u64> {
    let next = AtomicU64::new(0);
    let fates = Mutex::new(BTreeMap::new());
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let watchdog = Watchdog::new(Duration::from_secs(60));
                while failures.lock().unwrap().len() < 5 {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let Some((case, disk)) = damage(number) else { continue };
                    watchdog.begin(case.as_str());
                    let since = Instant::now();
                    let mut fate = caught(|| judge(&disk, &closed.model));
                    if since.elapsed() > Duration::from_secs(2) {
                        fate = Err(format!("it took {:?}", since.elapsed()));
                    }
                    match fate {
                        Ok(fate) => *fates.lock().unwrap().entry(fate).or_insert(0) += 1,
                        Err(found) => failures.lock().unwrap().push(format!("{case}: {found}")),
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    fates.into_inner().unwrap()
}

#[test]
fn a_sound_store_has_nothing_to_report() {
    let closed = closed();
    assert_eq!(verify(&closed.disk).unwrap(), []);
    let store = open_tiny(Arc::new(closed.copy())).unwrap();
    assert_eq!(read_all(&store, &closed.model), Ok(0));
}

#[test]
fn flipped_bits() {
    let closed = closed();
    let first = number_from_env("ANNALS_FIRST_SEED", 0);
    let fates = judge_all(&closed, number_from_env("ANNALS_FLIPS", 5_000), |number| {
        let mut random = Random::new(first + number);
        // Every file as often as any other, however small it is.
        let path = random.pick(&closed.paths).clone();
        let mut content = closed.content(&path);
        let at = random.index(content.len());
        let bit = random.below(8);
        content[at] ^= 1 << bit;
        let case = format!("seed {}: bit {bit} of byte {at} of {path}", first + number);
        Some((case, closed.with(&path, &content)))
    });
    println!("flipped bits: {fates:?}");
}

#[test]
fn cut_and_lengthened_files() {
    let closed = closed();
    let first = number_from_env("ANNALS_FIRST_SEED", 0);
    let fates = judge_all(&closed, number_from_env("ANNALS_CUTS", 2_000), |number| {
        let mut random = Random::new(first + number);
        let path = random.pick(&closed.paths).clone();
        let mut content = closed.content(&path);
        let len = match random.below(6) {
            0 => content.len() + *random.pick(&[1, 511, 512, 4096]),
            1 => 0,
            2 => content.len() - 1,
            _ => random.index(content.len()),
        };
        let fill = if random.one_in(2) { 0 } else { 0xa5 };
        if path.contains("/wal/") && fill == 0 && len > content.len() && len.is_power_of_two() {
            // A log file with the length it was made with: a crash while closing leaves that, too.
            return None;
        }
        content.resize(len, fill);
        let case = format!("seed {}: {path} cut to {len} bytes", first + number);
        Some((case, closed.with(&path, &content)))
    });
    println!("cut files: {fates:?}");
}

#[test]
fn zeroed_sectors() {
    for (name, store, judge) in [
        ("closed", made(true), judge as fn(&MemoryVfs, &Model) -> Result<Fate, String>),
        ("killed", made(false), judge_zeroed),
    ] {
        let sectors = store.sectors("");
        let fates = judge_all_by(judge, &store, sectors.len() as u64, |number| {
            let (path, at) = &sectors[usize::try_from(number).unwrap()];
            let mut content = store.content(path);
            let end = content.len().min(at + 512);
            if content[*at..end].iter().all(|byte| *byte == 0) {
                return None;
            }
            content[*at..end].fill(0);
            Some((format!("{path}: sector at {at} zeroed"), store.with(path, &content)))
        });
        println!("zeroed sectors of a {name} store: {fates:?}");
    }
}

/// In the log of a killed store, nothing but a zeroed sector looks like a write cut off.
#[test]
fn a_flipped_bit_in_every_sector_of_a_killed_stores_log() {
    let killed = made(false);
    let sectors = killed.sectors("/wal/");
    let fates = judge_all(&killed, sectors.len() as u64, |number| {
        let mut random = Random::new(number);
        let (path, at) = &sectors[usize::try_from(number).unwrap()];
        let mut content = killed.content(path);
        let end = content.len().min(at + 512);
        let at = at + random.index(end - at);
        content[at] ^= 1 << random.below(8);
        Some((format!("seed {number}: bit of byte {at} of {path}"), killed.with(path, &content)))
    });
    println!("flipped bits in the log of a killed store: {fates:?}");
    // Opening passes over what is in segments already; verify, which was asked each time, does not.
    assert_eq!(fates.keys().collect::<Vec<_>>(), [&Fate::RefusedToOpen, &Fate::Unnoticed]);
}

/// The log of a killed store cannot lose its end: its files have a length that is known.
#[test]
fn a_cut_log_of_a_killed_store() {
    let killed = made(false);
    let logs: Vec<&String> = killed.paths.iter().filter(|path| path.contains("/wal/")).collect();
    let fates = judge_all(&killed, 400, |number| {
        let mut random = Random::new(number);
        let path = *random.pick(&logs);
        let mut content = killed.content(path);
        let len = random.index(content.len());
        content.truncate(len);
        Some((format!("seed {number}: {path} cut to {len}"), killed.with(path, &content)))
    });
    println!("cuts of the log of a killed store: {fates:?}");
    assert_eq!(fates.keys().collect::<Vec<_>>(), [&Fate::RefusedToOpen]);
}

#[test]
fn removed_swapped_and_older_files() {
    let closed = closed();
    let mut cases: Vec<(String, MemoryVfs)> = Vec::new();
    for path in &closed.paths {
        let copy = closed.copy();
        copy.forget(Path::new(path));
        cases.push((format!("{path} removed"), copy));
        for other in &closed.paths {
            let (content, swapped) = (closed.content(path), closed.content(other));
            if path < other && content != swapped {
                let copy = closed.with(path, &swapped);
                copy.overwrite(Path::new(other), &content);
                cases.push((format!("{path} and {other} swapped"), copy));
            }
        }
        if let Ok(older) = closed.older.read(Path::new(path))
            && older != closed.content(path)
        {
            cases.push((format!("{path} from an older state"), closed.with(path, &older)));
        }
    }
    let fates = judge_all(&closed, cases.len() as u64, |number| {
        cases.get(usize::try_from(number).unwrap()).cloned()
    });
    println!("removed, swapped and older files: {fates:?}");
}
