//! Copies of the store: those that share its files, and streams.

use std::io::Write;
use std::path::Path;

use crate::engine::Checkpoint;
use crate::error::Result;
use crate::kv::backup::{self, BackupReport};
use crate::observe::{Span, Task};

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
    /// has the same identity as the store, and an [incarnation](Self::incarnation) of its own; a file that a failing disk damages is damaged in both, so it takes
    /// more than links to keep a store safe from the disk.
    ///
    /// # Errors
    ///
    /// [`NotEmpty`](crate::ErrorKind::NotEmpty) when something is in the directory;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when it lies in that of the store; [`Locked`](crate::ErrorKind::Locked) while another checkpoint is made there, or a store is
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
    /// Writes a copy of the store to a stream: everything that can be read now, at every revision, also what a
    /// [`Buffered`](crate::Durability::Buffered) store has not made durable yet. [`restore`](crate::restore) makes
    /// a store of it.
    ///
    /// The stream is compressed, and checked by checksums, each block by one over its bytes and the block
    /// before; it ends with the [hash](Store::hash_at) of the store as of its revision. Files are compared with
    /// their checksums as they are read. Commits and compactions go on meanwhile, and the copy is of one moment all
    /// the same. Besides the files it takes reading every change that the store retains, for the hash.
    ///
    /// The hash is made before the first byte is written. Memory holds two blocks of a megabyte, and what the
    /// hash takes; what is in memory alone when it begins, at most
    /// [`memtable_bytes`](crate::Options::memtable_bytes) and what waits to be flushed, is held until it is written.
    /// Files that are removed meanwhile take their room, and where files are not mapped a descriptor each, until
    /// the backup is done. Whoever takes the stream slowly keeps nothing else from being forgotten.
    ///
    /// A store open for reading only can be backed up, too, beside a program that writes: as this handle
    /// shows it. Whoever writes to a file syncs it after this has returned; what an error leaves of a
    /// stream has no end, and is refused.
    ///
    /// # Errors
    ///
    /// [`Io`](crate::ErrorKind::Io), [`NoSpace`](crate::ErrorKind::NoSpace) from the stream;
    /// [`Closed`](crate::ErrorKind::Closed); [`Io`](crate::ErrorKind::Io), [`Corrupt`](crate::ErrorKind::Corrupt)
    /// from the files; [`Poisoned`](crate::ErrorKind::Poisoned) when the log has failed, and lost what is in the
    /// backup.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = annals::Store::open(directory.path().join("store"))?;
    /// let path = directory.path().join("monday.backup");
    /// let mut file = std::fs::File::create(&path).expect("a file");
    /// let made = store.backup(&mut file)?;
    /// file.sync_all().expect("it is durable");
    /// assert_eq!(made.revision, store.revision());
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn backup(&self, mut to: impl Write) -> Result<BackupReport> {
        let span = Span::of(Task::Backup);
        let _within = span.enter();
        let made = backup::backup(&self.engine, &mut to)?;
        span.revision(made.revision);
        span.size(made.files, made.bytes);
        Ok(made)
    }

    /// Writes what came to the store after revision `since` to a stream: an increment, which
    /// [`restore`](crate::restore) applies to the backup that ends there. It has the transactions from then on, and
    /// what leases and rules of retention there are now.
    ///
    /// It costs what reading the changes costs, twice those after `since`: the state that it continues is named by
    /// its [hash](Store::hash_at), so that it is not applied to another one. Memory holds no more than for a
    /// [full one](Self::backup), and one transaction.
    ///
    /// # Errors
    ///
    /// [`Compacted`](crate::ErrorKind::Compacted) if not every key can be read as of `since` any more: then it
    /// takes a full backup; [`FutureRevision`](crate::ErrorKind::FutureRevision),
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for 0; else as [`Store::backup`].
    ///
    /// ```
    /// use annals::{RestoreOptions, Store};
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let store = Store::open(directory.path().join("store"))?;
    /// # let copy = directory.path().join("copy");
    ///
    /// store.put("/a", "1")?;
    /// let (mut sunday, mut monday) = (Vec::new(), Vec::new());
    /// let made = store.backup(&mut sunday)?;
    /// store.put("/a", "2")?;
    /// store.backup_from(made.revision, &mut monday)?;
    ///
    /// let both = [sunday, monday].concat();
    /// annals::restore(&both[..], &copy, &RestoreOptions::new())?;
    /// assert_eq!(Store::open(&copy)?.get("/a")?.expect("as it was").value, "2");
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn backup_from(&self, since: u64, mut to: impl Write) -> Result<BackupReport> {
        let span = Span::of(Task::Backup);
        let _within = span.enter();
        let made = backup::backup_from(&self.engine, since, &mut to)?;
        span.revision(made.revision);
        span.size(made.files, made.bytes);
        Ok(made)
    }
}
