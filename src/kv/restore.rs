//! A store made of a backup and of what came after it, and what a backup is.

use std::io::Read;
use std::path::Path;

use annals_format::backup::{Header, State};
use annals_format::{FileMeta, Frame};

use crate::engine::{Continuing, Input, Receiver, Restoring, StreamReader, check_begin, receive};
use crate::error::{Error, Result};
use crate::observe::{Span, Task};
use crate::options::Options;

use super::backup::state_of;
use super::hash::{Hashing, KvHash};
use super::seam::Engine;

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
    /// Increments that were applied.
    pub increments: u64,
    /// Bytes of the backups.
    pub bytes: u64,
    /// The hash of the store, which is the one it had when the backup was made, unless its revision was
    /// [raised](RestoreOptions::bump_revision).
    pub hash: KvHash,
}

/// What a backup says of itself, and holds; made by [`inspect_backup`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BackupInfo {
    /// The identity of the store.
    pub store: String,
    /// The revision it continues; `None` for a full one.
    pub from: Option<u64>,
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
    /// Transactions in it that are in no file.
    pub transactions: u64,
    /// Records of leases and rules in it that are in no file.
    pub records: u64,
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
    bump: u64,
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

    /// Has the store go on `by` revisions after the newest one in the backup, compacted there: reads and watches of
    /// revisions up to it answer [`Compacted`](crate::ErrorKind::Compacted), and rules of retention begin there.
    ///
    /// That is for a store that takes the place of one that was lost. Its clients may have seen revisions which
    /// the backup does not have; given again, to other changes, these would make a client that goes on from one
    /// of them miss changes, and not notice. With `by` more than were ever made after the backup, such a client is
    /// refused, and lists anew. The history up to the backup is given up for that. The revision may be raised to half of all that
    /// can be given, 2^61.
    pub fn bump_revision(mut self, by: u64) -> Self {
        self.bump = by;
        self
    }
}

/// Makes a store of a backup, in a directory that is absent or empty. Every byte of the backup is checked,
/// every file compared with its checksum, and at last the [hash](crate::Store::hash_at) of the store with
/// that which the store had when the backup was made. Memory holds what the [options](RestoreOptions::options)
/// let a store take, and a piece of the stream: a block, the list of the files, or one transaction. All this
/// finds what accidents do to a backup; who makes one can put into it anything, and any amount.
///
/// Increments can follow a full backup in the stream, in their order, each of which continues the one before: the
/// state that it continues is compared by its hash before it is applied. Several files are one stream by
/// [`Read::chain`].
///
/// The stream has to end: whoever sends it through a socket shuts that down for writing.
///
/// The store has the revisions and the identity of the one that was backed up, and an
/// [incarnation](crate::Store::incarnation) of its own: what is written to it from now on is another history.
/// Its [rules of retention](crate::Store::set_retention) by age go by the time of now, and forget what has become
/// too old as soon as it is open; who wants to see it first opens it for reading only.
/// What was left of the time of leases is left, as it was last
/// [written down](crate::Options::lease_checkpoint_interval_seconds).
///
/// When this has returned the store is durable. After a crash or an error before that nothing was made, or the
/// directory is no store, and opening it answers [`NotAStore`](crate::ErrorKind::NotAStore): remove it. It may be
/// one, and complete, if all that failed is the very end.
///
/// # Errors
///
/// [`Corrupt`](crate::ErrorKind::Corrupt) with the offset in the stream where the backup is damaged,
/// [`UnsupportedVersion`](crate::ErrorKind::UnsupportedVersion);
/// [`NotEmpty`](crate::ErrorKind::NotEmpty);
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the stream does not
/// begin with a full backup, an increment continues another state, or the revision would be raised so far that there are
/// few to come;
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
    let made = restore_from(&mut from, directory.as_ref(), options)?;
    span.revision(made.revision);
    span.size(made.files, made.bytes);
    Ok(made)
}

fn restore_from(
    from: &mut dyn Read,
    directory: &Path,
    options: &RestoreOptions,
) -> Result<RestoreReport> {
    // It is raised at least so far: what can be told now is told before anything is made.
    check_begin(options.bump)?;
    let mut input = Input::new(from);
    let mut made = Restoring::new(directory, &options.options)?;
    let stream = StreamReader::begin(&mut input)?;
    let header = *stream.header();
    if let Some(from) = header.from {
        let what = format!(
            "this is what came after revision {}: a full backup comes first",
            from.revision
        );
        return Err(Error::invalid(what));
    }
    let (state, _) = receive(stream, &mut made)?;
    let (mut to, files, file_bytes) = made.publish()?;
    let mut last = (header, state);
    let mut increments = 0;
    loop {
        compare(&newest(to.engine())?, &last.1, input.offset())?;
        if input.is_at_end()? {
            break;
        }
        last = apply(&mut input, &mut to, &last)?;
        increments += 1;
    }
    if options.bump > 0 {
        let revision = to.engine().revision();
        let alive = Hashing::begin(to.engine(), revision, revision)?.finish()?;
        to = to.bump(options.bump)?;
        let raised = revision.saturating_add(options.bump);
        let expected = State { hash: alive.hash, revision: raised, compacted: raised };
        compare(&newest(to.engine())?, &expected, input.offset())?;
    }
    let hash = newest(to.engine())?;
    to.finish()?;
    let (revision, bytes) = (hash.revision, input.offset());
    Ok(RestoreReport { revision, files, file_bytes, increments, bytes, hash })
}

/// Applies the next increment. Answers its header, and the state to which it leads.
fn apply(
    input: &mut Input<'_>,
    to: &mut Continuing,
    (before, state): &(Header, State),
) -> Result<(Header, State)> {
    let stream = StreamReader::begin(input)?;
    let header = *stream.header();
    let Some(from) = header.from else {
        return Err(Error::invalid("a full backup follows another one"));
    };
    let refuse = |what: String| Err(Error::invalid(format!("the increment continues {what}")));
    if header.store != before.store || header.incarnation < before.incarnation {
        return refuse(format!(
            "incarnation {} of store {}, not {} of {}",
            header.incarnation, header.store, before.incarnation, before.store
        ));
    }
    if from.revision != state.revision {
        return refuse(format!("revision {}, but this is {}", from.revision, state.revision));
    }
    if from.compacted < state.compacted {
        let (from, state) = (from.compacted, state.compacted);
        return refuse(format!("a store compacted to {from}, but this one is to {state}"));
    }
    let found = Hashing::begin(to.engine(), from.compacted, from.revision)?.finish()?;
    if found.hash != from.hash {
        let (revision, hash) = (from.revision, from.hash);
        return refuse(format!(
            "another history: the hash of revision {revision} is {hash} there, but {} here",
            found.hash
        ));
    }
    let (state, _) = receive(stream, to)?;
    to.end(&header)?;
    Ok((header, state))
}

/// The hash of the newest revision.
fn newest(engine: &Engine) -> Result<KvHash> {
    let (hashing, ()) = Hashing::of(engine, &mut || Ok((engine.revision(), ())))?;
    hashing.finish()
}

/// Refuses what is not in the state that the backup which ends at `offset` leads to.
fn compare(found: &KvHash, wanted: &State, offset: u64) -> Result<()> {
    let found = state_of(found);
    if found == *wanted {
        return Ok(());
    }
    let words = |State { revision, compacted, hash }: &State| {
        format!("hash {hash} as of revision {revision}, compacted to {compacted}")
    };
    Err(Error::corrupt("backup", offset, "backup: the state", words(wanted), words(&found)))
}

/// Reads a backup to its end, checks every byte of it, and tells what it is; where increments follow it, each of
/// them, too. Only the keys and values themselves are not looked at: their hash is compared by [`restore`].
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
/// assert_eq!((found[0].revision, found[0].hash), (made.revision, made.hash));
/// # Ok::<(), annals::Error>(())
/// ```
pub fn inspect_backup(mut from: impl Read) -> Result<Vec<BackupInfo>> {
    let mut input = Input::new(&mut from);
    let mut found = vec![inspect_one(&mut input)?];
    while !input.is_at_end()? {
        found.push(inspect_one(&mut input)?);
    }
    Ok(found)
}

fn inspect_one(input: &mut Input<'_>) -> Result<BackupInfo> {
    let stream = StreamReader::begin(input)?;
    let header = *stream.header();
    let mut seen = Seen::default();
    let (state, bytes) = receive(stream, &mut seen)?;
    let State { revision, compacted, hash } = state;
    let Seen { files, file_bytes, transactions, records } = seen;
    Ok(BackupInfo {
        store: header.store.to_string(),
        from: header.from.map(|from| from.revision),
        revision: header.upto,
        compacted: header.compacted,
        incarnation: header.incarnation,
        files,
        file_bytes,
        transactions,
        records,
        bytes,
        hash: KvHash { hash, revision, compacted },
    })
}

/// What has come in a backup.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    files: u64,
    file_bytes: u64,
    transactions: u64,
    records: u64,
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

    fn record(&mut self, _: &[u8], _: &[u8]) -> Result<()> {
        self.records += 1;
        Ok(())
    }
}
