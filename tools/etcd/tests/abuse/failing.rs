//! A store that is too large for its quota, and one that is said to be damaged.

use std::time::Duration;

use annals_etcd::proto::etcdserverpb as pb;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use pb::request_op::Request as Op;
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::server::{LONG, Running, prefix, put};

const QUOTA: &str = "--quota-backend-bytes=4000000";

/// Puts the same few keys until that is refused for want of space.
async fn fill(server: &Running) {
    let mut kv = server.kv().await;
    let value = |number: u32| -> Vec<u8> {
        let mut state = u64::from(number);
        let step = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            state.to_be_bytes()
        };
        (0..512).flat_map(step).collect()
    };
    for number in 0..5000 {
        if let Err(refused) = kv.put(put(format!("q{}", number % 7), value(number))).await {
            assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
            assert!(number > 500, "full after {number}");
            return;
        }
    }
    panic!("it has no quota");
}

async fn compact(server: &Running) {
    let mut kv = server.kv().await;
    let newest = kv.range(prefix("q")).await.unwrap().into_inner().header.unwrap().revision;
    let request = pb::CompactionRequest { revision: newest, physical: true };
    kv.compact(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_compacted_makes_room_by_itself() {
    let server = Running::start(&[QUOTA]).await;
    let mut kv = server.kv().await;
    for _ in 0..2 {
        fill(&server).await;
        compact(&server).await;
        let again = async {
            while let Err(status) = kv.put(put("again", "yes")).await {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LONG, again).await.unwrap();
    }
    server.check_serves().await;
}

/// As scripts do it with an etcd: no second try.
#[tokio::test(flavor = "multi_thread")]
async fn compaction_defragmentation_and_disarming_make_room_at_once() {
    let server = Running::start(&[QUOTA]).await;
    let mut maintenance = MaintenanceClient::new(server.channel().await);
    for _ in 0..2 {
        fill(&server).await;
        compact(&server).await;
        maintenance.defragment(pb::DefragmentRequest {}).await.unwrap();
        let alarm = pb::AlarmRequest {
            action: pb::alarm_request::AlarmAction::Deactivate.into(),
            alarm: pb::AlarmType::Nospace.into(),
            ..Default::default()
        };
        maintenance.alarm(alarm).await.unwrap();
        server.kv().await.put(put("again", "yes")).await.unwrap();
    }
}

/// As etcd's `applierV3Corrupt`: nothing is changed any more, and what is there is read.
#[tokio::test(flavor = "multi_thread")]
async fn while_it_is_said_to_be_damaged_nothing_is_changed() {
    let server = Running::start(&[]).await;
    let (mut kv, channel) = (server.kv().await, server.channel().await);
    let (mut maintenance, mut lease) =
        (MaintenanceClient::new(channel.clone()), LeaseClient::new(channel));
    kv.put(put("k", "v")).await.unwrap();
    let grant = |id| pb::LeaseGrantRequest { ttl: 100, id };
    lease.lease_grant(grant(5)).await.unwrap();
    let alarm = |action: pb::alarm_request::AlarmAction| pb::AlarmRequest {
        action: action.into(),
        alarm: pb::AlarmType::Corrupt.into(),
        ..Default::default()
    };
    maintenance.alarm(alarm(pb::alarm_request::AlarmAction::Activate)).await.unwrap();
    let txn = |op| pb::TxnRequest {
        success: vec![pb::RequestOp { request: Some(op) }],
        ..Default::default()
    };
    let delete = pb::DeleteRangeRequest { key: "k".into(), ..Default::default() };
    let refused = [
        kv.put(put("k", "w")).await.unwrap_err(),
        kv.delete_range(delete).await.unwrap_err(),
        kv.txn(txn(Op::RequestPut(put("k", "w")))).await.unwrap_err(),
        kv.compact(pb::CompactionRequest { revision: 2, physical: false }).await.unwrap_err(),
        lease.lease_grant(grant(6)).await.unwrap_err(),
        lease.lease_revoke(pb::LeaseRevokeRequest { id: 5 }).await.unwrap_err(),
    ];
    for status in refused {
        let told = (status.code(), status.message());
        assert_eq!(told, (Code::DataLoss, "etcdserver: corrupt cluster"));
    }
    let found = kv.range(prefix("k")).await.unwrap().into_inner();
    assert_eq!((found.header.unwrap().revision, &found.kvs[0].value[..]), (2, &b"v"[..]));
    let read = kv.txn(txn(Op::RequestRange(prefix("k")))).await.unwrap().into_inner();
    assert_eq!(read.responses.len(), 1);
    maintenance.alarm(alarm(pb::alarm_request::AlarmAction::Deactivate)).await.unwrap();
    server.check_serves().await;
}

/// As an etcd keeps them: an alarm of a client stays until a client takes it back.
#[tokio::test(flavor = "multi_thread")]
async fn an_alarm_of_a_client_outlives_the_server() {
    let mut server = Running::start(&[]).await;
    let alarm = |action: pb::alarm_request::AlarmAction| pb::AlarmRequest {
        action: action.into(),
        alarm: pb::AlarmType::Corrupt.into(),
        member_id: 17,
    };
    let all = pb::AlarmRequest::default();
    for _ in 0..2 {
        let mut maintenance = MaintenanceClient::new(server.channel().await);
        maintenance.alarm(alarm(pb::alarm_request::AlarmAction::Activate)).await.unwrap();
        tokio::task::block_in_place(|| server.restart("-KILL"));
        let mut maintenance = MaintenanceClient::new(server.channel().await);
        let raised = maintenance.alarm(all).await.unwrap().into_inner().alarms;
        let raised: Vec<_> = raised.iter().map(|each| (each.member_id, each.alarm())).collect();
        assert_eq!(raised, [(17, pb::AlarmType::Corrupt)]);
        let refused = server.kv().await.put(put("k", "v")).await.unwrap_err();
        assert_eq!(refused.code(), Code::DataLoss);
        maintenance.alarm(alarm(pb::alarm_request::AlarmAction::Deactivate)).await.unwrap();
        tokio::task::block_in_place(|| server.restart("-TERM"));
        server.check_serves().await;
    }
}
