//! The evaluator: from a request and a snapshot to an answer and a plan of writes.
//!
//! A transaction is decided against one snapshot, whose revision is the *base*. Operations run in
//! order and see what the ones before them did, through an overlay. Whatever was read goes into
//! the plan's footprint: if a commit between the snapshot and the plan's place in the order touched
//! it, the engine asks for the evaluation again. Nothing is written here.
//!
//! **The revision to come.** An answer may show the transaction's own revision before it is known.
//! It is evaluated as base + 1, which nothing in the snapshot can equal, and the real one is put in
//! its place afterwards ([`Patch`]). Where an answer depends on the number itself (a filter by
//! revision that meets the transaction's own writes), the footprint is marked *exact*: the plan
//! must then link directly after the snapshot.
//!
//! **What is not read.** A blind put (no comparison, no previous key-value, no lease) reads nothing
//! and conflicts with nothing; create revision and version are fixed when it is ordered.
//!
//! The order of the checks is etcd's: shapes, duplicate keys ([`check`]), comparisons of every
//! level up front on the snapshot, then puts and ranges of the branches taken, then execution.

pub(super) mod check;
mod compare;
pub(super) mod lease;
mod overlay;
mod patch;
mod put;
pub(super) mod reads;
pub(super) mod select;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::error::{ErrorKind, Result};
use crate::kv::range::KeyRange;
use crate::kv::request::{DeleteRangeRequest, Op, RangeRequest, TxnRequest};
use crate::kv::response::{DeleteRangeResponse, OpResponse, RangeResponse, TxnResponse};
use crate::kv::seam::{InternalKey, Plan, Point, Record, Stub, Write, WriteKind};
use crate::kv::space;
use crate::kv::types::KeyValue;

use check::Limits;
use overlay::{Overlaid, Overlay};
pub(super) use patch::Patch;
use reads::{Reads, key_value};

/// One evaluation: what has been read, and what is to be written.
pub(super) struct Evaluation<'a, 'r> {
    reads: &'a dyn Reads,
    limits: Limits,
    /// Whether the store may hold leases; when not, nobody need look for a key's old one.
    leases: bool,
    base: u64,
    /// Whether an operation has changed something, even if a later one has undone it.
    changed: bool,
    /// What is to be written: users' keys, in the order of the operations, and in the end those of
    /// the lease table; and what was read.
    plan: &'a mut Plan<'r>,
    /// The lease table's keys; they follow the users' so as not to take a sub revision. `None` where
    /// a later operation took a write back.
    system: Vec<Option<Write<'static>>>,
    /// Places of users' writes that later operations took back.
    taken_back: Vec<usize>,
    /// Bytes of the transaction as encoded so far.
    bytes: u64,
    /// What this transaction did to a key, for the operations after it. Empty in an evaluation of
    /// a single operation.
    overlay: Overlay,
    has_followers: bool,
}

/// The decisions of a transaction and those nested in it, in the order in which they are met.
type Path = SmallVec<[bool; 8]>;

impl<'a, 'r> Evaluation<'a, 'r> {
    /// Fills in `plan`, which has no more than its metadata and its time.
    pub(super) fn new(
        reads: &'a dyn Reads,
        plan: &'a mut Plan<'r>,
        limits: Limits,
        leases: bool,
    ) -> Self {
        let bytes = plan.metadata.len() as u64;
        Self {
            reads,
            plan,
            limits,
            leases,
            base: reads.revision(),
            changed: false,
            system: Vec::new(),
            taken_back: Vec::new(),
            bytes,
            overlay: Overlay::default(),
            has_followers: false,
        }
    }

    /// Completes the plan. Answers whether there is anything to write.
    pub(super) fn finish(&mut self) -> Result<bool> {
        // For what follows the last of the users' keys.
        self.fits()?;
        if !self.taken_back.is_empty() {
            self.taken_back.sort_unstable();
            let mut place = 0..;
            let taken_back = |place| self.taken_back.binary_search(&place).is_ok();
            self.plan.writes.retain(|_| !place.next().is_some_and(taken_back));
        }
        if !self.system.is_empty() {
            self.plan.writes.extend(self.system.drain(..).flatten());
        }
        Ok(!self.plan.writes.is_empty() || self.plan.compact.is_some())
    }

    /// Sets the watermark. That it rises is checked again when the plan finds its place.
    pub(super) fn compact(&mut self, revision: u64) -> Result<()> {
        if revision == 0 {
            return self.compact_to_zero();
        }
        check::compactable(self.reads, revision)?;
        self.plan.compact = Some(revision);
        Ok(())
    }

    /// A transaction whose shape has been checked.
    pub(super) fn transaction(&mut self, request: &'r TxnRequest) -> Result<TxnResponse> {
        let mut path = Path::new();
        // Nothing looks at what an operation did if it is alone, or if all are puts that look at nothing:
        // no key is put twice.
        let lone = |ops: &[Op]| ops.len() < 2 && !matches!(ops, [Op::Txn(_)]);
        let blind = |ops: &[Op]| ops.iter().all(|op| matches!(op, Op::Put(put) if put.is_blind()));
        let apart = |ops: &[Op]| lone(ops) || blind(ops);
        self.has_followers = !(apart(&request.success) && apart(&request.failure));
        self.decide(request, &mut path)?;
        self.check_puts(request, &mut path.iter())?;
        self.check_ranges(request, &mut path.iter())?;
        let mut response = self.execute(request, &mut path.iter())?;
        if self.plan.writes.len() > self.taken_back.len() {
            response.revision = self.seen_revision();
        } else {
            patch::unchanged(&mut response, self.base);
            response.revision = self.base;
        }
        Ok(response)
    }

    /// Decides the transaction and those nested in the branch it takes, depth first.
    fn decide(&mut self, request: &TxnRequest, path: &mut Path) -> Result<()> {
        let succeeded = self.holds(&request.compare)?;
        path.push(succeeded);
        for op in branch(request, succeeded) {
            if let Op::Txn(nested) = op {
                self.decide(nested, path)?;
            }
        }
        Ok(())
    }

    fn check_puts<'p>(
        &mut self,
        request: &TxnRequest,
        path: &mut impl Iterator<Item = &'p bool>,
    ) -> Result<()> {
        for op in branch(request, next(path)) {
            match op {
                Op::Txn(nested) => self.check_puts(nested, path)?,
                Op::Put(request) => {
                    self.keeps_something(request)?;
                    if request.lease != 0 {
                        self.lease_exists(request.lease)?;
                    }
                }
                Op::Range(_) | Op::DeleteRange(_) => {}
            }
        }
        Ok(())
    }

    fn check_ranges<'p>(
        &mut self,
        request: &TxnRequest,
        path: &mut impl Iterator<Item = &'p bool>,
    ) -> Result<()> {
        for op in branch(request, next(path)) {
            match op {
                Op::Txn(nested) => self.check_ranges(nested, path)?,
                Op::Range(request @ RangeRequest { revision: Some(at), .. }) => {
                    check::readable(self.reads, request, *at)?;
                }
                Op::Range(_) | Op::Put(_) | Op::DeleteRange(_) => {}
            }
        }
        Ok(())
    }

    fn execute<'p>(
        &mut self,
        request: &'r TxnRequest,
        path: &mut impl Iterator<Item = &'p bool>,
    ) -> Result<TxnResponse> {
        let succeeded = next(path);
        let mut responses = Vec::with_capacity(branch(request, succeeded).len());
        for op in branch(request, succeeded) {
            responses.push(match op {
                Op::Range(request) => OpResponse::Range(self.range(request)?),
                Op::Put(request) => OpResponse::Put(self.put(request)?),
                Op::DeleteRange(request) => OpResponse::DeleteRange(self.delete_range(request)?),
                Op::Txn(nested) => OpResponse::Txn(self.execute(nested, path)?),
            });
        }
        Ok(TxnResponse { revision: 0, succeeded, responses })
    }

    /// The revision a reader inside the transaction sees: the base until something was changed.
    fn seen_revision(&self) -> u64 {
        self.base + u64::from(self.changed)
    }

    pub(super) fn delete_range(
        &mut self,
        request: &DeleteRangeRequest,
    ) -> Result<DeleteRangeResponse> {
        let range = KeyRange::from_etcd(&request.key, &request.range_end);
        let doomed = if request.range_end.is_empty() {
            self.doomed_key(&request.key, request.prev_kv)?.into_iter().collect()
        } else {
            self.current_range(&range, !request.prev_kv)?
        };
        for kv in &doomed {
            self.delete(&kv.key, kv.lease)?;
        }
        Ok(DeleteRangeResponse {
            revision: self.seen_revision(),
            deleted: doomed.len() as u64,
            prev_kvs: if request.prev_kv { doomed } else { Vec::new() },
        })
    }

    /// The key to delete, if it is alive. Whether it still is then is checked when the delete is
    /// ordered; so only a key that is absent, or shown in the answer, goes into the footprint.
    fn doomed_key(&mut self, key: &Bytes, shown: bool) -> Result<Option<KeyValue>> {
        if shown || self.overlay.contains_key(key) {
            return self.current_key(key);
        }
        match self.reads.get(&space::user(key))? {
            Some(record) => Ok(Some(key_value(record))),
            None => self.current_key(key),
        }
    }

    pub(super) fn delete(&mut self, key: &Bytes, lease: i64) -> Result<()> {
        if let Some(Overlaid::Put { .. }) = self.overlay.get(key) {
            return self.take_back(key);
        }
        self.reattach(key, lease, 0)?;
        self.write(space::user(key), WriteKind::Delete)?;
        if self.has_followers {
            self.overlay.insert(key.clone(), Overlaid::Deleted);
        }
        Ok(())
    }

    /// Deletes a key that a nested transaction before this one has put, which etcd's check lets
    /// pass. The put is taken back, so that the key has one version here: a tombstone, or none at
    /// all if it was not alive before.
    fn take_back(&mut self, key: &Bytes) -> Result<()> {
        let put = self.overlay.insert(key.clone(), Overlaid::Deleted);
        let Some(Overlaid::Put { write, attachment, lease, .. }) = put else { return Ok(()) };
        self.bytes -= self.plan.writes.get(write).map_or(0, encoded_bytes);
        self.taken_back.push(write);
        let attachment = attachment.and_then(|at| self.system[at].take());
        self.bytes -= attachment.as_ref().map_or(0, encoded_bytes);
        if let Some(old) = self.base_stub(key)? {
            if old.lease == lease {
                // The put had left the key where it was attached.
                self.reattach(key, lease, 0)?;
            }
            self.write(space::user(key), WriteKind::Delete)?;
        }
        Ok(())
    }

    fn range(&mut self, request: &RangeRequest) -> Result<RangeResponse> {
        let revision = self.seen_revision();
        if let Some(at) = request.revision {
            // Below the watermark only keys can be read that it says nothing of.
            if at >= self.reads.compacted() {
                let oldest = self.plan.reads.oldest_read.map_or(at, |oldest| oldest.min(at));
                self.plan.reads.oldest_read = Some(oldest);
            }
            return select::past(self.reads, at, request, revision);
        }
        if request.is_filtered() && !self.overlay.is_empty() {
            self.plan.reads.exact = true;
        }
        if request.range_end.is_empty() {
            let found = self.current_key(&request.key)?;
            return Ok(select::answer(found.into_iter().collect(), request, revision));
        }
        let range = KeyRange::from_etcd(&request.key, &request.range_end);
        if self.overlay.is_empty() {
            if !range.is_empty() {
                self.plan.reads.ranges.push(space::user_range(&range));
            }
            return select::newest(self.reads, request, revision);
        }
        let kvs = self.current_range(&range, request.count_only)?;
        Ok(select::answer(kvs, request, revision))
    }

    /// A key as the next operation sees it.
    fn current_key(&mut self, key: &Bytes) -> Result<Option<KeyValue>> {
        match self.overlay.get(key) {
            None => self.base_key(key),
            Some(Overlaid::Deleted) => Ok(None),
            Some(Overlaid::Put { value, lease, .. }) => {
                let (value, lease) = (value.clone(), *lease);
                let old = self.base_key(key)?;
                Ok(Some(self.overlaid(key, value, lease, old.as_ref())))
            }
        }
    }

    /// The keys of a range as the next operation sees them, in key order.
    fn current_range(&mut self, range: &KeyRange, keys_only: bool) -> Result<Vec<KeyValue>> {
        let (start, end) = space::user_range(range);
        let mut kvs = Vec::new();
        if !range.is_empty() {
            for record in self.reads.scan(&start, &end, keys_only) {
                kvs.push(key_value(record?));
            }
            self.plan.reads.ranges.push((start, end));
        }
        if self.overlay.is_empty() {
            return Ok(kvs);
        }
        let mut merged: BTreeMap<Bytes, KeyValue> =
            kvs.into_iter().map(|kv| (kv.key.clone(), kv)).collect();
        for (key, done) in self.overlay.from(range.start()) {
            if !range.contains(key) {
                break;
            }
            match done {
                Overlaid::Deleted => merged.remove(key),
                Overlaid::Put { value, lease, .. } => {
                    let kv = self.overlaid(key, value.clone(), *lease, merged.get(key));
                    merged.insert(key.clone(), kv)
                }
            };
        }
        Ok(merged.into_values().collect())
    }

    /// A key this transaction has written, over what it was before.
    fn overlaid(&self, key: &Bytes, value: Bytes, lease: i64, old: Option<&KeyValue>) -> KeyValue {
        let pending = self.base + 1;
        let (create_revision, version) =
            old.map_or((pending, 1), |old| (old.create_revision, old.version + 1));
        KeyValue { key: key.clone(), value, create_revision, mod_revision: pending, version, lease }
    }

    /// A key as of the snapshot, with its place in the footprint.
    pub(in crate::kv) fn base_key(&mut self, key: &[u8]) -> Result<Option<KeyValue>> {
        Ok(self.base_record(key)?.map(key_value))
    }

    /// The same, as it is stored.
    fn base_record(&mut self, key: &[u8]) -> Result<Option<Record>> {
        let internal = space::user(key);
        let found = self.reads.get(&internal)?;
        let newest = match &found {
            Some(record) => Some(record.stub()),
            None => self.reads.newest(&internal)?,
        };
        self.plan.reads.points.push(Point::new(internal, newest));
        Ok(found)
    }

    /// The revision of a key's newest version, tombstones included, as of the snapshot, with its place in the footprint; 0
    /// if there is none.
    pub(in crate::kv) fn newest_revision(&mut self, key: &[u8]) -> Result<u64> {
        let internal = space::user(key);
        let newest = self.reads.newest(&internal)?;
        self.plan.reads.points.push(Point::new(internal, newest));
        Ok(newest.map_or(0, |stub| stub.revision))
    }

    /// Puts a range of internal keys into the footprint.
    pub(in crate::kv) fn depend_on(&mut self, start: &Bytes, end: &Bytes) {
        self.plan.reads.ranges.push((start.clone(), end.clone()));
    }

    /// The same without the value.
    fn base_stub(&mut self, key: &[u8]) -> Result<Option<Stub>> {
        self.point(space::user(key))
    }

    /// The newest version of an internal key as of the snapshot, if it is alive, with its place in the
    /// footprint.
    fn point(&mut self, key: InternalKey) -> Result<Option<Stub>> {
        let newest = self.reads.newest(&key)?;
        self.plan.reads.points.push(Point::new(key, newest));
        Ok(alive(newest))
    }

    fn write(&mut self, key: InternalKey, kind: WriteKind<'r>) -> Result<()> {
        let write = Write { key, kind };
        self.bytes += encoded_bytes(&write);
        self.changed = true;
        self.plan.writes.push(write);
        self.fits()
    }

    /// Whether what is written so far keeps the limits. Checked on writing, so that whatever is
    /// accepted can be read back; and once more at the end.
    fn fits(&self) -> Result<()> {
        let changes = self.plan.writes.len() - self.taken_back.len();
        let (count, max) = (changes as u64, self.limits.operations);
        if count > max {
            return Err(ErrorKind::TooManyOperations { count, max }.into());
        }
        let (bytes, max) = (self.bytes, self.limits.transaction_bytes);
        if bytes > max {
            return Err(ErrorKind::TransactionTooLarge { bytes, max }.into());
        }
        Ok(())
    }
}

/// A version that is no tombstone.
fn alive(newest: Option<Stub>) -> Option<Stub> {
    newest.filter(|stub| !stub.tombstone)
}

fn encoded_bytes(write: &Write<'_>) -> u64 {
    write.op().encoded_bytes() as u64
}

fn branch(request: &TxnRequest, succeeded: bool) -> &[Op] {
    if succeeded { &request.success } else { &request.failure }
}

/// The next decision of the path; there is one for every transaction met on it.
fn next<'p>(path: &mut impl Iterator<Item = &'p bool>) -> bool {
    path.next().copied().unwrap_or_default()
}
