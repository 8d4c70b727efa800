//! Sealed files become other sealed files: a fold, a merge of windows, a join of EVENTS.
//!
//! Every one of these reads sorted sources once, writes sorted files once, and holds a block of each
//! in memory. Nothing is published here: the caller puts the new files in the place of the old ones.

use annals_format::entry::EntryRef;
use annals_format::{FileKind, FileMeta};

use crate::error::Result;
use crate::segment::{ConcatCursor, EntryCursor, MergeCursor, Segment, SegmentContext};
use crate::sync::Arc;

use super::fold::{Fate, Folder, keeps};
use super::output::{Host, Output, cut_bytes};
use super::plan::head_runs;

/// What every piece of work knows.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    /// The store.
    pub(crate) context: &'a SegmentContext,
    /// The engine.
    pub(crate) host: &'a dyn Host,
    /// Nothing that reads at this revision and later can ask for may be dropped.
    pub(crate) watermark: u64,
    /// Size at which files are cut.
    pub(crate) segment_bytes: u64,
}

/// New files in the place of old ones.
#[derive(Debug, Default)]
pub(crate) struct Replacement {
    /// Numbers of the files that go.
    pub(crate) removed: Vec<u64>,
    /// The files that come.
    pub(crate) added: Vec<FileMeta>,
}

/// Folds L0 files (newest first, all there are) into HEAD (by key): new HEAD files where a key is
/// folded, and one window (`after`, `upto`] of the versions that were superseded.
///
/// # Errors
/// What reading and writing answer; nothing new is left then.
pub(crate) fn fold(
    work: &Work<'_>,
    l0: &[Arc<Segment>],
    head: &[Arc<Segment>],
    (after, upto): (u64, u64),
) -> Result<Replacement> {
    let Work { context, host, segment_bytes, .. } = *work;
    let mut heads = Output::new(context, host, FileKind::Head, None, segment_bytes);
    let window = Some((after, upto));
    let mut history = Output::new(context, host, FileKind::History, window, segment_bytes);
    let mut removed: Vec<u64> = l0.iter().map(|segment| segment.meta().number).collect();

    let touched = touched(l0, head)?;
    let small = |meta: &FileMeta| {
        meta.bytes < cut_bytes(segment_bytes, meta.first_key.len(), meta.last_key.len()) / 4
    };
    let small: Vec<bool> = head.iter().map(|segment| small(segment.meta())).collect();
    let mut runs = head_runs(&touched, &small);
    if head.is_empty() {
        runs.push(0..0);
    }
    let mut folder = Folder::new(work.watermark);
    for run in runs {
        let files = head.get(run.clone()).unwrap_or_default();
        removed.extend(files.iter().map(|segment| segment.meta().number));
        let start = if run.start == 0 { &[][..] } else { first_key(head, run.start) };
        let end = head.get(run.end).map(|segment| segment.meta().first_key.as_slice());
        let mut merge = merge_from(start, l0, files)?;
        while let Some(entry) = merge.entry() {
            if end.is_some_and(|end| entry.key >= end) {
                break;
            }
            let fate = folder.fate(&entry);
            // What an entry says of the generation that it was flushed with is not said any more.
            let entry = EntryRef { death: 0, first: 0, lived: false, ..entry };
            match fate {
                Fate::Head => heads.add(&entry)?,
                Fate::History { death } => history.add(&EntryRef { death, ..entry })?,
                Fate::Drop => {}
            }
            merge.next()?;
        }
        // A file must not reach across the HEAD files between two runs.
        heads.cut()?;
    }
    debug_assert!(folder.upto() <= upto, "{} is folded above {upto}", folder.upto());
    let mut added = heads.finish()?;
    match history.finish() {
        Ok(history) => added.extend(history),
        Err(error) => {
            remove_all(context, &added);
            return Err(error);
        }
    }
    Ok(Replacement { removed, added })
}

/// Merges neighbouring windows (oldest first, each by key) into one window (`after`, `upto`].
///
/// # Errors
/// As for [`fold`].
pub(crate) fn merge_windows(
    work: &Work<'_>,
    windows: &[Vec<Arc<Segment>>],
    window: (u64, u64),
) -> Result<Replacement> {
    let Work { context, host, segment_bytes, .. } = *work;
    let mut history = Output::new(context, host, FileKind::History, Some(window), segment_bytes);
    let mut sources: Vec<Box<dyn EntryCursor>> = Vec::new();
    for files in windows.iter().rev() {
        let mut cursor = ConcatCursor::new(files.clone().into());
        cursor.seek_first()?;
        sources.push(Box::new(cursor));
    }
    let mut merge = MergeCursor::new(sources);
    while let Some(entry) = merge.entry() {
        if keeps(&entry, work.watermark) {
            history.add(&entry)?;
        }
        merge.next()?;
    }
    let removed = windows.iter().flatten().map(|segment| segment.meta().number).collect();
    Ok(Replacement { removed, added: history.finish()? })
}

/// Writes a HEAD file without the tombstones that are older than the watermark: where HEAD has no
/// version of a key, there is none.
///
/// # Errors
/// As for [`fold`].
pub(crate) fn sweep_head(work: &Work<'_>, file: &Arc<Segment>) -> Result<Replacement> {
    let Work { context, host, segment_bytes, .. } = *work;
    let mut heads = Output::new(context, host, FileKind::Head, None, segment_bytes);
    let mut cursor = file.cold_cursor();
    cursor.seek_first()?;
    while let Some(entry) = cursor.entry() {
        if !entry.tombstone || entry.revision >= work.watermark {
            heads.add(&entry)?;
        }
        cursor.next()?;
    }
    Ok(Replacement { removed: vec![file.meta().number], added: heads.finish()? })
}

/// Joins neighbouring EVENTS files (oldest first), without the transactions before the watermark.
///
/// # Errors
/// As for [`fold`].
pub(crate) fn join_events(work: &Work<'_>, files: &[Arc<Segment>]) -> Result<Replacement> {
    let Work { context, host, segment_bytes, .. } = *work;
    let mut events = Output::new(context, host, FileKind::Events, None, segment_bytes);
    for file in files {
        let mut cursor = file.cold_cursor();
        cursor.seek(&work.watermark.to_be_bytes(), u64::MAX)?;
        while let Some(entry) = cursor.entry() {
            events.add(&entry)?;
            cursor.next()?;
        }
    }
    let removed = files.iter().map(|segment| segment.meta().number).collect();
    Ok(Replacement { removed, added: events.finish()? })
}

/// Removes files that were written but will not be used.
pub(crate) fn remove_all(context: &SegmentContext, files: &[FileMeta]) {
    for meta in files {
        // What cannot be removed is an orphan, and goes when the store is opened next.
        let _ = context.remove(meta.kind, meta.number);
    }
}

/// Which HEAD files own a key of the L0 files; see [`head_runs`].
fn touched(l0: &[Arc<Segment>], head: &[Arc<Segment>]) -> Result<Vec<bool>> {
    let mut touched = vec![false; head.len()];
    for segment in l0 {
        let mut cursor = segment.cold_cursor();
        let mut at = 0;
        while at < head.len() {
            let start = if at == 0 { &[][..] } else { first_key(head, at) };
            cursor.seek(start, u64::MAX)?;
            let Some(entry) = cursor.entry() else { break };
            // The file that owns the next key of L0.
            let owner = head.partition_point(|s| s.meta().first_key.as_slice() <= entry.key);
            let owner = owner.saturating_sub(1);
            if let Some(touched) = touched.get_mut(owner) {
                *touched = true;
            }
            at = owner + 1;
        }
    }
    Ok(touched)
}

fn first_key(head: &[Arc<Segment>], at: usize) -> &[u8] {
    head.get(at).map_or(&[], |segment| segment.meta().first_key.as_slice())
}

/// The entries of L0 files and a run of HEAD files from a key on.
fn merge_from(start: &[u8], l0: &[Arc<Segment>], head: &[Arc<Segment>]) -> Result<MergeCursor> {
    let mut sources: Vec<Box<dyn EntryCursor>> = Vec::with_capacity(l0.len() + 1);
    for segment in l0 {
        let mut cursor = segment.cold_cursor();
        cursor.seek(start, u64::MAX)?;
        sources.push(Box::new(cursor));
    }
    let mut cursor = ConcatCursor::new(head.into());
    cursor.seek_first()?;
    sources.push(Box::new(cursor));
    Ok(MergeCursor::new(sources))
}
