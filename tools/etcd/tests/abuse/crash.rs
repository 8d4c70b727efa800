//! A server that ends while many write, by force and in good order; and one whose disk is full.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use annals_etcd::proto::etcdserverpb as pb;
use pb::maintenance_client::MaintenanceClient;
use pb::watch_client::WatchClient;
use tokio::time::{sleep, timeout};
use tokio_stream::{StreamExt as _, iter, pending};
use tonic::Code;

use crate::server::{LONG, Running, prefix, put, scaled, watch};

const WRITERS: usize = 64;

/// What a writer was told: its key, and the revision.
type Written = Vec<(String, i64)>;

/// Writers that go on until they are refused, and a count of what they have written.
async fn write(
    server: &Running,
    round: &str,
) -> (Vec<tokio::task::JoinHandle<Written>>, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let (mut kv, count) = (server.kv().await, Arc::clone(&count));
        let round = round.to_owned();
        writers.push(tokio::spawn(async move {
            let mut written = Vec::new();
            for number in 0.. {
                let key = format!("{round}{writer}-{number}");
                let Ok(told) = kv.put(put(key.clone(), key.clone())).await else { break };
                written.push((key, told.into_inner().header.unwrap().revision));
                count.fetch_add(1, Ordering::Relaxed);
            }
            written
        }));
    }
    (writers, count)
}

async fn ends_under_load(signal: &str) {
    let mut server = Running::start(&[]).await;
    for round in ["c", "d"] {
        let (writers, count) = write(&server, round).await;
        timeout(LONG, async {
            while count.load(Ordering::Relaxed) < scaled(3000) {
                sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .unwrap();
        tokio::task::block_in_place(|| server.restart(signal));
        let mut kv = server.kv().await;
        let all = kv.range(prefix(round)).await.unwrap().into_inner();
        let newest = all.header.unwrap().revision;
        let found: std::collections::HashMap<_, _> = all
            .kvs
            .iter()
            .map(|kv| (kv.key.to_vec(), (kv.value.to_vec(), kv.mod_revision)))
            .collect();
        for writer in writers {
            for (key, revision) in writer.await.unwrap() {
                let expected = (key.clone().into_bytes(), revision);
                assert_eq!(found.get(key.as_bytes()), Some(&expected), "{key} was acknowledged");
            }
        }
        // A watch from the beginning has every revision.
        let mut client =
            WatchClient::new(server.channel().await).max_decoding_message_size(usize::MAX);
        let told = client.watch(iter([watch("", 2)]).chain(pending())).await.unwrap();
        let mut told = told.into_inner();
        let mut next = 2;
        while next <= newest {
            let answer = timeout(LONG, told.message()).await.unwrap().unwrap().unwrap();
            for event in answer.events {
                assert_eq!(event.kv.unwrap().mod_revision, next, "round {round}");
                next += 1;
            }
        }
        let more = kv.put(put("more", "")).await.unwrap().into_inner().header.unwrap().revision;
        assert_eq!(more, newest + 1);
        let answer = timeout(LONG, told.message()).await.unwrap().unwrap().unwrap();
        assert_eq!(answer.events[0].kv.as_ref().unwrap().mod_revision, more);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_under_load() {
    ends_under_load("-KILL").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn terminated_under_load() {
    ends_under_load("-TERM").await;
}

/// Unmounts at the end.
struct Mounted(tempfile::TempDir);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn small_disk() -> Option<Mounted> {
    let directory = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=160m", "tmpfs"])
        .arg(directory.path())
        .output();
    mounted.is_ok_and(|mounted| mounted.status.success()).then(|| Mounted(directory))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full() {
    let Some(disk) = small_disk() else {
        eprintln!("skipped: no disk can be mounted here");
        return;
    };
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![1; 60 << 20]).unwrap();
    let data = format!("--data-dir={}", disk.0.path().join("data").display());
    let server = Running::start(&[&data]).await;
    let mut kv = server.kv().await;
    let mut state = 1_u64;
    let mut written = 0_u32;
    let refused = loop {
        let step = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()
        };
        let value: Vec<u8> = (0..8192).flat_map(step).collect();
        match kv.put(put(format!("f{written:06}"), value)).await {
            Ok(_) => written += 1,
            Err(status) => break status,
        }
        assert!(written < 5000, "the disk is not full");
    };
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let mut maintenance = MaintenanceClient::new(server.channel().await);
    // What was acknowledged is there, and others read.
    let all = pb::RangeRequest { count_only: true, ..prefix("f") };
    assert_eq!(kv.range(all).await.unwrap().into_inner().count, i64::from(written));
    let alarm = pb::AlarmRequest::default();
    let raised = maintenance.alarm(alarm).await.unwrap().into_inner().alarms;
    assert_eq!(raised.len(), 1);
    // Room is made by who deletes, too.
    kv.delete_range(pb::DeleteRangeRequest { key: "f000000".into(), ..Default::default() })
        .await
        .unwrap();
    std::fs::remove_file(ballast).unwrap();
    let cleared = async {
        while let Err(status) = kv.put(put("again", "yes")).await {
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
            sleep(Duration::from_millis(50)).await;
        }
        while !maintenance.alarm(alarm).await.unwrap().into_inner().alarms.is_empty() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LONG, cleared).await.unwrap();
    server.check_serves().await;
    drop(server);
}
