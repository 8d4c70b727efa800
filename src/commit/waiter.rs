//! Who waits for durability, threads and tasks, on a lock-free stack.

use std::ptr;
use std::task::Waker;

use crate::sync::{Arc, AtomicPtr, AtomicU32, Ordering, Thread, UnsafeCell, current, park};

/// A thread or a task that waits for a position to be durable.
///
/// One `Arc` count belongs to its owner, another to the stack, or to whoever took it from there.
pub(super) struct Waiter {
    /// What it waits for.
    pub(super) seq: u64,
    /// [`WAITING`], then once [`SERVED`] or [`LEAD`].
    state: AtomicU32,
    /// The waiter below on the stack. Written before a push, read by who takes the stack.
    next: UnsafeCell<*const Self>,
    sleeper: Sleeper,
}

enum Sleeper {
    Thread(Thread),
    Task(Waker),
}

/// What a waiting thread was woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// The holder of the sync role is through with it: durable, poisoned or closed.
    Served,
    /// It holds the sync role now, and is not on the stack.
    Lead,
}

const WAITING: u32 = 0;
const SERVED: u32 = 1;
const LEAD: u32 = 2;

// SAFETY: `next` is written before the waiter is on the stack, and read by the one who took the
// whole stack; everything else is shareable by itself.
unsafe impl Send for Waiter {}
// SAFETY: as above.
unsafe impl Sync for Waiter {}

impl Waiter {
    /// The calling thread.
    pub(super) fn thread(seq: u64) -> Arc<Self> {
        Self::new(seq, Sleeper::Thread(current()))
    }

    /// A task that `waker` wakes.
    pub(super) fn task(seq: u64, waker: Waker) -> Arc<Self> {
        Self::new(seq, Sleeper::Task(waker))
    }

    fn new(seq: u64, sleeper: Sleeper) -> Arc<Self> {
        let state = AtomicU32::new(WAITING);
        Arc::new(Self { seq, state, next: UnsafeCell::new(ptr::null()), sleeper })
    }

    pub(super) fn is_thread(&self) -> bool {
        matches!(self.sleeper, Sleeper::Thread(_))
    }

    /// Whether the holder of the role is through with this waiter.
    pub(super) fn is_served(&self) -> bool {
        self.state.load(Ordering::Acquire) == SERVED
    }

    /// Whether the waiter is a task that would wake `waker`.
    pub(super) fn wakes(&self, waker: &Waker) -> bool {
        matches!(&self.sleeper, Sleeper::Task(own) if own.will_wake(waker))
    }

    /// Sleeps, in the thread that made this, until somebody wakes it.
    pub(super) fn sleep(&self) -> Woken {
        loop {
            // Acquire pairs with the Release of `wake`: with LEAD the leader's state passes to us.
            match self.state.load(Ordering::Acquire) {
                WAITING => park(),
                LEAD => return Woken::Lead,
                _ => return Woken::Served,
            }
        }
    }

    /// Sets the state and wakes the sleeper. The owner may be gone a moment later; `self` is the
    /// waker's own count.
    pub(super) fn wake(self: Arc<Self>, woken: Woken) {
        let state = match woken {
            Woken::Served => SERVED,
            Woken::Lead => LEAD,
        };
        self.state.store(state, Ordering::Release);
        match &self.sleeper {
            Sleeper::Thread(thread) => thread.unpark(),
            Sleeper::Task(waker) => waker.wake_by_ref(),
        }
    }
}

/// A Treiber stack that is only ever taken whole, so that nothing can come back under a pop.
pub(super) struct Stack {
    /// The newest waiter, an `Arc::into_raw`; null when there is none.
    top: AtomicPtr<Waiter>,
}

impl Stack {
    pub(super) fn new() -> Self {
        Self { top: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Pushes a waiter that is not on the stack.
    pub(super) fn push(&self, waiter: &Arc<Waiter>) {
        let raw = Arc::into_raw(Arc::clone(waiter)).cast_mut();
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            // SAFETY: not on the stack yet, so nobody else touches `next`.
            waiter.next.with_mut(|next| unsafe { *next = top });
            match self.top.compare_exchange(top, raw, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(seen) => top = seen,
            }
        }
    }

    /// Takes everything, newest first.
    pub(super) fn take(&self, into: &mut Vec<Arc<Waiter>>) {
        let mut next = self.top.swap(ptr::null_mut(), Ordering::AcqRel).cast_const();
        while !next.is_null() {
            // SAFETY: each pointer on the stack is an `Arc::into_raw`, and the stack is ours now.
            let waiter = unsafe { Arc::from_raw(next) };
            // SAFETY: written before the push, and not again while it was on the stack.
            next = waiter.next.with(|next| unsafe { *next });
            into.push(waiter);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.top.load(Ordering::Acquire).is_null()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.take(&mut Vec::new());
    }
}
