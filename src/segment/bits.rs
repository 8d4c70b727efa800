//! Bits that remember which parts of a file have been checked.

use crate::sync::plain::{AtomicU64, Ordering};

/// A fixed set of bits that are only ever set.
#[derive(Debug)]
pub(super) struct Bits(Box<[AtomicU64]>);

impl Bits {
    pub(super) fn new(count: u32) -> Self {
        Self((0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Relaxed: a bit only says that somebody has compared a checksum of bytes that never change.
    pub(super) fn get(&self, index: u32) -> bool {
        let word = self.0.get(index as usize / 64).map_or(0, |word| word.load(Ordering::Relaxed));
        word >> (index % 64) & 1 == 1
    }

    pub(super) fn set(&self, index: u32) {
        if let Some(word) = self.0.get(index as usize / 64) {
            word.fetch_or(1 << (index % 64), Ordering::Relaxed);
        }
    }
}
