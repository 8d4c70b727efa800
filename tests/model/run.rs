//! One sequence: its steps, and those that change the store or open it again.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use annals::clock::{Clock as _, ManualClock};
use annals::vfs::{CrashMode, MemoryVfs};
use annals::{Durability, Options, Store, View};

use crate::reads::Held;
use crate::support::check::{self, Depth, Found, good, same};
use crate::support::drive::{Driver, Ended, durability};
use crate::support::generate::{self, Taste};
use crate::support::model::{Model, Request};
use crate::support::random::Random;
use crate::support::{DIRECTORY, START_TIME, shaped, tiny};

/// Runs one sequence; returns a hash of everything that was done to the disks.
pub(crate) fn one(seed: u64, verbose: bool) -> Result<u64, String> {
    let mut run = Run::new(seed, verbose)?;
    let steps = if run.random.one_in(15) { 500 } else { run.random.between(20, 90) };
    for step in 0..steps {
        run.step().map_err(|found| format!("step {step} of {steps}: {found}"))?;
    }
    run.finish().map_err(|found| format!("after the last step: {found}"))
}

/// One sequence in progress.
pub(crate) struct Run {
    pub(crate) random: Random,
    pub(crate) taste: Taste,
    disk: MemoryVfs,
    pub(crate) options: Options,
    pub(crate) driver: Driver,
    pub(crate) store: Option<Store>,
    /// Views that are held, with the state they must go on showing.
    pub(crate) pinned: Vec<(View, Model)>,
    /// Walks that have begun, with what they must still give.
    pub(crate) held: Vec<Held>,
    /// A reader beside the writer, and what it shows.
    pub(crate) reader: Option<(Store, Model)>,
    trace: u64,
    verbose: bool,
}

impl Run {
    pub(crate) fn new(seed: u64, verbose: bool) -> Result<Self, String> {
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

    pub(crate) fn tell(&self, what: &str, thing: &dyn Debug) {
        if self.verbose {
            println!("{what}: {thing:?}");
        }
    }

    fn open(&mut self) -> Found {
        let store = good(|| "open".into(), self.options.open(Path::new(DIRECTORY)))?;
        self.store = Some(store);
        Ok(())
    }

    pub(crate) fn store(&self) -> &Store {
        self.store.as_ref().expect("open between steps")
    }

    pub(crate) fn model(&self) -> Model {
        self.driver.model().model.clone()
    }

    pub(crate) fn step(&mut self) -> Found {
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

    /// All background work that can be done at all.
    fn reorganise(&mut self) -> Found {
        self.tell("reorganise", &());
        good(|| "reorganise".into(), self.store().reorganise())
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

    fn flush(&mut self) -> Found {
        self.tell("flush", &());
        good(|| "flush".into(), self.store().flush())?;
        self.driver.acknowledge_all();
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<u64, String> {
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
