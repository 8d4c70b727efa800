//! Background work on blob files: those that nothing refers to go, and what is left of one that is mostly superseded,
//! or of many small ones, goes to another.
//!
//! A value in a blob file is superseded when a fold has written the next version of its key to HEAD. Then
//! no entry refers to it, and its bytes are not counted in what HEAD and L0 say of the file. Nothing in the file changes; it is removed
//! with the last file that refers to it, in the same change of the manifest.

use std::collections::BTreeSet;

use annals_format::FileMeta;

use crate::error::Result;
use crate::observe::{Span, Task};
use crate::reclaim::floors::Floors;
use crate::reclaim::merge::move_blobs;
use crate::reclaim::plan::{BlobUse, blobs_to_move};
use crate::sync::Arc;

use super::core::Core;
use super::jobs::{Busy, Depth, open_all};
use super::tables::{FileSet, Referenced, SealedFile};

/// The blob files that nothing refers to once some files have been removed and others added.
pub(super) fn unreferenced(files: &FileSet, removed: &[u64], added: &[FileMeta]) -> Vec<u64> {
    let kept = files.l0.iter().chain(&files.head).map(|file| file.meta());
    let kept = kept.filter(|meta| !removed.contains(&meta.number)).chain(added);
    let refers: BTreeSet<u64> = kept.flat_map(|meta| &meta.blobs).map(|blob| blob.file).collect();
    let numbers = files.blobs.iter().map(|file| file.meta().number);
    numbers.filter(|number| !refers.contains(number) && !removed.contains(number)).collect()
}

impl Core {
    /// The blob files with a number below `before` whose values are to be moved, if at least one byte in `share` of them
    /// is superseded.
    fn blobs_to_move(&self, files: &FileSet, share: u64, before: u64) -> BTreeSet<u64> {
        let blobs = files.blobs.iter().filter(|file| file.meta().number < before);
        let used = blobs.map(|file| {
            let (meta, Referenced { by_head, by_l0 }) = (file.meta(), files.referenced(file));
            BlobUse { number: meta.number, bytes: meta.value_bytes, by_head, by_l0 }
        });
        blobs_to_move(&used.collect::<Vec<_>>(), share, &self.limits())
    }

    /// Whether there are such files.
    pub(super) fn is_to_move_blobs(&self, files: &FileSet, share: u64) -> bool {
        !self.blobs_to_move(files, share, u64::MAX).is_empty()
    }

    /// Writes what is in use of such files to others. Answers whether there was one.
    pub(super) fn move_some_blobs(
        &self,
        files: &FileSet,
        keep: &Floors,
        share: u64,
        before: u64,
    ) -> Result<bool> {
        let moving = self.blobs_to_move(files, share, before);
        if moving.is_empty() {
            return Ok(false);
        }
        let refers = |file: &&Arc<SealedFile>| {
            file.meta().blobs.iter().any(|blob| moving.contains(&blob.file))
        };
        let head: Vec<Arc<SealedFile>> = files.head.iter().filter(refers).cloned().collect();
        // No fold comes in between: it would write the same files again.
        let span = Span::of(Task::Merge);
        let _within = span.enter();
        let host = Busy { core: self, depth: Depth::Folding };
        let replacement = move_blobs(&self.work(&host, keep), &open_all(&head)?, &moving)?;
        self.merged(&span, replacement)?;
        Ok(true)
    }
}
