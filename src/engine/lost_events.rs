//! A damaged EVENTS file, put together again from the versions that its transactions made.
//!
//! Every version says which revision wrote it, and in which place of its transaction. And of a revision that a key can be
//! read at, all that was written of the key is kept, deletions as well (`reclaim/fold.rs`). So what the damage costs is who
//! wrote what was in it, and when: it is known that that was not later than the next transaction. Keys of which versions are
//! lost, too, cannot be read as far back by then, nor their changes be asked for.

use std::collections::BTreeMap;

use annals_format::entry::EntryRef;
use annals_format::events::{
    EventKind, EventRef, THINNED, TIME_UPTO, Transaction, TransactionBuilder,
};
use annals_format::name::FileName;
use annals_format::space::is_user;
use annals_format::{FileKind, FileMeta};

use super::inspect::StoreFiles;
use crate::error::{Error, Result};
use crate::segment::{Leaves, NewSegment, Segment, SegmentContext, SegmentWriter};
use crate::sync::Arc;

/// What changes may take in memory. Of more, some revisions are put together at a time.
pub(super) const BYTES_MAX: usize = 64 << 20;

/// More transactions take at least a byte.
const TRANSACTIONS_PER_BYTE: u64 = 64;

/// What one takes beside its key: about.
const OVERHEAD: usize = 128;

/// Revisions, from the first to the last.
type Gap = (u64, u64);

/// What was kept of an EVENTS file: all of its transactions.
#[derive(Debug)]
pub struct KeptEvents {
    /// The file that was written of it.
    pub file: FileMeta,
    /// The revisions that were put together, from the first to the last of each gap: who wrote them is lost, and when that
    /// was.
    pub mended: Vec<(u64, u64)>,
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

impl Change {
    fn bytes(&self) -> usize {
        self.key.len() + OVERHEAD
    }
}

/// Writes an EVENTS file again, what can be read of it, and what is put together, with about so many bytes of changes in
/// memory.
///
/// # Errors
/// Newest versions cannot be read; what writing the file answers.
pub(super) fn keep(
    files: &StoreFiles,
    meta: &FileMeta,
    context: &SegmentContext,
    (number, bytes_max): (u64, usize),
) -> Result<KeptEvents> {
    check_count(files, meta)?;
    let mut mended = Vec::new();
    let mut next = meta.min_revision;
    let segment = files.opened(meta).ok();
    if let Some(segment) = &segment {
        each(segment, &mut |entry| {
            if !(next..=meta.max_revision).contains(&entry.revision) {
                return Ok(true);
            }
            if entry.revision > next {
                mended.push((next, entry.revision - 1));
            }
            next = entry.revision + 1;
            Ok(true)
        })?;
    }
    if next <= meta.max_revision {
        mended.push((next, meta.max_revision));
    }
    let file = SegmentWriter::create(context, NewSegment::new(FileKind::Events, number))?;
    let mut mending = Mending {
        file,
        files,
        bytes_max,
        gaps: &mended,
        changes: BTreeMap::new(),
        known: None,
        builder: TransactionBuilder::new(),
        value: Vec::new(),
    };
    let written = mending.write(meta, segment.as_ref());
    let file = mending.file;
    match written {
        Ok(()) => Ok(KeptEvents { file: file.finish()?, mended }),
        Err(error) => {
            file.abandon()?;
            Err(error)
        }
    }
}

/// Refuses a manifest that names more transactions than a file of that length can have: each would be written. A time
/// alone, which all have, takes more than a few bits, however well it is compressed.
fn check_count(files: &StoreFiles, meta: &FileMeta) -> Result<()> {
    let held = meta.max_revision.checked_sub(meta.min_revision).and_then(|n| n.checked_add(1));
    if held == Some(meta.entries)
        && meta.entries <= meta.bytes.saturating_mul(TRANSACTIONS_PER_BYTE)
    {
        return Ok(());
    }
    let manifest = FileName::new(FileKind::Manifest, files.manifest().number);
    let what = format!("manifest: revisions of {}", FileName::new(meta.kind, meta.number));
    let (min, max) = (meta.min_revision, meta.max_revision);
    let found = format!("{} from {min} to {max}", meta.entries);
    let expected = format!("each once, in {} bytes", meta.bytes);
    Err(Error::corrupt(manifest.to_string(), 0, what, expected, found))
}

/// The file that is written.
struct Mending<'a> {
    file: SegmentWriter,
    files: &'a StoreFiles,
    bytes_max: usize,
    /// In order, apart from each other.
    gaps: &'a [Gap],
    /// What was changed at the revisions of gaps that are still to be written, up to `known`.
    changes: BTreeMap<u64, Vec<Change>>,
    known: Option<u64>,
    builder: TransactionBuilder,
    value: Vec<u8>,
}

impl Mending<'_> {
    fn write(&mut self, meta: &FileMeta, segment: Option<&Arc<Segment>>) -> Result<()> {
        let mut gaps = self.gaps.iter().copied().peekable();
        let mut next = meta.min_revision;
        if let Some(segment) = segment {
            each(segment, &mut |entry| {
                // Whoever wrote the file may have written it so.
                if !(next..=meta.max_revision).contains(&entry.revision) {
                    return Ok(true);
                }
                next = entry.revision + 1;
                while let Some(gap) = gaps.next_if(|gap| gap.1 < entry.revision) {
                    self.gap(gap, time_of(entry))?;
                }
                self.file.add(entry)?;
                Ok(true)
            })?;
        }
        for gap in gaps {
            self.gap(gap, time_behind(self.files, meta.max_revision)?)?;
        }
        Ok(())
    }

    /// Writes the transactions of a gap, with this time.
    fn gap(&mut self, (first, last): Gap, time: i64) -> Result<()> {
        for revision in first..=last {
            if self.known.is_none_or(|known| known < revision) {
                self.known = Some(self.read(revision)?);
            }
            let mut changes = self.changes.remove(&revision).unwrap_or_default();
            changes.sort_by_key(|change| change.sub);
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
            // Of what was forgotten no version may be there, nor of what is lost with blocks of HISTORY.
            self.builder.finish(TIME_UPTO | THINNED, time, &[], &mut self.value);
            let (key, value) = (&revision.to_be_bytes()[..], &self.value[..]);
            self.file.add(&EntryRef { key, revision, value, ..EntryRef::default() })?;
        }
        Ok(())
    }

    /// Reads what the versions tell of the gaps from a revision on; answers up to which one there was room for that.
    fn read(&mut self, from: u64) -> Result<u64> {
        let (mut upto, mut bytes) = (u64::MAX, 0);
        let gaps = self.gaps;
        let may_have = |meta: &&FileMeta| {
            let met = |gap: &Gap| meta.min_revision <= gap.1 && gap.0 <= meta.max_revision;
            matches!(meta.kind, FileKind::L0 | FileKind::Head | FileKind::History)
                && gaps.iter().any(met)
        };
        for meta in self.files.manifest().files.iter().filter(may_have) {
            let read = self.files.opened(meta).and_then(|segment| {
                Leaves::each(&segment, &mut |block| {
                    let read = block.read(&mut |entry, _, _| {
                        let at = gaps.partition_point(|gap| gap.1 < entry.revision);
                        let is_in = gaps.get(at).is_some_and(|gap| gap.0 <= entry.revision);
                        // What a fold has taken over is elsewhere, or gone.
                        let counts = is_user(entry.key) && entry.key >= meta.folded_to.as_slice();
                        if is_in && counts && (from..=upto).contains(&entry.revision) {
                            let change = change(entry);
                            bytes += change.bytes();
                            self.changes.entry(entry.revision).or_default().push(change);
                        }
                        while bytes > self.bytes_max && self.changes.len() > 1 {
                            let Some((last, changes)) = self.changes.pop_last() else { break };
                            bytes -= changes.iter().map(Change::bytes).sum::<usize>();
                            upto = last - 1;
                        }
                    });
                    // Superseded versions that are lost are of keys whose past is lost.
                    if meta.kind == FileKind::History { Ok(true) } else { read.map(|()| true) }
                })
            });
            if meta.kind != FileKind::History {
                read?;
            }
        }
        Ok(upto)
    }
}

/// The change that made a version of a user's key.
fn change(entry: &EntryRef<'_>) -> Change {
    Change {
        key: entry.key.get(1..).unwrap_or_default().to_vec(),
        sub: entry.sub,
        tombstone: entry.tombstone,
        create_revision: entry.create_revision,
        version: entry.version,
        lease: entry.lease,
        value_bytes: entry.blob.map_or(entry.value.len() as u64, |blob| blob.bytes),
    }
}

/// Calls this for every transaction of a file that can be read, in order, until it answers false.
fn each(segment: &Arc<Segment>, each: &mut dyn FnMut(&EntryRef<'_>) -> Result<bool>) -> Result<()> {
    let mut more = Ok(true);
    // What cannot be read is missing.
    let _damage = Leaves::each(segment, &mut |block| {
        let _damage = block.read(&mut |entry, _, _| {
            if matches!(more, Ok(true)) && Transaction::decode(entry.value).is_ok() {
                more = each(entry);
            }
        });
        Ok(matches!(more, Ok(true)))
    });
    more.map(drop)
}

fn time_of(entry: &EntryRef<'_>) -> i64 {
    Transaction::decode(entry.value).map_or(0, |transaction| transaction.time)
}

/// The time of the first transaction behind a revision that can be read; if there is none in EVENTS, of the last that was
/// written to files.
fn time_behind(files: &StoreFiles, revision: u64) -> Result<i64> {
    let mut later: Vec<&FileMeta> = files.manifest().files.iter().collect();
    later.retain(|meta| meta.kind == FileKind::Events && meta.min_revision > revision);
    later.sort_by_key(|meta| meta.min_revision);
    let mut time = None;
    for segment in later.into_iter().filter_map(|meta| files.opened(meta).ok()) {
        each(&segment, &mut |entry| {
            time = Some(time_of(entry));
            Ok(false)
        })?;
        if let Some(time) = time {
            return Ok(time);
        }
    }
    Ok(files.manifest().flushed_time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::{DIR, commit, delete, memory, open, put, tiny, user};

    /// Whatever room there is in memory.
    #[test]
    fn a_file_is_put_together_in_pieces() {
        let (disk, vfs) = memory();
        let options = tiny(&vfs);
        let engine = open(&options).unwrap();
        for n in 0..60 {
            let key = |n: usize| user(format!("k{}", n % 7));
            let mut writes = vec![put(key(n), n.to_string())];
            if n % 3 == 0 {
                writes.push(put(user("other"), "x"));
            }
            if n > 10 && n % 5 == 4 {
                writes.push(delete(key(n + 1)));
            }
            commit(&engine, writes).unwrap();
        }
        engine.reorganise().unwrap();
        engine.close().unwrap();
        let whole = StoreFiles::open(DIR, &options).unwrap();
        let is_event = |meta: &&FileMeta| meta.kind == FileKind::Events;
        let events: Vec<_> = whole.manifest().files.iter().filter(is_event).cloned().collect();
        let truth = of(&whole.opened(&events[0]).unwrap());
        assert!(truth.len() > 20, "{}", truth.len());
        let name = FileName::new(FileKind::Events, events[0].number);
        disk.forget(&std::path::Path::new(DIR).join(name.to_string()));
        let files = StoreFiles::open(DIR, &options).unwrap();
        let manifest = files.manifest();
        let context = SegmentContext::new(
            std::path::Path::new(DIR),
            manifest.store,
            manifest.incarnation,
            &options,
        );
        // Of a manifest that names more than there can be not all is written.
        let forged = |entries: u64| {
            let max_revision = events[0].min_revision + (1 << 50) - 1;
            let forged = FileMeta { max_revision, entries, ..events[0].clone() };
            keep(&files, &forged, &context, (manifest.next_file + 9, BYTES_MAX)).unwrap_err()
        };
        assert!(forged(events[0].entries).corruption().is_some());
        assert!(forged(1 << 50).corruption().is_some());
        for (n, bytes_max) in [(0, BYTES_MAX), (1, 1), (2, 1000), (3, 3000)] {
            let number = manifest.next_file + n;
            let kept = keep(&files, &events[0], &context, (number, bytes_max)).unwrap();
            let span = (events[0].min_revision, events[0].max_revision);
            assert_eq!((&kept.mended[..], kept.file.entries), (&[span][..], events[0].entries));
            let segment = crate::segment::SealedFile::all(
                &Arc::new(context.clone()),
                std::slice::from_ref(&kept.file),
                [],
            );
            let found = of(segment[0].open().unwrap());
            assert_eq!(found, truth, "{bytes_max}");
        }
    }

    /// By revision: place, key and version of each change.
    type Transactions = Vec<(u64, Vec<(u32, Vec<u8>, u64)>)>;

    fn of(segment: &Arc<Segment>) -> Transactions {
        let mut all = Vec::new();
        each(segment, &mut |entry| {
            let transaction = Transaction::decode(entry.value).unwrap();
            let events = transaction.events().map(Result::unwrap);
            let events = events.map(|event| (event.sub, event.key.to_vec(), event.version));
            all.push((entry.revision, events.collect()));
            Ok(true)
        })
        .unwrap();
        all
    }
}
