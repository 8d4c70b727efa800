//! Goes through the transactions of an EVENTS file, forward, and fast: a replay reads millions of them.
//!
//! A [`Cursor`](super::Cursor) could do the same; what it costs for each entry to be able to turn round,
//! and for each block to hand it out and to cache it, is more than all there is to be done. This one
//! decodes each block into the memory of the one before, and decodes of an entry what EVENTS have.

use std::sync::Arc;

use annals_format::block::Body;
use annals_format::error::{DecodeError, Problem};
use annals_format::events;
use annals_format::page::Handle;

use super::blocks::Caching;
use super::opened::Opened;
use super::reader::Segment;
use super::tree::Path;
use crate::error::{Error, Result};

/// How much of a map is populated ahead by one call, once a replay goes from block to block.
const AHEAD_BYTES: u64 = 256 << 10;

/// A transaction of an EVENTS file, in the memory of its block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replayed<'a> {
    /// Its revision.
    pub(crate) revision: u64,
    /// Its value: a [`Transaction`](events::Transaction).
    pub(crate) value: &'a [u8],
    /// The value and all that comes after it in the block.
    pub(crate) rest: &'a [u8],
    /// Its block.
    pub(crate) block: BlockId,
}

/// Which block something is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockId {
    /// The number of the file.
    pub(crate) file: u64,
    /// Where in the file it begins.
    pub(crate) offset: u64,
}

/// A place among the transactions of one EVENTS file.
#[derive(Debug)]
pub(crate) struct Replay {
    segment: Arc<Segment>,
    path: Path,
    /// The block it is in; its decoded body is in `body`.
    handle: Handle,
    body: Vec<u8>,
    /// Bytes of `body` that are entries; 0 if it is in no block.
    entries_bytes: usize,
    /// Where the next entry begins.
    at: usize,
    /// The revision of the entry before it in the block.
    before: Option<u64>,
    /// The revision that all the next ones are above.
    above: u64,
    /// Up to where the map has been populated.
    populated: u64,
}

impl Segment {
    /// The transactions of an EVENTS file with a revision of at least `from`.
    pub(crate) fn replay(self: &Arc<Self>, from: u64) -> Result<Replay> {
        let mut replay = Replay {
            segment: Arc::clone(self),
            path: Path::default(),
            handle: Handle::default(),
            body: Vec::new(),
            entries_bytes: 0,
            at: 0,
            before: None,
            above: 0,
            populated: 0,
        };
        replay.seek(self.opened()?, from)?;
        Ok(replay)
    }
}

impl Replay {
    /// The next transaction. After an error, or the end, there is none.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Replayed<'_>>> {
        loop {
            // At most as many as there are, since both come from the same body.
            let entries = self.body.get(..self.entries_bytes).unwrap_or_default();
            match events::entry(entries, self.at, self.before) {
                Ok(Some(found)) => {
                    let (revision, next, bytes) = (found.revision, found.next, found.value.len());
                    if revision <= self.above {
                        return Err(self.out_of_order());
                    }
                    (self.at, self.before, self.above) = (next, Some(revision), revision);
                    // The value ends where the next entry begins.
                    let entries = self.body.get(..self.entries_bytes).unwrap_or_default();
                    let rest = entries.get(next - bytes..).unwrap_or_default();
                    let value = rest.get(..bytes).unwrap_or_default();
                    let block =
                        BlockId { file: self.segment.meta().number, offset: self.handle.offset };
                    return Ok(Some(Replayed { revision, value, rest, block }));
                }
                Ok(None) => {
                    if !self.next_block()? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(self.damaged(&error)),
            }
        }
    }

    /// The error for what does not decode in the value that was handed out last. It ends the replay.
    #[cold]
    pub(crate) fn damaged(&mut self, error: &DecodeError) -> Error {
        self.leave();
        match self.segment.opened() {
            Ok(file) => file.damaged_body(self.handle, error),
            Err(error) => error,
        }
    }

    #[cold]
    fn out_of_order(&mut self) -> Error {
        let (structure, field) = ("block body", "suffix");
        self.damaged(&DecodeError { structure, field, offset: 0, problem: Problem::Order })
    }

    /// Is in no block from now on.
    fn leave(&mut self) {
        self.entries_bytes = 0;
        self.at = 0;
        self.path = Path::default();
    }

    /// Goes to the first transaction at or after a revision. The block is one that others may begin with,
    /// too, so it is kept where such blocks are.
    fn seek(&mut self, file: &Opened, from: u64) -> Result<()> {
        let key = from.to_be_bytes();
        let Some(handle) = self.path.seek(file, &key, u64::MAX)? else { return Ok(()) };
        let block = file.block(handle, Caching::Keep, &mut None)?;
        self.body.extend_from_slice(block.bytes.as_slice());
        self.enter(file, handle)?;
        let damaged = |error: DecodeError| file.damaged_body(handle, &error);
        let body = Body::parse(&self.body, file.kind()).map_err(damaged)?;
        let run = body.seek(&key, u64::MAX).and_then(|run| body.run_offset(run));
        self.at = run.map_err(damaged)?;
        self.above = from.saturating_sub(1);
        let entries = self.body.get(..self.entries_bytes).unwrap_or_default();
        while let Some(entry) = events::entry(entries, self.at, self.before).map_err(damaged)? {
            if entry.revision >= from {
                break;
            }
            (self.at, self.before) = (entry.next, Some(entry.revision));
        }
        Ok(())
    }

    /// Goes to the first entry of the next block; false if there is none.
    fn next_block(&mut self) -> Result<bool> {
        let segment = Arc::clone(&self.segment);
        let file = segment.opened()?;
        let entered = self.path.next(file).and_then(|handle| {
            let Some(handle) = handle else { return Ok(false) };
            self.populate(file, handle);
            file.body_into(handle, &mut self.body)?;
            self.enter(file, handle)?;
            Ok(true)
        });
        if !matches!(entered, Ok(true)) {
            self.leave();
        }
        entered
    }

    /// Is at the first entry of the block whose body has been put in place.
    fn enter(&mut self, file: &Opened, handle: Handle) -> Result<()> {
        let body = Body::parse(&self.body, file.kind());
        let body = body.map_err(|error| file.damaged_body(handle, &error))?;
        self.entries_bytes = body.entries_bytes();
        (self.handle, self.at, self.before) = (handle, 0, None);
        Ok(())
    }

    /// Has the system map a good part of what comes, in one call. What goes wrong is told when the block
    /// itself is read.
    fn populate(&mut self, file: &Opened, handle: Handle) {
        let end = handle.offset.saturating_add(u64::from(handle.bytes));
        if end <= self.populated {
            return;
        }
        let ahead = handle.offset.saturating_add(AHEAD_BYTES).min(file.footer().index_offset);
        self.populated = ahead.max(end);
        if let Some(bytes) = ahead.checked_sub(handle.offset).filter(|bytes| *bytes > 0) {
            let _ = file.source.slice(handle.offset, usize::try_from(bytes).unwrap_or(0));
        }
    }
}
