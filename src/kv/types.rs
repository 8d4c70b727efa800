//! What the store holds and hands out: key-values, versions, changes, transactions.

use bytes::Bytes;

use crate::options::Durability;

/// A key with its value and the numbers etcd keeps for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct KeyValue {
    /// The key; never empty.
    pub key: Bytes,
    /// The value; empty too where only keys were asked for.
    pub value: Bytes,
    /// The revision that created the key (for the last time, if it was deleted in between).
    pub create_revision: u64,
    /// The revision that last changed the key.
    pub mod_revision: u64,
    /// How many times the key was written since it was created; 1 on creation.
    pub version: u64,
    /// The lease the key is attached to; 0 for none.
    pub lease: i64,
}

/// One version in the [history](crate::Store::history) of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Version {
    /// The key.
    pub key: Bytes,
    /// The value; empty for a tombstone.
    pub value: Bytes,
    /// Whether this version is a deletion. Then `create_revision`, `version` and `lease` are 0.
    pub tombstone: bool,
    /// The revision that created the key's lifetime; 0 for a tombstone.
    pub create_revision: u64,
    /// The revision that made this version.
    pub mod_revision: u64,
    /// The count of writes since creation, this one included; 0 for a tombstone.
    pub version: u64,
    /// The lease the key was attached to; 0 for none.
    pub lease: i64,
    /// When the version was made, in microseconds since the Unix epoch, and what its writer
    /// attached to the transaction. Only where [`with_origin`](crate::History::with_origin) asked
    /// for it and it is still kept. Of a version older than the [floor](crate#words) of its key it is the time
    /// alone, as long as [`time_of`](crate::Store::time_of) knows that: while other keys are kept as far back.
    pub origin: Option<Origin>,
}

/// When a transaction was ordered, and what its writer attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Origin {
    /// In microseconds since the Unix epoch.
    pub time: i64,
    /// The opaque metadata; empty for none, and where [only the time](Version::origin) is still kept.
    pub metadata: Bytes,
}

impl Version {
    /// The version as a key-value, or `None` for a tombstone.
    pub fn into_key_value(self) -> Option<KeyValue> {
        (!self.tombstone).then(|| KeyValue {
            key: self.key,
            value: self.value,
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            version: self.version,
            lease: self.lease,
        })
    }
}

/// One difference between the states at two revisions; see [`Store::diff`](crate::Store::diff).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Diff {
    /// The key is alive at the later revision only.
    Added(KeyValue),
    /// The key is alive at both, with different versions.
    Changed {
        /// As it was at the earlier revision.
        old: KeyValue,
        /// As it is at the later revision.
        new: KeyValue,
    },
    /// The key is alive at the earlier revision only; this is its last state there.
    Removed(KeyValue),
}

impl Diff {
    /// The key that differs.
    pub fn key(&self) -> &Bytes {
        match self {
            Self::Added(kv) | Self::Removed(kv) | Self::Changed { new: kv, .. } => &kv.key,
        }
    }
}

/// What a change did to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum ChangeKind {
    /// The key was written.
    Put,
    /// The key was deleted.
    Delete,
}

/// One change of one key by one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Change {
    /// Put or delete.
    pub kind: ChangeKind,
    /// The key.
    pub key: Bytes,
    /// The place of the change in its transaction, from 0.
    pub sub: u32,
    /// The key's create revision after the change; 0 after a delete.
    pub create_revision: u64,
    /// The key's version after the change; 0 after a delete.
    pub version: u64,
    /// The key's lease after the change; 0 for none.
    pub lease: i64,
    /// The value written: `None` for deletes, and for puts unless
    /// [values were asked for](crate::Log::with_values).
    pub value: Option<Bytes>,
}

/// One committed transaction, as [`Store::log`](crate::Store::log) returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Transaction {
    /// Its revision.
    pub revision: u64,
    /// When it was ordered, in microseconds since the Unix epoch; never less than the one before.
    pub time: i64,
    /// The opaque metadata its writer attached; empty for none.
    pub metadata: Bytes,
    /// What it changed, in the order it did so.
    pub changes: Vec<Change>,
}

/// The acknowledgement of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Commit {
    /// The transaction's revision; the store's current one when nothing was changed.
    pub revision: u64,
    /// The transaction's time, in microseconds since the Unix epoch.
    pub time: i64,
    /// The level the acknowledgement stands for.
    pub durability: Durability,
}

/// The acknowledgement of a [`Store::delete`](crate::Store::delete).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Deleted {
    /// The delete's revision; the store's current one when nothing was deleted.
    pub revision: u64,
    /// How many keys were deleted.
    pub deleted: u64,
}

/// A lease as state: its id, its time to live, the keys attached to it.
///
/// How much of its time is left is told by
/// [`Store::lease_time_to_live`](crate::Store::lease_time_to_live).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Lease {
    /// The id, never 0.
    pub id: i64,
    /// The granted time to live, in seconds.
    pub ttl: i64,
    /// The keys attached, in byte order, where they were asked for.
    pub keys: Vec<Bytes>,
    /// The store's revision when the lease was granted or looked at.
    pub revision: u64,
}

impl Lease {
    /// A lease without its keys.
    pub(crate) fn new(id: i64, ttl: i64, revision: u64) -> Self {
        Self { id, ttl, keys: Vec::new(), revision }
    }
}
