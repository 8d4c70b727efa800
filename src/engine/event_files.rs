//! Background work on the files of EVENTS: small neighbours are joined, and the one that the least floor runs
//! through is written again without what is below.
//!
//! EVENTS are in the order of revisions, so at most one file straddles a floor; all before it are dropped whole.
//! Where a store is busy that one waits: its successors pass the floor, too, and writing each again and again
//! would cost as much as writing EVENTS did, to save less than the size of one file.

use annals_format::FileMeta;

use crate::error::Result;
use crate::observe::{Span, Task};
use crate::reclaim::floors::Floors;
use crate::reclaim::merge::join_events;
use crate::reclaim::plan::{events_to_join, trims};
use crate::sync::Arc;

use super::core::Core;
use super::jobs::{Busy, Depth, open_all};
use super::tables::{FileSet, SealedFile};

/// The file that the least floor runs through, if at least one in `share` of its revisions is below.
pub(super) fn events_to_trim<'f>(
    files: &'f FileSet,
    floors: &Floors,
    share: u64,
) -> Option<&'f Arc<SealedFile>> {
    let least = floors.least();
    files.events.iter().find(|file| {
        let meta = file.meta();
        trims((meta.min_revision.saturating_sub(1), meta.max_revision), least, share)
    })
}

impl Core {
    /// Joins small neighbours, if there are many.
    pub(super) fn join_some_events(&self, files: &FileSet, keep: &Floors) -> Result<bool> {
        // Before compression, as the size at which files are cut counts what is still to be
        // compressed: files that were cut because they were full must not look small, or joining
        // them would give as many again, for ever.
        let raw = |meta: &FileMeta| meta.bytes.max(meta.value_bytes + meta.entries * 32);
        let bytes: Vec<u64> = files.events.iter().map(|file| raw(file.meta())).collect();
        let Some(run) = events_to_join(&bytes, &self.limits()) else { return Ok(false) };
        self.write_events(files.events.get(run).unwrap_or_default(), keep)?;
        Ok(true)
    }

    /// Writes the file that the least floor runs through again, without what is below, if at least one in
    /// `share` of its revisions is.
    pub(super) fn trim_events(&self, files: &FileSet, keep: &Floors, share: u64) -> Result<bool> {
        let Some(file) = events_to_trim(files, keep, share) else { return Ok(false) };
        self.write_events(std::slice::from_ref(file), keep)?;
        Ok(true)
    }

    fn write_events(&self, files: &[Arc<SealedFile>], keep: &Floors) -> Result<()> {
        let span = Span::of(Task::Merge);
        let _within = span.enter();
        let segments = open_all(files)?;
        let host = Busy { core: self, depth: Depth::Merging };
        let replacement = join_events(&self.work(&host, keep), &segments)?;
        self.merged(&span, replacement)
    }
}
