//! Calls of objects in an etcd that is there all the time.

use std::time::{Duration, Instant};

use annals::ErrorKind;
use annals::object::kv::{Kv, KvWatch, ScanRequest, WatchRequest};
use annals::object::{
    CreateOptions, DeleteOptions, EtcdKv, EtcdOptions, ListOptions, UpdateOptions, WatchEventKind,
    WatchOptions,
};
use annals::{Op, PutRequest, TxnRequest};
use serde_json::json;

use super::etcd::etcdctl;
use super::{PATIENCE, connect, pod, pods_in, start};

fn put(kv: &EtcdKv, key: &str, value: &[u8]) -> annals::Result<u64> {
    let success = vec![Op::Put(PutRequest::new(key, value))];
    Ok(kv.transact(TxnRequest { success, ..TxnRequest::default() })?.revision)
}

#[test]
fn objects_live_in_an_etcd() {
    let Some(etcd) = start() else { return };
    let pods = pods_in(connect(&etcd));
    let options = WatchOptions { send_initial_events: Some(true), ..WatchOptions::default() };
    let mut watch = pods.watch("default", &options).unwrap();

    let made = pods.create("default", pod("web"), &CreateOptions::default()).unwrap();
    let mut changed = made.clone();
    changed["spec"] = json!({"nodeName": "a"});
    let update = |object| pods.update("default", "web", object, &UpdateOptions::default());
    let (changed, _) = update(changed).unwrap();
    assert_eq!(update(made.clone()).unwrap_err().code(), 409);
    let at = pods.get_at("default", "web", made["metadata"]["resourceVersion"].as_str().unwrap());
    assert_eq!(at.unwrap(), made);
    pods.delete("default", "web", &DeleteOptions::default()).unwrap();

    let mut next = || watch.next_timeout(PATIENCE).unwrap();
    let first = next();
    assert_eq!((first.kind, first.object), (WatchEventKind::Added, made));
    let second = next();
    assert_eq!((second.kind, second.object), (WatchEventKind::Modified, changed));
    assert_eq!(next().kind, WatchEventKind::Deleted);
}

#[test]
fn a_long_scan_is_of_one_revision() {
    let Some(etcd) = start() else { return };
    let kv = connect(&etcd);
    for n in 0..700 {
        put(&kv, &format!("/a/{n:03}"), b"old").unwrap();
    }
    put(&kv, "/b", b"beside").unwrap();
    let request = ScanRequest { prefix: b"/a/", start: b"/a/001", at: None };
    let (mut scan, revision) = kv.scan(request).unwrap();
    assert_eq!(revision, kv.revision().unwrap());
    assert_eq!(kv.count(request).unwrap(), 699);
    let first = scan.next().unwrap().unwrap();
    assert_eq!(first.key, "/a/001");
    put(&kv, "/a/500", b"new").unwrap();
    put(&kv, "/a/500x", b"new").unwrap();
    let rest: Vec<_> = scan.map(Result::unwrap).collect();
    assert_eq!(rest.len(), 698);
    assert!(rest.iter().all(|kv| kv.value == "old"));
}

#[test]
fn errors_are_those_of_a_store() {
    let Some(etcd) = start() else { return };
    let kv = connect(&etcd);
    for _ in 0..5 {
        put(&kv, "k", b"v").unwrap();
    }
    let current = kv.revision().unwrap();
    etcdctl(&etcd.endpoint(), &["compact", "4"]);
    let error = kv.get(b"k", Some(2)).unwrap_err();
    let told = "revision 2 has been compacted: the oldest readable one is 4";
    assert_eq!(error.to_string(), told);
    assert!(kv.get(b"k", Some(4)).is_ok());
    let error = kv.get(b"k", Some(99)).unwrap_err().into_kind();
    assert!(
        matches!(error, ErrorKind::FutureRevision { requested: 99, current: now } if now == current)
    );
    let error = put(&kv, "k", &vec![0; 2 << 20]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TransactionTooLarge { .. }), "{error}");
    let error = put(&kv, "k", &vec![0; 20 << 20]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TransactionTooLarge { .. }), "{error}");
    let success = vec![Op::Put(PutRequest::new("k", "v").lease(77))];
    let error = kv.transact(TxnRequest { success, ..TxnRequest::default() }).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::LeaseNotFound { lease: 77 }), "{error}");
    let request = WatchRequest { key: b"k", is_prefix: false, from: 2, progress_every: None };
    let error = kv.watch(request).unwrap().next_timeout(PATIENCE).unwrap_err().into_kind();
    assert!(matches!(error, ErrorKind::Compacted { requested: 2, compacted: 4, .. }), "{error:?}");
}

#[test]
fn time_to_live_ends_objects() {
    let Some(etcd) = start() else { return };
    let pods = pods_in(connect(&etcd));
    let options = CreateOptions { ttl: Some(1), ..CreateOptions::default() };
    pods.create("default", pod("short"), &options).unwrap();
    let begin = Instant::now();
    while !pods.list("default", &ListOptions::default()).unwrap().items.is_empty() {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn bookmarks_come_where_nothing_happens() {
    let Some(etcd) = start() else { return };
    let kv = connect(&etcd);
    let pods = pods_in(kv.clone());
    let bookmarks_every = Some(Duration::from_millis(100));
    let options =
        WatchOptions { allow_bookmarks: true, bookmarks_every, ..WatchOptions::default() };
    let mut watch = pods.watch("default", &options).unwrap();
    let revision = put(&kv, "elsewhere", b"").unwrap().to_string();
    loop {
        let event = watch.next_timeout(PATIENCE).unwrap();
        assert_eq!(event.kind, WatchEventKind::Bookmark);
        if event.object["metadata"]["resourceVersion"] == revision.as_str() {
            break;
        }
    }
}

#[test]
fn key_prefixes_are_key_spaces_of_their_own() {
    let Some(etcd) = start() else { return };
    let of = |prefix: &str| {
        let options = EtcdOptions::new().key_prefix(prefix);
        EtcdKv::connect([etcd.endpoint()], options).unwrap()
    };
    let (one, other) = (of("one/"), of("other/"));
    let request = WatchRequest { key: b"", is_prefix: true, from: 2, progress_every: None };
    let mut watch = one.watch(request).unwrap();
    put(&other, "k", b"other").unwrap();
    put(&one, "k", b"one").unwrap();
    assert_eq!(one.get(b"k", None).unwrap().0.unwrap().value, "one");
    let all = ScanRequest { prefix: b"", start: b"", at: None };
    assert_eq!(one.count(all).unwrap(), 1);
    let told = watch.next_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!((told.revision, &told.events[0].kv.key[..]), (3, &b"k"[..]));
    assert_eq!(
        etcdctl(&etcd.endpoint(), &["get", "", "--prefix", "--keys-only"]),
        "one/k\n\nother/k\n\n"
    );
}

#[test]
fn it_may_be_used_inside_another_runtime() {
    let Some(etcd) = start() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let pods = pods_in(connect(&etcd));
        pods.create("default", pod("web"), &CreateOptions::default()).unwrap();
        let mut watch = pods.watch("default", &WatchOptions::default()).unwrap();
        let task = async move {
            let next = std::future::poll_fn(|context| {
                futures_core::Stream::poll_next(std::pin::Pin::new(&mut watch), context)
            });
            next.await.unwrap()
        };
        assert_eq!(task.await.kind, WatchEventKind::Added);
    });
}

#[test]
fn one_stream_serves_many_watches_and_those_that_are_slow() {
    let Some(etcd) = start() else { return };
    let kv = connect(&etcd);
    let watch = |key: &'static [u8]| {
        let request = WatchRequest { key, is_prefix: true, from: 2, progress_every: None };
        kv.watch(request).unwrap()
    };
    let mut slow = watch(b"large/");
    let mut others: Vec<_> = (0..50).map(|_| watch(b"small/")).collect();
    // More than waits for a watch that is not asked.
    let value = vec![7; 1 << 20];
    let revisions: Vec<u64> =
        (0..40).map(|n| put(&kv, &format!("large/{}", n % 3), &value).unwrap()).collect();
    let small = put(&kv, "small/1", b"v").unwrap();
    for other in &mut others {
        assert_eq!(other.next_timeout(PATIENCE).unwrap().unwrap().revision, small);
    }
    for revision in revisions {
        assert_eq!(slow.next_timeout(PATIENCE).unwrap().unwrap().revision, revision);
    }
    slow.canceller()();
    let error = slow.next_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed));
}
