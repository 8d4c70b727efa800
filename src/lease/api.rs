//! The calls about leases.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::kv::{CommitOptions, Lease, LeaseGrantRequest, LeaseRevokeResponse, Store};

use super::guard::LeaseGuard;
use super::leases;
use super::list::{LeaseIter, LeaseStatus};
use super::table::Renewal;

impl Store {
    /// Grants the lease `id` (0: the store picks one) for `ttl`, rounded up to seconds, 2 at least
    /// ([`LEASE_TTL_MIN`](crate::LEASE_TTL_MIN)). It takes no revision.
    ///
    /// Keys are attached to it with [`PutRequest::lease`](crate::PutRequest::lease). Unless it is
    /// [renewed](Self::lease_keep_alive) in time it ends: the lease and its keys are deleted, at one
    /// revision. It never ends early, by the clock of the machine that never goes back, and a moment late:
    /// a tenth of a second, and what the deletion takes. Its metadata says why: `lease 7 expired`. Time passes while the store is open for writing.
    /// What is left survives a restart; after a crash it is up to
    /// [`lease_checkpoint_interval_seconds`](crate::Options::lease_checkpoint_interval_seconds) more.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let path = directory.path();
    /// use annals::clock::ManualClock;
    /// use annals::{Options, PutRequest};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// // A clock that a test moves, and a store without threads.
    /// let clock = Arc::new(ManualClock::new(0));
    /// let store = Options::new().clock(clock.clone()).background(false).open(path)?;
    /// let lease = store.lease_grant(0, Duration::from_secs(60))?;
    /// store.put_with(PutRequest::new("/session", "me").lease(lease.id))?;
    ///
    /// clock.advance(59_000_000);
    /// store.lease_keep_alive(lease.id)?;
    /// clock.advance(59_000_000);
    /// while store.run_background()? {}
    /// assert!(store.get("/session")?.is_some());
    ///
    /// clock.advance(1_000_000);
    /// while store.run_background()? {}
    /// assert!(store.get("/session")?.is_none());
    /// let end = store.log(store.revision()..).next().expect("the deletion")?;
    /// assert_eq!(end.metadata, format!("lease {} expired", lease.id));
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LeaseExists`](crate::ErrorKind::LeaseExists),
    /// [`LeaseTtlTooLarge`](crate::ErrorKind::LeaseTtlTooLarge).
    pub fn lease_grant(&self, id: i64, ttl: Duration) -> Result<Lease> {
        self.lease_grant_with(LeaseGrantRequest::new(id, seconds(ttl)))
    }

    /// As [`Store::lease_grant`], with a least time to live of one's own.
    ///
    /// # Errors
    ///
    /// As [`Store::lease_grant`]; [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when both
    /// times are less than a second.
    pub fn lease_grant_with(&self, request: LeaseGrantRequest) -> Result<Lease> {
        self.granted(&request, false)
    }

    /// Grants a lease that renews itself as long as what is returned lives. The time to live is rounded up
    /// to seconds, one at least; the background thread renews it when a third of it is over, or in a store without
    /// [background threads](crate::Options::background) [`Store::run_background`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use annals::PutRequest;
    /// use std::time::Duration;
    ///
    /// let session = store.lease(Duration::from_secs(10))?;
    /// store.put_with(PutRequest::new("/workers/7", "here").lease(session.id()))?;
    /// // For as long as it takes; then:
    /// session.revoke()?;
    /// assert!(store.get("/workers/7")?.is_none());
    /// # Ok::<(), annals::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Store::lease_grant`].
    pub fn lease(&self, ttl: Duration) -> Result<LeaseGuard> {
        let request = LeaseGrantRequest { id: 0, ttl: seconds(ttl), ttl_min: 1 };
        let lease = self.granted(&request, true)?;
        Ok(LeaseGuard::new(self.clone(), lease.id, lease.ttl))
    }

    fn granted(&self, request: &LeaseGrantRequest, kept: bool) -> Result<Lease> {
        if request.id != 0 {
            return self.grant(request.id, request, kept);
        }
        loop {
            match self.grant(self.pick_lease_id(), request, kept) {
                Err(error) if matches!(error.kind(), ErrorKind::LeaseExists { .. }) => {}
                granted => return granted,
            }
        }
    }

    fn grant(&self, id: i64, request: &LeaseGrantRequest, kept: bool) -> Result<Lease> {
        self.expect_leases();
        let records = self.lease_records();
        let Some(leases) = leases(self) else { return records.grant(id, request) };
        leases.attend(self)?;
        // One that is not loaded yet may be over, too.
        leases.find(id)?;
        let claim = leases.table.claim(id);
        if claim.is_due() {
            // Its time is over. Who tries again and again to have the id keeps nobody from ending it.
            leases.end_claimed(&claim)?;
        }
        let lease = records.grant(id, request)?;
        // Its time begins when the caller may know of it.
        let value = annals_format::lease::Value { ttl: lease.ttl, remaining: None };
        claim.put(value, leases.table.now(), kept);
        Ok(lease)
    }

    /// Gives a lease all of its time again, and answers how much that is, in seconds.
    ///
    /// This costs a look-up in memory, however many leases there are, and writes nothing: only when it was
    /// not renewed for [a minute](crate::Options::lease_checkpoint_interval_seconds) its record is
    /// written, and waited for. A lease whose time is over is not renewed any more: then this returns when
    /// its keys are gone.
    ///
    /// # Errors
    ///
    /// [`LeaseNotFound`](crate::ErrorKind::LeaseNotFound), also when its time is over;
    /// [`Closed`](crate::ErrorKind::Closed), [`ReadOnly`](crate::ErrorKind::ReadOnly),
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown), [`Poisoned`](crate::ErrorKind::Poisoned).
    pub fn lease_keep_alive(&self, id: i64) -> Result<i64> {
        let not_found = || Err(Error::from(ErrorKind::LeaseNotFound { lease: id }));
        let Some(leases) = leases(self) else {
            let records = self.lease_records();
            // A renewal may write nothing, which nobody refuses.
            records.check_writable()?;
            return records.renew(id);
        };
        leases.records.check_writable()?;
        loop {
            match leases.table.renew(id) {
                Renewal::Done(ttl) => {
                    // It may have waited for a write that has failed: then its keys may be gone already.
                    leases.records.check_writable()?;
                    return Ok(ttl);
                }
                Renewal::Late => {
                    // If somebody else ends it, its keys are gone when that one is through.
                    if leases.expire_one(id)? {
                        return not_found();
                    }
                }
                Renewal::Noted => {
                    if let Some(ttl) = leases.renew_noted(id)? {
                        return Ok(ttl);
                    }
                }
                Renewal::Unknown => {
                    if !leases.find(id)? {
                        return not_found();
                    }
                }
            }
        }
    }

    /// Revokes a lease and deletes the keys attached to it, in byte order, at one revision. Without
    /// keys it takes no revision. However many keys there are: the limits of the
    /// [options](crate::Options::transaction_operations_max) do not hold for this.
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
    /// use std::time::Duration;
    ///
    /// let lease = store.lease_grant(0, Duration::from_secs(60))?;
    /// store.put_with(PutRequest::new("/session", "me").lease(lease.id))?;
    /// let revoked = store.lease_revoke(lease.id)?;
    /// assert_eq!(revoked.deleted, ["/session"]);
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn lease_revoke(&self, id: i64) -> Result<LeaseRevokeResponse> {
        self.lease_revoke_with(id, CommitOptions::default())
    }

    /// As [`lease_revoke`](Self::lease_revoke), with metadata, a time or a durability of its own.
    ///
    /// # Errors
    ///
    /// [`LeaseNotFound`](crate::ErrorKind::LeaseNotFound), and what is said of
    /// [`transact_with`](Self::transact_with) about the options.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path())?;
    /// use annals::{CommitOptions, PutRequest};
    ///
    /// use std::time::Duration;
    ///
    /// let lease = store.lease_grant(0, Duration::from_secs(60))?;
    /// store.put_with(PutRequest::new("/session", "me").lease(lease.id))?;
    /// let by = CommitOptions { metadata: "by ada".into(), ..CommitOptions::default() };
    /// let revoked = store.lease_revoke_with(lease.id, by)?;
    /// let told = store.log(revoked.revision..).next().expect("one")?;
    /// assert_eq!(told.metadata, "by ada");
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn lease_revoke_with(
        &self,
        id: i64,
        options: CommitOptions,
    ) -> Result<LeaseRevokeResponse> {
        let revoked = self.revoke_if(id, &self.completed(options), &|_| true)?;
        // Nothing was refused.
        Ok(revoked.unwrap_or_default())
    }

    /// As [`lease_revoke`](Self::lease_revoke), but only if every key that is attached to the lease is among
    /// `keys`; else it changes nothing and answers `None`. What is asked and what is deleted is of one moment:
    /// so whoever looks at the keys of a lease before it is revoked ([`lease_info`](Self::lease_info)), and gives
    /// those, deletes no key that was attached since. Keys that are not attached, or not any more, do no harm.
    ///
    /// It costs what `lease_revoke` does, and a sorted list of `keys`.
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
    /// use std::time::Duration;
    ///
    /// let lease = store.lease_grant(0, Duration::from_secs(60))?;
    /// store.put_with(PutRequest::new("/mine", "").lease(lease.id))?;
    /// let seen = store.lease_info(lease.id, true)?.expect("it was granted").keys;
    /// store.put_with(PutRequest::new("/theirs", "").lease(lease.id))?;
    /// assert_eq!(store.lease_revoke_only(lease.id, &seen)?, None);
    /// let revoked = store.lease_revoke_only(lease.id, &["/theirs", "/mine"])?;
    /// assert_eq!(revoked.expect("both were given").deleted, ["/mine", "/theirs"]);
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn lease_revoke_only<K: AsRef<[u8]>>(
        &self,
        id: i64,
        keys: &[K],
    ) -> Result<Option<LeaseRevokeResponse>> {
        let mut keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        keys.sort_unstable();
        let among = |key: &[u8]| keys.binary_search(&key).is_ok();
        self.revoke_if(id, self.defaults(), &among)
    }

    fn revoke_if(
        &self,
        id: i64,
        options: &CommitOptions,
        may: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Option<LeaseRevokeResponse>> {
        let records = self.lease_records();
        let claim = leases(self).map(|leases| leases.table.claim(id));
        let revoked = records.revoke_if(id, options, may).and_then(|(answer, done)| {
            done.wait()?;
            Ok(answer)
        });
        let is_gone = match &revoked {
            Ok(answer) => answer.is_some(),
            Err(error) => matches!(error.kind(), ErrorKind::LeaseNotFound { .. }),
        };
        if let Some(claim) = claim.filter(|_| is_gone) {
            claim.remove();
        }
        revoked
    }

    /// How much time a lease has left, or `None` when there is no such lease; with its keys if `keys`.
    ///
    /// In a store that is open for reading only, it is what was written down last.
    ///
    /// # Errors
    ///
    /// As [`Store::get`].
    pub fn lease_time_to_live(&self, id: i64, keys: bool) -> Result<Option<LeaseStatus>> {
        let Some((lease, value)) = self.lease_records().info(id, keys)? else { return Ok(None) };
        let left = leases(self).map(|leases| leases.left(id, value));
        let remaining = Duration::from_millis(left.unwrap_or_else(|| value.remaining_millis()));
        let Lease { id, ttl: granted_ttl, keys, revision } = lease;
        Ok(Some(LeaseStatus { id, granted_ttl, remaining, keys, revision }))
    }

    /// Every lease, by id, without its keys.
    ///
    /// # Errors
    ///
    /// As [`Store::get`].
    pub fn lease_list(&self) -> Result<Vec<Lease>> {
        self.leases().collect()
    }

    /// The leases of one moment, by id, without their keys: as [`lease_list`](Self::lease_list), but one
    /// after the other, however many there are.
    pub fn leases(&self) -> LeaseIter {
        LeaseIter::new(self.clone())
    }

    /// The lease `id`, or `None` when there is none; with its keys if `keys`.
    ///
    /// # Errors
    ///
    /// As [`Store::get`].
    pub fn lease_info(&self, id: i64, keys: bool) -> Result<Option<Lease>> {
        Ok(self.lease_records().info(id, keys)?.map(|(lease, _)| lease))
    }
}

/// A time to live in whole seconds, rounded up.
fn seconds(ttl: Duration) -> i64 {
    let whole = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
    i64::try_from(whole).unwrap_or(i64::MAX)
}
