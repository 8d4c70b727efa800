//! Watches: every change of a range of keys from a revision on, as it comes, or from the log.
//!
//! ```text
//!   commits --> chain --visible--> hub (one thread) --numbers of revisions--> slot of each watch
//!                                                                                | asked by its user
//!   log (EVENTS, memory) <------ reads what is due, or what it missed ------- watch --> batches
//! ```
//!
//! Nobody is sent anything. One thread, `annals-watch`, follows what becomes visible ([`hub`]), finds for
//! each transaction who wants to hear of it ([`interest`]) and notes its *revision* in their slots
//! ([`slot`]): a ring of a few numbers, and when that is full, the one from which on the log is to be read.
//! The watch itself makes batches of it when its user asks ([`consumer`], [`tell`], [`batch`]). So a watch
//! that nobody asks costs nothing but its slot; what several want is decoded once, and watches of the same range and
//! wishes tell the same batches ([`recent`]). Commits
//! know nothing of all this but that somebody sleeps. Without background threads, whoever asks a watch does
//! the hub's work first.
//!
//! Reading order: [`slot`], [`hub`], [`consumer`].
//!
//! # Why it is right
//!
//! The hub sees each visible revision once and in order, and for each does one step under the lock of its
//! registry: it looks up who wants it, offers it to their slots, and stores it as `scanned`. Registering
//! a watch, and resuming one from the log, is one step under the same lock.
//!
//! **P1: nothing is left out.** A watch of revisions from `f` on registers while `scanned` is `s`. What is due
//! to it is
//! - not above `s`: then it lies between `f` and `s`, and is read from the log, which has all between the floor
//!   of the keys and what is visible, and answers `Compacted` if `f` is below that floor;
//! - or above `s`: then it is looked up after the watch was registered, and offered.
//!
//! A slot keeps each offer until it is taken, or keeps the first that found no room, with which all later
//! ones count as due. If that one is met, the watch resumes in one step: it empties the slot, and reads the
//! log from there up to what was `scanned` in that step; later ones are offered. Should reading fail, the
//! watch ends with the error, and its `position`, from which its user resumes, is that of what it has told.
//! Should the hub itself fail to read, it goes on behind what is visible, and what it has skipped counts in
//! every slot as offers that found no room: each watch meets the damage itself, or does not.
//!
//! **P2: nothing comes twice, and all in order.** A slot takes no offer that is not above the last one, nor one up
//! to the revision up to which the log is read; the watch reads that to its end before it looks into the
//! slot again. So what it tells ascends, and a transaction that changes several keys is offered once.
//!
//! **P3: a watch of the future hears nothing of the past.** Its slot begins with the revision before its first
//! as the last one offered, and no notice of progress is due before the hub has come there.
//!
//! **P4: a watch with nothing due is never refused.** Only a revision that is due is compared with the floor
//! of the keys: one in the slot, or the next part of the log (and, for who does not ask before they are
//! forgotten, the revisions that the hub has failed to read). When nothing is due, `position` moves on to
//! what was `scanned` *before* the slot was found empty: the hub offers before it stores `scanned`.
//! The same is what makes a notice of progress true.
//!
//! **P5: a `Sync` store tells only what is durable.** The hub follows what is visible, and so does the log.
//!
//! **P6: the hub misses nothing to a compaction.** It pins the first revision that it has not seen, one above
//! the newest when it has seen all. A watch pins only while it reads; what it reads within one call
//! stays readable to the end of that.
//!
//! **Nobody sleeps on something to tell.** Who sleeps says so under the lock of its slot, having found it empty
//! there; every offer, end and notice takes the sleeper out under the same lock, and wakes it. A notice that
//! was asked for before the hub is as far is in the list `asked`: it was put there under the list's lock
//! before `scanned` was read, and the hub looks into the list after it has stored `scanned`. The hub itself
//! sleeps by the handshake of [`Follow::rest`](crate::engine::Follow::rest).
//!
//! **No foreign code under a lock, nor on the way of a commit.** Wakers are called, and dropped, by the thread
//! `annals-watch` or by who asks, ends or polls a watch; one that panics is caught. So is what users
//! have [derived](Batch::derived) of batches that are forgotten.
//!
//! **No watch keeps a store open**, nor does the hub: they hold a [`Door`](crate::engine::Door). When the store is
//! closed its threads end first, and the end of this one ends all watches.
//!
//! Nothing of a watch is stored. What was told in a `Sync` store is there after a crash, so `from` the
//! [`resume_revision`](Watch::resume_revision) goes on in another session.

mod batch;
mod builder;
mod consumer;
mod hub;
mod interest;
mod recent;
#[cfg(feature = "serde")]
mod serial;
mod slot;
mod stream;
mod tell;

pub use batch::{Batch, Event};
pub use builder::{Slow, WatchBuilder};
pub use consumer::{Watch, WatchHandle};
