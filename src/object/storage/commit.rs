//! The one transaction that all writes of objects are: `If mod_revision(key) == r Then put or delete Else get(key)`.
//!
//! A dry run is the same transaction with a comparison that cannot hold beside it. The store checks what it is asked, as
//! the sizes of key and value, takes the `Else`, and writes nothing; what that has read says whether the write would
//! have been made. So it is also found out whether a write is worth a lease.

use bytes::Bytes;

use crate::kv::{
    KeyValue, Op, OpResponse, PutRequest, RangeRequest, TxnRequest, TxnResponse, mod_revision,
};
use crate::object::kv::Kv;

use super::Storage;
use super::error::StorageError;
use super::ttl::{self, Lent};

/// What a write came to.
pub(super) enum Outcome {
    /// It is made, at this revision; of a dry run: it would be, and this is the revision of what is there still, 0 for
    /// nothing.
    Done(u64),
    /// The key has been changed: this is there now.
    Lost(Option<KeyValue>),
}

/// What becomes of the lease of a key that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lease {
    /// It stays.
    Keep,
    /// One of so many seconds; 0 for none.
    Ttl(u64),
}

impl<K: Kv> Storage<K> {
    /// Writes if the key is as it was at `revision`; 0 for a key that is free. `own` is the lease that the call has
    /// been given in an earlier try: it needs no other, as long as that lasts.
    pub(super) fn put(
        &self,
        key: &str,
        data: &[u8],
        revision: u64,
        lease: Lease,
        own: &mut Lent,
    ) -> Result<Outcome, StorageError> {
        let value = self
            .codec
            .transformer
            .to_storage(data, key.as_bytes())
            .map_err(|bad| StorageError::internal(key, bad))?;
        let ignore_lease = lease == Lease::Keep;
        let put = PutRequest { ignore_lease, ..PutRequest::new(key, Bytes::from(value)) };
        let Lease::Ttl(ttl @ 1..) = lease else {
            return self.commit(key, revision, Op::Put(put));
        };
        ttl::check(ttl)?;
        let mut again = true;
        loop {
            if self.is_dry || !self.leases.lend(ttl, own) {
                // A lease is a write of its own, and comes first: there is none for what is refused.
                let would = self.transact(key, revision, Op::Put(put.clone()), true)?;
                if self.is_dry || matches!(would, Outcome::Lost(_)) {
                    return Ok(would);
                }
                self.leases.grant(&*self.kv, ttl, own)?;
            }
            let put = PutRequest { lease: own.id, ..put.clone() };
            match self.transact(key, revision, Op::Put(put), false) {
                // A lease may have ended, or have been revoked, since it was granted.
                Err(error)
                    if again && matches!(error.kind(), crate::ErrorKind::LeaseNotFound { .. }) =>
                {
                    self.leases.forget(own);
                    again = false;
                }
                answer => return Ok(answer?),
            }
        }
    }

    /// Does something to a key if that is as it was at `revision`, 0 for one that is free; or only says whether it would.
    pub(super) fn commit(
        &self,
        key: &str,
        revision: u64,
        then: Op,
    ) -> Result<Outcome, StorageError> {
        Ok(self.transact(key, revision, then, self.is_dry)?)
    }

    fn transact(&self, key: &str, revision: u64, then: Op, is_dry: bool) -> crate::Result<Outcome> {
        let mut compare = vec![mod_revision(key).eq(revision)];
        if is_dry {
            compare.push(mod_revision(key).ne(revision));
        }
        let get = Op::Range(RangeRequest::new(key));
        let request = TxnRequest { compare, success: vec![then], failure: vec![get] };
        let answer = self.kv.transact(request)?;
        if answer.succeeded {
            return Ok(Outcome::Done(answer.revision));
        }
        let there = read_else(answer);
        if is_dry && there.as_ref().map_or(0, |kv| kv.mod_revision) == revision {
            return Ok(Outcome::Done(revision));
        }
        Ok(Outcome::Lost(there))
    }
}

fn read_else(mut answer: TxnResponse) -> Option<KeyValue> {
    match answer.responses.pop() {
        Some(OpResponse::Range(mut read)) => read.kvs.pop(),
        _ => None,
    }
}
