//! What a store must answer, written as plainly as possible: every version of every key in a map.
//!
//! The model never forgets. Compaction only moves a number, and every read filters by it. So a
//! crash is easy too: the model is cut back to an earlier entry of its journal.

use std::collections::BTreeMap;

use annals::{
    Change, ChangeKind, Compare, CompareResult, CompareTarget, DeleteRangeRequest,
    DeleteRangeResponse, Diff, ErrorKind, KeyValue, LEASE_TTL_MAX, LEASE_TTL_MIN, Op, OpResponse,
    PutRequest, PutResponse, RangeRequest, RangeResponse, SortOrder, SortTarget, Transaction,
    TxnRequest, TxnResponse, Version,
};
use bytes::Bytes;

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
            Request::Revoke(id) => self.revoke(*id, now),
        }
    }

    fn push(&mut self, now: i64, change: impl FnOnce(&mut Entry)) {
        let mut entry = self.entry().clone();
        entry.time = entry.time.max(now);
        change(&mut entry);
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

    fn revoke(&mut self, id: i64, now: i64) -> Result<Answer, Refused> {
        self.lease_there(id)?;
        let deleted = self.attached(id);
        let mut change = Changing::new(self);
        for key in &deleted {
            change.delete(&DeleteRangeRequest::new(key));
        }
        let changed = !deleted.is_empty();
        let revision = change.finish(now, Bytes::new());
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

// ---- Transactions. ----

/// A transaction with its branches chosen.
struct Taken<'r> {
    succeeded: bool,
    ops: Vec<TakenOp<'r>>,
}

enum TakenOp<'r> {
    Range(&'r RangeRequest),
    Put(&'r PutRequest),
    Delete(&'r DeleteRangeRequest),
    Txn(Taken<'r>),
}

impl Model {
    /// The checks that need no store.
    fn check(request: &TxnRequest) -> Result<(), Refused> {
        shape(request)?;
        for ops in [&request.success, &request.failure] {
            let mut writes = Vec::new();
            collect_writes(ops, &mut Vec::new(), &mut writes);
            for (at, (path, write)) in writes.iter().enumerate() {
                for (other_path, other) in &writes[at + 1..] {
                    if let Some(key) = clash(write, other)
                        && refused(path, write, other_path, other)
                    {
                        return Err(ErrorKind::DuplicateKey { key });
                    }
                }
            }
        }
        Ok(())
    }

    /// Chooses the branches, of the nested transactions too, all on the state before.
    fn decide<'r>(&self, request: &'r TxnRequest) -> Taken<'r> {
        let succeeded = request.compare.iter().all(|compare| self.holds(compare));
        let ops = if succeeded { &request.success } else { &request.failure };
        let ops = ops.iter().map(|op| match op {
            Op::Range(range) => TakenOp::Range(range),
            Op::Put(put) => TakenOp::Put(put),
            Op::DeleteRange(delete) => TakenOp::Delete(delete),
            Op::Txn(nested) => TakenOp::Txn(self.decide(nested)),
        });
        Taken { succeeded, ops: ops.collect() }
    }

    /// The checks of the operations that will be done: all puts, then all reads.
    fn check_taken(&self, taken: &Taken<'_>) -> Result<(), Refused> {
        let mut puts = Vec::new();
        let mut ranges = Vec::new();
        flatten(taken, &mut puts, &mut ranges);
        for put in puts {
            self.put_allowed(put)?;
            self.lease_there(put.lease)?;
        }
        for range in ranges {
            if let Some(at) = range.revision {
                self.readable(at)?;
            }
        }
        Ok(())
    }

    fn holds(&self, compare: &Compare) -> bool {
        let found: Vec<&KeyValue> = self
            .alive
            .values()
            .filter(|kv| in_range(&compare.key, &compare.range_end, &kv.key))
            .collect();
        if found.is_empty() {
            return holds_for(compare, None);
        }
        found.into_iter().all(|kv| holds_for(compare, Some(kv)))
    }
}

fn flatten<'r>(
    taken: &Taken<'r>,
    puts: &mut Vec<&'r PutRequest>,
    ranges: &mut Vec<&'r RangeRequest>,
) {
    for op in &taken.ops {
        match op {
            TakenOp::Put(put) => puts.push(put),
            TakenOp::Range(range) => ranges.push(range),
            TakenOp::Delete(_) => {}
            TakenOp::Txn(nested) => flatten(nested, puts, ranges),
        }
    }
}

fn holds_for(compare: &Compare, found: Option<&KeyValue>) -> bool {
    let none = KeyValue::default();
    let kv = found.unwrap_or(&none);
    let order = match &compare.target {
        CompareTarget::Version(other) => kv.version.cmp(other),
        CompareTarget::CreateRevision(other) => kv.create_revision.cmp(other),
        CompareTarget::ModRevision(other) => kv.mod_revision.cmp(other),
        CompareTarget::Lease(other) => kv.lease.cmp(other),
        CompareTarget::Value(_) if found.is_none() => return false,
        CompareTarget::Value(other) => kv.value.cmp(other),
    };
    match compare.result {
        CompareResult::Equal => order.is_eq(),
        CompareResult::NotEqual => order.is_ne(),
        CompareResult::Greater => order.is_gt(),
        CompareResult::Less => order.is_lt(),
    }
}

/// A branch taken on the way to an operation: which nested transaction, and which side of it.
type Path = Vec<(usize, bool)>;

fn collect_writes<'r>(ops: &'r [Op], path: &mut Path, writes: &mut Vec<(Path, &'r Op)>) {
    for (at, op) in ops.iter().enumerate() {
        match op {
            Op::Range(_) => {}
            Op::Put(_) | Op::DeleteRange(_) => writes.push((path.clone(), op)),
            Op::Txn(nested) => {
                for (side, ops) in [(true, &nested.success), (false, &nested.failure)] {
                    path.push((at, side));
                    collect_writes(ops, path, writes);
                    path.pop();
                }
            }
        }
    }
}

/// Whether two operations that write one key are refused: not if they are on the two sides of one
/// transaction, nor if a delete comes in a nested transaction after the one of the put.
fn refused(a_path: &Path, a: &Op, b_path: &Path, b: &Op) -> bool {
    match a_path.iter().zip(b_path).find(|(a, b)| a != b) {
        Some(((a_at, _), (b_at, _))) if a_at == b_at => false,
        Some(((a_at, _), (b_at, _))) => match (a, b) {
            (Op::Put(_), Op::DeleteRange(_)) => b_at < a_at,
            (Op::DeleteRange(_), Op::Put(_)) => a_at < b_at,
            _ => true,
        },
        None => true,
    }
}

/// The key that two operations may not both write.
fn clash(a: &Op, b: &Op) -> Option<Bytes> {
    match (a, b) {
        (Op::Put(a), Op::Put(b)) => (a.key == b.key).then(|| a.key.clone()),
        (Op::Put(put), Op::DeleteRange(delete)) | (Op::DeleteRange(delete), Op::Put(put)) => {
            in_range(&delete.key, &delete.range_end, &put.key).then(|| put.key.clone())
        }
        _ => None,
    }
}

/// A transaction in the making.
struct Changing<'m> {
    model: &'m mut Model,
    alive: BTreeMap<Bytes, KeyValue>,
    changes: Vec<Change>,
    /// Whether anything has been done, even if it was taken back.
    begun: bool,
}

impl<'m> Changing<'m> {
    fn new(model: &'m mut Model) -> Self {
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

    fn run(&mut self, taken: &Taken<'_>) -> TxnResponse {
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

    fn put(&mut self, put: &PutRequest) -> PutResponse {
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

    fn delete(&mut self, delete: &DeleteRangeRequest) -> DeleteRangeResponse {
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
    fn finish(self, time: i64, metadata: Bytes) -> u64 {
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
fn all_revisions(response: &mut TxnResponse, revision: u64) {
    for response in &mut response.responses {
        match response {
            OpResponse::Range(range) => range.revision = revision,
            OpResponse::Put(put) => put.revision = revision,
            OpResponse::DeleteRange(delete) => delete.revision = revision,
            OpResponse::Txn(nested) => all_revisions(nested, revision),
        }
    }
}

// ---- Shapes, ranges, answers. ----

fn shape(request: &TxnRequest) -> Result<(), Refused> {
    request.compare.iter().try_for_each(|compare| not_empty(&compare.key))?;
    request.success.iter().chain(&request.failure).try_for_each(|op| match op {
        Op::Range(range) => range_shape(range),
        Op::Put(put) => put_shape(put),
        Op::DeleteRange(delete) => not_empty(&delete.key),
        Op::Txn(nested) => shape(nested),
    })
}

fn put_shape(put: &PutRequest) -> Result<(), Refused> {
    not_empty(&put.key)?;
    if put.ignore_value && !put.value.is_empty() {
        return Err(ErrorKind::ValueProvided);
    }
    if put.ignore_lease && put.lease != 0 {
        return Err(ErrorKind::LeaseProvided);
    }
    Ok(())
}

fn range_shape(range: &RangeRequest) -> Result<(), Refused> {
    not_empty(&range.key)?;
    match range.revision {
        Some(0) => Err(ErrorKind::InvalidArgument { what: String::new() }),
        _ => Ok(()),
    }
}

fn not_empty(key: &[u8]) -> Result<(), Refused> {
    if key.is_empty() { Err(ErrorKind::EmptyKey) } else { Ok(()) }
}

/// Whether a key is in etcd's range.
pub fn in_range(start: &[u8], end: &[u8], key: &[u8]) -> bool {
    match end {
        [] => key == start,
        [0] => key >= start,
        _ => key >= start && key < end,
    }
}

/// etcd's answer to a range on a state.
fn select(
    state: &BTreeMap<Bytes, KeyValue>,
    request: &RangeRequest,
    revision: u64,
) -> RangeResponse {
    let mut kvs: Vec<KeyValue> = state
        .values()
        .filter(|kv| in_range(&request.key, &request.range_end, &kv.key))
        .cloned()
        .collect();
    let count = kvs.len() as u64;
    if request.count_only {
        return RangeResponse { revision, kvs: Vec::new(), count, more: false };
    }
    let limit = match request.limit {
        0 => usize::MAX - 1,
        limit => usize::try_from(limit).unwrap(),
    };
    let (min_mod, max_mod) = (request.min_mod_revision, request.max_mod_revision);
    let (min_create, max_create) = (request.min_create_revision, request.max_create_revision);
    let filtered = [min_mod, max_mod, min_create, max_create] != [0; 4];
    if request.sort_order == SortOrder::None && !filtered {
        // etcd fetches no more than it needs, so that a sort without order sees only those.
        kvs.truncate(limit + 1);
    }
    kvs.retain(|kv| {
        kv.mod_revision >= min_mod
            && (max_mod == 0 || kv.mod_revision <= max_mod)
            && kv.create_revision >= min_create
            && (max_create == 0 || kv.create_revision <= max_create)
    });
    let descending = request.sort_order == SortOrder::Descend;
    kvs.sort_by(|a, b| {
        let order = match request.sort_target {
            SortTarget::Key => a.key.cmp(&b.key),
            SortTarget::Version => a.version.cmp(&b.version),
            SortTarget::Create => a.create_revision.cmp(&b.create_revision),
            SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
            SortTarget::Value => a.value.cmp(&b.value),
        };
        if descending { order.reverse() } else { order }
    });
    let more = kvs.len() > limit;
    kvs.truncate(limit);
    if request.keys_only {
        for kv in &mut kvs {
            kv.value.clear();
        }
    }
    RangeResponse { revision, kvs, count, more }
}
