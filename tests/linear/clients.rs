//! Clients of a store, each a thread: they translate requests and answers, and note when.
//!
//! All share one counter as their clock. It is taken before a request and after its answer, so that
//! "answered before the other began" is a matter of the memory model and of no clock's accuracy.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use annals::{
    CompareResult, CompareTarget, DeleteRangeRequest, ErrorKind, KeyRange, KeyValue, Modified,
    Modify, Op, OpResponse, Outcome, PutRequest, RangeRequest, RangeResponse, Store, Ticket,
    TxnRequest, TxnResponse,
};
use bytes::Bytes;

use super::generate::Source;
use super::history::{
    Answer, Compare, Found, KEYS_MAX, Key, Kv, Operation, Range, Refusal, Relation, Request, Span,
    Step, Target, Txn,
};

/// One client of a store.
pub struct Client<'s> {
    pub store: &'s Store,
    pub clock: &'s AtomicU64,
    pub number: usize,
    /// How many transactions it has under way at most; with 1 it waits for every answer.
    pub window: usize,
    /// Whether the store must not show what is not durable.
    pub sync: bool,
}

/// A transaction under way.
struct Flight {
    began: u64,
    request: Request,
    ticket: Ticket,
}

impl Client<'_> {
    /// Does `count` operations. `after` is called with each, and how many are done.
    pub fn run(
        &self,
        mut source: Source,
        count: usize,
        mut after: impl FnMut(&Operation, usize),
    ) -> Vec<Operation> {
        let mut done = Vec::with_capacity(count);
        let mut flights = VecDeque::new();
        let mut note = |source: &mut Source, operation: Operation| {
            source.learn(&operation);
            after(&operation, done.len());
            done.push(operation);
        };
        for _ in 0..count {
            if source.random.one_in(16) {
                std::thread::yield_now();
            }
            let request = source.request();
            // Reads have a way of their own, past the order of commits.
            if let Request::Txn(txn) = &request
                && source.random.one_in(2)
                && !only_reads(txn)
            {
                let (request_of, began) = (transaction(txn), self.tick());
                match self.store.submit(request_of) {
                    Ok(ticket) => flights.push_back(Flight { began, request, ticket }),
                    Err(error) => {
                        note(&mut source, self.operation(began, request, refused(&error)));
                    }
                }
            } else {
                note(&mut source, self.perform(request));
            }
            if flights.len() >= self.window {
                for flight in flights.drain(..1) {
                    note(&mut source, self.land(flight));
                }
            }
        }
        for flight in flights {
            note(&mut source, self.land(flight));
        }
        done
    }

    /// Does one operation.
    pub fn perform(&self, request: Request) -> Operation {
        let began = self.tick();
        let answer = self.ask(&request).unwrap_or_else(|error| refused(&error));
        self.operation(began, request, answer)
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn operation(&self, began: u64, request: Request, answer: Answer) -> Operation {
        let answered = self.tick();
        let durable = self.sync.then(|| self.store.durable_revision());
        Operation { client: self.number, began, answered, request, answer, durable }
    }

    fn land(&self, flight: Flight) -> Operation {
        let Flight { began, request, ticket } = flight;
        let outcome = ticket.outcome();
        let answer = match ticket.wait() {
            Ok(response) => decided(response, outcome),
            Err(error) => refused(&error),
        };
        self.operation(began, request, answer)
    }

    fn ask(&self, request: &Request) -> annals::Result<Answer> {
        let store = self.store;
        Ok(match request {
            Request::Step(Step::Put { key, value, prev: false }) => {
                let revision = store.put(name(*key), bytes(*value))?.revision;
                Answer::Step(Found::Put { revision, prev: None })
            }
            Request::Step(Step::Delete { span, prev: false }) if span.to == span.from + 1 => {
                let deleted = store.delete(name(span.from))?;
                let (revision, deleted) = (deleted.revision, deleted.deleted);
                Answer::Step(Found::Delete { revision, deleted, prev: Vec::new() })
            }
            Request::Step(Step::Put { key, value, prev: true }) if value % 2 == 0 => {
                self.modify(*key, &|_| Modify::put(bytes(*value)))?
            }
            Request::Step(Step::Delete { span, prev: true })
                if *span == Span::one(span.from) && span.from % 2 == 0 =>
            {
                self.modify(span.from, &|_| Modify::Delete)?
            }
            Request::Step(step) => {
                let found = match &operation(step) {
                    Op::Put(put) => OpResponse::Put(store.put_with(put.clone())?),
                    Op::DeleteRange(delete) => {
                        OpResponse::DeleteRange(store.delete_range(delete.clone())?)
                    }
                    Op::Range(range) => OpResponse::Range(store.range(range.clone())?),
                    Op::Txn(txn) => OpResponse::Txn(store.transact(txn.clone())?),
                };
                found_in(&found).map_or_else(Answer::Broken, Answer::Step)
            }
            Request::Txn(txn) => match swap(txn) {
                Some((key, seen, value)) => {
                    swapped(store.compare_and_put(name(key), seen, bytes(value))?)
                }
                None => answered(store.transact(transaction(txn))?),
            },
            Request::Get(key) => match store.get(name(*key))?.as_ref().map(kv).transpose() {
                Ok(found) => Answer::Got(found),
                Err(what) => Answer::Broken(what),
            },
            Request::Latest(span) => {
                let view = store.latest()?;
                let revision = view.revision();
                shown(&view, *span)?
                    .map_or_else(Answer::Broken, |kvs| Answer::Latest { revision, kvs })
            }
            Request::At { revision, span } => {
                let view = store.at(*revision)?;
                if view.revision() != *revision {
                    return Ok(Answer::Broken(format!("a view of {}", view.revision())));
                }
                shown(&view, *span)?.map_or_else(Answer::Broken, Answer::At)
            }
            Request::Compact(to) => Answer::Compacted { revision: store.compact(*to)?.revision },
        })
    }

    /// A put or a deletion that answers with what was there before, by another way.
    fn modify(
        &self,
        key: Key,
        change: &dyn Fn(Option<&KeyValue>) -> Modify,
    ) -> annals::Result<Answer> {
        let mut before = None;
        let mut put = false;
        let outcome = self.store.modify(name(key), |current| {
            before = current.cloned();
            let modify = change(current);
            put = matches!(modify, Modify::Put { .. });
            modify
        })?;
        let prev = match before.as_ref().map(kv).transpose() {
            Ok(prev) => prev,
            Err(what) => return Ok(Answer::Broken(what)),
        };
        Ok(match (outcome, put) {
            (Modified::Committed { revision }, true) => Answer::Step(Found::Put { revision, prev }),
            (Modified::Committed { revision } | Modified::Unchanged { as_of: revision }, false) => {
                let prev: Vec<Kv> = prev.into_iter().collect();
                Answer::Step(Found::Delete { revision, deleted: prev.len() as u64, prev })
            }
            (other, _) => Answer::Broken(format!("the outcome {other:?}")),
        })
    }
}

/// The key, what it must stand at and the value, if there is a call of its own for it.
fn swap(txn: &Txn) -> Option<(Key, u64, u64)> {
    let Txn { compare, success, failure } = txn;
    match (&compare[..], &success[..], &failure[..]) {
        (
            [Compare { span, relation: Relation::Equal, target: Target::Mod(seen) }],
            [Step::Put { key, value, prev: false }],
            [],
        ) if *span == Span::one(*key) => Some((*key, *seen, *value)),
        _ => None,
    }
}

/// What it answers, as the transaction would.
fn swapped(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Committed { revision } => {
            let found = vec![Found::Put { revision, prev: None }];
            Answer::Txn { revision, changed: true, succeeded: true, found }
        }
        Outcome::Failed { as_of: revision } => {
            Answer::Txn { revision, changed: false, succeeded: false, found: Vec::new() }
        }
        other => Answer::Broken(format!("the outcome {other:?}")),
    }
}

fn only_reads(txn: &Txn) -> bool {
    txn.success.iter().chain(&txn.failure).all(|step| matches!(step, Step::Range(_)))
}

/// The keys of a view in a span: one by one, or as a range.
fn shown(view: &annals::View, span: Span) -> annals::Result<Result<Vec<Kv>, String>> {
    let found: Vec<KeyValue> = if span.to == span.from + 1 {
        view.get(name(span.from))?.into_iter().collect()
    } else {
        let range = KeyRange::between(name(span.from), name(span.to));
        view.range(&range).collect::<annals::Result<_>>()?
    };
    Ok(found.iter().map(kv).collect())
}

// ---- Answers. ----

/// The answer to a transaction of which only the answer is there. None of these takes back what it
/// did, so that it has changed something if one of its operations did.
fn answered(response: TxnResponse) -> Answer {
    let changed = response.responses.iter().any(|response| match response {
        OpResponse::Put(_) => true,
        OpResponse::DeleteRange(delete) => delete.deleted > 0,
        OpResponse::Range(_) | OpResponse::Txn(_) => false,
    });
    let found: Result<_, _> = response.responses.iter().map(found_in).collect();
    let TxnResponse { revision, succeeded, .. } = response;
    found.map_or_else(Answer::Broken, |found| Answer::Txn { revision, changed, succeeded, found })
}

/// The same, where the outcome is there, too.
fn decided(response: TxnResponse, outcome: Outcome) -> Answer {
    let expected = match outcome {
        Outcome::Committed { revision } => (revision, true, response.succeeded),
        Outcome::Unchanged { as_of } => (as_of, false, true),
        Outcome::Failed { as_of } => (as_of, false, false),
        other => return Answer::Broken(format!("the outcome {other:?}")),
    };
    match answered(response) {
        Answer::Txn { revision, changed, succeeded, .. }
            if (revision, changed, succeeded) != expected =>
        {
            Answer::Broken(format!("the outcome {outcome:?} of an answer that says otherwise"))
        }
        answer => answer,
    }
}

fn refused(error: &annals::Error) -> Answer {
    match *error.kind() {
        ErrorKind::Compacted { requested, compacted, .. } => {
            Answer::Refused(Refusal::Compacted { requested, compacted })
        }
        ErrorKind::FutureRevision { requested, current } => {
            Answer::Refused(Refusal::Future { requested, current })
        }
        _ => Answer::Broken(error.to_string()),
    }
}

fn found_in(response: &OpResponse) -> Result<Found, String> {
    let kvs = |kvs: &[KeyValue]| kvs.iter().map(kv).collect::<Result<Vec<Kv>, String>>();
    Ok(match response {
        OpResponse::Put(put) => {
            Found::Put { revision: put.revision, prev: put.prev_kv.as_ref().map(kv).transpose()? }
        }
        OpResponse::DeleteRange(delete) => Found::Delete {
            revision: delete.revision,
            deleted: delete.deleted,
            prev: kvs(&delete.prev_kvs)?,
        },
        OpResponse::Range(RangeResponse { revision, kvs: found, count, more }) => {
            Found::Range { revision: *revision, kvs: kvs(found)?, count: *count, more: *more }
        }
        OpResponse::Txn(_) => return Err("a transaction in a transaction".into()),
    })
}

/// A key-value in this test's words; what cannot be said in them was never written.
pub fn kv(found: &KeyValue) -> Result<Kv, String> {
    let key = (0..KEYS_MAX).find(|key| found.key == NAMES[usize::from(*key)].as_bytes());
    // Empty where only keys were asked for.
    let value = found.value.first_chunk().map(|number| u64::from_be_bytes(*number));
    let whole = found.value == value.map_or_else(Bytes::new, bytes);
    match key {
        Some(key) if whole && found.lease == 0 => {
            let KeyValue { create_revision, mod_revision, version, .. } = *found;
            Ok(Kv { key, value, create: create_revision, modified: mod_revision, version })
        }
        _ => Err(format!("a key-value that nobody wrote: {found:?}")),
    }
}

// ---- Requests. ----

const NAMES: [&str; KEYS_MAX as usize + 1] = [
    "key/a", "key/b", "key/c", "key/d", "key/e", "key/f", "key/g", "key/h", "key/i", "key/j",
    "key/k", "key/l", "key/m", "key/n", "key/o", "key/p", "key/q",
];

fn name(key: Key) -> Bytes {
    Bytes::from_static(NAMES[usize::from(key)].as_bytes())
}

/// A value: its number, so that values compare as their numbers do, and a filling that depends on it.
fn bytes(value: u64) -> Bytes {
    let filling = usize::try_from(value % 97).expect("small");
    let mut bytes = vec![b'.'; 8 + filling];
    bytes[..8].copy_from_slice(&value.to_be_bytes());
    bytes.into()
}

/// A span in the store's words: the key, and the end if there is more than one.
fn ends(span: Span) -> (Bytes, Bytes) {
    let end = if span.to == span.from + 1 { Bytes::new() } else { name(span.to) };
    (name(span.from), end)
}

fn operation(step: &Step) -> Op {
    match step {
        Step::Put { key, value, prev } => {
            let (key, value, prev_kv) = (name(*key), bytes(*value), *prev);
            PutRequest { key, value, prev_kv, ..PutRequest::default() }.into()
        }
        Step::Delete { span, prev } => {
            let (key, range_end) = ends(*span);
            DeleteRangeRequest { key, range_end, prev_kv: *prev }.into()
        }
        Step::Range(Range { span, at, limit, keys_only, count_only }) => {
            let (key, range_end) = ends(*span);
            RangeRequest {
                key,
                range_end,
                limit: *limit,
                revision: *at,
                keys_only: *keys_only,
                count_only: *count_only,
                ..RangeRequest::default()
            }
            .into()
        }
    }
}

fn transaction(txn: &Txn) -> TxnRequest {
    TxnRequest {
        compare: txn.compare.iter().map(comparison).collect(),
        success: txn.success.iter().map(operation).collect(),
        failure: txn.failure.iter().map(operation).collect(),
    }
}

fn comparison(compare: &Compare) -> annals::Compare {
    let (key, range_end) = ends(compare.span);
    annals::Compare {
        key,
        range_end,
        result: match compare.relation {
            Relation::Equal => CompareResult::Equal,
            Relation::NotEqual => CompareResult::NotEqual,
            Relation::Greater => CompareResult::Greater,
            Relation::Less => CompareResult::Less,
        },
        target: match compare.target {
            Target::Version(version) => CompareTarget::Version(version),
            Target::Create(revision) => CompareTarget::CreateRevision(revision),
            Target::Mod(revision) => CompareTarget::ModRevision(revision),
            Target::Value(value) => CompareTarget::Value(bytes(value)),
        },
    }
}
