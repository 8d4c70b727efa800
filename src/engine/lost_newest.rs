//! What damage of a file of newest versions costs, of L0 or of HEAD: the versions in the blocks that cannot be read, of
//! which EVENTS know most.
//!
//! The file has of each key the newest version that was written in some span of revisions, its *era* for that key: after
//! what older files have of it, and before what newer ones, or the log, do. So the newest change of a key that EVENTS tell of
//! its era is what the file had. Where EVENTS repeat its value nothing is lost; else the version is *bare*: it stands in the
//! file without its value, so that whatever counts and folds meets what it has to, and must not be read by anybody.
//!
//! ```text
//!            HEAD  older L0        the damaged L0       newer L0    log
//!   key a  --- 3 ------+---- 7, 9, 12 ----------------+---- 15 -----+---> 21       era (3, 15): 12 was in it, since 7
//!   key b  ------------+----------- 8 ----------------+-------------+------->      era (0, all): 8 was in it
//! ```
//!
//! EVENTS are forgotten as the past is. Where they do not go back as far as the era, the versions are not known by that,
//! and no more than their number, unless what is newer says that there was one.

use std::collections::{BTreeMap, BTreeSet};

use annals_format::entry::EntryRef;
use annals_format::space::is_user;
use annals_format::{FileKind, FileMeta};

use super::inspect::StoreFiles;
use super::lost_era::{Change, Known, Search};
use super::lost_past::LostBlock;
use crate::error::{Error, ErrorKind, Result};
use crate::segment::{Leaves, NewSegment, Segment, SegmentContext, SegmentWriter};
use crate::sync::Arc;

/// What the log has changed behind what is in files: of each user's key (as it is, without its space) the first revision,
/// and whether the key was alive before that.
pub type Changed = BTreeMap<Vec<u8>, (u64, bool)>;

/// What could be kept of a file of newest versions.
#[derive(Debug)]
pub struct KeptNewest {
    /// The file that was written of it; `None` where nothing is left.
    pub file: Option<FileMeta>,
    /// Users' keys of which the newest version is there without its value, and its revision.
    pub bare: Vec<(Vec<u8>, u64)>,
    /// Users' keys of which a superseded version is lost, or may be, and the revision that superseded it.
    pub superseded: Vec<(Vec<u8>, u64)>,
    /// How many entries stand in the file without their value, these included.
    pub without_value: u64,
    /// How many newest versions are lost at most of which no more is known than the blocks that they were in.
    pub unknown: u64,
    /// Where something could not be read.
    pub lost: Vec<LostBlock>,
    /// The first reason for that.
    pub damage: Option<Error>,
}

/// A version that is written to the file.
struct Entry {
    change: Change,
    first: u64,
    lived: bool,
}

/// Writes a file of newest versions again, of what can be read, and of what is known of the rest. `None` where that
/// cannot be done: records of the system's are lost, too much is, or what the files say does not fit together.
///
/// # Errors
/// Other files cannot be read; what writing the file answers.
pub(super) fn keep(
    files: &StoreFiles,
    meta: &FileMeta,
    (context, number): (&SegmentContext, u64),
    changed: &Changed,
) -> Result<Option<KeptNewest>> {
    let segment = files.opened(meta);
    let read = match &segment {
        Ok(segment) => Read::of(segment),
        Err(error) => {
            let (lost, damage) = (vec![LostBlock::all_of(meta)], Some(error.clone()));
            Read { lost, damage, ..Read::default() }
        }
    };
    let (segment, Read { lost, entries: readable, at_ends, damage }) = (segment.ok(), read);
    if lost.iter().any(|block| !is_user(&block.first)) {
        return Ok(None);
    }
    let search = Search::new(files, meta, (&lost, &at_ends));
    let Some(known) = search.known(changed)? else { return Ok(None) };
    let floors = files.floors();
    let begin = events_begin(files);
    let mut kept = KeptNewest {
        file: None,
        bare: Vec::new(),
        superseded: Vec::new(),
        without_value: 0,
        unknown: 0,
        lost,
        damage,
    };
    let (mut entries, mut found) = (BTreeMap::new(), 0);
    for (key, known) in known {
        let floor = floors.of(&key);
        let Ok(entry) = entry_of(&key, known, (meta, begin, floor), &mut kept) else {
            return Ok(None);
        };
        if let Some(entry) = entry {
            let Change { tombstone, value, .. } = &entry.change;
            kept.without_value += u64::from(!tombstone && value.is_none());
            // HEAD lets go of tombstones that nobody can ask for.
            let is_there = !entry.change.tombstone || entry.change.revision >= floor;
            found += u64::from(meta.kind == FileKind::L0 || is_there);
            entries.insert(key, entry);
        }
    }
    let counts = kept.lost.iter().any(|block| block.last >= meta.folded_to);
    kept.unknown = meta.entries.saturating_sub(readable + found) * u64::from(counts);
    let new = NewSegment { class: meta.class, ..NewSegment::new(meta.kind, number) };
    let mut writer = SegmentWriter::create(context, new)?;
    let written = write(&mut writer, segment.as_ref(), &entries, meta);
    if written.is_err() || writer.entries() == 0 {
        writer.abandon()?;
        return match written {
            // What was read does not ascend: it was written so.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidArgument { .. }) => Ok(None),
            written => written.map(|()| Some(kept)),
        };
    }
    let file = writer.finish()?;
    let (last_seq, folded_to) = (meta.last_seq, meta.folded_to.clone());
    kept.file = Some(FileMeta { last_seq, folded_to, ..file });
    Ok(Some(kept))
}

/// What can be read of a file, and what cannot.
#[derive(Default)]
struct Read {
    lost: Vec<LostBlock>,
    entries: u64,
    /// Keys that can be read, but are at the end of a lost block: where the next one begins.
    at_ends: BTreeSet<Vec<u8>>,
    damage: Option<Error>,
}

impl Read {
    fn of(segment: &Arc<Segment>) -> Self {
        let meta = segment.meta();
        let mut found = Self::default();
        let mut upto = meta.first_key.clone();
        let read = Leaves::each(segment, &mut |block| {
            let Self { lost, entries, at_ends, .. } = &mut found;
            let end = lost.last().map(|lost| lost.last.as_slice());
            let read = block.read(&mut |entry, _, _| {
                *entries += 1;
                if end == Some(entry.key) {
                    at_ends.insert(entry.key.to_vec());
                }
            });
            if let Err(error) = read {
                found.lose(meta, (block.first(), block.upto()), error);
            }
            upto = block.upto().to_vec();
            Ok(true)
        });
        if let Err(error) = read {
            found.lose(meta, (&upto, &meta.last_key), error);
        }
        found
    }

    fn lose(&mut self, meta: &FileMeta, (first, last): (&[u8], &[u8]), why: Error) {
        self.damage.get_or_insert(why);
        match self.lost.last_mut() {
            Some(before) if *before.last >= *first => before.last = last.to_vec(),
            _ => {
                let (first, last) = (first.to_vec(), last.to_vec());
                self.lost.push(LostBlock { file: meta.clone(), first, last });
            }
        }
    }
}

/// The first revision of which there are EVENTS.
fn events_begin(files: &StoreFiles) -> u64 {
    let events = files.manifest().files.iter().filter(|meta| meta.kind == FileKind::Events);
    events.map(|meta| meta.min_revision).min().unwrap_or(u64::MAX)
}

/// What the file says of a key, where it is known that it had one; `begin`: from which revision on there are EVENTS; `floor`:
/// from which one on the key can be read.
///
/// # Errors
/// What is known does not fit together.
fn entry_of(
    key: &[u8],
    mut known: Known,
    (meta, begin, floor): (&FileMeta, u64, u64),
    kept: &mut KeptNewest,
) -> std::result::Result<Option<Entry>, ()> {
    let users = || key.get(1..).unwrap_or_default().to_vec();
    let (since, lived) = (known.older_revision().checked_add(1).ok_or(())?, known.was_alive());
    let all_known = since >= begin.max(floor);
    let KeptNewest { bare, superseded, .. } = kept;
    // Of what was superseded before nobody can ask.
    let mut supersede = |upto: u64| {
        if upto >= floor {
            superseded.push((users(), upto));
        }
    };
    let Some(last) = known.last.take() else {
        return match known.newer {
            // It was alive, and not by an older file: so it was in this one.
            Some((upto, true)) if !lived => {
                let revision =
                    upto.checked_sub(1).filter(|revision| *revision >= since).ok_or(())?;
                supersede(upto);
                let (create_revision, version) = (revision, 1);
                let change = Change { revision, create_revision, version, ..Change::default() };
                Ok(Some(Entry { change, first: since, lived }))
            }
            // There may have been one, which is not known.
            Some((upto, _)) if !all_known && since > 1 => {
                supersede(upto);
                Ok(None)
            }
            _ => Ok(None),
        };
    };
    if known.newer.is_some_and(|(_, lived)| lived == last.tombstone) {
        return Err(());
    }
    let first = known.first.as_ref().ok_or(())?;
    let first = if all_known || known.follows() {
        first.revision
    } else {
        if first.tombstone && lived {
            // Of what it was until then the older file may tell, or versions that are not known here.
            supersede(first.revision);
        }
        // What was changed before is in HISTORY, as far as anybody can ask for it.
        since
    };
    if !last.tombstone && last.value.is_none() {
        match known.newer {
            Some((upto, _)) => supersede(upto),
            None => bare.push((users(), last.revision)),
        }
    }
    let is_l0 = meta.kind == FileKind::L0;
    Ok(Some(Entry { change: last, first, lived: is_l0 && lived }))
}

/// Writes what can be read of a file, and the other entries between, in order.
fn write(
    writer: &mut SegmentWriter,
    segment: Option<&Arc<Segment>>,
    entries: &BTreeMap<Vec<u8>, Entry>,
    meta: &FileMeta,
) -> Result<()> {
    let mut entries = entries.iter().peekable();
    let add = |writer: &mut SegmentWriter, key: &[u8], entry: &Entry| {
        let Entry { change, first, lived } = entry;
        let is_l0 = meta.kind == FileKind::L0;
        let value = change.value.as_deref().unwrap_or_default();
        writer.add(&EntryRef {
            key,
            revision: change.revision,
            sub: change.sub,
            tombstone: change.tombstone,
            create_revision: change.create_revision,
            version: change.version,
            lease: change.lease,
            first: if is_l0 { *first } else { 0 },
            lived: *lived,
            value,
            ..EntryRef::default()
        })
    };
    let mut refused = Ok(());
    if let Some(segment) = segment {
        // What cannot be read is among the others.
        let _damage = Leaves::each(segment, &mut |block| {
            let _damage = block.read(&mut |read, _, _| {
                while let Some((key, entry)) =
                    entries.next_if(|(key, _)| refused.is_ok() && key.as_slice() <= read.key)
                {
                    if key.as_slice() < read.key {
                        refused = add(writer, key, entry);
                    }
                }
                if refused.is_ok() {
                    refused = writer.add(read);
                }
            });
            Ok(refused.is_ok())
        });
    }
    refused?;
    for (key, entry) in entries {
        add(writer, key, entry)?;
    }
    Ok(())
}
