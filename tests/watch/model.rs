//! Random histories and watches that are asked now and then, against the naive model: every watch is told
//! the model's transactions, filtered, each once and in order; it ends with `Compacted` only if what it
//! would go on with is.
//!
//! A failure prints its seed; `ANNALS_SEED=n` runs that one alone. `ANNALS_SEQUENCES=n` runs more or fewer.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annals::clock::ManualClock;
use annals::vfs::MemoryVfs;
use annals::{
    Batch, ChangeKind, ErrorKind, Event, KeyRange, KeyValue, Options, Slow, Store, Watch,
};
use bytes::Bytes;

use crate::support::check::{Found, caught, good, same};
use crate::support::drive::{Driver, Ended, durability};
use crate::support::generate::{self, Taste};
use crate::support::model::Model;
use crate::support::random::Random;
use crate::support::watchdog::Watchdog;
use crate::support::{DIRECTORY, START_TIME, number_from_env, tiny};

#[test]
fn every_watch_is_told_what_the_model_says() {
    if let Ok(seed) = std::env::var("ANNALS_SEED") {
        let seed = seed.parse().expect("ANNALS_SEED is a number");
        println!("{:?}", run(seed).unwrap_or_else(|found| panic!("seed {seed}: {found}")));
        return;
    }
    let sequences = number_from_env("ANNALS_SEQUENCES", 2_000);
    let watchdog = Watchdog::new(Duration::from_secs(60));
    let mut sum = Counts::default();
    for seed in 0..sequences {
        watchdog.begin(format!("seed {seed}"));
        let counts = caught(|| run(seed)).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        sum.add(&counts);
    }
    println!("{sequences} sequences: {sum:?}");
    if sequences >= 2_000 {
        // What the random choices are meant to bring about comes about.
        assert!(sum.events > 30_000 && sum.progress > 3_000 && sum.fragments > 500, "{sum:?}");
        assert!(sum.compacted > 1_000 && sum.lagged > 50 && sum.resumed > 5_000, "{sum:?}");
        assert!(sum.long_pauses > 500, "{sum:?}");
    }
}

#[derive(Debug, Default)]
struct Counts {
    events: u64,
    progress: u64,
    fragments: u64,
    compacted: u64,
    lagged: u64,
    resumed: u64,
    /// Pauses in which more became due than a watch remembers.
    long_pauses: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.progress += other.progress;
        self.fragments += other.fragments;
        self.compacted += other.compacted;
        self.lagged += other.lagged;
        self.resumed += other.resumed;
        self.long_pauses += other.long_pauses;
    }
}

/// What a watch was asked for.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a wish of its own")]
struct Wish {
    range: KeyRange,
    prev_kv: bool,
    keys_only: bool,
    puts: bool,
    deletes: bool,
    fragment: Option<usize>,
    lag: Option<u64>,
    catch_up_bytes: usize,
}

impl Wish {
    fn random(random: &mut Random, taste: &Taste) -> Self {
        let range = loop {
            let (key, end) = generate::a_range(random, taste);
            let range = KeyRange::from_etcd(&key, &end);
            if !(range.is_empty() || key.is_empty() && end.is_empty()) {
                break range;
            }
        };
        let filter = random.below(6);
        Self {
            range,
            prev_kv: random.one_in(2),
            keys_only: random.one_in(4),
            puts: filter != 0,
            deletes: filter != 1,
            fragment: random.one_in(3).then(|| *random.pick(&[0, 100, 2_000])),
            lag: random.one_in(5).then(|| random.below(40)),
            catch_up_bytes: *random.pick(&[0, 1_000, 1 << 20]),
        }
    }

    fn start(&self, store: &Store, from: Option<u64>) -> annals::Result<Watch> {
        let mut builder = store.watch_range(&self.range).catch_up_bytes(self.catch_up_bytes);
        if self.prev_kv {
            builder = builder.prev_kv();
        }
        if self.keys_only {
            builder = builder.keys_only();
        }
        if !self.puts {
            builder = builder.no_puts();
        }
        if !self.deletes {
            builder = builder.no_deletes();
        }
        if let Some(bytes) = self.fragment {
            builder = builder.fragment(bytes);
        }
        if let Some(revisions) = self.lag {
            builder = builder.when_slow(Slow::Lagged { revisions });
        }
        if let Some(from) = from {
            builder = builder.from(from);
        }
        builder.start()
    }

    /// What is to be told of a revision of the model.
    fn events(
        &self,
        model: &Model,
        revision: u64,
    ) -> Vec<(ChangeKind, KeyValue, Option<KeyValue>)> {
        let transaction = model.transaction(revision);
        let before = model.state_at(revision - 1);
        let changes = transaction.changes.iter().filter(|change| self.range.contains(&change.key));
        let wanted = |kind| if kind == ChangeKind::Put { self.puts } else { self.deletes };
        let value = |value: &Bytes| if self.keys_only { Bytes::new() } else { value.clone() };
        let events = changes.filter(|change| wanted(change.kind)).map(|change| {
            let kv = KeyValue {
                key: change.key.clone(),
                value: change.value.as_ref().map(value).unwrap_or_default(),
                create_revision: change.create_revision,
                mod_revision: revision,
                version: change.version,
                lease: change.lease,
            };
            let prev_kv = before.get(&change.key).filter(|_| self.prev_kv).cloned();
            let prev_kv = prev_kv.map(|kv| KeyValue { value: value(&kv.value), ..kv });
            (change.kind, kv, prev_kv)
        });
        events.collect()
    }
}

/// A watch, and what it must tell next.
struct Watched {
    wish: Wish,
    watch: Watch,
    /// All before this revision has been told, or was not asked for.
    next: u64,
    /// Events of a revision whose fragments have not all come.
    part: Vec<Event>,
    /// How many steps it is not asked for.
    rests: u64,
    /// The revision when it was asked last.
    asked_at: u64,
}

/// What became of asking.
#[derive(PartialEq)]
enum Asked {
    Told,
    Nothing,
    Ended,
}

impl Watched {
    /// Asks once, and holds the answer against the model.
    fn ask(&mut self, model: &Model, counts: &mut Counts) -> Result<Asked, String> {
        let due = |from: u64| (from..=model.revision()).find(|at| self.wish.has_events(model, *at));
        match self.watch.try_next() {
            None => {
                same(|| "left out".into(), &None, &due(self.next))?;
                self.next = self.next.max(model.revision() + 1);
                same(|| "resume".into(), &self.watch.resume_revision(), &self.next)?;
                Ok(Asked::Nothing)
            }
            Some(Ok(batch)) if batch.is_progress() => {
                counts.progress += 1;
                if due(self.next).is_some_and(|due| due <= batch.revision()) {
                    return Err(format!("{batch:?} comes before {:?}", due(self.next)));
                }
                if batch.revision() + 1 < self.next || batch.revision() > model.revision() {
                    return Err(format!("{batch:?}, but next is {}", self.next));
                }
                self.next = batch.revision() + 1;
                Ok(Asked::Told)
            }
            Some(Ok(batch)) => {
                same(|| "the next revision".into(), &Some(batch.revision()), &due(self.next))?;
                self.batch(&batch, model, counts)?;
                Ok(Asked::Told)
            }
            Some(Err(error)) => {
                let resume = self.watch.resume_revision();
                if resume.max(2) < self.next || due(self.next).is_some_and(|due| due < resume) {
                    return Err(format!("{error}: resume {resume}, but next is {}", self.next));
                }
                match *error.kind() {
                    ErrorKind::Compacted { requested, compacted, prefix: None }
                        if requested == resume
                            && compacted > requested
                            && compacted == model.compacted() =>
                    {
                        counts.compacted += 1;
                    }
                    ErrorKind::Lagged { resume: told, current }
                        if self.wish.lag.is_some_and(|lag| current >= told + lag)
                            && told == resume
                            && current <= model.revision() =>
                    {
                        counts.lagged += 1;
                    }
                    _ => return Err(format!("{error:?}, to resume at {resume}")),
                }
                if self.watch.next().is_some() || !self.watch.handle().is_ended() {
                    return Err(format!("an item after {error}"));
                }
                Ok(Asked::Ended)
            }
        }
    }

    fn batch(&mut self, batch: &Batch, model: &Model, counts: &mut Counts) -> Found {
        let revision = batch.revision();
        let transaction = model.transaction(revision);
        same(|| "time".into(), &batch.time(), &transaction.time)?;
        same(|| "metadata".into(), batch.metadata(), &transaction.metadata)?;
        if self.wish.fragment.is_none() && !batch.is_last_fragment() {
            return Err(format!("{batch:?} is a fragment"));
        }
        self.part.extend(batch.events().iter().cloned());
        if !batch.is_last_fragment() {
            counts.fragments += 1;
            return same(|| "resume".into(), &self.watch.resume_revision(), &revision);
        }
        let part = std::mem::take(&mut self.part);
        counts.events += part.len() as u64;
        let told: Vec<_> = part.into_iter().map(|e| (e.kind, e.kv, e.prev_kv)).collect();
        let expected = self.wish.events(model, revision);
        same(|| format!("events of {revision} for {:?}", self.wish), &told, &expected)?;
        self.next = revision + 1;
        same(|| "resume".into(), &self.watch.resume_revision(), &self.next)
    }
}

impl Wish {
    fn has_events(&self, model: &Model, revision: u64) -> bool {
        let wanted = |kind| if kind == ChangeKind::Put { self.puts } else { self.deletes };
        let mut changes = model.transaction(revision).changes.iter();
        changes.any(|change| wanted(change.kind) && self.range.contains(&change.key))
    }
}

struct Run {
    random: Random,
    taste: Taste,
    options: Options,
    driver: Driver,
    store: Option<Store>,
    watches: Vec<Watched>,
    counts: Counts,
}

fn run(seed: u64) -> Result<Counts, String> {
    let mut random = Random::new(seed);
    let taste = Taste::random(&mut random);
    let clock = Arc::new(ManualClock::new(START_TIME));
    let mut driver = Driver::new(Arc::clone(&clock));
    driver.sync = !random.one_in(3);
    let options = tiny(Arc::new(MemoryVfs::new()), clock)
        .durability(durability(driver.sync))
        .event_value_bytes(*random.pick(&[0, 64, 1_024]));
    let store = good(|| "open".into(), options.open(Path::new(DIRECTORY)))?;
    let (watches, counts) = (Vec::new(), Counts::default());
    let mut run = Run { random, taste, options, driver, store: Some(store), watches, counts };
    let steps = run.random.between(40, 250);
    for step in 0..steps {
        run.step().map_err(|found| format!("step {step} of {steps}: {found}"))?;
    }
    for at in (0..run.watches.len()).rev() {
        run.ask(at, u64::MAX).map_err(|found| format!("after the last step: {found}"))?;
    }
    Ok(run.counts)
}

impl Run {
    fn store(&self) -> &Store {
        self.store.as_ref().expect("open between steps")
    }

    fn model(&self) -> Model {
        self.driver.model().model.clone()
    }

    fn step(&mut self) -> Found {
        match self.random.below(100) {
            0..62 => self.request(),
            62..68 if self.watches.len() < 5 => self.watch(),
            62..80 => self.ask_one(),
            80..84 => self.background(),
            84..86 => good(|| "reorganise".into(), self.store().reorganise()),
            86..89 => self.end_one(),
            89..92 => self.reopen(),
            _ => {
                self.watches.iter().for_each(|one| one.watch.handle().request_progress());
                Ok(())
            }
        }
    }

    fn request(&mut self) -> Found {
        let truth = self.driver.model();
        let request = generate::request(&mut self.random, &self.taste, &truth.model);
        drop(truth);
        match self.driver.request(self.store(), &request)? {
            Ended::AsExpected => Ok(()),
            Ended::Failed(error) => Err(format!("{request:?}: unexpected error: {error}")),
        }
    }

    fn watch(&mut self) -> Found {
        let wish = Wish::random(&mut self.random, &self.taste);
        let now = self.driver.model().model.revision();
        let from = match self.random.below(3) {
            0 => None,
            1 => Some(self.random.between(1, now + 1)),
            _ => Some(now + self.random.below(8)),
        };
        let watch = good(|| format!("{wish:?}"), wish.start(self.store(), from))?;
        same(|| "created at".into(), &watch.created_at(), &now)?;
        let next = from.unwrap_or(now + 1);
        same(|| "resume".into(), &watch.resume_revision(), &next)?;
        let rests = self.random.below(3) * self.random.below(60);
        let part = Vec::new();
        let next = next.max(2);
        self.watches.push(Watched { wish, watch, next, part, rests, asked_at: now });
        Ok(())
    }

    fn ask_one(&mut self) -> Found {
        if self.watches.is_empty() {
            return Ok(());
        }
        let at = self.random.index(self.watches.len());
        let rests = &mut self.watches[at].rests;
        if *rests > 0 {
            *rests -= (*rests).min(8);
            return Ok(());
        }
        *rests = self.random.below(2) * self.random.below(40);
        let times = if self.random.one_in(3) { u64::MAX } else { self.random.between(1, 20) };
        self.ask(at, times)
    }

    /// Asks a watch until it has nothing to tell, or so often.
    fn ask(&mut self, at: usize, times: u64) -> Found {
        let model = self.model();
        let one = &mut self.watches[at];
        self.counts.long_pauses += u64::from(model.revision() > one.asked_at + 32);
        one.asked_at = model.revision();
        for _ in 0..times {
            match one.ask(&model, &mut self.counts)? {
                Asked::Told => {}
                Asked::Nothing => break,
                Asked::Ended => {
                    self.watches.swap_remove(at);
                    break;
                }
            }
        }
        Ok(())
    }

    fn end_one(&mut self) -> Found {
        if self.watches.is_empty() {
            return Ok(());
        }
        let at = self.random.index(self.watches.len());
        let mut ended = self.watches.swap_remove(at);
        if self.random.one_in(2) {
            ended.watch.handle().cancel();
            same(|| "an item of a cancelled watch".into(), &true, &ended.watch.next().is_none())?;
        }
        Ok(())
    }

    fn background(&mut self) -> Found {
        for _ in 0..self.random.between(1, 12) {
            if !good(|| "background".into(), self.store().run_background())? {
                break;
            }
        }
        Ok(())
    }

    /// The watches end with the session; others go on in the next.
    fn reopen(&mut self) -> Found {
        let store = self.store.take().expect("open");
        if self.random.one_in(2) {
            good(|| "close".into(), store.close())?;
        } else {
            drop(store);
        }
        let model = self.model();
        for one in &mut self.watches {
            // What was read already is still told.
            loop {
                match one.watch.try_next() {
                    Some(Ok(batch)) if batch.is_progress() => {
                        return Err(format!("{batch:?} of a closed store"));
                    }
                    Some(Ok(batch)) => one.batch(&batch, &model, &mut self.counts)?,
                    Some(Err(error)) if matches!(error.kind(), ErrorKind::Closed) => break,
                    Some(Err(error)) if matches!(error.kind(), ErrorKind::Lagged { .. }) => break,
                    other => return Err(format!("a watch of a closed store: {other:?}")),
                }
            }
            one.part.clear();
        }
        let store = good(|| "open".into(), self.options.open(Path::new(DIRECTORY)))?;
        for one in &mut self.watches {
            let resume = one.watch.resume_revision();
            one.watch = good(|| "resume".into(), one.wish.start(&store, Some(resume)))?;
            one.next = resume.max(2);
            self.counts.resumed += 1;
        }
        self.store = Some(store);
        Ok(())
    }
}
