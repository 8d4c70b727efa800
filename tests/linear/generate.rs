//! What a client asks for next: at random, on few keys, and often on what it has just seen, so that
//! comparisons hold about as often as not.

use super::history::{
    Answer, Compare, Found, KEYS_MAX, Key, Kv, Operation, Range, Relation, Request, Span, Step,
    Target, Txn,
};
use super::random::Random;

/// One client's mind.
#[derive(Debug)]
pub struct Source {
    pub random: Random,
    keys: Key,
    compacts: bool,
    next_value: u64,
    /// Each key as last seen.
    seen: Vec<Option<Kv>>,
    /// The highest revision seen.
    revision: u64,
}

impl Source {
    /// Requests on `keys` keys; `compacts` says whether some ask for compaction.
    pub fn new(seed: u64, client: usize, keys: Key, compacts: bool) -> Self {
        assert!((2..=KEYS_MAX).contains(&keys));
        Self {
            random: Random::new(seed ^ (client as u64) << 48),
            keys,
            compacts,
            next_value: (client as u64) << 32,
            seen: vec![None; usize::from(keys)],
            revision: 1,
        }
    }

    /// The next request.
    pub fn request(&mut self) -> Request {
        if self.compacts && self.random.one_in(150) {
            return Request::Compact(self.past().max(1));
        }
        match self.random.below(100) {
            0..12 => self.put(),
            12..16 => self.delete(1),
            16..19 => self.delete(3),
            19..45 => self.swap(),
            45..57 => self.several(),
            57..64 => self.over_range(),
            64..69 => self.only_reads(),
            69..73 => self.reads_the_past(),
            73..84 => Request::Get(self.key()),
            84..91 => Request::Step(Step::Range(self.range())),
            91..96 => Request::Latest(self.span(4)),
            _ => Request::At { revision: self.past(), span: self.span(3) },
        }
    }

    /// Remembers what an answer shows.
    pub fn learn(&mut self, operation: &Operation) {
        match (&operation.request, &operation.answer) {
            (Request::Step(step), Answer::Step(found)) => self.learn_step(step, found),
            (Request::Txn(txn), Answer::Txn { revision, succeeded, found, .. }) => {
                self.revision = self.revision.max(*revision);
                let branch = if *succeeded { &txn.success } else { &txn.failure };
                for (step, found) in branch.iter().zip(found) {
                    self.learn_step(step, found);
                }
            }
            (Request::Get(key), Answer::Got(kv)) => self.seen[usize::from(*key)] = *kv,
            (Request::Latest(span), Answer::Latest { revision, kvs }) => {
                self.revision = self.revision.max(*revision);
                self.learn_span(*span, kvs);
            }
            _ => {}
        }
    }

    fn learn_step(&mut self, step: &Step, found: &Found) {
        match (step, found) {
            (Step::Put { key, value, .. }, Found::Put { revision, .. }) => {
                self.revision = self.revision.max(*revision);
                let (key, value, modified) = (*key, Some(*value), *revision);
                let seen = &mut self.seen[usize::from(key)];
                let (create, version) =
                    seen.map_or((modified, 1), |seen| (seen.create, seen.version + 1));
                *seen = Some(Kv { key, value, create, modified, version });
            }
            (Step::Delete { span, .. }, Found::Delete { .. }) => self.learn_span(*span, &[]),
            (Step::Range(range), Found::Range { kvs, .. }) if *range == Range::all(range.span) => {
                self.learn_span(range.span, kvs);
            }
            _ => {}
        }
    }

    fn learn_span(&mut self, span: Span, kvs: &[Kv]) {
        self.seen[usize::from(span.from)..usize::from(span.to)].fill(None);
        for kv in kvs {
            self.seen[usize::from(kv.key)] = Some(*kv);
        }
    }

    fn put(&mut self) -> Request {
        let key = self.key();
        Request::Step(self.put_of(key))
    }

    fn delete(&mut self, most: Key) -> Request {
        let (span, prev) = (self.span(most), self.random.one_in(2));
        Request::Step(Step::Delete { span, prev })
    }

    /// A compare-and-swap of one key; if it fails, a look at the key or another write.
    fn swap(&mut self) -> Request {
        let key = self.key();
        let compare = vec![self.expectation(key)];
        let write = if self.random.one_in(8) {
            Step::Delete { span: Span::one(key), prev: self.random.one_in(2) }
        } else {
            self.put_of(key)
        };
        let failure = match self.random.below(4) {
            0 => Vec::new(),
            1 => {
                let other = self.key();
                vec![self.put_of(other)]
            }
            _ => vec![Step::Range(Range::all(Span::one(key)))],
        };
        Request::Txn(Txn { compare, success: vec![write], failure })
    }

    /// Compares and writes several keys at one revision.
    fn several(&mut self) -> Request {
        let keys = self.distinct(3);
        let mut compare = Vec::new();
        for key in &keys {
            if !self.random.one_in(3) {
                compare.push(self.expectation(*key));
            }
        }
        let mut success: Vec<Step> = keys.iter().map(|key| self.put_of(*key)).collect();
        let failure = if self.random.one_in(2) {
            keys.iter().map(|key| Step::Range(Range::all(Span::one(*key)))).collect()
        } else {
            vec![self.put_of(keys[0]), Step::Range(Range::all(self.span(3)))]
        };
        // What it reads in between shows its own writes.
        if self.random.one_in(2) {
            success.insert(1, Step::Range(Range::all(self.span(4))));
        }
        Request::Txn(Txn { compare, success, failure })
    }

    /// Compares a range and writes to it, or deletes one.
    fn over_range(&mut self) -> Request {
        let span = self.span(4);
        let target = match self.random.below(4) {
            0 => Target::Version(self.random.below(3)),
            1 => Target::Create(self.recent()),
            2 => Target::Value(self.random.below(8) << 32),
            _ => Target::Mod(self.recent()),
        };
        let relation = *self.random.pick(&RELATIONS);
        let key = span.from;
        let success = vec![self.put_of(key), Step::Range(self.range())];
        let doomed = Step::Delete { span: self.span(3), prev: self.random.one_in(2) };
        let failure = match self.random.below(3) {
            0 => vec![doomed, Step::Range(Range::all(self.span(4)))],
            1 => vec![self.put_of(key)],
            _ => vec![Step::Range(Range::all(span))],
        };
        Request::Txn(Txn { compare: vec![Compare { span, relation, target }], success, failure })
    }

    fn only_reads(&mut self) -> Request {
        let key = self.key();
        let compare = if self.random.one_in(2) { vec![self.expectation(key)] } else { Vec::new() };
        let success = vec![Step::Range(Range::all(self.span(4))), Step::Range(self.range())];
        let failure = vec![Step::Range(self.range())];
        Request::Txn(Txn { compare, success, failure })
    }

    fn reads_the_past(&mut self) -> Request {
        let at = Some(self.past());
        let read = Step::Range(Range { at, ..Range::all(self.span(3)) });
        let key = self.key();
        let success = if self.random.one_in(2) { vec![self.put_of(key), read] } else { vec![read] };
        let compare = if self.random.one_in(2) { vec![self.expectation(key)] } else { Vec::new() };
        Request::Txn(Txn { compare, success, failure: Vec::new() })
    }

    /// A comparison that holds if the key is still as it was last seen.
    fn expectation(&mut self, key: Key) -> Compare {
        let seen = self.seen[usize::from(key)];
        let target = match (self.random.below(8), seen.and_then(|kv| kv.value)) {
            (0..2, Some(value)) => Target::Value(value),
            (2..4, _) => Target::Version(seen.map_or(0, |kv| kv.version)),
            (4, _) => Target::Create(seen.map_or(0, |kv| kv.create)),
            _ => Target::Mod(seen.map_or(0, |kv| kv.modified)),
        };
        let relation =
            if self.random.one_in(10) { *self.random.pick(&RELATIONS) } else { Relation::Equal };
        Compare { span: Span::one(key), relation, target }
    }

    fn put_of(&mut self, key: Key) -> Step {
        self.next_value += 1;
        Step::Put { key, value: self.next_value, prev: self.random.one_in(4) }
    }

    fn range(&mut self) -> Range {
        let span =
            if self.random.one_in(3) { Span { from: 0, to: self.keys } } else { self.span(5) };
        Range {
            span,
            at: self.random.one_in(8).then(|| self.past()),
            limit: if self.random.one_in(3) { 1 + self.random.below(3) } else { 0 },
            keys_only: self.random.one_in(6),
            count_only: self.random.one_in(8),
        }
    }

    fn key(&mut self) -> Key {
        self.span(1).from
    }

    /// One to `most` keys in a row.
    fn span(&mut self, most: Key) -> Span {
        let most = u64::from(most.min(self.keys));
        let len = 1 + self.random.below(most);
        let from = self.random.below(u64::from(self.keys) - len + 1);
        let small = |number: u64| Key::try_from(number).expect("a key");
        Span { from: small(from), to: small(from + len) }
    }

    /// Two or more keys, at most `most`.
    fn distinct(&mut self, most: usize) -> Vec<Key> {
        let mut keys = Vec::new();
        let wanted = 2 + self.random.index(most - 1);
        while keys.len() < wanted.min(usize::from(self.keys)) {
            let key = self.key();
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// About the newest revision, as far as this client knows.
    fn recent(&mut self) -> u64 {
        (self.revision + self.random.below(6)).saturating_sub(self.random.below(30)).max(1)
    }

    /// A past revision, or one that may be there by then.
    fn past(&mut self) -> u64 {
        (self.revision + self.random.below(8)).saturating_sub(self.random.below(120)).max(1)
    }
}

const RELATIONS: [Relation; 4] =
    [Relation::Equal, Relation::NotEqual, Relation::Greater, Relation::Less];
