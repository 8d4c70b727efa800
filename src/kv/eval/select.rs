//! From the keys of a range to its answer: filters, order, limit, count.
//!
//! etcd's rules, warts included: the count is of every key in the range, whatever filters and
//! limit leave; a sort order or a filter makes the limit apply to the sorted and filtered answer;
//! but a target other than the key with no order sorts (ascending) only what the limit let through.

use crate::error::Result;
use crate::kv::range::KeyRange;
use crate::kv::request::{RangeRequest, SortOrder, SortTarget};
use crate::kv::response::RangeResponse;
use crate::kv::space;
use crate::kv::types::KeyValue;

use super::reads::{Reads, Records, key_value};

/// Answers a range at the newest state.
pub(in crate::kv) fn newest(
    reads: &dyn Reads,
    request: &RangeRequest,
    revision: u64,
) -> Result<RangeResponse> {
    if request.range_end.is_empty() {
        let found = reads.get(&space::user(&request.key))?;
        return Ok(answer(found.map(key_value).into_iter().collect(), request, revision));
    }
    let scan = |start: &[u8], end: &[u8], keys_only| Ok(reads.scan(start, end, keys_only));
    stream(request, revision, scan, |start, end| reads.count(start, end))
}

/// Answers a range as of the revision `at`.
pub(in crate::kv) fn past(
    reads: &dyn Reads,
    at: u64,
    request: &RangeRequest,
    revision: u64,
) -> Result<RangeResponse> {
    if request.range_end.is_empty() {
        let found = reads.get_at(&space::user(&request.key), at)?;
        return Ok(answer(found.map(key_value).into_iter().collect(), request, revision));
    }
    let scan = |start: &[u8], end: &[u8], keys_only| reads.scan_at(start, end, keys_only, at);
    stream(request, revision, scan, |start, end| reads.count_at(start, end, at))
}

/// Answers a range of several keys, reading only keys that may be in the answer, and values only of
/// those: what lies behind the limit is counted.
fn stream<'r>(
    request: &RangeRequest,
    revision: u64,
    scan: impl Fn(&[u8], &[u8], bool) -> Result<Records<'r>>,
    count: impl Fn(&[u8], &[u8]) -> Result<u64>,
) -> Result<RangeResponse> {
    let range = KeyRange::from_etcd(&request.key, &request.range_end);
    if range.is_empty() {
        return Ok(RangeResponse { revision, ..RangeResponse::default() });
    }
    let (start, end) = space::user_range(&range);
    if request.count_only {
        let count = count(&start, &end)?;
        return Ok(RangeResponse { revision, count, ..RangeResponse::default() });
    }
    let keys_only = request.keys_only && request.sort_target != SortTarget::Value;
    let fetched = fetch_limit(request);
    let mut kvs = Vec::new();
    for record in scan(&start, &end, keys_only)?.take(fetched) {
        kvs.push(key_value(record?));
    }
    let mut total = kvs.len() as u64;
    if kvs.len() == fetched {
        let last = kvs.last().map_or_else(|| range.start().to_vec(), |kv| kv.key.to_vec());
        let rest = KeyRange::from_key([last.as_slice(), b"\0"].concat());
        total += count(&space::user(rest.start()), &end)?;
    }
    let mut response = answer(kvs, request, revision);
    response.count = total;
    Ok(response)
}

/// How many keys have to be read: one more than the limit says whether there are more.
fn fetch_limit(request: &RangeRequest) -> usize {
    let whole =
        request.limit == 0 || request.sort_order != SortOrder::None || request.is_filtered();
    if whole {
        usize::MAX
    } else {
        usize::try_from(request.limit).unwrap_or(usize::MAX).saturating_add(1)
    }
}

/// Answers with the keys of the range (or as many as the limit lets through) given in key order.
pub(in crate::kv) fn answer(
    mut kvs: Vec<KeyValue>,
    request: &RangeRequest,
    revision: u64,
) -> RangeResponse {
    let count = kvs.len() as u64;
    if request.count_only {
        return RangeResponse { revision, count, ..RangeResponse::default() };
    }
    kvs.truncate(fetch_limit(request));
    filter(&mut kvs, request);
    sort(&mut kvs, request);
    let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
    let more = limit > 0 && kvs.len() > limit;
    if more {
        kvs.truncate(limit);
    }
    if request.keys_only {
        for kv in &mut kvs {
            kv.value.clear();
        }
    }
    RangeResponse { revision, kvs, count, more }
}

fn filter(kvs: &mut Vec<KeyValue>, request: &RangeRequest) {
    let within = |revision: u64, min: u64, max: u64| {
        (min == 0 || revision >= min) && (max == 0 || revision <= max)
    };
    kvs.retain(|kv| {
        within(kv.mod_revision, request.min_mod_revision, request.max_mod_revision)
            && within(kv.create_revision, request.min_create_revision, request.max_create_revision)
    });
}

/// Sorts stably: equal ones stay in key order, in both directions.
fn sort(kvs: &mut [KeyValue], request: &RangeRequest) {
    let descending = request.sort_order == SortOrder::Descend;
    if request.sort_target == SortTarget::Key && !descending {
        return;
    }
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
}
