//! The dictionary section of a segment: bytes that zstd frames of the file refer to, and that values
//! of groups are copied from.
//!
//! ```text
//! dictionary := header(16) content:bytes(content_bytes)
//! ```

use crate::checksum::FileSeed;
use crate::cursor::{Reader, Writer};
use crate::error::{Problem, Result};
use crate::layout::{Layout, field};

/// The first four bytes of a dictionary section: "aDIC".
pub const DICTIONARY_MAGIC: u32 = u32::from_le_bytes(*b"aDIC");
/// Bytes of the section's header.
pub const DICTIONARY_HEADER_BYTES: usize = 16;
/// Largest content.
pub const DICTIONARY_BYTES_MAX: usize = 1 << 20;

const DICTIONARY: &str = "dictionary";

/// The byte map of the section's header, as in SPEC-segment.md.
pub const DICTIONARY_LAYOUT: Layout = Layout {
    structure: DICTIONARY,
    fields: &[
        field(0, 4, "magic"),
        field(4, 4, "content_bytes"),
        field(8, 4, "zero"),
        field(12, 4, "crc"),
    ],
};

const _: () = assert!(DICTIONARY_LAYOUT.bytes() == DICTIONARY_HEADER_BYTES);

/// Appends the section, which begins at `offset` of its file. `content` is not empty and at most
/// [`DICTIONARY_BYTES_MAX`] long.
pub fn encode(out: &mut Vec<u8>, content: &[u8], seed: FileSeed, offset: u64) {
    debug_assert!((1..=DICTIONARY_BYTES_MAX).contains(&content.len()));
    let mut header = Vec::with_capacity(DICTIONARY_HEADER_BYTES);
    header.put_u32(DICTIONARY_MAGIC);
    header.put_u32(u32::try_from(content.len()).unwrap_or(u32::MAX));
    header.put_zeros(4);
    let crc = seed.crc(offset, &[&header, content]);
    header.put_u32(crc);
    out.put_bytes(&header);
    out.put_bytes(content);
}

/// Reads the section, checksum included. `bytes` are exactly the section.
pub fn decode(bytes: &[u8], seed: FileSeed, offset: u64) -> Result<&[u8]> {
    let mut reader = Reader::new(DICTIONARY, bytes);
    reader.magic(DICTIONARY_MAGIC)?;
    let found = u64::from(reader.u32("content_bytes")?);
    reader.zeros("zero", 4)?;
    let header = reader.consumed();
    let content = bytes.get(DICTIONARY_HEADER_BYTES..).unwrap_or_default();
    reader.checksum("crc", seed.crc(offset, &[header, content]))?;
    let expected = content.len() as u64;
    if found != expected || content.is_empty() || content.len() > DICTIONARY_BYTES_MAX {
        let problem = Problem::Mismatch { expected, found };
        return Err(reader.error_at("content_bytes", 4, problem));
    }
    Ok(content)
}
