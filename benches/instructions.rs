//! How many machine instructions one operation takes, counted by valgrind's callgrind.
//!
//! `cargo bench --bench instructions` prints a table; `-- cas` only what is named so. Unlike times the
//! counts come out nearly the same on any machine, also on a busy one, so a change of one in a hundred
//! shows. They say where work is, not how long it takes: a cache miss is one instruction, too.
//!
//! The program runs itself under valgrind, each operation two times with different numbers of
//! repetitions; the difference is what the repetitions cost, free of opening. Their bytes go to a real
//! file: what the system does for that is not counted.
//! Before and after the commit path was put on a diet (x86-64, 2026-11; WAL included, as it is written when
//! the store is closed):
//!
//! | operation | before | after | what went |
//! |---|---:|---:|---|
//! | put | 6,099 | 3,413 | request and plan copied the key and the value; now they borrow |
//! | cas | 11,028 | 6,423 | the same; one allocation is left beside the request's (tests/allocations.rs) |
//! | swap (`compare_and_put`) | - | 4,003 | the request itself |
//! | failed | 5,726 | 3,105 | the value was read to compare a revision |
//! | tickets | 11,300 | 6,709 | as cas |
//! | get | 1,889 | 1,588 | |
//!
//! Then gets of the newest state lost their view: get 1,581 to 877, absent 1,334 to 899, head 8,444 to 7,750;
//! and look-ups in HEAD no longer decode what they only compare: absent to 802, head to 4,537. Of that a third
//! is the two pages of the index, and a third the block. Reads of old revisions ask HISTORY first where most
//! keys have changed since, and then nothing else: old from 10,858 to 7,470, `old_pod` from
//! 24,125 to 20,363, of which half is making the keyframe from the dictionary of the file.
//!
//! Background work (`written`) took 96,400 with each put: nearly half of it was training dictionaries on all that a
//! fold had, an eighth looking for matches in random bytes. With samples chosen, and positions left out where nothing
//! matches, it is 42,000, the put included, and the files are as small as before.
//!
//! A replay of old changes was read by the cursor that also turns round, through the block cache, with memory of its
//! own for each key and value; now by a reader for it, into memory that is used again: replay from 4,131 to 2,606,
//! `replay_keys` from 3,634 to 2,404, `replay_hundred` from 2,471 to 1,205, `rewatch` from 5,798 to 4,363. 1,080 of these are zstd's (of noisier values half as many).
//!
//! Then reads of old revisions, too, were counted without a view (`get_at`): old from 7,486 to 6,957, `old_pod`
//! from 20,948 to 20,446.
//!
//! By a function: `modify` 6,085 (two evaluations, between which it is called), `update` of one key 8,850 (a view besides, and
//! what was read and is to be written, in maps); `update_ten` 56,275, where `ten`, told by comparisons, takes 42,423; a range
//! of ten keys read and one of them put 31,776.
//!
//! Instructions are not all. With 20,000 keys a swap misses a cache of 2 MiB 13.8 times (cachegrind): nine
//! are the arena's memory that it fills (576 bytes with a value of 256), the others the slot of the hash
//! table, the key and its newest version. The first write of a key after a switch to a new memtable takes
//! 18 misses and 5,700 instructions: it searches the ordered index, and looks below for the newest version.
//!
//! Of what is left of a swap, nearly a fifth is checksums (payload, header, sector), a seventh encoding the
//! frame, one in twelve copying bytes to the arena and to the log. The samples of `perf` fall where caches
//! miss: the slot of the hash table, the key, the head of its chain, and fresh memory of the arena.
//!
//! `-- --profile cas` leaves a `callgrind.out` file of one operation for `callgrind_annotate`.
#![expect(clippy::expect_used, reason = "a bench that cannot do its work has nothing to measure")]
#![expect(clippy::print_stdout, reason = "it prints a table")]

use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};

use annals::{
    Durability, KeyValue, Modified, Modify, Options, Outcome, Store, Ticket, TxnRequest, Update,
    Watch, mod_revision, put,
};

/// Keys in the store. Few, so that every one of them is in the memtable before anything is counted.
const KEYS: u64 = 1_000;
/// Keys where files are read: enough for an index of two levels.
const FOLDED_KEYS: u64 = 30_000;
const VALUE_BYTES: usize = 256;
/// Watches beside commits.
const WATCHES: u64 = 10_000;
/// Transactions whose tickets are outstanding together.
const WINDOW: u64 = 64;
/// Changes in the log where that is read.
const REPLAYED: u64 = 20_000;
/// Repetitions of the two runs.
const FEW: u64 = 1_024;
const MANY: u64 = 5_120;

type Work = fn(&Subject, u64);

/// What is counted: its name, what it is, and how it is done `n` times.
const OPERATIONS: &[(&str, &str, Work)] = &[
    ("put", "put, buffered", |subject, n| {
        for number in 0..n {
            let commit = subject.store.put(subject.key(number), &subject.value);
            black_box(commit.expect("a commit").revision);
        }
    }),
    ("watched", "the same beside 10,000 idle watches of other keys", |subject, n| {
        let watches = subject.idle_watches();
        for number in 0..n {
            let commit = subject.store.put(subject.key(number), &subject.value);
            black_box(commit.expect("a commit").revision);
        }
        // What nobody has looked at yet is not looked at for them: that is the next row.
        drop(watches);
    }),
    ("scanned", "the same, and what their hub does for each commit", |subject, n| {
        let mut watches = subject.idle_watches();
        for number in 0..n {
            let commit = subject.store.put(subject.key(number), &subject.value);
            black_box(commit.expect("a commit").revision);
        }
        assert!(watches.last_mut().expect("many").try_next().is_none());
        drop(watches);
    }),
    ("cas", "compare-and-swap of one key, buffered", |subject, n| {
        let mut seen = subject.loaded();
        for number in 0..n {
            let done = subject.cas(number, &seen).commit().expect("a commit");
            assert!(done.succeeded, "nobody else writes");
            *Subject::seen_of(&mut seen, number) = done.revision;
        }
    }),
    ("swap", "compare_and_put, buffered", |subject, n| {
        let mut seen = subject.loaded();
        for number in 0..n {
            let seen = Subject::seen_of(&mut seen, number);
            let done = subject.store.compare_and_put(subject.key(number), *seen, &subject.value);
            let Ok(Outcome::Committed { revision }) = done else { panic!("nobody else writes") };
            *seen = revision;
        }
    }),
    ("failed", "compare-and-swap that fails, buffered", |subject, n| {
        for number in 0..n {
            let key = subject.key(number);
            let txn = subject.store.txn().when([mod_revision(key).eq(1)]);
            let done = txn.then([put(key, &subject.value)]).commit().expect("an answer");
            assert!(!done.succeeded, "no key has that revision");
        }
    }),
    ("ten", "compare-and-swap of ten keys, buffered", |subject, n| {
        let mut seen = subject.loaded();
        for number in 0..n {
            let keys = || (0..10).map(|key| number * 10 + key);
            let compares: Vec<_> = keys()
                .map(|key| mod_revision(subject.key(key)).eq(*Subject::seen_of(&mut seen, key)))
                .collect();
            let puts = keys().map(|key| put(subject.key(key), &subject.value));
            let done = subject.store.txn().when(compares).then(puts).commit().expect("a commit");
            assert!(done.succeeded, "nobody else writes");
            keys().for_each(|key| *Subject::seen_of(&mut seen, key) = done.revision);
        }
    }),
    ("modify", "a key changed by what it is, buffered", |subject, n| {
        for number in 0..n {
            let put = |_: Option<&KeyValue>| Modify::put(&subject.value[..]);
            let done = subject.store.modify(subject.key(number), put);
            assert!(matches!(done, Ok(Modified::Committed { .. })), "nobody else writes");
        }
    }),
    ("update", "the same by a function of any number of keys", |subject, n| {
        for number in 0..n {
            let change = |update: &mut Update<'_>| {
                black_box(update.get(subject.key(number))?);
                update.put(subject.key(number), &subject.value)
            };
            assert!(subject.store.update(change).expect("a commit").changed);
        }
    }),
    ("update_ten", "ten keys, each read and put, so", |subject, n| {
        for number in 0..n {
            let change = |update: &mut Update<'_>| {
                (0..10).map(|key| number * 10 + key).try_for_each(|key| {
                    black_box(update.get(subject.key(key))?);
                    update.put(subject.key(key), &subject.value)
                })
            };
            assert!(subject.store.update(change).expect("a commit").changed);
        }
    }),
    ("update_range", "a range of ten keys read and one put, so", |subject, n| {
        subject.loaded();
        for number in 0..n {
            let first = number % (KEYS / 10) * 10;
            let change = |update: &mut Update<'_>| {
                let range = subject.key(first)..=subject.key(first + 9);
                assert_eq!(update.range(range)?.len(), 10, "they are there");
                update.put(subject.key(first), &subject.value)
            };
            assert!(subject.store.update(change).expect("a commit").changed);
        }
    }),
    ("tickets", "compare-and-swap of one key, durable, 64 tickets outstanding", |subject, n| {
        let mut seen = subject.loaded();
        for window in 0..n / WINDOW {
            let numbers = || window * WINDOW..(window + 1) * WINDOW;
            let tickets: Vec<Ticket> = numbers()
                .map(|number| {
                    let txn = subject.cas(number, &seen).durability(Durability::Sync);
                    txn.submit().expect("a ticket")
                })
                .collect();
            for (number, ticket) in numbers().zip(tickets) {
                let done = ticket.wait().expect("a commit");
                assert!(done.succeeded, "nobody else writes");
                *Subject::seen_of(&mut seen, number) = done.revision;
            }
        }
    }),
    ("get", "get latest, from the memtable", |subject, n| {
        for number in 0..n {
            black_box(subject.store.get(subject.key(number)).expect("an answer"));
        }
    }),
    ("head", "get latest, from a HEAD file", |subject, n| {
        for key in subject.folded().iter().cycle().take(times(n)) {
            black_box(subject.store.get(key).expect("an answer").expect("a value"));
        }
    }),
    ("absent", "get latest of a key that is not there, from a HEAD file", |subject, n| {
        let mut keys = subject.folded();
        for key in &mut keys {
            key.push(b'x');
        }
        for key in keys.iter().cycle().take(times(n)) {
            black_box(subject.store.get(key).expect("an answer"));
        }
    }),
    ("old", "get at a random revision, 100 versions a key of 256 bytes", |subject, n| {
        subject.read_old(n, half_noise);
    }),
    ("old_pod", "the same of 2 KB that change a little", |subject, n| {
        subject.read_old(n, |key, version| {
            let uid = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let part = |nth: u64| match nth % 8 {
                0 => format!(r#"{{"name":"part-{nth:02}","uid":"{:016x}"}},"#, uid.rotate_left(7) ^ nth),
                _ => format!(r#"{{"name":"part-{nth:02}","image":"registry.local/part:v1.2"}},"#),
            };
            let fixed: String = (0..40).map(part).collect();
            let (hour, minute) = (version % 24, version * 7 % 60);
            format!(
                r#"{{"version":{version:06},"node":"{key:06}",{fixed}"ready":"{hour:02}:{minute:02}"}}"#
            )
            .into_bytes()
        });
    }),
    ("written", "put of one of 20,000 keys, and all background work it makes", |_, n| {
        written(n * 20, 20_000);
    }),
    ("written_hot", "put of one key, and all background work it makes", |_, n| {
        written(n * 20, 1);
    }),
    ("replay", "replay with values, an event: one change a transaction", |subject, n| {
        subject.replay(n, 1, true);
    }),
    ("replay_keys", "the same without values", |subject, n| subject.replay(n, 1, false)),
    ("replay_hundred", "the same with values, a hundred changes a transaction", |subject, n| {
        subject.replay(n, 100, true);
    }),
    (
        "rewatch",
        "a watch from an old revision, an event: one change a transaction",
        |subject, n| {
            subject.rewatch(n);
        },
    ),
    ("request", "building the request of a compare-and-swap, without a store", |subject, n| {
        for number in 0..n {
            let key = subject.key(number);
            let request = TxnRequest::default();
            black_box(request.when([mod_revision(key).eq(1)]).then([put(key, &subject.value)]));
        }
    }),
];

/// A store with every key written once.
struct Subject {
    store: Store,
    keys: Vec<Vec<u8>>,
    value: Vec<u8>,
    first: u64,
}

impl Subject {
    fn new() -> Self {
        let options = Options::new()
            .durability(Durability::Buffered)
            .background(false)
            .memtable_bytes(256 << 20);
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("instructions");
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a directory");
        let store = options.open(&dir).expect("a store");
        let keys: Vec<Vec<u8>> = (0..KEYS).map(name).collect();
        let value = vec![b'v'; VALUE_BYTES];
        let first = store.revision() + 1;
        for key in &keys {
            store.put(key, &value).expect("a commit");
        }
        Self { store, keys, value, first }
    }

    /// Watches of keys that nobody writes.
    fn idle_watches(&self) -> Vec<Watch> {
        let watch = |n| self.store.watch(name(FOLDED_KEYS + n)).start().expect("a watch");
        (0..WATCHES).map(watch).collect()
    }

    /// Writes many more keys, moves all of them to HEAD, and gives as many as are read, in no order. Each
    /// of their blocks has been read once: its checksum is compared no more.
    fn folded(&self) -> Vec<Vec<u8>> {
        for number in KEYS..FOLDED_KEYS {
            self.store.put(name(number), &self.value).expect("a commit");
        }
        self.store.reorganise().expect("folded");
        let keys: Vec<_> = (0..FEW).map(|n| name(n * 7_919 % FOLDED_KEYS)).collect();
        for key in &keys {
            self.store.get(key).expect("an answer").expect("a value");
        }
        keys
    }

    /// Writes a hundred versions of 400 keys in turns, moves them to files, and reads them as of revisions in
    /// no order.
    fn read_old(&self, n: u64, value: impl Fn(u64, u64) -> Vec<u8>) {
        let first = self.store.revision() + 1;
        for version in 0..100 {
            for key in 0..400 {
                self.store.put(name(KEYS + key), value(key, version)).expect("a commit");
            }
        }
        self.store.reorganise().expect("folded");
        for number in 0..n {
            let revision = first + 400 + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (99 * 400);
            let key = name(KEYS + number * 7_919 % 400);
            let found = self.store.get_at(key, revision).expect("an answer");
            black_box(found.expect("a value"));
        }
    }

    /// Writes as many changes in transactions of so many, moves them to files, and answers the revision of
    /// the first.
    fn written(&self, n: u64, changes: u64) -> u64 {
        let first = self.store.revision() + 1;
        for nth in 0..n / changes {
            let numbers = nth * changes..(nth + 1) * changes;
            let puts = numbers.map(|n| put(name(KEYS + n % 400), half_noise(n % 400, n / 400)));
            self.store.txn().then(puts).commit().expect("a commit");
        }
        self.store.reorganise().expect("in files");
        first
    }

    /// Reads the log of `n` changes, written in transactions of `changes` each.
    fn replay(&self, n: u64, changes: u64, values: bool) {
        let first = self.written(REPLAYED, changes);
        let log = self.store.log(first..);
        let (mut log, mut read) = (if values { log.with_values() } else { log }, 0);
        while read < times(n) {
            let transaction = log.next().expect("more of it").expect("a transaction");
            read += transaction.changes.len();
            black_box(&transaction);
        }
    }

    /// The same by a watch, with one change a transaction.
    fn rewatch(&self, n: u64) {
        let first = self.written(REPLAYED, 1);
        let mut watch = self.store.watch("/").prefix().from(first).start().expect("a watch");
        for _ in 0..n {
            black_box(watch.try_next().expect("more of it").expect("a batch"));
        }
    }

    fn key(&self, number: u64) -> &[u8] {
        &self.keys[Self::index(number)]
    }

    fn index(number: u64) -> usize {
        usize::try_from(number % KEYS).expect("a small number")
    }

    /// The revision each key was loaded at.
    fn loaded(&self) -> Vec<u64> {
        (self.first..self.first + KEYS).collect()
    }

    fn seen_of(seen: &mut [u64], number: u64) -> &mut u64 {
        &mut seen[Self::index(number)]
    }

    fn cas(&self, number: u64, seen: &[u64]) -> annals::TxnBuilder<'_> {
        let key = self.key(number);
        let txn = self.store.txn().when([mod_revision(key).eq(seen[Self::index(number)])]);
        txn.then([put(key, &self.value)])
    }
}

/// Puts to so many keys, in no order, in a store with a small memtable, values of which half is noise, doing
/// what background work comes up.
fn written(n: u64, keys: u64) {
    let options =
        Options::new().durability(Durability::Buffered).background(false).memtable_bytes(8 << 20);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("written");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a directory");
    let store = options.open(&dir).expect("a store");
    for number in 0..n {
        let key = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % keys;
        store.put(name(key), half_noise(key, number)).expect("a commit");
        if number % 1_024 == 0 {
            while store.run_background().expect("background work") {}
        }
    }
}

/// A value of which half is noise.
fn half_noise(key: u64, version: u64) -> Vec<u8> {
    let mut value = vec![b'v'; VALUE_BYTES];
    let noise = (key << 32 | version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for (nth, part) in (0_u32..).zip(value[..VALUE_BYTES / 2].chunks_exact_mut(8)) {
        part.copy_from_slice(&noise.rotate_left(nth * 7).wrapping_mul(noise | 1).to_le_bytes());
    }
    value
}

/// The key of a number.
fn name(number: u64) -> Vec<u8> {
    format!("/registry/pods/ns-{:03}/pod-{number:06}", number / 100).into_bytes()
}

fn times(n: u64) -> usize {
    usize::try_from(n).expect("a small number")
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let named = |name: &str| OPERATIONS.iter().find(|operation| operation.0 == name);
    match &arguments[..] {
        [run, name, n] if run == "--run" => {
            let (_, _, work) = named(name).expect("an operation");
            work(&Subject::new(), n.parse().expect("a number"));
        }
        [profile, name] if profile == "--profile" && named(name).is_some() => {
            if let Some(total) = instructions(name, MANY, Path::new("callgrind.out")) {
                println!("{total} instructions; see callgrind_annotate callgrind.out");
            }
        }
        filters => table(filters),
    }
}

fn table(filters: &[String]) {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("callgrind.out");
    println!("| operation | instructions |\n|---|---:|");
    for (name, what, _) in OPERATIONS {
        if !filters.is_empty() && !filters.iter().any(|filter| filter == name) {
            continue;
        }
        let counts = (instructions(name, FEW, &out), instructions(name, MANY, &out));
        let (Some(few), Some(many)) = counts else {
            println!("\nvalgrind is needed to count instructions, and did not run");
            return;
        };
        println!("| {what} | {} |", many.saturating_sub(few) / (MANY - FEW));
    }
}

/// Instructions of a whole run of this program that does an operation `n` times.
fn instructions(name: &str, n: u64, out: &Path) -> Option<u64> {
    let program = std::env::current_exe().ok()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--error-exitcode=1"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args(["--run", name, &n.to_string()])
        .stdout(Stdio::inherit())
        .output()
        .ok()?;
    let report = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        println!("{report}");
        return None;
    }
    let collected = report.lines().find_map(|line| line.split_once("Collected :"))?.1;
    collected.trim().parse().ok()
}
