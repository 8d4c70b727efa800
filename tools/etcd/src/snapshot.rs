//! A store as a database of etcd: what `etcdctl snapshot save` gets, and what a real etcd can be started from.
//!
//! The database is of one moment, however long it takes to make and whatever is written meanwhile: every revision has
//! its transaction, as it was, from the one compacted to on; what lived at that one has its version; and each lease
//! has its time, with what is left of that in whole seconds. etcd's hash of it is [`Store::hash_at`].
//!
//! A database of etcd's is compacted at one revision: where a rule of retention has forgotten more of its keys than is
//! forgotten of others, what those still have from before that is left out ([`left_out`]), and the server's log says so.
//!
//! Who was deleted at exactly the revision compacted to is in it, as in an etcd from 3.4.34 and 3.5.16 on: a watch
//! from there is told. But if no key is alive, etcd's hash would count these, and they are left out.
//!
//! etcd has versions in the order of revisions, and a store has what lived at one in that of keys. So the database is
//! written to a file without a name, after a sort that takes [`Extras::sort_bytes`] of memory, and beyond that disk,
//! as much as the keys alive at the revision compacted to. Then it is known how long it is, which a client is told
//! first ([`Blobs`]).

mod blobs;
mod pin;
mod write;

use std::fmt;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use annals::Store;
use bytes::Bytes;

use crate::auth::AuthSnapshot;
use crate::proto::etcdserverpb::AlarmMember;

pub use blobs::Blobs;

/// What is stored in a database as this version of etcd does it, which is what newer ones begin with, too.
pub const STORAGE_VERSION: &str = "3.6.0";
const SORT_BYTES: usize = 64 << 20;

/// What of a database is not in the store, and how it is made.
#[derive(Clone, Debug)]
pub struct Extras {
    /// Users and roles.
    pub auth: Option<AuthSnapshot>,
    /// Alarms that are raised.
    pub alarms: Vec<AlarmMember>,
    /// The index that the server tells as that of its log; 0 for the revision.
    pub consistent_index: u64,
    /// The term that it tells.
    pub term: u64,
    /// What clients are told as the version of what is stored; empty for a database as etcd 3.5 makes it.
    pub storage_version: String,
    /// Bytes of memory for the sort.
    pub sort_bytes: usize,
    /// Set by who does not want the database any more.
    pub stop: Arc<AtomicBool>,
}

impl Default for Extras {
    fn default() -> Self {
        Self {
            auth: None,
            alarms: Vec::new(),
            consistent_index: 0,
            term: 1,
            storage_version: STORAGE_VERSION.to_owned(),
            sort_bytes: SORT_BYTES,
            stop: Arc::default(),
        }
    }
}

impl Extras {
    fn check(&self) -> Result<()> {
        // Relaxed: nothing else is told by it.
        if self.stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
    }
}

/// Why a database is not made.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The store cannot be read.
    Store(annals::Error),
    /// The file cannot be written, or read again.
    File(annals_etcd_files::Error),
    /// [`Extras::stop`] was set.
    Stopped,
}

/// What making a database answers.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether there is no space where it was to be written.
    pub fn is_no_space(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        match self {
            Self::File(annals_etcd_files::Error::Io { error, .. }) => full.contains(&error.kind()),
            _ => false,
        }
    }

    fn io(offset: u64) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::File(annals_etcd_files::Error::Io { offset, error })
    }
}

impl From<annals::Error> for Error {
    fn from(error: annals::Error) -> Self {
        Self::Store(error)
    }
}

impl From<annals_etcd_files::Error> for Error {
    fn from(error: annals_etcd_files::Error) -> Self {
        Self::File(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(f, "{error}"),
            Self::File(error) => write!(f, "the file of the snapshot: {error}"),
            Self::Stopped => write!(f, "the snapshot is not wanted any more"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::File(error) => Some(error),
            Self::Stopped => None,
        }
    }
}

/// What is in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The bytes of the database.
    pub bytes: u64,
    /// The revision that it shows.
    pub revision: u64,
    /// The revision compacted to; 0 if never.
    pub compacted: u64,
    /// Versions of keys, deletions among them.
    pub versions: u64,
    /// Leases.
    pub leases: u64,
}

/// A database in a file without a name.
#[derive(Debug)]
pub struct Database {
    file: File,
    summary: Summary,
    storage_version: String,
}

impl Database {
    /// Makes one of a store in its newest state, while others write. The file and what the sort needs lie in
    /// `directory`, and are gone with this, or with the process.
    ///
    /// # Errors
    /// As [`write()`].
    pub fn make(store: &Store, directory: &Path, extras: &Extras) -> Result<Self> {
        let file = tempfile::tempfile_in(directory).map_err(Error::io(0))?;
        let (file, summary) = write(store, directory, file, extras)?;
        Ok(Self { file, summary, storage_version: extras.storage_version.clone() })
    }

    /// What is in it.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// The file, which has the database and nothing else.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// What a client gets of it, message after message.
    pub fn into_blobs(self) -> Blobs {
        Blobs::new(self.file, self.summary.bytes, self.storage_version)
    }
}

/// What a database whose history begins at `since` leaves out, though the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// The prefixes whose rules of retention have forgotten everything before `since`; none where a compaction has, and
    /// a rule keeps other keys longer.
    pub because_of: Vec<Bytes>,
    /// The prefixes whose keys could be read further back, and from which revision on; `None` for all keys without a rule.
    pub keys: Vec<(Option<Bytes>, u64)>,
}

/// What of a store's history is before the oldest revision at which all keys can be read; `None` if nothing is.
pub fn left_out(store: &Store, since: u64) -> Option<LeftOut> {
    let rules = store.retention();
    let others = store.compacted_revision();
    let has_rest = !rules.iter().any(|rule| rule.prefix.is_empty());
    let because_of = rules.iter().filter(|rule| rule.floor >= since);
    let because_of = because_of.map(|rule| rule.prefix.clone()).collect();
    let kept = rules.iter().filter(|rule| rule.floor.max(1) < since);
    let kept = kept.map(|rule| (Some(rule.prefix.clone()), rule.floor.max(1)));
    let rest = (has_rest && others.max(1) < since).then_some((None, others.max(1)));
    let keys: Vec<_> = kept.chain(rest).collect();
    (!keys.is_empty()).then_some(LeftOut { because_of, keys })
}

/// Writes the newest state of a store as a database to offset 0 of `out`, while others write to the store. Answers
/// `out`, too.
///
/// # Errors
/// [`Error`] has them.
pub fn write<W: Write + Seek>(
    store: &Store,
    directory: &Path,
    out: W,
    extras: &Extras,
) -> Result<(W, Summary)> {
    write::write(pin::Pinned::of(store)?, directory, out, extras)
}

/// Writes such a file as `etcdctl snapshot save` does, the database and its checksum, and makes it durable. `file` is
/// empty, and can be read.
///
/// # Errors
/// [`Error`] has them.
pub fn save(store: &Store, directory: &Path, file: &File, extras: &Extras) -> Result<Summary> {
    let (mut out, summary) = write(store, directory, file, extras)?;
    let digest = blobs::digest(file, summary.bytes).map_err(Error::io(summary.bytes))?;
    let end = summary.bytes;
    out.seek(io::SeekFrom::Start(end)).map_err(Error::io(end))?;
    out.write_all(&digest).map_err(Error::io(end))?;
    file.sync_all().map_err(Error::io(end))?;
    Ok(summary)
}
