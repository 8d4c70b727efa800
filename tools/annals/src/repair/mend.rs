//! Transactions of which EVENTS do not tell all any more, put together from the versions that they made.
//!
//! Every version says which revision wrote it, and in which place of its transaction; and of every revision that any key can be
//! read at, all that was written there is kept, deletions as well. So where the files of versions can be read, damage of EVENTS
//! costs no more than who wrote what is in it, and when.

use std::collections::BTreeMap;

use annals::inspect::StoreFiles;
use annals::{Change, ChangeKind, Transaction};
use annals_format::entry::EntryRef;
use annals_format::events::{self, EventKind, EventRef};
use annals_format::space::Key;
use annals_format::{FileKind, FileMeta};
use bytes::Bytes;

/// What the changes may take in memory, and what EVENTS tell of them. Of more, none are put together.
const BYTES: usize = 64 << 20;

/// What one takes beside its bytes: about.
const OVERHEAD: usize = 128;

/// Revisions, from the first to the last.
pub(super) type Gap = (u64, u64);

/// What the files of versions tell of some revisions.
#[derive(Debug)]
pub(super) struct Versions {
    /// By revision, in the order of their places.
    pub(super) changes: BTreeMap<u64, Vec<Change>>,
    /// All files that may have something of them could be read.
    is_whole: bool,
}

impl Versions {
    /// What was changed at a revision, if that is known to be all.
    pub(super) fn whole(&mut self, revision: u64) -> Option<Vec<Change>> {
        let changes = self.changes.remove(&revision).filter(|_| self.is_whole)?;
        let places = (0..).zip(&changes);
        places.fold(true, |all, (place, change)| all && change.sub == place).then_some(changes)
    }
}

/// The versions that can be read of those that were made at the revisions of these gaps (in order, apart from each other);
/// `None` where these are too many.
pub(super) fn versions(files: &StoreFiles, gaps: &[Gap]) -> Option<Versions> {
    let mut found = Versions { changes: BTreeMap::new(), is_whole: true };
    let mut bytes = 0;
    for meta in files.manifest().files.iter().filter(|meta| may_have(meta, gaps)) {
        let Versions { changes, is_whole } = &mut found;
        let read = files.segment(meta).and_then(|segment| {
            segment.salvage(
                &mut |entry| {
                    // What a fold has taken over is elsewhere, or gone.
                    let counts = entry.key >= meta.folded_to.as_slice() && bytes <= BYTES;
                    if let Some(change) =
                        change(entry).filter(|_| counts && is_in(gaps, entry.revision))
                    {
                        bytes += entry.key.len() + entry.value.len() + OVERHEAD;
                        changes.entry(entry.revision).or_default().push(change);
                    }
                },
                &mut |_, _| *is_whole = false,
            )
        });
        found.is_whole &= read.is_ok();
        if bytes > BYTES {
            return None;
        }
    }
    for changes in found.changes.values_mut() {
        changes.sort_by_key(|change| change.sub);
    }
    Some(found)
}

/// What EVENTS tell of the transactions of these gaps, with the values that they repeat; `None` where that is too much.
pub(super) fn told(files: &StoreFiles, gaps: &[Gap]) -> Option<BTreeMap<u64, Transaction>> {
    let mut found = BTreeMap::new();
    let mut bytes = 0;
    for meta in &files.manifest().files {
        if meta.kind != FileKind::Events || !meets(meta, gaps) {
            continue;
        }
        // What cannot be read is not told.
        let _damage = files.segment(meta).and_then(|segment| {
            segment.salvage(
                &mut |entry| {
                    let revision = entry.revision;
                    if bytes > BYTES || !is_in(gaps, revision) {
                        return;
                    }
                    if let Some(transaction) = transaction(revision, entry.value) {
                        bytes += entry.value.len() + OVERHEAD * (1 + transaction.changes.len());
                        found.insert(revision, transaction);
                    }
                },
                &mut |_, _| (),
            )
        });
        if bytes > BYTES {
            return None;
        }
    }
    Some(found)
}

fn meets(meta: &FileMeta, gaps: &[Gap]) -> bool {
    gaps.iter().any(|(first, last)| meta.min_revision <= *last && *first <= meta.max_revision)
}

fn may_have(meta: &FileMeta, gaps: &[Gap]) -> bool {
    matches!(meta.kind, FileKind::L0 | FileKind::Head | FileKind::History) && meets(meta, gaps)
}

fn is_in(gaps: &[Gap], revision: u64) -> bool {
    let behind = gaps.partition_point(|(first, _)| *first <= revision);
    behind.checked_sub(1).is_some_and(|at| gaps[at].1 >= revision)
}

/// A transaction as EVENTS have it; `None` where that cannot be.
fn transaction(revision: u64, value: &[u8]) -> Option<Transaction> {
    let found = events::Transaction::decode(value).ok()?;
    let changes = found.events().map(|event| event.ok().map(|event| told_change(&event)));
    Some(Transaction {
        revision,
        time: found.time,
        metadata: Bytes::copy_from_slice(found.metadata),
        changes: changes.collect::<Option<_>>()?,
    })
}

fn told_change(event: &EventRef<'_>) -> Change {
    Change {
        kind: if event.kind == EventKind::Delete { ChangeKind::Delete } else { ChangeKind::Put },
        key: Bytes::copy_from_slice(event.key),
        sub: event.sub,
        create_revision: event.create_revision,
        version: event.version,
        lease: event.lease,
        value: event.value.map(Bytes::copy_from_slice),
    }
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
