//! The filter of a segment: a blocked Bloom filter over its distinct keys.
//!
//! ```text
//! filter := header(32) line:bytes(64){line_count}
//! ```
//!
//! A key sets [`PROBES`] bits of one 64-byte line, so a lookup touches one cache line. With 10 bits
//! a key about 1 in 100 absent keys passes. `h = xxh3_64(key)`: the line is
//! `(h >> 32) * line_count >> 32`; with `a = low 32 bits of h`, `b = a * 0x9E3779B1 | 1` (mod 2^32),
//! bit i (i from 0) is `(a + i * b) >> 23`, where bit n is bit `n % 8` of byte `n / 8`.

use xxhash_rust::xxh3::xxh3_64;

use crate::checksum::FileSeed;
use crate::cursor::{Reader, Writer};
use crate::error::{Problem, Result};
use crate::layout::{Layout, field};

/// The first four bytes of a filter: "aFLT".
pub const FILTER_MAGIC: u32 = u32::from_le_bytes(*b"aFLT");
/// Bytes of the filter's header.
pub const FILTER_HEADER_BYTES: usize = 32;
/// Bytes of a line.
pub const LINE_BYTES: usize = 64;
/// Bits of the filter for every key.
pub const BITS_PER_KEY: u64 = 10;
/// Bits a key sets.
pub const PROBES: u32 = 6;

const FILTER: &str = "filter";

/// The byte map of a filter's header, as in SPEC-segment.md.
pub const FILTER_LAYOUT: Layout = Layout {
    structure: FILTER,
    fields: &[
        field(0, 4, "magic"),
        field(4, 4, "probes"),
        field(8, 8, "keys"),
        field(16, 4, "line_count"),
        field(20, 8, "zero"),
        field(28, 4, "crc"),
    ],
};

const _: () = assert!(FILTER_LAYOUT.bytes() == FILTER_HEADER_BYTES);

/// The hash of a key that builder and reader agree on.
pub fn hash_key(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// Appends the filter section, which begins at `offset` of its file, for keys of these hashes.
pub fn encode(out: &mut Vec<u8>, hashes: &[u64], seed: FileSeed, offset: u64) {
    let bits = (hashes.len() as u64).saturating_mul(BITS_PER_KEY);
    let line_count = bits.div_ceil(LINE_BYTES as u64 * 8).clamp(1, u64::from(u32::MAX));
    // At most u32::MAX lines; on a 32-bit machine the keys would not have fitted either.
    let mut lines = vec![[0_u8; LINE_BYTES]; usize::try_from(line_count).unwrap_or(1)];
    for hash in hashes {
        let index = line_of(*hash, line_count);
        if let Some(line) = usize::try_from(index).ok().and_then(|index| lines.get_mut(index)) {
            for bit in bits_of(*hash) {
                line[bit / 8] |= 1 << (bit % 8);
            }
        }
    }
    let mut header = Vec::with_capacity(FILTER_HEADER_BYTES);
    header.put_u32(FILTER_MAGIC);
    header.put_u32(PROBES);
    header.put_u64(hashes.len() as u64);
    header.put_u32(u32::try_from(line_count).unwrap_or(u32::MAX));
    header.put_zeros(8);
    let crc = seed.crc(offset, &[&header, lines.as_flattened()]);
    header.put_u32(crc);
    out.put_bytes(&header);
    out.put_bytes(lines.as_flattened());
}

/// A filter, read in place.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    lines: &'a [[u8; LINE_BYTES]],
}

impl<'a> Filter<'a> {
    /// Finds the parts of a filter section, which must be all of `bytes`. The checksum is not
    /// computed; [`check_crc`](Self::check_crc) does that, once.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(FILTER, bytes);
        reader.magic(FILTER_MAGIC)?;
        let (expected, found) = (PROBES, reader.u32("probes")?);
        if expected != found {
            let (expected, found) = (u64::from(expected), u64::from(found));
            return Err(reader.error_at("probes", 4, Problem::Mismatch { expected, found }));
        }
        reader.u64("keys")?;
        let found = u64::from(reader.u32("line_count")?);
        reader.zeros("zero", 8)?;
        reader.u32("crc")?;
        let (lines, rest) = reader.rest().as_chunks::<LINE_BYTES>();
        let expected = lines.len() as u64;
        if !rest.is_empty() || expected != found || found == 0 {
            return Err(reader.error_at("line_count", 16, Problem::Mismatch { expected, found }));
        }
        Ok(Self { lines })
    }

    /// The filter with these lines, which [`lines`](Self::lines) gave: a decoded one is kept as them.
    pub const fn from_lines(lines: &'a [u8]) -> Self {
        Self { lines: lines.as_chunks::<LINE_BYTES>().0 }
    }

    /// The lines, which end a filter section.
    pub const fn lines(&self) -> &'a [u8] {
        self.lines.as_flattened()
    }

    /// Compares the checksum of a whole filter section.
    pub fn check_crc(bytes: &[u8], seed: FileSeed, offset: u64) -> Result<()> {
        let mut reader = Reader::new(FILTER, bytes);
        reader.bytes("magic", FILTER_HEADER_BYTES - 4)?;
        let header = reader.consumed();
        let lines = bytes.get(FILTER_HEADER_BYTES..).unwrap_or_default();
        reader.checksum("crc", seed.crc(offset, &[header, lines]))
    }

    /// False if no key of this hash is in the segment; true if one may be.
    pub fn may_contain(&self, hash: u64) -> bool {
        let index = line_of(hash, self.lines.len() as u64);
        let line = usize::try_from(index).ok().and_then(|index| self.lines.get(index));
        // A line that is not there cannot rule anything out.
        line.is_none_or(|line| bits_of(hash).all(|bit| line[bit / 8] & (1 << (bit % 8)) != 0))
    }
}

/// The line of a hash: below `line_count`, which is below 2^32.
const fn line_of(hash: u64, line_count: u64) -> u64 {
    ((hash >> 32) * line_count) >> 32
}

/// The bits of a hash in its line: numbers below 512.
fn bits_of(hash: u64) -> impl Iterator<Item = usize> {
    let [a0, a1, a2, a3, ..] = hash.to_le_bytes();
    let a = u32::from_le_bytes([a0, a1, a2, a3]);
    let b = a.wrapping_mul(0x9E37_79B1) | 1;
    (0..PROBES).map(move |i| (a.wrapping_add(i.wrapping_mul(b)) >> 23) as usize)
}
