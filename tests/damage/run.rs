//! Judges many cases, with a deadline for each, and sums up what came of them by kind of file.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use annals::vfs::MemoryVfs;

use crate::heap;
use crate::judge::{Depth, Fate, Hit, judge};
use crate::made::Made;
use crate::support::check::caught;
use crate::support::watchdog::Watchdog;
use crate::support::{number_from_env, parallel};

/// A judgement must end within this time, of what the thread works; one that waits for ever is ended by the watchdog.
const PATIENCE: Duration = Duration::from_secs(2);

/// How much memory a judgement may take, beside twice the store's files.
pub const HEAP_BYTES: u64 = 64 << 20;

/// A damaged store.
pub struct Case {
    /// What was done to it, so that it can be done again.
    pub name: String,
    /// What kind of file it was done to.
    pub kind: &'static str,
    pub disk: MemoryVfs,
    /// Where, if the place must be told exactly.
    pub hit: Option<Hit>,
    pub depth: Depth,
}

/// What came of the cases of one kind.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub cases: u64,
    pub fates: BTreeMap<Fate, u64>,
    pub peak: usize,
    pub longest: Duration,
}

/// What came of all cases.
#[derive(Debug, Default)]
pub struct Tally(pub BTreeMap<&'static str, Counts>);

impl Tally {
    fn add(&mut self, kind: &'static str, fate: Fate, peak: usize, took: Duration) {
        let counts = self.0.entry(kind).or_default();
        counts.cases += 1;
        *counts.fates.entry(fate).or_insert(0) += 1;
        counts.peak = counts.peak.max(peak);
        counts.longest = counts.longest.max(took);
    }

    pub fn of(&self, fate: Fate) -> u64 {
        self.0.values().filter_map(|counts| counts.fates.get(&fate)).sum()
    }

    pub fn cases(&self) -> u64 {
        self.0.values().map(|counts| counts.cases).sum()
    }

    /// Prints a line for each kind, and one for all. What is printed has been judged: with one wrong answer, panic,
    /// hang or damage that `verify` does not find the test has failed.
    pub fn print(&self, what: &str, took: Duration) {
        println!("{what}: {} cases in {:.1} s", self.cases(), took.as_secs_f64());
        for (kind, counts) in &self.0 {
            let of = |fate| counts.fates.get(&fate).copied().unwrap_or(0);
            println!(
                "  {kind:<9} {:>8} cases: {:>8} refused to open, {:>7} refused reads, {:>7} not read but found by verify, \
                 {:>3} dropped and reported{}{}, 0 wrong, 0 panics, 0 unseen by verify; peak {} KiB, longest {} ms",
                counts.cases,
                of(Fate::RefusedToOpen),
                of(Fate::RefusedToRead),
                of(Fate::Unnoticed),
                of(Fate::DroppedAndReported),
                match of(Fate::EndDroppedAndReported) {
                    0 => String::new(),
                    count => format!(", {count} with what came behind"),
                },
                match of(Fate::NeverWritten) {
                    0 => String::new(),
                    count => format!(", {count} as if never written"),
                },
                counts.peak >> 10,
                counts.longest.as_millis()
            );
        }
    }
}

/// Judges `count` cases, each made from a number, and prints what came of them.
pub fn run(
    what: &str,
    made: &Made,
    count: u64,
    damage: impl Fn(u64) -> Option<Case> + Sync,
) -> Tally {
    let since = Instant::now();
    let tally = Mutex::new(Tally::default());
    let bound = usize::try_from(HEAP_BYTES + 2 * made.bytes()).unwrap();
    parallel::each(count, |number, watchdog| {
        let Some(case) = damage(number) else { return Ok(()) };
        watchdog.begin(case.name);
        let since = worked();
        let outcome = judge(&case.disk, made, case.depth)?;
        let took = worked().saturating_sub(since);
        if let Some(hit) = &case.hit {
            hit.check(&outcome)?;
        }
        if took > PATIENCE {
            return Err(format!("it took {took:?}"));
        }
        if outcome.peak > bound {
            return Err(format!("it took {} bytes of memory", outcome.peak));
        }
        tally.lock().unwrap().add(case.kind, outcome.fate, outcome.peak, took);
        Ok(())
    });
    let tally = tally.into_inner().unwrap();
    tally.print(what, since.elapsed());
    tally
}

/// How many cases: those that the environment says, `all`, or the default.
pub fn wanted(name: &str, default: u64, all: u64) -> u64 {
    if std::env::var(name).is_ok_and(|text| text == "all") {
        return all;
    }
    number_from_env(name, default).min(all)
}

/// The number of the case to do next: all in order, or, of fewer, such that are spread over all.
pub fn spread(number: u64, count: u64, all: u64, seed: u64) -> u64 {
    if count == all {
        return number;
    }
    crate::support::random::Random::new(seed.wrapping_add(number)).below(all)
}

/// Sees to it that no damage was taken for something that a kill leaves.
pub fn nothing_lost(tally: &Tally) {
    assert_eq!(tally.of(Fate::DroppedAndReported), 0, "taken for a torn write");
    one_batch_lost(tally);
}

/// Sees to it that nothing but the last batch was taken for something that a kill leaves, and that it was told.
pub fn one_batch_lost(tally: &Tally) {
    assert_eq!(tally.of(Fate::EndDroppedAndReported), 0, "more than one batch");
    assert_eq!(tally.of(Fate::NeverWritten), 0, "taken for what was never written");
}

/// Does something to stores each made from a number: no panic, within the time, and within so many bytes beside twice
/// the files. Prints how many, and the most memory and time that one took.
pub fn bounded(
    what: &str,
    made: &Made,
    all: u64,
    bytes: u64,
    store: impl Fn(u64) -> (String, MemoryVfs),
    work: impl Fn(&MemoryVfs),
) {
    let count = wanted("ANNALS_HOSTILE", 400, all);
    let watchdog = Watchdog::new(Duration::from_secs(60));
    let (mut most, mut longest) = (0, Duration::ZERO);
    for number in 0..count {
        let (name, disk) = store(number);
        watchdog.begin(name.as_str());
        let since = worked();
        heap::begin();
        let ended = caught(|| {
            work(&disk);
            Ok(())
        });
        let (peak, took) = (heap::peak() as u64, worked().saturating_sub(since));
        assert_eq!(ended, Ok(()), "{what}: {name}");
        assert!(took < PATIENCE, "{what}: {name} took {took:?}");
        assert!(peak <= bytes + 2 * made.bytes(), "{what}: {name} took {peak} bytes");
        (most, longest) = (most.max(peak), longest.max(took));
    }
    if count > 1 {
        println!(
            "{what}: {count} of {all} hostile stores; peak {} KiB, longest {longest:?}",
            most >> 10
        );
    }
}

/// How long this thread has worked, so that a busy machine makes no failures; where the system does not say, the time
/// that has passed.
fn worked() -> Duration {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = said.and_then(|said| said.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| BEGAN.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}
