//! The only file that names atomics, locks, epochs and thread parking.
//!
//! The lock-free core (`index`, `commit`) takes its primitives from here, so that the same source
//! runs on the machine, under [loom](https://docs.rs/loom) (every interleaving and every value the
//! memory model lets a load return) and under [shuttle](https://docs.rs/shuttle) (random schedules
//! of whole threads). The features `loom` and `shuttle` choose; both are for this crate's own tests.
//!
//! [`plain`] is always the standard library: for rooms that are not model-checked (the file system
//! simulators, the clock), whose objects may live longer than one run of a model.
//!
//! [`epoch`] is crossbeam's epoch reclamation.

/// Atomics and locks that are never replaced by a model checker's.
pub(crate) mod plain {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering,
    };
    pub(crate) use std::sync::{
        Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError,
    };

    /// Locks, ignoring that another thread may have panicked while it held the lock: the data
    /// behind these locks is consistent between any two statements.
    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks in the same way, if no other holds the lock just now.
    pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        match mutex.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Reference counts are not model-checked: they are the standard library's in every build.
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{Ordering, fence};
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub(crate) use std::thread::park_timeout;
pub(crate) use std::thread::{sleep, yield_now};

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod imp {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
    pub(crate) use std::thread::{Thread, current, park};

    /// `std::cell::UnsafeCell` with loom's interface: access goes through a closure, so that loom
    /// can see where it begins and ends and report a data race.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// A cell that holds `value`.
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Calls `f` with a pointer to read through.
        #[inline]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Calls `f` with a pointer to write through.
        #[inline]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(feature = "loom")]
mod imp {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
    pub(crate) use loom::thread::{Thread, current, park};
}

#[cfg(all(feature = "shuttle", not(feature = "loom")))]
mod imp {
    pub(crate) use shuttle::hint::spin_loop;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
    pub(crate) use shuttle::thread::{Thread, current, park};

    /// As in a plain build: shuttle does not look for data races.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// A cell that holds `value`.
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Calls `f` with a pointer to read through.
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Calls `f` with a pointer to write through.
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

pub(crate) use imp::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Thread, UnsafeCell, current, park, spin_loop,
};

/// A word that many threads write, apart from those that they only read.
pub(crate) use crossbeam_utils::CachePadded;

/// Epoch pins: what a pinned thread can reach is not freed before it unpins.
///
/// In every build crossbeam's own: the threads of a model all run on one thread of the system, which
/// is pinned while any of them is. What they retire is kept until their chain is dropped.
pub(crate) mod epoch {
    pub(crate) use crossbeam_epoch::{Atomic, Guard, Owned, Shared, pin};
}
