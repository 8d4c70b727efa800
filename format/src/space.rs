//! Key spaces: how users' keys and the lease table share one ordered key space.
//!
//! An internal key is the byte of its space, then a user's key or a record of the store's own:
//!
//! ```text
//! key := 1, user's key              takes a revision, is read at any revision
//!      | 0, `L`, lease id           value: the time to live granted, and what is left of it ([`crate::lease`])
//!      | 0, `A`, lease id, key      value: empty; the key is, or was, attached to the lease
//!      | 0, `C`                     value: empty; a compaction to revision 0 was asked for
//!      | 0, `R`, prefix             value: how long keys with the prefix are kept ([`crate::retention`])
//! ```
//!
//! Lease ids are big-endian, so that records lie in the order of their ids. The records are only
//! ever read as of now. None has a checksum of its own: that of the frame or block covers it.

use crate::cursor::{Reader, Writer};
use crate::error::{Problem, Result};
use crate::layout::{Layout, field};
use crate::limits::{INTERNAL_KEY_BYTES_MAX, KEY_BYTES_MAX, RETENTION_PREFIX_BYTES_MAX};

/// The key space of leases and other things the store keeps for itself.
pub const SYSTEM: u8 = 0;
/// The key space of the user's keys; only writes to it take a revision.
pub const USER: u8 = 1;

/// The record of a lease.
pub const RECORD_LEASE: u8 = b'L';
/// The record of a key that is attached to a lease.
pub const RECORD_ATTACHMENT: u8 = b'A';
/// The record of a compaction to revision 0.
pub const RECORD_COMPACTED: u8 = b'C';
/// The record of how long the keys with a prefix are kept.
pub const RECORD_RETENTION: u8 = b'R';

/// The key of a lease.
pub const LEASE_LAYOUT: Layout = Layout {
    structure: "lease key",
    fields: &[field(0, 1, "space"), field(1, 1, "record"), field(2, 8, "lease")],
};

/// The key of an attachment, up to the key that is attached.
pub const ATTACHMENT_LAYOUT: Layout = Layout {
    structure: "attachment key",
    fields: &[field(0, 1, "space"), field(1, 1, "record"), field(2, 8, "lease")],
};

/// The key of the record of a compaction to revision 0.
pub const COMPACTED_LAYOUT: Layout =
    Layout { structure: "compacted key", fields: &[field(0, 1, "space"), field(1, 1, "record")] };

/// The key of a rule of retention, up to the prefix.
pub const RETENTION_LAYOUT: Layout =
    Layout { structure: "retention key", fields: &[field(0, 1, "space"), field(1, 1, "record")] };

const _: () = {
    assert!(LEASE_LAYOUT.bytes() == 10 && ATTACHMENT_LAYOUT.bytes() == 10);
    assert!(COMPACTED_LAYOUT.bytes() == 2);
    assert!(RETENTION_LAYOUT.bytes() == 2 && RETENTION_PREFIX_BYTES_MAX < KEY_BYTES_MAX);
    assert!(KEY_BYTES_MAX + ATTACHMENT_LAYOUT.bytes() as u64 <= INTERNAL_KEY_BYTES_MAX);
};

/// An internal key, taken apart.
///
/// ```
/// use annals_format::space::Key;
///
/// assert_eq!(Key::User(b"a").encode(), b"\x01a");
/// assert_eq!(Key::decode(b"\0L\0\0\0\0\0\0\0\x07")?, Key::Lease { id: 7 });
/// # Ok::<(), annals_format::DecodeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "another record is another format version")]
pub enum Key<'a> {
    /// A user's key.
    User(&'a [u8]),
    /// A lease.
    Lease {
        /// Its id.
        id: i64,
    },
    /// A key that is, or was, attached to a lease.
    Attachment {
        /// The lease's id.
        id: i64,
        /// The user's key.
        key: &'a [u8],
    },
    /// A compaction to revision 0 was asked for.
    Compacted,
    /// How long the users' keys with a prefix are kept.
    Retention {
        /// The prefix; the empty one is that of every key.
        prefix: &'a [u8],
    },
}

impl<'a> Key<'a> {
    /// The internal key.
    pub fn encode(&self) -> Vec<u8> {
        let (space, record, id, rest): (_, &[u8], Option<i64>, &[u8]) = match *self {
            Self::User(key) => (USER, &[], None, key),
            Self::Lease { id } => (SYSTEM, &[RECORD_LEASE], Some(id), &[]),
            Self::Attachment { id, key } => (SYSTEM, &[RECORD_ATTACHMENT], Some(id), key),
            Self::Compacted => (SYSTEM, &[RECORD_COMPACTED], None, &[]),
            Self::Retention { prefix } => (SYSTEM, &[RECORD_RETENTION], None, prefix),
        };
        let mut bytes = Vec::with_capacity(ATTACHMENT_LAYOUT.bytes() + rest.len());
        bytes.put_u8(space);
        bytes.put_bytes(record);
        if let Some(id) = id {
            bytes.put_bytes(&id.to_be_bytes());
        }
        bytes.put_bytes(rest);
        bytes
    }

    /// Takes an internal key apart.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new("internal key", bytes);
        let key = match reader.u8("space")? {
            USER => Self::User(read_user_key(&mut reader)?),
            SYSTEM => match reader.u8("record")? {
                RECORD_LEASE => Self::Lease { id: read_id(&mut reader)? },
                RECORD_ATTACHMENT => {
                    let id = read_id(&mut reader)?;
                    Self::Attachment { id, key: read_user_key(&mut reader)? }
                }
                RECORD_COMPACTED => Self::Compacted,
                RECORD_RETENTION => Self::Retention { prefix: read_prefix(&mut reader)? },
                record => {
                    let found = u64::from(record);
                    return Err(reader.error_at("record", 1, Problem::Invalid { found }));
                }
            },
            space => {
                let found = u64::from(space);
                return Err(reader.error_at("space", 0, Problem::Invalid { found }));
            }
        };
        reader.finish()?;
        Ok(key)
    }
}

/// Whether an internal key is a user's.
pub fn is_user(key: &[u8]) -> bool {
    key.first() == Some(&USER)
}

/// Whether an internal key is the store's own.
pub fn is_system(key: &[u8]) -> bool {
    key.first() == Some(&SYSTEM)
}

fn read_id(reader: &mut Reader<'_>) -> Result<i64> {
    reader.array("lease").map(i64::from_be_bytes)
}

/// A user's key: the rest, which is not empty.
fn read_user_key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    let (length, max) = (reader.remaining() as u64, KEY_BYTES_MAX);
    match length {
        0 => Err(reader.error("key", Problem::Truncated { needed: 1, have: 0 })),
        length if length > max => Err(reader.error("key", Problem::TooLong { max, found: length })),
        _ => reader.bytes("key", reader.remaining()),
    }
}

/// The prefix of a rule: the rest, which may be empty.
fn read_prefix<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    let (length, max) = (reader.remaining() as u64, RETENTION_PREFIX_BYTES_MAX);
    match length {
        length if length > max => {
            Err(reader.error("prefix", Problem::TooLong { max, found: length }))
        }
        _ => reader.bytes("prefix", reader.remaining()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lie_in_the_order_of_their_spaces_and_ids() {
        let lease = |id| Key::Lease { id };
        let attached = |id, key| Key::Attachment { id, key };
        let ascending = [
            attached(1, b"b"),
            attached(256, b"a"),
            attached(-1, b"a"),
            Key::Compacted,
            lease(1),
            lease(255),
            lease(256),
            lease(i64::MAX),
            lease(-1),
            Key::Retention { prefix: b"" },
            Key::Retention { prefix: b"/a" },
            Key::User(b"\0"),
            Key::User(b"a"),
        ];
        let encoded = ascending.map(|key| key.encode());
        assert!(encoded.is_sorted(), "{encoded:?}");
        for (key, bytes) in ascending.iter().zip(&encoded) {
            assert_eq!(Key::decode(bytes).as_ref(), Ok(key));
            let is_users = matches!(key, Key::User(_));
            assert_eq!((is_user(bytes), is_system(bytes)), (is_users, !is_users));
        }
    }

    #[test]
    fn a_key_has_neither_too_few_nor_too_many_bytes() {
        let problem = |bytes: &[u8]| Key::decode(bytes).unwrap_err().problem;
        assert_eq!(problem(b""), Problem::Truncated { needed: 1, have: 0 });
        assert_eq!(problem(b"\x01"), Problem::Truncated { needed: 1, have: 0 });
        assert_eq!(problem(b"\0A\0\0\0\0\0\0\0\x07"), Problem::Truncated { needed: 1, have: 0 });
        assert_eq!(problem(b"\0L\0\0\0\0\0\0\0\x07x"), Problem::Trailing { bytes: 1 });
        assert_eq!(problem(b"\0Cx"), Problem::Trailing { bytes: 1 });
        assert_eq!(problem(b"\0X"), Problem::Invalid { found: u64::from(b'X') });
        assert_eq!(problem(b"\x02a"), Problem::Invalid { found: 2 });
        let mut longest = vec![USER; 1 + usize::try_from(KEY_BYTES_MAX).unwrap()];
        assert!(Key::decode(&longest).is_ok());
        longest.push(0);
        let (max, found) = (KEY_BYTES_MAX, KEY_BYTES_MAX + 1);
        assert_eq!(problem(&longest), Problem::TooLong { max, found });
        let prefix = vec![b'p'; 1 + usize::try_from(RETENTION_PREFIX_BYTES_MAX).unwrap()];
        let (max, found) = (RETENTION_PREFIX_BYTES_MAX, RETENTION_PREFIX_BYTES_MAX + 1);
        let rule = Key::Retention { prefix: &prefix }.encode();
        assert_eq!(problem(&rule), Problem::TooLong { max, found });
        assert!(Key::decode(&rule[..rule.len() - 1]).is_ok());
    }
}
