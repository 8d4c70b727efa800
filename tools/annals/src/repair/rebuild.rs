//! A new store of the newest versions that can be read.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use annals::inspect::{StoreFiles, WalPart};
use annals::{KeyValue, Load, Origin};
use annals_format::entry::EntryRef;
use annals_format::frame::Op;
use annals_format::lease::Value as LeaseValue;
use annals_format::name::FileName;
use annals_format::retention::Rule;
use annals_format::space::Key;
use annals_format::{FileKind, FileMeta};
use bytes::Bytes;

use super::{Damaged, Repaired, length};
use crate::args::Global;
use crate::bytes::show;
use crate::exit::Outcome;
use crate::files::{key_cell, logs, walk};

/// The newest version of a key, or that it was deleted.
#[derive(Debug)]
struct Newest {
    revision: u64,
    sub: u32,
    alive: Option<KeyValue>,
}

/// What has been read.
#[derive(Debug, Default)]
struct Salvage {
    keys: BTreeMap<Bytes, Newest>,
    /// By id, with the sequence number of the record.
    leases: BTreeMap<i64, (u64, Option<LeaseValue>)>,
    /// By prefix, likewise.
    rules: BTreeMap<Vec<u8>, (u64, Option<Rule>)>,
    revision: u64,
    time: i64,
}

impl Salvage {
    fn entry(&mut self, entry: &EntryRef<'_>) {
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
    fn system(&mut self, key: &Key<'_>, seq: u64, value: Option<&[u8]>) {
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
    fn segment(&mut self, files: &StoreFiles, meta: &FileMeta) -> (u64, String) {
        let lost = RefCell::new(Gaps::default());
        // The first error is the one that the others may come from.
        let mut first = None;
        let mut entries = 0_u64;
        let read = files.segment(meta).and_then(|segment| {
            segment.salvage(
                &mut |entry| {
                    // What a fold has taken over is newer elsewhere, or gone.
                    if entry.key >= meta.folded_to.as_slice() {
                        self.entry(entry);
                    }
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
            return (entries, lost);
        }
        (entries, format!("{missing} of {} entries, of {lost}{why}", meta.entries))
    }

    /// Reads what no other file has, up to the first damage; answers whether there was some.
    fn log(&mut self, files: &StoreFiles, name: FileName) -> Outcome<Option<String>> {
        let flushed = files.manifest().flushed_seq;
        let mut damage = None;
        walk(|step| {
            files.wal(name.number, &mut |_, _, part| {
                match part {
                    WalPart::Damage(found) => damage = damage.take().or(Some(found.to_string())),
                    WalPart::Frame(frame, _) if damage.is_none() && frame.seq > flushed => {
                        self.revision = self.revision.max(frame.revision);
                        self.time = self.time.max(frame.time);
                        for op in frame.ops() {
                            let (internal, value, lease) = match op.op {
                                Op::Put { key, value, lease } => (key, Some(value), lease),
                                Op::Delete { key } => (key, None, 0),
                                Op::Compact { .. } => continue,
                            };
                            match Key::decode(internal) {
                                Ok(Key::User(key)) => self.entry(&EntryRef {
                                    key: &Key::User(key).encode(),
                                    revision: frame.revision,
                                    sub: op.sub,
                                    tombstone: value.is_none(),
                                    create_revision: op.create_revision,
                                    version: op.version,
                                    lease,
                                    value: value.unwrap_or_default(),
                                    ..EntryRef::default()
                                }),
                                Ok(other) => self.system(&other, frame.seq, value),
                                Err(_) => {}
                            }
                        }
                    }
                    _ => {}
                }
                step(Ok(())).map(|_| ())
            })
        })?;
        Ok(damage)
    }
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

/// A rule as `retention set` takes it.
fn spelled(prefix: &[u8], rule: &Rule) -> String {
    let prefix = show(prefix, 60);
    let age = rule.age.map(|age| format!(" --for {}s", age.div_ceil(1_000_000)));
    let revisions = rule.revisions.map(|revisions| format!(" --revisions {revisions}"));
    let forever = (age.is_none() && revisions.is_none()).then_some(" --forever");
    let (age, revisions) = (age.unwrap_or_default(), revisions.unwrap_or_default());
    format!("--prefix {prefix}{age}{revisions}{}", forever.unwrap_or_default())
}

/// Makes the store.
pub(super) fn rebuild(
    global: &Global,
    to: &Path,
    files: &StoreFiles,
    damaged: &Damaged,
) -> Outcome<Repaired> {
    let mut repaired = Repaired { way: "rebuild", files: Vec::new() };
    let manifest = files.manifest();
    let mut salvage = Salvage {
        revision: manifest.flushed_revision.max(manifest.compacted),
        time: manifest.flushed_time.max(0),
        ..Salvage::default()
    };
    for meta in &manifest.files {
        let name = FileName::new(meta.kind, meta.number);
        if matches!(meta.kind, FileKind::L0 | FileKind::Head) {
            let (_, lost) = salvage.segment(files, meta);
            repaired.note(name, meta.bytes, "read", lost);
        } else {
            let lost = match (meta.kind, damaged.0.contains(&name)) {
                (_, true) => "damaged; the past is given up",
                (FileKind::History, false) => "superseded versions: the past is given up",
                (_, false) => "who changed what, and when",
            };
            repaired.note(name, meta.bytes, "left out", lost);
        }
    }
    let mut damage = None;
    for name in logs(files) {
        let bytes = length(files, name);
        if damage.is_some() {
            repaired.note(name, bytes, "left out: it follows damage", "what was committed there");
            continue;
        }
        damage = salvage.log(files, name)?;
        let lost =
            damage.as_ref().map(|damage| format!("what was committed from there on: {damage}"));
        repaired.note(name, bytes, "read", lost.unwrap_or_default());
    }
    load(global, to, &salvage)?;
    for (prefix, (_, rule)) in &salvage.rules {
        let Some(rule) = rule else { continue };
        let name = FileName::new(FileKind::Manifest, manifest.number);
        let again = format!("set it again: retention set {}", spelled(prefix, rule));
        repaired.note(name, 0, "rule of retention", again);
    }
    Ok(repaired)
}

/// Writes the store.
fn load(global: &Global, to: &Path, salvage: &Salvage) -> Outcome {
    // What follows the base begins with the next revision.
    let compacted = salvage.revision.max(2);
    let origin = Origin { time: salvage.time, ..Origin::default() };
    let mut load = Load::create(to, &global.engine_options()?, compacted, &origin)?;
    for newest in salvage.keys.values() {
        if let Some(kv) = &newest.alive {
            load.base(kv, newest.sub)?;
        }
    }
    let mut loading = load.begin()?;
    for (id, (_, lease)) in &salvage.leases {
        if let Some(lease) = lease {
            loading.lease(*id, lease.ttl, lease.remaining)?;
        }
    }
    Ok(loading.finish()?.close()?)
}
