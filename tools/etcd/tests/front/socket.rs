//! The gateway by WebSocket, beside that of a real etcd.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message, WebSocket, client};

use crate::child::LONG;
use crate::common::{Running, http, post};
use crate::gateway::{Etcd, strip};

type Socket = WebSocket<TcpStream>;

/// A WebSocket to a path, asked for with such headers.
fn connect(to: SocketAddr, path: &str, headers: &[(&'static str, &'static str)]) -> Socket {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut request = format!("ws://{to}{path}").into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, HeaderValue::from_static(value));
    }
    let (socket, answer) = client(request, stream).unwrap();
    assert_eq!(answer.status(), 101);
    socket
}

fn say(socket: &mut Socket, text: &str) {
    socket.send(Message::text(text)).unwrap();
}

/// The next message, without what differs from server to server.
fn hear(socket: &mut Socket) -> Value {
    let text = socket.read().unwrap().into_text().unwrap();
    let mut value = serde_json::from_str(&text).unwrap_or_else(|_| text.to_string().into());
    strip(&mut value);
    value
}

/// How it ends: etcd hangs up without a word.
fn end(mut socket: Socket) -> Option<Message> {
    match socket.read() {
        Ok(last) => Some(last),
        Err(Error::ConnectionClosed | Error::Protocol(_) | Error::Io(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn calls_and_streams_are_answered_as_by_etcd() {
    let etcd = Etcd::start();
    let ours = Running::start(&[]);
    let both = std::iter::once(ours.address()).chain(etcd.as_ref().map(|etcd| etcd.address));
    let mut told = Vec::new();
    for address in both {
        let mut heard = Vec::new();
        for (path, said) in [
            ("kv/put", r#"{"key":"Zm9v","value":"YmFy"}"#),
            ("kv/range", r#"{"key":"Zm9v"}"#),
            ("kv/range", r#"{"key":7}"#),
            ("kv/compaction", r#"{"revision":"100"}"#),
            ("lease/grant", r#"{"TTL":"100","ID":"7"}"#),
        ] {
            let mut socket = connect(address, &format!("/v3/{path}"), &[]);
            say(&mut socket, said);
            let mut answer = hear(&mut socket);
            // The words of the parser are its own.
            if answer["code"] == 3 {
                answer = answer["code"].clone();
            }
            heard.push(answer);
            end(socket);
        }
        let mut watch = connect(address, "/v3/watch", &[]);
        say(&mut watch, r#"{"create_request":{"key":"Zm9v","start_revision":"2"}}"#);
        heard.extend([hear(&mut watch), hear(&mut watch)]);
        post(address, "/v3/kv/put", r#"{"key":"Zm9v","value":"eHg="}"#);
        heard.push(hear(&mut watch));
        say(&mut watch, r#"{"create_request":{"key":"Zm8="}}"#);
        heard.push(hear(&mut watch));
        // Two requests in one message.
        let mut alive = connect(address, "/v3/lease/keepalive", &[]);
        say(&mut alive, "{\"ID\":\"7\"}\n{\"ID\":\"8\"}");
        heard.extend([hear(&mut alive), hear(&mut alive)]);
        say(&mut alive, r#"{"ID":"7"}"#);
        heard.push(hear(&mut alive));
        told.push(heard);
    }
    assert!(told[0].len() == 12 && !told[0].contains(&Value::Null), "{told:#?}");
    assert!(told.windows(2).all(|pair| pair[0] == pair[1]), "{told:#?}");
}

#[test]
fn who_asks_is_told_by_a_subprotocol_or_a_cookie() {
    let ours = Running::start(&[]);
    let address = ours.address();
    for (path, body) in [
        ("role/add", r#"{"name":"root"}"#),
        ("user/add", r#"{"name":"root","password":"secret"}"#),
        ("user/grant", r#"{"user":"root","role":"root"}"#),
        ("enable", "{}"),
    ] {
        assert_eq!(post(address, &format!("/v3/auth/{path}"), body).status, 200, "{path}");
    }
    let login = r#"{"name":"root","password":"secret"}"#;
    let token = post(address, "/v3/auth/authenticate", login).json()["token"].clone();
    let token = token.as_str().unwrap();
    let leak = |text: String| -> &'static str { text.leak() };
    let get = |headers: &[(&'static str, &'static str)]| {
        let mut socket = connect(address, "/v3/kv/range", headers);
        say(&mut socket, r#"{"key":"Zm9v"}"#);
        hear(&mut socket)["error"].clone()
    };
    assert_eq!(get(&[]), "etcdserver: user name is empty");
    let cookie = leak(format!("a=b; token={token}"));
    assert_eq!(get(&[("cookie", cookie)]), Value::Null);
    for text in [format!("Bearer, {token}"), format!("Bearer,{token}")] {
        assert_eq!(get(&[("sec-websocket-protocol", leak(text))]), Value::Null);
    }
    assert_eq!(
        get(&[("sec-websocket-protocol", "Bearer, wrong")]),
        "etcdserver: invalid auth token"
    );
}

#[test]
fn the_server_says_that_it_has_ended() {
    let ours = Running::start(&[]);
    let mut socket = connect(ours.address(), "/v3/nope", &[]);
    say(&mut socket, "{}");
    assert_eq!(hear(&mut socket), json!({"error": "Not Found", "code": 5, "message": "Not Found"}));
    assert!(matches!(end(socket), Some(Message::Close(_))));
    // What is no message ends it, too, and so does the client.
    let mut socket = connect(ours.address(), "/v3/lease/keepalive", &[]);
    say(&mut socket, "{");
    say(&mut socket, "]");
    assert_eq!(hear(&mut socket)["code"], 3);
    assert!(matches!(end(socket), Some(Message::Close(_))));
    let mut socket = connect(ours.address(), "/v3/watch", &[]);
    say(&mut socket, r#"{"create_request":{"key":"Zm9v"}}"#);
    hear(&mut socket);
    let code = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    socket.close(Some(code)).unwrap();
    assert!(matches!(end(socket), Some(Message::Close(_))));
}

#[test]
fn a_server_that_stops_waits_for_none() {
    let mut ours = Running::start(&[]);
    let mut watch = connect(ours.address(), "/v3/watch", &[]);
    say(&mut watch, r#"{"create_request":{"key":"Zm9v"}}"#);
    hear(&mut watch);
    let silent = connect(ours.address(), "/v3/watch", &[]);
    let begun = Instant::now();
    ours.shutdown.begin();
    let hung_up = std::thread::spawn(move || {
        while !matches!(watch.read(), Ok(Message::Close(_)) | Err(_)) {}
        end(silent)
    });
    let ended = ours.ended.take().unwrap();
    ours.runtime.block_on(ended).unwrap().unwrap();
    hung_up.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

/// How many connections the server has, but for the one that asks.
fn connections(ours: &Running) -> u64 {
    let metrics = http(ours.address(), "GET /metrics", &[], "").body;
    let open = metrics.lines().find_map(|line| line.strip_prefix("annals_connections "));
    open.unwrap().parse::<u64>().unwrap() - 1
}

fn until_none_is_left(ours: &Running, what: &str) {
    let begun = Instant::now();
    while connections(ours) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}: {}", connections(ours));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_client_that_is_gone_is_noticed_whatever_it_sent_before() {
    let ours = Running::start(&[]);
    let address = ours.address();
    // Somebody has the lock.
    let mut lock = connect(address, "/v3/lock/lock", &[]);
    say(&mut lock, r#"{"name":"TA=="}"#);
    hear(&mut lock);
    end(lock);
    let watch = r#"{"create_request":{"key":"Zm9v"}}"#;
    for (path, first) in [
        ("watch", watch),
        ("watch", "[1]"),
        ("election/observe", r#"{"name":"TA=="}"#),
        ("lock/lock", r#"{"name":"TA=="}"#),
    ] {
        for number in 0..5 {
            let mut socket = connect(address, &format!("/v3/{path}"), &[]);
            say(&mut socket, first);
            for _ in 0..number {
                say(&mut socket, "{");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        until_none_is_left(&ours, &format!("{path} after {first}"));
    }
    // By HTTP/1.1, where the request has not ended.
    for rest in ["", "2\r\n[]\r\n", "1\r\n}\r\n2\r\n{}\r\n"] {
        let mut stream = TcpStream::connect(address).unwrap();
        let head =
            "POST /v3/watch HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
        let asked = format!("{head}{:x}\r\n{watch}\r\n{rest}", watch.len());
        stream.write_all(asked.as_bytes()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        std::thread::sleep(Duration::from_millis(20));
        drop(stream);
        until_none_is_left(&ours, rest);
    }
}

#[test]
fn who_pings_and_does_not_listen_is_sent_away() {
    let ours = Running::start(&[]);
    let mut socket = connect(ours.address(), "/v3/watch", &[]);
    say(&mut socket, r#"{"create_request":{"key":"Zm9v"}}"#);
    hear(&mut socket);
    for _ in 0..900 {
        socket.send(Message::Ping(vec![7; 100].into())).unwrap();
    }
    while !matches!(socket.read().unwrap(), Message::Pong(_)) {}
    let refused =
        (0..1_000_000).find_map(|_| socket.send(Message::Ping(vec![7; 100].into())).err());
    assert!(refused.is_some(), "a hundred megabytes of pings");
    drop(socket);
    until_none_is_left(&ours, "pings");
}

#[test]
fn pages_of_other_origins_get_none() {
    let ours = Running::start(&["--cors=http://good.example"]);
    let ask = |origin: &str| {
        let headers = ["Connection: Upgrade", "Upgrade: websocket", origin];
        http(ours.address(), "GET /v3/watch", &headers, "").status
    };
    // A handshake that is allowed has then to be one.
    assert_eq!(ask("Origin: http://good.example"), 400);
    assert_eq!(ask("Origin: http://evil.example"), 403);
    assert_eq!(ask("Accept: text/plain"), 400);
}

#[test]
fn what_is_no_handshake_is_refused() {
    let ours = Running::start(&[]);
    let asks = |more: &[&str]| {
        let headers = [&["Connection: Upgrade", "Upgrade: websocket"], more].concat();
        http(ours.address(), "GET /v3/watch", &headers, "").status
    };
    assert_eq!(asks(&[]), 400);
    assert_eq!(asks(&["Sec-WebSocket-Version: 12", "Sec-WebSocket-Key: AAAA"]), 400);
    // Other ends of an upgrade are not spoken.
    let headers = ["Connection: Upgrade", "Upgrade: h2c"];
    assert_eq!(http(ours.address(), "GET /v3/watch", &headers, "").status, 501);
    assert_eq!(post(ours.address(), "/v3/kv/put", r#"{"key":"Zm9v"}"#).status, 200);
}

#[test]
fn messages_that_are_too_large_end_it() {
    let ours = Running::start(&["--max-request-bytes", "1000"]);
    let mut socket = connect(ours.address(), "/v3/kv/put", &[]);
    let body = format!(r#"{{"key":"{}"}}"#, "YWFh".repeat(1_000_000));
    // The server may hang up before all of it has been sent.
    let _ = socket.send(Message::text(body));
    let ended = Instant::now();
    while socket.read().is_ok() {}
    assert!(ended.elapsed() < Duration::from_secs(10));
    assert_eq!(post(ours.address(), "/v3/kv/put", r#"{"key":"Zm9v"}"#).status, 200);
}
