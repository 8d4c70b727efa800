//! Files of L0 become HEAD, a part of the key space at a time, or fewer files of L0.
//!
//! ```text
//!   L0 files, newest first     ====|==========|======      merge_l0: neighbours become one, if HEAD is
//!                              ====|==========|======                so large that a fold does not pay
//!                                  ^ folded to here
//!   HEAD files by key          [  ][  ][  ][  ][  ][  ]    fold: HEAD files that L0 has keys of are
//!                               done     now     later             written again, some at a time
//! ```
//!
//! A fold is done in steps, each of which is put in force by itself: it replaces some HEAD files and moves the
//! mark up to which the L0 files do not count any more. So a step needs room for a few files, not
//! for another HEAD, what was done is not done again after the store was closed, and other work comes in
//! between.

use annals_format::entry::EntryRef;
use annals_format::order::later;
use annals_format::{FileKind, FileMeta};

use crate::error::{Error, Result};
use crate::segment::{ConcatCursor, EntryCursor, MergeCursor, Segment, Want};
use crate::sync::Arc;

use super::fold::{Fate, Folder};
use super::merge::{Replacement, Work};
use super::output::{History, Output, cut_bytes, finish_all};
use super::plan::head_runs;

/// How many files' worth of HEAD a step of a fold takes, about.
const STEP_FILES: u64 = 4;

/// Folds L0 files (newest first, all that are folded together) from the key on up to which they are
/// folded: new HEAD files where a key is folded, and one window (`after`, `upto`] of the versions that
/// were superseded by a later generation. Those superseded within their own are in windows since they
/// were flushed.
///
/// # Errors
/// What reading and writing answer; nothing new is left then.
pub(crate) fn fold(
    work: &Work<'_>,
    l0: &[Arc<Segment>],
    from: &[u8],
    head: &[Arc<Segment>],
    (after, upto): (u64, u64),
) -> Result<Replacement> {
    let Work { context, host, segment_bytes, .. } = *work;
    let mut heads = Output::new(context, host, FileKind::Head, None, segment_bytes);
    let mut history = History::new(context, host, &work.floors, (after, upto), segment_bytes);
    let touched = touched(l0, from, head)?;
    let small = |meta: &FileMeta| {
        meta.bytes < cut_bytes(segment_bytes, meta.first_key.len(), meta.last_key.len()) / 4
    };
    let small: Vec<bool> = head.iter().map(|segment| small(segment.meta())).collect();
    let mut files = head_runs(&touched, &small).into_iter().flatten().peekable();
    let mut folder = Folder::new(work.floors.clone());
    let mut removed = Vec::new();
    let mut taken = 0;
    if head.is_empty() {
        let merge = merge_from(l0, from, None)?;
        fold_into(&mut heads, &mut history, &mut folder, merge, None, l0)?;
    }
    // Small neighbours before the mark come first, and are not enough for a step: the mark must move.
    let step = segment_bytes.saturating_mul(STEP_FILES);
    while let Some(at) = files.next_if(|at| taken < step || first_key(head, *at) <= from) {
        let file = head.get(at);
        let (number, bytes) = file.map_or((0, 0), |f| (f.meta().number, f.meta().bytes));
        removed.push(number);
        taken += bytes;
        let start = if at == 0 { from } else { later(first_key(head, at), from) };
        let end = head.get(at + 1).map(|segment| segment.meta().first_key.as_slice());
        let merge = merge_from(l0, start, file)?;
        fold_into(&mut heads, &mut history, &mut folder, merge, end, l0)?;
        if files.peek() != Some(&(at + 1)) {
            // A file must not reach across the HEAD files between two runs.
            heads.cut()?;
        }
    }
    let folded_to = files.next().map(|next| first_key(head, next).to_vec());
    let mut moved = Vec::new();
    for meta in l0.iter().map(|segment| segment.meta()) {
        let is_done = folded_to.as_ref().is_none_or(|key| *key > meta.last_key);
        if is_done { &mut removed } else { &mut moved }.push(meta.number);
    }
    let folded_to = folded_to.unwrap_or_default();
    Ok(Replacement {
        removed,
        moved,
        folded_to,
        added: finish_all(context, [heads, history.into_output()])?,
    })
}

/// Writes each version where its fate takes it, up to the key `end`.
fn fold_into(
    heads: &mut Output<'_>,
    history: &mut History<'_>,
    folder: &mut Folder,
    mut merge: MergeCursor,
    end: Option<&[u8]>,
    l0: &[Arc<Segment>],
) -> Result<()> {
    while let Some(entry) = merge.entry() {
        if end.is_some_and(|end| entry.key >= end) {
            break;
        }
        let fate = folder.fate(&entry);
        // What an entry says of the generation that it was flushed with is not said any more.
        let entry = EntryRef { death: 0, first: 0, lived: false, ..entry };
        match fate {
            Fate::Newest => heads.add(&entry)?,
            Fate::History { death } => history.add_from(&merge, &EntryRef { death, ..entry })?,
            Fate::Drop => {}
            Fate::Contradicted => return Err(contradicted(l0, &entry)),
        }
        merge.next()?;
    }
    Ok(())
}

/// Merges L0 files (newest first, neighbours) into one, and one window (`after`, `upto`] of the versions
/// that were superseded by another generation of these.
///
/// # Errors
/// As for [`fold`].
pub(crate) fn merge_l0(
    work: &Work<'_>,
    l0: &[Arc<Segment>],
    (after, upto): (u64, u64),
) -> Result<Replacement> {
    let Work { context, host, segment_bytes, .. } = *work;
    // One file for all keys: a reader looks into every L0 file.
    let mut newest = Output::new(context, host, FileKind::L0, None, u64::MAX);
    let mut history = History::new(context, host, &work.floors, (after, upto), segment_bytes);
    let mut folder = Folder::above_head(work.floors.clone());
    let mut merge = merge_from(l0, &[], None)?;
    let mut held = Held::default();
    while let Some(entry) = merge.entry() {
        let fate = folder.fate(&entry);
        if fate == Fate::Newest {
            held.write(&mut newest)?;
            held.hold(&entry);
        }
        // Of the oldest at last: what superseded whatever lies below.
        (held.first, held.lived) = (entry.first, entry.lived);
        let entry = EntryRef { first: 0, lived: false, ..entry };
        match fate {
            Fate::Newest | Fate::Drop => {}
            Fate::History { death } => history.add_from(&merge, &EntryRef { death, ..entry })?,
            Fate::Contradicted => return Err(contradicted(l0, &entry)),
        }
        merge.next()?;
    }
    held.write(&mut newest)?;
    let mut added = finish_all(context, [newest, history.into_output()])?;
    let last_seq = l0.iter().map(|segment| segment.meta().last_seq).max().unwrap_or(0);
    for file in added.iter_mut().filter(|file| file.kind == FileKind::L0) {
        file.last_seq = last_seq;
    }
    let removed = l0.iter().map(|segment| segment.meta().number).collect();
    Ok(Replacement { removed, added, ..Replacement::default() })
}

/// The newest version of a key, kept until its oldest is known.
#[derive(Debug, Default)]
struct Held {
    /// Without key and value; of no version if its revision is 0.
    fields: EntryRef<'static>,
    key: Vec<u8>,
    value: Vec<u8>,
    first: u64,
    lived: bool,
}

impl Held {
    fn hold(&mut self, entry: &EntryRef<'_>) {
        self.key.clear();
        self.key.extend_from_slice(entry.key);
        self.value.clear();
        self.value.extend_from_slice(entry.value);
        self.fields = EntryRef {
            key: &[],
            value: &[],
            revision: entry.revision,
            sub: entry.sub,
            tombstone: entry.tombstone,
            create_revision: entry.create_revision,
            version: entry.version,
            lease: entry.lease,
            blob: entry.blob,
            ..EntryRef::default()
        };
    }

    fn write(&mut self, to: &mut Output<'_>) -> Result<()> {
        if self.fields.revision == 0 {
            return Ok(());
        }
        let (first, lived) = (self.first, self.lived);
        to.add(&EntryRef { key: &self.key, value: &self.value, first, lived, ..self.fields })
    }
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

/// Which HEAD files own a key of the L0 files from `from` on; see [`head_runs`].
fn touched(l0: &[Arc<Segment>], from: &[u8], head: &[Arc<Segment>]) -> Result<Vec<bool>> {
    let mut touched = vec![false; head.len()];
    for segment in l0 {
        let mut cursor = segment.cold_cursor();
        let mut at = 0;
        while at < head.len() {
            let start = if at == 0 { from } else { later(first_key(head, at), from) };
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

/// The entries of L0 files from a key on, and those of a HEAD file.
fn merge_from(
    l0: &[Arc<Segment>],
    start: &[u8],
    head: Option<&Arc<Segment>>,
) -> Result<MergeCursor> {
    let mut sources: Vec<Box<dyn EntryCursor>> = Vec::with_capacity(l0.len() + 1);
    for segment in l0 {
        let mut cursor = segment.cold_cursor();
        cursor.seek(start, u64::MAX)?;
        sources.push(Box::new(cursor));
    }
    if let Some(segment) = head {
        let mut cursor = ConcatCursor::new(vec![Arc::clone(segment)].into());
        cursor.seek_first()?;
        sources.push(Box::new(cursor));
    }
    Ok(MergeCursor::new(sources))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::tests::{Files, entry, flushed};

    #[test]
    fn what_is_folded_died_by_the_oldest_version_of_the_next_file() {
        let files = Files::new();
        let (a, b) = (&b"\x01a"[..], &b"\x01b"[..]);
        let newer = files.segment(FileKind::L0, None, &[flushed(a, 12, 9), flushed(b, 10, 10)]);
        let older = files.segment(FileKind::L0, None, &[flushed(a, 7, 6)]);
        let head = files.segment(FileKind::Head, None, &[entry(a, 2), entry(b, 3)]);
        let folded = fold(&files.work(0), &[newer, older], &[], &[head], (5, 12)).unwrap();
        assert_eq!((folded.removed.len(), folded.moved.len()), (3, 0));
        let expected = [
            (FileKind::Head, a.to_vec(), 12, 0, 0),
            (FileKind::Head, b.to_vec(), 10, 0, 0),
            (FileKind::History, a.to_vec(), 7, 9, 0),
            (FileKind::History, a.to_vec(), 2, 6, 0),
            (FileKind::History, b.to_vec(), 3, 10, 0),
        ];
        assert_eq!(files.made(&folded), expected);
    }

    /// Whatever a file says of its versions, in words.
    fn told(files: &Files, made: &Replacement, kind: FileKind) -> Vec<String> {
        let mut found = Vec::new();
        for meta in made.added.iter().filter(|meta| meta.kind == kind) {
            let mut cursor = files.open(meta).cold_cursor();
            cursor.seek_first().unwrap();
            while let Some(entry) = cursor.entry() {
                found.push(format!("{entry:?}"));
                cursor.next().unwrap();
            }
        }
        found
    }

    #[test]
    fn files_of_l0_that_are_merged_say_the_same_as_before() {
        let files = Files::new();
        let (a, b, c) = (&b"\x01a"[..], &b"\x01b"[..], &b"\x01c"[..]);
        let put = |key, revision, first, lived| EntryRef {
            key,
            revision,
            sub: 3,
            create_revision: 2,
            version: 4,
            lease: 77,
            value: b"value",
            first,
            lived,
            ..EntryRef::default()
        };
        let gone =
            EntryRef { key: c, revision: 13, tombstone: true, first: 13, ..put(c, 13, 13, true) };
        let gone = EntryRef { create_revision: 0, version: 0, lease: 0, value: b"", ..gone };
        let newer = [put(a, 12, 11, true), gone];
        let older = [put(a, 8, 6, false), put(b, 7, 5, true)];
        let l0 = [&newer[..], &older].map(|entries| files.segment(FileKind::L0, None, entries));
        let numbers: Vec<u64> = l0.iter().map(|segment| segment.meta().number).collect();
        let merged = merge_l0(&files.work(0), &l0, (5, 12)).unwrap();
        assert_eq!((&merged.removed, &merged.moved), (&numbers, &vec![]));
        let expected = [put(a, 12, 6, false), put(b, 7, 5, true), gone];
        let expected = expected.map(|entry| format!("{entry:?}"));
        assert_eq!(told(&files, &merged, FileKind::L0), expected);
        // What superseded it was the oldest version of the newer file.
        let death = EntryRef { death: 11, ..put(a, 8, 0, false) };
        assert_eq!(told(&files, &merged, FileKind::History), [format!("{death:?}")]);
    }

    #[test]
    fn a_file_stays_until_its_last_key_is_folded() {
        let files = Files::new();
        let (a, m, t) = (&b"\x01a"[..], &b"\x01m"[..], &b"\x01t"[..]);
        let head = [a, m, t].map(|key| files.segment(FileKind::Head, None, &[entry(key, 2)]));
        let l0 = [
            files.segment(FileKind::L0, None, &[flushed(a, 9, 9), flushed(t, 9, 9)]),
            files.segment(FileKind::L0, None, &[flushed(a, 8, 8), flushed(m, 8, 8)]),
            files.segment(FileKind::L0, None, &[flushed(a, 7, 7)]),
        ];
        let number = |segment: &Arc<Segment>| segment.meta().number;
        // One file of HEAD is a step.
        let work = Work { segment_bytes: 1, ..files.work(0) };
        let folded = fold(&work, &l0, &[], &head, (1, 9)).unwrap();
        assert_eq!(folded.folded_to, m);
        assert_eq!(folded.removed, [number(&head[0]), number(&l0[2])]);
        assert_eq!(folded.moved, [number(&l0[0]), number(&l0[1])]);
        let kept = told(&files, &folded, FileKind::Head);
        assert_eq!(kept, [format!("{:?}", entry(a, 9))], "and nothing from the mark on");
        // Where the rest is done in one, the mark is gone.
        let rest = fold(&files.work(0), &l0[..2], m, &head[1..], (1, 9)).unwrap();
        assert_eq!((rest.folded_to, rest.moved), (vec![], vec![]));
    }

    #[test]
    fn files_that_contradict_each_other_are_named_and_nothing_is_made() {
        let files = Files::new();
        let l0 = files.segment(FileKind::L0, None, &[flushed(b"\x01a", 8, 3)]);
        let head = files.segment(FileKind::Head, None, &[entry(b"\x01a", 4)]);
        let before = files.disk.paths();
        let path = l0.path().to_path_buf();
        let error = fold(&files.work(9), &[l0], &[], &[head], (2, 8)).unwrap_err();
        assert_eq!(error.corruption().map(|found| &found.file), Some(&path), "{error}");
        assert_eq!(files.disk.paths(), before);
    }
}
