//! What can be asked about leases.

use std::iter::FusedIterator;
use std::time::Duration;

use bytes::Bytes;

use crate::error::Result;
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
    /// Keeps it open, and is asked when the first lease is.
    store: Store,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    Begun(Box<AllLeases>),
    Over,
}

impl LeaseIter {
    pub(super) fn new(store: Store) -> Self {
        Self { store, state: State::New }
    }

    fn begun(&mut self) -> Result<&mut AllLeases> {
        if matches!(self.state, State::New) {
            self.state = State::Begun(Box::new(self.store.lease_records().all()?));
        }
        match &mut self.state {
            State::Begun(all) => Ok(all),
            State::New | State::Over => Err(crate::ErrorKind::Closed.into()),
        }
    }
}

impl Iterator for LeaseIter {
    type Item = Result<Lease>;

    fn next(&mut self) -> Option<Self::Item> {
        if matches!(self.state, State::Over) {
            return None;
        }
        let next = self.begun().map(|all| (all.next().transpose(), all.revision));
        let next = next.and_then(|(next, revision)| {
            Ok(next?.map(|(id, value)| Lease::new(id, value.ttl, revision)))
        });
        if !matches!(next, Ok(Some(_))) {
            self.state = State::Over;
        }
        next.transpose()
    }
}

impl FusedIterator for LeaseIter {}
