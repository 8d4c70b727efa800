//! fjall: an LSM tree with LZ4 blocks (its default), single-writer transactions.

use std::ops::Bound;
use std::path::Path;

use fjall::{
    KeyspaceCreateOptions, PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace,
    SingleWriterWriteTx, Snapshot,
};

use crate::peer::{Level, Result};
use crate::recipe::{Ordered, Read, Space, Step, Write};

pub struct Fjall {
    db: SingleWriterTxDatabase,
    data: SingleWriterTxKeyspace,
    feed: SingleWriterTxKeyspace,
    persist: PersistMode,
}

struct View<'a, T> {
    txn: T,
    store: &'a Fjall,
}

impl<T> View<'_, T> {
    fn keyspace(&self, space: Space) -> &SingleWriterTxKeyspace {
        if space == Space::Data { &self.store.data } else { &self.store.feed }
    }
}

fn range<T: Readable>(
    txn: &T,
    keyspace: &SingleWriterTxKeyspace,
    from: &[u8],
    below: &[u8],
    step: Step<'_>,
) -> Result<()> {
    let bounds = (Bound::Included(from), Bound::Excluded(below));
    for item in txn.range::<&[u8], _>(keyspace.inner(), bounds) {
        let (key, value) = item.into_inner()?;
        if !step(&key, &value) {
            break;
        }
    }
    Ok(())
}

fn last<T: Readable>(txn: &T, keyspace: &SingleWriterTxKeyspace) -> Result<Option<Vec<u8>>> {
    match txn.last_key_value(keyspace.inner()) {
        Some(item) => Ok(Some(item.key()?.to_vec())),
        None => Ok(None),
    }
}

impl Read for View<'_, Snapshot> {
    fn range(&self, space: Space, from: &[u8], below: &[u8], step: Step<'_>) -> Result<()> {
        range(&self.txn, self.keyspace(space), from, below, step)
    }

    fn last_feed(&self) -> Result<Option<Vec<u8>>> {
        last(&self.txn, &self.store.feed)
    }
}

impl Read for View<'_, SingleWriterWriteTx<'_>> {
    fn range(&self, space: Space, from: &[u8], below: &[u8], step: Step<'_>) -> Result<()> {
        range(&self.txn, self.keyspace(space), from, below, step)
    }

    fn last_feed(&self) -> Result<Option<Vec<u8>>> {
        last(&self.txn, &self.store.feed)
    }
}

impl Write for View<'_, SingleWriterWriteTx<'_>> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<()> {
        let keyspace = if space == Space::Data { &self.store.data } else { &self.store.feed };
        self.txn.insert(keyspace, key, value);
        Ok(())
    }

    fn delete(&mut self, space: Space, key: &[u8]) -> Result<()> {
        let keyspace = if space == Space::Data { &self.store.data } else { &self.store.feed };
        self.txn.remove(keyspace, key);
        Ok(())
    }
}

impl Ordered for Fjall {
    fn open(dir: &Path, level: Level) -> Result<Self> {
        let db = SingleWriterTxDatabase::builder(dir).cache_size(512 << 20).open()?;
        let data = db.keyspace("data", KeyspaceCreateOptions::default)?;
        let feed = db.keyspace("feed", KeyspaceCreateOptions::default)?;
        let persist =
            if level == Level::Sync { PersistMode::SyncData } else { PersistMode::Buffer };
        Ok(Self { db, data, feed, persist })
    }

    fn write<R>(
        &self,
        work: impl FnOnce(&mut dyn Write) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let txn = self.db.write_tx().durability(Some(self.persist));
        let mut view = View { txn, store: self };
        let answer = work(&mut view)?;
        if answer.is_some() {
            view.txn.commit()?;
        } else {
            view.txn.rollback();
        }
        Ok(answer)
    }

    fn read<R>(&self, work: impl FnOnce(&dyn Read) -> Result<R>) -> Result<R> {
        work(&View { txn: self.db.read_tx(), store: self })
    }

    fn settle(&mut self) -> Result<()> {
        for keyspace in [&self.data, &self.feed] {
            keyspace.inner().rotate_memtable_and_wait()?;
            keyspace.inner().major_compact()?;
        }
        self.db.persist(PersistMode::SyncAll)?;
        Ok(())
    }

    fn close(self) -> Result<()> {
        self.db.persist(PersistMode::SyncAll)?;
        Ok(())
    }
}
