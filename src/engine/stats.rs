//! Figures about an open store.

use crate::sync::plain::AtomicU64;

/// What has been done since the store was opened.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) conflicts: AtomicU64,
    pub(super) waits: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) folds: AtomicU64,
    pub(super) merges: AtomicU64,
    pub(super) manifests: AtomicU64,
    pub(super) dropped_files: AtomicU64,
    pub(super) background_bytes: AtomicU64,
    pub(super) batches: AtomicU64,
    pub(super) batch_frames: AtomicU64,
    pub(super) log_bytes: AtomicU64,
}
