//! One run of one way: threads that commit, and one that keeps time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use annals::rivals::{Key, Worker};

use crate::latency::Latency;
use crate::options::{Cell, Load, Options, Stalls};
use crate::ways::{Stall, Way};

/// Bytes of a value.
const VALUE: [u8; 256] = [0xa5; 256];
/// How often frames are walked and, if at all, transactions stall.
const TICK: Duration = Duration::from_millis(10);
/// Part of a run that goes by before anything is counted.
const WARM_UP: f64 = 0.2;

/// What the threads do with a commit.
const WARMING: u8 = 0;
const COUNTING: u8 = 1;
const TIMING: u8 = 2;
const OVER: u8 = 3;

/// What a run has shown.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) commits_per_second: f64,
    pub(crate) conflicts_per_commit: f64,
    pub(crate) latency: Latency,
}

/// What a thread has done.
#[derive(Debug, Default)]
struct Done {
    commits: u64,
    conflicts: u64,
    counted: u64,
    latency: Latency,
}

/// Runs a cell on a fresh store.
pub(crate) fn run<W: Way>(way: &W, options: &Options, cell: Cell) -> Run {
    let keys: Vec<Key> = (0..=options.set)
        .map(|number| Key::new(&format!("/registry/pods/ns-{:03}/pod-{number:07}", number >> 10)))
        .collect();
    let (phase, stall) = (AtomicU8::new(WARMING), Stall::default());
    let begin = Barrier::new(cell.threads + 1);
    let before = way.revision();
    let (seconds, done) = thread::scope(|scope| {
        let threads: Vec<_> = (0..cell.threads)
            .map(|thread| {
                let (keys, phase, stall, begin) = (&keys, &phase, &stall, &begin);
                scope.spawn(move || {
                    let mut picker = Picker::new(keys, cell, thread);
                    let worker = way.worker();
                    begin.wait();
                    work(way, thread, worker, &mut picker, (phase, stall))
                })
            })
            .collect();
        begin.wait();
        let keep = |phase_now: u8, seconds: f64| {
            phase.store(phase_now, Ordering::Relaxed);
            tick(way, (cell.stalls == Stalls::Yes).then_some(&stall), seconds)
        };
        keep(WARMING, WARM_UP * options.seconds);
        let seconds = keep(COUNTING, options.seconds);
        keep(TIMING, options.seconds);
        phase.store(OVER, Ordering::Relaxed);
        let join = |thread: thread::ScopedJoinHandle<'_, Done>| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        (seconds, threads.into_iter().map(join).collect::<Vec<_>>())
    });
    let sum = |part: fn(&Done) -> u64| done.iter().map(part).sum::<u64>();
    let commits = sum(|done| done.commits);
    assert_eq!(way.revision() - before, commits, "each commit has a revision of its own");
    let mut latency = Latency::default();
    for done in &done {
        latency.add(&done.latency);
    }
    Run {
        commits_per_second: sum(|done| done.counted) as f64 / seconds,
        conflicts_per_commit: sum(|done| done.conflicts) as f64 / commits.max(1) as f64,
        latency,
    }
}

/// Keeps time for so long, walking frames and asking for stalls meanwhile. Answers how long it was.
fn tick<W: Way>(way: &W, stall: Option<&Stall>, seconds: f64) -> f64 {
    let (start, whole) = (Instant::now(), Duration::from_secs_f64(seconds));
    while let Some(left) = whole.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
        thread::sleep(left.min(TICK));
        if let Some(stall) = stall {
            stall.order();
        }
        way.write_out();
    }
    start.elapsed().as_secs_f64()
}

/// Commits until it is over.
fn work<W: Way>(
    way: &W,
    thread: usize,
    mut worker: Worker<'_>,
    picker: &mut Picker<'_>,
    (phase, stall): (&AtomicU8, &Stall),
) -> Done {
    let mut done = Done::default();
    loop {
        let phase = phase.load(Ordering::Relaxed);
        if phase == OVER {
            return done;
        }
        let transaction = (picker.pick(), &VALUE[..]);
        let start = (phase == TIMING).then(Instant::now);
        done.conflicts += way.commit(thread, &mut worker, transaction, stall);
        done.commits += 1;
        done.counted += u64::from(phase == COUNTING);
        if let Some(start) = start {
            let nanos = start.elapsed().as_nanos();
            done.latency.record(u64::try_from(nanos).unwrap_or(u64::MAX));
        }
    }
}

/// Picks the keys of transactions.
struct Picker<'k> {
    /// The set, and last the hot key.
    keys: &'k [Key],
    cell: Cell,
    random: u64,
    picked: Vec<&'k Key>,
}

impl<'k> Picker<'k> {
    fn new(keys: &'k [Key], cell: Cell, thread: usize) -> Self {
        let random = (thread as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { keys, cell, random, picked: Vec::with_capacity(cell.keys) }
    }

    /// The keys of the next transaction, all different: an odd step through a set whose size is a
    /// power of two meets each key once.
    fn pick(&mut self) -> &[&'k Key] {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let Some((hot, set)) = self.keys.split_last() else { return &[] };
        let [mut at, step] = [self.random, self.random >> 32]
            .map(|half| usize::try_from(half & u64::from(u32::MAX)).unwrap_or(0));
        self.picked.clear();
        if self.cell.load == Load::Hot {
            self.picked.push(hot);
        }
        while self.picked.len() < self.cell.keys {
            self.picked.push(&set[at & (set.len() - 1)]);
            at = at.wrapping_add(step | 1);
        }
        &self.picked
    }
}
