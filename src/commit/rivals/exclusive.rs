//! The same work as the chain's, in two halves: a draft, which any thread makes alone, and the order,
//! which needs the token.
//!
//! What makes it safe: a [`Token`] is the only one of its [`Memtable`], and who orders has it by
//! `&mut`; a [`Draft`] is the only way to its node until that is ordered. So heads, frames and links
//! are written by one thread at a time, with plain stores where the chain needs a CAS.

use std::collections::VecDeque;
use std::hint::black_box;
use std::ptr;

use annals_format::frame::{Binding, FrameSize};
use smallvec::SmallVec;

use super::{Key, Recent, START, STORE, Tables, Worker, evaluate, stub};
use crate::commit::order::check_limits;
use crate::commit::{Plan, Point, Write};
use crate::index::{
    Bound, FrameCursor, Full, Generation, GenerationSize, KeyNode, Node, Place, Position,
    Transaction, Version,
};
use crate::sync::plain::{AtomicU64, Mutex, Ordering, lock};
use crate::sync::{Arc, epoch};

/// The memtable of a store whose order comes from exclusion.
#[derive(Debug)]
pub struct Memtable {
    pub(super) recent: Arc<Recent>,
    binding: Binding,
    /// The last revision that readers may see.
    visible: AtomicU64,
    /// Generations that the writer has not met yet; and where it stands.
    unmet: Mutex<Vec<FrameCursor>>,
    written: Mutex<VecDeque<FrameCursor>>,
}

/// The right to order, of which a memtable has one.
#[derive(Debug)]
pub struct Token {
    pub(super) recent: Arc<Recent>,
    generation: Arc<Generation>,
    /// The last node, of `generation`.
    last: *const Node,
}

// SAFETY: the pointer leads into the generation that the token keeps alive, which is `Sync`.
unsafe impl Send for Token {}

/// A transaction that has everything but its place.
#[derive(Debug)]
pub struct Draft<'w> {
    generation: &'w Generation,
    reads: &'w [Point],
    keys: KeyNodes<'w>,
    points: KeyNodes<'w>,
    node: &'w Node,
    size: FrameSize,
    is_ordered: bool,
}

type KeyNodes<'w> = SmallVec<[&'w KeyNode; 4]>;

/// What became of a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has its place, and is visible.
    Ordered,
    /// A key has changed since.
    Conflict,
    /// It was made for an older generation.
    Switched,
}

/// Why there is no draft.
#[derive(Debug)]
pub enum NoDraft {
    /// A key has changed since.
    Conflict,
    /// The generation is full: here is one for [`Memtable::switch`].
    Full(Spare),
}

/// A generation that may become the next.
#[derive(Debug)]
pub struct Spare(pub(super) Arc<Generation>);

/// What a switch leaves over: to be dropped where that keeps nobody waiting.
#[derive(Debug)]
#[must_use]
pub struct Retired {
    _tables: Option<Tables>,
    _generation: Arc<Generation>,
}

impl Memtable {
    /// An empty memtable with generations of this many bytes and distinct keys, and its token.
    pub fn new(arena_bytes: usize, keys: usize) -> (Self, Token) {
        let recent = Recent::new(GenerationSize { arena_bytes, keys });
        let generation = recent.tables().current;
        let root = generation.root();
        // SAFETY: nobody else has seen the root.
        unsafe { root.bind(Place { order: 0, position: START, compacted: 0, logged_bytes: 0 }) };
        let unmet = Mutex::new(vec![generation.frames()]);
        let token = Token { recent: recent.clone(), last: root, generation };
        let (visible, written) = (AtomicU64::new(START.revision), Mutex::default());
        (Self { recent, binding: Binding::new(&STORE), visible, unmet, written }, token)
    }

    /// What a further thread needs.
    pub fn worker<'r>(&self) -> Worker<'r> {
        Worker { plan: Plan::default(), tables: self.recent.tables() }
    }

    /// Evaluates a transaction and makes its node: all that needs no order.
    ///
    /// # Errors
    /// When a key has changed meanwhile, or the generation is full.
    ///
    /// # Panics
    /// When the transaction exceeds the format's limits.
    pub fn draft<'w, 'r>(
        &self,
        worker: &'w mut Worker<'r>,
        keys: &[&Key],
        value: &'r [u8],
    ) -> Result<Draft<'w>, NoDraft> {
        // A store's evaluation is pinned, whatever orders its writers.
        let _guard = epoch::pin();
        let visible = self.visible.load(Ordering::Acquire);
        worker.refresh(self.recent.id.load(Ordering::Acquire), &self.recent);
        let Worker { plan, tables } = worker;
        let generation = &*tables.current;
        evaluate(plan, tables, (generation, visible), keys, value);
        let (plan, reads) = (&*plan, &plan.reads.points[..]);
        let size = FrameSize::of(plan.metadata, plan.writes.iter().map(Write::op));
        if let Err(error) = check_limits(plan, &size) {
            panic!("a transaction of the bench: {error}");
        }
        let full =
            |Full| NoDraft::Full(Spare(Generation::new(generation.id() + 1, self.recent.size)));
        let mut points = KeyNodes::with_capacity(reads.len());
        for point in reads {
            let node = generation.get_or_insert(&point.key).map_err(full)?;
            if node.head().is_none() {
                // The plan was made in this generation: all older ones were frozen before.
                generation.resolve(node, stub(point.newest)).map_err(full)?;
            }
            points.push(node);
        }
        let same = plan.writes.iter().zip(reads).all(|(write, point)| write.key == point.key);
        assert!(same, "a transaction of the bench writes what it reads");
        let keys = points.clone();
        if !still_holds(&points, reads) {
            return Err(NoDraft::Conflict);
        }
        let (metadata, buffered, compact) = (plan.metadata, plan.buffered, 0);
        let ops = plan.writes.iter().map(Write::op);
        let transaction = Transaction { size, buffered, metadata, compact, ops };
        let node = generation.prepare(&self.binding, &transaction, &keys).map_err(full)?;
        Ok(Draft { generation, reads, keys, points, node, size, is_ordered: false })
    }

    /// Gives a draft its place after everything that is ordered, if what it read still holds there.
    ///
    /// # Panics
    /// When the draft is ordered already.
    pub fn order(&self, token: &mut Token, draft: &mut Draft<'_>) -> Verdict {
        assert!(!draft.is_ordered, "a draft is ordered once");
        // Also if the token is of another memtable.
        if !ptr::eq(&raw const *token.generation, draft.generation) {
            return Verdict::Switched;
        }
        if !still_holds(&draft.points, draft.reads) {
            return Verdict::Conflict;
        }
        let node = draft.node;
        // SAFETY: the token keeps the generation of its last node alive.
        let last = unsafe { &*token.last };
        let Place { order, position, compacted, logged_bytes } = last.place();
        let Position { seq, revision, time } = position;
        let position = Position { seq: seq + 1, revision: revision + 1, time };
        let at = position.revision;
        for (key, version) in draft.keys.iter().zip(node.versions()) {
            let Some(head) = key.head() else { return Verdict::Conflict };
            let (create_revision, number) = if head.is_alive() {
                (head.create_revision(), head.version() + 1)
            } else {
                (at, 1)
            };
            let bound = Bound { older: head, at, create_revision, version: number };
            // SAFETY: only this thread has the draft, and its node is not linked.
            unsafe { version.bind(bound) };
        }
        // SAFETY: as above.
        unsafe { node.bind(Place { order: order + 1, position, compacted, logged_bytes }) };
        // SAFETY: as above, and everything is bound.
        unsafe { node.patch_frame(&self.binding) };
        draft.is_ordered = true;
        for (key, version) in draft.keys.iter().zip(node.versions()) {
            // SAFETY: bound just now, in the key's generation; who changes its heads has its token.
            let head = unsafe { key.head_word() };
            // Release: whoever finds the version finds what it says.
            head.store(ptr::from_ref(version).cast_mut(), Ordering::Release);
        }
        // SAFETY: bound and new, and who links in this generation has its token.
        let next = unsafe { last.next_word() };
        next.store(ptr::from_ref(node).cast_mut(), Ordering::Release);
        token.last = node;
        self.visible.store(at, Ordering::Release);
        Verdict::Ordered
    }

    /// Goes on in `spare`, unless the generation before it is no longer the current one.
    pub fn switch(&self, token: &mut Token, spare: Spare) -> Retired {
        let next = &spare.0;
        let follows = next.id() == token.generation.id() + 1;
        if !follows || !Arc::ptr_eq(&token.recent, &self.recent) {
            return Retired { _tables: None, _generation: spare.0 };
        }
        // SAFETY: the token keeps the generation of its last node alive.
        let place = unsafe { &*token.last }.place();
        // SAFETY: nobody else has seen the root.
        unsafe { next.root().bind(Place { order: place.order + 1, ..place }) };
        lock(&self.unmet).push(next.frames());
        let tables = self.recent.push(next);
        token.last = next.root();
        let before = std::mem::replace(&mut token.generation, spare.0);
        Retired { _tables: tables, _generation: before }
    }

    /// Walks the frames that are not yet walked, as the writer of a log would.
    pub fn write_out(&self) {
        self.walk(|frame| {
            black_box(frame);
        });
    }

    pub(super) fn walk(&self, mut see: impl FnMut(&[u8])) {
        let mut written = lock(&self.written);
        written.append(&mut std::mem::take(&mut *lock(&self.unmet)).into());
        // All but the last are frozen: where there is one after it, nothing is added to it.
        while let Some(cursor) = written.front_mut() {
            while let Some(frame) = cursor.next(u64::MAX) {
                see(frame.bytes());
            }
            if written.len() <= 1 {
                return;
            }
            drop(written.pop_front());
        }
    }

    /// The newest revision; a fresh store is at 1.
    pub fn revision(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }
}

/// Whether the keys read stand where the plan saw them.
fn still_holds(nodes: &[&KeyNode], reads: &[Point]) -> bool {
    let mut reads = nodes.iter().zip(reads);
    reads.all(|(node, point)| node.head().map_or(0, Version::at) == point.seen)
}

#[cfg(test)]
impl Draft<'_> {
    /// Of an ordered draft: whether what it read is what its versions replaced.
    pub(super) fn compares_held(&self) -> bool {
        let mut reads = self.node.versions().iter().zip(self.reads);
        reads.all(|(version, point)| version.older().map_or(0, Version::at) == point.seen)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if self.is_ordered {
            self.generation.note(self.node);
        } else {
            // SAFETY: prepared for this draft, never linked, and not used any more.
            unsafe { self.generation.discard(self.node, &self.size) };
        }
    }
}
