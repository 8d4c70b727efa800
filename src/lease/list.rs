//! What can be asked about leases.

use std::iter::FusedIterator;
use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::kv::{AllLeases, Lease, Store};

/// How a lease stands; see [`Store::lease_time_to_live`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LeaseStatus {
    /// The id.
    pub id: i64,
    /// The time to live that was granted, in seconds.
    pub granted_ttl: i64,
    /// How much of it is left. 0 of a lease whose time is over and whose end is about to come.
    pub remaining: Duration,
    /// The keys attached, in byte order, where they were asked for.
    pub keys: Vec<Bytes>,
    /// The revision at which the keys were.
    pub revision: u64,
}

/// Iterates over the leases of one moment, by id; made by [`Store::leases`].
///
/// It keeps the store open. After an error it ends.
#[derive(Debug)]
#[must_use = "iterators are lazy"]
pub struct LeaseIter {
    /// Keeps it open.
    _store: Store,
    /// The records, or why there are none, until that is told.
    records: Result<Box<AllLeases>, Option<Error>>,
}

impl LeaseIter {
    pub(super) fn new(store: Store) -> Self {
        let records = store.lease_records().all().map(Box::new).map_err(Some);
        Self { _store: store, records }
    }
}

impl Iterator for LeaseIter {
    type Item = Result<Lease>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.records {
            Ok(records) => {
                let record = records.next()?;
                Some(record.map(|(id, value)| Lease::new(id, value.ttl, records.revision)))
            }
            Err(error) => error.take().map(Err),
        }
    }
}

impl FusedIterator for LeaseIter {}
