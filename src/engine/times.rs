//! When a revision was ordered, and which one was the newest at a time.
//!
//! The time stands at the head of a transaction, in memory and in EVENTS, and nothing else of it is looked
//! at: however much it changed, it is asked for in one look-up.

use annals_format::events;

use crate::error::{ErrorKind, Result};
use crate::index::Position;

use super::core::Core;
use super::pins::Pin;
use super::tables::Tables;

/// The revision before all transactions.
const EMPTY: u64 = 1;

/// The times of the transactions from one on.
struct Times {
    tables: Tables,
    visible: Position,
    /// Keeps the transactions where they are looked for.
    _pin: Pin,
}

impl Times {
    /// Those visible, from revision `oldest` on.
    ///
    /// # Errors
    /// `Compacted` if no key is kept as far back; `Closed`.
    fn since(core: &Core, oldest: u64) -> Result<Self> {
        core.check_open()?;
        let visible = core.visible();
        let (pin, _) = core.pins.pin(oldest, || core.limits_at(oldest))?;
        Ok(Self { tables: core.shared.tables(), visible, _pin: pin })
    }

    /// When a revision was ordered; `None` if no transaction made it.
    fn of(&self, revision: u64) -> Result<Option<i64>> {
        Ok(self.at(revision)?.map(|(time, _)| time))
    }

    /// The last revision of those from this one on of which it is only known that they were not later than some time;
    /// the one before it if there is none.
    fn unknown_from(&self, revision: u64) -> Result<u64> {
        let mut next = revision;
        while self.at(next)?.is_some_and(|(_, is_known)| !is_known) {
            next += 1;
        }
        Ok(next - 1)
    }

    /// The time of a revision, and whether it is that, or not known, but not later.
    fn at(&self, revision: u64) -> Result<Option<(i64, bool)>> {
        if revision > self.visible.revision {
            return Ok(None);
        }
        let files = &self.tables.files.events;
        let at = files.partition_point(|file| file.meta().max_revision < revision);
        if let Some(file) = files.get(at).filter(|file| file.meta().min_revision <= revision) {
            let mut cursor = file.open()?.cursor();
            cursor.seek(&revision.to_be_bytes(), u64::MAX)?;
            if cursor.entry().is_none_or(|entry| entry.revision != revision) {
                return Ok(None);
            }
            let value = cursor.value()?;
            let decoded = events::Transaction::decode(&value);
            let decoded = decoded.map_err(|error| cursor.damaged(&error))?;
            return Ok(Some((decoded.time, decoded.flags & events::TIME_UPTO == 0)));
        }
        for generation in self.tables.generations.iter() {
            let mut frames = generation.frames_before(revision);
            while let Some(frame) = frames.next(self.visible.seq) {
                let position = frame.position();
                if position.revision > revision {
                    break;
                }
                if position.revision == revision && frame.takes_revision() {
                    return Ok(Some((position.time, true)));
                }
            }
        }
        Ok(None)
    }
}

/// When a visible revision was ordered; `None` if no transaction made it.
///
/// # Errors
/// `Compacted`, `Closed`, or what reading a file answers.
pub(super) fn time_of(core: &Core, revision: u64) -> Result<Option<i64>> {
    Times::since(core, revision)?.of(revision)
}

/// The newest visible revision whose time is not after `time`: before all others the empty store, if that can be read.
///
/// # Errors
/// `NoRevisionAtTime` if all that can be read are later; `TimeUnknown`; `Closed`, or what reading a file answers.
pub(super) fn revision_at_time(core: &Core, time: i64) -> Result<u64> {
    loop {
        let compacted = core.least_floor(core.compacted());
        match search(core, time, compacted) {
            // A compaction has come before the search: the revision refused is one that the search looked
            // at, not one that was asked for.
            Err(error)
                if matches!(error.kind(), ErrorKind::Compacted { .. })
                    && core.least_floor(core.compacted()) > compacted => {}
            found => return found,
        }
    }
}

/// As [`revision_at_time`], among the revisions from `compacted` on.
fn search(core: &Core, time: i64, compacted: u64) -> Result<u64> {
    let oldest = compacted.max(2);
    let times = Times::since(core, oldest)?;
    // Times never decrease with the revision: the answer is the last before the first later one.
    let (mut low, mut high) = (oldest, times.visible.revision + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if times.of(middle)?.is_some_and(|at| at <= time) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let last = times.unknown_from(low)?;
    if last >= low {
        let first = if low > oldest || compacted <= EMPTY { low - 1 } else { low };
        return Err(ErrorKind::TimeUnknown { requested: time, first, last }.into());
    }
    if low > oldest {
        return Ok(low - 1);
    }
    if compacted <= EMPTY {
        return Ok(EMPTY);
    }
    let oldest = times.of(oldest)?;
    Err(ErrorKind::NoRevisionAtTime { requested: time, oldest }.into())
}
