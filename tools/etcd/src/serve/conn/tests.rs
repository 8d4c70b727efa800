//! How long a peer can hold a connection for nothing. Time does not pass here: it is moved on whenever all wait.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::iter::{once, repeat_n};

use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex, split};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::*;
use crate::http::{App, Probe};
use crate::services::Services;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// A server that is well.
struct Well;

impl Probe for Well {
    fn alarms(&self) -> Vec<String> {
        Vec::new()
    }

    fn read(&self) -> Result<(), String> {
        Ok(())
    }

    fn auth_enabled(&self) -> bool {
        false
    }

    fn member_id(&self) -> u64 {
        1
    }

    fn stats(&self) -> Option<annals::Stats> {
        None
    }
}

fn common(flags: &[&str]) -> Common {
    let words: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let config = Config::read(&words, &[]).unwrap();
    let (metrics, shutdown) = (Arc::new(Metrics::default()), Shutdown::default());
    let app =
        App { grpc: Services::default(), probe: Arc::new(Well), metrics: Arc::clone(&metrics) };
    let front = Front::new(&config, app, shutdown.clone()).unwrap();
    let tls = Tls::of(&config).unwrap().map(Arc::new);
    Common { front, metrics, tls, shutdown, builder: builder(&config), spare: Arc::default() }
}

/// A connection to a server that serves it, and the time until it is ended.
fn open(common: Common, secure: bool) -> (DuplexStream, JoinHandle<Duration>) {
    let (ours, theirs) = duplex(1 << 20);
    let served = tokio::spawn(async move {
        let begun = Instant::now();
        common.serve(theirs, Traffic::All, secure, Peer::default()).await;
        begun.elapsed()
    });
    (ours, served)
}

/// How long the server holds a connection on which this comes, a piece each so often, and then nothing, with no end; and
/// what it answers.
async fn held(
    common: Common,
    secure: bool,
    pieces: impl IntoIterator<Item = Vec<u8>>,
    every: Duration,
) -> (u64, String) {
    let (stream, served) = open(common, secure);
    let (mut from, mut to) = split(stream);
    let mut answer = Vec::new();
    let write = async {
        for piece in pieces {
            if to.write_all(&piece).await.is_err() {
                break;
            }
            sleep(every).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        read = timeout(100 * HOUR, from.read_to_end(&mut answer)) => drop(read.unwrap()),
        () = write => {}
    }
    (served.await.unwrap().as_secs(), String::from_utf8_lossy(&answer).into_owned())
}

/// The same for what comes at once.
async fn held_after(text: &[u8]) -> (u64, String) {
    held(common(&[]), false, once(text.to_vec()), SECOND).await
}

fn drops(text: &[u8]) -> Vec<Vec<u8>> {
    text.iter().map(|byte| vec![*byte]).collect()
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_or_half_a_preface_is_ended() {
    let limit = HEADER_TIME.as_secs();
    for said in [0, 1, 10, PREFACE.len()] {
        assert_eq!(held_after(&PREFACE[..said]).await.0, limit, "{said} bytes");
    }
    let settings = [PREFACE, &frame(4, 0, 0, &[0, 4, 0, 0, 255, 255])].concat();
    assert_eq!(held_after(&settings[..PREFACE.len() + 8]).await.0, limit);
    // Drop by drop, and each of them in time.
    let slow = held(common(&[]), false, drops(&settings[..32]), 5 * SECOND).await;
    assert_eq!(slow.0, limit);
}

#[tokio::test(start_paused = true)]
async fn headers_of_http_1_that_do_not_end_are_ended() {
    let limit = HEADER_TIME.as_secs();
    let head = b"POST /v3/kv/range HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nX: ";
    for said in [1, 5, 30, head.len()] {
        assert_eq!(held_after(&head[..said]).await.0, limit, "{said} bytes");
    }
    let endless = head.iter().copied().chain(repeat_n(b'x', 10_000)).map(|byte| vec![byte]);
    assert_eq!(held(common(&[]), false, endless, SECOND).await.0, limit);
    // So are those that come behind an answer, and a connection on which nothing comes any more.
    let asked = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
    for rest in [&head[..0], &head[..30]] {
        let pieces = [asked.clone(), rest.to_vec()];
        let (time, answer) = held(common(&[]), false, pieces, 10 * SECOND).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!((limit..=limit + 10).contains(&time), "{time} s");
    }
}

/// Seconds that an ended connection waits for its peer to end it as well.
const LINGERS: u64 = 1;

#[tokio::test(start_paused = true)]
async fn bodies_that_do_not_end_are_refused() {
    let limit = crate::gateway::BODY_TIME.as_secs();
    // A call, a stream of which not even the first message comes, and one that says nothing at all.
    let cases = [("/v3/kv/range", "{"), ("/v3/watch", "{\"create_request\""), ("/v3/watch", "")];
    for (path, body) in cases {
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{body}");
        let (time, answer) = held_after(head.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 504 "), "{path}: {answer}");
        assert!(answer.contains("\"code\":4"), "{path}: {answer}");
        assert_eq!(time, limit + LINGERS, "{path}");
        let slow = once(head.into_bytes()).chain(repeat_n(b" ".to_vec(), 990));
        let (time, answer) = held(common(&[]), false, slow, SECOND).await;
        assert!(answer.starts_with("HTTP/1.1 504 "), "{path}: {answer}");
        assert_eq!(time, limit + LINGERS, "{path}");
    }
}

/// By HTTP/2 nothing tells half a frame from none: who does not answer when asked is ended.
#[tokio::test(start_paused = true)]
async fn who_speaks_http_2_and_does_not_answer_is_ended() {
    let greeting = [PREFACE, &frame(4, 0, 0, &[])].concat();
    let headers = frame(1, 0, 1, &[0x83, 0x86]);
    let said = [
        greeting.clone(),
        // Half of the settings.
        [PREFACE, &frame(4, 0, 0, &[0; 6])[..12]].concat(),
        // Half of the headers: a frame that others have to follow, and half a frame.
        [&greeting[..], &headers].concat(),
        [&greeting[..], &headers[..10]].concat(),
        // Headers whose body does not come: `POST`, `http` and `/`.
        [&greeting[..], &frame(1, 4, 1, &[0x83, 0x86, 0x84])].concat(),
    ];
    for said in said {
        assert_eq!(held_after(&said).await.0, 7200 + 20 + LINGERS, "{said:?}");
        let asked = common(&["--grpc-keepalive-interval=10s", "--grpc-keepalive-timeout=5s"]);
        let (time, _) = held(asked, false, once(said.clone()), SECOND).await;
        assert_eq!(time, 10 + 5 + LINGERS, "{said:?}");
    }
    // Headers that come drop by drop are no answer.
    let asked = common(&["--grpc-keepalive-interval=10s", "--grpc-keepalive-timeout=5s"]);
    let slow = once([&greeting[..], &frame(1, 0, 1, &[0; 200])[..9]].concat());
    let slow = slow.chain(repeat_n(vec![0x83], 190));
    assert_eq!(held(asked, false, slow, SECOND).await.0, 10 + 5 + LINGERS);
}

/// Reads a frame: its kind, its flags and what is in it. None at the end.
async fn next_frame(from: &mut DuplexStream) -> Option<(u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    from.read_exact(&mut head).await.ok()?;
    let mut payload = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
    from.read_exact(&mut payload).await.ok()?;
    Some((head[3], head[4], payload))
}

#[tokio::test(start_paused = true)]
async fn who_answers_when_asked_stays() {
    let asked = common(&["--grpc-keepalive-interval=10s", "--grpc-keepalive-timeout=5s"]);
    let (mut stream, served) = open(asked, false);
    stream.write_all(&[PREFACE, &frame(4, 0, 0, &[])].concat()).await.unwrap();
    let (begun, mut answered) = (Instant::now(), 0);
    while let Some((kind, flags, payload)) = next_frame(&mut stream).await {
        if kind == 6 && flags & 1 == 0 && begun.elapsed() < HOUR {
            stream.write_all(&frame(6, 1, 0, &payload)).await.unwrap();
            answered += 1;
        }
    }
    assert_eq!(answered, 3600 / 10 - 1);
    let time = served.await.unwrap();
    assert!((HOUR..HOUR + 30 * SECOND).contains(&time), "{time:?}");
}

/// As `--help` says, no connection is ended for its pings, whatever `--grpc-keepalive-min-time` is: an etcd ends a client
/// that pings more often. Each is answered, though who sends many waits for that, and what it asks behind them, too.
#[tokio::test(start_paused = true)]
async fn pings_are_answered_at_a_pace() {
    const PINGS: u64 = 10_000;
    let common = common(&["--grpc-keepalive-min-time=1h"]);
    let metrics = Arc::clone(&common.metrics);
    let (mut stream, served) = open(common, false);
    let mut said = [PREFACE, &frame(4, 0, 0, &[])].concat();
    for number in 0..PINGS {
        said.extend(frame(6, 0, 0, &number.to_be_bytes()));
    }
    said.extend(frame(1, 5, 1, &call("/etcdserverpb.Maintenance/Status")));
    stream.write_all(&said).await.unwrap();
    let (begun, mut answered) = (Instant::now(), 0_u64);
    loop {
        let (kind, flags, payload) = next_frame(&mut stream).await.unwrap();
        assert_ne!(kind, 7, "a goodbye");
        if kind == 6 && flags & 1 == 1 {
            assert_eq!(payload, answered.to_be_bytes());
            answered += 1;
        }
        if kind == 1 {
            break;
        }
    }
    assert_eq!(answered, PINGS);
    let time = begun.elapsed();
    assert!((2 * SECOND..10 * SECOND).contains(&time), "{time:?}");
    assert_eq!(metrics.slowed_connections.load(Ordering::Relaxed), 1);
    assert!(!served.is_finished());
    drop(stream);
    served.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_tls_handshake_that_does_not_end_is_ended() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(path("pem"), certificate.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(path("key"), key.serialize_pem()).unwrap();
    let (certificate, key) = (
        format!("--cert-file={}", path("pem").display()),
        format!("--key-file={}", path("key").display()),
    );
    // The head of a record of a handshake, of 512 bytes, and of a greeting in it.
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 100]].concat();
    for (flags, limit) in [
        (&[&certificate[..], &key][..], 10),
        (&[&certificate, &key, "--tls-handshake-timeout=3s"], 3),
    ] {
        for said in [0, 1, 5, hello.len()] {
            let common = common(flags);
            let metrics = Arc::clone(&common.metrics);
            let said = once(hello[..said].to_vec());
            assert_eq!(held(common, true, said, SECOND).await.0, limit);
            assert_eq!(metrics.failed_handshakes.load(Ordering::Relaxed), 1);
            assert_eq!(metrics.connections.load(Ordering::Relaxed), 0);
        }
        let slow = drops(&hello);
        assert_eq!(held(common(flags), true, slow, SECOND).await.0, limit);
    }
}

/// A call of a method, by a way that leaves no entries in the table of headers.
fn call(path: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let fields = [
        (&[0x83, 0x86, 0x04][..], path),
        (&[0x01], "localhost"),
        (&[0x0f, 0x10], "application/grpc"),
    ];
    fields.into_iter().flat_map(|(name, value)| [name, &text(value)].concat()).collect()
}

/// How many calls of it were begun.
fn begun(metrics: &Metrics) -> u64 {
    let mut text = crate::metrics::Text::default();
    metrics.write(&mut text);
    let text = text.finish();
    let counts =
        text.lines().filter_map(|line| line.strip_prefix("grpc_server_started_total{grpc_method="));
    counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Calls that are begun and cancelled by the hundred, so that each costs the server more than its client.
#[tokio::test(start_paused = true)]
async fn what_is_cancelled_at_once_is_not_begun() {
    const CALLS: u64 = 900;
    let common = common(&[]);
    let metrics = Arc::clone(&common.metrics);
    let (mut stream, served) = open(common, false);
    let mut said = [PREFACE, &frame(4, 0, 0, &[])].concat();
    let fields = call("/etcdserverpb.Maintenance/Status");
    for number in (1..2 * u32::try_from(CALLS).unwrap()).step_by(2) {
        for (kind, flags, payload) in [(1, 4, &fields[..]), (3, 0, &[0, 0, 0, 8])] {
            let mut one = frame(kind, flags, 0, payload);
            one[5..9].copy_from_slice(&number.to_be_bytes());
            said.extend(one);
        }
    }
    stream.write_all(&said).await.unwrap();
    // What is asked behind them is answered.
    stream.write_all(&frame(6, 0, 0, &[7; 8])).await.unwrap();
    loop {
        let (kind, flags, _) = next_frame(&mut stream).await.unwrap();
        assert_ne!(kind, 7, "a goodbye");
        if kind == 6 && flags & 1 == 1 {
            break;
        }
    }
    drop(stream);
    served.await.unwrap();
    // Those that are not crowded out begin.
    let begun = begun(&metrics);
    assert!(begun <= CALLS / 2, "{begun} of {CALLS} were begun");
}

/// Streams that the server has to end since they break the rules: as good as cancelled ones, and nobody needs many.
#[tokio::test(start_paused = true)]
async fn who_breaks_the_rules_again_and_again_is_ended() {
    let (mut stream, served) = open(common(&[]), false);
    let mut said = [PREFACE, &frame(4, 0, 0, &[])].concat();
    // `content-length: 0`, and a byte.
    let fields = [&call("/etcdserverpb.Maintenance/Status")[..], &[0x0f, 0x0d, 1, b'0']].concat();
    for number in (1..200).step_by(2) {
        said.extend(frame(1, 4, number, &fields));
        said.extend(frame(0, 0, number, &[0]));
    }
    stream.write_all(&said).await.unwrap();
    let mut resets = 0;
    loop {
        let (kind, _, payload) = next_frame(&mut stream).await.unwrap();
        if kind == 7 {
            assert_eq!(payload[7], 11, "to be calm");
            break;
        }
        resets += usize::from(kind == 3);
    }
    assert!(resets <= 64, "{resets} streams");
    drop(stream);
    served.await.unwrap();
}

/// However much has come, others have their turn before all of it is read.
#[tokio::test]
async fn what_has_come_is_read_in_turns() {
    let (mut ours, theirs) = duplex(1 << 20);
    ours.write_all(&vec![7; 40 * TURN_BYTES]).await.unwrap();
    let mut spoken = Spoken { stream: theirs, read: 0, turn: 0, limit: None, ending: None };
    let turns = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let others = Arc::clone(&turns);
    let other = tokio::spawn(async move {
        loop {
            others.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let mut piece = vec![0; 1024];
    for _ in 0..40 * TURN_BYTES / piece.len() {
        spoken.read_exact(&mut piece).await.unwrap();
    }
    assert!(turns.load(Ordering::Relaxed) >= 38, "{turns:?}");
    other.abort();
}
