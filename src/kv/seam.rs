//! What this room uses of the engine, in one place: the two kinds of readers, as the evaluator wants
//! them.

use crate::error::{ErrorKind, Result};

use super::eval::reads::{Reads, Records};
use super::range::KeyRange;
use super::space;

pub(super) use crate::engine::{
    BaseWriter, Diff as Differences, Difference, Door, Engine, Event, Gather, Held, History,
    HistoryRecord, INLINE_KEY_BYTES, InternalKey, Log, Outcome, Patience, Plan, Point, RULES_MAX,
    Record, Rules, Scan, Scope, Snapshot, Stub, Ticket, Transaction, TransactionRef, View, Write,
    WriteKind,
};

impl Reads for Snapshot<'_> {
    fn revision(&self) -> u64 {
        self.position().revision
    }

    fn compacted(&self) -> u64 {
        self.compacted()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Record>> {
        self.get(key)
    }

    fn newest(&self, key: &[u8]) -> Result<Option<Stub>> {
        self.newest(key)
    }

    fn check_past(&self, start: &[u8], end: &[u8], revision: u64) -> Result<()> {
        self.check_past(start..end, revision)
    }

    fn scan(&self, start: &[u8], end: &[u8], keys_only: bool) -> Records<'_> {
        Box::new(self.scan(start, end, keys_only))
    }

    fn count(&self, start: &[u8], end: &[u8]) -> Result<u64> {
        self.count(start, end)
    }

    fn get_at(&self, key: &[u8], revision: u64) -> Result<Option<Record>> {
        self.at(revision)?.get(key)
    }

    fn scan_at(
        &self,
        start: &[u8],
        end: &[u8],
        keys_only: bool,
        revision: u64,
    ) -> Result<Records<'_>> {
        Ok(Box::new(self.at(revision)?.scan(start, end, keys_only)))
    }

    fn count_at(&self, start: &[u8], end: &[u8], revision: u64) -> Result<u64> {
        self.at(revision)?.count(start, end)
    }
}

/// The newest visible state, with the engine to ask for older ones.
pub(super) struct Newest<'e> {
    pub(super) engine: &'e Door,
    pub(super) view: View,
}

impl<'e> Newest<'e> {
    pub(super) fn of(engine: &'e Door) -> Result<Self> {
        Ok(Self { engine, view: engine.latest()? })
    }

    /// With the lease table of the same moment.
    pub(super) fn with_leases(engine: &'e Door) -> Result<Self> {
        Ok(Self { engine, view: engine.latest_of_both_spaces()? })
    }
}

impl Reads for Newest<'_> {
    fn revision(&self) -> u64 {
        self.view.revision()
    }

    fn compacted(&self) -> u64 {
        self.view.compacted()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Record>> {
        self.view.get(key)
    }

    fn newest(&self, key: &[u8]) -> Result<Option<Stub>> {
        self.view.newest(key)
    }

    fn check_past(&self, start: &[u8], end: &[u8], revision: u64) -> Result<()> {
        self.view.check_past(start..end, revision)
    }

    fn scan(&self, start: &[u8], end: &[u8], keys_only: bool) -> Records<'_> {
        Box::new(self.view.scan(start, end, keys_only))
    }

    fn count(&self, start: &[u8], end: &[u8]) -> Result<u64> {
        self.view.count(start, end)
    }

    fn get_at(&self, key: &[u8], revision: u64) -> Result<Option<Record>> {
        self.engine.view(revision)?.get(key)
    }

    fn scan_at(
        &self,
        start: &[u8],
        end: &[u8],
        keys_only: bool,
        revision: u64,
    ) -> Result<Records<'_>> {
        Ok(Box::new(self.engine.view(revision)?.scan(start, end, keys_only)))
    }

    fn count_at(&self, start: &[u8], end: &[u8], revision: u64) -> Result<u64> {
        self.engine.view(revision)?.count(start, end)
    }
}

/// What the transactions from `first` (`None`: the oldest of which all is retained) up to and without
/// `end` did to a range of users' keys.
pub(super) fn log(engine: &Door, first: Option<u64>, end: u64, range: &KeyRange) -> Result<Log> {
    let upto = end.saturating_sub(1);
    let (start, limit) = space::user_range(range);
    let (start, limit) = (&start[..], &limit[..]);
    let scope = if *range == KeyRange::all() { Scope::All } else { Scope::Range(start, limit) };
    loop {
        let from = first.unwrap_or_else(|| engine.oldest_of(start..limit));
        match engine.log(from, upto, scope) {
            // Compacted again meanwhile: the oldest is another one now.
            Err(error) if first.is_none() && is_compacted(&error) => {}
            log => return log,
        }
    }
}

pub(super) fn is_compacted(error: &crate::error::Error) -> bool {
    matches!(error.kind(), ErrorKind::Compacted { .. })
}
