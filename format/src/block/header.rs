//! What stands before the stored bytes of a block: how they are stored, and a checksum over both.

use crate::checksum::FileSeed;
use crate::cursor::{Reader, Writer};
use crate::error::{Problem, Result};
use crate::group::{GROUPS_MAX, VERSIONS_MAX};
use crate::layout::{Layout, field};
use crate::limits;
use crate::place::FileKind;

/// The first two bytes of every data block: "aB".
pub const BLOCK_MAGIC: u16 = u16::from_le_bytes(*b"aB");
/// Bytes of a [`BlockHeader`].
pub const BLOCK_HEADER_BYTES: usize = 24;
/// Most entries of a block of groups.
const ENTRIES_MAX: u64 = (GROUPS_MAX * VERSIONS_MAX) as u64;

/// How a block's body is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encoding {
    /// As it is.
    Raw = 0,
    /// One zstd frame.
    Zstd = 1,
    /// One zstd frame over the file's dictionary.
    ZstdDictionary = 2,
    /// One zstd frame over the body of an earlier block, as its prefix. See
    /// [`BlockHeader::base_distance`].
    ZstdBase = 4,
    /// Groups of versions that are read without decoding a whole block. See [`crate::group`]. Their
    /// number was 3 in a draft whose blocks this one would misread.
    Groups = 5,
}

/// What stands before a block's stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The kind of the file.
    pub kind: FileKind,
    /// How the body is stored.
    pub encoding: Encoding,
    /// Bytes of the body; of groups, the lengths of all values.
    pub raw_bytes: u32,
    /// Bytes that follow the header.
    pub stored_bytes: u32,
    /// Entries in the body, at least 1.
    pub entry_count: u32,
    /// With [`Encoding::ZstdBase`] how far before this block its base begins, in bytes; else 0. The
    /// base is never itself based on another block, so decoding takes at most two steps.
    pub base_distance: u32,
}

impl Encoding {
    /// The encoding with this number, if this build knows it.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Raw),
            1 => Some(Self::Zstd),
            2 => Some(Self::ZstdDictionary),
            4 => Some(Self::ZstdBase),
            5 => Some(Self::Groups),
            _ => None,
        }
    }

    /// The number that stands on disk.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl BlockHeader {
    /// The byte map, as in SPEC-segment.md.
    pub const LAYOUT: Layout = Layout {
        structure: "block header",
        fields: &[
            field(0, 2, "magic"),
            field(2, 1, "kind"),
            field(3, 1, "encoding"),
            field(4, 4, "raw_bytes"),
            field(8, 4, "stored_bytes"),
            field(12, 4, "entry_count"),
            field(16, 4, "base_distance"),
            field(20, 4, "crc"),
        ],
    };

    /// Appends the header and the stored bytes of a block that begins at `offset` of its file.
    pub fn encode(&self, out: &mut Vec<u8>, seed: FileSeed, offset: u64, stored: &[u8]) {
        debug_assert_eq!(stored.len() as u64, u64::from(self.stored_bytes));
        let mut header = Vec::with_capacity(BLOCK_HEADER_BYTES);
        header.put_u16(BLOCK_MAGIC);
        header.put_u8(self.kind.number());
        header.put_u8(self.encoding.number());
        header.put_u32(self.raw_bytes);
        header.put_u32(self.stored_bytes);
        header.put_u32(self.entry_count);
        header.put_u32(self.base_distance);
        let crc = seed.crc(offset, &[&header, stored]);
        header.put_u32(crc);
        out.put_bytes(&header);
        out.put_bytes(stored);
    }

    /// How many entries a block has, of its first bytes alone: the rest is neither needed nor checked.
    pub fn entry_count_of(header: &[u8]) -> Result<u32> {
        let mut reader = Reader::new(Self::LAYOUT.structure, header);
        let found = reader.u16("magic")?;
        if found != BLOCK_MAGIC {
            let (expected, found) = (u32::from(BLOCK_MAGIC), u32::from(found));
            return Err(reader.error_at("magic", 0, Problem::Magic { expected, found }));
        }
        reader.u16("kind")?;
        reader.u32("raw_bytes")?;
        reader.u32("stored_bytes")?;
        reader.u32("entry_count")
    }

    /// Reads a whole block: its header and its stored bytes, which must be all of `bytes`.
    ///
    /// The fields are bounded but the checksum is not computed; [`check_crc`](Self::check_crc) does
    /// that, once, on the first touch of a block.
    pub fn decode(bytes: &[u8], kind: FileKind) -> Result<(Self, &[u8])> {
        let mut reader = Reader::new(Self::LAYOUT.structure, bytes);
        let found = reader.u16("magic")?;
        if found != BLOCK_MAGIC {
            let (expected, found) = (u32::from(BLOCK_MAGIC), u32::from(found));
            return Err(reader.error_at("magic", 0, Problem::Magic { expected, found }));
        }
        let (expected, found) = (kind.number(), reader.u8("kind")?);
        if expected != found {
            let (expected, found) = (u64::from(expected), u64::from(found));
            return Err(reader.error_at("kind", 2, Problem::Mismatch { expected, found }));
        }
        let number = reader.u8("encoding")?;
        let Some(encoding) = Encoding::from_number(number) else {
            let found = u64::from(number);
            return Err(reader.error_at("encoding", 3, Problem::Invalid { found }));
        };
        let (raw_bytes, stored_bytes) = (reader.u32("raw_bytes")?, reader.u32("stored_bytes")?);
        let entry_count = reader.u32("entry_count")?;
        let base_distance = reader.u32("base_distance")?;
        reader.u32("crc")?;
        let stored = reader.rest();
        if stored.len() as u64 != u64::from(stored_bytes) {
            let (expected, found) = (stored.len() as u64, u64::from(stored_bytes));
            return Err(reader.error_at("stored_bytes", 8, Problem::Mismatch { expected, found }));
        }
        let (max, found) = (limits::BLOCK_RAW_BYTES_MAX, u64::from(raw_bytes));
        if found > max {
            return Err(reader.error_at("raw_bytes", 4, Problem::TooLong { max, found }));
        }
        let groups = encoding == Encoding::Groups;
        if groups && kind != FileKind::History {
            let found = u64::from(number);
            return Err(reader.error_at("encoding", 3, Problem::Invalid { found }));
        }
        // A block that does not shrink is stored raw, so these two say the same thing. Values of
        // groups may be empty, and their keys are not counted.
        let raw = encoding == Encoding::Raw;
        let fits = raw == (raw_bytes == stored_bytes) && raw_bytes >= stored_bytes;
        if !groups && !fits {
            return Err(reader.error_at("raw_bytes", 4, Problem::Invalid { found }));
        }
        let entries_max = if groups { ENTRIES_MAX } else { u64::from(raw_bytes) };
        let found = u64::from(entry_count);
        if found == 0 || found > entries_max {
            return Err(reader.error_at("entry_count", 12, Problem::Invalid { found }));
        }
        if (encoding == Encoding::ZstdBase) != (base_distance != 0) {
            let found = u64::from(base_distance);
            return Err(reader.error_at("base_distance", 16, Problem::Invalid { found }));
        }
        let header = Self { kind, encoding, raw_bytes, stored_bytes, entry_count, base_distance };
        Ok((header, stored))
    }

    /// The length of the block that begins with `bytes`, its header included. To be believed only
    /// as far as the file reaches: nothing is checked.
    pub fn block_bytes(bytes: &[u8]) -> Result<u64> {
        let mut reader = Reader::new(Self::LAYOUT.structure, bytes);
        reader.bytes("magic", 8)?;
        Ok(BLOCK_HEADER_BYTES as u64 + u64::from(reader.u32("stored_bytes")?))
    }

    /// Compares the checksum of a whole block, as given to [`decode`](Self::decode).
    pub fn check_crc(bytes: &[u8], seed: FileSeed, offset: u64) -> Result<()> {
        let mut reader = Reader::new(Self::LAYOUT.structure, bytes);
        reader.bytes("magic", BLOCK_HEADER_BYTES - 4)?;
        let header = reader.consumed();
        let stored = bytes.get(BLOCK_HEADER_BYTES..).unwrap_or_default();
        reader.checksum("crc", seed.crc(offset, &[header, stored]))
    }
}

const _: () = assert!(BlockHeader::LAYOUT.bytes() == BLOCK_HEADER_BYTES);
