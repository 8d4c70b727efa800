//! `bench`: what the store does here, on this disk, for a few seconds.
//!
//! Short and honest: commits are durable unless `--buffered` is given, and beside them stands what one sync of a page
//! costs without any store. `benches/` of the source has the measurements that are worth comparing.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use annals::{Durability, LeaseGrantRequest, Outcome as Ordered, Store};
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output::Output;

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(
    after_help = "The store is a new one, in -C DIR, which must be absent or empty, and is kept; without -C in the
current directory, and removed at the end. put and cas write keys picked at random; cas expects
the revision it wrote last. get and range read keys that are in memory and in files; range takes
100. watch: one thread puts, and all others watch; its times are from the call of put until the
change is told. lease renews one of 1000 leases. sync_micros: what writing a page and syncing it
takes on this disk, without a store: a durable commit of one thread cannot be faster.

Examples:
  $ annals bench put --seconds 0.1
  $ annals bench put --seconds 0.1 --threads 8 --buffered
  $ annals bench cas --seconds 0.1
  $ annals bench get --seconds 0.1 --keys 1000
  $ annals bench range --seconds 0.1 --keys 1000
  $ annals bench watch --seconds 0.1 --threads 3
  $ annals -C benched bench lease --seconds 0.1 --json"
)]
pub(crate) struct BenchArgs {
    /// What to measure.
    #[arg(value_enum, value_name = "WHAT")]
    what: What,
    /// For how long.
    #[arg(long, value_name = "S", default_value = "3", value_parser = parse_seconds)]
    seconds: Duration,
    /// How many threads.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// How many keys.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    keys: u32,
    /// How long the values are.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(8..=1_000_000))]
    value_bytes: u32,
    /// Acknowledge commits before they are durable.
    #[arg(long)]
    buffered: bool,
}

impl BenchArgs {
    /// How many threads there are: of a watch the first one writes.
    fn threads(&self) -> u16 {
        if self.what == What::Watch { self.threads.max(2) } else { self.threads }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Commits that put a key.
    Put,
    /// Commits that put a key if its revision is the one expected.
    Cas,
    /// Reads of a key.
    Get,
    /// Reads of 100 keys in a row.
    Range,
    /// How soon changes are told.
    Watch,
    /// Renewals of leases.
    Lease,
}

/// Keys that a range takes.
const RANGE_KEYS: u32 = 100;

/// Leases that are renewed.
const LEASES: i64 = 1000;

/// Times that are kept of a thread.
const TIMES_MAX: usize = 1 << 22;

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected seconds, such as 3 or 0.5")?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if (0.01..=3600.0).contains(&seconds) => Ok(time),
        _ => Err("a bench takes 0.01 to 3600 seconds".into()),
    }
}

fn key(number: u32) -> String {
    format!("/bench/{number:08}")
}

/// Numbers that are spread well, and the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 % u64::from(bound.max(1))).unwrap_or(0)
    }
}

/// What a thread did.
#[derive(Debug, Default)]
struct Times {
    count: u64,
    nanos: Vec<u64>,
}

impl Times {
    fn note(&mut self, time: Duration) {
        self.count += 1;
        if self.nanos.len() < TIMES_MAX {
            self.nanos.push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        }
    }
}

/// What the threads of a bench have in common.
struct Bench<'a> {
    args: &'a BenchArgs,
    store: &'a Store,
    stop: &'a AtomicBool,
    /// When the value with a number was put, in nanoseconds since `begun`.
    put_at: Vec<AtomicU64>,
    begun: Instant,
}

/// `bench`: a few seconds of work, and what it took.
pub(crate) fn bench(global: &Global, args: &BenchArgs, out: &mut Output) -> Outcome {
    let temporary = match &global.data {
        Some(_) => None,
        // Not where temporary files go: that is often memory.
        None => {
            Some(tempfile::tempdir_in(".").map_err(|e| Failure::io("the current directory", e))?)
        }
    };
    let data = match (&global.data, &temporary) {
        (Some(data), _) => data.clone(),
        (None, Some(temporary)) => temporary.path().join("store"),
        (None, None) => return Ok(()),
    };
    let is_empty = std::fs::read_dir(&data).map_or(true, |mut entries| entries.next().is_none());
    if !is_empty {
        let data = data.display();
        return Err(Failure::Other(format!(
            "{data}: there is something in it: give another directory, or no -C"
        )));
    }
    let options = global.engine_options()?;
    let durability = if args.buffered { Durability::Buffered } else { Durability::Sync };
    let store = options.durability(durability).open(&data)?;
    prepare(&store, args)?;
    let sync = sync_nanos(&data)?;
    let before = store.stats();
    let stop = AtomicBool::new(false);
    let put_at = std::iter::repeat_with(AtomicU64::default).take(1 << 20).collect();
    let bench = Bench { args, store: &store, stop: &stop, put_at, begun: Instant::now() };
    let times = run(&bench)?;
    let elapsed = bench.begun.elapsed();
    let after = store.stats();
    let batches = after.batches - before.batches;
    let transactions = after.batch_transactions - before.batch_transactions;
    store.close()?;
    let count: u64 = times.iter().map(|times| times.count).sum();
    let mut nanos: Vec<u64> = times.into_iter().flat_map(|times| times.nanos).collect();
    nanos.sort_unstable();
    let at = |part: usize| {
        let index = (nanos.len().saturating_sub(1)) * part / 1000;
        nanos.get(index).map(|nanos| micros(*nanos))
    };
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = (count as f64 / elapsed.as_secs_f64()).round();
    out.object(&json!({
        "what": format!("{:?}", args.what).to_lowercase(),
        "durability": if args.buffered { "buffered" } else { "sync" },
        "threads": args.threads(),
        "keys": args.keys,
        "value_bytes": args.value_bytes,
        "seconds": elapsed.as_secs_f64(),
        "count": count,
        "per_second": rate,
        "p50_micros": at(500),
        "p99_micros": at(990),
        "max_micros": at(1000),
        "syncs": batches,
        "transactions": transactions,
        "sync_micros": micros(sync),
    }))
}

/// Microseconds, to a tenth.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn micros(nanos: u64) -> f64 {
    (nanos as f64 / 100.0).round() / 10.0
}

/// What the bench finds in the store.
fn prepare(store: &Store, args: &BenchArgs) -> Outcome {
    let value = vec![b'x'; args.value_bytes as usize];
    match args.what {
        What::Put | What::Cas | What::Watch => {}
        What::Get | What::Range => {
            let mut last = None;
            for number in 0..args.keys {
                last = Some(store.submit(annals::TxnRequest {
                    success: vec![annals::put(key(number), value.clone())],
                    ..annals::TxnRequest::default()
                })?);
                // Half of them in files, the others in memory.
                if number == args.keys / 2 {
                    store.reorganise()?;
                }
            }
            if let Some(ticket) = last {
                ticket.wait()?;
            }
        }
        What::Lease => {
            for id in 1..=LEASES {
                store.lease_grant_with(LeaseGrantRequest {
                    ttl_min: 1,
                    ..LeaseGrantRequest::new(id, 3600)
                })?;
            }
        }
    }
    Ok(())
}

/// What it takes to write a page and sync it: the middle of some.
fn sync_nanos(data: &Path) -> Outcome<u64> {
    const ROUNDS: usize = 21;
    let path = data.join("bench.sync");
    let failed = |error| Failure::io(path.display().to_string(), error);
    let mut file = File::create_new(&path).map_err(failed)?;
    let mut nanos = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        file.write_all(&[b'x'; 4096]).and_then(|()| file.sync_data()).map_err(failed)?;
        nanos.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    std::fs::remove_file(&path).map_err(failed)?;
    nanos.sort_unstable();
    Ok(nanos.get(ROUNDS / 2).copied().unwrap_or(0))
}

/// Lets the threads work for the time given.
fn run(bench: &Bench<'_>) -> Outcome<Vec<Times>> {
    let threads = bench.args.threads();
    thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|number| scope.spawn(move || work(bench, number))).collect();
        thread::sleep(bench.args.seconds);
        bench.stop.store(true, Ordering::Relaxed);
        workers
            .into_iter()
            .map(|worker| {
                let panicked = |_| Failure::Other("a thread of the bench panicked".into());
                worker.join().map_err(panicked)?
            })
            .collect()
    })
}

fn work(bench: &Bench<'_>, number: u16) -> Outcome<Times> {
    let Bench { args, store, stop, .. } = *bench;
    let mut times = Times::default();
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (u64::from(number) + 1));
    let value = vec![b'x'; args.value_bytes as usize];
    if args.what == What::Watch {
        return if number == 0 { write_for_watches(bench, &value) } else { watch(bench) };
    }
    // A thread swaps keys of its own: how others get in the way is another question.
    let mut revisions =
        vec![0_u64; (args.keys / u32::from(args.threads)).clamp(1, 1 << 16) as usize];
    while !stop.load(Ordering::Relaxed) {
        let picked = random.below(args.keys);
        let begun = Instant::now();
        match args.what {
            What::Put => drop(store.put(key(picked), &value)?),
            What::Cas => {
                let own = random.below(u32::try_from(revisions.len()).unwrap_or(1));
                let name = format!("/bench/{number}/{own}");
                if let Some(revision) = revisions.get_mut(own as usize)
                    && let Ordered::Committed { revision: now } =
                        store.compare_and_put(name, *revision, &value)?
                {
                    *revision = now;
                }
            }
            What::Get => drop(store.get(key(picked))?),
            What::Range => {
                let range = key(picked)..key(picked.saturating_add(RANGE_KEYS));
                for kv in store.latest()?.range(range) {
                    kv?;
                }
            }
            What::Lease => drop(store.lease_keep_alive(i64::from(picked) % LEASES + 1)?),
            What::Watch => {}
        }
        times.note(begun.elapsed());
    }
    Ok(times)
}

/// Puts values that say when they were put.
fn write_for_watches(bench: &Bench<'_>, value: &[u8]) -> Outcome<Times> {
    let mut value = value.to_vec();
    let mut number = 0_u64;
    while !bench.stop.load(Ordering::Relaxed) {
        if let Some(bytes) = value.first_chunk_mut() {
            *bytes = number.to_le_bytes();
        }
        let slot = usize::try_from(number).unwrap_or(0) % bench.put_at.len();
        if let Some(at) = bench.put_at.get(slot) {
            let nanos = u64::try_from(bench.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            at.store(nanos, Ordering::Relaxed);
        }
        bench.store.put(key(0), &value)?;
        number += 1;
    }
    Ok(Times::default())
}

/// Watches, and notes how long after the put each change came.
fn watch(bench: &Bench<'_>) -> Outcome<Times> {
    let mut times = Times::default();
    let mut watch = bench.store.watch(key(0)).start()?;
    while !bench.stop.load(Ordering::Relaxed) {
        let Some(batch) = watch.next_timeout(Duration::from_millis(20)) else { continue };
        let batch = batch?;
        let now = u64::try_from(bench.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        for event in batch.events() {
            let Some(number) = event.kv.value.first_chunk() else { continue };
            let slot =
                usize::try_from(u64::from_le_bytes(*number)).unwrap_or(0) % bench.put_at.len();
            let put = bench.put_at.get(slot).map_or(now, |at| at.load(Ordering::Relaxed));
            times.note(Duration::from_nanos(now.saturating_sub(put)));
        }
    }
    Ok(times)
}
