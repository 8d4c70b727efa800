//! Walks the entries of one segment in both directions: from block to block, and within a block as
//! its encoding asks for.

use std::sync::Arc;

use annals_format::DecodeError;
use annals_format::entry::EntryRef;
use annals_format::page::Handle;
use bytes::Bytes;

use super::blocks::{Caching, LastBase};
use super::body_cursor::BodyCursor;
use super::group_cursor::GroupCursor;
use super::merge::EntryCursor;
use super::opened::Opened;
#[cfg(test)]
use super::reader::{Entry, Version};
use super::reader::{Segment, Want};
use super::tree::Path;
use crate::error::{Error, Result};

/// A position in the entries of a segment: key ascending, revision descending within a key.
///
/// A new cursor is at no entry; `seek*` puts it at one. Past either end it is at no entry again and
/// stays so until the next seek. After an error it is at no entry.
#[derive(Debug)]
pub(crate) struct Cursor {
    segment: Arc<Segment>,
    caching: Caching,
    path: Path,
    /// The block taken up last.
    handle: Option<Handle>,
    last_base: LastBase,
    /// Where it is, if the block has a body. At an entry is at most one of the two.
    body: BodyCursor,
    /// Where it is, if the block has groups.
    groups: GroupCursor,
    in_groups: bool,
}

/// Which way to go where a block ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Forward,
    Back,
}

impl Segment {
    /// A cursor over all entries, not yet at any.
    pub(crate) fn cursor(self: &Arc<Self>) -> Cursor {
        self.cursor_for(Want::Value)
    }

    /// As [`cursor`](Self::cursor), for one who may not want values: they can be empty then.
    pub(crate) fn cursor_for(self: &Arc<Self>, want: Want) -> Cursor {
        Cursor::new(Arc::clone(self), Caching::Keep, want)
    }

    /// A cursor for background work: it reads with `pread` and leaves map and cache alone, so that
    /// it neither evicts nor faults in anything.
    pub(crate) fn cold_cursor(self: &Arc<Self>) -> Cursor {
        Cursor::new(Arc::clone(self), Caching::Bypass, Want::Value)
    }
}

/// A call of the cursor in the block taken up, which is of one of two types.
macro_rules! in_block {
    ($cursor:ident.$method:ident($($argument:expr),*)) => {
        if $cursor.in_groups {
            $cursor.groups.$method($($argument),*)
        } else {
            $cursor.body.$method($($argument),*)
        }
    };
}

impl Cursor {
    fn new(segment: Arc<Segment>, caching: Caching, want: Want) -> Self {
        Self {
            segment,
            caching,
            path: Path::default(),
            handle: None,
            last_base: None,
            body: BodyCursor::default(),
            groups: GroupCursor::new(caching, want),
            in_groups: false,
        }
    }

    /// Goes to the first entry at or after (`key`, `at`): the newest version of `key` with a
    /// revision of at most `at`, else the newest version of the next key.
    pub(crate) fn seek(&mut self, key: &[u8], at: u64) -> Result<()> {
        self.go(Turn::Forward, |cursor, file| {
            let Some(handle) = cursor.path.seek(file, key, at)? else { return Ok(false) };
            cursor.load(file, handle)?;
            in_block!(cursor.seek(file, key, at)).map(|()| true)
        })
    }

    /// Goes to the first entry.
    pub(crate) fn seek_first(&mut self) -> Result<()> {
        self.go(Turn::Forward, |cursor, file| {
            let Some(handle) = cursor.path.first(file)? else { return Ok(false) };
            cursor.load(file, handle)?;
            in_block!(cursor.first(file)).map(|()| true)
        })
    }

    /// Goes to the last entry.
    pub(crate) fn seek_last(&mut self) -> Result<()> {
        self.go(Turn::Back, |cursor, file| {
            let Some(handle) = cursor.path.last(file)? else { return Ok(false) };
            cursor.load(file, handle)?;
            in_block!(cursor.last(file)).map(|()| true)
        })
    }

    /// Goes to the last entry of the last key before `key`: its oldest version.
    pub(crate) fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.seek(key, u64::MAX)?;
        if self.is_at_entry() { self.prev() } else { self.seek_last() }
    }

    /// Goes to the next entry.
    pub(crate) fn next(&mut self) -> Result<()> {
        if !self.is_at_entry() {
            return Ok(());
        }
        self.go(Turn::Forward, |cursor, file| in_block!(cursor.next(file)).map(|()| true))
    }

    /// Goes to the entry before.
    pub(crate) fn prev(&mut self) -> Result<()> {
        if !self.is_at_entry() {
            return Ok(());
        }
        self.go(Turn::Back, |cursor, file| in_block!(cursor.prev(file)).map(|()| true))
    }

    /// The entry it is at.
    pub(crate) fn entry(&self) -> Option<EntryRef<'_>> {
        in_block!(self.entry())
    }

    /// The value of the entry it is at, wherever it lies; not copied.
    pub(crate) fn value(&self) -> Result<Bytes> {
        if !self.in_groups
            && let Some(entry) = self.body.entry()
            && let Some(blob) = entry.blob
        {
            let offset = self.handle.map_or(0, |handle| handle.offset);
            let file = self.segment.opened()?;
            return file.blob_value(offset, entry.key, (&entry, blob), self.caching);
        }
        Ok(in_block!(self.value()))
    }

    /// The entry it is at, owned: the key is copied, the value is not.
    #[cfg(test)]
    pub(crate) fn to_entry(&self) -> Option<Entry> {
        let entry = self.entry()?;
        let key = Bytes::copy_from_slice(entry.key);
        Some(Entry { key, version: Version::new(&entry, self.value().unwrap()) })
    }

    /// The error for what does not decode in the value of the entry it is at.
    pub(crate) fn damaged(&self, error: &DecodeError) -> Error {
        match self.segment.opened() {
            Ok(file) => file.damaged_body(self.handle.unwrap_or_default(), error),
            Err(error) => error,
        }
    }

    const fn is_at_entry(&self) -> bool {
        in_block!(self.is_at_entry())
    }

    fn leave(&mut self) {
        self.body.leave();
        self.groups.leave();
    }

    /// Takes a step, which answers whether there is any block, and goes on to the next block where
    /// it leads out of one.
    fn go(
        &mut self,
        turn: Turn,
        step: impl FnOnce(&mut Self, &Opened) -> Result<bool>,
    ) -> Result<()> {
        let segment = Arc::clone(&self.segment);
        let gone = segment.opened().and_then(|file| {
            if !step(self, file)? {
                self.leave();
                return Ok(());
            }
            while !self.is_at_entry() {
                let next = match turn {
                    Turn::Forward => self.path.next(file)?,
                    Turn::Back => self.path.prev(file)?,
                };
                let Some(handle) = next else { break };
                let passed = (self.body.passed(), self.groups.passed());
                self.load(file, handle)?;
                match turn {
                    Turn::Forward => {
                        self.body.follow(passed.0);
                        self.groups.follow(passed.1);
                        in_block!(self.first(file))?;
                    }
                    Turn::Back => in_block!(self.last(file))?,
                }
            }
            Ok(())
        });
        if gone.is_err() {
            self.leave();
        }
        gone
    }

    fn load(&mut self, file: &Opened, handle: Handle) -> Result<()> {
        self.leave();
        if self.handle != Some(handle) {
            self.handle = None;
            let block = file.block(handle, self.caching, &mut self.last_base)?;
            self.in_groups = block.in_groups;
            let bytes = block.into_bytes(file)?;
            in_block!(self.load(handle, bytes));
            self.handle = Some(handle);
        }
        Ok(())
    }
}

impl EntryCursor for Cursor {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.entry()
    }

    fn value(&self) -> Result<Bytes> {
        self.value()
    }

    fn next(&mut self) -> Result<()> {
        self.next()
    }
}
