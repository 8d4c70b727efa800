//! Leases as state: system keys written by the same plans as users' keys.
//!
//! A key's `lease` field is the truth. The attachments are an index for revoking: each key that
//! has the lease is among them, but a key among them may have lost it since (a put that did not
//! look detaches the key without removing the attachment). So revoking and listing look at the
//! keys themselves.

use annals_format::lease::Value;
use annals_format::limits::{TRANSACTION_BYTES_MAX, TRANSACTION_OPERATIONS_MAX};
use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::kv::request::{LEASE_TTL_MAX, LeaseGrantRequest};
use crate::kv::seam::{InternalKey, Write, WriteKind};
use crate::kv::space;
use crate::kv::types::Lease;

use super::reads::Reads;
use super::{Evaluation, alive, encoded_bytes};

impl Evaluation<'_, '_> {
    /// Moves a key from one lease to another in the lease table; 0 is none. Returns the place of
    /// the new attachment among the system writes.
    ///
    /// A plan that deletes what is not there never finds its place, so the old attachment is looked
    /// for, although it is bound to be there.
    pub(super) fn reattach(&mut self, key: &[u8], old: i64, new: i64) -> Result<Option<usize>> {
        if old == new {
            return Ok(None);
        }
        if old != 0 {
            let attachment = space::attachment(old, key);
            if alive(self.reads.newest(&attachment)?).is_some() {
                self.system_delete(attachment);
            }
        }
        if new == 0 {
            return Ok(None);
        }
        self.system_put(space::attachment(new, key), &[]);
        Ok(Some(self.system.len() - 1))
    }

    /// Refuses a lease that does not exist.
    pub(super) fn lease_exists(&mut self, lease: i64) -> Result<()> {
        if self.has_lease(lease)? {
            return Ok(());
        }
        Err(ErrorKind::LeaseNotFound { lease }.into())
    }

    /// Whether a lease exists.
    pub(in crate::kv) fn has_lease(&mut self, lease: i64) -> Result<bool> {
        self.has_system_key(space::lease(lease))
    }

    /// Grants the lease `id`, which is not 0, and returns its time to live.
    pub(in crate::kv) fn grant(&mut self, id: i64, request: &LeaseGrantRequest) -> Result<Lease> {
        self.format_limits();
        if self.has_system_key(space::lease(id))? {
            return Err(ErrorKind::LeaseExists { lease: id }.into());
        }
        let ttl = granted_ttl(request)?;
        self.system_put(space::lease(id), &Value { ttl, remaining: None }.encode());
        Ok(Lease::new(id, ttl, self.base))
    }

    /// Deletes a lease and the keys that have it, and returns those. However many they are: a lease that
    /// could not be revoked would live for ever. So only the limits of the format hold.
    ///
    /// `may` is asked of each of them. If it says no of one, nothing is deleted, and the answer is `None`.
    pub(in crate::kv) fn revoke(
        &mut self,
        id: i64,
        may: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Option<Vec<Bytes>>> {
        self.format_limits();
        self.lease_exists(id)?;
        let (start, end) = space::attachments(id);
        let mut attachments = Vec::new();
        for record in self.reads.scan(&start, &end, true) {
            let attachment = record?.key;
            let Some(key) = space::attached_key(&attachment) else { continue };
            attachments.push((attachment, key));
        }
        self.plan.reads.ranges.push((start, end));
        // All are asked about before the first is deleted: a plan with any writes would be carried out.
        let mut has_lease = Vec::with_capacity(attachments.len());
        for (_, key) in &attachments {
            let has = self.base_stub(key)?.is_some_and(|stub| stub.lease == id);
            if has && !may(key) {
                return Ok(None);
            }
            has_lease.push(has);
        }
        let mut deleted = Vec::new();
        for ((attachment, key), has) in attachments.into_iter().zip(has_lease) {
            if has {
                self.delete(&key, id)?;
                deleted.push(key);
            } else {
                self.system_delete(InternalKey::from_slice(&attachment));
            }
        }
        self.system_delete(space::lease(id));
        Ok(Some(deleted))
    }

    /// What the store writes about leases keeps the limits of the format, not those of the options: they are
    /// about what users write, and a note that could not be written would have a lease live longer.
    fn format_limits(&mut self) {
        self.limits.operations = TRANSACTION_OPERATIONS_MAX;
        self.limits.transaction_bytes = TRANSACTION_BYTES_MAX;
    }

    /// Writes down how much time a lease has left, if there is such a lease.
    pub(in crate::kv) fn note_lease(&mut self, id: i64, value: Value) -> Result<()> {
        self.format_limits();
        if self.has_system_key(space::lease(id))? {
            self.system_put(space::lease(id), &value.encode());
        }
        Ok(())
    }

    /// Writes down that a lease has all its time again, where its record says something else, or `always`.
    ///
    /// Who knows of a note that is not yet ordered asks for always: a plan that writes nothing is not held
    /// against what others write, so the note could be ordered behind it and count.
    pub(in crate::kv) fn renew_lease(&mut self, id: i64, always: bool) -> Result<i64> {
        self.format_limits();
        self.lease_exists(id)?;
        let record = self.reads.get(&space::lease(id))?;
        let value = record.map(|record| value_of(&record.value)).unwrap_or_default();
        if always || value.remaining.is_some() {
            let whole = Value { remaining: None, ..value };
            self.system_put(space::lease(id), &whole.encode());
        }
        Ok(value.ttl)
    }

    /// Remembers that `compact(0)` was asked for; it succeeds once.
    pub(super) fn compact_to_zero(&mut self) -> Result<()> {
        let compacted = self.reads.compacted();
        if compacted > 0 || self.has_system_key(space::compacted_to_zero())? {
            return Err(ErrorKind::Compacted { requested: 0, compacted, prefix: None }.into());
        }
        self.system_put(space::compacted_to_zero(), &[]);
        Ok(())
    }

    /// Whether a system key is there, with its place in the footprint.
    fn has_system_key(&mut self, key: InternalKey) -> Result<bool> {
        Ok(self.point(key)?.is_some())
    }

    fn system_put(&mut self, key: InternalKey, value: &[u8]) {
        let value = value.to_vec().into();
        self.system_write(Write { key, kind: WriteKind::Put { value, lease: 0 } });
    }

    fn system_delete(&mut self, key: InternalKey) {
        self.system_write(Write { key, kind: WriteKind::Delete });
    }

    fn system_write(&mut self, write: Write<'static>) {
        self.bytes += encoded_bytes(&write);
        self.system.push(Some(write));
    }
}

/// The time to live that a request is granted; none that no lease can have.
pub(in crate::kv) fn granted_ttl(request: &LeaseGrantRequest) -> Result<i64> {
    let (ttl, max) = (request.ttl.max(request.ttl_min), LEASE_TTL_MAX);
    if ttl > max {
        return Err(ErrorKind::LeaseTtlTooLarge { ttl, max }.into());
    }
    if ttl < 1 {
        let what = format!("a lease lives for at least one second, not {ttl}");
        return Err(Error::invalid(what));
    }
    Ok(ttl)
}

/// Whether there are leases at all.
pub(in crate::kv) fn any(reads: &dyn Reads) -> Result<bool> {
    let (start, end) = space::leases();
    Ok(reads.scan(&start, &end, true).next().transpose()?.is_some())
}

/// One lease, if it exists, and what its record says.
pub(in crate::kv) fn info(
    reads: &dyn Reads,
    id: i64,
    keys: bool,
) -> Result<Option<(Lease, Value)>> {
    let Some(record) = reads.get(&space::lease(id))? else { return Ok(None) };
    let value = value_of(&record.value);
    let mut lease = Lease::new(id, value.ttl, reads.revision());
    if keys {
        let (start, end) = space::attachments(id);
        for record in reads.scan(&start, &end, true) {
            let Some(key) = space::attached_key(&record?.key) else { continue };
            if reads.get(&space::user(&key))?.is_some_and(|record| record.lease == id) {
                lease.keys.push(key);
            }
        }
    }
    Ok(Some((lease, value)))
}

/// What the record of a lease says. That it can be read was checked with its frame; should it not be all the
/// same, nothing is deleted for it.
pub(in crate::kv) fn value_of(value: &[u8]) -> Value {
    Value::decode(value).unwrap_or(Value { ttl: LEASE_TTL_MAX, remaining: None })
}
