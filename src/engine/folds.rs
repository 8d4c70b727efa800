//! What becomes of L0 files: a fold into HEAD, one step at a time, or fewer files. And of HEAD files that are mostly
//! tombstones.

use crate::error::Result;
use crate::observe::{self, Span, Task};
use crate::reclaim::floors::Floors;
use crate::reclaim::levels::{fold, merge_l0};
use crate::reclaim::merge::sweep_head;
use crate::reclaim::plan::{L0Work, l0_merge, l0_work, sweeps};
use crate::segment::Segment;
use crate::sync::plain::lock;
use crate::sync::{Arc, Ordering};

use super::blobs;
use super::core::Core;
use super::jobs::{Busy, Depth, note_size, open_all};
use super::tables::{FileSet, SealedFile};
use super::windows::floor_of;

/// At how many times the L0 files that make work due flushes wait.
const UNFOLDED_TIMES: usize = 3;

impl Core {
    /// Does a piece of the work that the L0 files make due. Answers whether there was any.
    pub(super) fn relieve_l0(&self, files: &FileSet) -> Result<bool> {
        let bytes = self.l0_sizes(files);
        if self.left_alone.unfoldable(files).is_some() {
            let Some(run) = l0_merge(&bytes, &self.limits()) else { return Ok(false) };
            self.merge_some_l0(files.l0.get(run).unwrap_or_default())?;
            return Ok(true);
        }
        if is_begun(files) {
            // What was flushed since a fold began waits for its end, and flushes must not wait for that.
            match l0_work(&bytes, 0, u64::MAX, &self.limits()) {
                Some(L0Work::Merge(run)) => {
                    self.merge_some_l0(files.l0.get(run).unwrap_or_default())?;
                }
                _ => self.fold_some()?,
            }
            return Ok(true);
        }
        let (weight, head) = worth(files);
        match l0_work(&bytes, weight, head, &self.limits()) {
            None => return Ok(false),
            Some(L0Work::Fold) => self.fold_some()?,
            Some(L0Work::Merge(run)) => {
                self.merge_some_l0(files.l0.get(run).unwrap_or_default())?;
            }
        }
        Ok(true)
    }

    /// The sizes of the L0 files that no fold has begun with. One that cannot be read is too large for any merge.
    fn l0_sizes(&self, files: &FileSet) -> Vec<u64> {
        let size = |file: &Arc<SealedFile>| {
            if self.left_alone.has(file) { u64::MAX } else { file.meta().bytes }
        };
        files.l0.iter().filter(|file| !file.is_begun()).map(size).collect()
    }

    /// Whether flushes wait until L0 files have been folded or merged: not where that will not be.
    pub(super) fn flushes_wait(&self, files: &FileSet) -> bool {
        let limits = self.limits();
        let is_due = || {
            self.left_alone.unfoldable(files).is_none()
                || l0_merge(&self.l0_sizes(files), &limits).is_some()
        };
        files.l0.len() >= limits.l0_files_max.saturating_mul(UNFOLDED_TIMES) && is_due()
    }

    /// Folds all L0 files there are into HEAD.
    pub(super) fn fold_all(&self) -> Result<()> {
        // Those of a fold that has begun, and then those that came later.
        let mut rounds = 1 + u32::from(is_begun(&self.shared.tables().files));
        while rounds > 0 && !self.shared.tables().files.l0.is_empty() {
            self.fold_some()?;
            rounds -= u32::from(!is_begun(&self.shared.tables().files));
        }
        Ok(())
    }

    /// Does the next step of the fold that has begun, or the first one of a fold of all L0 files. The
    /// HISTORY window of what is superseded spans those of the flushes, which stay as they are.
    pub(super) fn fold_some(&self) -> Result<()> {
        let span = Span::of(Task::Fold);
        let _within = span.enter();
        // Together: what the files hold ends at this revision.
        let (files, flushed) = {
            let state = lock(&self.state);
            (self.shared.tables().files, state.manifest.flushed_revision)
        };
        let begun = is_begun(&files);
        let taken: Vec<Arc<SealedFile>> =
            files.l0.iter().filter(|f| f.is_begun() == begun).cloned().collect();
        let from = taken.first().map(|file| file.meta().folded_to.clone()).unwrap_or_default();
        let (l0, head) = (open_all(&taken)?, open_all(&files.head)?);
        let (keep, window) = self.window_of(&l0, flushed);
        let host = Busy { core: self, depth: Depth::Folding };
        let replacement = fold(&self.work(&host, &keep), &l0, &from, &head, window)?;
        if replacement.moved.is_empty() {
            self.counters.folds.fetch_add(1, Ordering::Relaxed);
            observe::count(observe::FOLDS, 1);
        }
        span.revision(flushed);
        note_size(&span, &replacement.added);
        self.replace(replacement)?;
        // Other HEAD files, and perhaps for an older watermark.
        self.swept.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Makes one L0 file of neighbours.
    pub(super) fn merge_some_l0(&self, files: &[Arc<SealedFile>]) -> Result<()> {
        let span = Span::of(Task::Merge);
        let _within = span.enter();
        let flushed = lock(&self.state).manifest.flushed_revision;
        let l0 = open_all(files)?;
        let (keep, window) = self.window_of(&l0, flushed);
        // No fold comes in between: it would fold these files.
        let host = Busy { core: self, depth: Depth::Folding };
        let replacement = merge_l0(&self.work(&host, &keep), &l0, window)?;
        self.merged(&span, replacement)
    }

    /// Writes a HEAD file again that is for a good part tombstones which nobody can ask for: a fold
    /// drops them, too, but none may ever come to those keys.
    pub(super) fn sweep(&self, files: &FileSet, keep: &Floors) -> Result<bool> {
        if self.swept.load(Ordering::Relaxed) >= keep.sum() {
            return Ok(false);
        }
        // All their tombstones are old enough. How many there are is in the footer, which is read
        // once; where it cannot be read the file is not due, which is no reason to leave it alone.
        let is_due = |file: &&Arc<SealedFile>| {
            let footer = || file.open()?.footer().map(|footer| (footer.tombstones, footer.entries));
            !self.left_alone.has(file)
                && file.meta().max_revision < floor_of(file.meta(), keep)
                && footer().is_ok_and(|(dead, all)| sweeps(dead, all))
        };
        let Some(file) = files.head.iter().find(is_due) else {
            self.swept.store(keep.sum(), Ordering::Relaxed);
            return Ok(false);
        };
        // No fold comes in between: it would write the same file again.
        let span = Span::of(Task::Merge);
        let _within = span.enter();
        let host = Busy { core: self, depth: Depth::Folding };
        let replacement = sweep_head(&self.work(&host, keep), file.open()?)?;
        self.merged(&span, replacement)?;
        Ok(true)
    }

    /// What may not be dropped, and the span of the deaths of what versions in these files supersede.
    ///
    /// That are the oldest ones of their files, and nothing that died below `keep` gets into the window.
    /// The files' highest revision may be that of a system key, whose numbers are higher.
    fn window_of(&self, l0: &[Arc<Segment>], flushed: u64) -> (Floors, (u64, u64)) {
        let keep = self.keep_floors();
        let oldest = l0.iter().map(|file| file.meta().min_revision).min().unwrap_or(0);
        let newest = l0.iter().map(|file| file.meta().max_revision).max().unwrap_or(0);
        let after = oldest.max(keep.least()).saturating_sub(1);
        (keep, (after, newest.min(flushed).max(after)))
    }
}

/// What a fold of all L0 files would do: how many bytes it would make dead in HEAD and in blob files, at a guess, and how
/// many of HEAD it would write again.
fn worth(files: &FileSet) -> (u64, u64) {
    let meets = |head: &&Arc<SealedFile>| {
        files.l0.iter().any(|l0| {
            let (l0, head) = (l0.meta(), head.meta());
            l0.first_key <= head.last_key && head.first_key <= l0.last_key
        })
    };
    let met = files.head.iter().filter(meets).map(|file| file.meta());
    let (bytes, entries) = met.fold((0_u64, 0_u64), |(bytes, entries), meta| {
        (bytes.saturating_add(meta.bytes), entries.saturating_add(meta.entries))
    });
    let average = bytes.checked_div(entries).unwrap_or(0);
    let stands_for = |l0: &Arc<SealedFile>| {
        let l0 = l0.meta();
        // As many bytes of older large values die with it.
        let values = l0.blobs.iter().map(|blob| blob.bytes).fold(0, u64::saturating_add);
        l0.bytes.max(l0.entries.saturating_mul(average)).saturating_add(values)
    };
    let dead = blobs::dead_until_fold(files);
    (files.l0.iter().map(stands_for).fold(dead, u64::saturating_add), bytes)
}

/// Whether some L0 files are folded in part. They go on being folded together, without those that were
/// flushed since.
pub(super) fn is_begun(files: &FileSet) -> bool {
    files.l0.iter().any(|file| file.is_begun())
}
