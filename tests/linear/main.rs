//! Recorded histories of clients that write, compare, delete and read the same few keys at once are
//! linearizable: see `checker` for what that means and why the check is exact.
//!
//! | file | job |
//! | --- | --- |
//! | `history` | what is recorded, in words of this test's own |
//! | `generate` | what the clients ask for |
//! | `clients` | asks a store, and notes what it answers and when |
//! | `model` | what must be answered, as plainly as possible |
//! | `checker` | whether a history is linearizable |
//! | `wrong` | that histories which are not are rejected, and no others |
//!
//! Not in these histories is a commit of a `Sync` store that asks for `Buffered`: it is acknowledged
//! before readers see it, as `Durability` says, and so not linearizable with them.
//!
//! `ANNALS_LINEAR_HISTORIES=n` checks `n` histories instead of 50. `ANNALS_TEST_SEED=n` runs one
//! seed alone: the same requests on the same options; how the threads come upon each other is up to the
//! machine.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    missing_docs,
    reason = "tests fail by panicking and tell how much they did"
)]

mod checker;
mod clients;
mod generate;
mod history;
mod model;
#[path = "../support/random.rs"]
mod random;
#[path = "../support/watchdog.rs"]
mod watchdog;
mod wrong;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annals::clock::{Clock, SystemClock};
use annals::vfs::{CrashMode, MemoryVfs};
use annals::{Durability, Options, ReadMode, Stats, Store};

use checker::Checked;
use clients::Client;
use generate::Source;
use history::{Answer, Found, KEYS_MAX, Key, Operation, Request, Span, Step};

const CLIENTS: usize = 8;
const EACH: usize = 5_000;
const HISTORIES: u64 = 50;

#[test]
fn concurrent_histories_are_linearizable() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seeds = match number("ANNALS_TEST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ANNALS_LINEAR_HISTORIES").unwrap_or(HISTORIES),
    };
    let watchdog = watchdog::Watchdog::new(Duration::from_secs(180));
    let mut total = Total::default();
    for seed in seeds.clone() {
        let setting = Setting::of(seed);
        println!("ANNALS_TEST_SEED={seed}: {setting:?}");
        watchdog.begin(format!("ANNALS_TEST_SEED={seed}"));
        let run = run(&setting);
        let checked = checker::check(&run.history)
            .unwrap_or_else(|wrong| panic!("ANNALS_TEST_SEED={seed}: {wrong}\n{setting:?}"));
        if let Some(image) = &run.image {
            survives(image, &run.history, &checked, &setting);
        }
        total.add(&setting, &run, &checked);
    }
    println!("{total:?}");
    total.enough(seeds.end - seeds.start);
}

/// How one history comes about.
#[derive(Clone, Debug)]
struct Setting {
    seed: u64,
    durability: Durability,
    background: bool,
    compacts: bool,
    keys: Key,
    /// Transactions that each client has under way at most.
    window: usize,
    memtable_bytes: u64,
    read_mode: ReadMode,
}

impl Setting {
    fn of(seed: u64) -> Self {
        let pick = |by: u64, of: usize| usize::try_from(seed / by).expect("small") % of;
        Self {
            seed,
            durability: [Durability::Sync, Durability::Buffered][pick(1, 2)],
            background: pick(2, 3) != 1,
            compacts: pick(2, 2) == 1,
            keys: [8, 4, KEYS_MAX][pick(4, 3)],
            window: [1, 4][pick(4, 2)],
            memtable_bytes: [64 << 10, 256 << 10, 32 << 10][pick(8, 3)],
            read_mode: [ReadMode::Mmap, ReadMode::Pread][pick(6, 2)],
        }
    }

    fn options(&self, disk: &MemoryVfs) -> Options {
        Options::new()
            .vfs(Arc::new(disk.clone()))
            .durability(self.durability)
            .background(self.background)
            .memtable_bytes(self.memtable_bytes)
            .wal_bytes(256 << 10)
            .segment_bytes(16 << 10)
            .block_bytes(1 << 10)
            .history_block_bytes(4 << 10)
            .read_mode(self.read_mode)
            .store_id_seed(self.seed)
    }
}

/// What came of it.
struct Run {
    history: Vec<Operation>,
    stats: Stats,
    image: Option<Image>,
}

/// The disk after a power cut at a moment of the run, and that moment.
struct Image {
    disk: MemoryVfs,
    at: u64,
}

/// A clock that often lets another thread go on: it is asked for the time of a commit between its
/// evaluation and its place in the order, where others coming in between are what matters.
#[derive(Debug)]
struct Yielding {
    clock: SystemClock,
    calls: AtomicU64,
}

impl Clock for Yielding {
    fn now_micros(&self) -> i64 {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if random::Random::new(call).one_in(4) {
            std::thread::yield_now();
        }
        self.clock.now_micros()
    }

    fn elapsed_micros(&self) -> i64 {
        self.clock.elapsed_micros()
    }
}

fn run(setting: &Setting) -> Run {
    let disk = MemoryVfs::new();
    let clock = Yielding { clock: SystemClock::new(), calls: AtomicU64::new(setting.seed) };
    let options = setting.options(&disk).clock(Arc::new(clock));
    let store = options.open("store").expect("a fresh store");
    let time = AtomicU64::new(1);
    let sync = setting.durability == Durability::Sync;
    let client = |number, window| Client { store: &store, clock: &time, number, window, sync };
    let source = |number| Source::new(setting.seed, number, setting.keys, setting.compacts);
    let cut_at = random::Random::new(setting.seed).index(EACH);
    let mut image = None;
    let mut history = Vec::with_capacity(CLIENTS * EACH + 1);
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..CLIENTS)
            .map(|number| {
                let (client, source) = (client(number, setting.window), source(number));
                scope.spawn(move || client.run(source, EACH, |_, _| ()))
            })
            .collect();
        let cut = |_: &Operation, done: usize| {
            if sync && done == cut_at {
                // First the time: what had answered by then must be there.
                let at = time.load(Ordering::SeqCst);
                image = Some(Image { disk: disk.crash(setting.seed, CrashMode::LoseAll), at });
            }
        };
        history.extend(client(0, setting.window).run(source(0), EACH, cut));
        for other in others {
            history.extend(other.join().expect("a client does not panic"));
        }
    });
    // Everything has answered: this shows all of it.
    history.push(client(CLIENTS, 1).perform(Request::Latest(Span { from: 0, to: KEYS_MAX })));
    let stats = store.stats();
    store.close().expect("a clean close");
    Run { history, stats, image }
}

/// Opens the image of a `Sync` store: it holds what any answer had shown when it was taken.
fn survives(image: &Image, history: &[Operation], checked: &Checked, setting: &Setting) {
    let store: Store = setting
        .options(&image.disk)
        .background(false)
        .open("store")
        .unwrap_or_else(|error| panic!("after a power cut: {error}\n{setting:?}"));
    let view = store.latest().expect("a view");
    let found: Result<Vec<_>, _> =
        view.range(..).map(|kv| clients::kv(&kv.expect("a readable key"))).collect();
    let revision = view.revision();
    assert_eq!(
        found.expect("key-values of this test"),
        checked.model.span(Span { from: 0, to: KEYS_MAX }, revision),
        "after a power cut, at revision {revision}\n{setting:?}"
    );
    for (operation, shown) in history.iter().zip(&checked.revisions) {
        assert!(
            operation.answered >= image.at || *shown <= revision,
            "{operation:?} has shown revision {shown}, and after a power cut at {} the store is \
             back at {revision}\n{setting:?}",
            image.at
        );
    }
}

/// What all histories were about: that the check was not an empty one.
#[derive(Debug, Default)]
struct Total {
    operations: usize,
    changes: usize,
    /// Compare-and-swaps and the like that went the one way, and the other.
    succeeded: usize,
    failed: usize,
    /// Of these, those whose other branch changed something.
    failed_and_changed: usize,
    several_keys: usize,
    several_deleted: usize,
    refused: usize,
    compactions: usize,
    /// See [`Checked`].
    concurrent: usize,
    contended: usize,
    /// Evaluations repeated, memtables flushed, folds.
    conflicts: u64,
    flushes: u64,
    folds: u64,
    images: usize,
}

impl Total {
    fn add(&mut self, setting: &Setting, run: &Run, checked: &Checked) {
        self.operations += run.history.len();
        for operation in &run.history {
            self.changes += usize::from(operation.changed_at().is_some());
            match (&operation.request, &operation.answer) {
                (Request::Txn(txn), Answer::Txn { changed, succeeded, found, .. }) => {
                    if *succeeded {
                        self.succeeded += usize::from(!txn.compare.is_empty());
                    } else {
                        self.failed += 1;
                        self.failed_and_changed += usize::from(*changed);
                    }
                    let puts = found.iter().filter(|found| matches!(found, Found::Put { .. }));
                    self.several_keys += usize::from(puts.count() > 1);
                }
                (
                    Request::Step(Step::Delete { .. }),
                    Answer::Step(Found::Delete { deleted, .. }),
                ) => {
                    self.several_deleted += usize::from(*deleted > 1);
                }
                (_, Answer::Refused(_)) => self.refused += 1,
                (_, Answer::Compacted { .. }) => self.compactions += 1,
                _ => {}
            }
        }
        let concurrent = checked.concurrent;
        assert!(
            concurrent > run.history.len() / 20,
            "only {concurrent} operations with a change under way meanwhile\n{setting:?}"
        );
        assert!(run.stats.flushes > 0, "no memtable was flushed\n{setting:?}");
        self.concurrent += concurrent;
        self.contended += checked.contended;
        self.conflicts += run.stats.conflicts;
        self.flushes += run.stats.flushes;
        self.folds += run.stats.folds;
        self.images += usize::from(run.image.is_some());
    }

    fn enough(&self, histories: u64) {
        let histories = usize::try_from(histories).expect("small");
        assert_eq!(self.operations, histories * (CLIENTS * EACH + 1));
        let each = |what: usize| what / histories;
        assert!(each(self.changes) > 10_000, "changes");
        assert!(each(self.succeeded) > 2_000 && each(self.failed) > 2_000, "comparisons");
        assert!(each(self.failed_and_changed) > 500, "other branches");
        assert!(each(self.several_keys) > 500 && each(self.several_deleted) > 200, "several keys");
        assert!(each(self.refused) > 5, "refusals");
        assert!(each(self.contended) > 200, "changes of the same keys at the same time");
        assert!(self.conflicts > 0 && self.flushes > 0, "conflicts and flushes");
        if histories >= 12 {
            assert!(self.compactions > 100 && self.folds > 0 && self.images > 0, "all settings");
        }
    }
}
