//! Times: never backwards, whatever the clock does; and what is asked by time is what is asked by the
//! revision that it names.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use annals::clock::ManualClock;
use annals::vfs::MemoryVfs;
use annals::{At, Diff, Error, ErrorKind, Retention, Store, Version};
use support::random::Random;
use support::{DIRECTORY, START_TIME, tiny};

/// A store, and the time of each revision from 2 on as its commit told it.
fn clockwork(seed: u64) -> (annals::Options, Store, Vec<i64>) {
    let clock = Arc::new(ManualClock::new(START_TIME));
    let options = tiny(Arc::new(MemoryVfs::new()), Arc::clone(&clock));
    let mut store = options.open(DIRECTORY).unwrap();
    let mut random = Random::new(seed);
    let mut times = Vec::new();
    for n in 0..240_u64 {
        // Mostly on, at times not at all, and now and then back.
        let step = match random.below(10) {
            0 => -5_000,
            1 | 2 => 0,
            _ => i64::try_from(random.below(5_000)).unwrap(),
        };
        clock.advance(step);
        let key = format!("/k/{}", random.below(6));
        times.push(match random.below(8) {
            // An earlier time than that before, by the one who writes.
            0 => {
                let put = store.txn().then([annals::put(key, "then")]).time(START_TIME - 7);
                let revision = put.commit().unwrap().revision;
                store.log(revision..).next().unwrap().unwrap().time
            }
            _ => store.put(key, "x".repeat(400)).unwrap().time,
        });
        match n {
            60 => store.reorganise().unwrap(),
            _ if n % 50 == 49 => {
                // Set back while the store is closed, too; once it did not even close.
                match n {
                    99 => drop(store),
                    _ => store.close().unwrap(),
                }
                clock.advance(-30_000);
                store = options.open(DIRECTORY).unwrap();
            }
            _ if n % 20 == 0 => while store.run_background().unwrap() {},
            _ => {}
        }
    }
    (options, store, times)
}

/// The last revision not after a time.
fn naive(times: &[i64], oldest: u64, time: i64) -> Option<u64> {
    let last = (2..).zip(times).take_while(|(_, at)| **at <= time).last();
    Some(last.map_or(1, |(revision, _)| revision)).filter(|revision| *revision >= oldest)
}

fn check(store: &Store, times: &[i64]) {
    let oldest = store.compacted_revision();
    assert_eq!(store.revision_at_time(i64::MIN).ok(), naive(times, oldest, i64::MIN));
    for (revision, time) in (2..).zip(times).filter(|(revision, _)| *revision >= oldest) {
        assert_eq!(store.time_of(revision).unwrap(), *time, "{revision}");
        for time in [*time - 1, *time, *time + 1] {
            match (store.revision_at_time(time), naive(times, oldest, time)) {
                (Ok(found), Some(expected)) => {
                    assert_eq!(found, expected);
                    assert_eq!(store.resolve(At::Time(time)).unwrap(), expected);
                }
                (Err(error), None) => {
                    let is = matches!(error.kind(), ErrorKind::NoRevisionAtTime { .. });
                    assert!(is, "{error}");
                }
                (found, expected) => panic!("{time}: {found:?}, not {expected:?}"),
            }
        }
    }
}

#[test]
fn times_never_go_backwards_and_find_their_revisions() {
    for seed in 0..3 {
        let (options, store, times) = clockwork(seed);
        assert!(times.is_sorted());
        // The clock has been behind for a while, and then ahead again, many times.
        let waits = times.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!((50..200).contains(&waits), "{waits}");
        check(&store, &times);
        store.compact(100).unwrap();
        check(&store, &times);
        store.reorganise().unwrap();
        check(&store, &times);
        // A copy goes on where the store was, too.
        store.checkpoint("copy").unwrap();
        store.close().unwrap();
        for directory in [DIRECTORY, "copy"] {
            let store = options.open(directory).unwrap();
            check(&store, &times);
            let next = store.put("/next", "").unwrap();
            assert!(next.time >= times[times.len() - 1]);
            assert_eq!(store.time_of(next.revision).unwrap(), next.time);
        }
    }
}

fn kind(error: Error) -> ErrorKind {
    error.into_kind()
}

#[test]
fn points_that_are_not_there_are_refused() {
    let (_, store, times) = clockwork(9);
    // One whose time differs from that of the one before.
    let time = |revision: u64| times[usize::try_from(revision - 2).unwrap()];
    let oldest = (50..240).find(|revision| time(revision - 1) < time(*revision)).unwrap();
    store.compact(oldest).unwrap();
    let newest = store.revision();
    assert_eq!(store.resolve(At::Latest).unwrap(), newest);
    assert!(matches!(kind(store.time_of(oldest - 1).unwrap_err()), ErrorKind::Compacted { .. }));
    assert!(matches!(kind(store.resolve(oldest - 1).unwrap_err()), ErrorKind::Compacted { .. }));
    let future = newest + 1;
    assert!(matches!(kind(store.time_of(future).unwrap_err()), ErrorKind::FutureRevision { .. }));
    assert!(matches!(kind(store.resolve(future).unwrap_err()), ErrorKind::FutureRevision { .. }));
    for at in [0, 1] {
        let fresh = tiny(Arc::new(MemoryVfs::new()), Arc::new(ManualClock::new(0)));
        let fresh = fresh.open(DIRECTORY).unwrap();
        let error = fresh.time_of(at).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
    }
    assert!(matches!(kind(store.resolve(0).unwrap_err()), ErrorKind::InvalidArgument { .. }));
    let before = UNIX_EPOCH + Duration::from_micros(time(oldest - 1).cast_unsigned());
    let error = store.resolve(before).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoRevisionAtTime { .. }), "{error}");
    assert_eq!(store.time_of(oldest).unwrap(), time(oldest));
    let then = UNIX_EPOCH + Duration::from_micros(time(oldest).cast_unsigned());
    assert!(store.resolve(then).unwrap() >= oldest);
}

#[test]
fn differences_take_times_revisions_and_the_newest() {
    let (_, store, times) = clockwork(4);
    let newest = store.revision();
    let told =
        |differences: annals::DiffIter| -> Vec<Diff> { differences.map(Result::unwrap).collect() };
    let mut random = Random::new(4);
    for _ in 0..40 {
        let (from, to) = (random.between(2, newest), random.between(2, newest));
        let (from, to) = (from.min(to), from.max(to));
        let time = |revision: u64| At::Time(times[usize::try_from(revision - 2).unwrap()]);
        let resolved = [from, to].map(|revision| store.resolve(time(revision)).unwrap());
        let expected = told(store.diff(resolved[0], resolved[1], ..).unwrap());
        assert_eq!(told(store.diff(time(from), time(to), ..).unwrap()), expected);
        let to_newest = told(store.diff(from, newest, ..).unwrap());
        assert_eq!(told(store.diff(from, At::Latest, ..).unwrap()), to_newest);
    }
    assert!(store.diff(At::Latest, 2, ..).is_err());
    assert!(matches!(kind(store.diff(0, 2, ..).unwrap_err()), ErrorKind::InvalidArgument { .. }));
}

fn told(history: annals::History) -> Vec<Version> {
    history.map(Result::unwrap).collect()
}

#[test]
fn a_history_is_bounded_by_what_the_key_had_at_both_ends() {
    let (_, store, times) = clockwork(2);
    // Before the store began there was nothing, and all of it came since.
    assert_eq!(told(store.history("/k/1").since(At::Time(0))), told(store.history("/k/1")));
    for key in ["/k/1", "/k/2", "/k/never"] {
        store.delete(key).unwrap();
        store.put(key, "again").unwrap();
        store.delete(key).unwrap();
    }
    store.compact(60).unwrap();
    let newest = store.revision();
    for key in ["/k/1", "/k/2", "/k/never", "/k/none"] {
        let all = told(store.history(key));
        for since in (60..=newest).step_by(7).chain([newest]) {
            for until in (since..=newest).step_by(11).chain([newest]) {
                let mut expected: Vec<Version> =
                    all.iter().filter(|version| version.mod_revision <= until).cloned().collect();
                let older = expected.iter().position(|version| version.mod_revision <= since);
                if let Some(at) = older {
                    // What was there at `since`; an older tombstone says nothing about it.
                    let last = &expected[at];
                    let keeps = !last.tombstone || last.mod_revision == since;
                    expected.truncate(at + usize::from(keeps));
                }
                let found = told(store.history(key).since(since).until(until));
                assert_eq!(found, expected, "{key} {since} {until}");
                // The order in which they are said makes no difference, nor what is later than the view.
                assert_eq!(told(store.history(key).until(until).since(since)), found);
                let view = store.at(until).unwrap();
                assert_eq!(told(view.history(key).since(since).until(At::Latest)), found);
            }
        }
    }
    let time = At::Time(times[100]);
    let revision = store.resolve(time).unwrap();
    assert_eq!(
        told(store.history("/k/1").since(time)),
        told(store.history("/k/1").since(revision))
    );
    assert_eq!(
        told(store.history("/k/1").until(time)),
        told(store.history("/k/1").until(revision))
    );

    let only = |mut history: annals::History| {
        let error = history.next().unwrap().unwrap_err();
        assert!(history.next().is_none());
        kind(error)
    };
    assert!(matches!(only(store.history("/k/1").since(59)), ErrorKind::Compacted { .. }));
    assert!(matches!(only(store.history("/k/1").until(59)), ErrorKind::Compacted { .. }));
    let backwards = store.history("/k/1").since(90).until(80);
    assert!(matches!(only(backwards), ErrorKind::InvalidArgument { .. }));
    let future = store.history("/k/1").since(newest + 1);
    assert!(matches!(only(future), ErrorKind::FutureRevision { .. }));
    let early = store.history("/k/1").since(At::Time(0));
    assert!(matches!(only(early), ErrorKind::NoRevisionAtTime { .. }));
}

/// What takes no revision has no time that a later transaction could be held to: whoever sets rules and grants
/// leases first, and imports then, keeps the times of what is imported.
#[test]
fn what_takes_no_revision_raises_no_time() {
    for close in [false, true] {
        let clock = Arc::new(ManualClock::new(START_TIME));
        let options = tiny(Arc::new(MemoryVfs::new()), Arc::clone(&clock));
        let mut store = options.open(DIRECTORY).unwrap();
        let mut time = START_TIME - 3_000_000;
        let mut put_then = |store: &Store| {
            time += 1_000;
            let put = store.txn().then([annals::put("k", "v")]).time(time);
            let revision = put.commit().unwrap().revision;
            assert_eq!(store.time_of(revision).unwrap(), time, "at {revision}");
        };
        for round in 0..3 {
            store.set_retention(format!("/{round}/"), Some(Retention::forever())).unwrap();
            put_then(&store);
            let lease = store.lease_grant(0, Duration::from_secs(60)).unwrap();
            put_then(&store);
            store.lease_revoke(lease.id).unwrap();
            put_then(&store);
            store.compact(store.revision()).unwrap();
            put_then(&store);
            if round == 1 {
                store.reorganise().unwrap();
            }
            if close {
                store.set_retention(format!("/{round}/"), None).unwrap();
                store.close().unwrap();
                store = options.open(DIRECTORY).unwrap();
            }
            put_then(&store);
        }
        // The clock's still count where none is asked for.
        let put = store.put("k", "now").unwrap();
        assert_eq!(put.time, START_TIME);
    }
}
