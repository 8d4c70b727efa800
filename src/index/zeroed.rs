//! An array of atomic words that are all zero when it is made.

use std::ops::Deref;

use crate::sync::{AtomicPtr, AtomicU64};

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
use super::arena::{populate, zeroed};
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
use memmap2::MmapMut;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
use std::{ptr::NonNull, slice};

/// What all zeros are a value of, and what a page is aligned for.
///
/// # Safety
/// Both must be so, and the type must need no dropping.
pub(super) unsafe trait Zero: Default {}

// SAFETY: it has the representation of a pointer, and all zeros is null.
unsafe impl<T> Zero for AtomicPtr<T> {}

// SAFETY: it has the representation of a number.
unsafe impl Zero for AtomicU64 {}

/// The array. It is memory of the system's, which comes zeroed, and by itself page by page as it is used.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
#[derive(Debug)]
pub(super) struct Zeroed<T> {
    start: NonNull<T>,
    count: usize,
    _memory: MmapMut,
}

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
impl<T: Zero> Zeroed<T> {
    /// `count` words. `present` says whether they are to have their memory at once, and not page by page.
    pub(super) fn new(count: usize, present: bool) -> Self {
        let mut memory = zeroed(count.saturating_mul(size_of::<T>()));
        if present {
            populate(&memory);
        }
        let start = memory.as_mut_ptr().cast();
        // SAFETY: a map is never at null.
        let start = unsafe { NonNull::new_unchecked(start) };
        Self { start, count, _memory: memory }
    }
}

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
impl<T: Zero> Deref for Zeroed<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `count` words lie there, aligned to a page, as long as the map. All zeros is a value of theirs
        // (`Zero`), and nobody has the map but this.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

#[cfg(any(feature = "loom", feature = "shuttle"))]
#[derive(Debug)]
pub(super) struct Zeroed<T>(Box<[T]>);

#[cfg(any(feature = "loom", feature = "shuttle"))]
impl<T: Zero> Zeroed<T> {
    pub(super) fn new(count: usize, _present: bool) -> Self {
        Self((0..count).map(|_| T::default()).collect())
    }
}

#[cfg(any(feature = "loom", feature = "shuttle"))]
impl<T> Deref for Zeroed<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}
