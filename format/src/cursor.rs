//! Reading and writing fields of a slice; all multi-byte integers are little-endian.
//!
//! [`Reader`] carries the name of the structure, so that every error says which field of which
//! structure is wrong and where. [`Writer`] is implemented by `Vec<u8>` and by [`SliceWriter`].

use crate::error::{DecodeError, Problem, Result};
use crate::limits::NUMBER_MAX;
use crate::varint;

/// Reads the fields of one structure from a slice, front to back.
///
/// ```
/// use annals_format::cursor::Reader;
/// let mut reader = Reader::new("thing", &[7, 0, 0, 0, 3, b'a', b'b', b'c']);
/// assert_eq!(reader.u32("number")?, 7);
/// assert_eq!(reader.prefixed("name", 16)?, b"abc");
/// reader.finish()?;
/// # Ok::<(), annals_format::DecodeError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    structure: &'static str,
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the front of `bytes`.
    pub const fn new(structure: &'static str, bytes: &'a [u8]) -> Self {
        Self { structure, bytes, position: 0 }
    }

    /// How many bytes have been read.
    pub const fn position(&self) -> usize {
        self.position
    }

    /// How many bytes are left.
    pub const fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Whether everything has been read.
    pub const fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The bytes not read yet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    /// The bytes read so far, for a checksum over them.
    pub fn consumed(&self) -> &'a [u8] {
        self.bytes.get(..self.position).unwrap_or_default()
    }

    /// An error about the field that starts here.
    pub const fn error(&self, field: &'static str, problem: Problem) -> DecodeError {
        self.error_at(field, self.position, problem)
    }

    /// An error about a field that started at `position`.
    pub const fn error_at(
        &self,
        field: &'static str,
        position: usize,
        problem: Problem,
    ) -> DecodeError {
        DecodeError { structure: self.structure, field, offset: position as u64, problem }
    }

    /// The next `length` bytes.
    #[inline]
    pub fn bytes(&mut self, field: &'static str, length: usize) -> Result<&'a [u8]> {
        let Some((taken, _)) = self.rest().split_at_checked(length) else {
            let (needed, have) = (length as u64, self.remaining() as u64);
            return Err(self.error(field, Problem::Truncated { needed, have }));
        };
        self.position += length;
        Ok(taken)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N]> {
        let Some((taken, _)) = self.rest().split_first_chunk::<N>() else {
            let (needed, have) = (N as u64, self.remaining() as u64);
            return Err(self.error(field, Problem::Truncated { needed, have }));
        };
        self.position += N;
        Ok(*taken)
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self, field: &'static str) -> Result<u8> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    /// Two bytes.
    pub fn u16(&mut self, field: &'static str) -> Result<u16> {
        self.array(field).map(u16::from_le_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self, field: &'static str) -> Result<u32> {
        self.array(field).map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self, field: &'static str) -> Result<u64> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// Eight bytes: a number of something that is counted, from `least` to [`NUMBER_MAX`].
    pub fn number(&mut self, field: &'static str, least: u64) -> Result<u64> {
        let start = self.position;
        let found = self.u64(field)?;
        self.counted(field, start, least, found)
    }

    /// Eight bytes: the number that comes next, so one more than a number can be.
    pub fn next_number(&mut self, field: &'static str) -> Result<u64> {
        let mut before = self.clone();
        let found = self.u64(field)?;
        if found == NUMBER_MAX + 1 { Ok(found) } else { before.number(field, 1) }
    }

    /// A canonical varint: a number of something that is counted, from `least` to [`NUMBER_MAX`].
    pub fn varint_number(&mut self, field: &'static str, least: u64) -> Result<u64> {
        let start = self.position;
        let found = self.varint(field)?;
        self.counted(field, start, least, found)
    }

    const fn counted(
        &self,
        field: &'static str,
        start: usize,
        least: u64,
        found: u64,
    ) -> Result<u64> {
        if found < least {
            return Err(self.error_at(field, start, Problem::Invalid { found }));
        }
        if found > NUMBER_MAX {
            return Err(self.error_at(field, start, Problem::TooLong { max: NUMBER_MAX, found }));
        }
        Ok(found)
    }

    /// Eight bytes, two's complement.
    pub fn i64(&mut self, field: &'static str) -> Result<i64> {
        self.array(field).map(i64::from_le_bytes)
    }

    /// A canonical varint.
    #[expect(clippy::inline_always, reason = "a look-up reads dozens, and most are one byte")]
    #[inline(always)]
    pub fn varint(&mut self, field: &'static str) -> Result<u64> {
        match self.bytes.get(self.position) {
            Some(&byte @ ..0x80) => {
                self.position += 1;
                Ok(u64::from(byte))
            }
            _ => {
                let Some((value, used)) = varint::decode(self.rest()) else {
                    return Err(self.error(field, Problem::Varint));
                };
                self.position += used;
                Ok(value)
            }
        }
    }

    /// A canonical varint of at most 32 bits.
    #[inline]
    pub fn varint_u32(&mut self, field: &'static str) -> Result<u32> {
        let start = self.position;
        let value = self.varint(field)?;
        u32::try_from(value).map_err(|_| self.error_at(field, start, Problem::Varint))
    }

    /// A varint length of at most `max` that the bytes left can hold.
    #[expect(clippy::inline_always, reason = "a replay reads four of each event, of known bounds")]
    #[inline(always)]
    pub fn length(&mut self, field: &'static str, max: u64) -> Result<usize> {
        let start = self.position;
        let found = self.varint(field)?;
        if found > max {
            return Err(self.error_at(field, start, Problem::TooLong { max, found }));
        }
        let have = self.remaining();
        match usize::try_from(found) {
            Ok(length) if length <= have => Ok(length),
            _ => {
                let problem = Problem::Truncated { needed: found, have: have as u64 };
                Err(self.error_at(field, start, problem))
            }
        }
    }

    /// A varint length of at most `max`, then as many bytes.
    #[expect(clippy::inline_always, reason = "as its length")]
    #[inline(always)]
    pub fn prefixed(&mut self, field: &'static str, max: u64) -> Result<&'a [u8]> {
        let length = self.length(field, max)?;
        self.bytes(field, length)
    }

    /// `length` bytes that must be zero.
    pub fn zeros(&mut self, field: &'static str, length: usize) -> Result<()> {
        let start = self.position;
        let bytes = self.bytes(field, length)?;
        if is_zero(bytes) { Ok(()) } else { Err(self.error_at(field, start, Problem::NotZero)) }
    }

    /// Four bytes that must be this magic number.
    pub fn magic(&mut self, expected: u32) -> Result<()> {
        let start = self.position;
        let found = self.u32("magic")?;
        if found == expected {
            return Ok(());
        }
        Err(self.error_at("magic", start, Problem::Magic { expected, found }))
    }

    /// Four bytes: a format version from 1 to `supported`.
    pub fn version(&mut self, supported: u32) -> Result<u32> {
        let start = self.position;
        let found = self.u32("format_version")?;
        if (1..=supported).contains(&found) {
            return Ok(found);
        }
        Err(self.error_at("format_version", start, Problem::Version { supported, found }))
    }

    /// Four bytes that must be the checksum `found` of what was read.
    pub fn checksum(&mut self, field: &'static str, found: u32) -> Result<()> {
        let start = self.position;
        let expected = self.u32(field)?;
        if expected == found {
            return Ok(());
        }
        Err(self.error_at(field, start, Problem::Checksum { expected, found }))
    }

    /// Checks that nothing is left.
    pub fn finish(&self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        Err(self.error("end", Problem::Trailing { bytes: self.remaining() as u64 }))
    }
}

/// Whether all bytes are zero. The empty slice is.
pub fn is_zero(bytes: &[u8]) -> bool {
    // Eight bytes at a time: recovery and `verify` look at long runs of zeros.
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().all(|word| u64::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

/// Appends fields; all multi-byte integers are little-endian.
pub trait Writer {
    /// Appends bytes as they are.
    fn put_bytes(&mut self, bytes: &[u8]);

    /// Appends one byte.
    fn put_u8(&mut self, value: u8) {
        self.put_bytes(&[value]);
    }
    /// Appends two bytes.
    fn put_u16(&mut self, value: u16) {
        self.put_bytes(&value.to_le_bytes());
    }
    /// Appends four bytes.
    fn put_u32(&mut self, value: u32) {
        self.put_bytes(&value.to_le_bytes());
    }
    /// Appends eight bytes.
    fn put_u64(&mut self, value: u64) {
        self.put_bytes(&value.to_le_bytes());
    }
    /// Appends eight bytes, two's complement.
    fn put_i64(&mut self, value: i64) {
        self.put_bytes(&value.to_le_bytes());
    }
    /// Appends a canonical varint.
    fn put_varint(&mut self, value: u64) {
        // Most varints are lengths below 128.
        if let Ok(byte @ ..0x80) = u8::try_from(value) {
            return self.put_u8(byte);
        }
        // And nearly all others are of two bytes.
        if let Ok(value @ ..0x4000) = u16::try_from(value) {
            let [low, high] = (value << 1).to_le_bytes();
            return self.put_bytes(&[low >> 1 | 0x80, high]);
        }
        let (bytes, used) = varint::encode(value);
        self.put_bytes(bytes.get(..used).unwrap_or_default());
    }
    /// Appends the length as a varint, then the bytes.
    fn put_prefixed(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.put_bytes(bytes);
    }
    /// Appends `count` zero bytes.
    fn put_zeros(&mut self, count: usize) {
        for _ in 0..count {
            self.put_u8(0);
        }
    }
}

impl Writer for Vec<u8> {
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
    fn put_zeros(&mut self, count: usize) {
        self.resize(self.len() + count, 0);
    }
}

/// Writes to a slice of exactly the size computed beforehand.
///
/// # Panics
/// Writing past the end panics: the size is computed by the caller from the same data, so it can
/// only be a defect of this crate, never of a file.
#[derive(Debug)]
pub struct SliceWriter<'a> {
    bytes: &'a mut [u8],
    position: usize,
}

impl<'a> SliceWriter<'a> {
    /// Starts at the front of `bytes`.
    pub const fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// How many bytes have been written.
    pub const fn position(&self) -> usize {
        self.position
    }
}

impl Writer for SliceWriter<'_> {
    fn put_bytes(&mut self, bytes: &[u8]) {
        let end = self.position + bytes.len();
        self.bytes[self.position..end].copy_from_slice(bytes);
        self.position = end;
    }
    fn put_zeros(&mut self, count: usize) {
        let end = self.position + count;
        self.bytes[self.position..end].fill(0);
        self.position = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_round_trip() {
        let mut out = Vec::new();
        out.put_u8(1);
        out.put_u16(2);
        out.put_u32(3);
        out.put_u64(4);
        out.put_i64(-5);
        out.put_varint(300);
        out.put_prefixed(b"key");
        out.put_zeros(3);
        let mut copy = vec![0; out.len()];
        let mut slice = SliceWriter::new(&mut copy);
        slice.put_bytes(&out);
        assert_eq!(slice.position(), out.len());

        let mut reader = Reader::new("test", &copy);
        assert_eq!(reader.u8("a"), Ok(1));
        assert_eq!(reader.u16("b"), Ok(2));
        assert_eq!(reader.u32("c"), Ok(3));
        assert_eq!(reader.u64("d"), Ok(4));
        assert_eq!(reader.i64("e"), Ok(-5));
        assert_eq!(reader.varint("f"), Ok(300));
        assert_eq!(reader.prefixed("g", 3), Ok(&b"key"[..]));
        assert_eq!(reader.zeros("h", 3), Ok(()));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn errors_name_the_field_and_its_start() {
        let mut reader = Reader::new("test", &[9, 5, 1]);
        reader.u8("first").unwrap();
        let error = reader.prefixed("name", 100).unwrap_err();
        assert_eq!(error.offset, 1);
        assert_eq!(error.field, "name");
        assert_eq!(error.problem, Problem::Truncated { needed: 5, have: 1 });
        let error = Reader::new("test", &[200, 1]).prefixed("name", 100).unwrap_err();
        assert_eq!(error.problem, Problem::TooLong { max: 100, found: 200 });
        let error = Reader::new("test", &[0, 0, 1]).zeros("pad", 3).unwrap_err();
        assert_eq!(error.to_string(), "test: pad at byte 0: bytes that must be zero are not");
    }

    #[test]
    fn what_is_counted_can_be_counted_on() {
        for (number, least, good) in [
            (0, 0, true),
            (0, 1, false),
            (1, 1, true),
            (NUMBER_MAX, 1, true),
            (NUMBER_MAX + 1, 1, false),
            (u64::MAX, 0, false),
        ] {
            let mut out = Vec::new();
            out.put_u64(number);
            out.put_varint(number);
            let mut reader = Reader::new("test", &out);
            assert_eq!(reader.number("a", least).is_ok(), good, "{number}");
            reader = Reader::new("test", &out);
            reader.u64("a").unwrap();
            let read = reader.varint_number("b", least);
            assert_eq!(
                read.as_ref().map_err(|error| error.offset),
                if good { Ok(&number) } else { Err(8) }
            );
        }
    }

    #[test]
    fn zero_means_every_byte() {
        assert!(is_zero(&[]));
        for length in 1..40 {
            let mut bytes = vec![0; length];
            assert!(is_zero(&bytes));
            for index in 0..length {
                bytes[index] = 1;
                assert!(!is_zero(&bytes), "{index} of {length}");
                bytes[index] = 0;
            }
        }
    }
}
