//! `import etcd`: what a real etcd answered, the store answers; and what cannot be is refused.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
#[path = "../../etcd/tests/made/mod.rs"]
mod made;

use std::path::{Path, PathBuf};

use annals::Store;
use common::Tool;
use made::{buckets, compacted, delete, lease, put};
use serde_json::Value;

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recorded").join(name)
}

#[test]
fn a_recorded_etcd_is_here_what_it_was_there() {
    let answers = std::fs::read_to_string(recorded("hashkv.json")).unwrap();
    let answers: Value = serde_json::from_str(&answers).unwrap();
    let mut compared = 0;
    let files = ["etcd-full.db", "etcd-compacted.db", "etcd-dead.db"];
    for (file, phase) in files.iter().zip(answers["phases"].as_array().unwrap()) {
        let tool = Tool::new();
        let path = recorded(file);
        let path = path.to_str().unwrap();
        let hashes = phase["hashes"].as_array().unwrap();
        let newest = hashes.last().unwrap()[1].to_string();
        let summary = tool.json(&["import", "etcd", path, "--hash", &newest]);
        for name in ["revision", "compacted"] {
            assert_eq!(summary[name], phase[name], "{file}");
        }
        assert_eq!(summary["hash"].to_string(), newest);
        assert_eq!(summary["leases"], 1);
        assert_eq!(summary.as_object().unwrap().len(), 6, "{summary}");
        let store = Store::open_read_only(tool.store()).unwrap();
        for answer in hashes {
            let [revision, hash] = [0, 1].map(|at| answer[at].as_u64().unwrap());
            let found = store.hash_at(revision).unwrap();
            assert_eq!((found.revision, u64::from(found.hash)), (revision, hash), "{file}");
            compared += 1;
        }
        // What it did is told, too, from the revision compacted to on.
        let first = phase["compacted"].as_u64().unwrap().max(2);
        let log: Vec<_> = store.log(..).map(Result::unwrap).collect();
        let revisions: Vec<_> = log.iter().map(|transaction| transaction.revision).collect();
        assert_eq!(revisions, (first..=store.revision()).collect::<Vec<_>>(), "{file}");
        drop(store);
        tool.ok(&["verify"]);
        let lease = &tool.lines(&["lease", "list"])[0];
        let id = 2_324_035_535_569_727_238_i64;
        assert_eq!((&lease["lease"], &lease["ttl"]), (&id.into(), &1000.into()));
        tool.ok(&["put", "/next", ""]);
        tool.ok(&["verify"]);
    }
    assert_eq!(compared, 228);
}

#[test]
fn what_is_no_snapshot_or_another_makes_no_store() {
    let tool = Tool::new();
    let snapshot = std::fs::read(recorded("etcd-compacted.db")).unwrap();
    let import = |file: &str, more: &[&str]| tool.run(&[&["import", "etcd", file], more].concat());

    let mut damaged = snapshot.clone();
    damaged[20_000] ^= 1;
    let text = import(&tool.file("damaged", &damaged), &[]).code(1).stderr();
    assert!(text.contains("damaged: page 0, offset 40960: the checksum"), "{text}");
    let text = import(&tool.file("cut", &snapshot[..20_001]), &[]).code(1).stderr();
    assert!(text.contains("cut?"), "{text}");
    let text = import(&tool.file("other", [b'x'; 8192]), &[]).code(1).stderr();
    assert!(text.contains("none of bbolt's"), "{text}");
    import("absent", &[]).code(1);
    import(&tool.file("file", &snapshot), &["--gaps", "fill="]).code(2);
    import(&tool.file("file", &snapshot), &["--time", "latest"]).code(2);
    assert!(!tool.store().exists());

    // A hash that it does not have: what is there is no store, and says so.
    let sound = tool.file("sound", &snapshot);
    let text = import(&sound, &["--hash", "7"]).code(1).stderr();
    assert!(text.contains("the hash as of revision 104 is 3572163927, not 7"), "{text}");
    let text = tool.run(&["get", "a"]).code(1).stderr();
    assert!(text.contains("not finished: remove it"), "{text}");
    import(&sound, &[]).code(2);
    std::fs::remove_dir_all(tool.store()).unwrap();

    // The file of a server has no checksum.
    let file = tool.file("db", &snapshot[..snapshot.len() - 32]);
    let done = import(&file, &["--time", "2026-11-22T05:00:00Z", "-o", "ndjson"]).code(0);
    assert!(done.stderr().contains("has no checksum"), "{}", done.stderr());
    let log = tool.lines(&["log"]);
    assert!(log.iter().all(|line| line["time"] == "2026-11-22T05:00:00Z"), "{log:?}");
    // Where there is a store, none is made.
    let text = import(&sound, &[]).code(2).stderr();
    assert!(text.contains("is not empty"), "{text}");
}

/// A file with revisions 5, 6 and 9 missing, and 10 as `etcdutl` bumps it.
fn with_gaps() -> Vec<u8> {
    let mut entries = vec![
        put((2, 0), "a", "1", (2, 1), 7),
        put((3, 0), "b", "2", (3, 1), 8),
        put((4, 0), "a", "3", (2, 2), 7),
        delete((7, 0), "b"),
        put((7, 1), "c", "4", (7, 1), 0),
        put((8, 0), "c", "5", (7, 2), 0),
    ];
    entries.push((made::revision(10, 0, ""), Vec::new()));
    buckets(&[("key", entries), ("lease", vec![lease(7, 60, 30), lease(9, 0, 0)])])
}

#[test]
fn revisions_that_are_missing_are_refused_forgotten_or_filled() {
    let tool = Tool::new();
    let file = tool.file("gaps", with_gaps());
    let import = |more: &[&str]| {
        let _ = std::fs::remove_dir_all(tool.store());
        tool.run(&[&["import", "etcd", &file, "-o", "json"], more].concat())
    };
    let text = import(&[]).code(1).stderr();
    assert!(text.contains("nothing has revision 5"), "{text}");

    let summary: Value =
        serde_json::from_str(&import(&["--gaps", "raise"]).code(0).stdout()).unwrap();
    assert_eq!((&summary["revision"], &summary["compacted"]), (&10.into(), &10.into()));
    assert_eq!((&summary["keys"], &summary["transactions"]), (&2.into(), &0.into()));
    assert_eq!((&summary["leases"], &summary["entries_skipped"]), (&1.into(), &2.into()));
    assert_eq!(tool.column("version", &["range", "--prefix", ""]), ["2", "2"]);
    assert_eq!(tool.json(&["put", "d", ""])["revision"], 11);
    tool.ok(&["verify"]);

    let summary = import(&["--gaps", "fill=gap"]).code(0).stdout();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!((&summary["revision"], &summary["compacted"]), (&10.into(), &0.into()));
    assert_eq!((&summary["transactions"], &summary["revisions_filled"]), (&5.into(), &4.into()));
    let revisions = tool.column("mod_revision", &["history", "gap"]);
    assert_eq!(revisions, ["10", "9", "6", "5"]);
    assert_eq!(tool.column("mod_revision", &["history", "b"]), ["7", "3"]);
    tool.ok(&["verify"]);
    // The key that fills them is not to be one of those.
    let text = import(&["--gaps", "fill=c"]).code(1).stderr();
    assert!(text.contains("revision 7"), "{text}");
}

#[test]
fn compactions_that_were_not_finished_are_finished_and_odd_entries_are_told() {
    let tool = Tool::new();
    let entries = vec![
        put((2, 0), "a", "1", (2, 1), 0),
        put((2, 1), "b", "1", (2, 1), 5),
        put((3, 0), "a", "2", (2, 2), 0),
        delete((4, 0), "a"),
        put((4, 1), "c", "3", (4, 1), 0),
        delete((5, 0), "c"),
        put((6, 0), "", "no key", (6, 1), 0),
        put((6, 1), "c", "4", (6, 1), 0),
        delete((6, 2), "c"),
        put((6, 3), "d", "5", (6, 1), 0),
    ];
    let file = tool.file("odd", buckets(&[("key", entries), ("meta", compacted(5, 2))]));
    let summary = tool.json(&["import", "etcd", &file]);
    assert_eq!((&summary["revision"], &summary["compacted"]), (&6.into(), &5.into()));
    assert_eq!((&summary["keys"], &summary["transactions"]), (&2.into(), &1.into()));
    assert_eq!(summary["entries_skipped"], 1);
    assert_eq!(summary["changes_of_one_key_in_one_transaction"], 1);
    assert_eq!(summary["keys_with_absent_leases"], 1);
    assert_eq!(tool.column("key", &["range", "--prefix", ""]), ["b", "d"]);
    // That c was deleted at the revision compacted to is still told.
    assert_eq!(tool.lines(&["history", "c"]).len(), 1);
    tool.run(&["history", "a"]).code(5);
    tool.ok(&["verify"]);

    // A version that does not follow from those before it.
    let wrong = vec![put((2, 0), "a", "1", (2, 1), 0), put((3, 0), "a", "1", (2, 3), 0)];
    std::fs::remove_dir_all(tool.store()).unwrap();
    let file = tool.file("wrong", buckets(&[("key", wrong)]));
    let text = tool.run(&["import", "etcd", &file]).code(1).stderr();
    assert!(text.contains("revision 3 makes version 3 of a"), "{text}");
}
