//! The chain itself: its cursors, and how a thread walks and applies it.

use std::fmt;
use std::ptr;

use annals_format::StoreId;
use annals_format::frame::Binding;

use super::courtesy::{Courtesy, Quiet};
use super::group::Group;
use super::tell::NOBODY;
use super::world::World;
use crate::error::{Error, ErrorKind};
use crate::index::{Generation, KeyNode, Link, Node, Place, Position, Version};
use crate::sync::epoch::{self, Guard};
use crate::sync::{Arc, AtomicPtr, AtomicU32, CachePadded, Ordering, spin_loop};

/// The commit chain of a store.
pub(crate) struct Chain {
    /// What every commit writes.
    pub(super) front: CachePadded<Front>,
    /// The sync role, the waiters, and the cursor `durable`, which is behind `applied`.
    pub(super) group: Group,
    /// Who asks the others to give way. Decides nothing.
    pub(super) courtesy: Courtesy,
    pub(super) binding: Binding,
    pub(super) world: Arc<dyn World>,
}

/// See [`Chain::front`].
pub(super) struct Front {
    /// Everything up to this node is applied: its versions are heads, or below heads. Never null;
    /// only moves forward. This is what a Buffered store shows.
    applied: AtomicPtr<Node>,
    /// Whether somebody sleeps until more is visible: see [`tell`](super::tell).
    pub(super) watched: AtomicU32,
}

/// The state of the store as of some node of the chain.
#[derive(Clone, Copy)]
pub(crate) struct Snapshot<'g> {
    pub(super) node: &'g Node,
    pub(super) guard: &'g Guard,
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("applied", &self.applied()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Snapshot").field(&self.position()).finish()
    }
}

impl Snapshot<'_> {
    /// What the snapshot shows: everything up to here, nothing after.
    pub(crate) fn position(&self) -> Position {
        self.node.position()
    }

    /// The same with the watermark.
    pub(crate) fn place(&self) -> Place {
        self.node.place()
    }

    /// Number of the generation that was current.
    #[cfg(test)]
    pub(crate) fn generation(&self) -> u64 {
        self.node.generation().id()
    }
}

impl Chain {
    /// A chain that goes on after `start`, where everything is durable, in an empty generation.
    /// It takes commits once it has a log: see [`open_log`](Self::open_log).
    pub(crate) fn new(
        store: &StoreId,
        start: Position,
        compacted: u64,
        generation: Arc<Generation>,
        world: Arc<dyn World>,
    ) -> Self {
        let root = generation.root();
        // SAFETY: nobody else has seen the root of a generation that no chain uses yet.
        unsafe { root.bind(Place { order: 0, position: start, compacted, logged_bytes: 0 }) };
        let root = ptr::from_ref(root).cast_mut();
        // The chain owns one count of each generation it still needs; `Group` gives it back.
        let _owned_by_the_chain = Arc::into_raw(generation);
        Self {
            front: CachePadded::new(Front {
                applied: AtomicPtr::new(root),
                watched: AtomicU32::new(NOBODY),
            }),
            group: Group::new(root, start.seq),
            courtesy: Courtesy::new(),
            binding: Binding::new(store),
            world,
        }
    }

    /// The state to evaluate a transaction against.
    pub(crate) fn begin<'g>(&self, guard: &'g Guard) -> Snapshot<'g> {
        Snapshot { node: self.applied_node(guard), guard }
    }

    /// For a transaction that is about to be evaluated: keeps quiet while another asks for that, and
    /// asks for it on behalf of this one when it has been evaluated in vain too often.
    pub(crate) fn quiet(&self) -> Quiet<'_> {
        self.courtesy.quiet()
    }

    /// The last applied transaction: what a Buffered store shows.
    pub(crate) fn applied(&self) -> Position {
        self.applied_node(&epoch::pin()).position()
    }

    /// The last durable transaction: what a Sync store shows. Never ahead of `applied`.
    pub(crate) fn durable(&self) -> Position {
        self.group.durable_node(&epoch::pin()).position()
    }

    /// As [`applied`](Self::applied), with the watermark of that state.
    pub(crate) fn applied_place(&self) -> Place {
        self.applied_node(&epoch::pin()).place()
    }

    /// As [`durable`](Self::durable), with the watermark of that state.
    pub(crate) fn durable_place(&self) -> Place {
        self.durable_place_under(&epoch::pin())
    }

    /// The same, for who holds a guard.
    pub(crate) fn durable_place_under(&self, guard: &Guard) -> Place {
        self.group.durable_node(guard).place()
    }

    /// Whether a failure has ended this store's writing.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.group.is_poisoned()
    }

    /// The failure that ended this store's writing, if there was one.
    pub(crate) fn poison(&self) -> Option<Arc<Error>> {
        self.group.poison()
    }

    pub(super) fn check_poison(&self) -> Result<(), Error> {
        match self.poison() {
            None => Ok(()),
            Some(cause) => Err(ErrorKind::Poisoned { cause }.into()),
        }
    }

    pub(super) fn applied_node<'g>(&self, _guard: &'g Guard) -> &'g Node {
        // Acquire pairs with the Release of `advance`: what the node and all before it did to the
        // heads is visible. With Relaxed here, stale heads validate and updates get lost.
        let node = self.front.applied.load(Ordering::Acquire);
        // SAFETY: never null, and the chain keeps a generation until `applied` is past it and all
        // guards of that time are gone.
        unsafe { &*node }
    }

    /// The same, in one order with [`advance`](Self::advance) and with the accesses to `watched`.
    pub(super) fn applied_node_in_order<'g>(&self, _guard: &'g Guard) -> &'g Node {
        // SAFETY: as in `applied_node`.
        unsafe { &*self.front.applied.load(Ordering::SeqCst) }
    }

    /// Walks from `from`, which this thread has seen applied, to the last node, applying what is
    /// not applied yet, and answers the last node.
    ///
    /// At every step it looks at `applied` first, and jumps: a thread that was descheduled for a
    /// while does not replay what others have long done. Before it helps with a large transaction
    /// it looks more often, since the thread that linked it is probably just doing it.
    pub(super) fn catch_up<'g>(&self, from: &'g Node, guard: &'g Guard) -> &'g Node {
        let mut last = from;
        'walk: while let Some(next) = last.next(guard) {
            for poll in 0..polls(next.node) {
                if poll > 0 {
                    spin_loop();
                }
                let applied = self.applied_node(guard);
                if applied.order() >= next.node.order() {
                    last = applied;
                    continue 'walk;
                }
            }
            self.apply(last, next, guard);
            last = next.node;
        }
        if !ptr::eq(last, from) {
            self.advance(last, guard);
        }
        last
    }

    /// Makes a linked node's changes the heads of their keys. Everything before it must be applied.
    ///
    /// Any number of threads may do this at once, and late: see the story in the module.
    pub(super) fn apply<'g>(&self, before: &Node, link: Link<'g>, guard: &'g Guard) {
        let Link { node, opens_generation } = link;
        if opens_generation {
            self.apply_switch(before, node);
            return;
        }
        let (keys, versions) = (node.keys(), node.versions());
        if keys.len() <= LARGE {
            keys.iter().zip(versions).for_each(install);
            return;
        }
        // A large transaction is worth sharing: each helper begins at another place, and stops when
        // someone has finished.
        let step = keys.len() / 5 * 3 + 1;
        let start = node.helpers.fetch_add(step, Ordering::Relaxed) % keys.len();
        let parts = [start..keys.len(), 0..start];
        for part in parts {
            let keys = keys[part.clone()].chunks(LARGE);
            for (keys, versions) in keys.zip(versions[part].chunks(LARGE)) {
                keys.iter().zip(versions).for_each(install);
                if self.applied_node(guard).order() >= node.order() {
                    return;
                }
            }
        }
    }

    /// Moves `applied` forward to `node`, which is applied, or leaves it where it is already ahead.
    pub(super) fn advance(&self, node: &Node, guard: &Guard) {
        let applied = &self.front.applied;
        let mut seen = self.applied_node(guard);
        while seen.order() < node.order() {
            let from = ptr::from_ref(seen).cast_mut();
            let to = ptr::from_ref(node).cast_mut();
            // SeqCst only for who sleeps: see `tell`. For everybody else Release would do.
            match applied.compare_exchange(from, to, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => return self.tell_applied(),
                // SAFETY: as in `applied_node`.
                Err(other) => seen = unsafe { &*other },
            }
        }
    }

    /// Applies the switch to a new generation: the store learns of it before anything in it can be
    /// seen.
    fn apply_switch(&self, last: &Node, root: &Node) {
        last.generation().freeze(last);
        let generation = ptr::from_ref(root.generation());
        // SAFETY: the chain owns a count of every generation from the one of `durable` on, and
        // guards keep the ones it has just given up; so there is a count to add to.
        unsafe { Arc::increment_strong_count(generation) };
        // SAFETY: the count just added, and the pointer came from an `Arc`.
        let generation = unsafe { Arc::from_raw(generation) };
        self.world.switched(&generation);
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // SAFETY: `&mut self`: nobody else uses the chain, and no guard can reach its nodes.
        unsafe { self.group.release_generations() };
    }
}

/// How many keys make a transaction large: then helpers share the work.
pub(super) const LARGE: usize = 64;

/// How often to look at `applied` before helping with `node`: at least once.
fn polls(node: &Node) -> usize {
    if cfg!(any(feature = "loom", feature = "shuttle")) || node.keys().len() <= 2 { 1 } else { 24 }
}

fn install((key, version): (&&KeyNode, &Version)) {
    // SAFETY: the version belongs to a linked node, so it is bound, and key and version lie in the
    // node's generation.
    unsafe { key.install(version) };
}
