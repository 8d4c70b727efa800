//! Walks the entries of one block of a body in both directions.

use std::ops::Range;

use annals_format::block::{Body, compare};
use annals_format::entry::{EntryRef, Item, Neighbour};
use annals_format::error::{DecodeError, Problem};
use annals_format::page::Handle;
use bytes::Bytes;

use super::opened::Opened;
use crate::error::Result;

/// A position in the entries of a block, or past either end of it.
///
/// A step forward decodes one entry. A step backward decodes the entries of a run (at most 16) once
/// and hands them out from the end.
#[derive(Debug, Default)]
pub(super) struct BodyCursor {
    handle: Handle,
    body: Bytes,
    at: Option<Position>,
    key: Vec<u8>,
    /// The revision of the entry that was left forward and whose key is still in `key`: what comes
    /// next must lie behind it.
    passed: Option<u64>,
    behind: Behind,
}

/// An entry of the block, without its key.
#[derive(Clone, Debug)]
struct Position {
    offset: usize,
    /// Where the entry after it begins, and what that needs to know.
    next: usize,
    neighbour: Neighbour,
    fields: EntryRef<'static>,
    value: Range<usize>,
}

/// Entries that lie before the position in its run, decoded on the way back.
#[derive(Debug, Default)]
struct Behind {
    entries: Vec<(Position, Range<usize>)>,
    keys: Vec<u8>,
}

impl BodyCursor {
    /// Takes up a block; it is at no entry then.
    pub(super) fn load(&mut self, handle: Handle, body: Bytes) {
        self.leave();
        self.handle = handle;
        self.body = body;
    }

    /// Goes to no entry.
    pub(super) fn leave(&mut self) {
        self.at = None;
        self.passed = None;
        self.behind.entries.clear();
    }

    /// The revision of the entry that the last step forward led from, out of the block.
    pub(super) const fn passed(&mut self) -> Option<u64> {
        self.passed.take()
    }

    /// After the next block was taken up: the entries go on behind that one.
    pub(super) const fn follow(&mut self, passed: Option<u64>) {
        self.passed = passed;
    }

    /// Goes to the first entry at or after (`key`, `at`), if the block has one.
    pub(super) fn seek(&mut self, file: &Opened, key: &[u8], at: u64) -> Result<()> {
        let run = self.in_block(file, |body| body.seek(key, at))?;
        self.enter_run(file, run)?;
        while let Some(position) = &self.at {
            if compare(&self.key, position.fields.revision, key, at).is_ge() {
                break;
            }
            self.next(file)?;
        }
        Ok(())
    }

    /// Goes to the first entry.
    pub(super) fn first(&mut self, file: &Opened) -> Result<()> {
        self.enter_run(file, 0)
    }

    /// Goes to the last entry.
    pub(super) fn last(&mut self, file: &Opened) -> Result<()> {
        let last = self.in_block(file, |body| Ok(body.run_count() - 1))?;
        self.enter_run_before(file, last, usize::MAX)
    }

    /// Goes to the next entry.
    pub(super) fn next(&mut self, file: &Opened) -> Result<()> {
        match self.at.take() {
            Some(position) => {
                self.passed = Some(position.fields.revision);
                self.enter(file, position.next, position.neighbour)
            }
            None => Ok(()),
        }
    }

    /// Goes to the entry before.
    pub(super) fn prev(&mut self, file: &Opened) -> Result<()> {
        if let Some((position, key)) = self.behind.entries.pop() {
            self.key.clear();
            self.key.extend_from_slice(self.behind.keys.get(key).unwrap_or_default());
            self.at = Some(position);
            return Ok(());
        }
        let Some(position) = self.at.take() else { return Ok(()) };
        let (run, start) = self.in_block(file, |body| {
            let run = body.run_of(position.offset);
            Ok((run, body.run_offset(run)?))
        })?;
        if position.offset > start {
            return self.enter_run_before(file, run, position.offset);
        }
        match run.checked_sub(1) {
            Some(run) => self.enter_run_before(file, run, position.offset),
            None => Ok(()),
        }
    }

    /// Whether it is at an entry.
    pub(super) const fn is_at_entry(&self) -> bool {
        self.at.is_some()
    }

    /// The entry it is at.
    pub(super) fn entry(&self) -> Option<EntryRef<'_>> {
        let position = self.at.as_ref()?;
        let value = self.body.get(position.value.clone()).unwrap_or_default();
        Some(EntryRef { key: &self.key, value, ..position.fields })
    }

    /// The value of the entry it is at, kept alive with its block; not copied.
    pub(super) fn value(&self) -> Bytes {
        match &self.at {
            Some(position) if position.value.end <= self.body.len() => {
                self.body.slice(position.value.clone())
            }
            _ => Bytes::new(),
        }
    }

    /// Looks at the block's body.
    fn in_block<T>(
        &self,
        file: &Opened,
        look: impl FnOnce(&Body<'_>) -> annals_format::error::Result<T>,
    ) -> Result<T> {
        Body::parse(&self.body, file.kind())
            .and_then(|body| look(&body))
            .map_err(|error| file.damaged_body(self.handle, &error))
    }

    fn enter_run(&mut self, file: &Opened, run: usize) -> Result<()> {
        let offset = self.in_block(file, |body| body.run_offset(run))?;
        self.enter(file, offset, Neighbour::default())
    }

    /// Goes to the entry at `offset`, or to none if the block ends there. After a step forward it must
    /// lie behind the one before: a checksum says only that the writer made it so.
    fn enter(&mut self, file: &Opened, offset: usize, neighbour: Neighbour) -> Result<()> {
        let passed = self.passed.take();
        self.leave();
        let mut key = std::mem::take(&mut self.key);
        let entered = self.in_block(file, |body| {
            let mut run = body.resume(offset, neighbour);
            let Some(item) = run.next().transpose()? else { return Ok(None) };
            if let Some(revision) = passed {
                let rest = key.get(item.shared..).unwrap_or_default();
                let (suffix, now) = (item.suffix, item.fields.revision);
                // Of equal keys the newer version comes first.
                if compare(suffix, now, rest, revision).is_le() {
                    return Err(out_of_order(item.offset));
                }
            }
            key.truncate(item.shared);
            key.extend_from_slice(item.suffix);
            Ok(Some(Position::new(&item, run.position(), run.neighbour())))
        });
        self.key = key;
        self.at = entered?;
        if self.at.is_none() {
            self.passed = passed;
        }
        Ok(())
    }

    /// Goes to the last entry of a run that begins before `end`, and remembers those before it.
    fn enter_run_before(&mut self, file: &Opened, run: usize, end: usize) -> Result<()> {
        self.leave();
        let mut behind = std::mem::take(&mut self.behind);
        behind.keys.clear();
        let decoded = self.in_block(file, |body| {
            let mut start = 0;
            let mut entries = body.run(run)?;
            while entries.position() < end.min(body.entries_bytes()) {
                let Some(item) = entries.next().transpose()? else { break };
                let next = behind.keys.len();
                // The shared bytes are within the key before: the decoder has checked that.
                let shared = start..(start + item.shared).min(next);
                behind.keys.extend_from_within(shared);
                behind.keys.extend_from_slice(item.suffix);
                start = next;
                let position = Position::new(&item, entries.position(), entries.neighbour());
                behind.entries.push((position, next..behind.keys.len()));
            }
            Ok(())
        });
        self.behind = behind;
        if let Err(error) = decoded {
            self.leave();
            return Err(error);
        }
        // A run has at least one entry before any later offset, so this goes there.
        if self.behind.entries.is_empty() { Ok(()) } else { self.prev(file) }
    }
}

fn out_of_order(offset: usize) -> DecodeError {
    let offset = offset as u64;
    DecodeError { structure: "block body", field: "suffix", offset, problem: Problem::Order }
}

impl Position {
    fn new(item: &Item<'_>, next: usize, neighbour: Neighbour) -> Self {
        Self {
            offset: item.offset,
            next,
            neighbour,
            fields: EntryRef { key: &[], value: &[], ..item.fields },
            value: item.value_offset..item.value_offset + item.fields.value.len(),
        }
    }
}
