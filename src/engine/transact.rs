//! Writing: evaluate against a snapshot, order, and again if something came between.

use std::ops::Range;
use std::ptr;

use crate::clock::Stopwatch;
use crate::commit::{Below, OrderError, Ordered, Plan, Ticket};
use crate::error::{Error, ErrorKind, Result};
use crate::index::{Place, Position, Stub};
use crate::observe;
use crate::options::Durability;
use crate::sync::epoch;
use crate::sync::{Arc, Ordering, fence};

use super::core::Core;
use super::count::count;
use super::diff::has_changed;
use super::latency::measure;
use super::read;
use super::record::Record;
use super::scan::{Scan, at_for, end_of_space};
use super::tables::Tables;
use super::view::View;

/// How a transaction ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Its place in the order; of one that only read, the place it read at.
    pub(crate) position: Position,
    /// Whether it wrote a user key, and so took the revision of its position for itself.
    pub(crate) changed: bool,
    /// The durability asked for, or else that of the store. To wait for it is the caller's choice:
    /// see [`Engine::wait`](super::Engine::wait) and [`Engine::ticket`](super::Engine::ticket).
    pub(crate) durability: Durability,
    /// Whether it only read: then whatever happens, it has changed nothing.
    read_only: bool,
    /// Since when, if it is measured how long it takes.
    begun: Option<Stopwatch>,
}

/// What a transaction reads: the state as of the last applied one.
#[derive(Debug)]
pub(crate) struct Snapshot<'e> {
    core: &'e Arc<Core>,
    tables: &'e Tables,
    place: Place,
}

impl Snapshot<'_> {
    /// The transaction it comes directly after.
    pub(crate) fn position(&self) -> Position {
        self.place.position
    }

    /// The watermark: what the transaction may not read below where no rule of retention says otherwise,
    /// and a compaction must be above.
    pub(crate) fn compacted(&self) -> u64 {
        self.place.compacted
    }

    /// The value of an internal key; of the system space, too.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Record>> {
        let at = at_for(key, self.position());
        read::get(self.tables, key, at)
    }

    /// The newest version of a key, tombstones included, without its value: what a
    /// [`Point`](crate::commit::Point) is made of.
    pub(crate) fn newest(&self, key: &[u8]) -> Result<Option<Stub>> {
        read::newest(self.tables, key, at_for(key, self.position()))
    }

    /// The living keys of a range of internal keys; an empty `end` is the end of the space.
    pub(crate) fn scan(&self, start: &[u8], end: &[u8], keys_only: bool) -> Scan {
        let at = at_for(start, self.position());
        Scan::new(self.tables.clone(), at, (start, end), keys_only, None)
    }

    /// How many keys of a range live; an empty `end` is the end of the space.
    pub(crate) fn count(&self, start: &[u8], end: &[u8]) -> Result<u64> {
        count(self.tables, (start, end), at_for(start, self.position()))
    }

    /// Whether a users' key of a range of internal keys has been changed after `since`, a revision that is pinned; an empty
    /// `end` is the end of the space. Costs a walk over the keys of the range in memory, and in the files that have
    /// younger versions.
    pub(crate) fn has_changed(&self, start: &[u8], end: &[u8], since: u64) -> Result<bool> {
        let now = self.position().revision;
        let end = if end.is_empty() { end_of_space(start) } else { end.to_vec() };
        Ok(now > since && has_changed(self.tables, (since, now), start, &end)?)
    }

    /// Refuses to read a half-open range of internal keys, which may be empty, as of `requested`.
    ///
    /// # Errors
    /// `Compacted`.
    pub(crate) fn check_past(&self, range: Range<&[u8]>, requested: u64) -> Result<()> {
        self.core.check_past(range, requested, self.compacted())
    }

    /// The store as of an older revision.
    ///
    /// # Errors
    /// `Compacted`, or `FutureRevision` if it is above that of the snapshot.
    pub(crate) fn at(&self, revision: u64) -> Result<View> {
        View::within(self.core, revision, self.place)
    }
}

/// Looks for the newest version of a key below a generation, in the tables of now.
pub(super) struct Older<'a> {
    pub(super) core: &'a Core,
}

impl Below for Older<'_> {
    fn newest(&self, key: &[u8], generation: u64) -> Result<Option<Stub>> {
        let guard = epoch::pin();
        let tables = self.core.shared.tables.load(&guard);
        read::newest_below(tables, key, generation)
    }
}

/// What is done where a commit has to wait before it has its place in the order: for memory, or the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It waits, and where flush is behind it pauses.
    Waits,
    /// It is refused with `WouldWait`.
    Refuses,
}

impl Patience {
    /// For who would wait now.
    fn check(self) -> Result<()> {
        match self {
            Self::Waits => Ok(()),
            Self::Refuses => Err(ErrorKind::WouldWait.into()),
        }
    }
}

impl Core {
    /// Runs a transaction: `evaluate` reads a snapshot, fills in an empty plan, and answers whether there
    /// is anything to write; as often as it takes for nothing it depends on to change in between. The result is ordered and applied.
    ///
    /// # Errors
    /// What `evaluate` answers, and whatever keeps the store from writing. Nothing was changed then.
    pub(super) fn transact<'r>(
        self: &Arc<Self>,
        durability: Option<Durability>,
        evaluate: &mut dyn FnMut(&Snapshot<'_>, &mut Plan<'r>) -> Result<bool>,
    ) -> Result<Outcome> {
        self.transact_by((durability, Patience::Waits), evaluate)
    }

    /// The same, with or without patience for what there may be to wait for.
    ///
    /// # Errors
    /// As [`transact`](Self::transact); `WouldWait`.
    pub(super) fn transact_by<'r>(
        self: &Arc<Self>,
        (durability, patience): (Option<Durability>, Patience),
        evaluate: &mut dyn FnMut(&Snapshot<'_>, &mut Plan<'r>) -> Result<bool>,
    ) -> Result<Outcome> {
        let durability = durability.unwrap_or(self.options.durability);
        let begun = measure(durability);
        let mut quiet = self.chain.quiet();
        let (mut doubled, mut conflicts) = (0, 0);
        let mut has_waited = false;
        loop {
            let guard = epoch::pin();
            self.check_open()?;
            let tables = self.shared.tables.load(&guard);
            let snapshot = self.chain.begin(&guard);
            let place = snapshot.place();
            let position = place.position;
            // In force before and after: so the tables have everything up to the position, and their
            // files nothing behind it, which they may hold in place of older system keys.
            if !ptr::eq(tables, self.shared.tables.load(&guard)) {
                continue;
            }
            let mut plan = Plan { doubled, ..Plan::default() };
            if !evaluate(&Snapshot { core: self, tables, place }, &mut plan)? {
                let outcome =
                    Outcome { position, changed: false, durability, read_only: true, begun };
                self.check_kept(&outcome)?;
                return Ok(outcome);
            }
            self.check_writable()?;
            if !plan.writes.is_empty() && self.would_pause() {
                patience.check()?;
            }
            // What only forgets is taken all the same: it may be what gives space back, and there is room for it
            // in the generation of now as long as others wait here.
            if !has_waited && !plan.writes.is_empty() && self.must_wait_for_flush() {
                drop((guard, quiet));
                self.wait_for_flush()?;
                quiet = self.chain.quiet();
                has_waited = true;
                continue;
            }
            plan.buffered = durability == Durability::Buffered;
            match self.chain.order(&snapshot, &plan, &Older { core: self }) {
                Ok(Ordered { position, changed }) => {
                    let outcome =
                        Outcome { position, changed, durability, read_only: false, begun };
                    if plan.buffered {
                        self.shared.logger.ring();
                    }
                    drop((guard, quiet));
                    if conflicts > 0 {
                        observe::count(observe::CONFLICTS, conflicts);
                    }
                    self.slow_down();
                    self.check_kept(&outcome)?;
                    return Ok(outcome);
                }
                Err(OrderError::Conflict) => {
                    self.counters.conflicts.fetch_add(1, Ordering::Relaxed);
                    conflicts += 1;
                    has_waited = false;
                    quiet.conflict();
                }
                Err(OrderError::NoRoom { doubled: asked }) => {
                    doubled = asked;
                    // What is flushed meanwhile must come back, and nobody keeps quiet for one that
                    // sleeps.
                    drop((guard, quiet));
                    patience.check()?;
                    self.wait_for_flush()?;
                    quiet = self.chain.quiet();
                }
                Err(OrderError::LogFull { logged_bytes, frame_bytes }) => {
                    drop((guard, quiet));
                    patience.check()?;
                    self.wait_for_log((logged_bytes, frame_bytes), plan.compact.is_some())?;
                    quiet = self.chain.quiet();
                }
                Err(OrderError::Failed(error)) => return Err(error),
            }
        }
    }

    /// Fails if what an answer depends on is known to be lost, for an answer that waits for nothing.
    ///
    /// *Closed.* A commit that came past the checks before the store was closed may find its place
    /// after close has written out the last one, which cannot see it. So it looks itself: either
    /// close finds what was applied before this, or this finds the store closed.
    ///
    /// *Poisoned.* Once a write or sync has failed, what was applied and is not durable is shown no
    /// more, and so is not answered from either. A failure after this look finds the answer gone.
    fn check_kept(&self, outcome: &Outcome) -> Result<()> {
        if outcome.durability == Durability::Sync {
            return Ok(());
        }
        fence(Ordering::SeqCst);
        let closed = self.closed.load(Ordering::Acquire) && !self.read_only;
        // In a closed store `Closed` if the log is gone: then nobody writes it any more, and nobody
        // will see it. In a poisoned one it does not wait.
        if closed || self.chain.is_poisoned() { self.wait(outcome) } else { Ok(()) }
    }

    /// Waits until an outcome is durable.
    ///
    /// # Errors
    /// When the write or sync failed: `OutcomeUnknown`, or `Poisoned` if the transaction only read.
    pub(super) fn wait(&self, outcome: &Outcome) -> Result<()> {
        self.chain.wait(outcome.position, outcome.read_only)
    }

    /// Counts how long an outcome took that may be answered now.
    pub(super) fn answered(&self, outcome: &Outcome) {
        if let Some(begun) = outcome.begun
            && outcome.changed
        {
            let nanos = begun.nanos();
            self.counters.commit_durations.add(nanos);
            observe::duration(observe::COMMIT_SECONDS, nanos);
        }
    }

    /// What resolves when an outcome is durable.
    pub(super) fn ticket(&self, outcome: &Outcome) -> Ticket {
        // Its holder need never wait: then the log thread writes it, a little later.
        self.shared.logger.ring();
        self.chain.ticket(outcome.position, outcome.read_only)
    }

    /// The failure that poisoned the store, as an error.
    pub(super) fn poisoned(cause: &Arc<Error>) -> Error {
        ErrorKind::Poisoned { cause: Arc::clone(cause) }.into()
    }
}
