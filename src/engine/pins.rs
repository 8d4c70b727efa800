//! Which revisions readers hold on to.
//!
//! A view of revision R stays readable after `compact(C)` with C > R, so reclaim must not remove
//! what it can ask for. The two sides meet without a lock, by the classical store-then-look rule:
//!
//! ```text
//!   reader                               reclaim
//!   slot = R                             compacted = C   (by the commit of the compaction)
//!   fence SeqCst                         fence SeqCst
//!   compacted > R ?  -> give up          keep = min(compacted, every slot)
//! ```
//!
//! Whichever fence comes first, the side with the later one sees the other's store: either the
//! reader learns that R is compacted, or reclaim learns that R is pinned. What a reader may still read
//! of R, and reclaim must still keep, may differ by key: [`super::retention`] says why the rule holds
//! for that, too. A pin keeps its revision readable for every key, also for one whose floor was above it
//! already: that keeps more than needed, and never less.
//!
//! Invariants:
//!
//! 1. A slot holds 0 (free) or a pinned revision; revisions begin with 1. While it is taken it only rises.
//! 2. Slots are never freed, so a scan needs no protection. The table grows by whole chunks, and
//!    only to the largest number of pins ever held at once.

use crate::sync::plain::OnceLock;
use crate::sync::{Arc, AtomicU64, Ordering, fence};

use super::shared::Shared;

/// Slots that are added at a time.
const CHUNK_SLOTS: usize = 64;

/// The table of pins of a store.
#[derive(Debug)]
pub(super) struct Pins {
    first: Chunk,
    /// The watermark that pins kept reclaim from when it looked last; 0 if they did not. Whoever
    /// unpins a revision below it wakes the worker.
    held_up: AtomicU64,
    shared: Option<Arc<Shared>>,
}

#[derive(Debug)]
struct Chunk {
    slots: [AtomicU64; CHUNK_SLOTS],
    next: OnceLock<Box<Self>>,
}

/// A pinned revision; dropping it unpins.
#[derive(Debug)]
pub(super) struct Pin {
    pins: Arc<Pins>,
    chunk: usize,
    slot: usize,
}

impl Pins {
    /// No pins. The worker learns when one is gone that was in its way.
    pub(super) fn new(shared: Option<Arc<Shared>>) -> Self {
        Self { first: Chunk::new(), held_up: AtomicU64::new(0), shared }
    }

    /// Pins a revision unless `look` says, after the pin can be seen, that it is gone. Answers what
    /// `look` did, too.
    pub(super) fn pin<T, E>(
        self: &Arc<Self>,
        revision: u64,
        look: impl FnOnce() -> Result<T, E>,
    ) -> Result<(Pin, T), E> {
        debug_assert!(revision > 0, "revisions begin with 1");
        let (chunk, slot) = self.take(revision);
        let pin = Pin { pins: Arc::clone(self), chunk, slot };
        fence(Ordering::SeqCst);
        look().map(|found| (pin, found))
    }

    /// The oldest revision that must stay readable when everything before what `compacted()` answers
    /// may go; with what it answers beside.
    pub(super) fn keep<T>(&self, compacted: impl FnOnce() -> (u64, T)) -> (u64, T) {
        let (compacted, found) = compacted();
        // Before looking, so that a pin that goes meanwhile is noticed.
        self.held_up.store(compacted, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let keep = self.pinned().fold(compacted, u64::min);
        if keep == compacted {
            self.held_up.store(0, Ordering::Relaxed);
        }
        (keep, found)
    }

    /// The revisions pinned now, in no order.
    pub(super) fn pinned(&self) -> impl Iterator<Item = u64> {
        self.chunks()
            .flat_map(|chunk| &chunk.slots)
            .map(|slot| slot.load(Ordering::Acquire))
            .filter(|revision| *revision != 0)
    }

    /// Takes a free slot. A few slots are tried from a place that differs by thread, so that
    /// threads do not fight for the first.
    fn take(&self, revision: u64) -> (usize, usize) {
        let start = thread_hint();
        let mut chunk = &self.first;
        let mut number = 0;
        loop {
            for step in 0..CHUNK_SLOTS {
                let at = (start + step) % CHUNK_SLOTS;
                let Some(slot) = chunk.slots.get(at) else { continue };
                if slot.load(Ordering::Relaxed) == 0
                    && slot
                        .compare_exchange(0, revision, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
                {
                    return (number, at);
                }
            }
            chunk = chunk.following();
            number += 1;
        }
    }

    fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        std::iter::successors(Some(&self.first), |chunk| chunk.next.get().map(|next| &**next))
    }
}

impl Chunk {
    fn new() -> Self {
        Self { slots: [const { AtomicU64::new(0) }; CHUNK_SLOTS], next: OnceLock::new() }
    }

    /// The next chunk, made if there is none. Made before it is offered, so that a thread that
    /// stops here holds up the others for no longer than one move.
    fn following(&self) -> &Self {
        if self.next.get().is_none() {
            let _ = self.next.set(Box::new(Self::new()));
        }
        self.next.get().map_or(self, |next| next)
    }
}

impl Pin {
    /// Holds on to a later revision instead, and gives up what is between. Upwards only: so whoever looks
    /// meanwhile sees one or the other, and keeps what this one does.
    pub(super) fn advance(&self, revision: u64) {
        let Some(slot) = self.slot() else { return };
        let before = slot.load(Ordering::Relaxed);
        if before < revision {
            slot.store(revision, Ordering::Release);
            self.given_up(before);
        }
    }

    fn slot(&self) -> Option<&AtomicU64> {
        self.pins.chunks().nth(self.chunk)?.slots.get(self.slot)
    }

    /// Rings the worker if `revision`, which is not pinned any more, kept reclaim from something.
    fn given_up(&self, revision: u64) {
        // Ordered against `keep`: either that sees what the slot holds now, or this sees that it was in
        // the way.
        fence(Ordering::SeqCst);
        if revision < self.pins.held_up.load(Ordering::Relaxed)
            && let Some(shared) = &self.pins.shared
        {
            shared.worker.ring();
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Some(slot) = self.slot() {
            let revision = slot.load(Ordering::Relaxed);
            slot.store(0, Ordering::Release);
            self.given_up(revision);
        }
    }
}

/// Where this thread begins to look for a slot.
fn thread_hint() -> usize {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static HINT: usize = {
            // The remainder fits: it is less than CHUNK_SLOTS.
            let number = NEXT.fetch_add(7, Ordering::Relaxed) % CHUNK_SLOTS as u64;
            usize::try_from(number).unwrap_or(0)
        };
    }
    HINT.with(|hint| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned_by(pin: &Pin) -> u64 {
        pin.slot().expect("it has one").load(Ordering::Relaxed)
    }

    #[test]
    fn a_pin_advances_and_never_goes_back() {
        let pins = Arc::new(Pins::new(None));
        let (pin, ()) = pins.pin(5, || Ok::<(), u64>(())).expect("not compacted");
        pin.advance(7);
        assert_eq!(pins.keep(|| (20, ())).0, 7);
        pin.advance(6);
        assert_eq!((pinned_by(&pin), pins.keep(|| (20, ())).0), (7, 7));
        pin.advance(21);
        assert_eq!(pins.keep(|| (20, ())).0, 20);
        drop(pin);
        assert_eq!(pins.pinned().count(), 0);
    }

    #[test]
    fn the_oldest_pin_is_kept_until_it_is_dropped() {
        let pins = Arc::new(Pins::new(None));
        let pin = |revision| pins.pin(revision, || Ok::<(), u64>(())).expect("not compacted");
        let (five, nine) = (pin(5), pin(9));
        assert_eq!(pins.keep(|| (20, "floors")), (5, "floors"));
        drop(five);
        assert_eq!(pins.keep(|| (20, ())).0, 9);
        assert_eq!(pins.keep(|| (7, ())).0, 7);
        drop(nine);
        assert_eq!(pins.keep(|| (20, ())).0, 20);
    }

    #[test]
    fn a_compacted_revision_cannot_be_pinned() {
        let pins = Arc::new(Pins::new(None));
        assert_eq!(pins.pin(4, || Err::<(), _>(5)).expect_err("compacted"), 5);
        assert_eq!(pins.pinned().count(), 0);
    }

    #[test]
    fn the_table_grows_and_slots_are_used_again() {
        let pins = Arc::new(Pins::new(None));
        for _ in 0..2 {
            let pin = |revision| pins.pin(revision, || Ok::<(), u64>(())).expect("pinned").0;
            let held: Vec<Pin> = (1..=200).map(pin).collect();
            assert_eq!(pinned_by(&held[7]), 8);
            let mut pinned: Vec<u64> = pins.pinned().collect();
            pinned.sort_unstable();
            assert_eq!(pinned, (1..=200).collect::<Vec<_>>());
        }
        assert_eq!(pins.chunks().count(), 4);
        assert_eq!(pins.pinned().count(), 0);
    }

    #[test]
    fn reader_and_reclaim_never_miss_each_other() {
        let pins = Arc::new(Pins::new(None));
        let compacted = AtomicU64::new(0);
        let kept = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for watermark in 1..=20_000 {
                    compacted.store(watermark, Ordering::Release);
                    let (keep, ()) = pins.keep(|| (compacted.load(Ordering::Acquire), ()));
                    kept.fetch_max(keep, Ordering::AcqRel);
                }
            });
            scope.spawn(|| {
                while compacted.load(Ordering::Acquire) < 20_000 {
                    let revision = compacted.load(Ordering::Acquire) + 1;
                    let look = || match compacted.load(Ordering::Acquire) {
                        compacted if compacted > revision => Err(compacted),
                        _ => Ok(()),
                    };
                    if let Ok((_pin, ())) = pins.pin(revision, look) {
                        for _ in 0..3 {
                            assert!(kept.load(Ordering::Acquire) <= revision);
                        }
                    }
                }
            });
        });
    }
}
