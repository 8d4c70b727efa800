//! Holds everything that a store shows against the model.
//!
//! Differences are texts, not panics, so that a caller can add where it was when it found them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};

use annals::{ErrorKind, KeyRange, KeyValue, Store, View};
use bytes::Bytes;

use super::model::{Model, in_range};
use super::random::Random;

/// A difference between the store and the model, or an error where there should be none.
pub type Found = Result<(), String>;

/// Turns a panic into a finding.
pub fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// Compares two things that must be equal.
pub fn same<T: PartialEq + Debug>(what: impl FnOnce() -> String, store: &T, model: &T) -> Found {
    if store == model {
        return Ok(());
    }
    Err(format!("{}\n  store: {}\n  model: {}", what(), short(store), short(model)))
}

/// A debug text without the middle of what is very long.
pub fn short(thing: &impl Debug) -> String {
    let text = format!("{thing:?}");
    match (text.get(..700), text.get(text.len().saturating_sub(300)..)) {
        (Some(start), Some(end)) if text.len() > 1000 => format!("{start} ... {end}"),
        _ => text,
    }
}

/// Takes the answer out of a result that must not be an error.
pub fn good<T>(what: impl FnOnce() -> String, result: annals::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{}: unexpected error: {error}", what()))
}

/// How much of a store is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The newest state, every key's history and the log.
    Newest,
    /// Every key's history, the log, the newest and the oldest state, and two in between.
    Sampled(u64),
    /// Every state, too.
    Everything,
}

/// Checks everything a store shows.
pub fn store(store: &Store, model: &Model, depth: Depth) -> Found {
    same(|| "revision".into(), &store.revision(), &model.revision())?;
    same(|| "compacted revision".into(), &store.compacted_revision(), &model.compacted())?;
    let (oldest, newest) = (model.compacted().max(1), model.revision());
    let revisions: Vec<u64> = match depth {
        Depth::Newest => vec![newest],
        Depth::Everything => (oldest..=newest).collect(),
        Depth::Sampled(seed) => {
            let mut random = Random::new(seed);
            let mut between = || oldest + random.below(newest - oldest + 1);
            vec![oldest, newest, between(), between()]
        }
    };
    for revision in revisions {
        let view = good(|| format!("view at {revision}"), store.at(revision))?;
        state(&view, &model.state_at(revision))?;
    }
    edges(store, model)?;
    histories(store, model)?;
    log(store, model)?;
    leases(store, model)
}

/// Checks what lies outside of what can be read.
fn edges(store: &Store, model: &Model) -> Found {
    let future = store.at(model.revision() + 1).map(|view| view.revision());
    if !matches!(
        future.as_ref().map_err(annals::Error::kind),
        Err(ErrorKind::FutureRevision { .. })
    ) {
        return Err(format!("a future revision: {future:?}"));
    }
    if model.compacted() > 1 {
        let past = store.at(model.compacted() - 1).map(|view| view.revision());
        if !matches!(past.as_ref().map_err(annals::Error::kind), Err(ErrorKind::Compacted { .. })) {
            return Err(format!("a compacted revision: {past:?}"));
        }
    }
    Ok(())
}

/// Checks a view: forwards, backwards, one by one.
pub fn state(view: &View, expected: &BTreeMap<Bytes, KeyValue>) -> Found {
    let revision = view.revision();
    let expected: Vec<KeyValue> = expected.values().cloned().collect();
    let forward = view.range(..).collect::<annals::Result<Vec<_>>>();
    let forward = good(|| format!("scan at {revision}"), forward)?;
    same(|| format!("scan at {revision}"), &forward, &expected)?;
    let backward = view.range(..).rev().collect::<annals::Result<Vec<_>>>();
    let mut backward = good(|| format!("scan backwards at {revision}"), backward)?;
    backward.reverse();
    same(|| format!("scan backwards at {revision}"), &backward, &expected)?;
    let count = good(|| format!("count at {revision}"), view.count(..))?;
    same(|| format!("count at {revision}"), &count, &(expected.len() as u64))?;
    for kv in expected {
        let what = || format!("get {:?} at {revision}", kv.key);
        let found = good(what, view.get(&kv.key))?;
        same(what, &found, &Some(kv.clone()))?;
    }
    Ok(())
}

/// Checks a part of a view, from both ends towards the middle in an order of the seed's.
pub fn part(view: &View, model: &Model, key: &Bytes, end: &Bytes, seed: u64) -> Found {
    let revision = view.revision();
    let mut expected: Vec<KeyValue> =
        model.state_at(revision).into_values().filter(|kv| in_range(key, end, &kv.key)).collect();
    let range = KeyRange::from_etcd(key, end);
    let what = || format!("scan of {range:?} at {revision} with seed {seed}");
    let count = good(what, view.count(&range))?;
    same(|| format!("count of {range:?} at {revision}"), &count, &(expected.len() as u64))?;
    let mut random = Random::new(seed);
    let mut scan = view.range(&range);
    loop {
        let from_front = random.one_in(2);
        let item = if from_front { scan.next() } else { scan.next_back() };
        let expected_item = match (expected.is_empty(), from_front) {
            (true, _) => None,
            (false, true) => Some(expected.remove(0)),
            (false, false) => expected.pop(),
        };
        let item = good(what, item.transpose())?;
        same(what, &item, &expected_item)?;
        if item.is_none() {
            return Ok(());
        }
    }
}

fn histories(store: &Store, model: &Model) -> Found {
    for key in model.keys() {
        history(store, model, key)?;
    }
    Ok(())
}

pub fn history(store: &Store, model: &Model, key: &Bytes) -> Found {
    let what = || format!("history of {key:?}");
    let versions = good(what, store.history(key).collect::<annals::Result<Vec<_>>>())?;
    same(what, &versions, &model.history(key))
}

fn log(store: &Store, model: &Model) -> Found {
    let found = store.log(..).with_values().collect::<annals::Result<Vec<_>>>();
    let found = good(|| "log".into(), found)?;
    let expected = model.transactions(0);
    for (found, expected) in found.iter().zip(&expected) {
        same(|| format!("transaction {}", expected.revision), found, expected)?;
    }
    same(|| "number of transactions".into(), &found.len(), &expected.len())
}

fn leases(store: &Store, model: &Model) -> Found {
    let list = good(|| "lease list".into(), store.lease_list())?;
    let found: BTreeMap<i64, i64> = list.iter().map(|lease| (lease.id, lease.ttl)).collect();
    same(|| "leases".into(), &found, model.leases())?;
    for lease in list {
        let what = || format!("keys of lease {}", lease.id);
        let info = good(what, store.lease_info(lease.id, true))?;
        same(what, &info.map(|info| info.keys), &Some(model.attached(lease.id)))?;
    }
    Ok(())
}

/// Finds how much of the model's journal a reopened store has, at least `acknowledged` changes,
/// and checks everything it shows against that. Returns the number of changes.
pub fn recovered(
    store: &Store,
    model: &Model,
    acknowledged: usize,
    depth: Depth,
) -> Result<usize, String> {
    let changes = which(store, model, acknowledged..=model.len())?;
    let mut cut = model.clone();
    cut.cut(changes);
    self::store(store, &cut, depth)?;
    Ok(changes)
}

/// Finds how many changes a reopened store has, at least as many as were acknowledged and at most as many as
/// there were.
pub fn which(store: &Store, model: &Model, range: RangeInclusive<usize>) -> Result<usize, String> {
    let leases = good(|| "lease list".into(), store.lease_list())?;
    let leases: BTreeMap<i64, i64> = leases.iter().map(|lease| (lease.id, lease.ttl)).collect();
    let (revision, compacted) = (store.revision(), store.compacted_revision());
    let fits = |changes: &usize| {
        let entry = model.entry_after(*changes);
        (entry.revision, entry.compacted, &entry.leases) == (revision, compacted, &leases)
    };
    range.clone().rev().find(fits).ok_or_else(|| {
        let (low, high) = (model.entry_after(*range.start()), model.entry_after(*range.end()));
        format!(
            "the store is at revision {revision}, compacted {compacted}, leases {leases:?}, which \
             is no state from\n  {low:?} (acknowledged)\n  to {high:?}"
        )
    })
}
