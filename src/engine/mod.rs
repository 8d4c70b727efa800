//! The engine room: everything below put together into a store of internal keys.
//!
//! Reading order: [`tables`] says where a version can be, [`read`] and [`scan`] find it there,
//! [`view`] and [`transact`] are the two kinds of readers, [`retention`] says how far back they can go, [`latest`] is for a
//! reader with one question, [`follow`] for one that reads on for ever, [`jobs`] moves versions from memory to
//! files and on, [`open`] finds it all again.
//!
//! Invariants:
//!
//! 1. A reader fixes its revision before it loads the tables, or knows that they were in force when it
//!    did, and asks one value of the tables.
//! 2. Files are in force through the manifest before the tables show them, and are unlinked only
//!    after neither does.
//! 3. What a pinned revision can ask for is not dropped; what is below the watermark is not
//!    answered, whether it is still there or not.
//! 4. Nothing waits for background work but a commit that finds too many frozen generations; before
//!    that, commits slow down ([`pressure`]). Background work in turn waits for the log: it writes
//!    as much as the syncs leave it ([`credit`]).

mod attend;
mod backup;
mod bell;
mod blobs;
mod bump;
mod chain_log;
mod check;
mod checkpoint;
mod copies;
mod core;
mod count;
mod credit;
mod damage_note;
mod diff;
mod door;
mod event_files;
mod folds;
mod follow;
mod history;
mod in_force;
mod increment;
pub mod inspect;
mod jobs;
mod latency;
mod latest;
mod left_alone;
mod load;
mod log;
mod lost_era;
mod lost_events;
mod lost_newest;
mod lost_past;
mod new_store;
mod open;
mod pins;
mod pressure;
mod published;
mod put_together;
mod read;
mod receive;
mod record;
mod report;
mod restore;
mod retention;
mod scan;
mod shared;
mod shares;
mod shortage;
mod source;
mod space;
mod spilled;
mod stats;
mod stream;
mod tables;
mod times;
mod transact;
mod view;
mod windows;
mod worker;

#[cfg(test)]
mod tests;

use std::any::Any;
use std::ops::Deref;
use std::path::Path;

use crate::error::{ErrorKind, Result};
use crate::options::Options;
use crate::sync::plain::{Mutex, lock};
use crate::sync::{Arc, AtomicBool, Ordering};

use self::core::Core;
use self::open::Opening;
use self::worker::Worker;

pub(crate) use attend::{Attendant, Duty};

pub(crate) use crate::commit::{
    INLINE_KEY_BYTES, InternalKey, Plan, Point, Ticket, Write, WriteKind,
};
pub(crate) use crate::index::Stub;
pub(crate) use backup::Content;
pub(crate) use bump::check_begin;
pub use check::{CheckReport, TornTail, check};
pub use checkpoint::Checkpoint;
pub(crate) use diff::Diff;
pub(crate) use door::Door;
pub(crate) use follow::{Follow, Seen};
pub(crate) use history::History;
pub(crate) use increment::{Continuing, Frames, write_records};
pub use latency::Latency;
pub(crate) use load::BaseWriter;
pub(crate) use log::{Held, Log, Scope, TransactionRef};
pub(crate) use receive::{Receiver, receive};
pub(crate) use record::{Difference, Event, Gather, HistoryRecord, Record, Transaction};
pub use report::{DroppedTail, OpenReport};
pub(crate) use restore::Restoring;
pub(crate) use retention::RULES_MAX;
pub(crate) use retention::Rules;
pub(crate) use scan::Scan;
pub use space::{PrefixSpace, Space};
pub(crate) use space::{SpaceQuery, Survey, label};
pub use stats::{FileStats, Stats};
pub(crate) use stream::{Input, StreamReader, StreamWriter};
pub(crate) use transact::{Outcome, Patience, Snapshot};
pub(crate) use view::View;

/// An open store of internal keys. Clones share it; the last one that goes closes it. The readers of
/// this room hold none: what they have found stays readable, and all else answers `Closed`.
#[derive(Clone, Debug)]
pub(crate) struct Engine(Arc<Handle>);

/// What the clones share.
#[derive(Debug)]
struct Handle {
    door: Door,
    /// Set by the one who closes the store.
    ending: AtomicBool,
    worker: Mutex<Worker>,
}

impl Engine {
    /// Opens a store for writing; makes it if there is none and the options say so.
    ///
    /// # Errors
    /// `NoStore`, `NotAStore`, `Locked`, `Corrupt`, `UnsupportedVersion`, or what the file system
    /// answers.
    pub(crate) fn open(path: &Path, options: &Options) -> Result<(Self, OpenReport)> {
        Self::open_as(Opening::Store, path, options)
    }

    fn open_as(opening: Opening, path: &Path, options: &Options) -> Result<(Self, OpenReport)> {
        let (core, report) = open::open(path, options, opening)?;
        let worker = if options.background { Worker::start(&core)? } else { Worker::default() };
        Ok((Self::over(core, worker), report))
    }

    /// Opens a store for reading. Nothing is written, and a live writer is not disturbed; what it
    /// writes later is seen by another [`refreshed`](Self::refreshed) engine.
    ///
    /// # Errors
    /// As [`open`](Self::open), without `Locked`.
    pub(crate) fn open_read_only(path: &Path, options: &Options) -> Result<(Self, OpenReport)> {
        let (core, report) = open::open_read_only(path, options)?;
        Ok((Self::over(core, Worker::default()), report))
    }

    fn over(core: Arc<Core>, worker: Worker) -> Self {
        let (door, ending) = (Door(core), AtomicBool::new(false));
        Self(Arc::new(Handle { door, ending, worker: Mutex::new(worker) }))
    }

    /// An engine that shows what the writer has made durable since this read-only one was opened;
    /// `None` if that is nothing.
    ///
    /// # Errors
    /// As [`open_read_only`](Self::open_read_only).
    pub(crate) fn refreshed(&self) -> Result<Option<(Self, OpenReport)>> {
        let core = &self.0.door.0;
        let (newer, report) = Self::open_read_only(&core.path, &core.options)?;
        Ok((newer.0.door.0.visible().seq > core.visible().seq).then_some((newer, report)))
    }

    /// Closes the store, for all clones: waits until everything is durable, seals the log, and
    /// gives up the lock. Views answer `Closed` from then on; iterators that were begun go on.
    ///
    /// # Errors
    /// What kept the log from being sealed. Everything acknowledged is safe all the same, and the
    /// store is closed.
    pub(crate) fn close(&self) -> Result<()> {
        worker::shut(self.0.end()?, &self.0.door.0)
    }

    /// Has a further background thread do `duty` whenever it is rung, and once to begin with. It ends when
    /// it is dismissed; before the store is closed it is, and is waited for, with the store still open.
    ///
    /// # Errors
    /// `Closed`, or the system refuses a thread.
    pub(crate) fn attend(&self, name: &str, duty: Duty) -> Result<Attendant> {
        let mut worker = lock(&self.0.worker);
        if self.0.ending.load(Ordering::Acquire) {
            return Err(ErrorKind::Closed.into());
        }
        worker.attend(&self.0.door.0, name, duty)
    }

    /// Keeps something until the store is closed; before that, with the store still open, the thread that
    /// closes it drops it, and holds no lock.
    ///
    /// # Errors
    /// `Closed`.
    pub(crate) fn keep_until_closed(&self, what: Box<dyn Any + Send>) -> Result<()> {
        let mut worker = lock(&self.0.worker);
        if self.0.ending.load(Ordering::Acquire) {
            return Err(ErrorKind::Closed.into());
        }
        worker.keep(what);
        Ok(())
    }

    /// The same store, without keeping it open.
    pub(crate) fn door(&self) -> Door {
        self.0.door.clone()
    }
}

impl Deref for Engine {
    type Target = Door;

    fn deref(&self) -> &Door {
        &self.0.door
    }
}

impl Handle {
    /// Takes the background threads, for the one who is to stop them and shut the store.
    fn end(&self) -> Result<Worker> {
        if self.ending.swap(true, Ordering::AcqRel) {
            return Err(ErrorKind::Closed.into());
        }
        // Under the lock: a thread that is begun just now is among them, or not begun.
        Ok(std::mem::take(&mut *lock(&self.worker)))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Ok(worker) = self.end() {
            worker::shut_unseen(worker, Arc::clone(&self.door.0));
        }
    }
}
