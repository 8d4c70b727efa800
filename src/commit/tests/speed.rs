//! Measurements, not tests: `cargo test -p annals --release --lib speed -- --ignored --nocapture`.
#![expect(clippy::cast_precision_loss, reason = "rates are printed with a few digits")]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

const USUAL: GenerationSize = GenerationSize { arena_bytes: 32 << 20, keys: 200_000 };

/// Drops old generations, as flushing would.
fn forget_old(store: &Fixture) {
    let mut generations = lock(&store.world.generations);
    let keep = generations.len().saturating_sub(2);
    generations.drain(..keep);
}

/// Discards what it is given.
#[derive(Debug)]
struct Nowhere;

impl Log for Nowhere {
    fn append(&mut self, frames: &mut dyn Iterator<Item = &[u8]>, _: BatchInfo) -> Result<()> {
        frames.for_each(drop);
        Ok(())
    }
}

/// Whole pages into a preallocated file, and `fdatasync`.
#[derive(Debug)]
struct Pages {
    file: std::fs::File,
    at: u64,
    buffer: Vec<u8>,
}

const FILE_BYTES: u64 = 256 << 20;

impl Pages {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("annals-speed-{}", std::process::id()));
        let mut file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .expect("a file");
        std::fs::remove_file(&path).expect("removed");
        for _ in 0..FILE_BYTES >> 20 {
            file.write_all(&vec![0; 1 << 20]).expect("room");
        }
        file.sync_all().expect("synced");
        Self { file, at: 0, buffer: Vec::new() }
    }

    fn write(&mut self) {
        self.buffer.resize(self.buffer.len().next_multiple_of(4096), 0);
        self.file.write_all_at(&self.buffer, self.at).expect("written");
        self.file.sync_data().expect("synced");
        self.at = (self.at + self.buffer.len() as u64) % (FILE_BYTES - (8 << 20));
        self.buffer.clear();
    }
}

impl Log for Pages {
    fn append(&mut self, frames: &mut dyn Iterator<Item = &[u8]>, _: BatchInfo) -> Result<()> {
        for frame in frames {
            self.buffer.extend_from_slice(frame);
        }
        self.write();
        Ok(())
    }
}

fn on(log: impl Log + 'static) -> Fixture {
    with_size(log, USUAL)
}

fn with_size(log: impl Log + 'static, size: GenerationSize) -> Fixture {
    let store = Fixture::without_log(size, START);
    store.chain.open_log(Box::new(log));
    store
}

/// One compare-and-swap of a 256-byte value, retried until it holds.
fn compare_and_swap(store: &Fixture, generation: &mut Arc<Generation>, key: &Bytes, value: &Bytes) {
    loop {
        let guard = epoch::pin();
        let snapshot = store.chain.begin(&guard);
        if snapshot.generation() != generation.id() {
            let generations = lock(&store.world.generations);
            let current = generations.iter().find(|one| one.id() == snapshot.generation());
            *generation = Arc::clone(current.expect("not forgotten yet"));
        }
        let newest = generation.find(key).map_or(Newest::Unknown, KeyNode::newest);
        let seen = match newest {
            Newest::Known(stub) => stub.revision,
            Newest::Absent => 0,
            Newest::Unknown => {
                store.world.newest(key, generation.id()).expect("reads").map_or(0, |s| s.revision)
            }
        };
        let mut plan = Plan::default();
        let kind = WriteKind::Put { value: value[..].into(), lease: 0 };
        plan.writes.push(Write { key: InternalKey::from_slice(key), kind });
        plan.reads.points.push(Point::at(key, seen));
        plan.time = Some(1);
        match store.chain.order(&snapshot, &plan, &*store.world) {
            Ok(_) => return,
            Err(OrderError::Conflict) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn speed_buffered() {
    for (name, keys) in [("uniform over 20k keys", 20_000), ("one hot key", 1)] {
        for threads in [1, 2, 8] {
            let mut rates: Vec<f64> = (0..5).map(|_| buffered(threads, keys)).collect();
            rates.sort_by(f64::total_cmp);
            println!("buffered, {name}, {threads} threads: {:.2} M/s", rates[2] / 1e6);
        }
    }
}

/// For `perf stat`: processor time does not depend on what else the machine does.
#[test]
#[ignore = "a measurement"]
fn speed_two_million_commits() {
    for arena_bytes in [32 << 20, 256 << 20] {
        two_million(GenerationSize { arena_bytes, keys: 200_000 });
    }
}

fn two_million(size: GenerationSize) {
    let store = with_size(Nowhere, size);
    let mut random = Random(1);
    let value = Bytes::from(vec![7u8; 256]);
    let keys: Vec<_> = (0..20_000).map(|key| user(format!("{key:06}"))).collect();
    let mut generation = lock(&store.world.generations)[0].clone();
    let before = processor_seconds();
    for round in 0..2_000_000 {
        compare_and_swap(&store, &mut generation, random.one_of(&keys), &value);
        if round % 10_000 == 0 {
            store.chain.lead_once().expect("no failure");
            forget_old(&store);
        }
    }
    let seconds = processor_seconds() - before;
    let generations = store.chain.begin(&epoch::pin()).generation();
    println!("one thread, uniform, {generations} generations: {:.0} ns a commit", seconds * 500.0);
}

/// What this thread has used so far, from Linux's `/proc`.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).expect("nanoseconds") / 1e9
}

fn buffered(threads: u64, keys: u64) -> f64 {
    let store = on(Nowhere);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let start = Instant::now();
    let done: u64 = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (store, stop) = (&store, &stop);
                scope.spawn(move || {
                    let mut random = Random(thread + 1);
                    let value = Bytes::from(vec![7u8; 256]);
                    let keys: Vec<_> = (0..keys).map(|key| user(format!("{key:06}"))).collect();
                    let mut generation = lock(&store.world.generations)[0].clone();
                    let mut done = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let key = random.one_of(&keys);
                        compare_and_swap(store, &mut generation, key, &value);
                        done += 1;
                    }
                    done
                })
            })
            .collect();
        scope.spawn(|| {
            while start.elapsed() < Duration::from_millis(700) {
                thread::sleep(Duration::from_millis(20));
                store.chain.lead_once().expect("no failure");
                forget_old(&store);
            }
            stop.store(true, Ordering::Relaxed);
        });
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
    });
    done as f64 / start.elapsed().as_secs_f64()
}

#[test]
#[ignore = "a measurement"]
fn speed_durable() {
    let store = on(Pages::new());
    let mut raw = Pages::new();
    let value = Bytes::from(vec![7u8; 256]);
    let keys: Vec<_> = (0..100_000).map(|key| user(format!("{key:06}"))).collect();
    let mut random = Random(3);
    let mut generation = lock(&store.world.generations)[0].clone();
    for window in [1u32, 64] {
        let mut ratios = Vec::new();
        let mut rates = Vec::new();
        for _ in 0..15 {
            let mut commits = |rounds: usize| {
                for _ in 0..rounds {
                    for _ in 0..window {
                        let key = random.one_of(&keys);
                        compare_and_swap(&store, &mut generation, key, &value);
                    }
                    store.chain.wait_durable(store.chain.applied()).expect("no failure");
                }
                forget_old(&store);
            };
            let begin = Instant::now();
            commits(600);
            let ours = begin.elapsed();
            let begin = Instant::now();
            for _ in 0..600 {
                for _ in 0..window {
                    raw.buffer.extend_from_slice(&value);
                    raw.buffer.extend_from_slice(&value[..36]);
                }
                raw.write();
            }
            ratios.push(begin.elapsed().as_secs_f64() / ours.as_secs_f64());
            rates.push(600.0 * f64::from(window) / ours.as_secs_f64());
        }
        ratios.sort_by(f64::total_cmp);
        rates.sort_by(f64::total_cmp);
        println!(
            "durable, 1 thread, {window} tickets: {:.0} commits/s, {:.2} of raw ({:.2} to {:.2})",
            rates[7], ratios[7], ratios[1], ratios[13]
        );
    }
}
