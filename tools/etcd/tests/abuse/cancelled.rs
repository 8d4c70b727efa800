//! Clients that ask for much and are gone before they are answered.

use std::time::Duration;

use annals_etcd::proto::etcdserverpb as pb;
use pb::kv_client::KvClient;
use tokio::time::timeout;

use crate::server::{LONG, Running, prefix, put, scaled};
use crate::slow::fill;

/// Asks again and again, from many at once, and waits but a moment for each answer.
async fn give_up<F>(
    server: &Running,
    each: usize,
    ask: impl Fn(KvClient<tonic::transport::Channel>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut channels = Vec::new();
    for _ in 0..8 {
        channels.push(server.channel().await);
    }
    let asking: Vec<_> = (0..each)
        .map(|number| {
            let kv = KvClient::new(channels[number % 8].clone());
            let calls: Vec<_> = (0..scaled(50)).map(|_| ask(kv.clone())).collect();
            tokio::spawn(async move {
                for call in calls {
                    let _ = timeout(Duration::from_millis(10), call).await;
                }
            })
        })
        .collect();
    for asked in asking {
        asked.await.unwrap();
    }
}

/// What is read for nobody takes as much memory as what is read for somebody.
#[tokio::test(flavor = "multi_thread")]
async fn ranges_whose_clients_are_gone() {
    let server = Running::start(&[]).await;
    fill(&server, "r", 1024).await;
    give_up(&server, 100, |mut kv| async move {
        let _ = kv.range(prefix("r")).await;
    })
    .await;
    timeout(LONG, server.check_serves()).await.unwrap();
    server.check_memory("ranges of 64 MiB whose clients are gone", 1200);
    assert!(server.threads() < 60, "{} threads", server.threads());
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_whose_clients_are_gone() {
    let server = Running::start(&[]).await;
    fill(&server, "t", 1024).await;
    give_up(&server, 100, |mut kv| async move {
        use pb::request_op::Request;
        let all = pb::RequestOp { request: Some(Request::RequestRange(prefix("t"))) };
        let _ = kv.txn(pb::TxnRequest { success: vec![all], ..Default::default() }).await;
    })
    .await;
    timeout(LONG, server.check_serves()).await.unwrap();
    server.check_memory("transactions that read 64 MiB whose clients are gone", 1200);
    assert!(server.threads() < 60, "{} threads", server.threads());
}

/// What waits for the disk has its bound, whoever waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn puts_whose_clients_are_gone() {
    let server = Running::start(&[]).await;
    give_up(&server, 400, |mut kv| async move {
        let _ = kv.put(put("p", vec![7; 1 << 20])).await;
    })
    .await;
    timeout(LONG, server.check_serves()).await.unwrap();
    server.check_memory("puts of 1 MiB whose clients are gone", 1500);
}

/// Few keys may be much, too.
#[tokio::test(flavor = "multi_thread")]
async fn answers_of_few_large_values_that_nobody_reads() {
    let server = Running::start(&[]).await;
    let mut kv = server.kv().await;
    for number in 0..32 {
        kv.put(put(format!("f{number}"), vec![7; 1 << 20])).await.unwrap();
    }
    let few = pb::RangeRequest { limit: 64, revision: 33, ..prefix("f") };
    let asked: Vec<_> = (0..100).map(|_| crate::wire::ask_and_leave(&server, &few)).collect();
    timeout(LONG, server.check_serves()).await.unwrap();
    server.check_memory("100 answers of 32 MiB of few keys that are not read", 1200);
    drop(asked);
}
