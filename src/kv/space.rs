//! Keys as the engine knows them: users' keys, the records of the lease table, and where each kind
//! begins and ends. What their bytes are is said in [`annals_format::space`].

use annals_format::space::{Key, RECORD_ATTACHMENT, RECORD_LEASE, SYSTEM, USER};
use bytes::{Buf as _, Bytes};

use super::range::KeyRange;
use super::seam::{INLINE_KEY_BYTES, InternalKey};

/// The internal key of a user key.
pub(crate) fn user(key: &[u8]) -> InternalKey {
    let mut inline = [USER; INLINE_KEY_BYTES];
    if let Some(place) = inline.get_mut(1..=key.len()) {
        place.copy_from_slice(key);
        return InternalKey::from_buf_and_len(inline, key.len() + 1);
    }
    let mut internal = InternalKey::with_capacity(key.len() + 1);
    internal.push(USER);
    internal.extend_from_slice(key);
    internal
}

/// The internal bounds of a range of user keys; the empty end is the end of the space.
pub(crate) fn user_range(range: &KeyRange) -> (Bytes, Bytes) {
    let bytes = |key: &Bytes| Bytes::from(Key::User(key).encode());
    (bytes(range.start()), range.end().map_or_else(Bytes::new, bytes))
}

/// An internal key without its space byte.
pub(super) fn strip(mut internal: Bytes) -> Bytes {
    // Not a slice: that would be a second owner, which has to be allocated.
    internal.advance(1.min(internal.len()));
    internal
}

/// The system key of a lease.
pub(super) fn lease(id: i64) -> InternalKey {
    Key::Lease { id }.encode().into()
}

/// The system key that attaches a key to a lease.
pub(super) fn attachment(id: i64, key: &[u8]) -> InternalKey {
    Key::Attachment { id, key }.encode().into()
}

/// The bounds of all leases.
pub(super) fn leases() -> (Bytes, Bytes) {
    (Bytes::from(vec![SYSTEM, RECORD_LEASE]), Bytes::from(vec![SYSTEM, RECORD_LEASE + 1]))
}

/// The bounds of the leases with negative ids, and of the others.
pub(super) fn leases_by_sign() -> [(Bytes, Bytes); 2] {
    let (start, end) = leases();
    let negative = Bytes::from(Key::Lease { id: i64::MIN }.encode());
    [(negative.clone(), end), (start, negative)]
}

/// The bounds of all attachments of one lease.
pub(super) fn attachments(id: i64) -> (Bytes, Bytes) {
    let attachment = |id| Bytes::from(Key::Attachment { id, key: &[] }.encode());
    let start = attachment(id);
    // Ids are compared as unsigned numbers here; after the last one comes the next letter.
    let end = match id.cast_unsigned().checked_add(1) {
        Some(next) => attachment(next.cast_signed()),
        None => Bytes::from(vec![SYSTEM, RECORD_ATTACHMENT + 1]),
    };
    (start, end)
}

/// The lease id in the system key of a lease.
pub(super) fn lease_id(internal: &[u8]) -> Option<i64> {
    match Key::decode(internal) {
        Ok(Key::Lease { id }) => Some(id),
        _ => None,
    }
}

/// The user key in the system key of an attachment.
pub(super) fn attached_key(internal: &Bytes) -> Option<Bytes> {
    match Key::decode(internal) {
        Ok(Key::Attachment { key, .. }) => Some(internal.slice_ref(key)),
        _ => None,
    }
}

/// The system key that remembers a `compact(0)`.
pub(super) fn compacted_to_zero() -> InternalKey {
    Key::Compacted.encode().into()
}
