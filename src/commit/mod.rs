//! The commit chain: how transactions get their one order, without a lock.
//!
//! # The story
//!
//! A store with one global revision has something serial at its heart: two transactions cannot both
//! be the next. The obvious way is a mutex around "compare, take the next revision, write the log,
//! insert". It has the log's speed for everybody, and a thread that is descheduled inside it stops
//! the store for milliseconds. The next idea, a combiner (one thread does the serial part for all
//! that queue), shares one sync among many but still stops when the combiner stops.
//!
//! What must be serial is only this: *which transaction follows the last one*. That is one word.
//! So the log is built in memory first, as a linked list of nodes, each a whole transaction with its
//! encoded frame, and the commit is one compare-and-swap of the last node's `next` from null:
//!
//! ```text
//!            durable                    applied          last
//!               |                          |               |
//!   root -> node 1 -> node 2 -> ... -> node 7 -> node 8 -> node 9 -> null
//!                                                                     ^ CAS(null -> mine)
//! ```
//!
//! Everything a node says is fixed *before* that CAS, from the state as of `last`: the seq, the
//! revision, the time, which head each version replaces, what `create_revision` and `version` it
//! gives its key. To win the CAS is to have proved that `last` was still the last, so all of it is
//! right; to lose it changes nothing, and the next attempt looks at what came between. After the
//! link a node never changes, except for its own `next`, once. This has three consequences:
//!
//! * **Anyone can finish it.** Applying a node is one `CAS head: older -> version` for each change.
//!   All nodes are applied in chain order by whoever comes along, so a head takes each value once,
//!   and a helper that was asleep for an hour finds a head that is not `older`, or fails its CAS:
//!   it can be late, but not wrong. A thread that stops anywhere stops nobody. (That is what made
//!   it necessary to fix `older` before the link: a helper that chose it itself from a stale head
//!   would drop a committed version.)
//! * **Aborts cost nothing.** A transaction that finds its footprint changed has taken no revision
//!   and written no log.
//! * **The list is the log.** The group sync walks the same nodes and writes their frames, which
//!   were encoded once, by the threads that made them; flushing and watching walk them too.
//!
//! # A commit, step by step
//!
//! 1. The caller keeps quiet for a bounded while if a transaction that conflicts again and again asks
//!    for it (`courtesy`). Then it pins the epoch, takes a [`Snapshot`] of `applied`, evaluates, and comes with a
//!    [`Plan`]: what to write, and what it read (its *footprint*).
//! 2. *Prepare* (`order`): find or make each key's node in the current generation; what a cold key's
//!    newest version was is taken from the snapshot if its generation is still the current one, else
//!    looked up in the older structures, once per key and generation; check the footprint a first time, before any memory is taken; encode the frame, in the arena, once.
//! 3. *Catch up* (`chain`): from `applied` walk to the last node, applying. At each step look at
//!    `applied` again and jump: otherwise a thread that slept replays 100,000 nodes at the speed at
//!    which the others link more (the worst commit then takes 0.2 to 0.8 s).
//! 4. *Validate* as of `last` and *bind*. Points are compared with the heads. Ranges are compared
//!    with the keys of the nodes linked since the snapshot, each node once: that walk does not jump.
//!    What was read of the past is compared with the watermark of `last`.
//! 5. *Link*, if the log has room for what is ordered up to here ([`World::log_takes`]): what is linked can be taken
//!    back no more. Lost: back to 3. Won: apply, move `applied` forward to the node (a loop: when the
//!    commit returns, it is visible to its own thread), and done, as far as `Buffered` goes. A large
//!    transaction that keeps losing asks the others to give way (`courtesy`), within bounds.
//! 6. *Wait* (`lead`, described in `group`): somebody writes everything up to `applied` as one batch.
//!
//! # Five cases that need more than the chain
//!
//! **Else branches.** *Problem:* which writes a transaction makes depends on its compares, and these on
//! the state as of `last`, which is known only at the link. *Naive:* decide between validating and
//! linking. But a branch may read ranges and files, for as long as it likes, and `last` moves on
//! meanwhile: a busy store would never let it through, and the order step would run a user's reads.
//! *Here:* the branch is chosen before, on a snapshot, and everything that the choice looked at is in
//! the footprint, the compares of the branch not taken included. If the footprint still holds as of
//! `last`, the same branch would be chosen there; if not, the caller evaluates again. A failed compare
//! without writes is an answer as of the snapshot, and links nothing.
//!
//! **Range compares.** *Problem:* a key that did not exist when a range was compared has no head to
//! compare with later (a phantom). *Naive:* compare the range again at the link. That costs as much as
//! the first time, for each lost race, and reads files. *Here:* whatever came into the range since was
//! put there by a node of the chain. So only the keys of the nodes linked since the snapshot are looked
//! at, each node once however often the link is lost (`checked` in `order`), and a transaction with
//! wide ranges that conflicts for ever asks for quiet (`courtesy`).
//!
//! **The generation switch.** *Problem:* a memtable fills up while others write to it. *Naive:* swap a
//! pointer to the current one. Then a writer that took the old one links versions into it after a flush
//! has begun to read it, and two writers of one key validate against different heads. A lock around the
//! swap would stop everybody behind a sleeping thread. *Here:* when a transaction does not fit any more,
//! its thread links the root of the next generation, as a node like any other (if the world has no room
//! for one, it gets no place, and waits with nothing held until there is some). Whoever walks over it
//! applies it: the old generation is frozen, the store is told ([`World::switched`]), and from then on
//! keys are resolved anew. A transaction that was prepared for the old generation sees that `last` lies
//! in another one, and prepares again. So the switch has one place in the order, everything before it is
//! in the old generation and everything after it in the new.
//!
//! **Reclamation.** *Problem:* a generation's memory must come back, and at any time some thread may be
//! walking in it. *Naive:* count references of each node; or free it when it is flushed. The first puts
//! an atomic write on every step of every walk, the second frees what a thread that slept since the
//! switch stands on. *Here:* no pointer leads from a newer generation to an older one, so each is freed
//! whole. The chain holds one count of each from the last durable node's on (the group sync still has to
//! write its frames), readers and flush hold counts of theirs, and the chain gives its own back through
//! the epoch, so that whoever was walking there can finish. The price: a thread that is stopped while it
//! is pinned keeps memory from coming back, though it stops no commit.
//!
//! **Poison.** *Problem:* a write or sync fails while others order, wait, and come. *Naive:* a flag that
//! is looked at before the link. A commit that looked before and linked after would wait for ever; and
//! one that was durable in an earlier batch, but asks late, would be told that it failed. *Here:* the
//! holder of the sync role sets the poison, and only then serves everybody on the stack; whoever
//! pushes itself later finds the role free and looks itself. An outcome is decided by `durable` first,
//! the poison second, and `durable` again, as the batch that failed may not be the one that held the
//! commit. `durable` does not move any more, so nothing that was linked after it is ever shown or
//! acknowledged: who waits gets `OutcomeUnknown`, who comes `Poisoned`.
//!
//! # Invariants
//!
//! 1. The order of the log is the order of the chain; seqs are dense, and so are revisions.
//! 2. `durable <= applied <=` the last node. All three only move forward.
//! 3. A transaction is visible wholly or not at all: readers pin a revision at or below `applied`.
//! 4. Between prepare and the durability wait there is no I/O, no lock, no wait for another thread,
//!    no call into user code.
//! 5. Once a write or sync has failed nothing is published as durable any more, everyone who waits
//!    gets `OutcomeUnknown`, and later commits `Poisoned`.
//!
//! # Memory orderings
//!
//! A node is published by the link (`Release`) and reached by `next` (`Acquire`), or through
//! `applied`, which its applier moved with `Release` after the heads were set. A head is published
//! by `install` (`Release`) and read with `Acquire`. `applied` must be read with `Acquire`: stale
//! heads would validate. The sync role is taken and given up by read-modify-writes on one word.
//! `SeqCst` is needed only to meet who is about to sleep until more is visible (`tell`). `ORDERINGS.md`, beside this file, says of each access what fails when it is
//! weakened: a loom model, a stress test under `ThreadSanitizer`, or nothing, and then why.
#![expect(unsafe_code, reason = "walks nodes in arena memory; see the SAFETY notes")]

mod chain;
mod courtesy;
mod group;
mod lead;
mod order;
mod plan;
mod replay;
#[cfg(all(
    any(test, feature = "bench-internals"),
    not(any(feature = "loom", feature = "shuttle"))
))]
pub mod rivals;
mod tell;
#[cfg(test)]
mod tests;
mod ticket;
mod waiter;
mod world;

pub(crate) use chain::Chain;
pub(crate) use plan::{
    Footprint, INLINE_KEY_BYTES, InternalKey, OrderError, Ordered, Plan, Point, Write, WriteKind,
};
pub(crate) use tell::Until;
pub(crate) use ticket::Ticket;
pub(crate) use world::{Below, Log, World};
