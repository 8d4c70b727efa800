//! Wakers of tasks that do what a waker should not.

use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread;

use annals::Store;

/// Panics when it is woken, and when it is dropped.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics, as this test wants it");
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        assert!(thread::panicking(), "a waker that panics when dropped, as this test wants it");
    }
}

pub fn panics() -> Waker {
    Waker::from(Arc::new(Panics))
}

/// What a task may own that nobody but its waker keeps.
struct Keeps {
    _store: Mutex<Option<Store>>,
}

impl Wake for Keeps {
    fn wake(self: Arc<Self>) {}
}

pub fn keeps(store: Store) -> Waker {
    Waker::from(Arc::new(Keeps { _store: Mutex::new(Some(store)) }))
}
