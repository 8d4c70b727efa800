//! Leases that objects of about the same end share: `lease_manager.go` of `k8s.io/apiserver/pkg/storage/etcd3`.

use std::sync::Arc;

use crate::clock::Clock;
use crate::kv::LEASE_TTL_MAX;
use crate::object::kv::Kv;
use crate::sync::plain::{Mutex, lock};

/// Objects that share a lease.
const SHARED_MAX: u64 = 1000;
/// Seconds for which a lease is given to others, too, at most.
const REUSE_SECONDS: u64 = 60;
/// And the part of the time to live, in percent.
const REUSE_PERCENT: u64 = 5;

/// The lease granted last.
#[derive(Debug)]
pub(super) struct Leases {
    clock: Arc<dyn Clock>,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    id: i64,
    /// When it ends, in microseconds of the clock's elapsed time.
    ends: i64,
    objects: u64,
}

impl Leases {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, last: Mutex::default() }
    }

    /// A lease that lasts for `ttl` seconds, and a twentieth of that longer at most.
    pub(super) fn get<K: Kv>(&self, kv: &K, ttl: u64) -> crate::Result<i64> {
        let micros =
            |seconds: u64| i64::try_from(seconds.saturating_mul(1_000_000)).unwrap_or(i64::MAX);
        let reuse = reuse(ttl);
        let mut last = lock(&self.last);
        let now = self.clock.elapsed_micros();
        let lasts = now.saturating_add(micros(ttl)) < last.ends;
        let is_close = now.saturating_add(micros(ttl.saturating_add(reuse))) >= last.ends;
        if lasts && is_close && last.objects < SHARED_MAX {
            last.objects += 1;
            return Ok(last.id);
        }
        // Others may come in between, and have one granted as well: better than to wait for each other.
        drop(last);
        let id = kv.grant(granted(ttl))?;
        let ttl = ttl.saturating_add(reuse);
        *lock(&self.last) = Last { id, ends: now.saturating_add(micros(ttl)), objects: 1 };
        Ok(id)
    }

    /// Gives no other this lease: it is gone.
    pub(super) fn forget(&self, id: i64) {
        let mut last = lock(&self.last);
        if last.id == id {
            *last = Last::default();
        }
    }
}

/// Seconds for which a lease is given to others, too.
fn reuse(ttl: u64) -> u64 {
    REUSE_SECONDS.min(ttl.saturating_mul(REUSE_PERCENT) / 100)
}

/// Seconds for which a lease is granted.
fn granted(ttl: u64) -> i64 {
    i64::try_from(ttl.saturating_add(reuse(ttl))).unwrap_or(i64::MAX)
}

/// Refuses what no lease is granted for.
pub(super) fn check(ttl: u64) -> crate::Result<()> {
    let (ttl, max) = (granted(ttl), LEASE_TTL_MAX);
    if ttl > max {
        return Err(crate::ErrorKind::LeaseTtlTooLarge { ttl, max }.into());
    }
    Ok(())
}
