//! Every operation on the disk fails once, in several ways, in several scripts.
//!
//! What a failing store owes: no call that reports an error without effect has had one; once a
//! write or a sync has failed, writes are refused until the store is reopened, while reads go on;
//! and after reopening everything acknowledged is there, and whole transactions only.
//!
//! `ANNALS_STRIDE=n` takes only every n-th operation.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals::clock::ManualClock;
use annals::vfs::{CrashMode, Fault, FaultVfs, MemoryVfs};
use annals::{DeleteRangeRequest, ErrorKind, Options, PutRequest, Store, TxnRequest};
use bytes::Bytes;
use support::check::{self, Depth, Found, caught, good, same, short};
use support::drive::{Driver, Ended, Flight, is_machine};
use support::model::Request;
use support::watchdog::Watchdog;
use support::{DIRECTORY, START_TIME, number_from_env, open_tiny, tiny};

/// A step of a script. Steps that need an open store are skipped when there is none.
#[derive(Clone, Debug)]
enum Step {
    Open,
    Do(Request),
    /// Transactions that are submitted together.
    Burst(Vec<Request>),
    Background,
    /// Reads everything there is.
    Look,
    Close,
    Drop,
}

#[derive(Debug)]
struct Run {
    disk: MemoryVfs,
    faulty: FaultVfs,
    options: Options,
    driver: Driver,
    store: Option<Store>,
    /// Whether the open store has told that it takes no more writes.
    poisoned: bool,
    /// Whether every step must succeed all the same.
    strict: bool,
}

impl Run {
    fn new() -> Self {
        let disk = MemoryVfs::new();
        let faulty = FaultVfs::new(Arc::new(disk.clone()));
        let clock = Arc::new(ManualClock::new(START_TIME));
        let options = tiny(Arc::new(faulty.clone()), Arc::clone(&clock)).cache_bytes(0);
        let driver = Driver::new(clock);
        Self { disk, faulty, options, driver, store: None, poisoned: false, strict: false }
    }

    fn script(&mut self, script: &[Step]) -> Found {
        for (at, step) in script.iter().enumerate() {
            self.step(step).map_err(|found| {
                format!("step {at} ({}), poisoned: {}: {found}", short(step), self.poisoned)
            })?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Found {
        match (step, self.store.take()) {
            (Step::Open, None) => self.open(),
            (Step::Open, store) => {
                self.store = store;
                Ok(())
            }
            (_, None) | (Step::Drop, Some(_)) => Ok(()),
            (Step::Close, Some(store)) => match store.close() {
                Ok(()) => {
                    self.driver.acknowledge_all();
                    Ok(())
                }
                Err(error) => self.tolerate(&error),
            },
            (step, Some(store)) => {
                let done = self.step_on(&store, step);
                self.store = Some(store);
                done
            }
        }
    }

    fn step_on(&mut self, store: &Store, step: &Step) -> Found {
        match step {
            Step::Do(request) => {
                let before = self.driver.model().model.len();
                let ended = self.driver.request(store, request)?;
                self.ended(store, ended, before)
            }
            Step::Burst(requests) => self.burst(store, requests),
            Step::Background => loop {
                match store.run_background() {
                    Ok(true) => {}
                    Ok(false) => return Ok(()),
                    Err(error) => return self.tolerate(&error),
                }
            },
            Step::Look => self.look(store),
            Step::Open | Step::Close | Step::Drop => Ok(()),
        }
    }

    fn open(&mut self) -> Found {
        self.poisoned = false;
        match self.options.open(Path::new(DIRECTORY)) {
            Ok(store) => {
                let truth = self.driver.model().clone();
                // What it recovered may still be hard to read, so only the numbers are compared.
                let shown = (store.revision(), store.compacted_revision());
                let fits = |changes: &usize| {
                    let entry = truth.model.entry_after(*changes);
                    (entry.revision, entry.compacted) == shown
                };
                let changes = (truth.acknowledged..=truth.model.len()).rev().find(fits);
                let changes =
                    changes.ok_or(format!("recovered (revision, compacted) {shown:?}"))?;
                let mut truth = self.driver.model();
                truth.model.cut(changes);
                truth.acknowledged = changes;
                drop(truth);
                self.store = Some(store);
                Ok(())
            }
            Err(error) => self.tolerate(&error),
        }
    }

    /// An error is fine if the machine is to blame.
    fn tolerate(&self, error: &annals::Error) -> Found {
        if is_machine(error) && !self.strict {
            return Ok(());
        }
        Err(format!("unexpected error: {error} ({error:?})"))
    }

    /// Looks at how a write ended.
    fn ended(&mut self, store: &Store, ended: Ended, before: usize) -> Found {
        let changed = self.driver.model().model.len() > before;
        match ended {
            Ended::AsExpected if self.poisoned && changed => {
                Err("a poisoned store has taken a write".into())
            }
            Ended::AsExpected => Ok(()),
            Ended::Failed(error) => {
                self.tolerate(&error)?;
                if matches!(
                    error.kind(),
                    ErrorKind::OutcomeUnknown { .. } | ErrorKind::Poisoned { .. }
                ) {
                    self.poisoned = true;
                    self.durable_only(store)?;
                }
                Ok(())
            }
        }
    }

    /// A poisoned store shows what is durable and nothing else.
    fn durable_only(&self, store: &Store) -> Found {
        let truth = self.driver.model();
        let acknowledged = truth.model.entry_after(truth.acknowledged).revision;
        let shown = store.revision();
        // A write whose outcome is unknown may have been durable, but must not be shown.
        same(|| "the revision that a poisoned store shows".into(), &shown, &acknowledged)
    }

    fn burst(&mut self, store: &Store, requests: &[Request]) -> Found {
        let mut flights: Vec<(usize, Flight)> = Vec::new();
        for request in requests {
            let before = self.driver.model().model.len();
            if let Some(flight) = self.driver.submit(store, request)? {
                flights.push((before, flight));
            }
        }
        for (before, flight) in flights {
            let ended = self.driver.wait(flight)?;
            self.ended(store, ended, before)?;
        }
        Ok(())
    }

    /// Reads everything; errors are fine, wrong answers are not.
    fn look(&self, store: &Store) -> Found {
        let truth = self.driver.model().clone();
        let mut model = truth.model;
        if self.poisoned {
            model.cut(truth.acknowledged);
        }
        let (oldest, newest) = (model.compacted().max(1), model.revision());
        for revision in [oldest, oldest.midpoint(newest), newest] {
            let view = match store.at(revision) {
                Ok(view) => view,
                Err(error) => {
                    self.tolerate(&error)?;
                    continue;
                }
            };
            let expected: Vec<_> = model.state_at(revision).into_values().collect();
            match view.range(..).collect::<annals::Result<Vec<_>>>() {
                Ok(found) => same(|| format!("scan at {revision}"), &found, &expected)?,
                Err(error) => self.tolerate(&error)?,
            }
            for kv in expected {
                match view.get(&kv.key) {
                    Ok(found) => same(|| format!("get at {revision}"), &found, &Some(kv))?,
                    Err(error) => self.tolerate(&error)?,
                }
            }
        }
        for key in model.keys() {
            match store.history(key).collect::<annals::Result<Vec<_>>>() {
                Ok(found) => same(|| format!("history of {key:?}"), &found, &model.history(key))?,
                Err(error) => self.tolerate(&error)?,
            }
        }
        match store.log(..).with_values().collect::<annals::Result<Vec<_>>>() {
            Ok(found) => same(|| "log".into(), &found, &model.transactions(0)),
            Err(error) => self.tolerate(&error),
        }
    }

    /// Everything works again: first the open store is read, then it is opened anew, as it is and
    /// after a crash.
    fn recover(mut self) -> Found {
        self.faulty.heal();
        self.strict = true;
        if let Some(store) = self.store.take() {
            self.look(&store).map_err(|found| format!("reads after the fault: {found}"))?;
            if self.poisoned {
                let refused = store.put("a", "b");
                if !matches!(
                    refused.as_ref().map_err(annals::Error::kind),
                    Err(ErrorKind::Poisoned { .. })
                ) {
                    return Err(format!("a poisoned store answers a write with {refused:?}"));
                }
            }
        }
        let truth = self.driver.model().clone();
        let images = [
            ("lost", self.disk.crash(0, CrashMode::LoseAll)),
            ("random", self.disk.crash(truth.model.len() as u64, CrashMode::Random)),
            ("as it is", self.disk.clone()),
        ];
        for (name, image) in images {
            let what = || format!("open afterwards, {name}, {:?}", image.paths());
            let store = good(what, open_tiny(Arc::new(image.clone())))?;
            let (model, acknowledged) = (&truth.model, truth.acknowledged);
            check::recovered(&store, model, acknowledged, Depth::Sampled(7))
                .map_err(|found| format!("{}: {found}", what()))?;
            let next = store.revision() + 1;
            let put = good(what, store.put("after", "the fault"))?;
            same(what, &put.revision, &next)?;
            // What it has recovered and shown survives the next power cut.
            let cut = good(what, open_tiny(Arc::new(image.crash(0, CrashMode::LoseAll))))?;
            same(|| format!("{}, then cut", what()), &cut.revision(), &next)?;
            while good(what, store.run_background())? {}
            good(what, store.close())?;
        }
        Ok(())
    }
}

fn put(key: &str, value: &str) -> Step {
    Step::Do(Request::Put(PutRequest::new(key, value)))
}

fn txn(keys: &[String], value: &str) -> Request {
    let success = keys.iter().map(|key| PutRequest::new(key, value).into()).collect();
    let request = TxnRequest { success, ..TxnRequest::default() };
    Request::Txn { request, time: None, metadata: Bytes::new() }
}

fn commits() -> Vec<Step> {
    let mut steps = vec![Step::Open];
    for n in 0..6 {
        steps.push(put(&format!("key/{}", n % 4), &"value ".repeat(n * 30)));
        let burst = |m| txn(&[format!("burst/{n}"), format!("burst/{m}")], &"b".repeat(500));
        steps.push(Step::Burst((0..4).filter(|m| *m != n).map(burst).collect()));
        steps.push(Step::Look);
    }
    steps.push(Step::Do(Request::DeleteRange(DeleteRangeRequest::prefix("key/"))));
    steps.push(Step::Drop);
    steps.push(Step::Open);
    steps.push(Step::Look);
    steps.push(put("last", "one"));
    steps.push(Step::Close);
    steps
}

fn reclaim() -> Vec<Step> {
    let mut steps = vec![Step::Open];
    for round in 0..6 {
        for n in 0..8 {
            let value = format!("round {round} ").repeat(70 + n);
            steps.push(put(&format!("key/{}", (n * 7 + round) % 20), &value));
        }
        if round == 3 {
            steps.push(Step::Do(Request::DeleteRange(
                DeleteRangeRequest::new("key/3").range_end("key/5"),
            )));
            steps.push(Step::Do(Request::Compact(20)));
        }
        steps.push(Step::Background);
        steps.push(Step::Look);
    }
    steps.extend([Step::Close, Step::Open, Step::Background, Step::Look, Step::Close]);
    steps
}

fn reopen() -> Vec<Step> {
    let mut steps = Vec::new();
    for round in 0..5 {
        steps.push(Step::Open);
        steps.push(put("key", &format!("{round}").repeat(3_000)));
        steps.push(Step::Do(txn(&[format!("a/{round}"), "b".into()], "value")));
        steps.push(if round % 2 == 0 { Step::Close } else { Step::Drop });
    }
    steps.extend([Step::Open, Step::Background, Step::Look, Step::Close]);
    steps
}

const WAYS: &[(Fault, bool)] = &[
    (Fault::Io, false),
    (Fault::Io, true),
    (Fault::NoSpace, false),
    (Fault::NoSpace, true),
    (Fault::Torn, false),
    (Fault::Short, false),
    (Fault::Interrupted, false),
];

/// Fails every operation of a script in every way.
fn sweep(name: &str, script: &[Step]) {
    let mut dry = Run::new();
    dry.strict = true;
    dry.script(script).unwrap_or_else(|found| panic!("{name}: without a fault: {found}"));
    let operations = dry.faulty.op_count();
    let stride = number_from_env("ANNALS_STRIDE", 1);
    let cases: Vec<(u64, Fault, bool)> = (0..operations)
        .step_by(usize::try_from(stride).unwrap())
        .flat_map(|n| WAYS.iter().map(move |(fault, sticky)| (n, *fault, *sticky)))
        .collect();
    let next = AtomicU64::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let watchdog = Watchdog::new(Duration::from_secs(60));
                while failures.lock().unwrap().len() < 4 {
                    let at = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap();
                    let Some((n, fault, sticky)) = cases.get(at).copied() else { break };
                    let case = format!("{name}: operation {n} {fault:?} sticky={sticky}");
                    watchdog.begin(case.as_str());
                    if let Err(found) = caught(|| one(script, n, fault, sticky)) {
                        failures.lock().unwrap().push(format!("{case}: {found}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    println!("{name}: {operations} operations, {} faults", cases.len());
}

fn one(script: &[Step], n: u64, fault: Fault, sticky: bool) -> Found {
    let mut run = Run::new();
    run.faulty.fail(None, n, fault, sticky);
    run.strict = fault == Fault::Short;
    run.script(script)?;
    run.recover()
}

#[test]
fn every_operation_of_commits_fails() {
    sweep("commits", &commits());
}

#[test]
fn every_operation_of_reclaim_fails() {
    sweep("reclaim", &reclaim());
}

#[test]
fn every_operation_of_opening_and_closing_fails() {
    sweep("reopen", &reopen());
}

/// A disk of every size that is too small: no panic, no loss, and reads go on.
#[test]
fn the_disk_is_full_at_every_size() {
    for (name, script) in [("commits", commits()), ("reclaim", reclaim())] {
        let mut dry = Run::new();
        dry.script(&script).unwrap_or_else(|found| panic!("{name}: {found}"));
        let used = dry.disk.used_bytes() + (64 << 10);
        let mut sizes = 0;
        for capacity in (0..used).step_by(512) {
            sizes += 1;
            let mut run = Run::new();
            run.disk.set_capacity(Some(capacity));
            let found = caught(|| {
                run.script(&script)?;
                run.store = None;
                run.script(&[Step::Open, Step::Look])?;
                run.disk.set_capacity(None);
                run.recover()
            });
            found.unwrap_or_else(|found| panic!("{name}: a disk of {capacity} bytes: {found}"));
        }
        println!("{name}: {sizes} sizes");
    }
}
