//! A real etcd begins with the snapshot of a store, and has all that the store has: at every revision, with its leases
//! and users, and from then on whatever is done to both.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and one that is skipped says so"
)]

#[path = "../../../tests/support/etcd_process.rs"]
mod etcd_process;
mod snapshot_made;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use annals::{At, DeleteRangeRequest, KeyValue, PutRequest, Store, put};
use annals_etcd::auth::AuthSnapshot;
use annals_etcd::proto::authpb::permission::Type;
use annals_etcd::proto::authpb::{Permission, Role, User};
use annals_etcd::snapshot::{Extras, Summary, save};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use etcd_process::{EtcdProcess, Ports};
use serde_json::{Value, json};
use snapshot_made::{Random, crc32c, history, read};

fn runs(program: &str) -> bool {
    let help = Command::new(program).arg("--help").output();
    help.is_ok_and(|output| output.status.success())
}

fn is_installed() -> bool {
    for program in ["etcd", "etcdctl"] {
        if !runs(program) {
            println!("skipped: there is no {program} here (Debian: etcd-server, etcd-client)");
            return false;
        }
    }
    true
}

/// What looks at snapshots, and restores them: since etcd 3.5 that is a program of its own.
fn utl(arguments: &[&str]) -> Result<String, String> {
    run(if runs("etcdutl") { "etcdutl" } else { "etcdctl" }, arguments)
}

fn ctl(arguments: &[&str]) -> Result<String, String> {
    run("etcdctl", arguments)
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    let output = command.env("ETCDCTL_API", "3").args(arguments).output().unwrap();
    let said = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(said(output.stdout)) } else { Err(said(output.stderr)) }
}

fn b64(bytes: impl AsRef<[u8]>) -> Value {
    json!(STANDARD.encode(bytes))
}

fn bytes(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap_or_default()).unwrap()
}

/// A number, which is a string; absent is 0.
fn number(value: &Value) -> i64 {
    value.as_str().map_or(0, |text| text.parse().unwrap())
}

/// A server that runs as long as this lives.
struct Etcd {
    process: EtcdProcess,
}

impl Etcd {
    /// Restores a snapshot to a directory, and starts a server there.
    fn restored(snapshot: &Path, directory: &Path) -> Self {
        let data = directory.join("data");
        let process = EtcdProcess::start(
            |ports| {
                let _ = std::fs::remove_dir_all(&data);
                let (cluster, peer) = (format!("default={}", ports.peer_url()), ports.peer_url());
                let place = ["--data-dir", data.to_str().unwrap(), "--name", "default"];
                let member =
                    ["--initial-cluster", &cluster, "--initial-advertise-peer-urls", &peer];
                let snapshot = snapshot.to_str().unwrap();
                utl(&[&["snapshot", "restore", snapshot], &place[..], &member].concat()).unwrap();
                let mut command = Command::new("etcd");
                command.args(place).args(ports.flags()).args(["--log-level", "error"]);
                command
            },
            Ports::are_healthy,
        );
        Self { process }
    }

    fn call(&self, path: &str, request: &Value) -> Option<Value> {
        let body = request.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.process.ports.client)).ok()?;
        let head = "HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length:";
        let method = if request.is_null() { "GET" } else { "POST" };
        let text = format!("{method} {path} {head} {}\r\n\r\n{body}", body.len());
        stream.write_all(text.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let body = answer.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
        serde_json::from_slice(&answer[body..]).ok()
    }

    fn endpoint(&self) -> String {
        self.process.url()
    }

    fn hash(&self, revision: u64) -> u64 {
        let (endpoint, revision) = (self.endpoint(), revision.to_string());
        let hash =
            ["endpoint", "hashkv", "--rev", &revision, "-w", "json", "--endpoints", &endpoint];
        let found: Value = serde_json::from_str(&ctl(&hash).unwrap()).unwrap();
        found[0]["HashKV"]["hash"].as_u64().unwrap()
    }

    /// All keys as of a revision, and the newest revision.
    fn state(&self, revision: u64) -> (Vec<KeyValue>, u64) {
        let all = b64([0]);
        let range = json!({ "key": all, "range_end": all, "revision": revision.to_string() });
        let answer = self.call("/v3/kv/range", &range).unwrap();
        let unsigned = |value: &Value| number(value).unsigned_abs();
        let found = answer["kvs"].as_array().into_iter().flatten().map(|kv| KeyValue {
            key: bytes(&kv["key"]).into(),
            value: bytes(&kv["value"]).into(),
            create_revision: unsigned(&kv["create_revision"]),
            mod_revision: unsigned(&kv["mod_revision"]),
            version: unsigned(&kv["version"]),
            lease: number(&kv["lease"]),
        });
        (found.collect(), unsigned(&answer["header"]["revision"]))
    }
}

/// Saves a snapshot, and has `etcdctl` look through it: at the integrity of its pages, too.
fn saved(store: &Store, directory: &Path, extras: &Extras) -> (std::path::PathBuf, Summary) {
    let path = directory.join("snapshot.db");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let summary = save(store, directory, &file, extras).unwrap();
    let status = utl(&["snapshot", "status", path.to_str().unwrap(), "-w", "json"]);
    let status: Value = serde_json::from_str(&status.unwrap()).unwrap();
    let database = tempfile::tempfile_in(directory).unwrap();
    std::io::copy(&mut (&File::open(&path).unwrap()).take(summary.bytes), &mut &database).unwrap();
    let found = read(&database);
    let newest = found.entries.last().map_or(0, |entry| entry.main);
    assert_eq!(status["revision"], json!(newest));
    assert_eq!(status["totalSize"], json!(summary.bytes));
    // An etcd 3.4 counts what is in all buckets, later ones less.
    let all = found.others.values().map(Vec::len).sum::<usize>() as u64;
    let alive = found.alive(u64::MAX).count() as u64;
    assert!(
        (alive..=all).contains(&status["totalKey"].as_u64().unwrap()),
        "{status} {alive} {all}"
    );
    let hash = found.others.iter().fold(!0, |hash, (name, elements)| {
        let all = elements.iter().flat_map(|(key, value)| [key, value]);
        all.fold(crc32c(hash, name.as_bytes()), |hash, bytes| crc32c(hash, bytes))
    });
    assert_eq!(status["hash"], json!(!hash));
    (path, summary)
}

/// Both have the same, at as many revisions as that takes little time.
fn same(etcd: &Etcd, store: &Store) {
    let (compacted, newest) = (store.compacted_revision().max(1), store.revision());
    let step = usize::try_from((newest - compacted) / 40 + 1).unwrap();
    for revision in (compacted..=newest).step_by(step).chain([newest]) {
        let (found, header) = etcd.state(revision);
        assert_eq!(header, newest);
        let keys = store.at(revision).unwrap().range(..);
        let expected: Vec<KeyValue> = keys.map(Result::unwrap).collect();
        assert!(found == expected, "at {revision}");
    }
    // An etcd 3.4 refuses the revision compacted to.
    for revision in [compacted + 1, u64::midpoint(compacted, newest), newest] {
        if revision > compacted && revision <= newest {
            let hash = store.hash_at(revision).unwrap().hash;
            assert_eq!(etcd.hash(revision), u64::from(hash), "at {revision}");
        }
    }
    assert_eq!(etcd.hash(0), u64::from(store.hash_at(At::Latest).unwrap().hash));
    if compacted > 1 {
        let before = json!({ "key": b64("k"), "revision": (compacted - 1).to_string() });
        let answer = etcd.call("/v3/kv/range", &before).unwrap();
        assert!(answer.to_string().contains("has been compacted"), "{answer}");
    }
    same_leases(etcd, store);
}

fn same_leases(etcd: &Etcd, store: &Store) {
    let answer = etcd.call("/v3/lease/leases", &json!({})).unwrap();
    let ids = answer["leases"].as_array().into_iter().flatten().map(|lease| number(&lease["ID"]));
    let ids: BTreeSet<i64> = ids.collect();
    let expected: BTreeSet<i64> = store.leases().map(|lease| lease.unwrap().id).collect();
    assert_eq!(ids, expected);
    for id in ids {
        let request = json!({ "ID": id.to_string(), "keys": true });
        let found = etcd.call("/v3/lease/timetolive", &request).unwrap();
        let status = store.lease_time_to_live(id, true).unwrap().unwrap();
        assert_eq!(number(&found["grantedTTL"]), status.granted_ttl);
        let left = i64::try_from(status.remaining.as_secs()).unwrap();
        assert!((left - 60..=left + 60).contains(&number(&found["TTL"])), "{found} {left}");
        let keys: BTreeSet<_> = found["keys"].as_array().into_iter().flatten().map(bytes).collect();
        assert_eq!(keys, status.keys.iter().map(|key| key.to_vec()).collect());
    }
}

/// Does the same to both.
fn go_on(etcd: &Etcd, store: &Store, keys: impl Iterator<Item = String>) {
    for (n, key) in keys.enumerate() {
        if n % 3 == 0 {
            etcd.call("/v3/kv/deleterange", &json!({ "key": b64(&key) })).unwrap();
            store.delete(&key).unwrap();
        } else {
            etcd.call("/v3/kv/put", &json!({ "key": b64(&key), "value": b64("more") })).unwrap();
            store.put(&key, "more").unwrap();
        }
    }
}

fn compact(etcd: &Etcd, store: &Store, revision: u64) {
    let request = json!({ "revision": revision.to_string(), "physical": true });
    let answer = etcd.call("/v3/kv/compaction", &request).unwrap();
    assert!(answer.get("error").is_none(), "{answer}");
    store.compact(revision).unwrap();
}

#[test]
fn an_etcd_goes_on_from_random_histories() {
    if !is_installed() {
        return;
    }
    for seed in 0..8 {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path().join("store")).unwrap();
        history(&store, &mut Random(seed), 1 + seed * 5, 60 * (seed + 1));
        let (path, summary) = saved(&store, directory.path(), &Extras::default());
        let etcd = Etcd::restored(&path, directory.path());
        assert_eq!(summary.revision, store.revision());
        same(&etcd, &store);
        go_on(&etcd, &store, (0..40).map(|n| format!("key {}", n % 10)));
        same(&etcd, &store);
        compact(&etcd, &store, store.revision() - 3);
        same(&etcd, &store);
    }
}

#[test]
fn an_etcd_goes_on_from_many_keys() {
    if !is_installed() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("store")).unwrap();
    let keys: Vec<String> = (0..30_000).map(|n| format!("/{}", n * 7919 % 30_000)).collect();
    for some in keys.chunks(50) {
        store.txn().then(some.iter().map(|key| put(key, "value"))).commit().unwrap();
    }
    let lease = store.lease_grant(0, Duration::from_secs(5000)).unwrap().id;
    store.put_with(PutRequest::new("/leased", "").lease(lease)).unwrap();
    store.put("/long", vec![b'v'; 1_500_000]).unwrap();
    for n in 0..2000 {
        store.put("/short", n.to_string()).unwrap();
    }
    store.delete("/5").unwrap();
    store.compact(store.revision() - 1500).unwrap();
    let (path, _) = saved(&store, directory.path(), &Extras::default());
    let etcd = Etcd::restored(&path, directory.path());
    same(&etcd, &store);
    // Of whole pages all is deleted, and of others almost all.
    go_on(&etcd, &store, (0..600).map(|n| format!("/{}", n * 7919 % 30_000)));
    for (from, upto) in [("/1", "/2"), ("/20", "/8"), ("/9", "/98")] {
        let request = json!({ "key": b64(from), "range_end": b64(upto) });
        etcd.call("/v3/kv/deleterange", &request).unwrap();
        store.delete_range(DeleteRangeRequest::new(from).range_end(upto)).unwrap();
    }
    compact(&etcd, &store, store.revision());
    let endpoint = etcd.endpoint();
    ctl(&["defrag", "--endpoints", &endpoint]).unwrap();
    same(&etcd, &store);
    // Its pages are sound, as `status` looks at them.
    let again = directory.path().join("again.db");
    let again = again.to_str().unwrap();
    ctl(&["snapshot", "save", again, "--endpoints", &endpoint]).unwrap();
    utl(&["snapshot", "status", again]).unwrap();
}

#[test]
fn an_etcd_knows_the_users() {
    if !is_installed() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("store")).unwrap();
    store.put("/ada/k", "v").unwrap();
    let user = |name: &'static str, role: &str| User {
        name: name.into(),
        password: bcrypt::hash("secret", 4).unwrap().into(),
        roles: vec![role.to_owned()],
        options: None,
    };
    let permission =
        Permission { perm_type: Type::Read.into(), key: "/ada/".into(), range_end: "/ada0".into() };
    let role = |name: &'static str, key_permission| Role { name: name.into(), key_permission };
    let auth = AuthSnapshot {
        enabled: true,
        revision: 9,
        users: vec![user("root", "root"), user("ada", "reader")],
        roles: vec![role("root", Vec::new()), role("reader", vec![permission])],
    };
    let extras = Extras { auth: Some(auth), ..Extras::default() };
    let (path, _) = saved(&store, directory.path(), &extras);
    let etcd = Etcd::restored(&path, directory.path());
    let endpoint = etcd.endpoint();
    let by = |user: &str, arguments: &[&str]| {
        ctl(&[arguments, &["--endpoints", &endpoint, "--user", user]].concat())
    };
    assert_eq!(by("ada:secret", &["get", "/ada/k", "--print-value-only"]).unwrap(), "v\n");
    assert!(by("ada:secret", &["put", "/ada/k", "w"]).unwrap_err().contains("permission denied"));
    assert!(by("ada:wrong", &["get", "/ada/k"]).unwrap_err().contains("authentication failed"));
    assert!(ctl(&["get", "/ada/k", "--endpoints", &endpoint]).is_err());
    let users = by("root:secret", &["user", "list"]).unwrap();
    assert_eq!(users, "ada\nroot\n");
}
