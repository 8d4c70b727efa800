//! Power cuts of a store that many threads write to, read from and compact, with its own worker.
//!
//! Not deterministic, unlike the other simulations; what it adds is real concurrency: commits of
//! several threads in one sync, flushes and folds in between, readers on old revisions all the time.
//!
//! `ANNALS_SECONDS=n` sets how long it runs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use annals::clock::{ManualClock, SystemClock};
use annals::vfs::{CrashMode, MemoryVfs};
use annals::{ErrorKind, Options, Store, put};
use support::random::Random;
use support::{DIRECTORY, number_from_env};

const WRITERS: usize = 4;

fn options(disk: &MemoryVfs) -> Options {
    support::tiny(Arc::new(disk.clone()), Arc::new(ManualClock::default()))
        .clock(Arc::new(SystemClock::new()))
        .background(true)
}

fn own_key(writer: usize) -> String {
    format!("writer/{writer}")
}

/// What the writers have been told is durable, and what they have begun.
#[derive(Debug, Default)]
struct Progress {
    acknowledged: [AtomicU64; WRITERS],
    begun: [AtomicU64; WRITERS],
}

#[test]
fn cuts_while_many_threads_commit() {
    let disk = MemoryVfs::new();
    let store = options(&disk).open(Path::new(DIRECTORY)).unwrap();
    let progress = Progress::default();
    let stop = AtomicBool::new(false);
    let end = Instant::now() + Duration::from_secs(number_from_env("ANNALS_SECONDS", 6));
    let (mut images, mut reads) = (0, 0);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, progress, stop) = (store.clone(), &progress, &stop);
            scope.spawn(move || write(&store, writer, progress, stop));
        }
        let compactor = (store.clone(), &stop);
        scope.spawn(move || compact(&compactor.0, compactor.1));
        let reader = (store.clone(), &stop);
        let reader = scope.spawn(move || read(&reader.0, reader.1));
        // Also when a check fails, or the writers would never end.
        let _stop = StopOnDrop(&stop);
        let mut random = Random::new(7);
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(random.below(12)));
            let modes = [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random];
            // First what must be there, then the image, then what can be there.
            let least = counts(&progress.acknowledged);
            let compacted = store.compacted_revision();
            let image = disk.crash(random.next(), *random.pick(&modes));
            let most = counts(&progress.begun);
            check(&image, &least, &most, compacted);
            images += 1;
            if reader.is_finished() {
                break;
            }
        }
        stop.store(true, Ordering::SeqCst);
        reads = reader.join().unwrap();
    });
    let last = store.revision();
    store.close().unwrap();
    let least = counts(&progress.acknowledged);
    check(&disk.crash(0, CrashMode::LoseAll), &least, &least, 0);
    println!("{last} revisions, {images} images, {reads} reads of old states");
    assert!(images > 10 && reads > 10);
}

struct StopOnDrop<'s>(&'s AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn counts(counters: &[AtomicU64; WRITERS]) -> [u64; WRITERS] {
    std::array::from_fn(|writer| counters[writer].load(Ordering::SeqCst))
}

/// Writes its own key and a shared one, each time with the next number; sometimes many at a time.
fn write(store: &Store, writer: usize, progress: &Progress, stop: &AtomicBool) {
    let mut random = Random::new(writer as u64);
    let mut number = 0;
    while !stop.load(Ordering::SeqCst) {
        let mut tickets = Vec::new();
        for _ in 0..=random.below(4) {
            number += 1;
            progress.begun[writer].store(number, Ordering::SeqCst);
            let fill = "x".repeat(random.index(300));
            let ops = [
                put(own_key(writer), format!("{number} {fill}")),
                put("shared", format!("{writer} {number}")),
            ];
            tickets.push((number, store.txn().then(ops).submit().unwrap()));
        }
        for (number, ticket) in tickets {
            ticket.wait().unwrap();
            progress.acknowledged[writer].store(number, Ordering::SeqCst);
        }
    }
}

fn compact(store: &Store, stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(20));
        let revision = store.revision().saturating_sub(200);
        if revision > store.compacted_revision() {
            store.compact(revision).unwrap();
        }
    }
}

/// Looks at states that do not change any more, again and again.
fn read(store: &Store, stop: &AtomicBool) -> u64 {
    let mut random = Random::new(99);
    let mut reads = 0;
    while !stop.load(Ordering::SeqCst) {
        let newest = store.revision();
        let revision = newest.saturating_sub(random.below(150)).max(1);
        let view = match store.at(revision) {
            Ok(view) => view,
            Err(error) if matches!(error.kind(), ErrorKind::Compacted { .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        let first: Vec<_> = view.range(..).map(Result::unwrap).collect();
        for kv in &first {
            assert!(kv.mod_revision <= revision);
            assert_eq!(view.get(&kv.key).unwrap().as_ref(), Some(kv), "at {revision}");
        }
        if let Some(shared) = first.iter().find(|kv| kv.key == "shared") {
            assert_eq!(shared.mod_revision, revision, "every transaction writes it");
            assert_eq!(shared.version, revision - 1);
            let text = String::from_utf8(shared.value.to_vec()).unwrap();
            let (writer, number) = text.split_once(' ').unwrap();
            let own = view.get(own_key(writer.parse().unwrap())).unwrap().unwrap();
            assert_eq!((own.mod_revision, own.version.to_string()), (revision, number.to_owned()));
        }
        assert!(view.range(..).rev().map(Result::unwrap).eq(first.iter().rev().cloned()));
        reads += 1;
    }
    reads
}

/// Opens an image and checks that it is the state after whole transactions, at least the
/// acknowledged ones.
fn check(image: &MemoryVfs, least: &[u64; WRITERS], most: &[u64; WRITERS], compacted: u64) {
    let store = options(image).background(false).open(Path::new(DIRECTORY)).unwrap();
    assert!(store.compacted_revision() >= compacted, "a compaction was taken back");
    let view = store.latest().unwrap();
    let mut total = 0;
    for writer in 0..WRITERS {
        let kv = view.get(own_key(writer)).unwrap();
        let number = kv.as_ref().map_or(0, |kv| {
            let text = String::from_utf8(kv.value.to_vec()).unwrap();
            text.split(' ').next().unwrap().parse().unwrap()
        });
        assert_eq!(number, kv.map_or(0, |kv| kv.version), "writer {writer} in order");
        assert!((least[writer]..=most[writer]).contains(&number), "writer {writer}: {number}");
        total += number;
    }
    assert_eq!(store.revision(), total + 1, "one revision for each transaction");
    assert_eq!(view.get("shared").unwrap().map_or(0, |kv| kv.version), total);
    let mut next = store.compacted_revision().max(2);
    for transaction in store.log(..) {
        let transaction = transaction.unwrap();
        assert_eq!((transaction.revision, transaction.changes.len()), (next, 2));
        next += 1;
    }
    assert_eq!(next, store.revision() + 1, "the log is complete");
}
