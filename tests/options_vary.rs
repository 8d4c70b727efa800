//! Options that change from one opening to the next, to the least and the most that each takes: whatever was written
//! under others is there, and copies made under others are equal.
//!
//! `ANNALS_VARY_CASES=n` sets how many stores are tried, `ANNALS_VARY_SEED=n` which is the first.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use annals::clock::ManualClock;
use annals::vfs::{CrashMode, MemoryVfs};
use annals::{
    DeleteRangeRequest, ErrorKind, KNOBS, Load, Op, Options, Origin, PutRequest, RestoreOptions,
    Store, delete, put, txn,
};
use support::random::Random;
use support::watchdog::Watchdog;
use support::{DIRECTORY, START_TIME, number_from_env};

/// No more memory than this, whatever an option allows.
const MOST: u64 = 8 << 20;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// Options drawn from all that there are; with some luck those of before.
fn options(random: &mut Random, clock: &Arc<ManualClock>) -> (Options, String) {
    let mut options = Options::new().background(false).clock(Arc::clone(clock) as _);
    let mut told = String::new();
    for knob in KNOBS {
        let value = match knob.range {
            _ if random.one_in(2) => continue,
            Some(range) => {
                let most = range.max.min(range.min.max(MOST));
                match random.below(4) {
                    0 => range.min,
                    1 => most,
                    // As likely small as large.
                    _ => {
                        let bits = random.below(1 + u64::from((most - range.min).max(1).ilog2()));
                        range.min + random.below(1 << bits)
                    }
                }
                .to_string()
            }
            None => match knob.name {
                "history_codec" => {
                    (*random.pick(&["zstd-blocks", "raw", "fast", "small"])).to_owned()
                }
                "read_mode" => (*random.pick(&["mmap", "pread"])).to_owned(),
                // What was not written may be lost; nothing ends by itself.
                _ => continue,
            },
        };
        options.set(knob.name, &value).unwrap();
        told = format!("{told} -O {}={value}", knob.name);
    }
    (options, told)
}

struct Case {
    random: Random,
    clock: Arc<ManualClock>,
    /// The state at each revision from 1 on.
    states: Vec<State>,
    refused: u64,
}

impl Case {
    fn key(&mut self) -> Vec<u8> {
        let long = if self.random.one_in(10) { 2000 } else { 3 };
        let bytes = 1 + self.random.below(long);
        (0..bytes).map(|_| b'a' + u8::try_from(self.random.below(3)).unwrap()).collect()
    }

    fn value(&mut self) -> Vec<u8> {
        let bytes = match self.random.below(12) {
            0 => 100_000,
            1..3 => 5000,
            _ => 60,
        };
        let bytes = self.random.below(bytes);
        (0..bytes).map(|at| u8::try_from((at * at) % 251).unwrap()).collect()
    }

    /// Notes what was answered: the new state, or that nothing has changed.
    fn done<T>(&mut self, answer: annals::Result<T>, store: &Store, state: State) {
        match answer {
            Ok(_) if store.revision() > self.states.len() as u64 => self.states.push(state),
            Ok(_) => {}
            Err(error) => {
                assert!(
                    matches!(
                        error.kind(),
                        ErrorKind::KeyTooLong { .. }
                            | ErrorKind::ValueTooLong { .. }
                            | ErrorKind::TransactionTooLarge { .. }
                            | ErrorKind::TooManyOperations { .. }
                            | ErrorKind::DuplicateKey { .. }
                            | ErrorKind::LeaseExists { .. }
                            | ErrorKind::LeaseNotFound { .. }
                            | ErrorKind::Compacted { .. }
                    ),
                    "{error:?}"
                );
                self.refused += 1;
            }
        }
        assert_eq!(store.revision(), self.states.len() as u64);
    }

    fn step(&mut self, store: &Store) {
        let mut state = self.states.last().unwrap().clone();
        match self.random.below(16) {
            0..7 => {
                let (key, value) = (self.key(), self.value());
                let lease = i64::from(self.random.one_in(4)) * 7;
                state.insert(key.clone(), value.clone());
                let answer = store.put_with(PutRequest::new(key, value).lease(lease));
                self.done(answer, store, state);
            }
            7 => {
                let key = self.key();
                state.remove(&key);
                self.done(store.delete(&key), store, state);
            }
            8 => {
                let (from, to) = (self.key(), self.key());
                state.retain(|key, _| !(from <= *key && *key < to));
                let request = DeleteRangeRequest::new(from).range_end(to);
                self.done(store.delete_range(request), store, state);
            }
            9..12 => {
                let mut ops: Vec<Op> = Vec::new();
                for _ in 0..=self.random.below(20) {
                    let key = self.key();
                    if self.random.one_in(4) {
                        state.remove(&key);
                        ops.push(delete(key));
                    } else {
                        let value = self.value();
                        ops.push(put(&key, &value));
                        state.insert(key, value);
                    }
                }
                self.done(store.transact(txn().then(ops)), store, state);
            }
            12 => {
                let compacted = store.compacted_revision();
                let to = compacted + self.random.below(store.revision() - compacted + 1);
                self.done(store.compact(to.max(1)), store, state);
            }
            13 => self.done(store.lease_grant(7, Duration::from_secs(1 << 30)), store, state),
            14 => store.flush().unwrap(),
            _ if self.random.one_in(3) => store.reorganise().unwrap(),
            _ => while store.run_background().unwrap() {},
        }
    }

    fn check(&mut self, store: &Store, what: &str) {
        assert_eq!(store.revision(), self.states.len() as u64, "{what}");
        let oldest = store.compacted_revision().max(1);
        let mut revisions = vec![oldest, store.revision()];
        revisions.extend((0..4).map(|_| oldest + self.random.below(store.revision() - oldest + 1)));
        for revision in revisions {
            let view = store.at(revision).unwrap();
            let found: annals::Result<State> = view
                .range(..)
                .map(|kv| kv.map(|kv| (kv.key.to_vec(), kv.value.to_vec())))
                .collect();
            let state = &self.states[usize::try_from(revision).unwrap() - 1];
            assert!(found.unwrap() == *state, "{what}: revision {revision}");
            assert_eq!(view.count(..).unwrap(), state.len() as u64, "{what}: {revision}");
        }
        let mut next = oldest.max(2);
        for transaction in store.log(..).with_values() {
            assert_eq!(transaction.unwrap().revision, next, "{what}");
            next += 1;
        }
        assert_eq!(next, store.revision().max(1) + 1, "{what}");
    }

    /// Copies of all kinds, under other options.
    fn copies(&mut self, store: &Store, disk: &MemoryVfs, opening: u64) {
        let [restored, linked, loaded] =
            ["restored", "linked", "loaded"].map(|name| format!("{name}-{opening}"));
        let hash = store.hash_at(annals::At::Latest).unwrap();
        let (other, told) = options(&mut self.random, &self.clock);
        let other = other.vfs(Arc::new(disk.clone()));
        let mut backup = Vec::new();
        store.backup(&mut backup).unwrap();
        let restoring = RestoreOptions::new().options(other.clone());
        annals::restore(&backup[..], &restored, &restoring)
            .unwrap_or_else(|error| panic!("restore {told}: {error}"));
        let copy = other.open(&restored).unwrap();
        self.check(&copy, &format!("restored {told}"));
        assert_eq!(copy.hash_at(annals::At::Latest).unwrap(), hash, "restored {told}");
        copy.close().unwrap();
        store.checkpoint(&linked).unwrap();
        let copy = other.open(&linked).unwrap();
        self.check(&copy, &format!("checkpoint {told}"));
        copy.close().unwrap();
        let compacted = store.compacted_revision().max(2);
        if store.revision() < 2 {
            return;
        }
        let first = store.log(compacted..=compacted).next().unwrap().unwrap();
        let origin = Origin { time: first.time, metadata: first.metadata.clone() };
        let mut load = Load::create(&loaded, &other, compacted, &origin).unwrap();
        let view = store.at(compacted).unwrap();
        for kv in view.range(..) {
            let kv = kv.unwrap();
            load.base(&kv, view.sub_of(&kv.key).unwrap().unwrap_or_default()).unwrap();
        }
        let mut loading = load.begin().unwrap();
        for transaction in store.log(compacted + 1..).with_values() {
            loading
                .transaction(&transaction.unwrap())
                .unwrap_or_else(|error| panic!("load {told}: {error}"));
        }
        let copy = loading.finish().unwrap();
        assert_eq!(copy.revision(), store.revision(), "loaded {told}");
        let found = copy.latest().unwrap().range(..).count();
        assert_eq!(found, self.states.last().unwrap().len(), "loaded {told}");
        copy.close().unwrap();
    }
}

#[test]
fn what_was_written_under_other_options_is_there() {
    let (cases, first) =
        (number_from_env("ANNALS_VARY_CASES", 20), number_from_env("ANNALS_VARY_SEED", 1));
    let watchdog = Watchdog::new(Duration::from_secs(120));
    let (mut openings, mut revisions, mut refused) = (0, 0, 0);
    for seed in first..first + cases {
        let clock = Arc::new(ManualClock::new(START_TIME));
        let random = Random::new(seed);
        let mut case = Case { random, clock, states: vec![State::new()], refused: 0 };
        let mut disk = MemoryVfs::new();
        for opening in 0..6 {
            let (options, told) = options(&mut case.random, &case.clock);
            let what = format!("seed {seed}, opening {opening}:{told}");
            watchdog.begin(&what);
            let options = options.vfs(Arc::new(disk.clone()));
            let store = options.open(DIRECTORY).unwrap_or_else(|error| panic!("{what}: {error}"));
            case.check(&store, &what);
            for _ in 0..case.random.below(60) {
                case.step(&store);
                case.clock.advance(1000);
            }
            case.check(&store, &what);
            let report = annals::check(DIRECTORY, &options, &mut |_, _| ()).unwrap();
            assert!(report.damage.is_empty() && report.unchecked.is_empty(), "{what}: {report:?}");
            if case.random.one_in(3) {
                case.copies(&store, &disk, opening);
            }
            openings += 1;
            if case.random.one_in(2) {
                store.close().unwrap();
                disk = disk.crash(seed, CrashMode::LoseAll);
            } else {
                disk = disk.crash(seed, CrashMode::Random);
            }
        }
        revisions += case.states.len();
        refused += case.refused;
    }
    println!("{cases} stores, {openings} openings, {revisions} revisions, {refused} refused");
}
