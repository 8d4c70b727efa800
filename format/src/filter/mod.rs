//! The filter of a segment: which keys it certainly lacks.
//!
//! ```text
//! filter := header(32) table
//! ```
//!
//! Two kinds, told apart by `kind`. Both know a key by its hash, `xxh3_64(key)`.
//!
//! * [`bloom`]: a blocked Bloom filter. A look-up touches one cache line; 10 bits a key; about 1 in
//!   100 absent keys passes. It can be built of any set.
//! * [`fuse`]: a binary fuse filter of 8-bit fingerprints. A look-up touches three bytes of
//!   neighbouring segments of the table; about 9.2 bits a key in large files; 1 in 256 absent keys
//!   passes. A set that it cannot be built of, which is very rare, gets a Bloom filter.

pub mod bloom;
pub mod fuse;

use xxhash_rust::xxh3::xxh3_64;

use crate::checksum::FileSeed;
use crate::cursor::{Reader, Writer};
use crate::error::{Problem, Result};
use crate::layout::{Layout, field};

use self::fuse::Fuse;

/// The first four bytes of a filter: "aFLT".
pub const FILTER_MAGIC: u32 = u32::from_le_bytes(*b"aFLT");
/// Bytes of the filter's header.
pub const FILTER_HEADER_BYTES: usize = 32;

const FILTER: &str = "filter";

/// The byte map of a filter's header, as in SPEC-segment.md.
pub const FILTER_LAYOUT: Layout = Layout {
    structure: FILTER,
    fields: &[
        field(0, 4, "magic"),
        field(4, 1, "kind"),
        field(5, 1, "shape"),
        field(6, 2, "zero"),
        field(8, 8, "keys"),
        field(16, 4, "parts"),
        field(20, 8, "seed"),
        field(28, 4, "crc"),
    ],
};

const _: () = assert!(FILTER_LAYOUT.bytes() == FILTER_HEADER_BYTES);

/// How a filter is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterKind {
    /// A blocked Bloom filter.
    Bloom,
    /// A binary fuse filter, or else a Bloom filter.
    Fuse,
}

const BLOOM: u8 = 1;
const FUSE: u8 = 2;

/// The hash of a key that builder and reader agree on.
pub fn hash_key(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// Appends the filter section, which begins at `offset` of its file, for keys of these hashes.
pub fn encode(out: &mut Vec<u8>, wanted: FilterKind, hashes: &[u64], file: FileSeed, offset: u64) {
    let fuse = if wanted == FilterKind::Fuse { fuse::build(hashes) } else { None };
    let (kind, shape, parts, seed, table) = match fuse {
        Some((Fuse { seed, length_log, segments }, table)) => {
            (FUSE, length_log, segments, seed, table)
        }
        None => {
            let table = bloom::build(hashes);
            // Bounded by `build`.
            let lines = u32::try_from(table.len() / bloom::LINE_BYTES).unwrap_or(u32::MAX);
            (BLOOM, bloom::PROBES, lines, 0, table)
        }
    };
    let mut header = Vec::with_capacity(FILTER_HEADER_BYTES);
    header.put_u32(FILTER_MAGIC);
    header.put_u8(kind);
    header.put_u8(shape);
    header.put_zeros(2);
    header.put_u64(hashes.len() as u64);
    header.put_u32(parts);
    header.put_u64(seed);
    let crc = file.crc(offset, &[&header, &table]);
    header.put_u32(crc);
    out.put_bytes(&header);
    out.put_bytes(&table);
}

/// What a filter's header says of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Lines of a Bloom filter.
    Bloom,
    /// Segments of a binary fuse filter.
    Fuse(Fuse),
}

/// A filter, read in place.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    shape: Shape,
    table: &'a [u8],
}

impl<'a> Filter<'a> {
    /// Finds the parts of a filter section, which must be all of `bytes`. The checksum is not
    /// computed; [`check_crc`](Self::check_crc) does that, once.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(FILTER, bytes);
        reader.magic(FILTER_MAGIC)?;
        let (kind, shape) = (reader.u8("kind")?, reader.u8("shape")?);
        reader.zeros("zero", 2)?;
        reader.u64("keys")?;
        let parts = reader.u32("parts")?;
        let seed = reader.u64("seed")?;
        reader.u32("crc")?;
        let table = reader.rest();
        let invalid = |field, at, found| reader.error_at(field, at, Problem::Invalid { found });
        let (shape, expected) = match kind {
            BLOOM => {
                if shape != bloom::PROBES {
                    return Err(invalid("shape", 5, shape.into()));
                }
                if seed != 0 {
                    return Err(reader.error_at("seed", 20, Problem::NotZero));
                }
                (Shape::Bloom, u64::from(parts) * bloom::LINE_BYTES as u64)
            }
            FUSE => {
                if shape > fuse::LENGTH_LOG_MAX {
                    return Err(invalid("shape", 5, shape.into()));
                }
                let fuse = Fuse { seed, length_log: shape, segments: parts };
                (Shape::Fuse(fuse), fuse.table_bytes())
            }
            _ => return Err(invalid("kind", 4, kind.into())),
        };
        let found = table.len() as u64;
        if parts == 0 || expected != found {
            return Err(reader.error_at("parts", 16, Problem::Mismatch { expected, found }));
        }
        Ok(Self { shape, table })
    }

    /// The filter of this shape and table, which [`shape`](Self::shape) and [`table`](Self::table)
    /// gave: a decoded one is kept as them.
    pub const fn from_parts(shape: Shape, table: &'a [u8]) -> Self {
        Self { shape, table }
    }

    /// How to look into the table.
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// What follows the header.
    pub const fn table(&self) -> &'a [u8] {
        self.table
    }

    /// Compares the checksum of a whole filter section.
    pub fn check_crc(bytes: &[u8], seed: FileSeed, offset: u64) -> Result<()> {
        let mut reader = Reader::new(FILTER, bytes);
        reader.bytes("magic", FILTER_HEADER_BYTES - 4)?;
        let header = reader.consumed();
        let table = bytes.get(FILTER_HEADER_BYTES..).unwrap_or_default();
        reader.checksum("crc", seed.crc(offset, &[header, table]))
    }

    /// False if no key of this hash is in the segment; true if one may be.
    pub fn may_contain(&self, hash: u64) -> bool {
        match &self.shape {
            Shape::Bloom => bloom::may_contain(self.table, hash),
            Shape::Fuse(fuse) => fuse.may_contain(self.table, hash),
        }
    }
}
