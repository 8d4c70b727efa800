//! One memtable: memory, keys and nodes that live and die together.

use std::alloc::Layout;
use std::ptr::{self, NonNull};
use std::slice;

use annals_format::frame::{self, Binding, FrameSize, Op};
use bytes::Bytes;

use super::arena::{Arena, CHUNK_BYTES, FIRST_CHUNK_BYTES};
use super::hash::{KeyHash, Table};
use super::key::{KeyNode, tower_offset};
use super::marks::Marks;
use super::node::{FrameCursor, Node, NodeParts, Position};
use super::ordered::{HEIGHT_MAX, KeyCursor, Ordered};
use super::spare::Spare;
use super::version::{Stub, Version};
use crate::sync::plain::AtomicUsize;
use crate::sync::{Arc, AtomicPtr, Ordering};

/// Values up to this size are copied out of a generation; longer ones keep it alive.
const COPY_BYTES_MAX: usize = 1024;

/// What a generation needs beside its budget: its root and `ABSENT`.
const ROOT_BYTES: usize = 1024;

/// How often a size is doubled at most.
const DOUBLED_MAX: u32 = 6;

/// How much a generation can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GenerationSize {
    /// Memory for keys, versions and frames, in bytes.
    pub(crate) arena_bytes: usize,
    /// Distinct keys; the hash table takes 17 to 34 bytes for each.
    pub(crate) keys: usize,
}

/// The generation cannot take this: it is time for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// A memtable. Shared as an `Arc`; freed whole with the last one.
#[derive(Debug)]
pub(crate) struct Generation {
    /// Number of the generation: that of the one before, plus one.
    id: u64,
    size: GenerationSize,
    arena: Arena,
    table: Table,
    ordered: Ordered,
    /// Distinct keys, those included that a losing inserter is about to give back. Bounded by
    /// `size.keys`, so the table is never more than half full.
    keys: AtomicUsize,
    /// The end of the chain of every key that older structures do not know.
    absent: NonNull<Version>,
    /// The first node; carries no transaction.
    root: NonNull<Node>,
    /// The last node, once the next generation is linked. Null before.
    last: AtomicPtr<Node>,
    marks: Marks,
}

// SAFETY: the pointers lead into the arena; nodes and versions are `Sync`.
unsafe impl Send for Generation {}
// SAFETY: as above; every mutation goes through atomics or belongs to a preparing thread.
unsafe impl Sync for Generation {}

impl GenerationSize {
    /// Enough for one transaction with these operations as the first of its generation.
    pub(crate) fn for_frame(size: &FrameSize, keys: usize, key_bytes: usize) -> Self {
        let key_node = size_of::<KeyNode>() + HEIGHT_MAX * size_of::<AtomicPtr<KeyNode>>();
        let per_key = key_node + size_of::<Version>() + 2 * super::arena::ALIGN;
        let node = node_layout(size.op_count, size).0.size();
        let parts = [keys.saturating_mul(per_key), key_bytes, node];
        let needed = parts.into_iter().fold(0, usize::saturating_add);
        // What is lost at the ends of chunks, if there is more than one: the node, which lies in one
        // chunk, and key nodes that do not fit into what is left of theirs.
        let one_chunk = needed.saturating_add(ROOT_BYTES) <= FIRST_CHUNK_BYTES;
        let lost = if one_chunk { 0 } else { needed / 8 + 2 * CHUNK_BYTES };
        let arena_bytes = needed.saturating_add(lost);
        Self { arena_bytes, keys }
    }

    /// Twice as much, so many times: for who asks again because others took what was made for it. After
    /// some times it stays the same.
    pub(crate) fn doubled(self, times: u32) -> Self {
        let factor = 1 << times.min(DOUBLED_MAX);
        Self {
            arena_bytes: self.arena_bytes.saturating_mul(factor),
            keys: self.keys.saturating_mul(factor),
        }
    }

    /// Enough for both.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            arena_bytes: self.arena_bytes.max(other.arena_bytes),
            keys: self.keys.max(other.keys),
        }
    }
}

impl Generation {
    /// An empty generation. Its root has no place yet: the chain gives it one.
    #[cfg(any(test, feature = "bench-internals"))]
    pub(crate) fn new(id: u64, size: GenerationSize) -> Arc<Self> {
        Self::as_needed(id, size, &Spare::new(0))
    }

    /// A generation that may stay small, as a store's first, or be dropped unused: it takes memory as it is used.
    /// That goes to the spare chunks in the end.
    pub(crate) fn as_needed(id: u64, size: GenerationSize, spare: &Arc<Spare>) -> Arc<Self> {
        Self::make(id, size, spare, false)
    }

    /// A generation that is going to be filled, in memory of earlier ones as far as there is any.
    pub(crate) fn following(id: u64, size: GenerationSize, spare: &Arc<Spare>) -> Arc<Self> {
        Self::make(id, size, spare, true)
    }

    fn make(id: u64, size: GenerationSize, spare: &Arc<Spare>, present: bool) -> Arc<Self> {
        let arena = Arena::new(size.arena_bytes.saturating_add(ROOT_BYTES), spare);
        let absent = place(&arena, Version::end(None));
        let root = place(&arena, Node::new(&NodeParts::root(ptr::null())));
        let (Some(absent), Some(root)) = (absent, root) else {
            unreachable!("a new arena has room for its root");
        };
        let generation = Arc::new(Self {
            id,
            size,
            arena,
            table: Table::new(size.keys, present),
            ordered: Ordered::new(),
            keys: AtomicUsize::new(0),
            absent,
            root,
            last: AtomicPtr::new(ptr::null_mut()),
            marks: Marks::new(size.arena_bytes),
        });
        let parts = NodeParts::root(Arc::as_ptr(&generation));
        // SAFETY: the root lies in the arena, is aligned, and nobody else knows it yet.
        unsafe { root.write(Node::new(&parts)) };
        generation
    }

    /// Number of the generation.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The node of an internal key; `None` when nothing ever touched the key here.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<&KeyNode> {
        self.table.find(KeyHash::of(key), key)
    }

    /// The node of an internal key, made if there is none. A key without versions means nothing to
    /// a reader.
    pub(crate) fn get_or_insert(&self, key: &[u8]) -> Result<&KeyNode, Full> {
        let hash = KeyHash::of(key);
        if let Some(node) = self.table.find(hash, key) {
            return Ok(node);
        }
        if self.keys.fetch_add(1, Ordering::Relaxed) >= self.size.keys {
            self.keys.fetch_sub(1, Ordering::Relaxed);
            return Err(Full);
        }
        let make = || self.new_key(hash, key).ok_or(Full);
        let inserted = self.ordered.get_or_insert(key, make);
        if !matches!(inserted, Ok((_, true))) {
            self.keys.fetch_sub(1, Ordering::Relaxed);
        }
        let (node, _) = inserted?;
        // Also for a node that another thread made: it may not have come this far yet.
        self.table.insert(hash, node);
        Ok(node)
    }

    /// Resolves the head of a key of this generation, whose newest version in older structures is
    /// `below`. Does nothing if it is resolved already.
    pub(crate) fn resolve(&self, key: &KeyNode, below: Option<Stub>) -> Result<(), Full> {
        let end = match below {
            None => self.absent,
            Some(_) => place(&self.arena, Version::end(below)).ok_or(Full)?,
        };
        key.resolve(end.as_ptr());
        Ok(())
    }

    /// A cursor over the distinct keys, standing nowhere.
    pub(crate) fn cursor(self: &Arc<Self>) -> KeyCursor {
        KeyCursor::new(Arc::clone(self))
    }

    /// A cursor over the transactions in chain order, before the first.
    pub(crate) fn frames(self: &Arc<Self>) -> FrameCursor {
        FrameCursor::new(Arc::clone(self), self.root())
    }

    /// A cursor as [`frames`](Self::frames) gives, not far before the first transaction with a
    /// revision of at least `revision`.
    pub(crate) fn frames_before(self: &Arc<Self>, revision: u64) -> FrameCursor {
        // SAFETY: null, or a node of this generation.
        let node = unsafe { self.marks.before(revision).as_ref() };
        FrameCursor::new(Arc::clone(self), node.unwrap_or_else(|| self.root()))
    }

    /// Notes a node of this generation that was linked, so that the log finds it.
    pub(crate) fn note(&self, node: &Node) {
        self.marks.note(node, || self.root().order());
    }

    /// The position the generation begins after.
    pub(crate) fn first(&self) -> Position {
        self.root().position()
    }

    /// The position of the last transaction, once the generation is frozen.
    pub(crate) fn last(&self) -> Option<Position> {
        // SAFETY: null, or a node of this generation.
        unsafe { self.last.load(Ordering::Acquire).as_ref() }.map(Node::position)
    }

    /// Whether the chain has gone on to the next generation, so that nothing is added any more.
    #[cfg(test)]
    pub(crate) fn is_frozen(&self) -> bool {
        !self.last.load(Ordering::Acquire).is_null()
    }

    /// Whether it has room for all of this.
    pub(crate) fn is_at_least(&self, size: GenerationSize) -> bool {
        self.size.arena_bytes >= size.arena_bytes && self.size.keys >= size.keys
    }

    /// Memory handed out, in bytes.
    pub(crate) fn bytes_used(&self) -> usize {
        self.arena.bytes_used()
    }

    /// Distinct keys.
    #[cfg(test)]
    pub(crate) fn key_count(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// A value of this generation: copied if it is short, else shared, keeping the generation.
    pub(crate) fn value(self: &Arc<Self>, version: &Version) -> Bytes {
        let value = version.value();
        if value.len() <= COPY_BYTES_MAX {
            return Bytes::copy_from_slice(value);
        }
        Bytes::from_owner(SharedValue {
            _generation: Arc::clone(self),
            start: value.as_ptr(),
            bytes: value.len(),
        })
    }

    /// The first node; carries no transaction.
    pub(crate) fn root(&self) -> &Node {
        // SAFETY: initialised by `new`, and alive as long as the arena.
        unsafe { self.root.as_ref() }
    }

    /// Records the last node: called by everyone who applies the switch, with the same node.
    pub(crate) fn freeze(&self, last: &Node) {
        self.last.store(ptr::from_ref(last).cast_mut(), Ordering::Release);
    }

    pub(super) fn ordered(&self) -> &Ordered {
        &self.ordered
    }

    /// Makes the node of a transaction: everything but its place in the chain.
    ///
    /// `keys` has the node of each operation's key, in order; a compact operation, if there is one,
    /// is the last and has none.
    pub(crate) fn prepare<'a>(
        &self,
        binding: &Binding,
        transaction: &Transaction<'_, impl Iterator<Item = Op<'a>> + Clone>,
        keys: &[&KeyNode],
    ) -> Result<&Node, Full> {
        let Transaction { size, buffered, metadata, compact, ref ops } = *transaction;
        let (layout, at) = node_layout(keys.len(), &size);
        let start = self.arena.alloc(layout.size()).ok_or(Full)?;
        // SAFETY: `node_layout` keeps the four parts inside the allocation and aligned.
        let keys_at = unsafe { start.add(at.keys) }.cast::<*const KeyNode>();
        // SAFETY: as above.
        let versions_at = unsafe { start.add(at.versions) }.cast::<Version>();
        // SAFETY: as above.
        let frame_at = unsafe { start.add(at.frame) };
        // SAFETY: `keys.len()` pointers fit there, and the two ranges do not overlap.
        unsafe { ptr::copy_nonoverlapping(keys.as_ptr().cast(), keys_at.as_ptr(), keys.len()) };

        // SAFETY: the arena's memory is initialised (see `Arena::alloc`), and this part is ours alone.
        let frame = unsafe { slice::from_raw_parts_mut(frame_at.as_ptr(), size.bytes()) };
        let mut sub = 0;
        let mut free_slots = 0..keys.len();
        frame::encode(frame, binding, &size, buffered, metadata, ops.clone(), |placed| {
            let (value_bytes, lease) = match placed.op {
                Op::Put { value, lease, .. } => (Some(value.len()), lease),
                Op::Delete { .. } => (None, 0),
                Op::Compact { .. } => return,
            };
            let value = value_bytes.map(|bytes| {
                // SAFETY: `placed.value` lies in the frame, where it was written just now.
                let start = unsafe { frame_at.add(placed.value.start) };
                ptr::slice_from_raw_parts(start.as_ptr().cast_const(), bytes)
            });
            let version = Version::unbound(value, lease, sub);
            sub += u32::from(placed.op.is_user());
            let slot = free_slots.next();
            let slot = slot.unwrap_or_else(|| unreachable!("each key has one operation"));
            // SAFETY: one of `keys.len()` slots.
            let slot = unsafe { versions_at.add(slot) };
            // SAFETY: as above; aligned by `node_layout`.
            unsafe { slot.write(version) };
        });
        assert!(free_slots.is_empty(), "each key has one operation");
        let node = start.cast::<Node>();
        let parts = NodeParts {
            generation: ptr::from_ref(self),
            keys: keys_at.as_ptr(),
            versions: versions_at.as_ptr(),
            changes: u32::try_from(keys.len()).unwrap_or(u32::MAX),
            frame: frame_at.as_ptr(),
            frame_bytes: size.bytes(),
            header_bytes: size.header_bytes,
            takes_revision: size.takes_revision(),
            compact,
        };
        // SAFETY: the start of our allocation, aligned to a cache line.
        unsafe { node.write(Node::new(&parts)) };
        // SAFETY: just initialised, and alive as long as the arena.
        Ok(unsafe { node.as_ref() })
    }

    /// Gives back the memory of a node that was prepared here and not linked.
    ///
    /// # Safety
    /// The node came from `prepare`, was never linked, and is not used any more.
    pub(crate) unsafe fn discard(&self, node: &Node, size: &FrameSize) {
        let bytes = node_layout(node.versions().len(), size).0.size();
        self.arena.give_back(NonNull::from(node).cast(), bytes);
    }

    /// Allocates a key node with its tower and its bytes.
    fn new_key(&self, hash: KeyHash, key: &[u8]) -> Option<&KeyNode> {
        let height = hash.height(HEIGHT_MAX);
        let key_at = size_of::<KeyNode>();
        let tower_at = key_at.checked_add(tower_offset(key.len())?)?;
        let tower_bytes = height * size_of::<AtomicPtr<KeyNode>>();
        let start = self.arena.alloc(tower_at.checked_add(tower_bytes)?)?;
        // SAFETY: the allocation holds node, key and tower, one after the other; the tower is
        // aligned because the allocation is, and `tower_at` too (see below).
        let tower = unsafe { start.add(tower_at) }.cast::<AtomicPtr<KeyNode>>();
        for level in 0..height {
            // SAFETY: inside the tower.
            let link = unsafe { tower.add(level) };
            // SAFETY: as above; nobody else knows this memory yet.
            unsafe { link.write(AtomicPtr::new(ptr::null_mut())) };
        }
        // SAFETY: as above.
        let bytes = unsafe { start.add(key_at) };
        // SAFETY: `key.len()` bytes fit there, and fresh memory does not overlap the caller's key.
        unsafe { ptr::copy_nonoverlapping(key.as_ptr(), bytes.as_ptr(), key.len()) };
        let bytes = ptr::slice_from_raw_parts(bytes.as_ptr().cast_const(), key.len());
        const { assert!(size_of::<KeyNode>().is_multiple_of(align_of::<AtomicPtr<KeyNode>>())) };
        // SAFETY: both were just initialised, one after the other, live as long as the arena, and the
        // key's bytes are not written again.
        let key_node = unsafe { KeyNode::new(bytes, height) };
        let node = start.cast::<KeyNode>();
        // SAFETY: the start of our allocation, aligned to a cache line.
        unsafe { node.write(key_node) };
        // SAFETY: just initialised.
        Some(unsafe { node.as_ref() })
    }
}

/// What [`Generation::prepare`] encodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transaction<'m, I> {
    /// The exact size of the frame.
    pub(crate) size: FrameSize,
    /// Whether the caller is answered before the frame is durable.
    pub(crate) buffered: bool,
    /// Opaque bytes kept with the transaction.
    pub(crate) metadata: &'m [u8],
    /// The watermark it sets; 0 for none.
    pub(crate) compact: u64,
    /// The operations.
    pub(crate) ops: I,
}

impl NodeParts {
    /// A root has nothing but its generation.
    fn root(generation: *const Generation) -> Self {
        Self {
            generation,
            keys: NonNull::dangling().as_ptr(),
            versions: NonNull::dangling().as_ptr(),
            changes: 0,
            frame: NonNull::dangling().as_ptr(),
            frame_bytes: 0,
            header_bytes: 0,
            takes_revision: false,
            compact: 0,
        }
    }
}

/// Offsets of the parts of a node's allocation.
#[derive(Clone, Copy, Debug)]
struct PartsAt {
    keys: usize,
    versions: usize,
    frame: usize,
}

fn node_layout(changes: usize, size: &FrameSize) -> (Layout, PartsAt) {
    let parts = || {
        let layout = Layout::new::<Node>();
        let (layout, keys) = layout.extend(Layout::array::<*const KeyNode>(changes)?)?;
        // Whole cache lines: a version fills one.
        let versions = Layout::array::<Version>(changes)?.align_to(super::arena::ALIGN)?;
        let (layout, versions) = layout.extend(versions)?;
        let (layout, frame) = layout.extend(Layout::array::<u8>(size.bytes())?)?;
        Ok::<_, std::alloc::LayoutError>((layout, PartsAt { keys, versions, frame }))
    };
    // Sizes are bounded by the limits on transactions long before they come near isize::MAX.
    parts().unwrap_or_else(|_| unreachable!("a transaction's size is bounded"))
}

fn place<T>(arena: &Arena, value: T) -> Option<NonNull<T>> {
    const { assert!(align_of::<T>() <= super::arena::ALIGN) };
    let start = arena.alloc(size_of::<T>())?.cast::<T>();
    // SAFETY: fresh memory of the right size and alignment.
    unsafe { start.write(value) };
    Some(start)
}

/// A value that keeps its generation alive.
struct SharedValue {
    _generation: Arc<Generation>,
    start: *const u8,
    bytes: usize,
}

// SAFETY: the bytes lie in the generation, which is kept alive, and are never written again.
unsafe impl Send for SharedValue {}

impl AsRef<[u8]> for SharedValue {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the value of a version of the generation that is kept alive.
        unsafe { slice::from_raw_parts(self.start, self.bytes) }
    }
}
