//! Runs the steps of a script on a store whose disk may fail, and holds all it answers against the model.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use annals::clock::ManualClock;
use annals::vfs::{CrashMode, FaultVfs, MemoryVfs, Vfs};
use annals::{ErrorKind, Options, RestoreOptions, Retention, Store, restore};

use super::{Step, Workload};
use crate::support::check::{self, Depth, Found, good, same, short};
use crate::support::drive::{Driver, Ended, Flight, durability, is_damage, is_machine};
use crate::support::model::{Answer, Model, Request};
use crate::support::{DIRECTORY, START_TIME, open_tiny, tiny};

/// What is called when a store that was opened shows less than the model had.
pub type Forgotten = Box<dyn FnMut(&Model) + Send>;

/// One script in progress.
pub struct Run {
    pub disk: MemoryVfs,
    /// Where faults are planned.
    pub faulty: FaultVfs,
    /// Before everything else: lets nothing pass once the process has died.
    stopper: FaultVfs,
    pub options: Options,
    pub driver: Driver,
    pub store: Option<Store>,
    /// Whether the open store has told that it takes no more writes.
    pub poisoned: bool,
    /// Whether every step must succeed all the same.
    pub strict: bool,
    /// Whether errors that tell of damage are fine, too, and a store that has lost what was acknowledged.
    pub damaged: bool,
    /// How many errors told of damage.
    pub noticed: Cell<u64>,
    /// Acknowledged changes that were not there at an opening, and whether that was reported.
    pub lost: Option<(usize, bool)>,
    pub forgotten: Option<Forgotten>,
}

impl Run {
    pub fn new(sync: bool) -> Self {
        let disk = MemoryVfs::new();
        let faulty = FaultVfs::new(Arc::new(disk.clone()));
        Self::on(disk, faulty.clone(), Arc::new(faulty), sync)
    }

    /// On a file system that stands before the faulty one.
    pub fn on(disk: MemoryVfs, faulty: FaultVfs, vfs: Arc<dyn Vfs>, sync: bool) -> Self {
        let clock = Arc::new(ManualClock::new(START_TIME));
        let stopper = FaultVfs::new(vfs);
        // Rules are applied by a step of their own, not by background work: the model would not know.
        let options = tiny(Arc::new(stopper.clone()), Arc::clone(&clock))
            .cache_bytes(0)
            .retention_interval_seconds(0)
            .durability(durability(sync));
        let mut driver = Driver::new(clock);
        driver.sync = sync;
        Self {
            disk,
            faulty,
            stopper,
            options,
            driver,
            store: None,
            poisoned: false,
            strict: false,
            damaged: false,
            noticed: Cell::new(0),
            lost: None,
            forgotten: None,
        }
    }

    /// Runs a script in which nothing fails.
    pub fn strictly(workload: &Workload) -> Result<Self, String> {
        let mut run = Self::new(workload.sync);
        run.strict = true;
        run.script(&workload.steps)?;
        Ok(run)
    }

    pub fn script(&mut self, script: &[Step]) -> Found {
        for (at, step) in script.iter().enumerate() {
            self.step(step).map_err(|found| {
                format!("step {at} ({}), poisoned: {}: {found}", short(step), self.poisoned)
            })?;
        }
        Ok(())
    }

    pub fn step(&mut self, step: &Step) -> Found {
        match (step, self.store.take()) {
            (Step::Open, None) => self.open(),
            (Step::Open, store) => {
                self.store = store;
                Ok(())
            }
            (Step::Kill | Step::Cut(..), store) => {
                self.stopper.stop_after(0);
                drop(store);
                self.stopper.heal();
                if let Step::Cut(seed, mode) = step {
                    self.disk.lose_power(*seed, *mode);
                }
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
            Step::Background(units) => {
                for _ in 0..*units {
                    match store.run_background() {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(error) => return self.tolerate(&error),
                    }
                }
                Ok(())
            }
            Step::Reorganise => self.tolerated(store.reorganise()),
            Step::Flush => match store.flush() {
                Ok(()) => {
                    self.driver.acknowledge_all();
                    Ok(())
                }
                Err(error) => self.tolerate(&error),
            },
            Step::Keep(revisions) => {
                let rule = Retention::forever().keep_revisions(*revisions);
                self.tolerated(store.set_retention("", Some(rule)))
            }
            Step::Apply => self.apply(store),
            Step::Checkpoint(name) => match store.checkpoint(name) {
                Ok(made) => self.copy(name, made.revision),
                Err(error) => self.tolerate(&error),
            },
            Step::Restore(name) => self.restore(store, name),
            Step::Look => self.look(store),
            Step::Open | Step::Close | Step::Drop | Step::Kill | Step::Cut(..) => Ok(()),
        }
    }

    fn open(&mut self) -> Found {
        self.poisoned = false;
        match self.options.open(Path::new(DIRECTORY)) {
            Ok(store) => {
                let truth = self.driver.model().clone();
                // What it recovered may still be hard to read, so only the numbers and leases are compared.
                if let Err(error) = store.lease_list() {
                    return self.tolerate(&error);
                }
                let range = truth.acknowledged..=truth.model.len();
                let found = check::which(&store, &truth.model, range);
                let changes = match found {
                    Err(_) if self.damaged => {
                        let changes = check::which(&store, &truth.model, 0..=truth.acknowledged)?;
                        let told = store.open_report().dropped.is_some();
                        self.lost = Some((truth.acknowledged - changes, told));
                        changes
                    }
                    found => found?,
                };
                if let Some(forgotten) = self.forgotten.as_mut()
                    && changes < truth.model.len()
                {
                    forgotten(&truth.model);
                }
                let mut truth = self.driver.model();
                truth.model.cut(changes);
                truth.acknowledged = changes;
                drop(truth);
                self.store = Some(store);
                Ok(())
            }
            Err(_) if self.damaged => {
                self.noticed.set(self.noticed.get() + 1);
                Ok(())
            }
            Err(error) => self.tolerate(&error),
        }
    }

    /// An error is fine if the machine is to blame.
    pub fn tolerate(&self, error: &annals::Error) -> Found {
        let damage = self.damaged && is_damage(error);
        self.noticed.set(self.noticed.get() + u64::from(damage));
        if (is_machine(error) || damage) && !self.strict {
            return Ok(());
        }
        Err(format!("unexpected error: {error} ({error:?})"))
    }

    fn tolerated<T>(&self, result: annals::Result<T>) -> Found {
        result.map_or_else(|error| self.tolerate(&error), |_| Ok(()))
    }

    /// What the rule says, if there is one and it says anything new, is what a compaction does.
    fn apply(&mut self, store: &Store) -> Found {
        let before = self.driver.model().model.len();
        let rules = store.retention();
        let rule = rules.iter().find(|rule| rule.prefix.is_empty());
        let keep = rule.and_then(|rule| rule.retention?.revisions());
        let floor = keep.and_then(|keep| store.revision().checked_sub(keep));
        let Some(floor) = floor.filter(|floor| *floor > store.compacted_revision().max(1)) else {
            return match store.apply_retention() {
                Ok(done) => same(|| "nothing to forget".into(), &done, &false),
                Err(error) => self.tolerate(&error),
            };
        };
        let mut done = true;
        let ended = self.driver.request_by(store, &Request::Compact(floor), |store| {
            done = store.apply_retention()?;
            Ok(Answer::Compact)
        })?;
        same(|| format!("forgotten to {floor}"), &done, &true)?;
        self.ended(store, ended, before)
    }

    /// A copy that was reported made is there, whatever becomes of the power, and shows what was durable.
    fn copy(&self, name: &str, revision: u64) -> Found {
        let truth = self.driver.model().clone();
        let image = self.disk.crash(0, CrashMode::LoseAll);
        image.set_capacity(None);
        let options = tiny(Arc::new(image), Arc::new(ManualClock::new(START_TIME)));
        let store = match options.create(false).open(name) {
            // Whatever the disk did to it: what there is of it is not looked at here.
            _ if self.damaged => return Ok(()),
            opened => good(|| format!("open {name}"), opened)?,
        };
        same(|| format!("revision of {name}"), &store.revision(), &revision)?;
        let (model, acknowledged) = (&truth.model, truth.acknowledged);
        check::recovered(&store, model, acknowledged, Depth::Sampled(1)).map(|_| ())
    }

    fn restore(&self, store: &Store, name: &str) -> Found {
        let mut stream = Vec::new();
        let made = match store.backup(&mut stream) {
            Ok(made) => made,
            Err(error) => return self.tolerate(&error),
        };
        let options = RestoreOptions::new().options(self.options.clone());
        match restore(&stream[..], name, &options) {
            Ok(_) => self.copy(name, made.revision),
            Err(error) => self.tolerate(&error),
        }
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
        if self.driver.sync {
            return same(|| "what a poisoned store shows".into(), &shown, &acknowledged);
        }
        let last = truth.model.revision();
        if (acknowledged..=last).contains(&shown) {
            return Ok(());
        }
        Err(format!("a poisoned store shows {shown}, not {acknowledged} to {last}"))
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
    pub fn look(&self, store: &Store) -> Found {
        let truth = self.driver.model().clone();
        let mut model = truth.model;
        if self.poisoned && self.driver.sync {
            model.cut(truth.acknowledged);
        } else if self.poisoned {
            let shown = (store.revision(), store.compacted_revision());
            let shows = |changes: &usize| {
                let entry = model.entry_after(*changes);
                (entry.revision, entry.compacted) == shown
            };
            let changes = (truth.acknowledged..=model.len()).rev().find(shows);
            model.cut(changes.ok_or(format!("a poisoned store shows {shown:?}"))?);
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
        let expected = model.transactions(0);
        match store.log(..).with_values().collect::<annals::Result<Vec<_>>>() {
            Ok(found) => same(|| "log".into(), &found, &expected)?,
            Err(error) => self.tolerate(&error)?,
        }
        let mut found = Vec::new();
        let visited = store.log(..).with_values().visit(|transaction| {
            found.push(transaction.to_transaction());
            ControlFlow::<()>::Continue(())
        });
        match visited {
            Ok(_) => same(|| "log, visited".into(), &found, &expected),
            Err(error) => self.tolerate(&error),
        }
    }

    /// Everything works again: first the open store is read, then it is opened anew, as it is and
    /// after a crash.
    pub fn recover(mut self) -> Found {
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
