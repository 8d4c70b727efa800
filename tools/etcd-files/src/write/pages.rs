//! The pages of a file of bbolt, in the order in which they are written.

use std::io::{BufWriter, Seek, SeekFrom, Write};

use crate::bolt::meta_checksum;
use crate::{Error, Result};

use super::io_at;

pub(super) const PAGE_BYTES: usize = 4096;
pub(super) const HEADER_BYTES: usize = 16;
pub(super) const ELEMENT_BYTES: usize = 16;
pub(super) const BRANCH: u16 = 1;
pub(super) const LEAF: u16 = 2;
const META: u16 = 4;
const FREELIST: u16 = 16;
/// What an element has for flags whose value is a bucket.
pub(super) const BUCKET_FLAG: u32 = 1;
/// The page of the list of free pages. The pages before it are the metas; all after it are used.
const FREELIST_PAGE: u64 = 2;
const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
/// Bytes on their way to the file.
const BUFFER_BYTES: usize = 1 << 18;

/// A page header. `count` is of what fits in a page, and `overflow` of what fits in a file.
pub(super) fn header(id: u64, flags: u16, count: usize, overflow: usize) -> [u8; HEADER_BYTES] {
    let count = u16::try_from(count).unwrap_or(u16::MAX);
    let overflow = u32::try_from(overflow).unwrap_or(u32::MAX);
    let mut header = [0; HEADER_BYTES];
    let parts = id.to_le_bytes().into_iter().chain(flags.to_le_bytes());
    let parts = parts.chain(count.to_le_bytes()).chain(overflow.to_le_bytes());
    header.iter_mut().zip(parts).for_each(|(byte, part)| *byte = part);
    header
}

/// The file, as far as it is written.
#[derive(Debug)]
pub(super) struct Pages<W: Write + Seek> {
    out: BufWriter<W>,
    /// The page that comes next.
    next: u64,
}

impl<W: Write + Seek> Pages<W> {
    pub(super) fn create(mut out: W) -> Result<Self> {
        out.seek(SeekFrom::Start(0)).map_err(io_at(0))?;
        let mut pages = Self { out: BufWriter::with_capacity(BUFFER_BYTES, out), next: 0 };
        // In place of the metas, which the end brings.
        for _ in 0..FREELIST_PAGE {
            pages.bytes(&[0; PAGE_BYTES])?;
            pages.next += 1;
        }
        pages.write(FREELIST, 0, &[])?;
        Ok(pages)
    }

    /// Where the next page begins.
    fn offset(&self) -> u64 {
        self.next.saturating_mul(PAGE_BYTES as u64)
    }

    pub(super) fn refused(&self, what: impl Into<String>) -> Error {
        Error::refused(self.next, self.offset(), what)
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(io_at(self.offset()))
    }

    /// Writes a page with these parts behind its header, over as many as that takes. Answers its number.
    pub(super) fn write(&mut self, flags: u16, count: usize, parts: &[&[u8]]) -> Result<u64> {
        let bytes = HEADER_BYTES + parts.iter().map(|part| part.len()).sum::<usize>();
        let span = bytes.div_ceil(PAGE_BYTES);
        let id = self.next;
        self.bytes(&header(id, flags, count, span - 1))?;
        for part in parts {
            self.bytes(part)?;
        }
        let padding = [0; PAGE_BYTES];
        self.bytes(padding.get(..span * PAGE_BYTES - bytes).unwrap_or_default())?;
        self.next += span as u64;
        Ok(id)
    }

    /// Writes the metas. Answers what all was written to, and its bytes.
    pub(super) fn finish(mut self, root: u64) -> Result<(W, u64)> {
        let bytes = self.offset();
        // All else is there before that which makes it a database.
        self.out.flush().map_err(io_at(bytes))?;
        let mut metas = Vec::with_capacity(2 * PAGE_BYTES);
        for id in 0..FREELIST_PAGE {
            metas.extend_from_slice(&header(id, META, 0, 0));
            metas.extend_from_slice(&meta(root, self.next, id));
            metas.resize((metas.len()).next_multiple_of(PAGE_BYTES), 0);
        }
        self.out.seek(SeekFrom::Start(0)).map_err(io_at(0))?;
        self.out.write_all(&metas).map_err(io_at(0))?;
        self.out.flush().map_err(io_at(0))?;
        let out = self.out.into_inner().map_err(|error| io_at(0)(error.into_error()))?;
        Ok((out, bytes))
    }
}

/// What a meta page has behind its header.
fn meta(root: u64, high_water: u64, transaction: u64) -> Vec<u8> {
    let mut meta: Vec<u8> = [MAGIC, VERSION].iter().flat_map(|n| n.to_le_bytes()).collect();
    // Of this number the lower half is the bytes of a page, and the upper one flags, of which there are none.
    meta.extend((PAGE_BYTES as u64).to_le_bytes());
    for number in [root, 0, FREELIST_PAGE, high_water, transaction] {
        meta.extend(number.to_le_bytes());
    }
    let sum = meta_checksum(&meta);
    meta.extend(sum.to_le_bytes());
    meta
}
