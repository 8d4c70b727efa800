//! What the hub and one watch have in common: which revisions are due, and who sleeps until there are.
//!
//! A slot holds numbers of revisions, never their content: a ring of a few, and when that is full the
//! first one that found no room. From there on the watch reads the log by itself ([`Next::Overflow`]), so a
//! watch that nobody asks takes no memory, and the hub waits for nobody.
//!
//! The lock is held for a few instructions by the hub, the watch or one of its handles, and no foreign
//! code runs under it: a sleeper is taken out and woken by who holds no lock, and one that is replaced is
//! dropped there.

use std::fmt;
use std::task::Waker;

use crate::error::Error;
use crate::kv::KeyRange;
use crate::sync::Thread;
use crate::sync::plain::{AtomicU64, Mutex, Ordering, lock};

/// Revisions that a slot has room for.
const RING: usize = 32;

/// What is due to one watch.
#[derive(Debug)]
pub(super) struct Slot {
    /// The keys it wants to hear of.
    pub(super) range: KeyRange,
    /// It wants to hear of nothing up to this revision.
    pub(super) after: u64,
    /// The first revision that the watch reads from the log and has not told yet; 0 for none.
    reads: AtomicU64,
    state: Mutex<Pending>,
}

#[derive(Debug)]
struct Pending {
    /// Revisions due, ascending, from `head` on, round the end.
    ring: [u64; RING],
    head: u8,
    len: u8,
    /// The highest revision offered. What is not above it is not due: it was offered already, or is read
    /// from the log, or lies before the first revision wanted.
    offered: u64,
    /// The first revision that found no room, and with which all later ones are due; 0 for none.
    overflow: u64,
    /// The revision that a progress batch was asked for at; 0 for none. The earliest, or who asks again and
    /// again beside writers would never be told one.
    progress: u64,
    /// The latest that was asked for meanwhile, above that; 0 for none.
    progress_again: u64,
    /// How far the hub is known to have come for either.
    reached: u64,
    /// Whether anything was offered since this was asked last.
    stirred: bool,
    /// Whether the hub has it in its list of those who wait for a notice. Changes under the lock of that.
    listed: bool,
    /// Whether it is to be told notices now and then.
    timed: bool,
    end: End,
    sleeper: Sleeper,
}

/// Whether nothing more comes.
#[derive(Debug)]
enum End {
    Not,
    /// Nothing at all is told from now on.
    Cancelled,
    /// What is due is still told; then this.
    Failed(Error),
}

/// Who is to be woken when there is something to tell.
#[derive(Default)]
pub(super) enum Sleeper {
    /// Nobody.
    #[default]
    None,
    /// A thread that parks.
    Thread(Thread),
    /// A task.
    Task(Waker),
}

/// What is to be done next for a watch.
#[derive(Debug)]
pub(super) enum Next {
    /// To tell this revision.
    Revision(u64),
    /// To read the log from this revision on.
    Overflow(u64),
    /// To tell how far it is.
    Progress,
    /// To look again: the hub has come further meanwhile.
    Again,
    /// To end, with an error if there is one.
    Ended(Option<Error>),
    /// Nothing.
    Nothing,
}

impl Slot {
    /// A slot for changes of keys in `range` after the revision `after`, of which those after `offered` are
    /// offered.
    pub(super) fn new(range: KeyRange, after: u64, offered: u64) -> Self {
        let offered = offered.max(after);
        let state = Mutex::new(Pending {
            ring: [0; RING],
            head: 0,
            len: 0,
            offered,
            overflow: 0,
            progress: 0,
            progress_again: 0,
            reached: 0,
            stirred: false,
            listed: false,
            timed: false,
            end: End::Not,
            sleeper: Sleeper::None,
        });
        Self { range, after, reads: AtomicU64::new(0), state }
    }

    // ---- For the hub. ----

    /// A revision that changes a key of the range; they are offered ascending, one more than once if it
    /// changes several. Answers who is to be woken once no lock is held; `None` if it is not due.
    pub(super) fn offer(&self, revision: u64) -> Option<Sleeper> {
        let mut state = lock(&self.state);
        if revision <= state.offered || state.is_over() {
            return None;
        }
        state.offered = revision;
        state.stirred = true;
        if state.overflow == 0 && !state.push(revision) {
            state.overflow = revision;
        }
        Some(std::mem::take(&mut state.sleeper))
    }

    /// What comes from this revision on is not offered as far as the hub has come: all of it counts as due, and
    /// is read from the log. Answers who is to be woken.
    pub(super) fn skip(&self, revision: u64) -> Sleeper {
        let mut state = lock(&self.state);
        if state.is_over() {
            return Sleeper::None;
        }
        if state.overflow == 0 {
            state.overflow = revision.max(self.after + 1);
        }
        std::mem::take(&mut state.sleeper)
    }

    /// The hub has come to a revision, and offered all up to it. Answers who is to be woken, and whether
    /// a progress batch is asked for that has to wait for a later one.
    pub(super) fn reach(&self, revision: u64) -> (Sleeper, bool) {
        let mut state = lock(&self.state);
        if state.progress == 0 || state.is_over() {
            return (Sleeper::None, false);
        }
        if state.progress > revision {
            return (Sleeper::None, true);
        }
        state.reached = state.reached.max(revision);
        let must_wait = state.progress_again > revision;
        (std::mem::take(&mut state.sleeper), must_wait)
    }

    /// Notes whether it is in the list of those who wait for a notice. Answers whether it was.
    pub(super) fn set_listed(&self, listed: bool) -> bool {
        std::mem::replace(&mut lock(&self.state).listed, listed)
    }

    /// It is to be told notices now and then.
    pub(super) fn set_timed(&self) {
        lock(&self.state).timed = true;
    }

    /// Whether it is to be told notices now and then.
    pub(super) fn is_timed(&self) -> bool {
        lock(&self.state).timed
    }

    /// Whether anything was offered since this was asked last.
    pub(super) fn has_stirred(&self) -> bool {
        std::mem::take(&mut lock(&self.state).stirred)
    }

    /// Nothing more will be offered, for this reason. Answers who is to be woken.
    pub(super) fn fail(&self, error: &Error) -> Sleeper {
        let mut state = lock(&self.state);
        if !state.is_over() {
            state.end = End::Failed(error.clone());
        }
        std::mem::take(&mut state.sleeper)
    }

    // ---- For the watch. ----

    /// What is to be done next, where the hub had come to `scanned` before this was called.
    pub(super) fn next(&self, scanned: u64) -> Next {
        lock(&self.state).next(scanned)
    }

    /// Leaves the sleeper here, to be woken when there is something to do. False if there is already: then
    /// it is not to sleep. Takes nothing that is due, so nothing is lost if the waker of a task, which is
    /// foreign code, panics when it is dropped.
    pub(super) fn sleep(&self, scanned: u64, sleeper: Sleeper) -> bool {
        let mut state = lock(&self.state);
        let sleeps = state.is_idle(scanned);
        // Who only looks leaves another who sleeps here asleep.
        let left = if sleeps && sleeper.is_some() {
            std::mem::replace(&mut state.sleeper, sleeper)
        } else {
            sleeper
        };
        drop(state);
        drop(left);
        sleeps
    }

    /// Whoever slept here is awake.
    pub(super) fn awake(&self) {
        let sleeper = std::mem::take(&mut lock(&self.state).sleeper);
        drop(sleeper);
    }

    /// Only revisions after `revision` are due: all others are read from the log, or have been told.
    /// Nothing may be offered meanwhile.
    pub(super) fn resume_after(&self, revision: u64) {
        let mut state = lock(&self.state);
        state.len = 0;
        state.overflow = 0;
        state.offered = state.offered.max(revision);
    }

    /// The watch reads the log from here on, and has told everything before; 0 when it has come to the end.
    pub(super) fn reads_from(&self, revision: u64) {
        self.reads.store(revision, Ordering::Relaxed);
    }

    /// The first revision that may be due and was not told yet; `None` if the watch is up to date.
    pub(super) fn oldest_due(&self) -> Option<u64> {
        let reads = self.reads.load(Ordering::Relaxed);
        let state = lock(&self.state);
        let in_ring = state.ring.get(usize::from(state.head)).filter(|_| state.len > 0);
        let due = in_ring.copied().into_iter().chain([state.overflow, reads]);
        due.filter(|revision| *revision != 0).min()
    }

    // ---- For handles. ----

    /// Ends it: nothing is told any more. Answers who is to be woken.
    pub(super) fn cancel(&self) -> Sleeper {
        let mut state = lock(&self.state);
        state.end = End::Cancelled;
        std::mem::take(&mut state.sleeper)
    }

    /// Asks for a progress batch, once everything up to `revision` has been told.
    pub(super) fn ask_progress(&self, revision: u64) {
        let mut state = lock(&self.state);
        // One is enough for all who ask before it is told. None before the first revision that is wanted is the next.
        let revision = revision.max(self.after);
        if state.progress == 0 {
            state.progress = revision;
        } else if revision > state.progress {
            state.progress_again = state.progress_again.max(revision);
        }
    }

    /// Whether nothing more will be offered.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.state).is_over()
    }

    /// Whether nothing more will be told.
    pub(super) fn is_cancelled(&self) -> bool {
        matches!(lock(&self.state).end, End::Cancelled)
    }
}

impl Pending {
    fn is_over(&self) -> bool {
        !matches!(self.end, End::Not)
    }

    fn is_progress_reached(&self) -> bool {
        self.progress != 0 && self.progress <= self.reached
    }

    /// Whether [`next`](Self::next) would find nothing.
    fn is_idle(&self, scanned: u64) -> bool {
        let is_progress_due =
            self.is_progress_reached() || self.progress != 0 && self.progress <= scanned;
        !(self.is_over() || self.len > 0 || self.overflow != 0 || is_progress_due)
    }

    /// Answers whether there was room.
    fn push(&mut self, revision: u64) -> bool {
        let place = (usize::from(self.head) + usize::from(self.len)) % RING;
        match self.ring.get_mut(place) {
            Some(place) if usize::from(self.len) < RING => {
                *place = revision;
                self.len += 1;
                true
            }
            _ => false,
        }
    }

    fn pop(&mut self) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let revision = self.ring.get(usize::from(self.head)).copied();
        self.head = if usize::from(self.head) + 1 < RING { self.head + 1 } else { 0 };
        self.len -= 1;
        revision
    }

    fn next(&mut self, scanned: u64) -> Next {
        if matches!(self.end, End::Cancelled) {
            return Next::Ended(None);
        }
        if let Some(revision) = self.pop() {
            return Next::Revision(revision);
        }
        if self.overflow != 0 {
            return Next::Overflow(self.overflow);
        }
        if let End::Failed(error) = &self.end {
            return Next::Ended(Some(error.clone()));
        }
        if self.progress != 0 && self.progress <= scanned {
            let again = std::mem::take(&mut self.progress_again);
            self.progress = if again > scanned { again } else { 0 };
            return Next::Progress;
        }
        if self.is_progress_reached() { Next::Again } else { Next::Nothing }
    }
}

impl Sleeper {
    /// Wakes who sleeps, if anybody does. To be called where no lock is held; the waker of a task may
    /// panic.
    pub(super) fn wake(self) {
        match self {
            Self::None => {}
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
        }
    }

    /// Whether it is anybody.
    pub(super) fn is_some(&self) -> bool {
        !matches!(self, Self::None)
    }
}

impl fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Thread(_) => "Thread",
            Self::Task(_) => "Task",
        })
    }
}

#[cfg(test)]
mod tests;
