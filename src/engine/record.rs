//! What reads return: owned, cheap to clone, independent of any file or memtable staying around.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::index::Stub;

/// One version of a key that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The internal key: the space byte and the key.
    pub(crate) key: Bytes,
    /// The value; empty where only keys were asked for.
    pub(crate) value: Bytes,
    /// Revision that began the key's lifetime.
    pub(crate) create_revision: u64,
    /// Revision that wrote this version (seq in the system space).
    pub(crate) mod_revision: u64,
    /// Position of the write in its transaction.
    pub(crate) sub: u32,
    /// 1 for the first version of a lifetime.
    pub(crate) version: u64,
    /// The lease, 0 for none.
    pub(crate) lease: i64,
}

impl Record {
    /// All but key, value and sub.
    pub(crate) fn stub(&self) -> Stub {
        Stub {
            revision: self.mod_revision,
            create_revision: self.create_revision,
            version: self.version,
            lease: self.lease,
            tombstone: false,
        }
    }
}

/// One version of a key as its history shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HistoryRecord {
    /// The version. Of a tombstone only key, `mod_revision` and sub say something.
    pub(crate) record: Record,
    /// Whether the key was deleted here.
    pub(crate) tombstone: bool,
}

/// One key whose state differs between two revisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The internal key.
    pub(crate) key: Bytes,
    /// The state at the older revision; `None` if the key did not live.
    pub(crate) old: Option<Record>,
    /// The state at the newer revision; `None` if the key did not live.
    pub(crate) new: Option<Record>,
}

/// One transaction, as the log shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transaction {
    /// Its revision.
    pub(crate) revision: u64,
    /// When it was ordered, in microseconds since the Unix epoch.
    pub(crate) time: i64,
    /// What the writer attached.
    pub(crate) metadata: Bytes,
    /// What it changed, by sub.
    pub(crate) events: Events,
}

/// What the changes of a transaction are gathered in, and what becomes of them. A replay makes millions: to
/// put each where it is to stay, as soon as it is known, saves a quarter of the time.
pub(crate) trait Gather {
    /// A transaction, as whoever reads the log wants it.
    type Whole;

    /// None yet, with room for so many.
    fn with_room(events: usize) -> Self;

    /// Adds the next one.
    fn add(&mut self, event: Event);

    /// All of the transaction.
    fn whole(self, revision: u64, time: i64, metadata: Bytes) -> Self::Whole;
}

impl Gather for Events {
    type Whole = Transaction;

    fn with_room(events: usize) -> Self {
        Self::with_capacity(events)
    }

    #[inline]
    fn add(&mut self, event: Event) {
        self.push(event);
    }

    #[inline]
    fn whole(self, revision: u64, time: i64, metadata: Bytes) -> Transaction {
        Transaction { revision, time, metadata, events: self }
    }
}

/// The changes of a transaction: mostly one, which needs no memory of its own.
pub(crate) type Events = SmallVec<[Event; 1]>;

/// One change of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The user's key, without the space byte.
    pub(crate) key: Bytes,
    /// The value, where values were asked for and it is at hand; else it is read as of the revision.
    pub(crate) value: Option<Bytes>,
    /// Whether the key was deleted.
    pub(crate) delete: bool,
    /// Position in the transaction.
    pub(crate) sub: u32,
    /// Revision that began the key's lifetime; 0 for a delete.
    pub(crate) create_revision: u64,
    /// Version within the lifetime; 0 for a delete.
    pub(crate) version: u64,
    /// The lease, 0 for none.
    pub(crate) lease: i64,
}
