//! Refusals because of a compaction, and when they stand.
//!
//! A request is decided on one state, which has its own watermark. But what reads an older revision
//! pins it, and the pin asks for the watermark of its own moment, which may be that of a compaction
//! after the state. Such a refusal mixes two moments: a transaction whose comparisons held before the
//! compaction, and would not have held at it, would be refused for a read in a branch that at no time
//! was to be taken. In a `Sync` store it would also leave before the compaction is durable, as what it
//! waits for is the state's place.
//!
//! So a refusal stands only if it is by the watermark of the state. Otherwise the request is decided
//! again, on a newer state, which is at or after what the pin saw. It takes another compaction for that
//! to happen once more.

use crate::error::{Error, ErrorKind};

/// Whether an error refuses for a compaction that the state it was decided on does not have.
pub(super) fn overtook(error: &Error, of_state: u64) -> bool {
    matches!(*error.kind(), ErrorKind::Compacted { compacted, .. } if compacted > of_state)
}
