//! A sparse index of a generation's transactions, so that the log can be read from any revision
//! without a walk from the generation's first node.
//!
//! Every [`EVERY`]-th node is noted by the thread that linked it, some time after the link. A mark
//! is a hint: what it leads to is looked at before it is used, and where it is missing (the thread
//! that owes it has not come that far) an older one serves.

use std::ptr;

use super::node::Node;
use crate::sync::Ordering;
use crate::sync::plain::AtomicPtr;

/// How many nodes lie between two marks. A look-up walks about half as many.
const EVERY: u64 = 128;

/// The marks of one generation.
#[derive(Debug)]
pub(super) struct Marks(Box<[AtomicPtr<Node>]>);

impl Marks {
    /// Room for the marks of as many nodes as fit into an arena.
    pub(super) fn new(arena_bytes: usize) -> Self {
        let every = usize::try_from(EVERY).unwrap_or(usize::MAX);
        let count = arena_bytes / size_of::<Node>() / every + 1;
        Self((0..count).map(|_| AtomicPtr::new(ptr::null_mut())).collect())
    }

    /// Notes a linked node of the generation, if it is one of those that are noted. `root` has the
    /// place of the generation's first node in the chain, which most calls need not know.
    pub(super) fn note(&self, node: &Node, root: impl FnOnce() -> u64) {
        let order = node.order();
        if !order.is_multiple_of(EVERY) {
            return;
        }
        let number = (order / EVERY).checked_sub(root() / EVERY + 1);
        let index = number.and_then(|number| usize::try_from(number).ok());
        if let Some(mark) = index.and_then(|index| self.0.get(index)) {
            // Release: whoever finds the mark sees the node it leads to.
            mark.store(ptr::from_ref(node).cast_mut(), Ordering::Release);
        }
    }

    /// A node with a revision below `revision`, as late as the marks know one. Null if they know
    /// none. Costs a binary search.
    pub(super) fn before(&self, revision: u64) -> *const Node {
        let found = |mark: &AtomicPtr<Node>| {
            let node = mark.load(Ordering::Acquire);
            // SAFETY: null, or a linked node of the generation that owns these marks: a node is
            // never freed before its generation, and does not change once it is linked.
            unsafe { node.as_ref() }
                .filter(|node| node.position().revision < revision)
                .map(ptr::from_ref)
        };
        // A mark that is missing between others may mislead the search, but only to one that lies
        // further back: the answer has been looked at.
        let end = self.0.partition_point(|mark| found(mark).is_some());
        let known = self.0.get(..end).unwrap_or_default();
        known.iter().rev().find_map(found).unwrap_or(ptr::null())
    }
}
