//! Random sequences of everything a store can do, against a naive model.
//!
//! A failure prints its seed; `ANNALS_SEED=n` runs that one alone and tells every step.
//! `ANNALS_SEQUENCES=n` runs more or fewer than the default.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod support;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annals::clock::{Clock as _, ManualClock};
use annals::vfs::{CrashMode, MemoryVfs};
use annals::{Durability, HistoryCodec, KeyRange, Options, ReadMode, Store, View};
use bytes::Bytes;
use support::check::{self, Depth, Found, caught, good, same};
use support::drive::{Driver, Ended, durability};
use support::generate::{self, Taste};
use support::model::{Model, Request};
use support::random::Random;
use support::watchdog::Watchdog;
use support::{DIRECTORY, START_TIME, number_from_env, tiny};

#[test]
fn random_sequences_answer_as_the_model() {
    if let Ok(seed) = std::env::var("ANNALS_SEED") {
        let seed = seed.parse().expect("ANNALS_SEED is a number");
        run(seed, true).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        return;
    }
    let sequences = number_from_env("ANNALS_SEQUENCES", 10_000);
    let first = number_from_env("ANNALS_FIRST_SEED", 0);
    let next = AtomicU64::new(0);
    let failures = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                let watchdog = Watchdog::new(Duration::from_secs(60));
                while failures.lock().unwrap().len() < 5 {
                    let seed = first + next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + sequences {
                        break;
                    }
                    watchdog.begin(format!("seed {seed}"));
                    if let Err(found) = caught(|| run(seed, false)) {
                        eprintln!("seed {seed}: {found}");
                        failures.lock().unwrap().push(seed);
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort_unstable();
    assert!(failures.is_empty(), "failing seeds (replay with ANNALS_SEED=n): {failures:?}");
    println!("{sequences} sequences");
}

#[test]
fn the_same_seed_does_the_same_things_to_the_disk() {
    for seed in 0..40 {
        let first = run(seed, false).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        let second = run(seed, false).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        assert_eq!(first, second, "seed {seed} is not deterministic");
    }
}

/// Runs one sequence; returns a hash of everything that was done to the disks.
fn run(seed: u64, verbose: bool) -> Result<u64, String> {
    let mut run = Run::new(seed, verbose)?;
    let steps = if run.random.one_in(15) { 500 } else { run.random.between(20, 90) };
    for step in 0..steps {
        run.step().map_err(|found| format!("step {step} of {steps}: {found}"))?;
    }
    run.finish().map_err(|found| format!("after the last step: {found}"))
}

/// Options of a shape of its own.
fn shaped(options: Options, random: &mut Random) -> Options {
    options
        .memtable_bytes(*random.pick(&[16 << 10, 16 << 10, 64 << 10]))
        .wal_bytes(*random.pick(&[64 << 10, 80 << 10, 100_000]))
        .segment_bytes(*random.pick(&[4 << 10, 16 << 10, 1 << 20]))
        .block_bytes(*random.pick(&[512, 4096]))
        .history_block_bytes(*random.pick(&[512, 4096]))
        .l0_files_max(random.between(1, 5))
        .history_windows_max(random.between(2, 6))
        .cache_bytes(*random.pick(&[0, 4 << 10, 1 << 20]))
        .history_codec(*random.pick(&[
            HistoryCodec::Fast,
            HistoryCodec::Raw,
            HistoryCodec::Small,
            HistoryCodec::ZstdBlocks,
        ]))
        .read_mode(*random.pick(&[ReadMode::Mmap, ReadMode::Pread]))
}

/// A walk that has begun.
struct Held {
    what: String,
    walk: Box<dyn Iterator<Item = annals::Result<String>> + Send>,
    expected: VecDeque<String>,
}

impl Held {
    /// Takes some more items.
    fn go_on(&mut self, items: usize) -> Found {
        for _ in 0..items {
            let found = good(|| self.what.clone(), self.walk.next().transpose())?;
            let expected = self.expected.pop_front();
            same(|| self.what.clone(), &found, &expected)?;
            if found.is_none() {
                break;
            }
        }
        Ok(())
    }
}

/// One sequence in progress.
struct Run {
    random: Random,
    taste: Taste,
    disk: MemoryVfs,
    options: Options,
    driver: Driver,
    store: Option<Store>,
    /// Views that are held, with the state they must go on showing.
    pinned: Vec<(View, Model)>,
    /// Walks that have begun, with what they must still give.
    held: Vec<Held>,
    /// A reader beside the writer, and what it shows.
    reader: Option<(Store, Model)>,
    trace: u64,
    verbose: bool,
}

impl Run {
    fn new(seed: u64, verbose: bool) -> Result<Self, String> {
        let mut random = Random::new(seed);
        let taste = Taste::random(&mut random);
        let disk = MemoryVfs::new();
        let clock = Arc::new(ManualClock::new(START_TIME));
        let sync = !random.one_in(4);
        let mut driver = Driver::new(Arc::clone(&clock));
        driver.sync = sync;
        let options = tiny(Arc::new(disk.clone()), clock).durability(durability(sync));
        let options = shaped(options, &mut random);
        let mut run = Self {
            random,
            taste,
            disk,
            options,
            driver,
            store: None,
            pinned: Vec::new(),
            held: Vec::new(),
            reader: None,
            trace: 0,
            verbose,
        };
        run.tell("options", &run.options);
        run.open()?;
        Ok(run)
    }

    fn tell(&self, what: &str, thing: &dyn Debug) {
        if self.verbose {
            println!("{what}: {thing:?}");
        }
    }

    fn open(&mut self) -> Found {
        let store = good(|| "open".into(), self.options.open(Path::new(DIRECTORY)))?;
        self.store = Some(store);
        Ok(())
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("open between steps")
    }

    fn model(&self) -> Model {
        self.driver.model().model.clone()
    }

    fn step(&mut self) -> Found {
        match self.random.below(100) {
            0..60 => self.request(),
            60..67 => self.range(),
            67..71 => self.history(),
            71..74 => self.diff(),
            74..77 => self.part(),
            77..83 => self.background(),
            83..86 => self.burst(),
            86 if self.random.one_in(2) => self.reorganise(),
            86 => self.reader(),
            87..89 => self.reopen(),
            89..91 => self.crash(),
            91..93 => self.pin(),
            93..95 => self.look_at_pins(),
            95 => self.hold(),
            96 => self.jump(),
            97 => self.at_time(),
            98 => self.flush(),
            _ => {
                let depth = Depth::Sampled(self.random.next());
                check::store(self.store(), &self.driver.model().model, depth)
            }
        }
    }

    fn request(&mut self) -> Found {
        let truth = self.driver.model();
        let request = generate::request(&mut self.random, &self.taste, &truth.model);
        drop(truth);
        self.tell("request", &request);
        match self.driver.request(self.store(), &request)? {
            Ended::AsExpected => Ok(()),
            Ended::Failed(error) => Err(format!("{request:?}: unexpected error: {error}")),
        }
    }

    fn range(&mut self) -> Found {
        let truth = self.driver.model();
        let model = &truth.model;
        let request = generate::range(&mut self.random, &self.taste, model);
        self.tell("range", &request);
        let what = || format!("{request:?}");
        match (self.store().range(request.clone()), model.range(&request)) {
            (Ok(found), Ok(expected)) => same(what, &found, &expected),
            (Err(found), Err(expected)) => {
                let (found, expected) = (found.kind().clone(), expected);
                let same = std::mem::discriminant(&found) == std::mem::discriminant(&expected);
                same.then_some(()).ok_or(format!("{request:?}: {found:?} but {expected:?}"))
            }
            (found, expected) => Err(format!("{request:?}: {found:?} but {expected:?}")),
        }
    }

    fn history(&mut self) -> Found {
        let key = self.key();
        self.tell("history", &key);
        check::history(self.store(), &self.driver.model().model, &key)
    }

    fn key(&mut self) -> Bytes {
        loop {
            let key = generate::a_key(&mut self.random, &self.taste);
            if !key.is_empty() {
                return key;
            }
        }
    }

    fn diff(&mut self) -> Found {
        let truth = self.driver.model();
        let model = &truth.model;
        let mut from = generate::a_revision(&mut self.random, model);
        let mut to = generate::a_revision(&mut self.random, model);
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        let (key, end) = generate::a_range(&mut self.random, &self.taste);
        let range = KeyRange::from_etcd(&key, &end);
        self.tell("diff", &(from, to, &range));
        let what = || format!("diff from {from} to {to} of {range:?}");
        let found = self.store().diff(from, to, &range);
        if from == 0 || model.readable(from).is_err() || model.readable(to).is_err() {
            return match found {
                Err(_) => Ok(()),
                Ok(_) => Err(format!("{}: no error", what())),
            };
        }
        let found = found.and_then(Iterator::collect::<annals::Result<Vec<_>>>);
        let expected = model.diff(from, to, |key| range.contains(key));
        same(what, &good(what, found)?, &expected)
    }

    fn part(&mut self) -> Found {
        let truth = self.driver.model();
        let model = &truth.model;
        let revision = generate::a_revision(&mut self.random, model);
        let (key, end) = generate::a_range(&mut self.random, &self.taste);
        if revision == 0 || model.readable(revision).is_err() {
            return Ok(());
        }
        self.tell("part", &(revision, &key, &end));
        let view = good(|| format!("view at {revision}"), self.store().at(revision))?;
        check::part(&view, model, &key, &end, self.random.next())
    }

    fn background(&mut self) -> Found {
        for unit in 0..self.random.between(1, 12) {
            let worked = good(|| "background".into(), self.store().run_background())?;
            self.tell("background", &(unit, worked));
            if !worked {
                break;
            }
        }
        Ok(())
    }

    /// Many transactions in flight at once.
    fn burst(&mut self) -> Found {
        let mut flights = Vec::new();
        for _ in 0..self.random.between(1, 20) {
            let truth = self.driver.model();
            let request = loop {
                let request = generate::request(&mut self.random, &self.taste, &truth.model);
                if matches!(request, Request::Txn { .. }) {
                    break request;
                }
            };
            drop(truth);
            self.tell("submit", &request);
            let level = match self.random.below(6) {
                0 => Some(Durability::Buffered),
                1 => Some(Durability::Sync),
                _ => None,
            };
            flights.extend(self.driver.submit_with(self.store(), &request, level)?);
        }
        for flight in flights {
            if let Ended::Failed(error) = self.driver.wait(flight)? {
                return Err(format!("unexpected error: {error}"));
            }
        }
        // A store that shows what is durable shows what was only buffered now.
        self.flush()
    }

    fn reopen(&mut self) -> Found {
        self.let_go();
        let store = self.store.take().expect("open between steps");
        let clean = !self.random.one_in(3);
        self.tell("reopen", &clean);
        if clean {
            good(|| "close".into(), store.close())?;
            self.driver.acknowledge_all();
        } else {
            drop(store);
        }
        self.recover()
    }

    fn crash(&mut self) -> Found {
        let mode = *self.random.pick(&[CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random]);
        let seed = self.random.next();
        self.tell("crash", &(mode, seed));
        let image = self.disk.crash(seed, mode);
        self.let_go();
        self.store = None;
        self.trace ^= self.disk.trace_hash().rotate_left(1);
        self.disk = image;
        self.options = self.options.clone().vfs(Arc::new(self.disk.clone()));
        self.recover()
    }

    /// Opens the store again, sometimes with other options, and cuts the model to what is there.
    fn recover(&mut self) -> Found {
        if self.random.one_in(3) {
            self.options = shaped(self.options.clone(), &mut self.random);
        }
        self.open()?;
        let truth = self.driver.model().clone();
        let depth = Depth::Sampled(self.random.next());
        let changes = check::recovered(self.store(), &truth.model, truth.acknowledged, depth)?;
        self.tell("recovered", &(changes, truth.acknowledged, truth.model.len()));
        let mut truth = self.driver.model();
        truth.model.cut(changes);
        truth.acknowledged = changes;
        Ok(())
    }

    fn pin(&mut self) -> Found {
        let model = self.model();
        let revision = generate::a_revision(&mut self.random, &model);
        if revision == 0 || model.readable(revision).is_err() || self.pinned.len() > 3 {
            return Ok(());
        }
        self.tell("pin", &revision);
        let view = good(|| format!("view at {revision}"), self.store().at(revision))?;
        self.pinned.push((view, model));
        Ok(())
    }

    fn look_at_pins(&mut self) -> Found {
        for held in &mut self.held {
            held.go_on(self.random.index(5))?;
        }
        for (view, model) in &self.pinned {
            self.tell("look at pin", &view.revision());
            check::state(view, &model.state_at(view.revision()))?;
        }
        if self.random.one_in(2) {
            self.pinned.clear();
            for held in &mut self.held {
                held.go_on(usize::MAX)?;
            }
            self.held.clear();
        }
        Ok(())
    }

    fn let_go(&mut self) {
        self.pinned.clear();
        self.held.clear();
        self.reader = None;
    }

    /// Another process reads the store, or looks whether there is something new.
    fn reader(&mut self) -> Found {
        let seed = self.random.next();
        let newer = match &self.reader {
            None => {
                let options = shaped(self.options.clone(), &mut self.random);
                let opened = Store::open_read_only_with(Path::new(DIRECTORY), &options);
                Some(good(|| "open read-only".into(), opened)?)
            }
            Some((reader, model)) => {
                check::store(reader, model, Depth::Sampled(seed))
                    .map_err(|found| format!("stale reader: {found}"))?;
                good(|| "refresh".into(), reader.refreshed())?
            }
        };
        if let Some(reader) = newer {
            let truth = self.driver.model().clone();
            let (mut model, acknowledged) = (truth.model, truth.acknowledged);
            let depth = Depth::Sampled(seed);
            let changes = check::recovered(&reader, &model, acknowledged, depth)
                .map_err(|found| format!("reader: {found}"))?;
            self.tell("reader", &(changes, acknowledged));
            model.cut(changes);
            self.reader = Some((reader, model));
        } else if let Some((_, model)) = &self.reader {
            // Nothing new can only be said where nothing new was acknowledged.
            let acknowledged = self.driver.model().acknowledged;
            same(
                || "a reader misses what is durable".into(),
                &(model.len() < acknowledged),
                &false,
            )?;
        }
        Ok(())
    }

    /// All background work that can be done at all.
    fn reorganise(&mut self) -> Found {
        self.tell("reorganise", &());
        good(|| "reorganise".into(), self.store().reorganise())
    }

    /// Begins a walk over a state or over differences, to go on with later.
    fn hold(&mut self) -> Found {
        let truth = self.driver.model();
        let model = &truth.model;
        let mut from = generate::a_revision(&mut self.random, model);
        let mut to = generate::a_revision(&mut self.random, model);
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        if from == 0 || model.readable(from).is_err() || model.readable(to).is_err() {
            return Ok(());
        }
        self.tell("hold", &(from, to));
        let differences = self.random.one_in(2);
        let store = self.store();
        let mut held = if differences {
            let walk = good(|| "diff".into(), store.diff(from, to, ..))?;
            let expected = model.diff(from, to, |_| true).into_iter();
            Held {
                what: format!("diff from {from} to {to}, held"),
                walk: Box::new(walk.map(|item| item.map(|diff| format!("{diff:?}")))),
                expected: expected.map(|diff| format!("{diff:?}")).collect(),
            }
        } else {
            let walk = good(|| "view".into(), store.at(from))?.range(..);
            let expected = model.state_at(from).into_values();
            Held {
                what: format!("scan at {from}, held"),
                walk: Box::new(walk.map(|item| item.map(|kv| format!("{kv:?}")))),
                expected: expected.map(|kv| format!("{kv:?}")).collect(),
            }
        };
        held.go_on(2)?;
        drop(truth);
        self.held.push(held);
        Ok(())
    }

    /// The wall clock jumps.
    #[expect(clippy::unnecessary_wraps, reason = "one step among others, which can fail")]
    fn jump(&mut self) -> Found {
        let now = self.driver.clock.now_micros();
        let jump = self.random.below(20_000_000).cast_signed() - 10_000_000;
        self.tell("jump", &jump);
        self.driver.clock.set_now(now + jump);
        Ok(())
    }

    fn at_time(&mut self) -> Found {
        let truth = self.driver.model();
        let model = &truth.model;
        let Some(transaction) = model.transactions(0).pop() else { return Ok(()) };
        let time = transaction.time - self.random.below(60_000).cast_signed();
        self.tell("at_time", &time);
        let found = self.store().at_time(time).map(|view| view.revision());
        match model.revision_at_time(time) {
            Some(revision) if revision >= model.compacted() => {
                let what = || format!("view at time {time}");
                same(what, &good(what, found)?, &revision)
            }
            // Either an error or the empty store, depending on what is known about times.
            _ => match found {
                Err(_) | Ok(1) => Ok(()),
                Ok(revision) => Err(format!("time {time} is before any revision: {revision}")),
            },
        }
    }

    fn flush(&mut self) -> Found {
        self.tell("flush", &());
        good(|| "flush".into(), self.store().flush())?;
        self.driver.acknowledge_all();
        Ok(())
    }

    fn finish(mut self) -> Result<u64, String> {
        self.look_at_pins()?;
        self.let_go();
        check::store(self.store(), &self.driver.model().model, Depth::Everything)?;
        let store = self.store.take().expect("open between steps");
        good(|| "close".into(), store.close())?;
        self.driver.acknowledge_all();
        self.recover()?;
        let store = self.store.take().expect("just opened");
        let mut units = 0;
        while good(|| "background".into(), store.run_background())? {
            units += 1;
            same(|| "background work without end".into(), &(units > 10_000), &false)?;
        }
        check::store(&store, &self.driver.model().model, Depth::Everything)?;
        drop(store);
        Ok(self.trace ^ self.disk.trace_hash())
    }
}
