//! Segments that divide the key space between them (HEAD, one HISTORY window) as one.

use std::sync::Arc;

use annals_format::entry::EntryRef;
use bytes::Bytes;

use super::cursor::Cursor;
use super::merge::EntryCursor;
use super::reader::Segment;
use crate::error::Result;

/// Walks segments of one kind that are sorted by key and do not overlap, for background work (see
/// [`Segment::cold_cursor`]).
///
/// A key's versions may go on from one segment into the next.
#[derive(Debug)]
pub(crate) struct ConcatCursor {
    segments: Arc<[Arc<Segment>]>,
    /// The segment it is in, and the cursor there.
    at: Option<(usize, Cursor)>,
}

impl ConcatCursor {
    /// A cursor at no entry.
    pub(crate) fn new(segments: Arc<[Arc<Segment>]>) -> Self {
        Self { segments, at: None }
    }

    /// Goes to the first entry.
    pub(crate) fn seek_first(&mut self) -> Result<()> {
        self.enter(0)
    }

    /// Goes to the first entry of segment `index`, or of the next that has one.
    fn enter(&mut self, mut index: usize) -> Result<()> {
        self.at = None;
        while let Some(segment) = self.segments.get(index) {
            let mut cursor = segment.cold_cursor();
            cursor.seek_first()?;
            if cursor.entry().is_some() {
                self.at = Some((index, cursor));
                break;
            }
            index += 1;
        }
        Ok(())
    }
}

impl EntryCursor for ConcatCursor {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.at.as_ref()?.1.entry()
    }

    fn value(&self) -> Result<Bytes> {
        self.at.as_ref().map_or_else(|| Ok(Bytes::new()), |(_, cursor)| cursor.value())
    }

    fn next(&mut self) -> Result<()> {
        let Some((index, cursor)) = &mut self.at else { return Ok(()) };
        cursor.next()?;
        if cursor.entry().is_some() {
            return Ok(());
        }
        let after = *index + 1;
        self.enter(after)
    }
}
