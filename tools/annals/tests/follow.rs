//! `watch` and `history --follow` with a beginning or an end that is to come.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::io::{BufRead as _, BufReader, Lines, Read as _};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use annals::{CommitOptions, Options, Store, TxnRequest, put};
use common::Tool;
use jiff::{Timestamp, ToSpan as _};
use serde_json::Value;

/// A time at which no test runs.
const TO_COME: &str = "2100-01-01";

/// A put of `k`, ordered after that time.
fn put_then(store: &Store) -> u64 {
    let time = "2100-06-01T00:00:00Z".parse::<Timestamp>().unwrap().as_microsecond();
    let request = TxnRequest { success: vec![put("k", "then")], ..TxnRequest::default() };
    let options = CommitOptions { time: Some(time), ..CommitOptions::default() };
    store.transact_with(request, options).unwrap().revision
}

fn start(tool: &Tool, line: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
    let line = [line, &["-o", "ndjson"]].concat();
    let mut child = tool.command(&line).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

fn revision(line: &str) -> u64 {
    let line: Value = serde_json::from_str(line).unwrap();
    let revision = line.get("mod_revision").or(line.get("revision"));
    revision.unwrap().as_u64().unwrap()
}

/// Gives whoever follows a few looks at what has come.
fn pause() {
    std::thread::sleep(Duration::from_millis(30));
}

#[test]
fn a_revision_that_is_to_come_is_waited_for() {
    let tool = Tool::new();
    let store = Store::open(tool.store()).unwrap();
    store.put("k", "1").unwrap();
    let line = ["--since", "30", "--limit", "2"];
    let follow = start(&tool, &[&["history", "k", "--follow"], &line[..]].concat());
    let watch = start(&tool, &[&["watch", "k"], &line[..]].concat());
    while store.put("k", "1").unwrap().revision < 31 {
        pause();
    }
    for (mut child, lines) in [follow, watch] {
        let told: Vec<u64> = lines.map(|line| revision(&line.unwrap())).collect();
        assert_eq!(told, [30, 31]);
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn what_begins_at_a_time_to_come_does_not_begin_before() {
    let tool = Tool::new();
    let store = Store::open(tool.store()).unwrap();
    store.put("k", "1").unwrap();
    let line = ["--since", TO_COME, "--limit", "1"];
    let follow = start(&tool, &[&["history", "k", "--follow"], &line[..]].concat());
    let watch = start(&tool, &[&["watch", "k"], &line[..]].concat());
    for _ in 0..20 {
        store.put("k", "2").unwrap();
        pause();
    }
    let then = put_then(&store);
    for (mut child, lines) in [follow, watch] {
        let told: Vec<u64> = lines.map(|line| revision(&line.unwrap())).collect();
        assert_eq!(told, [then]);
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(tool.lines(&["watch", "k", "--once", "--since", TO_COME]).len(), 1);
}

#[test]
fn what_ends_at_a_time_to_come_goes_on_until_then() {
    let tool = Tool::new();
    let store = Store::open(tool.store()).unwrap();
    // There is no revision yet.
    let (mut empty, none) = start(&tool, &["watch", "other", "--until", TO_COME]);
    store.put("k", "1").unwrap();
    let (mut child, mut lines) = start(&tool, &["watch", "k", "--since", "2", "--until", TO_COME]);
    for expected in 2..5 {
        assert_eq!(revision(&lines.next().unwrap().unwrap()), expected);
        store.put("k", "2").unwrap();
    }
    assert_eq!(revision(&lines.next().unwrap().unwrap()), 5);
    put_then(&store);
    assert!(lines.next().is_none());
    assert!(child.wait().unwrap().success());
    assert_eq!(none.count(), 0);
    assert!(empty.wait().unwrap().success());
    // All that is later has come already.
    assert_eq!(tool.lines(&["watch", "k", "--since", "4", "--until", TO_COME]).len(), 2);
}

#[test]
fn a_time_passes_though_nothing_comes() {
    let tool = Tool::new();
    tool.ok(&["put", "k", "1"]);
    let soon = (Timestamp::now() + 1.second()).to_string();
    assert_eq!(tool.lines(&["watch", "k", "--since", "2", "--until", &soon]).len(), 1);
    // It has not ended before.
    assert!(Timestamp::now() > soon.parse::<Timestamp>().unwrap());
}

#[cfg(target_os = "linux")]
#[test]
fn a_followed_history_is_not_gathered() {
    const VALUES: u64 = 96;
    let tool = Tool::new();
    // What a store has not moved to its files yet, a reader has to hold in memory: with small memtables and no
    // thread that may come late to them, that is little.
    let options = Options::new().background(false).memtable_bytes(4 << 20);
    let store = options.open(tool.store()).unwrap();
    for n in 0..VALUES {
        store.put("k", vec![u8::try_from(n).unwrap(); 1 << 20]).unwrap();
        while store.run_background().unwrap() {}
    }
    store.close().unwrap();
    let line = ["-O", "cache_bytes=1M", "history", "k", "--follow", "-o", "raw"];
    let mut child = tool.command(&line).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    // It cannot go on before this is read.
    stdout.read_exact(&mut [0]).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let kib: u64 = anonymous.trim().trim_end_matches(" kB").parse().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // A command that reads one version at a time holds a few of them.
    assert!(kib < VALUES * 1024 / 4, "{status}");
}
