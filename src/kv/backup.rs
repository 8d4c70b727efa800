//! Backups: a store as one stream, made while others write, and a store made of one.

use std::io::{Read, Write};
use std::path::Path;

use annals_format::backup::State;
use annals_format::{FileMeta, Frame, Manifest};

use crate::engine::{Content, Receiver, Restoring, StreamReader, StreamWriter, receive};
use crate::error::{Error, Result};
use crate::observe::{Span, Task};
use crate::options::Options;

use super::hash::{Hashing, KvHash};
use super::seam::Engine;

/// What was written to a backup; made by [`Store::backup`](crate::Store::backup).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BackupReport {
    /// The newest revision in it.
    pub revision: u64,
    /// Files of the store in it.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
    /// Bytes of the backup.
    pub bytes: u64,
    /// The hash of the store as of the revision, which a restore compares.
    pub hash: KvHash,
}

/// What was restored; made by [`restore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RestoreReport {
    /// The newest revision of the store.
    pub revision: u64,
    /// Files that were written, those of the log not counted.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
    /// Bytes of the backup.
    pub bytes: u64,
    /// The hash of the store, which is the one it had when the backup was made.
    pub hash: KvHash,
}

/// What a backup says of itself, and holds; made by [`inspect_backup`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BackupInfo {
    /// The identity of the store.
    pub store: String,
    /// The newest revision in it.
    pub revision: u64,
    /// The revision that the store had been compacted to; 0 for never.
    pub compacted: u64,
    /// The incarnation of the store.
    pub incarnation: u64,
    /// Files of the store in it.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
    /// Transactions in it that were in no file yet.
    pub transactions: u64,
    /// Bytes of the backup.
    pub bytes: u64,
    /// The hash that the store has to have when it is restored.
    pub hash: KvHash,
}

/// How a backup is restored.
#[derive(Clone, Debug, Default)]
#[must_use = "these are options of a restore, not the restore"]
pub struct RestoreOptions {
    options: Options,
}

impl RestoreOptions {
    /// The usual ones.
    pub fn new() -> Self {
        Self::default()
    }

    /// The options of the store: those that say how files are read and written.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }
}

/// Writes what is visible to a stream.
pub(super) fn backup(engine: &Engine, to: &mut dyn Write) -> Result<BackupReport> {
    let (hashing, mut content) = Hashing::of(engine, &mut || {
        let content: Content = engine.content()?;
        Ok((content.revision(), content))
    })?;
    let mut out = StreamWriter::begin(to, &content.header())?;
    content.write_state(&mut out)?;
    // What it holds on to can go before the files are written, which may take long.
    let hash = hashing.finish()?;
    content.write_files(&mut out)?;
    let bytes = out.finish(&state_of(&hash))?;
    let (files, file_bytes) = content.files();
    Ok(BackupReport { revision: hash.revision, files, file_bytes, bytes, hash })
}

/// Makes a store of a backup, in a directory that is absent or empty. Every byte of the backup is checked,
/// every file compared with its checksum, and at last the [hash](crate::Store::hash_at) of the store with
/// that which the store had when the backup was made; memory holds no more than a block and what the
/// [options](RestoreOptions::options) let a store take.
///
/// The store has the revisions and the identity of the one that was backed up, and the next
/// [incarnation](crate::Store::incarnation): what is written to it from now on is another history.
/// What was left of the time of leases is left.
///
/// After a crash or an error in between the directory is no store, and opening it answers
/// [`NotAStore`](crate::ErrorKind::NotAStore): remove it. When this has returned the store is durable.
///
/// # Errors
///
/// [`Corrupt`](crate::ErrorKind::Corrupt) with the offset in the stream where the backup is damaged,
/// [`UnsupportedVersion`](crate::ErrorKind::UnsupportedVersion);
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the directory is not empty;
/// [`Locked`](crate::ErrorKind::Locked) while another store is made or open there;
/// [`Io`](crate::ErrorKind::Io), [`NoSpace`](crate::ErrorKind::NoSpace).
///
/// ```
/// use annals::{RestoreOptions, Store};
/// # let directory = tempfile::tempdir().expect("a temporary directory");
/// # let store = Store::open(directory.path().join("store"))?;
/// # let copy = directory.path().join("copy");
///
/// store.put("/a", "1")?;
/// let mut backup = Vec::new(); // or a file, or a socket
/// let made = store.backup(&mut backup)?;
///
/// let restored = annals::restore(&backup[..], &copy, &RestoreOptions::new())?;
/// assert_eq!(restored.hash, made.hash);
/// assert_eq!(Store::open(&copy)?.get("/a")?.expect("as it was").value, "1");
/// # Ok::<(), annals::Error>(())
/// ```
pub fn restore(
    mut from: impl Read,
    directory: impl AsRef<Path>,
    options: &RestoreOptions,
) -> Result<RestoreReport> {
    let span = Span::of(Task::Restore);
    let _within = span.enter();
    let restored = restore_from(&mut from, directory.as_ref(), options)?;
    span.revision(restored.revision);
    span.size(restored.files, restored.bytes);
    Ok(restored)
}

fn restore_from(
    from: &mut dyn Read,
    directory: &Path,
    options: &RestoreOptions,
) -> Result<RestoreReport> {
    let mut made =
        Counting { of: Restoring::new(directory, &options.options)?, seen: Seen::default() };
    let stream = full(StreamReader::begin(from)?)?;
    let (state, bytes) = receive(stream, &mut made)?;
    let Counting { of: mut made, seen } = made;
    made.seal()?;
    let hash = {
        let engine = made.look()?;
        let (hashing, ()) = Hashing::of(&engine, &mut || Ok((engine.revision(), ())))?;
        hashing.finish()?
    };
    if state_of(&hash) != state {
        let words = |State { revision, compacted, hash }| {
            format!("hash {hash} as of revision {revision}, compacted to {compacted}")
        };
        let (expected, found) = (words(state), words(state_of(&hash)));
        return Err(Error::corrupt("backup", bytes, "backup: the state", expected, found));
    }
    made.finish()?;
    let Seen { files, file_bytes, .. } = seen;
    Ok(RestoreReport { revision: hash.revision, files, file_bytes, bytes, hash })
}

/// Reads a backup to its end, checks every byte of it, and tells what it is. Only the keys and values
/// themselves are not looked at: their hash is compared by [`restore`].
///
/// # Errors
///
/// [`Corrupt`](crate::ErrorKind::Corrupt) with the offset in the stream, also for what is no backup;
/// [`UnsupportedVersion`](crate::ErrorKind::UnsupportedVersion), [`Io`](crate::ErrorKind::Io).
///
/// ```
/// # let directory = tempfile::tempdir().expect("a temporary directory");
/// # let store = annals::Store::open(directory.path())?;
/// let mut backup = Vec::new();
/// let made = store.backup(&mut backup)?;
/// let found = annals::inspect_backup(&backup[..])?;
/// assert_eq!((found.revision, found.hash), (made.revision, made.hash));
/// # Ok::<(), annals::Error>(())
/// ```
pub fn inspect_backup(mut from: impl Read) -> Result<BackupInfo> {
    let stream = StreamReader::begin(&mut from)?;
    let header = *stream.header();
    let mut seen = Seen::default();
    let (state, bytes) = receive(full(stream)?, &mut seen)?;
    let State { revision, compacted, hash } = state;
    let Seen { files, file_bytes, transactions } = seen;
    Ok(BackupInfo {
        store: header.store.to_string(),
        revision: header.upto,
        compacted: header.compacted,
        incarnation: header.incarnation,
        files,
        file_bytes,
        transactions,
        bytes,
        hash: KvHash { hash, revision, compacted },
    })
}

/// Refuses an increment.
fn full(stream: StreamReader<'_>) -> Result<StreamReader<'_>> {
    match stream.header().from {
        None => Ok(stream),
        Some(from) => {
            let what =
                format!("this is what came after revision {}, no full backup", from.revision);
            Err(Error::invalid(what))
        }
    }
}

fn state_of(hash: &KvHash) -> State {
    let KvHash { hash, revision, compacted } = *hash;
    State { revision, compacted, hash }
}

/// What has come in a backup.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    files: u64,
    file_bytes: u64,
    transactions: u64,
}

impl Receiver for Seen {
    fn frame(&mut self, _: &Frame<'_>, _: &[u8]) -> Result<()> {
        self.transactions += 1;
        Ok(())
    }

    fn file(&mut self, meta: &FileMeta) -> Result<()> {
        self.files += 1;
        self.file_bytes += meta.bytes;
        Ok(())
    }
}

/// Counts what comes to another one.
struct Counting<R> {
    of: R,
    seen: Seen,
}

impl<R: Receiver> Receiver for Counting<R> {
    fn manifest(&mut self, manifest: &Manifest) -> Result<()> {
        self.of.manifest(manifest)
    }

    fn frame(&mut self, frame: &Frame<'_>, bytes: &[u8]) -> Result<()> {
        self.seen.frame(frame, bytes)?;
        self.of.frame(frame, bytes)
    }

    fn file(&mut self, meta: &FileMeta) -> Result<()> {
        self.seen.file(meta)?;
        self.of.file(meta)
    }

    fn piece(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.of.piece(offset, bytes)
    }

    fn file_end(&mut self) -> Result<()> {
        self.of.file_end()
    }
}
