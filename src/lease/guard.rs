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

    /// Whether the lease is still there: not any more once somebody has revoked it, even if its id has been granted anew.
    /// As long as this value lives and the store is open, it does not run out, however late it is renewed.
    ///
    /// It costs a look-up in memory, or a read of the lease's record where [leases do not
    /// end](crate::Options::lease_expiry) by themselves.
    ///
    /// **True is what was so just now**: before the caller does anything, somebody may have revoked the lease. Who leads by
    /// a key that is attached to it learns here when to give up, but not that he may still write. For that each
    /// transaction in which only the leader may write has to compare: that the key is the one he has put.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use annals::{PutRequest, create_revision, put};
    /// use std::time::Duration;
    ///
    /// let session = store.lease(Duration::from_secs(10))?;
    /// let campaign = PutRequest::new("/leader", "me").lease(session.id());
    /// let won = store.txn().when([create_revision("/leader").eq(0)]).then([campaign]).commit()?;
    /// assert!(won.succeeded && session.is_alive()?);
    /// // The work of a leader, if he still is it:
    /// let lead = || {
    ///     let is_mine = create_revision("/leader").eq(won.revision);
    ///     store.txn().when([is_mine]).then([put("/work", "done")]).commit()
    /// };
    /// assert!(lead()?.succeeded);
    ///
    /// store.lease_revoke(session.id())?; // by somebody else
    /// assert!(!lead()?.succeeded && !session.is_alive()?);
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`](crate::ErrorKind::Closed), and [`Poisoned`](crate::ErrorKind::Poisoned), as somebody may have been about to
    /// revoke it then. Where leases do not end by themselves also as [`Store::get`].
    pub fn is_alive(&self) -> Result<bool> {
        let records = self.store.lease_records();
        let is_alive = match leases(&self.store) {
            Some(leases) => leases.table.keeps(self.id),
            // Nobody has the time of it, nor knows whether this is another one with its id.
            None => records.get(self.id)?.is_some(),
        };
        // A revocation that has failed may have ended it.
        records.check_writable()?;
        Ok(is_alive)
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
