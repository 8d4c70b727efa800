//! Leases by the thousand, and users who prove again and again who they are.

use annals_etcd::proto::etcdserverpb as pb;
use pb::auth_client::AuthClient;
use pb::lease_client::LeaseClient;
use pb::request_op::Request;
use pb::watch_client::WatchClient;
use tokio::time::timeout;
use tokio_stream::{StreamExt as _, iter, pending};

use crate::server::{LONG, Running, put, scaled, watch};

const AT_ONCE: usize = 64;

#[tokio::test(flavor = "multi_thread")]
async fn grants_and_revocations() {
    let server = Running::start(&[]).await;
    let each = i64::try_from(scaled(10_000) / AT_ONCE).unwrap();
    let channel = server.channel().await;
    let mut clients = Vec::new();
    for client in 0..i64::try_from(AT_ONCE).unwrap() {
        let mut lease = LeaseClient::new(channel.clone());
        clients.push(tokio::spawn(async move {
            for number in 1..=each {
                let id = client * 1_000_000 + number;
                lease.lease_grant(pb::LeaseGrantRequest { ttl: 3600, id }).await.unwrap();
            }
            for number in 1..=each {
                let id = client * 1_000_000 + number;
                lease.lease_revoke(pb::LeaseRevokeRequest { id }).await.unwrap();
            }
        }));
    }
    for client in clients {
        timeout(LONG, client).await.unwrap().unwrap();
    }
    let left = LeaseClient::new(channel).lease_leases(pb::LeaseLeasesRequest {}).await.unwrap();
    assert!(left.into_inner().leases.is_empty());
    server.check_serves().await;
    server.check_memory("grants and revocations", 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_keys_end_at_once() {
    let server = Running::start(&[]).await;
    let count = 10_000;
    let (mut kv, mut lease) = (server.kv().await, LeaseClient::new(server.channel().await));
    lease.lease_grant(pb::LeaseGrantRequest { ttl: 5, id: 7 }).await.unwrap();
    let keys: Vec<_> = (0..count).map(|number| format!("e{number}")).collect();
    for keys in keys.chunks(100) {
        let op = |key: &String| {
            let put = pb::PutRequest { lease: 7, ..put(key.clone(), "v") };
            pb::RequestOp { request: Some(Request::RequestPut(put)) }
        };
        let success = keys.iter().map(op).collect();
        kv.txn(pb::TxnRequest { success, ..Default::default() }).await.unwrap();
        let renewed = iter([pb::LeaseKeepAliveRequest { id: 7 }]);
        lease.lease_keep_alive(renewed).await.unwrap().into_inner().message().await.unwrap();
    }
    let mut client = WatchClient::new(server.channel().await).max_decoding_message_size(usize::MAX);
    let told = client.watch(iter([watch("e", 0)]).chain(pending())).await.unwrap();
    let mut told = told.into_inner();
    assert!(told.message().await.unwrap().unwrap().created);
    let mut other = server.kv().await;
    let writes = tokio::spawn(async move {
        let mut number = 0_u64;
        loop {
            other.put(put("other", number.to_string())).await.unwrap();
            number += 1;
            tokio::task::yield_now().await;
        }
    });
    let (mut ended, mut revisions) = (0, std::collections::BTreeSet::new());
    while ended < count {
        let answer = timeout(LONG, told.message()).await.unwrap().unwrap().unwrap();
        for event in answer.events {
            assert_eq!(event.r#type, 1);
            revisions.insert(event.kv.unwrap().mod_revision);
            ended += 1;
        }
    }
    assert_eq!((ended, revisions.len()), (count, 1));
    assert!(!writes.is_finished());
    writes.abort();
    server.check_serves().await;
    server.check_memory("10,000 keys end at once", 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_by_the_hundred() {
    let server = Running::start(&[]).await;
    let mut auth = AuthClient::new(server.channel().await);
    let (name, password) = ("root".to_owned(), "secret".to_owned());
    let user = pb::AuthUserAddRequest { name: name.clone(), password, ..Default::default() };
    auth.user_add(user).await.unwrap();
    let role = "root".to_owned();
    auth.user_grant_role(pb::AuthUserGrantRoleRequest { user: name.clone(), role }).await.unwrap();
    let large = "n".repeat(3 << 20);
    let refused = pb::AuthUserAddRequest { name: large.clone(), ..Default::default() };
    assert!(auth.user_add(refused).await.is_err());
    auth.auth_enable(pb::AuthEnableRequest {}).await.unwrap();
    let mut asked = Vec::new();
    for number in 0..scaled(200) {
        let mut auth = auth.clone();
        let password = if number % 2 == 0 { "secret" } else { "wrong" }.to_owned();
        let request = pb::AuthenticateRequest { name: name.clone(), password };
        asked.push(tokio::spawn(async move { auth.authenticate(request).await.is_ok() }));
    }
    // What asks for no password is answered meanwhile; by the same threads, if they were not kept apart.
    let refused = server.kv().await.put(put("a", "b")).await;
    assert!(refused.is_err());
    assert!(server.threads() < 100, "{} threads", server.threads());
    for (number, asked) in asked.into_iter().enumerate() {
        assert_eq!(timeout(LONG, asked).await.unwrap().unwrap(), number % 2 == 0);
    }
    let unknown = pb::AuthenticateRequest { name: large, ..Default::default() };
    assert!(auth.authenticate(unknown).await.is_err());
    server.check_memory("passwords", 300);
}
