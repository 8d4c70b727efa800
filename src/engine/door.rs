//! Everything that can be asked of an open store, whoever keeps it open.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use annals_format::StoreId;
use annals_format::retention::Rule;
use bytes::Bytes;

use crate::error::{Error, Result};
use crate::options::{Durability, Options};
use crate::sync::Arc;
use crate::sync::plain::lock;

use super::core::Core;
use super::{
    Checkpoint, Content, Held, Log, Outcome, Patience, Plan, Record, Rules, Scope, Snapshot,
    SpaceQuery, Stats, Survey, Ticket, View, times,
};

/// An open store of internal keys, as an [`Engine`](super::Engine) shows it. By itself it keeps nothing
/// open: after the store is closed it answers `Closed`, and the directory is free. So it is what background
/// threads hold, and whoever may outlive the store: a thread that held an engine could be the last to, and
/// would have to wait for itself.
#[derive(Clone, Debug)]
pub(crate) struct Door(pub(super) Arc<Core>);

impl Door {
    /// The options it was opened with.
    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    /// Fails where nothing can be written any more.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Poisoned`.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.0.check_writable()
    }

    /// Whether the store was opened for reading only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.0.read_only
    }

    /// Why nothing more can become visible, if so: `Closed`, or `Poisoned` after a failure of the log.
    pub(crate) fn failure(&self) -> Option<Error> {
        let poisoned = || self.0.chain.poison().map(|cause| Core::poisoned(&cause));
        self.0.check_open().err().or_else(poisoned)
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    /// The newest visible state.
    ///
    /// # Errors
    /// `Closed`.
    pub(crate) fn latest(&self) -> Result<View> {
        View::latest(&self.0)
    }

    /// The newest visible state, of the users' and the system's keys at one moment.
    ///
    /// # Errors
    /// `Closed`.
    pub(crate) fn latest_of_both_spaces(&self) -> Result<View> {
        View::latest_of_both_spaces(&self.0)
    }

    /// The value of an internal key in the newest visible state, and the revision of that state. It
    /// costs less than a view that is asked once.
    ///
    /// # Errors
    /// `Closed`, or what reading a file answers.
    pub(crate) fn get_latest(&self, key: &[u8]) -> Result<(u64, Option<Record>)> {
        self.0.get_latest(key)
    }

    /// The value of an internal key of users as of a revision. It costs less than a view that is asked once.
    ///
    /// # Errors
    /// `Compacted`, `FutureRevision`, `Closed`, or what reading a file answers.
    pub(crate) fn get_at(&self, key: &[u8], revision: u64) -> Result<Option<Record>> {
        self.0.get_at(key, revision)
    }

    /// The state as of a revision.
    ///
    /// # Errors
    /// `Compacted`, `FutureRevision`, `Closed`.
    pub(crate) fn view(&self, revision: u64) -> Result<View> {
        View::at(&self.0, revision)
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
        self.0.transact(durability, evaluate)
    }

    /// As [`transact`](Self::transact), with or without patience for what it may have to wait for before it has
    /// its place.
    ///
    /// # Errors
    /// As `transact`; `WouldWait`.
    pub(crate) fn transact_by<'r>(
        &self,
        asked: (Option<Durability>, Patience),
        evaluate: &mut dyn FnMut(&Snapshot<'_>, &mut Plan<'r>) -> Result<bool>,
    ) -> Result<Outcome> {
        self.0.transact_by(asked, evaluate)
    }

    /// Whether an outcome waits for nothing any more.
    pub(crate) fn is_certain(&self, outcome: &Outcome) -> bool {
        outcome.durability == Durability::Buffered
            || self.0.chain.durable().seq >= outcome.position.seq
    }

    /// Waits as long as the durability asked for demands: not at all in `Buffered`.
    ///
    /// # Errors
    /// When the write or sync failed: `OutcomeUnknown`, or `Poisoned` if the transaction only read.
    pub(crate) fn wait(&self, outcome: &Outcome) -> Result<()> {
        if outcome.durability == Durability::Sync {
            self.0.wait(outcome)?;
        }
        self.0.answered(outcome);
        Ok(())
    }

    /// What resolves when the outcome is durable.
    pub(crate) fn ticket(&self, outcome: &Outcome) -> Ticket {
        self.0.ticket(outcome)
    }

    /// The identity of the store.
    pub(crate) fn store_id(&self) -> StoreId {
        lock(&self.0.state).manifest.store
    }

    /// The newest visible revision.
    pub(crate) fn revision(&self) -> u64 {
        self.0.visible().revision
    }

    /// The newest durable revision.
    pub(crate) fn durable_revision(&self) -> u64 {
        self.0.chain.durable().revision
    }

    /// The watermark: nothing older is answered. 0 if the store was never compacted.
    pub(crate) fn compacted_revision(&self) -> u64 {
        self.0.compacted()
    }

    /// Counts the opens that followed no clean close, from 1.
    pub(crate) fn incarnation(&self) -> u64 {
        lock(&self.0.state).manifest.incarnation
    }

    /// The newest visible revision that is not later than a time, in microseconds since the epoch.
    ///
    /// # Errors
    /// `NoRevisionAtTime` if every revision that can be read is later; the empty store, revision 1, is older than any time.
    /// `TimeUnknown` where times are lost.
    pub(crate) fn revision_at_time(&self, time: i64) -> Result<u64> {
        times::revision_at_time(&self.0, time)
    }

    /// When a visible revision was ordered, in microseconds since the epoch; `None` if no transaction made it.
    ///
    /// # Errors
    /// `Compacted` if no key is kept as far back; `Closed`.
    pub(crate) fn time_of(&self, revision: u64) -> Result<Option<i64>> {
        times::time_of(&self.0, revision)
    }

    /// What the transactions with a revision in [`from`, `upto`] did, ascending, as far as visible.
    ///
    /// # Errors
    /// `Compacted` if keys that are asked about are not kept as far back as `from`.
    pub(crate) fn log(&self, from: u64, upto: u64, scope: Scope<'_>) -> Result<Log> {
        Log::open(&self.0, from, upto, scope)
    }

    /// The oldest revision at which every key of a half-open range of internal keys of users can be
    /// read.
    pub(crate) fn oldest_of(&self, range: Range<&[u8]>) -> u64 {
        self.0.floor_of_range(range)
    }

    /// Every rule of retention with its prefix. Its floor is the oldest revision at which its keys can
    /// be read.
    pub(crate) fn rules(&self) -> Vec<(Bytes, Rule)> {
        self.0.rules()
    }

    /// The rules of retention that refusals go by just now, where there are any but that of the empty
    /// prefix. Others, or others again, are another value.
    pub(crate) fn rules_seen(&self) -> Option<Arc<Rules>> {
        self.0.rules_seen()
    }

    /// Waits until readers go by every record of a rule that is visible by now.
    pub(crate) fn settle_rules(&self) {
        drop(self.0.retention.still());
    }

    /// Sets the rule of retention of a prefix of users' keys, or takes it back; its floor is not the
    /// caller's to say. Durable when it returns.
    ///
    /// # Errors
    /// `TooManyRules`; `ReadOnly`, `Poisoned`, `Closed`; `OutcomeUnknown`.
    pub(crate) fn set_rule(&self, prefix: &[u8], wanted: Option<Rule>) -> Result<()> {
        self.0.set_rule(prefix, wanted)
    }

    /// Forgets what the rules of retention keep no more. Answers whether that was anything.
    ///
    /// # Errors
    /// As [`set_rule`](Self::set_rule), and what reading the times of revisions answers.
    pub(crate) fn apply_retention(&self) -> Result<bool> {
        self.0.apply_retention()
    }

    /// The state as of a transaction of a log, whatever was compacted since; `held` is what that holds on to.
    pub(crate) fn view_of_log(&self, held: &Held, revision: u64) -> View {
        View::of_log(&self.0, held, revision)
    }

    /// Makes everything applied durable.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a write or sync failed.
    pub(crate) fn flush(&self) -> Result<()> {
        self.0.check_open()?;
        let chain = &self.0.chain;
        chain.wait_durable(chain.applied())
    }

    /// Does one piece of background work. Answers whether there was any.
    ///
    /// # Errors
    /// The failure. After it the store accepts no more writes, unless the disk is full, or a file cannot be read: the next
    /// call leaves that one alone.
    pub(crate) fn run_background(&self) -> Result<bool> {
        let core = &self.0;
        Ok(core.apply_retention_when_due()? || core.run_unit()?)
    }

    /// Makes a copy of what is visible, which shares the files, in a directory that is absent or empty.
    ///
    /// # Errors
    /// `InvalidArgument` for another directory; `Closed`; what reading and writing files answers.
    pub(crate) fn checkpoint(&self, to: &Path) -> Result<Checkpoint> {
        self.0.checkpoint(to)
    }

    /// What is visible now, to be written to a backup.
    ///
    /// # Errors
    /// `Closed`; what opening a file answers.
    pub(crate) fn content(&self) -> Result<Content> {
        Content::of(&self.0)
    }

    /// Figures about the store.
    pub(crate) fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// The visible revisions that views and iterators hold on to, ascending, and how many do each.
    pub(crate) fn pins(&self) -> BTreeMap<u64, u64> {
        let newest = self.revision();
        let mut pins = BTreeMap::new();
        for revision in self.0.pins.pinned().filter(|revision| *revision <= newest) {
            *pins.entry(revision).or_default() += 1;
        }
        pins
    }

    /// A walk over the files of now that tells how much room which keys take.
    ///
    /// # Errors
    /// `Closed`, or what opening a file answers.
    pub(crate) fn survey(&self, query: SpaceQuery) -> Result<Survey> {
        Survey::new(&self.0, query)
    }

    /// Moves everything in memory to files, folds them, and does all background work there is.
    ///
    /// # Errors
    /// As [`run_background`](Self::run_background).
    pub(crate) fn reorganise(&self) -> Result<()> {
        self.0.reorganise()
    }
}
