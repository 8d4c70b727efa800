//! The one error type of the crate.
//!
//! An [`Error`] answers three questions: *whose fault* ([`ErrorKind`], grouped by what the caller
//! can do about it), *did the call take effect* ([`Effect`]), and *where* (a path, an offset, a
//! revision). Matching is done on the kind; the text is for people.
//!
//! Invariants:
//! 1. A call that returns an error either changed nothing ([`Effect::None`]) or says that it does
//!    not know ([`Effect::Unknown`]). There is no third case.
//! 2. Corruption always names the file, the offset, what was expected and what was found.
//! 3. Errors are cheap to clone, since one failed sync answers every waiting commit.

mod class;
#[cfg(feature = "serde")]
mod serial;
mod text;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_format::{DecodeError, Problem};
use bytes::Bytes;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
///
/// ```
/// use annals::{Effect, Error, ErrorKind};
///
/// let error = Error::from(ErrorKind::Compacted { requested: 3, compacted: 10, prefix: None });
/// assert_eq!(error.effect(), Effect::None);
/// assert!(error.to_string().contains("revision 3 has been compacted"));
/// ```
#[derive(Clone)]
pub struct Error(Box<ErrorKind>);

/// Whether a call that failed may nevertheless have changed the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is no third case, by invariant 1")]
pub enum Effect {
    /// Nothing was changed.
    None,
    /// The change may or may not be in the store once it has been reopened.
    Unknown,
}

/// What went wrong, in the order of who can do something about it.
///
/// | kinds | what the call changed ([`Error::effect`]) | what may be done |
/// |---|---|---|
/// | about the request, `EmptyKey` to `Lagged` | nothing | ask for something else |
/// | [`ReadOnly`](Self::ReadOnly), [`Closed`](Self::Closed) | nothing | use another handle |
/// | [`WouldWait`](Self::WouldWait) | nothing | the same by [`submit`](crate::Store::submit), which waits |
/// | about the place, `NoStore` to `NoSpace` | nothing | another directory, another build, more space |
/// | [`Corrupt`](Self::Corrupt) | nothing | `annals verify`, `annals repair`; what is not damaged is still answered, unless the log is, or `CURRENT` or the manifest in more than one place: then the store does not open |
/// | [`Io`](Self::Io) | nothing: of a read this call; of background work the store refuses writes from then on, unless it was only that a file could not be read, or that there was no descriptor for one | reopen once the cause is gone |
/// | [`Poisoned`](Self::Poisoned) | nothing | close and reopen, or `annals repair` if the cause is `Corrupt`; reads of what was durable go on |
/// | [`OutcomeUnknown`](Self::OutcomeUnknown) | unknown: the commit is there, whole, or not | reopen, and look at the revision it names |
///
/// `tests/effects.rs` provokes every kind and holds the store against what it was before.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    // ---- The caller's request; nothing was changed. ----
    /// A key must have at least one byte.
    EmptyKey,
    /// The key is longer than `Options::key_bytes_max`.
    KeyTooLong {
        /// Length of the key.
        bytes: u64,
        /// Longest key allowed.
        max: u64,
    },
    /// The value is longer than `Options::value_bytes_max`.
    ValueTooLong {
        /// Length of the value.
        bytes: u64,
        /// Longest value allowed.
        max: u64,
    },
    /// The encoded transaction, metadata included, is larger than `Options::transaction_bytes_max`.
    TransactionTooLarge {
        /// Encoded size of the transaction.
        bytes: u64,
        /// Largest transaction allowed.
        max: u64,
    },
    /// The transaction has more operations than `Options::transaction_operations_max`.
    TooManyOperations {
        /// Operations in the transaction.
        count: u64,
        /// Most operations allowed.
        max: u64,
    },
    /// The metadata is longer than `Options::metadata_bytes_max`.
    MetadataTooLong {
        /// Length of the metadata.
        bytes: u64,
        /// Longest metadata allowed.
        max: u64,
    },
    /// One transaction would write the same key twice.
    DuplicateKey {
        /// The key.
        key: Bytes,
    },
    /// The key does not exist, and the request needs its present value or lease
    /// (`ignore_value`, `ignore_lease`).
    KeyNotFound {
        /// The key.
        key: Bytes,
    },
    /// A value was given together with `ignore_value`.
    ValueProvided,
    /// A lease was given together with `ignore_lease`.
    LeaseProvided,
    /// No such lease.
    LeaseNotFound {
        /// The lease asked for.
        lease: i64,
    },
    /// A lease with this id exists already.
    LeaseExists {
        /// The lease asked for.
        lease: i64,
    },
    /// The time to live is longer than a lease can have.
    LeaseTtlTooLarge {
        /// Seconds asked for.
        ttl: i64,
        /// Most seconds allowed.
        max: i64,
    },
    /// A request that contradicts itself or is out of range.
    InvalidArgument {
        /// What is wrong, in one sentence.
        what: String,
    },
    /// An option is unknown or its value out of range.
    InvalidOption {
        /// Name of the option.
        name: String,
        /// The value given.
        value: String,
        /// What would be accepted.
        expected: String,
    },
    /// The revision has been compacted away: read at `compacted` or later.
    Compacted {
        /// Revision asked for.
        requested: u64,
        /// Oldest revision that can still be read.
        compacted: u64,
        /// The prefix whose rule of retention has forgotten it; `None` where that was a compaction of the
        /// store, or the rule of all keys.
        prefix: Option<Bytes>,
    },
    /// The store has as many rules of retention as it can have.
    TooManyRules {
        /// Most rules allowed.
        max: u64,
    },
    /// The revision does not exist yet.
    FutureRevision {
        /// Revision asked for.
        requested: u64,
        /// Newest revision.
        current: u64,
    },
    /// No retained revision is as old as the time asked for. While the past of any key is kept whole, there is one for
    /// every time: before the first transaction the store was empty.
    NoRevisionAtTime {
        /// Time asked for, in microseconds since the Unix epoch.
        requested: i64,
        /// Time of the oldest revision that can still be found by time, where one is known.
        oldest: Option<i64>,
    },
    /// Which revision was the newest at the time asked for is not known: who wrote these, and when, was lost, and what they
    /// wrote was put together by a repair.
    TimeUnknown {
        /// Time asked for, in microseconds since the Unix epoch.
        requested: i64,
        /// The first revision that it may have been.
        first: u64,
        /// The last.
        last: u64,
    },
    /// A watch was not asked as fast as it [wanted to be](crate::Slow::Lagged).
    Lagged {
        /// The first revision it has not told: a watch from there misses nothing that is kept.
        resume: u64,
        /// Revision up to which changes had been offered to it.
        current: u64,
    },
    /// The store was opened for reading only.
    ReadOnly,
    /// The store has been closed.
    Closed,
    /// The commit would have to wait for the disk before it has its place in the order, and was
    /// [asked not to](crate::Store::try_submit).
    WouldWait,

    // ---- The place; nothing was changed. ----
    /// There is no store in this directory.
    NoStore {
        /// The directory.
        path: PathBuf,
    },
    /// The directory holds something else than a store, or the path leads to no directory.
    NotAStore {
        /// The path given.
        path: PathBuf,
        /// What was found there.
        detail: String,
    },
    /// A store is to be made in this directory, and something is in it.
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// The name of something that is in it.
        found: String,
        /// Whether that is a store that was not finished: a crash or an error has left it, or somebody is still at it.
        unfinished: bool,
    },
    /// Another process has the store open for writing, or this one has opened it before and not closed
    /// it. (Clones of a `Store` are no second opening.)
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// A file was written by a version of annals that this one does not know.
    UnsupportedVersion {
        /// The file.
        file: PathBuf,
        /// Format version of the file.
        found: u32,
        /// Newest format version this build reads.
        supported: u32,
    },
    /// The file system or the quota is full. Commits are refused so, before they have any effect, when the log
    /// could not be gone on with in its next file, or when memory is full and cannot be flushed; reads go on, and
    /// commits do as soon as there is space again.
    NoSpace {
        /// What was being done.
        operation: &'static str,
        /// The file.
        path: PathBuf,
    },

    // ---- A damaged file. ----
    /// Bytes on disk are not what was written.
    Corrupt(Box<Corruption>),

    // ---- The machine. ----
    /// The operating system refused an operation.
    Io {
        /// What was being done.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// A write or sync failed, so the store refuses further writes until it is reopened, and
    /// answers nothing that depends on what was not durable by then. Or background work has met damage of newest versions:
    /// then the next one does so again, until the store is repaired. This call changed nothing.
    Poisoned {
        /// The first failure.
        cause: Arc<Error>,
    },
    /// The commit was ordered, but the write or sync that should have made it durable failed: it
    /// may or may not be there when the store is reopened.
    OutcomeUnknown {
        /// The revision the commit had been given; 0 where that is not known, as of a store that is elsewhere.
        revision: u64,
        /// The failure.
        cause: Arc<Error>,
    },
}

/// Where a file is damaged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Corruption {
    /// The file, as opened.
    pub file: PathBuf,
    /// Offset in the file of the structure or field that does not check.
    pub offset: u64,
    /// Name of the structure (and field), as in the format specification.
    pub structure: String,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// The revision concerned, where it is known: the first, where several are.
    pub revision: Option<u64>,
    /// The last revision concerned, where it is known. Of a segment file `revision` and this one are those
    /// of the oldest and the newest version that it holds.
    pub revision_upto: Option<u64>,
}

impl Error {
    /// What went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// Takes the kind out of the error.
    pub fn into_kind(self) -> ErrorKind {
        *self.0
    }

    /// Whether the call may have changed the store although it failed.
    pub fn effect(&self) -> Effect {
        match *self.0 {
            ErrorKind::OutcomeUnknown { .. } => Effect::Unknown,
            _ => Effect::None,
        }
    }

    /// The damage, if a damaged file is the reason.
    pub fn corruption(&self) -> Option<&Corruption> {
        match &*self.0 {
            ErrorKind::Corrupt(corruption) => Some(corruption),
            _ => None,
        }
    }

    /// An error of the operating system; a full disk becomes [`ErrorKind::NoSpace`].
    pub fn io(operation: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                ErrorKind::NoSpace { operation, path }.into()
            }
            _ => ErrorKind::Io { operation, path, source: Arc::new(source) }.into(),
        }
    }

    /// A damaged file.
    pub fn corrupt(
        file: impl Into<PathBuf>,
        offset: u64,
        structure: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Corruption {
            file: file.into(),
            offset,
            structure: structure.into(),
            expected: expected.into(),
            found: found.into(),
            revision: None,
            revision_upto: None,
        }
        .into()
    }

    /// Bytes of a file that do not decode; `offset` is where they begin in the file.
    pub(crate) fn undecodable(path: &Path, offset: u64, error: &DecodeError) -> Self {
        if let Problem::Version { supported, found } = error.problem {
            let file = path.to_path_buf();
            return ErrorKind::UnsupportedVersion { file, found, supported }.into();
        }
        let structure = format!("{} {}", error.structure, error.field);
        let (expected, found) = (error.problem.expected(), error.problem.found());
        Self::corrupt(path, offset.saturating_add(error.offset), structure, expected, found)
    }

    /// An error of looking into a store's directory, which may turn out to be none: that is the
    /// caller's path, not a failure of the machine.
    pub(crate) fn of_directory(dir: &Path, operation: &'static str, error: io::Error) -> Self {
        if error.kind() != io::ErrorKind::NotADirectory {
            return Self::io(operation, dir, error);
        }
        let detail = "the path leads to a file: give the directory of a store, or for a new store \
                      a path where there is nothing yet";
        ErrorKind::NotAStore { path: dir.to_path_buf(), detail: detail.into() }.into()
    }

    /// A request that contradicts itself.
    pub fn invalid(what: impl Into<String>) -> Self {
        ErrorKind::InvalidArgument { what: what.into() }.into()
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self(Box::new(kind))
    }
}

impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Self {
        ErrorKind::Corrupt(Box::new(corruption)).into()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            ErrorKind::Io { source, .. } => Some(&**source),
            ErrorKind::Poisoned { cause } | ErrorKind::OutcomeUnknown { cause, .. } => {
                Some(&**cause)
            }
            _ => None,
        }
    }
}

/// What it says, as [`Display`](fmt::Display): a `main` that answers an error prints this. `{:#?}` shows its fields.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() { fmt::Debug::fmt(&self.0, f) } else { fmt::Display::fmt(&self.0, f) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Corruption {
    /// The same damage, with the file it is in.
    #[must_use]
    pub fn in_file(mut self, file: &Path) -> Self {
        self.file = file.to_path_buf();
        self
    }

    /// The same damage, with the revisions that it concerns, unless it says so already.
    #[must_use]
    pub(crate) fn of_revisions(mut self, first: u64, upto: u64) -> Self {
        if self.revision.is_none() {
            (self.revision, self.revision_upto) = (Some(first), Some(upto));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_has_its_own_kind() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = Error::io("write", "wal/1", full);
        assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }));
        assert_eq!(error.to_string(), "wal/1: no space left on the device to write");
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(format!("{error:#?}").starts_with("NoSpace {"));
    }

    #[test]
    fn only_an_unknown_outcome_has_an_unknown_effect() {
        let unknown = Error::from(ErrorKind::OutcomeUnknown {
            revision: 7,
            cause: Arc::new(Error::invalid("EIO")),
        });
        assert_eq!(unknown.effect(), Effect::Unknown);
        assert_eq!(Error::from(ErrorKind::Closed).effect(), Effect::None);
    }

    #[test]
    fn corruption_names_file_offset_expected_and_found() {
        let error = Error::corrupt("seg/00000001.head", 4096, "block crc", "0x1", "0x2");
        let text = error.to_string();
        for part in ["seg/00000001.head", "4096", "block crc", "expected 0x1", "found 0x2"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(error.corruption().map(|c| c.offset), Some(4096));
    }

    #[test]
    fn keys_are_printed_as_text_or_hexadecimal() {
        let text = Error::from(ErrorKind::DuplicateKey { key: Bytes::from_static(b"a\n") });
        assert_eq!(text.to_string(), "the transaction writes the key \"a\\n\" twice");
        let binary = Error::from(ErrorKind::KeyNotFound { key: Bytes::from_static(b"\xff\x01") });
        assert_eq!(binary.to_string(), "the key 0xff01 does not exist");
    }

    #[test]
    fn the_small_error_stays_small() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
