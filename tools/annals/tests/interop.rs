//! Beside a real etcd: what it was told, it is asked for at every revision, and so is the store that is made of
//! its snapshot. Skipped with a message where none is installed.
//!
//! The public history goes in up to record 400; all of it with `ANNALS_FULL=1`, which takes some 20 GB and
//! many minutes.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and says what it skipped"
)]

mod common;
#[path = "../../../tests/support/etcd_process.rs"]
mod etcd_process;
mod etcd_server;
#[path = "../../../tests/recorded/mod.rs"]
mod recorded;

use std::collections::{BTreeMap, BTreeSet};

use annals::{KeyValue, Store};
use common::Tool;
use etcd_server::{Etcd, b64, bytes, number, signed};
use recorded::oracle::Oracle;
use serde_json::{Value, json};

/// Records of the public history that are loaded, unless all of it is asked for.
const RECORDS: usize = 400;

/// A small generator of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn key(&mut self) -> Vec<u8> {
        match self.below(12) {
            0 => vec![0xff, 0, 7],
            n => format!("/{}/{n}", ["a", "b"][usize::try_from(n % 2).unwrap()]).into_bytes(),
        }
    }
}

/// A put with one of the leases, or a delete.
fn operation(random: &mut Random, key: &[u8], leases: &[i64]) -> Value {
    match random.below(4) {
        0 => json!({ "requestDeleteRange": { "key": b64(key) } }),
        n => {
            let value = vec![b'v'; usize::try_from(random.below(300)).unwrap()];
            let lease = leases.get(usize::try_from(random.below(6)).unwrap()).filter(|_| n == 1);
            let lease = lease.map_or(0, |lease| *lease).to_string();
            json!({ "requestPut": { "key": b64(key), "value": b64(value), "lease": lease } })
        }
    }
}

/// Plays so many requests on a server, compactions among them from a third on.
fn play(etcd: &Etcd, seed: u64, requests: u64) {
    let mut random = Random(seed);
    let mut leases: Vec<i64> = Vec::new();
    let mut compacted = 1;
    for n in 0..requests {
        match random.below(20) {
            0 => {
                let id = i64::try_from(random.below(1 << 60)).unwrap() + 1;
                let grant = json!({ "ID": id.to_string(), "TTL": "5000" });
                etcd.call("/v3/lease/grant", &grant);
                leases.push(id);
            }
            1 if leases.len() > 2 => {
                let id = leases.remove(0).to_string();
                etcd.call("/v3/lease/revoke", &json!({ "ID": id }));
            }
            2 if n > requests / 3 => {
                let status = etcd.call("/v3/maintenance/status", &json!({}));
                let newest = number(&status["header"]["revision"]);
                let at = compacted + random.below((newest - compacted).max(1) / 4 + 1);
                if at > compacted {
                    // Else what is forgotten is still there for a while, and hashed.
                    let physical = json!({ "revision": at.to_string(), "physical": true });
                    etcd.call("/v3/kv/compaction", &physical);
                    compacted = at;
                }
            }
            3 => {
                let range = json!({ "key": b64("/a/"), "range_end": b64("/a/5") });
                etcd.call("/v3/kv/deleterange", &range);
            }
            4..9 => {
                let keys: BTreeSet<Vec<u8>> = (0..4).map(|_| random.key()).collect();
                let mut ops: Vec<Value> =
                    keys.iter().map(|key| operation(&mut random, key, &leases)).collect();
                let last = ops.pop();
                ops.push(json!({ "requestTxn": { "success": [last] } }));
                etcd.call("/v3/kv/txn", &json!({ "success": ops }));
            }
            _ => {
                let key = random.key();
                let op = operation(&mut random, &key, &leases);
                etcd.call("/v3/kv/txn", &json!({ "success": [op] }));
            }
        }
    }
}

fn key_value(kv: &Value) -> KeyValue {
    KeyValue {
        key: bytes(&kv["key"]).into(),
        value: bytes(&kv["value"]).into(),
        create_revision: number(&kv["create_revision"]),
        mod_revision: number(&kv["mod_revision"]),
        version: number(&kv["version"]),
        lease: signed(&kv["lease"]),
    }
}

/// Asks both for everything, and answers how many revisions that were.
fn compare(etcd: &Etcd, store: &Store) -> u64 {
    let (oldest, newest) = (store.compacted_revision().max(1), store.revision());
    let mut versions: BTreeMap<Vec<u8>, BTreeMap<u64, KeyValue>> = BTreeMap::new();
    for revision in oldest..=newest {
        let found: Vec<_> = store.at(revision).unwrap().range(..).map(Result::unwrap).collect();
        let state = etcd.state(revision.max(1));
        let state: Vec<_> = state.as_array().into_iter().flatten().map(key_value).collect();
        // Before the first revision etcd answers of the newest.
        if revision > 1 {
            assert_eq!(found, state, "revision {revision}");
        }
        for kv in found {
            versions.entry(kv.key.to_vec()).or_default().insert(kv.mod_revision, kv);
        }
        // At the revision compacted to it refuses.
        if revision > oldest {
            let hash = store.hash_at(revision).unwrap();
            assert_eq!(u64::from(hash.hash), etcd.hash(revision), "revision {revision}");
        }
    }
    for (key, versions) in versions {
        let history: Vec<_> = store.history(key).map(Result::unwrap).collect();
        let puts = history.into_iter().rev().filter_map(annals::Version::into_key_value);
        assert_eq!(puts.collect::<Vec<_>>(), versions.into_values().collect::<Vec<_>>());
    }
    let leases = etcd.call("/v3/lease/leases", &json!({}));
    let leases = leases["leases"].as_array().cloned().unwrap_or_default();
    let ids: BTreeSet<i64> = leases.iter().map(|lease| signed(&lease["ID"])).collect();
    let found: BTreeSet<i64> = store.lease_list().unwrap().iter().map(|lease| lease.id).collect();
    assert_eq!(found, ids);
    for id in ids {
        let asked = json!({ "ID": id.to_string(), "keys": true });
        let told = etcd.call("/v3/lease/timetolive", &asked);
        let keys = told["keys"].as_array().cloned().unwrap_or_default();
        let keys: BTreeSet<Vec<u8>> = keys.iter().map(bytes).collect();
        let lease = store.lease_info(id, true).unwrap().expect("a lease");
        assert_eq!(lease.ttl, signed(&told["grantedTTL"]));
        assert_eq!(lease.keys.iter().map(|key| key.to_vec()).collect::<BTreeSet<_>>(), keys);
    }
    newest - oldest + 1
}

#[test]
fn a_random_session_is_the_same_here_at_every_revision() {
    for seed in [7, 8] {
        let Some(etcd) = Etcd::start(&[]) else { return };
        play(&etcd, seed, 200);
        let tool = Tool::new();
        let snapshot = tool.path("snapshot.db");
        etcd.snapshot(&snapshot);
        let newest = etcd.call("/v3/maintenance/status", &json!({}));
        let newest = number(&newest["header"]["revision"]);
        let hash = etcd.hash(newest).to_string();
        let path = snapshot.to_str().unwrap();
        let summary = tool.json(&["import", "etcd", path, "--hash", &hash]);
        assert_eq!(summary["revision"].as_u64().unwrap(), newest);
        tool.ok(&["verify"]);
        let store = Store::open_read_only(tool.store()).unwrap();
        let revisions = compare(&etcd, &store);
        println!("seed {seed}: {revisions} revisions, {summary}");
        assert!(revisions > 20 && store.compacted_revision() > 1);
    }
}

/// One record as one transaction.
fn load(etcd: &Etcd, record: &Value, number_of: u64) {
    let puts = record["puts"].as_object().expect("puts").iter().map(|(key, value)| {
        let value = b64(recorded::bytes(value));
        json!({ "requestPut": { "key": b64(key), "value": value } })
    });
    let deletes = record["deletes"].as_array().expect("deletes").iter().map(|key| {
        let key = b64(key.as_str().expect("a key"));
        json!({ "requestDeleteRange": { "key": key } })
    });
    let ops: Vec<Value> = puts.chain(deletes).collect();
    let done = etcd.call("/v3/kv/txn", &json!({ "success": ops }));
    assert_eq!(number(&done["header"]["revision"]), number_of + 1);
}

#[test]
fn the_public_history_comes_through_an_etcd_as_it_is() {
    let full = std::env::var_os("ANNALS_FULL").is_some_and(|value| value == "1");
    let names = ["k8s-manifests-history.jsonl.zst", "k8s-manifests-oracle.json"];
    let [Some(history), Some(oracle)] = names.map(recorded::path) else { return };
    let more = ["--max-request-bytes", "67108864", "--max-txn-ops", "10000"];
    let more = [&more[..], &["--quota-backend-bytes", "8589934592"]].concat();
    let Some(etcd) = Etcd::start(&more) else { return };
    let oracle = Oracle::read(oracle);
    let mut loaded = 0;
    for record in recorded::json_lines(history).take(if full { usize::MAX } else { RECORDS }) {
        loaded += 1;
        load(&etcd, &record, loaded);
    }
    let newest = loaded + 1;
    for compacted in [0, loaded / 2] {
        if compacted > 0 {
            let physical = json!({ "revision": compacted.to_string(), "physical": true });
            etcd.call("/v3/kv/compaction", &physical);
        }
        let tool = Tool::new();
        let snapshot = tool.path("snapshot.db");
        etcd.snapshot(&snapshot);
        let hash = etcd.hash(newest).to_string();
        let path = snapshot.to_str().unwrap();
        let summary = tool.json(&["import", "etcd", path, "--hash", &hash]);
        assert_eq!(summary["revision"].as_u64().unwrap(), newest);
        assert_eq!(summary["compacted_revision"].as_u64().unwrap(), compacted);
        tool.ok(&["verify"]);
        let store = Store::open_read_only(tool.store()).unwrap();
        let answers = oracle.check(&store, compacted.saturating_sub(1), loaded);
        assert!(answers >= if compacted == 0 { 60 } else { 20 }, "only {answers} answers checked");
        // Each takes a walk over all of it, here and there.
        let asked = (0..12).map(|n| newest - (newest - compacted - 2) * n / 12);
        for revision in asked {
            let found = store.hash_at(revision).unwrap();
            assert_eq!(u64::from(found.hash), etcd.hash(revision), "revision {revision}");
        }
        println!("{loaded} records, compacted to {compacted}: {answers} answers, {summary}");
    }
}
