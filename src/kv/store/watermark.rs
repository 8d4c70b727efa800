//! Refusals because of a compaction, and when they stand.
//!
//! A request is decided on one state, which has its own watermark. But what reads an older revision
//! pins it, and the pin asks for the watermark of its own moment, which may be that of a compaction
//! after the state. Such a refusal mixes two moments: a transaction whose comparisons held before the
//! compaction, and would not have held at it, would be refused for a read in a branch that at no time
//! was to be taken. In a `Sync` store it would also leave before the compaction is durable, as what it
//! waits for is the state's place.
//!
//! So a refusal stands only if it is by the watermark of the state, or by a rule of retention if the rules
//! were the same from before the state was taken. Otherwise the request is decided
//! again, on a newer state, which is at or after what the pin saw. It takes another compaction for that
//! to happen once more.

use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::kv::seam::{Door, Rules};

/// The rules of retention in force before a state was taken.
pub(super) struct RulesBefore(Option<Arc<Rules>>);

impl RulesBefore {
    /// Those of now.
    pub(super) fn of(engine: &Door) -> Self {
        Self(engine.rules_seen())
    }

    /// Whether an error refuses for a compaction or a rule that the state it was decided on, whose
    /// watermark is `of_state`, does not have.
    pub(super) fn overtook(&self, engine: &Door, error: &Error, of_state: u64) -> bool {
        match error.kind() {
            ErrorKind::Compacted { compacted, prefix: None, .. } => *compacted > of_state,
            ErrorKind::Compacted { prefix: Some(_), .. } => {
                let same = |before: &Arc<Rules>, now: &Arc<Rules>| Arc::ptr_eq(before, now);
                let both = self.0.as_ref().zip(engine.rules_seen());
                both.is_none_or(|(before, now)| !same(before, &now))
            }
            _ => false,
        }
    }
}
