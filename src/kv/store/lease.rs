//! Leases as state: granting, revoking, looking.

use crate::error::{ErrorKind, Result};
use crate::sync::plain::Ordering;

use super::Store;
use crate::kv::eval::lease as lease_table;
use crate::kv::request::{CommitOptions, LeaseGrantRequest};
use crate::kv::response::LeaseRevokeResponse;
use crate::kv::seam::Newest;
use crate::kv::types::Lease;

impl Store {
    /// Grants the lease `id` (0: the store picks one) for `ttl` seconds, at least
    /// [`LEASE_TTL_MIN`](crate::LEASE_TTL_MIN). It takes no revision.
    ///
    /// The store keeps no clock for leases: whoever does revokes them.
    ///
    /// # Errors
    ///
    /// [`LeaseExists`](crate::ErrorKind::LeaseExists),
    /// [`LeaseTtlTooLarge`](crate::ErrorKind::LeaseTtlTooLarge).
    pub fn lease_grant(&self, id: i64, ttl: i64) -> Result<Lease> {
        self.lease_grant_with(LeaseGrantRequest::new(id, ttl))
    }

    /// As [`Store::lease_grant`], with a least time to live of one's own.
    ///
    /// # Errors
    ///
    /// As [`Store::lease_grant`]; [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when both
    /// times are less than a second.
    pub fn lease_grant_with(&self, request: LeaseGrantRequest) -> Result<Lease> {
        lease_table::granted_ttl(&request)?;
        self.shared.leases.store(1, Ordering::SeqCst);
        if request.id != 0 {
            return self.grant(request.id, &request);
        }
        loop {
            match self.grant(self.pick_lease_id(), &request) {
                Err(error) if matches!(error.kind(), ErrorKind::LeaseExists { .. }) => {}
                granted => return granted,
            }
        }
    }

    fn grant(&self, id: i64, request: &LeaseGrantRequest) -> Result<Lease> {
        let (mut lease, done) =
            self.write(&CommitOptions::default(), |evaluation| evaluation.grant(id, request))?;
        lease.revision = done.revision();
        done.wait()?;
        Ok(lease)
    }

    /// A positive id, well spread, so that a free one is found at once.
    fn pick_lease_id(&self) -> i64 {
        let n = self.shared.next_lease.fetch_add(1, Ordering::Relaxed).cast_unsigned();
        // The multiplier is odd, so that different numbers stay different (Knuth, 6.4).
        let spread = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1;
        spread.max(1).cast_signed()
    }

    /// Revokes a lease and deletes the keys attached to it, in byte order, at one revision. Without
    /// keys it takes no revision.
    ///
    /// # Errors
    ///
    /// [`LeaseNotFound`](crate::ErrorKind::LeaseNotFound).
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use annals::PutRequest;
    ///
    /// let lease = store.lease_grant(0, 60)?;
    /// store.put_with(PutRequest::new("/session", "me").lease(lease.id))?;
    /// let revoked = store.lease_revoke(lease.id)?;
    /// assert_eq!(revoked.deleted, ["/session"]);
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn lease_revoke(&self, id: i64) -> Result<LeaseRevokeResponse> {
        let (deleted, done) =
            self.write(&CommitOptions::default(), |evaluation| evaluation.revoke(id))?;
        let revision = done.revision();
        done.wait()?;
        Ok(LeaseRevokeResponse { revision, deleted })
    }

    /// Every lease, by id, without its keys.
    ///
    /// # Errors
    ///
    /// As [`Store::get`].
    pub fn lease_list(&self) -> Result<Vec<Lease>> {
        lease_table::list(&Newest::of(&self.engine)?)
    }

    /// The lease `id`, or `None` when there is none; with its keys if `keys`.
    ///
    /// # Errors
    ///
    /// As [`Store::get`].
    pub fn lease_info(&self, id: i64, keys: bool) -> Result<Option<Lease>> {
        lease_table::info(&Newest::of(&self.engine)?, id, keys)
    }
}
