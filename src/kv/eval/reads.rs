//! What the evaluator needs from a store: the newest state, and the past for explicit revisions.

use crate::error::Result;
use crate::kv::seam::{Record, Stub};
use crate::kv::space;
use crate::kv::types::KeyValue;

/// Records in the order of their internal keys.
pub(in crate::kv) type Records<'a> = Box<dyn Iterator<Item = Result<Record>> + 'a>;

/// A consistent state of the store. Keys are internal ones.
pub(in crate::kv) trait Reads {
    /// The revision of the state.
    fn revision(&self) -> u64;

    /// The revision compacted to; 0 for never.
    fn compacted(&self) -> u64;

    /// Refuses to read the keys from `start` up to `end` (empty: to the end of the space) as of
    /// `revision`, where they are not kept that far back. None need lie between.
    fn check_past(&self, start: &[u8], end: &[u8], revision: u64) -> Result<()>;

    /// The newest version of a key, if it is alive.
    fn get(&self, key: &[u8]) -> Result<Option<Record>>;

    /// The newest version of a key without its value, a tombstone too; `None` if it never existed.
    fn newest(&self, key: &[u8]) -> Result<Option<Stub>>;

    /// The keys alive from `start` up to `end` (empty: to the end of the space).
    fn scan(&self, start: &[u8], end: &[u8], keys_only: bool) -> Records<'_>;

    /// How many keys `scan` gives; by a walk, unless there is a shorter way.
    fn count(&self, start: &[u8], end: &[u8]) -> Result<u64> {
        self.scan(start, end, true).map(|record| record.map(|_| 1)).sum()
    }

    /// The newest version of a key as of `revision`.
    fn get_at(&self, key: &[u8], revision: u64) -> Result<Option<Record>>;

    /// The keys alive as of `revision`.
    fn scan_at(
        &self,
        start: &[u8],
        end: &[u8],
        keys_only: bool,
        revision: u64,
    ) -> Result<Records<'_>>;

    /// How many keys `scan_at` gives; by a walk, unless there is a shorter way.
    fn count_at(&self, start: &[u8], end: &[u8], revision: u64) -> Result<u64> {
        self.scan_at(start, end, true, revision)?.map(|record| record.map(|_| 1)).sum()
    }
}

/// A record of the users' space as its user sees it.
pub(crate) fn key_value(record: Record) -> KeyValue {
    KeyValue {
        key: space::strip(record.key),
        value: record.value,
        create_revision: record.create_revision,
        mod_revision: record.mod_revision,
        version: record.version,
        lease: record.lease,
    }
}
