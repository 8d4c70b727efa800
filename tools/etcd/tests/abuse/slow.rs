//! Clients that ask for much and take nothing.

use annals_etcd::proto::etcdserverpb as pb;
use pb::kv_client::KvClient;
use pb::maintenance_client::MaintenanceClient;
use pb::watch_client::WatchClient;
use tokio::time::timeout;
use tokio_stream::{StreamExt as _, iter, pending};
use tonic::{Code, Streaming};

use crate::server::{LONG, Running, prefix, put, scaled, watch};

const VALUE: usize = 64 << 10;

/// Values that nothing makes smaller.
fn value(number: usize) -> Vec<u8> {
    let mut state = number as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..VALUE / 8).flat_map(step).collect()
}

pub(crate) async fn fill(server: &Running, prefix: &str, count: usize) {
    let mut kv = server.kv().await;
    for number in 0..count {
        kv.put(put(format!("{prefix}{number:06}"), value(number))).await.unwrap();
    }
}

/// Reads the events of one watch: the keys in their order, each as often as it came.
async fn keys(told: &mut Streaming<pb::WatchResponse>, count: usize) -> Vec<String> {
    let mut keys = Vec::new();
    while keys.len() < count {
        let answer = timeout(LONG, told.message()).await.unwrap().unwrap().unwrap();
        assert!(!answer.canceled, "{answer:?}");
        for event in answer.events {
            keys.push(String::from_utf8(event.kv.unwrap().key.to_vec()).unwrap());
        }
    }
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_that_do_not_read() {
    let server = Running::start(&[]).await;
    let puts = scaled(1200);
    let mut lazy = Vec::new();
    let asked = || iter([watch("w", 0)]).chain(pending());
    for _ in 0..20 {
        let channel = server.patient().await;
        for _ in 0..100 {
            let told = WatchClient::new(channel.clone()).watch(asked()).await.unwrap();
            let mut told = told.into_inner();
            assert!(told.message().await.unwrap().unwrap().created);
            lazy.push(told);
        }
    }
    // And many watches on one stream.
    let many = iter((0..1000).map(|_| watch("w", 0))).chain(pending());
    let many = WatchClient::new(server.patient().await).watch(many).await.unwrap();
    let mut many = many.into_inner();
    for _ in 0..1000 {
        assert!(many.message().await.unwrap().unwrap().created);
    }
    let before = server.memory().0;
    let healthy = WatchClient::new(server.channel().await).max_decoding_message_size(usize::MAX);
    let mut healthy = healthy.clone().watch(asked()).await.unwrap().into_inner();
    assert!(healthy.message().await.unwrap().unwrap().created);
    let reads = tokio::spawn(async move { keys(&mut healthy, puts).await });
    fill(&server, "w", puts).await;
    let expected: Vec<_> = (0..puts).map(|number| format!("w{number:06}")).collect();
    assert_eq!(reads.await.unwrap(), expected);
    eprintln!("before the puts: {} MiB", before >> 20);
    server.check_memory("2,000 streams that are not read", 1200);
    // Who reads again is told everything.
    for told in lazy.iter_mut().step_by(997) {
        assert_eq!(keys(told, puts).await, expected);
    }
    server.check_serves().await;
}

/// What waits for a client must not take what others need: threads, memory, room on the disk.
#[tokio::test(flavor = "multi_thread")]
async fn ranges_in_parts_that_nobody_reads() {
    let server = Running::start(&[]).await;
    fill(&server, "r", 100).await;
    let channel = server.patient().await;
    let mut parts = Vec::new();
    for _ in 0..600 {
        let told = KvClient::new(channel.clone()).range_stream(prefix("r")).await.unwrap();
        parts.push(told.into_inner());
    }
    timeout(LONG, server.check_serves()).await.unwrap();
    assert!(server.threads() < 100, "{} threads", server.threads());
    server.check_memory("600 ranges in parts that are not read", 900);
    let mut kvs = 0;
    while let Some(part) = parts[599].message().await.unwrap() {
        kvs += part.range_response.unwrap().kvs.len();
    }
    assert_eq!(kvs, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_that_nobody_reads() {
    let server = Running::start(&[]).await;
    fill(&server, "s", 320).await;
    let before = server.open_bytes();
    let mut streams = Vec::new();
    for _ in 0..6 {
        let channel = server.patient().await;
        for _ in 0..100 {
            let mut client = MaintenanceClient::new(channel.clone());
            streams.push(tokio::spawn(async move {
                let mut told = client.snapshot(pb::SnapshotRequest {}).await?.into_inner();
                told.message().await.map(|first| (first, told))
            }));
        }
    }
    let (mut open, mut refused) = (Vec::new(), 0);
    for stream in streams {
        match timeout(LONG, stream).await.unwrap().unwrap() {
            Ok((first, told)) => {
                assert!(first.unwrap().remaining_bytes > 0);
                open.push(told);
            }
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                refused += 1;
            }
        }
    }
    assert!(!open.is_empty() && open.len() < 20 && refused > 0, "{} were begun", open.len());
    timeout(LONG, server.check_serves()).await.unwrap();
    assert!(server.threads() < 100, "{} threads", server.threads());
    assert!(server.open_bytes() - before < 1 << 30, "{} on disk", server.open_bytes());
    server.check_memory("600 snapshots that are not read", 900);
    // Who gives up makes room for another.
    drop(open);
    let mut client = MaintenanceClient::new(server.channel().await);
    let whole = async {
        loop {
            let mut bytes = 0;
            let Ok(told) = client.snapshot(pb::SnapshotRequest {}).await else { continue };
            let mut told = told.into_inner();
            loop {
                match told.message().await {
                    Ok(Some(part)) => bytes += part.blob.len(),
                    Ok(None) => return bytes,
                    Err(_) => break,
                }
            }
        }
    };
    assert!(timeout(LONG, whole).await.unwrap() > 320 * VALUE);
}

/// Many clients ask for everything, and take it slowly.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_reads() {
    let server = Running::start(&[]).await;
    fill(&server, "a", 512).await;
    let mut asked = Vec::new();
    for _ in 0..100 {
        asked.push(crate::wire::ask_and_leave(&server, &prefix("a")));
    }
    timeout(LONG, server.check_serves()).await.unwrap();
    server.check_memory("100 answers of 32 MiB that are not read", 1200);
    drop(asked);
    // It ends well for who does read.
    let all = async {
        loop {
            match server.kv().await.range(prefix("a")).await {
                Ok(all) => return all.into_inner().kvs.len(),
                Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
            }
        }
    };
    assert_eq!(timeout(LONG, all).await.unwrap(), 512);
}
