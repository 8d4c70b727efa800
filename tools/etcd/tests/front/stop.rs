//! Limits of connections, and how the server stops.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use annals_etcd::proto::etcdserverpb::kv_client::KvClient;
use annals_etcd::proto::etcdserverpb::watch_client::WatchClient;
use annals_etcd::proto::etcdserverpb::{
    PutRequest, WatchCreateRequest, WatchRequest, watch_request,
};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;

use crate::child::LONG;
use crate::common::{Running, http, post};

fn create(key: &'static str) -> WatchRequest {
    let create = WatchCreateRequest { key: key.into(), ..WatchCreateRequest::default() };
    WatchRequest { request_union: Some(watch_request::RequestUnion::CreateRequest(create)) }
}

#[test]
fn streams_are_told_and_the_server_ends() {
    let mut ours = Running::start(&["--shutdown-timeout", "10m"]);
    let (url, shutdown) = (format!("http://{}", ours.address()), ours.shutdown.clone());
    let begun = Instant::now();
    let ended = ours.ended.take().unwrap();
    ours.runtime.block_on(async move {
        let mut watch = WatchClient::connect(url.clone()).await.unwrap();
        let mut kv = KvClient::connect(url.clone()).await.unwrap();
        let asked = tokio_stream::iter([create("a")]).chain(tokio_stream::pending());
        let mut told = watch.watch(asked).await.unwrap().into_inner();
        assert!(told.message().await.unwrap().unwrap().created);
        kv.put(PutRequest { key: "a".into(), ..PutRequest::default() }).await.unwrap();
        assert_eq!(told.message().await.unwrap().unwrap().events.len(), 1);
        shutdown.begin();
        let status = told.message().await.unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (tonic::Code::Unavailable, "etcdserver: server stopped")
        );
        timeout(LONG, ended).await.unwrap().unwrap().unwrap();
        assert!(kv.put(PutRequest { key: "a".into(), ..PutRequest::default() }).await.is_err());
        assert!(KvClient::connect(url).await.is_err());
    });
    assert!(begun.elapsed() < LONG);
}

#[test]
fn what_does_not_end_is_cut() {
    let mut ours = Running::start(&["--shutdown-timeout", "300ms"]);
    // Half a request.
    let mut stream = TcpStream::connect(ours.address()).unwrap();
    stream
        .write_all(b"POST /v3/kv/put HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    ours.shutdown.begin();
    let ended = ours.ended.take().unwrap();
    ours.runtime.block_on(timeout_of(ended));
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
}

async fn timeout_of(ended: tokio::task::JoinHandle<Result<(), String>>) {
    timeout(LONG, ended).await.unwrap().unwrap().unwrap();
}

#[test]
fn connections_are_counted() {
    let ours = Running::start(&["--max-connections", "2"]);
    let mut first = TcpStream::connect(ours.address()).unwrap();
    let second = TcpStream::connect(ours.address()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let address = ours.address();
    let third = std::thread::spawn(move || http(address, "GET /health", &[], "").status);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!third.is_finished());
    first.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(third.join().unwrap(), 200);
    drop(second);
}

#[test]
fn headers_have_a_limit() {
    let ours = Running::start(&[]);
    let header = format!("X: {}", "a".repeat(100_000));
    assert_eq!(http(ours.address(), "GET /health", &[&header], "").status, 431);
}

#[test]
fn sockets_of_the_file_system() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let flag = format!("--listen-client-urls=http://127.0.0.1:0,unix://{}", path.display());
    let mut ours = Running::start(&[&flag]);
    post(ours.address(), "/v3/kv/put", r#"{"key":"YQ=="}"#);
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(&crate::common::request("GET /health", &[], "")).unwrap();
    assert_eq!(crate::common::Answer::read(stream).unwrap().status, 200);
    ours.shutdown.begin();
    ours.runtime.block_on(timeout_of(ours.ended.take().unwrap()));
    assert!(!path.exists());
}
