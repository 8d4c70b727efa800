//! The container of the five kinds of segment: what stands at its two ends.
//!
//! ```text
//! segment := header(64) block* page* [filter] [dictionary] footer(192)
//! ```
//!
//! A reader starts at the end: the [`Footer`] has a fixed size and says where everything is. The
//! parts follow each other without gaps, so every byte belongs to exactly one checked structure.
//! Nothing is ever patched: a segment is written front to back, synced, and never changed.

use crate::checksum::FileSeed;
use crate::cursor::{Reader, Writer};
use crate::error::{DecodeError, Problem, Result};
use crate::layout::{Layout, field};
use crate::limits::PAGE_BYTES_MAX;
use crate::page::{Handle, LEVELS_MAX};
use crate::place::{FileKind, Place};

/// The first four bytes of every segment: "aSEG".
pub const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"aSEG");
/// The first four bytes of a footer: "aEND".
pub const FOOTER_MAGIC: u32 = u32::from_le_bytes(*b"aEND");
/// The version of the segment format this build writes, and the newest it reads.
pub const SEGMENT_VERSION: u32 = 1;
/// Bytes of a [`Header`].
pub const HEADER_BYTES: usize = 64;
/// Bytes of a [`Footer`].
pub const FOOTER_BYTES: usize = 192;

/// The header: what the file is, so that a stray file can be told by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The store, kind and number of the file; `offset` is 0.
    pub place: Place,
    /// Retention class; 0 is the default class.
    pub class: u32,
    /// The incarnation of the store that made the file, by which it is told from a file of a copy.
    pub incarnation: u64,
}

impl Header {
    /// The byte map, as in SPEC-segment.md.
    pub const LAYOUT: Layout = Layout {
        structure: "segment header",
        fields: &[
            field(0, 4, "magic"),
            field(4, 4, "format_version"),
            field(8, 1, "kind"),
            field(9, 3, "zero"),
            field(12, 4, "class"),
            field(16, 16, "store"),
            field(32, 8, "file"),
            field(40, 8, "incarnation"),
            field(48, 12, "zero2"),
            field(60, 4, "crc"),
        ],
    };

    /// Appends the header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u32(SEGMENT_MAGIC);
        out.put_u32(SEGMENT_VERSION);
        out.put_u8(self.place.kind.number());
        out.put_zeros(3);
        out.put_u32(self.class);
        out.put_bytes(&self.place.store.0);
        out.put_u64(self.place.file);
        out.put_u64(self.incarnation);
        out.put_zeros(12);
        let crc = FileSeed::new(&self.place).crc(0, &[out.get(start..).unwrap_or_default()]);
        out.put_u32(crc);
    }

    /// Reads the header of the file that should be at `place` (offset 0). `bytes` are exactly the header.
    pub fn decode(bytes: &[u8], place: &Place) -> Result<Self> {
        let mut reader = Reader::new(Self::LAYOUT.structure, bytes);
        reader.magic(SEGMENT_MAGIC)?;
        check_crc(&reader, bytes, HEADER_BYTES, place)?;
        reader.version(SEGMENT_VERSION)?;
        kind(&mut reader, place)?;
        reader.zeros("zero", 3)?;
        let class = reader.u32("class")?;
        identity(&mut reader, place)?;
        let incarnation = reader.number("incarnation", 1)?;
        reader.zeros("zero2", 12)?;
        reader.u32("crc")?;
        reader.finish()?;
        Ok(Self { place: *place, class, incarnation })
    }
}

const _: () = assert!(Header::LAYOUT.bytes() == HEADER_BYTES);

/// The footer: where everything is and what it amounts to. The very last bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The store, kind and number of the file; `offset` is the footer's.
    pub place: Place,
    /// Retention class, as in the header.
    pub class: u32,
    /// As in the header.
    pub incarnation: u64,
    /// Entries in all blocks.
    pub entries: u64,
    /// Distinct keys.
    pub keys: u64,
    /// Entries that are tombstones.
    pub tombstones: u64,
    /// Uncompressed bytes of all values.
    pub value_bytes: u64,
    /// Lowest revision, in L0 lowest [`first`](crate::entry::EntryRef::first); 0 if there are no
    /// entries.
    pub min_revision: u64,
    /// Highest revision; 0 if there are no entries.
    pub max_revision: u64,
    /// HISTORY: all deaths are above this; else 0.
    pub death_after: u64,
    /// HISTORY: all deaths are at most this; else 0.
    pub death_upto: u64,
    /// Data blocks. They begin right after the header.
    pub block_count: u32,
    /// Index pages. They begin at `index_offset`, where the blocks end.
    pub page_count: u32,
    /// Where the pages begin.
    pub index_offset: u64,
    /// The last page, the root of the tree; all zero if there are no blocks.
    pub root: Handle,
    /// Levels of the tree; 0 if there are no blocks.
    pub height: u8,
    /// Where the pages end and the filter begins.
    pub filter_offset: u64,
    /// Bytes of the filter section; 0 = none.
    pub filter_bytes: u64,
    /// Bytes of the dictionary section, which follows the filter; 0 = none.
    pub dictionary_bytes: u64,
    /// Living keys that all entries make up, see [`living`](crate::living).
    pub living: i64,
}

impl Footer {
    /// The byte map, as in SPEC-segment.md.
    pub const LAYOUT: Layout = Layout {
        structure: "segment footer",
        fields: &[
            field(0, 4, "magic"),
            field(4, 4, "format_version"),
            field(8, 1, "kind"),
            field(9, 1, "height"),
            field(10, 2, "zero"),
            field(12, 4, "class"),
            field(16, 16, "store"),
            field(32, 8, "file"),
            field(40, 8, "incarnation"),
            field(48, 8, "entries"),
            field(56, 8, "keys"),
            field(64, 8, "tombstones"),
            field(72, 8, "value_bytes"),
            field(80, 8, "min_revision"),
            field(88, 8, "max_revision"),
            field(96, 8, "death_after"),
            field(104, 8, "death_upto"),
            field(112, 4, "block_count"),
            field(116, 4, "page_count"),
            field(120, 8, "index_offset"),
            field(128, 8, "root_offset"),
            field(136, 8, "filter_offset"),
            field(144, 8, "filter_bytes"),
            field(152, 8, "dictionary_offset"),
            field(160, 8, "dictionary_bytes"),
            field(168, 8, "file_bytes"),
            field(176, 8, "living"),
            field(184, 4, "root_bytes"),
            field(188, 4, "crc"),
        ],
    };

    /// Where the dictionary begins.
    pub const fn dictionary_offset(&self) -> u64 {
        self.filter_offset.saturating_add(self.filter_bytes)
    }

    /// Length of the whole file.
    pub const fn file_bytes(&self) -> u64 {
        self.place.offset.saturating_add(FOOTER_BYTES as u64)
    }

    /// Appends the footer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u32(FOOTER_MAGIC);
        out.put_u32(SEGMENT_VERSION);
        out.put_u8(self.place.kind.number());
        out.put_u8(self.height);
        out.put_zeros(2);
        out.put_u32(self.class);
        out.put_bytes(&self.place.store.0);
        out.put_u64(self.place.file);
        for value in [
            self.incarnation,
            self.entries,
            self.keys,
            self.tombstones,
            self.value_bytes,
            self.min_revision,
            self.max_revision,
            self.death_after,
            self.death_upto,
        ] {
            out.put_u64(value);
        }
        out.put_u32(self.block_count);
        out.put_u32(self.page_count);
        out.put_u64(self.index_offset);
        out.put_u64(self.root.offset);
        out.put_u64(self.filter_offset);
        out.put_u64(self.filter_bytes);
        out.put_u64(self.dictionary_offset());
        out.put_u64(self.dictionary_bytes);
        out.put_u64(self.file_bytes());
        out.put_u64(self.living.cast_unsigned());
        out.put_u32(self.root.bytes);
        let bytes = out.get(start..).unwrap_or_default();
        let crc = FileSeed::new(&self.place).crc(self.place.offset, &[bytes]);
        out.put_u32(crc);
    }

    /// Reads the footer at `place` (whose offset is the file's length less [`FOOTER_BYTES`]).
    /// `bytes` are exactly the footer. What it says about places in the file is checked to add up.
    pub fn decode(bytes: &[u8], place: &Place) -> Result<Self> {
        let mut reader = Reader::new(Self::LAYOUT.structure, bytes);
        reader.magic(FOOTER_MAGIC)?;
        check_crc(&reader, bytes, FOOTER_BYTES, place)?;
        reader.version(SEGMENT_VERSION)?;
        kind(&mut reader, place)?;
        let height = reader.u8("height")?;
        reader.zeros("zero", 2)?;
        let class = reader.u32("class")?;
        identity(&mut reader, place)?;
        let incarnation = reader.number("incarnation", 1)?;
        let entries = reader.u64("entries")?;
        let keys = reader.u64("keys")?;
        let tombstones = reader.u64("tombstones")?;
        let value_bytes = reader.u64("value_bytes")?;
        let min_revision = reader.u64("min_revision")?;
        let max_revision = reader.u64("max_revision")?;
        let death_after = reader.u64("death_after")?;
        let death_upto = reader.u64("death_upto")?;
        let block_count = reader.u32("block_count")?;
        let page_count = reader.u32("page_count")?;
        let index_offset = reader.u64("index_offset")?;
        let root_offset = reader.u64("root_offset")?;
        let filter_offset = reader.u64("filter_offset")?;
        let filter_bytes = reader.u64("filter_bytes")?;
        let dictionary_offset = reader.u64("dictionary_offset")?;
        let dictionary_bytes = reader.u64("dictionary_bytes")?;
        let file_bytes = reader.u64("file_bytes")?;
        let living = reader.u64("living")?.cast_signed();
        let root_bytes = reader.u32("root_bytes")?;
        reader.u32("crc")?;
        reader.finish()?;

        let number = page_count.saturating_sub(1);
        let root = Handle { offset: root_offset, bytes: root_bytes, number };
        let footer = Self {
            place: *place,
            class,
            incarnation,
            entries,
            keys,
            tombstones,
            value_bytes,
            min_revision,
            max_revision,
            death_after,
            death_upto,
            block_count,
            page_count,
            index_offset,
            root,
            height,
            filter_offset,
            filter_bytes,
            dictionary_bytes,
            living,
        };
        footer.check(dictionary_offset, file_bytes)?;
        Ok(footer)
    }

    /// Places that do not add up are found even where the checksum does not find them.
    fn check(&self, dictionary_offset: u64, file_bytes: u64) -> Result<()> {
        let mismatch = |field: &'static str, expected: u64, found: u64| {
            if expected == found {
                return Ok(());
            }
            let offset = Self::LAYOUT.fields.iter().find(|f| f.name == field);
            Err(DecodeError {
                structure: Self::LAYOUT.structure,
                field,
                offset: offset.map_or(0, |f| f.offset as u64),
                problem: Problem::Mismatch { expected, found },
            })
        };
        mismatch("file_bytes", self.file_bytes(), file_bytes)?;
        mismatch("dictionary_offset", self.dictionary_offset(), dictionary_offset)?;
        let end = self.dictionary_offset().checked_add(self.dictionary_bytes);
        mismatch("dictionary_bytes", self.place.offset, end.unwrap_or(u64::MAX))?;
        // No entry counts for more than one key.
        let living_fits = self.living.unsigned_abs() <= self.entries;
        mismatch("living", 1, u64::from(living_fits))?;
        let header = HEADER_BYTES as u64;
        if self.block_count == 0 {
            mismatch("index_offset", header, self.index_offset)?;
            mismatch("filter_offset", header, self.filter_offset)?;
            mismatch("page_count", 0, u64::from(self.page_count))?;
            mismatch("height", 0, u64::from(self.height))?;
            mismatch("root_offset", 0, self.root.offset)?;
            mismatch("root_bytes", 0, u64::from(self.root.bytes))?;
            return mismatch("entries", 0, self.entries);
        }
        let in_order = header < self.index_offset
            && self.index_offset <= self.root.offset
            && self.root.offset < self.filter_offset
            && self.filter_offset <= self.place.offset;
        mismatch("index_offset", 1, u64::from(in_order))?;
        let root_end = self.root.offset.checked_add(u64::from(self.root.bytes));
        mismatch("root_bytes", self.filter_offset, root_end.unwrap_or(u64::MAX))?;
        let root_fits = u64::from(self.root.bytes) <= PAGE_BYTES_MAX;
        mismatch("root_bytes", 1, u64::from(root_fits))?;
        mismatch("height", 1, u64::from((1..=LEVELS_MAX).contains(&self.height)))?;
        let counts_fit = u64::from(self.block_count) <= self.index_offset
            && self.page_count > 0
            && u64::from(self.page_count) <= self.filter_offset;
        mismatch("block_count", 1, u64::from(counts_fit))?;
        mismatch("entries", 1, u64::from(self.entries >= u64::from(self.block_count)))
    }
}

const _: () = assert!(Footer::LAYOUT.bytes() == FOOTER_BYTES);

/// Compares the checksum at the end of a structure of this length, before anything else in it is
/// believed: damage must not pass for a newer version.
fn check_crc(at: &Reader<'_>, bytes: &[u8], length: usize, place: &Place) -> Result<()> {
    let mut reader = at.clone();
    reader.bytes("crc", (length - 4).saturating_sub(reader.position()))?;
    let crc = FileSeed::new(place).crc(place.offset, &[reader.consumed()]);
    reader.checksum("crc", crc)?;
    let trailing = bytes.len().saturating_sub(length) as u64;
    if trailing > 0 {
        return Err(reader.error("end", Problem::Trailing { bytes: trailing }));
    }
    Ok(())
}

fn kind(reader: &mut Reader<'_>, place: &Place) -> Result<()> {
    let at = reader.position();
    let (expected, found) = (place.kind.number(), reader.u8("kind")?);
    if expected == found && FileKind::is_segment(place.kind) {
        return Ok(());
    }
    let (expected, found) = (u64::from(expected), u64::from(found));
    Err(reader.error_at("kind", at, Problem::Mismatch { expected, found }))
}

fn identity(reader: &mut Reader<'_>, place: &Place) -> Result<()> {
    let at = reader.position();
    let store = reader.array::<16>("store")?;
    if store != place.store.0 {
        let short = |id: &[u8; 16]| id.first_chunk::<8>().map_or(0, |b| u64::from_be_bytes(*b));
        let (expected, found) = (short(&place.store.0), short(&store));
        return Err(reader.error_at("store", at, Problem::Mismatch { expected, found }));
    }
    let (expected, found) = (place.file, reader.u64("file")?);
    if expected != found {
        return Err(reader.error_at("file", at + 16, Problem::Mismatch { expected, found }));
    }
    Ok(())
}
