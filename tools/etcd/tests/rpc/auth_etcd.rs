//! The service `Auth` and a real etcd, asked the same at random: codes, texts and answers must be the same.
//!
//! The real one is 3.4, ours follows 3.6 and newer. What is different by intention, and so not asked or not compared:
//! - heads, and tokens (they are random);
//! - the permissions of the role `root`, which newer ones tell as "everything" and 3.4 as those that were granted;
//! - ranges that are none, no permission at all (3.4 ends there), and an empty password for one that is changed;
//! - a token with Authenticate or while nobody is asked, at which newer ones do not look;
//! - transactions in transactions, and old values in those: 3.4 does not check them;
//! - `AuthStatus`, which 3.4 has not;
//! - ranges that end before they begin, and so are of nothing: there etcd's answer is a matter of how its tree of
//!   permissions has grown;
//! - roles with more than 12 permissions: Go's sorting leaves those of one key in any order then.

use std::path::Path;
use std::process::{Command, Stdio};

use annals_etcd::auth::service::AuthService;
use annals_etcd::auth::{Auth, AuthOptions};
use annals_etcd::proto::authpb::{Permission, UserAddOptions};
use annals_etcd::proto::etcdserverpb as pb;
use pb::auth_client::AuthClient;
use pb::auth_server::AuthServer;
use pb::kv_client::KvClient;
use pb::request_op::Request as Op;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::etcd_process::{EtcdProcess, Ports};

const STEPS: usize = 1500;
const USERS: [&str; 5] = ["root", "u", "v", "certificate", ""];
const ROLES: [&str; 4] = ["root", "r", "s", ""];
const PASSWORDS: [&str; 3] = ["p", "q", "a longer one"];
const KEYS: [&str; 5] = ["a", "b", "b\0", "c", "d"];
const ENDS: [&str; 7] = ["", "", "b", "c", "d", "e", "\0"];

/// One request.
#[derive(Clone, Debug)]
enum Call {
    Enable,
    Disable,
    Authenticate(&'static str, &'static str),
    UserAdd(&'static str, Option<&'static str>),
    UserDelete(&'static str),
    UserGet(&'static str),
    UserList,
    ChangePassword(&'static str, &'static str),
    GrantRole(&'static str, &'static str),
    RevokeRole(&'static str, &'static str),
    RoleAdd(&'static str),
    RoleDelete(&'static str),
    RoleGet(&'static str),
    RoleList,
    GrantPermission(&'static str, i32, &'static str, &'static str),
    RevokePermission(&'static str, &'static str, &'static str),
    Range(&'static str, &'static str),
    Put(&'static str, bool),
    Delete(&'static str, &'static str, bool),
    Txn(&'static str, &'static str, &'static str),
}

/// What is answered: in words, or why not.
type Told = Result<String, (Code, String)>;

/// One of the two servers.
struct Side {
    auth: AuthClient<Channel>,
    /// The real one's; ours is asked by its checks.
    kv: Option<KvClient<Channel>>,
    checks: Option<Auth>,
    tokens: Vec<String>,
}

/// A real one; `None` where none is installed.
fn start_etcd(directory: &Path) -> Option<EtcdProcess> {
    if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: there is no etcd here (Debian: etcd-server)");
        return None;
    }
    let command = |ports: Ports| {
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(directory).args(ports.flags());
        command.args(["--log-level", "error", "--bcrypt-cost", "4"]);
        command
    };
    Some(EtcdProcess::start(command, Ports::are_healthy))
}

async fn connect_etcd(etcd: &EtcdProcess) -> Side {
    let channel = Channel::from_shared(etcd.url()).unwrap().connect().await.unwrap();
    let (kv, auth) = (KvClient::new(channel.clone()), AuthClient::new(channel));
    Side { auth, kv: Some(kv), checks: None, tokens: Vec::new() }
}

async fn start_ours(directory: &Path) -> Side {
    let options = AuthOptions { bcrypt_cost: 4, ..AuthOptions::default() };
    let auth = Auth::open(directory, options).unwrap();
    let service = AuthServer::new(AuthService::new(&auth, pb::ResponseHeader::default));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(incoming));
    let client = AuthClient::connect(address).await.unwrap();
    Side { auth: client, kv: None, checks: Some(auth), tokens: Vec::new() }
}

fn with<T>(message: T, token: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("token", token.parse().unwrap());
    }
    request
}

fn told<T>(answer: Result<T, Status>, words: impl FnOnce(T) -> String) -> Told {
    answer.map(words).map_err(|status| (status.code(), status.message().to_owned()))
}

fn txn(compare: &'static str, put: &'static str, range: &'static str) -> pb::TxnRequest {
    let op = |request| vec![pb::RequestOp { request: Some(request) }];
    let put = pb::PutRequest { key: put.into(), ..Default::default() };
    let range = pb::RangeRequest { key: range.into(), ..Default::default() };
    pb::TxnRequest {
        compare: vec![pb::Compare { key: compare.into(), ..Default::default() }],
        success: op(Op::RequestPut(put)),
        failure: op(Op::RequestRange(range)),
    }
}

impl Side {
    async fn call(&mut self, call: &Call, token: Option<&str>) -> Told {
        match self.change(call, token).await {
            Some(told) => told,
            None => match self.look(call, token).await {
                Some(told) => told,
                None => self.check(call, token).await,
            },
        }
    }

    /// What changes users and roles.
    async fn change(&mut self, call: &Call, token: Option<&str>) -> Option<Told> {
        let auth = &mut self.auth;
        macro_rules! ask {
            ($method:ident, $message:expr) => {
                told(auth.$method(with($message, token)).await, |_| String::new())
            };
        }
        Some(match *call {
            Call::Enable => ask!(auth_enable, pb::AuthEnableRequest {}),
            Call::Disable => ask!(auth_disable, pb::AuthDisableRequest {}),
            Call::UserAdd(name, password) => {
                let options = Some(UserAddOptions { no_password: password.is_none() });
                let (name, password) = (name.into(), password.unwrap_or_default().into());
                let add = pb::AuthUserAddRequest { name, password, options, ..Default::default() };
                ask!(user_add, add)
            }
            Call::UserDelete(name) => {
                ask!(user_delete, pb::AuthUserDeleteRequest { name: name.into() })
            }
            Call::ChangePassword(name, password) => {
                let (name, password) = (name.into(), password.into());
                let change =
                    pb::AuthUserChangePasswordRequest { name, password, ..Default::default() };
                ask!(user_change_password, change)
            }
            Call::GrantRole(user, role) => {
                let (user, role) = (user.into(), role.into());
                ask!(user_grant_role, pb::AuthUserGrantRoleRequest { user, role })
            }
            Call::RevokeRole(name, role) => {
                let (name, role) = (name.into(), role.into());
                ask!(user_revoke_role, pb::AuthUserRevokeRoleRequest { name, role })
            }
            Call::RoleAdd(name) => ask!(role_add, pb::AuthRoleAddRequest { name: name.into() }),
            Call::RoleDelete(role) => {
                ask!(role_delete, pb::AuthRoleDeleteRequest { role: role.into() })
            }
            Call::GrantPermission(name, perm_type, key, range_end) => {
                let (key, range_end) = (key.into(), range_end.into());
                let perm = Some(Permission { perm_type, key, range_end });
                let grant = pb::AuthRoleGrantPermissionRequest { name: name.into(), perm };
                ask!(role_grant_permission, grant)
            }
            Call::RevokePermission(role, key, end) => {
                let (role, key, range_end) = (role.into(), key.into(), end.into());
                let revoke = pb::AuthRoleRevokePermissionRequest { role, key, range_end };
                ask!(role_revoke_permission, revoke)
            }
            _ => return None,
        })
    }

    /// What looks at users and roles, and what gives a token.
    async fn look(&mut self, call: &Call, token: Option<&str>) -> Option<Told> {
        let auth = &mut self.auth;
        Some(match *call {
            Call::Authenticate(name, password) => {
                let (name, password) = (name.into(), password.into());
                let answer = auth.authenticate(pb::AuthenticateRequest { name, password }).await;
                told(answer, |answer| {
                    self.tokens.push(answer.into_inner().token);
                    String::new()
                })
            }
            Call::UserGet(name) => {
                let get = pb::AuthUserGetRequest { name: name.into() };
                let answer = auth.user_get(with(get, token)).await;
                told(answer, |answer| format!("{:?}", answer.into_inner().roles))
            }
            Call::UserList => {
                let answer = auth.user_list(with(pb::AuthUserListRequest {}, token)).await;
                told(answer, |answer| format!("{:?}", answer.into_inner().users))
            }
            Call::RoleGet(role) => {
                let get = pb::AuthRoleGetRequest { role: role.into() };
                let answer = auth.role_get(with(get, token)).await;
                let is_root = role == "root";
                told(answer, |answer| {
                    if is_root { String::new() } else { format!("{:?}", answer.into_inner().perm) }
                })
            }
            Call::RoleList => {
                let answer = auth.role_list(with(pb::AuthRoleListRequest {}, token)).await;
                told(answer, |answer| format!("{:?}", answer.into_inner().roles))
            }
            _ => return None,
        })
    }

    /// What needs a permission.
    async fn check(&mut self, call: &Call, token: Option<&str>) -> Told {
        let range = |key: &'static str, end: &'static str| pb::RangeRequest {
            key: key.into(),
            range_end: end.into(),
            ..Default::default()
        };
        let put = |key: &'static str, prev_kv| pb::PutRequest {
            key: key.into(),
            prev_kv,
            ..Default::default()
        };
        let delete = |key: &'static str, end: &'static str, prev_kv| pb::DeleteRangeRequest {
            key: key.into(),
            range_end: end.into(),
            prev_kv,
        };
        if let Some(auth) = &self.checks {
            let caller = match auth.caller(with((), token).metadata(), None) {
                Ok(caller) => caller,
                Err(status) => return Err((status.code(), status.message().to_owned())),
            };
            let allowed = match *call {
                Call::Range(key, end) => caller.may_range(key.as_bytes(), end.as_bytes()),
                Call::Put(key, prev_kv) => caller.may_put(&put(key, prev_kv)),
                Call::Delete(key, end, prev_kv) => caller.may_delete(&delete(key, end, prev_kv)),
                Call::Txn(compare, put, range) => caller.may_txn(&txn(compare, put, range)),
                _ => unreachable!("{call:?}"),
            };
            return told(allowed, |()| String::new());
        }
        let kv = self.kv.as_mut().unwrap();
        let answer = match *call {
            Call::Range(key, end) => kv.range(with(range(key, end), token)).await.map(|_| ()),
            Call::Put(key, prev_kv) => kv.put(with(put(key, prev_kv), token)).await.map(|_| ()),
            Call::Delete(key, end, prev_kv) => {
                kv.delete_range(with(delete(key, end, prev_kv), token)).await.map(|_| ())
            }
            Call::Txn(compare, put, range) => {
                kv.txn(with(txn(compare, put, range), token)).await.map(|_| ())
            }
            _ => unreachable!("{call:?}"),
        };
        told(answer, |()| String::new())
    }
}

fn any<T: Copy>(random: &mut StdRng, of: &[T]) -> T {
    of[random.random_range(0..of.len())]
}

/// A range's end that is one for the key.
fn end_for(random: &mut StdRng, key: &str) -> &'static str {
    loop {
        let end = any(random, &ENDS);
        if end.is_empty() || end == "\0" || key < end {
            return end;
        }
    }
}

fn any_call(random: &mut StdRng) -> Call {
    let (user, role) = (any(random, &USERS), any(random, &ROLES));
    let (password, key) = (any(random, &PASSWORDS), any(random, &KEYS));
    let (end, kind) = (end_for(random, key), random.random_range(0..3));
    match random.random_range(0..56) {
        0 | 1 => Call::Enable,
        2 => Call::Disable,
        3..=9 => Call::Authenticate(user, password),
        10 | 11 => Call::UserAdd(user, (user != "certificate").then_some(password)),
        12 => Call::UserDelete(user),
        13 | 14 => Call::UserGet(user),
        15 => Call::UserList,
        16 => Call::ChangePassword(user, password),
        17..=20 => Call::GrantRole(user, role),
        21 => Call::RevokeRole(user, role),
        22 | 23 => Call::RoleAdd(role),
        24 => Call::RoleDelete(role),
        25..=27 => Call::RoleGet(role),
        28 => Call::RoleList,
        29..=33 => Call::GrantPermission(role, kind, key, end),
        34 | 35 => Call::RevokePermission(role, key, end),
        36..=43 => Call::Range(key, if kind == 0 { key } else { end }),
        44..=48 => Call::Put(key, kind == 0),
        49..=52 => Call::Delete(key, end, kind == 0),
        _ => Call::Txn(key, any(random, &KEYS), any(random, &KEYS)),
    }
}

/// What would not be the same by intention.
fn is_skipped(call: &Call, ours: &Side) -> bool {
    let Call::GrantPermission(role, ..) = call else { return false };
    let roles = ours.checks.as_ref().unwrap().snapshot().roles;
    roles.iter().any(|own| own.name == role.as_bytes() && own.key_permission.len() >= 12)
}

/// So that much is allowed: a few users and roles, and tokens.
fn beginning() -> Vec<Call> {
    vec![
        Call::Enable,
        Call::Authenticate("root", "p"),
        Call::UserAdd("root", Some("p")),
        Call::Enable,
        Call::GrantRole("root", "root"),
        Call::UserAdd("u", Some("p")),
        Call::UserAdd("v", Some("q")),
        Call::UserAdd("certificate", None),
        Call::RoleAdd("r"),
        Call::RoleAdd("s"),
        Call::RoleGet("r"),
        Call::GrantPermission("r", 0, "a", "c"),
        Call::GrantPermission("r", 2, "c", "d"),
        Call::GrantPermission("s", 1, "b", "\0"),
        Call::GrantRole("u", "r"),
        Call::GrantRole("v", "s"),
        Call::Enable,
        Call::Authenticate("root", "p"),
        Call::Authenticate("u", "p"),
        Call::Authenticate("v", "q"),
        Call::Authenticate("certificate", "p"),
    ]
}

async fn play(seed: u64) -> Option<()> {
    let directory = tempfile::tempdir().unwrap();
    let etcd = start_etcd(&directory.path().join("etcd"))?;
    let (mut real, mut ours) = (connect_etcd(&etcd).await, start_ours(directory.path()).await);
    let mut random = StdRng::seed_from_u64(seed);
    let (mut good, mut refused) = (0, std::collections::BTreeMap::new());
    let mut calls = beginning();
    calls.reverse();
    let mut history = Vec::new();
    for step in 0..STEPS {
        let given = calls.pop();
        let tokens = real.tokens.len();
        let is_given = given.is_some();
        let call = given.unwrap_or_else(|| any_call(&mut random));
        if is_skipped(&call, &ours) {
            continue;
        }
        let is_check =
            matches!(call, Call::Range(..) | Call::Put(..) | Call::Delete(..) | Call::Txn(..));
        let which = match random.random_range(0..20) {
            0 | 1 => None,
            // One that is good for nothing.
            2 if !is_given => Some(usize::MAX),
            // The first is root's, for a time.
            3..=12 if !is_check => Some(0),
            _ if tokens == 0 => None,
            _ => Some(random.random_range(tokens.saturating_sub(6)..tokens)),
        };
        let token = |side: &Side| match which {
            Some(usize::MAX) => Some("abc.1".to_owned()),
            Some(at) => side.tokens.get(at).cloned(),
            None => None,
        };
        let is_asked = ours.checks.as_ref().unwrap().is_enabled();
        let tokens_of = |side: &Side| if is_asked { token(side) } else { None };
        let (real_token, our_token) = (tokens_of(&real), tokens_of(&ours));
        let expected = real.call(&call, real_token.as_deref()).await;
        let answered = ours.call(&call, our_token.as_deref()).await;
        history.push(format!("{step}: {call:?} with {which:?}: {expected:?}"));
        let past = || history.join("\n");
        assert_eq!(answered, expected, "seed {seed}:\n{}", past());
        assert_eq!(real.tokens.len(), ours.tokens.len());
        if which == Some(0) && matches!(expected, Err((Code::Unauthenticated, _))) {
            calls.extend(PASSWORDS.map(|password| Call::Authenticate("root", password)));
        }
        match expected {
            Ok(_) => good += 1,
            Err((_, text)) => *refused.entry(text).or_insert(0) += 1,
        }
        // Root's token, wherever it is void.
        if let (Call::Authenticate("root", _), true) = (&call, real.tokens.len() > tokens) {
            for side in [&mut real, &mut ours] {
                let token = side.tokens[tokens].clone();
                side.tokens[0] = token;
            }
        }
    }
    println!("seed {seed}: {good} good, refused: {refused:#?}");
    assert!(good > STEPS / 4 && refused.len() > 10, "{good} {refused:?}");
    Some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_is_answered_as_by_etcd() {
    let seeds = std::env::var("ANNALS_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    for seed in 0..seeds {
        if play(seed).await.is_none() {
            return;
        }
    }
}
