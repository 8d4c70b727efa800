//! What has to be known of the file before a store is begun, and what becomes of the changes of one key.

use std::collections::BTreeMap;
use std::fs::File;

use annals::{Change, ChangeKind};
use annals_etcd_files::{Snapshot, Version};
use bytes::Bytes;

use crate::exit::Failure;

use super::Stop;

/// What a transaction does with a key: etcd lets a nested transaction change a key again.
#[derive(Clone, Copy, Debug)]
struct Fate {
    /// Its last change, counted over the transaction.
    last: usize,
    /// The first change made the key.
    made: bool,
    /// The last change deletes it.
    deleted: bool,
}

/// What a transaction does with its keys.
#[derive(Debug, Default)]
struct Fates {
    keys: BTreeMap<Bytes, Fate>,
    changes: usize,
}

impl Fates {
    /// Adds the next change.
    fn add(&mut self, key: Bytes, made: bool, deleted: bool) {
        let last = self.changes;
        let fate = self.keys.entry(key).or_insert(Fate { last, made, deleted });
        (fate.last, fate.deleted) = (last, deleted);
        self.changes += 1;
    }

    /// Whether a change is what is left of those of its key. Of one that was made and deleted nothing is.
    fn is_left(&self, key: &Bytes, at: usize) -> bool {
        self.keys.get(key).is_some_and(|fate| fate.last == at && !(fate.made && fate.deleted))
    }

    /// Whether anything is left.
    fn is_any_left(&self) -> bool {
        self.keys.values().any(|fate| !(fate.made && fate.deleted))
    }
}

/// The changes of a transaction, of each key the last; and how many changed a key again.
pub(super) fn once_each(revision: u64, mut changes: Vec<Change>) -> (Vec<Change>, u64) {
    let mut fates = Fates::default();
    for change in &changes {
        let put = change.kind == ChangeKind::Put;
        fates.add(change.key.clone(), put && change.create_revision == revision, !put);
    }
    let again = (changes.len() - fates.keys.len()) as u64;
    let mut at = 0..;
    changes.retain(|change| at.next().is_some_and(|at| fates.is_left(&change.key, at)));
    for (sub, change) in (0..).zip(&mut changes) {
        change.sub = sub;
    }
    (changes, again)
}

/// The revision to compact to so that all after it are there.
pub(super) fn above_gaps(snapshot: &Snapshot<File>) -> Result<u64, Stop> {
    let mut survey = Survey { compacted: snapshot.compacted(), ..Survey::default() };
    survey.before = survey.compacted.max(1);
    let mut last = survey.before;
    snapshot.entries::<annals_etcd_files::Error>(|entry| {
        last = last.max(entry.main);
        if entry.main != survey.revision {
            survey.settle();
            survey.revision = entry.main;
        }
        if let Some(version) = entry.version.filter(|_| entry.main > survey.before) {
            let (made, deleted) = match &version {
                Version::Put(kv) => (kv.create_revision == entry.main, false),
                Version::Delete { .. } => (false, true),
            };
            survey.fates.add(Bytes::copy_from_slice(version.key()), made, deleted);
        }
        Ok(())
    })?;
    survey.settle();
    Ok(if last > survey.before { last } else { survey.compacted })
}

/// How far [`above_gaps`] has come.
#[derive(Default)]
struct Survey {
    compacted: u64,
    /// The newest revision that changes something.
    before: u64,
    /// The transaction that is being read.
    revision: u64,
    fates: Fates,
}

impl Survey {
    /// Ends a transaction.
    fn settle(&mut self) {
        if self.fates.is_any_left() {
            if self.revision > self.before + 1 {
                self.compacted = self.revision - 1;
            }
            self.before = self.revision;
        }
        self.fates = Fates::default();
    }
}

/// Refuses a key to fill with that is in the file.
pub(super) fn without(snapshot: &Snapshot<File>, key: &[u8]) -> Result<(), Stop> {
    snapshot.entries::<Stop>(|entry| match entry.version {
        Some(version) if version.key() == key => {
            let key = key.escape_ascii();
            let revision = entry.main;
            Err(Stop::Failure(Failure::Usage(format!(
                "--gaps fill={key}: the file has this key, at revision {revision}; give one that it never has"
            ))))
        }
        _ => Ok(()),
    })
}
