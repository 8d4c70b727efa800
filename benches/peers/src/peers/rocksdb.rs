//! RocksDB: an LSM tree of column families, LZ4 above and zstd at the bottom, Bloom filters. Built with the feature
//! `rocksdb` alone: its build takes a quarter of an hour and libclang.
//!
//! Writers take a mutex, which keeps the revisions in order.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, ColumnFamily, ColumnFamilyDescriptor,
    CompactOptions, DBAccess, DBCompressionType, DBRawIteratorWithThreadMode,
    OptimisticTransactionDB, OptimisticTransactionOptions, Options, ReadOptions,
    SnapshotWithThreadMode, Transaction, WriteOptions,
};

use crate::peer::{Level, Result};
use crate::recipe::{Ordered, Read, Space, Step, Write};

type Db = OptimisticTransactionDB;

pub struct Rocks {
    db: Db,
    writer: Mutex<()>,
    sync: bool,
}

/// What is read, and in which store.
struct View<'a, T> {
    of: T,
    store: &'a Rocks,
}

impl Rocks {
    fn family(&self, space: Space) -> Result<&ColumnFamily> {
        let name = if space == Space::Data { "data" } else { "feed" };
        self.db.cf_handle(name).ok_or_else(|| format!("there is no {name}").into())
    }

    fn alone(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn below(bound: &[u8]) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_iterate_upper_bound(bound);
    options
}

fn walk<D: DBAccess>(
    mut iterator: DBRawIteratorWithThreadMode<'_, D>,
    from: &[u8],
    step: Step<'_>,
) -> Result<()> {
    iterator.seek(from);
    while let Some((key, value)) = iterator.item() {
        if !step(key, value) {
            return Ok(());
        }
        iterator.next();
    }
    Ok(iterator.status()?)
}

fn last<D: DBAccess>(mut iterator: DBRawIteratorWithThreadMode<'_, D>) -> Result<Option<Vec<u8>>> {
    iterator.seek_to_last();
    iterator.status()?;
    Ok(iterator.key().map(<[u8]>::to_vec))
}

impl Read for View<'_, SnapshotWithThreadMode<'_, Db>> {
    fn range(&self, space: Space, from: &[u8], end: &[u8], step: Step<'_>) -> Result<()> {
        let family = self.store.family(space)?;
        walk(self.of.raw_iterator_cf_opt(family, below(end)), from, step)
    }

    fn last_feed(&self) -> Result<Option<Vec<u8>>> {
        last(self.of.raw_iterator_cf(self.store.family(Space::Feed)?))
    }
}

impl Read for View<'_, Transaction<'_, Db>> {
    fn range(&self, space: Space, from: &[u8], end: &[u8], step: Step<'_>) -> Result<()> {
        let family = self.store.family(space)?;
        walk(self.of.raw_iterator_cf_opt(family, below(end)), from, step)
    }

    fn last_feed(&self) -> Result<Option<Vec<u8>>> {
        last(self.of.raw_iterator_cf(self.store.family(Space::Feed)?))
    }
}

impl Write for View<'_, Transaction<'_, Db>> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.of.put_cf(self.store.family(space)?, key, value)?)
    }

    fn delete(&mut self, space: Space, key: &[u8]) -> Result<()> {
        Ok(self.of.delete_cf(self.store.family(space)?, key)?)
    }
}

impl Ordered for Rocks {
    fn open(dir: &Path, level: Level) -> Result<Self> {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(512 << 20));
        blocks.set_block_size(16 << 10);
        blocks.set_bloom_filter(10.0, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_block_based_table_factory(&blocks);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_bottommost_compression_type(DBCompressionType::Zstd);
        let families =
            ["data", "feed"].map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
        let db = Db::open_cf_descriptors(&options, dir, families)?;
        Ok(Self { db, writer: Mutex::new(()), sync: level == Level::Sync })
    }

    fn write<R>(
        &self,
        work: impl FnOnce(&mut dyn Write) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let _alone = self.alone();
        let mut options = WriteOptions::default();
        options.set_sync(self.sync);
        let of = self.db.transaction_opt(&options, &OptimisticTransactionOptions::default());
        let mut view = View { of, store: self };
        let answer = work(&mut view)?;
        if answer.is_some() {
            view.of.commit()?;
        } else {
            view.of.rollback()?;
        }
        Ok(answer)
    }

    fn read<R>(&self, work: impl FnOnce(&dyn Read) -> Result<R>) -> Result<R> {
        work(&View { of: self.db.snapshot(), store: self })
    }

    fn settle(&mut self) -> Result<()> {
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        for space in [Space::Data, Space::Feed] {
            let family = self.family(space)?;
            self.db.flush_cf(family)?;
            self.db.compact_range_cf_opt(family, None::<&[u8]>, None::<&[u8]>, &options);
        }
        Ok(())
    }

    fn close(self) -> Result<()> {
        for space in [Space::Data, Space::Feed] {
            self.db.flush_cf(self.family(space)?)?;
        }
        Ok(())
    }
}
