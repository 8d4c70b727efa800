//! Background work on blob files: they go when nothing refers to them, and what is in use of one that is mostly dead
//! goes to a new one.
//!
//! A value in a blob file is dead once no entry of L0 or HEAD refers to it: a fold, or a merge of L0 files, has moved its
//! version to HISTORY, with a copy of the value, or dropped it. The blob file itself never changes. It goes with the last
//! file that refers to it, in the same change of the manifest.

use std::collections::BTreeSet;

use annals_format::FileMeta;

use crate::error::Result;
use crate::observe::{Span, Task};
use crate::reclaim::floors::Floors;
use crate::reclaim::merge::move_blobs;
use crate::reclaim::plan::blobs::{BlobUse, blobs_to_move};
use crate::sync::Arc;

use super::core::Core;
use super::jobs::{Busy, Depth, open_all};
use super::tables::{FileSet, SealedFile};

/// The blob files that nothing refers to once some files have been removed and others added.
pub(super) fn unreferenced(files: &FileSet, removed: &[u64], added: &[FileMeta]) -> Vec<u64> {
    let kept = files.l0.iter().chain(&files.head).map(|file| file.meta());
    let kept = kept.filter(|meta| !removed.contains(&meta.number)).chain(added);
    let refers: BTreeSet<u64> = kept.flat_map(|meta| &meta.blobs).map(|blob| blob.file).collect();
    let numbers = files.blobs.iter().map(|file| file.meta().number);
    numbers.filter(|number| !refers.contains(number) && !removed.contains(number)).collect()
}

/// The blob files that nothing refers to, of which too many were left at once to go with the last that did.
pub(super) fn dead(files: &FileSet) -> impl Iterator<Item = &Arc<SealedFile>> {
    files.blobs.iter().filter(|file| files.referenced(file).all() == 0)
}

/// How much of a blob file is in use.
fn use_of(files: &FileSet, file: &SealedFile) -> BlobUse {
    let FileMeta { number, bytes, value_bytes, .. } = *file.meta();
    BlobUse { number, bytes, value_bytes, referenced: files.referenced(file) }
}

/// Bytes of values in blob files that only a fold of L0 makes an end of: it is what refers to the others there.
pub(super) fn dead_until_fold(files: &FileSet) -> u64 {
    let uses = files.blobs.iter().map(|file| use_of(files, file));
    let dead = uses.filter(|blob| blob.referenced.by_l0 > 0).map(|blob| blob.dead());
    dead.fold(0, u64::saturating_add)
}

impl Core {
    /// Which blob files with a number below `before` are worth emptying, see [`blobs_to_move`].
    fn choose_blobs(&self, files: &FileSet, share: u64, before: u64) -> BTreeSet<u64> {
        // A file that cannot be read would be read to move what it refers to.
        let left = files.head.iter().filter(|file| self.left_alone.has(file));
        let stay: BTreeSet<u64> =
            left.flat_map(|f| &f.meta().blobs).map(|blob| blob.file).collect();
        let may_go = |number: u64| number < before && !stay.contains(&number);
        let older = files.blobs.iter().filter(|file| may_go(file.meta().number));
        let uses: Vec<BlobUse> = older.map(|file| use_of(files, file)).collect();
        let head: Vec<&FileMeta> = files.head.iter().map(|file| file.meta()).collect();
        blobs_to_move(&uses, &head, share, &self.limits())
    }

    /// Whether [`Core::move_some_blobs`] with this share would find work.
    pub(super) fn has_blobs_to_move(&self, files: &FileSet, share: u64) -> bool {
        !self.choose_blobs(files, share, u64::MAX).is_empty()
    }

    /// Writes what HEAD refers to in some blob files, with numbers below `before`, to new ones. Answers whether there
    /// were any.
    pub(super) fn move_some_blobs(
        &self,
        files: &FileSet,
        keep: &Floors,
        share: u64,
        before: u64,
    ) -> Result<bool> {
        let moving = self.choose_blobs(files, share, before);
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
        let moved = move_blobs(&self.work(&host, keep), &open_all(&head)?, &moving)?;
        self.merged(&span, moved)?;
        Ok(true)
    }
}
