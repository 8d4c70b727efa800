//! Key spaces: how users' keys and the lease table share one ordered key space.
//!
//! Below this room every key is one space byte and then the key's bytes. Users' keys are in
//! [`USER`]. The lease table is in [`SYSTEM`], whose keys are only ever read as of now:
//!
//! | system key | value |
//! | --- | --- |
//! | `L`, lease id (8 bytes, big-endian) | granted time to live in seconds (8 bytes, little-endian) |
//! | `A`, lease id (8 bytes, big-endian), user key | empty: the key is attached to the lease |
//! | `C` | empty: `compact(0)` was asked for |

use bytes::{BufMut, Bytes, BytesMut};

use super::range::KeyRange;

/// The lease table.
pub(super) const SYSTEM: u8 = 0;
/// Users' keys.
pub(super) const USER: u8 = 1;

const LEASE: u8 = b'L';
const ATTACHMENT: u8 = b'A';

/// The internal key of a user key.
pub(super) fn user(key: &[u8]) -> Bytes {
    let mut internal = BytesMut::with_capacity(1 + key.len());
    internal.put_u8(USER);
    internal.put_slice(key);
    internal.freeze()
}

/// The internal bounds of a range of user keys; the empty end is the end of the space.
pub(super) fn user_range(range: &KeyRange) -> (Bytes, Bytes) {
    (user(range.start()), range.end().map_or_else(Bytes::new, |end| user(end)))
}

/// An internal key without its space byte.
pub(super) fn strip(internal: &Bytes) -> Bytes {
    internal.slice(1.min(internal.len())..)
}

/// The system key of a lease.
pub(super) fn lease(id: i64) -> Bytes {
    lease_key(LEASE, id, &[])
}

/// The system key that attaches a key to a lease.
pub(super) fn attachment(id: i64, key: &[u8]) -> Bytes {
    lease_key(ATTACHMENT, id, key)
}

/// The bounds of all leases.
pub(super) fn leases() -> (Bytes, Bytes) {
    (Bytes::from(vec![SYSTEM, LEASE]), Bytes::from(vec![SYSTEM, LEASE + 1]))
}

/// The bounds of all attachments of one lease.
pub(super) fn attachments(id: i64) -> (Bytes, Bytes) {
    let start = attachment(id, &[]);
    // Ids are compared as unsigned numbers here; after the last one comes the next letter.
    let end = match id.cast_unsigned().checked_add(1) {
        Some(next) => attachment(next.cast_signed(), &[]),
        None => Bytes::from(vec![SYSTEM, ATTACHMENT + 1]),
    };
    (start, end)
}

/// The lease id in the system key of a lease.
pub(super) fn lease_id(internal: &[u8]) -> Option<i64> {
    let id: [u8; 8] = internal.get(2..)?.try_into().ok()?;
    Some(i64::from_be_bytes(id))
}

/// The user key in the system key of an attachment.
pub(super) fn attached_key(internal: &Bytes) -> Option<Bytes> {
    (internal.len() > 10).then(|| internal.slice(10..))
}

/// The system key that remembers a `compact(0)`.
pub(super) fn compacted_to_zero() -> Bytes {
    Bytes::from_static(&[SYSTEM, b'C'])
}

fn lease_key(kind: u8, id: i64, rest: &[u8]) -> Bytes {
    let mut key = BytesMut::with_capacity(10 + rest.len());
    key.put_u8(SYSTEM);
    key.put_u8(kind);
    key.put_i64(id);
    key.put_slice(rest);
    key.freeze()
}
