//! What a transaction wants: its writes, and what it read to decide on them.

use std::borrow::Cow;

use annals_format::frame::Op;
use bytes::Bytes;
use smallvec::SmallVec;

use crate::error::Error;
use crate::index::{Newest, Position, Stub};

/// An internal key: a space byte, then the key. The usual length takes no allocation.
pub(crate) type InternalKey = SmallVec<[u8; INLINE_KEY_BYTES]>;

/// The longest internal key that takes no allocation.
pub(crate) const INLINE_KEY_BYTES: usize = 48;

/// A transaction that was evaluated against a snapshot and asks for its place in the order.
///
/// It borrows the values from the request, and has room in itself for one write and one point, so
/// that the usual compare-and-swap allocates nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan<'r> {
    /// What it writes, at most one change per key. The order decides the `sub` of each change.
    pub(crate) writes: SmallVec<[Write<'r>; 1]>,
    /// A watermark to set. Must be above that of the snapshot, which the
    /// evaluation checks; if another transaction set it as high meanwhile, the plan conflicts.
    pub(crate) compact: Option<u64>,
    /// What must still be true where it lands.
    pub(crate) reads: Footprint,
    /// The time it asks for, microseconds since the Unix epoch; the clock's if `None`. It gets the
    /// time of the revision before it, if that is later; what takes no revision has that in any case.
    pub(crate) time: Option<i64>,
    /// Opaque bytes kept with the transaction.
    pub(crate) metadata: &'r [u8],
    /// Whether the caller is answered before it is durable.
    pub(crate) buffered: bool,
    /// How often to double the room it asks for in a new generation: see [`OrderError::NoRoom`].
    pub(crate) doubled: u32,
}

/// One change.
#[derive(Clone, Debug)]
pub(crate) struct Write<'r> {
    /// The key.
    pub(crate) key: InternalKey,
    /// What happens to it.
    pub(crate) kind: WriteKind<'r>,
}

impl Write<'_> {
    /// The change as it is encoded.
    pub(crate) fn op(&self) -> Op<'_> {
        let key = &self.key;
        match &self.kind {
            WriteKind::Put { value, lease } => Op::Put { key, value, lease: *lease },
            WriteKind::Delete => Op::Delete { key },
        }
    }
}

/// What happens to a key.
#[derive(Clone, Debug)]
pub(crate) enum WriteKind<'r> {
    /// A new version.
    Put {
        /// Its value.
        value: Cow<'r, [u8]>,
        /// The lease it is attached to, 0 for none.
        lease: i64,
    },
    /// A tombstone. If the key does not live where the plan lands, the plan conflicts.
    Delete,
}

/// A key that was read.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    /// The key.
    pub(crate) key: InternalKey,
    /// The revision of its newest version as of the snapshot, tombstones included (its seq in the
    /// system space); 0 if it never had one.
    pub(crate) seen: u64,
    /// That version, so that it need not be looked up again. [`Newest::Unknown`] if it must.
    pub(super) newest: Newest,
}

impl Point {
    /// A key whose newest version, tombstones included, the snapshot showed to be this.
    pub(crate) fn new(key: InternalKey, newest: Option<Stub>) -> Self {
        let seen = newest.map_or(0, |stub| stub.revision);
        Self { key, seen, newest: newest.map_or(Newest::Absent, Newest::Known) }
    }

    /// A key of which only the revision is known.
    #[cfg(test)]
    pub(crate) fn at(key: impl AsRef<[u8]>, seen: u64) -> Self {
        Self { key: InternalKey::from_slice(key.as_ref()), seen, newest: Newest::Unknown }
    }
}

/// What a plan depends on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footprint {
    /// Keys whose newest version must be the one that the snapshot showed.
    pub(crate) points: SmallVec<[Point; 1]>,
    /// Ranges of internal keys, half-open, in which nothing may have changed since the snapshot. An
    /// empty end is the end of the space.
    pub(crate) ranges: Vec<(Bytes, Bytes)>,
    /// The oldest of the past revisions that were read. The past does not change, but nothing above
    /// this revision may have been compacted.
    pub(crate) oldest_read: Option<u64>,
    /// Whether no transaction at all may lie between the snapshot and the plan.
    pub(crate) exact: bool,
}

/// A plan that has its place in the order, and is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ordered {
    /// The place.
    pub(crate) position: Position,
    /// Whether it wrote user keys, and so took the revision of its position for itself.
    pub(crate) changed: bool,
}

/// Why a plan got no place. It left no trace.
#[derive(Debug)]
pub(crate) enum OrderError {
    /// Something it depends on has changed: evaluate again, against a new snapshot.
    Conflict,
    /// It needs another generation, and the world has no room for one: wait until it has, with no
    /// guard held, and evaluate again, with this as the next plan's `doubled`.
    NoRoom {
        /// How often others took the room that was made for it.
        doubled: u32,
    },
    /// The files of the log have no room for it behind what is ordered: make some, with no guard held, and evaluate
    /// again.
    LogFull {
        /// How many bytes of frames there would be with it.
        logged_bytes: u64,
        /// The length of its own frame.
        frame_bytes: u64,
    },
    /// It cannot succeed: the store is poisoned, the plan is too large, or reading failed.
    Failed(Error),
}

impl From<Error> for OrderError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
