//! A backup: a store as one stream of bytes, or what came since another one.
//!
//! ```text
//! backup := header (80 bytes), block*, end
//! block  := block header (32 bytes), payload
//! end    := a block of kind 5 with a payload of 48 bytes
//! ```
//!
//! Blocks that follow each other with the same kind and number are the pieces of one section, front to
//! back, cut anywhere. No piece is longer than [`PIECE_BYTES_MAX`], so whoever reads a stream needs room
//! for two. The checksum of a block covers that of the one before it: none can be left out, exchanged,
//! or come from elsewhere.

use crc32fast::Hasher;

use crate::checksum::{ContentHash, crc_unplaced};
use crate::cursor::{Reader, SliceWriter, Writer};
use crate::error::{DecodeError, Problem, Result};
use crate::layout::{Layout, field};
use crate::place::StoreId;

/// `"anbk"`: a backup starts here.
pub const MAGIC: u32 = u32::from_le_bytes(*b"anbk");
/// The version this build writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;
/// Bytes of the header of a backup.
pub const HEADER_BYTES: usize = 80;
/// Bytes of the header of a block.
pub const BLOCK_BYTES: usize = 32;
/// Bytes of the payload of the last block.
pub const END_BYTES: usize = 48;
/// Longest payload of a block, as it is stored and when it is decompressed.
pub const PIECE_BYTES_MAX: u32 = 1 << 20;

/// The byte map of the header of a backup.
pub const LAYOUT: Layout = Layout {
    structure: "backup header",
    fields: &[
        field(0, 4, "magic"),
        field(4, 4, "format_version"),
        field(8, 16, "store"),
        field(24, 1, "kind"),
        field(25, 3, "zero"),
        field(28, 4, "from_hash"),
        field(32, 8, "from"),
        field(40, 8, "from_compacted"),
        field(48, 8, "upto"),
        field(56, 8, "compacted"),
        field(64, 8, "incarnation"),
        field(72, 4, "zero"),
        field(76, 4, "crc"),
    ],
};
const _: () = assert!(LAYOUT.bytes() == HEADER_BYTES);

/// The byte map of the header of a block.
pub const BLOCK_LAYOUT: Layout = Layout {
    structure: "backup block",
    fields: &[
        field(0, 1, "kind"),
        field(1, 1, "codec"),
        field(2, 2, "zero"),
        field(4, 4, "stored_bytes"),
        field(8, 4, "raw_bytes"),
        field(12, 8, "number"),
        field(20, 8, "offset"),
        field(28, 4, "crc"),
    ],
};
const _: () = assert!(BLOCK_LAYOUT.bytes() == BLOCK_BYTES);

/// The byte map of the payload of the last block.
pub const END_LAYOUT: Layout = Layout {
    structure: "backup end",
    fields: &[
        field(0, 8, "blocks"),
        field(8, 8, "bytes"),
        field(16, 16, "hash"),
        field(32, 8, "kv_compacted"),
        field(40, 4, "kv_hash"),
        field(44, 4, "zero"),
    ],
};
const _: () = assert!(END_LAYOUT.bytes() == END_BYTES);

const CRC_BYTES: usize = 4;
const TAG_HEADER: u8 = b'k';
const TAG_BLOCK: u8 = b'b';

/// What a backup holds. Zero is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A whole store.
    Full = 1,
    /// What came after a revision.
    Increment = 2,
}

/// A state of a store, named so that another store can be compared with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Its revision.
    pub revision: u64,
    /// The revision after which every version is in the hash.
    pub compacted: u64,
    /// The hash of its keys and values (`HashKV`).
    pub hash: u32,
}

/// The header of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The store it was made of.
    pub store: StoreId,
    /// The state that an increment continues; `None` in a full backup.
    pub from: Option<State>,
    /// The newest revision in it.
    pub upto: u64,
    /// The watermark of compactions; 0 if the store was never compacted.
    pub compacted: u64,
    /// The incarnation of the store.
    pub incarnation: u64,
}

/// What the payload of a block is a piece of. Zero is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Part {
    /// A manifest.
    Manifest = 1,
    /// Frames of the log, back to back.
    Frames = 2,
    /// A segment file.
    File = 3,
    /// The records of the system's keys, in order.
    System = 4,
    /// The [`End`].
    End = 5,
}

/// How a payload is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// As it is.
    Raw = 0,
    /// Compressed by zstd.
    Zstd = 1,
}

/// The header of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// What the payload is a piece of.
    pub part: Part,
    /// How it is stored.
    pub codec: Codec,
    /// Bytes of the payload.
    pub stored_bytes: u32,
    /// Bytes of the piece.
    pub raw_bytes: u32,
    /// The number of the segment file; 0 in other parts.
    pub number: u64,
    /// Where the piece starts in its section.
    pub offset: u64,
}

/// What the last block says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Blocks before this one.
    pub blocks: u64,
    /// Bytes of the stream before this block.
    pub bytes: u64,
    /// Their hash.
    pub hash: ContentHash,
    /// As [`State::compacted`], of the state that the stream leads to.
    pub kv_compacted: u64,
    /// As [`State::hash`].
    pub kv_hash: u32,
}

impl Header {
    /// What the backup holds.
    pub const fn kind(&self) -> Kind {
        if self.from.is_some() { Kind::Increment } else { Kind::Full }
    }

    /// The bytes of the header, and their checksum, with which that of the first block begins.
    pub fn encode(&self) -> ([u8; HEADER_BYTES], Chain) {
        let mut bytes = [0; HEADER_BYTES];
        let from = self.from.unwrap_or(State { revision: 0, compacted: 0, hash: 0 });
        let mut writer = SliceWriter::new(&mut bytes);
        writer.put_u32(MAGIC);
        writer.put_u32(FORMAT_VERSION);
        writer.put_bytes(&self.store.0);
        writer.put_u8(self.kind() as u8);
        writer.put_zeros(3);
        writer.put_u32(from.hash);
        writer.put_u64(from.revision);
        writer.put_u64(from.compacted);
        writer.put_u64(self.upto);
        writer.put_u64(self.compacted);
        writer.put_u64(self.incarnation);
        let (covered, stored) = bytes.split_at_mut(HEADER_BYTES - CRC_BYTES);
        let crc = crc_unplaced(&self.store, TAG_HEADER, covered);
        stored.copy_from_slice(&crc.to_le_bytes());
        (bytes, Chain::new(&self.store, crc))
    }

    /// Decodes the header at the start of `bytes`. The checksum is checked before the version, so that
    /// damage is not taken for a newer format.
    pub fn decode(bytes: &[u8]) -> Result<(Self, Chain)> {
        let mut reader = Reader::new(LAYOUT.structure, bytes);
        reader.magic(MAGIC)?;
        let mut version = reader.clone();
        reader.bytes("format_version", 4)?;
        let store = StoreId(reader.array("store")?);
        let mut end = reader.clone();
        end.bytes("fields", HEADER_BYTES - CRC_BYTES - reader.position())?;
        let crc = crc_unplaced(&store, TAG_HEADER, end.consumed());
        end.checksum("crc", crc)?;
        version.version(FORMAT_VERSION)?;

        let kind_at = reader.position();
        let kind = match reader.u8("kind")? {
            1 => Kind::Full,
            2 => Kind::Increment,
            kind => {
                let found = u64::from(kind);
                return Err(reader.error_at("kind", kind_at, Problem::Invalid { found }));
            }
        };
        reader.zeros("zero", 3)?;
        let hash = reader.u32("from_hash")?;
        let from_at = reader.position();
        let least = u64::from(kind == Kind::Increment);
        let from = State {
            hash,
            revision: reader.number("from", least)?,
            compacted: reader.number("from_compacted", 0)?,
        };
        let upto = reader.number("upto", 1.max(from.revision))?;
        let compacted_at = reader.position();
        let compacted = reader.number("compacted", 0)?;
        let incarnation = reader.number("incarnation", 1)?;
        reader.zeros("zero", 4)?;
        let nothing = State { revision: 0, compacted: 0, hash: 0 };
        if (kind == Kind::Full && from != nothing) || from.compacted > from.revision {
            let problem = Problem::Invalid { found: from.revision };
            return Err(reader.error_at("from", from_at, problem));
        }
        if compacted > upto {
            let problem = Problem::TooLong { max: upto, found: compacted };
            return Err(reader.error_at("compacted", compacted_at, problem));
        }
        let from = (kind == Kind::Increment).then_some(from);
        let header = Self { store, from, upto, compacted, incarnation };
        Ok((header, Chain::new(&store, crc)))
    }
}

impl Part {
    fn from_number(number: u8) -> Option<Self> {
        let all = [Self::Manifest, Self::Frames, Self::File, Self::System, Self::End];
        all.into_iter().find(|part| *part as u8 == number)
    }

    /// What a section of this part is called.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::Frames => "frames",
            Self::File => "file",
            Self::System => "system records",
            Self::End => "end",
        }
    }

    /// Whether a backup of this kind has it.
    const fn is_in(self, kind: Kind) -> bool {
        match self {
            Self::Manifest | Self::File => matches!(kind, Kind::Full),
            Self::System => matches!(kind, Kind::Increment),
            Self::Frames | Self::End => true,
        }
    }
}

/// The checksums of the blocks of one backup, each of which covers the one before.
#[derive(Debug, Clone)]
pub struct Chain {
    seed: Hasher,
    previous: u32,
}

impl Chain {
    fn new(store: &StoreId, previous: u32) -> Self {
        let seed = Hasher::new_with_initial(crc_unplaced(store, TAG_BLOCK, &[]));
        Self { seed, previous }
    }

    fn crc(&self, header: &[u8], payload: &[u8]) -> u32 {
        let mut hasher = self.seed.clone();
        hasher.update(&self.previous.to_le_bytes());
        hasher.update(header);
        hasher.update(payload);
        hasher.finalize()
    }

    /// The header of the next block, which has this payload.
    pub fn encode(&mut self, block: &Block, payload: &[u8]) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        let mut writer = SliceWriter::new(&mut bytes);
        writer.put_u8(block.part as u8);
        writer.put_u8(block.codec as u8);
        writer.put_zeros(2);
        writer.put_u32(block.stored_bytes);
        writer.put_u32(block.raw_bytes);
        writer.put_u64(block.number);
        writer.put_u64(block.offset);
        let (covered, stored) = bytes.split_at_mut(BLOCK_BYTES - CRC_BYTES);
        self.previous = self.crc(covered, payload);
        stored.copy_from_slice(&self.previous.to_le_bytes());
        bytes
    }

    /// Decodes the next block, which has this payload.
    pub fn decode(&mut self, header: &[u8], payload: &[u8]) -> Result<Block> {
        let mut reader = Reader::new(BLOCK_LAYOUT.structure, header);
        let mut end = reader.clone();
        end.bytes("header", BLOCK_BYTES - CRC_BYTES)?;
        let crc = self.crc(end.consumed(), payload);
        end.checksum("crc", crc)?;
        end.finish()?;
        self.previous = crc;

        let found = reader.u8("kind")?;
        let Some(part) = Part::from_number(found) else {
            let found = u64::from(found);
            return Err(reader.error_at("kind", 0, Problem::Invalid { found }));
        };
        let codec_at = reader.position();
        let codec = match reader.u8("codec")? {
            0 => Codec::Raw,
            1 => Codec::Zstd,
            codec => {
                let found = u64::from(codec);
                return Err(reader.error_at("codec", codec_at, Problem::Invalid { found }));
            }
        };
        reader.zeros("zero", 2)?;
        let stored_at = reader.position();
        let stored_bytes = reader.u32("stored_bytes")?;
        let raw_at = reader.position();
        let raw_bytes = reader.u32("raw_bytes")?;
        let number = reader.number("number", u64::from(part == Part::File))?;
        let offset = reader.number("offset", 0)?;
        if payload.len() as u64 != u64::from(stored_bytes) {
            let (expected, found) = (u64::from(stored_bytes), payload.len() as u64);
            let problem = Problem::Mismatch { expected, found };
            return Err(reader.error_at("stored_bytes", stored_at, problem));
        }
        let found = u64::from(raw_bytes);
        if raw_bytes > PIECE_BYTES_MAX {
            let problem = Problem::TooLong { max: u64::from(PIECE_BYTES_MAX), found };
            return Err(reader.error_at("raw_bytes", raw_at, problem));
        }
        // What compression does not make shorter is not compressed.
        let fits = match codec {
            Codec::Raw => stored_bytes == raw_bytes,
            Codec::Zstd => stored_bytes < raw_bytes,
        };
        if raw_bytes == 0 || !fits || (part != Part::File && number != 0) {
            return Err(reader.error_at("raw_bytes", raw_at, Problem::Invalid { found }));
        }
        Ok(Block { part, codec, stored_bytes, raw_bytes, number, offset })
    }
}

/// Bytes of the payload that follows the header of a block; bounded, but not yet covered by a checksum.
pub fn payload_bytes(header: &[u8]) -> Result<usize> {
    let mut reader = Reader::new(BLOCK_LAYOUT.structure, header);
    reader.bytes("kind", 4)?;
    let at = reader.position();
    let found = reader.u32("stored_bytes")?;
    if found > PIECE_BYTES_MAX {
        let problem = Problem::TooLong { max: u64::from(PIECE_BYTES_MAX), found: u64::from(found) };
        return Err(reader.error_at("stored_bytes", at, problem));
    }
    Ok(found as usize)
}

impl End {
    /// The payload of the last block.
    pub fn encode(&self) -> [u8; END_BYTES] {
        let mut bytes = [0; END_BYTES];
        let mut writer = SliceWriter::new(&mut bytes);
        writer.put_u64(self.blocks);
        writer.put_u64(self.bytes);
        writer.put_bytes(&self.hash.0);
        writer.put_u64(self.kv_compacted);
        writer.put_u32(self.kv_hash);
        bytes
    }

    /// Decodes the payload of the last block.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(END_LAYOUT.structure, bytes);
        let end = Self {
            blocks: reader.number("blocks", 0)?,
            bytes: reader.u64("bytes")?,
            hash: ContentHash(reader.array("hash")?),
            kv_compacted: reader.number("kv_compacted", 0)?,
            kv_hash: reader.u32("kv_hash")?,
        };
        reader.zeros("zero", 4)?;
        reader.finish()?;
        Ok(end)
    }
}

/// Which block can follow which.
///
/// A full backup begins with its manifest. Sections ascend by kind, files among them by number; a section
/// begins at offset 0 and goes on where its last piece ended; the end comes last.
#[derive(Debug, Clone)]
pub struct Order {
    kind: Kind,
    last: Option<(Part, u64, u64)>,
}

impl Order {
    /// The order of the blocks of a backup of this kind.
    pub const fn new(kind: Kind) -> Self {
        Self { kind, last: None }
    }

    /// Takes the next block. Answers whether it begins a section.
    pub fn next(&mut self, block: &Block) -> Result<bool> {
        let error = |field: &'static str, problem| {
            let of_field = BLOCK_LAYOUT.fields.iter().find(|other| other.name == field);
            let offset = of_field.map_or(0, |field| field.offset as u64);
            DecodeError { structure: BLOCK_LAYOUT.structure, field, offset, problem }
        };
        let Block { part, number, offset, raw_bytes, .. } = *block;
        let goes_on = self.last.is_some_and(|(last, of, _)| (last, of) == (part, number));
        let follows = match self.last {
            None if self.kind == Kind::Full => part == Part::Manifest,
            None => part.is_in(self.kind),
            Some((Part::End, ..)) => false,
            Some((last, of, _)) => {
                part.is_in(self.kind) && (goes_on || (last, of) < (part, number))
            }
        };
        if !follows {
            return Err(error("kind", Problem::Order));
        }
        let expected = self.last.filter(|_| goes_on).map_or(0, |(.., end)| end);
        if offset != expected {
            return Err(error("offset", Problem::Mismatch { expected, found: offset }));
        }
        self.last = Some((part, number, offset.saturating_add(u64::from(raw_bytes))));
        Ok(!goes_on)
    }

    /// Whether the end has come.
    pub fn is_at_end(&self) -> bool {
        matches!(self.last, Some((Part::End, ..)))
    }
}
