//! segments, wal, manifest, find, at, readers, stats --by: what the files hold, and for whom.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use annals::Options;
use common::{SMALL, Tool};
use serde_json::{Value, json};

/// A store with files of every kind, closed.
fn filled() -> Tool {
    let tool = Tool::new();
    let file = tool.file("h.jsonl", common::history(6000, 200, 40));
    let mut arguments = SMALL.to_vec();
    arguments.extend(["import", "history", &file]);
    tool.ok(&arguments);
    tool
}

#[test]
fn the_lists_are_what_inspect_says() {
    let tool = filled();
    let inspected = tool.json(&["inspect"]);
    let segments = tool.json(&["segments"]);
    assert_eq!(segments["segments"], inspected["segments"]);
    let bytes = |list: &Value| -> u64 {
        list.as_array().unwrap().iter().map(|file| file["bytes"].as_u64().unwrap()).sum()
    };
    assert_eq!(segments["bytes"], bytes(&inspected["segments"]));
    let kinds = ["l0", "head", "history", "events"];
    let of_kind = |kind: &&str| tool.json(&["segments", "--kind", kind])["files"].as_u64().unwrap();
    assert_eq!(kinds.iter().map(of_kind).sum::<u64>(), segments["files"].as_u64().unwrap());
    assert!(tool.ok(&["segments"]).lines().next().unwrap().starts_with("file"));
    assert_eq!(tool.json(&["manifest"])["files"], inspected["segments"]);

    let log = tool.json(&["wal"]);
    let last = log["wal"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["state"], "closed");
    assert_eq!(bytes(&log["wal"]), tool.json(&["stats"])["wal_bytes"].as_u64().unwrap());
    let path = tool.store().join(last["file"].as_str().unwrap());
    let mut content = std::fs::read(&path).unwrap();
    content[4096 + 40] ^= 1;
    std::fs::write(&path, content).unwrap();
    let done = tool.run(&["wal", "-o", "json"]).code(3);
    let told: Value = serde_json::from_str(&done.stdout()).unwrap();
    assert_eq!(told["wal"].as_array().unwrap().last().unwrap()["state"], "damaged");
}

#[test]
fn find_names_every_file_and_the_reason() {
    let tool = filled();
    tool.ok(&["put", "/k/007", "newest"]);
    let found = tool.json(&["find", "/k/007"]);
    let files = found["files"].as_array().unwrap();
    let inspected = tool.json(&["inspect"]);
    let all = inspected["segments"].as_array().unwrap().len()
        + inspected["wal"].as_array().unwrap().len();
    assert_eq!(files.len(), all);
    // Every version is found, each in some file.
    let mut revisions: Vec<u64> = Vec::new();
    for file in files {
        if file["kind"] != "wal" {
            assert_eq!(file["versions"].as_u64().unwrap() > 0, file["why"] == "has it", "{file}");
        }
        if file["versions"] != 0 {
            assert_eq!(file["opened"], true, "{file}");
        }
        revisions.extend(file["revisions"].as_array().unwrap().iter().map(|r| r.as_u64().unwrap()));
    }
    revisions.sort_unstable();
    revisions.dedup();
    let history = tool.lines(&["history", "/k/007"]);
    let mut told: Vec<u64> =
        history.iter().map(|row| row["mod_revision"].as_u64().unwrap()).collect();
    told.reverse();
    assert_eq!(revisions, told);
    let none = tool.run(&["find", "/k/0070", "-o", "json"]).code(5).says("no file has it");
    let none: Value = serde_json::from_str(&none.stdout()).unwrap();
    let reasons = |word: &str| {
        let files = none["files"].as_array().unwrap();
        files.iter().filter(|file| file["why"].as_str().unwrap().contains(word)).count()
    };
    assert!(reasons("filter") > 0 && reasons("by revision") > 0, "{none}");
    let outside = tool.run(&["find", "zzz", "-o", "json"]).code(5);
    assert!(outside.stdout().contains("ends before the key"));
}

#[test]
fn a_point_in_history_is_a_revision_and_a_time() {
    let tool = Tool::new();
    for n in 0..3 {
        tool.ok(&["put", "k", &n.to_string()]);
    }
    let at = tool.json(&["at", "3"]);
    assert_eq!(
        (&at["revision"], &at["next_revision"], &at["before_newest"]),
        (&json!(3), &json!(4), &json!(1))
    );
    let time = at["time"].as_str().unwrap();
    assert_eq!(tool.json(&["at", time])["revision"], 3);
    assert_eq!(tool.json(&["at", "-1"]), at);
    assert_eq!(tool.json(&["at", "latest"])["next_time"], Value::Null);
    tool.run(&["at", "9"]).code(6);
    assert_eq!(tool.json(&["at", "1970-01-01"])["revision"], 1);
    tool.run(&["at", "soon"]).code(2);
}

#[test]
#[cfg(target_os = "linux")]
fn readers_are_named_with_what_they_hold() {
    let tool = Tool::new();
    let store = Options::new().live_interval_seconds(1).open(tool.store()).unwrap();
    for n in 0..2000_u64 {
        store.put(format!("/k/{n:04}"), [b'x'; 200]).unwrap();
    }
    let view = store.at(1000).unwrap();
    let own = |found: &Value| {
        let list = found["readers"].as_array().unwrap();
        list.iter().find(|row| row["pid"] == std::process::id()).cloned().unwrap()
    };
    let told = own(&tool.json(&["readers"]));
    assert_eq!((&told["writer"], &told["removed_files"]), (&json!(true), &json!(0)));
    // As a view that reads a file which has been replaced meanwhile.
    let path = tool.store().join("seg/99999999.head");
    std::fs::write(&path, [b'x'; 10_000]).unwrap();
    let held = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let told = own(&tool.json(&["readers"]));
    assert_eq!(told["removed_files"], 1, "{told}");
    assert!(told["held_bytes"].as_u64().unwrap() >= 10_000, "{told}");
    drop(held);
    // What only the writer knows it writes down from time to time.
    while !tool.json(&["readers"])["pins"].to_string().contains("\"revision\":1000") {}
    drop(view);
    store.close().unwrap();
    tool.run(&["readers"]).code(0).says("no process has the store open");
}

#[test]
fn the_largest_keys_are_named_with_the_log_and_events() {
    let tool = Tool::new();
    for n in 0..5 {
        tool.ok(&["put", "/big/one", &"x".repeat(5000 + n)]);
    }
    tool.ok(&["put", "/big/two", &"y".repeat(9000)]);
    tool.ok(&["put", "/small", "1"]);
    let keys = |arguments: &[&str]| tool.json(&[&["stats", "--by", "key"], arguments].concat());
    let told = keys(&[]);
    let rows = told["keys"].as_array().unwrap().clone();
    let names: Vec<&str> = rows.iter().map(|row| row["key"].as_str().unwrap()).collect();
    assert_eq!(names, ["/big/one", "/big/two", "/small"]);
    assert_eq!(told["all_keys"], 3);
    for row in &rows {
        let parts = ["live_bytes", "history_bytes", "event_bytes", "log_bytes"];
        let sum: u64 = parts.iter().map(|part| row[part].as_u64().unwrap()).sum();
        assert_eq!(sum, row["bytes"].as_u64().unwrap());
    }
    assert!(rows[0]["log_bytes"].as_u64().unwrap() > 20_000, "{told}");
    assert_eq!(keys(&["--prefix", "/small"])["keys"].as_array().unwrap().len(), 1);
    assert!(tool.ok(&["stats", "--by", "key", "--top", "1"]).contains("... 2 more"));
    // All of it adds up to what lies on disk.
    let by_prefix = tool.json(&["stats", "--by", "prefix"]);
    let disk = tool.json(&["stats"])["disk_bytes"].clone();
    assert_eq!(by_prefix["disk_bytes"], disk);
}

#[test]
fn counts_are_those_of_the_disk_beside_a_writer_too() {
    let tool = Tool::new();
    let options = Options::new().wal_bytes(64 << 10).memtable_bytes(16 << 20);
    let store = options.open(tool.store()).unwrap();
    for n in 0..1000_u64 {
        store.put(format!("/k/{n:04}"), [b'x'; 1000]).unwrap();
    }
    let logs: Vec<_> =
        std::fs::read_dir(tool.store().join("wal")).unwrap().map(Result::unwrap).collect();
    let bytes: u64 = logs.iter().map(|log| log.metadata().unwrap().len()).sum();
    assert!(logs.len() > 5);
    let stats = tool.json(&["stats"]);
    assert_eq!((&stats["wal_files"], &stats["wal_bytes"]), (&json!(logs.len()), &json!(bytes)));
    // CURRENT and the manifest beside the log.
    assert_eq!(tool.json(&["verify"])["files"], logs.len() + 2);
    // Behind damage the rest of the log is looked at, also where no manifest lists it.
    std::mem::forget(store);
    let mut names: Vec<_> = logs.iter().map(std::fs::DirEntry::path).collect();
    names.sort();
    let damaged = [&names[0], &names[3]];
    for name in damaged {
        let mut content = std::fs::read(name).unwrap();
        content[4096 + 100] ^= 1;
        std::fs::write(name, content).unwrap();
    }
    tool.run(&["verify"]).code(3).says("2 damaged places");
}

#[test]
fn a_damaged_place_is_told_once() {
    let tool = Tool::new();
    for n in 0..20 {
        tool.ok(&["put", "/k", &n.to_string()]);
    }
    let logs = std::fs::read_dir(tool.store().join("wal")).unwrap();
    let mut logs: Vec<_> = logs.map(|log| log.unwrap().path()).collect();
    logs.sort();
    // A batch that others follow, and the last one.
    for log in [&logs[logs.len() - 2], &logs[logs.len() - 1]] {
        let sound = std::fs::read(log).unwrap();
        let mut content = sound.clone();
        content[4200] ^= 1;
        std::fs::write(log, content).unwrap();
        let found = tool.run(&["-o", "json", "verify"]).code(3).says("1 damaged place").stdout();
        let found: Value = serde_json::from_str(&found).unwrap();
        assert_eq!(found["damage"].as_array().map(Vec::len), Some(1), "{found}");
        std::fs::write(log, sound).unwrap();
    }
}
