//! The engine's parts, and the revisions everything turns on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::commit::{Chain, World};
use crate::error::{Error, ErrorKind, Result};
use crate::index::{Place, Position};
use crate::manifest::ManifestStore;
use crate::observe;
use crate::options::{Durability, Options};
use crate::segment::SegmentContext;
use crate::sync::epoch::{self, Guard};
use crate::sync::plain::{AtomicU64, Condvar, Mutex, OnceLock, lock};
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::vfs::LockGuard;
use crate::wal::{WalFiles, WalWriter};

use super::left_alone::LeftAlone;
use super::pins::Pins;
use super::retention::Retention;
use super::shared::Shared;
use super::shortage::Shortage;
use super::stats::Counters;

/// The log as the chain writes it and close takes it back. The mutex is never contended: the holder
/// of the sync role has it, and close when there is no such holder any more.
pub(super) type SharedLog = Arc<Mutex<Option<WalWriter>>>;

/// An open store.
pub(super) struct Core {
    /// The directory.
    pub(super) path: PathBuf,
    /// As given on open.
    pub(super) options: Options,
    /// What the segments need to know.
    pub(super) context: Arc<SegmentContext>,
    /// The published tables.
    pub(super) shared: Arc<Shared>,
    /// The commit chain.
    pub(super) chain: Arc<Chain>,
    /// Pinned revisions.
    pub(super) pins: Arc<Pins>,
    /// Which keys are kept how long.
    pub(super) retention: Retention,
    /// The number of the next segment file.
    pub(super) next_file: AtomicU64,
    /// Held during a piece of background work: there is one at a time.
    pub(super) busy: Mutex<()>,
    /// No HEAD file is worth a sweep for a watermark up to this.
    pub(super) swept: AtomicU64,
    /// Of EVENTS files by number for which [forgotten](crate::reclaim::floors::Floors::forgotten) keys they have
    /// been looked through.
    pub(super) looked_through: Mutex<BTreeMap<u64, BTreeSet<u32>>>,
    /// How many files the note of damage in the directory names, as far as this session has written it.
    pub(super) damage_noted: AtomicU64,
    /// Damaged files, which background work leaves as they are.
    pub(super) left_alone: LeftAlone,
    /// What background work changes. Held only while a result is put in force.
    pub(super) state: Mutex<State>,
    /// Signalled when a frozen generation has been flushed, or no more will be.
    pub(super) flushed: Condvar,
    /// Guards nothing; goes with `flushed`.
    pub(super) flushed_lock: Mutex<()>,
    /// Whether the store writes at all.
    pub(super) read_only: bool,
    /// Set by close.
    pub(super) closed: AtomicBool,
    /// Why no more background work is done, and no write accepted: the first failure.
    pub(super) failed: OnceLock<Arc<Error>>,
    /// Which background work waits for space on the disk.
    pub(super) shortage: Shortage,
    /// Held while the store is open for writing.
    pub(super) lock: Mutex<Option<LockGuard>>,
    /// What has been done since open.
    pub(super) counters: Arc<Counters>,
}

/// What background work changes: the manifest in force, and the log's files.
#[derive(Debug)]
pub(super) struct State {
    /// Where manifests are stored.
    pub(super) store: ManifestStore,
    /// The one in force.
    pub(super) manifest: annals_format::Manifest,
    /// The log's files; `None` in a store open for reading only.
    pub(super) wal: Option<Arc<WalFiles>>,
    /// The log's writer.
    pub(super) log: SharedLog,
}

impl Core {
    /// The last visible transaction: durable in a Sync store, applied in a Buffered one. Once the
    /// log has failed, what is not durable is shown no more.
    pub(super) fn visible(&self) -> Position {
        self.visible_place().position
    }

    /// The same, with the watermark of that state: the oldest revision that is answered; 0 if nothing
    /// was ever compacted.
    ///
    /// A compaction is a transaction like any other: in a Sync store nobody may see its effect
    /// before it is durable, or a crash could bring back what was refused.
    pub(super) fn visible_place(&self) -> Place {
        self.visible_place_under(&epoch::pin())
    }

    /// The same, for who holds a guard.
    pub(super) fn visible_place_under(&self, guard: &Guard) -> Place {
        match self.options.durability {
            Durability::Buffered if !self.chain.is_poisoned() => self.chain.begin(guard).place(),
            _ => self.chain.durable_place_under(guard),
        }
    }

    /// The watermark: the oldest revision that is answered, unless a rule of retention says otherwise; 0
    /// if nothing was ever compacted.
    pub(super) fn compacted(&self) -> u64 {
        self.visible_place().compacted
    }

    /// The watermark is above the last revision.
    pub(super) fn watermark_above(&self, compacted: u64, revision: u64) -> Error {
        let expected = format!("revision {compacted} or later");
        let found = format!("revision {revision}");
        let file = self.path.join(annals_format::name::CURRENT);
        Error::corrupt(file, 0, "watermark of compactions", expected, found)
    }

    /// Fails once the store has been closed.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(ErrorKind::Closed.into()) } else { Ok(()) }
    }

    /// Fails where nothing can be written: closed, read-only, or after a failure.
    pub(super) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.read_only {
            return Err(ErrorKind::ReadOnly.into());
        }
        match self.failed.get() {
            Some(cause) => Err(ErrorKind::Poisoned { cause: Arc::clone(cause) }.into()),
            None => Ok(()),
        }
    }

    /// As [`Core::check_writable`], also after a failure of the log. For what writes files: what is in
    /// memory will not become durable any more, so this changes nothing, and is refused as such.
    pub(super) fn check_writing(&self) -> Result<()> {
        if let Some(cause) = self.chain.poison() {
            self.fail(&cause);
        }
        self.check_writable()
    }

    /// Ends writing: background work has failed, so memory could not be given back any more. What
    /// is ordered still becomes durable, and reads go on.
    pub(super) fn fail(&self, error: &Error) {
        let cause = match error.kind() {
            // Background work that was refused because of a failure is not another one.
            ErrorKind::Poisoned { cause } => Arc::clone(cause),
            _ => Arc::new(error.clone()),
        };
        if self.failed.set(Arc::clone(&cause)).is_ok() {
            observe::poisoned(&self.path, &cause);
        }
        self.wake_flushed();
        // Whoever follows is to say so once everything ordered has been told.
        self.shared.visible_moved();
    }

    /// Wakes everybody who waits for a flush.
    pub(super) fn wake_flushed(&self) {
        drop(lock(&self.flushed_lock));
        self.flushed.notify_all();
    }
}

/// Handles are printed by those who hold them: nothing that is stored, and nothing long.
impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("path", &self.path).finish_non_exhaustive()
    }
}
