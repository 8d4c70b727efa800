//! Refusals because of a compaction, and when they stand.
//!
//! A request is decided on one state, but the watermark is asked for on its own, later. So it may be
//! that of a compaction which comes after the state, and a refusal then mixes two moments: a
//! transaction whose comparisons held before the compaction, and would not have held at it, would be
//! refused for a read in a branch that at no time was to be taken. In a `Sync` store such a refusal
//! would also leave before the compaction is durable, as what it waits for is the state's place.
//!
//! So a refusal stands only if the watermark it names was known before the state was taken. Otherwise
//! the request is decided again, on a state that has the compaction. It takes another compaction
//! for that to happen once more.

use crate::error::{Error, ErrorKind};
use crate::kv::seam::Engine;

/// The highest watermark that a state taken from now on has.
#[derive(Debug, Default)]
pub(super) struct Watermark(u64);

impl Watermark {
    /// Whether an error refuses for a compaction which the state it was decided on may not have. When
    /// it answers so, the states taken from then on have it.
    pub(super) fn overtook(&mut self, engine: &Engine, error: &Error) -> bool {
        match *error.kind() {
            ErrorKind::Compacted { compacted, .. } if compacted > self.0 => {
                self.0 = compacted;
                engine.settle();
                true
            }
            _ => false,
        }
    }
}
