//! Sealed files become other sealed files: a fold, a merge of windows, a join of EVENTS.
//!
//! Every one of these reads sorted sources once, writes sorted files once, and holds a block of each
//! in memory. Nothing is published here: the caller puts the new files in the place of the old ones.

use annals_format::entry::EntryRef;
use annals_format::{FileKind, FileMeta};

use crate::error::{Error, Result};
use crate::segment::{ConcatCursor, EntryCursor, MergeCursor, Segment, SegmentContext, Want};
use crate::sync::Arc;

use super::floors::Floors;
use super::fold::{Fate, Folder, keeps};
use super::output::{Host, Output, cut_bytes};
use super::plan::head_runs;

/// What every piece of work knows.
#[derive(Clone)]
pub(crate) struct Work<'a> {
    /// The store.
    pub(crate) context: &'a SegmentContext,
    /// The engine.
    pub(crate) host: &'a dyn Host,
    /// Nothing that reads of a key at its floor and later can ask for may be dropped.
    pub(crate) floors: Floors,
    /// The least of them.
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
/// folded, and one window (`after`, `upto`] of the versions that were superseded by a later generation.
/// Those superseded within their own are in windows since they were flushed.
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
    let mut folder = Folder::new(work.floors.clone());
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
                Fate::Contradicted => return Err(contradicted(l0, &entry)),
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

/// An L0 file says of a key that its oldest version there is no newer than `entry`, which an older file
/// has.
fn contradicted(l0: &[Arc<Segment>], entry: &EntryRef<'_>) -> Error {
    for segment in l0 {
        match segment.find_at(entry.key, u64::MAX, Want::Fields) {
            Ok(Some(found)) if found.revision > entry.revision && found.first <= entry.revision => {
                let expected =
                    format!("a revision above {}, which an older file has", entry.revision);
                let found = format!("{}, first of revision {}", found.first, found.revision);
                return Error::corrupt(segment.path(), 0, "entry: first", expected, found);
            }
            Ok(_) => {}
            Err(error) => return error,
        }
    }
    Error::invalid("two files have the same version of a key")
}

/// Merges files of windows into one window (`after`, `upto`].
///
/// # Errors
/// As for [`fold`].
pub(crate) fn merge_windows(
    work: &Work<'_>,
    files: &[Arc<Segment>],
    window: (u64, u64),
) -> Result<Replacement> {
    let Work { context, host, segment_bytes, .. } = *work;
    let mut history = Output::new(context, host, FileKind::History, Some(window), segment_bytes);
    let mut sources: Vec<Box<dyn EntryCursor>> = Vec::new();
    for row in rows(files) {
        let mut cursor = ConcatCursor::new(row.into());
        cursor.seek_first()?;
        sources.push(Box::new(cursor));
    }
    let mut merge = MergeCursor::new(sources);
    while let Some(entry) = merge.entry() {
        if keeps(&entry, work.floors.of(entry.key)) {
            history.add(&entry)?;
        }
        merge.next()?;
    }
    let removed = files.iter().map(|segment| segment.meta().number).collect();
    Ok(Replacement { removed, added: history.finish()? })
}

/// Puts files into as few rows as it takes for no two of a row to have a key in common: each row can be
/// walked as one. Versions of one key may lie in several files of one window, and of several windows.
fn rows(files: &[Arc<Segment>]) -> Vec<Vec<Arc<Segment>>> {
    let mut sorted: Vec<&Arc<Segment>> = files.iter().collect();
    sorted.sort_by(|a, b| a.meta().first_key.cmp(&b.meta().first_key));
    let mut rows: Vec<Vec<Arc<Segment>>> = Vec::new();
    for file in sorted {
        let ends_before = |row: &&mut Vec<Arc<Segment>>| {
            row.last().is_none_or(|last| last.meta().last_key < file.meta().first_key)
        };
        match rows.iter_mut().find(ends_before) {
            Some(row) => row.push(Arc::clone(file)),
            None => rows.push(vec![Arc::clone(file)]),
        }
    }
    rows
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
        if !entry.tombstone || entry.revision >= work.floors.of(entry.key) {
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use annals_format::StoreId;

    use super::*;
    use crate::options::Options;
    use crate::sync::plain::{AtomicU64, Ordering};
    use crate::vfs::{MemoryVfs, Vfs};

    struct Patient(AtomicU64);

    impl Host for Patient {
        fn file_number(&self) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed) + 1
        }

        fn pace(&self, _bytes: u64) -> Result<()> {
            Ok(())
        }
    }

    /// A store of nothing but segments.
    struct Files {
        disk: MemoryVfs,
        context: SegmentContext,
        host: Patient,
    }

    impl Files {
        fn new() -> Self {
            let disk = MemoryVfs::new();
            disk.create_dir_all(Path::new("/store/seg")).unwrap();
            let options = Options::new().vfs(Arc::new(disk.clone()));
            let context = SegmentContext::new(Path::new("/store"), StoreId([7; 16]), &options);
            Self { disk, context, host: Patient(AtomicU64::new(0)) }
        }

        fn work(&self, watermark: u64) -> Work<'_> {
            let (context, host, floors) = (&self.context, &self.host, Floors::all(watermark));
            Work { context, host, floors, watermark, segment_bytes: 1 << 20 }
        }

        fn segment(
            &self,
            kind: FileKind,
            window: Option<(u64, u64)>,
            entries: &[EntryRef<'_>],
        ) -> Arc<Segment> {
            let mut output = Output::new(&self.context, &self.host, kind, window, 1 << 20);
            for entry in entries {
                output.add(entry).unwrap();
            }
            self.open(&output.finish().unwrap()[0])
        }

        fn open(&self, meta: &FileMeta) -> Arc<Segment> {
            Arc::new(Segment::open(&self.context, meta).unwrap())
        }

        /// Kind, key, revision, death and `first` of all entries of what a piece of work has made.
        fn made(&self, made: &Replacement) -> Vec<(FileKind, Vec<u8>, u64, u64, u64)> {
            let mut found = Vec::new();
            for meta in &made.added {
                let mut cursor = self.open(meta).cold_cursor();
                cursor.seek_first().unwrap();
                while let Some(entry) = cursor.entry() {
                    let (key, first) = (entry.key.to_vec(), entry.first);
                    found.push((meta.kind, key, entry.revision, entry.death, first));
                    cursor.next().unwrap();
                }
            }
            found
        }
    }

    fn entry(key: &[u8], revision: u64) -> EntryRef<'_> {
        EntryRef { key, revision, create_revision: 1, version: 1, ..EntryRef::default() }
    }

    fn flushed(key: &[u8], revision: u64, first: u64) -> EntryRef<'_> {
        EntryRef { first, ..entry(key, revision) }
    }

    fn dead(key: &[u8], revision: u64, death: u64) -> EntryRef<'_> {
        EntryRef { death, ..entry(key, revision) }
    }

    #[test]
    fn what_is_folded_died_by_the_oldest_version_of_the_next_file() {
        let files = Files::new();
        let (a, b) = (&b"\x01a"[..], &b"\x01b"[..]);
        let newer = files.segment(FileKind::L0, None, &[flushed(a, 12, 9), flushed(b, 10, 10)]);
        let older = files.segment(FileKind::L0, None, &[flushed(a, 7, 6)]);
        let head = files.segment(FileKind::Head, None, &[entry(a, 2), entry(b, 3)]);
        let folded = fold(&files.work(0), &[newer, older], &[head], (5, 12)).unwrap();
        let expected = [
            (FileKind::Head, a.to_vec(), 12, 0, 0),
            (FileKind::Head, b.to_vec(), 10, 0, 0),
            (FileKind::History, a.to_vec(), 7, 9, 0),
            (FileKind::History, a.to_vec(), 2, 6, 0),
            (FileKind::History, b.to_vec(), 3, 10, 0),
        ];
        assert_eq!(files.made(&folded), expected);
    }

    #[test]
    fn files_that_contradict_each_other_are_named_and_nothing_is_made() {
        let files = Files::new();
        let l0 = files.segment(FileKind::L0, None, &[flushed(b"\x01a", 8, 3)]);
        let head = files.segment(FileKind::Head, None, &[entry(b"\x01a", 4)]);
        let before = files.disk.paths();
        let path = l0.path().to_path_buf();
        let error = fold(&files.work(9), &[l0], &[head], (2, 8)).unwrap_err();
        assert_eq!(error.corruption().map(|found| &found.file), Some(&path), "{error}");
        assert_eq!(files.disk.paths(), before);
    }

    #[test]
    fn overlapping_windows_become_one_in_order() {
        let files = Files::new();
        let history =
            |span, entries: &[EntryRef<'_>]| files.segment(FileKind::History, Some(span), entries);
        let (a, b) = (&b"\x01a"[..], &b"\x01b"[..]);
        // Two files of one window that share a key, and those of two that overlap it.
        let all = [
            history((2, 20), &[dead(a, 9, 20), dead(b, 18, 19)]),
            history((2, 20), &[dead(b, 11, 12), dead(b, 3, 4)]),
            history((5, 20), &[dead(b, 12, 18)]),
            history((2, 12), &[dead(a, 2, 9), dead(b, 4, 11)]),
        ];
        let merged = merge_windows(&files.work(9), &all, (8, 20)).unwrap();
        let found: Vec<_> = files
            .made(&merged)
            .into_iter()
            .map(|(_, key, at, death, _)| (key, at, death))
            .collect();
        let (a, b) = (|at, death| (a.to_vec(), at, death), |at, death| (b.to_vec(), at, death));
        assert_eq!(found, [a(9, 20), a(2, 9), b(18, 19), b(12, 18), b(11, 12), b(4, 11)]);
        assert_eq!(merged.removed.len(), 4);
        assert!(
            merge_windows(&files.work(0), &all, (8, 20)).is_err(),
            "a death outside the window"
        );
    }
}
