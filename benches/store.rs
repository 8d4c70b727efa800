//! One operation at a time: put, compare-and-swap, get, get at an old revision, scan, scan at an old
//! revision, count, flush, open; each beside a bare loop that does the least the machine could do.
//!
//! `cargo bench` measures, `cargo bench -- get` only what is named so. The other stores, and the table
//! of ratios to them and to bare loops measured in turns with annals, are in `benches/peers`, a crate
//! of its own so that nothing else builds them. Directories are made below the target directory, so
//! that syncs reach the disk that builds do, not a memory file system.
#![expect(clippy::expect_used, reason = "a bench that cannot do its work has nothing to measure")]

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use annals::{Durability, Options, Store, Ticket, mod_revision, put};
use criterion::{BatchSize, Criterion, Throughput, criterion_group};

/// Bytes of a value.
const VALUE_BYTES: usize = 256;
/// Keys of the store that is read.
const KEYS: u64 = 4_000;
/// Versions of each of its keys.
const VERSIONS: u64 = 50;
/// Commits that are outstanding at a time.
const WINDOW: u64 = 64;
/// Keys of the store whose keys are counted.
const COUNTED: u64 = 100_000;
/// Keys of one scan.
const SCAN: u64 = 1_000;

fn key(number: u64) -> Vec<u8> {
    format!("/registry/pods/ns-{:03}/pod-{number:06}", number / 1000).into_bytes()
}

/// A value of which half is noise.
fn value(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut out: Vec<u8> = (0..VALUE_BYTES / 16).flat_map(|_| noise()).collect();
    out.resize(VALUE_BYTES, b'.');
    out
}

/// Numbers below `bound`, one after the other, without order.
fn mixed(counter: &mut u64, bound: u64) -> u64 {
    *counter += 1;
    counter.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) % bound
}

/// A fresh directory, removed when dropped.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let dir = parent.join(format!("bench-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a directory");
        Self(dir)
    }

    fn store(&self, durability: Durability) -> Store {
        Options::new().durability(durability).open(&self.0).expect("a store")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A zero-filled file that records are written to and synced, round and round.
struct BareLog {
    file: File,
    at: u64,
}

impl BareLog {
    const BYTES: u64 = 32 << 20;

    fn new(dir: &Dir) -> Self {
        let file = File::create(dir.0.join("bare")).expect("a file");
        let zeros = vec![0; 1 << 20];
        for at in (0..Self::BYTES).step_by(zeros.len()) {
            file.write_all_at(&zeros, at).expect("a write");
        }
        file.sync_all().expect("a sync");
        Self { file, at: 0 }
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.at + bytes.len() as u64 > Self::BYTES {
            self.at = 0;
        }
        self.file.write_all_at(bytes, self.at).expect("a write");
        self.file.sync_data().expect("a sync");
        self.at += bytes.len() as u64;
    }
}

/// The bytes of one commit.
fn record() -> Vec<u8> {
    [key(0), value(0)].concat()
}

fn puts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("put");
    let (dir, bare_dir) = (Dir::new("put"), Dir::new("put-bare"));
    let (store, record, bytes) = (dir.store(Durability::Sync), record(), value(1));
    let (mut log, mut counter) = (BareLog::new(&bare_dir), 0);
    group.throughput(Throughput::Elements(1));
    group.bench_function("durable", |b| {
        b.iter(|| store.put(key(mixed(&mut counter, KEYS)), &bytes).expect("a put"));
    });
    group.bench_function("durable/bare pwrite+fdatasync", |b| b.iter(|| log.append(&record)));
    group.throughput(Throughput::Elements(WINDOW));
    group.bench_function("durable, 64 tickets", |b| {
        b.iter(|| {
            let submit = |_| {
                let put = put(key(mixed(&mut counter, KEYS)), &bytes);
                store.txn().then([put]).submit().expect("a ticket")
            };
            let tickets: Vec<Ticket> = (0..WINDOW).map(submit).collect();
            for ticket in tickets {
                ticket.wait().expect("a wait");
            }
        });
    });
    let window = record.repeat(usize::try_from(WINDOW).expect("64"));
    group.bench_function("durable, 64 tickets/bare pwrite+fdatasync", |b| {
        b.iter(|| log.append(&window));
    });
    store.close().expect("a close");
    let dir = Dir::new("put-buffered");
    let store = dir.store(Durability::Buffered);
    group.throughput(Throughput::Elements(1));
    group.bench_function("buffered", |b| {
        b.iter(|| store.put(key(mixed(&mut counter, KEYS)), &bytes).expect("a put"));
    });
    store.close().expect("a close");
    group.finish();
}

fn compare_and_swaps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cas");
    group.throughput(Throughput::Elements(1));
    for (name, durability) in [("durable", Durability::Sync), ("buffered", Durability::Buffered)] {
        let dir = Dir::new(&format!("cas-{name}"));
        let (store, bytes, mut counter) = (dir.store(durability), value(1), 0);
        let mut seen: HashMap<u64, u64> = HashMap::new();
        group.bench_function(name, |b| {
            b.iter(|| {
                let number = mixed(&mut counter, KEYS);
                let (key, seen) = (key(number), seen.entry(number).or_default());
                let txn = store.txn().when([mod_revision(&key).eq(*seen)]);
                let answer = txn.then([put(&key, &bytes)]).commit().expect("a commit");
                assert!(answer.succeeded);
                *seen = answer.revision;
            });
        });
        store.close().expect("a close");
    }
    let mut map: HashMap<Vec<u8>, (u64, Vec<u8>)> = HashMap::new();
    let (bytes, mut counter, mut revision) = (value(1), 0, 1);
    group.bench_function("buffered/bare hash table", |b| {
        b.iter(|| {
            let entry = map.entry(key(mixed(&mut counter, KEYS))).or_default();
            revision += 1;
            *entry = (revision, bytes.clone());
        });
    });
    group.finish();
}

/// A store of [`KEYS`] keys with [`VERSIONS`] versions each, all of them in segments.
fn history(dir: &Dir) -> Store {
    let store = dir.store(Durability::Buffered);
    for version in 0..VERSIONS {
        for number in 0..KEYS {
            let txn = store.txn().then([put(key(number), value(version << 32 | number))]);
            let _ticket = txn.submit().expect("a ticket");
        }
        store.flush().expect("a flush");
    }
    store.reorganise().expect("a reorganisation");
    store
}

fn reads(criterion: &mut Criterion) {
    let dir = Dir::new("reads");
    let store = history(&dir);
    let newest: HashMap<Vec<u8>, Vec<u8>> = (0..KEYS).map(|n| (key(n), value(n))).collect();
    let sorted: BTreeMap<Vec<u8>, Vec<u8>> = newest.clone().into_iter().collect();
    let (mut counter, last) = (0, store.revision());
    let old = |counter: &mut u64| KEYS + 1 + mixed(counter, last - KEYS);

    let mut group = criterion.benchmark_group("get");
    group.throughput(Throughput::Elements(1));
    group.bench_function("latest", |b| {
        b.iter(|| store.get(key(mixed(&mut counter, KEYS))).expect("a get").expect("there"));
    });
    group.bench_function("latest/bare hash table", |b| {
        b.iter(|| black_box(newest.get(&key(mixed(&mut counter, KEYS)))));
    });
    group.bench_function("at an old revision", |b| {
        b.iter(|| {
            let view = store.at(old(&mut counter)).expect("a view");
            view.get(key(mixed(&mut counter, KEYS))).expect("a get").expect("there")
        });
    });
    group.finish();

    let mut group = criterion.benchmark_group("scan");
    group.throughput(Throughput::Elements(SCAN));
    let scan = |view: &annals::View, counter: &mut u64| {
        let from = key(mixed(counter, KEYS - SCAN));
        let found = view.range(from..).limit(SCAN).map(|kv| kv.expect("a scan").value.len());
        assert_eq!(found.sum::<usize>() as u64, SCAN * VALUE_BYTES as u64);
    };
    group.bench_function("latest", |b| {
        b.iter(|| scan(&store.latest().expect("a view"), &mut counter));
    });
    group.bench_function("latest/bare sorted map", |b| {
        b.iter(|| {
            let from = key(mixed(&mut counter, KEYS - SCAN));
            let values = sorted.range(from..).map(|(_, value)| value.len());
            values.take(usize::try_from(SCAN).expect("small")).sum::<usize>()
        });
    });
    group.bench_function("at an old revision", |b| {
        b.iter(|| scan(&store.at(old(&mut counter)).expect("a view"), &mut counter));
    });
    group.finish();
    store.close().expect("a close");
}

/// How many keys live in a range, beside a walk over them.
fn counts(criterion: &mut Criterion) {
    let dir = Dir::new("counts");
    let store = dir.store(Durability::Buffered);
    for number in 0..COUNTED {
        let txn = store.txn().then([put(key(number), value(number))]);
        let _ticket = txn.submit().expect("a ticket");
    }
    store.reorganise().expect("a reorganisation");
    let range = || key(1)..key(COUNTED - 1);
    let mut group = criterion.benchmark_group("count");
    group.throughput(Throughput::Elements(COUNTED - 2));
    group.bench_function("100,000 keys", |b| {
        b.iter(|| store.latest().expect("a view").count(range()).expect("a count"));
    });
    group.bench_function("100,000 keys/a walk over them", |b| {
        b.iter(|| store.latest().expect("a view").range(range()).keys_only().count());
    });
    // What is in memory is walked.
    for number in 0..COUNTED / 10 {
        let txn = store.txn().then([put(key(number * 10), value(number))]);
        let _ticket = txn.submit().expect("a ticket");
    }
    group.bench_function("100,000 keys, a tenth in memory", |b| {
        b.iter(|| store.latest().expect("a view").count(range()).expect("a count"));
    });
    group.finish();
    store.close().expect("a close");
}

/// What `flush` costs after a number of buffered commits, and a full memtable's way to segments.
fn flushes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("flush");
    group.sample_size(20);
    let dir = Dir::new("flush");
    let store = Options::new()
        .durability(Durability::Buffered)
        .background(false)
        .memtable_bytes(4 << 20)
        .open(&dir.0)
        .expect("a store");
    let (bytes, mut counter) = (value(1), 0);
    let mut write = |count: u64| {
        for _ in 0..count {
            store.put(key(mixed(&mut counter, KEYS)), &bytes).expect("a put");
        }
    };
    group.throughput(Throughput::Elements(1_000));
    group.bench_function("1000 buffered puts to the log", |b| {
        b.iter_custom(|rounds| {
            let mut busy = Duration::ZERO;
            for _ in 0..rounds {
                write(1_000);
                let started = Instant::now();
                store.flush().expect("a flush");
                busy += started.elapsed();
            }
            busy
        });
    });
    group.throughput(Throughput::Elements(10_000));
    group.bench_function("10,000 puts to segments", |b| {
        b.iter_custom(|rounds| {
            let mut busy = Duration::ZERO;
            for _ in 0..rounds {
                write(10_000);
                store.flush().expect("a flush");
                let started = Instant::now();
                while store.run_background().expect("background work") {}
                busy += started.elapsed();
            }
            busy
        });
    });
    store.close().expect("a close");
    group.finish();
}

fn opens(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("open");
    group.sample_size(20);
    let dir = Dir::new("open");
    history(&dir).close().expect("a close");
    group.bench_function("after a close, with a get", |b| {
        b.iter_batched(
            || (),
            |()| {
                let store = dir.store(Durability::Sync);
                store.get(key(7)).expect("a get").expect("there");
                store.close().expect("a close");
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("for reading only, with a get", |b| {
        b.iter(|| {
            let store = Store::open_read_only(&dir.0).expect("a store");
            store.get(key(7)).expect("a get").expect("there")
        });
    });
    group.bench_function("bare: list the directory, read the manifest", |b| {
        b.iter(|| {
            let entries = fs::read_dir(&dir.0).expect("a directory");
            let paths = entries.map(|entry| entry.expect("an entry").path());
            let files = paths.filter(|path| path.is_file());
            files.map(|path| fs::read(path).expect("a file").len()).sum::<usize>()
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(30);
    targets = puts, compare_and_swaps, reads, counts, flushes, opens
}

/// As `criterion_main` has it, and a word about what is not here.
fn main() {
    benches();
    Criterion::default().configure_from_args().final_summary();
    eprintln!(
        "\nThe ratios to bare loops and to other stores, grouped and not, with the targets of the \
         commit path:\n  cargo run --release --manifest-path benches/peers/Cargo.toml -- --help"
    );
}
