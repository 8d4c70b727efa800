//! The write-ahead log: what a commit is durable in until its memtable has been flushed.
//!
//! The log is a row of numbered files. Each is made full size and reads as zeros before it is used,
//! so that a missing piece shows as a missing piece. Where commits wait for syncs these zeros are written, and
//! appending changes no metadata; else the space is only allocated. What one
//! sync makes durable is one **batch**: one aligned write of whole pages, one `fdatasync`.
//!
//! Invariants:
//! 1. One write is in flight at a time, and the next begins only after the sync of the one before
//!    has succeeded. So a batch on disk proves that every batch before it was durable.
//! 2. A file is sealed durably before the first write to its successor. So a successor with
//!    content proves that its predecessor is complete.
//! 3. A position of a file is written once. (Recovery repeats the last accepted batch, byte for
//!    byte.) Files are never recycled.
//! 4. After a failed write or sync nothing is written any more.
//!
//! # The tail rule
//! Let p be the first position where no complete batch stands. Every sector from p on is zero
//! (never written), valid (it proves its own place), or rot. Then:
//!
//! - rot anywhere is corruption: it was not the crash;
//! - a valid first-of-batch sector behind the batch at p, or any valid sector behind its end, is
//!   corruption: by invariant 1 the batch at p was durable, so it has been damaged since;
//! - otherwise the batch at p is **torn**: it was being written when the machine stopped, nobody
//!   was told it was durable, and it is dropped and reported;
//! - if nothing at all is written from p on, that is the clean end.
//!
//! Opening a store passes over batches that are in segments by their headers; rot behind those is found by
//! `verify`, which reads all.
//!
//! A batch is whole pages, every sector of which is written, the last with zeros: so it has eight
//! sectors at least, and one of them alone never is all there is of it.
//!
//! What this cannot tell, in a store that was killed: a sector of the last batch that was zeroed
//! as a whole later, from one never written. That drop is reported by open, never silent. Only where
//! every sector of the last batches was zeroed nothing is left to report.

mod ahead;
mod files;
mod found;
pub(crate) mod inspect;
mod reader;
mod recovery;
mod unnamed;
mod window;
mod writer;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_format::{DecodeError, FileKind, StoreId, name::FileName};

use crate::error::{Corruption, Error, ErrorKind};
use crate::vfs::Vfs;

pub(crate) use files::{WalFiles, remove_leftovers};
pub use inspect::WalPart;
pub(crate) use recovery::{Mode, Recovered, recover, settle};
pub(crate) use writer::{BatchInfo, WalWriter};

/// What every part of the log needs to know about its store.
#[derive(Debug, Clone)]
pub(crate) struct WalContext {
    /// The file system.
    pub(crate) vfs: Arc<dyn Vfs>,
    /// The store's directory.
    pub(crate) dir: PathBuf,
    /// The store.
    pub(crate) store: StoreId,
    /// The incarnation of the store, which a file that is made tells.
    pub(crate) incarnation: u64,
    /// How long a WAL file gets, unless a batch needs a longer one.
    pub(crate) wal_bytes: u64,
    /// Whether a sync is waited for by most commits: then files are written with zeros when they are made, which makes
    /// each sync quicker and lets every byte of the log be written twice.
    pub(crate) quick_syncs: bool,
}

impl WalContext {
    /// The directory of the log.
    fn wal_dir(&self) -> PathBuf {
        self.dir.join(annals_format::name::WAL_DIR)
    }

    /// The path of file `number`.
    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(FileName::new(FileKind::Wal, number).to_string())
    }

    /// The path of file `number` while it is being made.
    fn unfinished_path(&self, number: u64) -> PathBuf {
        self.dir.join(FileName::new(FileKind::Wal, number).unfinished())
    }
}

/// Where a frame stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The number of the WAL file.
    pub file: u64,
    /// Where the frame's batch starts in the file.
    pub batch_offset: u64,
    /// Where the frame's first byte stands in the file.
    pub offset: u64,
    /// How many bytes the frame has, not counting the sector trailers in between.
    pub bytes: u64,
}

/// An error about bytes of `path` that did not decode; `offset` is where they start in the file.
fn undecodable(path: &Path, offset: u64, error: &DecodeError, revision: Option<u64>) -> Error {
    match Error::undecodable(path, offset, error).into_kind() {
        ErrorKind::Corrupt(damage) => Corruption { revision, ..*damage }.into(),
        other => other.into(),
    }
}
