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
use crate::sync::plain::{Mutex, lock};

/// Revisions that a slot has room for.
const RING: usize = 32;

/// What is due to one watch.
#[derive(Debug)]
pub(super) struct Slot {
    /// The keys it wants to hear of.
    pub(super) range: KeyRange,
    /// It wants to hear of nothing up to this revision.
    pub(super) after: u64,
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
    /// The revision that a progress batch was asked for at; 0 for none.
    progress: u64,
    /// Whether the hub has come as far.
    progress_reached: bool,
    /// Whether anything was offered since this was asked last.
    stirred: bool,
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
            progress_reached: false,
            stirred: false,
            end: End::Not,
            sleeper: Sleeper::None,
        });
        Self { range, after, state }
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
        state.progress_reached = true;
        (std::mem::take(&mut state.sleeper), false)
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
        // One is enough for all who ask. None before the first revision that is wanted is the next.
        state.progress = state.progress.max(revision).max(self.after);
        state.progress_reached = false;
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

    /// Whether [`next`](Self::next) would find nothing.
    fn is_idle(&self, scanned: u64) -> bool {
        let is_progress_due =
            self.progress_reached || self.progress != 0 && self.progress <= scanned;
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
            self.progress = 0;
            self.progress_reached = false;
            return Next::Progress;
        }
        if self.progress_reached { Next::Again } else { Next::Nothing }
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
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::sync::current;

    fn slot(offered: u64) -> Slot {
        Slot::new(KeyRange::all(), 0, offered)
    }

    fn next(slot: &Slot, scanned: u64) -> String {
        format!("{:?}", slot.next(scanned))
    }

    #[test]
    fn revisions_are_due_once_and_in_order() {
        let slot = slot(4);
        for revision in [3, 4, 5, 5, 7] {
            let _ = slot.offer(revision);
        }
        assert_eq!(next(&slot, 7), "Revision(5)");
        assert_eq!(next(&slot, 7), "Revision(7)");
        assert_eq!(next(&slot, 7), "Nothing");
    }

    #[test]
    fn what_finds_no_room_is_read_from_the_log() {
        let slot = slot(0);
        let full = RING as u64;
        for revision in 1..=full + 5 {
            let _ = slot.offer(revision);
        }
        for revision in 1..=full {
            assert_eq!(next(&slot, 100), format!("Revision({revision})"));
        }
        // Also what is offered when there is room again: it comes after what is read.
        let _ = slot.offer(full + 6);
        assert_eq!(next(&slot, 100), format!("Overflow({})", full + 1));
        slot.resume_after(full + 6);
        let _ = slot.offer(full + 6);
        let _ = slot.offer(full + 7);
        assert_eq!(next(&slot, 100), format!("Revision({})", full + 7));
        assert_eq!(next(&slot, 100), "Nothing");
    }

    #[test]
    fn the_ring_goes_round() {
        let slot = slot(0);
        for revision in 1..=10 * RING as u64 {
            let _ = slot.offer(revision);
            assert_eq!(next(&slot, 0), format!("Revision({revision})"));
        }
    }

    #[test]
    fn a_future_start_keeps_its_place_when_it_resumes() {
        let slot = Slot::new(KeyRange::all(), 50, 10);
        slot.resume_after(20);
        let _ = slot.offer(50);
        assert_eq!(next(&slot, 50), "Nothing");
        let _ = slot.offer(51);
        assert_eq!(next(&slot, 51), "Revision(51)");
    }

    #[test]
    fn a_sleeper_is_given_out_once_by_whatever_there_is_to_tell() {
        let sleeper = || Sleeper::Thread(current());
        let wakes: [fn(&Slot) -> Sleeper; 4] = [
            |slot| slot.offer(5).unwrap_or_default(),
            |slot| slot.fail(&ErrorKind::Closed.into()),
            Slot::cancel,
            |slot| {
                slot.ask_progress(3);
                slot.reach(3).0
            },
        ];
        for wake in wakes {
            let slot = slot(4);
            assert!(slot.sleep(2, sleeper()));
            assert!(slot.offer(4).is_none());
            assert!(wake(&slot).is_some());
            assert!(!wake(&slot).is_some());
            // Not left there by who has something to do.
            assert!(!slot.sleep(2, sleeper()));
            assert!(!slot.cancel().is_some());
        }
    }

    #[test]
    fn who_is_not_to_sleep_takes_nothing() {
        let slot = slot(0);
        let _ = slot.offer(1);
        assert!(!slot.sleep(1, Sleeper::Thread(current())));
        assert!(!slot.cancel().is_some(), "nobody sleeps");
        let slot = self::slot(0);
        let _ = slot.offer(1);
        assert!(!slot.sleep(1, Sleeper::Thread(current())));
        assert_eq!(next(&slot, 1), "Revision(1)");
        // Who only looks takes no other's place.
        assert!(slot.sleep(1, Sleeper::Thread(current())) && slot.sleep(1, Sleeper::None));
        assert!(slot.cancel().is_some());
    }

    #[test]
    fn progress_comes_after_what_is_due_and_not_before_the_hub_is_there() {
        let slot = slot(0);
        slot.ask_progress(9);
        let _ = slot.offer(8);
        assert_eq!(next(&slot, 8), "Revision(8)");
        assert_eq!(next(&slot, 8), "Nothing");
        assert!(slot.reach(8).1, "it has to wait");
        assert!(!slot.reach(9).1);
        // Who has read how far the hub was before it was there looks again.
        assert_eq!(next(&slot, 8), "Again");
        assert_eq!(next(&slot, 9), "Progress");
        assert_eq!(next(&slot, 9), "Nothing");
    }

    #[test]
    fn a_failure_is_told_after_what_is_due_and_a_cancellation_at_once() {
        let slot = slot(0);
        let _ = slot.offer(1);
        let _ = slot.fail(&ErrorKind::Closed.into());
        assert!(slot.is_over());
        assert_eq!(next(&slot, 1), "Revision(1)");
        assert!(matches!(slot.next(1), Next::Ended(Some(_))));
        let _ = slot.cancel();
        assert!(matches!(slot.next(1), Next::Ended(None)));
        let slot = self::slot(0);
        let _ = slot.offer(1);
        let _ = slot.cancel();
        assert_eq!(next(&slot, 1), "Ended(None)");
    }
}
