//! Many threads: nobody loses an update, nobody sees half a transaction, whatever background work
//! does meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;

use super::{Numbers, memory, open, put, tiny, user};
use crate::ErrorKind;
use crate::engine::{Engine, InternalKey, Point};
use crate::error::Result;
use crate::options::Durability;

const ACCOUNTS: u64 = 40;
const START: u64 = 1_000;

fn account(number: u64) -> Bytes {
    user(format!("/account/{number:03}"))
}

fn balance(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

/// The value of an account: the balance, and something to fill the memtable with.
fn value(balance: u64) -> Vec<u8> {
    let mut value = balance.to_be_bytes().to_vec();
    value.resize(8 + usize::try_from(balance % 300).unwrap(), 7);
    value
}

/// Moves something from one account to another, by compare and swap on both.
fn transfer(engine: &Engine, from: u64, to: u64, amount: u64) -> Result<()> {
    let outcome = engine.transact(None, &mut |snapshot, plan| {
        let (from, to) = (account(from), account(to));
        let (Some(a), Some(b)) = (snapshot.get(&from)?, snapshot.get(&to)?) else {
            panic!("an account is gone at {:?}", snapshot.position());
        };
        let amount = amount.min(balance(&a.value));
        for key in [&from, &to] {
            let key = InternalKey::from_slice(key);
            let newest = snapshot.newest(&key)?;
            plan.reads.points.push(Point::new(key, newest));
        }
        plan.writes.push(put(from, value(balance(&a.value) - amount)));
        plan.writes.push(put(to, value(balance(&b.value) + amount)));
        Ok(true)
    })?;
    engine.wait(&outcome)
}

fn check_sum(engine: &Engine, revision: Option<u64>, backwards: bool) {
    let view = match revision {
        None => engine.latest().unwrap(),
        Some(revision) => match engine.view(revision) {
            Ok(view) => view,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Compacted { .. }), "{error}");
                return;
            }
        },
    };
    let scan = view.scan(&user("/account/"), &user("/account0"), false);
    let balances = |record: Result<crate::engine::Record>| balance(&record.unwrap().value);
    let balances: Vec<u64> =
        if backwards { scan.rev().map(balances).collect() } else { scan.map(balances).collect() };
    assert_eq!(balances.len() as u64, ACCOUNTS, "at {}", view.revision());
    assert_eq!(balances.iter().sum::<u64>(), ACCOUNTS * START, "at {}", view.revision());
}

fn run(durability: Durability) {
    let (_, vfs) = memory();
    let options = tiny(&vfs).background(true).durability(durability);
    let engine = open(&options).unwrap();
    let all = (0..ACCOUNTS).map(|number| put(account(number), value(START))).collect();
    super::commit(&engine, all).unwrap();
    let stop = AtomicBool::new(false);
    let transfers = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|seed| {
                let (engine, transfers) = (&engine, &transfers);
                scope.spawn(move || {
                    let mut numbers = Numbers::new(seed);
                    for _ in 0..1_000 {
                        let from = numbers.below(ACCOUNTS);
                        let to = (from + 1 + numbers.below(ACCOUNTS - 1)) % ACCOUNTS;
                        transfer(engine, from, to, numbers.below(50)).unwrap();
                        transfers.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for seed in 0..2 {
            let (engine, stop) = (&engine, &stop);
            scope.spawn(move || {
                let mut numbers = Numbers::new(100 + seed);
                while !stop.load(Ordering::Acquire) {
                    check_sum(engine, None, seed == 0);
                    let oldest = engine.compacted_revision().max(2);
                    let newest = engine.revision();
                    let revision = oldest + numbers.below(newest + 1 - oldest.min(newest));
                    check_sum(engine, Some(revision.clamp(2, newest)), seed == 1);
                }
            });
        }
        scope.spawn(|| {
            let mut numbers = Numbers::new(200);
            while !stop.load(Ordering::Acquire) {
                let (low, high) = (engine.compacted_revision(), engine.revision());
                let to = low + numbers.below(high - low + 1);
                // Another may have compacted further by now, but there is no other.
                if to > low {
                    super::compact(&engine, to).unwrap();
                }
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
        });
        let joined: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        // Before anybody panics, or the others would go on for ever.
        stop.store(true, Ordering::Release);
        assert!(joined.iter().all(std::thread::Result::is_ok));
    });
    let count = transfers.load(Ordering::Relaxed);
    assert_eq!(engine.revision(), 2 + count);
    check_sum(&engine, None, false);
    engine.close().unwrap();
    drop(engine);
    let engine = open(&options).unwrap();
    assert_eq!(engine.revision(), 2 + count);
    check_sum(&engine, None, true);
    assert!(engine.stats().failure.is_none());
}

#[test]
fn a_long_evaluation_finds_its_place_among_short_ones() {
    const EVALUATIONS_MAX: u64 = 60;
    let (_, vfs) = memory();
    let options = tiny(&vfs).background(true).durability(Durability::Buffered);
    let engine = open(&options.memtable_bytes(1 << 20)).unwrap();
    let stop = AtomicBool::new(false);
    let passed = AtomicU64::new(0);
    let mut evaluations = 0;
    let outcome = std::thread::scope(|scope| {
        for writer in 0..2_u64 {
            let (engine, stop, passed) = (&engine, &stop, &passed);
            scope.spawn(move || {
                for n in 0.. {
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    let key = user(format!("/range/{writer}/{}", n % 10));
                    super::commit(engine, vec![put(key, "v")]).unwrap();
                    passed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while passed.load(Ordering::Relaxed) < 100 {
            std::thread::yield_now();
        }
        let outcome = engine.transact(None, &mut |_, plan| {
            evaluations += 1;
            if evaluations > EVALUATIONS_MAX {
                return Ok(false);
            }
            // As long as it takes to read a large range.
            std::thread::sleep(std::time::Duration::from_millis(20));
            plan.reads.ranges.push((user("/range/"), user("/range0")));
            plan.writes.push(put(user("a"), "v"));
            Ok(true)
        });
        // The others go on as before.
        let before = passed.load(Ordering::Relaxed);
        while passed.load(Ordering::Relaxed) < before + 100 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Release);
        outcome
    });
    assert!(outcome.unwrap().changed, "no place after {EVALUATIONS_MAX} evaluations");
}

#[test]
fn nothing_is_lost_or_created_in_a_sync_store() {
    run(Durability::Sync);
}

#[test]
fn nothing_is_lost_or_created_in_a_buffered_store() {
    run(Durability::Buffered);
}
