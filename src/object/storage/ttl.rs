//! Leases that objects of about the same end share: `lease_manager.go` of `k8s.io/apiserver/pkg/storage/etcd3`.

use std::sync::Arc;

use crate::clock::Clock;
use crate::kv::LEASE_TTL_MAX;
use crate::object::kv::Kv;
use crate::sync::plain::{Mutex, lock};

/// Objects that share a lease.
const SHARED_MAX: u64 = 1000;
/// For how long a lease is given to others, too: a part of the time to live, in percent.
const REUSE_PERCENT: u64 = 5;
/// At least so many seconds, so that also what lives for a short time needs few leases.
const REUSE_SECONDS_MIN: u64 = 1;
/// At most so many.
const REUSE_SECONDS_MAX: u64 = 60;

/// A lease that has been granted; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lent {
    pub(super) id: i64,
    /// When it ends, in microseconds of the clock's elapsed time.
    ends: i64,
}

/// The lease granted last.
#[derive(Debug)]
pub(super) struct Leases {
    clock: Arc<dyn Clock>,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    lent: Lent,
    objects: u64,
}

impl Leases {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, last: Mutex::default() }
    }

    /// Looks for a lease that lasts for `ttl` seconds, and not much longer: the one that a write has already, or else
    /// the one granted last. Answers whether there is one.
    pub(super) fn lend(&self, ttl: u64, own: &mut Lent) -> bool {
        let mut last = lock(&self.last);
        let now = self.clock.elapsed_micros();
        if own.fits(ttl, now) {
            return true;
        }
        let fits = last.objects < SHARED_MAX && last.lent.fits(ttl, now);
        if fits {
            last.objects += 1;
            *own = last.lent;
        }
        fits
    }

    /// Has a lease granted. Nobody else waits for that: who needs one meanwhile has another granted.
    pub(super) fn grant<K: Kv>(&self, kv: &K, ttl: u64, own: &mut Lent) -> crate::Result<()> {
        // It begins no sooner than this.
        let now = self.clock.elapsed_micros();
        let id = kv.grant(granted(ttl))?;
        let ends = now.saturating_add(micros(ttl.saturating_add(reuse(ttl))));
        *own = Lent { id, ends };
        *lock(&self.last) = Last { lent: *own, objects: 1 };
        Ok(())
    }

    /// Gives this lease to nobody: it is gone.
    pub(super) fn forget(&self, own: &mut Lent) {
        let gone = std::mem::take(own);
        let mut last = lock(&self.last);
        if last.lent.id == gone.id {
            *last = Last::default();
        }
    }
}

impl Lent {
    fn fits(self, ttl: u64, now: i64) -> bool {
        let lasts = now.saturating_add(micros(ttl)) < self.ends;
        lasts && now.saturating_add(micros(ttl.saturating_add(reuse(ttl)))) >= self.ends
    }
}

/// Seconds for which a lease is given to others, too.
fn reuse(ttl: u64) -> u64 {
    (ttl.saturating_mul(REUSE_PERCENT) / 100).clamp(REUSE_SECONDS_MIN, REUSE_SECONDS_MAX)
}

/// Seconds for which a lease is granted.
fn granted(ttl: u64) -> i64 {
    i64::try_from(ttl.saturating_add(reuse(ttl))).unwrap_or(i64::MAX)
}

fn micros(seconds: u64) -> i64 {
    i64::try_from(seconds.saturating_mul(1_000_000)).unwrap_or(i64::MAX)
}

/// Refuses what no lease is granted for.
pub(super) fn check(ttl: u64) -> crate::Result<()> {
    let (ttl, max) = (granted(ttl), LEASE_TTL_MAX);
    if ttl > max {
        return Err(crate::ErrorKind::LeaseTtlTooLarge { ttl, max }.into());
    }
    Ok(())
}
