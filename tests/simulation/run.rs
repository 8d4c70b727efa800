//! One run: its steps, and what becomes of faults and power cuts.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;

use annals::vfs::{CrashMode, Fault};
use annals::{KeyRange, KeyValue, Options, Store, View};
use bytes::Bytes;

use crate::leased::Leased;
use crate::support::check::{self, Depth, Found, good, same};
use crate::support::generate::{self, Taste};
use crate::support::model::{Model, Request};
use crate::support::random::Random;
use crate::support::{DIRECTORY, shaped};
use crate::watched::{Asked, Watched};
use crate::workloads::Step;
use crate::workloads::run::Run;

/// What was done in a run, or in many.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) steps: u64,
    pub(crate) operations: u64,
    pub(crate) changes: u64,
    /// Openings, power cuts and faults, and how many of these stopped a store.
    pub(crate) openings: u64,
    pub(crate) power_cuts: u64,
    pub(crate) fired: u64,
    pub(crate) poisoned: u64,
    /// Events told by watches, leases ended by time, copies and backups made.
    pub(crate) events: u64,
    pub(crate) expired: u64,
    pub(crate) copies: u64,
    pub(crate) trace: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.operations += other.operations;
        self.changes += other.changes;
        self.openings += other.openings;
        self.power_cuts += other.power_cuts;
        self.fired += other.fired;
        self.poisoned += other.poisoned;
        self.events += other.events;
        self.expired += other.expired;
        self.copies += other.copies;
        self.trace ^= other.trace;
    }
}

/// Rules are applied by a step of their own: the model would not know when else.
fn simulated(options: Options, random: &mut Random) -> Options {
    shaped(options, random)
        .retention_interval_seconds(0)
        .lease_checkpoint_interval_seconds(*random.pick(&[0, 5, 60]))
}

pub(crate) fn one(seed: u64, verbose: bool) -> Result<Counts, String> {
    let mut random = Random::new(seed);
    let mut taste = Taste::random(&mut random);
    taste.leases = !random.one_in(3);
    taste.value_bytes = taste.value_bytes.min(600);
    let mut core = Run::new(!random.one_in(5));
    core.strict = true;
    core.options = simulated(core.options, &mut random);
    let steps = random.between(60, 260);
    let mut simulation = Simulation {
        random,
        taste,
        core,
        leased: Leased::default(),
        watches: Vec::new(),
        views: Vec::new(),
        armed: None,
        counts: Counts::default(),
        verbose,
    };
    simulation.recover(false)?;
    for step in 0..steps {
        simulation.step().map_err(|found| format!("step {step} of {steps}: {found}"))?;
    }
    simulation.finish().map_err(|found| format!("after the last step: {found}"))
}

/// A random request at the time it is made. The times of commits never go back, and the model does not know those of
/// records without a revision, as a lease's, so neither does the clock of the wall here; `tests/model.rs` has that.
fn request(random: &mut Random, taste: &Taste, model: &Model) -> Request {
    match generate::request(random, taste, model) {
        Request::Txn { request, metadata, .. } => Request::Txn { request, time: None, metadata },
        request => request,
    }
}

pub(crate) struct Simulation {
    pub(crate) random: Random,
    taste: Taste,
    pub(crate) core: Run,
    pub(crate) leased: Leased,
    watches: Vec<Watched>,
    /// Views that are kept, with the state they must go on showing.
    views: Vec<(View, BTreeMap<Bytes, KeyValue>)>,
    /// How many operations had failed when the next fault, or the power cut, was planned.
    armed: Option<u64>,
    pub(crate) counts: Counts,
    verbose: bool,
}

impl Simulation {
    pub(crate) fn tell(&self, what: &str, thing: &dyn Debug) {
        if self.verbose {
            println!("{what}: {thing:?}");
        }
    }

    pub(crate) fn fired(&self) -> bool {
        self.armed.is_some_and(|before| self.core.faulty.fired() > before)
    }

    fn store(&self) -> Store {
        self.core.store.clone().expect("open between steps")
    }

    fn step(&mut self) -> Found {
        self.counts.steps += 1;
        let choice = self.random.below(100);
        if self.core.poisoned {
            self.poisoned()?;
        } else {
            match choice {
                0..50 => self.request()?,
                50..55 => self.burst()?,
                55..65 => {
                    let units = self.random.between(1, 12);
                    self.plain(&Step::Background(units))?;
                }
                65 => self.plain(&Step::Reorganise)?,
                66..68 => self.plain(&Step::Flush)?,
                68 => {
                    let keep = self.random.below(60);
                    self.plain(&Step::Keep(keep))?;
                }
                69 => self.plain(&Step::Apply)?,
                70 => self.copy()?,
                71..75 => self.time()?,
                75..77 => self.keep_alive()?,
                77..79 => self.watch()?,
                79..86 => self.ask()?,
                86..88 => self.pin()?,
                88..90 => self.look_at_views()?,
                90..92 => self.plain(&Step::Look)?,
                92 => return self.reopen(),
                // The power is cut between two steps.
                93..95 => return self.recover(true),
                _ => self.arm(),
            }
        }
        let model = self.core.driver.model().model.clone();
        self.leased.follow(&model, &self.core.driver.clock);
        // What a `Buffered` store takes back when its log fails in the background is told at the next opening.
        let stopped = self.core.store.is_none() || self.fired() && !self.core.driver.sync;
        if stopped || self.fired() && self.random.one_in(3) {
            // The next process finds what this one left, or what a power cut leaves of that.
            let power = self.random.one_in(2);
            return self.recover(power);
        }
        Ok(())
    }

    fn plain(&mut self, step: &Step) -> Found {
        self.tell("step", step);
        self.core.step(step)
    }

    fn request(&mut self) -> Found {
        // A lease that is due may end at any call, so it ends first.
        self.expire()?;
        if self.core.store.is_none() || self.core.poisoned {
            return Ok(());
        }
        let model = self.core.driver.model().model.clone();
        let request = request(&mut self.random, &self.taste, &model);
        self.plain(&Step::Do(request))
    }

    /// Transactions in flight at once.
    fn burst(&mut self) -> Found {
        self.expire()?;
        let model = self.core.driver.model().model.clone();
        let count = self.random.between(2, 9);
        let requests = std::iter::repeat_with(|| request(&mut self.random, &self.taste, &model));
        let requests = requests.filter(|request| matches!(request, Request::Txn { .. }));
        let requests = requests.take(usize::try_from(count).unwrap()).collect();
        self.plain(&Step::Burst(requests))
    }

    /// What a store that takes no more writes still does.
    fn poisoned(&mut self) -> Found {
        self.counts.poisoned += 1;
        self.look_at_views()?;
        self.ask()?;
        self.core.step(&Step::Look)?;
        let put = annals::PutRequest::new("never", "taken");
        self.core.step(&Step::Do(Request::Put(put)))
    }

    fn copy(&mut self) -> Found {
        let name = format!("copy-{}", self.counts.copies);
        self.counts.copies += 1;
        if self.random.one_in(2) {
            self.plain(&Step::Checkpoint(name))
        } else {
            self.plain(&Step::Restore(name))
        }
    }

    fn watch(&mut self) -> Found {
        if self.watches.len() >= 4 {
            let at = self.random.index(self.watches.len());
            self.watches.swap_remove(at);
        }
        let range = loop {
            let (key, end) = generate::a_range(&mut self.random, &self.taste);
            let range = KeyRange::from_etcd(&key, &end);
            if !(range.is_empty() || key.is_empty() && end.is_empty()) {
                break if self.random.one_in(2) { KeyRange::all() } else { range };
            }
        };
        let (oldest, newest) = {
            let truth = self.core.driver.model();
            (truth.model.compacted().max(2), truth.model.revision())
        };
        let from = oldest + self.random.below((newest + 2).saturating_sub(oldest).max(1));
        self.tell("watch", &(&range, from));
        match Watched::begin(&self.store(), range, from) {
            Ok(watch) => {
                self.watches.push(watch);
                Ok(())
            }
            Err(error) => self.core.tolerate(&error),
        }
    }

    /// Asks every watch, mostly for less than it has to tell.
    fn ask(&mut self) -> Found {
        let most = self.random.below(30);
        self.ask_for(most)
    }

    /// Asks every watch so often, or until it has nothing more to tell.
    fn ask_for(&mut self, most: u64) -> Found {
        let (store, sync) = (self.store(), self.core.driver.sync);
        let tolerant = self.armed.is_some();
        for at in (0..self.watches.len()).rev() {
            for _ in 0..most {
                let mut truth = self.core.driver.model();
                match self.watches[at].ask(&store, &mut truth, sync, tolerant)? {
                    Asked::Told(events) => self.counts.events += events,
                    Asked::Nothing => break,
                    Asked::Ended => {}
                    Asked::Failed => {
                        drop(truth);
                        self.watches.swap_remove(at);
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn pin(&mut self) -> Found {
        let model = self.core.driver.model().model.clone();
        let revision = generate::a_revision(&mut self.random, &model);
        if revision == 0 || model.readable(revision).is_err() || self.views.len() > 3 {
            return Ok(());
        }
        self.tell("pin", &revision);
        match self.store().at(revision) {
            Ok(view) => {
                self.views.push((view, model.state_at(revision)));
                Ok(())
            }
            Err(error) => self.core.tolerate(&error),
        }
    }

    fn look_at_views(&mut self) -> Found {
        for (view, expected) in &self.views {
            match view.range(..).collect::<annals::Result<Vec<_>>>() {
                Ok(found) => {
                    let expected: Vec<_> = expected.values().cloned().collect();
                    same(|| format!("a view at {}", view.revision()), &found, &expected)?;
                }
                Err(error) => self.core.tolerate(&error)?,
            }
        }
        if self.random.one_in(2) {
            self.views.clear();
        }
        Ok(())
    }

    /// Plans a fault, or the loss of power, at one of the next operations.
    fn arm(&mut self) {
        if self.armed.is_some() {
            return;
        }
        self.armed = Some(self.core.faulty.fired());
        self.core.strict = false;
        let at = self.core.faulty.op_count() + self.random.below(60);
        if self.random.one_in(2) {
            self.tell("power ends at", &at);
            self.core.faulty.stop_after(at);
        } else {
            let faults = [Fault::Io, Fault::NoSpace, Fault::Interrupted, Fault::Short, Fault::Torn];
            let (fault, sticky) = (*self.random.pick(&faults), self.random.one_in(3));
            self.tell("fault", &(at, fault, sticky));
            self.core.faulty.fail(None, at, fault, sticky);
        }
    }

    pub(crate) fn disarm(&mut self) {
        self.core.faulty.heal();
        self.armed = None;
        self.core.strict = true;
    }

    fn reopen(&mut self) -> Found {
        let clean = !self.random.one_in(3);
        self.tell("reopen", &clean);
        self.views.clear();
        self.core.step(if clean { &Step::Close } else { &Step::Drop })?;
        let power = !clean && self.random.one_in(2);
        self.recover(power)
    }

    /// The process ends, the power perhaps too; everything works again, and the store is opened.
    fn recover(&mut self, power: bool) -> Found {
        self.views.clear();
        // Nothing that it has not begun to write is written any more.
        self.core.step(&Step::Kill)?;
        self.counts.fired += u64::from(self.fired());
        self.disarm();
        if power {
            let modes =
                [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random, CrashMode::Random];
            let (mode, seed) = (*self.random.pick(&modes), self.random.next());
            self.tell("power", &(mode, seed));
            self.core.disk.lose_power(seed, mode);
            self.counts.power_cuts += 1;
        }
        if self.random.one_in(3) {
            self.core.options = simulated(self.core.options.clone(), &mut self.random);
        }
        self.counts.openings += 1;
        self.core.step(&Step::Open)?;
        let store = self.store();
        let model = self.core.driver.model().model.clone();
        self.tell("open", &(model.revision(), model.compacted()));
        let depth = Depth::Sampled(self.random.next());
        check::store(&store, &model, depth).map_err(|found| format!("reopened: {found}"))?;
        self.leased.reopened(&store, &model, &self.core.driver.clock)?;
        for watched in std::mem::take(&mut self.watches) {
            let again = watched.resume(&store);
            self.watches.push(good(|| "watch on".into(), again)?);
        }
        Ok(())
    }

    /// The end: everything is looked at, as it is, opened again, and with all work done.
    fn finish(mut self) -> Result<Counts, String> {
        self.recover(false)?;
        let all = |store: &Store, core: &Run| {
            check::store(store, &core.driver.model().model, Depth::Everything)
        };
        all(&self.store(), &self.core)?;
        self.ask_for(u64::MAX)?;
        self.watches.clear();
        self.core.step(&Step::Close)?;
        self.core.step(&Step::Open)?;
        self.core.step(&Step::Background(10_000))?;
        all(&self.store(), &self.core)?;
        self.core.step(&Step::Reorganise)?;
        all(&self.store(), &self.core)?;
        self.core.step(&Step::Close)?;
        let report = annals::check(Path::new(DIRECTORY), &self.core.options, &mut |_, _| {});
        let report = good(|| "verify".into(), report)?;
        same(|| "damage".into(), &report.damage, &Vec::new())?;
        self.counts.operations = self.core.faulty.op_count();
        self.counts.changes = self.core.driver.model().model.len() as u64;
        self.counts.trace = self.core.disk.trace_hash();
        Ok(self.counts)
    }
}
