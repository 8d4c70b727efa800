//! What the page is about, as figures.

use annals::{Latency, Space, SpaceOptions, Stats};
use annals_format::{FileKind, FileMeta};
use jiff::Timestamp;

use crate::args::Global;
use crate::at::rfc3339;
use crate::exit::Outcome;
use crate::live::Live;

/// Prefixes that are named.
const PREFIXES: usize = 16;

/// Keys whose number of versions is looked at.
const KEYS_MAX: u64 = 100_000;

/// All that is shown.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The directory.
    pub(crate) store: String,
    /// Its identity.
    pub(crate) id: String,
    /// When this was gathered.
    pub(crate) made: String,
    /// When the newest revision was made.
    pub(crate) newest: Option<String>,
    /// Keys that are alive, where they can be counted.
    pub(crate) keys: Option<u64>,
    /// The length of all files.
    pub(crate) disk_bytes: u64,
    pub(crate) stats: Stats,
    pub(crate) space: Space,
    /// How many living keys have been written so often since they were created: 1, 2, 3 to 4, 5 to 8 ...
    pub(crate) versions: Vec<u64>,
    /// Of how many keys.
    pub(crate) looked_at: u64,
    pub(crate) files: Vec<File>,
    /// How long commits and syncs take, or why that is not known.
    pub(crate) latency: Result<(Latency, Latency), String>,
    /// Damage because of which something could not be told.
    pub(crate) damage: Vec<String>,
}

/// A segment file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    pub(crate) kind: FileKind,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    /// The first and the last revision of what it holds; of superseded versions, when they were.
    pub(crate) span: (u64, u64),
}

impl Facts {
    /// Looks at a store.
    pub(crate) fn gather(global: &Global, depth: usize) -> Outcome<Self> {
        let path = global.data()?;
        let store = global.read()?;
        let view = store.latest()?;
        let mut damage = Vec::new();
        let newest = store.log(view.revision()..=view.revision()).next().transpose();
        let newest = unless_damaged(newest, &mut damage)?;
        let newest = newest.map(|transaction| seconds(transaction.time));
        let (mut versions, mut looked_at) = (Vec::new(), 0);
        let mut keys = view.range(..).keys_only().limit(KEYS_MAX);
        let looked = keys.try_for_each(|kv| {
            count_version(&mut versions, kv?.version);
            looked_at += 1;
            Ok(())
        });
        unless_damaged(looked, &mut damage)?;
        let keys = unless_damaged(view.count(..).map(Some), &mut damage)?;
        let space = store.space(SpaceOptions::new().depth(depth).top(PREFIXES));
        let space = unless_damaged(space, &mut damage)?;
        let files = crate::files::open(global)?;
        let live = Live::read(path);
        Ok(Self {
            store: path.display().to_string(),
            id: files.manifest().store.to_string(),
            made: seconds(Timestamp::now().as_microsecond()),
            newest,
            keys,
            disk_bytes: crate::files::disk_bytes(&files),
            space,
            versions,
            looked_at,
            files: files
                .manifest()
                .files
                .iter()
                .map(|meta| File::of(meta, view.revision()))
                .collect(),
            latency: live
                .map(|live| (live.latency("commit_latency"), live.latency("sync_latency"))),
            stats: store.stats(),
            damage,
        })
    }
}

/// What was found, or nothing where damage is in the way, which is noted.
fn unless_damaged<T: Default>(found: annals::Result<T>, damage: &mut Vec<String>) -> Outcome<T> {
    match found {
        Err(error) if error.corruption().is_some() => {
            let said = error.to_string();
            if !damage.contains(&said) {
                damage.push(said);
            }
            Ok(T::default())
        }
        found => Ok(found?),
    }
}

/// A time without what is less than a second.
pub(super) fn seconds(micros: i64) -> String {
    rfc3339(micros.div_euclid(1_000_000).saturating_mul(1_000_000))
        .replace('T', " ")
        .replace('Z', " UTC")
}

/// Counts a key that was written so often.
pub(super) fn count_version(versions: &mut Vec<u64>, version: u64) {
    let class = version.max(1).next_power_of_two().trailing_zeros() as usize;
    if versions.len() <= class {
        versions.resize(class + 1, 0);
    }
    if let Some(count) = versions.get_mut(class) {
        *count += 1;
    }
}

impl File {
    /// As the manifest says; numbers of system keys, which are no revisions, end at the newest.
    pub(super) fn of(meta: &FileMeta, newest: u64) -> Self {
        let (from, upto) = match meta.kind {
            FileKind::History => (meta.death_after + 1, meta.death_upto),
            _ => (meta.min_revision, meta.max_revision),
        };
        let upto = upto.min(newest);
        let span = (from.clamp(1, upto.max(1)), upto.max(1));
        Self { kind: meta.kind, number: meta.number, bytes: meta.bytes, span }
    }
}
