//! The naive model: every version of every key in a map, and what a store must answer from it.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::{Difference, Engine, HistoryRecord, Record, Scope, View};
use crate::ErrorKind;

/// One version.
#[derive(Clone, Debug)]
pub(super) struct Version {
    revision: u64,
    sub: u32,
    /// `None`: a tombstone.
    value: Option<Bytes>,
    create_revision: u64,
    #[expect(clippy::struct_field_names, reason = "etcd's word for the number")]
    version: u64,
}

/// All versions ever written.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) keys: BTreeMap<Bytes, Vec<Version>>,
    /// What each revision changed, from revision 2 on: keys, in order.
    pub(super) log: Vec<Vec<Bytes>>,
    pub(super) compacted: u64,
}

impl Model {
    pub(super) fn revision(&self) -> u64 {
        self.log.len() as u64 + 1
    }

    /// The keys ever written.
    pub(super) fn keys(&self) -> Vec<Bytes> {
        self.keys.keys().cloned().collect()
    }

    pub(super) fn lives(&self, key: &Bytes) -> bool {
        self.at(key, u64::MAX).is_some_and(|version| version.value.is_some())
    }

    /// One transaction.
    pub(super) fn commit(&mut self, changes: &[(Bytes, Option<Bytes>)]) {
        let revision = self.revision() + 1;
        for (sub, (key, value)) in (0..).zip(changes) {
            let versions = self.keys.entry(key.clone()).or_default();
            let alive = versions.last().filter(|last| last.value.is_some());
            let (create_revision, version) = match (value, alive) {
                (None, _) => (0, 0),
                (Some(_), Some(last)) => (last.create_revision, last.version + 1),
                (Some(_), None) => (revision, 1),
            };
            let value = value.clone();
            versions.push(Version { revision, sub, value, create_revision, version });
        }
        self.log.push(changes.iter().map(|(key, _)| key.clone()).collect());
    }

    /// The model as it was at a revision.
    pub(super) fn truncated(&self, revision: u64) -> Self {
        let mut model = self.clone();
        model.log.truncate(usize::try_from(revision - 1).unwrap());
        for versions in model.keys.values_mut() {
            versions.retain(|version| version.revision <= revision);
        }
        model.keys.retain(|_, versions| !versions.is_empty());
        model
    }

    fn at(&self, key: &Bytes, revision: u64) -> Option<&Version> {
        self.keys.get(key)?.iter().rev().find(|version| version.revision <= revision)
    }

    fn record(&self, key: &Bytes, revision: u64) -> Option<Record> {
        let version = self.at(key, revision)?;
        version.value.as_ref().map(|_| record(key, version))
    }

    fn scan(&self, start: &Bytes, end: &Bytes, revision: u64) -> Vec<Record> {
        let keys = self.keys.range(start.clone()..);
        let keys = keys.take_while(|(key, _)| end.is_empty() || *key < end);
        keys.filter_map(|(key, _)| self.record(key, revision)).collect()
    }

    fn history(&self, key: &Bytes, revision: u64, watermark: u64) -> Vec<HistoryRecord> {
        let Some(versions) = self.keys.get(key) else { return Vec::new() };
        let mut found = Vec::new();
        for version in versions.iter().rev().filter(|version| version.revision <= revision) {
            let tombstone = version.value.is_none();
            if version.revision < watermark && tombstone {
                break;
            }
            found.push(HistoryRecord { record: record(key, version), tombstone });
            if version.revision <= watermark {
                break;
            }
        }
        found
    }

    /// Checks that the store answers as the model does, for everything about a few revisions.
    pub(super) fn check(&self, engine: &Engine, revisions: &[u64]) {
        assert_eq!(engine.revision(), self.revision());
        assert_eq!(engine.compacted_revision(), self.compacted);
        for &revision in revisions {
            if revision < self.compacted {
                let error = engine.view(revision).unwrap_err();
                let expected = (revision, self.compacted);
                match *error.kind() {
                    ErrorKind::Compacted { requested, compacted, .. } => {
                        assert_eq!((requested, compacted), expected);
                    }
                    _ => panic!("{error}"),
                }
                continue;
            }
            self.check_view(&engine.view(revision).unwrap());
        }
        self.check_log(engine);
    }

    /// Checks that a view answers as the model does.
    pub(super) fn check_view(&self, view: &View) {
        let revision = view.revision();
        let mut absent = b"\x01absent".to_vec();
        absent.extend_from_slice(&revision.to_be_bytes());
        for key in self.keys.keys().chain([&Bytes::from(absent)]) {
            let expected = self.record(key, revision);
            assert_eq!(view.get(key).unwrap(), expected, "get {key:?} at {revision}");
            if revision == self.revision() {
                // Only of a tombstone nobody can ask for any more is it unknown whether it is there.
                let seen = view.newest(key).unwrap().map_or(0, |stub| stub.revision);
                let newest = self.at(key, revision);
                let forgotten = newest
                    .is_some_and(|v| v.value.is_none() && v.revision < self.compacted)
                    && seen == 0;
                assert!(seen == newest.map_or(0, |v| v.revision) || forgotten, "seen {key:?}");
            }
            let watermark = self.compacted.min(revision);
            let expected = self.history(key, revision, watermark);
            let found: Vec<_> = view.history(key, false).map(Result::unwrap).collect();
            assert_eq!(found, expected, "history {key:?} at {revision} above {watermark}");
        }
        self.check_scans(view);
    }

    /// Checks how many keys live between two keys, which need not be there.
    pub(super) fn check_count(&self, view: &View, start: &Bytes, end: &Bytes) {
        let revision = view.revision();
        let expected = self.scan(start, end, revision).len() as u64;
        let found = view.count(start, end).unwrap();
        assert_eq!(found, expected, "count {start:?}..{end:?} at {revision}");
    }

    fn check_scans(&self, view: &View) {
        let revision = view.revision();
        let keys = self.keys();
        let middle = keys.get(keys.len() / 2).cloned().unwrap_or_default();
        let (first, none) = (Bytes::from_static(b"\x01"), Bytes::new());
        for (start, end) in [(&first, &none), (&first, &middle), (&middle, &none)] {
            if start.is_empty() {
                continue;
            }
            let expected = self.scan(start, end, revision);
            let found: Vec<_> = view.scan(start, end, false).map(Result::unwrap).collect();
            assert_eq!(found, expected, "scan {start:?}..{end:?} at {revision}");
            self.check_count(view, start, end);
            let mut found: Vec<_> =
                view.scan(start, end, false).rev().map(Result::unwrap).collect();
            found.reverse();
            assert_eq!(found, expected, "reverse scan {start:?}..{end:?} at {revision}");
            // From both ends in turn, keys only.
            let mut scan = view.scan(start, end, true);
            let (mut front, mut back) = (Vec::new(), Vec::new());
            while let Some(record) = scan.next() {
                front.push(record.unwrap());
                for _ in 0..2 {
                    back.extend(scan.next_back().map(Result::unwrap));
                }
            }
            assert!(scan.next_back().is_none());
            front.extend(back.into_iter().rev());
            let keys = expected.into_iter().map(|r| Record { value: Bytes::new(), ..r });
            assert_eq!(front, keys.collect::<Vec<_>>(), "scan from both ends at {revision}");
        }
    }

    /// Checks the differences between two revisions.
    pub(super) fn check_diff(&self, engine: &Engine, from: u64, to: u64) {
        let view = engine.view(to).unwrap();
        let found: Vec<_> = view.diff(from, b"\x01", b"").unwrap().map(Result::unwrap).collect();
        let mut expected = Vec::new();
        for key in self.keys.keys() {
            let (old, new) = (self.record(key, from), self.record(key, to));
            if old.as_ref().map(|r| r.mod_revision) != new.as_ref().map(|r| r.mod_revision) {
                expected.push(Difference { key: key.clone(), old, new });
            }
        }
        assert_eq!(found, expected, "diff {from}..{to}");
    }

    fn check_log(&self, engine: &Engine) {
        let from = self.compacted.max(2);
        let mut next = from;
        let mut log = engine.log(from, u64::MAX, Scope::All).unwrap();
        log.with_values();
        for transaction in log {
            let transaction = transaction.unwrap();
            assert_eq!(transaction.revision, next);
            let keys = &self.log[usize::try_from(next - 2).unwrap()];
            let internal = |key: &[u8]| Bytes::from(annals_format::space::Key::User(key).encode());
            let found = transaction.events.iter().map(|event| internal(&event.key));
            assert_eq!(found.collect::<Vec<_>>(), *keys, "log at {next}");
            let as_of = engine.view(next).unwrap();
            for event in &transaction.events {
                let key = internal(&event.key);
                let version = self.at(&key, next).unwrap();
                if let Some(value) = event.value.as_ref().filter(|_| !event.delete) {
                    assert_eq!(Some(value), version.value.as_ref());
                }
                assert_eq!(event.delete, version.value.is_none());
                assert_eq!(
                    (event.sub, event.create_revision, event.version),
                    (version.sub, version.create_revision, version.version)
                );
                // The values before and after an event, also of those at the watermark.
                let previous = as_of.previous(&key).unwrap();
                assert_eq!(previous, self.record(&key, next - 1), "before {next}");
            }
            next += 1;
        }
        assert_eq!(next, self.revision() + 1);
    }
}

fn record(key: &Bytes, version: &Version) -> Record {
    Record {
        key: key.clone(),
        value: version.value.clone().unwrap_or_default(),
        create_revision: version.create_revision,
        mod_revision: version.revision,
        sub: version.sub,
        version: version.version,
        lease: 0,
    }
}
