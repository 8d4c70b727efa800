//! Giving a transaction its place: prepare, validate, link.

use std::ptr;

use annals_format::frame::{FrameSize, Op, PAYLOAD_BYTES_MAX};
use annals_format::{limits, space};
use bytes::Bytes;
use smallvec::SmallVec;

use super::chain::{Chain, Snapshot};
use super::plan::{OrderError, Ordered, Plan, Write, WriteKind};
use super::world::Below;
use crate::error::{Error, ErrorKind};
use crate::index::{
    Bound, Full, Generation, GenerationSize, KeyNode, Link, Newest, Node, Place, Position,
    Transaction, Version,
};
use crate::sync::Arc;
use crate::sync::epoch::{self, Guard};

/// Numbers left below the highest that can be read back when commits are refused: far more than
/// there are threads, each of which goes one further than its snapshot and those of the others.
pub(super) const NUMBERS_RESERVED: u64 = 1 << 32;

/// How an attempt in one generation ended, if not with a place.
enum Stop {
    /// The generation has no room.
    Full,
    /// The chain has gone on to another generation.
    Switched,
    /// The plan is answered.
    Answer(OrderError),
}

/// How a validation ended, if not well.
enum Invalid {
    /// A head is newer than the node validated against.
    Behind,
    Conflict,
}

/// As many as most transactions have need no allocation.
type KeyNodes<'g> = SmallVec<[&'g KeyNode; 4]>;

/// A plan on its way into one generation.
struct Attempt<'a, 'r, 'g> {
    plan: &'a Plan<'r>,
    snapshot: &'a Snapshot<'g>,
    /// The nodes of the keys written, parallel to `plan.writes`.
    keys: KeyNodes<'g>,
    /// The nodes of the keys read, parallel to `plan.reads.points`.
    points: KeyNodes<'g>,
}

impl Chain {
    /// Gives a plan its place directly after everything that is linked, if what it read still holds
    /// there, and applies it. Lock-free; the only I/O is what `below` does for keys that this
    /// generation does not know yet.
    ///
    /// The plan was made from `snapshot`. The result is ordered and applied; it is durable once
    /// [`wait_durable`](Chain::wait_durable) says so.
    ///
    /// # Errors
    /// [`OrderError::Conflict`] when something the plan depends on has changed; then the caller
    /// takes a new snapshot and evaluates again. [`OrderError::NoRoom`] when it takes a generation
    /// that the world has no room for, [`OrderError::LogFull`] when the log has none for its frame. Nothing was
    /// changed whenever there is an error.
    pub(crate) fn order(
        &self,
        snapshot: &Snapshot<'_>,
        plan: &Plan<'_>,
        below: &dyn Below,
    ) -> Result<Ordered, OrderError> {
        self.check_poison()?;
        let guard = snapshot.guard;
        let Position { seq, revision, .. } = snapshot.position();
        if seq.max(revision) > limits::NUMBER_MAX - NUMBERS_RESERVED {
            return Err(
                Error::invalid("the store has no numbers left for further revisions").into()
            );
        }
        let size = FrameSize::of(plan.metadata, operations(plan));
        check_limits(plan, &size)?;
        let time = plan.time.unwrap_or_else(|| self.world.now_micros());
        // Nodes up to here are known not to touch the ranges read.
        let mut checked = snapshot.node;
        let mut doubled = plan.doubled;
        loop {
            let last = self.catch_up(self.applied_node(guard), guard);
            match self.order_in(last, snapshot, plan, (size, time), below, &mut checked) {
                Ok(ordered) => return Ok(ordered),
                Err(Stop::Answer(error)) => return Err(error),
                Err(Stop::Switched) => {}
                Err(Stop::Full) => {
                    // Here and not only before the evaluation: any number of threads may have come
                    // past that while there was room for one. Of all that ask about one generation
                    // one links the next, so the answer holds for the link.
                    if !self.world.has_room() {
                        return Err(OrderError::NoRoom { doubled });
                    }
                    // Others may take room in the new generation before this thread comes to it: ask
                    // for more each time, so that this ends.
                    let least = least_size(plan, &size).doubled(doubled);
                    doubled = doubled.saturating_add(1);
                    self.switch(last, least, guard);
                }
            }
        }
    }

    /// The same, within the generation of `last`.
    fn order_in<'g>(
        &self,
        mut last: &'g Node,
        snapshot: &Snapshot<'g>,
        plan: &Plan<'_>,
        (size, time): (FrameSize, i64),
        below: &dyn Below,
        checked: &mut &'g Node,
    ) -> Result<Ordered, Stop> {
        let guard = snapshot.guard;
        let generation = last.generation();
        // Before any memory is taken: what is refused may come again and again. Asked once more at the link.
        let frame_bytes = size.bytes() as u64;
        let compacts = plan.compact.is_some();
        let logged_bytes = last.place().logged_bytes + frame_bytes;
        if !self.world.log_takes(logged_bytes, compacts) {
            return Err(OrderError::LogFull { logged_bytes, frame_bytes }.into());
        }
        let attempt = Attempt::resolve(generation, plan, snapshot, below)?;
        // Before any memory is taken: most conflicts show here.
        attempt.check(last, checked)?;
        let transaction = Transaction {
            size,
            buffered: plan.buffered,
            metadata: plan.metadata,
            compact: plan.compact.unwrap_or(0),
            ops: operations(plan),
        };
        let node = generation.prepare(&self.binding, &transaction, &attempt.keys)?;
        let discard = |stop| {
            // SAFETY: prepared here, and not linked.
            unsafe { generation.discard(node, &size) };
            Err(stop)
        };
        let mut claim = self.courtesy.claim(attempt.keys.len());
        loop {
            claim.before_attempt();
            last = self.catch_up(last, guard);
            if !ptr::eq(last.generation(), generation) {
                return discard(Stop::Switched);
            }
            // SAFETY: the node was prepared here and is not linked.
            match unsafe { attempt.bind(node, last, time, checked) } {
                Ok(()) => {}
                Err(Invalid::Behind) => {
                    claim.lost();
                    continue;
                }
                Err(Invalid::Conflict) => return discard(OrderError::Conflict.into()),
            }
            // What is linked has to be written, so there must be room for it in the log by now.
            let logged_bytes = node.place().logged_bytes;
            if !self.world.log_takes(logged_bytes, compacts) {
                return discard(OrderError::LogFull { logged_bytes, frame_bytes }.into());
            }
            // SAFETY: as above, and everything is bound.
            unsafe { node.patch_frame(&self.binding) };
            if let Err(error) = self.check_poison() {
                return discard(Stop::Answer(error.into()));
            }
            // The commit point. To win says that `last` was the last node until now, so what was
            // validated and fixed before is right; from here on the node does not change.
            // SAFETY: as above; a node of this generation.
            if unsafe { last.link(node, false) } {
                break;
            }
            claim.lost();
        }
        drop(claim);
        self.apply(last, Link { node, opens_generation: false }, guard);
        self.advance(node, guard);
        generation.note(node);
        Ok(Ordered { position: node.position(), changed: node.takes_revision() })
    }

    /// Ends the current generation, unless it is empty: what it holds can be moved to files then.
    pub(crate) fn freeze(&self) {
        let guard = epoch::pin();
        let last = self.catch_up(self.applied_node(&guard), &guard);
        if !last.is_root() {
            self.switch(last, GenerationSize { arena_bytes: 0, keys: 0 }, &guard);
        }
    }

    /// Links the next generation, unless somebody has done it.
    pub(super) fn switch<'g>(&self, full: &'g Node, least: GenerationSize, guard: &'g Guard) {
        let id = full.generation().id();
        let (mut last, mut new) = (full, None);
        loop {
            last = self.catch_up(last, guard);
            if last.generation().id() != id {
                return;
            }
            // Not before the look: of the many that find a generation full at a time most come after the link.
            let new = new.get_or_insert_with(|| self.world.new_generation(id + 1, least));
            assert_eq!(new.id(), id + 1, "generations are numbered in order");
            let root = new.root();
            // SAFETY: the root of a generation that only this thread has.
            unsafe { root.bind(Place { order: last.order() + 1, ..last.place() }) };
            // With the link the chain gets a count of its own.
            let counted = Arc::into_raw(Arc::clone(new));
            // SAFETY: as above; it is the root.
            if unsafe { last.link(root, true) } {
                self.apply(last, Link { node: root, opens_generation: true }, guard);
                self.advance(root, guard);
                return;
            }
            // SAFETY: made above, and not given away as the link failed.
            drop(unsafe { Arc::from_raw(counted) });
        }
    }
}

impl<'a, 'r, 'g> Attempt<'a, 'r, 'g> {
    /// Finds or makes the key nodes, and resolves their heads.
    fn resolve(
        generation: &'g Generation,
        plan: &'a Plan<'r>,
        snapshot: &'a Snapshot<'g>,
        below: &dyn Below,
    ) -> Result<Self, Stop> {
        // What the snapshot showed of a key that this generation does not know is still so, if it is
        // the generation of the snapshot: all older structures are frozen since before.
        let frozen_since = ptr::eq(generation, snapshot.node.generation());
        let node = |key: &[u8], newest: Newest| -> Result<&'g KeyNode, Stop> {
            let node = generation.get_or_insert(key)?;
            if node.head().is_none() {
                let stub = match newest {
                    Newest::Known(stub) if frozen_since => Some(stub),
                    Newest::Absent if frozen_since => None,
                    _ => below.newest(key, generation.id())?,
                };
                generation.resolve(node, stub)?;
            }
            Ok(node)
        };
        let reads = &plan.reads.points;
        let mut points = KeyNodes::with_capacity(reads.len());
        for point in reads {
            points.push(node(&point.key, point.newest)?);
        }
        let mut keys = KeyNodes::with_capacity(plan.writes.len());
        for (index, write) in plan.writes.iter().enumerate() {
            // The usual compare-and-swap reads what it writes: one look-up for both.
            let same = reads.get(index).is_some_and(|point| point.key == write.key);
            keys.push(if same { points[index] } else { node(&write.key, Newest::Unknown)? });
        }
        Ok(Self { plan, snapshot, keys, points })
    }

    /// Whether what the plan read still holds as of `last`.
    fn check(&self, last: &'g Node, checked: &mut &'g Node) -> Result<(), Invalid> {
        let reads = &self.plan.reads;
        for (node, point) in self.points.iter().zip(&reads.points) {
            // Any other revision is a change, also if it came after `last`.
            if node.head().map_or(0, Version::at) != point.seen {
                return Err(Invalid::Conflict);
            }
        }
        // Not the same node: switches to other generations may lie between.
        if reads.exact && last.position().seq != self.snapshot.position().seq {
            return Err(Invalid::Conflict);
        }
        let compacted = last.place().compacted;
        if reads.oldest_read.is_some_and(|revision| revision < compacted) {
            return Err(Invalid::Conflict);
        }
        if self.plan.compact.is_some_and(|revision| revision <= compacted) {
            return Err(Invalid::Conflict);
        }
        if reads.ranges.is_empty() {
            return Ok(());
        }
        while !ptr::eq(*checked, last) {
            let Some(Link { node, .. }) = checked.next(self.snapshot.guard) else { break };
            let in_range = |key: &&KeyNode| {
                reads.ranges.iter().any(|(start, end)| contains(start, end, key.key()))
            };
            if node.keys().iter().any(in_range) {
                return Err(Invalid::Conflict);
            }
            *checked = node;
        }
        Ok(())
    }

    /// Validates the plan as of `last`, and fixes everything that depends on following it.
    ///
    /// # Safety
    /// `node` was prepared by this thread for this plan and is not linked.
    unsafe fn bind(
        &self,
        node: &Node,
        last: &'g Node,
        time: i64,
        checked: &mut &'g Node,
    ) -> Result<(), Invalid> {
        self.check(last, checked)?;
        let Place { order, position: before, compacted, logged_bytes } = last.place();
        let position = Position {
            seq: before.seq + 1,
            revision: before.revision + u64::from(node.takes_revision()),
            // What takes no revision leaves the time as it is: nobody asks when that was, and a later
            // transaction may be given an earlier time, as those of a store that is imported are.
            time: if node.takes_revision() { time.max(before.time) } else { before.time },
        };
        for ((key, version), write) in self.keys.iter().zip(node.versions()).zip(&self.plan.writes)
        {
            let Some(head) = key.head() else { return Err(Invalid::Behind) };
            let is_user = space::is_user(key.key());
            let (newest, at) = if is_user {
                (before.revision, position.revision)
            } else {
                (before.seq, position.seq)
            };
            if head.at() > newest {
                return Err(Invalid::Behind);
            }
            if matches!(write.kind, WriteKind::Delete) && !head.is_alive() {
                return Err(Invalid::Conflict);
            }
            let (create_revision, number) = match write.kind {
                WriteKind::Put { .. } if !is_user => (0, 0),
                WriteKind::Put { .. } if head.is_alive() => {
                    (head.create_revision(), head.version() + 1)
                }
                WriteKind::Put { .. } => (at, 1),
                WriteKind::Delete => (0, 0),
            };
            let bound = Bound { older: head, at, create_revision, version: number };
            // SAFETY: the contract.
            unsafe { version.bind(bound) };
        }
        let (order, compacted) = (order + 1, compacted.max(node.compact()));
        let logged_bytes = logged_bytes + node.frame_bytes();
        // SAFETY: the contract.
        unsafe { node.bind(Place { order, position, compacted, logged_bytes }) };
        Ok(())
    }
}

impl From<Full> for Stop {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Answer(error.into())
    }
}

impl From<OrderError> for Stop {
    fn from(error: OrderError) -> Self {
        Self::Answer(error)
    }
}

impl From<Invalid> for Stop {
    fn from(invalid: Invalid) -> Self {
        match invalid {
            // Only `bind` can be behind, and its caller walks on.
            Invalid::Behind => Self::Switched,
            Invalid::Conflict => Self::Answer(OrderError::Conflict),
        }
    }
}

/// Refuses what the log could not be read back with. A store's own limits are narrower, so this is
/// for what they do not see: what the store adds for leases, and a defect above.
pub(super) fn check_limits(plan: &Plan<'_>, size: &FrameSize) -> Result<(), Error> {
    debug_assert!(writes_each_once(plan), "a frame with a key twice is not read back");
    for Write { key, kind } in &plan.writes {
        let bytes = key.len() as u64;
        if bytes > limits::INTERNAL_KEY_BYTES_MAX {
            let max = limits::INTERNAL_KEY_BYTES_MAX;
            return Err(ErrorKind::KeyTooLong { bytes, max }.into());
        }
        if space::Key::decode(key).is_err() {
            // Not the key itself: it may be a mebibyte.
            return Err(Error::invalid(format!("{bytes} bytes are no key of the store")));
        }
        let bytes = match kind {
            WriteKind::Put { value, .. } => value.len() as u64,
            WriteKind::Delete => 0,
        };
        if bytes > limits::VALUE_BYTES_MAX {
            return Err(ErrorKind::ValueTooLong { bytes, max: limits::VALUE_BYTES_MAX }.into());
        }
    }
    let bytes = plan.metadata.len() as u64;
    if bytes > limits::METADATA_BYTES_MAX {
        return Err(ErrorKind::MetadataTooLong { bytes, max: limits::METADATA_BYTES_MAX }.into());
    }
    let count = size.op_count as u64;
    if count > limits::TRANSACTION_OPERATIONS_MAX {
        let max = limits::TRANSACTION_OPERATIONS_MAX;
        return Err(ErrorKind::TooManyOperations { count, max }.into());
    }
    let bytes = size.payload_bytes as u64;
    if bytes > PAYLOAD_BYTES_MAX {
        return Err(ErrorKind::TransactionTooLarge { bytes, max: PAYLOAD_BYTES_MAX }.into());
    }
    Ok(())
}

pub(super) fn writes_each_once(plan: &Plan<'_>) -> bool {
    // Most plans are, and then nothing is allocated.
    if plan.writes.is_sorted_by(|one, next| one.key < next.key) {
        return true;
    }
    let mut keys: Vec<&[u8]> = plan.writes.iter().map(|write| &write.key[..]).collect();
    keys.sort_unstable();
    keys.is_sorted_by(|one, next| one < next)
}

/// The operations of a plan as they are encoded: the writes, then the watermark.
fn operations<'p>(plan: &'p Plan<'_>) -> impl Iterator<Item = Op<'p>> + Clone {
    let writes = plan.writes.iter().map(Write::op);
    writes.chain(plan.compact.map(|revision| Op::Compact { revision }))
}

/// The room a plan needs in an empty generation.
fn least_size(plan: &Plan<'_>, size: &FrameSize) -> GenerationSize {
    let writes = plan.writes.iter().map(|write| write.key.len());
    let points = plan.reads.points.iter().map(|point| point.key.len());
    let key_bytes = writes.chain(points).fold(0, usize::saturating_add);
    GenerationSize::for_frame(size, plan.writes.len() + plan.reads.points.len(), key_bytes)
}

/// Whether a half-open range of internal keys holds `key`. An empty end is the end of the space.
fn contains(start: &Bytes, end: &Bytes, key: &[u8]) -> bool {
    key >= &start[..] && if end.is_empty() { key.first() == start.first() } else { key < &end[..] }
}
