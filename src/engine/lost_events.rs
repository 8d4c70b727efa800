//! A damaged EVENTS file, put together again from the versions that its transactions made.
//!
//! Every version says which revision wrote it, and in which place of its transaction. And of a revision that a key can be
//! read at, all that was written of the key is kept, deletions as well (`reclaim/fold.rs`). So what the damage costs is who
//! wrote what was in it, and when: it is known that that was not later than the next transaction. Keys of which versions are
//! lost, too, cannot be read as far back by then, nor their changes be asked for.

use std::collections::BTreeMap;

use annals_format::entry::EntryRef;
use annals_format::events::{EventKind, EventRef, Transaction, TransactionBuilder};
use annals_format::space::is_user;
use annals_format::{FileKind, FileMeta};

use super::inspect::StoreFiles;
use crate::error::Result;
use crate::segment::{Leaves, NewSegment, Segment, SegmentContext, SegmentWriter};
use crate::sync::Arc;

/// What the changes may take in memory. Of a file with more, nothing is put together.
const BYTES_MAX: usize = 64 << 20;

/// What one takes beside its key: about.
const OVERHEAD: usize = 128;

/// Revisions, from the first to the last.
type Gap = (u64, u64);

/// What could be kept of an EVENTS file.
#[derive(Debug)]
pub struct KeptEvents {
    /// The file that was written of it; `None` where its transactions cannot be put together.
    pub file: Option<FileMeta>,
    /// The revisions that were put together, from the first to the last: who wrote them is lost, and when that was.
    pub put_together: Vec<(u64, u64)>,
    /// The last revision of which something is missing that was not to be forgotten: of whatever key.
    pub incomplete: Option<u64>,
}

/// A change of a transaction.
#[derive(Debug)]
struct Change {
    key: Vec<u8>,
    sub: u32,
    tombstone: bool,
    create_revision: u64,
    version: u64,
    lease: i64,
    value_bytes: u64,
}

/// Writes an EVENTS file again with another number: what can be read of it, and what is put together.
pub(super) fn keep(
    files: &StoreFiles,
    meta: &FileMeta,
    context: &SegmentContext,
    number: u64,
) -> Result<KeptEvents> {
    let mut kept = KeptEvents { file: None, put_together: Vec::new(), incomplete: None };
    let mut next = meta.min_revision;
    let segment = files.opened(meta).ok();
    if let Some(segment) = &segment {
        each(segment, &mut |entry| {
            if entry.revision > next {
                kept.put_together.push((next, entry.revision - 1));
            }
            next = entry.revision + 1;
            Ok(())
        })?;
    }
    if next <= meta.max_revision {
        kept.put_together.push((next, meta.max_revision));
    }
    let Some(changes) = changes(files, &kept.put_together) else { return Ok(kept) };
    let floors = files.manifest().floors.iter().map(|(_, floor)| *floor);
    let all_from = floors.fold(files.manifest().compacted, u64::max);
    let history = |meta: &&FileMeta| meta.kind == FileKind::History;
    let is_missing = |(revision, changes): &(&u64, &Vec<Change>)| {
        **revision >= all_from && !(0..).zip(*changes).all(|(n, one)| one.sub == n)
    };
    kept.incomplete = changes.iter().filter(is_missing).map(|(revision, _)| *revision).max();
    if kept.incomplete.is_some() {
        // Versions that are lost are of keys that are given up.
        let mut histories = files.manifest().files.iter().filter(history);
        let all_whole = histories.all(|meta| files.opened(meta).is_ok_and(|file| is_whole(&file)));
        kept.incomplete = kept.incomplete.filter(|_| all_whole);
    }
    let mut out = Out::create(context, number, changes)?;
    match out.write(files, meta, segment.as_ref(), &kept.put_together) {
        Ok(()) => kept.file = Some(out.file.finish()?),
        Err(error) => {
            out.file.abandon()?;
            return Err(error);
        }
    }
    Ok(kept)
}

/// The file that is written.
struct Out {
    file: SegmentWriter,
    changes: BTreeMap<u64, Vec<Change>>,
    builder: TransactionBuilder,
    value: Vec<u8>,
}

impl Out {
    fn create(
        context: &SegmentContext,
        number: u64,
        changes: BTreeMap<u64, Vec<Change>>,
    ) -> Result<Self> {
        let file = SegmentWriter::create(context, NewSegment::new(FileKind::Events, number))?;
        Ok(Self { file, changes, builder: TransactionBuilder::new(), value: Vec::new() })
    }

    fn write(
        &mut self,
        files: &StoreFiles,
        meta: &FileMeta,
        segment: Option<&Arc<Segment>>,
        gaps: &[Gap],
    ) -> Result<()> {
        let mut gaps = gaps.iter().copied().peekable();
        if let Some(segment) = segment {
            each(segment, &mut |entry| {
                while let Some(gap) = gaps.next_if(|gap| gap.1 < entry.revision) {
                    self.gap(gap, time_of(entry))?;
                }
                self.file.add(entry)
            })?;
        }
        for gap in gaps {
            self.gap(gap, time_behind(files, meta.max_revision))?;
        }
        Ok(())
    }

    /// Writes the transactions of a gap, with this time.
    fn gap(&mut self, (first, last): Gap, time: i64) -> Result<()> {
        for revision in first..=last {
            // By sub, as they were.
            let changes = self.changes.remove(&revision).unwrap_or_default();
            for change in &changes {
                let kind = if change.tombstone { EventKind::Delete } else { EventKind::Put };
                self.builder.push(&EventRef {
                    kind,
                    key: &change.key,
                    sub: change.sub,
                    create_revision: change.create_revision,
                    version: change.version,
                    lease: change.lease,
                    value_bytes: change.value_bytes,
                    // Where the version lies.
                    value: None,
                });
            }
            self.value.clear();
            self.builder.finish(0, time, &[], &mut self.value);
            let (key, value) = (&revision.to_be_bytes()[..], &self.value[..]);
            self.file.add(&EntryRef { key, revision, value, ..EntryRef::default() })?;
        }
        Ok(())
    }
}

/// Calls this for every transaction of a file that can be read, in order.
fn each(segment: &Arc<Segment>, each: &mut dyn FnMut(&EntryRef<'_>) -> Result<()>) -> Result<()> {
    let Ok(mut leaves) = Leaves::from(segment, &[]) else { return Ok(()) };
    while leaves.span().is_some() {
        let mut done = Ok(());
        // What cannot be read is missing.
        let _damage = leaves.read(&mut |entry, _, _| {
            if done.is_ok() && Transaction::decode(entry.value).is_ok() {
                done = each(entry);
            }
        });
        done?;
        if leaves.next().is_err() {
            break;
        }
    }
    Ok(())
}

fn time_of(entry: &EntryRef<'_>) -> i64 {
    Transaction::decode(entry.value).map_or(0, |transaction| transaction.time)
}

/// The time of the first transaction behind a revision that can be read; if there is none in EVENTS, of the last that was
/// written to files.
fn time_behind(files: &StoreFiles, revision: u64) -> i64 {
    let mut later: Vec<&FileMeta> = files.manifest().files.iter().collect();
    later.retain(|meta| meta.kind == FileKind::Events && meta.min_revision > revision);
    later.sort_by_key(|meta| meta.min_revision);
    for meta in later {
        let Ok(segment) = files.opened(meta) else { continue };
        let Ok(mut leaves) = Leaves::from(&segment, &[]) else { continue };
        while leaves.span().is_some() {
            let mut time = None;
            let _damage = leaves.read(&mut |entry, _, _| {
                let found = Transaction::decode(entry.value);
                time = time.or(found.ok().map(|transaction| transaction.time));
            });
            if let Some(time) = time {
                return time;
            }
            if leaves.next().is_err() {
                break;
            }
        }
    }
    files.manifest().flushed_time
}

/// Whether all blocks can be read.
fn is_whole(segment: &Arc<Segment>) -> bool {
    let Ok(mut leaves) = Leaves::from(segment, &[]) else { return false };
    while leaves.span().is_some() {
        if leaves.read(&mut |_, _, _| ()).and_then(|()| leaves.next()).is_err() {
            return false;
        }
    }
    true
}

/// What the versions tell of the revisions in the gaps (in order, apart from each other), by sub; `None` where newest
/// versions cannot be read, or that is too much for memory.
fn changes(files: &StoreFiles, gaps: &[Gap]) -> Option<BTreeMap<u64, Vec<Change>>> {
    let mut found: BTreeMap<u64, Vec<Change>> = BTreeMap::new();
    let mut bytes = 0;
    let may_have = |meta: &&FileMeta| {
        let met = |gap: &Gap| meta.min_revision <= gap.1 && gap.0 <= meta.max_revision;
        matches!(meta.kind, FileKind::L0 | FileKind::Head | FileKind::History)
            && gaps.iter().any(met)
    };
    for meta in files.manifest().files.iter().filter(may_have) {
        let is_newest = meta.kind != FileKind::History;
        let mut see = |entry: &EntryRef<'_>| {
            let at = gaps.partition_point(|gap| gap.1 < entry.revision);
            let is_in = gaps.get(at).is_some_and(|gap| gap.0 <= entry.revision);
            // What a fold has taken over is elsewhere, or gone.
            let counts = is_user(entry.key) && entry.key >= meta.folded_to.as_slice();
            if is_in && counts && bytes <= BYTES_MAX {
                bytes += entry.key.len() + OVERHEAD;
                found.entry(entry.revision).or_default().push(Change {
                    key: entry.key.get(1..).unwrap_or_default().to_vec(),
                    sub: entry.sub,
                    tombstone: entry.tombstone,
                    create_revision: entry.create_revision,
                    version: entry.version,
                    lease: entry.lease,
                    value_bytes: entry.blob.map_or(entry.value.len() as u64, |blob| blob.bytes),
                });
            }
        };
        let read = files.opened(meta).and_then(|segment| {
            let mut leaves = Leaves::from(&segment, &[])?;
            while leaves.span().is_some() {
                let read = leaves.read(&mut |entry, _, _| see(entry));
                if is_newest {
                    read?;
                }
                leaves.next()?;
            }
            Ok(())
        });
        if bytes > BYTES_MAX || (is_newest && read.is_err()) {
            return None;
        }
    }
    for changes in found.values_mut() {
        changes.sort_by_key(|change| change.sub);
    }
    Some(found)
}
