//! One operation of a transaction, as it stands in a frame's payload.

use std::ops::Range;

use crate::cursor::{Reader, SliceWriter, Writer};
use crate::error::{Problem, Result};
use crate::limits::{INTERNAL_KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::{lease, retention, space, varint};

const KIND_PUT: u8 = 1;
const KIND_DELETE: u8 = 2;
const KIND_COMPACT: u8 = 3;

/// One operation of a transaction. Keys are internal keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op<'a> {
    /// Writes a version of the key.
    Put {
        /// The internal key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// The lease the key is attached to; 0 = none.
        lease: i64,
    },
    /// Writes a tombstone.
    Delete {
        /// The internal key.
        key: &'a [u8],
    },
    /// Moves the watermark below which nothing is answered any more.
    Compact {
        /// The new watermark.
        revision: u64,
    },
}

impl<'a> Op<'a> {
    /// The internal key the operation writes, if it writes one.
    #[inline]
    pub const fn key(&self) -> Option<&'a [u8]> {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => Some(key),
            Self::Compact { .. } => None,
        }
    }

    /// Whether the operation writes a user key, and so makes its transaction take a revision.
    #[inline]
    pub fn is_user(&self) -> bool {
        self.key().is_some_and(space::is_user)
    }

    /// How many bytes the operation takes in the payload.
    #[inline]
    pub fn encoded_bytes(&self) -> usize {
        let prefixed = |bytes: &[u8]| varint::len(bytes.len() as u64) + bytes.len();
        match self {
            Self::Put { key, value, lease } => {
                1 + varint::len(lease.cast_unsigned()) + prefixed(key) + prefixed(value)
            }
            Self::Delete { key } => 1 + prefixed(key),
            Self::Compact { revision } => 1 + varint::len(*revision),
        }
    }
}

/// Writes an operation; answers where its key and value lie in the payload.
pub(super) fn put_op(writer: &mut SliceWriter<'_>, op: &Op<'_>) -> (Range<usize>, Range<usize>) {
    let put_prefixed = |writer: &mut SliceWriter<'_>, bytes: &[u8]| {
        writer.put_prefixed(bytes);
        writer.position() - bytes.len()..writer.position()
    };
    match op {
        Op::Put { key, value, lease } => {
            writer.put_u8(KIND_PUT);
            writer.put_varint(lease.cast_unsigned());
            let key = put_prefixed(writer, key);
            (key, put_prefixed(writer, value))
        }
        Op::Delete { key } => {
            writer.put_u8(KIND_DELETE);
            (put_prefixed(writer, key), 0..0)
        }
        Op::Compact { revision } => {
            writer.put_u8(KIND_COMPACT);
            writer.put_varint(*revision);
            (0..0, 0..0)
        }
    }
}

/// Reads an operation and checks it.
pub(super) fn read_op<'a>(reader: &mut Reader<'a>) -> Result<Op<'a>> {
    let kind_at = reader.position();
    match reader.u8("kind")? {
        KIND_PUT => {
            let lease = reader.varint("lease")?.cast_signed();
            let key = read_key(reader)?;
            let value_at = reader.position();
            let value = reader.prefixed("value", VALUE_BYTES_MAX)?;
            if key.first() == Some(&space::SYSTEM) {
                // The store's own records are never attached to a lease.
                if lease != 0 {
                    let found = lease.cast_unsigned();
                    return Err(reader.error_at("lease", kind_at + 1, Problem::Invalid { found }));
                }
                check_record(key, value)
                    .map_err(|problem| reader.error_at("value", value_at, problem))?;
            }
            Ok(Op::Put { key, value, lease })
        }
        KIND_DELETE => Ok(Op::Delete { key: read_key(reader)? }),
        KIND_COMPACT => Ok(Op::Compact { revision: reader.varint("revision")? }),
        kind => {
            let found = u64::from(kind);
            Err(reader.error_at("kind", kind_at, Problem::Invalid { found }))
        }
    }
}

fn read_key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    let at = reader.position();
    let key = reader.prefixed("key", INTERNAL_KEY_BYTES_MAX)?;
    match space::Key::decode(key) {
        Ok(_) => Ok(key),
        Err(error) => Err(reader.error_at("key", at, error.problem)),
    }
}

/// Whether a record of the store's own has the value it can have.
fn check_record(key: &[u8], value: &[u8]) -> Result<(), Problem> {
    let checked = match space::Key::decode(key) {
        Ok(space::Key::Lease { .. }) => lease::Value::decode(value).map(|_| ()),
        Ok(space::Key::Retention { .. }) => retention::Rule::decode(value).map(|_| ()),
        _ => Reader::new("record", value).finish(),
    };
    checked.map_err(|error| error.problem)
}
