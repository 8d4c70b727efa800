//! What reading and writing groups needs of a file: zstd, its dictionary, and the block cache.

use annals_format::block::BLOCK_HEADER_BYTES;
use annals_format::group::{Codec, Pack};
use annals_format::page::Handle;
use bytes::Bytes;

use super::blocks::Caching;
use super::compress::{Compressor, Dictionary, Over, decompress};
use super::opened::Opened;
use crate::error::Result;

/// Decoded frames longer than this go to the block cache: shorter ones are decoded in less time than
/// it takes to keep them.
const CACHED_BYTES_MIN: usize = 4 << 10;

/// The frame that was decoded last, by its offset in the file. The versions of a group are made from
/// one frame as a rule, so a walk decodes each once.
pub(super) type LastFrame = Option<(u64, Bytes)>;

/// Decodes the frames of one block.
#[derive(Debug)]
pub(super) struct BlockCodec<'f> {
    file: &'f Opened,
    dictionary: Option<&'f Dictionary>,
    /// Where the stored bytes of the block begin in the file.
    offset: u64,
    caching: Caching,
    last: &'f mut LastFrame,
}

impl<'f> BlockCodec<'f> {
    /// For the block of `handle`. Reads the dictionary of the file the first time.
    pub(super) fn new(
        file: &'f Opened,
        handle: Handle,
        caching: Caching,
        last: &'f mut LastFrame,
    ) -> Result<Self> {
        let offset = handle.offset + BLOCK_HEADER_BYTES as u64;
        Ok(Self { file, dictionary: file.dictionary()?, offset, caching, last })
    }
}

impl Codec for BlockCodec<'_> {
    type Frame = Bytes;

    fn frame(&mut self, at: usize, stored: &[u8], bytes: usize, dictionary: bool) -> Option<Bytes> {
        // A frame has at least one byte before it in its block, and another place than any block.
        let offset = self.offset + at as u64;
        if let Some((last, frame)) = &*self.last
            && *last == offset
        {
            return Some(frame.clone());
        }
        let cached = bytes > CACHED_BYTES_MIN && self.caching == Caching::Keep;
        let found = if cached { self.file.cache.find(self.file.number, offset) } else { None };
        let frame = match found {
            Some(frame) => frame,
            None => {
                let over =
                    if dictionary { Over::Dictionary(self.dictionary?) } else { Over::Nothing };
                let frame = Bytes::from(decompress(stored, bytes, over)?);
                if cached {
                    self.file.cache.insert(self.file.number, offset, &frame);
                }
                frame
            }
        };
        *self.last = Some((offset, frame.clone()));
        Some(frame)
    }

    fn dictionary(&self) -> &[u8] {
        self.dictionary.map_or(&[], Dictionary::content)
    }
}

/// Makes the frames of one file.
#[derive(Debug)]
pub(super) struct FilePack {
    plain: Compressor,
    trained: Option<Compressor>,
}

impl FilePack {
    pub(super) fn new(level: i32, dictionary: Option<&[u8]>) -> Self {
        let trained = dictionary.map(|content| Compressor::new(level, Some(content)));
        Self { plain: Compressor::new(level, None), trained }
    }
}

impl Pack for FilePack {
    fn zstd(&mut self, value: &[u8], dictionary: bool) -> Option<Vec<u8>> {
        let compressor = if dictionary { self.trained.as_ref()? } else { &self.plain };
        // Without its dictionary the frame would be one that cannot be told from a plain one.
        if dictionary && !compressor.has_dictionary() {
            return None;
        }
        compressor.compress(value)
    }
}
