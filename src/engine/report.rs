//! What opening a store found.

use std::path::{Path, PathBuf};

use annals_format::Manifest;
use annals_format::name::CURRENT;

use crate::error::{Corruption, Error, ErrorKind, Result};
use crate::manifest::ManifestStore;
use crate::observe;

/// What opening a store found and did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct OpenReport {
    /// Whether the store was made.
    pub created: bool,
    /// Whether the store had been closed, rather than killed.
    pub clean: bool,
    /// Counts the opens that followed no clean close, from 1. Where commits were acknowledged before
    /// they were durable, the same revision of two incarnations may be two different commits.
    pub incarnation: u64,
    /// The newest revision.
    pub revision: u64,
    /// Transactions that were read back from the log.
    pub frames_replayed: u64,
    /// What was dropped at the end of the log: a batch that was being written when the machine
    /// stopped, and so was never acknowledged. In a store that was killed, a sector zeroed later by
    /// a faulty device looks the same; that is why it is reported.
    pub dropped: Option<DroppedTail>,
    /// Segment files that nothing referred to, and that were removed.
    pub orphans_removed: usize,
    /// What is damaged or cannot be read of `CURRENT` and of the manifest, and stands in another place, too, so that it
    /// costs nothing. A store that was opened for writing has replaced both since.
    pub damage: Vec<Corruption>,
}

/// The torn end of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DroppedTail {
    /// The file of the log.
    pub file: PathBuf,
    /// Where the log ends now.
    pub offset: u64,
    /// Bytes dropped, in sectors that had been written.
    pub bytes: u64,
    /// The first sector of the batch that had never been written.
    pub missing: u64,
}

/// What is damaged of what says which files the store has, and is made up for.
pub(super) fn damage(
    path: &Path,
    store: &ManifestStore,
    manifest: &Manifest,
) -> Result<Vec<Corruption>> {
    let found = store.damage(manifest)?.into_iter().map(|error| {
        observe::manifest_damaged(&error);
        match error.into_kind() {
            ErrorKind::Corrupt(corruption) => *corruption,
            other => {
                let file = match &other {
                    ErrorKind::Io { path, .. } => path.clone(),
                    _ => path.join(CURRENT),
                };
                let (structure, expected) =
                    ("file".to_owned(), "bytes that can be read".to_owned());
                let (offset, found) = (0, Error::from(other).to_string());
                Corruption {
                    file,
                    offset,
                    structure,
                    expected,
                    found,
                    revision: None,
                    revision_upto: None,
                }
            }
        }
    });
    Ok(found.collect())
}
