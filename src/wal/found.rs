//! What a scan comes upon in a WAL file, and where in the file that stands.

use annals_format::batch::BatchHeader;
use annals_format::seal::Seal;
use annals_format::sector::{DATA_BYTES, SECTOR_BYTES};

/// What the scan came upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A batch of frames, handed over.
    Batch(BatchHeader),
    /// A batch of frames that are in segments already, up to this seq: nothing but its header was read.
    PassedOver(u64),
    /// A seal, at this offset; everything behind it is zero.
    Seal(u64, Seal),
    /// The end of what is to be read, or the tail of a file without a seal.
    End(Tail),
}

/// The end of a file that was not sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tail {
    /// Where the last complete batch ends.
    pub(crate) end: u64,
    /// Sectors of a torn batch behind it; 0 = a clean end.
    pub(crate) torn_sectors: u64,
    /// The first sector of the torn batch that was never written.
    pub(crate) missing: u64,
}

/// Where logical byte `at` of the batch at `start` stands in the file.
pub(super) const fn stored_offset(start: u64, at: u64) -> u64 {
    start + at / DATA_BYTES as u64 * SECTOR_BYTES as u64 + at % DATA_BYTES as u64
}
