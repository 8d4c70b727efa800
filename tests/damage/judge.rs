//! Looks at a damaged store from all sides: `check`, opening, every read, background work.

use std::path::{Path, PathBuf};

use annals::vfs::MemoryVfs;
use annals::{CheckReport, Corruption, Error, ErrorKind, Store};

use crate::alive::{background, goes_on};
use crate::heap;
use crate::made::{Expected, LEASE, Made, options};
use crate::support::DIRECTORY;
use crate::support::check::{same, which};

/// What came of a damage that was not answered wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// The store did not open.
    RefusedToOpen,
    /// The store opened, and some reads were refused.
    RefusedToRead,
    /// No read met the damage; `verify` found it.
    Unnoticed,
    /// The end of the log was taken for a write cut off by a kill, and reported as such.
    DroppedAndReported,
    /// The same, and what came behind that reads as never written, too.
    EndDroppedAndReported,
    /// Everything behind a batch of the log reads as never written, as if the store had been killed before: no
    /// file could tell the difference.
    NeverWritten,
}

/// How thoroughly one case is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// `check`, opening for reading, and every read.
    Look,
    /// `check`, opening for writing, and every read.
    Open,
    /// Then all background work there is, and every read again.
    Background,
}

/// What was found.
#[derive(Debug)]
pub struct Outcome {
    pub fate: Fate,
    /// What `check` says; nothing if it refuses the directory as no store.
    pub report: Option<CheckReport>,
    /// The most memory that was in use at once, of what the judgement took.
    pub peak: usize,
}

/// What a damaged store may answer instead of the truth. Damage to a version is damage, not a newer
/// format: every checksum is compared before the version that it covers.
pub fn is_refusal(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Corrupt(_) | ErrorKind::NotAStore { .. } | ErrorKind::NoStore { .. }
    )
}

/// What `check` says; `None` if it refuses the directory as no store.
pub fn verify(disk: &MemoryVfs) -> Result<Option<CheckReport>, String> {
    match annals::check(Path::new(DIRECTORY), &options(disk), &mut |_, _| {}) {
        Ok(report) => match report.unchecked.first() {
            Some(unchecked) => Err(format!("verify does not check: {unchecked}")),
            None => Ok(Some(report)),
        },
        Err(error) if is_refusal(&error) => Ok(None),
        Err(error) => Err(format!("verify ends with {error}")),
    }
}

/// Judges a store that must be found damaged.
pub fn judge(disk: &MemoryVfs, made: &Made, depth: Depth) -> Result<Outcome, String> {
    heap::begin();
    let report = verify(disk)?;
    let torn = report.as_ref().is_some_and(|report| report.torn.is_some());
    let fate = match &report {
        Some(report) if report.damage.is_empty() && torn => dropped(disk, made)?,
        Some(report) if report.damage.is_empty() => earlier(disk, made)?,
        // The same beside another damage: the rest is as it was before the last batch.
        Some(_) if torn => {
            let mut model = made.model.clone();
            model.cut(model.len() - 1);
            fate(disk, &Expected::of(&model, made.expected.rules.clone()), depth)?
        }
        _ => fate(disk, &made.expected, depth)?,
    };
    let peak = heap::peak();
    Ok(Outcome { fate, report, peak })
}

/// In a killed store a sector that reads as never written can look like a write cut off by the kill. Then the
/// very last batch, and nothing else, is dropped, and both `verify` and opening say so. If all that came behind it
/// reads as never written, it looks the same, and says so.
fn dropped(disk: &MemoryVfs, made: &Made) -> Result<Fate, String> {
    let store = options(disk).open(Path::new(DIRECTORY));
    let store = store.map_err(|error| format!("verify says torn, open says {error}"))?;
    if store.open_report().dropped.is_none() {
        return Err("verify says torn, open does not".into());
    }
    let all_but_one = made.model.len() - 1;
    match recovered(&store, made)? {
        changes if changes == all_but_one => Ok(Fate::DroppedAndReported),
        changes if changes < all_but_one => Ok(Fate::EndDroppedAndReported),
        _ => Err("what was dropped is there".into()),
    }
}

/// Nothing is reported. In a store that was killed that may be, if its log ends earlier than it did: then it is a
/// state that there was, and whole. No other damage has a case for that.
fn earlier(disk: &MemoryVfs, made: &Made) -> Result<Fate, String> {
    if made.closed || disk.paths() != made.disk.paths() {
        return Err("verify reports nothing".into());
    }
    let store = options(disk).open(Path::new(DIRECTORY));
    let store = store.map_err(|error| format!("verify reports nothing, open says {error}"))?;
    let changes = recovered(&store, made)?;
    if changes == made.model.len() {
        return Err("verify reports nothing".into());
    }
    Ok(Fate::NeverWritten)
}

/// Finds which state of the model a store is in, by the number of changes, and reads all of it.
fn recovered(store: &Store, made: &Made) -> Result<usize, String> {
    let changes = which(store, &made.model, 0..=made.model.len())?;
    let mut model = made.model.clone();
    model.cut(changes);
    match read_all(store, &Expected::of(&model, made.expected.rules.clone()))? {
        0 => Ok(changes),
        refused => Err(format!("{refused} reads are refused")),
    }
}

fn fate(disk: &MemoryVfs, expected: &Expected, depth: Depth) -> Result<Fate, String> {
    let options = options(disk);
    let opened = if depth == Depth::Look {
        Store::open_read_only_with(DIRECTORY, &options)
    } else {
        options.open(Path::new(DIRECTORY))
    };
    let store = match opened {
        Ok(store) => store,
        Err(error) if is_refusal(&error) => return Ok(Fate::RefusedToOpen),
        Err(error) => return Err(format!("open ends with {error}")),
    };
    let mut refused = read_all(&store, expected)?;
    if depth == Depth::Background {
        // Background work must not turn damage into something that looks sound.
        background(&store)?;
        refused += read_all(&store, expected)?;
        goes_on(store, disk, expected)?;
    }
    Ok(if refused > 0 { Fate::RefusedToRead } else { Fate::Unnoticed })
}

/// Reads everything; returns how many reads were refused.
pub fn read_all(store: &Store, expected: &Expected) -> Result<u64, String> {
    let mut refused = 0;
    let mut is = |what: &str, error: &Error| {
        refused += 1;
        if is_refusal(error) { Ok(()) } else { Err(format!("{what} ends with {error}")) }
    };
    same(|| "revision".into(), &store.revision(), &expected.revision)?;
    same(|| "compacted".into(), &store.compacted_revision(), &expected.compacted)?;
    same(|| "rules".into(), &store.retention(), &expected.rules)?;
    for (revision, state) in &expected.states {
        let view = store.at(*revision).map_err(|error| format!("view: {error}"))?;
        let mut wanted = state.iter();
        for found in view.range(..) {
            match found {
                Ok(found) => same(|| format!("scan at {revision}"), &Some(&found), &wanted.next())?,
                Err(error) => {
                    is("scan", &error)?;
                    wanted = [].iter();
                    break;
                }
            }
        }
        same(|| format!("end of scan at {revision}"), &wanted.next(), &None)?;
        for kv in state {
            match view.get(&kv.key) {
                Ok(found) => same(|| format!("get at {revision}"), &found.as_ref(), &Some(kv))?,
                Err(error) => is("get", &error)?,
            }
        }
        match view.count(..) {
            Ok(count) => same(|| format!("count at {revision}"), &count, &(state.len() as u64))?,
            Err(error) => is("count", &error)?,
        }
    }
    for (key, versions) in &expected.histories {
        match store.history(key).collect::<annals::Result<Vec<_>>>() {
            Ok(found) => same(|| format!("history of {key:?}"), &found, versions)?,
            Err(error) => is("history", &error)?,
        }
    }
    match store.log(..).with_values().collect::<annals::Result<Vec<_>>>() {
        Ok(found) => same(|| "log".into(), &found, &expected.log)?,
        Err(error) => is("log", &error)?,
    }
    match store.lease_list() {
        Ok(found) => {
            let found: Vec<(i64, i64)> = found.iter().map(|lease| (lease.id, lease.ttl)).collect();
            same(|| "leases".into(), &found, &expected.leases)?;
        }
        Err(error) => is("leases", &error)?,
    }
    match store.lease_info(LEASE, true) {
        Ok(found) => {
            let found = found.map(|lease| lease.keys);
            same(|| "lease".into(), &found, &Some(expected.attached.clone()))?;
        }
        Err(error) => is("lease", &error)?,
    }
    Ok(refused)
}

/// What lies at a place of a file that was damaged.
#[derive(Clone, Debug)]
pub struct Hit {
    pub path: String,
    /// The structure with a checksum of its own that the damage is in.
    pub span: std::ops::Range<u64>,
}

impl Hit {
    /// Sees to it that `verify` names the file, the structure, and for a segment the revisions, and no other file.
    pub fn check(&self, outcome: &Outcome) -> Result<(), String> {
        let Some(report) = &outcome.report else {
            return Err(format!("verify refuses the directory, and does not name {}", self.path));
        };
        let path = PathBuf::from(&self.path);
        if let Some(other) = report.damage.iter().find(|damage| damage.file != path) {
            return Err(format!("verify names another file: {other}"));
        }
        let is_there = |damage: &&Corruption| self.span.contains(&damage.offset);
        let Some(damage) = report.damage.iter().find(is_there) else {
            return Err(format!("verify names no place in {:?}: {:?}", self.span, report.damage));
        };
        let is_segment = self.path.contains("/seg/");
        let known = damage.revision.is_some() && damage.revision_upto.is_some();
        if is_segment && !known {
            return Err(format!("verify does not say which revisions: {damage}"));
        }
        Ok(())
    }
}
