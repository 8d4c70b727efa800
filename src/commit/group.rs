//! Group sync: how what is applied becomes durable, one batch at a time.
//!
//! There is one **sync role**. Whoever waits for durability and finds it free takes it, writes out
//! everything applied, and so makes its own commit and everybody's before it durable. Everybody
//! else pushes a waiter on a stack and sleeps. When the holder is done it looks at the waiters. It
//! wakes those that are durable now (a few, which wake the rest: see `waiter`), and hands the role to
//! one that is not, if there is one. That one then writes out all that was ordered during the sync
//! that has just ended. So one sync is in flight at a time, the next batch stays open until the
//! device is free, nobody waits for a timer, and a lone client does all of it in its own thread.
//!
//! Who owns what:
//!
//! * `role` is taken by `swap(true)` that answers false, and given up by `swap(false)`, or handed on
//!   by waking a waiter to lead. Both ends are read-modify-writes. A plain store would
//!   let a waiter that pushed itself and then found the role taken go unseen: its `swap` must be
//!   ordered against the release, so that either it gets the role or the holder sees its push.
//! * `leader` belongs to the holder of the role.
//!
//! The role is never handed to a task (a [`Ticket`](super::Ticket) that is awaited), because a task
//! may be dropped, or not polled for a long time, and everybody would wait for it. If only tasks are
//! left, a background thread is asked to lead; if there is none, the holder goes on.
//!
//! After a failed append nothing more is written: the store is poisoned first, and then everyone
//! who waits learns that the outcome is unknown.

use std::ptr;

use super::waiter::{Stack, Waiter};
use super::world::Log;
use crate::error::{Error, ErrorKind};
use crate::index::{Generation, Node, Position};
use crate::sync::epoch::Guard;
use crate::sync::{Arc, AtomicBool, AtomicPtr, AtomicU64, Ordering, UnsafeCell};

/// The sync role and all that belongs to it.
pub(super) struct Group {
    /// Seq of `durable`, for a quick look. May be behind it for a moment, never ahead.
    durable_seq: AtomicU64,
    /// The last durable node. Never ahead of `Chain::applied`; only moves forward.
    durable: AtomicPtr<Node>,
    /// Whether somebody has the sync role.
    role: AtomicBool,
    /// Who waits and is not in `Leader::kept`.
    pub(super) waiters: Stack,
    /// The first failure, a leaked box; null while all is well. Set by the holder of the role.
    poison: AtomicPtr<Arc<Error>>,
    /// Belongs to the holder of the role.
    leader: UnsafeCell<Leader>,
}

/// What the holder of the sync role works on.
pub(super) struct Leader {
    pub(super) log: Option<Box<dyn Log>>,
    /// The last node written out. The chain owns one count of its generation and of every later
    /// one, and of none before.
    pub(super) synced: *const Node,
    /// Waiters that were not served by the holder that passed the role on, or that gave it up when
    /// only tasks were left.
    pub(super) kept: Vec<Arc<Waiter>>,
    /// Under a model checker nothing is freed before the chain is.
    #[cfg(any(feature = "loom", feature = "shuttle"))]
    retired: Vec<Arc<Generation>>,
}

// SAFETY: `leader` is touched by the holder of the role alone, and the role passes with
// Acquire/Release; the node pointers lead into generations that the chain owns counts of.
unsafe impl Send for Group {}
// SAFETY: as above.
unsafe impl Sync for Group {}
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
            waiters: Stack::new(),
            poison: AtomicPtr::new(ptr::null_mut()),
            leader: UnsafeCell::new(leader),
        }
    }

    /// Seq of the last durable frame, for the holder of the role.
    pub(super) fn durable_seq(&self) -> u64 {
        self.durable_seq.load(Ordering::Relaxed)
    }

    pub(super) fn durable_node<'g>(&self, _guard: &'g Guard) -> &'g Node {
        // SAFETY: never null; the chain keeps its generation until `durable` is past it and all
        // guards of that time are gone.
        unsafe { &*self.durable.load(Ordering::Acquire) }
    }

    pub(super) fn is_poisoned(&self) -> bool {
        !self.poison.load(Ordering::Acquire).is_null()
    }

    pub(super) fn poison(&self) -> Option<Arc<Error>> {
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

    /// Gives up the role, which the caller holds. See the module for why this is no plain store.
    pub(super) fn give_up(&self) {
        self.role.swap(false, Ordering::AcqRel);
    }

    /// Ends this store's writing. Called by the holder of the role.
    pub(super) fn set_poison(&self, error: &Error) {
        let cause = Box::into_raw(Box::new(Arc::new(error.clone())));
        let before = self.poison.swap(cause, Ordering::AcqRel);
        debug_assert!(before.is_null(), "nothing is written after a failure");
    }

    /// Gives access to the leader's state.
    ///
    /// # Safety
    /// The caller holds the role, or nobody else can use the group.
    pub(super) unsafe fn with_leader<R>(&self, f: impl FnOnce(&mut Leader) -> R) -> R {
        // SAFETY: by contract there is no other reference.
        self.leader.with_mut(|leader| f(unsafe { &mut *leader }))
    }

    /// Publishes `to` as durable, and gives up the generations before it.
    pub(super) fn publish(&self, leader: &mut Leader, to: &Node, guard: &Guard) {
        let mut from = leader.synced;
        leader.synced = to;
        self.durable.store(ptr::from_ref(to).cast_mut(), Ordering::Release);
        // Afterwards: whoever waited for a compaction, or for anything after it, finds it in force.
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
            let next = unsafe { node.next_owned() };
            if next.is_none_or(|link| link.opens_generation) {
                generations.push(ptr::from_ref(node.generation()));
            }
            match next {
                Some(link) => from = link.node,
                None => break,
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
        // Generations are few and large: they must not wait until this thread has retired more.
        guard.flush();
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
    loop {
        // SAFETY: the contract.
        let node = unsafe { &**from };
        // Between two nodes of one generation no other begins: no need to walk over what was just
        // written, which another thread's cache may hold.
        if ptr::eq(node.generation(), to.generation()) {
            *from = to;
            return None;
        }
        // SAFETY: as above; the count of the generation is given back only after this step.
        let link = unsafe { node.next_owned() }?;
        *from = link.node;
        if link.opens_generation {
            return Some(ptr::from_ref(node.generation()));
        }
    }
}
