//! Lock and Election through the JSON gateway: clients that wait in lines, and what becomes of their places.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::child::LONG;
use crate::common::{Answer, Running, post, request};

fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

fn plain(value: &Value) -> String {
    let bytes = STANDARD.decode(value.as_str().unwrap()).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// What is asked and answered well.
fn ask(to: SocketAddr, path: &str, body: &Value) -> Value {
    let answer = post(to, &format!("/v3/{path}"), &body.to_string());
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.json()
}

fn grant(to: SocketAddr, id: i64) {
    ask(to, "lease/grant", &json!({"TTL": 600, "ID": id}));
}

fn revoke(to: SocketAddr, id: i64) {
    ask(to, "lease/revoke", &json!({"ID": id}));
}

/// The keys below a prefix in the order in which they were made.
fn keys(to: SocketAddr, prefix: &str) -> Vec<String> {
    let (key, end) = (base64(&format!("{prefix}/")), base64(&format!("{prefix}0")));
    let asked = json!({"key": key, "range_end": end, "sort_target": "CREATE", "keys_only": true});
    let found = ask(to, "kv/range", &asked);
    found["kvs"].as_array().into_iter().flatten().map(|kv| plain(&kv["key"])).collect()
}

/// Waits until these are the keys below a prefix.
fn wait_for(to: SocketAddr, prefix: &str, wanted: &[&str]) {
    let begun = Instant::now();
    loop {
        let found = keys(to, prefix);
        if found == wanted {
            return;
        }
        assert!(begun.elapsed() < LONG, "{found:?}, not {wanted:?}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// A request that waits: its connection, which can be cut, and the answer.
struct Waiting {
    connection: TcpStream,
    answer: JoinHandle<std::io::Result<Answer>>,
}

impl Waiting {
    fn begin(to: SocketAddr, path: &str, body: &Value) -> Self {
        let mut connection = TcpStream::connect(to).unwrap();
        connection.set_read_timeout(Some(LONG)).unwrap();
        let line = format!("POST /v3/{path}");
        connection.write_all(&request(&line, &[], &body.to_string())).unwrap();
        let reader = connection.try_clone().unwrap();
        Self { connection, answer: std::thread::spawn(move || Answer::read(reader)) }
    }

    fn done(self) -> Answer {
        self.answer.join().unwrap().unwrap()
    }

    /// The client goes away.
    fn cut(self) {
        assert!(!self.answer.is_finished(), "it waits");
        self.connection.shutdown(std::net::Shutdown::Both).unwrap();
        let _ = self.answer.join().unwrap();
    }
}

fn lock(lease: i64) -> Value {
    json!({"name": base64("l"), "lease": lease})
}

#[test]
fn a_lock_goes_to_the_next_when_a_lease_ends() {
    let ours = Running::start(&[]);
    let to = ours.address();
    for id in [1, 2, 3] {
        grant(to, id);
    }
    let first = ask(to, "lock/lock", &lock(1));
    assert_eq!(plain(&first["key"]), "l/1");
    let second = Waiting::begin(to, "lock/lock", &lock(2));
    wait_for(to, "l", &["l/1", "l/2"]);
    let third = Waiting::begin(to, "lock/lock", &lock(3));
    wait_for(to, "l", &["l/1", "l/2", "l/3"]);
    assert!(!second.answer.is_finished() && !third.answer.is_finished());
    revoke(to, 1);
    let second = second.done();
    assert_eq!((second.status, plain(&second.json()["key"])), (200, "l/2".to_owned()));
    assert_eq!(keys(to, "l"), ["l/2", "l/3"]);
    assert!(!third.answer.is_finished());
    // Who waits and loses the lease is told when it would be its turn, as by etcd.
    revoke(to, 3);
    wait_for(to, "l", &["l/2"]);
    ask(to, "lock/unlock", &json!({"key": base64("l/2")}));
    let third = third.done();
    assert_eq!(
        (third.status, &third.json()["message"]),
        (500, &json!("mutex: session is expired"))
    );
    assert_eq!(keys(to, "l"), [""; 0]);
}

#[test]
fn a_lease_that_nobody_renews_gives_its_lock_up() {
    let ours = Running::start(&[]);
    let to = ours.address();
    ask(to, "lease/grant", &json!({"TTL": 1, "ID": 1}));
    grant(to, 2);
    ask(to, "lock/lock", &lock(1));
    let second = Waiting::begin(to, "lock/lock", &lock(2)).done();
    assert_eq!((second.status, plain(&second.json()["key"])), (200, "l/2".to_owned()));
    assert_eq!(keys(to, "l"), ["l/2"]);
}

#[test]
fn a_client_that_goes_away_leaves_its_place() {
    let ours = Running::start(&[]);
    let to = ours.address();
    for id in [1, 2, 3] {
        grant(to, id);
    }
    let stand = |lease| json!({"name": base64("e"), "lease": lease, "value": base64("v")});
    for (path, asked, prefix) in [
        ("lock/lock", &(|id| lock(id)) as &dyn Fn(i64) -> Value, "l"),
        ("election/campaign", &stand, "e"),
    ] {
        let of = |id: i64| format!("{prefix}/{id}");
        let (one, two, three) = (of(1), of(2), of(3));
        ask(to, path, &asked(1));
        let second = Waiting::begin(to, path, &asked(2));
        wait_for(to, prefix, &[&one, &two]);
        let third = Waiting::begin(to, path, &asked(3));
        wait_for(to, prefix, &[&one, &two, &three]);
        second.cut();
        wait_for(to, prefix, &[&one, &three]);
        // The lease is the client's own, and stays.
        assert_eq!(ask(to, "lease/timetolive", &json!({"ID": 2}))["grantedTTL"], "600");
        ask(to, "kv/deleterange", &json!({"key": base64(&one)}));
        assert_eq!(third.done().status, 200);
        assert_eq!(keys(to, prefix), [three]);
    }
}

/// The lines of a stream as they come.
struct Lines(BufReader<TcpStream>);

impl Lines {
    fn begin(to: SocketAddr, path: &str, body: &Value) -> Self {
        let mut connection = TcpStream::connect(to).unwrap();
        connection.set_read_timeout(Some(LONG)).unwrap();
        let line = format!("POST /v3/{path}");
        connection.write_all(&request(&line, &[], &body.to_string())).unwrap();
        Self(BufReader::new(connection))
    }

    /// The next line that is JSON: heads and the lengths of chunks are none.
    fn next(&mut self) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended");
            if line.starts_with('{') {
                return serde_json::from_str(&line).unwrap();
            }
        }
    }

    /// Who leads now, and what it proclaims.
    fn leader(&mut self) -> (String, String) {
        let line = self.next();
        let kv = &line["result"]["kv"];
        assert!(line["result"]["header"]["revision"].is_string(), "{line}");
        (plain(&kv["key"]), plain(&kv["value"]))
    }
}

#[test]
fn observers_are_told_who_leads() {
    let ours = Running::start(&[]);
    let to = ours.address();
    for id in [1, 2] {
        grant(to, id);
    }
    let of = json!({"name": base64("e")});
    let stand =
        |id: i64, value: &str| json!({"name": base64("e"), "lease": id, "value": base64(value)});
    let led = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let nobody = post(to, "/v3/election/leader", &of.to_string());
    assert_eq!((nobody.status, &nobody.json()["message"]), (500, &json!("election: no leader")));
    let first = ask(to, "election/campaign", &stand(1, "a"));
    let leader = &first["leader"];
    assert_eq!((plain(&leader["name"]), plain(&leader["key"])), led("e", "e/1"));
    let mut observed = Lines::begin(to, "election/observe", &of);
    assert_eq!(observed.leader(), led("e/1", "a"));
    let second = Waiting::begin(to, "election/campaign", &stand(2, "b"));
    wait_for(to, "e", &["e/1", "e/2"]);
    ask(to, "election/proclaim", &json!({"leader": leader, "value": base64("aa")}));
    assert_eq!(observed.leader(), led("e/1", "aa"));
    assert_eq!(plain(&ask(to, "election/leader", &of)["kv"]["value"]), "aa");
    assert!(!second.answer.is_finished());
    ask(to, "election/resign", &json!({"leader": leader}));
    let second = second.done();
    assert_eq!((second.status, plain(&second.json()["leader"]["key"])), (200, "e/2".to_owned()));
    assert_eq!(observed.leader(), led("e/2", "b"));
    // Who has resigned leads no more, and cannot take it from another.
    let asked = json!({"leader": leader, "value": base64("x")});
    let late = post(to, "/v3/election/proclaim", &asked.to_string());
    assert_eq!((late.status, &late.json()["message"]), (500, &json!("election: not leader")));
    ask(to, "election/resign", &json!({"leader": leader}));
    assert_eq!(plain(&ask(to, "election/leader", &of)["kv"]["value"]), "b");
    // Nobody leads, then somebody does again.
    revoke(to, 2);
    wait_for(to, "e", &[]);
    ask(to, "election/campaign", &stand(1, "c"));
    assert_eq!(observed.leader(), led("e/1", "c"));
    // A stream is told when the server stops.
    ours.shutdown.begin();
    let end = observed.next();
    assert_eq!(end["error"]["message"], "etcdserver: server stopped", "{end}");
}

#[test]
fn who_waits_is_not_forgotten_when_the_server_stops() {
    let mut ours = Running::start(&["--shutdown-timeout=200ms"]);
    let to = ours.address();
    for id in [1, 2] {
        grant(to, id);
    }
    ask(to, "lock/lock", &lock(1));
    let second = Waiting::begin(to, "lock/lock", &lock(2));
    wait_for(to, "l", &["l/1", "l/2"]);
    ours.shutdown.begin();
    // It cannot get the lock any more: it is cut, and is told no lock.
    assert!(second.answer.join().unwrap().is_err());
    let ended = ours.ended.take().unwrap();
    ours.runtime
        .block_on(async { tokio::time::timeout(LONG, ended).await })
        .unwrap()
        .unwrap()
        .unwrap();
}
