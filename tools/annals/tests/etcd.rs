//! `import etcd`: what a real etcd answered, the store answers; and what cannot be is refused.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
#[path = "../../etcd-files/tests/made/mod.rs"]
mod made;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

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
        assert_eq!(summary["revision"], phase["revision"], "{file}");
        assert_eq!(summary["compacted_revision"], phase["compacted"], "{file}");
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
    let text = import(&tool.file("damaged", &damaged), &[]).code(3).stderr();
    assert!(text.contains("damaged: page 0, offset 40960: the checksum"), "{text}");
    assert!(text.contains("what to do: take another snapshot"), "{text}");
    let text = import(&tool.file("cut", &snapshot[..20_001]), &[]).code(3).stderr();
    assert!(text.contains("cut?"), "{text}");
    let text = import(&tool.file("other", [b'x'; 8192]), &[]).code(3).stderr();
    assert!(text.contains("none of bbolt's"), "{text}");
    import("absent", &[]).code(1);
    import(&tool.file("file", &snapshot), &["--gaps", "fill="]).code(2);
    import(&tool.file("file", &snapshot), &["--time", "latest"]).code(2);
    import(&tool.file("file", &snapshot), &["--time", "2999-01-01"]).code(2).says("yet to come");
    assert!(!tool.store().exists());

    // A hash that it does not have: what is there is no store, and says so.
    let sound = tool.file("sound", &snapshot);
    let text = import(&sound, &["--hash", "7"]).code(1).stderr();
    assert!(text.contains("the hash as of revision 104 is 3572163927, not 7\n"), "{text}");
    assert!(text.contains("a store that was not finished: remove it before another try"), "{text}");
    let text = tool.run(&["get", "a"]).code(1).stderr();
    assert!(text.contains("not finished: remove it"), "{text}");
    import(&sound, &[])
        .code(2)
        .says("what to do: remove it if nobody needs what is in it, or give");
    std::fs::remove_dir_all(tool.store()).unwrap();

    // The file of a server has no checksum.
    let file = tool.file("db", &snapshot[..snapshot.len() - 32]);
    let done = import(&file, &["--time", "2024-11-22T05:00:00Z", "-o", "ndjson"]).code(0);
    let done = done.says("has no checksum").says(" of its log").says("member/wal alone");
    drop(done);
    let log = tool.lines(&["log"]);
    assert!(log.iter().all(|line| line["time"] == "2024-11-22T05:00:00Z"), "{log:?}");
    // Where there is a store, none is made.
    let text = import(&sound, &[]).code(2).stderr();
    assert!(text.contains("is not empty"), "{text}");
    assert!(text.contains("give another directory, absent or empty"), "{text}");
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
    assert_eq!((&summary["revision"], &summary["compacted_revision"]), (&10.into(), &10.into()));
    assert_eq!((&summary["keys"], &summary["transactions"]), (&2.into(), &0.into()));
    assert_eq!((&summary["leases"], &summary["entries_skipped"]), (&1.into(), &1.into()));
    assert_eq!(summary["leases_skipped"], 1);
    assert_eq!(tool.column("version", &["range", "--prefix", ""]), ["2", "2"]);
    assert_eq!(tool.json(&["put", "d", ""])["revision"], 11);
    tool.ok(&["verify"]);

    let done = import(&["--gaps", "fill=gap"]).code(0);
    let summary = done.says("1 revision(s) without a change").stdout();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!((&summary["revision"], &summary["compacted_revision"]), (&10.into(), &0.into()));
    assert_eq!((&summary["transactions"], &summary["revisions_filled"]), (&5.into(), &4.into()));
    let revisions = tool.column("mod_revision", &["history", "gap"]);
    assert_eq!(revisions, ["10", "9", "6", "5"]);
    assert_eq!(tool.column("mod_revision", &["history", "b"]), ["7", "3"]);
    tool.ok(&["verify"]);
    // The key that fills them is not to be one of those, nor one that is no more.
    for (key, revision) in [("c", 7), ("b", 3)] {
        let done = import(&["--gaps", &format!("fill={key}")]).code(2);
        done.says(&format!("the file has this key, at revision {revision}"));
        assert!(!tool.store().exists());
    }
    // Of what was filled, no hash is that of etcd.
    import(&["--gaps", "fill=gap", "--hash", "7"]).code(1).says("missing revisions were filled");
    import(&["--gaps", "raise", "--hash", "7"]).code(1).says("compacted to another revision");
}

#[test]
fn a_revision_whose_changes_cancel_out_is_as_one_that_is_missing() {
    let tool = Tool::new();
    let entries = vec![
        put((2, 0), "a", "1", (2, 1), 0),
        put((3, 0), "k", "", (3, 1), 0),
        delete((3, 1), "k"),
        put((4, 0), "a", "2", (2, 2), 0),
        put((5, 0), "a", "3", (2, 3), 0),
        delete((5, 1), "a"),
    ];
    let file = tool.file("undone", buckets(&[("key", entries)]));
    let import = |more: &[&str]| {
        let _ = std::fs::remove_dir_all(tool.store());
        tool.run(&[&["import", "etcd", &file, "-o", "json"], more].concat())
    };
    import(&[]).code(1).says("revision 3 makes and deletes the same keys");
    let summary = import(&["--gaps", "raise"]).code(0).stdout();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!((&summary["revision"], &summary["compacted_revision"]), (&5.into(), &3.into()));
    assert_eq!(summary["changes_of_one_key_in_one_transaction"], 1);
    assert_eq!(tool.column("mod_revision", &["history", "a"]), ["5", "4", "2"]);
    tool.ok(&["verify"]);
    let summary = import(&["--gaps", "fill=gap"]).code(0).stdout();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!((&summary["revision"], &summary["revisions_filled"]), (&5.into(), &1.into()));
    assert_eq!(tool.column("mod_revision", &["history", "gap"]), ["3"]);
    tool.ok(&["verify"]);
    let done = import(&["--gaps", "fill=gap", "--hash", "7"]).code(1);
    done.says("a key was changed twice in a transaction");
}

#[test]
fn leases_that_no_etcd_grants_are_told() {
    let tool = Tool::new();
    let entries = [77, 78, 79, 80].map(|id| {
        let main = u64::try_from(id).unwrap() - 75;
        put((main, 0), &format!("k{id}"), "", (main, 1), id)
    });
    let leases = vec![
        lease(77, 9_000_000_001, 0),
        lease(78, 0, 0),
        lease(79, u64::MAX, 0),
        lease(80, 60, 30),
    ];
    let file = tool.file("leases", buckets(&[("key", entries.to_vec()), ("lease", leases)]));
    let done = tool.run(&["import", "etcd", &file, "-o", "json"]).code(0);
    let done = done.says("2 lease(s) with the id 0 or").says("1 lease(s) with a longer time");
    let summary: Value = serde_json::from_str(&done.stdout()).unwrap();
    for (name, number) in [
        ("leases", 2),
        ("leases_skipped", 2),
        ("leases_shortened", 1),
        ("keys_with_absent_leases", 2),
    ] {
        assert_eq!(summary[name], number, "{name}");
    }
    assert!(summary.get("entries_skipped").is_none(), "{summary}");
    assert_eq!(tool.column("lease", &["lease", "list"]), ["77", "80"]);
    assert_eq!(tool.column("ttl", &["lease", "list"]), ["9000000000", "60"]);
    tool.ok(&["verify"]);
}

#[test]
fn users_are_left_out_and_that_is_told() {
    let tool = Tool::new();
    let keys = vec![put((2, 0), "a", "1", (2, 1), 0)];
    let one = |name: &str, value: &[u8]| vec![(name.as_bytes().to_vec(), value.to_vec())];
    let with = |enabled: u8, users| {
        buckets(&[
            ("auth", one("authEnabled", &[enabled])),
            ("authRoles", one("root", b"\n\x04root")),
            ("authUsers", users),
            ("key", keys.clone()),
        ])
    };
    let root = one("root", b"\n\x04root");
    for (file, told) in [
        (
            with(1, root.clone()),
            Some("1 user(s) and 1 role(s) of this etcd, which asks for them: left out"),
        ),
        (with(0, root), Some("1 user(s) and 1 role(s) of this etcd: left out")),
        (with(0, vec![]), None),
    ] {
        let _ = std::fs::remove_dir_all(tool.store());
        let done = tool.run(&["import", "etcd", &tool.file("users", file)]).code(0);
        let text = done.stderr();
        assert_eq!(text.contains("left out"), told.is_some(), "{text}");
        assert!(text.contains(told.unwrap_or_default()), "{text}");
        assert_eq!(text.contains("--users-from"), told.is_some(), "{text}");
    }
}

#[test]
fn no_time_that_is_to_come_is_taken() {
    let tool = Tool::new();
    let entries = vec![put((2, 0), "a", "1", (2, 1), 0)];
    let path = tool.file("later", buckets(&[("key", entries)]));
    let later = SystemTime::now() + Duration::from_secs(1_000_000);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
    tool.run(&["import", "etcd", &path]).code(0).says("yet to come");
    let store = Store::open_read_only(tool.store()).unwrap();
    let time = Duration::from_micros(u64::try_from(store.time_of(2).unwrap()).unwrap());
    assert!(SystemTime::UNIX_EPOCH + time <= SystemTime::now());
}

#[test]
fn it_is_the_file_that_is_wrong_and_what_is_left_is_told() {
    let tool = Tool::new();
    let import = |name: &str, elements: &[(&str, Vec<made::Element>)]| {
        let _ = std::fs::remove_dir_all(tool.store());
        let file = tool.file(name, buckets(elements));
        tool.run(&["import", "etcd", &file])
    };
    let first = || put((2, 0), "a", "1", (2, 1), 0);
    let second = || put((3, 0), "b", "1", (3, 1), 0);
    let long = |bytes: usize| put((4, 0), &"k".repeat(bytes), "", (4, 1), 0);
    let done = import("big", &[("key", vec![first(), second(), long(1_100_000)])]).code(1);
    let done = done.says("big: page 4, offset 16432: a key of 1100000 bytes at revision 4");
    drop(done.says("the most that a store takes is 1048576").says("remove it before another try"));
    // Longer than without options is told.
    let done = import("long", &[("key", vec![first(), second(), long(100_000)])]).code(0);
    drop(done.says("the longest key has 100000 bytes: to write it, -O key_bytes_max=100000"));

    let far = compacted(1 << 62, 0);
    import("far", &[("key", vec![first()]), ("meta", far)]).code(3).says("far: compacted to 46");
    assert!(!tool.store().exists());
    // In the base, too.
    let wrong = put((3, 0), "a", "1", (2, 3), 0);
    let done = import("base", &[("key", vec![wrong]), ("meta", compacted(5, 5))]).code(3);
    done.says("base: page 4, offset 16400: version 3 created at 2 at revision 3");
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
        put((6, 0), "c", "4", (6, 1), 0),
        delete((6, 1), "c"),
        put((6, 2), "d", "5", (6, 1), 0),
    ];
    let file = tool.file("odd", buckets(&[("key", entries), ("meta", compacted(5, 2))]));
    let summary = tool.json(&["import", "etcd", &file]);
    assert_eq!((&summary["revision"], &summary["compacted_revision"]), (&6.into(), &5.into()));
    assert_eq!((&summary["keys"], &summary["transactions"]), (&2.into(), &1.into()));
    assert_eq!(summary["changes_of_one_key_in_one_transaction"], 1);
    assert_eq!(summary["keys_with_absent_leases"], 1);
    assert_eq!(tool.column("key", &["range", "--prefix", ""]), ["b", "d"]);
    // That c was deleted at the revision compacted to is still told.
    assert_eq!(tool.lines(&["history", "c"]).len(), 1);
    tool.run(&["history", "a"]).code(5);
    tool.ok(&["verify"]);

    // A version that does not follow from those before it.
    let wrong = vec![
        put((2, 0), "a", "1", (2, 1), 0),
        put((3, 0), "b", "1", (3, 1), 0),
        put((4, 0), "a", "1", (2, 3), 0),
    ];
    std::fs::remove_dir_all(tool.store()).unwrap();
    let file = tool.file("wrong", buckets(&[("key", wrong)]));
    let text = tool.run(&["import", "etcd", &file]).code(3).stderr();
    assert!(text.contains("revision 4 makes version 3 of a"), "{text}");
    assert!(text.contains("what to do: take another snapshot"), "{text}");
}
