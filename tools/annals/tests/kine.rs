//! `import kine`: a table as kine writes it becomes a store at the same revisions.

#![cfg(feature = "kine")]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod common;

use annals::{ChangeKind, Options, Store};
use common::Tool;
use rusqlite::{Connection, params};

const TABLE: &str = "CREATE TABLE kine (id INTEGER primary key autoincrement, name INTEGER,
    created INTEGER, deleted INTEGER, create_revision INTEGER, prev_revision INTEGER,
    lease INTEGER, value BLOB, old_value BLOB)";

/// The columns of a row, but for the last.
type Line<'a> = (i64, &'a str, i64, i64, i64, i64, i64, &'a str);

/// Writes the table, and removes the store.
fn table(tool: &Tool, lines: &[Line<'_>]) -> String {
    let _ = std::fs::remove_dir_all(tool.store());
    let path = tool.path("state.db");
    let _ = std::fs::remove_file(&path);
    let table = Connection::open(&path).unwrap();
    table.execute_batch(TABLE).unwrap();
    for (id, name, created, deleted, create, prev, lease, value) in lines {
        let row = params![id, name, created, deleted, create, prev, lease, value.as_bytes()];
        table
            .execute("INSERT INTO kine VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL)", row)
            .unwrap();
    }
    path.to_str().unwrap().to_owned()
}

const LINES: &[Line<'_>] = &[
    (1, "compact_rev_key", 1, 0, 0, 0, 0, ""),
    (2, "/a", 1, 0, 0, 0, 0, "one"),
    (3, "/b", 1, 0, 0, 0, 30, "b"),
    (4, "/a", 0, 0, 2, 2, 0, "two"),
    (5, "gap-5", 0, 1, 5, 4, 0, ""),
    (7, "/a", 0, 1, 2, 4, 0, "two"),
    (8, "/a", 1, 0, 0, 7, 0, "three"),
    (9, "42", 1, 0, 0, 0, 0, "a number"),
];

#[test]
fn every_revision_is_as_it_was() {
    let tool = Tool::new();
    let file = table(&tool, LINES);
    let summary = tool.json(&["import", "kine", &file]);
    assert_eq!((&summary["revision"], &summary["revisions_filled"]), (&9.into(), &2.into()));
    assert_eq!((&summary["transactions"], &summary["leases"]), (&6.into(), &1.into()));
    tool.ok(&["verify"]);
    let store = Store::open_read_only(tool.store()).unwrap();
    assert_eq!((store.revision(), store.compacted_revision()), (9, 0));
    let told = |key: &str, at: u64| {
        let kv = store.at(at).unwrap().get(key).unwrap();
        kv.map(|kv| (kv.value, kv.create_revision, kv.mod_revision, kv.version))
    };
    assert_eq!(told("/a", 3), Some(("one".into(), 2, 2, 1)));
    assert_eq!(told("/a", 6), Some(("two".into(), 2, 4, 2)));
    assert_eq!(told("/a", 7), None);
    assert_eq!(told("/a", 9), Some(("three".into(), 8, 8, 1)));
    assert_eq!(told("42", 9), Some(("a number".into(), 9, 9, 1)));
    assert_eq!(told("kine/gap", 9), Some(("".into(), 5, 6, 2)));
    let changes: Vec<(u64, ChangeKind)> = store
        .log(2..)
        .map(Result::unwrap)
        .map(|transaction| (transaction.revision, transaction.changes[0].kind))
        .collect();
    assert_eq!(changes.len(), 8);
    assert_eq!(changes[5], (7, ChangeKind::Delete));
    let lease = store.get("/b").unwrap().unwrap().lease;
    let status = store.lease_time_to_live(lease, true).unwrap().unwrap();
    assert_eq!((status.granted_ttl, status.keys), (30, vec!["/b".into()]));
    drop(store);
    // It goes on.
    let store = Options::new().open(tool.store()).unwrap();
    assert_eq!(store.put("/a", "four").unwrap().revision, 10);
}

#[test]
fn what_was_compacted_there_is_compacted_here() {
    let tool = Tool::new();
    let mut lines = LINES.to_vec();
    lines[0].5 = 7;
    lines.retain(|line| ![2, 4, 5, 7].contains(&line.0));
    let file = table(&tool, &lines);
    tool.ok(&["import", "kine", &file]);
    let store = Store::open_read_only(tool.store()).unwrap();
    assert_eq!((store.revision(), store.compacted_revision()), (9, 7));
    assert_eq!(store.at(7).unwrap().count(..).unwrap(), 1);
    assert!(store.at(6).is_err());
    assert_eq!(store.get("/a").unwrap().unwrap().version, 1);
}

#[test]
fn what_is_no_such_table_is_refused() {
    let tool = Tool::new();
    let import = |file: &str, more: &[&str]| {
        let _ = std::fs::remove_dir_all(tool.store());
        tool.run(&[&["import", "kine", file], more].concat())
    };
    import(&tool.file("none", "no database at all, but long enough to be looked at"), &[]).code(1);
    import(&table(&tool, &[(1, "/a", 1, 0, 0, 0, 0, "")]), &[])
        .code(1)
        .says("the first revision is 2");
    let file = table(&tool, &[(2, "kine/gap", 1, 0, 0, 0, 0, "")]);
    import(&file, &[]).code(2).says("not in the file");
    import(&file, &["--gap-key", "other"]).code(0);
    // A revision that is far away is no reason to write millions of others.
    let far = [(2, "/a", 1, 0, 0, 0, 0, ""), (1 << 40, "/b", 1, 0, 0, 0, 0, "")];
    import(&table(&tool, &far), &[]).code(1).says("too many ids are missing");
}
