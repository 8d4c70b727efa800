//! Decoded blocks, shared by all segments of a store and bounded in bytes.
//!
//! Only what has to be decoded or is read with `pread` comes here: compressed HISTORY and EVENTS
//! blocks, long frames of groups, and everything in a store opened without maps. Other blocks of
//! mapped files are read in place and need no cache. Files never
//! change and their numbers are never used again, so nothing is ever invalidated; what belongs to a
//! dropped file is evicted in time.

use std::fmt;

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// The cache of one store. Cloning is cheap and shares the content.
#[derive(Clone)]
pub(crate) struct BlockCache(Option<std::sync::Arc<Cache<Key, Bytes, ByBytes>>>);

/// File number and offset.
type Key = (u64, u64);

/// What an item costs beside its own bytes.
const OVERHEAD_BYTES: u64 = 128;
/// The expected size of a block, for the size of the cache's own tables.
const BLOCK_BYTES_TYPICAL: u64 = 16 << 10;

#[derive(Clone)]
struct ByBytes;

impl Weighter<Key, Bytes> for ByBytes {
    fn weight(&self, _: &Key, block: &Bytes) -> u64 {
        block.len() as u64 + OVERHEAD_BYTES
    }
}

impl BlockCache {
    /// A cache of this many bytes; with 0 nothing is kept.
    pub(crate) fn new(bytes: u64) -> Self {
        if bytes == 0 {
            return Self(None);
        }
        let items = usize::try_from(bytes / BLOCK_BYTES_TYPICAL).unwrap_or(usize::MAX).max(16);
        Self(Some(std::sync::Arc::new(Cache::with_weighter(items, bytes, ByBytes))))
    }

    /// The block at `offset` of file `number`, if it is here.
    pub(super) fn find(&self, number: u64, offset: u64) -> Option<Bytes> {
        self.0.as_ref()?.get(&(number, offset))
    }

    /// Keeps a block. One that is larger than the cache is not kept.
    pub(super) fn insert(&self, number: u64, offset: u64, block: &Bytes) {
        if let Some(cache) = &self.0 {
            cache.insert((number, offset), block.clone());
        }
    }

    /// Bytes held at present.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |cache| cache.weight())
    }

    /// The most it will hold.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.0.as_ref().map_or(0, |cache| cache.capacity())
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache")
            .field("bytes", &self.bytes())
            .field("bytes_max", &self.bytes_max())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_holds() {
        let cache = BlockCache::new(1 << 20);
        for offset in 0..1000 {
            cache.insert(1, offset, &Bytes::from(vec![0; 10_000]));
        }
        assert!(cache.bytes() <= 1 << 20, "{cache:?}");
        assert!(cache.find(1, 999).is_some());
        assert!(cache.find(2, 999).is_none());
    }

    #[test]
    fn no_budget_keeps_nothing() {
        let cache = BlockCache::new(0);
        cache.insert(1, 0, &Bytes::from_static(b"block"));
        assert_eq!(cache.find(1, 0), None);
        assert_eq!(cache.bytes_max(), 0);
    }
}
