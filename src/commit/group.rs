//! Group sync: how what is applied becomes durable, one batch at a time.
//!
//! There is one **sync role**. Whoever waits for durability and finds it free takes it, writes out
//! everything applied, and so makes its own commit and everybody's before it durable. Everybody
//! else pushes a waiter on a stack and sleeps. When the holder is done it looks at the waiters: the
//! ones now durable are woken, and the role passes to one of the others, if there are others, which
//! then writes out all that was ordered during the sync that has just ended. So one sync is in
//! flight at a time, the next batch stays open until the device is free, nobody waits for a timer,
//! and a lone client does all of it in its own thread.
//!
//! Who owns what:
//!
//! * `role` is taken by `swap(true)` that answers false, and given up by `swap(false)`, or handed on
//!   by setting a waiter's state to [`LEAD`]. Both ends are read-modify-writes. A plain store would
//!   let a waiter that pushed itself and then found the role taken go unseen: its `swap` must be
//!   ordered against the release, so that either it gets the role or the holder sees its push.
//! * `leader` belongs to the holder of the role.
//! * A waiter on the stack, or in `Leader::kept`, has one `Arc` count there; its owner has another.
//!
//! The role is never handed to a task (a [`Ticket`](super::Ticket) that is awaited), because a task
//! may be dropped, or not polled for a long time, and everybody would wait for it. If only tasks are
//! left, a background thread is asked to lead; if there is none, the holder goes on.
//!
//! After a failed append nothing more is written: the store is poisoned first, and then everyone
//! who waits learns that the outcome is unknown.

use std::ptr;
use std::task::Waker;

use super::chain::Chain;
use super::world::{BatchInfo, Log};
use crate::error::{Error, ErrorKind};
use crate::index::{Generation, Node, Position};
use crate::sync::epoch::{self, Guard};
use crate::sync::{
    Arc, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, Thread, UnsafeCell, current, park,
};

/// The sync role and all that belongs to it.
pub(super) struct Group {
    /// Seq of `durable`, for a quick look. May be behind it for a moment, never ahead.
    durable_seq: AtomicU64,
    /// The last durable node. Never ahead of `Chain::applied`; only moves forward.
    durable: AtomicPtr<Node>,
    /// Whether somebody has the sync role.
    role: AtomicBool,
    /// The stack of waiters, each an `Arc::into_raw`.
    waiters: AtomicPtr<Waiter>,
    /// The first failure, a leaked box; null while all is well. Set by the holder of the role.
    poison: AtomicPtr<Arc<str>>,
    /// Belongs to the holder of the role.
    leader: UnsafeCell<Leader>,
}

/// What the holder of the sync role works on.
struct Leader {
    log: Option<Box<dyn Log>>,
    /// The last node written out. The chain owns one count of its generation and of every later
    /// one, and of none before.
    synced: *const Node,
    /// Waiters that were not served by the holder that passed the role on.
    kept: Vec<Arc<Waiter>>,
    /// Under a model checker nothing is freed before the chain is.
    #[cfg(any(feature = "loom", feature = "shuttle"))]
    retired: Vec<Arc<Generation>>,
}

/// A thread or a task that waits for a position to be durable.
pub(super) struct Waiter {
    seq: u64,
    state: AtomicU32,
    /// The waiter below on the stack. Written before the push, read by who took the stack.
    next: UnsafeCell<*const Waiter>,
    sleeper: Sleeper,
}

enum Sleeper {
    Thread(Thread),
    Task(Waker),
}

/// Still waiting.
const WAITING: u32 = 0;
/// The holder of the role is through with this waiter: durable, or poisoned.
const SERVED: u32 = 1;
/// The role is handed to this waiter.
const LEAD: u32 = 2;

// SAFETY: `leader` is touched by the holder of the role alone, and the role passes with
// Acquire/Release; the node pointers lead into generations that the chain owns counts of.
unsafe impl Send for Group {}
// SAFETY: as above.
unsafe impl Sync for Group {}
// SAFETY: `next` is written before the waiter is shared and read by whoever took the stack.
unsafe impl Send for Waiter {}
// SAFETY: as above.
unsafe impl Sync for Waiter {}

impl Group {
    pub(super) fn new(start: *mut Node, seq: u64) -> Self {
        let leader = Leader {
            log: None,
            synced: start,
            kept: Vec::new(),
            #[cfg(any(feature = "loom", feature = "shuttle"))]
            retired: Vec::new(),
        };
        Self {
            durable_seq: AtomicU64::new(seq),
            durable: AtomicPtr::new(start),
            role: AtomicBool::new(false),
            waiters: AtomicPtr::new(ptr::null_mut()),
            poison: AtomicPtr::new(ptr::null_mut()),
            leader: UnsafeCell::new(leader),
        }
    }

    pub(super) fn durable_node<'g>(&self, _guard: &'g Guard) -> &'g Node {
        // SAFETY: never null; the chain keeps its generation until `durable` is past it and all
        // guards of that time are gone.
        unsafe { &*self.durable.load(Ordering::Acquire) }
    }

    pub(super) fn poison(&self) -> Option<Arc<str>> {
        // SAFETY: null, or a box that lives as long as the group.
        unsafe { self.poison.load(Ordering::Acquire).as_ref() }.cloned()
    }

    /// Whether the position is durable, as far as can be told at once: `Some(Err)` once it can no
    /// longer become so.
    pub(super) fn outcome(&self, position: Position) -> Option<Result<(), Error>> {
        if self.durable_seq.load(Ordering::Acquire) >= position.seq {
            return Some(Ok(()));
        }
        let cause = self.poison()?;
        // The batch that failed may not be the one that held the position: look again.
        if self.durable_seq.load(Ordering::Acquire) >= position.seq {
            return Some(Ok(()));
        }
        Some(Err(ErrorKind::OutcomeUnknown { revision: position.revision, cause }.into()))
    }

    /// Takes the role if it is free.
    pub(super) fn try_take(&self) -> bool {
        !self.role.swap(true, Ordering::AcqRel)
    }

    /// Whether nobody has the role, ordered after this thread's push: see the module.
    pub(super) fn is_idle(&self) -> bool {
        !self.role.fetch_or(false, Ordering::AcqRel)
    }

    pub(super) fn push(&self, waiter: &Arc<Waiter>) {
        let raw = Arc::into_raw(Arc::clone(waiter));
        let mut top = self.waiters.load(Ordering::Relaxed);
        loop {
            // SAFETY: not on the stack yet, so nobody else reads it.
            waiter.next.with_mut(|next| unsafe { *next = top });
            let new = raw.cast_mut();
            match self.waiters.compare_exchange(top, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(seen) => top = seen,
            }
        }
    }

    /// Takes the whole stack.
    fn take_waiters(&self, into: &mut Vec<Arc<Waiter>>) {
        let mut next = self.waiters.swap(ptr::null_mut(), Ordering::AcqRel).cast_const();
        while !next.is_null() {
            // SAFETY: each pointer on the stack is an `Arc::into_raw`, and the stack is ours now.
            let waiter = unsafe { Arc::from_raw(next) };
            // SAFETY: written before the push, and not again while it was on the stack.
            next = waiter.next.with(|next| unsafe { *next });
            into.push(waiter);
        }
    }

    /// Gives access to the leader's state.
    ///
    /// # Safety
    /// The caller holds the role, or nobody else can use the group.
    unsafe fn with_leader<R>(&self, f: impl FnOnce(&mut Leader) -> R) -> R {
        // SAFETY: by contract there is no other reference.
        self.leader.with_mut(|leader| f(unsafe { &mut *leader }))
    }

    /// Publishes `to` as durable, and gives up the generations before it.
    fn publish(&self, leader: &mut Leader, to: &Node, guard: &Guard) {
        let mut from = leader.synced;
        leader.synced = to;
        self.durable.store(ptr::from_ref(to).cast_mut(), Ordering::Release);
        self.durable_seq.store(to.position().seq, Ordering::Release);
        // SAFETY: nodes from the old `synced` on lie in generations the chain owns counts of.
        while let Some(generation) = unsafe { generation_before(&mut from, to) } {
            // SAFETY: the chain's count of that generation, given up once, as `synced` is past it.
            let generation = unsafe { Arc::from_raw(generation) };
            leader.retire(generation, guard);
        }
    }

    /// Gives up every generation, at the end of the chain's life.
    ///
    /// # Safety
    /// Nobody else uses the group or any node of the chain, and this is called once.
    pub(super) unsafe fn release_generations(&mut self) {
        // SAFETY: `&mut self`.
        let mut from = unsafe { self.with_leader(|leader| leader.synced) };
        let mut generations = Vec::new();
        loop {
            // SAFETY: nodes from `synced` on lie in generations the chain owns counts of.
            let node = unsafe { &*from };
            // SAFETY: as above; nothing is given back before the walk is over.
            match unsafe { node.next_owned() } {
                Some(link) => {
                    if link.opens_generation {
                        generations.push(ptr::from_ref(node.generation()));
                    }
                    from = link.node;
                }
                None => {
                    generations.push(ptr::from_ref(node.generation()));
                    break;
                }
            }
        }
        for generation in generations {
            // SAFETY: the chain's count, given up once.
            drop(unsafe { Arc::from_raw(generation) });
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut waiters = Vec::new();
        self.take_waiters(&mut waiters);
        let poison = self.poison.swap(ptr::null_mut(), Ordering::AcqRel);
        if !poison.is_null() {
            // SAFETY: a leaked box, taken out once.
            drop(unsafe { Box::from_raw(poison) });
        }
    }
}

impl Leader {
    #[cfg(not(any(feature = "loom", feature = "shuttle")))]
    #[expect(clippy::unused_self, reason = "under a model checker it is kept here")]
    fn retire(&mut self, generation: Arc<Generation>, guard: &Guard) {
        guard.defer(move || drop(generation));
    }

    #[cfg(any(feature = "loom", feature = "shuttle"))]
    fn retire(&mut self, generation: Arc<Generation>, _guard: &Guard) {
        self.retired.push(generation);
    }
}

/// Walks `from` towards `to` and answers the next generation that it leaves.
///
/// # Safety
/// `from` is a node of a generation the chain owns a count of, at or before `to`.
unsafe fn generation_before(from: &mut *const Node, to: &Node) -> Option<*const Generation> {
    while !ptr::eq(*from, to) {
        // SAFETY: the contract.
        let node = unsafe { &**from };
        // SAFETY: as above; the count of the generation is given back only after this step.
        let link = unsafe { node.next_owned() }?;
        *from = link.node;
        if link.opens_generation {
            return Some(ptr::from_ref(node.generation()));
        }
    }
    None
}

impl Waiter {
    pub(super) fn thread(seq: u64) -> Arc<Self> {
        Self::new(seq, Sleeper::Thread(current()))
    }

    pub(super) fn task(seq: u64, waker: Waker) -> Arc<Self> {
        Self::new(seq, Sleeper::Task(waker))
    }

    fn new(seq: u64, sleeper: Sleeper) -> Arc<Self> {
        let state = AtomicU32::new(WAITING);
        Arc::new(Self { seq, state, next: UnsafeCell::new(ptr::null()), sleeper })
    }

    fn is_thread(&self) -> bool {
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

    /// Sets the state and wakes the sleeper, which may be gone by then: `self` is our own count.
    fn wake(self: Arc<Self>, state: u32) {
        self.state.store(state, Ordering::Release);
        match &self.sleeper {
            Sleeper::Thread(thread) => thread.unpark(),
            Sleeper::Task(waker) => waker.wake_by_ref(),
        }
    }
}

impl Chain {
    /// Gives the chain its log: from now on waiting makes durable. Called once, before any wait.
    pub(crate) fn open_log(&self, log: Box<dyn Log>) {
        if self.group.try_take() {
            // SAFETY: the role was just taken.
            unsafe { self.group.with_leader(|leader| leader.log = Some(log)) };
            self.release();
        }
    }

    /// Makes everything applied durable and takes the log out. The caller sees to it that nobody
    /// commits any more; who waits still is told that the store is closed.
    pub(crate) fn close_log(&self) -> Result<Option<Box<dyn Log>>, Error> {
        loop {
            self.wait_durable(self.applied())?;
            if self.group.try_take() {
                // SAFETY: the role was just taken.
                let log = unsafe { self.group.with_leader(|leader| leader.log.take()) };
                self.release();
                return Ok(log);
            }
            std::thread::yield_now();
        }
    }

    /// Returns when everything up to `position` (which must have been ordered) is durable, leading
    /// the write-out if nobody else does.
    ///
    /// # Errors
    /// `OutcomeUnknown` when a write or sync failed first.
    pub(crate) fn wait_durable(&self, position: Position) -> Result<(), Error> {
        if let Some(outcome) = self.group.outcome(position) {
            return outcome;
        }
        if self.group.try_take() {
            self.lead();
            return self.outcome_after(position);
        }
        let waiter = Waiter::thread(position.seq);
        self.group.push(&waiter);
        // The holder may have looked at the stack before the push and released the role since.
        if self.group.try_take() {
            self.lead();
            return self.outcome_after(position);
        }
        loop {
            // Acquire pairs with the Release of `wake`: with LEAD the leader's state passes to us.
            match waiter.state.load(Ordering::Acquire) {
                WAITING => park(),
                LEAD => {
                    self.lead();
                    return self.outcome_after(position);
                }
                _ => return self.outcome_after(position),
            }
        }
    }

    /// Writes out what is applied and not yet durable, unless somebody is doing it. For the
    /// background worker: so Buffered commits become durable, and tasks that wait are served.
    /// Answers whether it led.
    ///
    /// # Errors
    /// `Poisoned` once a write or sync has failed.
    pub(crate) fn lead_once(&self) -> Result<bool, Error> {
        self.check_poison()?;
        let pending = {
            let guard = epoch::pin();
            let applied = self.applied_node(&guard).position().seq;
            applied > self.group.durable_node(&guard).position().seq
        };
        let led = pending && self.group.try_take();
        if led {
            self.lead();
        }
        self.check_poison()?;
        Ok(led)
    }

    /// Makes a replayed node, which is applied, the last durable one. Only the one thread that
    /// replays calls this; nobody waits for durability meanwhile.
    pub(super) fn publish_replayed(&self, node: &Node, guard: &Guard) {
        if self.group.try_take() {
            // SAFETY: the role was just taken.
            unsafe { self.group.with_leader(|leader| self.group.publish(leader, node, guard)) };
            self.release();
        }
    }

    pub(super) fn outcome_after(&self, position: Position) -> Result<(), Error> {
        // Without an outcome there is no log any more (or there never was one).
        self.group.outcome(position).unwrap_or_else(|| Err(ErrorKind::Closed.into()))
    }

    /// Leads: writes out, serves the waiters, and passes the role on or gives it up. The caller
    /// holds the role.
    pub(super) fn lead(&self) {
        loop {
            let open = self.write_out();
            let mut waiters = Vec::new();
            // SAFETY: this thread holds the role.
            unsafe {
                self.group.with_leader(|leader| waiters.append(&mut leader.kept));
            }
            self.group.take_waiters(&mut waiters);
            let durable = self.group.durable_seq.load(Ordering::Relaxed);
            let (mut rest, served): (Vec<_>, Vec<_>) =
                waiters.into_iter().partition(|waiter| open && waiter.seq > durable);
            if let Some(heir) = rest.iter().position(|waiter| waiter.is_thread()) {
                let heir = rest.swap_remove(heir);
                // SAFETY: this thread holds the role, until the next line gives it away.
                unsafe { self.group.with_leader(|leader| leader.kept = rest) };
                // The heir first: its write-out can begin while the others wake up.
                heir.wake(LEAD);
                served.into_iter().for_each(|waiter| waiter.wake(SERVED));
                return;
            }
            // Only tasks are left, if any. They go back on the stack for whoever leads next.
            rest.iter().for_each(|task| self.group.push(task));
            self.group.role.swap(false, Ordering::AcqRel);
            served.into_iter().for_each(|waiter| waiter.wake(SERVED));
            if self.group.waiters.load(Ordering::Acquire).is_null() {
                return;
            }
            if !rest.is_empty() && self.world.request_sync() {
                return;
            }
            if !self.group.try_take() {
                return;
            }
        }
    }

    /// Gives up the role, which this thread holds, without having written anything.
    fn release(&self) {
        self.group.role.swap(false, Ordering::AcqRel);
        // Who came meanwhile and found the role taken must not be left alone.
        if !self.group.waiters.load(Ordering::Acquire).is_null() && self.group.try_take() {
            self.lead();
        }
    }

    /// Makes everything applied durable. Answers whether more can be: not after a failure, and not
    /// without a log. The caller holds the role.
    fn write_out(&self) -> bool {
        // SAFETY: this thread holds the role.
        unsafe { self.group.with_leader(|leader| self.write_out_as(leader)) }
    }

    fn write_out_as(&self, leader: &mut Leader) -> bool {
        if !self.group.poison.load(Ordering::Acquire).is_null() {
            return false;
        }
        let Some(log) = leader.log.as_mut() else { return false };
        // Nobody but this thread gives up generations, and it keeps those from `synced` on: no guard
        // is needed during the sync, which may take long and would hold up reclamation.
        // SAFETY: the chain owns a count of the generation of `synced` and of all later ones.
        let synced = unsafe { &*leader.synced };
        let to = {
            let guard = epoch::pin();
            ptr::from_ref(self.catch_up(self.applied_node(&guard), &guard))
        };
        // SAFETY: as above.
        let to = unsafe { &*to };
        let (before, after) = (synced.position(), to.position());
        if after.seq > before.seq {
            let batch = BatchInfo {
                first_seq: before.seq + 1,
                last_seq: after.seq,
                last_revision: after.revision,
                durable_upto: before.seq,
            };
            let mut frames = Frames { node: synced, to };
            if let Err(error) = log.append(&mut frames, batch) {
                self.set_poison(&error);
                return false;
            }
        }
        self.group.publish(leader, to, &epoch::pin());
        true
    }

    /// Ends this store's writing. Nothing after `durable` is published as durable any more.
    fn set_poison(&self, error: &Error) {
        let cause: Box<Arc<str>> = Box::new(error.to_string().into());
        let cause = Box::into_raw(cause);
        let null = ptr::null_mut();
        let set =
            self.group.poison.compare_exchange(null, cause, Ordering::AcqRel, Ordering::Acquire);
        if set.is_err() {
            // SAFETY: not shared, as the exchange failed.
            drop(unsafe { Box::from_raw(cause) });
        }
    }
}

/// The frames after one node up to another, for the holder of the role.
struct Frames<'a> {
    node: &'a Node,
    to: &'a Node,
}

impl<'a> Iterator for Frames<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !ptr::eq(self.node, self.to) {
            // SAFETY: the nodes from `synced` to `to` lie in generations the chain owns counts of,
            // and only the holder of the role, which drives this iterator, gives those up.
            self.node = unsafe { self.node.next_owned() }?.node;
            if !self.node.is_root() {
                return Some(self.node.frame());
            }
        }
        None
    }
}
