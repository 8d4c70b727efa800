//! What every segment of a store needs to know of the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_format::group::Favour;
use annals_format::{FileKind, Place, StoreId};

use super::cache::BlockCache;
use super::handles::Handles;
use crate::error::{Error, Result};
use crate::observe;
use crate::options::{HistoryCodec, Options, ReadMode};
use crate::sync::plain::{AtomicU64, OnceLock, Ordering};
use crate::vfs::Vfs;

/// A block of groups is this many times smaller than others before compression: it is read in place,
/// so all that a larger one saves is its place in the index.
const GROUP_BLOCKS: u64 = 4;

/// The store that segments belong to. Cloning is cheap and shares the cache and the
/// descriptors.
#[derive(Clone, Debug)]
pub(crate) struct SegmentContext {
    pub(super) vfs: Arc<dyn Vfs>,
    pub(super) dir: PathBuf,
    pub(super) store: StoreId,
    /// Shared, as it goes up once it is known that the store was not closed.
    pub(super) incarnation: Arc<AtomicU64>,
    /// The first error because of which something of a file of newest versions could not be read.
    pub(super) unreadable: Arc<OnceLock<Error>>,
    pub(super) cache: BlockCache,
    pub(super) handles: Handles,
    pub(super) read_mode: ReadMode,
    /// Raw size at which a block of L0 and HEAD is ended.
    pub(super) block_bytes: usize,
    /// Raw size at which a block of HISTORY and EVENTS is ended.
    pub(super) history_block_bytes: usize,
    /// Stored size at which a block of groups is ended, where it holds more than one.
    pub(super) group_block_bytes: usize,
    /// What groups of HISTORY spare; `None` = it has no groups.
    pub(super) favour: Option<Favour>,
    /// The zstd level of HISTORY and EVENTS.
    pub(super) level: i32,
    /// Values at least so long go to a blob file.
    pub(crate) blob_value_bytes: u64,
    /// The size at which a blob file is cut, whatever file refers to it.
    pub(crate) blob_file_bytes: u64,
}

impl SegmentContext {
    /// The context of the store in `dir`, whose new files are of this incarnation; with a cache of its own.
    pub(crate) fn new(dir: &Path, store: StoreId, incarnation: u64, options: &Options) -> Self {
        // All three sizes are below 4 GiB by their range.
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            vfs: Arc::clone(&options.vfs),
            dir: dir.to_path_buf(),
            store,
            incarnation: Arc::new(AtomicU64::new(incarnation)),
            unreadable: Arc::default(),
            cache: BlockCache::new(options.cache_bytes),
            handles: Handles::new(),
            read_mode: options.read_mode,
            block_bytes: size(options.block_bytes),
            history_block_bytes: size(options.history_block_bytes),
            group_block_bytes: size(options.history_block_bytes / GROUP_BLOCKS),
            favour: match options.history_codec {
                HistoryCodec::ZstdBlocks => None,
                HistoryCodec::Raw => Some(Favour::Raw),
                HistoryCodec::Fast => Some(Favour::Fast),
                HistoryCodec::Small => Some(Favour::Small),
            },
            level: options.zstd_level(),
            blob_value_bytes: options.blob_value_bytes,
            blob_file_bytes: options.segment_bytes,
        }
    }

    /// The incarnation that new files are of.
    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation.load(Ordering::Relaxed)
    }

    /// What is made from now on is of another incarnation of the store.
    pub(crate) fn set_incarnation(&self, incarnation: u64) {
        self.incarnation.store(incarnation, Ordering::Relaxed);
    }

    /// Whether something of a file of newest versions could not be read. What made up for it may be all that is left.
    pub(crate) fn has_unreadable(&self) -> bool {
        self.unreadable().is_some()
    }

    /// Why something of a file of newest versions could not be read, where that is so.
    pub(crate) fn unreadable(&self) -> Option<&Error> {
        self.unreadable.get()
    }

    /// What is to be set where a file of this kind cannot be read.
    pub(super) fn unreadable_of(&self, kind: FileKind) -> Option<Arc<OnceLock<Error>>> {
        let newest = matches!(kind, FileKind::L0 | FileKind::Head | FileKind::Blob);
        newest.then(|| Arc::clone(&self.unreadable))
    }

    /// Notes that a file of this kind is damaged.
    pub(crate) fn note(&self, kind: FileKind, error: &Error) {
        note(self.unreadable_of(kind).as_deref(), error);
    }

    /// The cache of decoded blocks.
    pub(crate) fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// The path of a segment file.
    pub(crate) fn path(&self, kind: FileKind, number: u64) -> PathBuf {
        self.dir.join(annals_format::name::FileName::new(kind, number).to_string())
    }

    /// Removes a segment file that no manifest lists any more. Who has it open keeps reading it; one
    /// that is gone already is fine.
    pub(crate) fn remove(&self, kind: FileKind, number: u64) -> Result<()> {
        let path = self.path(kind, number);
        let removed = self.vfs.remove_if_there(&path);
        removed.map_err(|error| Error::io("remove a segment", &path, error))
    }

    /// Makes the names of segment files durable.
    pub(crate) fn sync_dir(&self) -> Result<()> {
        let dir = self.dir.join(annals_format::name::SEGMENT_DIR);
        self.vfs.sync_dir(&dir).map_err(|error| Error::io("sync directory", &dir, error))
    }

    pub(super) fn place(&self, kind: FileKind, number: u64) -> Place {
        Place::start_of(self.store, kind, number)
    }
}

/// From now on what else the store has is needed. An error of the system that says nothing of the file changes nothing.
pub(super) fn note(unreadable: Option<&OnceLock<Error>>, error: &Error) {
    if let Some(unreadable) = unreadable.filter(|_| error.is_damage())
        && unreadable.set(error.clone()).is_ok()
    {
        observe::damaged(error);
    }
}
