//! Segments that divide the key space between them (HEAD, one HISTORY window) as one.

use std::sync::Arc;

use annals_format::entry::EntryRef;

use super::blocks::Caching;
use super::cursor::Cursor;
use super::merge::EntryCursor;
#[cfg(test)]
use super::reader::Entry;
use super::reader::Segment;
use crate::error::Result;

/// Walks segments of one kind that are sorted by key and do not overlap; only the one it is in is
/// open. Behaves as a [`Cursor`].
///
/// A key's versions may go on from one segment into the next.
#[derive(Debug)]
pub(crate) struct ConcatCursor {
    segments: Arc<[Arc<Segment>]>,
    caching: Caching,
    /// The segment it is in, and the cursor there.
    at: Option<(usize, Cursor)>,
}

impl ConcatCursor {
    /// A cursor at no entry.
    #[cfg(test)]
    pub(crate) fn new(segments: Arc<[Arc<Segment>]>) -> Self {
        Self { segments, caching: Caching::Keep, at: None }
    }

    /// A cursor for background work, see [`Segment::cold_cursor`].
    pub(crate) fn cold(segments: Arc<[Arc<Segment>]>) -> Self {
        Self { segments, caching: Caching::Bypass, at: None }
    }

    /// Goes to the first entry at or after (`key`, `at`).
    #[cfg(test)]
    pub(crate) fn seek(&mut self, key: &[u8], at: u64) -> Result<()> {
        let mut index =
            self.segments.partition_point(|segment| segment.meta().last_key.as_slice() < key);
        while self.open(index) {
            self.in_cursor(|cursor| cursor.seek(key, at))?;
            if self.entry().is_some() {
                break;
            }
            index += 1;
        }
        Ok(())
    }

    /// Goes to the first entry.
    pub(crate) fn seek_first(&mut self) -> Result<()> {
        if self.open(0) {
            self.in_cursor(Cursor::seek_first)?;
            self.skip_forward()?;
        }
        Ok(())
    }

    /// Goes to the last entry.
    #[cfg(test)]
    pub(crate) fn seek_last(&mut self) -> Result<()> {
        let Some(last) = self.segments.len().checked_sub(1) else { return Ok(()) };
        self.open(last);
        self.in_cursor(Cursor::seek_last)?;
        self.skip_backward()
    }

    /// Goes to the last entry of the last key before `key`.
    #[cfg(test)]
    pub(crate) fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let first_at_or_after =
            self.segments.partition_point(|segment| segment.meta().first_key.as_slice() < key);
        let Some(index) = first_at_or_after.checked_sub(1) else {
            self.at = None;
            return Ok(());
        };
        self.open(index);
        self.in_cursor(|cursor| cursor.seek_before(key))?;
        self.skip_backward()
    }

    /// Goes to the next entry.
    pub(crate) fn next(&mut self) -> Result<()> {
        if self.entry().is_none() {
            return Ok(());
        }
        self.in_cursor(Cursor::next)?;
        self.skip_forward()
    }

    /// Goes to the entry before.
    #[cfg(test)]
    pub(crate) fn prev(&mut self) -> Result<()> {
        if self.entry().is_none() {
            return Ok(());
        }
        self.in_cursor(Cursor::prev)?;
        self.skip_backward()
    }

    /// The entry it is at.
    pub(crate) fn entry(&self) -> Option<EntryRef<'_>> {
        self.at.as_ref()?.1.entry()
    }

    /// The entry it is at, owned: the key is copied, the value is not.
    #[cfg(test)]
    pub(crate) fn to_entry(&self) -> Option<Entry> {
        self.at.as_ref()?.1.to_entry()
    }

    /// Opens segment `index`, unless the cursor is there already.
    fn open(&mut self, index: usize) -> bool {
        if self.at.as_ref().is_some_and(|(at, _)| *at == index) {
            return true;
        }
        self.at = self
            .segments
            .get(index)
            .map(|segment| (index, Cursor::new(Arc::clone(segment), self.caching)));
        self.at.is_some()
    }

    fn in_cursor(&mut self, step: impl FnOnce(&mut Cursor) -> Result<()>) -> Result<()> {
        self.at.as_mut().map_or(Ok(()), |(_, cursor)| step(cursor))
    }

    /// While the cursor is past the end of its segment, goes to the start of the next.
    fn skip_forward(&mut self) -> Result<()> {
        while let Some((index, cursor)) = &self.at {
            let next = index + 1;
            if cursor.entry().is_some() || !self.open(next) {
                break;
            }
            self.in_cursor(Cursor::seek_first)?;
        }
        Ok(())
    }

    /// While the cursor is before the start of its segment, goes to the end of the one before.
    #[cfg(test)]
    fn skip_backward(&mut self) -> Result<()> {
        while let Some((index, cursor)) = &self.at {
            let index = *index;
            if cursor.entry().is_some() {
                break;
            }
            let Some(before) = index.checked_sub(1) else {
                self.at = None;
                break;
            };
            self.open(before);
            self.in_cursor(Cursor::seek_last)?;
        }
        Ok(())
    }
}

impl EntryCursor for ConcatCursor {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.entry()
    }

    fn next(&mut self) -> Result<()> {
        self.next()
    }
}
