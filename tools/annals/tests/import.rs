//! `import` and `export`, end to end: refusals, restarts, kills, round trips.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{SMALL, Tool, history};
use serde_json::json;

#[test]
fn record_n_is_revision_n_plus_1_and_time_is_kept() {
    let tool = Tool::new();
    let text = concat!(
        "{\"commit\":\"c1\",\"time\":1000,\"puts\":{\"/a\":\"1\",\"/b\":{\"b64\":\"/w==\"}},\"deletes\":[]}\n",
        "{\"commit\":\"c2\",\"time\":2000.5,\"puts\":{\"/c\":\"\"},\"deletes\":[\"/a\"]}\n",
    );
    let file = tool.file("h.jsonl", text);
    let summary = tool.json(&["import", "history", &file]);
    assert_eq!(summary["records"], 2);
    assert_eq!(summary["revision"], 3);
    assert_eq!(tool.json(&["get", "/b", "--at", "2"])["value"], json!({ "b64": "/w==" }));
    assert_eq!(tool.column("key", &["range", "--prefix", "", "--at", "3"]), ["/b", "/c"]);
    let version = &tool.lines(&["history", "/c"])[0];
    assert_eq!(version["time"], "1970-01-01T00:33:20.5Z");
    assert_eq!(version["metadata"]["commit"], "c2");
    assert_eq!(version["metadata"]["import"]["record"], 2);
    assert_eq!(tool.column("key", &["range", "--at", "1970-01-01T00:20:00Z"]), ["/a", "/b"]);
    assert_eq!(tool.ok(&["export"]), text);
}

/// Whoever looks for a revision by its time has to know which times are not those of the file.
#[test]
fn times_that_are_raised_are_told() {
    let tool = Tool::new();
    let line = |time: u64, n: u64| format!("{{\"time\":{time},\"puts\":{{\"k\":\"{n}\"}}}}\n");
    let text: String = [50, 40, 45, 50, 60].into_iter().zip(0..).map(|(t, n)| line(t, n)).collect();
    let file = tool.file("h.jsonl", text);
    let done = tool.run(&["import", "history", &file, "--json"]);
    let told: serde_json::Value = serde_json::from_str(&done.stdout()).unwrap();
    assert_eq!(told["raised_times"], 2);
    done.code(0).says("2 of 5 times were earlier than one before them");
    // Those of a store that is there count as well.
    let later = tool.file("later.jsonl", line(59, 5) + &line(61, 6));
    let told = tool.json(&["import", "history", &later, "--append"]);
    assert_eq!((&told["records"], &told["raised_times"]), (&2.into(), &1.into()));
    let last = tool.file("last.jsonl", line(61, 7));
    assert!(tool.json(&["import", "history", &last, "--append"]).get("raised_times").is_none());
}

#[test]
fn refusals_name_the_line_and_apply_nothing_of_it() {
    for (bad, why) in [
        ("{\"time\":3,\"puts\":{\"x\":\"1\"}", "malformed"),
        ("{\"time\":3,\"puts\":{\"x\":\"1\",\"\":\"2\"}}", "empty key"),
        ("{\"time\":3,\"puts\":{\"x\":\"1\",\"y\":7}}", "malformed"),
        ("{\"time\":3,\"puts\":{\"x\":\"1\"},\"deletes\":[\"x\"]}", "twice"),
        ("{\"time\":3,\"puts\":{},\"deletes\":[]}", "no effect"),
        ("{\"time\":3,\"puts\":{},\"deletes\":[\"absent\"]}", "no effect"),
        ("\u{feff}{\"time\":3,\"puts\":{\"x\":\"1\"}}", "byte order mark"),
        ("", "malformed"),
    ] {
        let tool = Tool::new();
        let good = "{\"time\":1,\"puts\":{\"a\":\"1\"}}\n{\"time\":2,\"puts\":{\"b\":\"1\"}}\n";
        let file =
            tool.file("h.jsonl", format!("{good}{bad}\n{{\"time\":4,\"puts\":{{\"c\":\"1\"}}}}\n"));
        tool.run(&["import", "history", &file]).code(1).silent().says("line 3").says(why);
        assert_eq!(tool.column("key", &["range"]), ["a", "b"], "{bad}");
        assert_eq!(tool.json(&["range", "--count-only"])["revision"], 3);
        // Mended, it goes on where it stopped.
        let file = tool.file("h.jsonl", format!("{good}{{\"time\":3,\"puts\":{{\"c\":\"1\"}}}}\n"));
        let summary = tool.json(&["import", "history", &file]);
        assert_eq!((&summary["already_there"], &summary["records"]), (&json!(2), &json!(1)));
        assert_eq!(tool.json(&["range", "--count-only"])["revision"], 4);
    }
}

#[test]
fn limits_are_refused_and_can_be_raised() {
    let tool = Tool::new();
    let file = tool.file("h.jsonl", "{\"time\":1,\"puts\":{\"a\":\"123456789\"}}\n");
    let small = ["-O", "value_bytes_max=8", "import", "history", &file];
    tool.run(&small).code(1).says("line 1").says("-O value_bytes_max");
    tool.ok(&["import", "history", &file]);
}

#[test]
fn a_store_with_something_else_is_refused_without_append() {
    let tool = Tool::new();
    let one = tool.file("one.jsonl", history(50, 5, 10));
    let two = tool.file("two.jsonl", history(60, 7, 20));
    tool.ok(&["put", "mine", "1"]);
    tool.run(&["import", "history", &one]).code(1).says("--append");
    assert_eq!(tool.json(&["range", "--count-only"])["revision"], 2);
    assert_eq!(tool.json(&["import", "history", &one, "--append"])["revision"], 52);
    assert_eq!(tool.json(&["import", "history", &one])["already_there"], 50);
    tool.run(&["import", "history", &two]).code(1).says("--append");
    assert_eq!(tool.json(&["import", "history", &two, "--append"])["revision"], 112);
    // All of it is there: nothing to do, and nothing to agree to.
    let again = tool.json(&["import", "history", &one]);
    assert_eq!((&again["already_there"], &again["records"]), (&json!(50), &json!(0)));
    assert_eq!(again["revision"], 112);
}

#[test]
fn nothing_is_imported_twice_though_others_have_written_since() {
    let tool = Tool::new();
    let text = history(90, 5, 10);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let file = tool.file("h.jsonl", lines[..50].concat());
    tool.ok(&["import", "history", &file]);
    tool.ok(&["put", "mine", "1"]);
    tool.ok(&["put", "mine", "2"]);
    let more = tool.file("h.jsonl", &text);
    tool.run(&["import", "history", &more])
        .code(1)
        .says("up to record 50 (revision 51), and 2 revisions of something else since")
        .says("--append goes on after record 50");
    let piped = ["import", "history", "-"];
    tool.run_with(&piped, text.as_bytes()).code(1).says("--append goes on after record 50");
    let summary = tool.json(&["import", "history", &more, "--append"]);
    assert_eq!((&summary["already_there"], &summary["records"]), (&json!(50), &json!(40)));
    assert_eq!(summary["revision"], 93);
    // Two histories in one store, in turn.
    let other = |count| tool.file("o.jsonl", history(count, 7, 20));
    assert_eq!(tool.json(&["import", "history", &other(60), "--append"])["revision"], 153);
    assert_eq!(tool.json(&["import", "history", &more])["already_there"], 90);
    let longer = tool.file("h.jsonl", history(95, 5, 10));
    assert_eq!(tool.json(&["import", "history", &longer, "--append"])["revision"], 158);
    assert_eq!(tool.json(&["import", "history", &other(61), "--append"])["revision"], 159);
    // One that parts from what is there is another.
    let parted = "{\"time\":1,\"puts\":{\"parted\":\"1\"}}\n";
    let parted = tool.file("p.jsonl", format!("{}{parted}", lines[..70].concat()));
    tool.run(&["import", "history", &parted]).code(1).says("--append imports all of this");
}

#[test]
fn histories_that_alternate_are_each_gone_on_with() {
    let tool = Tool::new();
    let one = |count| tool.file("one.jsonl", history(count, 5, 10));
    let two = |count| tool.file("two.jsonl", history(count, 7, 20));
    let import = |file: &str| tool.json(&["import", "history", file, "--append"]);
    import(&two(3));
    import(&one(3));
    // The next record of the one follows where the other has come to.
    assert_eq!(import(&two(4))["already_there"], 3);
    let more = import(&one(4));
    assert_eq!((&more["already_there"], &more["records"]), (&json!(3), &json!(1)));
    assert_eq!(more["revision"], 9);
}

#[test]
fn metadata_that_is_json_is_not_taken_for_an_importers() {
    let tool = Tool::new();
    let texts = [
        r#"{"ticket":"OPS-17","user":"ana"}"#,
        r#"{"commit":"mine"}"#,
        r#"{ "import": 7 }"#,
        "{}",
        "why\tnot",
    ];
    for text in texts {
        tool.ok(&["put", "a", "1", "--metadata", text]);
    }
    let newest_first: Vec<&str> = texts.iter().rev().copied().collect();
    assert_eq!(tool.column("metadata", &["history", "a"]), newest_first);
    assert_eq!(tool.column("metadata", &["dump", "--wal"]), texts);
    let table = tool.ok(&["history", "a"]);
    assert!(table.contains(texts[0]) && table.contains("why\\tnot"), "{table}");

    let other = Tool::new();
    let exported = tool.ok(&["export"]);
    other.ok(&["import", "history", &other.file("e.jsonl", &exported)]);
    assert_eq!(other.column("metadata", &["history", "a"]), newest_first);
    assert_eq!(other.ok(&["export"]), exported);
    assert!(other.ok(&["history", "a"]).contains(texts[0]));
}

#[test]
fn the_longest_metadata_is_exported_and_imported() {
    let tool = Tool::new();
    let long = "\"".repeat(65_536);
    tool.ok(&["put", "a", "1"]);
    tool.ok(&["put", "a", "2", "--metadata", &long]);
    tool.ok(&["put", "a", "3"]);
    let other = Tool::new();
    let exported = tool.ok(&["export"]);
    let file = other.file("e.jsonl", &exported);
    assert_eq!(other.json(&["import", "history", &file])["records"], 3);
    assert_eq!(other.ok(&["export"]), exported);
    assert_eq!(other.json(&["import", "history", &file])["already_there"], 3);
    assert_eq!(other.lines(&["history", "a"])[1]["metadata"], json!(long));
}

#[test]
fn a_killed_import_goes_on_where_it_stopped() {
    let text = history(20_000, 300, 100);
    let whole = Tool::new();
    let file = whole.file("h.jsonl", &text);
    let mut arguments = SMALL.to_vec();
    arguments.extend(["import", "history", &file]);
    whole.ok(&arguments);

    let killed = Tool::new();
    let mut kills = 0;
    for attempt in 1..=4u64 {
        let mut child = killed.command(&arguments).spawn().unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(60 * attempt)
            && child.try_wait().unwrap().is_none()
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        if child.try_wait().unwrap().is_none() {
            child.kill().unwrap();
            kills += 1;
        }
        child.wait().unwrap();
    }
    eprintln!("{kills} kills");
    killed.ok(&arguments);
    let all = ["range", "--prefix", "", "-o", "ndjson"];
    assert_eq!(killed.ok(&all), whole.ok(&all));
    assert_eq!(killed.ok(&["export"]), text);
    assert_eq!(whole.ok(&["export"]), text);
    killed.run(&["verify"]).code(0);
}

#[test]
fn export_and_import_again_are_the_same() {
    let tool = Tool::new();
    tool.ok(&["put", "plain", "1", "--metadata", "why"]);
    let raw = json!({ "success": [
        { "put": { "key": { "b64": "/wA=" }, "value": { "b64": "/w==" } } },
        { "put": { "key": "t", "value": "text" } } ] });
    tool.run_with(&["txn"], raw.to_string().as_bytes()).code(0);
    tool.run_with(&["txn"], b"{\"success\":[{\"delete_range\":{\"key\":{\"b64\":\"/wA=\"}}}]}")
        .code(0);
    let packed = tool.path("e.jsonl.zst");
    tool.ok(&["export", packed.to_str().unwrap()]);
    tool.run(&["export", packed.to_str().unwrap()]).code(1);
    assert!(!tool.path("e.jsonl.zst.part").exists());
    // What has the name of an unfinished export is left alone.
    let part = tool.file("f.jsonl.part", "mine");
    let unfinished = tool.path("f.jsonl");
    tool.run(&["export", unfinished.to_str().unwrap()]).code(1).says("f.jsonl.part");
    assert_eq!(std::fs::read(part).unwrap(), b"mine");
    assert!(!unfinished.exists());

    let other = Tool::new();
    other.ok(&["import", "history", packed.to_str().unwrap()]);
    assert_eq!(other.ok(&["export"]), tool.ok(&["export"]));
    let all = ["range", "--prefix", "", "--at", "3", "-o", "ndjson"];
    assert_eq!(other.ok(&all), tool.ok(&all));
}

#[test]
fn a_compacted_store_begins_with_its_state() {
    let tool = Tool::new();
    let file = tool.file("h.jsonl", history(200, 20, 10));
    tool.ok(&["import", "history", &file]);
    tool.ok(&["compact", "--at", "150", "--confirm"]);
    let lines = tool.ok(&["export"]);
    assert_eq!(lines.lines().count(), 1 + 51);
    let other = Tool::new();
    let exported = tool.file("e.jsonl", &lines);
    other.ok(&["import", "history", &exported]);
    let of = |tool: &Tool, at: &str| {
        let rows = tool.lines(&["range", "--prefix", "", "--at", at]);
        rows.into_iter().map(|row| (row["key"].clone(), row["value"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(of(&other, "2"), of(&tool, "150"));
    assert_eq!(of(&other, "30"), of(&tool, "178"));
    assert_eq!(of(&other, "latest"), of(&tool, "latest"));
}

#[test]
fn others_read_while_one_imports_and_none_writes() {
    let tool = Tool::new();
    let mut writer =
        tool.command(&["import", "history", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = writer.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, history(500, 40, 50).as_bytes()).unwrap();
    std::io::Write::flush(&mut stdin).unwrap();
    let begun = Instant::now();
    let mut seen = 0;
    while seen < 400 {
        assert!(begun.elapsed() < Duration::from_secs(60), "no progress: {seen}");
        let run = tool.run(&["range", "--count-only", "-o", "json"]);
        if run.0.status.success() {
            let answer: serde_json::Value = serde_json::from_str(&run.stdout()).unwrap();
            let now = answer["revision"].as_u64().unwrap();
            assert!(now >= seen, "{now} after {seen}");
            seen = now;
        }
    }
    tool.run(&["put", "k", "v"]).code(4).says("open for writing elsewhere");
    tool.ok(&["history", "/k/001"]);
    drop(stdin);
    assert!(writer.wait().unwrap().success());
    tool.ok(&["put", "k", "v"]);
}

#[test]
fn reads_write_nothing() {
    let tool = Tool::new();
    let file = tool.file("h.jsonl", history(2000, 30, 100));
    let mut arguments = SMALL.to_vec();
    arguments.extend(["import", "history", &file]);
    tool.ok(&arguments);
    let before = tool.snapshot();
    for line in [
        &["get", "/k/001"][..],
        &["range", "--at", "1000"],
        &["history", "/k/001"],
        &["diff", "5", "900"],
        &["stats"],
        &["inspect"],
        &["dump", "--keys"],
        &["dump", "--wal"],
        &["verify"],
        &["export"],
    ] {
        let code = tool.run(line).0.status.code();
        assert!(matches!(code, Some(0 | 5)), "{line:?}: {code:?}");
    }
    tool.run(&["compact", "--at", "500"]).code(7);
    assert!(before == tool.snapshot(), "a read has written");
}

/// A store forgets by its rules as soon as it is open, also while an import looks for where it is to go on.
#[test]
fn appends_to_a_store_that_forgets_meanwhile() {
    let line = |n: usize| {
        format!("{{\"time\":\"2026-01-01T00:00:00Z\",\"puts\":{{\"k{}\":\"{n}\"}}}}\n", n % 10)
    };
    let (first, more): (String, String) =
        ((0..9000).map(line).collect(), (9000..9010).map(line).collect());
    let tool = Tool::new();
    let (first, more) = (tool.file("first", &first), tool.file("more", &more));
    tool.ok(&["-O", "durability=buffered", "import", "history", &first]);
    tool.ok(&["retention", "set", "--prefix", "", "--revisions", "2"]);
    tool.ok(&["import", "history", &more, "--append"]);
    assert_eq!(tool.json(&["get", "k9"])["value"], "9009");
}
