//! Sectors of a WAL file, read in large pieces and judged one by one.

use std::io;
use std::path::Path;
use std::sync::Arc;

use annals_format::checksum::FileSeed;
use annals_format::sector::{SECTOR_BYTES, Sector};

use crate::error::{Error, Result};
use crate::vfs::File;

/// How much is read at once.
const WINDOW_BYTES: usize = 1 << 20;

/// Looks at sectors through a buffer.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) file: Arc<dyn File>,
    seed: FileSeed,
    limit: u64,
    live: bool,
    bytes: Vec<u8>,
    start: u64,
}

impl Window {
    pub(super) const fn new(file: Arc<dyn File>, seed: FileSeed, limit: u64, live: bool) -> Self {
        Self { file, seed, limit, live, bytes: Vec::new(), start: 0 }
    }

    /// Forgets what was read, since the file may have changed.
    pub(super) fn forget(&mut self) {
        self.bytes.clear();
    }

    /// The sector at `offset`, a multiple of its size. One that the file ends in counts as rot. One
    /// that a live writer may have been half way through is read again.
    pub(super) fn sector(&mut self, path: &Path, offset: u64) -> Result<Sector<'_>> {
        if self.live && matches!(self.settled_sector(path, offset)?, Sector::Rotten { .. }) {
            self.forget();
        }
        self.settled_sector(path, offset)
    }

    /// The sector at `offset`, where nobody is writing.
    pub(super) fn settled_sector(&mut self, path: &Path, offset: u64) -> Result<Sector<'_>> {
        let end = offset + SECTOR_BYTES as u64;
        if end > self.limit {
            return Ok(Sector::Rotten { expected: 0, found: 0 });
        }
        if offset < self.start || end > self.start + self.bytes.len() as u64 {
            self.fill(path, offset)?;
        }
        Ok(self.read(offset))
    }

    fn read(&self, offset: u64) -> Sector<'_> {
        let at = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        let sector = self.bytes.get(at..).and_then(<[u8]>::first_chunk);
        sector.map_or(Sector::Rotten { expected: 0, found: 0 }, |sector| {
            Sector::read(self.seed, offset, sector)
        })
    }

    fn fill(&mut self, path: &Path, offset: u64) -> Result<()> {
        let left = usize::try_from(self.limit - offset).unwrap_or(usize::MAX);
        self.bytes.clear();
        self.bytes.resize(left.min(WINDOW_BYTES), 0);
        self.start = offset;
        match self.file.read_exact_at(&mut self.bytes, offset) {
            // A writer that closes or opens the store cuts what lies behind the end of the log. What
            // it cuts was never written, or never taken for written: zeros tell the same.
            Err(error) if self.live && error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            read => read.map_err(|error| Error::io("read", path, error)),
        }
    }
}
