//! `export --base` and the import of it: an equal store, or none.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::path::Path;

use annals::Store;
use common::Tool;

/// A store with everything that the lines have to say, compacted to a revision at which a key was deleted.
fn scripted() -> Tool {
    let tool = Tool::new();
    for n in 0..4 {
        tool.ok(&["put", "/a", &format!("a{n}"), "--metadata", "by ada"]);
    }
    let file = tool.file("b", [0xff, 0, 1]);
    tool.ok(&["put", "/b", &format!("@{file}")]);
    tool.ok(&["lease", "grant", "600", "--id", "7"]);
    tool.ok(&["lease", "grant", "60", "--id", "-9"]);
    tool.ok(&["put", "/leased", "x", "--lease", "7"]);
    let several = tool.file("several.txn", "\nput /z 1\nput /y 2\ndel /a\nput /x \"\"\n\n\n");
    let compacted = tool.json(&["txn", &several])["revision"].to_string();
    tool.ok(&["put", "/a", "again"]);
    let several = tool.file("more.txn", "\ndel /z\nput /c 2\nput /y 3\n\n\n");
    tool.ok(&["txn", &several]);
    tool.ok(&["compact", "--rev", &compacted, "--confirm"]);
    tool
}

fn equal(one: &Path, other: &Path) {
    let [one, other] = [one, other].map(|path| Store::open_read_only(path).unwrap());
    assert_eq!(other.compacted_revision(), one.compacted_revision());
    assert_eq!(other.revision(), one.revision());
    for revision in one.compacted_revision().max(1)..=one.revision() {
        assert_eq!(other.hash_at(revision).unwrap(), one.hash_at(revision).unwrap(), "{revision}");
    }
    let logs = [&one, &other].map(|store| store.log(..).with_values().map(Result::unwrap));
    let [log, of_other] = logs.map(Iterator::collect::<Vec<_>>);
    assert!(!log.is_empty());
    assert_eq!(of_other, log);
    let keys = log.iter().flat_map(|transaction| &transaction.changes).map(|change| &change.key);
    for key in keys {
        let [history, of_other] = [&one, &other]
            .map(|store| store.history(key).with_origin().map(Result::unwrap).collect::<Vec<_>>());
        assert_eq!(of_other, history);
    }
    for lease in one.lease_list().unwrap() {
        let [told, of_other] =
            [&one, &other].map(|store| store.lease_info(lease.id, true).unwrap());
        let [told, of_other] =
            [told, of_other].map(|lease| lease.map(|lease| (lease.ttl, lease.keys)));
        assert_eq!(of_other, told);
    }
    assert_eq!(other.lease_list().unwrap().len(), one.lease_list().unwrap().len());
}

#[test]
fn what_is_exported_whole_is_imported_as_it_was() {
    let tool = scripted();
    let lines = tool.ok(&["export", "--base"]);
    let first = lines.lines().next().unwrap();
    assert!(first.starts_with("{\"annals\":\"export/2\",\"compacted\":8,\"time\":"), "{first}");
    assert!(lines.contains("{\"base\":\"/a\",\"deleted\":true,\"sub\":2}"), "{lines}");

    let plain = tool.file("plain", &lines);
    let compressed = tool.path("whole.zst");
    let compressed = compressed.to_str().unwrap();
    tool.ok(&["export", "--base", compressed]);
    for file in [&plain, compressed] {
        let other = Tool::new();
        let summary = other.json(&["import", "history", file]);
        assert_eq!((&summary["revision"], &summary["records"]), (&10.into(), &2.into()));
        equal(&tool.store(), &other.store());
        other.ok(&["verify"]);
        // What is exported of it is the same, but for the time that leases have left.
        let again = other.ok(&["export", "--base"]);
        let but_leases = |text: &str| {
            let lines = text.lines().filter(|line| !line.contains("remaining_ms"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(but_leases(&again), but_leases(&lines));
        other.ok(&["put", "/next", ""]);
        // There is a store already.
        other.run(&["import", "history", file]).code(2).says("or give another directory");
    }
    let other = Tool::new();
    other.run_with(&["import", "history", "-"], lines.as_bytes()).code(0);
    equal(&tool.store(), &other.store());
}

#[test]
fn stores_that_were_never_compacted_or_never_written_to_are_whole_as_well() {
    let tool = scripted();
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recorded");
    for name in ["etcd-full.db", "etcd-compacted.db", "etcd-dead.db"] {
        let [one, other] = [Tool::new(), Tool::new()];
        one.ok(&["import", "etcd", recorded.join(name).to_str().unwrap()]);
        let lines = one.ok(&["export", "--base"]);
        other.ok(&["import", "history", &other.file("whole", lines)]);
        equal(&one.store(), &other.store());
    }
    let [one, other] = [Tool::new(), Tool::new()];
    one.ok(&["lease", "grant", "600", "--id", "7"]);
    let lines = one.ok(&["export", "--base"]);
    assert_eq!(lines.lines().count(), 3, "{lines}");
    other.ok(&["import", "history", &other.file("whole", lines)]);
    assert_eq!(other.column("lease", &["lease", "list"]), ["7"]);
    drop(tool);
}

#[test]
fn lines_that_are_cut_changed_or_in_another_order_make_no_store() {
    let tool = scripted();
    let lines = tool.ok(&["export", "--base"]);
    let lines: Vec<&str> = lines.lines().collect();
    let count = lines.len();
    let other = Tool::new();
    let import = |lines: &[&str]| {
        let _ = std::fs::remove_dir_all(other.store());
        let file = other.file("lines", lines.join("\n"));
        (other.run(&["import", "history", &file]), other.run(&["get", "/b"]))
    };
    let refused = |lines: &[&str], why: &str| {
        let (done, get) = import(lines);
        done.code(1).says(why);
        get.code(1);
    };
    import(&lines).1.code(0);
    for cut in 1..count {
        refused(&lines[..cut], "cut");
    }
    for at in 1..count - 1 {
        refused(&[&lines[..at], &lines[at + 1..]].concat(), "line");
        refused(&[&lines[..=at], &lines[at..]].concat(), &format!("line {}", at + 2));
    }
    let mut swapped = lines.clone();
    swapped.swap(1, 2);
    refused(&swapped, "line 3: the base has a key that is not after");
    refused(&[&lines[..], &lines[1..2]].concat(), "no place here");
    for (from, to, why) in [
        ("export/2", "export/3", "the form \"export/3\" is not known"),
        ("\"value\":\"again\"", "\"value\":\"other\"", "has revision 10 and hash"),
        ("\"create_revision\"", "\"created\"", "unknown field"),
        ("{\"delete\":\"/z\"}", "{}", "neither put nor delete"),
    ] {
        let changed: Vec<String> = lines.iter().map(|line| line.replacen(from, to, 1)).collect();
        refused(&changed.iter().map(String::as_str).collect::<Vec<_>>(), why);
    }
    let file = tool.file("lines", lines.join("\n"));
    tool.run(&["import", "history", "--append", &file]).code(2).says("no --append");
}
