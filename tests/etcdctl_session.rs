//! A session with `etcdctl`, taken from an article that explains etcd's versions by it.
//!
//! The article's etcd was at revision 5 when the session began; every number below is the one its
//! terminal showed. The interesting line is the read of a deleted key at an old revision: it finds
//! the old version, and its header has the *current* revision.

#![allow(clippy::expect_used, reason = "a test stops where it fails")]

use annals::{RangeRequest, RangeResponse, Store};

/// Header revision, create revision, mod revision, version, value.
type Shown = (u64, u64, u64, u64, &'static str);

#[test]
fn the_session_shows_the_same_revisions() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::open(directory.path()).expect("a fresh store");
    for _ in 1..5 {
        store.put("before", "").expect("a put");
    }
    assert_eq!(store.revision(), 5);

    let put = |key: &str, value: &str| store.put(key, value).expect("a put").revision;
    let get = |key: &str| store.range(RangeRequest::new(key)).expect("a range");

    // etcdctl put k1 v1; etcdctl get k1 -w json
    assert_eq!(put("k1", "v1"), 6);
    shows(&get("k1"), (6, 6, 6, 1, "v1"));
    // etcdctl put k2 v2; etcdctl get k2; etcdctl get k1
    assert_eq!(put("k2", "v2"), 7);
    shows(&get("k2"), (7, 7, 7, 1, "v2"));
    shows(&get("k1"), (7, 6, 6, 1, "v1"));
    // etcdctl put k1 nv1; etcdctl get k1; etcdctl get k2
    assert_eq!(put("k1", "nv1"), 8);
    shows(&get("k1"), (8, 6, 8, 2, "nv1"));
    shows(&get("k2"), (8, 7, 7, 1, "v2"));
    // etcdctl del k1 prints 1; etcdctl get k1 prints nothing but the header
    let deleted = store.delete("k1").expect("a delete");
    assert_eq!((deleted.deleted, deleted.revision), (1, 9));
    assert_eq!(get("k1"), RangeResponse { revision: 9, ..RangeResponse::default() });
    // etcdctl get k1 --rev=6
    let old = store.range(RangeRequest::new("k1").at(6)).expect("a range at 6");
    shows(&old, (9, 6, 6, 1, "v1"));
    // etcdctl put k1 dnv1: a new lifetime
    assert_eq!(put("k1", "dnv1"), 10);
    shows(&get("k1"), (10, 10, 10, 1, "dnv1"));
}

fn shows(answer: &RangeResponse, expected: Shown) {
    let [kv] = answer.kvs.as_slice() else { panic!("one key-value, not {answer:?}") };
    let value = std::str::from_utf8(&kv.value).expect("text");
    let shown = (answer.revision, kv.create_revision, kv.mod_revision, kv.version, value);
    assert_eq!((shown, answer.count, answer.more), (expected, 1, false));
}
