//! The data commands, end to end: put, get, del, range, txn, history, diff, and their exit codes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::Tool;
use serde_json::json;

#[test]
fn a_key_from_first_to_last() {
    let tool = Tool::new();
    assert_eq!(tool.json(&["put", "k", "one"]), json!({ "revision": 2 }));
    assert_eq!(tool.json(&["put", "k", "two", "--prev-kv"])["prev_kv"]["value"], "one");
    assert_eq!(tool.ok(&["get", "k", "-o", "raw"]), "two");
    assert_eq!(tool.ok(&["get", "k", "-o", "raw", "--at", "2"]), "one");
    let mut found = tool.json(&["get", "k"]);
    let time = found.as_object_mut().unwrap().remove("time").unwrap();
    assert_eq!(time, tool.lines(&["log", "--since", "3"])[0]["time"]);
    assert!(time.is_string());
    assert_eq!(
        found,
        json!({ "key": "k", "value": "two", "create_revision": 2, "mod_revision": 3, "version": 2, "lease": 0 })
    );
    assert_eq!(tool.json(&["del", "k"]), json!({ "revision": 4, "deleted": 1 }));
    assert_eq!(tool.json(&["del", "k"]), json!({ "revision": 4, "deleted": 0 }));
    tool.run(&["get", "k", "-o", "raw"]).code(5).silent().says("no such key");
    let versions = tool.lines(&["history", "k"]);
    assert_eq!(versions.len(), 3);
    assert_eq!(versions[0]["deleted"], true);
    assert_eq!(versions[1]["value"], "two");
    assert!(versions[2]["time"].as_str().unwrap().ends_with('Z'));
    let revisions = |arguments: &[&str]| -> Vec<u64> {
        let lines = tool.lines(&[&["history", "k"], arguments].concat());
        lines.iter().map(|line| line["mod_revision"].as_u64().unwrap()).collect()
    };
    assert_eq!(revisions(&["--since", "3"]), [4, 3]);
    assert_eq!(revisions(&["--since", "2", "--until", "3"]), [3, 2]);
    assert_eq!(revisions(&["--since", "1970-01-01T00:00:00Z"]), [4, 3, 2]);
    tool.run(&["history", "k", "--since", "4", "--until", "3"]).code(2).says("cannot end at 3");
    tool.run(&["history", "never"]).code(5);
    tool.run(&["history", "never", "--since", "3"]).code(5).says("it had no new version then");
    assert!(tool.ok(&["get", "k", "--at", "3"]).contains("mod_revision"));
}

#[test]
fn exit_codes() {
    let tool = Tool::new();
    tool.run(&["get", "k"]).code(1).says("no store");
    tool.run(&["del", "k"]).code(1).says("no store");
    assert!(!tool.store().exists(), "a read or a delete made something");
    tool.ok(&["put", "k", "v"]);
    for line in [
        &["get"][..],
        &["get", "k", "--at", "tomorrow"],
        &["get", "k", "-o", "xml"],
        &["range", "a", "--prefix", "b"],
        &["put", "k", "v", "--if", "size=1"],
        &["put", "", "v"],
        &["put", "k", "v", "-O", "memtable_bytes"],
        &["put", "k", "v", "-O", "no_such_option=1"],
        &["get", "k", "--at", "0"],
        &["nothing"],
        &["dump"],
        &["compact"],
    ] {
        tool.run(line).code(2).silent();
    }
    tool.run(&["get", "k", "--at", "3"]).code(6).says("does not exist yet");
    tool.run(&["get", "k", "--at", "1970-01-01T00:00:00Z"]).code(5).says("at revision 1");
    tool.run(&["put", "k", "v", "--lease", "99"]).code(5);
    let without =
        std::process::Command::new(env!("CARGO_BIN_EXE_annals")).args(["get", "k"]).output();
    assert_eq!(without.unwrap().status.code(), Some(2));
    let not_a_directory = std::process::Command::new(env!("CARGO_BIN_EXE_annals"))
        .args(["-C", "/dev/null", "put", "k", "v"])
        .output()
        .unwrap();
    assert_eq!(not_a_directory.status.code(), Some(1));
    let said = String::from_utf8_lossy(&not_a_directory.stderr).into_owned();
    assert!(said.contains("/dev/null: not a store: the path leads to a file: give"), "{said}");
    tool.run(&["txn", "--if", "mod==0"]).code(2).says("mod(\"k\") = \"7\"");
    tool.run(&["put", "k", "v", "--if", "mod==0"]).code(2).says("then =, !=, < or >");
    tool.run(&["get"]).code(2).says("Usage: annals get -C <DIR> [OPTIONS] <KEY>");
    let help = tool.ok(&["--help"]);
    assert!(help.contains("\n  wal_bytes\n      size a WAL file grows to; 64K to 4G"), "{help}");
    for code in [
        "3  a file of the store, of a backup or of an etcd is damaged",
        "7  refused without --confirm",
    ] {
        assert!(help.contains(code), "{help}");
    }
}

/// As where standard error is a log file on a full disk.
#[test]
#[cfg(target_os = "linux")]
fn the_exit_code_is_right_though_nothing_can_be_said() {
    let tool = Tool::new();
    tool.ok(&["put", "k", "v"]);
    for (line, code) in
        [(&["verify"][..], 0), (&["get", "nope"], 5), (&["compact", "--at", "2"], 7)]
    {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = tool.command(line).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(code), "{line:?}");
    }
}

#[test]
fn values_of_every_kind() {
    let tool = Tool::new();
    let file = tool.file("value", [0, 0xff, b'\n']);
    tool.ok(&["put", "f", &format!("@{file}")]);
    assert_eq!(tool.run(&["get", "f", "-o", "raw"]).code(0).0.stdout, [0, 0xff, b'\n']);
    assert_eq!(tool.json(&["get", "f"])["value"], json!({ "b64": "AP8K" }));
    tool.run_with(&["put", "i"], b"").code(2).says("no value is given");
    tool.run(&["get", "i"]).code(5);
    tool.run_with(&["put", "i", "-"], b"").code(0);
    assert_eq!(tool.ok(&["get", "i", "-o", "raw"]), "");
    tool.run_with(&["put", "i"], b"as the default").code(0);
    tool.run_with(&["put", "i", "-"], b"from stdin\n").code(0);
    assert_eq!(tool.ok(&["get", "i", "-o", "raw"]), "from stdin\n");
    tool.ok(&["put", "a", "@@x"]);
    assert_eq!(tool.ok(&["get", "a", "-o", "raw"]), "@x");
    tool.ok(&["put", "e", ""]);
    assert_eq!(tool.run(&["get", "e", "-o", "raw"]).code(0).0.stdout, b"");
    tool.run(&["put", "k", "@/no/such/file"]).code(1);
    assert_eq!(tool.json(&["put", "k", "v", "--metadata", "why"])["revision"], 8);
    assert_eq!(tool.lines(&["history", "k"])[0]["metadata"], "why");
}

#[test]
fn conditions() {
    let tool = Tool::new();
    tool.ok(&["put", "k", "1", "--if", "create=0"]);
    tool.run(&["put", "k", "2", "--if", "create=0"]).code(5).silent().says("mod=2");
    tool.ok(&["put", "k", "2", "--if", "mod=2", "--if", "value=1"]);
    tool.run(&["del", "k", "--if", "version>5"]).code(5);
    tool.ok(&["del", "k", "--if", "version=2"]);
    tool.run(&["put", "k", "3", "--if", "mod=3"]).code(5).says("not alive");
    assert_eq!(tool.json(&["range", "--prefix", "", "--count-only"])["revision"], 4);
}

#[test]
fn ranges() {
    let tool = Tool::new();
    for (key, value) in
        [("a", "9"), ("b", "1"), ("b/1", "5"), ("b/2", "4"), ("c", "0"), ("b/1", "6")]
    {
        tool.ok(&["put", key, value]);
    }
    for (arguments, keys) in [
        (&["--prefix", ""][..], &["a", "b", "b/1", "b/2", "c"][..]),
        (&[], &["a", "b", "b/1", "b/2", "c"]),
        (&["b"], &["b"]),
        (&["b", "c"], &["b", "b/1", "b/2"]),
        (&["b/2", "--from-key"], &["b/2", "c"]),
        (&["--prefix", "b/"], &["b/1", "b/2"]),
        (&["--prefix", "zz"], &[]),
        (&["--prefix", "", "--limit", "2"], &["a", "b"]),
        (&["--prefix", "", "--limit", "2", "--reverse"], &["c", "b/2"]),
        (&["--sort", "mod", "--reverse", "--limit", "2"], &["b/1", "c"]),
        (&["--sort", "value"], &["c", "b", "b/2", "b/1", "a"]),
        (&["--sort", "version", "--reverse", "--keys-only", "--limit", "2"], &["b/1", "a"]),
        (&["--min-mod-revision", "5"], &["b/1", "b/2", "c"]),
        (&["--max-create-revision", "3"], &["a", "b"]),
        (&["--prefix", "", "--at", "4"], &["a", "b", "b/1"]),
    ] {
        let mut line = vec!["range"];
        line.extend(arguments);
        assert_eq!(tool.column("key", &line), keys, "{arguments:?}");
    }
    assert_eq!(tool.json(&["range", "--count-only", "--prefix", "b"])["count"], 3);
    assert_eq!(tool.json(&["range", "--count-only", "--min-mod-revision", "5"])["count"], 3);
    let first = &tool.lines(&["range", "--prefix", "", "--keys-only"])[0];
    assert_eq!(
        first,
        &json!({ "key": "a", "create_revision": 2, "mod_revision": 2, "version": 1, "lease": 0 })
    );
    let whole = tool.json(&["range", "b/1"]);
    assert_eq!(whole["revision"], 7);
    assert_eq!(whole["kvs"][0]["value"], "6");
    assert_eq!(tool.json(&["range", "zz"])["kvs"], json!([]));
    assert_eq!(tool.ok(&["range", "--prefix", "b/", "-o", "raw"]), "b/1\n6\nb/2\n4\n");
    assert!(tool.ok(&["range"]).starts_with("key"));
    assert_eq!(tool.json(&["del", "b", "c", "--prev-kv"])["prev_kvs"][1]["value"], "6");
    assert_eq!(tool.json(&["del", "--prefix", ""])["deleted"], 2);
}

#[test]
fn transactions() {
    let tool = Tool::new();
    let text = b"create(\"k\") = \"0\"\n\nput k v1\nput l 'v 2'\n\nget k\n";
    assert_eq!(tool.run_with(&["txn"], text).code(0).stdout(), "SUCCESS\nOK\nOK\nrevision  2\n");
    assert_eq!(
        tool.run_with(&["txn", "-"], text).code(0).stdout(),
        "FAILURE\nk\nv1\nrevision  2\n"
    );
    assert_eq!(tool.run_with(&["txn", "-o", "raw"], text).code(0).stdout(), "FAILURE\nk\nv1\n");
    for nothing in ["", "\n \n"] {
        tool.run_with(&["txn"], nothing.as_bytes()).code(2).silent().says("is empty");
    }
    tool.run_with(&["txn"], b"{\"success\":\nnope}").code(2).says("null, true or false at line 2");
    tool.run_with(&["txn", "--fail-on-else"], text).code(5);
    let dry = tool.run_with(&["txn", "--dry-run", "-o", "json"], text).code(0).stdout();
    let dry: serde_json::Value = serde_json::from_str(&dry).unwrap();
    assert_eq!(dry["succeeded"], false);
    assert_eq!(dry["compares"][0]["holds"], false);
    assert_eq!(dry["revision"], 2);
    let request = json!({
        "compare": [{ "key": "k", "target": "VALUE", "result": "EQUAL", "value": "v1" }],
        "success": [
            { "put": { "key": "k", "value": { "b64": "/w==" }, "prev_kv": true } },
            { "range": { "key": "k", "range_end": "\u{0}" } },
            { "delete_range": { "key": "l" } },
            { "txn": { "success": [{ "put": { "key": "m", "value": "n" } }] } },
        ],
    });
    let file = tool.file("txn.json", request.to_string());
    let answer = tool.json(&["txn", &file]);
    assert_eq!(answer["revision"], 3);
    assert_eq!(answer["responses"][0]["put"]["prev_kv"]["value"], "v1");
    assert_eq!(answer["responses"][1]["range"]["kvs"][0]["value"], json!({ "b64": "/w==" }));
    assert_eq!(answer["responses"][2]["delete_range"]["deleted"], 1);
    assert_eq!(answer["responses"][3]["txn"]["succeeded"], true);
    tool.run_with(&["txn"], b"{\"success\":[{\"put\":{}}]}").code(2).says("key is empty");
    tool.run_with(&["txn"], b"nonsense").code(2).says("line 1");
    let twice = b"{\"success\":[{\"put\":{\"key\":\"a\"}},{\"put\":{\"key\":\"a\"}}]}";
    tool.run_with(&["txn"], twice).code(2);
    assert_eq!(tool.json(&["range", "--count-only"])["revision"], 3);
}

#[test]
fn differences() {
    let tool = Tool::new();
    tool.ok(&["put", "a", "1"]);
    tool.ok(&["put", "b", "1"]);
    tool.ok(&["put", "b", "2"]);
    tool.ok(&["del", "a"]);
    tool.ok(&["put", "c", "1"]);
    let lines = tool.lines(&["diff", "3", "latest", "--values"]);
    let short: Vec<_> = lines
        .iter()
        .map(|line| (line["change"].as_str().unwrap(), line["key"].as_str().unwrap()))
        .collect();
    assert_eq!(short, [("removed", "a"), ("changed", "b"), ("added", "c")]);
    assert_eq!(lines[1]["old"]["value"], "1");
    assert_eq!(lines[1]["new"]["value"], "2");
    assert_eq!(tool.ok(&["diff", "3", "--prefix", "b", "-o", "raw"]), "~ b\n");
    assert_eq!(tool.lines(&["diff", "4", "4"]), Vec::<serde_json::Value>::new());
    assert_eq!(tool.lines(&["diff", "1", "6", "--limit", "1"]).len(), 1);
    tool.run(&["diff", "4", "3"]).code(2).says("revision 4 is after revision 3");
    tool.run(&["diff", "4", "9"]).code(6);
}

#[test]
fn what_puts_nothing_makes_no_store() {
    let tool = Tool::new();
    tool.run(&["del", "k"]).code(1).says("no store");
    tool.run(&["del", "k", "--if", "mod=1"]).code(1).says("no store");
    tool.run(&["put", "k", "v", "--if", "mod=7"]).code(5).silent().says("does not hold");
    tool.run(&["put", "k", "v", "--lease", "7"]).code(1).says("no store");
    tool.run(&["put", "", "v"]).code(2);
    for txn in [
        "mod(\"k\") = \"7\"\n\nput k v\n\nget k\n",
        "\ndel k\n",
        "{\"success\":[{\"txn\":{\"failure\":[{\"put\":{\"key\":\"k\"}}]}}]}",
    ] {
        tool.run_with(&["txn"], txn.as_bytes()).code(1).says("no store");
    }
    let file = tool.file("h.jsonl", "neither JSON\n");
    tool.run(&["import", "history", &file])
        .code(1)
        .says("line 1: malformed: expected a JSON object");
    let file = tool.file("h.jsonl", "{\"time\":1,\"puts\":nothing}\n");
    tool.run(&["import", "history", &file]).code(1).says("line 1: malformed: expected null, true");
    assert!(!tool.store().exists());
    // What puts something does.
    let put = "create(\"k\") = \"0\"\n\nput k v\n";
    tool.run_with(&["txn"], put.as_bytes()).code(0);
    let other = Tool::new();
    other.ok(&["put", "k", "v", "--if", "create=0", "--if", "lease=0"]);
}

#[test]
fn leases_hold_keys_until_they_are_revoked() {
    let tool = Tool::new();
    tool.run(&["lease", "list"]).code(1).says("no store");
    tool.run(&["lease", "revoke", "7"]).code(1).says("no store");
    assert!(!tool.store().exists());
    let granted = tool.json(&["lease", "grant", "60"]);
    let id = granted["lease"].to_string();
    assert_eq!((&granted["ttl"], &granted["revision"]), (&json!(60), &json!(1)));
    tool.ok(&["put", "session", "me", "--lease", &id]);
    tool.ok(&["lease", "grant", "100", "--id", "0x10"]);
    tool.run(&["lease", "grant", "1", "--id", "16"]).code(1).says("exists already");
    let listed = tool.lines(&["lease", "list", "--keys"]);
    let of = |id: &str| {
        let id = id.parse::<i64>().unwrap();
        listed.iter().find(|lease| lease["lease"].as_i64() == Some(id)).unwrap()
    };
    assert_eq!((&of(&id)["keys"], &of(&id)["ttl"]), (&json!(["session"]), &json!(60)));
    assert_eq!((&of("16")["keys"], &of("16")["ttl"]), (&json!([]), &json!(100)));
    assert!(tool.ok(&["lease", "list", "--keys"]).contains("session"));
    assert!(!tool.ok(&["lease", "list"]).contains("session"));
    assert_eq!(tool.lines(&["lease", "list"])[0].get("keys"), None);
    // Who looks twice and sees the same is told why; a program is not.
    let when = "time passes for leases only while a program has the store open for writing";
    tool.run(&["lease", "list"]).code(0).says(when);
    for form in ["json", "ndjson", "raw"] {
        assert_eq!(tool.run(&["lease", "list", "-o", form]).code(0).stderr(), "", "{form}");
    }
    // A machine may be slow, but no time passes between the commands.
    let status = tool.json(&["lease", "ttl", &id, "--keys"]);
    let left = status["remaining_millis"].as_u64().unwrap();
    assert!((1..=60_000).contains(&left), "{left}");
    assert_eq!((&status["ttl"], &status["keys"]), (&json!(60), &json!(["session"])));
    let renewed = tool.json(&["lease", "keep-alive", &id]);
    assert_eq!(renewed, json!({ "lease": status["lease"], "ttl": 60 }));
    for command in ["ttl", "keep-alive"] {
        tool.run(&["lease", command, "99"]).code(5).says("there is no lease");
    }
    assert_eq!(tool.json(&["lease", "revoke", &id]), json!({ "revision": 3, "deleted": 1 }));
    tool.run(&["get", "session"]).code(5);
    tool.run(&["lease", "revoke", &id]).code(5).says("there is no lease");
    for ttl in ["-1", "0", "x", "9000000001"] {
        tool.run(&["lease", "grant", ttl]).code(2).silent();
    }
}

#[test]
fn the_log_has_every_transaction_in_order() {
    let tool = Tool::new();
    tool.ok(&["put", "a", "1", "--metadata", "{\"why\":1}"]);
    tool.run_with(&["txn"], b"\nput b 2\nput c 3\nput d 4\nput e 5\ndel a\n").code(0);
    tool.ok(&["del", "b"]);
    let all = tool.lines(&["log", "--values"]);
    let revisions: Vec<_> = all.iter().map(|row| row["revision"].as_u64().unwrap()).collect();
    assert_eq!(revisions, [2, 3, 4]);
    assert_eq!(all[0]["metadata"], "{\"why\":1}");
    assert_eq!(all[1]["changes"].as_array().unwrap().len(), 5);
    assert_eq!(all[1]["changes"][1]["value"], "3");
    assert_eq!(all[2]["changes"], json!([{ "op": "delete", "key": "b" }]));
    assert_eq!(tool.lines(&["log", "--since", "3", "--limit", "1"])[0]["revision"], 3);
    let table = tool.ok(&["log", "--limit", "2"]);
    for part in ["{\"why\":1}", "put b, put c, put d, ... 2 more", "\n... 1 more\n"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert_eq!(tool.ok(&["log", "--since", "4", "-o", "raw"]), "4 delete b\n");
    tool.run(&["log", "--since", "9"]).code(6).says("does not exist yet");
    tool.ok(&["compact", "--at", "3", "--confirm"]);
    tool.run(&["log", "--since", "2"]).code(6).says("compacted");
    assert_eq!(tool.column("revision", &["log"]), ["3", "4"]);
    let fresh = Tool::new();
    fresh.ok(&["lease", "grant", "5"]);
    assert_eq!(fresh.json(&["log"])["transactions"], json!([]));
}

#[test]
fn negative_numbers_are_values() {
    let tool = Tool::new();
    tool.ok(&["put", "temperature", "-5"]);
    assert_eq!(tool.ok(&["get", "temperature", "-o", "raw"]), "-5");
    for (line, why) in [
        (&["range", "--limit", "-1"][..], "expected how many"),
        (&["history", "temperature", "--limit", "-1"], "expected how many"),
        (&["range", "--min-mod-revision", "-1"], "expected a revision"),
        (&["compact", "--keep", "-1"], "invalid digit"),
        (&["get", "temperature", "--at", "-x"], "expected latest, a revision such as 7"),
        (&["put", "temperature", "0", "--if", "mod=x"], "\"x\" is no number"),
    ] {
        let done = tool.run(line).code(2).silent().says(why);
        assert!(!done.stderr().contains("tip:"), "{}", done.stderr());
    }
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let tool = Tool::new();
    let file = tool.file("h.jsonl", common::history(3000, 500, 100));
    tool.ok(&["import", "history", &file]);
    let mut child = tool.command(&["range", "--prefix", "", "-o", "ndjson"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
