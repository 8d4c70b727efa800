//! Who waits for durability, threads and tasks, on a lock-free stack; and how threads are woken.
//!
//! To wake a thread takes some microseconds of the one that does it, and of a processor that would
//! otherwise be the next commit's. With 64 threads that wait, the one whose sync is done would be
//! at it for as long as a sync takes before it could commit again. So it wakes a few, each of which
//! wakes the next before it does anything else ([`serve`]): the work is spread, and no more threads
//! are runnable at a time than there are processors for.
//!
//! What that must not do is to lose somebody. A thread that is on the stack may take the sync role
//! itself in place of sleeping, and never look at its waiter again; one that is to be woken after
//! it would sleep for ever. So it says so ([`Waiter::leads`]), by an exchange of the same word by which it is
//! served: of the two, who comes second wakes the next.

use std::collections::VecDeque;
use std::mem;
use std::ptr;
use std::task::Waker;

use crate::sync::{Arc, AtomicPtr, AtomicU32, Ordering, Thread, UnsafeCell, current, park};

/// A thread or a task that waits for a position to be durable.
///
/// One `Arc` count belongs to its owner, another to the stack, or to whoever took it from there.
pub(super) struct Waiter {
    /// What it waits for.
    pub(super) seq: u64,
    /// Whether what waits only read: a compare that failed, as a rule.
    read_only: bool,
    /// [`WAITING`], then once [`SERVED`] or [`LEAD`]; of a thread that leads unasked [`AWAY`], and
    /// [`SERVED`] before or after it.
    state: AtomicU32,
    /// On the stack the waiter below. Written before a push, read by who takes the stack. From then
    /// on null, or a count of the thread to be woken after this one: written before `state` says
    /// `SERVED`, taken out once by who wakes it.
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
const AWAY: u32 = 3;

// SAFETY: `next` is written before the waiter is on the stack, and read by the one who took the
// whole stack; that one writes it again before it serves the waiter, and of the owner and who serves
// it, one reads that: see `leads`. Everything else is shareable by itself.
unsafe impl Send for Waiter {}
// SAFETY: as above.
unsafe impl Sync for Waiter {}

impl Waiter {
    /// The calling thread.
    pub(super) fn thread(seq: u64, read_only: bool) -> Arc<Self> {
        Self::new(seq, read_only, Sleeper::Thread(current()))
    }

    /// A task that `waker` wakes.
    pub(super) fn task(seq: u64, waker: Waker) -> Arc<Self> {
        Self::new(seq, false, Sleeper::Task(waker))
    }

    fn new(seq: u64, read_only: bool, sleeper: Sleeper) -> Arc<Self> {
        let state = AtomicU32::new(WAITING);
        Arc::new(Self { seq, read_only, state, next: UnsafeCell::new(ptr::null()), sleeper })
    }

    pub(super) fn is_thread(&self) -> bool {
        matches!(self.sleeper, Sleeper::Thread(_))
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether the holder of the role is through with this waiter.
    pub(super) fn is_served(&self) -> bool {
        self.state.load(Ordering::Acquire) == SERVED
    }

    /// Whether the waiter is a task that would wake `waker`.
    pub(super) fn wakes(&self, waker: &Waker) -> bool {
        matches!(&self.sleeper, Sleeper::Task(own) if own.will_wake(waker))
    }

    /// Sleeps, in the thread that made this, until somebody wakes it. If it was served it has woken
    /// the thread after it when this returns.
    pub(super) fn sleep(&self) -> Woken {
        loop {
            // Acquire pairs with the Release of `wake`: with LEAD the leader's state passes to us.
            match self.state.load(Ordering::Acquire) {
                WAITING => park(),
                LEAD => return Woken::Lead,
                _ => break,
            }
        }
        self.wake_next();
        Woken::Served
    }

    /// Says, in the thread that made and pushed this, that it has taken the sync role itself and will
    /// not sleep.
    pub(super) fn leads(&self) {
        // Acquire pairs with the Release of `wake`, as in `sleep`.
        if self.state.swap(AWAY, Ordering::Acquire) == SERVED {
            self.wake_next();
        }
    }

    /// Sets the state and wakes the sleeper; of a thread that is away, the one after it. The owner may
    /// be gone a moment later; `self` is the waker's own count.
    pub(super) fn wake(self: Arc<Self>, woken: Woken) {
        let (mut waiter, mut state) = match woken {
            Woken::Served => (self, SERVED),
            Woken::Lead => (self, LEAD),
        };
        loop {
            let before = waiter.state.swap(state, Ordering::Release);
            // Who is away took the role when it was free: nobody had it to hand on.
            debug_assert!((before, state) != (AWAY, LEAD), "the role would be lost");
            match &waiter.sleeper {
                Sleeper::Thread(_) if before == AWAY => {}
                Sleeper::Thread(thread) => return thread.unpark(),
                Sleeper::Task(waker) => return waker.wake_by_ref(),
            }
            let Some(next) = waiter.take_next() else { return };
            (waiter, state) = (next, SERVED);
        }
    }

    /// Wakes the thread after this one, if there is one.
    fn wake_next(&self) {
        if let Some(next) = self.take_next() {
            next.wake(Woken::Served);
        }
    }

    /// Takes out the thread to be woken after this one: who serves this, if its owner was away before, else
    /// the owner.
    fn take_next(&self) -> Option<Arc<Self>> {
        // SAFETY: one of two comes here, and what was written before the waiter was served is ordered
        // before this: by the exchange, or by the load that found `SERVED`.
        let next = self.next.with_mut(|next| mem::replace(unsafe { &mut *next }, ptr::null()));
        // SAFETY: of a waiter that is served it is an `Arc::into_raw` by `serve`, taken out once.
        (!next.is_null()).then(|| unsafe { Arc::from_raw(next) })
    }
}

/// Wakes threads that were taken off the stack: those at the head of `chains` chains, in which each
/// wakes the one after it. `threads` is newest first, as the stack gives them; the oldest are woken first.
pub(super) fn serve(threads: Vec<Arc<Waiter>>, chains: usize) {
    // Who is alone allocates nothing.
    let mut heads = VecDeque::with_capacity(chains.min(threads.len()));
    for waiter in threads {
        if heads.len() >= chains
            && let Some(after) = heads.pop_front()
        {
            // SAFETY: whoever took the stack owns `next` until it serves the waiter.
            waiter.next.with_mut(|next| unsafe { *next = Arc::into_raw(after) });
        }
        heads.push_back(waiter);
    }
    for head in heads {
        head.wake(Woken::Served);
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
            next = waiter.next.with_mut(|next| mem::replace(unsafe { &mut *next }, ptr::null()));
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
