//! A lease that lives as long as a value of the program.

use crate::error::Result;
use crate::kv::{LeaseRevokeResponse, Store};

use super::leases;

/// A lease that renews itself as long as this value lives; made by [`Store::lease`].
///
/// When it is dropped the lease is not renewed any more, and ends with its time;
/// [`revoke`](Self::revoke) ends it at once. When the process dies, it ends after the store has been open
/// again for its time to live. It keeps the store open, as a handle does.
#[derive(Debug)]
#[must_use = "the lease ends some time after this is dropped"]
pub struct LeaseGuard {
    store: Store,
    id: i64,
    ttl: i64,
}

impl LeaseGuard {
    pub(super) fn new(store: Store, id: i64, ttl: i64) -> Self {
        Self { store, id, ttl }
    }

    /// The lease, for [`PutRequest::lease`](crate::PutRequest::lease).
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Its time to live, in seconds.
    pub fn ttl(&self) -> i64 {
        self.ttl
    }

    /// Ends the lease now: deletes the keys attached to it.
    ///
    /// # Errors
    ///
    /// As [`Store::lease_revoke`].
    pub fn revoke(self) -> Result<LeaseRevokeResponse> {
        self.store.lease_revoke(self.id)
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        if let Some(leases) = leases(&self.store) {
            leases.table.let_go(self.id);
        }
    }
}
