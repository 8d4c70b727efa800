//! Committers, watches in threads and tasks, fast and slow ones, and a compactor, all at once: whatever
//! happens when, each watch is told every revision of its keys once and in order, or is refused.
//!
//! `ANNALS_WATCH_COMMITS=n` does more or fewer than the default.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use annals::vfs::MemoryVfs;
use annals::{Durability, ErrorKind, Options, Store, Watch};

use crate::support::random::Random;
use crate::support::watchdog::Watchdog;
use crate::support::{DIRECTORY, number_from_env};
use crate::tasks;

const COMMITTERS: u64 = 4;
const WATCHES: u64 = 12;
const KEYS: u64 = 10;

/// Which key each revision has written.
type Written = Mutex<BTreeMap<u64, u64>>;

fn key(n: u64) -> String {
    format!("k{n}")
}

fn commit(store: &Store, written: &Written, seed: u64, commits: u64) {
    let mut random = Random::new(seed);
    for _ in 0..commits {
        let n = random.below(KEYS);
        // Mostly small; some fill the memtables.
        let value = "v".repeat(random.index(200));
        let revision = store.put(key(n), value).unwrap().revision;
        written.lock().unwrap().insert(revision, n);
    }
}

/// What one watch was told: spans of revisions of which it was told everything.
struct Heard {
    only: Option<u64>,
    spans: Vec<(u64, u64)>,
    told: Vec<(u64, u64)>,
}

fn listen(store: &Store, number: u64, last: &AtomicU64) -> Heard {
    let mut random = Random::new(number);
    // All keys, or one of them.
    let only = (!number.is_multiple_of(3)).then_some(number % KEYS);
    let begin = |from: u64| {
        let builder = match only {
            Some(n) => store.watch(key(n)),
            None => store.watch("k").prefix(),
        };
        builder.from(from).catch_up_bytes(2_000).prev_kv().start().unwrap()
    };
    let ask = |watch: &mut Watch| match number % 2 {
        0 => watch.next(),
        _ => tasks::wait(watch),
    };
    let mut heard = Heard { only, spans: Vec::new(), told: Vec::new() };
    let mut first = 2;
    let mut watch = begin(first);
    let handle = |watch: &Watch| watch.handle().request_progress();
    handle(&watch);
    loop {
        if number >= WATCHES / 2 && random.one_in(200) {
            // A slow one.
            thread::sleep(Duration::from_millis(random.below(20)));
        }
        match ask(&mut watch).expect("it goes on") {
            Ok(batch) if batch.is_progress() => {
                let end = last.load(Ordering::Acquire);
                if end != 0 && batch.revision() >= end {
                    heard.spans.push((first, batch.revision()));
                    return heard;
                }
                handle(&watch);
            }
            Ok(batch) => {
                let [event] = batch.events() else { panic!("{batch:?}") };
                let n = std::str::from_utf8(&event.kv.key[1..]).unwrap().parse().unwrap();
                assert_eq!(event.is_create(), event.prev_kv.is_none());
                heard.told.push((batch.revision(), n));
            }
            Err(error) => {
                let &ErrorKind::Compacted { requested, compacted, .. } = error.kind() else {
                    panic!("{error}");
                };
                assert_eq!(requested, watch.resume_revision());
                if requested > first {
                    heard.spans.push((first, requested - 1));
                }
                first = compacted;
                watch = begin(first);
                handle(&watch);
            }
        }
    }
}

fn run(options: &Options, commits: u64, compact: bool) {
    let watchdog = Watchdog::new(Duration::from_secs(120));
    watchdog.begin("committers and watches");
    let store = options.open(DIRECTORY).unwrap();
    let (written, last) = (Written::default(), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    let heard: Vec<Heard> = thread::scope(|scope| {
        let (store, written, last, done) = (&store, &written, &last, &done);
        let watches: Vec<_> =
            (0..WATCHES).map(|n| scope.spawn(move || listen(store, n, last))).collect();
        let committers: Vec<_> = (0..COMMITTERS)
            .map(|n| scope.spawn(move || commit(store, written, n, commits)))
            .collect();
        if compact {
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    let _ = store.compact(store.revision().saturating_sub(300));
                    thread::sleep(Duration::from_millis(2));
                }
            });
        }
        for committer in committers {
            committer.join().unwrap();
        }
        done.store(true, Ordering::Release);
        last.store(store.revision(), Ordering::Release);
        // Whoever has asked already is told at the next one.
        store.put("k0", "").map(|put| written.lock().unwrap().insert(put.revision, 0)).unwrap();
        watches.into_iter().map(|watch| watch.join().unwrap()).collect()
    });
    let written = written.into_inner().unwrap();
    let mut refused = 0;
    for (number, heard) in heard.iter().enumerate() {
        let is_told = |revision: u64, n: u64| {
            heard.only.is_none_or(|only| only == n)
                && heard.spans.iter().any(|(first, last)| (*first..=*last).contains(&revision))
        };
        let expected: Vec<_> =
            written.iter().filter(|(at, n)| is_told(**at, **n)).map(|(at, n)| (*at, *n)).collect();
        assert!(heard.told == expected, "watch {number}: {:?}", heard.spans);
        refused += heard.spans.len() - 1;
    }
    println!("{} revisions, {refused} refusals", written.len());
    store.close().unwrap();
}

fn options(durability: Durability) -> Options {
    Options::new()
        .vfs(Arc::new(MemoryVfs::new()))
        .durability(durability)
        .memtable_bytes(64 << 10)
        .wal_bytes(256 << 10)
}

#[test]
fn every_watch_is_told_everything_beside_committers() {
    let commits = number_from_env("ANNALS_WATCH_COMMITS", 3_000);
    run(&options(Durability::Buffered), commits, false);
    run(&options(Durability::Sync), commits / 4, false);
}

#[test]
fn every_watch_is_told_everything_or_refused_beside_a_compactor() {
    let commits = number_from_env("ANNALS_WATCH_COMMITS", 3_000);
    run(&options(Durability::Buffered), commits, true);
    run(&options(Durability::Sync), commits / 4, true);
}

/// Each time at another moment of the committers, with the hub just beginning, in full flight or resting.
#[test]
fn a_watch_begun_beside_committers_begins_at_once_and_misses_nothing() {
    let watchdog = Watchdog::new(Duration::from_secs(120));
    watchdog.begin("watches that begin");
    let rounds = number_from_env("ANNALS_WATCH_COMMITS", 3_000) / 10;
    let store = options(Durability::Buffered).open(DIRECTORY).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for n in 0..2 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    store.put(key(n), "v").unwrap();
                }
            });
        }
        let mut random = Random::new(0);
        for round in 0..rounds {
            let before = store.revision();
            let from = match round % 3 {
                0 => None,
                1 => Some(before.saturating_sub(random.below(200)).max(2)),
                _ => Some(before + random.below(50)),
            };
            let builder = store.watch("k").prefix();
            let mut watch = match from {
                None => builder.start().unwrap(),
                Some(from) => builder.from(from).start().unwrap(),
            };
            assert!(watch.created_at() >= before);
            // Every revision changes a key of the range.
            let first = from.unwrap_or(watch.created_at() + 1);
            assert_eq!(watch.resume_revision(), first);
            let items = random.between(1, 150);
            let told = watch.by_ref().take(usize::try_from(items).unwrap());
            let told: Vec<u64> = told.map(|batch| batch.unwrap().revision()).collect();
            assert_eq!(told, (first..first + items).collect::<Vec<_>>(), "round {round}");
        }
        done.store(true, Ordering::Release);
    });
    store.close().unwrap();
}
