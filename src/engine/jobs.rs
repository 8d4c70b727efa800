//! Background work: what is due, doing it, and putting the result in force.
//!
//! The order in which a change takes effect, always:
//!
//! ```text
//! 1 write the new files, sync them, sync their directory
//! 2 store a manifest that names the new files and not the old
//! 3 publish tables with the new files
//! 4 unlink the old files (open ones stay readable)
//! ```
//!
//! A crash before 2 leaves new files that nothing names, a crash after 2 old ones: both are removed
//! when the store is opened for writing. After a failure anywhere no more background work is done
//! and no write is accepted until the store is reopened; reads go on, and nothing acknowledged is
//! lost: what is not in files is still in the log. Two failures are no end, as before 2 takes effect the new files can be
//! removed, and everything is as it was. If a disk is full the same is tried again later ([`super::shortage`]); if a file
//! that is read is damaged, it is left as it is ([`super::left_alone`]).

use annals_format::{FileKind, FileMeta};

use crate::error::{Error, ErrorKind, Result};
use crate::index::{Generation, Position};
use crate::observe::{self, Span, Task};
use crate::reclaim::floors::Floors;
use crate::reclaim::flush::flush;
use crate::reclaim::merge::{Replacement, Work, merge_windows};
use crate::reclaim::output::Host;
use crate::reclaim::plan::{
    Limits, MERGE_EAGER, MERGE_QUIET, QUIET_SEGMENTS_MAX, TRIM_QUIET, TRIM_USUAL, windows_to_merge,
    windows_worth_merging,
};
use crate::segment::Segment;
use crate::sync::plain::lock;
use crate::sync::{Arc, Ordering, epoch};

use super::blobs;
use super::core::Core;
use super::event_files::events_to_trim;
use super::in_force::flushed;
use super::published::Published;
use super::shortage::Kind;
use super::tables::{FileSet, SealedFile, Tables, Window};
use super::windows::{self, floor_of};
use super::worker::FailingOnPanic;

/// How many files are dropped in one unit of work.
const DROPPED_AT_ONCE: usize = 64;

/// How long nobody must have committed, in microseconds of the store's clock, before work is done that
/// waits for that.
const QUIET_MICROS: i64 = 5_000_000;

impl Core {
    /// Does the most urgent piece of background work. Answers whether there was one.
    ///
    /// # Errors
    /// The failure, which also ends writing, unless the disk is just full, or a file that was read is damaged; see the
    /// module.
    pub(super) fn run_unit(&self) -> Result<bool> {
        self.check_writing()?;
        let busy = self.take_busy();
        // After it, so that a panic is noted before `busy` is let go.
        let _failing = FailingOnPanic(self);
        // It may have been closed, or failed, while this thread waited.
        self.check_writable()?;
        let done = self.unit();
        // Before the next one may begin: it would go on from a manifest that was not stored, and write the
        // same generation to files once more.
        self.note_failure(&done);
        drop(busy);
        done
    }

    /// After a failure nothing more is written, unless it is just that the store is being closed, that there is no
    /// space, or that a file cannot be read, which is left alone from now on.
    pub(super) fn note_failure<T>(&self, outcome: &Result<T>) {
        if let Err(error) = outcome
            && !matches!(error.kind(), ErrorKind::Closed)
            && !self.note_space(Kind::Other, outcome)
            && !self.leave_alone(error)
        {
            self.fail(error);
        }
    }

    fn unit(&self) -> Result<bool> {
        self.leave_note();
        let urgent = self.unit_of(Depth::Folding);
        match &urgent {
            Ok(true) => return urgent,
            // What the disk has no space for may have it once dead files are gone, unless that has ended writing.
            Err(error) if !error.is_shortage() || self.check_writable().is_err() => return urgent,
            _ => {}
        }
        let files = self.shared.tables().files;
        let keep = &self.keep_floors();
        // First what costs next to nothing.
        if self.drop_dead(&files, keep)? {
            return Ok(true);
        }
        urgent?;
        if self.is_put_off(Kind::Other) {
            return self.write_log();
        }
        let done = self.longer_unit(&files, keep)?;
        self.note_space(Kind::Other, &Ok(done));
        Ok(done)
    }

    /// Work that writes new files for old ones.
    fn longer_unit(&self, files: &FileSet, keep: &Floors) -> Result<bool> {
        Ok(
            // So many that reads of the past pay for it: not behind L0 without end.
            windows::most(files, &self.left_alone, keep) > 2 * self.limits().history_windows_max
                && self.merge_some_windows(files, keep)?
                || self.relieve_l0(files)?
                || self.trim_window(files, keep, TRIM_USUAL)?
                || self.move_some_blobs(files, keep, TRIM_USUAL, u64::MAX)?
                || self.merge_some_windows(files, keep)?
                || self.join_some_events(files, keep)?
                || self.thin_some_events(files, keep)?
                || self.write_log()?
                || self.shared.until_quiet(QUIET_MICROS) == 0
                    && (self.trim_window(files, keep, TRIM_QUIET)?
                        || self.trim_events(files, keep, TRIM_QUIET)?
                        || self.move_some_blobs(files, keep, TRIM_QUIET, u64::MAX)?
                        || self.sweep(files, keep)?
                        || self.merge_when_quiet(files, keep)?),
        )
    }

    /// Merges few windows. What nobody needs is not worth filling the disk for, nor trying often.
    fn merge_when_quiet(&self, files: &FileSet, keep: &Floors) -> Result<bool> {
        if self.is_put_off(Kind::Quiet) {
            return Ok(false);
        }
        self.merge_if_there_is_space(self.to_merge_when_quiet(files, keep), keep)
    }

    fn to_merge_when_quiet(&self, files: &FileSet, keep: &Floors) -> Option<Window> {
        let most = self.options.segment_bytes.saturating_mul(QUIET_SEGMENTS_MAX);
        let choose = |bytes: &[u64]| windows_worth_merging(bytes, MERGE_QUIET, most);
        windows::to_merge(files, &self.left_alone, keep, u64::MAX, choose)
    }

    /// For who wants all of it as small and quick to read as it can be: merges few windows, of those that end
    /// at or before `upto`.
    pub(super) fn merge_eagerly(&self, files: &FileSet, keep: &Floors, upto: u64) -> Result<bool> {
        let choose = |bytes: &[u64]| windows_worth_merging(bytes, MERGE_EAGER, u64::MAX);
        let group = windows::to_merge(files, &self.left_alone, keep, upto, choose);
        self.merge_if_there_is_space(group, keep)
    }

    fn merge_if_there_is_space(&self, group: Option<Window>, keep: &Floors) -> Result<bool> {
        let merged = self.merge_windows_of(group, keep);
        // It is no failure, unless putting it in force was where it was lacking.
        if self.note_space(Kind::Quiet, &merged) && self.check_writable().is_ok() {
            return Ok(false);
        }
        merged
    }

    /// How many microseconds are left until there will be work if nobody commits, where there is such
    /// work.
    pub(super) fn until_quiet_work(&self) -> Option<u64> {
        self.check_writable().ok()?;
        if self.is_put_off(Kind::Other) {
            return None;
        }
        let (files, keep) = (self.shared.tables().files, self.keep_floors());
        let left = &self.left_alone;
        let trims = windows::to_trim(&files, left, &keep, TRIM_QUIET).is_some()
            || events_to_trim(&files, left, &keep, TRIM_QUIET).is_some()
            || self.has_blobs_to_move(&files, TRIM_QUIET);
        let is_old =
            |file: &Arc<SealedFile>| file.meta().max_revision < floor_of(file.meta(), &keep);
        let sweeps =
            self.swept.load(Ordering::Relaxed) < keep.sum() && files.head.iter().any(is_old);
        let merges =
            || !self.is_put_off(Kind::Quiet) && self.to_merge_when_quiet(&files, &keep).is_some();
        if !trims && !sweeps && !merges() {
            return None;
        }
        Some(self.shared.until_quiet(QUIET_MICROS))
    }

    /// Writes the log where no thread does that by itself. Answers whether there was anything to write.
    fn write_log(&self) -> Result<bool> {
        Ok(!self.shared.logger.is_attended() && self.chain.lead_once()?)
    }

    /// Does the most urgent piece of the work that may be done inside a longer one.
    pub(super) fn unit_of(&self, depth: Depth) -> Result<bool> {
        if self.prepare_spare() {
            return Ok(true);
        }
        if depth == Depth::Flushing {
            return Ok(false);
        }
        let tables = self.shared.tables();
        // A flush makes room in memory at once, so it goes first; but a writer that is faster than
        // this thread must not keep it from folding for ever. Then the writer waits.
        if !self.flushes_wait(&tables.files)
            && let Some(generation) = tables.frozen().next().cloned()
            && !self.is_put_off(Kind::Flush)
        {
            let flushed = self.flush_generation(&generation);
            self.note_space(Kind::Flush, &flushed);
            flushed?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Makes the next file of the log, if it is time to. Answers whether it did.
    fn prepare_spare(&self) -> bool {
        let Some(wal) = lock(&self.state).wal.clone() else { return false };
        if self.is_put_off(Kind::Spare) {
            return false;
        }
        // If it cannot be made now, who commits makes it when it is needed, and that is what counts.
        let made = wal.prepare_spare();
        self.note_space(Kind::Spare, &made);
        made.unwrap_or(false)
    }

    pub(super) fn limits(&self) -> Limits {
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Limits {
            l0_files_max: size(self.options.l0_files_max),
            history_windows_max: size(self.options.history_windows_max),
            segment_bytes: self.options.segment_bytes,
        }
    }

    pub(super) fn work<'a>(&'a self, host: &'a Busy<'a>, floors: &Floors) -> Work<'a> {
        let (segment_bytes, floors) = (self.options.segment_bytes, floors.clone());
        Work { context: &self.context, host, floors, segment_bytes }
    }

    /// Writes the oldest frozen generation to files, and drops it and the log before its end.
    fn flush_generation(&self, generation: &Arc<Generation>) -> Result<()> {
        let last = frozen_end(generation)?;
        // In the log first: files must not know what a crash could take back.
        self.chain.wait_durable(last)?;
        let span = Span::of(Task::Flush);
        let _within = span.enter();
        let host = Busy { core: self, depth: Depth::Flushing };
        let files = flush(&self.context, &host, generation, &self.keep_floors(), &self.options)?;
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        observe::count(observe::FLUSHES, 1);
        span.revision(last.revision);
        note_size(&span, &files);
        self.sync_names(&files)?;
        let mut state = lock(&self.state);
        let wal = state.wal.clone();
        let forgotten = wal.as_ref().map_or(Vec::new(), |wal| wal.dispensable(last.seq));
        self.put_in_force(&mut state, &files, |manifest| {
            flushed(manifest, last, &files);
            manifest.wal.retain(|file| !forgotten.contains(&file.number));
        })?;
        if let Some(wal) = &wal {
            wal.forget(&forgotten);
        }
        self.publish_flush(generation, &files);
        drop(state);
        Published::<Tables>::tidy();
        self.wake_flushed();
        if let Some(wal) = wal {
            wal.remove(&forgotten)?;
        }
        Ok(())
    }

    /// Publishes the tables in which the files stand for the generation.
    pub(super) fn publish_flush(&self, generation: &Generation, files: &[FileMeta]) {
        let added = self.sealed(files);
        let guard = epoch::pin();
        self.shared.tables.update(&guard, |tables| {
            let kept = tables.generations.iter().filter(|kept| kept.id() != generation.id());
            let generations = kept.cloned().collect();
            Some(Tables { generations, files: Arc::new(tables.files.edited(&[], &added)) })
        });
        let flushed = generation.bytes_used() as u64;
        self.shared.pressure.flushed(flushed, self.shared.generation_bytes());
    }

    /// Drops whole files that nobody can ask for any more.
    fn drop_dead(&self, files: &FileSet, keep: &Floors) -> Result<bool> {
        // Not too many at once: each is held open until it has lost its name.
        let dead: Vec<Arc<SealedFile>> = windows::dead(files, keep)
            .chain(blobs::dead(files))
            .take(DROPPED_AT_ONCE)
            .cloned()
            .collect();
        if dead.is_empty() {
            return Ok(false);
        }
        let removed = dead.iter().map(|file| file.meta().number).collect();
        self.counters.dropped_files.fetch_add(dead.len() as u64, Ordering::Relaxed);
        self.replace(Replacement { removed, ..Replacement::default() })?;
        Ok(true)
    }

    /// Writes the window that its floor runs through again, without what is below, if at least one in
    /// `share` of its revisions is.
    pub(super) fn trim_window(&self, files: &FileSet, keep: &Floors, share: u64) -> Result<bool> {
        let group = windows::to_trim(files, &self.left_alone, keep, share);
        let Some(group) = group else { return Ok(false) };
        self.write_windows(&group, keep)?;
        Ok(true)
    }

    /// Writes files of windows again as one window, or one for each class, without what is dead in them.
    fn write_windows(&self, group: &Window, keep: &Floors) -> Result<()> {
        let span = Span::of(Task::Merge);
        let _within = span.enter();
        let segments = group.files.iter().map(|file| file.open().cloned());
        let segments = segments.collect::<Result<Vec<_>>>()?;
        let host = Busy { core: self, depth: Depth::Merging };
        let between = (group.after, group.upto);
        let replacement = merge_windows(&self.work(&host, keep), &segments, between)?;
        self.merged(&span, replacement)
    }

    fn merge_some_windows(&self, files: &FileSet, keep: &Floors) -> Result<bool> {
        let choose = |bytes: &[u64]| windows_to_merge(bytes, &self.limits());
        let group = windows::to_merge(files, &self.left_alone, keep, u64::MAX, choose);
        self.merge_windows_of(group, keep)
    }

    fn merge_windows_of(&self, group: Option<Window>, keep: &Floors) -> Result<bool> {
        let Some(group) = group else { return Ok(false) };
        self.write_windows(&group, keep)?;
        Ok(true)
    }

    /// Counts a merge, and puts its files in the place of the old ones.
    pub(super) fn merged(&self, span: &Span, replacement: Replacement) -> Result<()> {
        self.counters.merges.fetch_add(1, Ordering::Relaxed);
        observe::count(observe::MERGES, 1);
        note_size(span, &replacement.added);
        self.replace(replacement)
    }

    /// Puts new files in the place of old ones: steps 1 (its end) to 4 of the module.
    pub(super) fn replace(&self, replacement: Replacement) -> Result<()> {
        let Replacement { mut removed, moved, folded_to, added } = replacement;
        let tables = self.shared.tables();
        // Others of them go in units of their own.
        let unreferenced = blobs::unreferenced(&tables.files, &removed, &added);
        removed.extend(unreferenced.into_iter().take(DROPPED_AT_ONCE));
        for file in tables.files.all().filter(|file| removed.contains(&file.meta().number)) {
            // So that who holds the old tables can still read it. If it is damaged, that is no reason to keep it.
            if let Err(error) = file.hold()
                && error.is_shortage()
            {
                self.discard(&added);
                return Err(error);
            }
        }
        self.sync_names(&added)?;
        let mut state = lock(&self.state);
        let mut old: Vec<(FileKind, u64)> = Vec::with_capacity(removed.len());
        self.put_in_force(&mut state, &added, |manifest| {
            let files = &mut manifest.files;
            files.retain(|file| {
                let goes = removed.contains(&file.number);
                if goes {
                    old.push((file.kind, file.number));
                }
                !goes
            });
            for file in files.iter_mut().filter(|file| moved.contains(&file.number)) {
                file.folded_to.clone_from(&folded_to);
            }
            files.extend(added.iter().cloned());
        })?;
        let mut added = self.sealed(&added);
        for file in tables.files.l0.iter().filter(|file| moved.contains(&file.meta().number)) {
            let file = file.folded_to(&folded_to);
            // The manifest in force says so already.
            added.push(file.inspect_err(|error| self.fail(error))?);
        }
        let gone = [removed, moved].concat();
        let guard = epoch::pin();
        self.shared.tables.update(&guard, |tables| {
            Some(tables.with_files(Arc::new(tables.files.edited(&gone, &added))))
        });
        drop(guard);
        drop(state);
        for (kind, number) in old {
            self.context.remove(kind, number)?;
        }
        drop(tables);
        Published::<Tables>::tidy();
        Ok(())
    }

    /// The files as tables hold them. Those that they refer to are among them, or in tables already.
    pub(super) fn sealed(&self, files: &[FileMeta]) -> Vec<Arc<SealedFile>> {
        SealedFile::all(&self.context, files, &self.shared.tables().files.blobs)
    }
}

/// Notes which files a piece of work has written.
pub(super) fn note_size(span: &Span, files: &[FileMeta]) {
    span.size(files.len() as u64, files.iter().map(|file| file.bytes).sum());
}

/// How deep in work the worker is: longer work lets the shorter, more urgent kinds go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Nothing but the log goes before a flush.
    Flushing,
    /// Flushes go before a fold.
    Folding,
    /// Flushes and folds go before merges.
    Merging,
}

/// The engine as a piece of work sees it.
#[derive(Debug)]
pub(super) struct Busy<'a> {
    pub(super) core: &'a Core,
    pub(super) depth: Depth,
}

impl Busy<'_> {
    /// Does what is more urgent than this work, and fails if the store is closing.
    fn let_go_first(&self) -> Result<()> {
        // Given up: it will be done again after the next open.
        self.core.check_open()?;
        // Not only between two pieces of work.
        self.core.write_log()?;
        while self.core.unit_of(self.depth)? {}
        // A rule must not wait for the end of long work. What this work keeps by older floors it keeps.
        let _ = self.core.apply_retention_when_due();
        if self.depth == Depth::Merging {
            // One piece, and then on with the merge: there may be no end of them.
            self.core.relieve_l0(&self.core.shared.tables().files)?;
        }
        Ok(())
    }
}

impl Host for Busy<'_> {
    fn file_number(&self) -> u64 {
        self.core.next_file.fetch_add(1, Ordering::AcqRel)
    }

    fn pace(&self, bytes: u64) -> Result<()> {
        let core = self.core;
        core.counters.background_bytes.fetch_add(bytes, Ordering::Relaxed);
        observe::count(observe::BACKGROUND_BYTES, bytes);
        self.let_go_first()?;
        if self.depth == Depth::Flushing {
            return Ok(());
        }
        core.owe(bytes);
        let mut pauses = 0;
        while core.must_pause() {
            // First: what rings after this ends the nap, and what rang before is found.
            core.shared.worker.answer();
            self.let_go_first()?;
            core.nap();
            pauses = 1;
        }
        core.counters.background_pauses.fetch_add(pauses, Ordering::Relaxed);
        Ok(())
    }
}

/// The position of the last transaction of a frozen generation.
pub(super) fn frozen_end(generation: &Arc<Generation>) -> Result<Position> {
    generation.last().ok_or_else(|| Error::invalid("only a frozen generation is flushed"))
}

pub(super) fn open_all(files: &[Arc<SealedFile>]) -> Result<Vec<Arc<Segment>>> {
    files.iter().map(|file| file.open().cloned()).collect()
}
