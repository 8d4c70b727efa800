//! The distinct keys of a generation in order: an insert-only lock-free skiplist.
//!
//! Insert-only makes it simple. A link, once set, only ever moves to a *nearer* successor, so a
//! search that was overtaken continues from where it stands, and nothing needs marking or
//! reclaiming. The lowest level decides: the CAS that links a node there is what makes its key
//! exist, exactly once. Higher levels are shortcuts; an inserter that stops half way leaves them
//! unlinked, and everything still works.
//!
//! Walking back has no links of its own: `prev` searches again from the top, O(log n).

use std::ptr;

use super::generation::Generation;
use super::key::KeyNode;
use crate::sync::{Arc, AtomicPtr, Ordering};

/// Levels of the index: enough for 4^12 = 16 million keys with a quarter of the keys per level.
pub(super) const HEIGHT_MAX: usize = 12;

/// The index. It borrows nothing: whoever owns it keeps the key nodes alive.
#[derive(Debug)]
pub(super) struct Ordered {
    head: [AtomicPtr<KeyNode>; HEIGHT_MAX],
}

/// For each level, the last node before a key (`None`: the head) and the link that follows it.
struct Neighbours<'a> {
    before: [Option<&'a KeyNode>; HEIGHT_MAX],
    after: [*mut KeyNode; HEIGHT_MAX],
}

impl Ordered {
    pub(super) fn new() -> Self {
        Self { head: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())) }
    }

    /// The node of `key`: the one already there, or else the one that `make` makes, linked.
    /// The flag says which: `true` for a new one.
    ///
    /// `make` may be called once although another thread then wins; its node is then garbage in the
    /// arena.
    pub(super) fn get_or_insert<'a, E>(
        &'a self,
        key: &[u8],
        make: impl FnOnce() -> Result<&'a KeyNode, E>,
    ) -> Result<(&'a KeyNode, bool), E> {
        let mut at = self.neighbours(key);
        if let Some(found) = at.found(key) {
            return Ok((found, false));
        }
        let node = make()?;
        loop {
            node.tower()[0].store(at.after[0], Ordering::Relaxed);
            if self.link(&at, 0, node) {
                break;
            }
            at = self.neighbours(key);
            if let Some(found) = at.found(key) {
                return Ok((found, false));
            }
        }
        for level in 1..node.tower().len() {
            loop {
                node.tower()[level].store(at.after[level], Ordering::Relaxed);
                if self.link(&at, level, node) {
                    break;
                }
                at = self.neighbours(key);
            }
        }
        Ok((node, true))
    }

    /// The first node with a key of at least `key`.
    pub(super) fn at_or_after(&self, key: &[u8]) -> Option<&KeyNode> {
        let mut before = None;
        for level in (0..HEIGHT_MAX).rev() {
            while let Some(next) = self.next_at(before, level) {
                if next.key() >= key {
                    break;
                }
                before = Some(next);
            }
        }
        self.next_at(before, 0).map(|next| self.settle(next, key))
    }

    /// The last node with a key below `key`.
    pub(super) fn before(&self, key: &[u8]) -> Option<&KeyNode> {
        self.last_where(|node| node.key() < key)
    }

    /// The node with the highest key.
    pub(super) fn last(&self) -> Option<&KeyNode> {
        self.last_where(|_| true)
    }

    /// The node with the lowest key.
    pub(super) fn first(&self) -> Option<&KeyNode> {
        self.next_at(None, 0)
    }

    /// The node after `node`.
    pub(super) fn after<'a>(&'a self, node: &'a KeyNode) -> Option<&'a KeyNode> {
        self.next_at(Some(node), 0)
    }

    /// A key inserted between two loads may lie between `before` and the first node at or after
    /// `key`; walk over it.
    fn settle<'a>(&'a self, mut node: &'a KeyNode, key: &[u8]) -> &'a KeyNode {
        while node.key() < key {
            match self.after(node) {
                Some(next) => node = next,
                None => break,
            }
        }
        node
    }

    fn last_where(&self, is_before: impl Fn(&KeyNode) -> bool) -> Option<&KeyNode> {
        let mut before = None;
        for level in (0..HEIGHT_MAX).rev() {
            while let Some(next) = self.next_at(before, level).filter(|next| is_before(next)) {
                before = Some(next);
            }
        }
        before
    }

    /// For each level the last node with a lower key. A node of `key` itself lies after them.
    fn neighbours(&self, key: &[u8]) -> Neighbours<'_> {
        let mut at =
            Neighbours { before: [None; HEIGHT_MAX], after: [ptr::null_mut(); HEIGHT_MAX] };
        let mut before = None;
        for level in (0..HEIGHT_MAX).rev() {
            loop {
                let next = self.links(before)[level].load(Ordering::Acquire);
                // SAFETY: null, or a node of this index; see `next_at`.
                match unsafe { next.as_ref() } {
                    Some(node) if node.key() < key => before = Some(node),
                    _ => {
                        at.before[level] = before;
                        at.after[level] = next;
                        break;
                    }
                }
            }
        }
        at
    }

    fn link(&self, at: &Neighbours<'_>, level: usize, node: &KeyNode) -> bool {
        let link = &self.links(at.before[level])[level];
        let node = ptr::from_ref(node).cast_mut();
        link.compare_exchange(at.after[level], node, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    fn links<'a>(&'a self, node: Option<&'a KeyNode>) -> &'a [AtomicPtr<KeyNode>] {
        node.map_or(&self.head, KeyNode::tower)
    }

    fn next_at<'a>(&'a self, node: Option<&'a KeyNode>, level: usize) -> Option<&'a KeyNode> {
        let next = self.links(node)[level].load(Ordering::Acquire);
        // SAFETY: null, or a node that was linked with Release and lives as long as the generation
        // that owns the index.
        unsafe { next.as_ref() }
    }
}

impl<'a> Neighbours<'a> {
    /// The node of `key`, if it is the one that follows.
    fn found(&self, key: &[u8]) -> Option<&'a KeyNode> {
        // SAFETY: null, or a node of the index; see `Ordered::next_at`.
        unsafe { self.after[0].as_ref() }.filter(|next| next.key() == key)
    }
}

/// A place among the keys of a generation, which it keeps alive.
///
/// Keys that appear while it is in use may or may not be met; their versions are newer than
/// anything a reader that came before them looks for.
#[derive(Clone, Debug)]
pub(crate) struct KeyCursor {
    generation: Arc<Generation>,
    /// Null before the first key, after the last, and before the first seek.
    node: *const KeyNode,
}

// SAFETY: the pointer leads into the generation that the cursor keeps alive, which is `Sync`.
unsafe impl Send for KeyCursor {}
// SAFETY: as above.
unsafe impl Sync for KeyCursor {}

impl KeyCursor {
    pub(super) fn new(generation: Arc<Generation>) -> Self {
        Self { generation, node: ptr::null() }
    }

    /// The key under the cursor; `None` when it stands nowhere.
    #[inline]
    pub(crate) fn node(&self) -> Option<&KeyNode> {
        // SAFETY: null, or a node of the generation that `self` keeps alive.
        unsafe { self.node.as_ref() }
    }

    /// The generation the cursor walks.
    pub(crate) fn generation(&self) -> &Arc<Generation> {
        &self.generation
    }

    /// Goes to the first key of at least `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.node = or_null(self.generation.ordered().at_or_after(key));
    }

    /// Goes to the last key below `key`.
    pub(crate) fn seek_before(&mut self, key: &[u8]) {
        self.node = or_null(self.generation.ordered().before(key));
    }

    /// Goes to the lowest key.
    pub(crate) fn seek_first(&mut self) {
        self.node = or_null(self.generation.ordered().first());
    }

    /// Goes to the highest key.
    pub(crate) fn seek_last(&mut self) {
        self.node = or_null(self.generation.ordered().last());
    }

    /// Goes to the next higher key; stays nowhere when it stands nowhere.
    pub(crate) fn next(&mut self) {
        self.node = or_null(self.node().and_then(|node| self.generation.ordered().after(node)));
    }

    /// Goes to the next lower key, O(log n); stays nowhere when it stands nowhere.
    pub(crate) fn prev(&mut self) {
        let node = self.node().and_then(|node| self.generation.ordered().before(node.key()));
        self.node = or_null(node);
    }
}

fn or_null(node: Option<&KeyNode>) -> *const KeyNode {
    node.map_or(ptr::null(), ptr::from_ref)
}
