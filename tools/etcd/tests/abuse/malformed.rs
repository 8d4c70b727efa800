//! Messages that are none, or far too many.

use std::io::{Read as _, Write as _};

use annals_etcd::proto::DESCRIPTORS;
use annals_etcd::proto::etcdserverpb as pb;
use prost_reflect::DescriptorPool;
use tokio::task::block_in_place;
use tonic::Code;

use crate::server::{Running, put};
use crate::wire::{DATA, END_HEADERS, END_STREAM, HEADERS, call, connect, frame, message, raw};

/// Numbers that are the same each time.
fn random(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Transactions in each other, so many deep, as they are on the wire.
fn nested(depth: usize) -> Vec<u8> {
    let mut pieces = Vec::new();
    let mut length = 0_usize;
    let varint = |mut number: usize| {
        let mut bytes = Vec::new();
        while number >= 128 {
            bytes.push(u8::try_from(number % 128).unwrap() | 128);
            number /= 128;
        }
        bytes.push(u8::try_from(number).unwrap());
        bytes
    };
    for level in 0..2 * depth {
        let tag = if level % 2 == 0 { 0x22 } else { 0x12 };
        let head = [vec![tag], varint(length)].concat();
        length += head.len();
        pieces.push(head);
    }
    pieces.reverse();
    pieces.concat()
}

/// What is sent as the body of a call.
fn bodies() -> Vec<Vec<u8>> {
    let mut next = random(7);
    let mut bodies: Vec<_> = [0, 1, 2, 3, 10, 100, 1000, 5000]
        .into_iter()
        .map(|length| message(&(0..length).map(|_| next().to_le_bytes()[0]).collect::<Vec<_>>()))
        .collect();
    let key = [0x0a, 0x01, b'k'];
    bodies.extend([
        // Nothing; half a head; lengths that are not so; a message that never comes.
        Vec::new(),
        vec![0, 0, 0],
        vec![0, 0, 0, 0, 9, 1],
        vec![0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3],
        vec![0, 0x7f, 0xff, 0xff, 0xff],
        // Compressed, it says.
        vec![1, 0, 0, 0, 3, 1, 2, 3],
        vec![2, 0, 0, 0, 0],
        // A field cut, one longer than the message, numbers without an end, a field of number 0.
        message(&key[..2]),
        message(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        message(&[0xff; 11]),
        message(&[0x00, 0x01]),
        // Groups without an end.
        message(&[0x0b; 5000]),
        message(&nested(20)),
        message(&nested(3000)),
        // Two messages where one is expected.
        [message(&key), message(&key)].concat(),
    ]);
    bodies
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_none_to_every_method() {
    let server = Running::start(&[]).await;
    let pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
    let methods = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    let mut paths: Vec<_> = methods
        .map(|method| format!("/{}/{}", method.parent_service().full_name(), method.name()))
        .collect();
    assert!(paths.len() > 40);
    paths.extend(["/", "/etcdserverpb.KV/", "/etcdserverpb.KV/No", "*", ""].map(str::to_owned));
    for path in &paths {
        block_in_place(|| {
            let mut stream = connect(&server);
            let mut sent = Vec::new();
            for (number, body) in (0..).zip(bodies()) {
                let number = 2 * number + 1;
                sent.extend(frame(HEADERS, END_HEADERS, number, &call(path)));
                sent.extend(frame(DATA, END_STREAM, number, &body));
            }
            // A last word, to which the answer comes when the others have been read.
            sent.extend(frame(crate::wire::PING, 0, 0, &[7; 8]));
            let _ = stream.write_all(&sent);
            let mut all = Vec::new();
            let mut piece = [0; 4096];
            let told = frame(crate::wire::PING, 1, 0, &[7; 8]);
            while !all.windows(told.len()).any(|bytes| bytes == told) {
                match stream.read(&mut piece) {
                    Ok(0) | Err(_) => break,
                    Ok(length) => all.extend_from_slice(&piece[..length]),
                }
            }
        });
    }
    server.check_serves().await;
    server.check_memory("malformed messages", 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_too_large() {
    let server = Running::start(&[]).await;
    let mut kv = server.kv().await;
    for _ in 0..5 {
        let refused = kv.put(put("k", vec![7; 100 << 20])).await.unwrap_err();
        assert!(matches!(refused.code(), Code::OutOfRange | Code::ResourceExhausted), "{refused}");
    }
    let one = pb::RequestOp { request: Some(pb::request_op::Request::RequestPut(put("k", "v"))) };
    let many = pb::TxnRequest { success: vec![one; 10_000], ..Default::default() };
    assert_eq!(kv.txn(many).await.unwrap_err().code(), Code::InvalidArgument);
    server.check_serves().await;
    server.check_memory("messages of 100 MB", 300);
}

/// Sends a request over HTTP/1.1, as it is; the status of the answer, 0 for none.
fn status(server: &Running, head: &str, body: &[u8]) -> u16 {
    let mut stream = raw(server);
    let mut writer = stream.try_clone().unwrap();
    let sent = [head.replace('\n', "\r\n").as_bytes(), b"\r\n\r\n", body].concat();
    let writing = std::thread::spawn(move || writer.write_all(&sent).is_ok());
    let mut told = Vec::new();
    let _ = stream.read_to_end(&mut told);
    let _ = writing.join();
    let told = String::from_utf8_lossy(&told).into_owned();
    told.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn json_that_is_none() {
    let server = Running::start(&[]).await;
    let post = |path: &str, body: &[u8]| {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\nHost: localhost\nConnection: close\nContent-Length: {length}"
        );
        block_in_place(|| status(&server, &head, body))
    };
    let deep = [
        "[".repeat(1 << 20),
        "{\"a\":".repeat(200_000),
        "{\"success\":[{\"request_txn\":".repeat(10_000),
    ];
    for text in &deep {
        for path in ["/v3/kv/txn", "/v3/watch", "/v3/lease/keepalive"] {
            let status = post(path, text.as_bytes());
            assert!((400..500).contains(&status), "{path}: {status}");
        }
    }
    let wrong = [
        r#"{"key":1}"#,
        r#"{"key":"!"}"#,
        r#"{"key":{}}"#,
        r#"{"key":["YQ=="]}"#,
        "[]",
        "7",
        "\"a\"",
        r#"{"key":"YQ==","lease":"a"}"#,
        r#"{"key":"YQ==","lease":1e400}"#,
        r#"{"key":"YQ==","lease":99999999999999999999}"#,
        r#"{"key":"#,
        "{",
        "}",
    ];
    for text in wrong {
        let status = post("/v3/kv/put", text.as_bytes());
        assert!((400..500).contains(&status), "{text}: {status}");
    }
    assert_eq!(post("/v3/kv/put", b"{\"key\":\"\xff\xfe\"}"), 400);
    let huge = [b"{\"key\":\"", &vec![b'Y'; 64 << 20][..], b"\"}"].concat();
    assert!(matches!(post("/v3/kv/put", &huge), 0 | 400..500));
    let refused = [
        "POST /v3/kv/put HTTP/1.1\nHost: a\nContent-Length: 5\nContent-Length: 6",
        "POST /v3/kv/put HTTP/1.1\nHost: a\nContent-Length: -1",
        "POST /v3/kv/put HTTP/1.1\nHost: a\nTransfer-Encoding: chunked, identity",
        "GET /health HTTP/1.1\nHost : a",
        "GET /health HTTP/1.1\nHost: a\n b: c",
        "GET /hea\0lth HTTP/1.1\nHost: a",
    ];
    for head in refused {
        let status = block_in_place(|| status(&server, head, b"{}"));
        assert!(matches!(status, 0 | 400..500), "{head}: {status}");
    }
    // Both lengths: the chunks count, and the connection ends, so nothing is left for another request to be made of.
    let both = "POST /v3/kv/put HTTP/1.1\nHost: a\nContent-Length: 3\nTransfer-Encoding: chunked\nConnection: close";
    let smuggled = b"0\r\n\r\nGET /version HTTP/1.1\r\nHost: a\r\n\r\n";
    let _ = block_in_place(|| status(&server, both, smuggled));
    let many = format!("GET /health HTTP/1.1\nHost: a{}", "\na: b".repeat(5000));
    assert!(matches!(block_in_place(|| status(&server, &many, b"")), 0 | 400..500));
    server.check_serves().await;
    server.check_memory("JSON that is none", 400);
}
