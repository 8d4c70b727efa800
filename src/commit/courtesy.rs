//! Courtesy: how a large transaction gets its place among many small ones.
//!
//! Between looking at the last node and linking behind it, a transaction with 50,000 changes takes
//! milliseconds: each of its versions is bound to the head it replaces, and the header of its frame
//! is summed again. Small transactions link a thousand nodes meanwhile, so it loses every race, for
//! as long as they come. One that has lost a few times therefore *asks*, and the others give way: they
//! put off their next link a little.
//!
//! It stays lock-free, because what is given is bounded by counting. Each request is good for
//! [`GRANTS`] delays of a fixed number of polls, and is renewed only by its owner, after another
//! loss. If the owner is stopped, the others are late by that much once, and go on.
//!
//! Not part of the models: the word decides nothing but who pauses.

use crate::sync::plain::{AtomicU64, Ordering, spin_loop};
use crate::sync::yield_now;

/// How many times others give way for one request.
const GRANTS: u64 = 256;

/// Bits of the word that hold the grants left; the rest is the number of polls of a delay.
const GRANT_BITS: u32 = 16;
const GRANT_MASK: u64 = (1 << GRANT_BITS) - 1;
const _: () = assert!(GRANTS <= GRANT_MASK);

/// Requests of transactions that keep losing.
#[derive(Debug, Default)]
pub(super) struct Courtesy {
    /// Polls of a delay, and grants left; 0 when nobody asks.
    word: AtomicU64,
}

/// A transaction's losses, and its request if it has made one.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    courtesy: &'a Courtesy,
    changes: u64,
    losses: u64,
}

impl Courtesy {
    /// For a transaction with this many changes that is about to try for its place.
    pub(super) fn claim(&self, changes: usize) -> Claim<'_> {
        Claim { courtesy: self, changes: changes as u64, losses: 0 }
    }

    /// Pauses for a while if somebody asks for it.
    fn give_way(&self) {
        let word = self.word.load(Ordering::Relaxed);
        if word == 0 {
            return;
        }
        let left = word & GRANT_MASK;
        let after = if left <= 1 { 0 } else { word - 1 };
        // On failure another thread gave way just now, or the request is over: no matter.
        let _ = self.word.compare_exchange(word, after, Ordering::Relaxed, Ordering::Relaxed);
        for poll in 0..word >> GRANT_BITS {
            if self.word.load(Ordering::Relaxed) == 0 {
                return;
            }
            // The one that asks may need this processor.
            if poll % 8 == 0 { yield_now() } else { spin_loop() }
        }
    }
}

impl Claim<'_> {
    /// Called before each attempt.
    #[inline]
    pub(super) fn before_attempt(&self) {
        if !self.has_asked() {
            self.courtesy.give_way();
        }
    }

    /// Called when another transaction was linked first.
    pub(super) fn lost(&mut self) {
        self.losses += 1;
        if self.has_asked() {
            // Each time for twice as long: an attempt takes longer than was thought.
            let doubled = (self.changes.max(16)) << self.losses.min(20);
            let polls = doubled.min(u64::MAX >> (GRANT_BITS + 1)).min(1 << 24);
            self.courtesy.word.store(polls << GRANT_BITS | GRANTS, Ordering::Relaxed);
        }
    }

    /// One change may lose often, many changes only a few times.
    fn has_asked(&self) -> bool {
        self.losses >= 3 && self.losses * self.changes >= 64
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.has_asked() {
            // Also ends the request of another that asks at the same time; it renews it if it must.
            self.courtesy.word.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_by_itself() {
        let courtesy = Courtesy::default();
        let mut claim = courtesy.claim(1_000);
        for _ in 0..3 {
            assert_eq!(courtesy.word.load(Ordering::Relaxed), 0);
            claim.lost();
        }
        // Its owner is stopped here; the others go on after a bounded number of delays.
        for _ in 0..GRANTS {
            assert_ne!(courtesy.word.load(Ordering::Relaxed), 0);
            courtesy.claim(1).before_attempt();
        }
        assert_eq!(courtesy.word.load(Ordering::Relaxed), 0);
        claim.lost();
        assert_ne!(courtesy.word.load(Ordering::Relaxed), 0);
        drop(claim);
        assert_eq!(courtesy.word.load(Ordering::Relaxed), 0);
    }
}
