//! What a request must look like, which keys are in a range, and what a range answers.

use std::collections::BTreeMap;

use annals::{
    ErrorKind, KeyValue, Op, PutRequest, RangeRequest, RangeResponse, SortOrder, SortTarget,
    TxnRequest,
};
use bytes::Bytes;

use super::Refused;

pub(super) fn shape(request: &TxnRequest) -> Result<(), Refused> {
    request.compare.iter().try_for_each(|compare| not_empty(&compare.key))?;
    request.success.iter().chain(&request.failure).try_for_each(|op| match op {
        Op::Range(range) => range_shape(range),
        Op::Put(put) => put_shape(put),
        Op::DeleteRange(delete) => not_empty(&delete.key),
        Op::Txn(nested) => shape(nested),
    })
}

pub(super) fn put_shape(put: &PutRequest) -> Result<(), Refused> {
    not_empty(&put.key)?;
    if put.ignore_value && !put.value.is_empty() {
        return Err(ErrorKind::ValueProvided);
    }
    if put.ignore_lease && put.lease != 0 {
        return Err(ErrorKind::LeaseProvided);
    }
    Ok(())
}

pub(super) fn range_shape(range: &RangeRequest) -> Result<(), Refused> {
    not_empty(&range.key)?;
    match range.revision {
        Some(0) => Err(ErrorKind::InvalidArgument { what: String::new() }),
        _ => Ok(()),
    }
}

pub(super) fn not_empty(key: &[u8]) -> Result<(), Refused> {
    if key.is_empty() { Err(ErrorKind::EmptyKey) } else { Ok(()) }
}

/// Whether a key is in etcd's range.
pub fn in_range(start: &[u8], end: &[u8], key: &[u8]) -> bool {
    match end {
        [] => key == start,
        [0] => key >= start,
        _ => key >= start && key < end,
    }
}

/// etcd's answer to a range on a state.
pub(super) fn select(
    state: &BTreeMap<Bytes, KeyValue>,
    request: &RangeRequest,
    revision: u64,
) -> RangeResponse {
    let mut kvs: Vec<KeyValue> = state
        .values()
        .filter(|kv| in_range(&request.key, &request.range_end, &kv.key))
        .cloned()
        .collect();
    let count = kvs.len() as u64;
    if request.count_only {
        return RangeResponse { revision, kvs: Vec::new(), count, more: false };
    }
    let limit = match request.limit {
        0 => usize::MAX - 1,
        limit => usize::try_from(limit).unwrap(),
    };
    let (min_mod, max_mod) = (request.min_mod_revision, request.max_mod_revision);
    let (min_create, max_create) = (request.min_create_revision, request.max_create_revision);
    let filtered = [min_mod, max_mod, min_create, max_create] != [0; 4];
    if request.sort_order == SortOrder::None && !filtered {
        // etcd fetches no more than it needs, so that a sort without order sees only those.
        kvs.truncate(limit + 1);
    }
    kvs.retain(|kv| {
        kv.mod_revision >= min_mod
            && (max_mod == 0 || kv.mod_revision <= max_mod)
            && kv.create_revision >= min_create
            && (max_create == 0 || kv.create_revision <= max_create)
    });
    let descending = request.sort_order == SortOrder::Descend;
    kvs.sort_by(|a, b| {
        let order = match request.sort_target {
            SortTarget::Key => a.key.cmp(&b.key),
            SortTarget::Version => a.version.cmp(&b.version),
            SortTarget::Create => a.create_revision.cmp(&b.create_revision),
            SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
            SortTarget::Value => a.value.cmp(&b.value),
        };
        if descending { order.reverse() } else { order }
    });
    let more = kvs.len() > limit;
    kvs.truncate(limit);
    if request.keys_only {
        for kv in &mut kvs {
            kv.value.clear();
        }
    }
    RangeResponse { revision, kvs, count, more }
}
