//! A block of superseded versions is damaged: a repair gives up the past of the keys that were in it, and of no others.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::ops::Range;
use std::path::Path;

use annals::inspect::StoreFiles;
use annals::{KeyValue, Options, Retention, Store};
use annals_format::FileKind;
use annals_format::name::FileName;
use common::{Tool, small};
use serde_json::Value;

const KEYS: usize = 40;

fn key(n: usize) -> String {
    format!("k/{:02}/of/{n:03}", n / 10)
}

/// One that is longer than the prefix of a rule can be.
fn long() -> String {
    "long".repeat(500)
}

/// What every key is at every revision.
type States = Vec<Vec<Option<KeyValue>>>;

/// A store in files, whose EVENTS repeat values of so many bytes, with many versions of each key, and of one with a rule of its own; the
/// last revision is in the log.
fn written(tool: &Tool, event_value_bytes: u64) -> States {
    let options = small().background(false).event_value_bytes(event_value_bytes);
    let store = options.open(tool.store()).unwrap();
    store.set_retention("ruled/", Some(Retention::forever())).unwrap();
    for n in 0..20 * KEYS {
        let at = n * 7 % KEYS;
        match n % 41 {
            13 => drop(store.delete(key(at)).unwrap()),
            _ => drop(store.put(key(at), format!("{n} {}", "x".repeat(n % 90))).unwrap()),
        }
        if n % 10 == 0 {
            store.put("ruled/a", format!("{n:050}")).unwrap();
            store.put(long(), format!("{n:030}")).unwrap();
        }
    }
    store.compact(50).unwrap();
    store.reorganise().unwrap();
    store.put("last", "").unwrap();
    let states = states(&store);
    store.close().unwrap();
    states
}

fn keys() -> impl Iterator<Item = String> {
    (0..KEYS).map(key).chain(["ruled/a".to_owned(), long(), "last".to_owned()])
}

/// As far back as it can be read.
fn states(store: &Store) -> States {
    let newest = store.revision();
    let of = |key: String| (1..=newest).map(|at| store.get_at(&key, at).ok().flatten()).collect();
    keys().map(of).collect()
}

/// The blocks of the HISTORY files, and where they lie in these.
fn blocks(directory: &Path) -> Vec<(FileName, Range<u64>)> {
    let files = StoreFiles::open(directory, &Options::new()).unwrap();
    let mut blocks = Vec::new();
    let metas = files.manifest().files.iter();
    for meta in metas.filter(|meta| meta.kind == FileKind::History) {
        let each = &mut |block: annals::inspect::BlockKeys<'_>| {
            blocks.push((FileName::new(meta.kind, meta.number), block.place));
            Ok(true)
        };
        files.segment(meta).unwrap().block_keys(each).unwrap();
    }
    blocks
}

/// Damages blocks, and repairs the store.
fn repaired(tool: &Tool, blocks: &[(FileName, Range<u64>)]) -> (Value, Tool) {
    let mut whole = Vec::new();
    for (name, place) in blocks {
        let path = tool.store().join(name.to_string());
        let mut content = std::fs::read(&path).unwrap();
        let middle = usize::try_from(u64::midpoint(place.start, place.end)).unwrap();
        whole.push((path.clone(), content.clone()));
        content[middle] ^= 0x10;
        std::fs::write(&path, content).unwrap();
    }
    let other = Tool::new();
    let (told, _) = tool.repaired(&other);
    for (path, content) in whole.into_iter().rev() {
        std::fs::write(&path, content).unwrap();
    }
    (told, other)
}

/// From which revision on a key can be read.
fn given_up(told: &Value, key: &str) -> Option<u64> {
    let lost = told["past_given_up"].as_array().unwrap().iter();
    let lost = lost.filter(|lost| key.starts_with(lost["prefix"].as_str().unwrap()));
    lost.map(|lost| lost["from"].as_u64().unwrap()).max()
}

/// Everything that the store says is what was; what is not given up is there. Answers of how many keys it is.
fn check(store: &Store, told: &Value, truth: &States) -> usize {
    let newest = store.revision();
    let mut lost = 0;
    for (key, truth) in keys().zip(truth) {
        let from = given_up(told, &key);
        lost += usize::from(from.is_some());
        let watermark = if key.starts_with("ruled/") { 0 } else { 50 };
        let readable = from.unwrap_or(0).max(watermark).max(1);
        let all = 1..=newest.min(truth.len() as u64);
        let some = all.clone().filter(|at| at % 9 == readable % 9 || at.abs_diff(readable) < 3);
        for at in some.chain([*all.end()]) {
            let found = store.get_at(&key, at);
            assert_eq!(found.is_ok(), at >= readable, "{key} at {at}: {found:?} {told}");
            if let Ok(found) = found {
                assert_eq!(found, truth[usize::try_from(at - 1).unwrap()], "{key} at {at} {told}");
            }
        }
        let history: Vec<_> = store.history(&key).collect::<annals::Result<_>>().unwrap();
        let newest = truth.last().unwrap().as_ref().map(|kv| kv.mod_revision);
        if let Some(newest) = newest.filter(|_| store.revision() == truth.len() as u64) {
            assert_eq!(history[0].mod_revision, newest, "{key}");
        }
    }
    lost
}

/// What was written, and goes on being written, is what it was, after everything that moves it elsewhere.
fn check_throughout(other: &Tool, told: &Value, truth: &States) -> usize {
    other.ok(&["verify"]);
    let store = small().background(false).open(other.store()).unwrap();
    let lost = check(&store, told, truth);
    for n in 0..3 * KEYS {
        store.put(key(n % KEYS), format!("later {n}")).unwrap();
    }
    store.reorganise().unwrap();
    assert_eq!(check(&store, told, truth), lost);
    store.close().unwrap();
    other.ok(&["verify"]);
    let store = Store::open(other.store()).unwrap();
    assert_eq!(check(&store, told, truth), lost);
    // Behind a compaction nothing tells of the damage any more.
    store.compact(store.revision()).unwrap();
    store.apply_retention().unwrap();
    store.reorganise().unwrap();
    let rules = store.retention().into_iter().filter(|rule| !rule.prefix.starts_with(b"ruled/"));
    assert_eq!(rules.count(), 0);
    lost
}

#[test]
fn a_damaged_block_costs_the_past_of_its_keys_alone() {
    let tool = Tool::new();
    let truth = written(&tool, 0);
    let blocks = blocks(&tool.store());
    assert!(blocks.len() > 12, "{blocks:?}");
    let (mut copies, mut keys_lost) = (0, 0);
    for block in blocks.iter().step_by(2) {
        let (told, other) = repaired(&tool, std::slice::from_ref(block));
        assert_eq!(told["lost_keys"], serde_json::json!([]), "{told}");
        assert_eq!(told["way"], "copy", "{told}");
        copies += 1;
        let lost = check_throughout(&other, &told, &truth);
        assert!(lost > 0 && lost <= 16, "{lost} keys of {block:?}: {told}");
        keys_lost += lost;
    }
    println!("{copies} blocks, {keys_lost} times a key's past");
}

/// Keys can be read from behind the revision at which their versions were superseded: where there is none, one is added.
#[test]
fn a_version_that_the_newest_revision_superseded_costs_no_other_key_anything() {
    let tool = Tool::new();
    written(&tool, 0);
    let store = small().background(false).event_value_bytes(0).open(tool.store()).unwrap();
    store.put(key(7), "the last").unwrap();
    store.reorganise().unwrap();
    let (truth, newest) = (states(&store), store.revision());
    store.close().unwrap();
    let mut added = 0;
    for block in blocks(&tool.store()) {
        let (told, other) = repaired(&tool, std::slice::from_ref(&block));
        assert_eq!(told["way"], "copy", "{told}");
        if !told["added_revision"].is_null() {
            assert_eq!(told["added_revision"], newest + 1);
            assert_eq!(given_up(&told, &key(7)), Some(newest + 1), "{told}");
            let store = Store::open(other.store()).unwrap();
            assert_eq!(store.revision(), newest + 1);
            let last: Vec<_> = store.log_of(newest.., key(3)..key(9)).collect();
            assert!(last.iter().all(Result::is_err), "{last:?}");
            store.close().unwrap();
            let lost = check_throughout(&other, &told, &truth);
            assert!(lost > 0 && lost <= 16, "{told}");
            added += 1;
        }
    }
    assert!(added > 0);
}

/// Where EVENTS repeat what is lost a rebuilt store has all of it, if what it begins with is known: what keys were when the
/// store was compacted. If not, it is as it is where EVENTS repeat nothing.
#[test]
fn what_events_repeat_is_no_reason_to_give_up_more() {
    let tool = Tool::new();
    let truth = written(&tool, 1000);
    let (mut copies, mut whole) = (0, 0);
    for block in blocks(&tool.store()).iter().step_by(4) {
        let (told, other) = repaired(&tool, std::slice::from_ref(block));
        if told["way"] == "copy" {
            copies += 1;
            let lost = check_throughout(&other, &told, &truth);
            assert!(lost > 0 && lost <= 16, "{lost} keys of {block:?}: {told}");
        } else {
            whole += 1;
            assert_eq!(told["past_lost"], false, "{told}");
        }
    }
    println!("{copies} copies, {whole} times nothing was lost");
    assert!(copies > 0 && copies + whole > 12);
}

#[test]
fn of_many_damaged_blocks_neighbours_are_given_up_together() {
    let tool = Tool::new();
    let truth = written(&tool, 0);
    let all = blocks(&tool.store());
    let mut fewer = 0;
    for skipped in [2, 3, 5] {
        let damaged = all.iter().enumerate().filter(|(n, _)| n % skipped != 0);
        let damaged: Vec<_> = damaged.map(|(_, block)| block.clone()).collect();
        let (told, other) = repaired(&tool, &damaged);
        assert_eq!(told["way"], "copy", "{told}");
        let prefixes = told["past_given_up"].as_array().unwrap().len();
        assert!(prefixes <= 16, "{told}");
        let lost = check_throughout(&other, &told, &truth);
        fewer += usize::from(lost > prefixes);
    }
    assert!(fewer > 0);
}
