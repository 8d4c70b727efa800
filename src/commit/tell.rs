//! Telling who sleeps until more is visible: a thread that follows the chain, and has seen all there is.
//!
//! A commit must not pay for it while nobody sleeps. So it only looks at one word, in the cache line that it
//! has just written, and the sleeper says there that it is about to sleep. The two must not miss each other:
//!
//! ```text
//!   who moves a cursor                   who is about to sleep
//!   move it                              watched = what it waits for
//!   watched ?  -> tell, watched = 0      cursor moved ?  -> do not sleep
//! ```
//!
//! Both store, and then look at what the other stores. Whichever of the four comes last in an order that all
//! agree on is a look, and finds the other's store: the sleeper sees that the cursor has moved, or is told. It
//! sleeps for ever only if both look too early, and that no such order allows.
//!
//! *`applied`* is moved by every commit, and all four accesses are `SeqCst`, so there is such an order. (On
//! x86-64 that costs nothing: the move is a locked instruction anyway, and the look is a plain load.) Loom
//! takes `SeqCst` accesses for weaker ones. For it the look is a read-modify-write, as below.
//!
//! *`durable`* is moved once for each sync. There both sides access `watched` by read-modify-writes, which
//! have an order: if the sleeper's is the later one it acquires what was released by the mover's, the move
//! included. *A failure* is told in the same way to whoever sleeps: nothing will move any more.
//!
//! A sleeper that does not sleep leaves `watched` as it is, as there may be others; the next move tells in vain.
//! A thread that is stopped between its move and its look delays what is told of that move, and of no other.

use super::chain::Chain;
use crate::sync::{Ordering, epoch};

/// What somebody sleeps until.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// More is applied.
    Applied,
    /// More is durable.
    Durable,
}

/// What `watched` holds while nobody sleeps.
pub(super) const NOBODY: u32 = 0;
const APPLIED: u32 = 1;
const DURABLE: u32 = 2;

impl Chain {
    /// For one who has seen everything up to frame `seen`, and is about to sleep: has
    /// [`World::visible_moved`](super::World::visible_moved) called once there is more, or never will be.
    /// False if that is so already; then do not sleep.
    pub(crate) fn tell_when(&self, until: Until, seen: u64) -> bool {
        let wanted = match until {
            Until::Applied => APPLIED,
            Until::Durable => DURABLE,
        };
        self.front.watched.swap(wanted, Ordering::SeqCst);
        let guard = epoch::pin();
        let there = match until {
            Until::Applied => self.applied_node_in_order(&guard),
            Until::Durable => self.group.durable_node(&guard),
        };
        there.position().seq <= seen && !self.is_poisoned()
    }

    /// For the thread that has just moved `applied`.
    #[inline]
    pub(super) fn tell_applied(&self) {
        let watched = if cfg!(feature = "loom") {
            self.front.watched.fetch_or(NOBODY, Ordering::Release)
        } else {
            self.front.watched.load(Ordering::SeqCst)
        };
        if watched == APPLIED {
            self.tell();
        }
    }

    /// For the thread that has just written out what is applied, or failed to.
    pub(super) fn tell_durable(&self) {
        let watched = self.front.watched.fetch_or(NOBODY, Ordering::Release);
        if watched == DURABLE || watched != NOBODY && self.is_poisoned() {
            self.tell();
        }
    }

    /// Of several that come at once, one tells.
    #[cold]
    fn tell(&self) {
        if self.front.watched.swap(NOBODY, Ordering::Relaxed) != NOBODY {
            self.world.visible_moved();
        }
    }
}
