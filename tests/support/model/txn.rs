//! Transactions of the model: what is refused, and which branches are taken.

use annals::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, ErrorKind, KeyValue, Op, PutRequest,
    RangeRequest, TxnRequest,
};
use bytes::Bytes;

use super::answer::{in_range, shape};
use super::{Model, Refused};

/// A transaction with its branches chosen.
pub(super) struct Taken<'r> {
    pub(super) succeeded: bool,
    pub(super) ops: Vec<TakenOp<'r>>,
}

pub(super) enum TakenOp<'r> {
    Range(&'r RangeRequest),
    Put(&'r PutRequest),
    Delete(&'r DeleteRangeRequest),
    Txn(Taken<'r>),
}

impl Model {
    /// The checks that need no store.
    pub(super) fn check(request: &TxnRequest) -> Result<(), Refused> {
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
    pub(super) fn decide<'r>(&self, request: &'r TxnRequest) -> Taken<'r> {
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
    pub(super) fn check_taken(&self, taken: &Taken<'_>) -> Result<(), Refused> {
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
