//! Blocks of a segment: read, checked, decoded.
//!
//! Blocks of L0, HEAD and blob files, and blocks of groups, are read in place from the map. What is read with
//! `pread` is kept in the cache: bodies decoded, groups as they are stored, behind their header. A
//! body begins with a zero byte (its first key shares nothing) and a header does not, which tells
//! the two apart.

use annals_format::FileKind;
use annals_format::block::{BLOCK_HEADER_BYTES, BLOCK_MAGIC, BlockHeader, Encoding};
use annals_format::page::Handle;
use annals_format::segment::HEADER_BYTES;
use bytes::Bytes;

use super::compress::{Over, decompress, decompress_into};
use super::opened::Opened;
use crate::error::{Error, Result};

/// Whether what is read from the file stays in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caching {
    /// In the map or the cache.
    Keep,
    /// Nowhere.
    Bypass,
}

/// Where a block's header has its encoding.
const ENCODING_AT: usize = 3;

/// The base that was decoded last, by the offset of its block. Blocks over one base follow each
/// other, so a walk decodes each base once.
pub(super) type LastBase = Option<(u64, Bytes)>;

impl Opened {
    /// A block that a page speaks of must lie where blocks lie.
    #[inline]
    pub(super) fn check_place(&self, handle: Handle) -> Result<()> {
        let bounds = HEADER_BYTES as u64..self.footer.index_offset;
        self.check_handle("block", handle, &bounds, self.footer.block_count, u64::from(u32::MAX))
    }

    /// The block of `handle`, decoded. `base` is kept from call to call by whoever walks blocks.
    pub(super) fn block(
        &self,
        handle: Handle,
        caching: Caching,
        base: &mut LastBase,
    ) -> Result<Block<'_>> {
        self.check_place(handle)?;
        if caching == Caching::Bypass {
            return self.read_block(handle, caching, base);
        }
        let in_place = match self.kind {
            kind if kind.is_stored_raw() => true,
            FileKind::History => self.is_checked(handle),
            _ => false,
        };
        if in_place && let Some(block) = self.mapped_block(handle, base)? {
            return Ok(block);
        }
        if let Some(cached) = self.cache.find(self.number, handle.offset) {
            return Ok(Block::of_cache(handle, cached));
        }
        if self.kind == FileKind::History
            && self.is_mapped_groups(handle)?
            && let Some(block) = self.mapped_block(handle, base)?
        {
            return Ok(block);
        }
        self.read_block(handle, caching, base)
    }

    /// Whether a block of the map need not be checked.
    #[inline]
    fn is_checked(&self, handle: Handle) -> bool {
        self.checked_blocks.get(handle.number) && !self.source.is_suspect()
    }

    /// Whether the file is mapped and the block of `handle` says that it holds groups.
    fn is_mapped_groups(&self, handle: Handle) -> Result<bool> {
        let header_bytes = BLOCK_HEADER_BYTES.min(handle.bytes as usize);
        let header = self.source.slice(handle.offset, header_bytes)?;
        Ok(header.is_some_and(|header| header.get(ENCODING_AT) == Some(&Encoding::Groups.number())))
    }

    /// The block in place in the map, if the file is mapped; checked if that was not done before.
    fn mapped_block(&self, handle: Handle, base: &mut LastBase) -> Result<Option<Block<'_>>> {
        let Some(bytes) = self.source.slice(handle.offset, handle.bytes as usize)? else {
            return Ok(None);
        };
        if !self.is_checked(handle) {
            self.check_block(handle, bytes)?;
            self.checked_blocks.set(handle.number);
        }
        let (header, stored) = self.decode_header(handle, bytes)?;
        let in_groups = header.encoding == Encoding::Groups;
        let bytes = match header.encoding {
            Encoding::Raw | Encoding::Groups => Held::Mapped(stored),
            _ => Held::Owned(self.decode_body(handle, &header, stored, Caching::Keep, base)?),
        };
        Ok(Some(Block { handle, in_groups, bytes }))
    }

    /// The block, read with `pread`.
    fn read_block(
        &self,
        handle: Handle,
        caching: Caching,
        base: &mut LastBase,
    ) -> Result<Block<'_>> {
        let bytes = Bytes::from(self.read(handle.offset, handle.bytes as usize)?);
        self.check_block(handle, &bytes)?;
        let (header, stored) = self.decode_header(handle, &bytes)?;
        let in_groups = header.encoding == Encoding::Groups;
        let content = match header.encoding {
            Encoding::Raw | Encoding::Groups => bytes.slice_ref(stored),
            _ => self.decode_body(handle, &header, stored, caching, base)?,
        };
        if caching == Caching::Keep {
            let cached = if in_groups { &bytes } else { &content };
            self.cache.insert(self.number, handle.offset, cached);
        }
        Ok(Block { handle, in_groups, bytes: Held::Owned(content) })
    }

    /// Puts the body of the block of `handle` into `out`, in place of what that holds: for who walks from
    /// block to block and keeps none of them. So the next body takes the memory of the one before, which
    /// is still in the processor's caches, and the block cache keeps what it has.
    pub(super) fn body_into(&self, handle: Handle, out: &mut Vec<u8>) -> Result<()> {
        self.check_place(handle)?;
        if let Some(cached) = self.cache.find(self.number, handle.offset) {
            out.clear();
            out.extend_from_slice(&cached);
            return Ok(());
        }
        let read;
        let mapped = self.source.slice(handle.offset, handle.bytes as usize)?;
        let bytes = if let Some(bytes) = mapped {
            if !self.is_checked(handle) {
                self.check_block(handle, bytes)?;
                self.checked_blocks.set(handle.number);
            }
            bytes
        } else {
            read = self.read(handle.offset, handle.bytes as usize)?;
            self.check_block(handle, &read)?;
            &read
        };
        let (header, stored) = self.decode_header(handle, bytes)?;
        match header.encoding {
            Encoding::Raw => {
                out.clear();
                out.extend_from_slice(stored);
            }
            Encoding::Zstd => {
                let raw_bytes = header.raw_bytes as usize;
                decompress_into(out, stored, raw_bytes, Over::Nothing)
                    .ok_or_else(|| self.undecompressed(handle, &header))?;
            }
            _ => {
                let caching = Caching::Bypass;
                let body = self.decode_body(handle, &header, stored, caching, &mut None)?;
                out.clear();
                out.extend_from_slice(&body);
            }
        }
        Ok(())
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
            Encoding::Groups => {
                let (expected, found) = ("a block with a body", "groups");
                return Err(self.corrupt(handle.offset, "block: encoding", expected, found));
            }
            Encoding::Zstd => Over::Nothing,
            Encoding::ZstdDictionary => Over::Dictionary(self.dictionary()?.ok_or_else(|| {
                self.corrupt(handle.offset, "block: encoding", "a dictionary in the file", "none")
            })?),
            _ => {
                base_body = self.base(handle, header, caching, base)?;
                Over::Base(&base_body)
            }
        };
        let body = decompress(stored, header.raw_bytes as usize, over)
            .ok_or_else(|| self.undecompressed(handle, header))?;
        Ok(Bytes::from(body))
    }

    #[cold]
    fn undecompressed(&self, handle: Handle, header: &BlockHeader) -> Error {
        let expected = format!("{} bytes", header.raw_bytes);
        let found = "what zstd cannot decode to that";
        self.corrupt(handle.offset, "block: stored bytes", &expected, found)
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
            && !is_header(&body)
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

/// A block: a body, decoded, or groups, as they are stored.
#[derive(Debug)]
pub(super) struct Block<'m> {
    pub(super) handle: Handle,
    pub(super) in_groups: bool,
    pub(super) bytes: Held<'m>,
}

/// Bytes behind a block's header: in place in the map, or in memory of their own.
#[derive(Debug)]
pub(super) enum Held<'m> {
    Mapped(&'m [u8]),
    Owned(Bytes),
}

impl Held<'_> {
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Mapped(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }

    /// A part of it, kept alive by itself: a copy of what lies in the map.
    pub(super) fn keep(&self, part: &[u8]) -> Bytes {
        match self {
            Self::Mapped(_) => Bytes::copy_from_slice(part),
            Self::Owned(bytes) => bytes.slice_ref(part),
        }
    }
}

impl Block<'_> {
    /// What the cache has.
    fn of_cache(handle: Handle, cached: Bytes) -> Self {
        let in_groups = is_header(&cached);
        let bytes = if in_groups { cached.slice(BLOCK_HEADER_BYTES..) } else { cached };
        Self { handle, in_groups, bytes: Held::Owned(bytes) }
    }

    /// Its bytes, kept alive by themselves.
    pub(super) fn into_bytes(self, file: &Opened) -> Result<Bytes> {
        match self.bytes {
            Held::Owned(bytes) => Ok(bytes),
            Held::Mapped(bytes) => {
                let start = self.handle.offset + BLOCK_HEADER_BYTES as u64;
                file.part(start, bytes.len() as u64)
            }
        }
    }
}

/// Whether bytes of the cache are a whole block, and not a body.
fn is_header(cached: &[u8]) -> bool {
    cached.len() > BLOCK_HEADER_BYTES && cached.starts_with(&BLOCK_MAGIC.to_le_bytes())
}
