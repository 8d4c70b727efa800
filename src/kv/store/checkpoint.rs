//! Copies of the store that share its files.

use std::path::Path;

use crate::engine::Checkpoint;
use crate::error::Result;

use super::Store;

impl Store {
    /// Makes a copy of the store in another directory, which must be absent or empty: everything that can be read
    /// now, at every revision, also what a [`Buffered`](crate::Durability::Buffered) store has not made durable yet.
    /// It is a store of its own, and a writer may open it beside this one.
    ///
    /// It shares the files of this store by hard links, as no file is ever changed. So it takes the time to
    /// make a link for each file, and to write what is in memory alone, at most
    /// [`memtable_bytes`](crate::Options::memtable_bytes) and what waits to be flushed; no room for the data is
    /// taken twice until one of the two stores forgets a file that the other still needs. Commits go on
    /// meanwhile. Where files cannot be linked, on another file system for example, they are copied, and what
    /// is read is compared with its checksum.
    ///
    /// A store open for reading only can make one, too, beside a program that writes; it has what this
    /// handle shows.
    ///
    /// After a crash in between the directory is no store, and opening it answers
    /// [`NotAStore`](crate::ErrorKind::NotAStore): remove it. When this has returned the copy is durable. It
    /// has the same identity as the store; a file that a failing disk damages is damaged in both, so it takes
    /// more than links to keep a store safe from the disk.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the directory is not empty, or lies in that
    /// of the store; [`Locked`](crate::ErrorKind::Locked) while another checkpoint is made there, or a store is
    /// open: then the directory is as it was. [`Closed`](crate::ErrorKind::Closed);
    /// [`Io`](crate::ErrorKind::Io), [`NoSpace`](crate::ErrorKind::NoSpace),
    /// [`Corrupt`](crate::ErrorKind::Corrupt) from the files: then what is in the directory is no store, and is
    /// to be removed. This store is as it was.
    ///
    /// ```
    /// use annals::{At, Store};
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Store::open(directory.path().join("store"))?;
    /// # let copy = directory.path().join("copy");
    ///
    /// store.put("/a", "before")?;
    /// let made = store.checkpoint(&copy)?;
    /// store.put("/a", "after")?;
    ///
    /// let copy = Store::open(&copy)?;
    /// assert_eq!((made.revision, copy.revision()), (2, 2));
    /// assert_eq!(copy.hash_at(At::Latest)?, store.hash_at(made.revision)?);
    /// copy.put("/a", "its own")?;
    /// assert_eq!(store.get("/a")?.expect("still there").value, "after");
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn checkpoint(&self, directory: impl AsRef<Path>) -> Result<Checkpoint> {
        self.engine.checkpoint(directory.as_ref())
    }
}
