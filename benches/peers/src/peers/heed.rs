//! LMDB through heed; not durable with `MDB_NOSYNC`.

use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, RwTxn, WithTls};

use crate::peer::{Level, Result};
use crate::recipe::{Ordered, Read, Space, Step, Write};

type Map = Database<'static, Bytes, Bytes>;

#[derive(Debug)]
pub struct Lmdb {
    env: Env<WithTls>,
    data: Map,
    feed: Map,
}

/// A transaction with its two maps; `T` borrows as a read transaction.
struct Maps<T> {
    txn: T,
    data: Map,
    feed: Map,
}

impl<T> Maps<T> {
    fn map(&self, space: Space) -> Map {
        if space == Space::Data { self.data } else { self.feed }
    }
}

fn range(map: Map, txn: &RoTxn<'_>, from: &[u8], below: &[u8], step: Step<'_>) -> Result<()> {
    for pair in map.range(txn, &(Bound::Included(from), Bound::Excluded(below)))? {
        let (key, value) = pair?;
        if !step(key, value) {
            break;
        }
    }
    Ok(())
}

impl Read for Maps<RoTxn<'_, WithTls>> {
    fn range(&self, space: Space, from: &[u8], below: &[u8], step: Step<'_>) -> Result<()> {
        range(self.map(space), &self.txn, from, below, step)
    }

    fn last_feed(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.feed.last(&self.txn)?.map(|(key, _)| key.to_vec()))
    }
}

impl Read for Maps<RwTxn<'_>> {
    fn range(&self, space: Space, from: &[u8], below: &[u8], step: Step<'_>) -> Result<()> {
        range(self.map(space), &self.txn, from, below, step)
    }

    fn last_feed(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.feed.last(&self.txn)?.map(|(key, _)| key.to_vec()))
    }
}

impl Write for Maps<RwTxn<'_>> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<()> {
        self.map(space).put(&mut self.txn, key, value)?;
        Ok(())
    }

    fn delete(&mut self, space: Space, key: &[u8]) -> Result<()> {
        self.map(space).delete(&mut self.txn, key)?;
        Ok(())
    }
}

impl Ordered for Lmdb {
    fn open(dir: &Path, level: Level) -> Result<Self> {
        let mut options = EnvOpenOptions::new();
        options.map_size(16 << 30).max_dbs(2).max_readers(256);
        if level == Level::Buffered {
            // SAFETY: without syncs a power cut may spoil the file; the bench makes a new one.
            unsafe { options.flags(EnvFlags::NO_SYNC) };
        }
        // SAFETY: nobody else opens or changes the bench's own directory.
        let env = unsafe { options.open(dir)? };
        let txn = env.write_txn()?;
        let opened = env.create_databases_and_commit(txn, |open, txn| {
            let data = open.create_database::<Bytes, Bytes>(txn, Some("data"))?;
            let feed = open.create_database::<Bytes, Bytes>(txn, Some("feed"))?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit((data, feed)))
        })?;
        let (data, feed) = opened.commit().ok_or("the databases were not made")?;
        Ok(Self { env, data, feed })
    }

    fn write<R>(
        &self,
        work: impl FnOnce(&mut dyn Write) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let mut maps = Maps { txn: self.env.write_txn()?, data: self.data, feed: self.feed };
        let answer = work(&mut maps)?;
        if answer.is_some() {
            maps.txn.commit()?;
        } else {
            maps.txn.abort();
        }
        Ok(answer)
    }

    fn read<R>(&self, work: impl FnOnce(&dyn Read) -> Result<R>) -> Result<R> {
        work(&Maps { txn: self.env.read_txn()?, data: self.data, feed: self.feed })
    }

    fn settle(&mut self) -> Result<()> {
        self.env.force_sync()?;
        Ok(())
    }

    fn close(self) -> Result<()> {
        self.env.force_sync()?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}
