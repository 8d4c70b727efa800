//! What a store should answer: a map of version vectors, in the plainest way.

use std::collections::{BTreeMap, BTreeSet};

/// A write: a value and a lease, or a delete.
pub(crate) type Write = (Vec<u8>, Option<(Vec<u8>, i64)>);

/// One version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) revision: u64,
    pub(crate) create: u64,
    pub(crate) version: u64,
    pub(crate) lease: i64,
    /// `None`: deleted.
    pub(crate) value: Option<Vec<u8>>,
}

/// The store.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    versions: BTreeMap<Vec<u8>, Vec<Version>>,
    pub(crate) revision: u64,
    pub(crate) compacted: u64,
    pub(crate) leases: BTreeSet<i64>,
}

impl Model {
    pub(crate) fn new() -> Self {
        let (versions, leases) = Default::default();
        Self { versions, revision: 1, compacted: 0, leases }
    }

    /// One transaction that changes something; deletes are of keys that are alive.
    pub(crate) fn write(&mut self, writes: &[Write]) -> u64 {
        self.revision += 1;
        for (key, put) in writes {
            let newest = self.newest(key).cloned();
            let versions = self.versions.entry(key.clone()).or_default();
            let revision = self.revision;
            versions.push(match put {
                Some((value, lease)) => Version {
                    revision,
                    create: newest.as_ref().map_or(revision, |newest| newest.create),
                    version: newest.map_or(1, |newest| newest.version + 1),
                    lease: *lease,
                    value: Some(value.clone()),
                },
                None => Version { revision, create: 0, version: 0, lease: 0, value: None },
            });
        }
        self.revision
    }

    /// The newest version of a key that is alive.
    pub(crate) fn newest(&self, key: &[u8]) -> Option<&Version> {
        self.at(key, self.revision)
    }

    /// The version of a key that was alive at a revision.
    pub(crate) fn at(&self, key: &[u8], revision: u64) -> Option<&Version> {
        let versions = self.versions.get(key)?;
        let found = versions.iter().rev().find(|version| version.revision <= revision)?;
        found.value.as_ref().map(|_| found)
    }

    /// The keys alive at a revision, in order, from `start` up to but excluding `end`.
    pub(crate) fn scan(&self, start: &[u8], end: &[u8], revision: u64) -> Vec<(Vec<u8>, &Version)> {
        let keys =
            self.versions.keys().filter(|key| start <= key.as_slice() && key.as_slice() < end);
        keys.filter_map(|key| Some((key.clone(), self.at(key, revision)?))).collect()
    }

    /// What is left of a key's history, newest first.
    pub(crate) fn history(&self, key: &[u8]) -> Vec<&Version> {
        let mut left = Vec::new();
        for version in self.versions.get(key).into_iter().flatten().rev() {
            let gone = version.value.is_none() && version.revision < self.compacted;
            if version.revision <= self.compacted {
                if !gone {
                    left.push(version);
                }
                break;
            }
            left.push(version);
        }
        left
    }

    /// The keys attached to a lease, in order.
    pub(crate) fn attached(&self, lease: i64) -> Vec<Vec<u8>> {
        let keys = self.versions.keys();
        keys.filter(|key| self.newest(key).is_some_and(|v| v.lease == lease)).cloned().collect()
    }

    /// Every key there ever was.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        self.versions.keys().cloned().collect()
    }

    /// A crash took back everything after `revision`.
    pub(crate) fn take_back(&mut self, revision: u64) {
        self.revision = revision;
        for versions in self.versions.values_mut() {
            versions.retain(|version| version.revision <= revision);
        }
        self.versions.retain(|_, versions| !versions.is_empty());
    }
}
