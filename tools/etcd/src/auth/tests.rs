//! Users, roles and checks together.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::time::Instant;

use tempfile::TempDir;
use tonic::Code;

use super::*;
use crate::proto::authpb::{Permission, permission::Type};
use crate::proto::etcdserverpb as pb;
use pb::request_op::Request;

const COST: u32 = 4;

struct Bench {
    directory: TempDir,
    auth: Auth,
}

fn options() -> AuthOptions {
    AuthOptions { bcrypt_cost: COST, ..AuthOptions::default() }
}

fn metadata(token: &str) -> MetadataMap {
    let mut metadata = MetadataMap::new();
    if !token.is_empty() {
        metadata.insert("token", token.parse().unwrap());
    }
    metadata
}

fn code(allowed: Result<(), Status>) -> Code {
    allowed.map_or_else(|status| status.code(), |()| Code::Ok)
}

fn text<T>(result: Result<T, Status>) -> String {
    result.err().map(|status| status.message().to_owned()).unwrap_or_default()
}

fn granted(perm_type: Type, key: &'static str, range_end: &'static str) -> Permission {
    Permission { perm_type: perm_type.into(), key: key.into(), range_end: range_end.into() }
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let auth = Auth::open(directory.path(), options()).unwrap();
        Self { directory, auth }
    }

    /// With a user `root`, one `u` (password `p`) whose role `r` may read `a` to `c` and write `b` to `d`, and one `c`
    /// who has no password and that role; enabled.
    fn enabled() -> Self {
        let bench = Self::new();
        bench.edit("", |state| {
            let hash = |password| password::hash(password, COST).unwrap();
            state.add_user("root", Some(hash("secret")))?;
            state.grant_role("root", "root")?;
            state.add_user("u", Some(hash("p")))?;
            state.add_user("c", None)?;
            state.add_role("r")?;
            state.grant_permission("r", Some(&granted(Type::Read, "a", "c")))?;
            state.grant_permission("r", Some(&granted(Type::Write, "b", "d")))?;
            state.grant_role("u", "r")?;
            state.grant_role("c", "r")?;
            state.enable()
        });
        bench
    }

    fn edit(
        &self,
        user: &str,
        edit: impl FnOnce(&mut State) -> Result<Change, Refusal>,
    ) -> Settled {
        let token = if self.auth.is_enabled() {
            Some(Token(self.auth.authenticate("root", "secret").unwrap()))
        } else {
            None
        };
        self.auth.change(&Credentials { token, common_name: None }, user, edit).unwrap()
    }

    fn caller(&self, user: &str, password: &str) -> Caller {
        let token = self.auth.authenticate(user, password).unwrap();
        self.auth.caller(&metadata(&token), None).unwrap()
    }
}

#[test]
fn nobody_is_asked_until_it_is_enabled() {
    let bench = Bench::new();
    // Even a token that is good for nothing is not looked at.
    let caller = bench.auth.caller(&metadata("good.for.nothing"), None).unwrap();
    assert!(!caller.is_restricted() && caller.name().is_none());
    assert_eq!(caller.commit_options().metadata, "");
    assert_eq!(Bench::enabled().caller("u", "p").commit_options().metadata, "u");
    caller.must_be_admin().unwrap();
    caller.may_range(b"a", b"\0").unwrap();
    caller.must_be_known().unwrap();
    assert_eq!(bench.auth.authenticate("root", "x"), Err(NOT_ENABLED));
}

#[test]
fn who_says_nothing_is_told_so_and_a_wrong_token_is_another_matter() {
    let bench = Bench::enabled();
    let nobody = bench.auth.caller(&MetadataMap::new(), None).unwrap();
    for refused in [
        nobody.may_range(b"a", b""),
        nobody.must_be_admin(),
        nobody.must_be_known(),
        nobody.may_lease_grant(),
        nobody.may_get_user("u"),
    ] {
        assert_eq!(text(refused), "etcdserver: user name is empty");
    }
    for token in ["x", "x.1", "x.y.z"] {
        let refused = bench.auth.caller(&metadata(token), None).unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated);
        assert_eq!(refused.message(), "etcdserver: invalid auth token");
    }
}

#[test]
fn a_token_may_come_in_either_header() {
    let bench = Bench::enabled();
    let token = bench.auth.authenticate("u", "p").unwrap();
    for text in [token.clone(), format!("Bearer {token}")] {
        let mut metadata = MetadataMap::new();
        metadata.insert("authorization", text.parse().unwrap());
        let caller = bench.auth.caller(&metadata, Some("c")).unwrap();
        assert_eq!(caller.name(), Some("u"), "the token counts more than the certificate");
    }
}

#[test]
fn a_certificate_is_enough_but_not_the_gateways() {
    let bench = Bench::enabled();
    let mut metadata = MetadataMap::new();
    let caller = bench.auth.caller(&metadata, Some("c")).unwrap();
    assert_eq!(code(caller.may_range(b"a", b"")), Code::Ok);
    // A name that is nobody's, and none: known, but without permissions.
    for name in ["", "x"] {
        let caller = bench.auth.caller(&metadata, Some(name)).unwrap();
        assert_eq!(code(caller.may_range(b"a", b"")), Code::PermissionDenied);
        caller.must_be_known().unwrap();
    }
    let unknown = bench.auth.caller(&metadata, Some("x")).unwrap();
    assert_eq!(text(unknown.must_be_admin()), "etcdserver: user name not found");
    metadata.insert("grpcgateway-accept", "application/json".parse().unwrap());
    let nobody = bench.auth.caller(&metadata, Some("c")).unwrap();
    assert_eq!(text(nobody.must_be_known()), "etcdserver: user name is empty");
}

#[test]
fn passwords_and_their_absence() {
    let bench = Bench::enabled();
    assert_eq!(bench.auth.authenticate("u", "q"), Err(FAILED));
    assert_eq!(bench.auth.authenticate("nobody", "p"), Err(FAILED));
    assert_eq!(bench.auth.authenticate("c", ""), Err(NO_PASSWORD_USER));
    bench.edit("u", |state| state.change_password("u", || Ok(Vec::new())));
    assert_eq!(bench.auth.authenticate("u", ""), Err(FAILED), "no hash is that of no password");
}

type Check<'a> = Box<dyn Fn(&Caller) -> Result<(), Status> + 'a>;

fn put(key: &'static str, prev_kv: bool) -> pb::PutRequest {
    pb::PutRequest { key: key.into(), prev_kv, ..Default::default() }
}

fn delete(key: &'static str, end: &'static str, prev_kv: bool) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest { key: key.into(), range_end: end.into(), prev_kv }
}

fn range(key: &'static str, end: &'static str) -> pb::RangeRequest {
    pb::RangeRequest { key: key.into(), range_end: end.into(), ..Default::default() }
}

fn txn(success: Vec<Request>, failure: Vec<Request>) -> pb::TxnRequest {
    let op = |request| pb::RequestOp { request: Some(request) };
    let (success, failure) = (success.into_iter().map(op), failure.into_iter().map(op));
    let (success, failure) = (success.collect(), failure.collect());
    pb::TxnRequest { success, failure, ..Default::default() }
}

fn compare(key: &'static str, end: &'static str) -> pb::TxnRequest {
    let compare = pb::Compare { key: key.into(), range_end: end.into(), ..Default::default() };
    pb::TxnRequest { compare: vec![compare], ..Default::default() }
}

#[test]
fn a_table_of_checks() {
    let bench = Bench::enabled();
    let (user, root) = (bench.caller("u", "p"), bench.caller("root", "secret"));
    let nested = txn(
        vec![Request::RequestTxn(txn(vec![], vec![Request::RequestPut(put("a", false))]))],
        vec![],
    );
    let table: Vec<(bool, Check<'_>)> = vec![
        (true, Box::new(|caller| caller.may_range(b"a", b""))),
        (true, Box::new(|caller| caller.may_range(b"a", b"c"))),
        (false, Box::new(|caller| caller.may_range(b"a", b"d"))),
        (false, Box::new(|caller| caller.may_range(b"a", b"\0"))),
        (false, Box::new(|caller| caller.may_range(b"c", b""))),
        (true, Box::new(|caller| caller.may_watch(b"b", b"c"))),
        (false, Box::new(|caller| caller.may_watch(b"", b"\0"))),
        (true, Box::new(|caller| caller.may_put(&put("b", true)))),
        (true, Box::new(|caller| caller.may_put(&put("c", false)))),
        (false, Box::new(|caller| caller.may_put(&put("c", true)))),
        (false, Box::new(|caller| caller.may_put(&put("a", false)))),
        (true, Box::new(|caller| caller.may_delete(&delete("b", "d", false)))),
        (false, Box::new(|caller| caller.may_delete(&delete("b", "d", true)))),
        (true, Box::new(|caller| caller.may_delete(&delete("b", "c", true)))),
        (true, Box::new(|caller| caller.may_txn(&compare("a", "c")))),
        (false, Box::new(|caller| caller.may_txn(&compare("c", "")))),
        (
            true,
            Box::new(|caller| {
                caller.may_txn(&txn(vec![Request::RequestPut(put("c", false))], vec![]))
            }),
        ),
        (
            false,
            Box::new(|caller| {
                caller.may_txn(&txn(vec![], vec![Request::RequestPut(put("c", true))]))
            }),
        ),
        (
            false,
            Box::new(|caller| {
                caller.may_txn(&txn(vec![], vec![Request::RequestRange(range("c", ""))]))
            }),
        ),
        (
            false,
            Box::new(|caller| {
                caller
                    .may_txn(&txn(vec![Request::RequestDeleteRange(delete("c", "", true))], vec![]))
            }),
        ),
        (false, Box::new(|caller| caller.may_txn(&nested))),
        (true, Box::new(|caller| caller.may_write_keys(["b", "c"]))),
        (false, Box::new(|caller| caller.may_lease_revoke(["b", "d"]))),
        (true, Box::new(|caller| caller.may_lease_keep_alive(["b"]))),
        (true, Box::new(|caller| caller.may_lease_time_to_live(["a"]))),
        (false, Box::new(|caller| caller.may_lease_leases(["a", "x"]))),
        (true, Box::new(Caller::may_lease_grant)),
        (true, Box::new(|caller| caller.may_get_user("u"))),
        (false, Box::new(|caller| caller.may_get_user("root"))),
        (true, Box::new(|caller| caller.may_get_role("r"))),
        (false, Box::new(|caller| caller.may_get_role("root"))),
        (false, Box::new(Caller::must_be_admin)),
    ];
    for (row, (allowed, check)) in table.iter().enumerate() {
        let expected = if *allowed { Code::Ok } else { Code::PermissionDenied };
        assert_eq!(code(check(&user)), expected, "row {row}");
        assert_eq!(code(check(&root)), Code::Ok, "row {row}, root");
    }
}

#[test]
fn leases_that_a_request_names_are_told_to_whom_it_may_be_refused() {
    let bench = Bench::enabled();
    let put = |lease| pb::PutRequest { lease, ..Default::default() };
    let op = |request| pb::RequestOp { request: Some(request) };
    let nested =
        pb::TxnRequest { failure: vec![op(Request::RequestPut(put(5)))], ..Default::default() };
    let txn = pb::TxnRequest {
        success: vec![
            op(Request::RequestPut(put(7))),
            op(Request::RequestPut(put(0))),
            op(Request::RequestTxn(nested)),
            op(Request::RequestPut(put(5))),
        ],
        ..Default::default()
    };
    let user = bench.caller("u", "p");
    assert_eq!(user.leases_of_txn(&txn), [5, 7]);
    assert_eq!((user.leases_of_put(&put(3)), user.leases_of_put(&put(0))), (vec![3], vec![]));
    for caller in [bench.caller("root", "secret"), Caller::anyone()] {
        assert!(caller.leases_of_txn(&txn).is_empty() && caller.leases_of_put(&put(3)).is_empty());
    }
}

#[test]
fn rules_that_are_old_are_told_as_such_and_disabling_frees() {
    let bench = Bench::enabled();
    let (before, token) = (bench.caller("u", "p"), bench.auth.authenticate("u", "p").unwrap());
    before.may_range(b"a", b"").unwrap();
    drop(bench.edit("", |state| state.add_role("another")));
    let old = "etcdserver: revision of auth store is old";
    assert_eq!(text(before.may_range(b"a", b"")), old);
    assert_eq!(text(before.is_current()), old);
    // The token is good still: roles and permissions are looked at anew.
    let after = bench.auth.caller(&metadata(&token), None).unwrap();
    after.may_range(b"a", b"").unwrap();
    after.is_current().unwrap();
    drop(bench.edit("", |state| state.revoke_role("u", "r")));
    let after = bench.auth.caller(&metadata(&token), None).unwrap();
    assert_eq!(code(after.may_range(b"a", b"")), Code::PermissionDenied);
    drop(bench.edit("", State::disable));
    after.may_range(b"z", b"").unwrap();
    drop(bench.edit("", State::enable));
    assert!(bench.auth.caller(&metadata(&token), None).is_err(), "tokens are gone");
}

#[test]
fn another_password_makes_tokens_void() {
    let bench = Bench::enabled();
    let [first, second] = ["u", "u"].map(|user| bench.auth.authenticate(user, "p").unwrap());
    let other = bench.auth.authenticate("root", "secret").unwrap();
    bench.edit("u", |state| state.change_password("u", || password::hash("q", COST)));
    for token in [&first, &second] {
        assert!(bench.auth.caller(&metadata(token), None).is_err());
    }
    assert!(bench.auth.caller(&metadata(&other), None).is_ok());
    let token = bench.auth.authenticate("u", "q").unwrap();
    bench.edit("u", |state| state.delete_user("u"));
    assert!(bench.auth.caller(&metadata(&token), None).is_err());
}

#[test]
fn only_root_may_change_anything() {
    let bench = Bench::enabled();
    let token = |user, password| {
        let token = Token(bench.auth.authenticate(user, password).unwrap());
        Credentials { token: Some(token), common_name: None }
    };
    let change = |credentials: &Credentials| {
        bench.auth.change(credentials, "", |state| state.add_role("x")).map(|_| ())
    };
    assert_eq!(text(change(&token("u", "p"))), "etcdserver: permission denied");
    assert_eq!(text(change(&Credentials::default())), "etcdserver: user name is empty");
    assert_eq!(bench.auth.revision(), bench.auth.snapshot().revision);
    assert_eq!(bench.auth.snapshot().roles.len(), 1);
    change(&token("root", "secret")).unwrap();
}

#[test]
fn everything_is_there_after_a_start_but_the_tokens() {
    let bench = Bench::enabled();
    let (before, token) = (bench.auth.snapshot(), bench.auth.authenticate("u", "p").unwrap());
    drop(bench.auth);
    let late = AuthOptions { is_new: false, ..options() };
    let auth = Auth::open(bench.directory.path(), late.clone()).unwrap();
    assert_eq!(auth.snapshot(), before);
    assert!(auth.is_enabled() && auth.caller(&metadata(&token), None).is_err());
    let token = auth.authenticate("u", "p").unwrap();
    auth.caller(&metadata(&token), None).unwrap().may_range(b"a", b"c").unwrap();
    fs::remove_file(bench.directory.path().join("auth.json")).unwrap();
    let error = Auth::open(bench.directory.path(), late).unwrap_err();
    assert!(matches!(error.kind(), AuthFileErrorKind::Missing), "{error}");
    assert!(error.to_string().contains("auth.json"));
}

#[test]
fn a_snapshot_becomes_another_servers_rules() {
    let bench = Bench::enabled();
    let (snapshot, other) = (bench.auth.snapshot(), tempfile::tempdir().unwrap());
    snapshot.write(other.path()).unwrap();
    let auth = Auth::open(other.path(), AuthOptions { is_new: false, ..options() }).unwrap();
    assert_eq!(auth.snapshot(), snapshot);
    auth.authenticate("u", "p").unwrap();
    let mut wrong = snapshot;
    wrong.roles[0].name = vec![0xff].into();
    assert!(wrong.write(other.path()).unwrap_err().to_string().contains("not text"));
    assert_eq!(AuthFile::new(other.path()).read().unwrap().unwrap(), auth.rules().state);
}

#[test]
fn what_cannot_be_kept_changes_nothing() {
    let bench = Bench::enabled();
    let before = bench.auth.snapshot();
    let token = bench.auth.authenticate("u", "p").unwrap();
    let root = Token(bench.auth.authenticate("root", "secret").unwrap());
    fs::create_dir(bench.directory.path().join("auth.json.new")).unwrap();
    let credentials = Credentials { token: Some(root), common_name: None };
    let failed = bench.auth.change(&credentials, "u", |state| state.delete_user("u"));
    assert_eq!(failed.unwrap_err().code(), Code::Unavailable);
    assert_eq!((bench.auth.snapshot(), bench.auth.revision()), (before.clone(), before.revision));
    bench.auth.caller(&metadata(&token), None).unwrap().is_current().unwrap();
    fs::remove_dir(bench.directory.path().join("auth.json.new")).unwrap();
    bench.auth.change(&credentials, "u", |state| state.delete_user("u")).unwrap();
    assert_eq!(bench.auth.revision(), before.revision + 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_waits_for_what_it_forbids_but_not_for_ever() {
    let bench = Bench::enabled();
    let (first, second) = (bench.caller("u", "p"), bench.caller("u", "p"));
    let settled = bench.edit("", |state| state.add_role("x"));
    let waiting = tokio::spawn(settle(settled));
    tokio::task::yield_now().await;
    drop(first);
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    drop(second);
    waiting.await.unwrap();
    let stays = bench.caller("u", "p");
    let (settled, start) =
        (bench.edit("", |state| state.add_role("y")), tokio::time::Instant::now());
    settle(settled).await;
    assert_eq!(start.elapsed().as_secs(), SETTLE.as_secs());
    assert!(stays.is_current().is_err());
    // Nobody has the rules: at once.
    let (settled, start) = (bench.edit("", |state| state.add_role("z")), Instant::now());
    settle(settled).await;
    assert!(start.elapsed() < SETTLE);
}

#[test]
fn checks_go_on_while_rules_change() {
    let bench = Bench::enabled();
    let token = bench.auth.authenticate("u", "p").unwrap();
    std::thread::scope(|scope| {
        let checking = scope.spawn(|| {
            let (mut allowed, mut denied) = (0, 0);
            while bench.auth.revision() < 100 {
                let caller = bench.auth.caller(&metadata(&token), None).unwrap();
                // Either all of a change or nothing of it: the two permissions come and go together.
                match (code(caller.may_range(b"m", b"")), code(caller.may_range(b"n", b""))) {
                    (Code::Ok, Code::Ok) => allowed += 1,
                    (Code::PermissionDenied, Code::PermissionDenied) => denied += 1,
                    (_, Code::InvalidArgument) => {}
                    other => panic!("{other:?}"),
                }
            }
            (allowed, denied)
        });
        let mut there = false;
        while bench.auth.revision() < 100 {
            bench.edit("", |state| {
                for key in ["m", "n"] {
                    if there {
                        state.revoke_permission("r", key.as_bytes(), b"")?;
                    } else {
                        state.grant_permission("r", Some(&granted(Type::Read, key, "")))?;
                    }
                }
                Ok(Change::Made)
            });
            there = !there;
        }
        let (allowed, denied) = checking.join().unwrap();
        assert!(allowed > 0 && denied > 0, "{allowed} {denied}");
    });
}

#[test]
fn nothing_secret_is_printed() {
    let bench = Bench::enabled();
    let token = bench.auth.authenticate("u", "p").unwrap();
    let caller = bench.auth.caller(&metadata(&token), None).unwrap();
    let printed =
        format!("{:?} {caller:?} {:?}", bench.auth, Credentials::new(&metadata(&token), None));
    assert!(!printed.contains(&token) && !printed.contains("$2a$"), "{printed}");
}
