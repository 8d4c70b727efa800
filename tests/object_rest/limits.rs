//! What clients that watch can take of the server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::client::{Client, MERGE, PODS, assert_status, pod};
use crate::kube_api::Limits;

const WATCH: &str = "/api/v1/namespaces/default/pods?watch=true&resourceVersion=0";

/// Tries again for what may take a while: a place is free when a thread has seen that its client is gone.
fn again(what: &str, mut attempt: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if attempt() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not within half a minute");
}

/// More watches than the runtime has threads for requests.
#[test]
fn watches_leave_requests_their_threads() {
    let client = Client::new();
    let watches: Vec<_> =
        (0..8).map(|_| client.watch(&format!("{PODS}?watch=true&resourceVersion=0"))).collect();
    assert_eq!(client.post(PODS, &pod("web")).0, 201);
    for watch in watches {
        assert_eq!({ watch }.next().expect("a line")["type"], "ADDED");
    }
}

#[test]
fn one_watch_more_than_there_may_be_is_refused() {
    assert_eq!(Limits::default().watches, 1_000);
    let client = Client::of(Limits { watches: 3, ..Limits::default() });
    client.post(PODS, &pod("web"));
    let mut watches: Vec<_> = (0..3).map(|_| client.watch(WATCH)).collect();
    let refused = client.get(WATCH);
    assert_status(&refused, 429, "TooManyRequests");
    let message = "too many watches at the same time, please try again later: 3 are open";
    assert_eq!(refused.1["message"], message);
    // All else goes on, also for those that watch already.
    assert_eq!(client.get(PODS).0, 200);
    assert_eq!(watches[0].next().expect("a line")["type"], "ADDED");
    // One that cannot be opened takes no place from others.
    watches.pop();
    again("a place that is free", || client.code(&format!("{WATCH}&timeoutSeconds=0")) == 200);
    for _ in 0..5 {
        assert_status(&client.get(&format!("{WATCH}&labelSelector=%21%21")), 400, "BadRequest");
    }
    assert_eq!(client.watch(WATCH).next().expect("a line")["type"], "ADDED");
}

#[test]
fn a_watch_whose_client_does_not_read_is_ended() {
    let usual = Limits::default();
    assert_eq!((usual.patience, usual.bytes), (Duration::from_secs(30), 1 << 20));
    let limits = Limits { watches: 1, patience: Duration::from_millis(100), ..usual };
    is_ended(Limits { lines: 1, bytes: 1 << 30, ..limits });
    // However many lines there may be, long ones are no more than this.
    is_ended(Limits { lines: 1_000, bytes: 1, ..limits });
}

fn is_ended(limits: Limits) {
    let client = Client::of(limits);
    client.post(PODS, &pod("web"));
    let mut silent = TcpStream::connect(client.address).expect("a connection");
    let request = format!("GET {WATCH} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    silent.write_all(request.as_bytes()).expect("a request");
    // It is there, and reads no more than the beginning.
    let mut begun = [0; 12];
    silent.read_exact(&mut begun).expect("an answer");
    assert_eq!(&begun, b"HTTP/1.1 200");
    assert_eq!(client.get(WATCH).0, 429);

    // More than lies between them, as long as it takes.
    let web = format!("{PODS}/web");
    let large = "x".repeat(1 << 20);
    let mut changes = 0;
    again("the end of the watch", || {
        changes += 1;
        let patch = json!({"spec": {"nodeName": format!("{changes}{large}")}});
        assert_eq!(client.patch(&web, MERGE, &patch).0, 200);
        client.code(&format!("{WATCH}&timeoutSeconds=0")) == 200
    });
    // What has come so far is whole lines, but not all; then comes the end.
    let mut told = Vec::new();
    silent.read_to_end(&mut told).expect("an end");
    let text = String::from_utf8(told).expect("a text");
    let told = text.matches("\"type\":\"MODIFIED\"").count();
    assert!(told < changes && told < 100, "{told} of {changes}");
    // Who reads is told all of it.
    let last = client.watch(WATCH).next().expect("a line");
    let node = last["object"]["spec"]["nodeName"].as_str().expect("a node");
    assert!(node.starts_with(&changes.to_string()), "{changes}");
}
