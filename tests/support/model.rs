//! What a store must answer, written as plainly as possible: every version of every key in a map.
//!
//! The model never forgets. Compaction only moves a number, and every read filters by it. So a
//! crash is easy too: the model is cut back to an earlier entry of its journal.

mod answer;
mod changing;
mod txn;

use std::collections::BTreeMap;

use annals::{
    DeleteRangeRequest, DeleteRangeResponse, Diff, ErrorKind, KeyValue, LEASE_TTL_MAX,
    LEASE_TTL_MIN, PutRequest, PutResponse, RangeRequest, RangeResponse, Transaction, TxnRequest,
    TxnResponse, Version,
};
use bytes::Bytes;

pub use answer::in_range;

use answer::{not_empty, put_shape, range_shape, select};
use changing::{Changing, all_revisions};

/// A refusal, by the kind it has.
pub type Refused = ErrorKind;

#[derive(Clone, Debug)]
pub struct Model {
    /// Every version of every key ever, oldest first.
    versions: BTreeMap<Bytes, Vec<Version>>,
    /// Keys alive now.
    alive: BTreeMap<Bytes, KeyValue>,
    /// Every transaction that had a revision; the first has revision 2.
    log: Vec<Transaction>,
    /// What every change left, oldest first; the first entry is the empty store.
    journal: Vec<Entry>,
}

/// The state after one change, as far as it is not in the versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub revision: u64,
    pub compacted: u64,
    pub time: i64,
    pub leases: BTreeMap<i64, i64>,
}

/// A request that may change the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Put(PutRequest),
    DeleteRange(DeleteRangeRequest),
    Txn { request: TxnRequest, time: Option<i64>, metadata: Bytes },
    Compact(u64),
    Grant { id: i64, ttl: i64 },
    Revoke(i64),
}

/// What such a request answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Put(PutResponse),
    DeleteRange(DeleteRangeResponse),
    Txn(TxnResponse),
    Compact,
    Grant { ttl: i64 },
    Revoke { revision: u64, deleted: Vec<Bytes> },
}

impl Default for Model {
    fn default() -> Self {
        let empty = Entry { revision: 1, compacted: 0, time: i64::MIN, leases: BTreeMap::new() };
        Self {
            versions: BTreeMap::new(),
            alive: BTreeMap::new(),
            log: Vec::new(),
            journal: vec![empty],
        }
    }
}

// ---- Where the model stands. ----
impl Model {
    pub fn entry(&self) -> &Entry {
        self.journal.last().expect("the empty store is always there")
    }

    pub fn revision(&self) -> u64 {
        self.entry().revision
    }

    pub fn compacted(&self) -> u64 {
        self.entry().compacted
    }

    /// How many changes there have been.
    pub fn len(&self) -> usize {
        self.journal.len() - 1
    }

    /// The state after the first `changes` changes.
    pub fn entry_after(&self, changes: usize) -> &Entry {
        &self.journal[changes]
    }

    /// Goes back to the state after the first `changes` changes.
    pub fn cut(&mut self, changes: usize) {
        self.journal.truncate(changes + 1);
        let revision = self.revision();
        self.log.retain(|transaction| transaction.revision <= revision);
        for versions in self.versions.values_mut() {
            versions.retain(|version| version.mod_revision <= revision);
        }
        self.versions.retain(|_, versions| !versions.is_empty());
        self.alive = self.state_at(revision);
    }

    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.versions.keys()
    }

    pub fn leases(&self) -> &BTreeMap<i64, i64> {
        &self.entry().leases
    }

    /// The keys attached to a lease, in order.
    pub fn attached(&self, lease: i64) -> Vec<Bytes> {
        self.alive.values().filter(|kv| kv.lease == lease).map(|kv| kv.key.clone()).collect()
    }
}

// ---- Reads. ----
impl Model {
    /// The keys alive as of a revision.
    pub fn state_at(&self, revision: u64) -> BTreeMap<Bytes, KeyValue> {
        let newest = |versions: &Vec<Version>| {
            versions.iter().rev().find(|version| version.mod_revision <= revision).cloned()
        };
        self.versions
            .values()
            .filter_map(|versions| newest(versions)?.into_key_value())
            .map(|kv| (kv.key.clone(), kv))
            .collect()
    }

    /// Whether a revision can be read.
    pub fn readable(&self, requested: u64) -> Result<(), Refused> {
        let (current, compacted) = (self.revision(), self.compacted());
        if requested > current {
            Err(ErrorKind::FutureRevision { requested, current })
        } else if requested < compacted {
            Err(ErrorKind::Compacted { requested, compacted, prefix: None })
        } else {
            Ok(())
        }
    }

    pub fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Refused> {
        range_shape(request)?;
        let revision = self.revision();
        match request.revision {
            None => Ok(select(&self.alive, request, revision)),
            Some(at) => {
                self.readable(at)?;
                Ok(select(&self.state_at(at), request, revision))
            }
        }
    }

    /// The versions of a key that a store still shows, newest first.
    pub fn history(&self, key: &[u8]) -> Vec<Version> {
        let mut shown = Vec::new();
        for version in self.versions.get(key).into_iter().flatten().rev() {
            if version.mod_revision > self.compacted() {
                shown.push(version.clone());
            } else {
                if !version.tombstone || version.mod_revision == self.compacted() {
                    shown.push(version.clone());
                }
                break;
            }
        }
        shown
    }

    /// The transactions that a store still shows, oldest first, with the values written.
    pub fn transactions(&self, from: u64) -> Vec<Transaction> {
        let first = from.max(self.compacted());
        self.log.iter().filter(|transaction| transaction.revision >= first).cloned().collect()
    }

    /// The transaction with a revision, whether a store still shows it or not.
    pub fn transaction(&self, revision: u64) -> &Transaction {
        let at = usize::try_from(revision).unwrap().checked_sub(2).expect("the first is 2");
        &self.log[at]
    }

    pub fn diff(&self, from: u64, to: u64, inside: impl Fn(&[u8]) -> bool) -> Vec<Diff> {
        let (old, new) = (self.state_at(from), self.state_at(to));
        let mut keys: Vec<&Bytes> = old.keys().chain(new.keys()).collect();
        keys.sort();
        keys.dedup();
        let mut found = Vec::new();
        for key in keys.into_iter().filter(|key| inside(key)) {
            match (old.get(key).cloned(), new.get(key).cloned()) {
                (None, Some(new)) => found.push(Diff::Added(new)),
                (Some(old), None) => found.push(Diff::Removed(old)),
                (Some(old), Some(new)) if old != new => found.push(Diff::Changed { old, new }),
                _ => {}
            }
        }
        found
    }

    /// The newest revision that is not younger than a time.
    pub fn revision_at_time(&self, time: i64) -> Option<u64> {
        self.log.iter().rev().find(|transaction| transaction.time <= time).map(|t| t.revision)
    }
}

// ---- Changes. ----
impl Model {
    /// Does a request at a time, or refuses it and changes nothing.
    pub fn apply(&mut self, request: &Request, now: i64) -> Result<Answer, Refused> {
        match request {
            Request::Put(put) => {
                put_shape(put)?;
                // A lone put looks for its lease first, one in a transaction for its key.
                self.lease_there(put.lease)?;
                self.put_allowed(put)?;
                let mut change = Changing::new(self);
                let mut response = change.put(put);
                response.revision = change.finish(now, Bytes::new());
                Ok(Answer::Put(response))
            }
            Request::DeleteRange(delete) => {
                not_empty(&delete.key)?;
                let mut change = Changing::new(self);
                let mut response = change.delete(delete);
                response.revision = change.finish(now, Bytes::new());
                Ok(Answer::DeleteRange(response))
            }
            Request::Txn { request, time, metadata } => {
                Self::check(request)?;
                let taken = self.decide(request);
                self.check_taken(&taken)?;
                let mut change = Changing::new(self);
                let mut response = change.run(&taken);
                let changed = !change.changes.is_empty();
                let revision = change.finish(time.unwrap_or(now), metadata.clone());
                if !changed {
                    // Whatever was put has been taken back: there is no new revision to speak of.
                    all_revisions(&mut response, revision);
                }
                response.revision = revision;
                Ok(Answer::Txn(response))
            }
            Request::Compact(revision) => self.compact(*revision, now),
            Request::Grant { id, ttl } => self.grant(*id, *ttl, now),
            Request::Revoke(id) => self.end_lease(*id, now, Bytes::new()),
        }
    }

    fn push(&mut self, now: i64, change: impl FnOnce(&mut Entry)) {
        let mut entry = self.entry().clone();
        let before = entry.revision;
        change(&mut entry);
        // What takes no revision leaves the time as it is.
        if entry.revision > before {
            entry.time = entry.time.max(now);
        }
        self.journal.push(entry);
    }

    fn compact(&mut self, requested: u64, now: i64) -> Result<Answer, Refused> {
        let (current, compacted) = (self.revision(), self.compacted());
        if requested > current {
            return Err(ErrorKind::FutureRevision { requested, current });
        }
        if requested <= compacted {
            return Err(ErrorKind::Compacted { requested, compacted, prefix: None });
        }
        self.push(now, |entry| entry.compacted = requested);
        Ok(Answer::Compact)
    }

    fn grant(&mut self, id: i64, ttl: i64, now: i64) -> Result<Answer, Refused> {
        if ttl > LEASE_TTL_MAX {
            return Err(ErrorKind::LeaseTtlTooLarge { ttl, max: LEASE_TTL_MAX });
        }
        if self.leases().contains_key(&id) {
            return Err(ErrorKind::LeaseExists { lease: id });
        }
        let ttl = ttl.max(LEASE_TTL_MIN);
        self.push(now, |entry| {
            entry.leases.insert(id, ttl);
        });
        Ok(Answer::Grant { ttl })
    }

    /// A lease has ended because its time was over.
    pub fn expire(&mut self, id: i64, now: i64) -> Result<Answer, Refused> {
        self.end_lease(id, now, format!("lease {id} expired").into())
    }

    fn end_lease(&mut self, id: i64, now: i64, metadata: Bytes) -> Result<Answer, Refused> {
        self.lease_there(id)?;
        let deleted = self.attached(id);
        let mut change = Changing::new(self);
        for key in &deleted {
            change.delete(&DeleteRangeRequest::new(key));
        }
        let changed = !deleted.is_empty();
        let revision = change.finish(now, metadata);
        if changed {
            self.journal.last_mut().expect("just pushed").leases.remove(&id);
        } else {
            self.push(now, |entry| {
                entry.leases.remove(&id);
            });
        }
        Ok(Answer::Revoke { revision, deleted })
    }

    fn lease_there(&self, lease: i64) -> Result<(), Refused> {
        if lease == 0 || self.leases().contains_key(&lease) {
            Ok(())
        } else {
            Err(ErrorKind::LeaseNotFound { lease })
        }
    }

    fn put_allowed(&self, put: &PutRequest) -> Result<(), Refused> {
        if (put.ignore_value || put.ignore_lease) && !self.alive.contains_key(&put.key) {
            return Err(ErrorKind::KeyNotFound { key: put.key.clone() });
        }
        Ok(())
    }
}
