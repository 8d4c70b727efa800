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
        lease_table::list(&self.lease_table()?)
    }

    /// The lease `id`, or `None` when there is none; with its keys if `keys`.
    ///
    /// # Errors
    ///
    /// As [`Store::get`].
    pub fn lease_info(&self, id: i64, keys: bool) -> Result<Option<Lease>> {
        lease_table::info(&self.lease_table()?, id, keys)
    }

    /// The leases and the keys of one moment: an answer takes many reads, and is of one revision.
    fn lease_table(&self) -> Result<Newest<'_>> {
        Newest::with_leases(&self.engine)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kv::eval::reads::{Reads, Records};
    use crate::kv::seam::{Record, Stub};
    use crate::kv::{PutRequest, txn};
    use crate::options::Options;
    use crate::vfs::MemoryVfs;

    /// Lets something happen before the first scan.
    struct Interrupted<'a> {
        inner: Newest<'a>,
        interrupt: &'a dyn Fn(),
    }

    impl Reads for Interrupted<'_> {
        fn revision(&self) -> u64 {
            self.inner.revision()
        }

        fn compacted(&self) -> u64 {
            self.inner.compacted()
        }

        fn check_past(&self, start: &[u8], end: &[u8], revision: u64) -> Result<()> {
            self.inner.check_past(start, end, revision)
        }

        fn get(&self, key: &[u8]) -> Result<Option<Record>> {
            self.inner.get(key)
        }

        fn newest(&self, key: &[u8]) -> Result<Option<Stub>> {
            self.inner.newest(key)
        }

        fn scan(&self, start: &[u8], end: &[u8], keys_only: bool) -> Records<'_> {
            (self.interrupt)();
            self.inner.scan(start, end, keys_only)
        }

        fn get_at(&self, key: &[u8], revision: u64) -> Result<Option<Record>> {
            self.inner.get_at(key, revision)
        }

        fn scan_at(&self, start: &[u8], end: &[u8], only: bool, at: u64) -> Result<Records<'_>> {
            self.inner.scan_at(start, end, only, at)
        }
    }

    #[test]
    fn what_is_told_of_a_lease_is_of_one_revision() {
        for flushed in [false, true] {
            let options = Options::new().vfs(Arc::new(MemoryVfs::new())).background(false);
            let store = options.open("store").unwrap();
            store.lease_grant(7, 60).unwrap();
            let attached = ["a", "b"].map(|key| PutRequest::new(key, "").lease(7));
            store.transact(txn().then(attached)).unwrap();
            let interrupt = || {
                store.lease_revoke(7).unwrap();
                if flushed {
                    store.reorganise().unwrap();
                }
            };
            let inner = store.lease_table().unwrap();
            let reads = Interrupted { inner, interrupt: &interrupt };
            let lease = lease_table::info(&reads, 7, true).unwrap().expect("it was there");
            assert_eq!((lease.revision, lease.keys.len()), (2, 2), "flushed: {flushed}");
            assert_eq!(store.lease_info(7, true).unwrap(), None);
        }
    }
}
