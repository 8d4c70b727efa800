//! Answers: from the store's own to the protocol.

use annals::{
    ChangeKind, DeleteRangeResponse, Event, KeyValue, OpResponse, PutResponse, RangeResponse,
    TxnResponse,
};

use crate::proto::{etcdserverpb as pb, mvccpb};

/// A revision or count as the protocol has it. None is near the limit, by the store's own.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn key_value(kv: KeyValue) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: kv.key,
        value: kv.value,
        create_revision: signed(kv.create_revision),
        mod_revision: signed(kv.mod_revision),
        version: signed(kv.version),
        lease: kv.lease,
    }
}

pub(crate) fn event(event: &Event) -> mvccpb::Event {
    let kind = match event.kind {
        ChangeKind::Put => mvccpb::event::EventType::Put,
        ChangeKind::Delete => mvccpb::event::EventType::Delete,
    };
    mvccpb::Event {
        r#type: kind.into(),
        kv: Some(key_value(event.kv.clone())),
        prev_kv: event.prev_kv.clone().map(key_value),
    }
}

pub(crate) fn range(
    header: Option<pb::ResponseHeader>,
    response: RangeResponse,
) -> pb::RangeResponse {
    let kvs = response.kvs.into_iter().map(key_value).collect();
    pb::RangeResponse { header, kvs, more: response.more, count: signed(response.count) }
}

pub(crate) fn put(header: Option<pb::ResponseHeader>, response: PutResponse) -> pb::PutResponse {
    pb::PutResponse { header, prev_kv: response.prev_kv.map(key_value) }
}

pub(crate) fn delete_range(
    header: Option<pb::ResponseHeader>,
    response: DeleteRangeResponse,
) -> pb::DeleteRangeResponse {
    let prev_kvs = response.prev_kvs.into_iter().map(key_value).collect();
    pb::DeleteRangeResponse { header, deleted: signed(response.deleted), prev_kvs }
}

/// A transaction, and those within it, whose headers hold nothing but the revision.
pub(crate) fn txn(header: Option<pb::ResponseHeader>, response: TxnResponse) -> pb::TxnResponse {
    use pb::response_op::Response;
    let inner = |revision: u64| {
        Some(pb::ResponseHeader { revision: signed(revision), ..Default::default() })
    };
    let responses = response.responses.into_iter().map(|response| {
        let response = match response {
            OpResponse::Range(one) => Response::ResponseRange(range(inner(one.revision), one)),
            OpResponse::Put(one) => Response::ResponsePut(put(inner(one.revision), one)),
            OpResponse::DeleteRange(one) => {
                Response::ResponseDeleteRange(delete_range(inner(one.revision), one))
            }
            OpResponse::Txn(one) => Response::ResponseTxn(txn(inner(one.revision), one)),
        };
        pb::ResponseOp { response: Some(response) }
    });
    pb::TxnResponse { header, succeeded: response.succeeded, responses: responses.collect() }
}
