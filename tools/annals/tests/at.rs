//! Points in history, spelled in all ways, in every command that takes one; and what these commands tell.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use annals::{CommitOptions, Store, TxnRequest, put};
use common::Tool;
use serde_json::{Value, json};

/// A transaction of a key at a time.
fn write(store: &Store, time: i64, by: &str, key: &str, value: &str) {
    let request = TxnRequest { success: vec![put(key, value)], ..TxnRequest::default() };
    let metadata = by.to_owned().into();
    let options = CommitOptions { time: Some(time), metadata, ..CommitOptions::default() };
    store.transact_with(request, options).unwrap();
}

/// Microseconds since the epoch, some time ago.
fn ago(time: Duration) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.checked_sub(time).unwrap().as_micros()).unwrap()
}

const HOUR: Duration = Duration::from_secs(3600);

/// /x at 2 (50 hours ago), 3 (26 hours ago), 5 (an hour ago); /y at 4 (2 hours ago).
fn store() -> Tool {
    let tool = Tool::new();
    let store = Store::open(tool.store()).unwrap();
    write(&store, ago(50 * HOUR), "by ada", "/x", r#"{"replicas": 1}"#);
    write(&store, ago(26 * HOUR), "by bob", "/x", r#"{"replicas": 2, "image": "a"}"#);
    write(&store, ago(2 * HOUR), "by eve", "/y", "one\ntwo\n");
    write(&store, ago(HOUR), "by eve", "/x", r#"{"replicas": 2, "image": "b"}"#);
    store.close().unwrap();
    tool
}

#[test]
fn every_spelling_is_taken_wherever_a_point_in_history_is() {
    let tool = store();
    for (at, revision) in [
        ("latest", 5),
        ("3", 3),
        ("-1", 4),
        ("-3", 2),
        ("90m", 4),
        ("24h", 3),
        ("1 day ago", 3),
        ("now", 5),
    ] {
        let of = |line: &[&str]| tool.json(&[line, &["--at", at]].concat());
        assert_eq!(of(&["range", "--count-only"])["revision"], revision, "{at}");
        assert_eq!(of(&["hash"])["revision"], revision, "{at}");
        assert_eq!(
            of(&["get", "/x"])["mod_revision"].as_u64().unwrap(),
            revision.min(if revision == 4 { 3 } else { 5 }),
            "{at}"
        );
        assert_eq!(tool.json(&["diff", at])["from"], revision, "{at}");
    }
    let time =
        tool.json(&["log", "--since", "3", "--limit", "1"])["transactions"][0]["time"].clone();
    let time = time.as_str().unwrap();
    assert_eq!(tool.json(&["hash", "--at", time])["revision"], 3);
    // What etcdctl calls it is taken, too.
    assert_eq!(tool.ok(&["hash", "--rev", "3"]), tool.ok(&["hash", "--at", "3"]));
    tool.run(&["compact", "--rev", "3"]).code(7);
    for (span, revisions) in [
        (&["--since", "3"][..], &[3, 4, 5][..]),
        (&["--since", "24h"], &[4, 5]),
        (&["--since", time], &[3, 4, 5]),
        (&["--until", time], &[2, 3]),
        (&["--since", "3 days ago", "--until", "24h"], &[2, 3]),
        (&["--since", "-1"], &[4, 5]),
        (&["--since", "10m"], &[]),
        (&["--since", "2000-01-01", "--until", "-2"], &[2, 3]),
    ] {
        let of = |line: &[&str]| -> Vec<u64> {
            let done = tool.run(&[line, span, &["-o", "ndjson"]].concat());
            let line = |line: &str| serde_json::from_str::<Value>(line).unwrap();
            let lines: Vec<Value> = done.stdout().lines().map(line).collect();
            let revision =
                |line: &Value| line.get("revision").or(line.get("mod_revision")).unwrap().as_u64();
            lines.iter().map(|line| revision(line).unwrap()).collect()
        };
        assert_eq!(of(&["log"]), revisions, "{span:?}");
        // A watch without a beginning begins now.
        if span.contains(&"--since") {
            assert_eq!(of(&["watch", "--once"]), revisions, "{span:?}");
        }
        let mut reversed = of(&["log", "--reverse"]);
        assert_eq!(reversed.iter().rev().copied().collect::<Vec<_>>(), revisions, "{span:?}");
        reversed.retain(|revision| *revision != 4);
        assert_eq!(of(&["history", "/x"]), reversed, "{span:?}");
    }
    // What ends before it begins is refused; where only nothing has come there is nothing.
    for (since, until) in [("-1", "-3"), ("4", "3"), ("4", "24h"), ("1h", "2h"), ("10m", "4")] {
        for line in [&["log"][..], &["log", "--reverse"], &["history", "/x"], &["watch", "--once"]]
        {
            let line = [line, &["--since", since, "--until", until]].concat();
            tool.run(&line).code(2).says("cannot end at").silent();
        }
    }
    for (since, until) in [("10m", "now"), ("10m", "-0"), ("10m", "5"), ("110m", "100m")] {
        let span = ["--since", since, "--until", until];
        assert_eq!(tool.lines(&[&["log"][..], &span].concat()).len(), 0, "{span:?}");
        assert_eq!(tool.lines(&[&["watch", "--once"][..], &span].concat()).len(), 0, "{span:?}");
        tool.run(&[&["history", "/x"][..], &span].concat()).code(5).says("no new version then");
    }
    assert_eq!(tool.column("revision", &["log", "--reverse", "--limit", "2"]), ["5", "4"]);
    // Before all that was written the store was empty.
    tool.run(&["get", "/x", "--at", "60h"]).code(5);
    assert_eq!(tool.lines(&["range", "--at", "60h"]).len(), 0);
    assert_eq!(tool.lines(&["log", "--until", "60h"]).len(), 0);
    tool.run(&["compact", "--at", "3", "--confirm"]).code(0);
    tool.run(&["get", "/x", "--at", "60h"])
        .code(6)
        .says("no retained revision is as old as 20")
        .says(": the oldest is of 20");
    tool.run(&["log", "--until", "60h"]).code(6);
}

#[test]
fn compaction_takes_a_point_a_number_or_an_age() {
    let tool = store();
    for (line, upto) in [
        (&["--at", "24h"][..], 3),
        (&["--at", "-1"], 4),
        (&["--keep", "1"], 4),
        (&["--keep", "2"], 3),
        (&["--older", "90m"], 4),
    ] {
        let line = [&["compact", "--dry-run"], line].concat();
        assert_eq!(tool.json(&line)["compact_to"], upto, "{line:?}");
    }
    let before = tool.snapshot();
    tool.run(&["compact", "--older", "90m"]).code(7).says("--confirm does it");
    for line in [&["--keep", "9"][..], &["--older", "60h"], &["--older", "30d"]] {
        tool.run(&[&["compact", "--confirm"], line].concat()).code(0).says("nothing to do");
    }
    tool.run(&["compact", "--keep", "1", "--at", "3"]).code(2);
    tool.run(&["compact", "--dry-run", "--confirm", "--at", "3"]).code(2);
    assert_eq!(tool.snapshot(), before);
    tool.ok(&["compact", "--older", "25h", "--confirm"]);
    tool.run(&["get", "/x", "--at", "2"]).code(6);
    tool.run(&["compact", "--older", "25h", "--confirm"]).code(0).says("nothing to do");
    tool.run(&["log", "--since", "3 days ago"])
        .code(0)
        .says("before revision 3 has been compacted");
    assert_eq!(tool.column("revision", &["log", "--since", "1h"]).len(), 0);
}

#[test]
fn a_history_says_what_each_version_changed() {
    let tool = store();
    tool.ok(&["put", "/y", "one\n2\n"]);
    tool.ok(&["del", "/y"]);
    let text = tool.ok(&["history", "/x", "--diff"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("5 20") && lines[0].ends_with("put  (by eve)"), "{text}");
    assert_eq!(lines[1], "    ~ /image: \"a\" -> \"b\"");
    assert_eq!(lines[3..5], ["    ~ /replicas: 1 -> 2", "    + /image: \"a\""]);
    assert_eq!(lines[6], "    {\"replicas\": 1}");
    // The version before the span is what the first one in it is compared with.
    let versions = tool.json(&["history", "/x", "--diff", "--since", "24h"]);
    let versions = versions["versions"].as_array().unwrap();
    assert_eq!(versions.len(), 1);
    let member = json!({ "path": "/image", "old": "a", "new": "b" });
    assert_eq!(versions[0]["diff"], json!({ "form": "json", "members": [member] }));
    let text = tool.ok(&["history", "/y", "--diff"]);
    assert!(text.contains("delete\n") && text.contains("    -two\n    +2\n"), "{text}");
    let text = tool.ok(&["diff", "3", "6", "--values"]);
    assert!(text.contains("changed /x  3 -> 5\n    ~ /image"), "{text}");
    assert!(text.contains("added /y  - -> 6\n    + one\\n2\\n"), "{text}");
    assert!(tool.ok(&["diff", "3", "6", "--values", "--limit", "1"]).ends_with("... 1 more\n"));
    let diff = tool.json(&["diff", "4", "6", "--values", "--prefix", "/y"]);
    assert_eq!(diff["diff"][0]["diff"]["unified"], "@@ -1,2 +1,2 @@\n one\n-two\n+2\n");
}

#[test]
fn a_history_is_followed_beside_a_program_that_writes() {
    let tool = Tool::new();
    let store = Store::open(tool.store()).unwrap();
    store.put("/x", "1").unwrap();
    store.put("/x", "2").unwrap();
    let line = ["history", "/x", "--follow", "--diff", "--limit", "6", "-o", "ndjson"];
    let mut child = tool.command(&line).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((next()["value"].take(), next()["value"].take()), (json!("1"), json!("2")));
    for n in 3..6 {
        store.put("/other", "x").unwrap();
        store.put("/x", n.to_string()).unwrap();
        let told = next();
        assert_eq!(told["value"], n.to_string());
        assert_eq!(told["diff"]["unified"], format!("@@ -1 +1 @@\n-{}\n+{n}\n", n - 1));
    }
    store.delete("/x").unwrap();
    assert_eq!(next()["deleted"], true);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_watch_tells_people_who_and_what_was_before() {
    let tool = store();
    let text = tool.ok(&["watch", "/x", "--since", "2", "--until", "4", "--prev-kv"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("put /x = {\"replicas\": 1}, was not there  (by ada)"), "{text}");
    assert!(lines[1].ends_with(", was {\"replicas\": 1}  (by bob)"), "{text}");
    assert_eq!(lines.len(), 2);
    // It waits for a revision that is to come, and for no more.
    let mut child = tool.command(&["watch", "--until", "7", "-o", "raw"]).spawn().unwrap();
    for n in ["6", "7"] {
        tool.ok(&["put", "k", n]);
    }
    assert!(child.wait().unwrap().success());
}

#[test]
fn leases_take_lengths_of_time_and_say_who_revoked_them() {
    let tool = Tool::new();
    assert_eq!(tool.json(&["lease", "grant", "1h30m", "--id", "7"])["ttl"], 5400);
    assert_eq!(tool.json(&["lease", "grant", "60", "--id", "8"])["ttl"], 60);
    for (ttl, why) in [
        ("0", "1 s to"),
        ("-5", "1 s to"),
        ("soon", "expected a length of time"),
        ("1.5s", "whole seconds"),
        ("9999999999999999", "1 s to"),
    ] {
        tool.run(&["lease", "grant", ttl]).code(2).says(why);
    }
    assert!(tool.ok(&["lease", "list"]).starts_with("lease  hex               ttl   remaining"));
    tool.ok(&["put", "/session", "me", "--lease", "7"]);
    tool.ok(&["lease", "revoke", "7", "--metadata", "by ada"]);
    assert_eq!(tool.lines(&["history", "/session"])[0]["metadata"], "by ada");
}
