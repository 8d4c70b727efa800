//! Every file operation of the store goes through here.
//!
//! The traits are small on purpose: what the engine does not need, it cannot get wrong, and the
//! simulators do not have to model. There are three implementations:
//!
//! - [`OsVfs`], the operating system's files;
//! - [`MemoryVfs`], a simulated disk that knows what would survive a power cut;
//! - [`FaultVfs`], which stands before either and makes chosen operations fail.
//!
//! What a store may rely on, and what it may not, is the contract of the two traits. Invariants:
//!
//! 1. Bytes written are durable after a later [`File::sync_data`] on *that* file has succeeded, and
//!    not before. Until then any subset of their 512-byte sectors may be on the device.
//! 2. A new, linked, renamed or removed name is durable after a later [`Vfs::sync_dir`] on its directory has
//!    succeeded. Directories made by [`Vfs::create_dir_all`] are durable on return.
//! 3. After a sync has failed, what it should have made durable may be lost for good even if a
//!    later one succeeds.
//! 4. Reads see what was written, synced or not.

#![expect(clippy::missing_errors_doc, reason = "the errors are the system's, whatever they are")]

mod allocate;
mod fault;
mod held;
mod memory;
mod mmap;
mod os;
mod write_back;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use fault::{Fault, FaultVfs, Operation};
pub(crate) use held::{Held, HeldVfs};
pub use memory::{CrashMode, MemoryVfs};
pub use mmap::Map;
pub use os::OsVfs;

/// Size of the unit that a device writes whole or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is nothing else to open a file for")]
pub enum Access {
    /// Reading only.
    Read,
    /// Reading and writing.
    Write,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirEntry {
    /// The name, without the directory. Bytes that are not UTF-8 are replaced.
    pub name: String,
    /// Length of the file; zero for a directory.
    pub bytes: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// A file system.
///
/// Implementations must be usable from many threads at once.
pub trait Vfs: Send + Sync + Debug {
    /// The one path that leads to an existing directory whatever becomes of the working directory
    /// and of symbolic links. A file system without either leaves the path as it is.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    /// Makes a directory and its parents, only for the owner to read. What it makes is durable on
    /// return. An existing directory is left as it is.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Makes a file that must not exist yet, for reading and writing, only for the owner to read.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens an existing regular file. A symbolic link is refused where the system allows.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>>;

    /// Renames a file, replacing what has the new name, in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a further name, which must not exist yet. Either name is as good from then on: a file
    /// is gone with its last.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`], which is also what an implementation answers that does without,
    /// [`io::ErrorKind::CrossesDevices`], and others: a copy may go where a link does not.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes the name of a file. Who has it open or mapped keeps reading it.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;

    /// The names alone, sorted: a directory may have thousands of files, and to ask for the length of each takes
    /// longer than to read all names.
    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        Ok(self.list(path)?.into_iter().map(|entry| entry.name).collect())
    }

    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Whether there is something with this name; a link counts, wherever it points.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Takes the exclusive lock that is named by a file, making the file if it is absent. The lock
    /// is held until the guard is dropped, and by this process only as long as it lives.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if anybody holds it, in this process or another.
    fn lock(&self, path: &Path) -> io::Result<LockGuard>;
}

impl dyn Vfs + '_ {
    /// Removes the name of a file that may be gone already.
    pub fn remove_if_there(&self, path: &Path) -> io::Result<()> {
        match self.remove(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// A held lock; dropping the last clone releases the lock.
pub type LockGuard = Arc<dyn LockHeld>;

/// What a [`LockGuard`] holds.
pub trait LockHeld: Send + Sync + Debug {
    /// Fails once the lock keeps nobody out any more: its file was removed, or its directory moved
    /// or replaced, or this process is a fork of the one that took it. Costs about a microsecond.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }
}

/// An open file.
///
/// Reads and writes name their offset, so that one handle can be shared by threads.
pub trait File: Send + Sync + Debug {
    /// Reads at an offset. Zero bytes mean the end of the file (or an empty buffer).
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at an offset, extending the file if need be; a gap reads as zeros.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes the bytes and the length of the file durable.
    fn sync_data(&self) -> io::Result<()>;

    /// As [`File::sync_data`], and the other metadata of the file too.
    fn sync_all(&self) -> io::Result<()>;

    /// Has the system begin to write a range to the device, so that a later sync finds less to do.
    /// It is a hint: nothing is durable by it, and a failure is told by that sync.
    fn write_back(&self, range: Range<u64>) {
        let _ = range;
    }

    /// Gives an empty file a length, and space on the device for all of it, without writing it: it reads as zeros. A
    /// later sync of what is written to it takes longer than where zeros were written, for the system has to note
    /// which of it has been. False where the system has no such thing, or the file was not touched for another reason.
    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        let _ = bytes;
        Ok(false)
    }

    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Length of the file.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Maps the first `bytes` of a file that nobody changes any more.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the file is shorter.
    fn map(&self, bytes: u64) -> io::Result<Map>;

    /// Forgets, in a simulated disk, that something is still to be written: what a failed sync does
    /// on many systems. For the fault injector.
    #[doc(hidden)]
    fn lose_unsynced(&self) {}
}

impl dyn File + '_ {
    /// Fills the buffer from an offset, through short reads and interruptions.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the file ends before the buffer is full.
    pub fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    buffer = buffer.get_mut(count..).ok_or_else(bad_count)?;
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all bytes at an offset, through short writes and interruptions.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WriteZero`] if the file takes no more.
    pub fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = bytes.get(count..).ok_or_else(bad_count)?;
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads `count` bytes from an offset. Whoever calls has bounded `count`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the file ends before.
    pub fn read_vec_at(&self, count: usize, offset: u64) -> io::Result<Vec<u8>> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(count).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        buffer.resize(count, 0);
        self.read_exact_at(&mut buffer, offset)?;
        Ok(buffer)
    }
}

/// A file that claims to have read or written more than it was given.
fn bad_count() -> io::Error {
    io::Error::other("the file reports more bytes than were asked for")
}
