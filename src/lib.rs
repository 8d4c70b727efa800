//! annals.

pub mod clock;
#[allow(dead_code, unused_imports, reason = "the engine that uses it is still to come")]
mod commit;
mod error;
#[allow(dead_code, unused_imports, reason = "the engine that uses it is still to come")]
mod index;
mod kv;
mod options;
#[allow(dead_code, unused_imports, reason = "the engine that reads segments is still to come")]
mod segment;
mod sync;
pub mod vfs;

pub use crate::error::{Corruption, Effect, Error, ErrorKind, Result};
pub use crate::kv::{
    AsKeyRange, Change, ChangeKind, Commit, CommitOptions, Compare, CompareResult, CompareTarget,
    Comparing, ComparingValue, DeleteRangeRequest, DeleteRangeResponse, Deleted, Diff, DiffIter,
    History, KeyRange, KeyValue, LEASE_TTL_MAX, LEASE_TTL_MIN, Lease, LeaseGrantRequest,
    LeaseRevokeResponse, Log, Op, OpResponse, Outcome, PutRequest, PutResponse, RangeIter,
    RangeRequest, RangeResponse, SortOrder, SortTarget, Store, Ticket, Transaction, TxnBuilder,
    TxnRequest, TxnResponse, Version, View, create_revision, delete, delete_prefix, get, lease,
    mod_revision, prefix_range_end, put, range, txn, value, version,
};
pub use crate::options::{Durability, KNOBS, Knob, KnobRange, Options, ReadMode};
