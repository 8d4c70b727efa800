//! Who may do what, asked of the whole server and of a real etcd at random: codes and texts must be the same.
//!
//! `ANNALS_ETCD_SEQUENCES` sequences (2) of `ANNALS_ETCD_STEPS` (400) from `ANNALS_ETCD_SEED` (1), beside the etcd that
//! `ETCD` names. What older ones check less than newer ones is not asked of them: see [`Run::is_older`].

use std::collections::BTreeMap;

use annals_etcd::proto::authpb::{Permission, UserAddOptions};
use annals_etcd::proto::etcdserverpb as pb;
use pb::auth_client::AuthClient;
use pb::cluster_client::ClusterClient;
use pb::request_op::Request as Op;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tonic::{Code, Request, Status};

use crate::support::{Clients, Ours, Real};

const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
const ENDS: [&str; 6] = ["", "", "", "c", "f", "\0"];
const USERS: [&str; 4] = ["root", "u", "v", "w"];
const ROLES: [&str; 2] = ["r", "s"];

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// One request.
#[derive(Clone, Debug)]
enum Call {
    Range(pb::RangeRequest),
    Put(pb::PutRequest),
    Delete(pb::DeleteRangeRequest),
    Txn(pb::TxnRequest),
    Compact,
    Watch(pb::WatchCreateRequest),
    Grant(i64),
    Revoke(i64),
    KeepAlive(i64),
    TimeToLive(i64, bool),
    Leases,
    Status,
    Hash,
    HashKv,
    Defragment,
    Snapshot,
    Alarm(i32),
    MoveLeader(bool),
    Members,
    AuthStatus,
    UserAdd,
    UserGet(&'static str),
    UserList,
    RoleGet(&'static str),
    RoleList,
    Disable,
    GrantRole(&'static str, &'static str),
    RevokeRole(&'static str, &'static str),
    GrantPermission(&'static str, Permission),
    RevokePermission(&'static str, &'static str, &'static str),
}

impl Call {
    /// Whether it changes who may do what.
    fn changes(&self) -> bool {
        matches!(
            self,
            Self::GrantRole(..)
                | Self::RevokeRole(..)
                | Self::GrantPermission(..)
                | Self::RevokePermission(..)
        )
    }
}

/// How it ended: in words, or why not.
type Told = Result<String, (Code, String)>;

fn with<T>(message: T, token: Option<&String>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("token", token.parse().expect("a token"));
    }
    request
}

async fn keep_alive(
    clients: &mut Clients,
    id: i64,
    token: Option<&String>,
) -> Result<String, Status> {
    let asked = tokio_stream::iter([pb::LeaseKeepAliveRequest { id }]);
    let stream = clients.lease.lease_keep_alive(with(asked, token)).await?;
    let answer = stream.into_inner().message().await?;
    Ok(answer.map_or(String::new(), |answer| format!("{}", answer.ttl.signum())))
}

async fn watch(
    clients: &mut Clients,
    create: &pb::WatchCreateRequest,
    token: Option<&String>,
) -> Result<String, Status> {
    let union = pb::watch_request::RequestUnion::CreateRequest(create.clone());
    let (to, asked) = tokio::sync::mpsc::channel(1);
    let request = pb::WatchRequest { request_union: Some(union) };
    to.send(request).await.expect("it has room");
    let asked = tokio_stream::wrappers::ReceiverStream::new(asked);
    let stream = clients.watch.watch(with(asked, token)).await?;
    let answer = stream.into_inner().message().await?.expect("an answer");
    drop(to);
    let pb::WatchResponse { watch_id, created, canceled, cancel_reason, .. } = answer;
    Ok(format!("{watch_id} {created} {canceled} {cancel_reason}"))
}

async fn snapshot(clients: &mut Clients, token: Option<&String>) -> Result<String, Status> {
    let stream = clients.maintenance.snapshot(with(pb::SnapshotRequest {}, token)).await?;
    let mut stream = stream.into_inner();
    while stream.message().await?.is_some() {}
    Ok(String::new())
}

async fn alarm(
    clients: &mut Clients,
    action: i32,
    token: Option<&String>,
) -> Result<String, Status> {
    let alarm = pb::AlarmRequest { action, alarm: 1, ..Default::default() };
    let answer = clients.maintenance.alarm(with(alarm, token)).await?.into_inner();
    let of_none = |alarm: &pb::AlarmMember| (alarm.member_id == 0, alarm.alarm);
    let alarms: Vec<_> = answer.alarms.iter().map(of_none).collect();
    Ok(format!("{} {alarms:?}", answer.header.is_some()))
}

async fn ask(clients: &mut Clients, call: &Call, token: Option<&String>) -> Result<String, Status> {
    macro_rules! ask {
        ($client:expr, $method:ident, $message:expr) => {{ $client.$method(with($message, token)).await?.get_ref().header.is_some() }};
    }
    let mut auth = AuthClient::new(clients.channel.clone());
    let Clients { kv, lease, maintenance, .. } = clients;
    let has_header = match call.clone() {
        Call::Range(request) => {
            let answer = kv.range(with(request, token)).await?;
            return Ok(answer.get_ref().count.to_string());
        }
        Call::Put(request) => ask!(kv, put, request),
        Call::Delete(request) => {
            let answer = kv.delete_range(with(request, token)).await?;
            return Ok(answer.get_ref().deleted.to_string());
        }
        Call::Txn(request) => ask!(kv, txn, request),
        Call::Compact => ask!(kv, compact, pb::CompactionRequest { revision: 1, physical: false }),
        Call::Watch(create) => return watch(clients, &create, token).await,
        Call::Grant(id) => ask!(lease, lease_grant, pb::LeaseGrantRequest { id, ttl: 9000 }),
        Call::Revoke(id) => ask!(lease, lease_revoke, pb::LeaseRevokeRequest { id }),
        Call::KeepAlive(id) => return keep_alive(clients, id, token).await,
        Call::TimeToLive(id, keys) => {
            let request = pb::LeaseTimeToLiveRequest { id, keys };
            let mut answer = lease.lease_time_to_live(with(request, token)).await?.into_inner();
            answer.keys.sort();
            return Ok(format!("{:?}", answer.keys));
        }
        Call::Leases => ask!(lease, lease_leases, pb::LeaseLeasesRequest {}),
        Call::Status => ask!(maintenance, status, pb::StatusRequest {}),
        Call::Hash => ask!(maintenance, hash, pb::HashRequest {}),
        Call::HashKv => ask!(maintenance, hash_kv, pb::HashKvRequest { revision: 0 }),
        Call::Defragment => ask!(maintenance, defragment, pb::DefragmentRequest {}),
        Call::Snapshot => return snapshot(clients, token).await,
        Call::Alarm(action) => return alarm(clients, action, token).await,
        Call::MoveLeader(to_itself) => {
            let status = maintenance.status(with(pb::StatusRequest {}, token)).await?;
            let target_id = if to_itself { status.get_ref().leader } else { 77 };
            ask!(maintenance, move_leader, pb::MoveLeaderRequest { target_id })
        }
        Call::Members => {
            let mut cluster = ClusterClient::new(clients.channel.clone());
            ask!(cluster, member_list, pb::MemberListRequest::default())
        }
        Call::AuthStatus => {
            let answer = auth.auth_status(with(pb::AuthStatusRequest {}, token)).await?;
            return Ok(format!("{}", answer.get_ref().enabled));
        }
        Call::UserAdd => {
            let options = Some(UserAddOptions { no_password: true });
            let name = "u".into();
            ask!(auth, user_add, pb::AuthUserAddRequest { name, options, ..Default::default() })
        }
        Call::UserGet(name) => {
            let answer =
                auth.user_get(with(pb::AuthUserGetRequest { name: name.into() }, token)).await?;
            return Ok(format!("{:?}", answer.get_ref().roles));
        }
        Call::UserList => ask!(auth, user_list, pb::AuthUserListRequest {}),
        Call::RoleGet(role) => {
            let answer =
                auth.role_get(with(pb::AuthRoleGetRequest { role: role.into() }, token)).await?;
            return Ok(format!("{:?}", answer.get_ref().perm));
        }
        Call::RoleList => ask!(auth, role_list, pb::AuthRoleListRequest {}),
        Call::Disable => ask!(auth, auth_disable, pb::AuthDisableRequest {}),
        Call::GrantRole(user, role) => {
            let (user, role) = (user.into(), role.into());
            ask!(auth, user_grant_role, pb::AuthUserGrantRoleRequest { user, role })
        }
        Call::RevokeRole(name, role) => {
            let (name, role) = (name.into(), role.into());
            ask!(auth, user_revoke_role, pb::AuthUserRevokeRoleRequest { name, role })
        }
        Call::GrantPermission(name, perm) => {
            let grant = pb::AuthRoleGrantPermissionRequest { name: name.into(), perm: Some(perm) };
            ask!(auth, role_grant_permission, grant)
        }
        Call::RevokePermission(role, key, end) => {
            let (role, key, range_end) = (role.into(), key.into(), end.into());
            let revoke = pb::AuthRoleRevokePermissionRequest { role, key, range_end };
            ask!(auth, role_revoke_permission, revoke)
        }
    };
    Ok(if has_header { "done" } else { "done, no header" }.to_owned())
}

struct Run {
    random: StdRng,
    real: Real,
    ours: Ours,
    version: [u32; 2],
    /// Of each user: the token there and here.
    tokens: BTreeMap<&'static str, [String; 2]>,
    told: BTreeMap<String, u64>,
    past: Vec<String>,
}

impl Run {
    async fn start(seed: u64) -> Option<Self> {
        let (real, ours) = (Real::start().await?, Ours::start().await);
        let status = real.clients.maintenance.clone().status(pb::StatusRequest {}).await;
        let told = status.expect("a status").into_inner().version;
        let mut parts = told.split('.').map(|part| part.parse().expect("a number"));
        let version = [(); 2].map(|()| parts.next().expect("a part"));
        for channel in [&real.clients.channel, &ours.clients.channel] {
            let mut auth = AuthClient::new(channel.clone());
            for name in USERS {
                let (name, password) = (name.into(), "p".into());
                let add = pb::AuthUserAddRequest { name, password, ..Default::default() };
                auth.user_add(add).await.expect("a user");
            }
            for role in ["root", "r", "s"] {
                let name = role.into();
                auth.role_add(pb::AuthRoleAddRequest { name }).await.expect("a role");
            }
            for (user, role) in [("root", "root"), ("u", "r"), ("v", "s")] {
                let (user, role) = (user.into(), role.into());
                let grant = pb::AuthUserGrantRoleRequest { user, role };
                auth.user_grant_role(grant).await.expect("granted");
            }
            for (role, perm_type, key, end) in
                [("r", 2, "a", "c"), ("s", 0, "a", "\0"), ("s", 1, "d", "")]
            {
                let (name, key, range_end) = (role.into(), key.into(), end.into());
                let perm = Some(Permission { perm_type, key, range_end });
                let grant = pb::AuthRoleGrantPermissionRequest { name, perm };
                auth.role_grant_permission(grant).await.expect("granted");
            }
            auth.auth_enable(pb::AuthEnableRequest {}).await.expect("enabled");
        }
        let (random, tokens, told) =
            (StdRng::seed_from_u64(seed), BTreeMap::new(), BTreeMap::new());
        let mut run = Self { random, real, ours, version, tokens, told, past: Vec::new() };
        for name in USERS {
            run.log_in(name).await;
        }
        Some(run)
    }

    async fn log_in(&mut self, user: &'static str) {
        let mut tokens = [String::new(), String::new()];
        let channels = [&self.real.clients.channel, &self.ours.clients.channel];
        for (channel, token) in channels.into_iter().zip(&mut tokens) {
            let mut auth = AuthClient::new(channel.clone());
            let (name, password) = (user.into(), "p".into());
            let answer = auth.authenticate(pb::AuthenticateRequest { name, password }).await;
            *token = answer.expect("a token").into_inner().token;
        }
        self.tokens.insert(user, tokens);
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.random.random_range(0..all.len())].clone()
    }

    fn range(&mut self) -> (bytes::Bytes, bytes::Bytes) {
        loop {
            let (key, end) = (self.of(&KEYS), self.of(&ENDS));
            // A range of nothing: etcd's answer is a matter of how its tree of permissions has grown.
            if end.is_empty() || end == "\0" || key < end {
                return (key.into(), end.into());
            }
        }
    }

    fn put(&mut self) -> pb::PutRequest {
        let (key, lease) = (self.of(&KEYS).into(), self.of(&[0, 0, 1, 2]));
        pb::PutRequest { key, lease, prev_kv: self.of(&[false, true]), ..Default::default() }
    }

    fn txn(&mut self, depth: u32) -> pb::TxnRequest {
        let mut both = [Vec::new(), Vec::new()];
        for ops in &mut both {
            let request = match self.random.random_range(0..5) {
                0 => {
                    let (key, range_end) = self.range();
                    Op::RequestRange(pb::RangeRequest { key, range_end, ..Default::default() })
                }
                1 => Op::RequestPut(self.put()),
                2 => {
                    let (key, range_end) = self.range();
                    let prev_kv = self.of(&[false, true]);
                    Op::RequestDeleteRange(pb::DeleteRangeRequest { key, range_end, prev_kv })
                }
                _ if depth > 0 => Op::RequestTxn(self.txn(depth - 1)),
                _ => continue,
            };
            ops.push(pb::RequestOp { request: Some(request) });
        }
        let (key, range_end) = self.range();
        let compare = vec![pb::Compare { key, range_end, ..Default::default() }];
        let compare = if self.of(&[false, true]) { compare } else { Vec::new() };
        let [success, failure] = both;
        pb::TxnRequest { compare, success, failure }
    }

    fn call(&mut self) -> Call {
        let (key, range_end) = self.range();
        let (id, prev_kv) = (self.of(&[1, 2, 3]), self.of(&[false, true]));
        let (user, role) = (self.of(&["u", "v", "w"]), self.of(&ROLES));
        match self.random.random_range(0..100) {
            0..12 => Call::Range(pb::RangeRequest { key, range_end, ..Default::default() }),
            12..24 => Call::Put(self.put()),
            24..30 => Call::Delete(pb::DeleteRangeRequest { key, range_end, prev_kv }),
            30..44 => Call::Txn(self.txn(2)),
            44..50 => Call::Watch(pb::WatchCreateRequest {
                key,
                range_end,
                prev_kv,
                ..Default::default()
            }),
            50..55 => Call::Grant(id),
            55..58 => Call::Revoke(id),
            58..62 => Call::KeepAlive(id),
            62..66 => Call::TimeToLive(id, prev_kv),
            66..68 => Call::Leases,
            68 => Call::Compact,
            69..71 => Call::Status,
            71 => Call::Hash,
            72..74 => Call::HashKv,
            74 => Call::Defragment,
            75 => Call::Snapshot,
            76..78 => Call::Alarm(self.of(&[0, 1, 2, 2])),
            78 => Call::MoveLeader(prev_kv),
            79 => Call::Members,
            80 => Call::AuthStatus,
            81 => Call::UserAdd,
            82..84 => Call::UserGet(user),
            84 => Call::UserList,
            85..87 => Call::RoleGet(role),
            87 => Call::RoleList,
            88 => Call::Disable,
            89..91 => Call::GrantRole(user, role),
            91..93 => Call::RevokeRole(user, role),
            93..97 => {
                let perm_type = self.of(&[0, 1, 2]);
                Call::GrantPermission(role, Permission { perm_type, key, range_end })
            }
            _ => Call::RevokePermission(role, self.of(&KEYS), self.of(&ENDS)),
        }
    }

    /// What this version checks less than newer ones, or tells otherwise, or has not.
    fn is_older(&self, call: &Call, who: &str) -> bool {
        let is_more = |op: &pb::RequestOp| match &op.request {
            Some(Op::RequestTxn(_)) => true,
            Some(Op::RequestPut(put)) => put.prev_kv || put.lease != 0,
            _ => false,
        };
        match call {
            // What a put in a transaction reads and which lease it takes, and what is nested, is checked since 3.7.
            Call::Txn(txn) => {
                self.version < [3, 7] && txn.success.iter().chain(&txn.failure).any(is_more)
            }
            // Up to 3.6 whoever may read the first key may watch all from there on.
            Call::Watch(watch) => self.version < [3, 7] && watch.range_end == "\0",
            // Only for root up to 3.6.
            Call::AuthStatus => self.version < [3, 7],
            // Up to 3.6 some of them are for all, or for all who have a token; some are for root alone.
            Call::Grant(_)
            | Call::Revoke(_)
            | Call::KeepAlive(_)
            | Call::TimeToLive(..)
            | Call::Leases
            | Call::Status
            | Call::MoveLeader(_)
            | Call::Compact
            | Call::Members => self.version < [3, 7] && who != "root",
            // Up to 3.4 without a header.
            Call::Alarm(_) => self.version < [3, 7] && (who != "root" || self.version < [3, 5]),
            // Refusals are not those of etcd, but the library's.
            Call::HashKv | Call::Hash | Call::Defragment | Call::Snapshot => {
                self.version < [3, 6] && who != "root"
            }
            _ => false,
        }
    }

    fn who(&mut self, call: &Call) -> &'static str {
        match self.random.random_range(0..20) {
            0 => "nobody",
            1 => "somebody",
            // Whoever ends it, ends the test.
            _ if matches!(call, Call::Disable) => self.of(&["u", "v", "w"]),
            _ if call.changes() && self.of(&[true, true, false]) => "root",
            _ => self.of(&["root", "u", "u", "v", "v", "w"]),
        }
    }

    async fn step(&mut self, seed: u64) {
        let (call, who) = loop {
            let call = self.call();
            let who = self.who(&call);
            if !self.is_older(&call, who) {
                break (call, who);
            }
        };
        let changes = call.changes();
        let unknown = ["abc.1".to_owned(), "abc.1".to_owned()];
        let tokens = match who {
            "nobody" => None,
            "somebody" => Some(&unknown),
            user => self.tokens.get(user),
        };
        let mut both: [Told; 2] = [Ok(String::new()), Ok(String::new())];
        let sides = [&mut self.real.clients, &mut self.ours.clients];
        for (at, (clients, told)) in sides.into_iter().zip(&mut both).enumerate() {
            let answer = ask(clients, &call, tokens.map(|tokens| &tokens[at])).await;
            *told = answer.map_err(|status| (status.code(), status.message().to_owned()));
        }
        let [expected, answered] = both;
        self.past.push(format!("{who}: {call:?}: {expected:?}"));
        let past = || self.past[self.past.len().saturating_sub(40)..].join("\n");
        // Which of two refusals comes first while there is an alarm.
        let no_space = "etcdserver: mvcc: database space exceeded";
        if expected.as_ref().is_err_and(|(_, text)| text == no_space) && answered.is_err() {
            return;
        }
        assert_eq!(answered, expected, "seed {seed}, the last is what differs:\n{}", past());
        let told = expected.err().map_or_else(|| "done".to_owned(), |(_, text)| text);
        *self.told.entry(told).or_default() += 1;
        // After most changes of what is allowed; else a token is of before them.
        if changes && self.of(&[true, true, false]) {
            for user in USERS {
                self.log_in(user).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_do_what_is_as_with_a_real_etcd() {
    let (first, steps) = (number("ANNALS_ETCD_SEED", 1), number("ANNALS_ETCD_STEPS", 400));
    for seed in first..first + number("ANNALS_ETCD_SEQUENCES", 2) {
        let Some(mut run) = Run::start(seed).await else { return };
        for _ in 0..steps {
            run.step(seed).await;
        }
        println!("seed {seed}: {:#?}", run.told);
        assert!(run.told.len() > 5, "{:?}", run.told);
    }
}
