//! Many damages, one or two at a time: what is saved, what is lost, and whether the report says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use annals::vfs::MemoryVfs;
use annals::{KeyValue, Store, Transaction};
use bytes::Bytes;
use serde_json::Value;

use crate::Laid;
use crate::harm::harm;
use crate::made::{Made, RULED, made};
use crate::support::model::Model;
use crate::support::random::Random;
use crate::support::{number_from_env, parallel};

/// The exit code of a repair that could not save everything.
const LOSSES: i32 = 9;

/// What came of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Saved {
    /// Every revision that could be read is there.
    Everything,
    /// The newest state is whole, and the past from some revision on.
    Past,
    /// The newest state is whole, the past is not.
    Newest,
    /// The log is cut.
    UpToDamage,
    /// Of the newest state what is not named as lost.
    Others,
    /// Nothing could be made of it.
    Nothing,
}

/// Every row of the report that says that something is lost.
fn losses(report: &Value) -> Vec<String> {
    let rows = report["files"].as_array().unwrap().iter();
    let lost = rows.filter(|row| !row["lost"].is_null());
    lost.map(|row| format!("{}: {}", row["file"].as_str().unwrap(), row["lost"].as_str().unwrap()))
        .collect()
}

/// The state of a store at a revision.
fn state(store: &Store, revision: u64) -> Result<BTreeMap<Bytes, KeyValue>, String> {
    let view = store.at(revision).map_err(|error| format!("at {revision}: {error}"))?;
    let found = view.range(..).collect::<annals::Result<Vec<_>>>();
    let found = found.map_err(|error| format!("scan at {revision}: {error}"))?;
    Ok(found.into_iter().map(|kv| (kv.key.clone(), kv)).collect())
}

/// Repairs a damaged store, and holds what it made, and what it said, against the truth.
pub fn check(disk: &MemoryVfs, made: &Made, more: &[&str]) -> Result<Saved, String> {
    let laid = Laid::of(disk);
    let before = laid.snapshot();
    let verified = laid.run(&["verify", "-o", "json"]);
    let code = verified.status.code();
    if !matches!(code, Some(0 | 1 | 3)) {
        return Err(format!("verify ends with {code:?}"));
    }
    let output = laid.repair(more);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if laid.snapshot() != before {
        return Err("the original is not what it was".into());
    }
    let code = output.status.code();
    match code {
        Some(0 | LOSSES) => {}
        // Nothing that says which store it was, or no such directory any more.
        Some(1 | 3) if !laid.repaired().exists() => return Ok(Saved::Nothing),
        code => return Err(format!("repair ends with {code:?}: {said}")),
    }
    let report: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let named = ["lost_keys", "lost_revisions", "lost_origins"];
    let named = named.map(|of| report[of].as_array().map_or(0, Vec::len));
    let past_lost = report["past_lost"].as_bool().unwrap_or_default();
    if (code == Some(LOSSES)) != (named != [0; 3] || past_lost || report["lost_entries"] != 0) {
        return Err(format!("repair ends with {code:?} and names {named:?}, {past_lost}: {said}"));
    }
    let on_disk = annals::Options::new();
    let checked = annals::check(laid.repaired(), &on_disk, &mut |_, _| {});
    let checked = checked.map_err(|error| error.to_string())?;
    if let Some(found) = checked.damage.first() {
        return Err(format!("what was made is damaged: {found}"));
    }
    let store = Store::open_read_only(laid.repaired()).map_err(|error| error.to_string())?;
    compare(&store, made, &report).map_err(|error| format!("{error}\n  {report}"))
}

/// Whether a copy is as the original was, as far as it goes, but for who wrote what is in the gaps.
fn same(store: &Store, truth: &Model, report: &Value) -> Result<(), String> {
    let newest = store.revision();
    let floor = store.oldest_readable(..);
    for revision in floor.max(1)..=newest {
        if state(store, revision)? != truth.state_at(revision) {
            return Err(format!("the state at {revision} is another"));
        }
    }
    let given_up = report["past_given_up"].as_array().unwrap();
    if given_up.is_empty() == (report["past_lost"] == true) {
        return Err("past_lost is not what past_given_up names".into());
    }
    // Some keys may be readable before that.
    for key in truth.keys() {
        let oldest = store.oldest_readable(key..=key);
        let lost = given_up.iter().filter(|lost| {
            let prefix = lost["prefix"].as_str().unwrap();
            key.starts_with(prefix.as_bytes())
        });
        let named = lost.map(|lost| lost["from"].as_u64().unwrap()).max().unwrap_or(0);
        if oldest > truth.compacted() && named != oldest || named > oldest {
            return Err(format!("the past of {key:?} before {oldest} is lost, and not named"));
        }
        for revision in store.oldest_readable(key..=key).max(1)..floor.min(newest) {
            let found = store.get_at(key, revision);
            let found = found.map_err(|error| format!("{key:?} at {revision}: {error}"))?;
            if found.as_ref() != truth.state_at(revision).get(key) {
                return Err(format!("{key:?} at {revision} is another"));
            }
        }
    }
    // A compaction may be among what is lost.
    let from = floor.max(truth.compacted());
    if from <= newest {
        let log = store.log(from..).with_values().collect::<annals::Result<Vec<_>>>();
        let mut log = log.map_err(|error| format!("log: {error}"))?;
        log.pop_if(|last| report["added_revision"] == last.revision && last.changes.is_empty());
        let all = truth.transactions(from).into_iter();
        let expected: Vec<_> = all.filter(|found| found.revision <= newest).collect();
        is_same_log(&log, &expected, &gaps(report)?)?;
    }
    Ok(())
}

/// Whether transactions are those that were. Who wrote what is in a gap is not known, nor when, but that it was not later
/// than what came next.
fn is_same_log(
    log: &[Transaction],
    truth: &[Transaction],
    gaps: &[(u64, u64)],
) -> Result<(), String> {
    let is_mended = |found: &Transaction, truth: &Transaction| {
        gaps.iter().any(|gap| (gap.0..=gap.1).contains(&truth.revision))
            && (found.revision, &found.changes) == (truth.revision, &truth.changes)
            && found.metadata.is_empty()
            && found.time >= truth.time
    };
    let is_same = |(found, truth)| found == truth || is_mended(found, truth);
    if log.len() != truth.len() || !log.iter().zip(truth).all(is_same) {
        return Err("the log is another".into());
    }
    Ok(())
}

fn compare(store: &Store, made: &Made, report: &Value) -> Result<Saved, String> {
    let (truth, newest) = (&made.model, store.revision());
    // One that changes nothing, behind one that brings keys back.
    let newest = newest - u64::from(report["added_revision"] == newest);
    let newest = newest - u64::from(report["brought_back_at"] == newest);
    let losses = losses(report);
    if newest > truth.revision() {
        return Err(format!("revision {newest} never was"));
    }
    let is_past_lost = store.oldest_readable(..) > truth.compacted();
    if is_past_lost && report["past_lost"] != true {
        return Err("the past is lost, and past_lost does not say so".into());
    }
    if report["way"] == "rebuild" && report["past_lost"] == false {
        let rules = store.retention().iter().filter(|rule| rule.prefix == RULED).count();
        if rules != 1 {
            return Err("the rule of retention is lost".into());
        }
    }
    let lost_revisions = report["lost_revisions"].as_array().unwrap();
    if newest < truth.revision() {
        // What is missing at the end is named.
        let named = lost_revisions.iter().any(|lost| lost["from"].as_u64() == Some(newest + 1));
        if !named {
            return Err(format!("revisions behind {newest} are not named as lost"));
        }
    }
    if is_past_lost && losses.is_empty() {
        return Err("the past is lost, and no line says so".into());
    }
    let lost_keys: BTreeSet<Bytes> = report["lost_keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lost| Bytes::from(lost["key"].as_str().unwrap().to_owned()))
        .collect();
    // Newest versions of which only the keys before and behind are known.
    let is_unsure = report["lost_entries"] != 0;
    let is_copy = report["way"] == "copy";
    if is_copy && lost_keys.is_empty() && !is_unsure {
        same(store, truth, report)?;
        return Ok(match (newest == truth.revision(), is_past_lost) {
            (true, false) => Saved::Everything,
            (true, true) if store.oldest_readable(..) < newest => Saved::Past,
            (true, true) => Saved::Newest,
            (false, _) => Saved::UpToDamage,
        });
    }
    // Rebuilt: every key is as it was, or named; or written by transactions that are named.
    let found = state(store, store.revision())?;
    let expected = truth.state_at(truth.revision());
    let in_lost = |revision: u64| {
        lost_revisions.iter().any(|lost| {
            let upto = lost["upto"].as_u64().unwrap_or(u64::MAX);
            (lost["from"].as_u64().unwrap()..=upto).contains(&revision)
        })
    };
    // The revision at which a key was written last.
    let written = |key: &Bytes| {
        let all = truth.transactions(0).into_iter();
        let wrote = all.filter(|t| t.changes.iter().any(|change| change.key == *key));
        wrote.map(|transaction| transaction.revision).max().unwrap_or(0)
    };
    let mut others = 0;
    for key in expected.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
        let is_same = found.get(key) == expected.get(key);
        if lost_keys.contains(key) {
            if is_same {
                return Err(format!("{key:?} is named as lost, and there"));
            }
            is_as_kept(key, found.get(key), truth, report)?;
            others += 1;
        } else if !is_same {
            if !in_lost(written(key)) && !is_unsure {
                return Err(format!(
                    "{key:?} is {:?}, was {:?}, and not named",
                    found.get(key).map(|kv| kv.mod_revision),
                    expected.get(key).map(|kv| kv.mod_revision)
                ));
            }
            others += 1;
        }
    }
    if newest < truth.revision() {
        return Ok(Saved::Others);
    }
    let from = if is_copy { 0 } else { store.compacted_revision().max(truth.compacted()) };
    past(store, truth, (from, newest), report, is_unsure)?;
    Ok(match others {
        0 if !is_past_lost => Saved::Everything,
        0 if from < newest => Saved::Past,
        0 => Saved::Newest,
        _ => Saved::Others,
    })
}

/// Whether a key that is named as lost is what the report says it is.
fn is_as_kept(
    key: &Bytes,
    found: Option<&KeyValue>,
    truth: &Model,
    report: &Value,
) -> Result<(), String> {
    let mut lost = report["lost_keys"].as_array().unwrap().iter();
    let lost = lost.find(|lost| lost["key"].as_str().unwrap().as_bytes() == key).unwrap();
    let kept = lost["kept"].as_u64();
    let kept = kept.and_then(|kept| truth.state_at(kept).get(key).cloned());
    if found.map(|kv| &kv.value) == kept.as_ref().map(|kv| &kv.value) {
        return Ok(());
    }
    Err(format!("{key:?} is not as of {kept:?}"))
}

/// The revisions of which it is not known who wrote them.
fn gaps(report: &Value) -> Result<Vec<(u64, u64)>, String> {
    serde_json::from_value(report["lost_origins"].clone()).map_err(|error| error.to_string())
}

/// The keys that transactions wrote of which the report says that they are lost, and none has written since: nothing tells that
/// they are not what they were before.
fn written_by_lost(truth: &Model, report: &Value) -> BTreeSet<Bytes> {
    let lost = report["lost_revisions"].as_array().unwrap();
    let is_lost = |revision: u64| {
        lost.iter().any(|lost| {
            let upto = lost["upto"].as_u64().unwrap_or(u64::MAX);
            (lost["from"].as_u64().unwrap()..=upto).contains(&revision)
        })
    };
    let mut keys = BTreeSet::new();
    for transaction in truth.transactions(1) {
        let is_lost = is_lost(transaction.revision);
        for change in transaction.changes {
            if is_lost {
                keys.insert(change.key);
            } else {
                keys.remove(&change.key);
            }
        }
    }
    keys
}

/// Whether the past is as it was, between these revisions (what there is at the last one is known), of every key as far back as it can be read; but for who wrote what
/// is in the gaps.
fn past(
    store: &Store,
    truth: &Model,
    (from, newest): (u64, u64),
    report: &Value,
    is_unsure: bool,
) -> Result<(), String> {
    let all_from = store.oldest_readable(..).max(from).max(1);
    let mut keys: BTreeSet<Bytes> = truth.keys().cloned().collect();
    let old = written_by_lost(truth, report);
    for revision in all_from..newest {
        let (found, expected) = (state(store, revision)?, truth.state_at(revision));
        keys.extend(found.keys().cloned());
        for key in expected.keys().chain(found.keys()) {
            if found.get(key) != expected.get(key) && !is_unsure && !old.contains(key) {
                return Err(format!("{key:?} was another at {revision}"));
            }
        }
    }
    let given_up = report["past_given_up"].as_array().unwrap();
    for key in keys {
        let oldest = store.oldest_readable(&key..=&key);
        let lost = given_up.iter().filter(|lost| {
            let prefix = lost["prefix"].as_str().unwrap();
            key.starts_with(prefix.as_bytes())
        });
        let named = lost.map(|lost| lost["from"].as_u64().unwrap()).max().unwrap_or(0);
        if oldest > from.max(truth.compacted()) && named != oldest || named > oldest {
            return Err(format!("the past of {key:?} before {oldest} is lost, and not named"));
        }
        for revision in oldest.max(from).max(1)..all_from.min(newest) {
            let found = store.get_at(&key, revision);
            let found = found.map_err(|error| format!("{key:?} at {revision}: {error}"))?;
            let is_right = found.as_ref() == truth.state_at(revision).get(&key);
            if !is_right && !is_unsure && !old.contains(&key) {
                return Err(format!("{key:?} was another at {revision}"));
            }
        }
    }
    // Where it is not known when the base was, it counts as later: a time is never one of what was not there yet.
    let base = |log: Option<&Transaction>| log.map_or(0, |transaction| transaction.time);
    if all_from == from {
        let told = store.log(from..=from).collect::<annals::Result<Vec<_>>>();
        let told = told.map_err(|error| format!("log at {from}: {error}"))?;
        if from > 1 && base(told.first()) < base(truth.transactions(from).first()) {
            return Err(format!("the time of {from} is too early"));
        }
    }
    if all_from >= newest {
        return Ok(());
    }
    let log = store.log(all_from + 1..=newest).with_values().collect::<annals::Result<Vec<_>>>();
    let log = log.map_err(|error| format!("log: {error}"))?;
    is_same_log(&log, &truth.transactions(all_from + 1), &gaps(report)?)
}

/// Damages a copy, once or twice, and repairs it. Answers what was done, and what came of it.
fn damage(
    made: &Made,
    seed: u64,
    number: u64,
    begin: &dyn Fn(String),
) -> (String, Result<Saved, String>) {
    let mut random = Random::new(seed);
    let disk = made.copy();
    // What looks like a kill is no damage, and not told as one.
    let mut done = harm(&disk, made, &mut random, false);
    if number % 4 == 3 {
        done = [done, harm(&disk, made, &mut random, false)].join("; ");
    }
    let newest: &[&str] = if number.is_multiple_of(2) { &[] } else { &["--newest"] };
    begin(format!("seed {seed}: {done}, {newest:?}"));
    let fate = check(&disk, made, newest);
    (done, fate)
}

/// A superseded version is lost with the event that wrote it, and the next that happened to its key is its deletion,
/// which does not tell that there was a version between.
#[test]
fn the_past_does_not_begin_with_a_version_that_may_not_be_the_newest() {
    for close in [true, false] {
        let made = made(close);
        for seed in [979, 1299] {
            let (done, fate) = damage(&made, seed, seed, &|_| ());
            assert!(fate.is_ok(), "{done}: {fate:?}");
        }
    }
}

#[test]
fn what_is_outside_the_damage_is_saved() {
    let first = number_from_env("ANNALS_FIRST_SEED", 0);
    let count = number_from_env("ANNALS_REPAIRS", 120);
    for close in [true, false] {
        let made = made(close);
        let saved = Mutex::new(BTreeMap::<&str, BTreeMap<Saved, u64>>::new());
        parallel::each(count, |number, watchdog| {
            let seed = first.wrapping_add(number);
            let (done, fate) = damage(&made, seed, number, &|what| watchdog.begin(what));
            let (fate, twice) = (fate?, number % 4 == 3);
            let path = done.split(' ').next().unwrap_or_default();
            let kind = if twice { "two" } else { crate::made::kind(path) };
            *saved.lock().unwrap().entry(kind).or_default().entry(fate).or_default() += 1;
            Ok(())
        });
        let name = if close { "closed" } else { "killed" };
        println!("{count} repairs of a {name} store, from seed {first}:");
        for (kind, saved) in saved.into_inner().unwrap() {
            println!("  {kind:<9} {saved:?}");
        }
    }
}

#[test]
fn what_is_whole_is_saved_whole() {
    for close in [true, false] {
        let made = made(close);
        assert_eq!(check(&made.disk, &made, &[]), Ok(Saved::Everything));
    }
}
