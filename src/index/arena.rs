//! A bump allocator that any number of threads share, given back whole.
//!
//! It exists because a generation's keys, versions, nodes and frames die together, and because an
//! allocation must never wait for another thread: the fast path is one `fetch_add`, and a full
//! chunk is followed by a new one installed by CAS (the loser gives its own back and takes the winner's).
//!
//! Invariants:
//!
//! 1. The chunks' sizes add up to at most the budget.
//! 2. Every allocation is aligned to [`ALIGN`] and lies wholly inside one chunk.
//! 3. `Chunk::used` may run past the chunk's size: then the chunk is full.
//!
//! The atomics here are always the standard library's. Modelling an allocator's counter would
//! multiply the interleavings of every model without showing anything about the chain.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::{self, NonNull};

use super::spare::Spare;
use crate::sync::Arc;
use crate::sync::plain::{AtomicPtr, AtomicUsize, Ordering};

#[cfg(target_os = "linux")]
use memmap2::Advice;
use memmap2::{MmapMut, MmapOptions};

/// Alignment of every allocation: a cache line, so that versions do not straddle two.
pub(super) const ALIGN: usize = 64;

/// Size of a chunk unless one allocation needs more: a huge page, where the system has those.
pub(super) const CHUNK_BYTES: usize = 2 << 20;

/// Size of the first chunk: a small store needs no more.
pub(crate) const FIRST_CHUNK_BYTES: usize = 512 << 10;

/// The allocator. Its memory goes to the spare chunks when it is dropped.
#[derive(Debug)]
pub(super) struct Arena {
    /// The chunk to try first. Only moves forward along `Chunk::next`.
    current: AtomicPtr<Chunk>,
    /// The first chunk: from here all are reached, and freed.
    first: NonNull<Chunk>,
    budget_bytes: usize,
    spare: Arc<Spare>,
}

#[derive(Debug)]
pub(super) struct Chunk {
    base: NonNull<u8>,
    bytes: usize,
    /// Sum of the sizes of the chunks before this one.
    before: usize,
    used: AtomicUsize,
    next: AtomicPtr<Self>,
    /// What `base` points to. Memory of the system's, not of the allocator's: a generation's comes
    /// back whole when it is flushed, whatever small things were allocated in between.
    _memory: MmapMut,
}

// SAFETY: chunks are shared through atomics only, and the memory handed out belongs to the caller.
unsafe impl Send for Arena {}
// SAFETY: as above; `alloc` takes `&self` and hands out disjoint ranges.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena that hands out at most `budget_bytes`.
    pub(super) fn new(budget_bytes: usize, spare: &Arc<Spare>) -> Self {
        let budget_bytes = budget_bytes.max(ALIGN).next_multiple_of(ALIGN);
        let first = Chunk::new(FIRST_CHUNK_BYTES.min(budget_bytes), 0);
        let current = AtomicPtr::new(first.as_ptr());
        Self { current, first, budget_bytes, spare: Arc::clone(spare) }
    }

    /// `bytes` bytes of memory aligned to [`ALIGN`], or `None` when the budget is spent. It is initialised
    /// (the system zeroes it once), but holds whatever was there before.
    pub(super) fn alloc(&self, bytes: usize) -> Option<NonNull<u8>> {
        let bytes = Self::rounded(bytes)?;
        let mut chunk = self.current_chunk();
        loop {
            // The check before the `fetch_add` keeps `used` from growing without bound, and what is too
            // large for the rest of a chunk from taking it.
            let fits = |used: usize| used.checked_add(bytes).is_some_and(|end| end <= chunk.bytes);
            if fits(chunk.used.load(Ordering::Relaxed)) {
                // Acquire pairs with the Release of `give_back`: the memory may have been used before.
                let start = chunk.used.fetch_add(bytes, Ordering::Acquire);
                if fits(start) {
                    // SAFETY: `start + bytes <= chunk.bytes`, the size of the allocation at `base`.
                    return Some(unsafe { chunk.base.add(start) });
                }
            }
            chunk = self.following(chunk, bytes)?;
        }
    }

    /// Takes back the memory of a transaction that was not linked, if nothing was allocated after
    /// it. `start` and `bytes` must be those of one earlier `alloc` whose memory is no longer used.
    pub(super) fn give_back(&self, start: NonNull<u8>, bytes: usize) {
        let Some(bytes) = Self::rounded(bytes) else { return };
        let chunk = self.current_chunk();
        let offset = start.addr().get().wrapping_sub(chunk.base.addr().get());
        if offset < chunk.bytes {
            // `used == offset + bytes` says that ours is the last allocation of this chunk, whatever
            // happened between: anything after it would have moved `used` on.
            let _ = chunk.used.compare_exchange(
                offset + bytes,
                offset,
                Ordering::Release,
                Ordering::Relaxed,
            );
        }
    }

    /// Bytes handed out, the unused ends of full chunks included.
    pub(super) fn bytes_used(&self) -> usize {
        let chunk = self.current_chunk();
        chunk.before + chunk.used.load(Ordering::Relaxed).min(chunk.bytes)
    }

    /// What one allocation of `bytes` takes from the budget.
    pub(super) fn rounded(bytes: usize) -> Option<usize> {
        bytes.max(1).checked_next_multiple_of(ALIGN)
    }

    fn current_chunk(&self) -> &Chunk {
        // SAFETY: `current` always points to a chunk of this arena, and chunks live as long as it.
        // Acquire pairs with the Release that installed the chunk, so its fields are visible.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// The chunk after `chunk`, made if there is none and the budget allows it.
    fn following<'a>(&'a self, chunk: &'a Chunk, bytes: usize) -> Option<&'a Chunk> {
        let mut next = chunk.next.load(Ordering::Acquire);
        if next.is_null() {
            let before = chunk.before + chunk.bytes;
            let left = self.budget_bytes - before;
            if bytes > left {
                return None;
            }
            let wanted = CHUNK_BYTES.max(bytes).min(left);
            let spare = if wanted == CHUNK_BYTES { self.spare.take(before) } else { None };
            let made = spare.unwrap_or_else(|| Chunk::new(wanted, before));
            next = match chunk.next.compare_exchange(
                ptr::null_mut(),
                made.as_ptr(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => made.as_ptr(),
                Err(theirs) => {
                    // SAFETY: `made` was never shared: the CAS that would have done so failed.
                    unsafe { self.spare.give(made) };
                    theirs
                }
            };
        }
        // Failure means that another thread moved `current` on already.
        let from = ptr::from_ref(chunk).cast_mut();
        let _ = self.current.compare_exchange(from, next, Ordering::Release, Ordering::Relaxed);
        // SAFETY: `next` is a chunk of this arena: just installed, or loaded with Acquire.
        Some(unsafe { &*next })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let mut next = self.first.as_ptr();
        while let Some(chunk) = NonNull::new(next) {
            // SAFETY: `&mut self`: no other thread uses the arena, so the list is ours to read.
            next = unsafe { chunk.as_ref() }.next.load(Ordering::Acquire);
            // SAFETY: each chunk is in the list once, and is not used again.
            unsafe { self.spare.give(chunk) };
        }
    }
}

impl Chunk {
    pub(super) fn new(bytes: usize, before: usize) -> NonNull<Self> {
        let mut memory = zeroed(bytes);
        populate(&memory);
        debug_assert!(memory.len() == bytes && memory.as_ptr().addr().is_multiple_of(ALIGN));
        // SAFETY: a map is never at null.
        let base = unsafe { NonNull::new_unchecked(memory.as_mut_ptr()) };
        let next = AtomicPtr::new(ptr::null_mut());
        let used = AtomicUsize::new(0);
        let chunk = Box::new(Self { base, bytes, before, used, next, _memory: memory });
        // SAFETY: a box is never null.
        unsafe { NonNull::new_unchecked(Box::into_raw(chunk)) }
    }

    /// Whether the chunk has the size that all have but the first and last of an arena, and those made
    /// for one large allocation.
    pub(super) const fn is_usual(&self) -> bool {
        self.bytes == CHUNK_BYTES
    }

    /// Empties the chunk, for an arena that has handed out `before` bytes.
    pub(super) fn reset(&mut self, before: usize) {
        self.before = before;
        self.used = AtomicUsize::new(0);
        self.next = AtomicPtr::new(ptr::null_mut());
    }

    /// # Safety
    /// `chunk` came from [`Chunk::new`], and nothing uses it or its memory any more.
    pub(super) unsafe fn free(chunk: NonNull<Self>) {
        // SAFETY: made by `Box::into_raw` in `new`, and freed once, by contract.
        drop(unsafe { Box::from_raw(chunk.as_ptr()) });
    }
}

/// Memory of the system's, all zero, of which no page is there yet.
pub(super) fn zeroed(bytes: usize) -> MmapMut {
    MmapOptions::new().len(bytes).map_anon().unwrap_or_else(|_| {
        handle_alloc_error(Layout::array::<u8>(bytes).unwrap_or(Layout::new::<u8>()))
    })
}

/// Makes the pages of a map present, as huge ones if that is possible: one call costs less than a
/// fault for every page, and a huge page less than 512 small ones. What the system cannot do it leaves
/// to the faults.
#[cfg(target_os = "linux")]
pub(super) fn populate(memory: &MmapMut) {
    if memory.len() >= CHUNK_BYTES {
        let _ = memory.advise(Advice::HugePage);
    }
    let _ = memory.advise(Advice::PopulateWrite);
}

#[cfg(not(target_os = "linux"))]
pub(super) fn populate(_: &MmapMut) {}

#[cfg(all(test, not(any(feature = "loom", feature = "shuttle"))))]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_aligned_disjoint_and_bounded() {
        let arena = Arena::new(3 * CHUNK_BYTES, &Spare::new(0));
        let mut ranges = Vec::new();
        let mut total = 0;
        for bytes in (1..).step_by(997) {
            let Some(start) = arena.alloc(bytes) else { break };
            assert_eq!(start.addr().get() % ALIGN, 0);
            // SAFETY: the range was just handed out and holds `bytes` bytes.
            unsafe { start.as_ptr().write_bytes(7, bytes) };
            ranges.push((start.addr().get(), bytes));
            total += bytes;
        }
        assert!(total > 2 * CHUNK_BYTES && arena.bytes_used() <= 3 * CHUNK_BYTES);
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    }

    #[test]
    fn one_allocation_may_be_larger_than_a_chunk() {
        let arena = Arena::new(10 * CHUNK_BYTES, &Spare::new(0));
        assert!(arena.alloc(100).is_some());
        assert!(arena.alloc(8 * CHUNK_BYTES).is_some());
        assert!(arena.alloc(2 * CHUNK_BYTES).is_none());
        assert!(arena.alloc(CHUNK_BYTES / 2).is_some());
    }

    #[test]
    fn only_the_last_allocation_can_be_given_back() {
        let arena = Arena::new(CHUNK_BYTES, &Spare::new(0));
        let first = arena.alloc(100).expect("room");
        let second = arena.alloc(100).expect("room");
        arena.give_back(first, 100);
        assert_eq!(arena.bytes_used(), 256);
        arena.give_back(second, 100);
        assert_eq!(arena.bytes_used(), 128);
        arena.give_back(first, 100);
        assert_eq!(arena.bytes_used(), 0);
    }

    #[test]
    fn what_finds_no_room_takes_none() {
        let arena = Arena::new(FIRST_CHUNK_BYTES, &Spare::new(0));
        assert!(arena.alloc(FIRST_CHUNK_BYTES - 128).is_some());
        assert!(arena.alloc(256).is_none());
        assert_eq!(arena.bytes_used(), FIRST_CHUNK_BYTES - 128);
        assert!(arena.alloc(128).is_some());
    }

    #[test]
    fn threads_share_chunks() {
        let arena = Arena::new(64 * CHUNK_BYTES, &Spare::new(0));
        let mut ranges: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let take = |_| arena.alloc(200).expect("room").addr().get();
                        (0..20_000).map(take).collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0] + 256 <= pair[1]));
    }
}
