//! What can be read of the newest versions, from whichever file has them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};
use std::path::Path;

use annals::KeyValue;
use annals::inspect::{EventFloors, StoreFiles};
use annals_format::FileMeta;
use annals_format::entry::EntryRef;
use annals_format::events::{EventKind, EventRef, Transaction};
use annals_format::lease::Value as LeaseValue;
use annals_format::retention::Rule;
use annals_format::space::{Key, RECORD_RETENTION, SYSTEM};
use bytes::Bytes;

use super::runs::{Found, Newest, Runs};
use super::unknown::{Between, Unknown};
use crate::exit::{Failure, Outcome};
use crate::files::key_cell;

/// Leases by id, with the sequence number of the record.
pub(super) type Leases = BTreeMap<i64, (u64, Option<LeaseValue>)>;

/// What has been read.
#[derive(Debug)]
pub(super) struct Salvage {
    /// The newest versions of the users' keys, up to `limit`.
    pub(super) keys: Runs,
    /// What was written at later revisions is passed over.
    limit: u64,
    /// Where files that have keys could not be read, and which of these were of newest versions.
    pub(super) gaps: Vec<KeyGap>,
    pub(super) newest_gaps: Vec<KeyGap>,
    /// What of newest versions is in the gaps.
    pub(super) unknown: Unknown,
    /// Deletions up to here may have been forgotten.
    pub(super) forgotten: u64,
    /// Not all of EVENTS could be read.
    pub(super) events_damaged: bool,
    /// Why findings could not be kept.
    failure: Option<Failure>,
    pub(super) leases: Leases,
    /// By prefix, with the sequence number of the record.
    rules: BTreeMap<Vec<u8>, (u64, Option<Rule>)>,
    pub(super) revision: u64,
    /// The latest that was seen.
    pub(super) time: i64,
    /// The last transaction that was seen: its revision, its time and its metadata.
    pub(super) last: (u64, i64, Bytes),
    /// Whether files may be missing that nobody names.
    from_names: bool,
    event_floors: Option<EventFloors>,
}

impl Salvage {
    /// Nothing has been read. What does not fit into memory goes to a file without a name in this directory.
    pub(super) fn new(directory: &Path, limit: u64, from_names: bool) -> Outcome<Self> {
        Ok(Self {
            keys: Runs::new(directory)?,
            limit,
            gaps: Vec::new(),
            newest_gaps: Vec::new(),
            unknown: Unknown::default(),
            forgotten: 0,
            events_damaged: false,
            failure: None,
            leases: BTreeMap::new(),
            rules: BTreeMap::new(),
            revision: 0,
            time: 0,
            last: (0, 0, Bytes::new()),
            from_names,
            event_floors: None,
        })
    }

    /// The rules of retention in force, by prefix.
    pub(super) fn rules(&self) -> impl Iterator<Item = (&[u8], &Rule)> {
        self.rules.iter().filter_map(|(prefix, (_, rule))| Some((&prefix[..], rule.as_ref()?)))
    }

    /// Whether these are all rules there are, as they were last: an old one would forget what the last one keeps.
    /// `whole_log`: nothing of the log is lost.
    pub(super) fn knows_rules(&self, whole_log: bool) -> bool {
        let first = Key::Retention { prefix: &[] }.encode();
        let end = [SYSTEM, RECORD_RETENTION + 1];
        let meets = |gap: &KeyGap| gap.start().as_slice() < &end[..] && *gap.end() >= first;
        whole_log && !self.from_names && !self.newest_gaps.iter().any(meets)
    }

    /// Fails if something that was found could not be kept.
    pub(super) fn check(&mut self) -> Outcome {
        self.failure.take().map_or(Ok(()), Err)
    }

    fn found(&mut self, key: Bytes, found: Found) {
        let revision = found.newest.as_ref().map_or(0, |newest| newest.revision);
        self.revision = self.revision.max(revision);
        // Of a repair that has failed nothing more is wanted.
        if self.failure.is_none() {
            self.failure = self.keys.add(key, found).err();
        }
    }

    /// A transaction of this revision; whether it is meant.
    pub(super) fn transaction(&mut self, revision: u64, time: i64, metadata: &[u8]) -> bool {
        if revision > self.limit {
            return false;
        }
        if revision >= self.last.0 {
            self.last = (revision, time, Bytes::copy_from_slice(metadata));
        }
        self.revision = self.revision.max(revision);
        self.time = self.time.max(time);
        true
    }

    pub(super) fn entry(&mut self, entry: &EntryRef<'_>) {
        match Key::decode(entry.key) {
            Ok(Key::User(_)) if entry.revision > self.limit => {}
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
                let (revision, sub) = (entry.revision, entry.sub);
                let newest = Newest { revision, sub, by_event: false, alive };
                self.found(key, Found { newest: Some(newest), written: 0 });
            }
            Ok(other) => {
                let value = (!entry.tombstone).then_some(entry.value);
                self.system(&other, entry.revision, value);
            }
            Err(_) => {}
        }
    }

    /// An entry that could be read, but for its value where it has none: that may be elsewhere.
    fn read(&mut self, entry: &EntryRef<'_>, has_value: bool) {
        if has_value {
            self.entry(entry);
        } else if let Ok(Key::User(key)) = Key::decode(entry.key)
            && entry.revision <= self.limit
        {
            let written = entry.revision;
            self.found(Bytes::copy_from_slice(key), Found { newest: None, written });
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
        let (lost, gaps, (missing, between)) = read(files, meta, &mut |entry, has_value| {
            // What a fold has taken over is newer elsewhere, or gone.
            if entry.key >= meta.folded_to.as_slice() {
                self.read(entry, has_value);
            }
        });
        self.unknown.add(meta, missing, between);
        self.newest_gaps.extend(gaps.iter().cloned());
        self.gaps.extend(gaps);
        lost
    }

    /// Reads a file of superseded versions, of which those count that were the newest at the limit; answers what is
    /// lost of it.
    pub(super) fn history(&mut self, files: &StoreFiles, meta: &FileMeta) -> String {
        let (lost, gaps, _) = read(files, meta, &mut |entry, has_value| {
            // What superseded the others is found by itself, or was the end of a key and is forgotten.
            if entry.revision <= self.limit && self.limit < entry.death {
                self.read(entry, has_value);
            }
        });
        self.gaps.extend(gaps);
        lost
    }

    /// Reads a file of EVENTS, which say which keys were written when, and repeat many values; answers what is lost of it.
    /// To be read behind the others: where these can be read they know better, since what EVENTS say of a key may be long
    /// over, and the deletion be forgotten everywhere, or be in what is damaged here.
    pub(super) fn events(&mut self, files: &StoreFiles, meta: &FileMeta) -> String {
        let floors = self.event_floors.take();
        let floors = floors.unwrap_or_else(|| EventFloors::of(files, !self.from_names));
        let (lost, ..) = read(files, meta, &mut |entry, _| {
            let Ok(transaction) = Transaction::decode(entry.value) else { return };
            if self.transaction(entry.revision, transaction.time, transaction.metadata) {
                for event in transaction.events().flatten() {
                    let is_within = self.from_names || is_within(&self.gaps, event.key);
                    // Of what was changed since, EVENTS may not tell.
                    if !is_within || !floors.tell_all_since(event.key, entry.revision) {
                        continue;
                    }
                    if event.kind == EventKind::Delete && entry.revision <= self.forgotten {
                        self.unknown.gone(event.key);
                    } else {
                        self.unknown.written(event.key, entry.revision);
                    }
                    self.event(entry.revision, &event);
                }
            }
        });
        self.event_floors = Some(floors);
        self.events_damaged |= !lost.is_empty();
        lost
    }

    fn event(&mut self, revision: u64, event: &EventRef<'_>) {
        let key = Bytes::copy_from_slice(event.key);
        let (sub, put) = (event.sub, event.kind == EventKind::Put);
        if put && event.value.is_none() {
            self.found(key, Found { newest: None, written: revision });
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
        let newest = Newest { revision, sub, by_event: true, alive };
        self.found(key, Found { newest: Some(newest), written: 0 });
    }
}

/// Reads a segment, but what is damaged of it; answers what is lost, in words, between which keys, and of how many entries
/// nothing is known, and between which keys these were. `each` is told, too, whether the value could be read.
fn read(
    files: &StoreFiles,
    meta: &FileMeta,
    each: &mut dyn FnMut(&EntryRef<'_>, bool),
) -> (String, Vec<KeyGap>, (u64, Vec<Between>)) {
    let (lost, each) = (RefCell::new(Gaps::default()), RefCell::new(each));
    // Blocks alone: of an entry without its value all else is known.
    let blocks = RefCell::new(Gaps::default());
    // The first error is the one that the others may come from.
    let mut first = None;
    let (mut entries, mut without_value) = (0_u64, 0_u64);
    let read = files.segment(meta).and_then(|segment| {
        segment.salvage(
            &mut |entry| {
                each.borrow_mut()(entry, true);
                lost.borrow_mut().read(entry.key);
                blocks.borrow_mut().read(entry.key);
                entries += 1;
            },
            &mut |error, entry| {
                first.get_or_insert_with(|| error.to_string());
                lost.borrow_mut().begin();
                match entry {
                    Some(entry) => {
                        each.borrow_mut()(entry, false);
                        blocks.borrow_mut().read(entry.key);
                        without_value += 1;
                    }
                    None => blocks.borrow_mut().begin(),
                }
            },
        )
    });
    let mut lost = lost.into_inner();
    let mut blocks = blocks.into_inner();
    if read.is_err() {
        lost.begin();
        blocks.begin();
    }
    let gaps = lost.between(meta);
    let lost = lost.told(&|key| key_cell(meta.kind, key, 80));
    let missing = meta.entries.saturating_sub(entries);
    let first = first.or_else(|| read.err().map(|error| error.to_string()));
    let why = first.map(|why| format!(": {why}")).unwrap_or_default();
    let unknown = (missing.saturating_sub(without_value), blocks.exactly(meta));
    if lost.is_empty() {
        return (lost, gaps, unknown);
    }
    (format!("{missing} of {} entries, of {lost}{why}", meta.entries), gaps, unknown)
}

/// Internal keys of which something may be lost: from one to another, both included, as a key may have more than one
/// version.
pub(super) type KeyGap = RangeInclusive<Vec<u8>>;

/// Whether something of a user's key may be lost.
pub(super) fn is_within(gaps: &[KeyGap], key: &[u8]) -> bool {
    if gaps.is_empty() {
        return false;
    }
    let internal = Key::User(key).encode();
    gaps.iter().any(|gap| gap.contains(&internal))
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

    fn between(&self, meta: &FileMeta) -> Vec<KeyGap> {
        let gaps = self.all.iter().map(|(start, end)| {
            let start = start.as_ref().unwrap_or(&meta.first_key);
            start.clone()..=end.as_ref().unwrap_or(&meta.last_key).clone()
        });
        gaps.collect()
    }

    /// Without the keys at the ends where these were read.
    fn exactly(&self, meta: &FileMeta) -> Vec<Between> {
        let end = |key: &Option<Vec<u8>>, last: &Vec<u8>| match key {
            Some(read) => Bound::Excluded(read.clone()),
            None => Bound::Included(last.clone()),
        };
        let ends = |(start, to): &Gap| (end(start, &meta.first_key), end(to, &meta.last_key));
        self.all.iter().map(ends).collect()
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
