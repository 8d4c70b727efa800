//! inspect, dump, verify, stats, compact: what the files are, and damage in them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::path::PathBuf;

use common::{SMALL, Tool, history};
use serde_json::{Value, json};

fn with_every_kind() -> Tool {
    let tool = Tool::new();
    let file = tool.file("h.jsonl", history(6000, 300, 70));
    let mut arguments = SMALL.to_vec();
    arguments.extend(["import", "history", &file]);
    tool.ok(&arguments);
    tool
}

fn names(tool: &Tool) -> Vec<String> {
    let root = tool.store();
    let files = tool.snapshot().into_iter();
    let names =
        files.map(|(path, _)| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
    names.filter(|name| name != "LOCK").collect()
}

#[test]
fn every_file_can_be_inspected_and_dumped() {
    let tool = with_every_kind();
    let names = names(&tool);
    for kind in ["CURRENT", "MANIFEST", ".wal", ".head", ".hist", ".events"] {
        assert!(names.iter().any(|name| name.contains(kind)), "no {kind} in {names:?}");
    }
    let whole = tool.json(&["inspect"]);
    assert_eq!(
        whole["wal"].as_array().unwrap().iter().filter(|w| w["bytes"] == Value::Null).count(),
        0
    );
    for name in &names {
        let object = tool.json(&["inspect", name]);
        tool.ok(&["inspect", name]);
        tool.ok(&["dump", name]);
        let length = std::fs::metadata(tool.store().join(name)).unwrap().len();
        if let Some(parts) = object["parts"].as_array() {
            covers(parts, length, name);
        }
        if let Some(blocks) = object["blocks"].as_array() {
            let entries: u64 = blocks.iter().map(|block| block["entries"].as_u64().unwrap()).sum();
            assert_eq!(object["entries"], entries, "{name}");
            assert_eq!(tool.lines(&["dump", name]).len() as u64, entries, "{name}");
            covers(
                &[blocks.as_slice(), object["pages"].as_array().unwrap()].concat(),
                object["parts"][3]["offset"].as_u64().unwrap() - 64,
                name,
            );
        }
    }
    let short =
        names.iter().find(|name| name.contains(".head")).unwrap().split_once('/').unwrap().1;
    assert_eq!(tool.json(&["inspect", short])["kind"], "head");
    let long = names.iter().find(|name| name.contains(".head")).unwrap();
    let absolute = tool.store().join(long);
    let relative = format!("./{long}");
    for path in [
        absolute.to_str().unwrap(),
        &relative,
        &tool.store().join(".").join(long).display().to_string(),
    ] {
        assert_eq!(tool.json(&["inspect", path])["kind"], "head", "{path}");
    }
    tool.run(&["inspect", tool.path("h.jsonl").to_str().unwrap()]).code(5);
    // From the directory the store is in, as a shell completes it.
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_annals"));
    let path = format!("store/{long}");
    let command = command.current_dir(tool.path("")).args(["-C", "./store", "inspect", &path]);
    assert!(command.output().unwrap().status.success());
    tool.run(&["inspect", "seg/99999999.head"]).code(5);
    assert!(!tool.ok(&["dump", "--manifest"]).is_empty());
    assert!(!tool.lines(&["dump", "--keys", "--values"]).is_empty());
    // Every revision is in EVENTS or in the WAL.
    let frames = tool.lines(&["dump", "--wal"]);
    let in_wal = frames.iter().map(|frame| frame["revision"].as_u64().unwrap());
    let mut seen: Vec<u64> = in_wal.collect();
    for name in names.iter().filter(|name| name.ends_with(".events")) {
        for entry in tool.lines(&["dump", name]) {
            seen.push(entry["key"]["revision"].as_u64().unwrap());
            assert!(!entry["transaction"]["events"].as_array().unwrap().is_empty());
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, (2..=6001).collect::<Vec<u64>>());
}

/// The parts (frames apart, they lie in batches) follow each other without a gap.
fn covers(parts: &[Value], length: u64, name: &str) {
    let mut spans: Vec<(u64, u64)> = parts
        .iter()
        .filter(|part| part["what"] != "frame")
        .map(|part| (part["offset"].as_u64().unwrap(), part["bytes"].as_u64().unwrap()))
        .filter(|(_, bytes)| *bytes > 0)
        .collect();
    spans.sort_unstable();
    let first = spans[0].0;
    let mut at = first;
    for (offset, bytes) in spans {
        assert_eq!(offset, at, "{name}: a gap or an overlap");
        at += bytes;
    }
    assert_eq!(at - first, length, "{name}");
}

#[test]
fn damage_is_found_and_only_found() {
    let tool = with_every_kind();
    tool.run(&["verify"]).code(0);
    let before = tool.snapshot();
    for name in names(&tool) {
        let path: PathBuf = tool.store().join(&name);
        let sound = std::fs::read(&path).unwrap();
        if sound.is_empty() {
            continue;
        }
        let mut bad = sound.clone();
        let middle = bad.len() / 2;
        bad[middle] ^= 0x10;
        std::fs::write(&path, &bad).unwrap();
        let found = tool.run(&["verify", "-o", "json"]).code(3).stdout();
        let found: Value = serde_json::from_str(&found).unwrap();
        assert!(found.to_string().contains(name.rsplit('/').next().unwrap()), "{name}: {found}");
        assert_eq!(std::fs::read(&path).unwrap(), bad, "verify has written");
        for cut in [0, middle, sound.len() - 1] {
            std::fs::write(&path, &sound[..cut]).unwrap();
            tool.run(&["verify"]).code(3);
        }
        std::fs::remove_file(&path).unwrap();
        assert_ne!(tool.run(&["verify"]).0.status.code(), Some(0), "{name} removed");
        std::fs::write(&path, &sound).unwrap();
    }
    assert!(before == tool.snapshot());
    tool.run(&["verify"]).code(0);
}

#[test]
fn a_missing_log_file_is_damage() {
    let tool = Tool::new();
    tool.ok(&["put", "k", "v"]);
    let log = names(&tool).into_iter().find(|name| name.contains(".wal")).unwrap();
    std::fs::remove_file(tool.store().join(&log)).unwrap();
    for line in [&["verify"][..], &["get", "k"], &["put", "k", "v"], &["dump", "--wal"]] {
        tool.run(line).code(3);
    }
    let wal = &tool.json(&["inspect"])["wal"][0];
    assert_eq!((&wal["file"], &wal["bytes"]), (&json!(log), &Value::Null));
}

#[test]
fn a_part_of_an_export_is_not_left_behind() {
    let tool = with_every_kind();
    let whole = tool.path("whole.jsonl");
    tool.ok(&["export", whole.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(&whole).unwrap(), tool.ok(&["export"]));
    tool.run(&["export", whole.to_str().unwrap()]).code(1).says("already");
    for name in names(&tool).into_iter().filter(|name| name.ends_with(".events")) {
        let path = tool.store().join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();
    }
    for name in ["cut.jsonl", "cut.jsonl.zst"] {
        tool.run(&["export", tool.path(name).to_str().unwrap()]).code(3);
        let left = std::fs::read_dir(tool.path("")).unwrap();
        let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(!left.into_iter().any(|left| left.starts_with("cut")));
    }
}

#[test]
fn what_cannot_be_checked_is_not_damage() {
    let tool = Tool::new();
    tool.run(&["verify"]).code(1).says("no store");
    std::fs::create_dir(tool.store()).unwrap();
    std::fs::write(tool.store().join("something"), "else").unwrap();
    tool.run(&["verify"]).code(1);
}

#[test]
fn compaction_is_planned_then_done() {
    let tool = with_every_kind();
    let bytes = || tool.snapshot().iter().map(|(_, content)| content.len() as u64).sum::<u64>();
    let before = bytes();
    let plan = tool.run(&["compact", "--at", "5000", "-o", "json"]).code(7).stdout();
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["revisions"], json!(4999));
    assert_eq!(bytes(), before);
    tool.ok(&["get", "/k/001", "--at", "4000"]);
    let state = tool.ok(&["range", "--prefix", "", "--at", "5000", "-o", "ndjson"]);
    let mut arguments = SMALL.to_vec();
    arguments.extend(["compact", "--at", "5000", "--confirm"]);
    tool.ok(&arguments);
    assert!(bytes() < before, "{before} bytes became {}", bytes());
    tool.run(&["get", "/k/001", "--at", "4999"]).code(6).says("compacted");
    assert_eq!(tool.ok(&["range", "--prefix", "", "--at", "5000", "-o", "ndjson"]), state);
    for line in [&["compact", "--at", "5000"][..], &["compact", "--at", "5000", "--confirm"]] {
        tool.run(line).code(0).says("already compacted to 5000; nothing to do");
        let below: Vec<&str> = line.iter().map(|w| if *w == "5000" { "4999" } else { w }).collect();
        tool.run(&below).code(6).silent().says("revision 4999 has been compacted");
        let zero: Vec<&str> = line.iter().map(|w| if *w == "5000" { "0" } else { w }).collect();
        tool.run(&zero).code(2).silent().says("there is no revision 0");
    }
    tool.run(&["compact", "--at", "9999", "--confirm"]).code(6);
    tool.run(&["verify"]).code(0);
}

#[test]
fn what_is_in_the_log_alone_is_moved_to_files_when_that_is_asked_for() {
    let tool = Tool::new();
    let file = tool.file("h.jsonl", history(200, 20, 70));
    tool.ok(&["import", "history", &file]);
    let state = tool.ok(&["export"]);
    let by_prefix = || tool.run(&["stats", "--by", "prefix"]).code(0);
    by_prefix().says("everything is still in the log");
    let told = tool.json(&["reorganise"]);
    assert_eq!((&told["revision"], &told["compacted_revision"]), (&json!(201), &json!(0)));
    assert!(!by_prefix().stderr().contains("in the log"));
    assert!(names(&tool).iter().any(|name| name.contains(".hist")));
    assert_eq!(tool.ok(&["export"]), state, "nothing is forgotten");
    tool.run(&["verify"]).code(0);
}

/// As `annals-etcd` has it in its data directory.
#[test]
fn who_names_the_directory_around_the_store_is_told_of_it() {
    let tool = Tool::new();
    tool.ok(&["put", "k", "v"]);
    let around = tool.store().with_file_name("around");
    std::fs::create_dir(&around).unwrap();
    std::fs::rename(tool.store(), around.join("store")).unwrap();
    std::fs::rename(&around, tool.store()).unwrap();
    tool.run(&["get", "k"]).code(1).says(&format!("-C {}/store", tool.store().display()));
}

#[test]
fn stats_know_the_store() {
    let tool = with_every_kind();
    let stats = tool.json(&["stats"]);
    assert_eq!(stats["revision"], 6001);
    assert_eq!(stats["compacted_revision"], 0);
    assert_eq!(
        stats["disk_bytes"],
        tool.snapshot().iter().map(|(_, c)| c.len() as u64).sum::<u64>()
    );
    assert!(stats["history"]["entries"].as_u64().unwrap() > 0);
    // verify counts what stats counts.
    let count: u64 = stats["on_disk"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| kind["files"].as_u64().unwrap())
        .sum();
    let bytes = stats["disk_bytes"].as_u64().unwrap();
    let verified = tool.json(&["verify"]);
    assert_eq!((&verified["files"], &verified["bytes"]), (&json!(count), &json!(bytes)));
    tool.run(&["verify"]).says(&format!("no damage in {count} files, {bytes} bytes"));
    let alive = tool.json(&["range", "--count-only"])["count"].clone();
    assert_eq!(stats["keys"], alive);
    assert!(tool.ok(&["stats"]).contains("revision"));
    // A 0 of this command's own opening would look like an answer.
    for of_the_process in ["batches", "delays", "waits", "flushes", "pinned", "memtable_bytes"] {
        assert_eq!(stats.get(of_the_process), None);
    }
    // One name, one meaning.
    let plan = tool.run(&["compact", "--at", "5000", "-o", "json"]).code(7).stdout();
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["disk_bytes"], stats["disk_bytes"]);
}

/// A store whose files have several blocks each.
fn of_several_blocks() -> Tool {
    let tool = Tool::new();
    tool.file("history.jsonl", history(2000, 500, 60));
    tool.ok(&["import", "history", &tool.path("history.jsonl").display().to_string()]);
    tool.ok(&["reorganise"]);
    tool
}

#[test]
fn the_keys_of_a_damaged_block_are_told() {
    let tool = of_several_blocks();
    for kind in ["head", "history", "events"] {
        let named =
            tool.lines(&["segments"]).into_iter().find(|file| file["kind"] == kind).unwrap();
        let name = named["file"].as_str().unwrap();
        let blocks = tool.json(&["inspect", name])["blocks"].as_array().unwrap().clone();
        let path = tool.store().join(name);
        let sound = std::fs::read(&path).unwrap();
        for (number, block) in blocks.iter().enumerate() {
            let mut bad = sound.clone();
            let [offset, bytes] =
                ["offset", "bytes"].map(|it| usize::try_from(block[it].as_u64().unwrap()).unwrap());
            bad[offset + bytes / 2] ^= 1;
            std::fs::write(&path, &bad).unwrap();
            let found = tool.run(&["verify", "-o", "json"]).code(3).stdout();
            let found: Value = serde_json::from_str(&found).unwrap();
            let damage = found["damage"].as_array().unwrap();
            let told: Vec<_> = damage.iter().filter(|one| !one["key"].is_null()).collect();
            if kind == "events" {
                assert!(told.is_empty(), "{found}");
                continue;
            }
            assert_eq!(told.len(), 1, "{found}");
            let [first, last] = ["key", "key_upto"].map(|it| told[0][it].as_str().unwrap());
            let begins = block["first_key"].as_str().unwrap();
            assert!(begins.starts_with(first), "{begins} {found}");
            match blocks.get(number + 1) {
                Some(next) => {
                    assert!(next["first_key"].as_str().unwrap().starts_with(last), "{found}");
                }
                None => assert_eq!(last, named["last_key"].as_str().unwrap()),
            }
            assert!(first < last, "{found}");
        }
        std::fs::write(&path, &sound).unwrap();
    }
    tool.run(&["verify"]).code(0);
}

/// A range that ends with damage shows what comes before it, however it is shown.
#[test]
fn what_was_read_before_damage_is_shown() {
    let tool = of_several_blocks();
    let named = tool.lines(&["segments"]).into_iter().find(|file| file["kind"] == "head").unwrap();
    let name = named["file"].as_str().unwrap();
    let blocks = tool.json(&["inspect", name])["blocks"].as_array().unwrap().clone();
    let second = usize::try_from(blocks[1]["offset"].as_u64().unwrap()).unwrap();
    let path = tool.store().join(name);
    let mut bad = std::fs::read(&path).unwrap();
    bad[second + 100] ^= 1;
    std::fs::write(&path, &bad).unwrap();
    let lines = tool.run(&["range", "-o", "ndjson"]).code(3).stdout();
    let table = tool.run(&["range", "-o", "table"]).code(3).stdout();
    assert!(lines.lines().count() > 10, "{lines}");
    // The names of the columns come first.
    assert_eq!(table.lines().count(), lines.lines().count() + 1, "{table}");
    // Damage of the past does not keep a compaction from being done, and that is said.
    bad[second + 100] ^= 1;
    std::fs::write(&path, &bad).unwrap();
    let past =
        tool.lines(&["segments"]).into_iter().find(|file| file["kind"] == "history").unwrap();
    let path = tool.store().join(past["file"].as_str().unwrap());
    let mut bad = std::fs::read(&path).unwrap();
    bad[100] ^= 1;
    std::fs::write(&path, &bad).unwrap();
    let done = tool.run(&["compact", "--at", "1000", "--confirm"]);
    done.code(3).says("compacted to 1000, and done but for what needs this file");
    assert_eq!(tool.json(&["stats"])["compacted_revision"], 1000);
}
