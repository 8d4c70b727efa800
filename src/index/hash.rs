//! A fixed-size open-addressing hash table from internal keys to their nodes.
//!
//! It never grows, because growing needs either a lock or a protocol of its own; a generation's key
//! budget fixes the size, at most half full. Slots go from null to a key once and never change, so
//! a probe that walks over full slots to the first empty one has seen every key that was inserted
//! before it began.
//!
//! A slot is a pointer with six bits of the key's hash in its low bits (the arena aligns key nodes to
//! 64 bytes), so that a probe touches another key's memory in one of 64 collisions only.
//!
//! Most probes of a reader are for keys that are not here but in files. So that these touch no slot, of
//! which a busy writer's table has more than a core's caches hold, a small filter stands before the slots:
//! each key has two bits in one word, a word for 16 slots.

use std::ptr;

use super::key::KeyNode;
use super::zeroed::Zeroed;
use crate::sync::{AtomicPtr, AtomicU64, Ordering};

const TAG_MASK: usize = 63;
const _: () = assert!(super::arena::ALIGN > TAG_MASK);

/// The table. It borrows nothing: whoever owns it keeps the key nodes alive.
#[derive(Debug)]
pub(super) struct Table {
    slots: Zeroed<AtomicPtr<KeyNode>>,
    mask: usize,
    /// The bits of the keys inserted, which are set and never cleared. Every `insert` of a key sets them before it
    /// returns, so by the coherence of each word alone who comes after one of these sees them: Relaxed is enough.
    filter: Zeroed<AtomicU64>,
}

/// Slots that share a word of the filter. With the table at most half full these are eight keys at most on average, so
/// a key that is not there is taken for one that may be in a few of a hundred probes.
const SLOTS_PER_WORD: usize = 16;

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

    /// The key's bits in its word of the filter.
    fn filter_bits(self) -> u64 {
        1 << ((self.0 >> 44) & 63) | 1 << ((self.0 >> 50) & 63)
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
    /// A table for at most `keys` keys. `present` says whether it is to have its memory at once, and not
    /// page by page when a slot there is first used: a fault at each of 500 pages, and another one where
    /// a slot was looked at before it was written.
    pub(super) fn new(keys: usize, present: bool) -> Self {
        let slots = keys.max(2).saturating_mul(2).next_power_of_two();
        Self {
            slots: Zeroed::new(slots, present),
            mask: slots - 1,
            filter: Zeroed::new(slots.div_ceil(SLOTS_PER_WORD), present),
        }
    }

    /// The node of `key`.
    #[inline]
    pub(super) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<&KeyNode> {
        let mut slot = hash.slot(self.mask);
        let bits = hash.filter_bits();
        if self.filter[slot / SLOTS_PER_WORD].load(Ordering::Relaxed) & bits != bits {
            return None;
        }
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
        self.filter[slot / SLOTS_PER_WORD].fetch_or(hash.filter_bits(), Ordering::Relaxed);
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
