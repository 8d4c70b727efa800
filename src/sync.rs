//! The only file that names atomics and locks.
//!
//! [`plain`] is always the standard library: for rooms that are not model-checked (the file system
//! simulators, the clock), whose objects may live longer than one run of a model.

/// Atomics and locks that are never replaced by a model checker's.
pub(crate) mod plain {
    pub(crate) use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
    pub(crate) use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

    /// Locks, ignoring that another thread may have panicked while it held the lock: the data
    /// behind these locks is consistent between any two statements.
    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
