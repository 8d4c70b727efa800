//! The protocol's messages as the recording spells them in JSON.

use annals_etcd::proto::{etcdserverpb as pb, mvccpb};
use serde_json::{Map, Value, json};

use crate::recorded::{bytes, to_json};

fn number(request: &Value, field: &str) -> i64 {
    request[field].as_i64().unwrap_or_default()
}

fn flag(request: &Value, field: &str) -> bool {
    request[field].as_bool().unwrap_or_default()
}

/// An enumeration by name; absent is its first value.
fn named<T: Into<i32>>(request: &Value, field: &str, parse: fn(&str) -> Option<T>) -> i32 {
    request[field].as_str().map_or(0, |name| parse(name).expect("a value's name").into())
}

pub(crate) fn put(request: &Value) -> pb::PutRequest {
    pb::PutRequest {
        key: bytes(&request["key"]),
        value: bytes(&request["value"]),
        lease: number(request, "lease"),
        prev_kv: flag(request, "prev_kv"),
        ignore_value: flag(request, "ignore_value"),
        ignore_lease: flag(request, "ignore_lease"),
    }
}

pub(crate) fn range(request: &Value) -> pb::RangeRequest {
    use pb::range_request::{SortOrder, SortTarget};
    pb::RangeRequest {
        key: bytes(&request["key"]),
        range_end: bytes(&request["range_end"]),
        limit: number(request, "limit"),
        revision: number(request, "revision"),
        sort_order: named(request, "sort_order", SortOrder::from_str_name),
        sort_target: named(request, "sort_target", SortTarget::from_str_name),
        serializable: flag(request, "serializable"),
        keys_only: flag(request, "keys_only"),
        count_only: flag(request, "count_only"),
        min_mod_revision: number(request, "min_mod_revision"),
        max_mod_revision: number(request, "max_mod_revision"),
        min_create_revision: number(request, "min_create_revision"),
        max_create_revision: number(request, "max_create_revision"),
    }
}

pub(crate) fn delete_range(request: &Value) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest {
        key: bytes(&request["key"]),
        range_end: bytes(&request["range_end"]),
        prev_kv: flag(request, "prev_kv"),
    }
}

pub(crate) fn txn(request: &Value) -> pb::TxnRequest {
    let list = |field: &str| request[field].as_array().cloned().unwrap_or_default();
    pb::TxnRequest {
        compare: list("compare").iter().map(compare).collect(),
        success: list("success").iter().map(op).collect(),
        failure: list("failure").iter().map(op).collect(),
    }
}

fn op(request: &Value) -> pb::RequestOp {
    use pb::request_op::Request;
    let (name, request) = request.as_object().and_then(|op| op.iter().next()).expect("one op");
    let request = match name.as_str() {
        "put" => Request::RequestPut(put(request)),
        "range" => Request::RequestRange(range(request)),
        "delete_range" => Request::RequestDeleteRange(delete_range(request)),
        "txn" => Request::RequestTxn(txn(request)),
        other => panic!("an operation {other}"),
    };
    pb::RequestOp { request: Some(request) }
}

fn compare(request: &Value) -> pb::Compare {
    use pb::compare::{CompareResult, CompareTarget, TargetUnion};
    let target = named(request, "target", CompareTarget::from_str_name);
    let union = match CompareTarget::try_from(target).expect("a target") {
        CompareTarget::Version => TargetUnion::Version(number(request, "version")),
        CompareTarget::Create => TargetUnion::CreateRevision(number(request, "create_revision")),
        CompareTarget::Mod => TargetUnion::ModRevision(number(request, "mod_revision")),
        CompareTarget::Value => TargetUnion::Value(bytes(&request["value"])),
        CompareTarget::Lease => TargetUnion::Lease(number(request, "lease")),
    };
    pb::Compare {
        result: named(request, "result", CompareResult::from_str_name),
        target,
        key: bytes(&request["key"]),
        range_end: bytes(&request["range_end"]),
        target_union: Some(union),
    }
}

// ---- Answers, with zero values left out as the recording does ----

fn head(header: Option<&pb::ResponseHeader>) -> Map<String, Value> {
    Map::from_iter([("revision".into(), header.expect("a head").revision.into())])
}

pub(crate) fn put_answer(response: &pb::PutResponse) -> Value {
    let mut answer = head(response.header.as_ref());
    if let Some(kv) = &response.prev_kv {
        answer.insert("prev_kv".into(), key_value(kv));
    }
    answer.into()
}

pub(crate) fn range_answer(response: &pb::RangeResponse) -> Value {
    let mut answer = head(response.header.as_ref());
    answer.insert("kvs".into(), response.kvs.iter().map(key_value).collect());
    answer.insert("count".into(), response.count.into());
    if response.more {
        answer.insert("more".into(), true.into());
    }
    answer.into()
}

pub(crate) fn delete_answer(response: &pb::DeleteRangeResponse) -> Value {
    let mut answer = head(response.header.as_ref());
    answer.insert("deleted".into(), response.deleted.into());
    if !response.prev_kvs.is_empty() {
        answer.insert("prev_kvs".into(), response.prev_kvs.iter().map(key_value).collect());
    }
    answer.into()
}

pub(crate) fn txn_answer(response: &pb::TxnResponse) -> Value {
    use pb::response_op::Response;
    let mut answer = head(response.header.as_ref());
    answer.insert("succeeded".into(), response.succeeded.into());
    let responses = response.responses.iter().map(|response| {
        match response.response.as_ref().expect("an answer") {
            Response::ResponsePut(put) => json!({ "put": put_answer(put) }),
            Response::ResponseRange(range) => json!({ "range": range_answer(range) }),
            Response::ResponseDeleteRange(delete) => {
                json!({ "delete_range": delete_answer(delete) })
            }
            Response::ResponseTxn(nested) => json!({ "txn": txn_answer(nested) }),
        }
    });
    answer.insert("responses".into(), responses.collect());
    answer.into()
}

pub(crate) fn event(event: &mvccpb::Event) -> Value {
    let mut answer = json!({
        "type": event.r#type().as_str_name(),
        "kv": key_value(event.kv.as_ref().expect("a key-value")),
    });
    if let Some(kv) = &event.prev_kv {
        answer["prev_kv"] = key_value(kv);
    }
    answer
}

fn key_value(kv: &mvccpb::KeyValue) -> Value {
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
