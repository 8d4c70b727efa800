//! Reading and writing what etcd keeps on disk: the file that `etcdctl snapshot save` writes, or a copy of `member/snap/db`.
//!
//! Both are files of bbolt, pages that make up B+ trees ([`bolt`]). etcd has every version of every key in one
//! of these trees, by revision, as a message of protocol buffers ([`proto`]); what is what says [`snapshot`].
//!
//! A file may be damaged or hostile: nothing here panics, loops for ever, or takes more memory than the longest
//! value, the list of free pages, and some 1 MiB for each level of a tree. Whatever cannot be is refused with the
//! page and the offset in the file.
//!
//! The other way, [`write`](mod@write) makes such a file.

pub mod bolt;
mod bytes;
mod page;
pub mod proto;
pub mod snapshot;
pub mod write;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

pub use snapshot::{Entry, Lease, Rule, RuleKind, Snapshot, Version};

/// What the bytes are read from.
pub trait Source {
    /// How many there are.
    ///
    /// # Errors
    /// What the system answers.
    fn bytes(&self) -> io::Result<u64>;

    /// Fills the buffer from an offset.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if they end before; what the system answers.
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Source for &[u8] {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(buffer.len());
        let found = self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(found);
        Ok(())
    }
}

impl Source for File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}

/// Why a file is not read, or not written.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// It cannot be what it claims to be; or what is to be written has no place in such a file.
    Refused {
        /// The page; 0 of what is none.
        page: u64,
        /// Where in the file.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// The system does not give it, or does not take it.
    Io {
        /// Where in the file.
        offset: u64,
        /// Its answer.
        error: io::Error,
    },
}

/// What reading and writing answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    fn refused(page: u64, offset: u64, what: impl Into<String>) -> Self {
        Self::Refused { page, offset, what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { page, offset, what } => {
                write!(f, "page {page}, offset {offset}: {what}")
            }
            Self::Io { offset, error } => write!(f, "offset {offset}: {error}"),
        }
    }
}

impl std::error::Error for Error {}
