//! Background work on a full disk: it waits for space, and writing goes on as long as memory and the log have room. In a
//! process that has no descriptor left for another file it is the same: here "space" is either.
//!
//! The log itself takes in nothing that it has not made room for (`wal/ahead.rs`). Its next file is made by the
//! background thread when it is time to, or by the commit that would go beyond what there is; if there is no space for
//! it, that commit is refused, and so is every other that does not fit any more.
//!
//! What background work writes are new files that nothing names until a manifest does. If there is no space for them,
//! they are removed, everything is as it was, and the same is tried again later. That is so up to the point at which
//! the manifest is put in force ([`Core::put_in_force`](super::core::Core::put_in_force)); whatever fails from there on ends
//! writing, as before, and so does every other error.
//!
//! Invariants:
//!
//! 1. Only the background thread waits before it tries again; who does background work in a thread of their own tries at
//!    once, and is told.
//! 2. A flush does not wait for what other work lacks: it takes less, and gives memory back.
//! 3. A commit that finds no room in memory or in the log is refused, not held, while there is none because of this:
//!    `NoSpace`, which says that nothing was changed. Compactions are taken in a little longer than others.
//! 4. What is only done because nothing else is to be done is no lack where it finds no space: nobody is told, and it
//!    is tried again an hour later.

use std::time::Duration;

use crate::clock::Stopwatch;
use crate::error::{Error, Result};
use crate::observe;
use crate::sync::plain::{Mutex, lock};
use crate::wal::WalFiles;

use super::core::Core;

/// After what time a flush is tried again, in microseconds.
const FLUSH_MICROS: u64 = 250_000;

/// After what time other work is tried again for the first time; each further time takes twice as long.
const FIRST_MICROS: u64 = 1_000_000;

/// After what time the making of the next file of the log is tried once more: commits may be refused meanwhile.
const SPARE_MICROS: u64 = 2_000_000;

/// The longest such time: a merge writes much before it finds that there is no space for the rest.
const LONGEST_MICROS: u64 = 64_000_000;

/// After what time work is tried again that nobody needs, and that might fill a disk which has room for all else.
const QUIET_MICROS: u64 = 3_600_000_000;

/// How often is looked at least, in microseconds.
const SHORTEST_MICROS: u64 = 20_000;

/// Which work it is that has no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A flush.
    Flush,
    /// The making of the next file of the log.
    Spare,
    /// Folds, merges and all else.
    Other,
    /// What is done because nothing else is to be done.
    Quiet,
}

/// What has found no space, and has not been done since.
#[derive(Debug)]
pub(super) struct Shortage {
    age: Stopwatch,
    state: Mutex<[Option<Lack>; 4]>,
    /// Held while a commit makes room in the log: how many bytes of frames were the fewest for which there was none, as
    /// long as that is lacking.
    making_log: Mutex<u64>,
}

#[derive(Clone, Debug)]
struct Lack {
    /// What the system said last.
    error: Error,
    /// When it is tried again, in microseconds of `age`.
    again_at: u64,
    /// How long was waited for that.
    wait: u64,
}

impl Shortage {
    pub(super) fn new() -> Self {
        Self {
            age: Stopwatch::start(),
            state: Mutex::new([const { None }; 4]),
            making_log: Mutex::new(u64::MAX),
        }
    }

    /// There was no space. Answers whether that is news.
    fn note(&self, kind: Kind, error: &Error, now: u64) -> bool {
        let mut state = lock(&self.state);
        let quiet = Kind::Quiet as usize;
        let is_needed = |(at, lack): (usize, &Option<Lack>)| at != quiet && lack.is_some();
        let is_news = kind != Kind::Quiet && !state.iter().enumerate().any(is_needed);
        if let Some(lack) = state.get_mut(kind as usize) {
            let wait = match (kind, &lack) {
                (Kind::Flush, _) => FLUSH_MICROS,
                (Kind::Quiet, _) => QUIET_MICROS,
                (_, None) => FIRST_MICROS,
                (Kind::Spare, Some(_)) => SPARE_MICROS,
                (_, Some(before)) => before.wait.saturating_mul(2).min(LONGEST_MICROS),
            };
            *lack = Some(Lack { error: error.clone(), again_at: now.saturating_add(wait), wait });
        }
        is_news
    }

    /// It was done, or there was nothing to do.
    fn clear(&self, kind: Kind) {
        if let Some(lack) = lock(&self.state).get_mut(kind as usize) {
            *lack = None;
        }
    }

    fn lack(&self, kind: Kind) -> Option<Lack> {
        lock(&self.state).get(kind as usize).cloned().flatten()
    }

    /// How many microseconds are left until something is tried again, where something is lacking.
    fn until_again(&self, now: u64) -> Option<u64> {
        let state = lock(&self.state);
        state.iter().flatten().map(|lack| lack.again_at.saturating_sub(now)).min()
    }
}

impl Core {
    /// For a piece of background work that is due: whether the caller, who is the background thread, has found no space
    /// for its kind lately, and is to leave it.
    pub(super) fn is_put_off(&self, kind: Kind) -> bool {
        let shortage = &self.shortage;
        self.shared.worker.is_own_thread()
            && shortage.lack(kind).is_some_and(|lack| lack.again_at > shortage.age.micros())
    }

    /// Notes how a piece of background work went. Whether an error was about space alone, so that it is tried again; so is
    /// the next file of the log, whatever the error: nothing that is written depends on it.
    pub(super) fn note_space<T>(&self, kind: Kind, outcome: &Result<T>) -> bool {
        match outcome {
            Ok(_) => {
                self.shortage.clear(kind);
                false
            }
            Err(error) if error.is_shortage() => {
                if self.shortage.note(kind, error, self.shortage.age.micros()) {
                    observe::no_space(&self.path, error);
                }
                // Who waits for a flush is refused.
                self.wake_flushed();
                true
            }
            Err(error) if kind == Kind::Spare => {
                self.shortage.note(kind, error, self.shortage.age.micros());
                true
            }
            Err(_) => false,
        }
    }

    /// Makes room in the log for the commit that has to have it; the numbers are those of
    /// [`wait_for_log`](Self::wait_for_log).
    ///
    /// # Errors
    /// Why there is none. A commit that is refused so has changed nothing.
    pub(super) fn make_log(
        &self,
        files: &WalFiles,
        (logged, own): (u64, u64),
        compacts: bool,
    ) -> Result<()> {
        // One at a time: who comes meanwhile is told what came of it, but where it needs much less.
        let mut lacked = lock(&self.shortage.making_log);
        self.check_open()?;
        let is_attended = self.shared.worker.is_attended();
        if let Some(lack) = self.shortage.lack(Kind::Spare)
            && is_attended
            && own >= *lacked / 2
            && lack.again_at > self.shortage.age.micros()
        {
            return Err(lack.error);
        }
        let made = files.make_room_upto(logged, compacts);
        *lacked = if made.is_err() { own } else { u64::MAX };
        if self.note_space(Kind::Spare, &made) {
            // Which tries again from now on.
            self.shared.worker.ring();
        }
        if made.is_err() {
            // Nobody makes files for a store that has been closed meanwhile.
            self.check_open()?;
        }
        made
    }

    /// Why there will be no room in memory before there is some on the disk, if so.
    pub(super) fn no_room(&self) -> Option<Error> {
        if let Some(lack) = self.shortage.lack(Kind::Flush) {
            return Some(lack.error);
        }
        // Flushes wait for folds, where there are very many files already.
        let is_held = self.flushes_wait(&self.shared.tables().files);
        self.shortage.lack(Kind::Other).filter(|_| is_held).map(|lack| lack.error)
    }

    /// What keeps background work that is needed from being done for want of space, if something does.
    pub(super) fn lacking(&self) -> Option<Error> {
        let kinds = [Kind::Flush, Kind::Spare, Kind::Other];
        let lacks = kinds.into_iter().filter_map(|kind| self.shortage.lack(kind));
        lacks.map(|lack| lack.error).find(Error::is_shortage)
    }

    /// After what time background work that found no space is to be tried again, if there is some.
    pub(super) fn until_space(&self) -> Option<Duration> {
        let left = self.shortage.until_again(self.shortage.age.micros())?;
        self.check_writable().ok()?;
        // What is due may have to wait for other work that lacks space, too.
        Some(Duration::from_micros(left.max(SHORTEST_MICROS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn full() -> Error {
        ErrorKind::NoSpace { operation: "write", path: "/store".into() }.into()
    }

    #[test]
    fn other_work_waits_longer_each_time_and_a_flush_does_not() {
        let shortage = Shortage::new();
        assert_eq!(shortage.until_again(5), None);
        let mut waits = Vec::new();
        for n in 0..9 {
            assert_eq!(shortage.note(Kind::Other, &full(), 1_000), n == 0);
            waits.push(shortage.until_again(1_000).unwrap() / 1_000_000);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        for _ in 0..3 {
            assert!(!shortage.note(Kind::Flush, &full(), 1_000));
            assert_eq!(shortage.until_again(1_000), Some(FLUSH_MICROS));
        }
        assert_eq!(shortage.until_again(u64::MAX), Some(0));
        shortage.clear(Kind::Flush);
        assert_eq!(shortage.until_again(1_000), Some(LONGEST_MICROS));
        shortage.clear(Kind::Other);
        assert_eq!(shortage.until_again(1_000), None);
        assert!(!shortage.note(Kind::Quiet, &full(), 1_000), "nothing is lacking");
        assert_eq!(shortage.until_again(1_000), Some(QUIET_MICROS));
        assert!(shortage.note(Kind::Spare, &full(), 1_000), "that is news all the same");
        shortage.clear(Kind::Spare);
        shortage.clear(Kind::Quiet);
        assert!(shortage.note(Kind::Other, &full(), 0));
        assert_eq!(shortage.until_again(0), Some(FIRST_MICROS));
    }
}
