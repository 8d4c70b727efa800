//! Opening a store whose log is longer than a memtable.

use annals_format::FileMeta;

use crate::error::Result;
use crate::index::{Generation, Position};
use crate::reclaim::floors::Floors;
use crate::reclaim::flush::flush;
use crate::sync::Arc;

use super::core::Core;
use super::jobs::{Busy, Depth, frozen_end};

/// What becomes of a log that is longer than a memtable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overflow {
    /// It is written to files.
    Files,
    /// It stays in memory, for want of space.
    Memory,
}

/// Files written for what the log holds beyond one memtable. They are put in force together, when
/// the whole log has been read.
#[derive(Debug, Default)]
pub(super) struct Spilled {
    pub(super) files: Vec<FileMeta>,
    pub(super) last: Option<Position>,
}

impl Spilled {
    /// Writes the frozen generations to files.
    pub(super) fn spill(&mut self, core: &Core, overflow: Overflow) -> Result<()> {
        if overflow == Overflow::Memory {
            return Ok(());
        }
        let frozen: Vec<Arc<Generation>> = core.shared.tables().frozen().cloned().collect();
        for generation in frozen {
            let last = frozen_end(&generation)?;
            let host = Busy { core, depth: Depth::Flushing };
            // Which rules keep what the compactions do not is not known before the log has been read.
            let files = flush(&core.context, &host, &generation, &Floors::all(0), &core.options)?;
            core.publish_flush(&generation, &files);
            self.files.extend(files);
            self.last = Some(last);
        }
        Ok(())
    }
}
