//! The log as the commit chain knows it: written only while the store is locked, counted and measured.

use std::path::PathBuf;

use crate::clock::Stopwatch;
use crate::commit::Log;
use crate::error::{Error, ErrorKind, Result};
use crate::observe::{self, Span, Task};
use crate::sync::plain::lock;
use crate::sync::{Arc, Ordering};
use crate::vfs::Held;
use crate::wal::BatchInfo;

use super::core::SharedLog;
use super::shared::Shared;
use super::stats::Counters;

/// See the module.
#[derive(Debug)]
pub(super) struct ChainLog {
    pub(super) log: SharedLog,
    /// Nothing is written, and nothing acknowledged, for a store that is not locked any more.
    pub(super) held: Held,
    /// The directory of the store.
    pub(super) store: PathBuf,
    pub(super) counters: Arc<Counters>,
    pub(super) shared: Arc<Shared>,
}

impl Log for ChainLog {
    fn append(&mut self, frames: &mut dyn Iterator<Item = &[u8]>, batch: BatchInfo) -> Result<()> {
        let span = Span::of(Task::Sync);
        let written = {
            let _within = span.enter();
            self.write(frames, batch)
        };
        match &written {
            Ok(bytes) => {
                span.revision(batch.last_revision);
                span.size(1, *bytes);
            }
            // The chain calls no more.
            Err(error) if !matches!(error.kind(), ErrorKind::Closed) => {
                observe::poisoned(&self.store, error);
            }
            Err(_) => {}
        }
        written.map(drop)
    }
}

impl ChainLog {
    /// Answers how many bytes the frames are.
    fn write(&mut self, frames: &mut dyn Iterator<Item = &[u8]>, batch: BatchInfo) -> Result<u64> {
        let mut bytes = 0;
        let mut frames = frames.inspect(|frame| bytes += frame.len() as u64);
        let nanos = match lock(&self.log).as_mut() {
            Some(writer) => {
                let check = || {
                    let path = || self.store.join(annals_format::name::LOCK);
                    self.held.check().map_err(|error| Error::io("lock", path(), error))
                };
                check()?;
                self.shared.credit.sync_begins();
                let begun = Stopwatch::start();
                let written = writer.append(&mut frames, batch);
                let nanos = begun.nanos();
                self.shared.credit.sync_ends();
                self.shared.log_written();
                written?;
                // Another writer may have come since, and have read the log without this.
                check()?;
                // Memory and the next file are made ahead of need, by other threads.
                if self.shared.lacks_memory() {
                    self.shared.logger.ring_aside();
                }
                if writer.files().spare_is_wanted() {
                    self.shared.worker.ring();
                }
                nanos
            }
            None => return Err(ErrorKind::Closed.into()),
        };
        let transactions = batch.last_seq + 1 - batch.first_seq;
        let Counters { batches, batch_frames, batch_bytes, sync_durations, .. } = &*self.counters;
        batches.fetch_add(1, Ordering::Relaxed);
        batch_frames.fetch_add(transactions, Ordering::Relaxed);
        batch_bytes.fetch_add(bytes, Ordering::Relaxed);
        sync_durations.add(nanos);
        observe::count(observe::COMMITS, transactions);
        observe::sample(observe::BATCH_COMMITS, transactions);
        observe::duration(observe::SYNC_SECONDS, nanos);
        Ok(bytes)
    }
}
