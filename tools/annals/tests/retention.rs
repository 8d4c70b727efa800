//! `annals retention`, as its help says.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod common;

use common::Tool;
use serde_json::json;

#[test]
fn rules_are_listed_in_words() {
    let tool = Tool::new();
    tool.ok(&["retention", "set", "--prefix", "/audit/", "--forever"]);
    let both = ["--for", "1h", "--revisions", "1000"];
    tool.ok(&[&["retention", "set", "--prefix", "/events/"][..], &both].concat());
    assert_eq!(tool.column("prefix", &["retention", "list"]), ["/audit/", "/events/"]);
    assert_eq!(
        tool.column("keep", &["retention", "list"]),
        ["forever", "1000 store revisions or 1h"]
    );
    tool.ok(&["retention", "set", "--prefix", "", "--for", "30d"]);
    let table = tool.ok(&["retention", "list", "-o", "table"]);
    assert!(table.contains("''") && table.contains("30d"), "{table}");
}

#[test]
fn each_prefix_is_kept_as_its_rule_says() {
    let tool = Tool::new();
    tool.run(&["retention", "list"]).code(1).says("no store");
    tool.run(&["retention", "unset", "--prefix", "/a/"]).code(1).says("no store");
    tool.run(&["retention", "set", "--prefix", "/a/"])
        .code(2)
        .says("--revisions <N>|--for <TIME>|--forever");
    tool.run(&["retention", "set", "--prefix", "/a/", "--forever", "--revisions", "3"])
        .code(2)
        .silent();
    tool.run(&["retention", "set", "--prefix", "/a/", "--for", "3"]).code(2).silent();
    tool.ok(&["retention", "set", "--prefix", "/audit/", "--forever"]);
    let set = tool.json(&["retention", "set", "--prefix", "/events/", "--revisions", "2"]);
    assert_eq!(set["readable_from"], json!(0));
    for n in 0..4 {
        for key in ["/audit/a", "/events/a", "k"] {
            // A store applies its rules when it is opened, in the background: perhaps only after the put.
            tool.ok(&["-O", "retention_interval_seconds=0", "put", key, &n.to_string()]);
        }
    }
    let applied = tool.json(&["retention", "apply"]);
    assert_eq!((&applied["applied"], &applied["compacted_revision"]), (&json!(true), &json!(0)));
    tool.ok(&["compact", "--at", "9", "--confirm"]);
    // Revisions 2 to 13; of k what 9 sees, of /events/ what 11 sees, of /audit/ everything.
    assert_eq!(tool.ok(&["get", "/audit/a", "--at", "2", "-o", "raw"]), "0");
    tool.run(&["get", "/events/a", "--at", "10"]).code(6).says("/events/");
    tool.run(&["get", "k", "--at", "8"]).code(6).says("has been compacted");
    assert_eq!(tool.ok(&["get", "k", "--at", "9", "-o", "raw"]), "1");
    assert_eq!(tool.lines(&["history", "/audit/a"]).len(), 4);
    assert_eq!(tool.lines(&["history", "/events/a"]).len(), 2);
    tool.run(&["range", "--at", "9"]).code(6).says("/events/").says("or --prefix");
    // The whole log from where all of it is kept; that of a prefix from further back.
    assert_eq!(tool.column("revision", &["log"]), ["11", "12", "13"]);
    assert_eq!(tool.column("revision", &["log", "--prefix", "/audit/"]), ["2", "5", "8", "11"]);
    tool.run(&["log"]).code(0).says("keys with /events/ cannot be read before revision 11");
    tool.run(&["log", "--since", "9"]).code(6).says("/events/");
    tool.run(&["compact", "--at", "5"]).code(6).silent();
    let plan = tool.run(&["compact", "--at", "10", "-o", "json"]).code(7).stdout();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["files_that_go"], json!([]), "/audit/ needs them");
    let export =
        tool.run(&["export"]).code(0).says("keys with /audit/ can be read from revision 0");
    assert_eq!(export.stdout().lines().count(), 3, "a state and two transactions");
    // Of a prefix as far back as it goes.
    let audit = tool.run(&["export", "--prefix", "/audit/"]).code(0);
    assert_eq!(audit.stderr(), "", "nothing is left out");
    let audit = audit.stdout();
    assert_eq!(audit.lines().count(), 4);
    let other = Tool::new();
    other.run_with(&["import", "history", "-"], audit.as_bytes()).code(0);
    assert_eq!(other.column("revision", &["log", "--prefix", "/audit/"]), ["2", "3", "4", "5"]);
    assert_eq!(other.column("revision", &["log"]), ["2", "3", "4", "5"], "nothing else");
    let events = tool.run(&["export", "--prefix", "/events/"]).code(0).stdout();
    assert!(events.contains("/events/a") && !events.contains("/audit/"), "{events}");
    tool.run(&["export", "--prefix", "/", "--base"]).code(2).says("--base");
    let help = tool.ok(&["help", "export"]);
    assert!(help.contains("Write everything but rules of retention"), "{help}");
    tool.run(&["verify"]).code(0).says("but for what `annals retention list` says");

    let listed = tool.lines(&["retention", "list"]);
    assert_eq!(listed[0]["readable_from"], json!(0));
    assert_eq!(listed[1]["readable_from"], json!(11));
    // What was forgotten stays so when the rule is taken back.
    tool.ok(&["retention", "unset", "--prefix", "/events/"]);
    assert_eq!(tool.column("keep", &["retention", "list"]), ["forever", "taken back"]);
    tool.run(&["get", "/events/a", "--at", "10"]).code(6).says("/events/");
    tool.ok(&["compact", "--at", "12", "--confirm"]);
    tool.ok(&["retention", "apply"]);
    assert_eq!(tool.column("keep", &["retention", "list"]), ["forever"]);
    let long = "p".repeat(1025);
    tool.run(&["retention", "set", "--prefix", &long, "--forever"]).code(2).says("1024");
}

/// What a rule alone has kept is forgotten with it, so that is asked for twice.
#[test]
fn a_rule_that_alone_keeps_something_is_not_taken_back_unasked() {
    let tool = Tool::new();
    tool.ok(&["put", "/audit/a", "1"]);
    tool.ok(&["retention", "set", "--prefix", "/audit/", "--forever"]);
    tool.ok(&["retention", "set", "--prefix", "/audit/short/", "--revisions", "1"]);
    let unset = |prefix: &str, more: &[&str]| {
        tool.run(&[&["-o", "json", "retention", "unset", "--prefix", prefix][..], more].concat())
    };
    // As yet it keeps no more than without it.
    let plan = unset("/audit/", &["--dry-run"]).code(0).stdout();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(
        (&plan["readable_from"], &plan["would_be_readable_from"]),
        (&json!(0), &json!(null))
    );
    for value in ["2", "3"] {
        tool.ok(&["put", "/audit/a", value]);
        tool.ok(&["put", "/audit/short/a", value]);
    }
    tool.ok(&["compact", "--at", "6", "--confirm"]);
    tool.ok(&["retention", "apply"]);
    // Without the short rule the longer one around it keeps what there is.
    unset("/audit/short/", &[]).code(0);
    let plan = unset("/audit/", &[]).code(7).says("nothing was changed").stdout();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    assert_eq!((&plan["keep"], &plan["readable_from"]), (&json!("forever"), &json!(0)));
    assert_eq!(plan["would_be_readable_from"], json!(6));
    unset("/audit/", &["--dry-run"]).code(0);
    assert_eq!(tool.ok(&["-o", "raw", "get", "/audit/a", "--at", "2"]).trim_end(), "1");
    unset("/audit/", &["--confirm"]).code(0);
    tool.run(&["get", "/audit/a", "--at", "5"]).code(6);
    tool.run(&["get", "/audit/a", "--at", "6"]).code(0);
    // What the rule around it had forgotten before that was taken back is forgotten of its keys alone.
    tool.ok(&["retention", "set", "--prefix", "/b/", "--revisions", "1"]);
    tool.ok(&["retention", "set", "--prefix", "/b/kept/", "--forever"]);
    for value in ["1", "2", "3"] {
        tool.ok(&["put", "/b/kept/a", value]);
    }
    tool.ok(&["retention", "apply"]);
    unset("/b/", &[]).code(0);
    let plan = unset("/b/kept/", &[]).code(7).stdout();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    let then = plan["would_be_readable_from"].as_u64().unwrap();
    unset("/b/kept/", &["--confirm"]).code(0);
    tool.run(&["get", "/b/kept/a", "--at", &(then - 1).to_string()]).code(6);
    tool.run(&["get", "/b/kept/a", "--at", &then.to_string()]).code(0);
    // Where there is none, there is nothing to ask.
    unset("/none/", &[]).code(0);
}
