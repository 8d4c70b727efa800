//! Background work on the files of EVENTS: small neighbours are joined, the one that the least floor runs
//! through is written again without what is below, and those are thinned of which some keys are forgotten while
//! others are kept.
//!
//! EVENTS are in the order of revisions, so at most one file straddles a floor; all before it are dropped whole.
//! Where a store is busy that one waits: its successors pass the floor, too, and writing each again and again
//! would cost as much as writing EVENTS did, to save less than the size of one file.
//!
//! Which keys a file has changes of only the file itself says. So it is looked through, once for each piece of the
//! key space (those of `reclaim/floors.rs`) that is forgotten up to its last revision, again when the store has been
//! opened, or the file joined or trimmed; and written again where a good part of it can go.

use std::collections::BTreeSet;

use annals_format::FileMeta;

use crate::error::Result;
use crate::observe::{Span, Task};
use crate::reclaim::floors::Floors;
use crate::reclaim::merge::{Replacement, Work, forgotten_bytes, join_events, thin_events};
use crate::reclaim::plan::{events_to_join, trims};
use crate::sync::Arc;
use crate::sync::plain::lock;

use super::core::Core;
use super::jobs::{Busy, Depth, open_all};
use super::left_alone::LeftAlone;
use super::tables::{FileSet, SealedFile};

/// A file is thinned if one in so many bytes of its changes can go: for each that goes three others are written at
/// most.
const THINNED: u64 = 4;

/// The file that the least floor runs through, if at least one in `share` of its revisions is below.
pub(super) fn events_to_trim<'f>(
    files: &'f FileSet,
    left: &LeftAlone,
    floors: &Floors,
    share: u64,
) -> Option<&'f Arc<SealedFile>> {
    let least = floors.least();
    files.events.iter().find(|file| {
        let meta = file.meta();
        trims((meta.min_revision.saturating_sub(1), meta.max_revision), least, share)
            && !left.has(file)
    })
}

impl Core {
    /// Joins small neighbours, if there are many.
    pub(super) fn join_some_events(&self, files: &FileSet, keep: &Floors) -> Result<bool> {
        // Before compression, as the size at which files are cut counts what is still to be
        // compressed: files that were cut because they were full must not look small, or joining
        // them would give as many again, for ever.
        let raw = |meta: &FileMeta| meta.bytes.max(meta.value_bytes + meta.entries * 32);
        // One that cannot be read is too large to be joined.
        let size = |file: &Arc<SealedFile>| {
            if self.left_alone.has(file) { u64::MAX } else { raw(file.meta()) }
        };
        let bytes: Vec<u64> = files.events.iter().map(size).collect();
        let Some(run) = events_to_join(&bytes, &self.limits()) else { return Ok(false) };
        self.write_events(files.events.get(run).unwrap_or_default(), keep)?;
        Ok(true)
    }

    /// Writes the file that the least floor runs through again, without what is below, if at least one in
    /// `share` of its revisions is.
    pub(super) fn trim_events(&self, files: &FileSet, keep: &Floors, share: u64) -> Result<bool> {
        let file = events_to_trim(files, &self.left_alone, keep, share);
        let Some(file) = file else { return Ok(false) };
        self.write_events(std::slice::from_ref(file), keep)?;
        Ok(true)
    }

    fn write_events(&self, files: &[Arc<SealedFile>], keep: &Floors) -> Result<()> {
        let segments = open_all(files)?;
        self.rewrite_events(keep, |work| join_events(work, &segments).map(Some))?;
        Ok(())
    }

    /// Looks a file through of which some piece is forgotten, and writes it again without that if it is a
    /// quarter of the file. Answers whether there was such a file.
    pub(super) fn thin_some_events(&self, files: &FileSet, keep: &Floors) -> Result<bool> {
        // Else the files of which something is forgotten are dropped whole.
        if keep.least() == keep.greatest() {
            return Ok(false);
        }
        // Whoever begins to read an old revision holds floors down, until that ends: what was looked for once stays
        // noted.
        let none = BTreeSet::new();
        let due = {
            let looked = lock(&self.looked_through);
            let is_due = |file: &&Arc<SealedFile>| {
                let noted = looked.get(&file.meta().number).unwrap_or(&none);
                !self.left_alone.has(file)
                    && keep.forgotten(file.meta().max_revision).any(|piece| !noted.contains(&piece))
            };
            files.events.iter().find(is_due).cloned()
        };
        let Some(file) = due else { return Ok(false) };
        let added = self.thin(&file, keep)?.unwrap_or_else(|| vec![file.meta().number]);
        let present = self.shared.tables().files;
        let mut looked = lock(&self.looked_through);
        let mut noted = looked.remove(&file.meta().number).unwrap_or_default();
        noted.extend(keep.forgotten(file.meta().max_revision));
        looked.extend(added.into_iter().map(|number| (number, noted.clone())));
        let is_there = |number: &u64| present.events.iter().any(|f| f.meta().number == *number);
        looked.retain(|number, _| is_there(number));
        Ok(true)
    }

    /// Thins a file, and answers the numbers of the new ones. `None`: it stays as it is, as little would go, or as it
    /// cannot be read. That, damage or a file that is not there, is told to whoever asks for it: it is no reason to end
    /// writing.
    fn thin(&self, file: &SealedFile, keep: &Floors) -> Result<Option<Vec<u64>>> {
        let segment = match file.open() {
            Err(error) if error.is_damage() => return Ok(None),
            opened => opened?,
        };
        match forgotten_bytes(segment, keep)? {
            Some((all, gone)) if gone > 0 && gone.saturating_mul(THINNED) >= all => {
                self.rewrite_events(keep, |work| thin_events(work, segment))
            }
            _ => Ok(None),
        }
    }

    /// Puts what `write` makes of files in their place, if it does; answers the numbers of the new ones.
    fn rewrite_events(
        &self,
        keep: &Floors,
        write: impl FnOnce(&Work<'_>) -> Result<Option<Replacement>>,
    ) -> Result<Option<Vec<u64>>> {
        let span = Span::of(Task::Merge);
        let _within = span.enter();
        let host = Busy { core: self, depth: Depth::Merging };
        let Some(replacement) = write(&self.work(&host, keep))? else { return Ok(None) };
        let added = replacement.added.iter().map(|file| file.number).collect();
        self.merged(&span, replacement)?;
        Ok(Some(added))
    }
}
