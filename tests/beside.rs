//! Readers beside a writer that folds, rolls its log, closes and opens: whatever the writer does
//! between two operations of a reader, the reader finds a sound store.
//!
//! Both work on one simulated disk, and take turns at chosen operations: the writer begins, stops
//! before its operation `first`; the reader begins, stops before its operation `second`; the writer
//! does `steps` more; the reader ends; the writer ends.
//!
//! `ANNALS_CASES=n` sets how many cases are tried.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod support;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use annals::inspect::{StoreFiles, WalPart};
use annals::vfs::{CrashMode, FaultVfs, MemoryVfs};
use annals::{Error, ErrorKind, Options, Store, check};
use annals_format::FileKind;
use support::random::Random;
use support::watchdog::Watchdog;
use support::{DIRECTORY, START_TIME, number_from_env};

/// How a reader looks at the store; answers the newest revision it found.
type Look = fn(&Options) -> annals::Result<u64>;

#[test]
fn a_store_opened_for_reading_is_whole() {
    take_turns(|options| {
        let store = Store::open_read_only_with(DIRECTORY, options)?;
        let view = store.latest()?;
        let newest = view.range(..).map(|kv| kv.map(|kv| kv.mod_revision)).max_by_key(revision_of);
        assert_eq!(newest.transpose()?.unwrap_or(1), store.revision());
        let mut next = store.compacted_revision().max(2);
        for transaction in store.log(..) {
            assert_eq!(transaction?.revision, next);
            next += 1;
        }
        assert_eq!(next, store.revision() + 1);
        Ok(store.revision())
    });
}

#[test]
fn a_check_finds_no_damage() {
    take_turns(|options| {
        let report = check(DIRECTORY, options, &mut |_, _| ())?;
        let damage = report.damage.first().cloned().map(Error::from);
        let error = damage.into_iter().chain(report.unchecked).next();
        error.map_or(Ok(report.revision), Err)
    });
}

#[test]
fn every_file_can_be_looked_into() {
    take_turns(|options| {
        let files = StoreFiles::open(DIRECTORY, options)?;
        let mut newest = files.manifest().flushed_revision;
        for meta in &files.manifest().files {
            let segment = files.segment(meta)?;
            segment.footer()?;
            let mut entries = 0;
            segment.entries(&mut |_| {
                entries += 1;
                Ok(true)
            })?;
            assert_eq!(entries, meta.entries);
        }
        for name in files.names().filter(|name| name.kind == FileKind::Wal) {
            assert!(files.file_bytes(name).is_some());
            files.wal(name.number, &mut |_, _, part| {
                match part {
                    WalPart::Frame(frame, _) => newest = newest.max(frame.revision),
                    WalPart::Damage(damage) => return Err(damage.clone().into()),
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(newest)
    });
}

fn revision_of(item: &annals::Result<u64>) -> u64 {
    *item.as_ref().unwrap_or(&u64::MAX)
}

/// What the writer does; answers its revision at the end.
fn write(options: &Options) -> annals::Result<u64> {
    let mut revision = 0;
    for round in 0..2 {
        let store = Store::open_with(DIRECTORY, options)?;
        for number in 0..24 {
            store.put(format!("key/{}", number % 7), vec![b'x'; 40 * number])?;
            if number == 16 && round == 1 {
                store.compact(store.revision() - 5)?;
            }
            if number % 8 == 7 {
                store.reorganise()?;
            }
        }
        revision = store.revision();
        store.close()?;
    }
    Ok(revision)
}

/// Lets a writer and a reader take turns in all kinds of ways, in a store that is there and in one
/// that the writer makes.
fn take_turns(look: Look) {
    let empty = MemoryVfs::new();
    let filled = MemoryVfs::new();
    let last = write(&options(&Arc::new(FaultVfs::new(Arc::new(filled.clone()))))).unwrap();
    take_turns_in(&filled, last, look);
    take_turns_in(&empty, 0, look);
}

fn take_turns_in(base: &MemoryVfs, last: u64, look: Look) {
    let disk = base.crash(0, CrashMode::KeepAll);
    let operations = |run: &dyn Fn(&Options) -> annals::Result<u64>| {
        let vfs = Arc::new(FaultVfs::new(Arc::new(disk.clone())));
        run(&options(&vfs)).unwrap();
        vfs.op_count()
    };
    let of_writer = operations(&write);
    let of_reader = operations(&look);
    let watchdog = Watchdog::new(Duration::from_secs(60));
    let cases = number_from_env("ANNALS_CASES", 300);
    for seed in 0..cases {
        let mut random = Random::new(seed);
        // While a store is being made there is more to look at.
        let beginning = last == 0 && random.one_in(2);
        let first = random.below(if beginning { 60 } else { of_writer });
        let second = random.below(if beginning { 8 } else { of_reader });
        let steps = *random.pick(&[1, 2, 3, 5, 10, 30, 1000]);
        let case = format!("first {first}, second {second}, steps {steps} (seed {seed})");
        watchdog.begin(&case);
        let turns = Arc::new(Turns::default());
        let disk = base.crash(0, CrashMode::KeepAll);
        let pausing = |at: Vec<u64>, who: Who| {
            let vfs = Arc::new(FaultVfs::new(Arc::new(disk.clone())));
            let turns = Arc::clone(&turns);
            vfs.observe(move |number, _| {
                if at.contains(&number) {
                    turns.pass(who);
                }
            });
            vfs
        };
        let writer = pausing(vec![first, first + steps], Who::Writer);
        let reader = pausing(vec![second], Who::Reader);
        let (written, found) = std::thread::scope(|scope| {
            let written = scope.spawn(|| {
                let written = write(&options(&writer));
                turns.end(Who::Writer);
                written
            });
            turns.wait(Who::Reader);
            let found = look(&options(&reader));
            turns.end(Who::Reader);
            (written.join().unwrap(), found)
        });
        let newest = written.unwrap();
        let found = match found {
            Err(error) if last == 0 && matches!(error.kind(), ErrorKind::NoStore { .. }) => 0,
            found => found.unwrap_or_else(|error| panic!("{case}: {error}")),
        };
        assert!((last..=newest).contains(&found), "{case}: {last} <= {found} <= {newest}");
    }
    println!("{cases} cases; {of_writer} operations of the writer, {of_reader} of the reader");
}

fn options(vfs: &Arc<FaultVfs>) -> Options {
    let clock = Arc::new(annals::clock::ManualClock::new(START_TIME));
    support::tiny(Arc::<FaultVfs>::clone(vfs), clock)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Who {
    #[default]
    Writer,
    Reader,
}

/// Whose turn it is.
#[derive(Debug, Default)]
struct Turns {
    state: Mutex<(Who, bool)>,
    passed: Condvar,
}

impl Turns {
    /// Lets the other one go on, and waits for the own turn to come again. Does nothing once the
    /// other one has ended.
    fn pass(&self, from: Who) {
        let mut state = self.state.lock().unwrap();
        if !state.1 {
            state.0 = other(from);
            self.passed.notify_all();
            drop(state);
            self.wait(from);
        }
    }

    fn wait(&self, who: Who) {
        let mut state = self.state.lock().unwrap();
        while state.0 != who && !state.1 {
            state = self.passed.wait(state).unwrap();
        }
    }

    /// From here on the other one is alone.
    fn end(&self, who: Who) {
        *self.state.lock().unwrap() = (other(who), true);
        self.passed.notify_all();
    }
}

const fn other(who: Who) -> Who {
    match who {
        Who::Writer => Who::Reader,
        Who::Reader => Who::Writer,
    }
}
