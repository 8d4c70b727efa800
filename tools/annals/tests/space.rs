//! `stats --by prefix`: which keys take the room.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{SMALL, Tool};
use serde_json::Value;

/// Of every four lines three write a long value below /logs/app/, and one a short one elsewhere.
fn skewed() -> Tool {
    let tool = Tool::new();
    let mut text = String::new();
    for i in 0..3000u64 {
        let key = match i % 4 {
            0 => format!("/config/{:02}/{:03}", i % 12, i / 4 % 50),
            _ => format!("/logs/app/{i:05}"),
        };
        let value = format!("{:016x}", i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let value = value.repeat(if i % 4 == 0 { 1 } else { 20 });
        let line = serde_json::json!({
            "commit": format!("{i:040x}"), "time": 1_700_000_000 + i,
            "puts": { key: value }, "deletes": []
        });
        text.push_str(&line.to_string());
        text.push('\n');
    }
    let file = tool.file("h.jsonl", text);
    let mut arguments = SMALL.to_vec();
    arguments.extend(["import", "history", &file]);
    tool.ok(&arguments);
    tool
}

fn prefixes(object: &Value) -> Vec<&str> {
    let list = object["prefixes"].as_array().unwrap();
    list.iter().map(|found| found["prefix"].as_str().unwrap()).collect()
}

#[test]
fn the_largest_prefix_is_named_first() {
    let tool = skewed();
    let object = tool.json(&["stats", "--by", "prefix"]);
    assert_eq!(prefixes(&object), ["/logs/", "/config/"]);
    let bytes = |found: &Value| found["bytes"].as_u64().unwrap();
    let (logs, config) = (&object["prefixes"][0], &object["prefixes"][1]);
    assert!(bytes(logs) > 3 * bytes(config), "{object}");
    for found in [logs, config] {
        let parts = ["live_bytes", "history_bytes", "dead_bytes", "log_bytes"];
        assert_eq!(
            parts.map(|part| found[part].as_u64().unwrap()).iter().sum::<u64>(),
            bytes(found)
        );
    }
    // The same bytes as in the figures of the whole store.
    let stats = tool.json(&["stats"]);
    let whole = ["l0", "head", "history"].map(|kind| stats[kind]["bytes"].as_u64().unwrap());
    let log = |found: &Value| found["log_bytes"].as_u64().unwrap();
    let in_log = log(logs) + log(config);
    assert_eq!(bytes(logs) + bytes(config), whole.iter().sum::<u64>() + in_log);

    let one = tool.json(&["stats", "--by", "prefix", "--top", "1"]);
    assert_eq!((prefixes(&one), &one["other_prefixes"]), (vec!["/logs/"], &Value::from(1)));
    assert_eq!(bytes(&one["other"]), bytes(config));
    let deep = tool.json(&["stats", "--by", "prefix", "--prefix", "/logs/"]);
    assert_eq!(prefixes(&deep)[0], "/logs/app/");
    let cut = tool.json(&["stats", "--by", "prefix", "--delimiter", "g"]);
    assert_eq!(prefixes(&cut)[0], "/log");
    let table = tool.ok(&["stats", "--by", "prefix", "--top", "1"]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("prefix") && lines[1].starts_with("/logs/"), "{table}");
    assert!(lines[1].contains(" KiB") && lines[2].starts_with("(1 other)"), "{table}");
    let raw = tool.ok(&["stats", "--by", "prefix", "-o", "raw"]);
    assert!(raw.lines().next().unwrap().ends_with(" /logs/"));
}

#[test]
fn what_needs_by_is_refused_without_it_and_a_young_store_says_where_its_keys_are() {
    let tool = Tool::new();
    tool.ok(&["put", "/a", "1"]);
    tool.run(&["stats", "--depth", "2"]).code(2).says("--by");
    tool.run(&["stats", "--by", "prefix", "--delimiter", "ab"]).code(2).says("one byte");
    tool.run(&["stats", "--by", "prefix", "--short"]).code(2);
    tool.run(&["stats", "--by", "prefix", "--prefix", "/b"]).code(0).silent().says("no such keys");
    // What no file but the log has yet is told from that.
    let young = tool.json(&["stats", "--by", "prefix"]);
    assert_eq!(prefixes(&young), ["/"]);
    let only = &young["prefixes"][0];
    assert_eq!((&only["versions"], &only["live_bytes"]), (&Value::from(1), &Value::from(0)));
    assert!(only["log_bytes"].as_u64().unwrap() > 0, "{only}");
    let key = &tool.json(&["stats", "--by", "key"])["keys"][0];
    assert_eq!((&key["key"], &key["versions"]), (&Value::from("/a"), &Value::from(1)));
    let stats = tool.json(&["stats"]);
    assert_eq!(stats["live_bytes"], 0);
}
