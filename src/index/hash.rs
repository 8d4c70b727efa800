//! A fixed-size open-addressing hash table from internal keys to their nodes.
//!
//! It never grows, because growing needs either a lock or a protocol of its own; a generation's key
//! budget fixes the size, at most half full. Slots go from null to a key once and never change, so
//! a probe that walks over full slots to the first empty one has seen every key that was inserted
//! before it began.
//!
//! A slot is a pointer with five bits of the key's hash in its low bits (key nodes are aligned to
//! 32 bytes), so that a probe touches another key's memory in one of 32 collisions only.

use std::ptr;

use super::key::KeyNode;
use crate::sync::{AtomicPtr, Ordering};

const TAG_MASK: usize = 31;
const _: () = assert!(align_of::<KeyNode>() > TAG_MASK);

/// The table. It borrows nothing: whoever owns it keeps the key nodes alive.
#[derive(Debug)]
pub(super) struct Table {
    slots: Box<[AtomicPtr<KeyNode>]>,
    mask: usize,
}

/// The hash of an internal key; its parts serve the table and the ordered index.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyHash(u64);

impl KeyHash {
    pub(super) fn of(key: &[u8]) -> Self {
        Self(xxhash_rust::xxh3::xxh3_64(key))
    }

    /// The slot to probe first.
    fn slot(self, mask: usize) -> usize {
        // Truncation keeps the low bits, which are as good as any.
        #[expect(clippy::cast_possible_truncation, reason = "any bits of a hash will do")]
        let low = self.0 as usize;
        low & mask
    }

    fn tag(self) -> usize {
        usize::from((self.0 >> 56) as u8) & TAG_MASK
    }

    /// A height for the ordered index: each level has a quarter of the keys of the level below.
    pub(super) fn height(self, max: usize) -> usize {
        let pairs = ((self.0 >> 32) | 1 << 24).trailing_zeros() / 2;
        (1 + pairs as usize).min(max)
    }
}

impl Table {
    /// A table for at most `keys` keys.
    pub(super) fn new(keys: usize) -> Self {
        let slots = keys.max(2).saturating_mul(2).next_power_of_two();
        Self { slots: empty_slots(slots), mask: slots - 1 }
    }

    /// The node of `key`.
    #[inline]
    pub(super) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<&KeyNode> {
        let mut slot = hash.slot(self.mask);
        loop {
            let entry = self.slots[slot].load(Ordering::Acquire);
            if entry.is_null() {
                return None;
            }
            if entry.addr() & TAG_MASK == hash.tag() {
                // SAFETY: an entry is a key node with a tag in its low bits, and key nodes live as
                // long as the generation that owns the table. Acquire pairs with the Release of
                // `insert`.
                let node = unsafe { &*entry.map_addr(|addr| addr & !TAG_MASK) };
                if node.key() == key {
                    return Some(node);
                }
            }
            slot = (slot + 1) & self.mask;
        }
    }

    /// Inserts `node`, which any number of threads may do at once with the same node.
    ///
    /// There must be no other node of the same key: the ordered index sees to that. All of them
    /// probe the same slots, and no slot empties, so the first slot that one of them finds empty
    /// or holding the node is the same for all.
    pub(super) fn insert(&self, hash: KeyHash, node: &KeyNode) {
        let entry = ptr::from_ref(node).cast_mut().map_addr(|addr| addr | hash.tag());
        let mut slot = hash.slot(self.mask);
        loop {
            let null = ptr::null_mut();
            let cell = &self.slots[slot];
            match cell.compare_exchange(null, entry, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) if found == entry => return,
                Err(_) => slot = (slot + 1) & self.mask,
            }
        }
    }
}

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
fn empty_slots(count: usize) -> Box<[AtomicPtr<KeyNode>]> {
    use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

    let Ok(layout) = Layout::array::<AtomicPtr<KeyNode>>(count) else {
        handle_alloc_error(Layout::new::<AtomicPtr<KeyNode>>())
    };
    // Zeroed pages come from the system without being touched: a large table costs nothing until
    // its slots are used.
    // SAFETY: the layout is not empty: a table has at least four slots.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        handle_alloc_error(layout);
    }
    #[expect(clippy::cast_ptr_alignment, reason = "allocated with the alignment of the slots")]
    let slots = ptr::slice_from_raw_parts_mut(start.cast::<AtomicPtr<KeyNode>>(), count);
    // SAFETY: allocated by the global allocator with the layout of this slice; `AtomicPtr` has the
    // representation of a pointer, and all zeros is the null pointer.
    unsafe { Box::from_raw(slots) }
}

#[cfg(any(feature = "loom", feature = "shuttle"))]
fn empty_slots(count: usize) -> Box<[AtomicPtr<KeyNode>]> {
    (0..count).map(|_| AtomicPtr::new(ptr::null_mut())).collect()
}
