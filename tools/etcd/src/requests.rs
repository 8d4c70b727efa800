//! Requests: from the protocol to the store's own, after the checks that etcd makes before anything else.
//!
//! Source: etcd's `server/etcdserver/api/v3rpc/key.go`. What is checked there needs no look at the store, so a request
//! with several faults is refused for the same one.

use annals::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, Op, PutRequest, RangeRequest,
    SortOrder, SortTarget, TxnRequest,
};
use tonic::Status;

use crate::errors::{
    EMPTY_KEY, INVALID_SORT, KEY_NOT_FOUND, LEASE_PROVIDED, TOO_MANY_OPS, VALUE_PROVIDED, refuse,
};
use crate::proto::etcdserverpb as pb;

/// A range.
///
/// # Errors
/// An empty key; an order that does not exist.
pub(crate) fn range(request: &pb::RangeRequest) -> Result<RangeRequest, Status> {
    if request.key.is_empty() {
        return Err(refuse(EMPTY_KEY));
    }
    let order = pb::range_request::SortOrder::try_from(request.sort_order);
    let target = pb::range_request::SortTarget::try_from(request.sort_target);
    let (Ok(order), Ok(target)) = (order, target) else { return Err(refuse(INVALID_SORT)) };
    let sort_order = match order {
        pb::range_request::SortOrder::None => SortOrder::None,
        pb::range_request::SortOrder::Ascend => SortOrder::Ascend,
        pb::range_request::SortOrder::Descend => SortOrder::Descend,
    };
    let sort_target = match target {
        pb::range_request::SortTarget::Key => SortTarget::Key,
        pb::range_request::SortTarget::Version => SortTarget::Version,
        pb::range_request::SortTarget::Create => SortTarget::Create,
        pb::range_request::SortTarget::Mod => SortTarget::Mod,
        pb::range_request::SortTarget::Value => SortTarget::Value,
    };
    let (min_mod_revision, max_mod_revision) =
        between(request.min_mod_revision, request.max_mod_revision);
    let (min_create_revision, max_create_revision) =
        between(request.min_create_revision, request.max_create_revision);
    Ok(RangeRequest {
        key: request.key.clone(),
        range_end: request.range_end.clone(),
        limit: unsigned(request.limit),
        // Everything up to 0 is the newest.
        revision: Some(unsigned(request.revision)).filter(|revision| *revision > 0),
        sort_order,
        sort_target,
        keys_only: request.keys_only,
        count_only: request.count_only,
        min_mod_revision,
        max_mod_revision,
        min_create_revision,
        max_create_revision,
    })
}

/// Bounds of a filter, where 0 is none. A negative upper bound lets nothing through: the lower one is then beyond all. A
/// negative lower one lets all through, but is a filter, with which the limit comes after the order.
fn between(min: i64, max: i64) -> (u64, u64) {
    match (min, max) {
        (_, ..0) => (u64::MAX, 0),
        (..0, 0) => (0, u64::MAX),
        _ => (unsigned(min), unsigned(max)),
    }
}

/// Whether a transaction asks for a revision before all that there are, which is refused there, as a range by itself is not:
/// etcd compares it with the revision compacted to, which is -1 in a store that was never compacted. Only of what is done whatever
/// the store holds: behind comparisons such a revision is the newest here.
pub(crate) fn asks_before_all(request: &pb::TxnRequest, compacted: u64) -> bool {
    use pb::request_op::Request;
    let least = if compacted == 0 { -1 } else { 0 };
    let is_certain = request.compare.is_empty();
    is_certain
        && request.success.iter().any(|op| match &op.request {
            Some(Request::RequestRange(range)) => range.revision < least,
            Some(Request::RequestTxn(nested)) => asks_before_all(nested, compacted),
            _ => false,
        })
}

/// A put.
///
/// # Errors
/// An empty key; a value or lease beside the wish to keep it.
pub(crate) fn put(request: &pb::PutRequest) -> Result<PutRequest, Status> {
    if request.key.is_empty() {
        return Err(refuse(EMPTY_KEY));
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(refuse(VALUE_PROVIDED));
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(refuse(LEASE_PROVIDED));
    }
    Ok(PutRequest {
        key: request.key.clone(),
        value: request.value.clone(),
        lease: request.lease,
        prev_kv: request.prev_kv,
        ignore_value: request.ignore_value,
        ignore_lease: request.ignore_lease,
    })
}

/// A delete.
///
/// # Errors
/// An empty key.
pub(crate) fn delete_range(request: &pb::DeleteRangeRequest) -> Result<DeleteRangeRequest, Status> {
    if request.key.is_empty() {
        return Err(refuse(EMPTY_KEY));
    }
    let (key, range_end) = (request.key.clone(), request.range_end.clone());
    Ok(DeleteRangeRequest { key, range_end, prev_kv: request.prev_kv })
}

/// A transaction of at most `max` operations; those within it may have what is left.
///
/// # Errors
/// What is wrong with it or one of its operations. Keys that are given twice are left to the store.
pub(crate) fn txn(request: &pb::TxnRequest, max: usize) -> Result<TxnRequest, Status> {
    let count = request.compare.len().max(request.success.len()).max(request.failure.len());
    if count > max {
        return Err(refuse(TOO_MANY_OPS));
    }
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(refuse(EMPTY_KEY));
    }
    let ops = |ops: &[pb::RequestOp]| {
        ops.iter().map(|each| op(each, max - count)).collect::<Result<Vec<_>, _>>()
    };
    let (success, failure) = (ops(&request.success)?, ops(&request.failure)?);
    let compare = request.compare.iter().map(compare).collect();
    Ok(TxnRequest { compare, success, failure })
}

fn op(request: &pb::RequestOp, max: usize) -> Result<Op, Status> {
    use pb::request_op::Request;
    Ok(match &request.request {
        // What etcd says of an operation that is none.
        None => return Err(refuse(KEY_NOT_FOUND)),
        Some(Request::RequestRange(request)) => Op::Range(range(request)?),
        Some(Request::RequestPut(request)) => Op::Put(put(request)?),
        Some(Request::RequestDeleteRange(request)) => Op::DeleteRange(delete_range(request)?),
        Some(Request::RequestTxn(request)) => Op::Txn(txn(request, max)?),
    })
}

/// A comparison whose result or target is none of those that there are. As in etcd a target that is unknown is equal to
/// whatever it is compared to, and a result that is unknown holds; but for values of keys that are not there, of which
/// nothing holds.
fn unknown_compare(
    request: &pb::Compare,
    result: Option<pb::compare::CompareResult>,
    target: Option<pb::compare::CompareTarget>,
) -> Compare {
    use pb::compare::{CompareResult as Result, CompareTarget as Target};
    let is_there = (CompareResult::Greater, 0);
    // No version is so high.
    let (always, never) = ((CompareResult::NotEqual, u64::MAX), (CompareResult::Equal, u64::MAX));
    let (result, version) = match (target, result) {
        (Some(Target::Value), None) => is_there,
        (_, None | Some(Result::Equal)) => always,
        _ => never,
    };
    let (key, range_end) = (request.key.clone(), request.range_end.clone());
    Compare { key, range_end, result, target: CompareTarget::Version(version) }
}

fn compare(request: &pb::Compare) -> Compare {
    use pb::compare::{CompareResult as Result, CompareTarget as Target, TargetUnion};
    let (result, target) = (Result::try_from(request.result), Target::try_from(request.target));
    let (Ok(result), Ok(target)) = (result, target) else {
        return unknown_compare(request, result.ok(), target.ok());
    };
    let mut result = match result {
        Result::Equal => CompareResult::Equal,
        Result::Greater => CompareResult::Greater,
        Result::Less => CompareResult::Less,
        Result::NotEqual => CompareResult::NotEqual,
    };
    // The target says which number is meant; one that is not given is 0.
    let mut number = |given: Option<i64>| match u64::try_from(given.unwrap_or(0)) {
        Ok(number) => number,
        Err(_) => {
            // Nothing is below 0: less or equal never hold, the others always do.
            match result {
                CompareResult::Less => result = CompareResult::Equal,
                CompareResult::Greater => result = CompareResult::NotEqual,
                _ => {}
            }
            u64::MAX
        }
    };
    let union = request.target_union.as_ref();
    let target = match target {
        Target::Version => CompareTarget::Version(number(match union {
            Some(TargetUnion::Version(version)) => Some(*version),
            _ => None,
        })),
        Target::Create => CompareTarget::CreateRevision(number(match union {
            Some(TargetUnion::CreateRevision(revision)) => Some(*revision),
            _ => None,
        })),
        Target::Mod => CompareTarget::ModRevision(number(match union {
            Some(TargetUnion::ModRevision(revision)) => Some(*revision),
            _ => None,
        })),
        Target::Lease => CompareTarget::Lease(match union {
            Some(TargetUnion::Lease(lease)) => *lease,
            _ => 0,
        }),
        Target::Value => CompareTarget::Value(match union {
            Some(TargetUnion::Value(value)) => value.clone(),
            _ => bytes::Bytes::new(),
        }),
    };
    let (key, range_end) = (request.key.clone(), request.range_end.clone());
    Compare { key, range_end, result, target }
}

/// A number where negative ones are as good as 0.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(result: i32, version: i64) -> Compare {
        let target_union = Some(pb::compare::TargetUnion::Version(version));
        let request = pb::Compare { result, key: "k".into(), target_union, ..Default::default() };
        compare(&request)
    }

    /// No version is below 0, and none is `u64::MAX`.
    #[test]
    fn comparisons_with_negative_numbers_have_their_answer() {
        let holds = |compare: &Compare, version: u64| {
            let CompareTarget::Version(number) = compare.target else { panic!("{compare:?}") };
            match compare.result {
                CompareResult::Equal => version == number,
                CompareResult::NotEqual => version != number,
                CompareResult::Greater => version > number,
                CompareResult::Less => version < number,
            }
        };
        for version in [0, 1, 7] {
            let results: Vec<bool> = (0..4).map(|r| holds(&compared(r, -1), version)).collect();
            assert_eq!(results, [false, true, false, true], "equal, greater, less, not equal");
            let results: Vec<bool> = (0..4).map(|r| holds(&compared(r, 1), version)).collect();
            assert_eq!(results, [version == 1, version > 1, version < 1, version != 1]);
        }
    }

    /// As etcd's `compareKV` has it: an unknown target leaves the order at equal, an unknown result holds.
    #[test]
    fn comparisons_that_do_not_exist_hold_where_they_do_in_etcd() {
        let holds = |target: i32, result: i32, version: u64| {
            let request = pb::Compare { target, result, key: "k".into(), ..Default::default() };
            let compare = compare(&request);
            let CompareTarget::Version(number) = compare.target else { panic!("{compare:?}") };
            match compare.result {
                CompareResult::Equal => version == number,
                CompareResult::NotEqual => version != number,
                CompareResult::Greater => version > number,
                CompareResult::Less => version < number,
            }
        };
        for version in [0, 1, 7] {
            let results: Vec<bool> = (0..5).map(|result| holds(9, result, version)).collect();
            assert_eq!(results, [true, false, false, false, true], "equal alone, and what is none");
            assert!(holds(0, -1, version) && holds(2, 4, version));
            assert_eq!(holds(3, 4, version), version > 0, "the value of a key that is there");
        }
    }

    fn nested(depth: usize) -> pb::TxnRequest {
        let mut txn = pb::TxnRequest::default();
        for _ in 0..depth {
            let request = Some(pb::request_op::Request::RequestTxn(txn));
            txn = pb::TxnRequest { success: vec![pb::RequestOp { request }], ..Default::default() };
        }
        txn
    }

    #[test]
    fn nested_transactions_have_what_is_left_of_the_operations() {
        assert!(txn(&nested(3), 3).is_ok());
        let refused = txn(&nested(4), 3).expect_err("four deep, one operation each");
        assert_eq!(refused.message(), "etcdserver: too many operations in txn request");
        let one = pb::RequestOp::default();
        let empty = pb::TxnRequest { success: vec![one], ..Default::default() };
        let refused = txn(&empty, 3).expect_err("an operation that is none");
        assert_eq!(refused.message(), "etcdserver: key not found");
    }

    #[test]
    fn filters_that_let_nothing_through_say_so() {
        assert_eq!(between(-3, 5), (0, 5));
        assert_eq!(between(3, -5), (u64::MAX, 0));
        // It is one all the same.
        assert_eq!(between(-3, 0), (0, u64::MAX));
        assert_eq!(between(-3, -3), (u64::MAX, 0));
    }
}
