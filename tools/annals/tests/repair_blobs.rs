//! `repair` where values lie in blob files: the keys whose value is damaged are named, all others are kept.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::path::PathBuf;

use common::{SMALL, Tool};
use serde_json::Value;

const KEYS: u64 = 60;

/// A store whose newest versions have their values in blob files, in part in L0 and in part in HEAD, and a small one.
fn filled() -> Tool {
    let tool = Tool::new();
    let apart = ["-O", "blob_value_bytes=64", "-O", "event_value_bytes=0"];
    let history = tool.file("h.jsonl", common::history(1_500, KEYS, 300));
    tool.ok(&[&SMALL, &apart[..], &["import", "history", &history]].concat());
    tool.ok(&["put", "/small", "x"]);
    tool.ok(&[&SMALL, &apart[..], &["reorganise"]].concat());
    assert!(!blobs(&tool).is_empty());
    tool
}

fn blobs(tool: &Tool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(tool.store().join("seg")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_str().unwrap().contains(".blob"));
    files.sort();
    files
}

fn state(tool: &Tool) -> Vec<Value> {
    tool.lines(&["range", "--at", "latest"])
}

fn repaired(tool: &Tool) -> (Value, Tool) {
    let other = Tool::new();
    let (told, _) = tool.repaired(&other);
    other.ok(&["verify"]);
    (told, other)
}

#[test]
fn a_whole_store_is_copied_with_its_blob_files() {
    let tool = filled();
    let (told, other) = repaired(&tool);
    assert_eq!(told["way"], "copy");
    assert_eq!(other.json(&["hash"]), tool.json(&["hash"]));
    assert_eq!(blobs(&other).len(), blobs(&tool).len());
}

#[test]
fn a_damaged_value_costs_its_key() {
    let tool = filled();
    let truth = state(&tool);
    let path = &blobs(&tool)[0];
    let mut content = std::fs::read(path).unwrap();
    content[64 + 100] ^= 0x55;
    std::fs::write(path, content).unwrap();
    let verified = tool.run(&["verify"]).code(3).stdout();
    // Told once, not also for the entry that refers to it.
    assert_eq!(verified.matches("block header crc").count(), 1, "{verified}");
    assert!(verified.contains(".blob"), "{verified}");
    let (told, other) = repaired(&tool);
    assert_eq!(told["way"], "rebuild");
    let mut content = std::fs::read(path).unwrap();
    content[64 + 100] ^= 0x55;
    std::fs::write(path, content).unwrap();
    let rebuilt = state(&other);
    let gone = truth.iter().filter(|kv| !rebuilt.contains(kv));
    let gone: Vec<&str> = gone.map(|kv| kv["key"].as_str().unwrap()).collect();
    // A block has some of them: here they are short.
    assert!((1..truth.len() / 2).contains(&gone.len()), "{gone:?}");
    let named = told["lost_keys"].as_array().unwrap().iter();
    let mut named: Vec<&str> = named.map(|lost| lost["key"].as_str().unwrap()).collect();
    named.sort_unstable();
    assert_eq!(named, gone);
    // What is there is as it was, or as it was before, or it is not there any more.
    for kv in rebuilt.iter().filter(|kv| !truth.contains(kv)) {
        let key = kv["key"].as_str().unwrap();
        let mut lost = told["lost_keys"].as_array().unwrap().iter();
        let kept = lost.find(|lost| lost["key"] == key).unwrap()["kept"].to_string();
        assert_eq!(kv["value"], tool.json(&["get", key, "--at", &kept])["value"]);
    }
    // The others can be read as far back as before.
    let given_up = told["past_given_up"].as_array().unwrap();
    assert!(!given_up.is_empty() && given_up.len() < 17, "{told}");
    let mut whole = 0;
    for kv in rebuilt.iter().filter(|kv| truth.contains(kv)) {
        let key = kv["key"].as_str().unwrap();
        let is_given_up = |lost: &Value| key.starts_with(lost["prefix"].as_str().unwrap());
        if !given_up.iter().any(is_given_up) {
            let created = kv["create_revision"].to_string();
            let at = |tool: &Tool| tool.json(&["get", key, "--at", &created]);
            assert_eq!(at(&other), at(&tool));
            whole += 1;
        }
    }
    assert!(whole > 0, "{told}");
}

#[test]
fn without_a_blob_file_the_other_keys_are_kept() {
    let tool = filled();
    let truth = state(&tool);
    let whole: Vec<_> =
        blobs(&tool).into_iter().map(|path| (std::fs::read(&path).unwrap(), path)).collect();
    for (_, path) in &whole {
        std::fs::remove_file(path).unwrap();
    }
    assert!(tool.run(&["verify"]).code(3).stdout().contains(".blob"));
    let (told, other) = repaired(&tool);
    let short = |kv: &&Value| kv["value"].as_str().unwrap().len() < 64;
    let expected: Vec<&Value> = truth.iter().filter(short).collect();
    assert!((1..10).contains(&expected.len()));
    let lost = told["lost_keys"].as_array().unwrap();
    let is_lost = |kv: &&Value| lost.iter().any(|lost| lost["key"] == kv["key"]);
    let rebuilt = state(&other);
    assert_eq!(rebuilt.iter().filter(|kv| !is_lost(kv)).collect::<Vec<_>>(), expected);
    // They can be read, too, as long as nobody asks for the others.
    assert_eq!(tool.json(&["get", "/small"])["value"], "x");
    // The others are as of a version that is not in a blob file, if there was one.
    for (content, path) in whole {
        std::fs::write(path, content).unwrap();
    }
    let mut back = 0;
    for lost in lost.iter().filter(|lost| !lost["kept"].is_null()) {
        let kv = rebuilt.iter().find(|kv| kv["key"] == lost["key"]).unwrap();
        assert_eq!(kv["mod_revision"], told["brought_back_at"], "{told}");
        let at = lost["kept"].to_string();
        let before = tool.json(&["get", lost["key"].as_str().unwrap(), "--at", &at]);
        assert_eq!((&kv["value"], &before["mod_revision"]), (&before["value"], &lost["kept"]));
        back += 1;
    }
    assert!(back > 0, "{told}");
}

#[test]
fn without_a_manifest_the_newest_values_are_found_by_name() {
    let tool = filled();
    // The log has something, too.
    tool.ok(&["put", "/small", "y"]);
    let truth = state(&tool);
    for entry in std::fs::read_dir(tool.store()).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("CURRENT") {
            std::fs::remove_file(path).unwrap();
        } else if path.to_str().unwrap().contains("MANIFEST-") {
            let mut content = std::fs::read(&path).unwrap();
            content[60] ^= 0x55;
            std::fs::write(path, content).unwrap();
        }
    }
    let (told, other) = repaired(&tool);
    assert_eq!(told["way"], "rebuild");
    assert_eq!(state(&other), truth);
}
