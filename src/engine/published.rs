//! A value that many threads read and a few replace, without a lock on either side.
//!
//! It exists for [`Tables`](super::tables::Tables): a reader must see generations and files of one
//! moment, never a flushed generation together with the files of before. So the whole is one
//! immutable value, and a change swaps it.
//!
//! Invariants:
//!
//! 1. A value is dropped after every guard is gone that was held when it was replaced.
//! 2. A thread stopped anywhere in [`Published::load`] or [`Published::update`] stops nobody else.
#![expect(unsafe_code, reason = "dereferences of epoch-protected pointers; see the SAFETY notes")]

use std::fmt;

use crate::sync::Ordering;
use crate::sync::epoch::{self, Atomic, Guard, Owned, Shared};

/// See the module.
pub(super) struct Published<T> {
    /// Never null.
    value: Atomic<T>,
}

impl<T: Send + Sync + 'static> Published<T> {
    /// Publishes the first value.
    pub(super) fn new(value: T) -> Self {
        Self { value: Atomic::new(value) }
    }

    /// The present value; it stays valid for as long as the guard is held.
    pub(super) fn load<'g>(&self, guard: &'g Guard) -> &'g T {
        let shared = self.value.load(Ordering::Acquire, guard);
        // SAFETY: never null, and a value that is replaced is destroyed only when no guard of that
        // time is left; Acquire pairs with the Release of the store that published it.
        unsafe { shared.deref() }
    }

    /// Replaces the value by `change` of it, again and again until nobody came between; `None`
    /// leaves it. Says whether it was replaced.
    pub(super) fn update(&self, guard: &Guard, mut change: impl FnMut(&T) -> Option<T>) -> bool {
        loop {
            let seen = self.value.load(Ordering::Acquire, guard);
            // SAFETY: as in `load`.
            let Some(next) = change(unsafe { seen.deref() }) else { return false };
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            let next = Owned::new(next);
            if self.value.compare_exchange(seen, next, success, failure, guard).is_ok() {
                // SAFETY: `seen` was just unlinked by this thread, once, and is reachable only
                // through guards of now or before.
                unsafe { guard.defer_destroy(seen) };
                // Values are few and large: they must not wait until this thread has retired more.
                guard.flush();
                return true;
            }
        }
    }

    /// Destroys replaced values, as far as no thread holds a guard just now. Without this they would
    /// wait until threads have come and gone often enough, with the space of removed files.
    pub(super) fn tidy() {
        // The epoch moves on by one at each, and what is two epochs old goes.
        for _ in 0..4 {
            epoch::pin().flush();
        }
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        let value = std::mem::replace(&mut self.value, Atomic::from(Shared::null()));
        // SAFETY: `&mut self`: no other thread can load it any more, and it is never null.
        drop(unsafe { value.into_owned() });
    }
}

impl<T> fmt::Debug for Published<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Published").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Arc;

    #[test]
    fn updates_of_many_threads_are_all_kept_and_nothing_leaks() {
        let witness = Arc::new(());
        let published = Published::new((0_u64, witness.clone()));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        let guard = epoch::pin();
                        let before = published.load(&guard).0;
                        assert!(published.update(&guard, |(n, w)| Some((n + 1, w.clone()))));
                        assert!(published.load(&guard).0 > before);
                    }
                });
            }
        });
        let guard = epoch::pin();
        assert_eq!(published.load(&guard).0, 4_000);
        assert!(!published.update(&guard, |_| None));
        drop(guard);
        drop(published);
        // A thread of another test may be pinned, and not have run for a while.
        let begun = std::time::Instant::now();
        while Arc::strong_count(&witness) > 1 {
            assert!(begun.elapsed().as_secs() < 120, "replaced values are not destroyed");
            epoch::pin().flush();
            std::thread::yield_now();
        }
    }
}
