//! Random requests, mostly sensible, sometimes wrong, always a function of the generator's state.

use annals::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, Op, PutRequest, RangeRequest,
    SortOrder, SortTarget, TxnRequest,
};
use bytes::Bytes;

use super::model::{Model, Request};
use super::random::Random;

/// What the requests of one run look like.
#[derive(Clone, Debug)]
pub struct Taste {
    pub keys: Vec<Bytes>,
    /// Longest ordinary value.
    pub value_bytes: u64,
    /// Whether leases are used.
    pub leases: bool,
}

impl Taste {
    /// A taste of its own for every seed.
    pub fn random(random: &mut Random) -> Self {
        let count = *random.pick(&[1, 3, 8, 20, 60]);
        let style = random.below(5);
        let keys = (0..count).map(|n| key(random, style, n)).collect();
        let value_bytes = *random.pick(&[0, 8, 60, 300, 1200]);
        Self { keys, value_bytes, leases: random.one_in(3) }
    }
}

fn key(random: &mut Random, style: u64, n: u64) -> Bytes {
    let text = match style {
        0 => format!("/{n}"),
        1 => format!("/registry/pods/namespace-{}/pod-{n:05}", n % 3),
        2 if n == 0 && random.one_in(3) => "k".repeat(6_000),
        2 => return Bytes::from(vec![[0, 1, 0xff][random.index(3)]; random.index(40) + 1]),
        _ => format!("{}{n}", "long/".repeat(random.index(30))),
    };
    Bytes::from(text)
}

pub fn request(random: &mut Random, taste: &Taste, model: &Model) -> Request {
    let leases = u64::from(taste.leases);
    match random.below(94 + 6 * leases) {
        0..50 => Request::Put(put(random, taste, model)),
        50..62 => Request::DeleteRange(delete(random, taste)),
        62..90 => {
            let request = txn(random, taste, model, 0);
            let time = random.one_in(5).then(|| {
                let now = model.entry().time.max(super::START_TIME);
                now + random.below(2_000_000).cast_signed() - 500_000
            });
            let metadata = match random.below(4) {
                0 => Bytes::from(format!("metadata {}", random.next())),
                _ => Bytes::new(),
            };
            Request::Txn { request, time, metadata }
        }
        90..94 => Request::Compact(compaction(random, model)),
        94..97 => Request::Grant {
            id: random.between(1, 6).cast_signed(),
            ttl: random.below(100).cast_signed() - 3,
        },
        _ => Request::Revoke(random.between(1, 7).cast_signed()),
    }
}

/// A revision to compact to: often one that makes sense.
fn compaction(random: &mut Random, model: &Model) -> u64 {
    match random.below(4) {
        0 => random.between(1, model.revision() + 2),
        1 => model.revision(),
        _ => {
            let (low, high) = (model.compacted().max(1), model.revision());
            low + random.below(high - low + 1)
        }
    }
}

pub fn a_key(random: &mut Random, taste: &Taste) -> Bytes {
    match random.below(300) {
        0 => Bytes::new(),
        1..9 => {
            let mut key = random.pick(&taste.keys).to_vec();
            key.push(random.below(256).to_le_bytes()[0]);
            key.into()
        }
        _ => random.pick(&taste.keys).clone(),
    }
}

/// A key and an end: single, a pair of keys, a prefix, from a key on, or everything.
pub fn a_range(random: &mut Random, taste: &Taste) -> (Bytes, Bytes) {
    let key = a_key(random, taste);
    match random.below(8) {
        0..3 => (key, Bytes::new()),
        3 => (key, Bytes::from_static(b"\0")),
        4 => (Bytes::from_static(b"\0"), Bytes::from_static(b"\0")),
        5 => {
            let prefix = &key[..key.len().min(random.index(10) + 1)];
            let range = RangeRequest::prefix(prefix);
            (range.key, range.range_end)
        }
        _ => {
            let end = a_key(random, taste);
            if end < key && !random.one_in(5) { (end, key) } else { (key, end) }
        }
    }
}

fn value(random: &mut Random, taste: &Taste) -> Bytes {
    let len = match random.below(400) {
        0 => 40_000,
        1..8 => 3_000,
        8..20 => 600,
        20..80 => 0,
        _ => random.below(taste.value_bytes + 1),
    };
    // A quarter does not compress; the rest resembles what configuration looks like.
    if random.one_in(4) {
        (0..len).map(|_| random.next().to_le_bytes()[0]).collect()
    } else {
        let text = format!("{{\"replicas\": {}, \"image\": \"nginx\"}} ", random.below(1000));
        text.bytes().cycle().take(usize::try_from(len).unwrap()).collect()
    }
}

fn lease(random: &mut Random, taste: &Taste, model: &Model) -> i64 {
    if !taste.leases || random.one_in(2) {
        return 0;
    }
    let ids: Vec<i64> = model.leases().keys().copied().collect();
    if ids.is_empty() || random.one_in(20) { 99 } else { *random.pick(&ids) }
}

fn put(random: &mut Random, taste: &Taste, model: &Model) -> PutRequest {
    let ignore_value = random.one_in(25);
    let ignore_lease = random.one_in(25);
    PutRequest {
        key: a_key(random, taste),
        value: if ignore_value && !random.one_in(8) { Bytes::new() } else { value(random, taste) },
        lease: if ignore_lease && !random.one_in(8) { 0 } else { lease(random, taste, model) },
        prev_kv: random.one_in(4),
        ignore_value,
        ignore_lease,
    }
}

fn delete(random: &mut Random, taste: &Taste) -> DeleteRangeRequest {
    let (key, range_end) = if random.one_in(4) {
        a_range(random, taste)
    } else {
        (a_key(random, taste), Bytes::new())
    };
    DeleteRangeRequest { key, range_end, prev_kv: random.one_in(3) }
}

pub fn range(random: &mut Random, taste: &Taste, model: &Model) -> RangeRequest {
    let (key, range_end) = a_range(random, taste);
    let filter = |random: &mut Random| {
        if random.one_in(12) { random.below(model.revision() + 2) } else { 0 }
    };
    RangeRequest {
        key,
        range_end,
        limit: if random.one_in(2) { 0 } else { random.below(6) },
        revision: random.one_in(2).then(|| a_revision(random, model)),
        sort_order: *random.pick(&[SortOrder::None, SortOrder::Ascend, SortOrder::Descend]),
        sort_target: *random.pick(&[
            SortTarget::Key,
            SortTarget::Key,
            SortTarget::Version,
            SortTarget::Create,
            SortTarget::Mod,
            SortTarget::Value,
        ]),
        keys_only: random.one_in(6),
        count_only: random.one_in(6),
        min_mod_revision: filter(random),
        max_mod_revision: filter(random),
        min_create_revision: filter(random),
        max_create_revision: filter(random),
    }
}

/// Mostly a revision that can be read.
pub fn a_revision(random: &mut Random, model: &Model) -> u64 {
    let (oldest, newest) = (model.compacted().max(1), model.revision());
    match random.below(12) {
        0 => random.below(newest + 2),
        1 => oldest,
        2 => newest,
        _ => oldest + random.below(newest - oldest + 1),
    }
}

fn compare(random: &mut Random, taste: &Taste, model: &Model) -> Compare {
    let (key, range_end) = if random.one_in(4) {
        a_range(random, taste)
    } else {
        (a_key(random, taste), Bytes::new())
    };
    // Often what is true now, so that about half of the transactions succeed.
    let now = model.state_at(model.revision()).remove(&key).unwrap_or_default();
    let off = random.one_in(4);
    let number = |random: &mut Random, truth: u64| {
        if off { random.below(model.revision() + 2) } else { truth }
    };
    let target = match random.below(6) {
        0 => CompareTarget::Version(number(random, now.version)),
        1 => CompareTarget::CreateRevision(number(random, now.create_revision)),
        2 | 3 => CompareTarget::ModRevision(number(random, now.mod_revision)),
        4 => CompareTarget::Lease(now.lease),
        _ if off => CompareTarget::Value(value(random, taste)),
        _ => CompareTarget::Value(now.value),
    };
    let result = match random.below(6) {
        0 => CompareResult::Greater,
        1 => CompareResult::Less,
        2 => CompareResult::NotEqual,
        _ => CompareResult::Equal,
    };
    Compare { key, range_end, result, target }
}

fn txn(random: &mut Random, taste: &Taste, model: &Model, depth: u32) -> TxnRequest {
    let compares = random.below(3);
    let compare = (0..compares).map(|_| compare(random, taste, model)).collect();
    let success = ops(random, taste, model, depth);
    let failure = if random.one_in(2) { ops(random, taste, model, depth) } else { Vec::new() };
    TxnRequest { compare, success, failure }
}

fn ops(random: &mut Random, taste: &Taste, model: &Model, depth: u32) -> Vec<Op> {
    let count = random.below(5);
    let op = |random: &mut Random| match random.below(20) {
        0..11 => Op::Put(put(random, taste, model)),
        11..14 => Op::DeleteRange(delete(random, taste)),
        14..18 => Op::Range(range(random, taste, model)),
        _ if depth < 2 => Op::Txn(txn(random, taste, model, depth + 1)),
        _ => Op::Range(range(random, taste, model)),
    };
    (0..count).map(|_| op(random)).collect()
}
