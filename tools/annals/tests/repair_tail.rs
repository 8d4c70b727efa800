//! What `repair --newest` keeps of the past where transactions in the middle of the log are lost: all behind them, and nothing
//! that is not so.
//!
//! `ANNALS_REPAIR_TAILS` cases (12) from `ANNALS_FIRST_SEED` (1).
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
#[path = "../../../tests/support/random.rs"]
#[allow(dead_code, unreachable_pub, reason = "of what others use, too")]
mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use annals::{ErrorKind, Options, Retention, Store, delete, put};
use common::Tool;
use random::Random;

type State = BTreeMap<String, (String, u64)>;

/// What was at each revision, and which keys each has changed.
#[derive(Default)]
struct Truth {
    states: BTreeMap<u64, State>,
    changed: BTreeMap<u64, BTreeSet<String>>,
}

fn logs(tool: &Tool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(tool.store().join("wal")).unwrap();
    let mut logs: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    logs.sort();
    logs
}

/// A store with most of it in the log alone.
fn filled(tool: &Tool, random: &mut Random) -> Truth {
    let options = Options::new().wal_bytes(256 << 10);
    let store = options.open(tool.store()).unwrap();
    let (mut truth, mut state) = (Truth::default(), State::new());
    let count = 60 + random.below(120);
    let compacted = random.below(4) == 0;
    if random.below(3) == 0 {
        store.set_retention("07", Some(Retention::forever())).unwrap();
    }
    for n in 0..count {
        let key = |random: &mut Random| format!("{:02}", random.below(12));
        let mut changed = BTreeSet::new();
        let mut ops = Vec::new();
        for _ in 0..=random.below(3) {
            let key = key(random);
            if changed.contains(&key) {
                continue;
            }
            if random.below(4) == 0 && state.contains_key(&key) {
                ops.push(delete(&key));
                state.remove(&key);
            } else {
                let value =
                    format!("{n} {}", "x".repeat(usize::try_from(random.below(2000)).unwrap()));
                ops.push(put(&key, &value));
                state.insert(key.clone(), (value, 0));
            }
            changed.insert(key);
        }
        let revision = store.txn().then(ops).commit().unwrap().revision;
        for key in &changed {
            if let Some((_, at)) = state.get_mut(key) {
                *at = revision;
            }
        }
        truth.states.insert(revision, state.clone());
        truth.changed.insert(revision, changed);
        if n == count / 8 {
            store.reorganise().unwrap();
        }
        if compacted && n == count / 4 {
            store.compact(revision - 2).unwrap();
        }
    }
    store.close().unwrap();
    truth
}

/// Looks at all that can be read; answers how many answers there were, and how many refusals.
fn compare(store: &Store, truth: &Truth, lost: &BTreeSet<u64>, case: &str) -> (u64, u64) {
    let newest = *truth.states.last_key_value().unwrap().0;
    let (mut answers, mut refusals) = (0, 0);
    let behind = store.compacted_revision().max(1) + 1;
    for revision in store.compacted_revision().max(1)..=newest {
        let Some(state) = truth.states.get(&revision) else { continue };
        for key in (0..12).map(|key| format!("{key:02}")) {
            // What was written between it and what there is from now on is known.
            let in_between = lost.last().is_some_and(|last| {
                let between = truth.changed.range(last + 1..behind.max(last + 1));
                between.into_iter().any(|(_, keys)| keys.contains(&key))
            });
            let in_lost = !in_between && lost.iter().any(|lost| truth.changed[lost].contains(&key));
            // A deletion does not tell what it ended, so what that was is not known. The change that superseded what is lost
            // is not told either, as it is told with what was there before.
            let mut later = truth.changed.range(behind..).filter(|(_, keys)| keys.contains(&key));
            let first = later.next().map(|(at, _)| *at);
            let is_found_out = first.is_some();
            let ends_unknown = first.is_some_and(|at| !truth.states[&at].contains_key(&key));
            let is_superseded = first.is_some_and(|at| at < revision);
            let is_told = is_superseded || in_between || !(in_lost || ends_unknown);
            match store.get_at(&key, revision) {
                Ok(found) => {
                    answers += 1;
                    let found = found
                        .map(|kv| (String::from_utf8(kv.value.to_vec()).unwrap(), kv.mod_revision));
                    // Of a key that was not changed since nobody can tell that it was among what is lost.
                    let may_be_old = in_lost && !is_found_out;
                    let is_right = found.as_ref() == state.get(&key);
                    assert!(is_right || may_be_old, "{case}: {key} at {revision}: {found:?}");
                }
                Err(error) => {
                    refusals += 1;
                    assert!(matches!(error.kind(), ErrorKind::Compacted { .. }), "{case}: {error}");
                    assert!(!is_told, "{case}: {key} at {revision} is known");
                }
            }
        }
    }
    (answers, refusals)
}

#[test]
fn all_behind_what_is_lost_of_the_log_is_kept_and_nothing_else_told() {
    let number = |name: &str, default| {
        std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(default)
    };
    let first = number("ANNALS_FIRST_SEED", 1);
    let (mut answers, mut refusals, mut behind) = (0, 0, 0);
    for seed in first..first + number("ANNALS_REPAIR_TAILS", 12) {
        let mut random = Random::new(seed);
        let tool = Tool::new();
        let mut truth = filled(&tool, &mut random);
        let all = logs(&tool);
        // Of a few sectors in a row, once or twice.
        for _ in 0..=random.below(2) {
            let path = &all[usize::try_from(random.below(all.len() as u64)).unwrap()];
            let mut content = std::fs::read(path).unwrap();
            let used = content.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64;
            let at =
                usize::try_from(4096 + random.below(used.saturating_sub(4096).max(1))).unwrap();
            let end =
                (at + 512 * usize::try_from(random.below(20)).unwrap() + 1).min(content.len());
            content[at..end].iter_mut().for_each(|byte| *byte ^= 0x55);
            std::fs::write(path, content).unwrap();
        }
        let mut case = format!("ANNALS_FIRST_SEED={seed} ANNALS_REPAIR_TAILS=1");
        let other = Tool::new();
        let to = other.store().to_str().unwrap().to_owned();
        let done = tool.run(&["-o", "json", "repair", "--newest", "--to", &to]).0;
        assert!([0, 9].contains(&done.status.code().unwrap()), "{case}");
        let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        case = format!("{case}: {told}");
        let mut lost = BTreeSet::new();
        for gap in told["lost_revisions"].as_array().unwrap() {
            let from = gap["from"].as_u64().unwrap();
            match gap["upto"].as_u64() {
                Some(upto) => lost.extend((from..=upto).filter(|at| truth.states.contains_key(at))),
                // The end of the log is lost.
                None => {
                    truth.states.split_off(&from);
                    truth.changed.split_off(&from);
                }
            }
        }
        let newest = *truth.states.last_key_value().unwrap().0;
        let store = Options::new().background(false).open(other.store()).unwrap();
        let added = u64::from(told["added_revision"].is_u64());
        assert_eq!(store.revision(), newest + added, "{case}");
        let oldest = store.compacted_revision().max(1);
        behind += newest.saturating_sub(oldest);
        // A range of all keys can be read from where the last of them can.
        if told["way"] == "rebuild" && told["past_given_up"].as_array().unwrap().is_empty() {
            let log = store.log(oldest + 1..=newest).count() as u64;
            assert_eq!(log, newest - oldest, "{case}");
        }
        let (more, refused) = compare(&store, &truth, &lost, &case);
        answers += more;
        refusals += refused;
    }
    println!("{answers} answers, {refusals} refused, {behind} revisions behind what is lost");
    assert!(behind > 0 && answers > 1000, "{behind} {answers}");
}

/// A rule of retention takes no revision, so no gap of revisions tells that it is lost.
#[test]
fn a_rule_that_is_lost_is_a_loss() {
    let tool = Tool::new();
    let store = Options::new().open(tool.store()).unwrap();
    for n in 0..10 {
        store.put("/k", n.to_string()).unwrap();
        if n == 5 {
            store.set_retention("/audit/", Some(Retention::forever())).unwrap();
        }
    }
    store.close().unwrap();
    let path = logs(&tool).remove(0);
    let mut content = std::fs::read(&path).unwrap();
    let rule = content.windows(7).position(|window| window == b"/audit/").unwrap();
    content[rule] ^= 1;
    std::fs::write(&path, content).unwrap();
    let other = Tool::new();
    let to = other.store().to_str().unwrap().to_owned();
    let done = tool.run(&["repair", "--newest", "--to", &to]).code(9);
    done.says("lost: of the log what was no transaction").says("not all of the past is in it");
    let told: serde_json::Value = {
        let again = Tool::new();
        let to = again.store().to_str().unwrap().to_owned();
        let done = tool.run(&["-o", "json", "repair", "--newest", "--to", &to]).code(9);
        serde_json::from_str(&done.stdout()).unwrap()
    };
    assert_eq!((&told["lost_records"], &told["past_lost"]), (&true.into(), &true.into()), "{told}");
    // What came before it may be forgotten by what is lost.
    let oldest = other.json(&["stats"])["compacted_revision"].as_u64().unwrap();
    assert_eq!(oldest, 7);
    assert_eq!(other.ok(&["-o", "raw", "get", "/k", "--at", "8"]), "6");
    assert_eq!(other.ok(&["-o", "raw", "get", "/k"]), "9");
}
