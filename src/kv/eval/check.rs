//! The checks of a transaction that need no store: the shape of every operation, then keys written
//! twice.
//!
//! etcd's order: shapes over the whole request first (limits, comparisons, then both branches,
//! depth first), then duplicates. One difference: a delete with the `range_end` "\0" covers every key
//! from its key on, which etcd's check overlooks. (It also lets a delete in one nested transaction
//! reach a key that a nested transaction before it has put. Whether it does depends on the branches
//! taken, so that case is left to the execution.)

use std::collections::{BTreeMap, HashSet};

use annals_format::limits::RETENTION_PREFIX_BYTES_MAX;
use bytes::Bytes;

use super::reads::Reads;
use crate::error::{Error, ErrorKind, Result};
use crate::kv::range::KeyRange;
use crate::kv::request::{
    COMMIT_TIME_MAX, COMMIT_TIME_MIN, CommitOptions, Compare, DeleteRangeRequest, Op, PutRequest,
    RangeRequest, TxnRequest,
};
use crate::kv::space;
use crate::options::Options;

/// Transactions nest at most this deep, which bounds every recursion over a request. (etcd's limit
/// of 128 operations has the same effect.)
const NESTING_MAX: u32 = 128;

/// The limits a request is held to.
#[derive(Clone, Copy, Debug)]
pub(in crate::kv) struct Limits {
    key_bytes: u64,
    value_bytes: u64,
    /// Of the transaction as it is encoded: its metadata, and every write with its key and value,
    /// the lease table's included.
    pub(in crate::kv) transaction_bytes: u64,
    /// Of each list of a transaction, and of the users' keys it changes.
    pub(in crate::kv) operations: u64,
    metadata_bytes: u64,
}

impl Limits {
    pub(in crate::kv) fn of(options: &Options) -> Self {
        Self {
            key_bytes: options.key_bytes_max,
            value_bytes: options.value_bytes_max,
            transaction_bytes: options.transaction_bytes_max,
            operations: options.transaction_operations_max,
            metadata_bytes: options.metadata_bytes_max,
        }
    }

    fn metadata(&self, metadata: &[u8]) -> Result<()> {
        let (bytes, max) = (metadata.len() as u64, self.metadata_bytes);
        if bytes > max {
            return Err(ErrorKind::MetadataTooLong { bytes, max }.into());
        }
        Ok(())
    }

    /// Refuses what a store could not hold with a commit.
    pub(in crate::kv) fn commit(&self, options: &CommitOptions) -> Result<()> {
        self.metadata(&options.metadata)?;
        options.time.map_or(Ok(()), time)
    }

    pub(in crate::kv) fn transaction(&self, request: &TxnRequest) -> Result<()> {
        self.shape(request, self.operations, NESTING_MAX)?;
        few_written(&request.success)?;
        few_written(&request.failure)
    }

    /// The longest list of a transaction counts against the budget; nested ones get the rest.
    fn shape(&self, request: &TxnRequest, budget: u64, levels: u32) -> Result<()> {
        let longest =
            request.compare.len().max(request.success.len()).max(request.failure.len()) as u64;
        if longest > budget {
            let (count, max) = (self.operations - budget + longest, self.operations);
            return Err(ErrorKind::TooManyOperations { count, max }.into());
        }
        request.compare.iter().try_for_each(compare)?;
        for op in request.success.iter().chain(&request.failure) {
            match op {
                Op::Range(request) => range(request)?,
                Op::Put(request) => self.put(request)?,
                Op::DeleteRange(request) => delete_range(request)?,
                Op::Txn(_) if levels == 0 => {
                    let what = format!("transactions are nested more than {NESTING_MAX} deep");
                    return Err(Error::invalid(what));
                }
                Op::Txn(nested) => self.shape(nested, budget - longest, levels - 1)?,
            }
        }
        Ok(())
    }

    pub(in crate::kv) fn put(&self, request: &PutRequest) -> Result<()> {
        not_empty(&request.key)?;
        if request.ignore_value && !request.value.is_empty() {
            return Err(ErrorKind::ValueProvided.into());
        }
        if request.ignore_lease && request.lease != 0 {
            return Err(ErrorKind::LeaseProvided.into());
        }
        self.sizes(&request.key, &request.value)
    }

    /// Refuses a key or a value that the store does not take.
    pub(in crate::kv) fn sizes(&self, key: &[u8], value: &[u8]) -> Result<()> {
        not_empty(key)?;
        let (bytes, max) = (key.len() as u64, self.key_bytes);
        if bytes > max {
            return Err(ErrorKind::KeyTooLong { bytes, max }.into());
        }
        let (bytes, max) = (value.len() as u64, self.value_bytes);
        if bytes > max {
            return Err(ErrorKind::ValueTooLong { bytes, max }.into());
        }
        Ok(())
    }
}

/// Refuses a time outside the years 1 to 9999.
///
/// No commit is dated before the one before it, so a time far in the future would be that of every
/// commit to come.
pub(in crate::kv) fn time(micros: i64) -> Result<()> {
    if (COMMIT_TIME_MIN..=COMMIT_TIME_MAX).contains(&micros) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the time of a commit, {micros} us since the epoch, is not in the years 1 to 9999"
    )))
}

/// The prefix of a rule of retention.
pub(in crate::kv) fn retention_prefix(prefix: &[u8]) -> Result<()> {
    let (bytes, max) = (prefix.len() as u64, RETENTION_PREFIX_BYTES_MAX);
    if bytes > max {
        return Err(ErrorKind::KeyTooLong { bytes, max }.into());
    }
    Ok(())
}

pub(in crate::kv) fn range(request: &RangeRequest) -> Result<()> {
    not_empty(&request.key)?;
    if request.revision == Some(0) {
        return Err(no_revision_zero());
    }
    Ok(())
}

pub(in crate::kv) fn delete_range(request: &DeleteRangeRequest) -> Result<()> {
    not_empty(&request.key)
}

/// Refuses to read a range as of a revision that is not there (any more).
pub(in crate::kv) fn readable(
    reads: &dyn Reads,
    request: &RangeRequest,
    requested: u64,
) -> Result<()> {
    let current = reads.revision();
    if requested > current {
        return Err(ErrorKind::FutureRevision { requested, current }.into());
    }
    let range = KeyRange::from_etcd(&request.key, &request.range_end);
    let (start, end) = space::user_range(&range);
    reads.check_past(&start, &end, requested)
}

/// Refuses to compact what is compacted already, or to a revision not there yet.
pub(in crate::kv) fn compactable(reads: &dyn Reads, requested: u64) -> Result<()> {
    let (current, compacted) = (reads.revision(), reads.compacted());
    if requested > current {
        return Err(ErrorKind::FutureRevision { requested, current }.into());
    }
    if requested <= compacted {
        return Err(ErrorKind::Compacted { requested, compacted, prefix: None }.into());
    }
    Ok(())
}

/// Revision 0 means "the newest" on etcd's wire; here `None` and `latest()` do.
pub(in crate::kv) fn no_revision_zero() -> Error {
    Error::invalid("there is no revision 0: the first one is 1")
}

fn compare(compare: &Compare) -> Result<()> {
    not_empty(&compare.key)
}

fn not_empty(key: &[u8]) -> Result<()> {
    if key.is_empty() {
        return Err(ErrorKind::EmptyKey.into());
    }
    Ok(())
}

/// As [`written`], for the usual list: a few puts are sooner compared with each other than collected.
fn few_written(ops: &[Op]) -> Result<()> {
    const FEW: usize = 16;
    if ops.len() > FEW || !ops.iter().all(|op| matches!(op, Op::Put(_) | Op::Range(_))) {
        return written(ops).map(|_| ());
    }
    for (place, op) in ops.iter().enumerate() {
        let (before, _) = ops.split_at(place);
        if let Op::Put(PutRequest { key, .. }) = op
            && before.iter().any(|other| matches!(other, Op::Put(other) if other.key == *key))
        {
            return Err(twice(key));
        }
    }
    Ok(())
}

/// What a list of operations may write: the keys put, and the intervals deleted.
#[derive(Default)]
struct Written<'r> {
    puts: HashSet<&'r Bytes>,
    deletes: Deletes<'r>,
}

/// Collects what `ops` may write, refusing a key that would be written twice. The branches of one
/// nested transaction exclude each other, so a key may be in both.
fn written(ops: &[Op]) -> Result<Written<'_>> {
    let mut all = Written::default();
    for op in ops {
        if let Op::DeleteRange(request) = op {
            all.deletes.add(request);
        }
    }
    for op in ops {
        let Op::Txn(nested) = op else { continue };
        let branches = [written(&nested.success)?, written(&nested.failure)?];
        for branch in &branches {
            if let Some(key) = branch.puts.iter().find(|key| all.covers(key)) {
                return Err(twice(key));
            }
        }
        for branch in branches {
            all.puts.extend(branch.puts);
            all.deletes.absorb(branch.deletes);
        }
    }
    for op in ops {
        if let Op::Put(request) = op {
            if all.covers(&request.key) {
                return Err(twice(&request.key));
            }
            all.puts.insert(&request.key);
        }
    }
    Ok(all)
}

impl Written<'_> {
    fn covers(&self, key: &Bytes) -> bool {
        self.puts.contains(key) || self.deletes.covers(key)
    }
}

/// The keys and intervals deleted by a list of operations.
#[derive(Default)]
struct Deletes<'r> {
    keys: HashSet<&'r Bytes>,
    /// Half-open intervals by their start, neither touching nor overlapping, none of them empty; the
    /// end is `None` where there is none. So one of them at most can cover a key.
    ranges: BTreeMap<&'r Bytes, Option<&'r Bytes>>,
}

impl<'r> Deletes<'r> {
    fn add(&mut self, request: &'r DeleteRangeRequest) {
        if request.range_end.is_empty() {
            self.keys.insert(&request.key);
        } else {
            let end = Some(&request.range_end).filter(|end| end.as_ref() != b"\0");
            self.add_range(&request.key, end);
        }
    }

    fn absorb(&mut self, other: Self) {
        self.keys.extend(other.keys);
        for (start, end) in other.ranges {
            self.add_range(start, end);
        }
    }

    fn add_range(&mut self, mut start: &'r Bytes, mut end: Option<&'r Bytes>) {
        if end.is_some_and(|end| end <= start) {
            return;
        }
        // Whatever begins within the new interval or at its end, and the one that reaches into it,
        // becomes part of it. Each interval is taken away once.
        while let Some((&other, &others_end)) = match end {
            Some(end) => self.ranges.range::<Bytes, _>(..=end).next_back(),
            None => self.ranges.last_key_value(),
        } {
            if others_end.is_some_and(|others_end| others_end < start) {
                break;
            }
            self.ranges.remove(other);
            start = start.min(other);
            end = end.zip(others_end).map(|(end, others_end)| end.max(others_end));
        }
        self.ranges.insert(start, end);
    }

    fn covers(&self, key: &Bytes) -> bool {
        let before = || self.ranges.range::<Bytes, _>(..=key).next_back();
        self.keys.contains(key) || before().is_some_and(|(_, end)| end.is_none_or(|end| key < end))
    }
}

fn twice(key: &Bytes) -> Error {
    ErrorKind::DuplicateKey { key: key.clone() }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delete(start: &str, end: &str) -> DeleteRangeRequest {
        DeleteRangeRequest::new(start).range_end(end)
    }

    #[test]
    fn intervals_that_touch_become_one() {
        let chain: Vec<DeleteRangeRequest> =
            (0..1_000).map(|n| delete(&format!("{n:04}"), &format!("{:04}", n + 1))).collect();
        // In an order that leaves gaps for long, and closes them one by one.
        let mut deletes = Deletes::default();
        for n in 0..1_000 {
            deletes.add(&chain[n * 387 % 1_000]);
        }
        assert_eq!(deletes.ranges.len(), 1);
        assert!(deletes.covers(&"0000".into()) && deletes.covers(&"0999x".into()));
        assert!(!deletes.covers(&"1000".into()) && !deletes.covers(&"/".into()));
    }

    #[test]
    fn a_key_is_covered_if_one_of_the_intervals_holds_it() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "\0"];
        let mut seed = 1_usize;
        let mut below = |n: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (seed >> 33) % n
        };
        for _ in 0..2_000 {
            let requests: Vec<DeleteRangeRequest> = (0..below(6))
                .map(|_| match below(5) {
                    0 => DeleteRangeRequest::new(names[below(8)]),
                    _ => delete(names[below(8)], names[below(9)]),
                })
                .collect();
            let (mut deletes, mut nested) = (Deletes::default(), Deletes::default());
            for request in &requests {
                if below(2) == 0 { deletes.add(request) } else { nested.add(request) }
            }
            deletes.absorb(nested);
            for key in ["a", "ax", "b", "c", "cx", "d", "e", "f", "fx", "g", "h", "hx"] {
                let key = Bytes::from(key);
                let covered = requests.iter().any(|request| match &request.range_end[..] {
                    b"" => key == request.key,
                    b"\0" => key >= request.key,
                    end => key >= request.key && &key[..] < end,
                });
                assert_eq!(deletes.covers(&key), covered, "{key:?} in {requests:?}");
            }
        }
    }
}
