//! Blocks of a segment: read, checked, decoded.

use annals_format::FileKind;
use annals_format::block::{BLOCK_HEADER_BYTES, BlockHeader, Body, Encoding};
use annals_format::page::Handle;
use annals_format::segment::HEADER_BYTES;
use bytes::Bytes;

use super::compress::{Over, decompress};
use super::opened::Opened;
use crate::error::Result;

/// Whether what is read from the file stays in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caching {
    /// In the map or the cache.
    Keep,
    /// Nowhere.
    Bypass,
}

/// The base that was decoded last, by the offset of its block. Blocks over one base follow each
/// other, so a walk decodes each base once.
pub(super) type LastBase = Option<(u64, Bytes)>;

impl Opened {
    /// The block of `handle`, decoded. `base` is kept from call to call by whoever walks blocks.
    pub(super) fn block(
        &self,
        handle: Handle,
        caching: Caching,
        base: &mut LastBase,
    ) -> Result<Block<'_>> {
        let bounds = HEADER_BYTES as u64..self.footer.index_offset;
        self.check_handle("block", handle, &bounds, self.footer.block_count, u64::from(u32::MAX))?;
        let in_place =
            matches!(self.kind, FileKind::L0 | FileKind::Head) && caching == Caching::Keep;
        let bytes = handle.bytes as usize;
        let mapped = if in_place { self.source.slice(handle.offset, bytes)? } else { None };
        let Some(bytes) = mapped else {
            return Ok(Block::Owned { handle, body: self.read_block(handle, caching, base)? });
        };
        if !self.checked_blocks.get(handle.number) {
            self.check_block(handle, bytes)?;
            self.checked_blocks.set(handle.number);
        }
        let (header, stored) = self.decode_header(handle, bytes)?;
        if header.encoding == Encoding::Raw {
            return Ok(Block::Mapped { handle, body: stored });
        }
        let body = self.decode_body(handle, &header, stored, caching, base)?;
        Ok(Block::Owned { handle, body })
    }

    fn read_block(&self, handle: Handle, caching: Caching, base: &mut LastBase) -> Result<Bytes> {
        if caching == Caching::Keep
            && let Some(body) = self.cache.find(self.number, handle.offset)
        {
            return Ok(body);
        }
        let bytes = Bytes::from(self.read(handle.offset, handle.bytes as usize)?);
        self.check_block(handle, &bytes)?;
        let (header, stored) = self.decode_header(handle, &bytes)?;
        let body = match header.encoding {
            Encoding::Raw => bytes.slice_ref(stored),
            _ => self.decode_body(handle, &header, stored, caching, base)?,
        };
        if caching == Caching::Keep {
            self.cache.insert(self.number, handle.offset, &body);
        }
        Ok(body)
    }

    fn check_block(&self, handle: Handle, bytes: &[u8]) -> Result<()> {
        BlockHeader::check_crc(bytes, self.seed, handle.offset)
            .map_err(|error| self.damaged(handle.offset, &error))
    }

    fn decode_header<'b>(
        &self,
        handle: Handle,
        bytes: &'b [u8],
    ) -> Result<(BlockHeader, &'b [u8])> {
        BlockHeader::decode(bytes, self.kind).map_err(|error| self.damaged(handle.offset, &error))
    }

    /// Decompresses a body. Its length has been bounded by the header's decoder.
    pub(super) fn decode_body(
        &self,
        handle: Handle,
        header: &BlockHeader,
        stored: &[u8],
        caching: Caching,
        base: &mut LastBase,
    ) -> Result<Bytes> {
        let base_body;
        let over = match header.encoding {
            Encoding::Raw => return Ok(Bytes::copy_from_slice(stored)),
            Encoding::Zstd => Over::Nothing,
            Encoding::ZstdDictionary => Over::Dictionary(self.dictionary()?.ok_or_else(|| {
                self.corrupt(handle.offset, "block: encoding", "a dictionary in the file", "none")
            })?),
            _ => {
                base_body = self.base(handle, header, caching, base)?;
                Over::Base(&base_body)
            }
        };
        let body = decompress(stored, header.raw_bytes as usize, over).ok_or_else(|| {
            let expected = format!("{} bytes", header.raw_bytes);
            let found = "what zstd cannot decode to that";
            self.corrupt(handle.offset, "block: stored bytes", &expected, found)
        })?;
        Ok(Bytes::from(body))
    }

    /// The body of the block that the block of `handle` is based on.
    fn base(
        &self,
        handle: Handle,
        header: &BlockHeader,
        caching: Caching,
        last: &mut LastBase,
    ) -> Result<Bytes> {
        let wrong = |found: &str| {
            self.corrupt(handle.offset, "block: base_distance", "the start of a block", found)
        };
        let offset = handle
            .offset
            .checked_sub(u64::from(header.base_distance))
            .filter(|offset| *offset >= HEADER_BYTES as u64)
            .ok_or_else(|| wrong("a place outside the blocks"))?;
        if let Some((at, body)) = last
            && *at == offset
        {
            return Ok(body.clone());
        }
        if caching == Caching::Keep
            && let Some(body) = self.cache.find(self.number, offset)
        {
            return Ok(body);
        }
        let start = self.read(offset, BLOCK_HEADER_BYTES)?;
        let bytes =
            BlockHeader::block_bytes(&start).map_err(|error| self.damaged(offset, &error))?;
        // A base ends at the latest where the block over it begins.
        let bytes = u32::try_from(bytes).ok().filter(|_| bytes <= handle.offset - offset);
        let bytes = bytes.ok_or_else(|| wrong("a block that is too long"))?;
        let block = self.read(offset, bytes as usize)?;
        let handle = Handle { offset, bytes, number: 0 };
        self.check_block(handle, &block)?;
        let (header, stored) = self.decode_header(handle, &block)?;
        if header.encoding == Encoding::ZstdBase {
            return Err(wrong("a block with a base of its own"));
        }
        let body = self.decode_body(handle, &header, stored, caching, &mut None)?;
        if caching == Caching::Keep {
            self.cache.insert(self.number, offset, &body);
        }
        *last = Some((offset, body.clone()));
        Ok(body)
    }
}

/// A decoded block: in place in the map, or in memory of its own.
#[derive(Debug)]
pub(super) enum Block<'m> {
    Mapped { handle: Handle, body: &'m [u8] },
    Owned { handle: Handle, body: Bytes },
}

impl Block<'_> {
    /// The entries.
    pub(super) fn body(&self, file: &Opened) -> Result<Body<'_>> {
        let (handle, body) = match self {
            Self::Mapped { handle, body } => (handle, *body),
            Self::Owned { handle, body } => (handle, &**body),
        };
        Body::parse(body, file.kind).map_err(|error| file.damaged_body(*handle, &error))
    }

    /// A part of the body, kept alive with it.
    pub(super) fn slice(&self, file: &Opened, start: usize, bytes: usize) -> Result<Bytes> {
        if bytes == 0 {
            return Ok(Bytes::new());
        }
        match self {
            Self::Owned { body, .. } => Ok(body.slice(start..start + bytes)),
            Self::Mapped { handle, .. } => {
                let offset = handle.offset + BLOCK_HEADER_BYTES as u64 + start as u64;
                file.part(offset, bytes as u64)
            }
        }
    }

    /// The whole body, kept alive by itself.
    pub(super) fn into_bytes(self, file: &Opened) -> Result<Bytes> {
        match self {
            Self::Owned { body, .. } => Ok(body),
            Self::Mapped { body, .. } => self.slice(file, 0, body.len()),
        }
    }
}
