//! What is asked and what is done are of one moment, also for users who may not do everything.

use annals_etcd::proto::authpb::Permission;
use annals_etcd::proto::etcdserverpb as pb;
use pb::auth_client::AuthClient;
use tonic::{Code, Request};

use crate::support::{Clients, Ours};

/// Races of a revocation and a put.
const ROUNDS: i64 = 60;

/// Keys a lease has before: to look at them all takes a while, in which another can come.
const KEYS: usize = 40;

fn with<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("token", token.parse().expect("a token"));
    request
}

/// `root`, and `ada`, who may do everything to keys that begin with `/ada/`. Answers their tokens.
async fn enable(clients: &Clients) -> (String, String) {
    let mut auth = AuthClient::new(clients.channel.clone());
    for (name, role) in [("root", "root"), ("ada", "hers")] {
        let (name, password, role) = (name.to_owned(), "p".to_owned(), role.to_owned());
        let user = pb::AuthUserAddRequest { name: name.clone(), password, ..Default::default() };
        auth.user_add(user).await.expect("a user");
        auth.role_add(pb::AuthRoleAddRequest { name: role.clone() }).await.expect("a role");
        let grant = pb::AuthUserGrantRoleRequest { user: name, role };
        auth.user_grant_role(grant).await.expect("granted");
    }
    let perm = Permission { perm_type: 2, key: "/ada/".into(), range_end: "/ada0".into() };
    let grant = pb::AuthRoleGrantPermissionRequest { name: "hers".into(), perm: Some(perm) };
    auth.role_grant_permission(grant).await.expect("granted");
    auth.auth_enable(pb::AuthEnableRequest {}).await.expect("enabled");
    let mut tokens = Vec::new();
    for name in ["root", "ada"] {
        let (name, password) = (name.to_owned(), "p".to_owned());
        let answer = auth.authenticate(pb::AuthenticateRequest { name, password }).await;
        tokens.push(answer.expect("a token").into_inner().token);
    }
    let ada = tokens.pop().expect("two");
    (tokens.pop().expect("two"), ada)
}

fn attached(key: &str, lease: i64) -> pb::PutRequest {
    pb::PutRequest { key: key.to_owned().into(), lease, ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_that_comes_while_a_lease_is_revoked_is_asked_about_too() {
    let ours = Ours::start().await;
    let (root, ada) = enable(&ours.clients).await;
    let (mut refused, mut too_late) = (0, 0);
    for id in 1..=ROUNDS {
        let Clients { mut kv, mut lease, .. } = ours.clients.clone();
        let grant = pb::LeaseGrantRequest { id, ttl: 9000 };
        lease.lease_grant(with(grant, &ada)).await.expect("a lease");
        let put = |n| pb::RequestOp {
            request: Some(pb::request_op::Request::RequestPut(attached(&format!("/ada/{n}"), id))),
        };
        let all = pb::TxnRequest { success: (0..KEYS).map(put).collect(), ..Default::default() };
        kv.txn(with(all, &ada)).await.expect("hers");
        let other = format!("/other/{id}");
        let attach = with(attached(&other, id), &root);
        let (revoked, put) =
            tokio::join!(lease.lease_revoke(with(pb::LeaseRevokeRequest { id }, &ada)), async {
                kv.clone().put(attach).await
            });
        let range = pb::RangeRequest { key: other.into(), ..Default::default() };
        let found = kv.range(with(range, &root)).await.expect("a range").into_inner().count;
        match put {
            // What has been put by another is still there, and with it the lease.
            Ok(_) => {
                assert_eq!(found, 1, "round {id}: deleted without a right");
                let status = revoked.expect_err("it has a key of another's");
                assert_eq!(status.code(), Code::PermissionDenied);
                refused += 1;
            }
            Err(status) => {
                assert_eq!((status.code(), found), (Code::NotFound, 0), "round {id}");
                revoked.expect("all of its keys were hers");
                too_late += 1;
            }
        }
    }
    assert_eq!(refused + too_late, ROUNDS);
    // Unless somebody else has a key there, she may.
    let Clients { mut kv, mut lease, .. } = ours.clients.clone();
    let id = ROUNDS + 1;
    lease.lease_grant(with(pb::LeaseGrantRequest { id, ttl: 9000 }, &ada)).await.expect("granted");
    kv.put(with(attached("/ada/last", id), &ada)).await.expect("hers");
    lease.lease_revoke(with(pb::LeaseRevokeRequest { id }, &ada)).await.expect("revoked");
}
