//! Transactions that EVENTS do not tell any more, put together from the versions that they made.
//!
//! Every version says which revision wrote it, and in which place of its transaction; and of every revision that any key can be
//! read at, all that was written there is kept, deletions as well. So where the files of versions can be read, damage of EVENTS
//! costs no more than who wrote what is in it, and when.

use std::collections::BTreeMap;

use annals::inspect::StoreFiles;
use annals::{Change, ChangeKind};
use annals_format::entry::EntryRef;
use annals_format::space::Key;
use annals_format::{FileKind, FileMeta};
use bytes::Bytes;

/// What the changes may take in memory. Of more, none are put together.
const BYTES: usize = 64 << 20;

/// What one takes beside its bytes: about.
const OVERHEAD: usize = 128;

/// Revisions, from the first to the last.
pub(super) type Gap = (u64, u64);

/// What was changed at the revisions of these gaps (in order, apart from each other), as far as it is whole; nothing where a
/// file that may have something of it cannot be read.
pub(super) fn changes(files: &StoreFiles, gaps: &[Gap]) -> BTreeMap<u64, Vec<Change>> {
    let mut found: BTreeMap<u64, Vec<Change>> = BTreeMap::new();
    let mut bytes = 0;
    for meta in files.manifest().files.iter().filter(|meta| may_have(meta, gaps)) {
        let mut is_whole = true;
        let read = files.segment(meta).and_then(|segment| {
            segment.salvage(
                &mut |entry| {
                    // What a fold has taken over is elsewhere, or gone.
                    let counts = entry.key >= meta.folded_to.as_slice() && bytes <= BYTES;
                    if let Some(change) = change(entry).filter(|_| counts && is_in(gaps, entry)) {
                        bytes += entry.key.len() + entry.value.len() + OVERHEAD;
                        found.entry(entry.revision).or_default().push(change);
                    }
                },
                &mut |_, _| is_whole = false,
            )
        });
        if read.is_err() || !is_whole || bytes > BYTES {
            return BTreeMap::new();
        }
    }
    found.retain(|_, changes| {
        changes.sort_by_key(|change| change.sub);
        (0..).zip(&*changes).all(|(place, change)| change.sub == place)
    });
    found
}

fn may_have(meta: &FileMeta, gaps: &[Gap]) -> bool {
    let has_versions = matches!(meta.kind, FileKind::L0 | FileKind::Head | FileKind::History);
    has_versions
        && gaps
            .iter()
            .any(|(first, last)| meta.min_revision <= *last && *first <= meta.max_revision)
}

fn is_in(gaps: &[Gap], entry: &EntryRef<'_>) -> bool {
    let behind = gaps.partition_point(|(first, _)| *first <= entry.revision);
    behind.checked_sub(1).is_some_and(|at| gaps[at].1 >= entry.revision)
}

/// The change that made a version of a user's key.
fn change(entry: &EntryRef<'_>) -> Option<Change> {
    let Ok(Key::User(key)) = Key::decode(entry.key) else { return None };
    Some(Change {
        kind: if entry.tombstone { ChangeKind::Delete } else { ChangeKind::Put },
        key: Bytes::copy_from_slice(key),
        sub: entry.sub,
        create_revision: entry.create_revision,
        version: entry.version,
        lease: entry.lease,
        value: (!entry.tombstone).then(|| Bytes::copy_from_slice(entry.value)),
    })
}
