//! Requests that no client sends, or hardly any: answered as by a real etcd, where there is one here.

use annals_etcd::proto::etcdserverpb as pb;
use pb::auth_client::AuthClient;
use pb::cluster_client::ClusterClient;
use pb::request_op::Request as Wanted;
use tonic::{Code, Status};

use crate::support::{Clients, Ours, Real};

/// The clients of ours, and of a real one.
fn all<'a>(ours: &'a Ours, real: Option<&'a Real>) -> Vec<&'a Clients> {
    std::iter::once(&ours.clients).chain(real.map(|real| &real.clients)).collect()
}

fn told(status: &Status) -> (Code, &str) {
    (status.code(), status.message())
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_with_negative_numbers() {
    let (ours, real) = (Ours::start().await, Real::start().await);
    for clients in all(&ours, real.as_ref()) {
        let Clients { mut kv, mut lease, .. } = clients.clone();
        let put = |lease| {
            let mut kv = kv.clone();
            let request = pb::PutRequest { key: "k".into(), lease, ..Default::default() };
            async move { kv.put(request).await }
        };
        let refused = put(-5).await.expect_err("there is no such lease");
        assert_eq!(told(&refused), (Code::NotFound, "etcdserver: requested lease not found"));
        lease.lease_grant(pb::LeaseGrantRequest { id: -5, ttl: 60 }).await.expect("granted");
        put(-5).await.expect("there is");
        let asked = pb::LeaseTimeToLiveRequest { id: -5, keys: true };
        let known = lease.lease_time_to_live(asked).await.expect("there is").into_inner();
        assert_eq!((known.id, known.keys), (-5, vec!["k".into()]));
        let found = kv.range(pb::RangeRequest { key: "k".into(), ..Default::default() }).await;
        assert_eq!(found.expect("there").into_inner().kvs[0].lease, -5);
        lease.lease_revoke(pb::LeaseRevokeRequest { id: -5 }).await.expect("revoked");
        let refused = lease.lease_revoke(pb::LeaseRevokeRequest { id: -5 }).await;
        assert_eq!(refused.expect_err("gone").code(), Code::NotFound);
        let found = kv.range(pb::RangeRequest { key: "k".into(), ..Default::default() }).await;
        assert_eq!(found.expect("an answer").into_inner().count, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn comparisons_that_do_not_exist() {
    let (ours, real) = (Ours::start().await, Real::start().await);
    for clients in all(&ours, real.as_ref()) {
        let mut kv = clients.kv.clone();
        for key in ["a", "b"] {
            kv.put(pb::PutRequest { key: key.into(), value: "v".into(), ..Default::default() })
                .await
                .expect("put");
        }
        for (key, end, is_there) in
            [("a", "", true), ("x", "", false), ("a", "c", true), ("x", "z", false)]
        {
            for target in [0, 1, 2, 3, 4, 5, -1] {
                for result in [0, 1, 2, 3, 4, -1] {
                    let unknown = (!(0..5).contains(&target), !(0..4).contains(&result));
                    let expected = match unknown {
                        (_, true) if target == 3 => is_there,
                        (_, true) => true,
                        (true, false) => result == 0,
                        (false, false) => continue,
                    };
                    let (key, range_end) = (key.into(), end.into());
                    let target_union = None;
                    let compare = pb::Compare { result, target, key, range_end, target_union };
                    let compare = vec![compare];
                    let request = pb::TxnRequest { compare, ..Default::default() };
                    let answer = kv.txn(request).await.expect("an answer").into_inner();
                    let case = format!("{target} {result} of a key that is there: {is_there}");
                    assert_eq!(answer.succeeded, expected, "{case}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn negative_revisions() {
    let (ours, real) = (Ours::start().await, Real::start().await);
    for clients in all(&ours, real.as_ref()) {
        let mut kv = clients.kv.clone();
        // By their values they come the other way round.
        for (key, value) in [("a", "9"), ("b", "8"), ("c", "1")] {
            let (key, value) = (key.into(), value.into());
            kv.put(pb::PutRequest { key, value, ..Default::default() }).await.expect("put");
        }
        let newest =
            |revision| pb::RangeRequest { key: "a".into(), revision, ..Default::default() };
        let txn = |revision| {
            let put = pb::PutRequest { key: "written".into(), ..Default::default() };
            let wanted = [Wanted::RequestPut(put), Wanted::RequestRange(newest(revision))];
            let op = |request| pb::RequestOp { request: Some(request) };
            let within = pb::TxnRequest { success: wanted.map(op).into(), ..Default::default() };
            let success = vec![op(Wanted::RequestTxn(within))];
            pb::TxnRequest { success, ..Default::default() }
        };
        // Alone it is the newest. Within a transaction it is compared with what was compacted, which is -1 at first.
        kv.txn(txn(-1)).await.expect("as if it were 0");
        let refused = |status: Status| {
            let text = "etcdserver: mvcc: required revision has been compacted";
            assert_eq!(told(&status), (Code::OutOfRange, text));
        };
        refused(kv.txn(txn(-2)).await.expect_err("before all that there are"));
        kv.compact(pb::CompactionRequest { revision: 3, physical: false }).await.expect("done");
        for revision in [-1, -7, i64::MIN] {
            kv.range(newest(revision)).await.expect("the newest");
            refused(kv.txn(txn(revision)).await.expect_err("before all that there are"));
        }
        // What is not done is not looked at.
        let untaken = pb::TxnRequest { failure: txn(-7).success, ..Default::default() };
        kv.txn(untaken).await.expect("nothing to do");
        kv.txn(txn(0)).await.expect("the newest");
        let get = pb::RangeRequest { key: "written".into(), ..Default::default() };
        let written = kv.range(get).await.expect("an answer").into_inner();
        assert_eq!(written.kvs[0].version, 2, "what was refused has written nothing");

        // A filter that lets all through is one: what is left is put in order before it is cut.
        let filtered = |min_mod_revision, min_create_revision| pb::RangeRequest {
            key: "a".into(),
            range_end: "d".into(),
            limit: 1,
            sort_target: pb::range_request::SortTarget::Value.into(),
            min_mod_revision,
            min_create_revision,
            ..Default::default()
        };
        for (bounds, first) in [((0, 0), "b"), ((-1, 0), "c"), ((0, i64::MIN), "c"), ((1, 0), "c")]
        {
            let found = kv.range(filtered(bounds.0, bounds.1)).await.expect("an answer");
            assert_eq!(found.into_inner().kvs[0].key, first, "{bounds:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_by_nothing_is_streamed() {
    let ours = Ours::start().await;
    let mut kv = ours.clients.kv.clone();
    for key in ["b", "a"] {
        kv.put(pb::PutRequest { key: key.into(), ..Default::default() }).await.expect("put");
    }
    let request = |sort_target, sort_order| pb::RangeRequest {
        key: "a".into(),
        range_end: "c".into(),
        sort_target,
        sort_order,
        ..Default::default()
    };
    for (target, order) in [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (0, 1)] {
        let mut stream =
            kv.range_stream(request(target, order)).await.expect("streamed").into_inner();
        let mut keys = Vec::new();
        while let Some(part) = stream.message().await.expect("a part") {
            let part = part.range_response.expect("of a range");
            keys.extend(part.kvs.into_iter().map(|kv| kv.key));
        }
        assert_eq!(keys, ["a", "b"], "{target} {order}");
    }
    for (target, order) in [(0, 2), (1, 1), (4, 1), (3, 2)] {
        let refused = kv.range_stream(request(target, order)).await.expect_err("another order");
        assert_eq!(refused.code(), Code::Unimplemented, "{target} {order}");
    }
}

/// Transactions in each other, so many deep.
fn nested(depth: usize) -> pb::TxnRequest {
    let mut txn = pb::TxnRequest::default();
    for _ in 0..depth {
        let request = Some(Wanted::RequestTxn(txn));
        txn = pb::TxnRequest { success: vec![pb::RequestOp { request }], ..Default::default() };
    }
    txn
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_that_are_too_deep() {
    let (ours, real) = (Ours::start().await, Real::start().await);
    for clients in all(&ours, real.as_ref()) {
        let mut kv = clients.kv.clone();
        for depth in [1, 20, 40] {
            kv.txn(nested(depth)).await.expect("as many as there may be");
        }
        for depth in [129, 300, 2000] {
            let refused = kv.txn(nested(depth)).await.expect_err("too many");
            let expected = "etcdserver: too many operations in txn request";
            assert_eq!(told(&refused), (Code::InvalidArgument, expected), "{depth}");
        }
        // The connection goes on.
        kv.txn(nested(1)).await.expect("one");
    }
}

/// A real one is not asked: its limit is that of its flag as well, but 3.4 has other words for it.
#[tokio::test(flavor = "multi_thread")]
async fn all_services_take_messages_of_one_size() {
    let ours =
        Ours::with(annals::Options::new().durability(annals::Durability::Buffered), |options| {
            options.max_request_bytes = 6 << 20;
        })
        .await;
    let channel = ours.clients.channel.clone();
    // More than the library takes where it is not told, less than the server was told; and more than that.
    for (bytes, is_taken) in [(5 << 20, true), (7 << 20, false)] {
        let name = "n".repeat(bytes);
        let mut told = Vec::new();
        let mut auth = AuthClient::new(channel.clone());
        let role = pb::AuthRoleGetRequest { role: name.clone() };
        told.push(auth.role_get(role).await.expect_err("no such role"));
        let mut cluster = ClusterClient::new(channel.clone());
        let member = pb::MemberAddRequest { peer_ur_ls: vec![name.clone()], ..Default::default() };
        told.push(cluster.member_add(member).await.expect_err("it is one member"));
        let mut kv = ours.clients.kv.clone();
        let empty = pb::PutRequest { value: name.into(), ..Default::default() };
        told.push(kv.put(empty).await.expect_err("it has no key"));
        for status in told {
            let is_too_large =
                status.message().starts_with("grpc: received message larger than max");
            assert_eq!(
                !is_too_large,
                is_taken,
                "{bytes}: {}",
                &status.message()[..100.min(status.message().len())]
            );
        }
    }
}

/// As in etcd, where a watch that begins later is told nothing before.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_begins_later_has_no_notice_before() {
    let interval = std::time::Duration::from_millis(100);
    let options = annals::Options::new().durability(annals::Durability::Buffered);
    let ours = Ours::with(options, |options| options.watch_progress_interval = interval).await;
    let Clients { mut kv, mut watch, .. } = ours.clients.clone();
    let (to, asked) = tokio::sync::mpsc::channel(2);
    for (watch_id, start_revision) in [(1, 4), (2, 0)] {
        let create = pb::WatchCreateRequest {
            key: "a".into(),
            watch_id,
            start_revision,
            progress_notify: true,
            ..Default::default()
        };
        let union = pb::watch_request::RequestUnion::CreateRequest(create);
        to.send(pb::WatchRequest { request_union: Some(union) }).await.expect("room");
    }
    let asked = tokio_stream::wrappers::ReceiverStream::new(asked);
    let mut stream = watch.watch(asked).await.expect("a stream").into_inner();
    // Notices of the one that has begun, none of the other.
    let mut notices = 0;
    while notices < 5 {
        let answer = stream.message().await.expect("it goes on").expect("an answer");
        assert!(!answer.canceled, "{answer:?}");
        if !answer.created {
            assert_eq!(answer.watch_id, 2, "{answer:?}");
            notices += 1;
        }
    }
    // Once the store has come to where it begins, it has its own.
    for _ in 0..3 {
        kv.put(pb::PutRequest { key: "elsewhere".into(), ..Default::default() })
            .await
            .expect("put");
    }
    loop {
        let answer = stream.message().await.expect("it goes on").expect("an answer");
        if answer.watch_id == 1 {
            assert!(answer.events.is_empty(), "{answer:?}");
            assert!(answer.header.expect("a head").revision >= 4);
            break;
        }
    }
    drop(to);
}

/// A client lists, watches, and takes the head of the answer for what it knows: what is told begins behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_now_says_where_it_begins() {
    let options = annals::Options::new().durability(annals::Durability::Buffered);
    let ours = Ours::with(options, |_| {}).await;
    let clients = &ours.clients;
    let writers = (0..4).map(|_| {
        let mut kv = clients.kv.clone();
        tokio::spawn(async move {
            loop {
                let put = pb::PutRequest { key: "a".into(), ..Default::default() };
                kv.put(put).await.expect("put");
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let (to, asked) = tokio::sync::mpsc::channel(2);
    let ask = |union| async {
        to.send(pb::WatchRequest { request_union: Some(union) }).await.expect("room");
    };
    let asked = tokio_stream::wrappers::ReceiverStream::new(asked);
    let mut stream = clients.watch.clone().watch(asked).await.expect("a stream").into_inner();
    for watch_id in 1..=300 {
        use pb::watch_request::RequestUnion::{CancelRequest, CreateRequest};
        let key = "a".into();
        ask(CreateRequest(pb::WatchCreateRequest { key, watch_id, ..Default::default() })).await;
        let mut begins = None;
        loop {
            let answer = stream.message().await.expect("an answer").expect("it goes on");
            let revision = answer.header.as_ref().expect("a head").revision;
            if answer.watch_id == watch_id && answer.created {
                begins = Some(revision + 1);
            } else if answer.watch_id == watch_id {
                let first = answer.events[0].kv.as_ref().expect("a key").mod_revision;
                assert_eq!(Some(first), begins);
                break;
            }
        }
        ask(CancelRequest(pb::WatchCancelRequest { watch_id })).await;
    }
    writers.iter().for_each(tokio::task::JoinHandle::abort);
}
