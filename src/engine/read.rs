//! Point reads: one key as of a revision.
//!
//! ```text
//!   generations, newest first --- a version <= R answers; ABSENT answers "none"
//!   L0 files, newest first ------ revision <= R: answers;  first <= R < revision: HISTORY answers;
//!                                 first > R: as if it did not have the key
//!   HEAD ------------------------ revision <= R: answers;  later: HISTORY answers;  without the key: none
//!
//!   HISTORY, windows with upto > R -- the version with birth <= R < death answers; without one: none
//! ```
//!
//! Why that is the newest version at or before R. Call it v, with its birth <= R, and with the death
//! that it has by now or will have, > R. A generation in memory has all its versions, and those of newer
//! ones are later; so what is said here is about a v that is in files.
//!
//! - Of a generation newer than v's all versions of the key came after v, so at its death or later: it
//!   has `first` > R, and is passed.
//! - If v's generation is not folded yet, its L0 file has the key with `first` <= birth <= R. Either
//!   v is its newest version, and answers; or it was superseded in the generation, and the flush wrote
//!   it to HISTORY.
//! - If it is folded, no L0 file answers. HEAD has the newest folded version, so v, or a later one: then v
//!   was superseded by something that was folded or flushed, and is in HISTORY.
//!
//! HISTORY is asked once at most, where the answer is there, or first of all where it most likely is:
//! as of revisions since which most keys have changed. What it finds then is the answer, whatever else has the
//! key; if it finds nothing, nothing else that points there has it. It has at most one version with birth
//! <= R < death, in whichever window: no two versions of a key live at once. It has none where v was
//! dropped, which died before every revision that can still be asked for, or where nothing was. HEAD
//! without the key means "none" for the same reason: its tombstone was dropped, or the key began later.
//!
//! Of a system key there is one version in a file and none in HISTORY: it is read as of now.

use annals_format::space::is_system;
use bytes::Bytes;

use crate::error::Result;
use crate::index::{Lookup, Newest, Stub};
use crate::segment::{self, Want};

use super::record::{HistoryRecord, Record};
use super::tables::{FileSet, Tables, Window};

/// The value of a key as of `at`; `None` if it does not live then.
pub(super) fn get(tables: &Tables, key: &[u8], at: u64) -> Result<Option<Record>> {
    let found = find(tables, key, at)?;
    Ok(found.filter(|found| !found.tombstone).map(|found| found.record))
}

/// The newest version of a key at or before `at`, tombstones included.
pub(super) fn find(tables: &Tables, key: &[u8], at: u64) -> Result<Option<HistoryRecord>> {
    let files = &tables.files;
    let history_first = at < files.history_before && !is_system(key);
    if history_first && let Some(found) = in_history(files, key, at, Want::Value)? {
        return Ok(Some(found));
    }
    for generation in tables.generations.iter() {
        let Some(node) = generation.find(key) else { continue };
        match node.at(at) {
            Lookup::Found(version) => {
                let key = Bytes::copy_from_slice(key);
                return Ok(Some(HistoryRecord::of_memory(generation, key, version, false)));
            }
            Lookup::Absent => return Ok(None),
            Lookup::Below => {}
        }
    }
    in_files(files, key, at, Want::Value, !history_first)
}

/// As [`find`], in files only, and without `history` not in HISTORY, where nothing was found.
fn in_files(
    files: &FileSet,
    key: &[u8],
    at: u64,
    want: Want,
    history: bool,
) -> Result<Option<HistoryRecord>> {
    for file in files.l0.iter().filter(|file| file.covers(key)) {
        let Some(version) = file.open()?.find_within(key, u64::MAX, want)? else { continue };
        if version.revision <= at || version.first <= at && is_system(key) {
            return Ok(Some(HistoryRecord::of_segment(Bytes::copy_from_slice(key), version)));
        }
        if version.first <= at {
            return if history { in_history(files, key, at, want) } else { Ok(None) };
        }
    }
    let Some(file) = files.head_of(key) else { return Ok(None) };
    let Some(version) = file.open()?.find_within(key, u64::MAX, want)? else { return Ok(None) };
    if version.revision <= at || is_system(key) {
        return Ok(Some(HistoryRecord::of_segment(Bytes::copy_from_slice(key), version)));
    }
    if history { in_history(files, key, at, want) } else { Ok(None) }
}

/// The superseded version of a key that was the newest at `at`.
pub(super) fn in_history(
    files: &FileSet,
    key: &[u8],
    at: u64,
    want: Want,
) -> Result<Option<HistoryRecord>> {
    let first = files.windows.partition_point(|window| window.upto <= at);
    for window in files.windows.get(first..).unwrap_or_default() {
        if let Some(version) = in_window(window, key, at, want)? {
            return Ok(Some(HistoryRecord::of_segment(Bytes::copy_from_slice(key), version)));
        }
    }
    Ok(None)
}

/// The version of a window with birth <= `at` < death.
fn in_window(window: &Window, key: &[u8], at: u64, want: Want) -> Result<Option<segment::Version>> {
    for file in window.files_of(key) {
        if let Some(version) = file.open()?.find_within(key, at, want)? {
            return Ok(Some(version));
        }
    }
    Ok(None)
}

/// The newest version of a key at or before `at`, without its value: what a transaction depends on.
pub(super) fn newest(tables: &Tables, key: &[u8], at: u64) -> Result<Option<Stub>> {
    newest_in(tables, key, at, u64::MAX)
}

/// The newest version of a key in everything older than generation `generation`.
pub(super) fn newest_below(tables: &Tables, key: &[u8], generation: u64) -> Result<Option<Stub>> {
    newest_in(tables, key, u64::MAX, generation)
}

fn newest_in(tables: &Tables, key: &[u8], at: u64, below: u64) -> Result<Option<Stub>> {
    for generation in tables.generations.iter().filter(|generation| generation.id() < below) {
        let Some(node) = generation.find(key) else { continue };
        match node.newest_at(at) {
            Newest::Known(stub) => return Ok(Some(stub)),
            Newest::Absent => return Ok(None),
            Newest::Unknown => {}
        }
    }
    let found = in_files(&tables.files, key, at, Want::Fields, true)?;
    Ok(found.map(|found| Stub { tombstone: found.tombstone, ..found.record.stub() }))
}

impl HistoryRecord {
    /// A version found in a sealed file.
    pub(super) fn of_segment(key: Bytes, version: segment::Version) -> Self {
        Self {
            record: Record {
                key,
                value: version.value,
                create_revision: version.create_revision,
                mod_revision: version.revision,
                sub: version.sub,
                version: version.version,
                lease: version.lease,
            },
            tombstone: version.tombstone,
        }
    }
}
