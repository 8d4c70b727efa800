//! Figures about an open store, gathered when they are asked for.

use std::path::Path;

use annals_format::FileKind;

use crate::observe;
use crate::sync::plain::{AtomicU64, lock};
use crate::sync::{Arc, Ordering};

use super::core::Core;
use super::latency::{Durations, Latency};
use super::shares::Shares;
use super::tables::SealedFile;

/// What has been done since the store was opened.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) conflicts: AtomicU64,
    pub(super) delays: AtomicU64,
    pub(super) delay_micros: AtomicU64,
    pub(super) waits: AtomicU64,
    pub(super) wait_micros: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) folds: AtomicU64,
    pub(super) merges: AtomicU64,
    pub(super) manifests: AtomicU64,
    pub(super) dropped_files: AtomicU64,
    pub(super) background_bytes: AtomicU64,
    pub(super) background_pauses: AtomicU64,
    pub(super) background_pause_micros: AtomicU64,
    pub(super) batches: AtomicU64,
    pub(super) batch_frames: AtomicU64,
    pub(super) batch_bytes: AtomicU64,
    pub(super) commit_durations: Durations,
    pub(super) sync_durations: Durations,
}

/// Figures about an open store. What counts events counts them since the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// The newest visible revision.
    pub revision: u64,
    /// The newest durable revision.
    pub durable_revision: u64,
    /// The watermark of compaction; 0 if the store was never compacted.
    pub compacted_revision: u64,
    /// Counts the opens that followed no clean close, from 1.
    pub incarnation: u64,
    /// Views and iterators that hold on to a revision.
    pub pinned: u64,
    /// The oldest revision they hold on to.
    pub oldest_pinned: Option<u64>,
    /// Memtable generations, the one that takes the writes included.
    pub generations: u64,
    /// Their memory, in bytes.
    pub memtable_bytes: u64,
    /// The part of it that waits to be flushed to files: that of all generations but the one that
    /// takes the writes.
    pub flush_backlog_bytes: u64,
    /// Files of flushed generations, or of several that were merged, which wait to be folded.
    pub l0: FileStats,
    /// The newest versions.
    pub head: FileStats,
    /// The superseded versions.
    pub history: FileStats,
    /// The windows they are divided into, of all classes of keys together.
    pub history_windows: u64,
    /// What changed, by revision.
    pub events: FileStats,
    /// Large values of newest versions ([`blob_value_bytes`](crate::Options::blob_value_bytes)).
    pub blobs: FileStats,
    /// Bytes of the files that hold the newest version of a key which is alive.
    ///
    /// These four add up to the length of all files but the log. How a file is divided is an estimate
    /// from what its ends say, without a look into its blocks: tombstones are taken to be as long as
    /// its other entries without their values, revisions are taken to be equally large. A newest version that was superseded since by a flush
    /// counts as alive until the next fold.
    pub live_bytes: u64,
    /// Bytes that hold what only reads of the past can ask for: superseded versions and tombstones.
    pub history_bytes: u64,
    /// Bytes that hold what changed, for [`Store::log`](crate::Store::log).
    pub event_bytes: u64,
    /// Bytes that hold what nobody can ask for any more, below the watermark and all pinned
    /// revisions. Background work gives them back, [`Store::compact`](crate::Store::compact) says
    /// when. Where rules of retention differ, that of the keys kept longest decides: what others
    /// have given up before counts as history.
    pub dead_bytes: u64,
    /// Files of the write-ahead log.
    pub wal_files: u64,
    /// Their length as they were made, or where they ended, in bytes. The last one of a closed store
    /// is cut to what it holds: it takes less on disk.
    pub wal_bytes: u64,
    /// Decoded blocks in memory, in bytes.
    pub cache_bytes: u64,
    /// How many bytes of them there may be.
    pub cache_bytes_max: u64,
    /// Syncs of the log: it was written so many times, each with one sync.
    pub batches: u64,
    /// Transactions in them; see [`Stats::transactions_per_sync`].
    pub batch_transactions: u64,
    /// Bytes of the transactions in them, without headers and padding.
    pub batch_bytes: u64,
    /// How long such a write and its sync take, each of them.
    pub sync_latency: Latency,
    /// How long commits take that write a key, from the call to its answer. Of those that wait for a
    /// sync each one is measured, of the others one in 64. Tickets are left out, as it is their holder's
    /// choice when to wait for one.
    pub commit_latency: Latency,
    /// Transactions that were evaluated again inside their call, because something they depended on had
    /// changed. A comparison that fails is an answer, and is not counted.
    pub conflicts: u64,
    /// Commits that were slowed down, because memory was filled faster than it was flushed.
    pub delays: u64,
    /// For how long in all, in microseconds. One such pause is 50 ms at most, and normally far
    /// shorter.
    pub delay_micros: u64,
    /// Commits that found no room at all, in memory or in the log, and waited until a generation had been flushed, the
    /// log had been written, or its next file made.
    pub waits: u64,
    /// For how long in all, in microseconds.
    pub wait_micros: u64,
    /// Generations written to files.
    pub flushes: u64,
    /// Folds of L0 files into HEAD and HISTORY that were finished, however many steps each took.
    pub folds: u64,
    /// Merges of L0 files, of windows and of files of events, files written again for what is dead in them,
    /// and moves of values from one blob file to another.
    pub merges: u64,
    /// Files dropped whole by compaction.
    pub dropped_files: u64,
    /// Manifests stored.
    pub manifests: u64,
    /// Bytes that background work has written.
    pub background_bytes: u64,
    /// Pauses of background work that had written more than `background_bytes_per_sync` for each sync
    /// of the log.
    pub background_pauses: u64,
    /// For how long in all, in microseconds.
    pub background_pause_micros: u64,
    /// Watches that have not ended.
    pub watches: u64,
    /// Of these, how many have something due that they have not told: because they are not asked for it,
    /// or not as fast as the store is written, or because they began in the past.
    pub watches_behind: u64,
    /// The oldest revision that a watch has yet to look at; 0 if none is behind. A compaction above it
    /// ends that watch if the revision changes a key in its range.
    pub watch_oldest_revision: u64,
    /// Batches that watches have told.
    pub watch_batches: u64,
    /// Leases with a time: all of them, a moment after the store was opened for writing, and none where
    /// [`lease_expiry`](crate::Options::lease_expiry) is off.
    pub leases: u64,
    /// Leases whose time was over, and which were ended for that.
    pub leases_expired: u64,
    /// How often a lease was renewed by a call; guards renew theirs without one.
    pub lease_renewals: u64,
    /// How long the lease whose time has been over for longest has been waiting for its end, in
    /// microseconds; 0 if there is none.
    pub lease_overdue_micros: u64,
    /// Time until the next lease is looked at, in microseconds, if there are leases: none ends earlier. It may be
    /// one that is renewed then, or has been renewed since.
    pub lease_next_micros: Option<u64>,
    /// Why the store accepts no more writes, if that is so: background work or the log has failed.
    pub failure: Option<String>,
    /// Why flushes, folds, merges or the next file of the log wait, if that is so: there is no space on the disk, or no
    /// descriptor for another file. They are tried again by themselves.
    pub no_space: Option<String>,
    /// The first damage of newest versions that was met since the store was opened, if there was any, by whoever read
    /// them. Since then nothing is forgotten, whatever compactions and rules of retention say, until the store is opened
    /// anew: it may be all that makes up for them.
    pub damage: Option<String>,
    /// Files that background work has found damaged, and leaves as they are until the store is opened anew. Of one
    /// of newest versions nothing is folded any more: L0 files are only merged with each other.
    pub damaged_files: u64,
}

/// Sealed files of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct FileStats {
    /// How many.
    pub files: u64,
    /// Their length, in bytes.
    pub bytes: u64,
    /// Their entries: versions, or in files of events transactions.
    pub entries: u64,
    /// Bytes of the values in them before compression.
    pub value_bytes: u64,
}

impl Stats {
    /// Length of all files that the store knows: segments, and the log with its `wal_bytes`. What
    /// `annals stats` calls `disk_bytes` is the length of what lies in the directory: the manifest
    /// is in it, the last file of the log as it was cut by a close, and what is still to be removed.
    pub fn listed_bytes(&self) -> u64 {
        let segments = [self.l0, self.head, self.history, self.events, self.blobs];
        self.wal_bytes + segments.iter().map(|kind| kind.bytes).sum::<u64>()
    }

    /// Transactions that became durable with one sync of the log, on average; 0 if there was none.
    ///
    /// What is submitted before anybody waits shares a sync:
    ///
    /// ```
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let options = annals::Options::new().background(false);
    /// # let store = options.open(directory.path())?;
    /// let tickets = [1, 2, 3].map(|n| store.txn().then([annals::put("/a", [n])]).submit());
    /// for ticket in tickets {
    ///     ticket?.wait()?;
    /// }
    /// assert_eq!(store.stats().transactions_per_sync(), 3.0);
    /// # Ok::<(), annals::Error>(())
    /// ```
    #[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
    pub fn transactions_per_sync(&self) -> f64 {
        self.batch_transactions as f64 / self.batches.max(1) as f64
    }
}

impl Stats {
    /// Brings the gauges of the store in this directory up to date.
    pub(crate) fn show(&self, store: &Path) {
        let first_due = self.watch_oldest_revision;
        let lag = if first_due == 0 { 0 } else { (self.revision + 1).saturating_sub(first_due) };
        for (gauge, value) in [
            (observe::REVISION, self.revision),
            (observe::DURABLE_REVISION, self.durable_revision),
            (observe::MEMTABLE_BYTES, self.memtable_bytes),
            (observe::L0_BYTES, self.l0.bytes),
            (observe::HEAD_BYTES, self.head.bytes),
            (observe::HISTORY_BYTES, self.history.bytes),
            (observe::EVENTS_BYTES, self.events.bytes),
            (observe::BLOBS_BYTES, self.blobs.bytes),
            (observe::WAL_BYTES, self.wal_bytes),
            (observe::WATCHES, self.watches),
            (observe::WATCH_LAG, lag),
            (observe::LEASES, self.leases),
            (observe::PINNED_OLDEST, self.oldest_pinned.unwrap_or(0)),
            (observe::FAILED, u64::from(self.failure.is_some())),
            (observe::NO_SPACE, u64::from(self.no_space.is_some())),
            (observe::KEEPS_ALL, u64::from(self.damage.is_some())),
            (observe::DAMAGED_FILES, self.damaged_files),
        ] {
            observe::gauge(store, gauge, value);
        }
    }
}

impl FileStats {
    fn of<'a>(files: impl IntoIterator<Item = &'a Arc<SealedFile>>) -> Self {
        let mut stats = Self::default();
        for meta in files.into_iter().map(|file| file.meta()) {
            stats.files += 1;
            stats.bytes += meta.bytes;
            stats.entries += meta.entries;
            stats.value_bytes += meta.value_bytes;
            debug_assert!(meta.kind != FileKind::Wal, "sealed files are segments");
        }
        stats
    }
}

impl Core {
    /// The figures of now. Those of one moment need not fit together to the last digit.
    pub(super) fn stats(&self) -> Stats {
        let tables = self.shared.tables();
        let files = &tables.files;
        // Who follows and has seen everything pins what comes next.
        let (pinned, newest) = (self.pins.pinned(), self.visible().revision);
        let pinned: Vec<u64> = pinned.filter(|revision| *revision <= newest).collect();
        let keep = self.oldest_answered();
        let shares = files
            .all()
            .map(|file| Shares::of(file, files.referenced(file).all(), keep))
            .sum::<Shares>();
        let (incarnation, wal) = {
            let state = lock(&self.state);
            let wal = state.wal.as_ref().map_or(state.manifest.wal.clone(), |wal| wal.listed());
            (state.manifest.incarnation, wal)
        };
        let counters = &self.counters;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let cache = self.context.cache();
        Stats {
            revision: self.visible().revision,
            durable_revision: self.chain.durable().revision,
            compacted_revision: self.compacted(),
            incarnation,
            pinned: pinned.len() as u64,
            oldest_pinned: pinned.iter().min().copied(),
            generations: tables.generations.len() as u64,
            memtable_bytes: tables.generations.iter().map(|g| g.bytes_used() as u64).sum(),
            flush_backlog_bytes: tables.frozen().map(|g| g.bytes_used() as u64).sum(),
            l0: FileStats::of(&files.l0),
            head: FileStats::of(&files.head),
            history: FileStats::of(files.windows.iter().flat_map(|window| &window.files)),
            history_windows: files.windows.len() as u64,
            events: FileStats::of(&files.events),
            blobs: FileStats::of(&files.blobs),
            live_bytes: shares.live,
            history_bytes: shares.history,
            event_bytes: shares.events,
            dead_bytes: shares.dead,
            wal_files: wal.len() as u64,
            wal_bytes: wal.iter().map(|file| file.end.unwrap_or(file.file_bytes)).sum(),
            cache_bytes: cache.bytes(),
            cache_bytes_max: cache.bytes_max(),
            batches: count(&counters.batches),
            batch_transactions: count(&counters.batch_frames),
            batch_bytes: count(&counters.batch_bytes),
            sync_latency: counters.sync_durations.latency(),
            commit_latency: counters.commit_durations.latency(),
            conflicts: count(&counters.conflicts),
            delays: count(&counters.delays),
            delay_micros: count(&counters.delay_micros),
            waits: count(&counters.waits),
            wait_micros: count(&counters.wait_micros),
            flushes: count(&counters.flushes),
            folds: count(&counters.folds),
            merges: count(&counters.merges),
            dropped_files: count(&counters.dropped_files),
            manifests: count(&counters.manifests),
            background_bytes: count(&counters.background_bytes),
            background_pauses: count(&counters.background_pauses),
            background_pause_micros: count(&counters.background_pause_micros),
            // The rooms above add theirs.
            watches: 0,
            watches_behind: 0,
            watch_oldest_revision: 0,
            watch_batches: 0,
            leases: 0,
            leases_expired: 0,
            lease_renewals: 0,
            lease_overdue_micros: 0,
            lease_next_micros: None,
            failure: self
                .failed
                .get()
                .cloned()
                .or_else(|| self.chain.poison())
                .map(|e| e.to_string()),
            no_space: self.lacking().map(|error| error.to_string()),
            damage: self.context.unreadable().map(ToString::to_string),
            damaged_files: self.left_alone_files(),
        }
    }
}
