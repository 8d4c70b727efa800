//! The evaluator on a state made by hand: what it asks for, and what it says it has read.

use std::collections::BTreeMap;

use super::*;
use crate::error::Error;
use crate::kv::build::{delete, get, mod_revision, put, range, txn};
use crate::kv::request::PutRequest;
use crate::kv::seam::Record;
use crate::options::Options;

/// A state: live records, and the revisions of tombstones.
#[derive(Default)]
struct State {
    live: BTreeMap<Bytes, Record>,
    gone: BTreeMap<Bytes, u64>,
}

impl State {
    /// Three keys, `a` and `b` of revisions 2 and 3, `gone` deleted at 5; and the lease 7.
    fn new() -> Self {
        let mut state = Self::default();
        state.record(space::user(b"a"), 2, 0);
        state.record(space::user(b"b"), 3, 7);
        state.gone.insert(space::user(b"gone").into_vec().into(), 5);
        state.record(space::lease(7), 1, 0);
        state.record(space::attachment(7, b"b"), 2, 0);
        state
    }

    fn record(&mut self, key: InternalKey, revision: u64, lease: i64) {
        let key = Bytes::from(key.into_vec());
        let record = Record {
            key: key.clone(),
            value: Bytes::from_static(b"value"),
            create_revision: revision,
            mod_revision: revision,
            sub: 0,
            version: 1,
            lease,
        };
        self.live.insert(key, record);
    }
}

impl Reads for State {
    fn revision(&self) -> u64 {
        5
    }

    fn compacted(&self) -> u64 {
        2
    }

    fn check_past(&self, _: &[u8], _: &[u8], requested: u64) -> Result<()> {
        match self.compacted() {
            compacted if compacted > requested => {
                Err(ErrorKind::Compacted { requested, compacted, prefix: None }.into())
            }
            _ => Ok(()),
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Record>> {
        Ok(self.live.get(key).cloned())
    }

    fn newest(&self, key: &[u8]) -> Result<Option<Stub>> {
        let gone = |revision: &u64| Stub {
            revision: *revision,
            create_revision: 0,
            version: 0,
            lease: 0,
            tombstone: true,
        };
        Ok(self.live.get(key).map(Record::stub).or_else(|| self.gone.get(key).map(gone)))
    }

    fn scan(&self, start: &[u8], end: &[u8], _: bool) -> reads::Records<'_> {
        let (start, end) = (Bytes::copy_from_slice(start), Bytes::copy_from_slice(end));
        let within = move |key: &Bytes| {
            *key >= start && key.first() == start.first() && (end.is_empty() || *key < end)
        };
        let found = self.live.iter().filter(move |(key, _)| within(key));
        Box::new(found.map(|(_, record)| Ok(record.clone())))
    }

    fn get_at(&self, _: &[u8], _: u64) -> Result<Option<Record>> {
        Err(Error::invalid("the past is not part of this state"))
    }

    fn scan_at(&self, _: &[u8], _: &[u8], _: bool, _: u64) -> Result<reads::Records<'_>> {
        Ok(Box::new(std::iter::empty()))
    }
}

/// The plan and the answer of one evaluation.
fn evaluate<'r, T>(
    leases: bool,
    request: impl FnOnce(&mut Evaluation<'_, 'r>) -> Result<T>,
) -> (Result<T>, Option<Plan<'r>>) {
    let (state, mut plan) = (State::new(), Plan::default());
    let mut evaluation = Evaluation::new(&state, &mut plan, Limits::of(&Options::new()), leases);
    let answer = request(&mut evaluation);
    let writes = evaluation.finish().expect("within the limits");
    (answer, writes.then_some(plan))
}

fn transaction(request: &TxnRequest) -> (TxnResponse, Option<Plan<'_>>) {
    let (answer, plan) = evaluate(true, |evaluation| evaluation.transaction(request));
    (answer.expect("the transaction is evaluated"), plan)
}

/// The plan's writes: `+key` and `-key`, system keys by their letter.
fn writes(plan: Option<&Plan<'_>>) -> String {
    let told = plan.iter().flat_map(|plan| &plan.writes).map(|write| {
        let sign = if matches!(write.kind, WriteKind::Delete) { '-' } else { '+' };
        let key = if annals_format::space::is_user(&write.key) {
            &write.key[1..]
        } else {
            &write.key[1..2]
        };
        format!("{sign}{}", String::from_utf8_lossy(key))
    });
    told.collect::<Vec<_>>().join(" ")
}

fn internal(key: &str) -> Bytes {
    space::user(key.as_bytes()).into_vec().into()
}

fn points(plan: Option<&Plan<'_>>) -> Vec<(String, u64)> {
    let points = plan.iter().flat_map(|plan| &plan.reads.points);
    let name = |key: &[u8]| String::from_utf8_lossy(&key[1..]).into_owned();
    points.map(|point| (name(&point.key), point.seen)).collect()
}

#[test]
fn a_blind_put_conflicts_with_nothing() {
    for leases in [false, true] {
        let request = PutRequest::new("a", "x");
        let (_, plan) = evaluate(leases, |evaluation| evaluation.single_put(&request));
        let footprint = &plan.as_ref().expect("a plan").reads;
        assert!(footprint.points.is_empty() && footprint.ranges.is_empty() && !footprint.exact);
        assert_eq!(writes(plan.as_ref()), "+a");
    }
}

#[test]
fn what_the_answer_shows_is_in_the_footprint() {
    let request = PutRequest::new("a", "x").prev_kv();
    let (answer, plan) = evaluate(false, |e| e.single_put(&request));
    assert_eq!(answer.expect("a put").prev_kv.map(|kv| kv.mod_revision), Some(2));
    assert_eq!(points(plan.as_ref()), [("a".into(), 2)]);
    // A tombstone's revision counts, too: a key written and deleted again is not the same.
    let request = PutRequest::new("gone", "x").prev_kv();
    let (_, plan) = evaluate(false, |e| e.single_put(&request));
    assert_eq!(points(plan.as_ref()), [("gone".into(), 5)]);
    let request = PutRequest::new("new", "x").prev_kv();
    let (_, plan) = evaluate(false, |e| e.single_put(&request));
    assert_eq!(points(plan.as_ref()), [("new".into(), 0)]);
}

#[test]
fn a_compare_and_put_depends_on_its_key() {
    // Alive, deleted and never there; each with the revision that makes it hold, and another.
    for (key, seen, newest) in [(b"a".as_slice(), 2, 2), (b"gone", 0, 5), (b"new", 0, 0)] {
        let (held, plan) = evaluate(false, |e| e.compare_and_put(key, seen, b"x"));
        assert!(held.expect("an answer"));
        let name = String::from_utf8_lossy(key).into_owned();
        assert_eq!(writes(plan.as_ref()), format!("+{name}"));
        assert_eq!(points(plan.as_ref()), [(name, newest)]);
        let (held, plan) = evaluate(false, |e| e.compare_and_put(key, seen + 5, b"x"));
        assert!(!held.expect("an answer") && plan.is_none());
    }
}

#[test]
fn a_delete_is_blind_where_the_order_checks_it() {
    let (answer, plan) = evaluate(true, |e| e.delete_range(&DeleteRangeRequest::new("a")));
    assert_eq!(answer.expect("a delete").deleted, 1);
    assert_eq!((writes(plan.as_ref()), points(plan.as_ref()).len()), ("-a".into(), 0));
    let (_, plan) = evaluate(true, |e| e.delete_range(&DeleteRangeRequest::new("gone")));
    assert!(plan.is_none());
    // In company, the absence of a key matters.
    let request = txn().then([delete("gone"), put("x", "")]);
    let (_, plan) = transaction(&request);
    assert_eq!(
        (writes(plan.as_ref()), points(plan.as_ref())),
        ("+x".into(), vec![("gone".into(), 5)])
    );
}

#[test]
fn the_lease_table_follows_the_keys() {
    let request = PutRequest::new("b", "x");
    let (_, plan) = evaluate(true, |e| e.single_put(&request));
    assert_eq!(writes(plan.as_ref()), "+b -A");
    let request = PutRequest::new("b", "x").lease(7);
    let (_, plan) = evaluate(true, |e| e.single_put(&request));
    assert_eq!(writes(plan.as_ref()), "+b");
    let leased = PutRequest::new("a", "x").lease(7);
    let request = txn().then([delete("b"), leased.into(), put("c", "")]);
    let (_, plan) = transaction(&request);
    // Users' keys first: their places are the sub revisions.
    assert_eq!(writes(plan.as_ref()), "-b +a +c -A +A");
    assert_eq!(points(plan.as_ref()).len(), 2); // the lease and "a"
    let (_, plan) = evaluate(true, |e| e.blind_put(b"b", b"x"));
    assert_eq!(writes(plan.as_ref()), "+b -A");
    let (held, plan) = evaluate(true, |e| e.compare_and_put(b"b", 3, b"x"));
    assert!(held.expect("an answer"));
    assert_eq!(writes(plan.as_ref()), "+b -A");
    let (deleted, plan) = evaluate(true, |e| e.revoke(7, &|_| true));
    assert_eq!(deleted.expect("a revoke").expect("allowed"), ["b"]);
    assert_eq!(writes(plan.as_ref()), "-b -A -L");
    assert_eq!(plan.expect("a plan").reads.ranges, [space::attachments(7)]);
    let (deleted, plan) = evaluate(true, |e| e.revoke(7, &|key| key != b"b"));
    assert!(deleted.expect("an answer").is_none() && plan.is_none());
}

#[test]
fn a_failed_comparison_without_writes_asks_for_nothing() {
    let swap = txn().when([mod_revision("a").eq(9)]).then([put("a", "")]).or_else([get("a")]);
    let (answer, plan) = transaction(&swap);
    assert!(!answer.succeeded && plan.is_none());
    let swap = txn().when([mod_revision("a").eq(2)]).then([put("a", "")]);
    let (answer, plan) = transaction(&swap);
    assert!(answer.succeeded);
    assert_eq!(points(plan.as_ref()), [("a".into(), 2)]);
}

#[test]
fn ranges_and_compared_ranges_are_in_the_footprint() {
    let request = txn().when([mod_revision("a").range_end("c").gt(1)]).then([
        range("x"),
        range(""),
        put("k", ""),
    ]);
    let (_, plan) = transaction(&request);
    let expected = [("a", "c"), ("x", "y")].map(|(a, b)| (internal(a), internal(b)));
    let ranges = plan.expect("a plan").reads.ranges;
    assert_eq!(ranges[..2], expected);
    assert_eq!(ranges[2], (internal("\0"), Bytes::new()));
}

#[test]
fn a_filter_that_meets_own_writes_fixes_the_revision() {
    let filtered = || RangeRequest { min_mod_revision: 6, ..RangeRequest::prefix("") };
    let request = txn().then([put("k", ""), filtered().into()]);
    let (answer, plan) = transaction(&request);
    assert!(plan.expect("a plan").reads.exact);
    assert_eq!(answer.responses[1].kvs()[0].mod_revision, 6);
    let request = txn().then([filtered().into(), put("k", "")]);
    let (_, plan) = transaction(&request);
    assert!(!plan.expect("a plan").reads.exact);
}

#[test]
fn the_past_depends_on_not_being_compacted_and_on_nothing_else() {
    let past = |at| Op::from(RangeRequest::prefix("").at(at));
    let request = txn().then([past(4), put("k", ""), past(3), past(5)]);
    let (_, plan) = transaction(&request);
    let reads = plan.expect("a plan").reads;
    assert_eq!(reads.oldest_read, Some(3));
    assert!(!reads.exact && reads.ranges.is_empty() && reads.points.is_empty());
}

#[test]
fn the_real_revision_takes_the_place_of_the_expected_one() {
    let nested = txn().then([get("new")]);
    let request = txn().then([get("a"), put("new", ""), get("new"), nested.into()]);
    let (mut answer, _) = transaction(&request);
    Patch { base: 5, revision: 9 }.transaction(&mut answer);
    assert_eq!(answer.revision, 9);
    let header = |response: &OpResponse| match response {
        OpResponse::Range(range) => range.revision,
        OpResponse::Put(put) => put.revision,
        OpResponse::DeleteRange(delete) => delete.revision,
        OpResponse::Txn(nested) => nested.revision,
    };
    assert_eq!(answer.responses.iter().map(header).collect::<Vec<_>>(), [8, 9, 9, 0]);
    assert_eq!(answer.responses[0].kvs()[0].mod_revision, 2);
    let OpResponse::Txn(inner) = &answer.responses[3] else { panic!("{answer:?}") };
    for response in [&answer.responses[2], &inner.responses[0]] {
        let kv = &response.kvs()[0];
        assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (9, 9, 1));
    }
}

#[test]
fn a_put_alone_and_a_put_in_a_transaction_check_in_different_orders() {
    let request = PutRequest::new("new", "").ignore_value().lease(404);
    let (alone, _) = evaluate(true, |evaluation| evaluation.single_put(&request));
    let alone = alone.expect_err("the lease is looked at first");
    assert!(matches!(alone.kind(), ErrorKind::LeaseNotFound { lease: 404 }));
    let whole = txn().then([request.clone()]);
    let (inside, plan) = evaluate(true, |evaluation| evaluation.transaction(&whole));
    let inside = inside.expect_err("the key is looked at first");
    assert!(matches!(inside.kind(), ErrorKind::KeyNotFound { .. }) && plan.is_none());
}
