//! The blocks of a backup on their way into a stream and out of one: cut, compressed and chained, as
//! `SPEC-backup.md` says. Neither way ever holds more than one block.

use std::io::{self, Read, Write};
use std::path::Path;

use annals_format::backup::{
    BLOCK_BYTES, Block, Chain, Codec, END_BYTES, End, HEADER_BYTES, Header, Order, PIECE_BYTES_MAX,
    Part, State, payload_bytes,
};
use annals_format::checksum::ContentHasher;
use annals_format::{DecodeError, Problem};
use zstd::bulk::{Compressor, Decompressor};

use crate::error::{Error, Result};

/// How a stream is called in errors, which name offsets in it.
const NAME: &str = "backup";

/// The level at which blocks are compressed.
const LEVEL: i32 = 3;

/// The longest piece.
const PIECE: usize = PIECE_BYTES_MAX as usize;

/// Writes a backup.
pub(crate) struct StreamWriter<'a> {
    out: &'a mut dyn Write,
    compressor: Compressor<'static>,
    chain: Chain,
    hasher: ContentHasher,
    blocks: u64,
    bytes: u64,
    /// The section: part, number, whether it is compressed, and where the piece begins.
    section: (Part, u64, Codec, u64),
    piece: Vec<u8>,
}

impl<'a> StreamWriter<'a> {
    /// Begins a backup.
    ///
    /// # Errors
    /// What the stream answers.
    pub(crate) fn begin(out: &'a mut dyn Write, header: &Header) -> Result<Self> {
        let (bytes, chain) = header.encode();
        let compressor = Compressor::new(LEVEL).map_err(failed("compress for"))?;
        let mut writer = Self {
            out,
            compressor,
            chain,
            hasher: ContentHasher::new(),
            blocks: 0,
            bytes: 0,
            section: (Part::Manifest, 0, Codec::Zstd, 0),
            piece: Vec::new(),
        };
        writer.put(&bytes)?;
        Ok(writer)
    }

    /// Begins a section; what is written from now on is in it.
    ///
    /// # Errors
    /// What the stream answers.
    pub(crate) fn section(&mut self, part: Part, number: u64, codec: Codec) -> Result<()> {
        self.cut()?;
        self.section = (part, number, codec, 0);
        Ok(())
    }

    /// Goes on with the section.
    ///
    /// # Errors
    /// What the stream answers.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = PIECE.saturating_sub(self.piece.len());
            let (taken, rest) = bytes.split_at(room.min(bytes.len()));
            self.piece.extend_from_slice(taken);
            bytes = rest;
            if self.piece.len() == PIECE {
                self.cut()?;
            }
        }
        Ok(())
    }

    /// Ends the backup, which leads to this state. Answers its bytes.
    ///
    /// # Errors
    /// What the stream answers.
    pub(crate) fn finish(mut self, state: &State) -> Result<u64> {
        self.cut()?;
        let end = End {
            blocks: self.blocks,
            bytes: self.bytes,
            hash: self.hasher.finish(),
            kv_compacted: state.compacted,
            kv_hash: state.hash,
        };
        self.section = (Part::End, 0, Codec::Raw, 0);
        self.piece.extend_from_slice(&end.encode());
        self.cut()?;
        self.out.flush().map_err(failed("write"))?;
        Ok(self.bytes)
    }

    /// Writes the piece that has been gathered.
    fn cut(&mut self) -> Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.piece);
        let (part, number, wanted, offset) = self.section;
        let compressed = match wanted {
            Codec::Zstd => {
                let compressed = self.compressor.compress(&piece);
                let compressed = compressed.map_err(failed("compress for"))?;
                (compressed.len() < piece.len()).then_some(compressed)
            }
            Codec::Raw => None,
        };
        let codec = if compressed.is_some() { Codec::Zstd } else { Codec::Raw };
        let payload = compressed.as_deref().unwrap_or(&piece);
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let (stored_bytes, raw_bytes) = (length(payload), length(&piece));
        let block = Block { part, codec, stored_bytes, raw_bytes, number, offset };
        let header = self.chain.encode(&block, payload);
        self.put(&header)?;
        self.put(payload)?;
        self.blocks += 1;
        self.section.3 += u64::from(raw_bytes);
        self.piece = piece;
        self.piece.clear();
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(failed("write"))
    }
}

/// What backups are read from, one after the other.
pub(crate) struct Input<'a> {
    read: &'a mut dyn Read,
    /// A byte that was read to see whether there is one.
    ahead: Option<u8>,
    /// Bytes taken so far.
    offset: u64,
}

impl<'a> Input<'a> {
    /// From the beginning of a stream.
    pub(crate) fn new(read: &'a mut dyn Read) -> Self {
        Self { read, ahead: None, offset: 0 }
    }

    /// Bytes taken so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether nothing more comes.
    ///
    /// # Errors
    /// What the stream answers.
    pub(crate) fn is_at_end(&mut self) -> Result<bool> {
        if self.ahead.is_none() {
            let mut byte = [0];
            self.ahead = (fill(self.read, &mut byte)? > 0).then_some(byte[0]);
        }
        Ok(self.ahead.is_none())
    }

    /// Fills the buffer as far as the stream goes. Answers how far that is.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        if let Some((first, _)) = buffer.split_first_mut()
            && let Some(byte) = self.ahead.take()
        {
            *first = byte;
            filled = 1;
        }
        filled += fill(self.read, buffer.get_mut(filled..).unwrap_or_default())?;
        self.offset += filled as u64;
        Ok(filled)
    }
}

/// Reads a backup, and checks every byte of it.
pub(crate) struct StreamReader<'i, 'a> {
    input: &'i mut Input<'a>,
    /// Where it begins.
    start: u64,
    header: Header,
    decompressor: Decompressor<'static>,
    chain: Chain,
    order: Order,
    hasher: ContentHasher,
    blocks: u64,
    stored: Vec<u8>,
    raw: Vec<u8>,
    end: Option<End>,
}

/// A piece of a section.
pub(crate) struct Piece<'a> {
    /// The block it came in.
    pub(crate) block: Block,
    /// Where that begins in the stream.
    pub(crate) at: u64,
    /// Whether it is the first of its section.
    pub(crate) begins: bool,
    /// The bytes.
    pub(crate) bytes: &'a [u8],
}

impl<'i, 'a> StreamReader<'i, 'a> {
    /// Begins to read a backup.
    ///
    /// # Errors
    /// `Corrupt`: this is no backup, or a damaged one; `UnsupportedVersion`; what the stream answers.
    pub(crate) fn begin(input: &'i mut Input<'a>) -> Result<Self> {
        let start = input.offset();
        let mut bytes = [0; HEADER_BYTES];
        let have = input.fill(&mut bytes)?;
        let (header, chain) = match Header::decode(bytes.get(..have).unwrap_or_default()) {
            Ok(found) => found,
            Err(error) => return Err(undecodable(start, &error)),
        };
        let mut hasher = ContentHasher::new();
        hasher.update(&bytes);
        Ok(Self {
            input,
            start,
            header,
            decompressor: Decompressor::new().map_err(failed("decompress"))?,
            chain,
            order: Order::new(header.kind()),
            hasher,
            blocks: 0,
            stored: Vec::new(),
            raw: Vec::new(),
            end: None,
        })
    }

    /// What the backup says of itself.
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// Where it goes on in the stream.
    pub(crate) fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// The next piece; `None` after the last.
    ///
    /// # Errors
    /// `Corrupt` with the offset in the stream; what the stream answers.
    pub(crate) fn next(&mut self) -> Result<Option<Piece<'_>>> {
        let at = self.input.offset();
        let mut header = [0; BLOCK_BYTES];
        let have = self.input.fill(&mut header)?;
        if have < BLOCK_BYTES {
            return Err(truncated(at, BLOCK_BYTES, have));
        }
        let length = payload_bytes(&header).map_err(|error| undecodable(at, &error))?;
        self.stored.resize(length, 0);
        let have = self.input.fill(&mut self.stored)?;
        if have < length {
            return Err(truncated(at, BLOCK_BYTES + length, BLOCK_BYTES + have));
        }
        let block = self.chain.decode(&header, &self.stored);
        let block = block.map_err(|error| undecodable(at, &error))?;
        let begins = self.order.next(&block).map_err(|error| undecodable(at, &error))?;
        if block.part == Part::End {
            self.end(at, &block)?;
            return Ok(None);
        }
        self.hasher.update(&header);
        self.hasher.update(&self.stored);
        self.blocks += 1;
        let bytes = match block.codec {
            Codec::Raw => &self.stored,
            Codec::Zstd => {
                let wanted = block.raw_bytes as usize;
                self.raw.clear();
                // No more is ever reserved than a piece can have.
                self.raw.reserve(wanted);
                let done = self.decompressor.decompress_to_buffer(&self.stored, &mut self.raw);
                if done.ok() != Some(wanted) {
                    let expected = format!("{wanted} bytes compressed by zstd");
                    return Err(damaged(at, "backup block payload", expected, "other bytes"));
                }
                &self.raw
            }
        };
        Ok(Some(Piece { block, at, begins, bytes }))
    }

    /// Takes the last block, which begins at `at`.
    fn end(&mut self, at: u64, block: &Block) -> Result<()> {
        let payload_at = at + BLOCK_BYTES as u64;
        let end = End::decode(&self.stored).map_err(|error| undecodable(payload_at, &error))?;
        let found = (self.blocks, at - self.start, self.hasher.finish());
        if (end.blocks, end.bytes, end.hash) != found || block.codec != Codec::Raw {
            let words = |(blocks, bytes, hash): (u64, u64, _)| {
                format!("{blocks} blocks, {bytes} bytes, hash {hash}")
            };
            let expected = words((end.blocks, end.bytes, end.hash));
            return Err(damaged(payload_at, "backup end", expected, words(found)));
        }
        debug_assert_eq!(self.stored.len(), END_BYTES);
        self.end = Some(end);
        Ok(())
    }

    /// The state that the backup leads to, and how many bytes it has, once it has been read to its end.
    ///
    /// # Errors
    /// `InvalidArgument` before that.
    pub(crate) fn finish(self) -> Result<(State, u64)> {
        let Some(End { kv_compacted, kv_hash, .. }) = self.end else {
            return Err(Error::invalid("a backup that was not read to its end"));
        };
        let revision = self.header.upto;
        let state = State { revision, compacted: kv_compacted, hash: kv_hash };
        Ok((state, self.input.offset() - self.start))
    }
}

/// Handles are printed by those who hold them: nothing that is stored.
impl std::fmt::Debug for StreamReader<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamReader").field("start", &self.start).finish_non_exhaustive()
    }
}

/// As [`StreamReader`].
impl std::fmt::Debug for StreamWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamWriter").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Damage at an offset of the stream.
pub(super) fn damaged(
    offset: u64,
    structure: impl Into<String>,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> Error {
    Error::corrupt(NAME, offset, structure, expected, found)
}

/// Bytes of the stream, from `offset` on, that do not decode.
pub(super) fn undecodable(offset: u64, error: &DecodeError) -> Error {
    Error::undecodable(Path::new(NAME), offset, error)
}

/// The stream ends within something that begins at `offset`.
fn truncated(offset: u64, needed: usize, have: usize) -> Error {
    let problem = Problem::Truncated { needed: needed as u64, have: have as u64 };
    undecodable(offset, &DecodeError { structure: "backup", field: "block", offset: 0, problem })
}

fn failed(operation: &'static str) -> impl Fn(io::Error) -> Error {
    move |error| Error::io(operation, NAME, error)
}

/// Fills the buffer as far as the stream goes. Answers how far that is.
fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed("read")(error)),
        }
    }
    Ok(filled.min(buffer.len()))
}
