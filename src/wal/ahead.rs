//! The room that the log has ahead of what it has written: in the file it is in, and in the next one, the *spare*.
//!
//! What is ordered can be taken back no more; it has to be written. A log that finds then that there is no space for
//! its next file can only end writing. So room is made first, and what goes beyond it is not ordered:
//! [`WalFiles::takes`] is asked before each commit's link. What is ordered and not yet written always fits, as one batch,
//! into the rest of the file in use or into the spare.
//!
//! *That the answer still holds at the link.* Each batch is filled up to whole pages, so that the end of the room comes
//! nearer by less than a page and a header than what was ordered says. A batch takes everything that is
//! ordered when it begins. So between the question and the link, before which nothing else is ordered, two
//! batches end at most: the one that was being written, and one that takes the rest. Then what was asked for goes
//! into a third. [`KEPT_PAGES`] are more than that takes.
//!
//! Space that the system gives in spite of zeros that were written (a file system that writes elsewhere what is
//! overwritten) may be lacking all the same; then the write fails, and writing ends.

use annals_format::batch::BYTES as BATCH_HEADER_BYTES;
use annals_format::sector::{PAGE_BYTES, logical_bytes_in, stored_bytes};

use super::files::{
    WalFiles, make_unfinished, make_zeroed, next_file_bytes, remove_if_there, rename_finished,
    sync_dir, write_zeros,
};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::plain::{AtomicU64, Condvar, Mutex, MutexGuard, PoisonError, lock};
use crate::sync::{Arc, Ordering};
use crate::vfs::File;

/// Bytes of a file that no batch of frames may use: the header page before, the seal behind.
pub(super) const FILE_OVERHEAD_BYTES: u64 = 2 * PAGE_BYTES as u64;

/// Pages that are kept free at the end of the room, for what the module says.
const KEPT_PAGES: u64 = 4;

/// Pages that are kept free for commits that set a watermark: they let background work give space back.
const KEPT_PAGES_FOR_COMPACTIONS: u64 = 4;

/// See the module.
#[derive(Debug)]
pub(super) struct Ahead {
    state: Mutex<State>,
    /// Signalled when a spare that was being made is made, or was not.
    made: Condvar,
    /// Up to how many bytes of frames since the store was opened there is room for compactions.
    upto: AtomicU64,
}

#[derive(Debug)]
struct State {
    spare: Spare,
    /// The number of the next file, spare or not, and how long it gets unless more is needed.
    next: (u64, u64),
    /// Bytes for batches that the file in use has left.
    left: u64,
    /// Bytes of frames that have been written since the log was opened.
    logged: u64,
}

#[derive(Debug)]
enum Spare {
    /// Not needed yet.
    Idle,
    /// The file in use is half full: time to make the next one.
    Wanted,
    /// Somebody is at it. A writer that needs the file then waits, which is what it would
    /// have to do anyway, instead of making a second one.
    Making,
    /// Made, all zeros, durable under its name.
    Ready { bytes: u64, file: Arc<dyn File> },
    /// Made, but its name could not be made durable. A further attempt may say that it is and be wrong, so the log
    /// ends when it comes to it.
    Lost(Error),
    /// None is made any more.
    Closed,
}

impl Ahead {
    /// Before there is a file; `next` are the number and the length of the first.
    pub(super) fn new(next: (u64, u64)) -> Self {
        let state = State { spare: Spare::Idle, next, left: 0, logged: 0 };
        Self { state: Mutex::new(state), made: Condvar::new(), upto: AtomicU64::new(u64::MAX) }
    }

    /// After any change of the state.
    fn publish(&self, state: &State) {
        let upto = state.logged.saturating_add(state.room(KEPT_PAGES));
        // A number that guards no memory.
        self.upto.store(upto, Ordering::Relaxed);
    }

    /// The state, once nobody is making a spare.
    fn settled(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        while matches!(state.spare, Spare::Making) {
            state = self.made.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
}

impl State {
    /// How many bytes of frames fit into one batch, in the file in use or in the spare, with so many pages kept free.
    fn room(&self, kept_pages: u64) -> u64 {
        let spare = match &self.spare {
            Spare::Ready { bytes, .. } => bytes.saturating_sub(FILE_OVERHEAD_BYTES),
            _ => 0,
        };
        let free = self.left.max(spare).saturating_sub(kept_pages * PAGE_BYTES as u64);
        logical_bytes_in(free).saturating_sub(BATCH_HEADER_BYTES as u64)
    }
}

/// Pages that a commit must leave free.
const fn kept_pages(compacts: bool) -> u64 {
    if compacts { KEPT_PAGES } else { KEPT_PAGES + KEPT_PAGES_FOR_COMPACTIONS }
}

impl WalFiles {
    /// Whether there is room for frames up to this many bytes since the log was opened; `compacts` says that the last
    /// sets a watermark. Any thread may ask.
    #[inline]
    pub(crate) fn takes(&self, logged: u64, compacts: bool) -> bool {
        let kept_for_others = if compacts {
            0
        } else {
            logical_bytes_in(KEPT_PAGES_FOR_COMPACTIONS * PAGE_BYTES as u64)
        };
        logged.saturating_add(kept_for_others) <= self.ahead.upto.load(Ordering::Relaxed)
    }

    /// Whether there is room for a frame of so many bytes once everything else that is ordered is written.
    pub(crate) fn has_room_for(&self, frame_bytes: u64, compacts: bool) -> bool {
        lock(&self.ahead.state).room(kept_pages(compacts)) >= frame_bytes
    }

    /// Makes room for frames up to so many bytes since the log was opened: the spare, or a longer one, which has
    /// room for as much again.
    ///
    /// # Errors
    /// The file could not be made. There is as much room as before, unless its name could not be made durable: then
    /// there is none but in the file in use.
    pub(crate) fn make_room_upto(&self, logged: u64, compacts: bool) -> Result<()> {
        let kept = kept_pages(compacts);
        let made = self.make_room_once(logged, kept, 2);
        if made.as_ref().is_err_and(Error::is_no_space) {
            // What is left of the disk may do for this alone.
            return self.make_room_once(logged, kept, 1);
        }
        made
    }

    /// `times` as much as is needed, and at least as long as the next file usually is, if it is to be more than that.
    fn make_room_once(&self, logged: u64, kept: u64, times: u64) -> Result<()> {
        let state = self.ahead.settled();
        let frames = logged.saturating_sub(state.logged);
        if state.room(kept) >= frames {
            return Ok(());
        }
        match &state.spare {
            Spare::Lost(error) => return Err(error.clone()),
            Spare::Closed => return Err(ErrorKind::Closed.into()),
            _ => {}
        }
        let batch = stored_bytes((BATCH_HEADER_BYTES as u64).saturating_add(frames));
        let least = batch.saturating_add(FILE_OVERHEAD_BYTES + kept * PAGE_BYTES as u64);
        let usual = if times > 1 { state.next.1 } else { 0 };
        self.make_spare(state, least.saturating_mul(times).max(usual))
    }

    /// Whether [`prepare_spare`](Self::prepare_spare) has something to do.
    pub(crate) fn spare_is_wanted(&self) -> bool {
        matches!(lock(&self.ahead.state).spare, Spare::Wanted)
    }

    /// Makes the next file if it is time to: for the background worker. Answers whether it did.
    ///
    /// # Errors
    /// The file could not be made. Nothing is lost: it will be tried again.
    pub(crate) fn prepare_spare(&self) -> Result<bool> {
        let state = lock(&self.ahead.state);
        if !matches!(state.spare, Spare::Wanted) {
            return Ok(false);
        }
        let (_, bytes) = state.next;
        self.make_spare(state, bytes)?;
        Ok(true)
    }

    /// Makes the spare, of so many bytes, in place of a shorter one, if there is one. The lock is free meanwhile: the
    /// log goes on in the file it has.
    fn make_spare(&self, mut state: MutexGuard<'_, State>, bytes: u64) -> Result<()> {
        let (number, _) = state.next;
        let bytes = bytes.next_multiple_of(PAGE_BYTES as u64);
        let shorter = match std::mem::replace(&mut state.spare, Spare::Making) {
            ready @ Spare::Ready { .. } => ready,
            _ => Spare::Wanted,
        };
        drop(state);
        let mut making = Making { files: self, next: shorter };
        let file = make_unfinished(self.context(), number, bytes)?;
        // Until then a shorter one has its name.
        rename_finished(self.context(), number)?;
        let synced = sync_dir(self.context());
        making.next = match &synced {
            Ok(()) => Spare::Ready { bytes, file },
            Err(error) if error.is_shortage() => Spare::Wanted,
            Err(error) => Spare::Lost(error.clone()),
        };
        synced
    }

    /// The log has begun the file that it has taken, which has so many bytes left for batches.
    pub(super) fn began(&self, left: u64) {
        let mut state = lock(&self.ahead.state);
        state.left = left;
        self.ahead.publish(&state);
    }

    /// The log has written frames of so many bytes, and has so many left for batches in its file. Asks for a spare if
    /// it is time to.
    pub(super) fn wrote(&self, frame_bytes: u64, left: u64, is_half_full: bool) {
        let mut state = lock(&self.ahead.state);
        state.logged = state.logged.saturating_add(frame_bytes);
        state.left = left;
        if is_half_full && matches!(state.spare, Spare::Idle) {
            state.spare = Spare::Wanted;
        }
        self.ahead.publish(&state);
    }

    /// The number, the length and the next file itself, with room for a batch of `needed` bytes as they are stored: the
    /// spare, or, which is not to be expected, one that is made or stretched now. The log goes on in it.
    pub(super) fn take(&self, needed: u64) -> Result<(u64, u64, Arc<dyn File>)> {
        let needed = (needed + FILE_OVERHEAD_BYTES).next_multiple_of(PAGE_BYTES as u64);
        let mut state = self.ahead.settled();
        let (number, usual) = state.next;
        let (file, bytes) = match std::mem::replace(&mut state.spare, Spare::Idle) {
            Spare::Ready { bytes, file, .. } => {
                if bytes < needed {
                    // A crash in between leaves an unlisted file of zeros, whatever its length.
                    write_zeros(&self.context().path(number), &*file, bytes, needed)?;
                }
                (file, bytes.max(needed))
            }
            Spare::Lost(error) => return Err(error),
            _ => {
                let bytes = usual.max(needed);
                (make_zeroed(self.context(), number, bytes)?, bytes)
            }
        };
        // With the lock still held: whoever makes a spare from now on makes another file than this one.
        state.next = (number + 1, next_file_bytes(self.context(), bytes));
        Ok((number, bytes, file))
    }

    /// Removes the spare, if there is one; no further one is made.
    pub(super) fn remove_spare(&self) -> Result<()> {
        let mut state = self.ahead.settled();
        let (number, _) = state.next;
        if let Spare::Ready { .. } | Spare::Lost(_) =
            std::mem::replace(&mut state.spare, Spare::Closed)
        {
            remove_if_there(self.context(), &self.context().path(number))?;
            sync_dir(self.context())?;
        }
        Ok(())
    }
}

/// The making of a spare, which ends by success, by an error, or by a panic of the file system: whoever
/// waits for it goes on in any case.
struct Making<'a> {
    files: &'a WalFiles,
    next: Spare,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let ahead = &self.files.ahead;
        let mut state = lock(&ahead.state);
        state.spare = std::mem::replace(&mut self.next, Spare::Idle);
        ahead.publish(&state);
        drop(state);
        ahead.made.notify_all();
    }
}
