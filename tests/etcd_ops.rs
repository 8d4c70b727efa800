//! Replays recorded operations of a real etcd 3.4.23 and expects the same answers.
//!
//! 100 sequences of some 68 steps each, every one on a fresh store: puts, ranges, deletes, nested
//! transactions, compactions and leases, with their answers and errors (the folder's README has the
//! schema). Answers must be equal field by field, errors by kind; a watch must tell the same events, or
//! end for the same reason, as far as it has come when the sequence ends.
//!
//! Allowed differences: none. All of it is played twice: in memory, and so that every boundary of the
//! store is crossed thousands of times. Then after each step either everything is moved to the
//! smallest files there can be, and these are folded and merged; or the store is closed and opened
//! again; or it is left alone, so that the next step meets all of that half done.
//!
//! Not the store's business, but the server's, and so done by this test: the answers about absent leases
//! (an absent lease is an error or `None` here, "0 seconds left" there), the codes and texts of errors. How
//! much time a lease had left was not recorded; here the clock stands still, so that it is always all.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test stops where it fails, and says what it skipped"
)]

mod recorded;
mod support;
mod watched;

use std::sync::Arc;

use annals::clock::ManualClock;
use annals::vfs::MemoryVfs;
use annals::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, Durability, Error, ErrorKind,
    KeyValue, LeaseGrantRequest, Op, OpResponse, Options, PutRequest, RangeRequest, RangeResponse,
    SortOrder, SortTarget, Store, TxnRequest, TxnResponse,
};
use recorded::{bytes, json_lines, path, to_json};
use serde_json::{Map, Value, json};
use support::{DIRECTORY, START_TIME, tiny};
use watched::Watches;

#[test]
fn every_recorded_answer_is_given() {
    let Some(path) = path("etcd-ops.jsonl.zst") else { return };
    let options = || {
        Options::new()
            .vfs(Arc::new(MemoryVfs::new()))
            .clock(Arc::new(ManualClock::new(START_TIME)))
            .durability(Durability::Buffered)
            .memtable_bytes(64 << 10)
            .wal_bytes(64 << 10)
    };
    replay(path, &options, false, &mut |store, _| store);
}

#[test]
fn every_recorded_answer_is_given_across_every_boundary() {
    let Some(path) = path("etcd-ops.jsonl.zst") else { return };
    let options =
        || tiny(Arc::new(MemoryVfs::new()), Arc::new(ManualClock::new(START_TIME))).l0_files_max(1);
    let (mut steps, mut opens, mut flushes, mut folds, mut merges) = (0, 0, 0, 0, 0);
    replay(path, &options, true, &mut |store, options| {
        steps += 1;
        if steps % 3 == 0 {
            opens += 1;
            store.close().expect("it closes");
            return options.open(DIRECTORY).expect("it opens again");
        }
        if steps % 3 == 1 {
            let before = store.stats();
            store.reorganise().expect("all is moved to files");
            let after = store.stats();
            assert_eq!((after.l0.files, after.flush_backlog_bytes), (0, 0));
            flushes += after.flushes - before.flushes;
            folds += after.folds - before.folds;
            merges += after.merges - before.merges;
        }
        store
    });
    println!("{opens} opens, {flushes} flushes, {folds} folds, {merges} merges");
    assert!(opens > 2000 && flushes > 1000 && folds > 1000 && merges > 100);
}

/// Plays every sequence on a store of its own; `after` comes after each step, and then, if `anew`, all
/// watches are replaced by others that go on.
fn replay(
    path: std::path::PathBuf,
    options: &dyn Fn() -> Options,
    anew: bool,
    after: &mut dyn FnMut(Store, &Options) -> Store,
) {
    let mut state = None;
    let mut watches = Watches::default();
    let mut sequence = Value::Null;
    let (mut compared, mut events) = (0, 0);
    let mut wrong = Vec::new();
    for step in json_lines(path) {
        if step["seq"] != sequence {
            sequence = step["seq"].clone();
            let options = options();
            let store = options.open(DIRECTORY).expect("a fresh store");
            watches = Watches::default();
            state = Some((store, options));
        }
        let op = step["op"].as_str().expect("an operation");
        let (store, options) = state.take().expect("a store for the sequence");
        let answer = match op {
            "watch_create" => json!({ "resp": watches.create(&store, &step["req"]) }),
            "watch_result" => json!({ "resp": watches.result(&step["req"]) }),
            _ => match play(&store, op, &step["req"]) {
                Ok(answer) => json!({ "resp": answer }),
                Err(error) => json!({ "err": etcd_error(&error) }),
            },
        };
        let expected = match step.get("err") {
            Some(error) => json!({ "err": error }),
            None => json!({ "resp": step["resp"] }),
        };
        compared += 1;
        if answer != expected {
            wrong.push(format!("{step}\n  answered {answer}"));
        }
        events += watches.drain(&store);
        let store = after(store, &options);
        if anew {
            watches.resume(&store);
        }
        state = Some((store, options));
    }
    println!("{compared} answers compared, {events} events told");
    assert!(events > 900, "only {events} events");
    assert!(compared > 6000, "only {compared} steps");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

fn play(store: &Store, op: &str, request: &Value) -> Result<Value, Error> {
    let id = request["id"].as_i64().unwrap_or_default();
    let answer = match op {
        "put" => {
            let response = store.put_with(put(request))?;
            put_answer(response.revision, response.prev_kv.as_ref())
        }
        "range" => range_answer(&store.range(range(request))?),
        "delete_range" => {
            let response = store.delete_range(delete_range(request))?;
            delete_answer(response.revision, response.deleted, &response.prev_kvs)
        }
        "txn" => txn_answer(&store.transact(txn(request))?),
        "compact" => json!({ "revision": store.compact(number(request, "revision"))?.revision }),
        "lease_grant" => {
            let ttl = request["ttl"].as_i64().unwrap_or_default();
            let lease = store.lease_grant_with(LeaseGrantRequest::new(id, ttl))?;
            json!({ "revision": lease.revision, "id": lease.id, "ttl": lease.ttl })
        }
        "lease_revoke" => json!({ "revision": store.lease_revoke(id)?.revision }),
        "lease_ttl" => {
            let keys = request["keys"].as_bool().unwrap_or_default();
            let lease = store.lease_time_to_live(id, keys)?;
            let keys = lease.iter().flat_map(|lease| &lease.keys).map(|key| to_json(key));
            if let Some(lease) = &lease {
                assert_eq!(lease.remaining.as_secs(), lease.granted_ttl.unsigned_abs());
            }
            json!({
                "revision": store.revision(),
                "id": id,
                "granted_ttl": lease.as_ref().map_or(0, |lease| lease.granted_ttl),
                "keys": keys.collect::<Vec<_>>(),
                "alive": lease.is_some(),
            })
        }
        "lease_keepalive" => {
            let ttl = match store.lease_keep_alive(id) {
                Err(error) if matches!(error.kind(), ErrorKind::LeaseNotFound { .. }) => 0,
                ttl => ttl?,
            };
            json!({ "revision": store.revision(), "id": id, "ttl": ttl })
        }
        "lease_leases" => {
            let ids: Vec<i64> = store.lease_list()?.iter().map(|lease| lease.id).collect();
            json!({ "revision": store.revision(), "ids": ids })
        }
        other => panic!("the recording has an operation {other}"),
    };
    Ok(answer)
}

// ---- Requests ----

fn number(request: &Value, field: &str) -> u64 {
    match &request[field] {
        Value::Null => 0,
        number => number.as_u64().unwrap_or_else(|| panic!("{field} {number} is negative")),
    }
}

fn flag(request: &Value, field: &str) -> bool {
    request[field].as_bool().unwrap_or_default()
}

fn put(request: &Value) -> PutRequest {
    PutRequest {
        key: bytes(&request["key"]),
        value: bytes(&request["value"]),
        lease: request["lease"].as_i64().unwrap_or_default(),
        prev_kv: flag(request, "prev_kv"),
        ignore_value: flag(request, "ignore_value"),
        ignore_lease: flag(request, "ignore_lease"),
    }
}

fn range(request: &Value) -> RangeRequest {
    RangeRequest {
        key: bytes(&request["key"]),
        range_end: bytes(&request["range_end"]),
        limit: number(request, "limit"),
        revision: Some(number(request, "revision")).filter(|revision| *revision > 0),
        sort_order: match request["sort_order"].as_str() {
            None | Some("NONE") => SortOrder::None,
            Some("ASCEND") => SortOrder::Ascend,
            Some("DESCEND") => SortOrder::Descend,
            Some(other) => panic!("sort order {other}"),
        },
        sort_target: match request["sort_target"].as_str() {
            None | Some("KEY") => SortTarget::Key,
            Some("VERSION") => SortTarget::Version,
            Some("CREATE") => SortTarget::Create,
            Some("MOD") => SortTarget::Mod,
            Some("VALUE") => SortTarget::Value,
            Some(other) => panic!("sort target {other}"),
        },
        keys_only: flag(request, "keys_only"),
        count_only: flag(request, "count_only"),
        min_mod_revision: number(request, "min_mod_revision"),
        max_mod_revision: number(request, "max_mod_revision"),
        min_create_revision: number(request, "min_create_revision"),
        max_create_revision: number(request, "max_create_revision"),
    }
}

fn delete_range(request: &Value) -> DeleteRangeRequest {
    DeleteRangeRequest {
        key: bytes(&request["key"]),
        range_end: bytes(&request["range_end"]),
        prev_kv: flag(request, "prev_kv"),
    }
}

fn txn(request: &Value) -> TxnRequest {
    let list = |field: &str| request[field].as_array().cloned().unwrap_or_default();
    TxnRequest {
        compare: list("compare").iter().map(compare).collect(),
        success: list("success").iter().map(op).collect(),
        failure: list("failure").iter().map(op).collect(),
    }
}

fn op(request: &Value) -> Op {
    let (name, request) = request.as_object().and_then(|op| op.iter().next()).expect("one op");
    match name.as_str() {
        "put" => put(request).into(),
        "range" => range(request).into(),
        "delete_range" => delete_range(request).into(),
        "txn" => txn(request).into(),
        other => panic!("an operation {other}"),
    }
}

fn compare(request: &Value) -> Compare {
    Compare {
        key: bytes(&request["key"]),
        range_end: bytes(&request["range_end"]),
        result: match request["result"].as_str() {
            None | Some("EQUAL") => CompareResult::Equal,
            Some("GREATER") => CompareResult::Greater,
            Some("LESS") => CompareResult::Less,
            Some("NOT_EQUAL") => CompareResult::NotEqual,
            Some(other) => panic!("a comparison {other}"),
        },
        target: match request["target"].as_str() {
            None | Some("VERSION") => CompareTarget::Version(number(request, "version")),
            Some("CREATE") => CompareTarget::CreateRevision(number(request, "create_revision")),
            Some("MOD") => CompareTarget::ModRevision(number(request, "mod_revision")),
            Some("VALUE") => CompareTarget::Value(bytes(&request["value"])),
            Some("LEASE") => CompareTarget::Lease(request["lease"].as_i64().unwrap_or_default()),
            Some(other) => panic!("a target {other}"),
        },
    }
}

// ---- Answers, with zero values left out as the recording does ----

fn with_revision(revision: u64) -> Map<String, Value> {
    Map::from_iter([("revision".into(), revision.into())])
}

fn put_answer(revision: u64, prev_kv: Option<&KeyValue>) -> Value {
    let mut answer = with_revision(revision);
    if let Some(kv) = prev_kv {
        answer.insert("prev_kv".into(), key_value(kv));
    }
    answer.into()
}

fn range_answer(response: &RangeResponse) -> Value {
    let mut answer = with_revision(response.revision);
    answer.insert("kvs".into(), response.kvs.iter().map(key_value).collect());
    answer.insert("count".into(), response.count.into());
    if response.more {
        answer.insert("more".into(), true.into());
    }
    answer.into()
}

fn delete_answer(revision: u64, deleted: u64, prev_kvs: &[KeyValue]) -> Value {
    let mut answer = with_revision(revision);
    answer.insert("deleted".into(), deleted.into());
    if !prev_kvs.is_empty() {
        answer.insert("prev_kvs".into(), prev_kvs.iter().map(key_value).collect());
    }
    answer.into()
}

fn txn_answer(response: &TxnResponse) -> Value {
    let mut answer = with_revision(response.revision);
    answer.insert("succeeded".into(), response.succeeded.into());
    let responses = response.responses.iter().map(|response| match response {
        OpResponse::Put(put) => json!({ "put": put_answer(put.revision, put.prev_kv.as_ref()) }),
        OpResponse::Range(range) => json!({ "range": range_answer(range) }),
        OpResponse::DeleteRange(delete) => json!({
            "delete_range": delete_answer(delete.revision, delete.deleted, &delete.prev_kvs)
        }),
        OpResponse::Txn(nested) => json!({ "txn": txn_answer(nested) }),
    });
    answer.insert("responses".into(), responses.collect());
    answer.into()
}

fn key_value(kv: &KeyValue) -> Value {
    let mut answer = json!({
        "key": to_json(&kv.key),
        "create_revision": kv.create_revision,
        "mod_revision": kv.mod_revision,
        "version": kv.version,
    });
    if !kv.value.is_empty() {
        answer["value"] = to_json(&kv.value);
    }
    if kv.lease != 0 {
        answer["lease"] = kv.lease.into();
    }
    answer
}

/// The code and text etcd gives for an error.
fn etcd_error(error: &Error) -> Value {
    let (code, text) = match error.kind() {
        ErrorKind::EmptyKey => ("InvalidArgument", "key is not provided"),
        ErrorKind::KeyNotFound { .. } => ("InvalidArgument", "key not found"),
        ErrorKind::ValueProvided => ("InvalidArgument", "value is provided"),
        ErrorKind::LeaseProvided => ("InvalidArgument", "lease is provided"),
        ErrorKind::DuplicateKey { .. } => ("InvalidArgument", "duplicate key given in txn request"),
        ErrorKind::Compacted { .. } => ("OutOfRange", "mvcc: required revision has been compacted"),
        ErrorKind::FutureRevision { .. } => {
            ("OutOfRange", "mvcc: required revision is a future revision")
        }
        ErrorKind::LeaseNotFound { .. } => ("NotFound", "requested lease not found"),
        ErrorKind::LeaseExists { .. } => ("FailedPrecondition", "lease already exists"),
        ErrorKind::LeaseTtlTooLarge { .. } => ("OutOfRange", "too large lease TTL"),
        other => panic!("an error etcd does not know: {other}"),
    };
    json!({ "code": code, "message": format!("etcdserver: {text}") })
}
