//! Sealed files become other sealed files of their kind: a merge of windows, a join or a thinning of EVENTS, a
//! sweep of HEAD, a move of values to other blob files.
//!
//! Every one of these reads sorted sources once, writes sorted files once, and holds a block of each
//! in memory. Nothing is published here: the caller puts the new files in the place of the old ones.

use std::collections::BTreeSet;

use annals_format::entry::EntryRef;
use annals_format::events::{EventRef, THINNED, Transaction, TransactionBuilder};
use annals_format::space::USER;
use annals_format::{FileKind, FileMeta};

use crate::error::Result;
use crate::segment::{ConcatCursor, EntryCursor, MergeCursor, Segment, SegmentContext};
use crate::sync::Arc;

use super::floors::Floors;
use super::fold::keeps;
use super::output::{History, Host, Output};

/// What every piece of work knows.
#[derive(Clone)]
pub(crate) struct Work<'a> {
    /// The store.
    pub(crate) context: &'a SegmentContext,
    /// The engine.
    pub(crate) host: &'a dyn Host,
    /// Nothing that reads of a key at its floor and later can ask for may be dropped.
    pub(crate) floors: Floors,
    /// Size at which files are cut.
    pub(crate) segment_bytes: u64,
}

/// New files in the place of old ones.
#[derive(Debug, Default)]
pub(crate) struct Replacement {
    /// Numbers of the files that go.
    pub(crate) removed: Vec<u64>,
    /// Numbers of L0 files that stay, folded up to another key.
    pub(crate) moved: Vec<u64>,
    /// That key.
    pub(crate) folded_to: Vec<u8>,
    /// The files that come.
    pub(crate) added: Vec<FileMeta>,
}

/// Merges files of windows into one window (`after`, `upto`], or for every class one that begins where
/// its floor is.
///
/// # Errors
/// What reading and writing answer; nothing new is left then.
pub(crate) fn merge_windows(
    work: &Work<'_>,
    files: &[Arc<Segment>],
    window: (u64, u64),
) -> Result<Replacement> {
    let Work { context, host, segment_bytes, .. } = *work;
    let mut history = History::new(context, host, &work.floors, window, segment_bytes);
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
    let added = history.into_output().finish()?;
    Ok(Replacement { removed, added, ..Replacement::default() })
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
/// As for [`merge_windows`].
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
    let removed = vec![file.meta().number];
    Ok(Replacement { removed, added: heads.finish()?, ..Replacement::default() })
}

/// Writes HEAD files (in the order of their keys) again, whose values in the blob files `moving` go to others.
///
/// # Errors
/// As for [`merge_windows`].
pub(crate) fn move_blobs(
    work: &Work<'_>,
    head: &[Arc<Segment>],
    moving: &BTreeSet<u64>,
) -> Result<Replacement> {
    let Work { context, host, segment_bytes, .. } = *work;
    let mut heads = Output::new(context, host, FileKind::Head, None, segment_bytes);
    for file in head {
        let mut cursor = file.cold_cursor();
        cursor.seek_first()?;
        while let Some(entry) = cursor.entry() {
            if entry.blob.is_some_and(|blob| moving.contains(&blob.file)) {
                let value = cursor.value()?;
                heads.add(&EntryRef { value: &value, blob: None, ..entry })?;
            } else {
                heads.add(&entry)?;
            }
            cursor.next()?;
        }
        // There may be HEAD files between this one and the next that stay.
        heads.cut()?;
    }
    let removed = head.iter().map(|segment| segment.meta().number).collect();
    Ok(Replacement { removed, added: heads.finish()?, ..Replacement::default() })
}

/// Joins neighbouring EVENTS files (oldest first), without the transactions before the least floor.
///
/// # Errors
/// As for [`merge_windows`].
pub(crate) fn join_events(work: &Work<'_>, files: &[Arc<Segment>]) -> Result<Replacement> {
    let Work { context, host, segment_bytes, .. } = *work;
    let mut events = Output::new(context, host, FileKind::Events, None, segment_bytes);
    for file in files {
        let mut cursor = file.cold_cursor();
        cursor.seek(&work.floors.least().to_be_bytes(), u64::MAX)?;
        while let Some(entry) = cursor.entry() {
            events.add(&entry)?;
            cursor.next()?;
        }
    }
    let removed = files.iter().map(|segment| segment.meta().number).collect();
    Ok(Replacement { removed, added: events.finish()?, ..Replacement::default() })
}

/// Writes an EVENTS file again without the changes of keys that can be read at later revisions only. A transaction
/// of which nothing is left stays, as its time is asked for. `None` if the file cannot be read.
///
/// # Errors
/// As for [`merge_windows`], but for what reading answers.
pub(crate) fn thin_events(work: &Work<'_>, file: &Arc<Segment>) -> Result<Option<Replacement>> {
    let Work { context, host, segment_bytes, .. } = *work;
    let mut events = Output::new(context, host, FileKind::Events, None, segment_bytes);
    let (mut kept, mut value) = (TransactionBuilder::new(), Vec::new());
    let mut thinned = 0;
    let was_read = look_through(file, &work.floors, &mut |seen| {
        match seen {
            Seen::Change { event, is_forgotten: false } => kept.push(event),
            Seen::Change { .. } => thinned = THINNED,
            Seen::End { revision, transaction } => {
                value.clear();
                // It tells of the changes, by which it is found.
                let metadata = if kept.count() == 0 { &[] } else { transaction.metadata };
                let flags = transaction.flags | std::mem::take(&mut thinned);
                kept.finish(flags, transaction.time, metadata, &mut value);
                let key = &revision.to_be_bytes()[..];
                events.add(&EntryRef { key, revision, value: &value, ..EntryRef::default() })?;
            }
        }
        Ok(())
    })?;
    if !was_read {
        return Ok(None);
    }
    let removed = vec![file.meta().number];
    Ok(Some(Replacement { removed, added: events.finish()?, ..Replacement::default() }))
}

/// Bytes of the changes in an EVENTS file, and how many of these [thinning](thin_events) would leave out. `None` if the
/// file cannot be read.
///
/// # Errors
/// What is no matter of the file.
pub(crate) fn forgotten_bytes(file: &Arc<Segment>, floors: &Floors) -> Result<Option<(u64, u64)>> {
    let (mut all, mut forgotten) = (0, 0);
    let was_read = look_through(file, floors, &mut |seen| {
        if let Seen::Change { event, is_forgotten } = seen {
            let bytes = (event.key.len() + event.value.map_or(0, <[u8]>::len)) as u64;
            all += bytes;
            forgotten += if is_forgotten { bytes } else { 0 };
        }
        Ok(())
    })?;
    Ok(was_read.then_some((all, forgotten)))
}

/// What is seen of an EVENTS file.
enum Seen<'a> {
    /// A change, and whether its key can be read at later revisions only.
    Change { event: &'a EventRef<'a>, is_forgotten: bool },
    /// The end of the transaction that made those before.
    End { revision: u64, transaction: &'a Transaction<'a> },
}

/// Goes through the transactions from the least floor on. Like all background work it reads past map and cache, and
/// checks every block, also one that a reader has found whole: what is written again has a checksum of its own.
/// False if the file cannot be read.
fn look_through(
    file: &Arc<Segment>,
    floors: &Floors,
    see: &mut dyn FnMut(Seen<'_>) -> Result<()>,
) -> Result<bool> {
    let mut seen = Ok(());
    let read = read_through(file, floors, &mut |part| {
        seen = see(part);
        seen.is_ok()
    });
    seen?;
    match read {
        Err(error) if error.is_damage() => Ok(false),
        read => read.map(|()| true),
    }
}

/// The same until `see` wants no more.
fn read_through(
    file: &Arc<Segment>,
    floors: &Floors,
    see: &mut dyn FnMut(Seen<'_>) -> bool,
) -> Result<()> {
    let mut cursor = file.cold_cursor();
    cursor.seek(&floors.least().to_be_bytes(), u64::MAX)?;
    let mut key = vec![USER];
    while let Some(entry) = cursor.entry() {
        let damaged = |error| cursor.damaged(&error);
        let revision = entry.revision;
        let transaction = &Transaction::decode(entry.value).map_err(damaged)?;
        for event in transaction.events() {
            let event = &event.map_err(damaged)?;
            key.truncate(1);
            key.extend_from_slice(event.key);
            if !see(Seen::Change { event, is_forgotten: floors.of(&key) > revision }) {
                return Ok(());
            }
        }
        if !see(Seen::End { revision, transaction }) {
            return Ok(());
        }
        cursor.next()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::tests::{Files, dead};

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
