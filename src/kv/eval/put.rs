//! Putting keys.

use std::borrow::Cow;

use crate::error::{ErrorKind, Result};
use crate::kv::request::PutRequest;
use crate::kv::response::PutResponse;
use crate::kv::seam::{Stub, WriteKind};
use crate::kv::space;

use super::{Evaluation, Overlaid, alive};

impl<'r> Evaluation<'_, 'r> {
    /// A put on its own: as one in a transaction, with the checks in the other order.
    pub(in crate::kv) fn single_put(&mut self, request: &'r PutRequest) -> Result<PutResponse> {
        if request.lease != 0 {
            self.lease_exists(request.lease)?;
        }
        self.keeps_something(request)?;
        self.put(request)
    }

    /// Puts one key, whatever it was before, detaching it from any lease.
    pub(in crate::kv) fn blind_put(&mut self, key: &'r [u8], value: &'r [u8]) -> Result<()> {
        let internal = space::user(key);
        if self.leases {
            let alive = alive(self.reads.newest(&internal)?);
            self.detach(key, alive)?;
        }
        self.write(internal, WriteKind::Put { value: Cow::Borrowed(value), lease: 0 })
    }

    /// Puts one key if `seen` is its mod revision, 0 if it is not alive. Answers whether it is.
    pub(in crate::kv) fn compare_and_put(
        &mut self,
        key: &'r [u8],
        seen: u64,
        value: &'r [u8],
    ) -> Result<bool> {
        let internal = space::user(key);
        let alive = self.point(internal.clone())?;
        if alive.map_or(0, |stub| stub.revision) != seen {
            return Ok(false);
        }
        self.detach(key, alive)?;
        self.write(internal, WriteKind::Put { value: Cow::Borrowed(value), lease: 0 })?;
        Ok(true)
    }

    /// Puts a key, with a lease or 0, or deletes it, if `seen` is its mod revision, 0 if it is not alive.
    /// Answers whether it is.
    pub(in crate::kv) fn replace(
        &mut self,
        key: &[u8],
        seen: u64,
        put: Option<(Cow<'r, [u8]>, i64)>,
    ) -> Result<bool> {
        let alive = self.base_stub(key)?;
        if alive.map_or(0, |stub| stub.revision) != seen {
            return Ok(false);
        }
        let lease = put.as_ref().map_or(0, |(_, lease)| *lease);
        if lease != 0 {
            self.lease_exists(lease)?;
        }
        self.reattach(key, alive.map_or(0, |stub| stub.lease), lease)?;
        let kind = put.map_or(WriteKind::Delete, |(value, lease)| WriteKind::Put { value, lease });
        self.write(space::user(key), kind)?;
        Ok(true)
    }

    /// Takes a key off the lease that it has.
    fn detach(&mut self, key: &[u8], alive: Option<Stub>) -> Result<()> {
        self.reattach(key, alive.map_or(0, |stub| stub.lease), 0).map(drop)
    }

    /// `ignore_value` and `ignore_lease` need a key that was alive before the transaction.
    pub(super) fn keeps_something(&mut self, request: &PutRequest) -> Result<()> {
        if (request.ignore_value || request.ignore_lease) && self.base_stub(&request.key)?.is_none()
        {
            return Err(ErrorKind::KeyNotFound { key: request.key.clone() }.into());
        }
        Ok(())
    }

    pub(super) fn put(&mut self, request: &'r PutRequest) -> Result<PutResponse> {
        let (old, old_lease) = if !request.is_blind() {
            let old = self.current_key(&request.key)?;
            let lease = old.as_ref().map_or(0, |old| old.lease);
            (old, lease)
        } else if self.leases && !self.overlay.contains_key(&request.key) {
            // Only to take the key off its old lease. A stale answer leaves an attachment too
            // many, which does no harm: the key's own lease decides.
            let newest = self.reads.newest(&space::user(&request.key))?;
            (None, alive(newest).map_or(0, |stub| stub.lease))
        } else {
            (None, 0)
        };
        let lease = if request.ignore_lease { old_lease } else { request.lease };
        let kept = old.as_ref().filter(|_| request.ignore_value).map(|old| &old.value);
        let attachment = self.reattach(&request.key, old_lease, lease)?;
        let write = self.plan.writes.len();
        let value = match kept {
            Some(kept) => Cow::Owned(kept.to_vec()),
            None => Cow::Borrowed(&request.value[..]),
        };
        self.write(space::user(&request.key), WriteKind::Put { value, lease })?;
        if self.has_followers {
            let value = kept.unwrap_or(&request.value).clone();
            let put = Overlaid::Put { value, lease, write, attachment };
            self.overlay.insert(request.key.clone(), put);
        }
        let prev_kv = old.filter(|_| request.prev_kv);
        Ok(PutResponse { revision: self.seen_revision(), prev_kv })
    }
}
