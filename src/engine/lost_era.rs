//! What other files, the log and EVENTS know of keys whose newest versions are lost with blocks of a file: which of their
//! changes were of the file's era, see [`lost_newest`](super::lost_newest).

use std::collections::{BTreeMap, BTreeSet};

use annals_format::events::{EventKind, EventRef, THINNED, Transaction};
use annals_format::order::later;
use annals_format::space::USER;
use annals_format::{FileKind, FileMeta};

use super::inspect::StoreFiles;
use super::lost_newest::Changed;
use super::lost_past::LostBlock;
use crate::error::Result;
use crate::reclaim::floors::Floors;

/// What may be known of the keys that are lost, in memory. Of more, the file is not put together.
const BYTES_MAX: usize = 64 << 20;

/// What a key takes beside its bytes: about.
const OVERHEAD: usize = 256;

/// A change of a key.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) sub: u32,
    pub(super) tombstone: bool,
    pub(super) create_revision: u64,
    pub(super) version: u64,
    pub(super) lease: i64,
    /// Where EVENTS repeat it.
    pub(super) value: Option<Vec<u8>>,
}

/// From where on EVENTS tell all changes of a key.
///
/// What can be asked for is told. Below that EVENTS forget whole transactions, the oldest first; and where there are rules for
/// prefixes, changes of keys that can be read at later revisions only, in the files where these are many
/// (`reclaim/merge.rs`): so there an older change of a key may be told, and a newer one not.
#[derive(Debug)]
pub struct EventFloors {
    floors: Floors,
    /// The last revision below all floors of which changes may be left out.
    thinned: u64,
}

impl EventFloors {
    /// Of the store that these files are of. Where that is compacted, and without rules for prefixes, this reads the
    /// EVENTS there are of revisions before. `is_known`: the manifest says how far back keys can be read; else it reads
    /// all EVENTS.
    pub fn of(files: &StoreFiles, is_known: bool) -> Self {
        let (manifest, mut floors) = (files.manifest(), files.floors());
        if !manifest.floors.is_empty() {
            return Self { floors, thinned: u64::MAX };
        }
        if !is_known {
            floors = Floors::all(u64::MAX);
        }
        let is_old = |meta: &&FileMeta| {
            let is_old = !is_known || meta.min_revision < manifest.compacted;
            meta.kind == FileKind::Events && is_old
        };
        let thinned = manifest.files.iter().filter(is_old).map(|meta| {
            // Of what cannot be read it is not known.
            thinned(files, meta).unwrap_or(meta.max_revision)
        });
        Self { floors, thinned: thinned.max().unwrap_or(0) }
    }

    /// Whether all changes of a user's key are told behind one that is told, of this revision.
    pub fn tell_all_since(&self, key: &[u8], revision: u64) -> bool {
        revision > self.thinned || revision >= self.floors.of(&[&[USER], key].concat())
    }
}

/// The last revision in a file of EVENTS of which changes are left out, or 0.
fn thinned(files: &StoreFiles, meta: &FileMeta) -> Result<u64> {
    let segment = files.opened(meta)?;
    let mut cursor = segment.cold_cursor();
    cursor.seek_first()?;
    let mut thinned = 0;
    while let Some(entry) = cursor.entry() {
        let transaction = Transaction::decode(entry.value);
        let transaction = transaction.map_err(|error| cursor.damaged(&error))?;
        if transaction.flags & THINNED != 0 {
            thinned = entry.revision;
        }
        cursor.next()?;
    }
    Ok(thinned)
}

/// What is known of a key in the lost blocks.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The newest version that older files have.
    pub(super) older: Option<Change>,
    /// What superseded the version of the file, and whether the key was alive before that.
    pub(super) newer: Option<(u64, bool)>,
    /// The first change of the era that is known, and the last.
    pub(super) first: Option<Change>,
    pub(super) last: Option<Change>,
}

impl Known {
    pub(super) fn older_revision(&self) -> u64 {
        self.older.as_ref().map_or(0, |older| older.revision)
    }

    pub(super) fn was_alive(&self) -> bool {
        self.older.as_ref().is_some_and(|older| !older.tombstone)
    }

    /// Whether the first change that is known comes next to what older files have.
    pub(super) fn follows(&self) -> bool {
        let (older, first) = (self.older.as_ref().filter(|older| !older.tombstone), &self.first);
        match (older, first) {
            (Some(older), Some(first)) => {
                let next = (older.create_revision, older.version.checked_add(1));
                !first.tombstone && (first.create_revision, Some(first.version)) == next
            }
            (None, Some(first)) => first.version == 1,
            (_, None) => false,
        }
    }
}

/// What is known of the keys in lost blocks.
pub(super) struct Search<'a> {
    files: &'a StoreFiles,
    meta: &'a FileMeta,
    /// From one key to another, both included, in order.
    spans: Vec<(&'a [u8], &'a [u8])>,
    /// But these, which can be read.
    at_ends: &'a BTreeSet<Vec<u8>>,
    known: BTreeMap<Vec<u8>, Known>,
    bytes: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        files: &'a StoreFiles,
        meta: &'a FileMeta,
        (lost, at_ends): (&'a [LostBlock], &'a BTreeSet<Vec<u8>>),
    ) -> Self {
        // What a fold has taken over does not count any more.
        let spans =
            lost.iter().map(|block| (later(&block.first, &meta.folded_to), block.last.as_slice()));
        let spans = spans.filter(|(first, last)| first <= last).collect();
        Self { files, meta, spans, at_ends, known: BTreeMap::new(), bytes: 0 }
    }

    fn has(&self, key: &[u8]) -> bool {
        let at = self.spans.partition_point(|(_, last)| *last < key);
        self.spans.get(at).is_some_and(|(first, _)| *first <= key) && !self.at_ends.contains(key)
    }

    fn of(&mut self, key: &[u8]) -> &mut Known {
        if !self.known.contains_key(key) {
            self.bytes += key.len() + OVERHEAD;
        }
        self.known.entry(key.to_vec()).or_default()
    }

    /// Reads everything; `None` where that is too much.
    pub(super) fn known(mut self, changed: &Changed) -> Result<Option<BTreeMap<Vec<u8>, Known>>> {
        if self.spans.is_empty() {
            return Ok(Some(self.known));
        }
        let files = self.files;
        let is_newest = |meta: &&FileMeta| matches!(meta.kind, FileKind::L0 | FileKind::Head);
        let mut others: Vec<&FileMeta> = files
            .manifest()
            .files
            .iter()
            .filter(is_newest)
            .filter(|meta| *meta != self.meta)
            .collect();
        // HEAD is older than all of L0.
        let age = |meta: &FileMeta| (meta.kind == FileKind::L0, meta.last_seq);
        others.sort_by_key(|meta| age(meta));
        for meta in others {
            let is_newer = age(meta) > age(self.meta);
            if !self.versions(meta, is_newer)? {
                return Ok(None);
            }
        }
        for (key, change) in changed {
            let key = [&[USER], &key[..]].concat();
            if self.has(&key) {
                self.of(&key).newer.get_or_insert(*change);
            }
        }
        let is_events = |meta: &&FileMeta| meta.kind == FileKind::Events;
        let mut events: Vec<&FileMeta> = files.manifest().files.iter().filter(is_events).collect();
        events.sort_by_key(|meta| meta.min_revision);
        let floors = EventFloors::of(files, true);
        for meta in events {
            if !self.events(meta, &floors)? {
                return Ok(None);
            }
        }
        Ok(Some(self.known))
    }

    /// Takes in what another file of newest versions has; answers whether there was room.
    fn versions(&mut self, meta: &FileMeta, is_newer: bool) -> Result<bool> {
        let spans = self.spans.clone();
        let met = spans
            .iter()
            .filter(|(first, last)| *meta.first_key <= **last && **first <= *meta.last_key);
        for (first, last) in met {
            let segment = self.files.opened(meta)?;
            let mut cursor = segment.cold_cursor();
            cursor.seek(later(first, &meta.folded_to), u64::MAX)?;
            while let Some(entry) = cursor.entry().filter(|entry| entry.key <= *last) {
                if self.at_ends.contains(entry.key) {
                    break;
                }
                let known = self.of(entry.key);
                if is_newer {
                    known.newer.get_or_insert((entry.first, entry.lived));
                } else if known.older_revision() < entry.revision {
                    known.older = Some(Change {
                        revision: entry.revision,
                        sub: entry.sub,
                        tombstone: entry.tombstone,
                        create_revision: entry.create_revision,
                        version: entry.version,
                        lease: entry.lease,
                        value: None,
                    });
                }
                if self.bytes > BYTES_MAX {
                    return Ok(false);
                }
                cursor.next()?;
            }
        }
        Ok(true)
    }

    /// Takes in what EVENTS tell; answers whether there was room.
    fn events(&mut self, meta: &FileMeta, floors: &EventFloors) -> Result<bool> {
        let segment = self.files.opened(meta)?;
        let mut cursor = segment.cold_cursor();
        cursor.seek_first()?;
        while let Some(entry) = cursor.entry() {
            let transaction = Transaction::decode(entry.value);
            let transaction = transaction.map_err(|error| cursor.damaged(&error))?;
            for event in transaction.events() {
                let event = event.map_err(|error| cursor.damaged(&error))?;
                let key = [&[USER], event.key].concat();
                if self.has(&key) && floors.tell_all_since(event.key, entry.revision) {
                    self.event(&key, entry.revision, &event);
                }
            }
            if self.bytes > BYTES_MAX {
                return Ok(false);
            }
            cursor.next()?;
        }
        Ok(true)
    }

    fn event(&mut self, key: &[u8], revision: u64, event: &EventRef<'_>) {
        let known = self.of(key);
        let upto = known.newer.map_or(u64::MAX, |(revision, _)| revision);
        if revision <= known.older_revision() || revision >= upto {
            return;
        }
        let change = |value| Change {
            revision,
            sub: event.sub,
            tombstone: event.kind == EventKind::Delete,
            create_revision: event.create_revision,
            version: event.version,
            lease: event.lease,
            value,
        };
        known.first.get_or_insert_with(|| change(None));
        let bytes = |change: &Option<Change>| {
            change.as_ref().and_then(|change| change.value.as_ref()).map_or(0, Vec::len)
        };
        let before = bytes(&known.last);
        known.last = Some(change(event.value.map(<[u8]>::to_vec)));
        let now = bytes(&known.last);
        self.bytes = self.bytes + now - before;
    }
}
