//! What becomes of the past: it is told once more, change by change, and it is forgotten while commits go
//! on.
//!
//! A replay begins at a random revision of the first half of a history and tells so many changes, each with
//! its value: annals by `Store::log`, SQLite by a scan of row ids, the recipe by its feed and a look-up of each
//! value. To forget is `Store::compact` in annals; the others delete superseded versions in transactions of
//! [`BATCH`] revisions, one after the other, beside the commits. These come a millisecond apart: what is
//! measured is how long others hold them up, not how many there can be.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::data::{self, Rng};
use crate::latency::Latency;
use crate::peer::{Cas, Peer, Result};
use crate::reads::{History, fold};
use crate::report::Row;
use crate::running::{Running, progress, said, turns};

pub const REPLAY: &str = "replay of changes with values";
pub const IDLE: &str = "durable CAS, 1 ms apart: p99";
pub const FORGETTING: &str = "durable CAS, 1 ms apart, while the past is forgotten: p99";
pub const TIMES_IDLE: &str = "p99 while the past is forgotten / idle";

/// Changes of one replay.
const REPLAYED: usize = 100_000;
/// Revisions that one transaction of a peer forgets.
const BATCH: usize = 1_000;
/// How long commits are measured, in times of other measures: a p99 needs some hundreds.
const LONGER: u32 = 4;

/// What was asked for.
pub fn measure(config: &Config, history: &History, running: &[Running]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if config.wants(REPLAY) {
        rows.push(replays(config, history, running)?);
    }
    Ok(rows)
}

/// What was asked for and spoils the history for other measures.
pub fn spoil(config: &Config, history: &History, running: &[Running]) -> Result<Vec<Row>> {
    if !config.wants(FORGETTING) {
        return Ok(Vec::new());
    }
    forgetting(config, history, running)
}

fn replays(config: &Config, history: &History, running: &[Running]) -> Result<Row> {
    progress(REPLAY);
    let mut row = Row::new(REPLAY, "changes/s", true, running.len());
    for round in 0..config.rounds {
        for index in turns(round, running.len()) {
            let Some(one) = running.get(index) else { continue };
            let rate = replay(history, &*one.peer, config.time);
            if let Some(rate) = rate.map_err(|e| said(one.contestant, REPLAY, &e))? {
                row.push(index, rate);
            }
        }
    }
    Ok(row)
}

/// Changes a second; `None` where the store has no such thing.
fn replay(history: &History, peer: &dyn Peer, time: Duration) -> Result<Option<f64>> {
    let mut rng = Rng::new(history.keys << 8);
    let half = history.last_revision() / 2;
    let wanted = REPLAYED.min(usize::try_from(half)? - 2);
    let (started, mut total) = (Instant::now(), 0);
    while started.elapsed() < time {
        let from = 2 + rng.below(half - 2);
        let (mut next, mut sum, mut wrong) = (from, 0, false);
        let told = peer.replay(from, wanted, &mut |_, revision, value| {
            wrong |= revision != next;
            next += 1;
            sum ^= fold(value);
        })?;
        let Some(told) = told else { return Ok(None) };
        if told != wanted || wrong {
            return Err(format!("{told} of {wanted} changes, in order: {}", !wrong).into());
        }
        std::hint::black_box(sum);
        total += told;
    }
    Ok(Some(total as f64 / started.elapsed().as_secs_f64()))
}

fn forgetting(config: &Config, history: &History, running: &[Running]) -> Result<Vec<Row>> {
    progress(FORGETTING);
    let row = |name, unit| Row::new(name, unit, false, running.len());
    let mut idle = row(IDLE, "us");
    let mut forgetting = row(FORGETTING, "us");
    let mut times = row(TIMES_IDLE, "times");
    let time = config.time * LONGER;
    for round in 0..config.rounds {
        for index in turns(round, running.len()) {
            let Some(one) = running.get(index) else { continue };
            let said =
                |e: Box<dyn std::error::Error + Send + Sync>| said(one.contestant, FORGETTING, &e);
            let (keys, peer) = (history.keys, &*one.peer);
            // Each round forgets as much as any other.
            let upto = history.last_revision() * (round as u64 + 1) / (config.rounds as u64 + 1);
            if peer.forget(0, BATCH).map_err(&said)?.is_none() {
                continue;
            }
            let before = commits(peer, keys, time, &AtomicBool::new(true)).map_err(&said)?;
            let over = AtomicBool::new(false);
            let (during, forgot) = std::thread::scope(|scope| {
                let forgets = scope.spawn(|| {
                    let done = forget(peer, upto);
                    over.store(true, Ordering::Release);
                    done
                });
                let during = commits(peer, keys, time, &over);
                (during, forgets.join())
            });
            forgot.map_err(|_| "a thread panicked")?.map_err(&said)?;
            let during = during.map_err(&said)?;
            idle.push(index, before);
            forgetting.push(index, during);
            times.push(index, during / before);
            intact(history, peer, upto).map_err(&said)?;
        }
    }
    Ok(vec![idle, forgetting, times])
}

/// Forgets everything below a revision.
fn forget(peer: &dyn Peer, upto: u64) -> Result<()> {
    while peer.forget(upto, BATCH)? == Some(true) {}
    Ok(())
}

/// The p99 in microseconds of commits that come a millisecond apart, for a time at least and until `over`.
fn commits(peer: &dyn Peer, keys: u64, time: Duration, over: &AtomicBool) -> Result<f64> {
    let mut rng = Rng::new(7);
    let mut latency = Latency::default();
    let started = Instant::now();
    while started.elapsed() < time || !over.load(Ordering::Acquire) {
        let (key, value) = (data::key(rng.below(keys)), data::value(rng.below(1 << 40)));
        let begun = Instant::now();
        peer.cas(Cas { key: &key, seen: None, value: &value })?;
        latency.record(u64::try_from(begun.elapsed().as_nanos())?);
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(latency.nanos(9_900) as f64 / 1e3)
}

/// What is not forgotten is there: every key, newest and as of the revision up to which was forgotten.
fn intact(history: &History, peer: &dyn Peer, upto: u64) -> Result<()> {
    let limit = usize::try_from(history.keys)?;
    for at in [None, (upto > history.keys).then_some(upto)] {
        let (from, below) = (data::KEYS_START, data::KEYS_END);
        let found = peer.scan(from, below, limit, at, &mut |_, _, _| {})?;
        if found != limit {
            return Err(format!("{found} of {limit} keys are left at {at:?}").into());
        }
    }
    Ok(())
}
