//! `watch`: what is there, and what comes while a program writes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use annals::{Store, delete, put};
use common::Tool;
use serde_json::{Value, json};

#[test]
fn what_is_there_is_told_once_and_in_order() {
    let tool = Tool::new();
    tool.run(&["watch", "k", "--once"]).code(1).says("no store");
    for (key, value) in [("/a/1", "one"), ("/b", "two"), ("/a/2", "three")] {
        tool.ok(&["put", key, value]);
    }
    tool.ok(&["del", "/a/1"]);
    let lines = |arguments: &[&str]| -> Vec<Value> {
        let text = tool.ok(&[&["watch", "--once", "-o", "ndjson"], arguments].concat());
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = lines(&["--since", "2"]);
    let revisions: Vec<&Value> = all.iter().map(|line| &line["revision"]).collect();
    assert_eq!(revisions, [2, 3, 4, 5]);
    let of_a = lines(&["--prefix", "/a/", "--since", "3", "--prev-kv"]);
    assert_eq!(of_a.len(), 2);
    assert_eq!(of_a[0]["events"][0]["value"], "three");
    let gone = &of_a[1]["events"][0];
    assert_eq!((&gone["op"], &gone["key"]), (&json!("delete"), &json!("/a/1")));
    assert_eq!(gone["prev_kv"]["value"], "one");
    assert_eq!(lines(&["/b", "--since", "2"]).len(), 1);
    assert_eq!(lines(&["--since", "2", "--no-puts"]).len(), 1);
    assert_eq!(lines(&["--since", "2", "--no-deletes", "--limit", "2"]).len(), 2);
    assert_eq!(lines(&[]).len(), 0, "from now on");
    let told = tool.ok(&["watch", "--once", "--since", "4"]);
    assert!(told.starts_with("4 ") && told.contains("put /a/2 = three\n5 "), "{told}");
    assert_eq!(
        tool.ok(&["watch", "--once", "--since", "4", "-o", "raw"]),
        "4 put /a/2\nthree\n5 delete /a/1\n"
    );
    tool.ok(&["compact", "--at", "4", "--confirm"]);
    tool.run(&["watch", "--once", "--since", "3"]).code(6).says("has been compacted");
    tool.run(&["watch", "/a", "--prefix", "/a"]).code(2);
}

#[test]
fn what_a_program_commits_is_told_as_it_comes() {
    let tool = Tool::new();
    let store = Store::open(tool.store()).unwrap();
    store.put("/pods/a", "1").unwrap();
    let watch = ["watch", "--prefix", "/pods/", "--since", "2", "--limit", "40", "-o", "ndjson"];
    let mut child = tool.command(&watch).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["revision"], 2);
    for n in 3..42_u64 {
        match n % 5 {
            0 => {
                let both = [put("/pods/b", n.to_string()), delete("/pods/a")];
                store.txn().then(both).commit().unwrap();
            }
            _ => drop(store.put("/pods/a", n.to_string()).unwrap()),
        }
        // Each is waited for now and then: else all would be told at once.
        if n % 7 == 0 || n == 41 {
            let mut told = next();
            while told["revision"] != n {
                told = next();
            }
        }
    }
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_value_does_not_look_like_what_stands_beside_it() {
    let tool = Tool::new();
    tool.ok(&["put", "k", "1, was 2  (by eve)"]);
    tool.ok(&["put", "a = 1", "x\u{202e}\u{2028}"]);
    tool.ok(&["put", "a, delete b", "1, was 2", "--metadata", "by ada)  (by eve"]);
    let text = tool.ok(&["watch", "--since", "2", "--once", "--prev-kv"]);
    let lines: Vec<&str> = text.lines().collect();
    for (line, end) in lines.iter().zip([
        r#"Z put k = "1, was 2  (by eve)", was not there"#,
        r#"Z put "a = 1" = x\u{202e}\u{2028}, was not there"#,
        r#"Z put "a, delete b" = "1, was 2", was not there  ("by ada)  (by eve")"#,
    ]) {
        assert!(line.ends_with(end), "{line}");
    }
    assert_eq!(lines.len(), 3);
    let log = tool.ok(&["log"]);
    assert!(log.contains(r#"put "a, delete b""#), "{log}");
}
