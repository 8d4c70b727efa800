//! Signals: the first one ends the server in good order whatever is open, the second at once, others as with etcd.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use annals_etcd::proto::etcdserverpb as pb;
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use pb::watch_client::WatchClient;
use pb::watch_request::RequestUnion;
use rand::RngExt as _;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::child::{LONG, Spawned};
use crate::common::http;

async fn channel(to: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{to}")).unwrap().connect().await.unwrap()
}

fn put(key: String, value: Vec<u8>) -> pb::PutRequest {
    pb::PutRequest { key: key.into(), value: value.into(), ..<_>::default() }
}

async fn count(to: SocketAddr, prefix: &str) -> Vec<String> {
    let end = format!("{prefix}~").into();
    let key = prefix.to_owned().into();
    let asked = pb::RangeRequest { key, range_end: end, keys_only: true, ..<_>::default() };
    let mut kv = KvClient::new(channel(to).await).max_decoding_message_size(usize::MAX);
    let found = kv.range(asked).await.unwrap().into_inner().kvs;
    found.into_iter().map(|kv| String::from_utf8(kv.key.to_vec()).unwrap()).collect()
}

fn flags(text: &[&str]) -> Vec<String> {
    text.iter().map(|flag| (*flag).to_owned()).collect()
}

async fn watch(channel: &Channel) -> Streaming<pb::WatchResponse> {
    let create = pb::WatchCreateRequest { key: "w".into(), ..<_>::default() };
    let create = pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    let asked = tokio_stream::iter([create]).chain(tokio_stream::pending());
    let mut told = WatchClient::new(channel.clone()).watch(asked).await.unwrap().into_inner();
    assert!(told.message().await.unwrap().unwrap().created);
    told
}

async fn keep_alive(channel: &Channel) -> Streaming<pb::LeaseKeepAliveResponse> {
    let mut lease = LeaseClient::new(channel.clone());
    lease.lease_grant(pb::LeaseGrantRequest { ttl: 600, id: 7 }).await.unwrap();
    let asked = tokio_stream::iter([pb::LeaseKeepAliveRequest { id: 7 }]);
    let told = lease.lease_keep_alive(asked.chain(tokio_stream::pending())).await;
    let mut told = told.unwrap().into_inner();
    assert_eq!(told.message().await.unwrap().unwrap().id, 7);
    told
}

/// Puts keys until it is refused: those that were acknowledged, each told as well.
fn write(
    channel: &Channel,
    writer: usize,
    told: mpsc::UnboundedSender<()>,
) -> JoinHandle<Vec<String>> {
    let mut kv = KvClient::new(channel.clone());
    tokio::spawn(async move {
        let mut written = Vec::new();
        for number in 0.. {
            let key = format!("p{writer}-{number:06}");
            if kv.put(put(key.clone(), Vec::new())).await.is_err() {
                break;
            }
            written.push(key);
            let _ = told.send(());
        }
        written
    })
}

/// A snapshot of which one part has come, and more is to come than is on its way.
async fn snapshot(to: SocketAddr) -> Streaming<pb::SnapshotResponse> {
    let mut client = MaintenanceClient::new(channel(to).await);
    let mut told = client.snapshot(pb::SnapshotRequest {}).await.unwrap().into_inner();
    assert!(told.message().await.unwrap().unwrap().remaining_bytes > 4 << 20);
    told
}

fn is_stopped(status: &Status) -> bool {
    (status.code(), status.message()) == (Code::Unavailable, "etcdserver: server stopped")
}

fn ends_in_good_order(signal: &str) {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Spawned::start(directory.path(), &flags(&["--shutdown-timeout=10m"]));
    let to = server.address;
    Runtime::new().unwrap().block_on(async {
        let calls = channel(to).await;
        let mut kv = KvClient::new(calls.clone());
        for number in 0..24 {
            let mut value = vec![0; 1 << 20];
            rand::rng().fill(&mut value[..]);
            kv.put(put(format!("large{number}"), value)).await.unwrap();
        }
        let (mut watch, mut alive) = (watch(&calls).await, keep_alive(&calls).await);
        let mut snapshot = snapshot(to).await;
        let (tell, mut told) = mpsc::unbounded_channel();
        let writers: Vec<_> = (0..4).map(|writer| write(&calls, writer, tell.clone())).collect();
        for _ in 0..200 {
            timeout(LONG, told.recv()).await.unwrap().unwrap();
        }
        server.signal(signal);
        // Streams that wait are told, and a snapshot whose client reads on is whole.
        assert!(is_stopped(&timeout(LONG, watch.message()).await.unwrap().unwrap_err()));
        assert!(is_stopped(&timeout(LONG, alive.message()).await.unwrap().unwrap_err()));
        let mut left = u64::MAX;
        while let Some(part) = timeout(LONG, snapshot.message()).await.unwrap().unwrap() {
            left = part.remaining_bytes;
        }
        assert_eq!(left, 0);
        let mut written = Vec::new();
        for writer in writers {
            written.extend(timeout(LONG, writer).await.unwrap().unwrap());
        }
        assert_eq!(server.ended().code(), Some(0));
        server = Spawned::start(directory.path(), &[]);
        let found = count(server.address, "p").await;
        assert!(written.len() >= 200 && written.iter().all(|key| found.contains(key)));
        // A put whose answer was lost may be there.
        assert!(found.len() <= written.len() + 4, "{} of {}", written.len(), found.len());
    });
}

#[test]
fn terminated_with_much_under_way() {
    ends_in_good_order("TERM");
}

#[test]
fn interrupted_with_much_under_way() {
    ends_in_good_order("INT");
}

#[test]
fn a_snapshot_that_nobody_reads_is_cut() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Spawned::start(directory.path(), &flags(&["--shutdown-timeout=200ms"]));
    Runtime::new().unwrap().block_on(async {
        let mut kv = KvClient::new(channel(server.address).await);
        for number in 0..24 {
            let mut value = vec![0; 1 << 20];
            rand::rng().fill(&mut value[..]);
            kv.put(put(format!("large{number}"), value)).await.unwrap();
        }
        let mut snapshot = snapshot(server.address).await;
        server.signal("TERM");
        server.wait_for("cutting connections that did not end in time");
        assert_eq!(server.ended().code(), Some(0));
        // Who reads now is not told that this is all.
        let end = loop {
            match snapshot.message().await {
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(status) => break Some(status),
            }
        };
        assert!(end.is_some());
        let server = Spawned::start(directory.path(), &[]);
        assert_eq!(count(server.address, "large").await.len(), 24);
    });
}

#[test]
fn who_asks_for_nothing_holds_nothing_up() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Spawned::start(directory.path(), &flags(&["--shutdown-timeout=10m"]));
    let open = |text: &[u8]| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(text).unwrap();
        stream
    };
    let mut idle = vec![open(b""), open(b"PRI * HT")];
    // One that has been answered, and is kept for the next request.
    let mut kept = open(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut answer = [0; 15];
    std::io::Read::read_exact(&mut kept, &mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    idle.push(kept);
    // All of them have been accepted: those behind them are served.
    assert_eq!(http(server.address, "GET /health", &[], "").status, 200);
    server.signal("TERM");
    assert_eq!(server.ended().code(), Some(0));
    drop(idle);
}

#[test]
fn who_says_half_of_something_is_cut() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let directory = tempfile::tempdir().unwrap();
    let half = [
        &b"GET /hea"[..],
        b"GET /health HTTP/1.1\r\nHost: a\r\nX: ",
        b"POST /v3/kv/put HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{",
        preface,
        // No answer comes when it is asked whether all has come.
        &[&preface[..], b"\0\0\0\x04\0\0\0\0\0"].concat(),
    ];
    for said in half {
        let mut server = Spawned::start(directory.path(), &flags(&["--shutdown-timeout=100ms"]));
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(said).unwrap();
        assert_eq!(http(server.address, "GET /health", &[], "").status, 200);
        server.signal("TERM");
        assert_eq!(server.ended().code(), Some(0));
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let directory = tempfile::tempdir().unwrap();
    for (first, second) in [("TERM", "TERM"), ("INT", "INT"), ("TERM", "INT")] {
        let mut server = Spawned::start(directory.path(), &flags(&["--shutdown-timeout=10m"]));
        let mut half = TcpStream::connect(server.address).unwrap();
        half.write_all(b"POST /v3/kv/put HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
            .unwrap();
        let key = format!("k{first}{second}");
        Runtime::new().unwrap().block_on(async {
            let mut kv = KvClient::new(channel(server.address).await);
            kv.put(put(key, Vec::new())).await.unwrap();
        });
        server.signal(first);
        server.wait_for("received signal; shutting down");
        server.signal(second);
        server.wait_for("received a second signal; ending at once");
        assert_eq!(server.ended().code(), Some(1));
    }
    let server = Spawned::start(directory.path(), &[]);
    let found = Runtime::new().unwrap().block_on(count(server.address, "k"));
    assert_eq!(found, ["kINTINT", "kTERMINT", "kTERMTERM"]);
}

#[test]
fn a_signal_before_it_serves_ends_it_in_good_order() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Spawned::begin(directory.path(), &[]);
    server.wait_for("starting an etcd server");
    server.signal("TERM");
    server.wait_for("closed etcd server");
    assert_eq!(server.ended().code(), Some(0));
}

/// Whether this process, and so all that it starts, ignores SIGHUP, as below nohup.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 != 0)
}

/// A hang-up ends an etcd by Go's default, without a word; so it ends this one, and takes nothing with it.
#[test]
fn a_hangup_ends_it_as_it_ends_etcd() {
    if ignores_hangups() {
        eprintln!("skipped: SIGHUP is ignored here");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut server = Spawned::start(directory.path(), &[]);
    Runtime::new().unwrap().block_on(async {
        let mut kv = KvClient::new(channel(server.address).await);
        kv.put(put("k".to_owned(), Vec::new())).await.unwrap();
    });
    server.signal("HUP");
    assert_eq!(server.ended().signal(), Some(1));
    let server = Spawned::start(directory.path(), &[]);
    assert_eq!(Runtime::new().unwrap().block_on(count(server.address, "k")), ["k"]);
}

/// An etcd is ended by SIGPIPE when nobody reads its log (Go's rule for the first descriptors). This one serves on.
#[test]
fn a_log_that_nobody_reads_does_not_end_it() {
    let directory = tempfile::tempdir().unwrap();
    let logged = flags(&["--log-outputs=stdout,stderr", "--log-level=debug"]);
    let mut server = Spawned::start(directory.path(), &logged);
    let healthy = |server: &Spawned| http(server.address, "GET /health", &[], "").status == 200;
    // Each answer is a line of the log.
    let begun = std::time::Instant::now();
    while !server.is_unheard() {
        assert!(healthy(&server) && begun.elapsed() < LONG);
    }
    assert!(healthy(&server) && healthy(&server));
    server.signal("PIPE");
    assert!(healthy(&server));
    server.signal("TERM");
    assert_eq!(server.ended().code(), Some(0));
}

/// So it is with `--help`, of which one line is enough for some.
#[test]
fn help_that_nobody_reads_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_annals-etcd"))
        .arg("--help")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
