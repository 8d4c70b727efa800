//! `stats --by key`: which keys take the room, by reading every file; and which prefixes take it in the log.
//!
//! What an entry takes of its file is its part of all keys and values in it, so that the parts of a file add up
//! to its length. Keys are counted in a map of at most [`KEYS_MAX`]; beyond that the smaller half is given
//! up, and what is told of a key may be too little.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;

use annals::inspect::{StoreFiles, WalPart};
use annals_format::events::Transaction;
use annals_format::frame::Op;
use annals_format::space::Key;
use annals_format::{FileKind, FileMeta};
use serde_json::json;

use crate::args::Global;
use crate::bytes::{self, human, json as spell};
use crate::exit::Outcome;
use crate::files::{logs, walk};
use crate::output::{Format, Output, listed};
use crate::progress::Progress;
use crate::space::SpaceArgs;

/// Keys that are counted at a time.
const KEYS_MAX: usize = 1 << 20;

/// What an entry takes beside its key and its value, more or less.
const ENTRY_BYTES: u64 = 12;

listed! {
    /// A key, for programs.
    KeyRow: "key", "bytes", "live_bytes", "history_bytes", "event_bytes", "log_bytes", "versions"
}

listed! {
    /// A key, for people.
    ShownRow: "key", "bytes", "live", "history", "events", "log", "versions"
}

/// Where bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Live,
    History,
    Events,
    Log,
}

/// What a key, or all keys of a prefix, take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Takes {
    bytes: [u64; 4],
    /// Those in the log that are in no other file yet among them.
    pub(crate) versions: u64,
}

impl Takes {
    pub(crate) fn all(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

/// What keys take.
struct Census<'a> {
    /// By what a key is counted: itself, or a prefix; `None` for one that is not asked for.
    label: &'a dyn Fn(&[u8]) -> Option<&[u8]>,
    keys: HashMap<Vec<u8>, Takes>,
    given_up: u64,
}

/// A file being read: what its entries have, before it is known what that is of the file.
#[derive(Debug, Default)]
struct Raw {
    keys: HashMap<Vec<u8>, [u64; 2]>,
    all: u64,
}

impl Raw {
    /// An entry; `label` is what it is counted by, `is_version` whether it is a version of its key that is in no
    /// other file.
    fn note(&mut self, label: Option<&[u8]>, key: &[u8], value_bytes: u64, is_version: bool) {
        let bytes = key.len() as u64 + value_bytes + ENTRY_BYTES;
        self.all += bytes;
        let Some(label) = label else { return };
        let is_version = u64::from(is_version);
        match self.keys.get_mut(label) {
            Some([sum, versions]) => (*sum, *versions) = (*sum + bytes, *versions + is_version),
            None => drop(self.keys.insert(label.to_vec(), [bytes, is_version])),
        }
    }
}

impl<'a> Census<'a> {
    fn new(label: &'a dyn Fn(&[u8]) -> Option<&[u8]>) -> Self {
        Self { label, keys: HashMap::new(), given_up: 0 }
    }

    /// Takes a file in, of `file_bytes`.
    fn take(&mut self, raw: Raw, file_bytes: u64, place: Place) {
        for (key, [bytes, versions]) in raw.keys {
            let part = u128::from(bytes) * u128::from(file_bytes) / u128::from(raw.all.max(1));
            let takes = self.keys.entry(key).or_default();
            if let Some(sum) = takes.bytes.get_mut(place as usize) {
                *sum += u64::try_from(part).unwrap_or(file_bytes);
            }
            takes.versions += versions;
        }
        if self.keys.len() > KEYS_MAX {
            let mut sizes: Vec<u64> = self.keys.values().map(Takes::all).collect();
            let before = sizes.len();
            let (_, least, larger) = sizes.select_nth_unstable(before - KEYS_MAX / 2);
            let least = *least;
            // Of those that are equally large as many as there is room for.
            let larger = larger.iter().filter(|size| **size > least).count();
            let mut room = KEYS_MAX / 2 - larger;
            self.keys.retain(|_, takes| {
                let is_one = takes.all() == least && room > 0;
                room -= usize::from(is_one);
                is_one || takes.all() > least
            });
            self.given_up += (before - self.keys.len()) as u64;
        }
    }

    fn segment(&mut self, files: &StoreFiles, meta: &FileMeta) -> Outcome {
        let segment = files.segment(meta)?;
        let mut raw = Raw::default();
        let label = self.label;
        walk(|step| {
            segment.entries(&mut |entry| {
                if meta.kind == FileKind::Events {
                    // What cannot be decoded is for `verify` to tell.
                    let events = Transaction::decode(entry.value).ok();
                    for event in events.iter().flat_map(Transaction::events).flatten() {
                        let value = event.value.map_or(0, <[u8]>::len) as u64;
                        raw.note(label(event.key), event.key, value, false);
                    }
                } else if let Ok(Key::User(key)) = Key::decode(entry.key) {
                    // What an entry refers to takes its room in the blob file.
                    let bytes = if entry.blob.is_some() { 0 } else { entry.value.len() as u64 };
                    raw.note(label(key), key, bytes, meta.kind != FileKind::Blob);
                }
                step(Ok(()))
            })
        })?;
        let place = match meta.kind {
            FileKind::Events => Place::Events,
            FileKind::History => Place::History,
            _ => Place::Live,
        };
        self.take(raw, meta.bytes, place);
        Ok(())
    }

    fn log(&mut self, files: &StoreFiles, number: u64) -> Outcome {
        let mut raw = Raw::default();
        let label = self.label;
        let flushed = files.manifest().flushed_revision;
        let mut used = 0;
        walk(|step| {
            files.wal(number, &mut |_, bytes, part| {
                if let WalPart::Frame(frame, _) = part {
                    used += bytes;
                    for op in frame.ops() {
                        let (key, length) = match op.op {
                            Op::Put { key, value, .. } => (key, value.len() as u64),
                            Op::Delete { key } => (key, 0),
                            Op::Compact { .. } => continue,
                        };
                        if let Ok(Key::User(key)) = Key::decode(key) {
                            raw.note(label(key), key, length, frame.revision > flushed);
                        }
                    }
                }
                step(Ok(())).map(|_| ())
            })
        })?;
        self.take(raw, used, Place::Log);
        Ok(())
    }
}

/// What keys take in the log, told apart by `label`, and how often one was given up, so that what is told of some may
/// be too little.
pub(crate) fn of_log(
    files: &StoreFiles,
    label: &dyn Fn(&[u8]) -> Option<&[u8]>,
) -> Outcome<(HashMap<Vec<u8>, Takes>, u64)> {
    let mut census = Census::new(label);
    for name in logs(files) {
        census.log(files, name.number)?;
    }
    Ok((census.keys, census.given_up))
}

/// The keys that take most.
pub(crate) fn by_key(global: &Global, args: &SpaceArgs, out: &mut Output) -> Outcome {
    let files = crate::files::open(global)?;
    let prefix = args.prefix.as_deref().map(bytes::of_arg).unwrap_or_default();
    let label: &dyn Fn(&[u8]) -> Option<&[u8]> = &|key| key.starts_with(&prefix).then_some(key);
    let mut census = Census::new(label);
    let all = files.manifest().files.iter().map(|meta| meta.bytes).sum();
    let mut progress = Progress::new(Some(all), "bytes");
    let mut done = 0;
    for name in logs(&files) {
        census.log(&files, name.number)?;
    }
    for meta in &files.manifest().files {
        census.segment(&files, meta)?;
        done += meta.bytes;
        progress.set(done, || Cow::Borrowed("read"));
    }
    drop(progress);
    let count = census.keys.len() as u64 + census.given_up;
    let mut keys: Vec<(Vec<u8>, Takes)> = census.keys.into_iter().collect();
    keys.sort_by(|(a, one), (b, other)| other.all().cmp(&one.all()).then_with(|| a.cmp(b)));
    let top =
        if args.top == 0 { usize::MAX } else { usize::try_from(args.top).unwrap_or(usize::MAX) };
    let table = out.format() == Format::Table;
    let mut rows = out.rows("keys");
    for (key, takes) in keys.iter().take(top) {
        let [live, history, events, log] = takes.bytes;
        if table {
            rows.push(&ShownRow(json!({
                "key": spell(key), "bytes": human(takes.all()), "live": human(live),
                "history": human(history), "events": human(events), "log": human(log),
                "versions": takes.versions,
            })))?;
        } else {
            rows.push(&KeyRow(json!({
                "key": spell(key), "bytes": takes.all(), "live_bytes": live, "history_bytes": history,
                "event_bytes": events, "log_bytes": log, "versions": takes.versions,
            })))?;
        }
    }
    rows.cut(keys.iter().skip(top).map(Ok::<_, Infallible>));
    rows.finish(&[("all_keys", json!(count)), ("given_up", json!(census.given_up))])?;
    if census.given_up > 0 {
        out.note("there are too many keys to count each: what is told of one may be too little")?;
    }
    Ok(())
}
