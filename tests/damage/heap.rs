//! How much memory is in use, counted in each thread by itself.
//!
//! A judgement runs in one thread from its beginning to its end, so what it takes is what the thread takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn add(bytes: usize) {
    // Not there any more while the thread ends.
    let _ = NOW.try_with(|now| {
        now.set(now.get().wrapping_add(bytes.cast_signed()));
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

fn take(bytes: usize) {
    let _ = NOW.try_with(|now| now.set(now.get().wrapping_sub(bytes.cast_signed())));
}

// SAFETY: everything is the system's; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        add(bytes);
        take(layout.size());
        // SAFETY: the caller's contract.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        take(layout.size());
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// From here on the peak is counted anew.
pub fn begin() {
    PEAK.set(NOW.get());
    START.set(NOW.get());
}

thread_local! {
    static START: Cell<isize> = const { Cell::new(0) };
}

/// The most bytes in use at once in this thread since [`begin`], beyond those that were in use then.
pub fn peak() -> usize {
    usize::try_from(PEAK.get() - START.get()).unwrap_or(0)
}
