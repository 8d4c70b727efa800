//! Answers in etcd's vocabulary.
//!
//! Every answer has the header's revision. Inside a transaction it is what etcd puts into the
//! inner header: the revision before the transaction until it has changed something, its own
//! revision after that, and 0 for a nested transaction.

use bytes::Bytes;

use super::types::KeyValue;

/// The answer to a [`RangeRequest`](super::RangeRequest).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RangeResponse {
    /// The store's current revision, also when an older one was read.
    pub revision: u64,
    /// The key-values asked for.
    pub kvs: Vec<KeyValue>,
    /// How many keys the range held, whatever the limit and the filters left of them.
    pub count: u64,
    /// Whether the limit cut the answer short.
    pub more: bool,
}

/// The answer to a [`PutRequest`](super::PutRequest).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PutResponse {
    /// The revision of the write.
    pub revision: u64,
    /// The key-value as it was before, when asked for and there was one.
    pub prev_kv: Option<KeyValue>,
}

/// The answer to a [`DeleteRangeRequest`](super::DeleteRangeRequest).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DeleteRangeResponse {
    /// The revision of the delete, or the current one when nothing was deleted.
    pub revision: u64,
    /// How many keys were deleted.
    pub deleted: u64,
    /// The deleted key-values in key order, when asked for.
    pub prev_kvs: Vec<KeyValue>,
}

/// The answer to a [`TxnRequest`](super::TxnRequest).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TxnResponse {
    /// The transaction's revision, or the current one when it changed nothing; 0 when nested.
    pub revision: u64,
    /// Whether all comparisons held.
    pub succeeded: bool,
    /// The answers to the operations of the branch taken, in their order.
    pub responses: Vec<OpResponse>,
}

/// The answer to one operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum OpResponse {
    /// To a read.
    Range(RangeResponse),
    /// To a write.
    Put(PutResponse),
    /// To a delete.
    DeleteRange(DeleteRangeResponse),
    /// To a nested transaction.
    Txn(TxnResponse),
}

impl OpResponse {
    /// The key-values of a read; empty for anything else.
    pub fn kvs(&self) -> &[KeyValue] {
        match self {
            Self::Range(range) => &range.kvs,
            _ => &[],
        }
    }
}

/// The answer to [`Store::lease_revoke`](crate::Store::lease_revoke).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LeaseRevokeResponse {
    /// The revision that deleted the attached keys, or the current one when there were none.
    pub revision: u64,
    /// The keys deleted, in byte order.
    pub deleted: Vec<Bytes>,
}
