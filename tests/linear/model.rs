//! What a store must answer at a revision, as plainly as possible: every version of every key in a
//! map. It shares no code with the store, nor its types.

use std::collections::BTreeMap;

use super::history::{
    Answer, Compare, Found, Key, Kv, Range, Refusal, Relation, Request, Span, Step, Target, Txn,
};

/// What a request would do to keys: the new state of each, `None` for deleted.
pub type Effects = BTreeMap<Key, Option<Kv>>;

/// Every version of every key, oldest first, each with the revision that made it.
#[derive(Clone, Debug, Default)]
pub struct Model {
    versions: BTreeMap<Key, Vec<(u64, Option<Kv>)>>,
}

impl Model {
    /// A key as of a revision.
    pub fn kv(&self, key: Key, revision: u64) -> Option<Kv> {
        let versions = self.versions.get(&key)?;
        let newer = versions.partition_point(|(at, _)| *at <= revision);
        versions[..newer].last()?.1
    }

    /// The keys alive as of a revision.
    pub fn span(&self, span: Span, revision: u64) -> Vec<Kv> {
        (span.from..span.to).filter_map(|key| self.kv(key, revision)).collect()
    }

    /// The revision that last changed one of the keys that satisfy `touched`, as of a revision.
    pub fn last_change(&self, revision: u64, touched: impl Fn(Key) -> bool) -> Option<u64> {
        let keys = self.versions.iter().filter(|(key, _)| touched(**key));
        let made = keys.flat_map(|(_, versions)| versions.iter().map(|(at, _)| *at));
        made.filter(|at| *at <= revision).max()
    }

    /// Makes what a request did at `revision` part of the history.
    pub fn apply(&mut self, revision: u64, effects: Effects) {
        for (key, state) in effects {
            self.versions.entry(key).or_default().push((revision, state));
        }
    }

    /// What the store answers when `base` is its revision and `watermark` what it was last compacted
    /// to, and what that changes.
    pub fn evaluate(&self, request: &Request, base: u64, watermark: u64) -> (Answer, Effects) {
        let mut run = Run { model: self, base, watermark, written: Effects::new() };
        let answer = match run.answer(request) {
            Ok(answer) => answer,
            Err(refusal) => Answer::Refused(refusal),
        };
        (answer, run.written)
    }
}

/// One request, on its way.
struct Run<'m> {
    model: &'m Model,
    base: u64,
    watermark: u64,
    written: Effects,
}

impl Run<'_> {
    fn answer(&mut self, request: &Request) -> Result<Answer, Refusal> {
        Ok(match request {
            Request::Step(step) => {
                self.readable(std::slice::from_ref(step))?;
                Answer::Step(self.step(step))
            }
            Request::Txn(txn) => self.transaction(txn)?,
            Request::Get(key) => Answer::Got(self.current(*key)),
            Request::Latest(span) => {
                Answer::Latest { revision: self.base, kvs: self.model.span(*span, self.base) }
            }
            Request::At { revision, span } => {
                self.readable_at(*revision)?;
                Answer::At(self.model.span(*span, *revision))
            }
            Request::Compact(to) => {
                let (requested, current, compacted) = (*to, self.base, self.watermark);
                if requested > current {
                    return Err(Refusal::Future { requested, current });
                }
                if requested <= compacted {
                    return Err(Refusal::Compacted { requested, compacted });
                }
                Answer::Compacted { revision: self.base }
            }
        })
    }

    fn transaction(&mut self, txn: &Txn) -> Result<Answer, Refusal> {
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        let branch = if succeeded { &txn.success } else { &txn.failure };
        self.readable(branch)?;
        let found = branch.iter().map(|step| self.step(step)).collect();
        let changed = !self.written.is_empty();
        Ok(Answer::Txn { revision: self.revision(), changed, succeeded, found })
    }

    /// The revision an answer shows: the request's own once it has changed something.
    fn revision(&self) -> u64 {
        self.base + u64::from(!self.written.is_empty())
    }

    fn readable(&self, steps: &[Step]) -> Result<(), Refusal> {
        for step in steps {
            if let Step::Range(Range { at: Some(at), .. }) = step {
                self.readable_at(*at)?;
            }
        }
        Ok(())
    }

    fn readable_at(&self, requested: u64) -> Result<(), Refusal> {
        let (current, compacted) = (self.base, self.watermark);
        if requested > current {
            return Err(Refusal::Future { requested, current });
        }
        if requested < compacted {
            return Err(Refusal::Compacted { requested, compacted });
        }
        Ok(())
    }

    /// A key as what the request did before shows it.
    fn current(&self, key: Key) -> Option<Kv> {
        match self.written.get(&key) {
            Some(written) => *written,
            None => self.model.kv(key, self.base),
        }
    }

    fn step(&mut self, step: &Step) -> Found {
        match step {
            Step::Put { key, value, prev } => {
                let before = self.current(*key);
                let own = self.base + 1;
                let (create, version) =
                    before.map_or((own, 1), |before| (before.create, before.version + 1));
                let value = Some(*value);
                let kv = Kv { key: *key, value, create, modified: own, version };
                self.written.insert(*key, Some(kv));
                Found::Put { revision: own, prev: before.filter(|_| *prev) }
            }
            Step::Delete { span, prev } => {
                let doomed: Vec<Kv> =
                    (span.from..span.to).filter_map(|key| self.current(key)).collect();
                self.written.extend(doomed.iter().map(|kv| (kv.key, None)));
                let deleted = doomed.len() as u64;
                let prev = if *prev { doomed } else { Vec::new() };
                Found::Delete { revision: self.revision(), deleted, prev }
            }
            Step::Range(range) => self.range(range),
        }
    }

    fn range(&self, range: &Range) -> Found {
        let mut kvs: Vec<Kv> = match range.at {
            Some(at) => self.model.span(range.span, at),
            None => (range.span.from..range.span.to).filter_map(|key| self.current(key)).collect(),
        };
        let (revision, count) = (self.revision(), kvs.len() as u64);
        if range.count_only {
            return Found::Range { revision, kvs: Vec::new(), count, more: false };
        }
        let more = range.limit > 0 && count > range.limit;
        if more {
            kvs.truncate(usize::try_from(range.limit).expect("below the count"));
        }
        if range.keys_only {
            for kv in &mut kvs {
                kv.value = None;
            }
        }
        Found::Range { revision, kvs, count, more }
    }

    /// On the state before the request.
    fn holds(&self, compare: &Compare) -> bool {
        let alive = self.model.span(compare.span, self.base);
        if alive.is_empty() {
            return holds_for(compare, None);
        }
        alive.into_iter().all(|kv| holds_for(compare, Some(kv)))
    }
}

fn holds_for(compare: &Compare, kv: Option<Kv>) -> bool {
    let (side, other) = match compare.target {
        Target::Version(other) => (kv.map_or(0, |kv| kv.version), other),
        Target::Create(other) => (kv.map_or(0, |kv| kv.create), other),
        Target::Mod(other) => (kv.map_or(0, |kv| kv.modified), other),
        // Of an absent key's value nothing holds.
        Target::Value(other) => match kv.and_then(|kv| kv.value) {
            Some(value) => (value, other),
            None => return false,
        },
    };
    match compare.relation {
        Relation::Equal => side == other,
        Relation::NotEqual => side != other,
        Relation::Greater => side > other,
        Relation::Less => side < other,
    }
}
