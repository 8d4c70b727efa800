//! What the store is asked, in the words of etcd's protocol, and what etcd answers in those of the store; with the prefix
//! that all keys of one client have in the cluster.

use bytes::Bytes;

use super::wire;
use crate::kv::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, DeleteRangeResponse, KeyValue, Op,
    OpResponse, PutRequest, PutResponse, RangeRequest, RangeResponse, SortOrder, SortTarget,
    TxnRequest, TxnResponse, prefix_range_end,
};
use crate::object::kv::KvEvent;

/// In the place of an end: all keys from the first on.
const TO_THE_LAST: &[u8] = b"\0";

/// A number of the store as one of the protocol: what is too large stays larger than any revision.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number of the protocol as one of the store.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// The revision that an answer is of.
pub(super) fn revision(header: Option<&wire::Header>) -> u64 {
    header.map_or(0, |header| unsigned(header.revision))
}

/// What all keys begin with in the cluster, and nobody here sees.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyPrefix(pub(super) Bytes);

impl KeyPrefix {
    pub(super) fn key(&self, key: &[u8]) -> Bytes {
        [&self.0[..], key].concat().into()
    }

    /// The end of a range: none for one key, a zero for all keys behind the first.
    pub(super) fn end(&self, end: &[u8]) -> Bytes {
        match end {
            [] => Bytes::new(),
            TO_THE_LAST if self.0.is_empty() => Bytes::from_static(TO_THE_LAST),
            TO_THE_LAST => prefix_range_end(&self.0),
            end => self.key(end),
        }
    }

    fn strip(&self, key: Bytes) -> Bytes {
        if key.starts_with(&self.0) { key.slice(self.0.len()..) } else { key }
    }

    pub(super) fn range(&self, request: RangeRequest) -> wire::RangeRequest {
        let (sort_order, sort_target) = sort(request.sort_order, request.sort_target);
        wire::RangeRequest {
            key: self.key(&request.key),
            range_end: self.end(&request.range_end),
            limit: signed(request.limit),
            revision: request.revision.map_or(0, signed),
            sort_order,
            sort_target,
            keys_only: request.keys_only,
            count_only: request.count_only,
            min_mod_revision: signed(request.min_mod_revision),
            max_mod_revision: signed(request.max_mod_revision),
            min_create_revision: signed(request.min_create_revision),
            max_create_revision: signed(request.max_create_revision),
        }
    }

    fn put(&self, request: PutRequest) -> wire::PutRequest {
        let PutRequest { key, value, lease, prev_kv, ignore_value, ignore_lease } = request;
        let key = self.key(&key);
        wire::PutRequest { key, value, lease, prev_kv, ignore_value, ignore_lease }
    }

    fn delete(&self, request: DeleteRangeRequest) -> wire::DeleteRangeRequest {
        let DeleteRangeRequest { key, range_end, prev_kv } = request;
        let (key, range_end) = (self.key(&key), self.end(&range_end));
        wire::DeleteRangeRequest { key, range_end, prev_kv }
    }

    pub(super) fn txn(&self, request: TxnRequest) -> wire::TxnRequest {
        let TxnRequest { compare, success, failure } = request;
        let ops = |ops: Vec<Op>| ops.into_iter().map(|op| self.op(op)).collect();
        let compare = compare.into_iter().map(|compare| self.compare(compare)).collect();
        wire::TxnRequest { compare, success: ops(success), failure: ops(failure) }
    }

    fn op(&self, mut op: Op) -> wire::RequestOp {
        let request = match &mut op {
            Op::Range(request) => wire::Request::Range(self.range(std::mem::take(request))),
            Op::Put(request) => wire::Request::Put(self.put(std::mem::take(request))),
            Op::DeleteRange(request) => {
                wire::Request::DeleteRange(self.delete(std::mem::take(request)))
            }
            Op::Txn(request) => wire::Request::Txn(self.txn(std::mem::take(request))),
        };
        wire::RequestOp { request: Some(request) }
    }

    fn compare(&self, compare: Compare) -> wire::Compare {
        use wire::CompareWith as With;
        let Compare { key, range_end, result, target } = compare;
        let (target, with) = match target {
            CompareTarget::Version(version) => (0, With::Version(signed(version))),
            CompareTarget::CreateRevision(revision) => (1, With::CreateRevision(signed(revision))),
            CompareTarget::ModRevision(revision) => (2, With::ModRevision(signed(revision))),
            CompareTarget::Value(value) => (3, With::Value(value)),
            CompareTarget::Lease(lease) => (4, With::Lease(lease)),
        };
        let result = match result {
            CompareResult::Equal => 0,
            CompareResult::Greater => 1,
            CompareResult::Less => 2,
            CompareResult::NotEqual => 3,
        };
        let (key, range_end) = (self.key(&key), self.end(&range_end));
        wire::Compare { result, target, key, with: Some(with), range_end }
    }

    pub(super) fn kv(&self, kv: wire::KeyValue) -> KeyValue {
        KeyValue {
            key: self.strip(kv.key),
            value: kv.value,
            create_revision: unsigned(kv.create_revision),
            mod_revision: unsigned(kv.mod_revision),
            version: unsigned(kv.version),
            lease: kv.lease,
        }
    }

    fn kvs(&self, kvs: Vec<wire::KeyValue>) -> Vec<KeyValue> {
        kvs.into_iter().map(|kv| self.kv(kv)).collect()
    }

    pub(super) fn ranged(&self, answer: wire::RangeResponse) -> RangeResponse {
        RangeResponse {
            revision: revision(answer.header.as_ref()),
            kvs: self.kvs(answer.kvs),
            count: unsigned(answer.count),
            more: answer.more,
        }
    }

    pub(super) fn done(&self, answer: wire::TxnResponse) -> TxnResponse {
        let wire::TxnResponse { header, succeeded, responses } = answer;
        let responses = responses.into_iter().filter_map(|op| op.response);
        let responses = responses.map(|response| self.response(response)).collect();
        TxnResponse { revision: revision(header.as_ref()), succeeded, responses }
    }

    fn response(&self, response: wire::Response) -> OpResponse {
        match response {
            wire::Response::Range(answer) => OpResponse::Range(self.ranged(answer)),
            wire::Response::Put(answer) => OpResponse::Put(PutResponse {
                revision: revision(answer.header.as_ref()),
                prev_kv: answer.prev_kv.map(|kv| self.kv(kv)),
            }),
            wire::Response::DeleteRange(answer) => OpResponse::DeleteRange(DeleteRangeResponse {
                revision: revision(answer.header.as_ref()),
                deleted: unsigned(answer.deleted),
                prev_kvs: self.kvs(answer.prev_kvs),
            }),
            wire::Response::Txn(answer) => OpResponse::Txn(self.done(answer)),
        }
    }

    pub(super) fn event(&self, event: wire::Event) -> KvEvent {
        let is_delete = event.kind() == wire::EventType::Delete;
        KvEvent {
            kv: self.kv(event.kv.unwrap_or_default()),
            is_delete,
            prev_kv: event.prev_kv.map(|kv| self.kv(kv)),
        }
    }
}

fn sort(order: SortOrder, target: SortTarget) -> (i32, i32) {
    let order = match order {
        SortOrder::None => 0,
        SortOrder::Ascend => 1,
        SortOrder::Descend => 2,
    };
    let target = match target {
        SortTarget::Key => 0,
        SortTarget::Version => 1,
        SortTarget::Create => 2,
        SortTarget::Mod => 3,
        SortTarget::Value => 4,
    };
    (order, target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_put_before_keys_and_ends_and_taken_away_again() {
        let prefix = KeyPrefix(Bytes::from_static(b"a/"));
        assert_eq!(prefix.key(b"k"), "a/k");
        assert_eq!(prefix.end(b""), "");
        assert_eq!(prefix.end(b"l"), "a/l");
        assert_eq!(prefix.end(b"\0"), "a0");
        assert_eq!(prefix.strip("a/k".into()), "k");
        let none = KeyPrefix::default();
        assert_eq!((none.end(b"\0"), none.key(b"k")), ("\0".into(), "k".into()));
    }

    #[test]
    fn numbers_stay_in_their_order() {
        assert_eq!((signed(u64::MAX), signed(7), unsigned(-1), unsigned(7)), (i64::MAX, 7, 0, 7));
    }
}
