//! The JSON gateway, beside that of a real etcd.

use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::child::LONG;
use crate::common::{Answer, Running, http, post, request};
use crate::etcd_process::{EtcdProcess, Ports};

/// A real etcd.
pub(crate) struct Etcd {
    _process: EtcdProcess,
    pub(crate) address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Etcd {
    /// Starts one, if there is one here.
    pub(crate) fn start() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
            eprintln!("skipped: there is no etcd here");
            return None;
        }
        let command = |ports: Ports| {
            let mut command = Command::new("etcd");
            command.arg("--data-dir").arg(directory.path()).args(ports.flags());
            command
        };
        let process = EtcdProcess::start(command, Ports::are_healthy);
        let address = SocketAddr::from(([127, 0, 0, 1], process.ports.client));
        Some(Self { address, _process: process, _directory: directory })
    }
}

/// What is compared of an answer: not who answered, and not how a parser puts it.
fn plain(answer: &Answer) -> (u16, Value) {
    let status = answer.status;
    let Ok(mut value) = serde_json::from_str::<Value>(&answer.body) else {
        return (status, answer.body.trim().into());
    };
    strip(&mut value);
    (status, value)
}

pub(crate) fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for name in [
                "cluster_id",
                "member_id",
                "raft_term",
                "leader",
                "raftTerm",
                "raftIndex",
                "raftAppliedIndex",
            ] {
                map.remove(name);
            }
            map.values_mut().for_each(strip);
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Requests that are answered alike: path below `/v3/`, and body.
/// Left out, because newer gateways differ from 3.4: enumerations by unknown names (ignored since 3.6), fields given
/// twice (refused since 3.6), numbers such as `1e2` (taken since 3.6), base64 without its padding (the same),
/// `FailedPrecondition` (400 since 3.6, 412 before), the head of an answer about alarms.
const ALIKE: &[(&str, &str)] = &[
    ("kv/put", r#"{"key":"Zm9v","value":"YmFy"}"#),
    ("kv/put", r#"{"key":"Zm9v","value":"YmF6","prev_kv":true}"#),
    ("kv/put", r#"{"key":"Zm8=","value":""}"#),
    ("kv/put", r#"{"key":"YQ==","value":"AP8="}"#),
    ("kv/put", "{}"),
    ("kv/put", r#"{"key":"Zm9v","lease":"123"}"#),
    ("kv/put", r#"{"key":"Zm9v","lease":123}"#),
    ("kv/put", r#"{"key":"Zm9v","ignore_value":true,"value":"YQ=="}"#),
    ("kv/range", r#"{"key":"Zm9v"}"#),
    ("kv/range", r#"{"key":"AA==","range_end":"AA=="}"#),
    ("kv/range", r#"{"key":"AA==","rangeEnd":"AA==","limit":"1"}"#),
    ("kv/range", r#"{"key":"AA==","range_end":"AA==","count_only":true}"#),
    ("kv/range", r#"{"key":"AA==","range_end":"AA==","keys_only":true,"sort_order":"DESCEND"}"#),
    ("kv/range", r#"{"key":"AA==","range_end":"AA==","sort_order":2,"sort_target":"MOD"}"#),
    ("kv/range", r#"{"key":"Zm9v","revision":2}"#),
    ("kv/range", r#"{"key":"Zm9v","revision":"99"}"#),
    ("kv/range", r#"{"nope":{"a":[1,2]},"key":"Zm9v"}"#),
    ("kv/range", r#"{"key":"Zm9v"} {"key":"x"}"#),
    ("kv/range", r#"{"key":"Zm9v","limit":1.5}"#),
    ("kv/range", r#"{"key":"Zm9v","limit":"x"}"#),
    ("kv/range", r#"{"key":"Zm9v","limit":99999999999999999999}"#),
    ("kv/range", r#"{"key":"Zm9v","limit":"9223372036854775808"}"#),
    ("kv/range", r#"{"key":"Zm9v","limit":9223372036854775807}"#),
    ("kv/range", r#"{"key":"Zm9v","limit":"+5"}"#),
    ("kv/range", r#"{"key":"Zm9v","limit":"05"}"#),
    ("kv/range", r#"{"key":"Zm9v","limit":""}"#),
    ("kv/range", r#"{"key":"Zm9v","limit":true}"#),
    ("kv/range", r#"{"key":"Zm9v","limit":null,"sort_order":null,"keys_only":null}"#),
    ("kv/range", r#"{"key":"Zm9v","limit":-0,"sort_order":1}"#),
    ("kv/range", r#"{"key":"Zm9v","limit":1e19}"#),
    ("kv/range", r#"{"key":"Zm9v","sort_order":99999999999}"#),
    ("kv/range", r#"{"key":"Zm9v","nope":1,"nope":2}"#),
    ("kv/range", r#"{"key":["Zm9v"]}"#),
    ("kv/range", r#"{"key":"Zm9="}"#),
    ("kv/range", r#"{"key":"Y Q=="}"#),
    ("kv/range", r#"{"key":"YQ="}"#),
    ("kv/range", r#"{"key":"Zm9v","keys_only":1}"#),
    ("kv/range", r#"{"key":"Zm9v",}"#),
    ("kv/range", r#"{"Key":"Zm9v"}"#),
    ("kv/txn", r#"{"success":{}}"#),
    ("kv/txn", r#"{"success":null,"compare":[]}"#),
    ("kv/txn", r#"{"success":[{"request_range":null}]}"#),
    ("kv/put", r#"{"key":"Zm9v","lease":"-5"}"#),
    ("kv/range", r#"{"key":"Zm9v","keys_only":"true"}"#),
    ("kv/range", r#"{"key":5}"#),
    ("kv/range", r#"{"key":"!!"}"#),
    ("kv/range", r#"{"key":"Zm9"#),
    ("kv/range", r#"{"key":null}"#),
    ("kv/range", "[]"),
    ("kv/range", "null"),
    ("kv/range", ""),
    ("kv/range", "{}"),
    (
        "kv/txn",
        r#"{"compare":[{"target":"VALUE","key":"Zm9v","value":"YmF6"},{"key":"YQ==","target":"MOD","mod_revision":"5"}],
        "success":[{"requestPut":{"key":"Zm9v","value":"YmFy"}},{"request_range":{"key":"Zm9v"}}],
        "failure":[{"request_delete_range":{"key":"Zm9v","prev_kv":true}}]}"#,
    ),
    (
        "kv/txn",
        r#"{"compare":[{"target":"CREATE","result":"GREATER","key":"bm8=","create_revision":0}],
        "failure":[{"request_txn":{"success":[{"request_range":{"key":"YQ=="}}]}}]}"#,
    ),
    ("kv/txn", r#"{"success":[{"request_put":{"key":"YQ=="}},{"request_put":{"key":"YQ=="}}]}"#),
    ("kv/txn", "{}"),
    ("kv/deleterange", r#"{"key":"Zm8=","prev_kv":true}"#),
    ("kv/deleterange", r#"{"key":"bm8="}"#),
    ("kv/compaction", r#"{"revision":"3"}"#),
    ("kv/compaction", r#"{"revision":"3"}"#),
    ("kv/compaction", r#"{"revision":"300"}"#),
    ("kv/range", r#"{"key":"Zm9v","revision":2}"#),
    ("lease/grant", r#"{"TTL":"100","ID":"77"}"#),
    ("kv/put", r#"{"key":"bA==","value":"bA==","lease":"77"}"#),
    ("lease/timetolive", r#"{"ID":"78"}"#),
    ("kv/lease/leases", "{}"),
    ("lease/leases", "{}"),
    ("lease/revoke", r#"{"ID":"77"}"#),
    ("kv/lease/revoke", r#"{"ID":"77"}"#),
];

#[test]
fn requests_are_answered_as_by_a_real_etcd() {
    let Some(etcd) = Etcd::start() else { return };
    let ours = Running::start(&[]);
    for (path, body) in ALIKE {
        for version in
            ["v3", "v3beta"].into_iter().take(if path.ends_with("range") { 2 } else { 1 })
        {
            let path = format!("/{version}/{path}");
            let (own, real) = (post(ours.address(), &path, body), post(etcd.address, &path, body));
            let told = format!("{path} {body}: {own:?} {real:?}");
            let kinds =
                [&own, &real].map(|answer| answer.head.contains("content-type: application/json"));
            assert_eq!(kinds, [true, true], "{told}");
            let grpc = |answer: &Answer| {
                answer.head.contains("grpc-metadata-content-type: application/grpc")
            };
            assert_eq!(grpc(&own), grpc(&real), "{told}");
            let ((own_status, mut own), (real_status, mut real)) = (plain(&own), plain(&real));
            if real["code"] == json!(3) && !real["message"].to_string().contains("etcdserver: ") {
                // A parser's text.
                for value in [&mut own, &mut real] {
                    value.as_object_mut().unwrap().retain(|name, _| name == "code");
                }
            }
            assert_eq!((own_status, own), (real_status, real), "{told}");
        }
    }
}

/// What 3.6 refuses or takes otherwise than 3.4 does.
#[test]
fn what_newer_gateways_read_otherwise() {
    let ours = Running::start(&[]);
    for (path, body, status) in [
        ("kv/range", r#"{"key":"Zm9v","key":"YQ=="}"#, 400),
        ("kv/range", r#"{"key":"Zm9v","range_end":"YQ==","rangeEnd":"YQ=="}"#, 400),
        ("kv/range", r#"{"key":"Zm9v","limit":1e2,"revision":"1.0"}"#, 200),
        ("kv/range", r#"{"key":"Zm8","sort_order":"NOPE"}"#, 200),
        ("kv/range", r#"{"key":"Zm9v","sort_order":9}"#, 400),
        ("kv/txn", r#"{"success":[null]}"#, 400),
        ("kv/txn", r#"{"compare":[{"key":"YQ==","version":"1","mod_revision":"2"}]}"#, 400),
    ] {
        let answer = post(ours.address(), &format!("/v3/{path}"), body);
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        if status == 400 {
            let told = answer.json();
            assert_eq!((&told["code"], &told["message"]), (&json!(3), &told["error"]), "{body}");
        }
    }
}

#[test]
fn transactions_that_are_too_deep_are_refused() {
    let ours = Running::start(&[]);
    for depth in [60, 130, 5000] {
        let mut body = r#"{"success":[{"request_txn":"#.repeat(depth) + "{}";
        body += &"}]}".repeat(depth);
        let answer = post(ours.address(), "/v3/kv/txn", &body);
        let told = "etcdserver: too many operations in txn request";
        let expected = json!({"error": told, "code": 3, "message": told});
        assert_eq!((answer.status, answer.json()), (400, expected), "{depth}");
    }
    assert_eq!(post(ours.address(), "/v3/kv/txn", "{}").status, 200);
}

/// What comes until so many lines have come, each of a piece of a stream.
struct Lines {
    stream: TcpStream,
    wanted: usize,
}

impl Read for Lines {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        // Byte by byte: the lines of the framing end with a carriage return before.
        let mut before = b'\r';
        for at in 0..to.len() {
            if self.wanted == 0 {
                return Ok(at);
            }
            if self.stream.read(&mut to[at..=at])? == 0 {
                return Ok(at);
            }
            self.wanted -= usize::from(to[at] == b'\n' && before != b'\r');
            before = to[at];
        }
        Ok(to.len())
    }
}

#[test]
fn streams_are_lines() {
    let etcd = Etcd::start();
    let ours = Running::start(&[]);
    let both = std::iter::once(ours.address()).chain(etcd.as_ref().map(|etcd| etcd.address));
    let mut told = Vec::new();
    for address in both {
        post(address, "/v3/kv/put", r#"{"key":"Zm9v","value":"YmFy"}"#);
        post(address, "/v3/lease/grant", r#"{"TTL":100,"ID":7}"#);
        let stream = |path: &str, body: &str, wanted: usize| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            stream.write_all(&request(&format!("POST {path}"), &[], body)).unwrap();
            let answer = Answer::read(Lines { stream, wanted }).unwrap();
            let lines = answer.body.lines().map(|line| {
                let mut value: Value = serde_json::from_str(line).unwrap();
                strip(&mut value);
                value
            });
            (
                answer.status,
                answer.head.contains("grpc-metadata-content-type"),
                lines.collect::<Vec<_>>(),
            )
        };
        let watches = r#"{"create_request":{"key":"Zm9v","start_revision":1}}{"create_request":{"key":"Zm8="}}"#;
        let (status, grpc, mut lines) = stream("/v3/watch", watches, 3);
        // Which of two watches is told first is not fixed.
        lines.sort_by_key(ToString::to_string);
        assert_eq!((status, grpc, lines.len()), (200, true, 3), "{lines:?}");
        let alive = stream("/v3/lease/keepalive", r#"{"ID":"7"} {"ID":"8"}"#, 2);
        assert_eq!((alive.0, alive.2.len()), (200, 2), "{alive:?}");
        let broken = stream("/v3/lease/keepalive", r#"{"ID":"7"#, 1);
        assert!(broken.0 >= 400 && broken.2.len() == 1, "{broken:?}");
        told.push((lines, alive));
    }
    assert!(told.windows(2).all(|pair| pair[0] == pair[1]), "{told:#?}");
}

#[test]
fn a_snapshot_comes_in_lines() {
    let ours = Running::start(&[]);
    post(ours.address(), "/v3/kv/put", r#"{"key":"Zm9v","value":"YmFy"}"#);
    let answer = post(ours.address(), "/v3/maintenance/snapshot", "{}");
    if answer.status == 501 {
        return;
    }
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.lines().all(|line| line.starts_with("{\"result\":{")), "{answer:?}");
}

#[test]
fn what_is_not_there() {
    let ours = Running::start(&[]);
    let unknown = post(ours.address(), "/v3/kv/nope", "{}");
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.json(), json!({"error": "Not Found", "code": 5, "message": "Not Found"}));
    let get = http(ours.address(), "GET /v3/kv/range", &[], "");
    assert_eq!((get.status, get.json()["code"].clone()), (501, json!(12)));
    let closed = Running::start(&["--enable-grpc-gateway=false"]);
    assert_eq!(post(closed.address(), "/v3/kv/range", "{}").body, "404 page not found\n");
}

#[test]
fn large_requests_are_refused() {
    let ours = Running::start(&["--max-request-bytes", "1000"]);
    let body = format!(r#"{{"key":"{}"}}"#, "YWFh".repeat(1_000_000));
    let answer = post(ours.address(), "/v3/kv/range", &body);
    assert_eq!((answer.status, answer.json()["code"].clone()), (429, json!(8)));
    let answer = post(ours.address(), "/v3/watch", &body);
    assert_eq!((answer.status, answer.json()["code"].clone()), (429, json!(8)));
}
