//! `repair`: what can be read of a damaged store is in another one, and the original is as it was.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::path::PathBuf;

use common::{SMALL, Tool};
use serde_json::Value;

/// A store with files of every kind, and with frames in its log that are in no other file.
fn filled() -> Tool {
    filled_with(&[])
}

fn filled_with(more: &[&str]) -> Tool {
    let tool = Tool::new();
    let file = tool.file("h.jsonl", common::history(6000, 200, 40));
    let mut arguments = [&SMALL, more].concat();
    arguments.extend(["import", "history", &file]);
    tool.ok(&arguments);
    for n in 0..5 {
        tool.ok(&["put", "/last", &n.to_string()]);
    }
    tool
}

/// Files of a kind, in order.
fn files(tool: &Tool, directory: &str, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(tool.store().join(directory)).unwrap().map(Result::unwrap);
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.retain(|path| path.to_str().unwrap().ends_with(ending));
    files.sort();
    files
}

fn flip(path: &PathBuf, offset: usize) {
    let mut content = std::fs::read(path).unwrap();
    content[offset] ^= 0x55;
    std::fs::write(path, content).unwrap();
}

/// Repairs, and sees to it that the original is as it was and the other store sound.
fn repaired(tool: &Tool) -> (Value, Tool) {
    let before = tool.snapshot();
    tool.run(&["verify"]).code(3);
    let other = Tool::new();
    let to = other.store();
    let (told, _) = tool.repaired(&other);
    assert_eq!(tool.snapshot(), before, "the original");
    other.ok(&["verify"]);
    tool.run(&["repair", "--to", to.to_str().unwrap()]).code(1).says("there is something in it");
    (told, other)
}

fn state(tool: &Tool, at: &str) -> Vec<Value> {
    tool.lines(&["range", "--at", at])
}

#[test]
fn what_is_whole_is_copied() {
    let tool = filled();
    let other = Tool::new();
    let done = tool.run(&["repair", "--to", other.store().to_str().unwrap()]).code(0);
    done.says("nothing is damaged").says("copy:").says("every revision up to 6006 is readable");
    assert_eq!(other.json(&["hash"]), tool.json(&["hash"]));
    assert_eq!(other.json(&["hash", "--at", "3000"]), tool.json(&["hash", "--at", "3000"]));
    // It can be written to, and what is written there is another history than what the original goes on with.
    other.ok(&["put", "/more", "x"]);
    let incarnation = |tool: &Tool| tool.json(&["stats"])["incarnation"].as_u64().unwrap();
    assert!(incarnation(&other) > incarnation(&tool) + 100);
    other.ok(&["verify"]);
}

#[test]
fn a_log_is_cut_where_damage_begins() {
    let tool = filled();
    let truth = [state(&tool, "6003"), state(&tool, "4000")];
    let logs = tool.json(&["inspect"])["wal"].clone();
    let frames = tool.json(&["dump", "--wal"])["frames"].clone();
    let frame = frames.as_array().unwrap().iter().find(|frame| frame["revision"] == 6004).unwrap();
    let path = tool.store().join(frame["file"].as_str().unwrap());
    flip(&path, usize::try_from(frame["offset"].as_u64().unwrap()).unwrap() + 8);
    let (told, other) = repaired(&tool);
    assert_eq!(
        (told["way"].as_str(), told["revision"].as_u64()),
        (Some("copy"), Some(6003)),
        "{told} {logs}"
    );
    assert_eq!([state(&other, "6003"), state(&other, "4000")], truth);
    assert!(told["files_with_losses"].as_u64().unwrap() > 0);
    assert_eq!(other.json(&["put", "/last", "again"])["revision"], 6004);
    other.ok(&["verify"]);
}

/// What a repair says of revisions and of the damaged store is so: none is given again behind which there are others, and a
/// store that cannot be opened answers nothing.
#[test]
fn what_was_lost_in_the_middle_of_the_log_is_not_given_again() {
    let tool = Tool::new();
    for n in 0..40 {
        tool.ok(&["put", "/k", &n.to_string()]);
    }
    let logs = files(&tool, "wal", ".wal");
    flip(&logs[logs.len() / 2], 4200);
    let (cut, newest) = (Tool::new(), Tool::new());
    let to = |tool: &Tool| tool.store().to_str().unwrap().to_owned();
    let done = tool.run(&["repair", "--to", &to(&cut)]).code(9);
    done.says("will be given again").says("how to have both");
    let done = tool.run(&["repair", "--newest", "--to", &to(&newest)]).code(9);
    let said = done.says("begins anew").says("how to have both").stderr();
    assert!(!said.contains("given again") && !said.contains("may still answer"), "{said}");
    assert_eq!(newest.ok(&["-o", "raw", "get", "/k"]), "39");
}

#[test]
fn damage_of_the_past_costs_the_past_up_to_there() {
    for ending in [".hist", ".events"] {
        // Values that EVENTS do not repeat cannot be taken from there. (Where one file of each is damaged, nobody makes up
        // for the other.)
        let tool = filled_with(&["-O", "event_value_bytes=0"]);
        flip(&files(&tool, "seg", ".hist")[0], 100);
        let found = files(&tool, "seg", ending);
        assert!(!found.is_empty(), "{ending}");
        if ending == ".events" {
            flip(&found[0], 100);
        }
        let truth = state(&tool, "latest");
        let table = Tool::new();
        // In the table, too, all of what is lost.
        let done = tool.run(&["repair", "--to", table.store().to_str().unwrap()]).code(9);
        let done = done
            .says("not all of the past is in it")
            .says("the damaged store may still answer what of the past is not in it");
        assert!(!done.stdout().contains("..."), "{}", done.stdout());
        let (told, other) = repaired(&tool);
        assert_eq!(state(&other, "latest"), truth);
        assert_eq!(told["way"], "copy", "{told}");
        let origins = told["lost_origins"].as_array().unwrap();
        assert_eq!(origins.is_empty(), ending == ".hist", "{told}");
        let given_up = told["past_given_up"].as_array().unwrap();
        let from = given_up.iter().map(|lost| lost["from"].as_u64().unwrap()).max().unwrap();
        assert!((2..=6006).contains(&from), "{told}");
        let at = from.to_string();
        assert_eq!(state(&other, &at).len(), state(&tool, &at).len());
        // Only keys of the block are given up, and no compaction says so.
        assert!(given_up.iter().all(|lost| lost["prefix"] != ""), "{told}");
        assert_eq!(told["compacted_revision"], 0, "{told}");
    }
}

#[test]
fn of_damaged_newest_versions_those_that_events_repeat_are_there() {
    let tool = filled();
    let truth = state(&tool, "latest");
    flip(&files(&tool, "seg", ".head")[0], 200);
    let (told, other) = repaired(&tool);
    assert_eq!((&told["way"], &told["past_lost"]), (&"copy".into(), &false.into()));
    assert_eq!(state(&other, "latest"), truth);
    assert_eq!(told["lost_keys"].as_array().unwrap().len(), 0);
    assert_eq!(told["lost_entries"], 0, "{told}");
}

#[test]
fn of_damaged_newest_versions_the_others_are_kept() {
    let tool = filled_with(&["-O", "event_value_bytes=0"]);
    let truth = state(&tool, "latest");
    let heads = files(&tool, "seg", ".head");
    flip(&heads[0], 200);
    let (told, other) = repaired(&tool);
    // As it was.
    flip(&heads[0], 200);
    assert_eq!(told["way"], "copy");
    let rebuilt = state(&other, "latest");
    // What was in the other blocks is as it was, and what is lost as it was before that.
    let is_back = |kv: &&Value| kv["mod_revision"] == told["brought_back_at"];
    assert!(rebuilt.iter().all(|kv| truth.contains(kv) != is_back(&kv)));
    let back = rebuilt.iter().filter(is_back).count();
    assert!(0 < back && back * 2 < truth.len(), "{back} of {}", truth.len());
    for kv in rebuilt.iter().filter(is_back) {
        let mut lost = told["lost_keys"].as_array().unwrap().iter();
        let kept = lost.find(|lost| lost["key"] == kv["key"]).unwrap()["kept"].to_string();
        let before = tool.json(&["get", kv["key"].as_str().unwrap(), "--at", &kept]);
        assert_eq!(kv["value"], before["value"]);
    }
    // What is lost lies between the keys that are named.
    let rows = told["files"].as_array().unwrap();
    let lost = rows.iter().filter_map(|row| row["lost"].as_str());
    let lost = { lost }.find_map(|lost| lost.split_once("entries, of keys ")).unwrap().1;
    // And why it is lost: in which file, and where in it.
    let (lost, why) = lost.split_once(": ").unwrap();
    assert!(why.contains(".head") && why.contains("offset"), "{why}");
    let (from, to) = lost.strip_prefix("from ").unwrap().split_once(" to ").unwrap();
    let gone = truth.iter().filter(|kv| !rebuilt.contains(kv));
    let keys: Vec<&str> = gone.map(|kv| kv["key"].as_str().unwrap()).collect();
    assert!(keys.iter().all(|key| (from..=to).contains(key)), "{lost}: {keys:?}");
    assert!(keys.len() * 2 < truth.len(), "{} of {}", keys.len(), truth.len());
    // EVENTS say which keys these are.
    let named = told["lost_keys"].as_array().unwrap().iter();
    let mut named: Vec<&str> = named.map(|lost| lost["key"].as_str().unwrap()).collect();
    named.sort_unstable();
    assert_eq!(named, keys);
    // The revision that brings them back, and one from which on they can be read.
    assert_eq!(told["brought_back_at"], 6007);
    assert_eq!(told["added_revision"], 6008);
    assert_eq!(other.json(&["put", "/last", "again"])["revision"], 6009);
}

#[test]
fn a_damaged_current_is_stood_in_for_and_without_a_manifest_the_newest_state_is_saved() {
    let tool = filled();
    let truth = state(&tool, "latest");
    flip(&tool.store().join("CURRENT"), 20);
    let (told, other) = repaired(&tool);
    assert_eq!(told["way"], "copy");
    assert_eq!(state(&other, "latest"), truth);
    assert_eq!(told["revision"], 6006);
    std::fs::remove_file(tool.store().join("CURRENT")).unwrap();
    let manifests = std::fs::read_dir(tool.store()).unwrap().map(|entry| entry.unwrap().path());
    for manifest in manifests.filter(|path| path.to_str().unwrap().contains("MANIFEST-")) {
        flip(&manifest, 60);
    }
    let newest = Tool::new();
    let (told, _) = tool.repaired(&newest);
    assert_eq!((told["way"].as_str(), told["revision"].as_u64()), (Some("rebuild"), Some(6006)));
    assert_eq!(state(&newest, "latest"), truth);
}

#[test]
fn damage_of_what_has_a_copy_is_told_and_ends_with_the_next_open_for_writing() {
    let tool = filled();
    let truth = state(&tool, "latest");
    let manifest = tool.json(&["inspect", "CURRENT"])["manifest"].as_str().unwrap().to_owned();
    flip(&tool.store().join(&manifest), 60);
    let told = tool.run(&["verify"]).code(3);
    assert!(told.stdout().contains(&manifest), "{}", told.stdout());
    assert!(told.stderr().contains("nothing is lost"), "{}", told.stderr());
    // Whatever way the directory is named.
    let linked = Tool::new();
    std::os::unix::fs::symlink(tool.store(), linked.store()).unwrap();
    let told = linked.run(&["verify"]).code(3);
    assert!(told.stderr().contains("nothing is lost"), "{}", told.stderr());
    assert_eq!(state(&tool, "latest"), truth);
    let (told, other) = repaired(&tool);
    assert_eq!((told["way"].as_str(), told["revision"].as_u64()), (Some("copy"), Some(6006)));
    assert_eq!(state(&other, "latest"), truth);
    tool.ok(&["reorganise"]);
    tool.ok(&["verify"]);
    assert_eq!(state(&tool, "latest"), truth);
}

#[test]
fn damage_of_the_log_that_is_in_other_files_costs_nothing() {
    let tool = Tool::new();
    let history = tool.file("h.jsonl", common::history(500, 200, 40));
    let small = ["-O", "memtable_bytes=65536", "-O", "background=false"];
    tool.ok(&[&small[..], &["import", "history", &history]].concat());
    tool.ok(&["put", "/last", "0"]);
    let flushed = tool.json(&["inspect"])["flushed_revision"].as_u64().unwrap();
    let frames = tool.json(&["dump", "--wal"])["frames"].clone();
    let frames = frames.as_array().unwrap();
    let at = |frame: &Value| frame["offset"].as_u64().unwrap();
    let hash = |tool: &Tool| tool.json(&["hash"]);
    let first = &frames[0];
    assert!(first["revision"].as_u64().unwrap() < flushed, "{flushed}: {first}");
    let path = tool.store().join(first["file"].as_str().unwrap());
    let truth = (hash(&tool), state(&tool, "latest"));

    // The header of a batch, so that the store is not opened; and a transaction whose batch is in other
    // files whole, as those that are much older than the last flush are.
    let in_file = |frame: &&Value| frame["file"] == first["file"];
    let mut old = frames.iter().filter(in_file);
    let last = old.rfind(|frame| frame["revision"].as_u64().unwrap() <= flushed / 2).unwrap();
    for offset in [4096 + 20, at(last) + 70] {
        flip(&path, usize::try_from(offset).unwrap());
        let (told, other) = repaired(&tool);
        flip(&path, usize::try_from(offset).unwrap());
        assert_eq!(told["way"], "copy", "{told}");
        assert_eq!(
            (told["files_with_losses"].as_u64(), told["revision"].as_u64()),
            (Some(0), Some(502))
        );
        assert!(told["lost_revisions"].as_array().unwrap().is_empty(), "{told}");
        assert_eq!((hash(&other), state(&other, "latest")), truth);
        assert_eq!(other.json(&["put", "/last", "again"])["revision"], 503);
        other.ok(&["verify"]);
    }
}

#[test]
fn the_new_store_cannot_be_within_the_original() {
    let tool = Tool::new();
    tool.ok(&["put", "/a", "1"]);
    let before = tool.snapshot();
    for inner in ["seg", "seg/x", "inner/deeper", "."] {
        let to = tool.store().join(inner);
        tool.run(&["repair", "--to", to.to_str().unwrap()])
            .code(1)
            .says("in the directory of the store");
        assert_eq!(tool.snapshot(), before, "{inner}");
        assert!(!tool.store().join("inner").exists());
    }
    tool.ok(&["verify"]);
}

#[test]
fn a_file_that_the_system_does_not_let_us_read_is_left_out_as_a_damaged_one() {
    for ending in [".head", ".hist", ".events"] {
        let tool = filled();
        let truth = state(&tool, "latest");
        let path = files(&tool, "seg", ending)[0].clone();
        // Opening succeeds, and reading fails.
        let bytes = std::fs::metadata(&path).unwrap().len();
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let other = Tool::new();
        let (told, _) = tool.repaired(&other);
        other.ok(&["verify"]);
        let rescued = state(&other, "latest");
        assert!(rescued.iter().all(|kv| truth.contains(kv)), "{ending} of {bytes} bytes: {told}");
        assert!(ending == ".head" || rescued == truth, "{ending}: {told}");
    }
}
