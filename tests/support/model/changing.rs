//! Changes of the model: one transaction, as it is made.

use std::collections::BTreeMap;

use annals::{
    Change, ChangeKind, DeleteRangeRequest, DeleteRangeResponse, KeyValue, OpResponse, PutRequest,
    PutResponse, Transaction, TxnResponse, Version,
};
use bytes::Bytes;

use super::Model;
use super::answer::{in_range, select};
use super::txn::{Taken, TakenOp};

/// A transaction in the making.
pub(super) struct Changing<'m> {
    model: &'m mut Model,
    alive: BTreeMap<Bytes, KeyValue>,
    pub(super) changes: Vec<Change>,
    /// Whether anything has been done, even if it was taken back.
    begun: bool,
}

impl<'m> Changing<'m> {
    pub(super) fn new(model: &'m mut Model) -> Self {
        let alive = model.alive.clone();
        Self { model, alive, changes: Vec::new(), begun: false }
    }

    /// The revision that the next operation sees.
    fn seen(&self) -> u64 {
        self.model.revision() + u64::from(self.begun)
    }

    fn change(&mut self, kind: ChangeKind, kv: &KeyValue) {
        self.begun = true;
        let tombstone = kind == ChangeKind::Delete;
        self.changes.push(Change {
            kind,
            key: kv.key.clone(),
            sub: 0,
            create_revision: if tombstone { 0 } else { kv.create_revision },
            version: if tombstone { 0 } else { kv.version },
            lease: if tombstone { 0 } else { kv.lease },
            value: (!tombstone).then(|| kv.value.clone()),
        });
    }

    fn next(&self) -> u64 {
        self.model.revision() + 1
    }

    pub(super) fn run(&mut self, taken: &Taken<'_>) -> TxnResponse {
        let responses = taken.ops.iter().map(|op| match op {
            TakenOp::Put(put) => OpResponse::Put(self.put(put)),
            TakenOp::Delete(delete) => OpResponse::DeleteRange(self.delete(delete)),
            TakenOp::Txn(nested) => OpResponse::Txn(self.run(nested)),
            TakenOp::Range(range) => OpResponse::Range(match range.revision {
                Some(at) => select(&self.model.state_at(at), range, self.seen()),
                None => select(&self.alive, range, self.seen()),
            }),
        });
        let responses = responses.collect();
        TxnResponse { revision: 0, succeeded: taken.succeeded, responses }
    }

    pub(super) fn put(&mut self, put: &PutRequest) -> PutResponse {
        let old = self.alive.get(&put.key).cloned();
        let kept = old.clone().unwrap_or_default();
        let kv = KeyValue {
            key: put.key.clone(),
            value: if put.ignore_value { kept.value } else { put.value.clone() },
            lease: if put.ignore_lease { kept.lease } else { put.lease },
            create_revision: old.as_ref().map_or(self.next(), |kv| kv.create_revision),
            mod_revision: self.next(),
            version: kept.version + 1,
        };
        self.change(ChangeKind::Put, &kv);
        self.alive.insert(kv.key.clone(), kv);
        PutResponse { revision: self.seen(), prev_kv: old.filter(|_| put.prev_kv) }
    }

    pub(super) fn delete(&mut self, delete: &DeleteRangeRequest) -> DeleteRangeResponse {
        let doomed: Vec<KeyValue> = self
            .alive
            .values()
            .filter(|kv| in_range(&delete.key, &delete.range_end, &kv.key))
            .cloned()
            .collect();
        for kv in &doomed {
            self.alive.remove(&kv.key);
            // A key has one version in a transaction: a put before is taken back.
            self.changes.retain(|change| change.key != kv.key);
            self.begun = true;
            if self.model.alive.contains_key(&kv.key) {
                self.change(ChangeKind::Delete, kv);
            }
        }
        DeleteRangeResponse {
            revision: self.seen(),
            deleted: doomed.len() as u64,
            prev_kvs: if delete.prev_kv { doomed } else { Vec::new() },
        }
    }

    /// Makes the changes part of the model, and tells the revision.
    pub(super) fn finish(self, time: i64, metadata: Bytes) -> u64 {
        let Self { model, alive, mut changes, .. } = self;
        if changes.is_empty() {
            return model.revision();
        }
        let revision = model.revision() + 1;
        for (sub, change) in changes.iter_mut().enumerate() {
            change.sub = u32::try_from(sub).unwrap();
        }
        for change in &changes {
            let tombstone = change.kind == ChangeKind::Delete;
            model.versions.entry(change.key.clone()).or_default().push(Version {
                key: change.key.clone(),
                value: change.value.clone().unwrap_or_default(),
                tombstone,
                create_revision: change.create_revision,
                mod_revision: revision,
                version: change.version,
                lease: change.lease,
                origin: None,
            });
        }
        model.alive = alive;
        model.push(time, |entry| entry.revision = revision);
        let time = model.entry().time;
        model.log.push(Transaction { revision, time, metadata, changes });
        revision
    }
}

/// Sets the revision of every answer in a transaction.
pub(super) fn all_revisions(response: &mut TxnResponse, revision: u64) {
    for response in &mut response.responses {
        match response {
            OpResponse::Range(range) => range.revision = revision,
            OpResponse::Put(put) => put.revision = revision,
            OpResponse::DeleteRange(delete) => delete.revision = revision,
            OpResponse::Txn(nested) => all_revisions(nested, revision),
        }
    }
}
