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
//! lost: what is not in files is still in the log.

use annals_format::{FileKind, FileMeta};

use crate::error::{Error, Result};
use crate::index::{Generation, Position};
use crate::reclaim::flush::flush;
use crate::reclaim::merge::{Replacement, Work, fold, join_events, merge_windows};
use crate::reclaim::output::Host;
use crate::reclaim::plan::{Limits, events_to_join, windows_to_merge};
use crate::segment::Segment;
use crate::sync::plain::{MutexGuard, lock};
use crate::sync::{Arc, Ordering, epoch};

use super::core::{Core, State};
use super::tables::{FileSet, SealedFile, Tables};

/// How many times the L0 files that start a fold there may be before flushes wait for it.
const UNFOLDED_TIMES: usize = 3;

/// How sparse the table of revisions and times is: at most this many entries are kept.
const TIMES_MAX: usize = 4096;

impl Core {
    /// Does the most urgent piece of background work. Answers whether there was one.
    ///
    /// # Errors
    /// The failure, which also ends writing; see the module.
    pub(super) fn run_unit(self: &Arc<Self>) -> Result<bool> {
        self.check_writable()?;
        let mut state = lock(&self.state);
        // It may have been closed, or failed, while this thread waited.
        self.check_writable()?;
        let done = self.unit(&mut state);
        if let Err(error) = &done {
            self.fail(error);
        }
        done
    }

    fn unit(&self, state: &mut MutexGuard<'_, State>) -> Result<bool> {
        // If it cannot be made now, the log makes it when it needs it, and that is what counts.
        if let Some(wal) = &state.wal
            && wal.prepare_spare().unwrap_or(false)
        {
            return Ok(true);
        }
        let tables = self.shared.tables();
        let limits = self.limits();
        let unfolded = tables.files.l0.len();
        // A flush makes room in memory at once, so it goes first; but a writer that is faster than
        // this thread must not keep it from folding for ever. Then the writer waits.
        if unfolded < limits.l0_files_max.saturating_mul(UNFOLDED_TIMES)
            && let Some(generation) = tables.frozen().next().cloned()
        {
            self.flush_generation(state, &generation)?;
            return Ok(true);
        }
        if unfolded >= limits.l0_files_max {
            self.fold_all(state, &tables.files)?;
            return Ok(true);
        }
        let keep = self.keep();
        if self.drop_dead(state, &tables.files, keep)? {
            return Ok(true);
        }
        if self.merge_some_windows(state, &tables.files, keep)? {
            return Ok(true);
        }
        if self.join_some_events(state, &tables.files, keep)? {
            return Ok(true);
        }
        self.chain.lead_once()
    }

    fn limits(&self) -> Limits {
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Limits {
            l0_files_max: size(self.options.l0_files_max),
            history_windows_max: size(self.options.history_windows_max),
            segment_bytes: self.options.segment_bytes,
        }
    }

    fn work(&self, watermark: u64) -> Work<'_> {
        let segment_bytes = self.options.segment_bytes;
        Work { context: &self.context, host: self, watermark, segment_bytes }
    }

    /// Writes the oldest frozen generation to files, and drops it and the log before its end.
    fn flush_generation(&self, state: &mut State, generation: &Arc<Generation>) -> Result<()> {
        let last = frozen_end(generation)?;
        // In the log first: files must not know what a crash could take back.
        self.chain.wait_durable(last)?;
        let files = flush(&self.context, self, generation, self.options.segment_bytes)?;
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        if !files.is_empty() {
            self.context.sync_dir()?;
        }
        state.flushed(last, &files);
        let wal = state.wal.clone();
        let forgotten = wal.as_ref().map_or(Vec::new(), |wal| wal.forget(last.seq));
        self.store_manifest(state)?;
        self.publish_flush(generation.id(), &files);
        self.wake_flushed();
        if let Some(wal) = wal {
            wal.remove(&forgotten)?;
        }
        Ok(())
    }

    /// Publishes the tables in which the files stand for the generation.
    pub(super) fn publish_flush(&self, generation: u64, files: &[FileMeta]) {
        let added = self.sealed(files);
        let guard = epoch::pin();
        self.shared.tables.update(&guard, |tables| {
            let kept = tables.generations.iter().filter(|kept| kept.id() != generation);
            let generations = kept.cloned().collect();
            Some(Tables { generations, files: Arc::new(tables.files.edited(&[], &added)) })
        });
        // So that the generation's memory does not wait for the next few hundred pins.
        guard.flush();
    }

    /// Folds all L0 files into HEAD and one HISTORY window.
    pub(super) fn fold_all(&self, state: &mut State, files: &FileSet) -> Result<()> {
        let l0 = open_all(&files.l0)?;
        let head = open_all(&files.head)?;
        let after = files.windows.last().map_or(0, |window| window.upto);
        let upto = state.manifest.flushed_revision;
        // All that is superseded in this fold was so by a revision that is in these files.
        let replacement = fold(&self.work(self.keep()), &l0, &head, (after, upto.max(after)))?;
        self.counters.folds.fetch_add(1, Ordering::Relaxed);
        self.replace(state, replacement)
    }

    /// Drops whole files that nobody can ask for any more.
    fn drop_dead(&self, state: &mut State, files: &FileSet, keep: u64) -> Result<bool> {
        let windows = files.windows.iter().filter(|window| window.upto < keep);
        let events = files.events.iter().filter(|file| file.meta().max_revision < keep);
        let dead = windows.flat_map(|window| &window.files).chain(events);
        let dead: Vec<Arc<SealedFile>> = dead.cloned().collect();
        if dead.is_empty() {
            return Ok(false);
        }
        for file in &dead {
            // So that who holds the old tables can still read it. If it cannot be opened now, that
            // is no reason to keep it.
            let _ = file.open();
        }
        let removed = dead.iter().map(|file| file.meta().number).collect();
        self.counters.dropped_files.fetch_add(dead.len() as u64, Ordering::Relaxed);
        self.replace(state, Replacement { removed, added: Vec::new() })?;
        Ok(true)
    }

    fn merge_some_windows(&self, state: &mut State, files: &FileSet, keep: u64) -> Result<bool> {
        let bytes: Vec<u64> =
            files.windows.iter().map(|w| w.files.iter().map(|f| f.meta().bytes).sum()).collect();
        let Some(run) = windows_to_merge(&bytes, &self.limits()) else { return Ok(false) };
        let windows = files.windows.get(run).unwrap_or_default();
        let (Some(first), Some(last)) = (windows.first(), windows.last()) else {
            return Ok(false);
        };
        let span = (first.after, last.upto);
        let segments = windows.iter().map(|window| open_all(&window.files));
        let segments = segments.collect::<Result<Vec<_>>>()?;
        let replacement = merge_windows(&self.work(keep), &segments, span)?;
        self.counters.merges.fetch_add(1, Ordering::Relaxed);
        self.replace(state, replacement)?;
        Ok(true)
    }

    fn join_some_events(&self, state: &mut State, files: &FileSet, keep: u64) -> Result<bool> {
        let bytes: Vec<u64> = files.events.iter().map(|file| file.meta().bytes).collect();
        let Some(run) = events_to_join(&bytes, &self.limits()) else { return Ok(false) };
        let segments = open_all(files.events.get(run).unwrap_or_default())?;
        let replacement = join_events(&self.work(keep), &segments)?;
        self.counters.merges.fetch_add(1, Ordering::Relaxed);
        self.replace(state, replacement)?;
        Ok(true)
    }

    /// Puts new files in the place of old ones: steps 1 (its end) to 4 of the module.
    fn replace(&self, state: &mut State, replacement: Replacement) -> Result<()> {
        let Replacement { removed, added } = replacement;
        if !added.is_empty() {
            self.context.sync_dir()?;
        }
        let files = &mut state.manifest.files;
        let mut old: Vec<(FileKind, u64)> = Vec::with_capacity(removed.len());
        files.retain(|file| {
            let goes = removed.contains(&file.number);
            if goes {
                old.push((file.kind, file.number));
            }
            !goes
        });
        files.extend(added.iter().cloned());
        self.store_manifest(state)?;
        let added = self.sealed(&added);
        let guard = epoch::pin();
        self.shared.tables.update(&guard, |tables| {
            Some(tables.with_files(Arc::new(tables.files.edited(&removed, &added))))
        });
        drop(guard);
        for (kind, number) in old {
            self.context.remove(kind, number)?;
        }
        Ok(())
    }

    /// Stores the manifest, with what is known now of everything that is not a file.
    pub(super) fn store_manifest(&self, state: &mut State) -> Result<()> {
        let durable = self.chain.durable();
        let manifest = &mut state.manifest;
        manifest.next_file = self.next_file.load(Ordering::Acquire);
        manifest.compacted = manifest.compacted.max(self.compacted());
        manifest.revision_floor = manifest.revision_floor.max(durable.revision);
        if let Some(wal) = &state.wal {
            manifest.wal = wal.listed();
        }
        self.counters.manifests.fetch_add(1, Ordering::Relaxed);
        state.store.store(manifest)
    }

    /// The files as tables hold them.
    pub(super) fn sealed(&self, files: &[FileMeta]) -> Vec<Arc<SealedFile>> {
        files.iter().map(|meta| SealedFile::new(&self.context, meta.clone())).collect()
    }
}

impl Host for Core {
    fn file_number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::AcqRel)
    }

    fn pace(&self, bytes: u64) -> Result<()> {
        self.counters.background_bytes.fetch_add(bytes, Ordering::Relaxed);
        // In a Buffered store the worker is who writes out: not only between two pieces of work.
        self.chain.lead_once()?;
        Ok(())
    }
}

impl State {
    /// Notes that everything up to `last` is in files.
    pub(super) fn flushed(&mut self, last: Position, files: &[FileMeta]) {
        let manifest = &mut self.manifest;
        manifest.files.extend(files.iter().cloned());
        manifest.flushed_seq = last.seq;
        manifest.flushed_revision = last.revision;
        manifest.flushed_time = last.time;
        let times = &mut manifest.times;
        if times.last().is_none_or(|(revision, _)| *revision < last.revision) {
            times.push((last.revision, last.time));
        }
        if times.len() > TIMES_MAX {
            // Every second of the older half goes: the past gets coarser.
            let mut at = 0;
            times.retain(|_| {
                at += 1;
                at > TIMES_MAX / 2 || at % 2 == 0
            });
        }
    }
}

/// The position of the last transaction of a frozen generation.
pub(super) fn frozen_end(generation: &Arc<Generation>) -> Result<Position> {
    generation.last().ok_or_else(|| Error::invalid("only a frozen generation is flushed"))
}

fn open_all(files: &[Arc<SealedFile>]) -> Result<Vec<Arc<Segment>>> {
    files.iter().map(|file| file.open().cloned()).collect()
}
