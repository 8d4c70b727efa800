//! Walks the entries of one segment in both directions.

use std::ops::Range;
use std::sync::Arc;

use annals_format::block::{Body, compare};
use annals_format::entry::{EntryRef, Item, Neighbour};
use annals_format::page::Handle;
use bytes::Bytes;

use super::blocks::{Caching, LastBase};
use super::merge::EntryCursor;
use super::opened::Opened;
use super::reader::Segment;
#[cfg(test)]
use super::reader::{Entry, Version};
use super::tree::Path;
use crate::error::Result;

/// A position in the entries of a segment: key ascending, revision descending within a key.
///
/// A new cursor is at no entry; `seek*` puts it at one. Past either end it is at no entry again and
/// stays so until the next seek. After an error it is at no entry.
///
/// A step forward decodes one entry. A step backward decodes the entries of a run (at most 16) once
/// and hands them out from the end.
#[derive(Debug)]
pub(crate) struct Cursor {
    segment: Arc<Segment>,
    caching: Caching,
    path: Path,
    block: Option<(Handle, Bytes)>,
    last_base: LastBase,
    at: Option<Position>,
    key: Vec<u8>,
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

impl Cursor {
    pub(super) fn new(segment: Arc<Segment>, caching: Caching) -> Self {
        Self {
            segment,
            caching,
            path: Path::default(),
            block: None,
            last_base: None,
            at: None,
            key: Vec::new(),
            behind: Behind::default(),
        }
    }

    /// The segment it walks.
    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Goes to the first entry at or after (`key`, `at`): the newest version of `key` with a
    /// revision of at most `at`, else the newest version of the next key.
    pub(crate) fn seek(&mut self, key: &[u8], at: u64) -> Result<()> {
        self.leave();
        let segment = Arc::clone(&self.segment);
        let file = segment.opened()?;
        let Some(handle) = self.path.seek(file, key, at)? else { return Ok(()) };
        self.load(file, handle)?;
        let run = self.in_block(file, |body| body.seek(key, at))?;
        self.enter_run(file, run)?;
        while let Some(position) = &self.at {
            if compare(&self.key, position.fields.revision, key, at).is_ge() {
                break;
            }
            self.forward(file)?;
        }
        Ok(())
    }

    /// Goes to the first entry.
    pub(crate) fn seek_first(&mut self) -> Result<()> {
        self.leave();
        let segment = Arc::clone(&self.segment);
        let file = segment.opened()?;
        let Some(handle) = self.path.first(file)? else { return Ok(()) };
        self.load(file, handle)?;
        self.enter_run(file, 0)
    }

    /// Goes to the last entry.
    pub(crate) fn seek_last(&mut self) -> Result<()> {
        self.leave();
        let segment = Arc::clone(&self.segment);
        let file = segment.opened()?;
        let Some(handle) = self.path.last(file)? else { return Ok(()) };
        self.load(file, handle)?;
        self.enter_end(file)
    }

    /// Goes to the last entry of the last key before `key`: its oldest version.
    pub(crate) fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.seek(key, u64::MAX)?;
        if self.at.is_some() { self.prev() } else { self.seek_last() }
    }

    /// Goes to the next entry.
    pub(crate) fn next(&mut self) -> Result<()> {
        let segment = Arc::clone(&self.segment);
        let file = segment.opened()?;
        self.forward(file)
    }

    /// Goes to the entry before.
    pub(crate) fn prev(&mut self) -> Result<()> {
        if let Some((position, key)) = self.behind.entries.pop() {
            self.key.clear();
            self.key.extend_from_slice(self.behind.keys.get(key).unwrap_or_default());
            self.at = Some(position);
            return Ok(());
        }
        let Some(position) = self.at.take() else { return Ok(()) };
        let segment = Arc::clone(&self.segment);
        let file = segment.opened()?;
        let (run, start) = self.in_block(file, |body| {
            let run = body.run_of(position.offset);
            Ok((run, body.run_offset(run)?))
        })?;
        if position.offset > start {
            return self.enter_run_before(file, run, position.offset);
        }
        if run > 0 {
            return self.enter_run_before(file, run - 1, position.offset);
        }
        match self.path.prev(file)? {
            Some(handle) => {
                self.load(file, handle)?;
                self.enter_end(file)
            }
            None => Ok(()),
        }
    }

    /// The entry it is at.
    pub(crate) fn entry(&self) -> Option<EntryRef<'_>> {
        let position = self.at.as_ref()?;
        let (_, body) = self.block.as_ref()?;
        let value = body.get(position.value.clone()).unwrap_or_default();
        Some(EntryRef { key: &self.key, value, ..position.fields })
    }

    /// The value of the entry it is at, kept alive with its block; not copied.
    pub(crate) fn value(&self) -> Bytes {
        match (&self.at, &self.block) {
            (Some(position), Some((_, body))) if position.value.end <= body.len() => {
                body.slice(position.value.clone())
            }
            _ => Bytes::new(),
        }
    }

    /// The entry it is at, owned: the key is copied, the value is not.
    #[cfg(test)]
    pub(crate) fn to_entry(&self) -> Option<Entry> {
        let entry = self.entry()?;
        let key = Bytes::copy_from_slice(entry.key);
        Some(Entry { key, version: Version::new(&entry, self.value()) })
    }

    fn leave(&mut self) {
        self.at = None;
        self.behind.entries.clear();
    }

    fn load(&mut self, file: &Opened, handle: Handle) -> Result<()> {
        if self.block.as_ref().is_none_or(|(have, _)| *have != handle) {
            self.block = None;
            let block = file.block(handle, self.caching, &mut self.last_base)?;
            let body = block.into_bytes(file)?;
            self.block = Some((handle, body));
        }
        Ok(())
    }

    /// Looks at the block's body.
    fn in_block<T>(
        &self,
        file: &Opened,
        look: impl FnOnce(&Body<'_>) -> annals_format::error::Result<T>,
    ) -> Result<T> {
        let (handle, body) = match &self.block {
            Some((handle, body)) => (*handle, &**body),
            None => (Handle::default(), &[][..]),
        };
        Body::parse(body, file.kind())
            .and_then(|body| look(&body))
            .map_err(|error| file.damaged_body(handle, &error))
    }

    fn enter_run(&mut self, file: &Opened, run: usize) -> Result<()> {
        let offset = self.in_block(file, |body| body.run_offset(run))?;
        self.enter(file, offset, Neighbour::default())
    }

    /// Goes to the entry at `offset`, or to the first of the next block if the block ends there.
    fn enter(&mut self, file: &Opened, offset: usize, neighbour: Neighbour) -> Result<()> {
        self.leave();
        let mut key = std::mem::take(&mut self.key);
        let entered = self.in_block(file, |body| {
            let mut run = body.resume(offset, neighbour);
            let Some(item) = run.next().transpose()? else { return Ok(None) };
            key.truncate(item.shared);
            key.extend_from_slice(item.suffix);
            Ok(Some(Position::new(&item, run.position(), run.neighbour())))
        });
        self.key = key;
        self.at = entered?;
        if self.at.is_some() {
            return Ok(());
        }
        match self.path.next(file)? {
            Some(handle) => {
                self.load(file, handle)?;
                self.enter_run(file, 0)
            }
            None => Ok(()),
        }
    }

    fn forward(&mut self, file: &Opened) -> Result<()> {
        match self.at.take() {
            Some(position) => self.enter(file, position.next, position.neighbour),
            None => Ok(()),
        }
    }

    /// Goes to the last entry of the block.
    fn enter_end(&mut self, file: &Opened) -> Result<()> {
        let last = self.in_block(file, |body| Ok(body.run_count() - 1))?;
        self.enter_run_before(file, last, usize::MAX)
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
        if self.behind.entries.is_empty() { Ok(()) } else { self.prev() }
    }
}

impl Position {
    fn new(item: &Item<'_>, next: usize, neighbour: Neighbour) -> Self {
        let fields = &item.fields;
        Self {
            offset: item.offset,
            next,
            neighbour,
            fields: EntryRef {
                key: &[],
                value: &[],
                revision: fields.revision,
                sub: fields.sub,
                tombstone: fields.tombstone,
                create_revision: fields.create_revision,
                version: fields.version,
                lease: fields.lease,
                death: fields.death,
            },
            value: item.value_offset..item.value_offset + item.fields.value.len(),
        }
    }
}

impl EntryCursor for Cursor {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.entry()
    }

    fn next(&mut self) -> Result<()> {
        self.next()
    }
}
