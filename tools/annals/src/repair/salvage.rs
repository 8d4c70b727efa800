//! What can be read of the newest versions, from whichever file has them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use annals::KeyValue;
use annals::inspect::StoreFiles;
use annals_format::FileMeta;
use annals_format::entry::EntryRef;
use annals_format::events::{EventKind, EventRef, Transaction};
use annals_format::lease::Value as LeaseValue;
use annals_format::retention::Rule;
use annals_format::space::Key;
use bytes::Bytes;

use super::lost::Lost;
use crate::files::key_cell;

/// The newest version of a key, or that it was deleted.
#[derive(Debug)]
pub(super) struct Newest {
    revision: u64,
    pub(super) sub: u32,
    pub(super) alive: Option<KeyValue>,
}

/// What has been read.
#[derive(Debug, Default)]
pub(super) struct Salvage {
    pub(super) keys: BTreeMap<Bytes, Newest>,
    /// Keys that were written at this revision, or later, by what EVENTS say: the value is elsewhere, if anywhere.
    pub(super) written: BTreeMap<Bytes, u64>,
    /// By id, with the sequence number of the record.
    pub(super) leases: BTreeMap<i64, (u64, Option<LeaseValue>)>,
    /// By prefix, likewise.
    pub(super) rules: BTreeMap<Vec<u8>, (u64, Option<Rule>)>,
    pub(super) revision: u64,
    pub(super) time: i64,
}

impl Salvage {
    pub(super) fn entry(&mut self, entry: &EntryRef<'_>) {
        match Key::decode(entry.key) {
            Ok(Key::User(key)) => {
                let key = Bytes::copy_from_slice(key);
                let alive = (!entry.tombstone).then(|| KeyValue {
                    key: key.clone(),
                    value: Bytes::copy_from_slice(entry.value),
                    create_revision: entry.create_revision,
                    mod_revision: entry.revision,
                    version: entry.version,
                    lease: entry.lease,
                });
                self.version(key, Newest { revision: entry.revision, sub: entry.sub, alive });
            }
            Ok(other) => {
                let value = (!entry.tombstone).then_some(entry.value);
                self.system(&other, entry.revision, value);
            }
            Err(_) => {}
        }
    }

    fn version(&mut self, key: Bytes, found: Newest) {
        self.revision = self.revision.max(found.revision);
        match self.keys.get_mut(&key) {
            Some(newest) if newest.revision > found.revision => {}
            Some(newest) => *newest = found,
            None => drop(self.keys.insert(key, found)),
        }
    }

    /// A record of the system's, of this sequence number.
    pub(super) fn system(&mut self, key: &Key<'_>, seq: u64, value: Option<&[u8]>) {
        match key {
            Key::Lease { id } => {
                let lease = value.and_then(|value| LeaseValue::decode(value).ok());
                note(&mut self.leases, *id, (seq, lease));
            }
            Key::Retention { prefix } => {
                let rule = value.and_then(|value| Rule::decode(value).ok());
                let rule = rule.filter(|rule| !rule.removed);
                note(&mut self.rules, prefix.to_vec(), (seq, rule));
            }
            _ => {}
        }
    }

    /// Reads a file of newest versions; answers what is lost of it.
    pub(super) fn segment(&mut self, files: &StoreFiles, meta: &FileMeta) -> String {
        read(files, meta, &mut |entry| {
            // What a fold has taken over is newer elsewhere, or gone.
            if entry.key >= meta.folded_to.as_slice() {
                self.entry(entry);
            }
        })
    }

    /// Reads a file of EVENTS, which say which keys were written when, and repeat many values; answers what is lost of it.
    pub(super) fn events(&mut self, files: &StoreFiles, meta: &FileMeta) -> String {
        read(files, meta, &mut |entry| {
            let Ok(transaction) = Transaction::decode(entry.value) else { return };
            self.revision = self.revision.max(entry.revision);
            self.time = self.time.max(transaction.time);
            for event in transaction.events().flatten() {
                self.event(entry.revision, &event);
            }
        })
    }

    fn event(&mut self, revision: u64, event: &EventRef<'_>) {
        let key = Bytes::copy_from_slice(event.key);
        let (sub, put) = (event.sub, event.kind == EventKind::Put);
        if put && event.value.is_none() {
            let written = self.written.entry(key).or_default();
            *written = revision.max(*written);
            return;
        }
        let alive = event.value.map(|value| KeyValue {
            key: key.clone(),
            value: Bytes::copy_from_slice(value),
            create_revision: event.create_revision,
            mod_revision: revision,
            version: event.version,
            lease: event.lease,
        });
        self.version(key, Newest { revision, sub, alive });
    }

    /// The keys of which something newer was written than what was found.
    pub(super) fn lost(&self, lost: &mut Lost) {
        for (key, written) in &self.written {
            let found = self.keys.get(key);
            if found.is_none_or(|found| found.revision < *written) {
                let kept = found.filter(|found| found.alive.is_some());
                lost.key(key, *written, kept.map(|found| found.revision));
            }
        }
    }
}

/// Reads a segment, but what is damaged of it; answers what is lost.
fn read(files: &StoreFiles, meta: &FileMeta, each: &mut dyn FnMut(&EntryRef<'_>)) -> String {
    let lost = RefCell::new(Gaps::default());
    // The first error is the one that the others may come from.
    let mut first = None;
    let mut entries = 0_u64;
    let read = files.segment(meta).and_then(|segment| {
        segment.salvage(
            &mut |entry| {
                each(entry);
                lost.borrow_mut().read(entry.key);
                entries += 1;
            },
            &mut |error| {
                first.get_or_insert_with(|| error.to_string());
                lost.borrow_mut().begin();
            },
        )
    });
    let mut lost = lost.into_inner();
    if read.is_err() {
        lost.begin();
    }
    let lost = lost.told(&|key| key_cell(meta.kind, key, 80));
    let missing = meta.entries.saturating_sub(entries);
    let first = first.or_else(|| read.err().map(|error| error.to_string()));
    let why = first.map(|why| format!(": {why}")).unwrap_or_default();
    if lost.is_empty() {
        return lost;
    }
    format!("{missing} of {} entries, of {lost}{why}", meta.entries)
}

/// Where entries are lost, by the keys that were read before and after.
#[derive(Debug, Default)]
struct Gaps {
    last: Option<Vec<u8>>,
    is_open: bool,
    all: Vec<Gap>,
}

/// The keys before and behind, where there are any.
type Gap = (Option<Vec<u8>>, Option<Vec<u8>>);

impl Gaps {
    fn begin(&mut self) {
        if !self.is_open {
            self.all.push((self.last.clone(), None));
        }
        self.is_open = true;
    }

    fn read(&mut self, key: &[u8]) {
        if let Some((_, end)) = self.all.last_mut().filter(|_| self.is_open) {
            *end = Some(key.to_vec());
        }
        self.is_open = false;
        match &mut self.last {
            Some(last) => {
                last.clear();
                last.extend_from_slice(key);
            }
            None => self.last = Some(key.to_vec()),
        }
    }

    fn told(&self, cell: &dyn Fn(&[u8]) -> String) -> String {
        let told = self.all.iter().map(|ends| match ends {
            (None, None) => "all keys".to_owned(),
            (None, Some(end)) => format!("keys up to {}", cell(end)),
            (Some(start), None) => format!("keys from {} on", cell(start)),
            (Some(start), Some(end)) => format!("keys from {} to {}", cell(start), cell(end)),
        });
        told.collect::<Vec<_>>().join(", ")
    }
}

/// Keeps the newest record of each.
fn note<K: Ord, V>(known: &mut BTreeMap<K, (u64, V)>, key: K, found: (u64, V)) {
    match known.get_mut(&key) {
        Some(newest) if newest.0 > found.0 => {}
        Some(newest) => *newest = found,
        None => drop(known.insert(key, found)),
    }
}
