//! Walks the entries of one segment in both directions: from block to block, and within a block as
//! its encoding asks for.

use std::sync::Arc;

use annals_format::entry::EntryRef;
use annals_format::page::Handle;
use bytes::Bytes;

use super::blocks::{Caching, Content, LastBase};
use super::body_cursor::BodyCursor;
use super::group_cursor::GroupCursor;
use super::merge::EntryCursor;
use super::opened::Opened;
#[cfg(test)]
use super::reader::{Entry, Version};
use super::reader::{Segment, Want};
use super::tree::Path;
use crate::error::Result;

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

impl Cursor {
    pub(super) fn new(segment: Arc<Segment>, caching: Caching, want: Want) -> Self {
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

    /// The segment it walks.
    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Goes to the first entry at or after (`key`, `at`): the newest version of `key` with a
    /// revision of at most `at`, else the newest version of the next key.
    pub(crate) fn seek(&mut self, key: &[u8], at: u64) -> Result<()> {
        self.go(Turn::Forward, |cursor, file| {
            let Some(handle) = cursor.path.seek(file, key, at)? else { return Ok(false) };
            cursor.load(file, handle)?;
            if cursor.in_groups {
                cursor.groups.seek(file, key, at)?;
            } else {
                cursor.body.seek(file, key, at)?;
            }
            Ok(true)
        })
    }

    /// Goes to the first entry.
    pub(crate) fn seek_first(&mut self) -> Result<()> {
        self.go(Turn::Forward, |cursor, file| {
            let Some(handle) = cursor.path.first(file)? else { return Ok(false) };
            cursor.load(file, handle)?;
            cursor.first(file)?;
            Ok(true)
        })
    }

    /// Goes to the last entry.
    pub(crate) fn seek_last(&mut self) -> Result<()> {
        self.go(Turn::Back, |cursor, file| {
            let Some(handle) = cursor.path.last(file)? else { return Ok(false) };
            cursor.load(file, handle)?;
            cursor.last(file)?;
            Ok(true)
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
        self.go(Turn::Forward, |cursor, file| {
            let groups = cursor.in_groups;
            let gone = if groups { cursor.groups.next(file) } else { cursor.body.next(file) };
            gone.map(|()| true)
        })
    }

    /// Goes to the entry before.
    pub(crate) fn prev(&mut self) -> Result<()> {
        if !self.is_at_entry() {
            return Ok(());
        }
        self.go(Turn::Back, |cursor, file| {
            let groups = cursor.in_groups;
            let gone = if groups { cursor.groups.prev(file) } else { cursor.body.prev(file) };
            gone.map(|()| true)
        })
    }

    /// The entry it is at.
    pub(crate) fn entry(&self) -> Option<EntryRef<'_>> {
        if self.in_groups { self.groups.entry() } else { self.body.entry() }
    }

    /// The value of the entry it is at; not copied.
    pub(crate) fn value(&self) -> Bytes {
        if self.in_groups { self.groups.value() } else { self.body.value() }
    }

    /// The entry it is at, owned: the key is copied, the value is not.
    #[cfg(test)]
    pub(crate) fn to_entry(&self) -> Option<Entry> {
        let entry = self.entry()?;
        let key = Bytes::copy_from_slice(entry.key);
        Some(Entry { key, version: Version::new(&entry, self.value()) })
    }

    const fn is_at_entry(&self) -> bool {
        if self.in_groups { self.groups.is_at_entry() } else { self.body.is_at_entry() }
    }

    fn first(&mut self, file: &Opened) -> Result<()> {
        if self.in_groups { self.groups.first(file) } else { self.body.first(file) }
    }

    fn last(&mut self, file: &Opened) -> Result<()> {
        if self.in_groups { self.groups.last(file) } else { self.body.last(file) }
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
                        self.first(file)?;
                    }
                    Turn::Back => self.last(file)?,
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
            let content = block.into_content(file)?;
            self.in_groups = matches!(content, Content::Groups(_));
            match content {
                Content::Body(body) => self.body.load(handle, body),
                Content::Groups(stored) => self.groups.load(handle, stored),
            }
            self.handle = Some(handle);
        }
        Ok(())
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
