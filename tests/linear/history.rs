//! What is recorded of a run: for every operation what was asked, what was answered, and when.
//!
//! The words are this test's own, so that the checker shares nothing with the store: keys are small
//! numbers, in the order of the store's keys, and values are numbers of which none is written twice.

/// A key, by its number.
pub type Key = u8;

/// All keys are less than this.
pub const KEYS_MAX: Key = 16;

/// Keys from `from` up to and without `to`; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: Key,
    pub to: Key,
}

impl Span {
    pub fn one(key: Key) -> Self {
        Self { from: key, to: key + 1 }
    }

    pub fn contains(self, key: Key) -> bool {
        (self.from..self.to).contains(&key)
    }
}

/// A key as an answer shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kv {
    pub key: Key,
    /// `None` where only keys were asked for.
    pub value: Option<u64>,
    pub create: u64,
    pub modified: u64,
    pub version: u64,
}

/// One thing to do, alone or in a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Put { key: Key, value: u64, prev: bool },
    Delete { span: Span, prev: bool },
    Range(Range),
}

/// A read; of the newest state, or of the one at a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    pub span: Span,
    pub at: Option<u64>,
    /// 0 for all.
    pub limit: u64,
    pub keys_only: bool,
    pub count_only: bool,
}

impl Range {
    pub fn all(span: Span) -> Self {
        Self { span, at: None, limit: 0, keys_only: false, count_only: false }
    }
}

/// What a comparison looks at, with what it compares to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Version(u64),
    Create(u64),
    Mod(u64),
    Value(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Equal,
    NotEqual,
    Greater,
    Less,
}

/// Holds if it does for every key alive in the span; where none is, for an absent key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    pub span: Span,
    pub relation: Relation,
    pub target: Target,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Txn {
    pub compare: Vec<Compare>,
    pub success: Vec<Step>,
    pub failure: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Step(Step),
    Txn(Txn),
    /// The newest version of a key. The answer says nothing of the revision it was read at.
    Get(Key),
    /// A view of the newest state, and what it shows.
    Latest(Span),
    /// A view of the state at a revision, and what it shows.
    At {
        revision: u64,
        span: Span,
    },
    Compact(u64),
}

/// The answer to a [`Step`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Put { revision: u64, prev: Option<Kv> },
    Delete { revision: u64, deleted: u64, prev: Vec<Kv> },
    Range { revision: u64, kvs: Vec<Kv>, count: u64, more: bool },
}

/// Why a revision cannot be read, or compacted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Compacted { requested: u64, compacted: u64 },
    Future { requested: u64, current: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Step(Found),
    /// `changed` says whether the revision is the transaction's own or the one it was decided at.
    Txn {
        revision: u64,
        changed: bool,
        succeeded: bool,
        found: Vec<Found>,
    },
    Got(Option<Kv>),
    Latest {
        revision: u64,
        kvs: Vec<Kv>,
    },
    At(Vec<Kv>),
    Compacted {
        revision: u64,
    },
    Refused(Refusal),
    /// An error that no request of these tests may have, or an answer that cannot be.
    Broken(String),
}

/// One operation of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub client: usize,
    /// When it began, on a clock that all clients share and that shows every time once.
    pub began: u64,
    /// When its answer was there.
    pub answered: u64,
    pub request: Request,
    pub answer: Answer,
    /// The revision the store called durable after the answer, if it must not show any other.
    pub durable: Option<u64>,
}

impl Operation {
    /// The place among the changes that the answer claims for the operation, if it claims to have
    /// changed something: its revision, and for a compaction the watermark it set there.
    pub fn changed_at(&self) -> Option<(u64, u64)> {
        match (&self.answer, &self.request) {
            (
                Answer::Step(Found::Put { revision, .. })
                | Answer::Txn { revision, changed: true, .. },
                _,
            ) => Some((*revision, 0)),
            (Answer::Step(Found::Delete { revision, deleted, .. }), _) => {
                (*deleted > 0).then_some((*revision, 0))
            }
            (Answer::Compacted { revision }, Request::Compact(to)) => Some((*revision, *to)),
            _ => None,
        }
    }

    /// Whether it has to do with a key.
    pub fn touches(&self, key: Key) -> bool {
        let step = |step: &Step| match step {
            Step::Put { key: put, .. } => *put == key,
            Step::Delete { span, .. } | Step::Range(Range { span, .. }) => span.contains(key),
        };
        match &self.request {
            Request::Step(one) => step(one),
            Request::Txn(txn) => {
                txn.compare.iter().any(|compare| compare.span.contains(key))
                    || txn.success.iter().any(step)
                    || txn.failure.iter().any(step)
            }
            Request::Get(read) => *read == key,
            Request::Latest(span) | Request::At { span, .. } => span.contains(key),
            Request::Compact(_) => false,
        }
    }
}
