//! The header of a WAL file, in the file's first sector.

use crate::checksum::crc;
use crate::cursor::{Reader, SliceWriter, Writer};
use crate::error::{Problem, Result};
use crate::layout::{Layout, field};
use crate::limits::WAL_BYTES_MAX;
use crate::place::{FileKind, Place, StoreId};
use crate::sector::PAGE_BYTES;

/// `"anwl"`: a WAL file starts here.
pub const MAGIC: u32 = u32::from_le_bytes(*b"anwl");
/// The version of the WAL format this build writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;
/// Bytes of the header.
pub const BYTES: usize = 72;

/// The byte map of the header.
pub const LAYOUT: Layout = Layout {
    structure: "wal file header",
    fields: &[
        field(0, 4, "magic"),
        field(4, 4, "format_version"),
        field(8, 16, "store"),
        field(24, 8, "number"),
        field(32, 8, "file_bytes"),
        field(40, 8, "previous_file"),
        field(48, 8, "first_seq"),
        field(56, 8, "incarnation"),
        field(64, 4, "zero"),
        field(68, 4, "crc"),
    ],
};
const _: () = assert!(LAYOUT.bytes() == BYTES);

/// The header of a WAL file. It is written together with the file's first batch: a file without a
/// header is all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalFileHeader {
    /// The store the file belongs to.
    pub store: StoreId,
    /// The file's number.
    pub number: u64,
    /// How long the file was made.
    pub file_bytes: u64,
    /// The number of the file before it; 0 = none.
    pub previous_file: u64,
    /// The seq of the first frame that goes into it.
    pub first_seq: u64,
    /// The incarnation of the store when the file was made: tells the files of a copy from those
    /// of its original, which has the same store id and gives the same numbers.
    pub incarnation: u64,
}

/// Whether a file may be this long: whole pages, the header's and at least one more.
pub const fn is_file_bytes(bytes: u64) -> bool {
    let page = PAGE_BYTES as u64;
    bytes.is_multiple_of(page) && bytes >= 2 * page && bytes <= WAL_BYTES_MAX
}

impl WalFileHeader {
    /// The bytes of the header.
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let mut writer = SliceWriter::new(&mut bytes);
        writer.put_u32(MAGIC);
        writer.put_u32(FORMAT_VERSION);
        writer.put_bytes(&self.store.0);
        writer.put_u64(self.number);
        writer.put_u64(self.file_bytes);
        writer.put_u64(self.previous_file);
        writer.put_u64(self.first_seq);
        writer.put_u64(self.incarnation);
        writer.put_u32(0);
        let (covered, stored) = bytes.split_at_mut(BYTES - 4);
        stored.copy_from_slice(&crc(&self.place(), &[covered]).to_le_bytes());
        bytes
    }

    /// The CRC at the end of the header: what the first batch of the file names as the one before.
    pub fn crc(&self) -> u32 {
        self.encode().last_chunk().map_or(0, |crc| u32::from_le_bytes(*crc))
    }

    /// Decodes the header at the start of `bytes`. The checksum is checked before the version, so
    /// that damage is not taken for a newer format: header and first sector keep their form in
    /// every version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(LAYOUT.structure, bytes);
        reader.magic(MAGIC)?;
        let mut version = reader.clone();
        reader.bytes("format_version", 4)?;
        let store = StoreId(reader.array("store")?);
        let mut numbers = reader.clone();
        let mut header = Self {
            store,
            number: reader.u64("number")?,
            file_bytes: 0,
            previous_file: 0,
            first_seq: 0,
            incarnation: 0,
        };
        let file_bytes_at = reader.position();
        header.file_bytes = reader.u64("file_bytes")?;
        header.previous_file = reader.u64("previous_file")?;
        header.first_seq = reader.u64("first_seq")?;
        header.incarnation = reader.u64("incarnation")?;
        let mut zero = reader.clone();
        reader.bytes("zero", 4)?;
        reader.checksum("crc", crc(&header.place(), &[reader.consumed()]))?;
        version.version(FORMAT_VERSION)?;
        zero.zeros("zero", 4)?;
        if !is_file_bytes(header.file_bytes) {
            let problem = Problem::Invalid { found: header.file_bytes };
            return Err(numbers.error_at("file_bytes", file_bytes_at, problem));
        }
        numbers.number("number", 1)?;
        numbers.u64("file_bytes")?;
        let previous_at = numbers.position();
        if numbers.number("previous_file", 0)? >= header.number {
            let problem = Problem::Invalid { found: header.previous_file };
            return Err(numbers.error_at("previous_file", previous_at, problem));
        }
        numbers.next_number("first_seq")?;
        numbers.number("incarnation", 1)?;
        Ok(header)
    }

    const fn place(&self) -> Place {
        Place::start_of(self.store, FileKind::Wal, self.number)
    }
}
