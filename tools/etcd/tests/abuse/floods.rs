//! Much of what is cheap to send, and connections that say half of it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use annals_etcd::proto::etcdserverpb as pb;
use pb::lease_client::LeaseClient;
use pb::watch_client::WatchClient;
use pb::watch_request::RequestUnion;
use tokio::sync::mpsc;
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;

use crate::server::{LONG, Running, put, scaled, watch};
use crate::wire::{
    CONTINUATION, DATA, END_HEADERS, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, WINDOW_UPDATE,
    call, connect, flood, frame, raw, text,
};

const STATUS: &str = "/etcdserverpb.Maintenance/Status";

/// Frames of one kind, again and again.
fn again(frame: Vec<u8>, times: usize) -> impl Iterator<Item = Vec<u8>> {
    std::iter::repeat_n(frame, times)
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_frames() {
    let server = Running::start(&[]).await;
    let many = scaled(100_000);
    let streams = || (0..u32::try_from(many / 5).unwrap()).map(|number| 2 * number + 1);
    let flooded = |what: &str, frames: &mut dyn Iterator<Item = Vec<u8>>| {
        let whole = block_in_place(|| flood(&mut connect(&server), frames));
        eprintln!("{what}: {}", if whole { "taken" } else { "ended" });
        whole
    };
    flooded(
        "resets",
        &mut streams().map(|stream| {
            let asked = frame(HEADERS, END_HEADERS, stream, &call(STATUS));
            [asked, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
        }),
    );
    flooded("pings", &mut again(frame(PING, 0, 0, &[1; 8]), many));
    flooded("settings", &mut again(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]), many));
    flooded(
        "table sizes",
        &mut (0..many).map(|number| {
            frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, if number % 2 == 0 { 0 } else { 255 }])
        }),
    );
    flooded("windows", &mut again(frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()), many));
    flooded("empty data", &mut {
        let asked = frame(HEADERS, END_HEADERS, 1, &call(STATUS));
        std::iter::once(asked).chain(again(frame(DATA, 0, 1, &[]), many))
    });
    // Headers that never end.
    for length in [0, 1, 16_000] {
        let spelled = [&[0x00][..], &text(b"x"), &text(&vec![b'a'; length])].concat();
        let begun = frame(HEADERS, 0, 1, &call(STATUS));
        let rest = again(frame(CONTINUATION, 0, 1, &spelled), many / 10);
        let whole = flooded("continuations", &mut std::iter::once(begun).chain(rest));
        assert!(!whole || length < 16_000, "megabytes of headers were taken");
    }
    // One entry of the table, again and again: small to send, large to have.
    let entry = [&[0x40][..], &text(b"x"), &text(&[b'a'; 3000])].concat();
    let bomb = [call(STATUS), entry, vec![0xbe; 10_000]].concat();
    flooded(
        "one header thousands of times",
        &mut streams().take(500).map(|stream| frame(HEADERS, END_HEADERS, stream, &bomb)),
    );
    // Unknown frames, and what is no HTTP at all.
    // Larger than what a connection holds, so that it comes at the pace of the server.
    flooded("unknown frames", &mut again(frame(0xfa, 0xff, 3, &[0; 1000]), many / 20));
    block_in_place(|| flood(&mut raw(&server), again(vec![0xff; 1000], 10_000)));
    timeout(LONG, server.check_serves()).await.unwrap();
    server.check_memory("floods of frames", 300);
}

/// How many connections are open.
fn connections(server: &Running) -> u64 {
    let mut stream = raw(server);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    let line = metrics.lines().find_map(|line| line.strip_prefix("annals_connections "));
    line.unwrap().parse().unwrap()
}

/// Clients that send much that asks for nothing, and stay or leave: who stays is read slowly, and who leaves is gone,
/// though most of what it sent was not read.
#[tokio::test(flavor = "multi_thread")]
async fn floods_that_last_and_floods_that_leave() {
    let server = Running::start(&[]).await;
    // Of a kind that nobody knows, and that no answer earns.
    let unknown = frame(0xfa, 0, 0, &[]).repeat(5000);
    let begun = Instant::now();
    let open: Vec<TcpStream> = block_in_place(|| {
        let begun = (0..100).map(|_| {
            let mut stream = connect(&server);
            stream.write_all(&unknown).unwrap();
            stream
        });
        begun.collect()
    });
    timeout(LONG, server.check_serves()).await.unwrap();
    assert!(connections(&server) > 100);
    drop(open);
    while connections(&server) > 5 {
        // What all of them have sent would be read in 25 s, less what a second before had saved up.
        assert!(begun.elapsed() < Duration::from_secs(15), "they are still there");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_half() {
    let server = Running::start(&[]).await;
    let said: [Vec<u8>; 5] = [
        Vec::new(),
        PREFACE[..10].to_vec(),
        PREFACE.to_vec(),
        [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frame(HEADERS, 4, 1, &call(STATUS))[..20]].concat(),
        b"POST /v3/kv/put HTTP/1.1\r\nHost: a\r\nContent-Le".to_vec(),
    ];
    let open: Vec<TcpStream> = block_in_place(|| {
        let begun = (0..300).map(|number| {
            let mut stream = raw(&server);
            stream.write_all(&said[number % said.len()]).unwrap();
            stream
        });
        begun.collect()
    });
    // Calls without a message.
    let mut calls = connect(&server);
    block_in_place(|| {
        for number in 0..u32::try_from(scaled(10_000)).unwrap() {
            let asked = frame(HEADERS, END_HEADERS, 2 * number + 1, &call(STATUS));
            if calls.write_all(&asked).is_err() {
                break;
            }
        }
    });
    timeout(LONG, server.check_serves()).await.unwrap();
    server.check_memory("300 connections that say half, 10,000 calls without a message", 400);
    drop(open);
}

fn cancel(watch_id: i64) -> pb::WatchRequest {
    let cancel = pb::WatchCancelRequest { watch_id };
    pb::WatchRequest { request_union: Some(RequestUnion::CancelRequest(cancel)) }
}

fn progress() -> pb::WatchRequest {
    let progress = pb::WatchProgressRequest {};
    pb::WatchRequest { request_union: Some(RequestUnion::ProgressRequest(progress)) }
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_made_and_cancelled() {
    let server = Running::start(&[]).await;
    let count = i64::try_from(scaled(20_000)).unwrap();
    let (ask, asked) = mpsc::channel(64);
    let told = WatchClient::new(server.channel().await).watch(ReceiverStream::new(asked)).await;
    let mut told = told.unwrap().into_inner();
    let asks = tokio::spawn(async move {
        for number in 0..count {
            ask.send(watch("k", 0)).await.unwrap();
            ask.send(cancel(number)).await.unwrap();
        }
        ask
    });
    let (mut created, mut canceled) = (0, 0);
    while canceled < count {
        let answer = timeout(LONG, told.message()).await.unwrap().unwrap().unwrap();
        created += i64::from(answer.created);
        canceled += i64::from(answer.canceled);
    }
    assert_eq!(created, count);
    asks.await.unwrap();
    server.check_serves().await;
    server.check_memory("watches made and cancelled", 300);
}

/// Each of many watches that is asked how far it has come is asked once, not once for each of the others.
#[tokio::test(flavor = "multi_thread")]
async fn progress_of_many_watches() {
    let server = Running::start(&[]).await;
    let count = scaled(30_000);
    let (ask, asked) = mpsc::channel(64);
    let told = WatchClient::new(server.channel().await).watch(ReceiverStream::new(asked)).await;
    let mut told = told.unwrap().into_inner();
    let asks = ask.clone();
    tokio::spawn(async move {
        for _ in 0..count {
            asks.send(watch("k", 0)).await.unwrap();
        }
    });
    for _ in 0..count {
        assert!(timeout(LONG, told.message()).await.unwrap().unwrap().unwrap().created);
    }
    let mut kv = server.kv().await;
    let (mut notices, wanted) = (0, 3);
    for _ in 0..wanted {
        // Of another key: all watches are behind, and told nothing.
        let revision =
            kv.put(put("other", "")).await.unwrap().into_inner().header.unwrap().revision;
        for _ in 0..100 {
            ask.send(progress()).await.unwrap();
        }
        loop {
            let answer = timeout(LONG, told.message()).await.unwrap().unwrap().unwrap();
            assert!(answer.events.is_empty() && answer.watch_id == -1);
            if answer.header.unwrap().revision >= revision {
                break;
            }
        }
        notices += 1;
    }
    assert_eq!(notices, wanted);
    server.check_serves().await;
    server.check_memory("progress of 30,000 watches", 600);
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals() {
    let server = Running::start(&[]).await;
    let mut lease = LeaseClient::new(server.channel().await);
    let granted = lease.lease_grant(pb::LeaseGrantRequest { ttl: 3600, id: 7 }).await.unwrap();
    assert_eq!(granted.into_inner().id, 7);
    let count = scaled(20_000);
    let ids = (0..count).map(|number| if number % 2 == 0 { 7 } else { 8 });
    let asked = tokio_stream::iter(ids.map(|id| pb::LeaseKeepAliveRequest { id }));
    let mut told = lease.lease_keep_alive(asked).await.unwrap().into_inner();
    let mut renewed = 0;
    while let Some(answer) = timeout(LONG, told.message()).await.unwrap().unwrap() {
        renewed += usize::from(answer.ttl > 0);
    }
    assert_eq!(renewed, count / 2);
    server.check_serves().await;
    server.check_memory("renewals", 300);
}
