//! Memory of generations that are gone, for the next ones.
//!
//! A fresh page costs a fault and is zeroed by the system, more time than all that is then written to
//! it: a seventh of a busy committing thread's, measured on a virtual machine. So the chunks of a dropped
//! arena are kept, as many as one generation needs; and where commits have used them up faster than they
//! come back, a background thread makes a few ahead ([`Spare::stock`]).

use std::ptr::{self, NonNull};

use super::arena::{CHUNK_BYTES, Chunk};
use crate::sync::Arc;
use crate::sync::plain::{AtomicPtr, Ordering};

/// See the module.
#[derive(Debug)]
pub(crate) struct Spare {
    /// Null, or a chunk that is nobody else's. Neither giving nor taking waits for anybody.
    slots: Box<[AtomicPtr<Chunk>]>,
}

// SAFETY: whoever takes a chunk out of its slot is its only owner.
unsafe impl Send for Spare {}
// SAFETY: as above; the slots are atomics.
unsafe impl Sync for Spare {}

impl Spare {
    /// Room for the chunks of an arena of this size.
    pub(crate) fn new(arena_bytes: usize) -> Arc<Self> {
        let empty = || AtomicPtr::new(ptr::null_mut());
        let slots = std::iter::repeat_with(empty).take(arena_bytes / CHUNK_BYTES);
        Arc::new(Self { slots: slots.collect() })
    }

    /// Makes chunks until there are so many, or no more room for them.
    pub(crate) fn stock(&self, chunks: usize) {
        for _ in self.held()..chunks.min(self.slots.len()) {
            // SAFETY: made just now, and nobody else knows it.
            unsafe { self.give(Chunk::new(CHUNK_BYTES, 0)) };
        }
    }

    /// Whether there are less than so many chunks, although there is room for them.
    pub(crate) fn holds_less_than(&self, chunks: usize) -> bool {
        self.held() < chunks.min(self.slots.len())
    }

    /// How many chunks there are.
    fn held(&self) -> usize {
        self.slots.iter().filter(|slot| !slot.load(Ordering::Relaxed).is_null()).count()
    }

    /// One of the chunks, if there is any.
    pub(super) fn take(&self, before: usize) -> Option<NonNull<Chunk>> {
        let taken = self.slots.iter().find_map(|slot| {
            if slot.load(Ordering::Relaxed).is_null() {
                return None;
            }
            // Acquire pairs with the Release of `give`: its last owner is done with the memory.
            NonNull::new(slot.swap(ptr::null_mut(), Ordering::Acquire))
        });
        taken.map(|mut chunk| {
            // SAFETY: it was in a slot, so it is a chunk that nobody else uses.
            unsafe { chunk.as_mut() }.reset(before);
            chunk
        })
    }

    /// Keeps a chunk, or frees it if it is not of the usual size or there are enough.
    ///
    /// # Safety
    /// `chunk` came from [`Chunk::new`], and nothing uses it or its memory any more.
    pub(super) unsafe fn give(&self, chunk: NonNull<Chunk>) {
        // SAFETY: by contract.
        if unsafe { chunk.as_ref() }.is_usual() {
            let null = ptr::null_mut();
            let free = |slot: &&AtomicPtr<Chunk>| {
                slot.compare_exchange(null, chunk.as_ptr(), Ordering::Release, Ordering::Relaxed)
                    .is_ok()
            };
            if self.slots.iter().any(|slot| free(&slot)) {
                return;
            }
        }
        // SAFETY: by contract, and no slot has it.
        unsafe { Chunk::free(chunk) };
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        while let Some(chunk) = self.take(0) {
            // SAFETY: what was in a slot is nobody else's.
            unsafe { Chunk::free(chunk) };
        }
    }
}

#[cfg(all(test, not(any(feature = "loom", feature = "shuttle"))))]
mod tests {
    use super::*;
    use crate::index::arena::{Arena, FIRST_CHUNK_BYTES};

    #[test]
    fn chunks_of_a_dropped_arena_are_used_again() {
        let spare = Spare::new(2 * CHUNK_BYTES);
        let held = || spare.held();
        let fill = |arena: &Arena| -> Vec<usize> {
            let take = || arena.alloc(CHUNK_BYTES).map(|start| start.addr().get());
            std::iter::from_fn(take).collect()
        };
        let arena = Arena::new(5 * CHUNK_BYTES, &spare);
        let first = fill(&arena);
        assert_eq!((first.len(), held()), (4, 0));
        drop(arena);
        assert_eq!(held(), 2, "no more than there is room for");
        let arena = Arena::new(5 * CHUNK_BYTES, &spare);
        let second = fill(&arena);
        let again = second.iter().filter(|start| first.contains(start)).count();
        assert!(again >= 2, "at least: the system may map a freed place again, too");
        assert_eq!((arena.bytes_used(), held()), (FIRST_CHUNK_BYTES + 4 * CHUNK_BYTES, 0));
        // A chunk made for one large allocation is not kept.
        let large = Arena::new(9 * CHUNK_BYTES, &spare);
        assert!(large.alloc(3 * CHUNK_BYTES).is_some());
        drop(large);
        assert_eq!(held(), 0);
    }

    #[test]
    fn threads_pass_chunks_on() {
        let spare = Spare::new(3 * CHUNK_BYTES);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let spare = &spare;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let arena = Arena::new(2 * CHUNK_BYTES, spare);
                        let start = arena.alloc(CHUNK_BYTES).expect("room").as_ptr();
                        for at in (0..CHUNK_BYTES).step_by(64 << 10) {
                            // SAFETY: inside of what was just handed out to this thread.
                            let byte = unsafe { start.add(at) };
                            // SAFETY: as above.
                            unsafe { byte.write(thread) };
                            // SAFETY: as above; written just now.
                            assert_eq!(unsafe { byte.read() }, thread, "nobody else has it");
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn what_is_made_ahead_is_bounded_and_used() {
        let spare = Spare::new(3 * CHUNK_BYTES);
        spare.stock(2);
        assert_eq!(spare.held(), 2);
        spare.stock(100);
        assert_eq!(spare.held(), 3);
        let arena = Arena::new(5 * CHUNK_BYTES, &spare);
        assert!(arena.alloc(CHUNK_BYTES).is_some());
        assert_eq!(spare.held(), 2);
        spare.stock(1);
        assert_eq!(spare.held(), 2);
    }
}
