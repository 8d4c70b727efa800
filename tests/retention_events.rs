//! What rules of retention forget goes from the log of changes, too, where other rules keep as old revisions of
//! other keys; and nothing else does.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use annals::clock::ManualClock;
use annals::vfs::{CrashMode, Fault, FaultVfs, MemoryVfs, Operation};
use annals::{Options, Retention, Store, put};
use support::random::Random;
use support::{DIRECTORY, START_TIME};

fn tiny(disk: &MemoryVfs, clock: &Arc<ManualClock>) -> Options {
    // The log of changes repeats all values.
    let options = support::tiny(Arc::new(disk.clone()), Arc::clone(clock));
    options.retention_interval_seconds(0).blob_value_bytes(64 << 10)
}

fn noise(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..300).map(|_| u8::try_from(random.below(256)).unwrap()).collect()
}

fn work(store: &Store) {
    while store.run_background().unwrap() {}
    store.reorganise().unwrap();
}

/// What a rule has forgotten goes from the log of changes, too, although another rule keeps as old revisions of other
/// keys; and nothing else does.
#[test]
fn what_is_forgotten_is_not_kept_by_the_log_of_changes() {
    let disk = MemoryVfs::new();
    let clock = Arc::new(ManualClock::new(START_TIME));
    let options = tiny(&disk, &clock);
    let mut store = options.open(DIRECTORY).unwrap();
    store.set_retention("/audit/", Some(Retention::forever())).unwrap();
    store.set_retention("/events/", Some(Retention::forever())).unwrap();
    for n in 0..400_u64 {
        clock.advance(1_000);
        let events = (0..3).map(|m| put(format!("/events/{}", (n + m) % 20), noise(n * 3 + m)));
        let audit = (n % 4 == 0).then(|| put(format!("/audit/{}", n % 3), n.to_string()));
        let ops: Vec<_> = events.chain(audit).collect();
        store.txn().then(ops).metadata(format!("transaction {n}")).commit().unwrap();
        while store.run_background().unwrap() {}
    }
    store.reorganise().unwrap();
    let newest = store.revision();
    let watched = |store: &Store, prefix: &str, from: u64| -> Vec<_> {
        let watch = store.watch(prefix).prefix().from(from).start().unwrap();
        let last = if prefix == "/audit/" { newest - 3 } else { newest };
        let mut told = Vec::new();
        for batch in watch {
            let batch = batch.unwrap();
            let events: Vec<_> = batch.events().iter().map(|e| (e.kind, e.kv.clone())).collect();
            told.push((batch.revision(), batch.time(), batch.metadata().clone(), events));
            if batch.revision() >= last {
                break;
            }
        }
        told
    };
    let times = |store: &Store| -> Vec<i64> {
        (2..=newest).map(|revision| store.time_of(revision).unwrap()).collect()
    };
    let audit = watched(&store, "/audit/", 2);
    assert_eq!(audit.len(), 100);
    let (all_times, before) = (times(&store), store.stats().events);
    let floor = newest - 40;
    let young = watched(&store, "/events/", floor);

    store.set_retention("/events/", Some(Retention::forever().keep_revisions(40))).unwrap();
    assert!(store.apply_retention().unwrap());
    store.compact(floor).unwrap();
    work(&store);
    let after = store.stats().events;
    assert_eq!(after.entries, before.entries, "each revision has its time");
    assert!(after.bytes * 3 < before.bytes, "{before:?} {after:?}");
    for round in 0..2 {
        assert_eq!(watched(&store, "/audit/", 2), audit);
        assert_eq!(watched(&store, "/events/", floor), young);
        assert_eq!(times(&store), all_times);
        let refused = store.watch("/events/").prefix().from(floor - 1).start();
        assert!(refused.and_then(|mut watch| watch.next().unwrap()).is_err());
        // It is done: no file is written again and again.
        let merges = store.stats().merges;
        work(&store);
        assert_eq!(store.stats().merges, merges, "round {round}");
        // Nor looked through again, as somebody begins to read an old revision, or ends.
        let view = store.at(5).unwrap();
        assert!(!store.run_background().unwrap());
        drop(view);
        assert!(!store.run_background().unwrap());
        store.close().unwrap();
        let report = annals::check(DIRECTORY, &options, &mut |_, _| {}).unwrap();
        assert_eq!(report.damage, []);
        store = options.open(DIRECTORY).unwrap();
    }
}

/// Revisions that each change a key of `a/`, of `b/` and of `kept/`, of which the last is kept for ever.
fn three_classes(store: &Store) {
    store.set_retention("kept/", Some(Retention::forever())).unwrap();
    store.set_retention("a/", Some(Retention::forever())).unwrap();
    for n in 0..400_u64 {
        let keys = [format!("a/{}", n % 9), format!("b/{}", n % 5)];
        let ops = keys.into_iter().zip(0..).map(|(key, m)| put(key, noise(n * 2 + m)));
        store.txn().then(ops.chain([put("kept/one", "x")])).commit().unwrap();
    }
    work(store);
}

/// One class is forgotten in place of another: as many as before, and not the same.
#[test]
fn what_is_forgotten_next_goes_as_well() {
    let (disk, clock) = (MemoryVfs::new(), Arc::new(ManualClock::new(START_TIME)));
    let store = tiny(&disk, &clock).open(DIRECTORY).unwrap();
    three_classes(&store);
    let all = store.stats().events.bytes;
    let few = Retention::forever().keep_revisions(10);
    store.set_retention("a/", Some(few)).unwrap();
    store.apply_retention().unwrap();
    work(&store);
    let one = store.stats().events.bytes;
    assert!(one * 3 < all * 2, "{one} of {all}");
    store.set_retention("a/", None).unwrap();
    store.set_retention("", Some(few)).unwrap();
    store.apply_retention().unwrap();
    work(&store);
    let both = store.stats().events.bytes;
    assert!(both * 4 < all, "{both} of {all}");
}

/// A damaged file of the log of changes is no reason to end writing, nor is it looked at again and again.
#[test]
fn damage_that_nobody_asks_for_ends_nothing() {
    let (disk, clock) = (MemoryVfs::new(), Arc::new(ManualClock::new(START_TIME)));
    let store = tiny(&disk, &clock).open(DIRECTORY).unwrap();
    three_classes(&store);
    store.close().unwrap();
    let events = disk.paths().into_iter().filter(|path| path.ends_with(".events"));
    let events: Vec<String> = events.collect();
    let path = Path::new(&events[events.len() / 2]);
    let whole = disk.read(path).unwrap();
    for what in ["missing", "cut", "flipped"] {
        match what {
            "missing" => disk.forget(path),
            "cut" => disk.overwrite(path, &whole[..whole.len() / 2]),
            _ => {
                let mut content = whole.clone();
                content.iter_mut().skip(90).step_by(97).for_each(|byte| *byte ^= 1);
                disk.overwrite(path, &content);
            }
        }
        let store = tiny(&disk.crash(0, CrashMode::KeepAll), &clock).open(DIRECTORY);
        let store = store.unwrap();
        store.set_retention("a/", Some(Retention::forever().keep_revisions(10))).unwrap();
        store.apply_retention().unwrap();
        while store.run_background().unwrap() {}
        store.put("a/1", what).unwrap();
        assert_eq!(store.get("a/1").unwrap().unwrap().value, what);
    }
}

/// Nor is one with a place that the disk cannot read.
#[test]
fn a_place_that_cannot_be_read_ends_nothing() {
    let (mut spared, mut reads) = (0, 0);
    for round in 0..=40 {
        let (disk, clock) = (MemoryVfs::new(), Arc::new(ManualClock::new(START_TIME)));
        let faulty = FaultVfs::new(Arc::new(disk.clone()));
        let options = tiny(&disk, &clock).vfs(Arc::new(faulty.clone()));
        let store = options.open(DIRECTORY).unwrap();
        three_classes(&store);
        store.set_retention("a/", Some(Retention::forever().keep_revisions(10))).unwrap();
        store.apply_retention().unwrap();
        let before = faulty.op_count_of(Operation::Read);
        if round > 0 {
            faulty.fail(Some(Operation::Read), before + reads * round / 41, Fault::Io, false);
        }
        let ended = (0..10_000).find_map(|_| match store.run_background() {
            Ok(true) => None,
            ended => Some(ended),
        });
        match ended.unwrap() {
            // Another file, of which something was to be written anew.
            Err(error) => assert!(!error.to_string().contains(".events"), "{round}: {error}"),
            Ok(_) => {
                spared += faulty.fired();
                store.put("a/1", "it goes on").unwrap();
            }
        }
        if round == 0 {
            reads = faulty.op_count_of(Operation::Read) - before;
        }
    }
    assert!(spared > 5, "{spared} of {reads} reads");
}

/// A rule that is taken back, when all other keys have come further, leaves its keys to these: they are forgotten, too.
#[test]
fn what_is_forgotten_with_its_rule_goes_as_well() {
    let (disk, clock) = (MemoryVfs::new(), Arc::new(ManualClock::new(START_TIME)));
    let store = tiny(&disk, &clock).open(DIRECTORY).unwrap();
    three_classes(&store);
    let all = store.stats().events.bytes;
    store.compact(store.revision() - 10).unwrap();
    work(&store);
    let one = store.stats().events.bytes;
    assert!(one * 3 < all * 2, "{one} of {all}");
    store.set_retention("a/", None).unwrap();
    work(&store);
    let both = store.stats().events.bytes;
    assert!(both * 4 < all, "{both} of {all}");
}

/// Damage that came after a reader had found the block whole is not written again as if it were whole.
#[test]
fn what_is_written_again_is_checked_again() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new()
        .background(false)
        .read_mode(annals::ReadMode::Mmap)
        .retention_interval_seconds(0);
    let store = options.open(directory.path()).unwrap();
    three_classes(&store);
    assert_eq!(store.log(..).with_values().map(Result::unwrap).count(), 400);
    let events = std::fs::read_dir(directory.path().join("seg")).unwrap();
    let events = events.map(|entry| entry.unwrap().path());
    let path = { events }.find(|path| path.extension().is_some_and(|e| e == "events")).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    // A value that is kept, in the middle: it can be decoded as before.
    let (content, value) = (std::fs::read(&path).unwrap(), &noise(2 * 200 + 1)[100..120]);
    let at = content.windows(20).position(|window| window == value).unwrap();
    file.write_all_at(&[content[at] ^ 1], at as u64).unwrap();
    // That the file ends before what is kept.
    for n in 0..20 {
        store.put("kept/one", n.to_string()).unwrap();
    }
    store.set_retention("a/", Some(Retention::forever().keep_revisions(10))).unwrap();
    store.apply_retention().unwrap();
    while store.run_background().unwrap() {}
    store.put("a/1", "it goes on").unwrap();
    store.close().unwrap();
    let report = annals::check(directory.path(), &options, &mut |_, _| {}).unwrap();
    assert!(!report.damage.is_empty(), "nobody would know any more that it is damaged");
}
