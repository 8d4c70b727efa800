//! Operations against a model: puts, deletes, compare-and-swaps, transactions, ranges, leases,
//! compaction, background work, reopening and crashing, on a simulated disk.
//!
//! After every operation its answer is what the model says; now and then everything is compared. A
//! crash leaves a prefix that holds everything acknowledged as durable.

use std::time::Duration;

use annals::vfs::{CrashMode, MemoryVfs};
use annals::{
    DeleteRangeRequest, Diff, Durability, ErrorKind, KeyValue, PutRequest, Store, delete, get,
    mod_revision, put,
};

use crate::dir::{self, DIR};
use crate::input::Input;
use crate::model::{Model, Version, Write};

/// Operations of one input.
const STEPS_MAX: usize = 300;

/// Flags of the first byte: how the store acknowledges.
const BUFFERED: u8 = 2;
/// Larger values, so that memtables fill.
const LARGE: u8 = 4;

/// Bytes as operations. Always true: every input means something.
pub(crate) fn against_model(data: &[u8]) -> bool {
    let mut input = Input(data);
    let flags = input.byte();
    let mut run = Run::new(flags);
    run.steps(&mut input, STEPS_MAX);
    run.check_everything();
    run.reopen();
    run.check_everything();
    true
}

/// A store and what it should hold.
pub(crate) struct Run {
    disk: MemoryVfs,
    store: Store,
    model: Model,
    flags: u8,
    /// Everything up to here was acknowledged as durable.
    durable: u64,
    /// A number no value had before.
    fresh: u64,
    has_lost: bool,
}

const KEYS: u64 = 24;

impl Run {
    pub(crate) fn new(flags: u8) -> Self {
        let disk = MemoryVfs::new();
        let store = open(&disk, flags);
        Self { disk, store, model: Model::new(), flags, durable: 1, fresh: 0, has_lost: false }
    }

    /// So many operations at most.
    pub(crate) fn steps(&mut self, input: &mut Input<'_>, most: usize) {
        for _ in 0..most {
            if input.is_empty() {
                break;
            }
            self.step(input);
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn disk(&self) -> &MemoryVfs {
        &self.disk
    }

    /// Whether a crash has taken back what nobody was told is durable.
    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost
    }

    fn is_buffered(&self) -> bool {
        self.flags & BUFFERED != 0
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(20) {
            0..=4 => self.put(input),
            5 => self.delete(input),
            6 => self.compare_and_swap(input),
            7 => self.delete_range(input),
            8 => self.transaction(input),
            9 => self.tickets(input),
            10 => self.check_get(input),
            11 => self.check_scan(input),
            12 => self.check_history(input),
            13 => self.compact(input),
            14 => self.background(input),
            15 => self.reopen(),
            16 => self.crash(input),
            17 => self.lease(input),
            18 => self.check_diff(input),
            _ => self.check_everything(),
        }
    }

    fn key(input: &mut Input<'_>) -> Vec<u8> {
        let number = input.below(KEYS);
        // Some keys are prefixes of others, one is long.
        match number {
            0 => b"k".to_vec(),
            1 => [b"k".as_slice(), &[b'x'; 300]].concat(),
            2 => vec![0xff, 0xff],
            3 => vec![0],
            number => format!("k/{number}").into_bytes(),
        }
    }

    fn value(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        self.fresh += 1;
        let most = if self.flags & LARGE != 0 { 16 } else { 1 };
        let length = usize::from(input.byte()) * most;
        let mut value = self.fresh.to_be_bytes().to_vec();
        value.resize(value.len() + length, input.byte());
        value
    }

    /// A commit was acknowledged.
    fn acknowledged(&mut self, revision: u64) {
        assert_eq!(revision, self.model.revision, "revisions are dense");
        if !self.is_buffered() {
            self.durable = revision;
        }
        assert_eq!(self.store.revision(), revision);
    }

    fn put(&mut self, input: &mut Input<'_>) {
        let (key, value) = (Self::key(input), self.value(input));
        let before = self.model.newest(&key).cloned();
        let answer = self.store.put_with(PutRequest::new(&key, &value).prev_kv()).expect("a put");
        same(answer.prev_kv.as_ref(), before.as_ref(), &key);
        self.model.write(&[(key, Some((value, 0)))]);
        self.acknowledged(answer.revision);
    }

    fn delete(&mut self, input: &mut Input<'_>) {
        let key = Self::key(input);
        let alive = self.model.newest(&key).is_some();
        let answer = self.store.delete(&key).expect("a delete");
        if alive {
            self.model.write(&[(key, None)]);
            self.acknowledged(answer.revision);
        } else {
            assert_eq!(answer.revision, self.model.revision);
        }
    }

    fn compare_and_swap(&mut self, input: &mut Input<'_>) {
        let (key, value) = (Self::key(input), self.value(input));
        let newest = self.model.newest(&key).map_or(0, |version| version.revision);
        let seen = if input.below(4) == 0 { newest.wrapping_add(1) } else { newest };
        let txn = self.store.txn().when([mod_revision(&key).eq(seen)]);
        let answer = txn.then([put(&key, &value)]).or_else([get(&key)]).commit().expect("a txn");
        assert_eq!(answer.succeeded, seen == newest);
        if answer.succeeded {
            self.model.write(&[(key, Some((value, 0)))]);
            self.acknowledged(answer.revision);
        } else {
            assert_eq!(answer.revision, self.model.revision);
            let kvs = answer.responses.first().map(annals::OpResponse::kvs).unwrap_or_default();
            same(kvs.first(), self.model.newest(&key), &key);
        }
    }

    fn delete_range(&mut self, input: &mut Input<'_>) {
        let (a, b) = (Self::key(input), Self::key(input));
        let (start, end) = if a <= b { (a, b) } else { (b, a) };
        if start == end {
            return;
        }
        let request = DeleteRangeRequest::new(&start).range_end(&end).prev_kv();
        let answer = self.store.delete_range(request).expect("a delete of a range");
        let gone = self.model.scan(&start, &end, self.model.revision);
        assert_eq!(answer.deleted, gone.len() as u64);
        for (kv, (key, version)) in answer.prev_kvs.iter().zip(&gone) {
            same(Some(kv), Some(version), key);
        }
        let writes: Vec<Write> = gone.into_iter().map(|(key, _)| (key, None)).collect();
        if writes.is_empty() {
            assert_eq!(answer.revision, self.model.revision);
        } else {
            self.model.write(&writes);
            self.acknowledged(answer.revision);
        }
    }

    fn transaction(&mut self, input: &mut Input<'_>) {
        let (mut ops, mut writes) = (Vec::new(), Vec::<Write>::new());
        for _ in 0..=input.below(6) {
            let key = Self::key(input);
            if writes.iter().any(|write| write.0 == key) {
                continue;
            }
            if input.below(3) == 0 {
                ops.push(delete(&key));
                if self.model.newest(&key).is_some() {
                    writes.push((key, None));
                }
            } else {
                let value = self.value(input);
                ops.push(put(&key, &value));
                writes.push((key, Some((value, 0))));
            }
        }
        // A delete of a dead key and a put of it in one transaction is refused; keep them apart.
        let txn = self.store.txn().then(ops).metadata("by a fuzzer");
        match txn.commit() {
            Ok(answer) if writes.is_empty() => assert_eq!(answer.revision, self.model.revision),
            Ok(answer) => {
                self.model.write(&writes);
                self.acknowledged(answer.revision);
            }
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::DuplicateKey { .. }),
                "a transaction: {error}"
            ),
        }
    }

    /// Several commits outstanding; sometimes nobody waits for them.
    fn tickets(&mut self, input: &mut Input<'_>) {
        let count = input.below(8) + 1;
        let waits = input.below(4) != 0;
        let mut tickets = Vec::new();
        for _ in 0..count {
            let (key, value) = (Self::key(input), self.value(input));
            let txn = self.store.txn().then([put(&key, &value)]);
            tickets.push(txn.submit().expect("a ticket"));
            self.model.write(&[(key, Some((value, 0)))]);
        }
        if waits {
            for ticket in tickets {
                let revision = ticket.wait().expect("a wait").revision;
                assert!(revision <= self.model.revision);
            }
            self.acknowledged(self.model.revision);
        } else {
            drop(tickets);
            self.store.flush().expect("a flush");
            self.durable = self.model.revision;
        }
    }

    /// A revision that can be read, or `None` for the newest.
    fn revision(&self, input: &mut Input<'_>) -> Option<u64> {
        let oldest = self.model.compacted.max(1);
        let span = self.model.revision - oldest + 1;
        (input.below(3) != 0).then(|| oldest + u64::from(input.u16()) % span)
    }

    fn view(&self, revision: Option<u64>) -> annals::View {
        match revision {
            Some(revision) => self.store.at(revision).expect("a view"),
            None => self.store.latest().expect("a view"),
        }
    }

    fn check_get(&self, input: &mut Input<'_>) {
        let (key, revision) = (Self::key(input), self.revision(input));
        let found = self.view(revision).get(&key).expect("a get");
        same(found.as_ref(), self.model.at(&key, revision.unwrap_or(u64::MAX)), &key);
    }

    fn check_scan(&self, input: &mut Input<'_>) {
        let (a, b, revision) = (Self::key(input), Self::key(input), self.revision(input));
        let (start, end) = if a <= b { (a, b) } else { (b, a) };
        let expected = self.model.scan(&start, &end, revision.unwrap_or(u64::MAX));
        let view = self.view(revision);
        let found: Vec<KeyValue> =
            view.range(start.clone()..end.clone()).map(|kv| kv.expect("a scan")).collect();
        let mut backwards: Vec<KeyValue> =
            view.range(start..end).rev().map(|kv| kv.expect("a scan")).collect();
        backwards.reverse();
        assert_eq!(found, backwards);
        assert_eq!(found.len(), expected.len());
        for (kv, (key, version)) in found.iter().zip(&expected) {
            same(Some(kv), Some(version), key);
        }
    }

    fn check_history(&self, input: &mut Input<'_>) {
        self.check_history_of(&Self::key(input));
    }

    fn check_history_of(&self, key: &[u8]) {
        let found: Vec<_> =
            self.store.history(key).map(|version| version.expect("a history")).collect();
        let expected = self.model.history(key);
        assert_eq!(found.len(), expected.len(), "versions of {key:?}");
        for (found, expected) in found.into_iter().zip(expected) {
            assert_eq!(found.mod_revision, expected.revision);
            assert_eq!(found.tombstone, expected.value.is_none());
            let kv = found.into_key_value();
            same(kv.as_ref(), Some(expected).filter(|version| version.value.is_some()), key);
        }
    }

    fn compact(&mut self, input: &mut Input<'_>) {
        let span = self.model.revision + 2;
        let revision = 1 + u64::from(input.u16()) % span;
        match self.store.compact(revision) {
            Ok(_) => {
                assert!(revision > self.model.compacted && revision <= self.model.revision);
                self.model.compacted = revision;
            }
            Err(error) => match error.kind() {
                ErrorKind::Compacted { .. } => assert!(revision <= self.model.compacted),
                ErrorKind::FutureRevision { .. } => assert!(revision > self.model.revision),
                _ => panic!("a compaction: {error}"),
            },
        }
        if self.is_buffered() {
            // So that a crash does not take the watermark back.
            self.flush();
        }
        assert_eq!(self.store.compacted_revision(), self.model.compacted);
        if self.model.compacted > 1 {
            let below = self.store.at(self.model.compacted - 1).err();
            assert!(below.is_some_and(|e| matches!(e.kind(), ErrorKind::Compacted { .. })));
        }
        let above = self.store.at(self.model.revision + 1).err();
        assert!(above.is_some_and(|e| matches!(e.kind(), ErrorKind::FutureRevision { .. })));
    }

    fn flush(&mut self) {
        self.store.flush().expect("a flush");
        self.durable = self.model.revision;
    }

    fn background(&mut self, input: &mut Input<'_>) {
        if input.below(2) == 0 {
            self.flush();
        }
        for _ in 0..=input.below(8) {
            if !self.store.run_background().expect("background work") {
                break;
            }
        }
    }

    fn reopen(&mut self) {
        self.store.clone().close().expect("a close");
        self.store = open(&self.disk, self.flags);
        self.durable = self.model.revision;
        assert_eq!(self.store.revision(), self.model.revision);
        assert_eq!(self.store.compacted_revision(), self.model.compacted);
    }

    fn crash(&mut self, input: &mut Input<'_>) {
        let mode = match input.below(4) {
            0 => CrashMode::LoseAll,
            1 => CrashMode::KeepAll,
            _ => CrashMode::Random,
        };
        let image = self.disk.crash(u64::from(input.byte()), mode);
        self.store = open(&image, self.flags);
        self.disk = image;
        let revision = self.store.revision();
        assert!(
            (self.durable..=self.model.revision).contains(&revision),
            "{} durable, {revision} recovered, {} written",
            self.durable,
            self.model.revision
        );
        self.has_lost |= revision < self.model.revision;
        self.model.take_back(revision);
        self.durable = revision;
        assert_eq!(self.store.compacted_revision(), self.model.compacted);
        self.check_everything();
    }

    /// Leases take no revision, so what a crash takes back of them a buffered store cannot tell.
    fn lease(&mut self, input: &mut Input<'_>) {
        if self.is_buffered() {
            return;
        }
        let id = i64::from(input.byte() % 4) + 1;
        match input.below(3) {
            0 => {
                let granted = self.store.lease_grant(id, Duration::from_secs(60));
                assert_eq!(granted.is_ok(), self.model.leases.insert(id));
            }
            1 => {
                let (key, value) = (Self::key(input), self.value(input));
                let request = PutRequest::new(&key, &value).lease(id);
                match self.store.put_with(request) {
                    Ok(answer) => {
                        assert!(self.model.leases.contains(&id));
                        self.model.write(&[(key, Some((value, id)))]);
                        self.acknowledged(answer.revision);
                    }
                    Err(error) => {
                        assert!(matches!(error.kind(), ErrorKind::LeaseNotFound { .. }), "{error}");
                        assert!(!self.model.leases.contains(&id));
                    }
                }
            }
            _ => {
                let keys = self.model.attached(id);
                let revoked = self.store.lease_revoke(id);
                assert_eq!(revoked.is_ok(), self.model.leases.remove(&id));
                let Ok(revoked) = revoked else { return };
                assert_eq!(revoked.deleted, keys);
                if !keys.is_empty() {
                    let writes: Vec<Write> = keys.into_iter().map(|key| (key, None)).collect();
                    self.model.write(&writes);
                    self.acknowledged(revoked.revision);
                }
            }
        }
    }

    fn check_diff(&self, input: &mut Input<'_>) {
        let a = self.revision(input).unwrap_or(self.model.revision);
        let b = self.revision(input).unwrap_or(self.model.revision);
        let (from, to) = (a.min(b), a.max(b));
        let differences = self.store.diff(from, to, ..).expect("a diff");
        let mut found = Vec::new();
        for difference in differences {
            let (old, new) = match difference.expect("a difference") {
                Diff::Added(new) => (None, Some(new)),
                Diff::Removed(old) => (Some(old), None),
                Diff::Changed { old, new } => (Some(old), Some(new)),
            };
            let key = old.as_ref().or(new.as_ref()).map(|kv| kv.key.to_vec()).unwrap_or_default();
            same(old.as_ref(), self.model.at(&key, from), &key);
            same(new.as_ref(), self.model.at(&key, to), &key);
            found.push(key);
        }
        let mut expected = self.model.keys();
        expected.retain(|key| self.model.at(key, from) != self.model.at(key, to));
        assert_eq!(found, expected, "keys that differ from {from} to {to}");
    }

    fn check_everything(&self) {
        let oldest = self.model.compacted.max(1);
        for revision in [oldest, oldest.midpoint(self.model.revision), self.model.revision] {
            let view = self.store.at(revision).expect("a view");
            let expected = self.model.scan(b"", &[0xff; 9], revision);
            let found: Vec<KeyValue> = view.range(..).map(|kv| kv.expect("a scan")).collect();
            assert_eq!(found.len(), expected.len(), "keys at {revision}");
            for (kv, (key, version)) in found.iter().zip(&expected) {
                same(Some(kv), Some(version), key);
            }
        }
        for key in self.model.keys() {
            same(self.store.get(&key).expect("a get").as_ref(), self.model.newest(&key), &key);
            self.check_history_of(&key);
        }
        if !self.is_buffered() {
            let leases = self.store.lease_list().expect("the leases");
            let ids: Vec<i64> = leases.iter().map(|lease| lease.id).collect();
            assert_eq!(ids, self.model.leases.iter().copied().collect::<Vec<_>>());
        }
    }
}

fn open(disk: &MemoryVfs, flags: u8) -> Store {
    let durability = if flags & BUFFERED != 0 { Durability::Buffered } else { Durability::Sync };
    let options = dir::options(disk).durability(durability);
    Store::open_with(DIR, &options).expect("the store opens")
}

/// A key-value and a version of the model say the same.
fn same(found: Option<&KeyValue>, expected: Option<&Version>, key: &[u8]) {
    let found = found.map(|kv| Version {
        revision: kv.mod_revision,
        create: kv.create_revision,
        version: kv.version,
        lease: kv.lease,
        value: Some(kv.value.to_vec()),
    });
    assert_eq!(found.as_ref(), expected, "key {:?}", String::from_utf8_lossy(key));
}
