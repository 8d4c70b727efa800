//! What this room uses of the engine, in one place.

use crate::error::{ErrorKind, Result};

use super::eval::reads::{Reads, Records};

pub(super) use super::memory::{
    Difference, Engine, Footprint, HistoryRecord, Outcome, Plan, Record, Step, Ticket, Transaction,
    View, Write, WriteKind,
};

pub(super) type Scan = std::vec::IntoIter<Result<Record>>;
pub(super) type History = std::vec::IntoIter<Result<HistoryRecord>>;
pub(super) type Differences = std::vec::IntoIter<Result<Difference>>;
pub(super) type Log = std::vec::IntoIter<Result<Transaction>>;

pub(super) fn scan(view: &View, start: &[u8], end: &[u8], keys_only: bool) -> Scan {
    view.scan(start, end, keys_only).into_iter()
}

pub(super) fn history(view: &View, key: &[u8]) -> History {
    view.history(key).into_iter().map(Ok).collect::<Vec<_>>().into_iter()
}

pub(super) fn diff(
    engine: &Engine,
    from: u64,
    to: u64,
    start: &[u8],
    end: &[u8],
) -> Result<Differences> {
    let differences = engine.diff(from, to, start, end)?;
    Ok(differences.into_iter().map(Ok).collect::<Vec<_>>().into_iter())
}

pub(super) fn log(engine: &Engine, first: Option<u64>, end: u64) -> Result<Log> {
    let compacted = engine.compacted();
    if let Some(requested) = first
        && requested < compacted
    {
        return Err(ErrorKind::Compacted { requested, compacted }.into());
    }
    let first = first.unwrap_or(compacted);
    let found = engine.log().into_iter().filter(|t| t.revision >= first && t.revision < end);
    Ok(found.map(Ok).collect::<Vec<_>>().into_iter())
}

/// The view at a revision, or `None` when it has been compacted away meanwhile.
pub(super) fn view_if_readable(engine: &Engine, revision: u64) -> Result<Option<View>> {
    match engine.view(revision) {
        Ok(view) => Ok(Some(view)),
        Err(error) if matches!(error.kind(), ErrorKind::Compacted { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Reads for View {
    fn revision(&self) -> u64 {
        self.position().revision
    }

    fn compacted(&self) -> u64 {
        self.compacted()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Record>> {
        self.get(key)
    }

    fn seen(&self, key: &[u8]) -> Result<u64> {
        self.seen(key)
    }

    fn scan<'s>(&'s self, start: &[u8], end: &[u8], keys_only: bool) -> Records<'s> {
        Box::new(self.scan(start, end, keys_only).into_iter())
    }

    fn get_at(&self, key: &[u8], revision: u64) -> Result<Option<Record>> {
        self.engine().view(revision)?.get(key)
    }

    fn scan_at<'s>(
        &'s self,
        start: &[u8],
        end: &[u8],
        keys_only: bool,
        revision: u64,
    ) -> Result<Records<'s>> {
        let view = self.engine().view(revision)?;
        Ok(Box::new(view.scan(start, end, keys_only).into_iter()))
    }
}
