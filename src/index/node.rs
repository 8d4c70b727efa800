//! The nodes of the commit chain, and the frames they carry.
//!
//! A node is one transaction. It lies in one allocation of its generation's arena, together with
//! what it carries, so that a commit touches few cache lines and makes one allocation:
//!
//! ```text
//! Node | changes x *KeyNode | changes x Version | frame (header section, payload)
//! ```
//!
//! The frame's bytes go to the log as they are; the versions' values point into the payload.
//!
//! The first node of each generation, its *root*, carries no transaction: it takes the position of
//! the last node of the generation before, and linking it is the generation switch.

use std::ptr;

use annals_format::frame::{self, Binding};

use super::generation::Generation;
use super::key::KeyNode;
use super::version::Version;
use crate::sync::epoch::Guard;
use crate::sync::plain::AtomicUsize;
use crate::sync::{Arc, AtomicPtr, Ordering, UnsafeCell};

/// A point in the order of transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Position {
    /// Number of the last frame: dense, from 1; 0 before the first.
    pub(crate) seq: u64,
    /// The store's revision as of that frame.
    pub(crate) revision: u64,
    /// Time of that frame, microseconds since the Unix epoch; never decreases.
    pub(crate) time: i64,
}

/// A node's place in the chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Number of the node: dense. Unlike `seq` it also counts roots.
    pub(crate) order: u64,
    /// The position after this node.
    pub(crate) position: Position,
    /// The watermark after this node: nothing below is answered any more; 0 = never compacted. It is
    /// part of the place so that whoever takes a state has its watermark, and no other.
    pub(crate) compacted: u64,
    /// Bytes of the frames that have been ordered since the store was opened, up to this node: what the log
    /// has written and what it has still to write are points on this scale.
    pub(crate) logged_bytes: u64,
}

/// A node of the chain.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Node {
    /// The next node, set once, by the CAS that commits it. See [`Link`] for the low bit.
    next: AtomicPtr<Self>,
    /// Written by the thread that prepares the node until the node is linked; then fixed.
    place: UnsafeCell<Place>,
    generation: *const Generation,
    keys: *const *const KeyNode,
    versions: *const Version,
    frame: *mut u8,
    frame_bytes: usize,
    header_bytes: usize,
    changes: u32,
    /// Whether the node writes a user key, and so has a revision of its own.
    takes_revision: bool,
    /// The watermark the transaction sets; 0 for none.
    compact: u64,
    /// Where the next helper begins to apply a large node; a hint, outside the models.
    pub(crate) helpers: AtomicUsize,
}

/// What a node is made of; all pointers lead into its generation's arena.
#[derive(Debug)]
pub(super) struct NodeParts {
    pub(super) generation: *const Generation,
    pub(super) keys: *const *const KeyNode,
    pub(super) versions: *const Version,
    pub(super) changes: u32,
    pub(super) frame: *mut u8,
    pub(super) frame_bytes: usize,
    pub(super) header_bytes: usize,
    pub(super) takes_revision: bool,
    pub(super) compact: u64,
}

/// The link to a following node. The low bit of the word in `Node::next` says whether the node is
/// the root of another generation: so a walker that keeps only one generation alive need not touch
/// the node to know where to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link<'g> {
    /// The following node.
    pub(crate) node: &'g Node,
    /// Whether it is the root of the next generation.
    pub(crate) opens_generation: bool,
}

const OPENS: usize = 1;

/// One change of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'g> {
    /// The key changed.
    pub(crate) key: &'g KeyNode,
    /// What was written.
    pub(crate) version: &'g Version,
}

// SAFETY: the pointers lead into the generation that holds the node, which is `Sync`. What is not
// atomic is written by the one thread that prepares the node, before the CAS that links it.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

impl Node {
    pub(super) fn new(parts: &NodeParts) -> Self {
        let NodeParts { generation, keys, versions, changes, .. } = *parts;
        Self {
            next: AtomicPtr::new(ptr::null_mut()),
            place: UnsafeCell::new(Place {
                order: 0,
                position: Position::default(),
                compacted: 0,
                logged_bytes: 0,
            }),
            generation,
            keys,
            versions,
            frame: parts.frame,
            frame_bytes: parts.frame_bytes,
            header_bytes: parts.header_bytes,
            changes,
            takes_revision: parts.takes_revision,
            compact: parts.compact,
            helpers: AtomicUsize::new(0),
        }
    }

    /// The next node, if one is linked.
    ///
    /// The guard must have been taken before the node `self` was reached, so that the next node,
    /// maybe of another generation, is still there.
    #[inline]
    pub(crate) fn next<'g>(&self, _guard: &'g Guard) -> Option<Link<'g>> {
        // Acquire pairs with the Release of `link`: everything the node says is visible.
        let word = self.next.load(Ordering::Acquire);
        let node = word.map_addr(|addr| addr & !OPENS);
        // SAFETY: null, or a node: its generation is kept by the chain until the chain's cursors
        // have passed it, and then until all guards of that time are gone.
        let node = unsafe { node.as_ref() }?;
        Some(Link { node, opens_generation: word.addr() & OPENS != 0 })
    }

    /// The next node, for the holder of the sync role, which needs no guard.
    ///
    /// # Safety
    /// The chain still owns a count of the generation of `self`, and gives none back while the
    /// answer is in use. It owns those of all later nodes then, too.
    pub(crate) unsafe fn next_owned<'a>(&self) -> Option<Link<'a>> {
        let word = self.next.load(Ordering::Acquire);
        let node = word.map_addr(|addr| addr & !OPENS);
        // SAFETY: null, or a node of a generation that the chain owns a count of.
        let node = unsafe { node.as_ref() }?;
        Some(Link { node, opens_generation: word.addr() & OPENS != 0 })
    }

    /// Links `node` after `self`, unless something is linked already: the commit point.
    ///
    /// # Safety
    /// `node` is completely bound, was prepared by this thread and linked nowhere; `opens` says
    /// whether it is a root.
    pub(crate) unsafe fn link(&self, node: &Self, opens: bool) -> bool {
        let node = ptr::from_ref(node).cast_mut().map_addr(|addr| addr | usize::from(opens));
        let null = ptr::null_mut();
        self.next.compare_exchange(null, node, Ordering::Release, Ordering::Acquire).is_ok()
    }

    /// The word that [`link`](Self::link) sets, for who links by other means: see `commit::rivals`.
    ///
    /// # Safety
    /// What is stored there is a node as `link` wants it, stored once, and nobody else links there.
    #[cfg(all(
        any(test, feature = "bench-internals"),
        not(any(feature = "loom", feature = "shuttle"))
    ))]
    pub(crate) unsafe fn next_word(&self) -> &AtomicPtr<Self> {
        &self.next
    }

    /// Fixes the node's place in the chain.
    ///
    /// # Safety
    /// The node is not linked, and this thread is the one that prepares it.
    pub(crate) unsafe fn bind(&self, place: Place) {
        // SAFETY: by contract no other thread can reach the node.
        self.place.with_mut(|cell| unsafe { *cell = place });
    }

    /// Patches the frame's header from the node's place and its versions' bounds.
    ///
    /// # Safety
    /// The node and its versions are bound, the node is not linked, and this thread is the one that
    /// prepares it.
    pub(crate) unsafe fn patch_frame(&self, binding: &Binding) {
        // SAFETY: the header section is the start of the frame, written by this thread alone until
        // the link, by contract; no version's value lies in it.
        let header = unsafe { std::slice::from_raw_parts_mut(self.frame, self.header_bytes) };
        let Position { seq, revision, time } = self.position();
        let compact = (self.compact != 0).then_some((0, 0));
        let results = self.versions().iter().map(|version| {
            let bound = version.bound();
            (bound.create_revision, bound.version)
        });
        frame::patch_header(header, binding, seq, revision, time, results.chain(compact));
    }

    #[inline]
    pub(crate) fn place(&self) -> Place {
        // SAFETY: a linked node is reached by an Acquire load that pairs with the Release of the
        // link, and does not change any more; a node being prepared is read by its own thread.
        self.place.with(|cell| unsafe { *cell })
    }

    /// Number of the node in the chain.
    #[inline]
    pub(crate) fn order(&self) -> u64 {
        self.place().order
    }

    /// The position after this node.
    #[inline]
    pub(crate) fn position(&self) -> Position {
        self.place().position
    }

    /// The generation that holds the node.
    pub(crate) fn generation(&self) -> &Generation {
        // SAFETY: `self` lies in the generation's arena, so the generation is there.
        unsafe { &*self.generation }
    }

    /// Whether the node is the root of its generation, and carries no transaction.
    pub(crate) fn is_root(&self) -> bool {
        self.frame_bytes == 0
    }

    /// Whether the node writes a user key, and so has a revision of its own.
    pub(crate) fn takes_revision(&self) -> bool {
        self.takes_revision
    }

    /// The watermark the transaction sets; 0 for none.
    pub(crate) fn compact(&self) -> u64 {
        self.compact
    }

    /// The versions written, in the order of the plan.
    #[inline]
    pub(crate) fn versions(&self) -> &[Version] {
        // SAFETY: `changes` initialised versions lie there, in the node's own allocation; for a
        // node without changes the pointer is dangling but aligned.
        unsafe { std::slice::from_raw_parts(self.versions, self.changes as usize) }
    }

    /// The keys written, parallel to `versions`.
    #[inline]
    pub(crate) fn keys(&self) -> &[&KeyNode] {
        // SAFETY: as for `versions`; the pointers came from references into the generation.
        unsafe { std::slice::from_raw_parts(self.keys.cast::<&KeyNode>(), self.changes as usize) }
    }

    /// The changes, in the order of the plan.
    pub(crate) fn changes(&self) -> impl ExactSizeIterator<Item = Change<'_>> {
        let pairs = self.keys().iter().zip(self.versions());
        pairs.map(|(key, version)| Change { key, version })
    }

    /// The length of the frame, in bytes; 0 for a root.
    #[inline]
    pub(crate) fn frame_bytes(&self) -> u64 {
        self.frame_bytes as u64
    }

    /// The frame as it goes to the log; empty for a root.
    pub(crate) fn frame(&self) -> &[u8] {
        // SAFETY: the frame lies in the node's own allocation, and nobody writes to it once the
        // node is linked; before that only the preparing thread has it.
        unsafe { std::slice::from_raw_parts(self.frame, self.frame_bytes) }
    }
}

/// A transaction of a generation, in chain order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameRef<'a> {
    node: &'a Node,
}

impl<'a> FrameRef<'a> {
    /// Its place in the order.
    pub(crate) fn position(self) -> Position {
        self.node.position()
    }

    /// The encoded frame; `annals_format::frame::Frame::view` decodes it.
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.node.frame()
    }

    /// Whether it writes a user key, and so has a revision of its own.
    pub(crate) fn takes_revision(self) -> bool {
        self.node.takes_revision()
    }

    /// Its changes, with the versions as they hang in the chains of their keys.
    pub(crate) fn changes(self) -> impl ExactSizeIterator<Item = Change<'a>> {
        self.node.changes()
    }
}

/// A place among the transactions of one generation, which it keeps alive.
#[derive(Clone, Debug)]
pub(crate) struct FrameCursor {
    /// Keeps alive what `node` points into; references given out live as long as the borrow.
    _generation: Arc<Generation>,
    /// The last transaction given out, or the root.
    node: *const Node,
}

// SAFETY: the pointer leads into the generation that the cursor keeps alive, which is `Sync`.
unsafe impl Send for FrameCursor {}
// SAFETY: as above.
unsafe impl Sync for FrameCursor {}

impl FrameCursor {
    /// A cursor after `node`, which is one of the generation's.
    pub(super) fn new(generation: Arc<Generation>, node: *const Node) -> Self {
        Self { _generation: generation, node }
    }

    /// The next transaction with a seq of at most `upto`, which must be applied (or durable). `None`
    /// at `upto` or at the end of the generation; then a later call may find more.
    pub(crate) fn next(&mut self, upto: u64) -> Option<FrameRef<'_>> {
        let word = self.here().next.load(Ordering::Acquire);
        if word.addr() & OPENS != 0 {
            return None;
        }
        // SAFETY: null, or a node of the same generation, which `self` keeps alive.
        let node = unsafe { word.as_ref() }?;
        if node.position().seq > upto {
            return None;
        }
        self.node = word;
        Some(FrameRef { node })
    }

    fn here(&self) -> &Node {
        // SAFETY: a node of the generation that `self` keeps alive.
        unsafe { &*self.node }
    }
}
