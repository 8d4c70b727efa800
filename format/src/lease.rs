//! The value of a lease: how long it lives, and how much of that is left.
//!
//! It is the value of a system key ([`space::Key::Lease`](crate::space::Key::Lease)). It comes in two
//! forms, told apart by their length: of a lease that was granted or renewed a moment ago it has only the
//! time to live; the time that is left is written from time to time, so that a store that is opened again
//! does not give every lease its whole time anew. A time of day stands nowhere in it: while the store is
//! closed no time of a lease passes.

use crate::cursor::{Reader, Writer};
use crate::error::{Problem, Result};
use crate::layout::{Layout, field};

/// The value of a lease; the shorter form ends after the first field.
pub const VALUE_LAYOUT: Layout =
    Layout { structure: "lease value", fields: &[field(0, 8, "ttl"), field(8, 8, "remaining")] };

/// Length of the form without the time that is left.
pub const SHORT_BYTES: usize = 8;

const _: () = assert!(VALUE_LAYOUT.bytes() == 16 && VALUE_LAYOUT.fields[1].offset == SHORT_BYTES);

/// How long a lease lives.
///
/// ```
/// use annals_format::lease::Value;
///
/// let granted = Value { ttl: 60, remaining: None };
/// assert_eq!(granted.encode().len(), 8);
/// let later = Value { remaining: Some(59_999), ..granted };
/// assert_eq!(Value::decode(&later.encode()), Ok(later));
/// assert_eq!((granted.remaining_millis(), later.remaining_millis()), (60_000, 59_999));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "another field is another format version")]
pub struct Value {
    /// The time to live that was granted, in seconds.
    pub ttl: i64,
    /// How much of it was left when this was written, in milliseconds, not more than all of it; `None`
    /// for all of it.
    pub remaining: Option<u64>,
}

impl Value {
    /// The value of the record.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(VALUE_LAYOUT.bytes());
        bytes.put_bytes(&self.ttl.to_le_bytes());
        if let Some(remaining) = self.remaining {
            bytes.put_bytes(&remaining.to_le_bytes());
        }
        bytes
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(value: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(VALUE_LAYOUT.structure, value);
        let ttl = reader.i64("ttl")?;
        if reader.remaining() == 0 {
            return Ok(Self { ttl, remaining: None });
        }
        let found = reader.array("remaining").map(u64::from_le_bytes)?;
        let read = Self { ttl, remaining: Some(found) };
        if found > read.whole_millis() {
            return Err(reader.error_at("remaining", SHORT_BYTES, Problem::Invalid { found }));
        }
        reader.finish()?;
        Ok(read)
    }

    /// How much time is left, in milliseconds.
    pub fn remaining_millis(&self) -> u64 {
        self.remaining.unwrap_or_else(|| self.whole_millis())
    }

    /// The time to live in milliseconds; 0 if it is negative.
    pub fn whole_millis(&self) -> u64 {
        u64::try_from(self.ttl).unwrap_or(0).saturating_mul(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_whole_time_is_never_left() {
        let at_most = Value { ttl: 2, remaining: Some(2000) };
        assert_eq!(Value::decode(&at_most.encode()), Ok(at_most));
        for (ttl, remaining) in [(2, 2001), (0, 1), (-1, 1), (i64::MIN, u64::MAX)] {
            let bytes = Value { ttl, remaining: Some(remaining) }.encode();
            let problem = Value::decode(&bytes).unwrap_err().problem;
            assert_eq!(problem, Problem::Invalid { found: remaining }, "{ttl}");
        }
        for ttl in [0, -1, i64::MAX] {
            let nothing_left = Value { ttl, remaining: Some(0) };
            assert_eq!(Value::decode(&nothing_left.encode()), Ok(nothing_left));
        }
    }

    #[test]
    fn the_length_tells_the_forms_apart() {
        let bytes = Value { ttl: 60, remaining: Some(7) }.encode();
        for cut in 0..bytes.len() {
            let read = Value::decode(&bytes[..cut]);
            if cut == SHORT_BYTES {
                assert_eq!(read, Ok(Value { ttl: 60, remaining: None }));
            } else {
                let (needed, have) = (8, cut as u64 % 8);
                let problem = read.unwrap_err().problem;
                assert_eq!(problem, Problem::Truncated { needed, have }, "{cut} bytes");
            }
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Value::decode(&longer).unwrap_err().problem, Problem::Trailing { bytes: 1 });
    }
}
