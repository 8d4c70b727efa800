//! The store as its users see it: etcd's vocabulary over the engine.
//!
//! This room turns requests into reads of a snapshot and plans of writes, and hands the plans to
//! the engine, which orders them or asks for them again after a conflict. It knows the key spaces
//! (users' keys and the lease table) and hides them. It does no I/O of its own and holds no state
//! but a hint whether leases exist, and what the rooms above keep with a store (`extension`).
//!
//! Invariants:
//! 1. A request that is refused has changed nothing: everything is checked before the first write.
//! 2. What an answer depends on is in the plan's footprint, so that an answer given is the one
//!    the store would give had the transactions run one after another.
//! 3. The `lease` field of a key is the truth; the attachments in the lease table are an index
//!    that may hold too many keys, never too few.

#![expect(
    clippy::needless_pass_by_value,
    reason = "requests are built where they are used; taking them by reference would only add an &"
)]

mod at;
mod backup;
mod bring_back;
mod build;
mod debug;
mod eval;
mod extension;
mod hash;
pub(crate) mod live;
mod load;
mod log;
mod range;
mod request;
mod response;
mod restore;
mod retention;
mod seam;
pub(crate) mod space;
mod store;
mod ticket;
mod types;
mod view;

pub use at::At;
pub use backup::BackupReport;
pub(crate) use store::{AllLeases, LeaseRecords};

pub use build::{
    Comparing, ComparingValue, TxnBuilder, create_revision, delete, delete_prefix, get, lease,
    mod_revision, put, range, txn, value, version,
};
pub(crate) use eval::reads::key_value;
pub(crate) use extension::{Extension, Lagging};
pub use hash::KvHash;
pub use load::{Load, Loading};
pub use log::{ChangeRef, Log, TransactionRef};
pub use range::{AsKeyRange, KeyRange, prefix_range_end};
pub use request::{
    COMMIT_TIME_MAX, COMMIT_TIME_MIN, CommitOptions, Compare, CompareResult, CompareTarget,
    DeleteRangeRequest, LEASE_TTL_MAX, LEASE_TTL_MIN, LeaseGrantRequest, Op, PutRequest,
    RangeRequest, SortOrder, SortTarget, TxnRequest,
};
pub use response::{
    DeleteRangeResponse, LeaseRevokeResponse, OpResponse, PutResponse, RangeResponse, TxnResponse,
};
pub use restore::{BackupInfo, RestoreOptions, RestoreReport, inspect_backup, restore};
pub use retention::{Retention, RetentionRule};
pub use store::{Modified, Modify, SpaceOptions, SpaceSurvey, Store, Update, Updated};
pub use ticket::{Outcome, Ticket};
pub use types::{
    Change, ChangeKind, Commit, Deleted, Diff, KeyValue, Lease, Origin, Transaction, Version,
};
pub use view::{DiffIter, History, RangeIter, View};
