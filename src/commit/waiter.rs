//! Who waits for durability, threads and tasks, on a lock-free stack; and how threads are woken.
//!
//! To wake a thread takes some microseconds. If whoever has synced woke 64 threads itself, it could not commit
//! again for as long as a sync takes. So it wakes a few, and each thread that is woken wakes one more before it
//! does anything else ([`serve`]). The price: a thread wakes only once all before it in its chain have been
//! scheduled.
//!
//! No thread may be lost on the way. One that is on the stack may find the sync role free and take it instead of
//! sleeping; it never looks at its waiter again, and the thread after it would sleep for ever. So it says so
//! ([`Waiter::leads`]), by an exchange of the word by which it is served: whichever of the two exchanges comes
//! second wakes the thread after it.

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
    /// Whether a thread waits for an answer that only read: of a compare that failed, as a rule. Not known of
    /// tasks.
    pub(super) read_only: bool,
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

// SAFETY: `next` is written by the owner before the push. Then it belongs to whoever took the stack, until that
// serves the waiter; then to the one that gets to `wake_next`. Everything else is shareable by itself.
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
            // Acquire pairs with the Release of `wake`: with LEAD the leader's state passes to us, with SERVED
            // `next`.
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
        // Acquire pairs with the Release of `wake`, so that `next` is seen.
        if self.state.swap(AWAY, Ordering::Acquire) == SERVED {
            self.wake_next();
        }
    }

    /// Sets the state and wakes the sleeper; of a thread that is away, the one after it. The owner may
    /// be gone a moment later; `self` is the waker's own count.
    pub(super) fn wake(self: Arc<Self>, woken: Woken) {
        let state = match woken {
            Woken::Served => SERVED,
            Woken::Lead => LEAD,
        };
        let before = self.state.swap(state, Ordering::Release);
        // Who is away took the role when it was free, so nobody else had it to hand on; and to itself it does
        // not: it looks at the stack after its own write-out, by which its position is durable, or the store
        // poisoned or closed.
        debug_assert!((before, state) != (AWAY, LEAD), "the role would be lost");
        match &self.sleeper {
            // It calls this again, but not deep: each that is away has had the role since, one after the other.
            Sleeper::Thread(_) if before == AWAY => self.wake_next(),
            Sleeper::Thread(thread) => thread.unpark(),
            Sleeper::Task(waker) => waker.wake_by_ref(),
        }
    }

    /// Wakes the thread after this one, if there is one.
    fn wake_next(&self) {
        // SAFETY: exactly one comes here: `wake`, if its exchange finds `AWAY`; `leads`, if its exchange finds
        // `SERVED`; `sleep`, if its owner was never away. What wrote `next` is ordered before each: for `wake`
        // by the thread itself or by its own Acquire, for the others by the Acquire that finds `SERVED`.
        let next = self.next.with_mut(|next| mem::replace(unsafe { &mut *next }, ptr::null()));
        if !next.is_null() {
            // SAFETY: of a waiter that is served it is an `Arc::into_raw` by `serve`, taken out once.
            unsafe { Arc::from_raw(next) }.wake(Woken::Served);
        }
    }
}

/// Wakes threads that were taken off the stack, `chains` of them at once; each of these wakes one more, and so
/// on. `threads` is newest first, as the stack gives them; the oldest are woken first.
pub(super) fn serve(threads: Vec<Arc<Waiter>>, chains: usize) {
    // Who waits behind another in its chain is `chains` places newer.
    for (after, before) in threads.iter().zip(threads.iter().skip(chains)) {
        let after = Arc::into_raw(Arc::clone(after));
        // SAFETY: whoever took the stack owns `next` until it serves the waiter.
        before.next.with_mut(|next| unsafe { *next = after });
    }
    for head in threads.into_iter().rev().take(chains) {
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
            // SAFETY: the stack is ours, and so is `next` of what was on it.
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
