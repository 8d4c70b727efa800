//! The engine room: everything below put together into a store of internal keys.
//!
//! Reading order: [`tables`] says where a version can be, [`read`] and [`scan`] find it there,
//! [`view`] and [`transact`] are the two kinds of readers, [`retention`] says how far back they can go, [`latest`] is for a
//! reader with one question, [`jobs`] moves versions from memory to
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

mod bell;
mod check;
mod core;
mod count;
mod credit;
mod diff;
mod folds;
mod history;
pub mod inspect;
mod jobs;
mod latest;
mod log;
mod open;
mod pins;
mod pressure;
mod published;
mod read;
mod record;
mod report;
mod retention;
mod scan;
mod shared;
mod shares;
mod source;
mod space;
mod stats;
mod tables;
mod transact;
mod view;
mod windows;
mod worker;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::Path;

use annals_format::retention::Rule;
use bytes::Bytes;

use crate::error::{ErrorKind, Result};
use crate::options::{Durability, Options};
use crate::sync::plain::{Mutex, lock};
use crate::sync::{Arc, Ordering, fence};

use self::core::Core;
use self::worker::Worker;

pub(crate) use crate::commit::{
    INLINE_KEY_BYTES, InternalKey, Plan, Point, Ticket, Write, WriteKind,
};
pub(crate) use crate::index::Stub;
pub use check::{CheckReport, TornTail, check};
pub(crate) use diff::Diff;
pub(crate) use history::History;
pub(crate) use log::{Log, Scope};
pub(crate) use record::{Difference, Event, HistoryRecord, Record, Transaction};
pub use report::{DroppedTail, OpenReport};
pub(crate) use retention::Rules;
pub(crate) use scan::Scan;
pub use space::{PrefixSpace, Space};
pub(crate) use space::{SpaceQuery, Survey};
pub use stats::{FileStats, Stats};
pub(crate) use transact::{Outcome, Snapshot};
pub(crate) use view::View;

/// An open store of internal keys. Clones share it; the last one that goes closes it. The readers of
/// this room hold none: what they have found stays readable, and all else answers `Closed`.
#[derive(Clone, Debug)]
pub(crate) struct Engine(Arc<Handle>);

/// What the clones share.
#[derive(Debug)]
struct Handle {
    core: Arc<Core>,
    worker: Mutex<Option<Worker>>,
}

impl Engine {
    /// Opens a store for writing; makes it if there is none and the options say so.
    ///
    /// # Errors
    /// `NoStore`, `NotAStore`, `Locked`, `Corrupt`, `UnsupportedVersion`, or what the file system
    /// answers.
    pub(crate) fn open(path: &Path, options: &Options) -> Result<(Self, OpenReport)> {
        let (core, report) = open::open(path, options)?;
        let worker = if options.background { Some(Worker::start(&core)?) } else { None };
        Ok((Self(Arc::new(Handle { core, worker: Mutex::new(worker) })), report))
    }

    /// Opens a store for reading. Nothing is written, and a live writer is not disturbed; what it
    /// writes later is seen by another [`refreshed`](Self::refreshed) engine.
    ///
    /// # Errors
    /// As [`open`](Self::open), without `Locked`.
    pub(crate) fn open_read_only(path: &Path, options: &Options) -> Result<(Self, OpenReport)> {
        let (core, report) = open::open_read_only(path, options)?;
        Ok((Self(Arc::new(Handle { core, worker: Mutex::new(None) })), report))
    }

    /// An engine that shows what the writer has made durable since this read-only one was opened;
    /// `None` if that is nothing.
    ///
    /// # Errors
    /// As [`open_read_only`](Self::open_read_only).
    pub(crate) fn refreshed(&self) -> Result<Option<(Self, OpenReport)>> {
        let core = &self.0.core;
        let (newer, report) = Self::open_read_only(&core.path, &core.options)?;
        Ok((newer.0.core.visible().seq > core.visible().seq).then_some((newer, report)))
    }

    /// Closes the store, for all clones: waits until everything is durable, seals the log, and
    /// gives up the lock. Views answer `Closed` from then on; iterators that were begun go on.
    ///
    /// # Errors
    /// What kept the log from being sealed. Everything acknowledged is safe all the same, and the
    /// store is closed.
    pub(crate) fn close(&self) -> Result<()> {
        self.0.close()
    }

    /// The options it was opened with.
    pub(crate) fn options(&self) -> &Options {
        &self.0.core.options
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.0.core.path
    }

    /// The newest visible state.
    ///
    /// # Errors
    /// `Closed`.
    pub(crate) fn latest(&self) -> Result<View> {
        View::latest(&self.0.core)
    }

    /// The newest visible state, of the users' and the system's keys at one moment.
    ///
    /// # Errors
    /// `Closed`.
    pub(crate) fn latest_of_both_spaces(&self) -> Result<View> {
        View::latest_of_both_spaces(&self.0.core)
    }

    /// The value of an internal key in the newest visible state, and the revision of that state. It
    /// costs less than a view that is asked once.
    ///
    /// # Errors
    /// `Closed`, or what reading a file answers.
    pub(crate) fn get_latest(&self, key: &[u8]) -> Result<(u64, Option<Record>)> {
        self.0.core.get_latest(key)
    }

    /// The state as of a revision.
    ///
    /// # Errors
    /// `Compacted`, `FutureRevision`, `Closed`.
    pub(crate) fn view(&self, revision: u64) -> Result<View> {
        View::at(&self.0.core, revision)
    }

    /// Runs a transaction: `evaluate` reads a snapshot, fills in the plan, which is empty, and answers whether
    /// there is anything to write. It is called again
    /// when something it depends on changed before its plan got its place.
    ///
    /// # Errors
    /// What `evaluate` answers; `ReadOnly`, `Poisoned`, `Closed`. Nothing was changed then.
    pub(crate) fn transact<'r>(
        &self,
        durability: Option<Durability>,
        evaluate: &mut dyn FnMut(&Snapshot<'_>, &mut Plan<'r>) -> Result<bool>,
    ) -> Result<Outcome> {
        self.0.core.transact(durability, evaluate)
    }

    /// Waits as long as the durability asked for demands: not at all in `Buffered`.
    ///
    /// # Errors
    /// When the write or sync failed: `OutcomeUnknown`, or `Poisoned` if the transaction only read.
    pub(crate) fn wait(&self, outcome: &Outcome) -> Result<()> {
        match outcome.durability {
            Durability::Sync => self.0.core.wait(outcome),
            Durability::Buffered => Ok(()),
        }
    }

    /// What resolves when the outcome is durable.
    pub(crate) fn ticket(&self, outcome: &Outcome) -> Ticket {
        self.0.core.ticket(outcome)
    }

    /// The newest visible revision.
    pub(crate) fn revision(&self) -> u64 {
        self.0.core.visible().revision
    }

    /// The newest durable revision.
    pub(crate) fn durable_revision(&self) -> u64 {
        self.0.core.chain.durable().revision
    }

    /// The watermark: nothing older is answered. 0 if the store was never compacted.
    pub(crate) fn compacted_revision(&self) -> u64 {
        self.0.core.compacted()
    }

    /// Counts the opens that followed no clean close, from 1.
    pub(crate) fn incarnation(&self) -> u64 {
        lock(&self.0.core.state).manifest.incarnation
    }

    /// The newest visible revision that is not later than a time, in microseconds since the epoch.
    ///
    /// # Errors
    /// `NoRevisionAtTime` if every revision that can be read is later.
    pub(crate) fn revision_at_time(&self, time: i64) -> Result<u64> {
        log::revision_at_time(&self.0.core, time)
    }

    /// What the transactions with a revision in [`from`, `upto`] did, ascending, as far as visible.
    ///
    /// # Errors
    /// `Compacted` if keys that are asked about are not kept as far back as `from`.
    pub(crate) fn log(&self, from: u64, upto: u64, scope: Scope<'_>) -> Result<Log> {
        Log::open(&self.0.core, from, upto, scope)
    }

    /// The oldest revision at which every key of a half-open range of internal keys of users can be
    /// read.
    pub(crate) fn oldest_of(&self, range: Range<&[u8]>) -> u64 {
        self.0.core.floor_of_range(range)
    }

    /// Every rule of retention with its prefix. Its floor is the oldest revision at which its keys can
    /// be read.
    pub(crate) fn rules(&self) -> Vec<(Bytes, Rule)> {
        self.0.core.rules()
    }

    /// The rules of retention that refusals go by just now, where there are any but that of the empty
    /// prefix. Others, or others again, are another value.
    pub(crate) fn rules_seen(&self) -> Option<Arc<Rules>> {
        self.0.core.rules_seen()
    }

    /// Sets the rule of retention of a prefix of users' keys, or takes it back; its floor is not the
    /// caller's to say. Durable when it returns.
    ///
    /// # Errors
    /// `TooManyRules`; `ReadOnly`, `Poisoned`, `Closed`; `OutcomeUnknown`.
    pub(crate) fn set_rule(&self, prefix: &[u8], wanted: Option<Rule>) -> Result<()> {
        self.0.core.set_rule(prefix, wanted)
    }

    /// Forgets what the rules of retention keep no more. Answers whether that was anything.
    ///
    /// # Errors
    /// As [`set_rule`](Self::set_rule), and what reading the times of revisions answers.
    pub(crate) fn apply_retention(&self) -> Result<bool> {
        self.0.core.apply_retention()
    }

    /// The state as of a transaction that `log` has told, whatever was compacted since.
    pub(crate) fn view_of_log(&self, log: &Log, revision: u64) -> View {
        View::of_log(&self.0.core, log, revision)
    }

    /// Makes everything applied durable.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a write or sync failed.
    pub(crate) fn flush(&self) -> Result<()> {
        self.0.core.check_open()?;
        let chain = &self.0.core.chain;
        chain.wait_durable(chain.applied())
    }

    /// Does one piece of background work. Answers whether there was any.
    ///
    /// # Errors
    /// The failure, after which the store accepts no more writes.
    pub(crate) fn run_background(&self) -> Result<bool> {
        let core = &self.0.core;
        Ok(core.apply_retention_when_due()? || core.run_unit()?)
    }

    /// Figures about the store.
    pub(crate) fn stats(&self) -> Stats {
        self.0.core.stats()
    }

    /// A walk over the files of now that tells how much room which keys take.
    ///
    /// # Errors
    /// `Closed`, or what opening a file answers.
    pub(crate) fn survey(&self, query: SpaceQuery) -> Result<Survey> {
        Survey::new(&self.0.core, query)
    }

    /// Moves everything in memory to files, folds them, and does all background work there is.
    ///
    /// # Errors
    /// As [`run_background`](Self::run_background).
    pub(crate) fn reorganise(&self) -> Result<()> {
        self.0.core.reorganise()
    }
}

impl Handle {
    fn close(&self) -> Result<()> {
        let worker = self.end()?;
        drop(worker);
        self.core.shut()
    }

    /// Takes no more calls. Answers the background threads, which are to be stopped before the store is
    /// shut.
    fn end(&self) -> Result<Option<Worker>> {
        if self.core.closed.swap(true, Ordering::AcqRel) {
            return Err(ErrorKind::Closed.into());
        }
        // Ordered against `Core::check_kept`: what was answered before is in what is sealed.
        fence(Ordering::SeqCst);
        self.core.wake_flushed();
        Ok(lock(&self.worker).take())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Ok(worker) = self.end() {
            worker::shut_unseen(worker, Arc::clone(&self.core));
        }
    }
}
