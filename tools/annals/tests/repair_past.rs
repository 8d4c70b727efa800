//! What a repair leaves of the past, and what it says of that: rules of retention and compactions, in files and in the log
//! alone.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use annals::{KeyValue, Retention, Store};
use common::{Tool, small};
use serde_json::Value;

/// A store in files, with ten versions of 30 keys; `before` it has been given something else.
fn written(tool: &Tool, before: impl FnOnce(&Store)) -> Store {
    let store = small().background(false).open(tool.store()).unwrap();
    before(&store);
    for n in 0..300 {
        store.put(format!("k/{:03}", n % 30), format!("{n} {}", "x".repeat(100))).unwrap();
    }
    store.reorganise().unwrap();
    store
}

/// Flips a byte of a file, so far into it, and repairs the store; answers what is told, the exit code, and what was made.
fn damaged_at(tool: &Tool, path: &str, share: f64) -> (Value, Option<i32>, Tool) {
    let path = tool.store().join(path);
    let whole = std::fs::read(&path).unwrap();
    let mut content = whole.clone();
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small"
    )]
    let at = (content.len() as f64 * share) as usize;
    content[at] ^= 0x55;
    std::fs::write(&path, content).unwrap();
    let other = Tool::new();
    let (told, done) = tool.repaired(&other);
    std::fs::write(&path, whole).unwrap();
    (told, done.0.status.code(), other)
}

/// The paths of the segments of these kinds.
fn files(tool: &Tool, kinds: &[&str]) -> Vec<String> {
    let files = tool.lines(&["segments"]).into_iter();
    let files = files.filter(|file| kinds.contains(&file["kind"].as_str().unwrap()));
    files.map(|file| file["file"].as_str().unwrap().to_owned()).collect()
}

/// A file of versions is damaged: its keys lose what it could tell, and no more. The others lose nothing, and nobody by a
/// file of EVENTS but who wrote what was in it, and when.
#[test]
fn damage_of_the_past_costs_only_the_keys_that_it_is_of() {
    let tool = Tool::new();
    let store = small().open(tool.store()).unwrap();
    store.set_retention("audit/", Some(Retention::forever())).unwrap();
    let floor = 900;
    for n in 0..600 {
        // Two transactions each.
        store.put(format!("audit/{}", n % 3), format!("{n:060}")).unwrap();
        store.put(format!("other/{}", n % 7), format!("{n:060}")).unwrap();
    }
    store.compact(floor).unwrap();
    store.reorganise().unwrap();
    // A revision behind everything that is in files.
    store.put("last", "").unwrap();
    let newest = store.revision();
    let at = |store: &Store, prefix: &str, revision| -> Option<Vec<KeyValue>> {
        let view = store.at(revision).ok()?;
        view.prefix(prefix).collect::<annals::Result<_>>().ok()
    };
    let every = |store: &Store, prefix: &str| -> Vec<_> {
        (1..=newest).map(|revision| at(store, prefix, revision)).collect()
    };
    let prefixes = ["audit/", "other/"];
    let truth = prefixes.map(|prefix| every(&store, prefix));
    assert!(store.oldest_readable("audit/".."audit0") <= 1);
    assert_eq!(store.oldest_readable(..), floor);
    store.close().unwrap();

    let mut damages = [0; 3];
    let past = |kind: &str| kind == "history" || kind == "events";
    for file in tool.lines(&["segments"]) {
        let kind = file["kind"].as_str().unwrap();
        if !past(kind) {
            continue;
        }
        let path = tool.store().join(file["file"].as_str().unwrap());
        let whole = std::fs::read(&path).unwrap();
        let mut content = whole.clone();
        content[84..].iter_mut().step_by(50).for_each(|byte| *byte ^= 0x10);
        std::fs::write(&path, content).unwrap();
        let other = Tool::new();
        let (told, done) = tool.repaired(&other);
        std::fs::write(&path, whole).unwrap();
        let said = done.stderr();
        assert_eq!(
            (&told["way"], &told["past_lost"]),
            (&"copy".into(), &(kind == "history").into())
        );
        assert_eq!(told["lost_keys"], serde_json::json!([]));
        assert_eq!(told["lost_origins"] == serde_json::json!([]), kind == "history", "{told}");
        let first_key = file["first_key"].to_string();
        let is_of = |prefix: &str| kind == "history" && first_key.contains(prefix);
        // From where its keys can be read depends on how late the last of them was written.
        let given_up = told["past_given_up"].as_array().unwrap();
        let upto = given_up.iter().map(|lost| lost["from"].as_u64().unwrap() - 1).max();
        assert_eq!(upto.is_some(), kind == "history", "{told}");
        assert!(upto.is_none_or(|upto| upto <= file["death_upto"].as_u64().unwrap()), "{told}");
        assert!(given_up.iter().all(|lost| lost["prefix"] != ""), "{told}");
        let upto = upto.unwrap_or(0);
        let saved = Store::open(other.store()).unwrap();
        for (prefix, truth) in prefixes.iter().zip(&truth) {
            let from = if is_of(prefix) { upto + 1 } else { 1 };
            let found = every(&saved, prefix);
            for (revision, (found, truth)) in (1..).zip(found.iter().zip(truth)) {
                let truth = truth.as_ref().filter(|_| revision >= from);
                assert_eq!(found.as_ref(), truth, "{prefix} at {revision} without {file}");
            }
        }
        // And so is who changed them: each second revision up to 1200, of which 1 is none.
        let line = format!("keys with audit/: revisions 1 to {newest} are readable");
        assert!(said.contains(&line), "{line}\n{said}");
        for lost in given_up {
            let (prefix, from) = (lost["prefix"].as_str().unwrap(), &lost["from"]);
            let line = format!("lost: the past of keys with {prefix}, before revision {from}");
            assert!(said.contains(&line), "{line}\n{said}");
        }
        let from = if is_of("audit/") { upto + 1 } else { 2 };
        let watch = saved.watch("audit/").prefix().from(from).start().unwrap();
        let wanted: Vec<_> = (from..=1200).filter(|revision| revision % 2 == 0).collect();
        let told = watch.map(|batch| batch.unwrap().revision()).take(wanted.len());
        assert_eq!(told.collect::<Vec<_>>(), wanted, "{file}");
        // What is promised for the rule's keys goes on being promised.
        if saved.compacted_revision() < newest {
            saved.compact(newest).unwrap();
        }
        saved.reorganise().unwrap();
        let from = if is_of("audit/") { upto + 1 } else { 0 };
        assert_eq!(saved.oldest_readable("audit/".."audit0"), from);
        saved.close().unwrap();
        other.ok(&["verify"]);
        damages[if kind == "events" { 0 } else { 1 + usize::from(is_of("other/")) }] += 1;
    }
    println!("damages of EVENTS, of audit/, of other/: {damages:?}");
    assert!(damages.iter().all(|count| *count > 0), "{damages:?}");
}

/// The log says how far a rule has come, and it is damaged just there: what was forgotten by that stays forgotten, and is
/// not answered as if it had never been. Nor is the past of other keys given up.
#[test]
fn what_a_rule_has_forgotten_is_not_answered_though_its_record_is_lost() {
    let tool = Tool::new();
    let store = small().background(false).open(tool.store()).unwrap();
    store.set_retention("a/", Some(Retention::forever())).unwrap();
    for n in 0..400 {
        store
            .put(format!("{}/{}", if n % 2 == 0 { "a" } else { "b" }, n % 5), "x".repeat(60))
            .unwrap();
    }
    store.reorganise().unwrap();
    // From here on everything is in the log alone.
    let few = Some(Retention::forever().keep_revisions(20));
    store.set_retention("a/", few).unwrap();
    store.set_retention("b/4", few).unwrap();
    store.apply_retention().unwrap();
    while store.run_background().unwrap() {}
    store.put("b/0", "last").unwrap();
    let newest = store.revision();
    let floor = newest - 21;
    assert_eq!(store.oldest_readable("a/".."a0"), floor);
    let state = |store: &Store, key: &str, revision| store.get_at(key, revision).unwrap();
    let truth: Vec<_> = (2..newest).map(|revision| state(&store, "b/1", revision)).collect();
    let young: Vec<_> = (floor..newest).map(|revision| state(&store, "a/2", revision)).collect();
    store.close().unwrap();

    let flushed = tool.json(&["inspect"])["flushed_seq"].as_u64().unwrap();
    let frames = tool.json(&["dump", "--wal"])["frames"].clone();
    let frames = frames.as_array().unwrap().iter();
    let mut damages = 0;
    for frame in frames.filter(|frame| frame["seq"].as_u64().unwrap() > flushed) {
        let path = tool.store().join(frame["file"].as_str().unwrap());
        let whole = std::fs::read(&path).unwrap();
        let mut content = whole.clone();
        content[usize::try_from(frame["offset"].as_u64().unwrap()).unwrap() + 70] ^= 4;
        std::fs::write(&path, content).unwrap();
        let other = Tool::new();
        let (told, _) = tool.repaired(&other);
        std::fs::write(&path, whole).unwrap();
        assert_eq!(told["way"], "copy", "{told}");
        let saved = Store::open(other.store()).unwrap();
        let seq = &frame["seq"];
        for revision in 2..saved.revision() {
            for key in ["a/0", "a/2", "b/4"] {
                let found = saved.get_at(key, revision);
                assert_eq!(found.is_ok(), revision >= floor, "{key} at {revision} without {seq}");
            }
            let at = usize::try_from(revision - 2).unwrap();
            assert_eq!(state(&saved, "b/1", revision), truth[at], "at {revision} without {seq}");
            if revision >= floor {
                let at = usize::try_from(revision - floor).unwrap();
                assert_eq!(state(&saved, "a/2", revision), young[at], "at {revision}");
            }
        }
        saved.close().unwrap();
        other.ok(&["verify"]);
        damages += 1;
    }
    assert!(damages >= 4, "{damages}");
}

/// What nobody can read any more is not lost with its file: one that was compacted away and is not dropped yet.
#[test]
fn damage_of_what_is_forgotten_costs_nothing() {
    let tool = Tool::new();
    let store = written(&tool, |_| ());
    store.put("k/001", "last").unwrap();
    store.compact(store.revision()).unwrap();
    store.close().unwrap();
    let damaged = files(&tool, &["history", "events"]);
    assert!(damaged.len() > 1, "{damaged:?}");
    for path in damaged {
        let path = tool.store().join(path);
        let mut content = std::fs::read(&path).unwrap();
        content[100] ^= 0x55;
        std::fs::write(&path, content).unwrap();
    }
    tool.run(&["verify"]).code(3);
    let other = Tool::new();
    let (told, done) = tool.repaired(&other);
    assert_eq!((&told["way"], &told["past_lost"]), (&"copy".into(), &false.into()), "{told}");
    done.code(0);
    assert_eq!(other.json(&["get", "k/001"])["value"], "last");
}

/// Rules make no past of less than all there was: it is taken along from its first revision on.
#[test]
fn a_store_with_rules_has_lost_nothing_where_all_of_its_past_is_there() {
    let tool = Tool::new();
    let forever = Some(Retention::forever());
    let store = written(&tool, |store| store.set_retention("k/", forever).unwrap());
    store.close().unwrap();
    // Not the first block, in which leases and rules are looked for.
    let head = files(&tool, &["head"])[0].clone();
    let (told, code, other) = damaged_at(&tool, &head, 0.5);
    assert_eq!(
        (&told["way"], &told["past_lost"], code),
        (&"copy".into(), &false.into(), Some(0)),
        "{told}"
    );
    assert_eq!(
        other.json(&["get", "k/005", "--at", "7"])["value"],
        tool.json(&["get", "k/005", "--at", "7"])["value"]
    );
}

/// An old rule would forget what the last one keeps: so a rebuilt store has rules only where none can be another by now.
#[test]
fn rules_are_there_again_where_all_of_them_can_be_read() {
    let tool = Tool::new();
    let store = small().segment_bytes(4 << 10).event_value_bytes(0).open(tool.store()).unwrap();
    store.set_retention("k/", Some(Retention::forever().keep_revisions(7))).unwrap();
    for n in 0..120 {
        store.put(format!("k/{n:03}"), "x".repeat(300)).unwrap();
    }
    store.reorganise().unwrap();
    store.set_retention("late/", Some(Retention::forever())).unwrap();
    store.put("k/last", "").unwrap();
    store.close().unwrap();
    let (mut sure, mut unsure) = (0, 0);
    let heads = tool.lines(&["segments"]).into_iter().filter(|file| file["kind"] == "head");
    let paths = heads.map(|file| file["file"].as_str().unwrap().to_owned());
    let log = std::fs::read_dir(tool.store().join("wal")).unwrap();
    let log = log.map(|entry| format!("wal/{}", entry.unwrap().file_name().to_str().unwrap()));
    for path in paths.chain(log) {
        let is_log = path.starts_with("wal");
        let path = tool.store().join(path);
        let whole = std::fs::read(&path).unwrap();
        let mut content = whole.clone();
        let from = if is_log { 4096 + 100 } else { 84 };
        content[from..].iter_mut().step_by(200).take(40).for_each(|byte| *byte ^= 0x55);
        std::fs::write(&path, content).unwrap();
        let other = Tool::new();
        let to = other.store();
        let done = tool.run(&["repair", "--newest", "-o", "json", "--to", to.to_str().unwrap()]);
        std::fs::write(&path, whole).unwrap();
        assert!(!done.stdout().is_empty(), "{}", done.stderr());
        let told: Value = serde_json::from_str(&done.stdout()).unwrap();
        // Those of which no record of a rule is lost are copied.
        assert!(told["way"] == "rebuild" || !is_log, "{told}");
        let rows = told["files"].as_array().unwrap().iter();
        let named = rows.filter(|row| row["what"] == "rule of retention").count();
        let rules = Store::open(&to).unwrap().retention();
        let mut prefixes: Vec<_> = rules.iter().map(|rule| &rule.prefix[..]).collect();
        // Of keys whose past is lost there is one each, which is taken back.
        prefixes.retain(|prefix| prefix.ends_with(b"/"));
        if prefixes == [&b"k/"[..], b"late/"] {
            assert!(!is_log && named == 0, "{told}");
            sure += 1;
        } else {
            assert!(prefixes.is_empty() && named < 3, "{prefixes:?} {told}");
            unsure += 1;
        }
    }
    assert!(sure > 1 && unsure > 1, "{sure} {unsure}");
}

/// A compaction that is in the log alone has forgotten what it has forgotten, and no damage has.
#[test]
fn what_a_compaction_in_the_log_has_forgotten_is_not_lost() {
    let tool = Tool::new();
    let store = written(&tool, |_| ());
    store.put("k/001", "last").unwrap();
    store.compact(200).unwrap();
    // As it is when the machine stops.
    let stopped = Tool::new();
    for (path, content) in tool.snapshot() {
        let path = stopped.store().join(path.strip_prefix(tool.store()).unwrap_or(&path));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    drop(store);
    let first = files(&stopped, &["events"])[0].clone();
    let (told, code, other) = damaged_at(&stopped, &first, 0.5);
    assert_eq!(
        (&told["past_lost"], &told["compacted_revision"], code),
        (&false.into(), &200.into(), Some(0)),
        "{told}"
    );
    assert_eq!(other.json(&["stats"])["compacted_revision"], 200);
}

/// A store that is compacted to its newest revision has no past to lose.
#[test]
fn where_there_is_no_past_none_is_lost() {
    let tool = Tool::new();
    let store = written(&tool, |_| ());
    store.compact(store.revision()).unwrap();
    store.close().unwrap();
    let head = files(&tool, &["head"])[0].clone();
    let (told, code, _) = damaged_at(&tool, &head, 0.5);
    assert_eq!(
        (&told["way"], &told["past_lost"], code),
        (&"copy".into(), &false.into(), Some(0)),
        "{told}"
    );
}

/// Rules of which not even the names could be read are named by what the manifest lists.
#[test]
fn rules_that_cannot_be_read_are_named() {
    let tool = Tool::new();
    let store = written(&tool, |store| {
        for prefix in ["a/", "b/", "c/"] {
            store.set_retention(prefix, Some(Retention::forever())).unwrap();
        }
    });
    store.close().unwrap();
    let head = files(&tool, &["head"])[0].clone();
    let (told, code, other) = damaged_at(&tool, &head, 0.05);
    assert_eq!((&told["way"], code), (&"rebuild".into(), Some(9)), "{told}");
    let rows = told["files"].as_array().unwrap().iter();
    let named: Vec<_> = rows.filter(|row| row["what"] == "rule of retention").collect();
    assert_eq!(named.len(), 3, "{told}");
    assert!(named[2]["lost"].as_str().unwrap().contains("--prefix c/"), "{named:?}");
    assert!(other.lines(&["retention", "list"]).is_empty());
}

/// Who asks for a few rows is not told of a number that ends where damage begins.
#[test]
fn rows_that_a_limit_leaves_out_may_be_damaged() {
    let tool = Tool::new();
    written(&tool, |_| ()).close().unwrap();
    let path = tool.store().join(&files(&tool, &["events"])[0]);
    let mut content = std::fs::read(&path).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 0x55;
    std::fs::write(&path, content).unwrap();
    let few = tool.run(&["log", "--limit", "1"]).code(0).stdout();
    assert!(few.contains("more, and then what cannot be read"), "{few}");
    tool.run(&["log"]).code(3);
}

/// Newest versions that EVENTS have forgotten: who was one of them is named where that is known, else how many there may be.
#[test]
fn newest_versions_that_are_nowhere_else_are_told() {
    let tool = Tool::new();
    let options = small().blob_value_bytes(3000).background(false);
    let store = options.open(tool.store()).unwrap();
    store.put("big", "x".repeat(4000)).unwrap();
    for n in 0..100 {
        store.put(format!("k/{n:03}"), format!("{n:080}")).unwrap();
    }
    store.compact(store.revision()).unwrap();
    store.reorganise().unwrap();
    store.put("last", "").unwrap();
    let truth: Vec<KeyValue> =
        store.latest().unwrap().range(..).collect::<annals::Result<_>>().unwrap();
    store.close().unwrap();
    let all = |other: &Tool| -> Vec<KeyValue> {
        let store = Store::open(other.store()).unwrap();
        store.latest().unwrap().range(..).collect::<annals::Result<_>>().unwrap()
    };
    let (told, code, other) = damaged_at(&tool, &files(&tool, &["blob"])[0], 0.5);
    assert_eq!((code, &told["lost_entries"]), (Some(9), &0.into()), "{told}");
    assert_eq!(told["lost_keys"], serde_json::json!([{"key": "big", "revision": 2, "kept": null}]));
    assert_eq!(all(&other), truth[1..]);
    let (told, code, other) = damaged_at(&tool, &files(&tool, &["head"])[0], 0.3);
    let found = all(&other);
    let lost = truth.iter().filter(|kv| !found.contains(kv)).count();
    assert!(lost > 0 && found.iter().all(|kv| truth.contains(kv)));
    assert_eq!(
        (code, told["lost_entries"].as_u64()),
        (Some(9), u64::try_from(lost).ok()),
        "{told}"
    );
}

/// A value that cannot be read, but is repeated elsewhere, does not stand in for a version of which nothing is known.
#[test]
fn a_value_that_is_elsewhere_makes_up_for_no_other() {
    let tool = Tool::new();
    let options = small().blob_value_bytes(3000).event_value_bytes(8000).background(false);
    let store = options.open(tool.store()).unwrap();
    for n in 0..20 {
        store.put(format!("k/{n:03}"), format!("{n:0600}")).unwrap();
    }
    store.compact(store.revision()).unwrap();
    store.put("big", "x".repeat(4000)).unwrap();
    store.reorganise().unwrap();
    store.close().unwrap();
    let blob = tool.store().join(&files(&tool, &["blob"])[0]);
    let mut content = std::fs::read(&blob).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 0x55;
    std::fs::write(&blob, content).unwrap();
    let (told, code, other) = damaged_at(&tool, &files(&tool, &["head"])[0], 0.3);
    let saved = Store::open(other.store()).unwrap();
    assert!(saved.get("big").unwrap().is_some_and(|kv| kv.value == "x".repeat(4000)));
    let lost = 21 - saved.latest().unwrap().range(..).count();
    assert_eq!((code, told["lost_entries"].as_u64(), lost), (Some(9), Some(1), 1), "{told}");
    assert_eq!(told["lost_keys"], serde_json::json!([]));
}
