//! `revert`: keys are put back to what they were, at one revision, and nothing else is.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::Tool;
use serde_json::{Value, json};

/// The state of all keys at a point in history: key, value, lease.
fn state(tool: &Tool, at: &str) -> Vec<(Value, Value, Value)> {
    let lines = tool.lines(&["range", "--at", at]).into_iter();
    lines.map(|kv| (kv["key"].clone(), kv["value"].clone(), kv["lease"].clone())).collect()
}

/// Revisions 2 to 9.
fn filled() -> Tool {
    let tool = Tool::new();
    tool.ok(&["put", "/a/1", "one"]);
    tool.ok(&["put", "/a/2", "two"]);
    tool.ok(&["put", "/b/1", "other"]);
    tool.ok(&["put", "/a/1", "uno"]);
    tool.ok(&["del", "/a/2"]);
    tool.ok(&["put", "/a/3", "tres"]);
    tool.ok(&["put", "/b/1", "another"]);
    // Written again with what it was.
    tool.ok(&["put", "/a/1", "uno"]);
    tool
}

#[test]
fn keys_are_what_they_were_and_a_revert_can_be_reverted() {
    let tool = filled();
    let before = state(&tool, "latest");
    let whole = tool.snapshot();
    let would = tool.json(&["revert", "4", "--prefix", "/a/", "--dry-run"]);
    assert_eq!(tool.snapshot(), whole);
    let step = |key: &str, change: &str, mod_revision: Option<u64>| json!({ "key": key, "change": change, "mod_revision": mod_revision, "ended_lease": null });
    let steps =
        [step("/a/1", "put", Some(2)), step("/a/2", "put", Some(3)), step("/a/3", "delete", None)];
    assert_eq!(
        (&would["changes"], &would["to"], &would["revision"]),
        (&json!(steps), &json!(4), &Value::Null)
    );

    let done = tool.json(&["revert", "4", "--prefix", "/a/"]);
    assert_eq!((&done["changes"], &done["revision"]), (&json!(steps), &json!(10)));
    let mut expected = state(&tool, "4");
    expected[2] = before[2].clone();
    assert_eq!(state(&tool, "latest"), expected);
    let told = tool.lines(&["log", "--since", "10"]);
    assert_eq!((told.len(), &told[0]["metadata"]), (1, &json!("revert to revision 4")));

    assert_eq!(tool.json(&["revert", "9", "--prefix", "", "--metadata", "no"])["revision"], 11);
    assert_eq!(state(&tool, "latest"), before);
    assert_eq!(tool.lines(&["log", "--since", "11"])[0]["metadata"], "no");
    // All is as it was: no revision is made.
    let nothing = tool.run(&["revert", "-1", "--key", "/b/1"]);
    nothing.code(0).says("nothing to do: all is as it was at revision 10");
    assert_eq!(tool.json(&["stats"])["revision"], 11);
    assert_eq!(tool.ok(&["revert", "2", "--key", "/a/1", "-o", "raw"]), "put /a/1\n");
    assert_eq!(tool.json(&["get", "/a/1"])["value"], "one");
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let tool = filled();
    let whole = state(&tool, "latest");
    tool.run(&["revert", "4"]).code(2).says("--prefix");
    tool.run(&["revert", "4", "--key", "a", "--prefix", "b"]).code(2);
    tool.run(&["revert", "99", "--prefix", ""]).code(6);
    tool.ok(&["compact", "--at", "6", "--confirm"]);
    tool.run(&["revert", "4", "--prefix", ""]).code(6).says("compacted");
    // More than one transaction can have.
    let large = tool.run(&["revert", "6", "--prefix", "", "-O", "transaction_operations_max=1"]);
    assert_ne!(large.0.status.code(), Some(0));
    assert_eq!(state(&tool, "latest"), whole);
    assert_eq!(tool.json(&["stats"])["revision"], 9);
    // A prefix that nobody has, and more than there was.
    tool.run(&["revert", "8", "--prefix", "/nothere/"]).code(0).says("there is no such key");
    tool.run(&["revert", "-9", "--prefix", ""]).code(2).says("no 9 revisions before the newest, 9");
    assert_eq!(state(&tool, "latest"), whole);
    let absent = Tool::new();
    absent.run(&["revert", "4", "--prefix", ""]).code(1);
    assert!(!absent.store().exists());
}

#[test]
fn a_lease_that_has_ended_does_not_come_back() {
    let tool = Tool::new();
    for id in ["7", "8"] {
        tool.ok(&["lease", "grant", "600", "--id", id]);
    }
    tool.ok(&["put", "k", "with", "--lease", "7"]);
    tool.ok(&["put", "l", "with", "--lease", "8"]);
    tool.ok(&["put", "k", "without"]);
    tool.ok(&["put", "l", "with"]);
    tool.ok(&["lease", "revoke", "7"]);
    let done = tool.json(&["revert", "3", "--prefix", ""]);
    let leases = [&done["changes"][0]["ended_lease"], &done["changes"][1]["ended_lease"]];
    assert_eq!(leases, [&json!(7), &Value::Null], "{done}");
    let expected = [("k", "with", 0), ("l", "with", 8)]
        .map(|(k, v, lease)| (json!(k), json!(v), json!(lease)));
    assert_eq!(state(&tool, "latest"), expected);
    tool.run(&["revert", "3", "--prefix", ""]).code(0).says("nothing to do");
}

/// A mistyped year deletes nothing.
#[test]
fn a_time_before_all_that_was_written_is_refused() {
    let tool = filled();
    let before = state(&tool, "latest");
    tool.run(&["revert", "1970-01-01", "--prefix", ""]).code(2).says("`revert 1` deletes the keys");
    assert_eq!(state(&tool, "latest"), before);
    tool.ok(&["revert", "1", "--prefix", ""]);
    assert_eq!(state(&tool, "latest"), []);
}

/// A copy has what the store itself has forgotten.
#[test]
fn keys_come_back_out_of_a_backup_and_out_of_a_copy() {
    let tool = filled();
    let at_6 = state(&tool, "6");
    let path = |name: &str| tool.path(name).display().to_string();
    let (full, more, copy, odd) = (path("full"), path("more"), path("copy"), path("odd"));
    tool.ok(&["backup", &full]);
    tool.ok(&["checkpoint", &copy]);
    tool.ok(&["lease", "grant", "600", "--id", "7"]);
    tool.ok(&["put", "/a/9", "late", "--lease", "7"]);
    tool.ok(&["backup", &more, "--from", "9"]);
    tool.ok(&["lease", "revoke", "7"]);
    tool.ok(&["put", "/a/1", "eins"]);
    tool.ok(&["put", "/b/1", "last"]);
    tool.ok(&["compact", "--at", "latest", "--confirm"]);
    tool.run(&["revert", "6", "--prefix", "/a/"]).code(6).says("compacted");
    let before = state(&tool, "latest");
    let whole = tool.snapshot();

    // What the two of them are different in, now and as they were.
    let of_diff = |arguments: &[&str]| {
        let lines = tool.lines(&[&["diff"], arguments].concat()).into_iter();
        lines.map(|line| format!("{} {}", line["change"], line["key"])).collect::<Vec<_>>()
    };
    let changed = [r#""changed" "/a/1""#, r#""changed" "/b/1""#];
    assert_eq!(of_diff(&["latest", "--from", &full]), changed);
    assert_eq!(of_diff(&["7", "--from", &copy, "--prefix", "/b/"]), [r#""changed" "/b/1""#]);
    let added = [r#""changed" "/a/1""#, r#""added" "/a/3""#, r#""changed" "/b/1""#];
    assert_eq!(of_diff(&["6", "--from", &copy]), added);
    assert_eq!(of_diff(&["6", "--from", &full]), added);
    let shown = tool.ok(&["diff", "6", "--from", &full, "--values", "-o", "table"]);
    assert!(shown.contains("eins"), "{shown}");

    for from in [&full, &copy] {
        let arguments = ["revert", "6", "--prefix", "/a/", "--from", from];
        let would = tool.json(&[&arguments[..], &["--dry-run"]].concat());
        assert!(tool.snapshot() == whole);
        assert_eq!(would["changes"].as_array().map(Vec::len), Some(2), "{would}");
        assert_eq!((&would["to"], &would["revision"]), (&json!(6), &Value::Null));
    }
    let done = tool.json(&["revert", "6", "--prefix", "/a/", "--from", &copy]);
    assert_eq!(done["revision"], 14);
    let told = tool.lines(&["log", "--since", "14"]);
    assert_eq!(told[0]["metadata"], format!("revert to revision 6 of {copy}"));
    assert_eq!(state(&tool, "latest"), [&at_6[..1], &before[before.len() - 1..]].concat());
    let nothing = tool.run(&["revert", "6", "--prefix", "/a/", "--from", &full]);
    nothing.code(0).says(&format!("all is as it was at revision 6 of {full}"));

    // The increment too, with a lease that has ended since.
    let both = ["--from", &full, "--from", &more];
    let done = tool.json(&[&["revert", "latest", "--prefix", "/a/"], &both[..]].concat());
    assert_eq!(
        (&done["to"], &done["changes"][1]["ended_lease"]),
        (&json!(10), &json!(7)),
        "{done}"
    );
    assert_eq!(tool.json(&["get", "/a/9"])["lease"], 0);
    assert_eq!(tool.json(&["get", "/b/1"])["value"], "last");

    // What is refused changes nothing, and leaves nothing.
    let whole = tool.snapshot();
    let revert = |arguments: &[&str]| {
        let temporary = tempfile::tempdir().unwrap();
        let mut command = tool.command(&[&["revert"], arguments].concat());
        let output = command.env("TMPDIR", temporary.path()).output().unwrap();
        assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let all = ["latest", "--prefix", ""];
    assert_eq!(revert(&[&all[..], &["--from", "/nothere"]].concat()).0, Some(5));
    assert_eq!(revert(&[&all[..], &["--from", &copy, "--from", &more]].concat()).0, Some(2));
    let (code, said) = revert(&[&all[..], &["--from", &more]].concat());
    assert!(code == Some(2) && said.contains("a full backup comes first"), "{code:?} {said}");
    let mut damaged = std::fs::read(&full).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&odd, damaged).unwrap();
    let (code, said) = revert(&[&all[..], &["--from", &odd]].concat());
    assert!(code == Some(3) && said.contains("odd"), "{code:?} {said}");
    assert!(tool.snapshot() == whole);
    let before = state(&tool, "latest");
    assert_eq!(revert(&["99", "--prefix", "", "--from", &full]).0, Some(6));
    assert_eq!(revert(&["-9", "--prefix", "", "--from", &full]).0, Some(2));
    assert_eq!(state(&tool, "latest"), before);
}
