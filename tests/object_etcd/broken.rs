//! An etcd that is gone, comes again, or whose answers do not arrive.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use annals::object::kv::{Kv, KvWatch, WatchRequest};
use annals::object::{CreateOptions, EtcdKv, EtcdOptions, GetOptions, Reason, Status};
use annals::{Effect, ErrorKind, Op, PutRequest, TxnRequest};

use super::etcd::etcdctl;
use super::{PATIENCE, connect, pod, pods_in, start};

fn put(kv: &EtcdKv, value: &str) -> annals::Result<u64> {
    let success = vec![Op::Put(PutRequest::new("k", value))];
    Ok(kv.transact(TxnRequest { success, ..TxnRequest::default() })?.revision)
}

const WATCH: WatchRequest<'_> =
    WatchRequest { key: b"k", is_prefix: false, from: 2, progress_every: None };

/// A port at which nobody listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// What stands between a client and etcd, and can keep the answers.
struct Between {
    endpoint: String,
    is_silent: Arc<AtomicBool>,
}

impl Between {
    fn new(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let is_silent = Arc::new(AtomicBool::new(false));
        let (to, silent) = (to.trim_start_matches("http://").to_owned(), Arc::clone(&is_silent));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(&to).unwrap();
                let (from, into) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let silent = Arc::clone(&silent);
                let asked = Arc::new(AtomicBool::new(false));
                let (is_silent, is_asked) = (Arc::clone(&silent), Arc::clone(&asked));
                thread::spawn(move || {
                    copy(from, into, || {
                        is_asked.fetch_or(is_silent.load(Ordering::SeqCst), Ordering::SeqCst);
                        true
                    });
                });
                thread::spawn(move || {
                    copy(server, client, || {
                        // What comes by itself, such as a PING, is no answer.
                        let is_answer =
                            silent.load(Ordering::SeqCst) && asked.load(Ordering::SeqCst);
                        if is_answer {
                            // A server gives up what it was asked when the connection ends.
                            thread::sleep(Duration::from_millis(500));
                        }
                        !is_answer
                    });
                });
            }
        });
        Self { endpoint, is_silent }
    }
}

/// Carries bytes until one side ends, or there is something that is not to arrive: that ends the connection. `goes_on` is
/// asked when there is something.
fn copy(mut from: TcpStream, mut to: TcpStream, goes_on: impl Fn() -> bool) {
    let mut bytes = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !goes_on() || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[test]
fn a_cluster_that_is_not_there_is_told_in_time() {
    let begin = Instant::now();
    let options = EtcdOptions::new().request_time(Duration::from_millis(500));
    let error = EtcdKv::connect([nobody()], options).unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(30));
    assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error}");
    assert_eq!(error.effect(), Effect::None);
    assert_eq!(Status::from(error).reason(), Reason::ServerTimeout);
    for bad in ["ftp://a", "http://a b"] {
        let error = EtcdKv::connect([bad], EtcdOptions::new()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidOption { .. }), "{error}");
    }
    let none: [&str; 0] = [];
    assert!(EtcdKv::connect(none, EtcdOptions::new()).is_err());
}

#[test]
fn the_next_member_is_asked_where_one_is_gone() {
    let Some(etcd) = start() else { return };
    let kv = EtcdKv::connect([nobody(), etcd.endpoint()], EtcdOptions::new()).unwrap();
    assert_eq!(put(&kv, "v").unwrap(), 2);
    let mut watch = kv.watch(WATCH).unwrap();
    assert_eq!(watch.next_timeout(PATIENCE).unwrap().unwrap().revision, 2);
}

#[test]
fn a_write_to_an_etcd_that_is_gone_has_changed_nothing() {
    let Some(mut etcd) = start() else { return };
    let options = EtcdOptions::new().request_time(Duration::from_secs(2));
    let kv = EtcdKv::connect([etcd.endpoint()], options).unwrap();
    put(&kv, "v").unwrap();
    etcd.kill();
    // The first one may find out that the connection is broken while it is on its way.
    let _ = put(&kv, "w");
    let error = put(&kv, "x").unwrap_err();
    assert_eq!(error.effect(), Effect::None, "{error}");
    let error = kv.get(b"k", None).unwrap_err();
    assert_eq!(error.effect(), Effect::None, "{error}");
    etcd.restart();
    assert!(put(&kv, "y").is_ok(), "it is there again");
}

#[test]
fn an_answer_that_does_not_arrive_leaves_a_write_unknown() {
    let Some(etcd) = start() else { return };
    let between = Between::new(&etcd.endpoint());
    let options = EtcdOptions::new().request_time(Duration::from_secs(3));
    let kv = EtcdKv::connect([&between.endpoint], options).unwrap();
    let pods = pods_in(kv.clone());
    between.is_silent.store(true, Ordering::SeqCst);
    let status = pods.create("default", pod("web"), &CreateOptions::default()).unwrap_err();
    assert!(status.is_unknown(), "{status}");
    assert_eq!(status.code(), 504);
    let status = pods.get("default", "web", &GetOptions::default()).unwrap_err();
    assert!(!status.is_unknown(), "{status}");
    between.is_silent.store(false, Ordering::SeqCst);
    pods.get("default", "web", &GetOptions::default()).expect("it had been made");
    let error = put(&kv, "v").map(|_| ());
    assert!(error.is_ok());
}

#[test]
fn a_watch_goes_on_where_it_was_exactly_once_and_in_order() {
    let Some(mut etcd) = start() else { return };
    let kv = connect(&etcd);
    let mut watch = kv.watch(WATCH).unwrap();
    let mut expected = 2;
    for round in 0..3 {
        for n in 0..20 {
            put(&kv, &format!("{round} {n}")).unwrap();
            if n % 3 == 0 {
                let told = watch.next_timeout(PATIENCE).unwrap().unwrap();
                assert_eq!(told.revision, expected);
                expected += 1;
            }
        }
        etcd.restart();
        // What happened while nobody watched.
        let endpoint = etcd.endpoint();
        etcdctl(&endpoint, &["put", "k", "beside"]);
    }
    let last = connect(&etcd).revision().unwrap();
    while expected <= last {
        let told = watch.next_timeout(PATIENCE).unwrap().expect("there is more");
        assert_eq!((told.revision, told.events.len()), (expected, 1));
        let value = told.events[0].prev_kv.as_ref().map(|kv| kv.mod_revision);
        assert_eq!(value, (expected > 2).then(|| expected - 1));
        expected += 1;
    }
    assert_eq!(watch.next_timeout(Duration::from_millis(300)).unwrap().map(|it| it.revision), None);
}

#[test]
fn what_was_compacted_while_it_was_away_is_told() {
    let Some(mut etcd) = start() else { return };
    let between = Between::new(&etcd.endpoint());
    let kv = EtcdKv::connect([&between.endpoint], EtcdOptions::new()).unwrap();
    let mut watch = kv.watch(WATCH).unwrap();
    put(&kv, "v").unwrap();
    assert_eq!(watch.next_timeout(PATIENCE).unwrap().unwrap().revision, 2);
    between.is_silent.store(true, Ordering::SeqCst);
    etcd.restart();
    for _ in 0..5 {
        etcdctl(&etcd.endpoint(), &["put", "k", "beside"]);
    }
    etcdctl(&etcd.endpoint(), &["compact", "6"]);
    between.is_silent.store(false, Ordering::SeqCst);
    let error = watch.next_timeout(PATIENCE).unwrap_err().into_kind();
    assert!(matches!(error, ErrorKind::Compacted { requested: 3, compacted: 6, .. }), "{error:?}");
    let error = watch.next_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed));
}
