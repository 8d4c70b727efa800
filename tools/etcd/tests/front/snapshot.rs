//! What the log says of a snapshot that has less history than the store.

use std::path::Path;

use annals::{Retention, Store};
use serde_json::{Value, json};

use crate::child::Spawned;
use crate::common::post;

/// Takes two snapshots of a server over this store: what its log says of them.
fn warnings(directory: &Path) -> Vec<Value> {
    let server = Spawned::start(directory, &[]);
    for _ in 0..2 {
        assert_eq!(post(server.address, "/v3/maintenance/snapshot", "{}").status, 200);
    }
    server.signal("TERM");
    let mut told = Vec::new();
    loop {
        let line = server.wait_for("");
        match line["msg"].as_str().unwrap() {
            "closed etcd server" => return told,
            text if text.starts_with("a snapshot begins at the revision") => told.push(line),
            _ => {}
        }
    }
}

#[test]
fn history_that_is_left_out_because_of_a_rule_is_told_once_for_each_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Store::open(directory.path().join("store")).unwrap();
    let store = open();
    for key in ["/short/a", "/audit/a", "/other"] {
        for value in ["1", "2", "3"] {
            store.put(key, value).unwrap();
        }
    }
    store.set_retention("/audit/", Some(Retention::forever())).unwrap();
    store.close().unwrap();
    assert_eq!(warnings(directory.path()), [Value::Null; 0], "nothing was forgotten");

    let store = open();
    store.set_retention("/short/", Some(Retention::forever().keep_revisions(3))).unwrap();
    store.apply_retention().unwrap();
    let since = store.oldest_readable(..);
    assert!(since > 5, "{since}");
    store.close().unwrap();
    let told = warnings(directory.path());
    assert_eq!(told.len(), 2, "{told:?}");
    for line in told {
        assert_eq!((&line["level"], &line["revision"]), (&json!("warn"), &json!(since)));
        assert_eq!(line["because-of-the-rules-of"], json!(["/short/"]));
        let longer = json!(["/audit/ from revision 1", "other keys from revision 1"]);
        assert_eq!(line["can-be-read"], longer);
    }

    // A compaction, beside a rule that keeps some longer.
    let store = open();
    store.compact(store.revision()).unwrap();
    store.set_retention("/short/", None).unwrap();
    store.close().unwrap();
    let told = warnings(directory.path());
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[0]["because-of-the-rules-of"], json!([]));
    assert_eq!(told[0]["can-be-read"][0], "/audit/ from revision 1");
}
