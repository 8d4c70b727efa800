//! `annals retention`, as its help says.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod common;

use common::Tool;
use serde_json::json;

#[test]
fn the_example_of_the_help_works() {
    let tool = Tool::new();
    let help = tool.ok(&["retention", "set", "--help"]);
    let (_, example) = help.split_once("Example:\n").unwrap();
    let lines: Vec<&str> = example.lines().map(str::trim).take_while(|l| !l.is_empty()).collect();
    assert_eq!(lines.len(), 3, "{example}");
    for line in lines {
        let arguments: Vec<&str> = line.split(' ').collect();
        let ["annals", "-C", "data", rest @ ..] = &arguments[..] else { panic!("{line}") };
        tool.ok(rest);
    }
    assert_eq!(tool.column("prefix", &["retention", "list"]), ["/audit/", "/events/"]);
    assert_eq!(
        tool.column("keep", &["retention", "list"]),
        ["forever", "1000 store revisions or 3600s"]
    );
}

#[test]
fn each_prefix_is_kept_as_its_rule_says() {
    let tool = Tool::new();
    tool.run(&["retention", "list"]).code(1).says("no store");
    tool.run(&["retention", "unset", "/a/"]).code(1).says("no store");
    tool.run(&["retention", "set", "/a/"]).code(2).says("--revisions <N>|--for <TIME>|--forever");
    tool.run(&["retention", "set", "/a/", "--forever", "--revisions", "3"]).code(2).silent();
    tool.run(&["retention", "set", "/a/", "--for", "3"]).code(2).silent();
    tool.ok(&["retention", "set", "/audit/", "--forever"]);
    let set = tool.json(&["retention", "set", "/events/", "--revisions", "2"]);
    assert_eq!(set["readable_from"], json!(0));
    for n in 0..4 {
        for key in ["/audit/a", "/events/a", "k"] {
            tool.ok(&["put", key, &n.to_string()]);
        }
    }
    let applied = tool.json(&["retention", "apply"]);
    assert_eq!((&applied["applied"], &applied["compacted"]), (&json!(true), &json!(0)));
    tool.ok(&["compact", "--rev", "9", "--confirm"]);
    // Revisions 2 to 13; of k what 9 sees, of /events/ what 11 sees, of /audit/ everything.
    assert_eq!(tool.ok(&["get", "/audit/a", "--at", "2", "-o", "raw"]), "0");
    tool.run(&["get", "/events/a", "--at", "10"]).code(6).says("/events/");
    tool.run(&["get", "k", "--at", "8"]).code(6).says("has been compacted");
    assert_eq!(tool.ok(&["get", "k", "--at", "9", "-o", "raw"]), "1");
    assert_eq!(tool.lines(&["history", "/audit/a"]).len(), 4);
    assert_eq!(tool.lines(&["history", "/events/a"]).len(), 2);
    tool.run(&["range", "--at", "9"]).code(6).says("/events/");
    // The whole log from where all of it is kept; that of a prefix from further back.
    assert_eq!(tool.column("revision", &["log"]), ["11", "12", "13"]);
    assert_eq!(tool.column("revision", &["log", "--prefix", "/audit/"]), ["2", "5", "8", "11"]);
    tool.run(&["log", "--from", "9"]).code(6).says("/events/");
    tool.run(&["compact", "--rev", "5"]).code(6).silent();
    let plan = tool.run(&["compact", "--rev", "10", "-o", "json"]).code(7).stdout();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["files_that_go"], json!([]), "/audit/ needs them");
    let export =
        tool.run(&["export"]).code(0).says("keys with /audit/ can be read from revision 0");
    assert_eq!(export.stdout().lines().count(), 3, "a state and two transactions");
    tool.run(&["verify"]).code(0).says("but for what `annals retention list` says");

    let listed = tool.lines(&["retention", "list"]);
    assert_eq!(listed[0]["readable_from"], json!(0));
    assert_eq!(listed[1]["readable_from"], json!(11));
    // What was forgotten stays so when the rule is taken back.
    tool.ok(&["retention", "unset", "/events/"]);
    assert_eq!(tool.column("keep", &["retention", "list"]), ["forever", "taken back"]);
    tool.run(&["get", "/events/a", "--at", "10"]).code(6).says("/events/");
    tool.ok(&["compact", "--rev", "12", "--confirm"]);
    tool.ok(&["retention", "apply"]);
    assert_eq!(tool.column("keep", &["retention", "list"]), ["forever"]);
    let long = "p".repeat(1025);
    tool.run(&["retention", "set", &long, "--forever"]).code(2).says("1024");
}
