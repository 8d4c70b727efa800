//! What opening a store found.

use std::path::PathBuf;

use crate::error::Corruption;

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
