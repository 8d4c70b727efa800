//! The JSON form of a transaction and of its answer: etcd's, as recorded histories have it.
//!
//! Fields may be left out where they are zero. Revisions and ids are numbers; bytes are a string
//! or `{"b64": ...}`.

use annals::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, Op, OpResponse, PutRequest,
    RangeRequest, SortOrder, SortTarget, TxnRequest, TxnResponse,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bytes::{Given, json as spell};
use crate::reads::kv_json;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TxnForm {
    compare: Vec<CompareForm>,
    success: Vec<OpForm>,
    failure: Vec<OpForm>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CompareForm {
    key: Given,
    range_end: Given,
    target: TargetForm,
    result: ResultForm,
    version: u64,
    create_revision: u64,
    mod_revision: u64,
    value: Given,
    lease: i64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum TargetForm {
    #[default]
    Version,
    Create,
    Mod,
    Value,
    Lease,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum ResultForm {
    #[default]
    Equal,
    Greater,
    Less,
    NotEqual,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum OpForm {
    Put(PutForm),
    Range(RangeForm),
    DeleteRange(DeleteForm),
    Txn(TxnForm),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PutForm {
    key: Given,
    value: Given,
    lease: i64,
    prev_kv: bool,
    ignore_value: bool,
    ignore_lease: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RangeForm {
    key: Given,
    range_end: Given,
    limit: u64,
    revision: u64,
    sort_order: OrderForm,
    sort_target: SortForm,
    /// Every read here is what etcd calls serializable and linearizable at once.
    #[serde(rename = "serializable")]
    _serializable: bool,
    keys_only: bool,
    count_only: bool,
    min_mod_revision: u64,
    max_mod_revision: u64,
    min_create_revision: u64,
    max_create_revision: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DeleteForm {
    key: Given,
    range_end: Given,
    prev_kv: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum OrderForm {
    #[default]
    None,
    Ascend,
    Descend,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum SortForm {
    #[default]
    Key,
    Version,
    Create,
    Mod,
    Value,
}

/// Parses the JSON form.
///
/// # Errors
/// What is wrong with it, in words.
pub(super) fn parse(text: &[u8]) -> Result<TxnRequest, String> {
    let form: TxnForm = serde_json::from_slice(text).map_err(|e| crate::bytes::json_error(&e))?;
    Ok(form.into_request())
}

impl TxnForm {
    fn into_request(self) -> TxnRequest {
        let ops = |forms: Vec<OpForm>| forms.into_iter().map(OpForm::into_op).collect();
        TxnRequest {
            compare: self.compare.into_iter().map(CompareForm::into_compare).collect(),
            success: ops(self.success),
            failure: ops(self.failure),
        }
    }
}

impl CompareForm {
    fn into_compare(self) -> Compare {
        let target = match self.target {
            TargetForm::Version => CompareTarget::Version(self.version),
            TargetForm::Create => CompareTarget::CreateRevision(self.create_revision),
            TargetForm::Mod => CompareTarget::ModRevision(self.mod_revision),
            TargetForm::Value => CompareTarget::Value(self.value.0),
            TargetForm::Lease => CompareTarget::Lease(self.lease),
        };
        let result = match self.result {
            ResultForm::Equal => CompareResult::Equal,
            ResultForm::Greater => CompareResult::Greater,
            ResultForm::Less => CompareResult::Less,
            ResultForm::NotEqual => CompareResult::NotEqual,
        };
        Compare { key: self.key.0, range_end: self.range_end.0, result, target }
    }
}

impl OpForm {
    fn into_op(self) -> Op {
        match self {
            Self::Put(put) => Op::Put(PutRequest {
                key: put.key.0,
                value: put.value.0,
                lease: put.lease,
                prev_kv: put.prev_kv,
                ignore_value: put.ignore_value,
                ignore_lease: put.ignore_lease,
            }),
            Self::Range(range) => Op::Range(range.into_request()),
            Self::DeleteRange(delete) => Op::DeleteRange(DeleteRangeRequest {
                key: delete.key.0,
                range_end: delete.range_end.0,
                prev_kv: delete.prev_kv,
            }),
            Self::Txn(txn) => Op::Txn(txn.into_request()),
        }
    }
}

impl RangeForm {
    fn into_request(self) -> RangeRequest {
        RangeRequest {
            key: self.key.0,
            range_end: self.range_end.0,
            limit: self.limit,
            revision: (self.revision > 0).then_some(self.revision),
            sort_order: match self.sort_order {
                OrderForm::None => SortOrder::None,
                OrderForm::Ascend => SortOrder::Ascend,
                OrderForm::Descend => SortOrder::Descend,
            },
            sort_target: match self.sort_target {
                SortForm::Key => SortTarget::Key,
                SortForm::Version => SortTarget::Version,
                SortForm::Create => SortTarget::Create,
                SortForm::Mod => SortTarget::Mod,
                SortForm::Value => SortTarget::Value,
            },
            keys_only: self.keys_only,
            count_only: self.count_only,
            min_mod_revision: self.min_mod_revision,
            max_mod_revision: self.max_mod_revision,
            min_create_revision: self.min_create_revision,
            max_create_revision: self.max_create_revision,
        }
    }
}

/// The JSON form of an answer. What was asked for with `keys_only` comes with empty values.
pub(super) fn response(response: &TxnResponse) -> Value {
    json!({
        "revision": response.revision,
        "succeeded": response.succeeded,
        "responses": response.responses.iter().map(op_response).collect::<Vec<_>>(),
    })
}

fn op_response(answer: &OpResponse) -> Value {
    match answer {
        OpResponse::Put(put) => {
            let mut value = json!({ "revision": put.revision });
            if let Some(kv) = &put.prev_kv {
                value["prev_kv"] = kv_json(kv, true);
            }
            json!({ "put": value })
        }
        OpResponse::Range(range) => json!({ "range": {
            "revision": range.revision,
            "kvs": range.kvs.iter().map(|kv| kv_json(kv, true)).collect::<Vec<_>>(),
            "count": range.count,
            "more": range.more,
        }}),
        OpResponse::DeleteRange(delete) => json!({ "delete_range": {
            "revision": delete.revision,
            "deleted": delete.deleted,
            "prev_kvs": delete.prev_kvs.iter().map(|kv| kv_json(kv, true)).collect::<Vec<_>>(),
        }}),
        OpResponse::Txn(txn) => json!({ "txn": response(txn) }),
    }
}

/// The JSON form of a comparison.
pub(super) fn compare(compare: &Compare) -> Value {
    let (target, name, value) = match &compare.target {
        CompareTarget::Version(version) => ("VERSION", "version", json!(version)),
        CompareTarget::CreateRevision(revision) => ("CREATE", "create_revision", json!(revision)),
        CompareTarget::ModRevision(revision) => ("MOD", "mod_revision", json!(revision)),
        CompareTarget::Value(value) => ("VALUE", "value", spell(value)),
        CompareTarget::Lease(lease) => ("LEASE", "lease", json!(lease)),
    };
    let result = match compare.result {
        CompareResult::Equal => "EQUAL",
        CompareResult::Greater => "GREATER",
        CompareResult::Less => "LESS",
        CompareResult::NotEqual => "NOT_EQUAL",
    };
    let mut form = json!({ "key": spell(&compare.key), "target": target, "result": result });
    if !compare.range_end.is_empty() {
        form["range_end"] = spell(&compare.range_end);
    }
    form[name] = value;
    form
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_form() {
        let text = br#"{"compare":[{"key":"k2","result":"LESS","target":"VALUE","value":"0"},
            {"key":{"b64":"//4="},"range_end":"\u0000","lease":5,"result":"NOT_EQUAL","target":"LEASE"}],
            "failure":[{"put":{"key":"/b/1","value":"v","lease":7,"prev_kv":true}},
              {"range":{"key":"/a","range_end":"/b","limit":1,"revision":3,"sort_order":"DESCEND","sort_target":"MOD","serializable":true}}],
            "success":[{"delete_range":{"key":"z","prev_kv":true}},{"txn":{"compare":[],"success":[],"failure":[]}}]}"#;
        let txn = parse(text).unwrap();
        assert_eq!(txn.compare[0].target, CompareTarget::Value("0".into()));
        assert_eq!(txn.compare[1].key, &[0xff, 0xfe][..]);
        assert_eq!(txn.compare[1].range_end, &b"\0"[..]);
        assert_eq!(txn.compare[1].target, CompareTarget::Lease(5));
        assert_eq!(txn.failure[0], PutRequest::new("/b/1", "v").lease(7).prev_kv().into());
        let range = RangeRequest::new("/a").range_end("/b").limit(1).at(3);
        assert_eq!(txn.failure[1], range.sort(SortTarget::Mod, SortOrder::Descend).into());
        assert_eq!(txn.success[0], DeleteRangeRequest::new("z").prev_kv().into());
        assert_eq!(txn.success[1], TxnRequest::default().into());
    }

    #[test]
    fn wrong_forms_are_refused() {
        for text in [
            r#"{"compares":[]}"#,
            r#"{"success":[{"get":{"key":"a"}}]}"#,
            r#"{"success":[{"put":{"key":"a","values":"b"}}]}"#,
            r#"{"success":[{}]}"#,
            r#"{"compare":[{"key":"a","result":"SAME"}]}"#,
            r#"{"success":[{"range":{"key":"a","limit":-1}}]}"#,
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
