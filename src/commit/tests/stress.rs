//! Many threads, real time: the invariants under contention, with generation switches.
//!
//! These tests also run under `ThreadSanitizer` (`.ci/tsan`). Where it matters they join their
//! threads themselves, although the scope does: it sees the one, and not always the other.

use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;

fn number(seen: Option<Seen>) -> u64 {
    seen.map_or(0, |seen| u64::from_le_bytes(seen.value.try_into().expect("eight bytes")))
}

/// Every thread increments counters by compare-and-swap on one or several keys; nothing is lost.
#[test]
fn no_increment_is_lost() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 3_000;
    let store = Fixture::new(GenerationSize { arena_bytes: 1 << 18, keys: 100 });
    let sum: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    let mut random = Random(0x9e37_79b9 + thread);
                    let mut increments = 0;
                    for _ in 0..ROUNDS {
                        let keys: std::collections::BTreeSet<_> =
                            (0..=random.below(3)).map(|_| random.below(8)).collect();
                        let (ordered, _) = store.transact(|store, snapshot| {
                            let revision = snapshot.position().revision;
                            let mut plan = Plan::default();
                            for key in &keys {
                                let key = format!("{key}");
                                let old = number(store.read(&key, revision));
                                let seen = store.seen(&key, revision);
                                plan.writes.push(put(&key, (old + 1).to_le_bytes()));
                                plan.reads.points.push(Point::at(user(&key), seen));
                            }
                            Some(plan)
                        });
                        let ordered = ordered.expect("never gives up");
                        assert!(store.chain.applied() >= ordered.position, "read your writes");
                        increments += keys.len() as u64;
                    }
                    increments
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let last = store.chain.applied().revision;
    assert_eq!(last, 1 + THREADS * ROUNDS);
    let total: u64 = (0..8).map(|key| number(store.read(format!("{key}"), last))).sum();
    assert_eq!(total, sum);
    assert!(lock(&store.world.generations).len() > 2);
    store.chain.wait_durable(store.chain.applied()).expect("a log that does not fail");
    store.verify();
}

/// Writers move amounts between accounts; readers at any revision always see the same total.
#[test]
fn transactions_are_visible_wholly_or_not_at_all() {
    const ACCOUNTS: u64 = 6;
    let store = Fixture::new(GenerationSize { arena_bytes: 1 << 17, keys: 50 });
    let accounts: Vec<_> =
        (0..ACCOUNTS).map(|account| put(format!("{account}"), 100u64.to_le_bytes())).collect();
    store.order(&plan(accounts));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (store, stop) = (&store, &stop);
        let writers: Vec<_> = (0..2)
            .map(|thread| {
                scope.spawn(move || {
                    let mut random = Random(77 + thread);
                    for _ in 0..4_000 {
                        let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
                        if from == to {
                            continue;
                        }
                        store.transact(|store, snapshot| {
                            let at = snapshot.position().revision;
                            let (from, to) = (format!("{from}"), format!("{to}"));
                            let points = [
                                (&from[..], store.seen(&from, at)),
                                (&to[..], store.seen(&to, at)),
                            ];
                            let a = number(store.read(&from, at)).wrapping_sub(1).to_le_bytes();
                            let b = number(store.read(&to, at)).wrapping_add(1).to_le_bytes();
                            Some(cas([put(&from, a), put(&to, b)], &points))
                        });
                    }
                })
            })
            .collect();
        let readers: Vec<_> = (0..2)
            .map(|thread| {
                scope.spawn(move || {
                    let mut random = Random(99 + thread);
                    let mut checked = 0u64;
                    while !stop.load(Ordering::Relaxed) || checked == 0 {
                        let newest = store.chain.applied().revision;
                        let at = newest - random.below(newest.min(20)).min(newest - 2);
                        let balance = |account| number(store.read(format!("{account}"), at));
                        let total = (0..ACCOUNTS).map(balance).fold(0, u64::wrapping_add);
                        assert_eq!(total, 100 * ACCOUNTS, "at {at}, applied {newest}");
                        checked += 1;
                    }
                })
            })
            .collect();
        // A syncing thread beside them: durable follows applied, and generations come and go.
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                store.chain.lead_once().expect("a log that does not fail");
                let (durable, applied) = (store.chain.durable(), store.chain.applied());
                assert!(durable <= applied);
            }
        });
        for writer in writers {
            writer.join().expect("no panic");
        }
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("no panic");
        }
    });
    store.chain.wait_durable(store.chain.applied()).expect("a log that does not fail");
    store.verify();
}

/// Range footprints exclude each other: at most one thread wins each slot of a growing list.
#[test]
fn range_footprints_prevent_phantoms() {
    let store = Fixture::new(GenerationSize { arena_bytes: 1 << 17, keys: 400 });
    thread::scope(|scope| {
        for thread in 0..3 {
            let store = &store;
            scope.spawn(move || {
                for _ in 0..300 {
                    // Appends after the highest number there is, as found by looking.
                    store.transact(|store, snapshot| {
                        let at = snapshot.position().revision;
                        let mut next = at.saturating_sub(1).min(2_000);
                        while next > 0 && store.read(format!("{:05}", next - 1), at).is_none() {
                            next -= 1;
                        }
                        let mut plan = plan([put(format!("{next:05}"), format!("{thread}"))]);
                        plan.reads.ranges.push((user(""), Bytes::new()));
                        Some(plan)
                    });
                }
            });
        }
    });
    store.chain.wait_durable(store.chain.applied()).expect("a log that does not fail");
    let keys = store.verify();
    assert_eq!(keys.len(), 900);
    assert!(keys.values().all(|revisions| revisions.len() == 1), "no slot was taken twice");
}

/// All threads insert the same cold keys at once; each key exists once, in table and order.
#[test]
fn first_appearances_race() {
    for seed in 1..30 {
        let generation = Generation::new(1, GenerationSize { arena_bytes: 1 << 20, keys: 1_000 });
        thread::scope(|scope| {
            let insert = |thread: u64| {
                let mut random = Random(seed * 10 + thread);
                for _ in 0..1_000 {
                    let key = format!("{}", random.below(500));
                    let node = generation.get_or_insert(key.as_bytes()).expect("room");
                    let found = generation.find(key.as_bytes()).expect("inserted");
                    assert!(std::ptr::eq(node, found));
                    let mut cursor = generation.cursor();
                    cursor.seek(key.as_bytes());
                    assert!(std::ptr::eq(cursor.node().expect("ordered"), node));
                }
            };
            for thread in [0, 1, 2, 3].map(|thread| scope.spawn(move || insert(thread))) {
                thread.join().expect("no panic");
            }
        });
        let mut cursor = generation.cursor();
        cursor.seek_first();
        let mut keys = Vec::new();
        while let Some(node) = cursor.node() {
            keys.push(node.key().to_vec());
            cursor.next();
        }
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(keys.len(), generation.key_count(), "seed {seed}");
    }
}

/// Large transactions are applied by several helpers; all of each is visible once any is.
#[test]
fn large_transactions_among_small_ones() {
    let store = Fixture::new(GenerationSize { arena_bytes: 4 << 20, keys: 5_000 });
    thread::scope(|scope| {
        for thread in 0..3u64 {
            let store = &store;
            scope.spawn(move || {
                let mut random = Random(5 + thread);
                for round in 0..60u64 {
                    let large = round % 6 == thread;
                    let count = if large { 1_500 } else { 1 + random.below(3) };
                    let stamp = (thread * 1_000 + round).to_le_bytes();
                    let first = if large { 0 } else { random.below(1_000) };
                    let writes: Vec<_> =
                        (first..first + count).map(|key| put(format!("{key:05}"), stamp)).collect();
                    let ordered = store.order(&plan(writes));
                    let at = ordered.position.revision;
                    for key in [first, first + count / 2, first + count - 1] {
                        let seen = store.read(format!("{key:05}"), at).expect("written");
                        assert_eq!((seen.at, &seen.value[..]), (at, &stamp[..]));
                    }
                }
            });
        }
    });
    store.chain.wait_durable(store.chain.applied()).expect("a log that does not fail");
    store.verify();
}

/// A large transaction gets its place although small ones never cease.
#[test]
fn a_large_transaction_does_not_starve() {
    for count in [2_000, 50_000] {
        let store = Fixture::new(GenerationSize { arena_bytes: 64 << 20, keys: 200_000 });
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let (store, stop) = (&store, &stop);
            let small = [0, 1, 2].map(|thread| {
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        store.order(&plan([put(format!("small {thread}"), "v")]));
                    }
                })
            });
            thread::sleep(std::time::Duration::from_millis(5));
            let writes: Vec<_> = (0..count).map(|key| put(format!("{key:06}"), "v")).collect();
            let start = std::time::Instant::now();
            let before = store.chain.applied().revision;
            let ordered = store.order(&plan(writes));
            println!(
                "{count} keys took {:?}; {} small ones came before",
                start.elapsed(),
                ordered.position.revision - before
            );
            stop.store(true, Ordering::Relaxed);
            for thread in small {
                thread.join().expect("no panic");
            }
        });
    }
}

#[test]
fn the_log_is_found_from_any_revision_in_a_few_steps() {
    const THREADS: u64 = 3;
    const EACH: u64 = 2_000;
    let store = Fixture::new(GenerationSize { arena_bytes: 1 << 19, keys: 1_000 });
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                for n in 0..EACH {
                    store.order(&plan([put(format!("{thread}"), n.to_be_bytes())]));
                }
            });
        }
        // While it grows, too: what a mark leads to is whole as soon as it is found.
        let store = &store;
        scope.spawn(move || {
            let mut random = Random(3);
            loop {
                let applied = store.chain.applied();
                let revision = 2 + random.below(applied.revision);
                for generation in lock(&store.world.generations).clone() {
                    let mut cursor = generation.frames_before(revision);
                    let mut before = None;
                    while let Some(frame) = cursor.next(applied.seq) {
                        let at = frame.position().revision;
                        assert!(before.is_none_or(|before| before + 1 == at), "nothing is skipped");
                        if at >= revision {
                            break;
                        }
                        before = Some(at);
                    }
                }
                if applied.revision == 1 + THREADS * EACH {
                    return;
                }
            }
        });
    });
    let upto = store.chain.applied().seq;
    let generations = lock(&store.world.generations).clone();
    assert!(generations.len() > 2);
    let mut found = 0;
    for revision in (2..=1 + THREADS * EACH).step_by(7) {
        for generation in &generations {
            if generation.last().is_some_and(|last| last.revision < revision)
                || generation.first().revision >= revision
            {
                continue;
            }
            let mut cursor = generation.frames_before(revision);
            let mut steps = 0;
            loop {
                steps += 1;
                let frame = cursor.next(upto).expect("the frame");
                if frame.position().revision >= revision {
                    assert_eq!(frame.position().revision, revision, "nothing is skipped");
                    break;
                }
            }
            assert!(steps <= 300, "{steps} steps to revision {revision}");
            found += 1;
        }
    }
    assert_eq!(found, (THREADS * EACH).div_ceil(7), "each is in one generation");
}

#[test]
fn a_hundred_thousand_versions_are_searched_in_few_steps() {
    const VERSIONS: u64 = 100_000;
    let store = Fixture::new(GenerationSize { arena_bytes: 128 << 20, keys: 10 });
    let mut revisions = Vec::new();
    for n in 0..VERSIONS {
        revisions.push(store.order(&plan([put("hot", n.to_le_bytes())])).position.revision);
        // Now and then the revisions between belong to others, also many in a row.
        for _ in 0..if n % 1000 == 0 { 50 } else { u64::from(n % 7 == 0) } {
            store.order(&plan([put("other", "")]));
        }
    }
    let generation = Arc::clone(lock(&store.world.generations).last().expect("one"));
    let key = generation.find(&user("hot")).expect("written");
    assert_eq!(key.versions().count(), revisions.len(), "all in one generation");
    let (mut steps, mut most, mut searches) = (0, 0, 0);
    for at in (revisions[0]..=revisions[revisions.len() - 1]).step_by(37) {
        let newest = revisions[revisions.partition_point(|revision| *revision <= at) - 1];
        assert!(matches!(key.at(at), Lookup::Found(version) if version.at() == newest), "at {at}");
        let taken = key.steps(at);
        (steps, most, searches) = (steps + taken, most.max(taken), searches + 1);
    }
    assert!(matches!(key.at(revisions[0] - 1), Lookup::Absent));
    // Computed from the revisions, so the same in every run: 74 on average, and 174 at most.
    assert!(steps / searches <= 100 && most <= 250, "{} on average, {most}", steps / searches);
    println!("{} steps on average, {most} at most", steps / searches);
}
