//! The file that a segment is written to: bytes in sequence, hashed on the way, and where its blocks
//! lie.

use std::path::PathBuf;
use std::sync::Arc;

use annals_format::block::{BLOCK_HEADER_BYTES, BlockHeader, Encoding};
use annals_format::checksum::{ContentHash, ContentHasher, FileSeed};
use annals_format::page::{Child, Handle, Separator};
use annals_format::segment::{HEADER_BYTES, Header};
use annals_format::{FileKind, Place};

use super::context::SegmentContext;
use super::writer::NewSegment;
use crate::error::{Error, Result};
use crate::vfs::{File, Vfs};

/// Bytes gathered before they are written to the file, and the system is told to pass them on to the
/// device. A sync of the log that comes in between waits for a few of these at most, and the one at
/// the end of the file has little left to do.
const WRITE_BYTES: usize = 256 << 10;

/// Size of a page of the system; of a page that is not full the rest would be written again.
const PAGE_BYTES: u64 = 4096;

/// A file being written, front to back.
#[derive(Debug)]
pub(super) struct Sink {
    vfs: Arc<dyn Vfs>,
    file: Arc<dyn File>,
    path: PathBuf,
    kind: FileKind,
    pub(super) place: Place,
    /// That of the store when the file was begun.
    pub(super) incarnation: u64,
    pub(super) seed: FileSeed,
    buffer: Vec<u8>,
    /// Bytes handed to the file.
    written: u64,
    /// Bytes of them that the system has been told to pass on.
    passed_on: u64,
    hasher: ContentHasher,
    blocks: Vec<Child>,
    /// What the entries of these blocks weigh.
    living: i64,
}

/// A block as it will be stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored<'a> {
    pub(super) encoding: Encoding,
    pub(super) bytes: &'a [u8],
    /// See [`BlockHeader::raw_bytes`].
    pub(super) raw_bytes: usize,
    pub(super) entry_count: u32,
    pub(super) base_distance: u32,
    /// What its entries weigh, see [`annals_format::living`].
    pub(super) weight: i64,
}

impl Sink {
    /// Makes the file, which must not exist, and begins it.
    pub(super) fn create(context: &SegmentContext, new: &NewSegment) -> Result<Self> {
        let path = context.path(new.kind, new.number);
        let file = context
            .vfs
            .create(&path)
            .map_err(|error| Error::io("create a segment", &path, error))?;
        let place = context.place(new.kind, new.number);
        let incarnation = context.incarnation();
        let mut buffer = Vec::with_capacity(WRITE_BYTES);
        Header { place, class: new.class, incarnation }.encode(&mut buffer);
        Ok(Self {
            vfs: Arc::clone(&context.vfs),
            file,
            path,
            kind: new.kind,
            place,
            incarnation,
            seed: FileSeed::new(&place),
            buffer,
            written: 0,
            passed_on: 0,
            hasher: ContentHasher::new(),
            blocks: Vec::new(),
            living: 0,
        })
    }

    /// Where the next byte will be.
    pub(super) fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Appends a block behind its separator.
    pub(super) fn block(&mut self, separator: Separator, stored: &Stored<'_>) -> Result<()> {
        let too_many = || Error::invalid("a segment has more than 2^32 blocks");
        let too_long = || Error::invalid("a block is longer than a segment can hold");
        let too_many_keys = || Error::invalid("a segment has more than 2^31 living keys");
        let stored_bytes = stored.bytes.len();
        let header = BlockHeader {
            kind: self.kind,
            encoding: stored.encoding,
            raw_bytes: u32::try_from(stored.raw_bytes).map_err(|_| too_long())?,
            stored_bytes: u32::try_from(stored_bytes).map_err(|_| too_long())?,
            entry_count: stored.entry_count,
            base_distance: stored.base_distance,
        };
        let offset = self.offset();
        let handle = Handle {
            offset,
            bytes: u32::try_from(BLOCK_HEADER_BYTES + stored_bytes).map_err(|_| too_long())?,
            number: u32::try_from(self.blocks.len()).map_err(|_| too_many())?,
        };
        header.encode(&mut self.buffer, self.seed, offset, stored.bytes);
        let rank = i32::try_from(self.living).map_err(|_| too_many_keys())?;
        self.blocks.push(Child { separator, handle, rank });
        self.living += stored.weight;
        self.written_if_much()
    }

    /// The blocks so far, which are the caller's from then on.
    pub(super) fn take_blocks(&mut self) -> Vec<Child> {
        std::mem::take(&mut self.blocks)
    }

    /// What the entries of all blocks weigh.
    pub(super) const fn living(&self) -> i64 {
        self.living
    }

    /// Appends bytes.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        self.written_if_much()
    }

    /// Writes out what is left and syncs the file; answers its length and its hash.
    pub(super) fn finish(mut self) -> Result<(u64, ContentHash)> {
        self.write_out()?;
        self.file.sync_data().map_err(|error| Error::io("sync a segment", &self.path, error))?;
        Ok((self.written, self.hasher.finish()))
    }

    /// Removes the file.
    pub(super) fn abandon(self) -> Result<()> {
        self.vfs
            .remove(&self.path)
            .map_err(|error| Error::io("remove a segment", &self.path, error))
    }

    fn written_if_much(&mut self) -> Result<()> {
        if self.buffer.len() < WRITE_BYTES {
            return Ok(());
        }
        self.write_out()?;
        let whole = self.written - self.written % PAGE_BYTES;
        self.file.write_back(self.passed_on..whole);
        self.passed_on = whole;
        Ok(())
    }

    fn write_out(&mut self) -> Result<()> {
        self.hasher.update(&self.buffer);
        self.file
            .write_all_at(&self.buffer, self.written)
            .map_err(|error| Error::io("write a segment", &self.path, error))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

const _: () = assert!(HEADER_BYTES < WRITE_BYTES);
