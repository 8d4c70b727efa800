//! Messages of protocol buffers, as far as etcd has them on disk: numbers and bytes in numbered fields.
//!
//! ```text
//! mvccpb.KeyValue := 1 key  2 create_revision  3 mod_revision  4 version  5 value  6 lease
//! leasepb.Lease   := 1 ID   2 TTL              3 RemainingTTL
//! ```
//!
//! What is 0 or empty is left out; fields that are not known are skipped.

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "etcd uses the first two")]
pub enum Field<'a> {
    /// A number; negative ones are those above `i64::MAX`.
    Number(u64),
    /// Bytes.
    Bytes(&'a [u8]),
    /// Four or eight bytes.
    Other,
}

/// The fields of a message, as they come; `None` is one that cannot be read, after which there are no more.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
    failed: bool,
}

impl<'a> Fields<'a> {
    /// Those of a message.
    pub const fn of(message: &'a [u8]) -> Self {
        Self { rest: message, failed: false }
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(count).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u64, Field<'a>)> {
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Number(self.varint()?),
            1 => self.take(8).map(|_| Field::Other)?,
            2 => {
                let count = self.varint()?;
                Field::Bytes(self.take(count)?)
            }
            5 => self.take(4).map(|_| Field::Other)?,
            _ => return None,
        };
        Some((tag >> 3, field))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Field<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        self.failed = field.is_none();
        Some(field)
    }
}

/// A key with its value, as etcd writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the message has these fields")]
pub struct KeyValue<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The revision that created the key.
    pub create_revision: u64,
    /// The revision that made this version.
    pub mod_revision: u64,
    /// Counts the versions of a lifetime from 1.
    pub version: u64,
    /// The value.
    pub value: &'a [u8],
    /// The lease; 0 for none.
    pub lease: i64,
}

impl<'a> KeyValue<'a> {
    /// Reads one; `None` if it is none.
    pub fn decode(message: &'a [u8]) -> Option<Self> {
        let mut kv = Self::default();
        for field in Fields::of(message) {
            match field? {
                (1, Field::Bytes(key)) => kv.key = key,
                (2, Field::Number(number)) => kv.create_revision = number,
                (3, Field::Number(number)) => kv.mod_revision = number,
                (4, Field::Number(number)) => kv.version = number,
                (5, Field::Bytes(value)) => kv.value = value,
                (6, Field::Number(number)) => kv.lease = number.cast_signed(),
                (1..=6, _) => return None,
                _ => {}
            }
        }
        Some(kv)
    }

    /// Adds the message to `out`, byte for byte as etcd writes it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        write_bytes(out, 1, self.key);
        write_number(out, 2, self.create_revision);
        write_number(out, 3, self.mod_revision);
        write_number(out, 4, self.version);
        write_bytes(out, 5, self.value);
        write_number(out, 6, self.lease.cast_unsigned());
    }
}

fn write_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Adds a field that is a number to a message.
pub(crate) fn write_number(out: &mut Vec<u8>, field: u64, number: u64) {
    if number != 0 {
        write_varint(out, field << 3);
        write_varint(out, number);
    }
}

/// Adds a field of bytes to a message.
pub(crate) fn write_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    if !bytes.is_empty() {
        write_varint(out, field << 3 | 2);
        write_varint(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
}

/// A lease, as etcd writes it: id, time to live, and what was left of that when it was last written down.
pub fn decode_lease(message: &[u8]) -> Option<(i64, i64, i64)> {
    let mut lease = (0, 0, 0);
    for field in Fields::of(message) {
        match field? {
            (1, Field::Number(number)) => lease.0 = number.cast_signed(),
            (2, Field::Number(number)) => lease.1 = number.cast_signed(),
            (3, Field::Number(number)) => lease.2 = number.cast_signed(),
            (1..=3, _) => return None,
            _ => {}
        }
    }
    Some(lease)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_value_is_read_whatever_else_there_is() {
        let message = [
            &b"\x0a\x01k\x10\x02\x18\xac\x02\x20\x01\x2a\x03abc"[..],
            // A number, eight bytes, four bytes and bytes in fields that are not known.
            b"\x98\x01\x07\x91\x01ABCDEFGH\xa5\x01ABCD\x82\x7d\x02xy",
            b"\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ]
        .concat();
        let kv = KeyValue {
            key: b"k",
            create_revision: 2,
            mod_revision: 300,
            version: 1,
            value: b"abc",
            lease: -1,
        };
        assert_eq!(KeyValue::decode(&message), Some(kv));
        let mut encoded = Vec::new();
        kv.encode(&mut encoded);
        assert_eq!(encoded, [&message[..15], &message[message.len() - 11..]].concat());
        assert_eq!(KeyValue::decode(b""), Some(KeyValue::default()));
        let whole = (0..message.len()).filter(|cut| KeyValue::decode(&message[..*cut]).is_some());
        // Only at the end of a field.
        assert_eq!(whole.collect::<Vec<_>>(), [0, 3, 5, 8, 10, 15, 18, 28, 34, 39]);
    }

    #[test]
    fn what_no_message_has_is_refused() {
        for wrong in [
            &b"\x08\x01"[..],                                    // a key that is a number
            b"\x12\x01a",                                        // a revision of bytes
            b"\x0b",                                             // a group
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",     // longer than anything
            b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",     // more than 64 bits
            b"\x10\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", // eleven bytes
        ] {
            assert_eq!(KeyValue::decode(wrong), None, "{wrong:?}");
        }
        assert_eq!(decode_lease(b"\x08\x05\x10\x3c\x18\x07"), Some((5, 60, 7)));
        assert_eq!(decode_lease(b"\x0a\x01a"), None);
    }
}
