//! redb: a copy-on-write B-tree; not durable with `Durability::None`.

use std::path::Path;

use redb::{Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition};

use crate::peer::{Level, Result};
use crate::recipe::{Ordered, Read, Space, Step, Write};

const DATA: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("data");
const FEED: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("feed");

#[derive(Debug)]
pub struct Redb {
    db: Database,
    durability: Durability,
}

struct Tables<T> {
    data: T,
    feed: T,
}

impl<T: ReadableTable<&'static [u8], &'static [u8]>> Read for Tables<T> {
    fn range(&self, space: Space, from: &[u8], below: &[u8], step: Step<'_>) -> Result<()> {
        let table = if space == Space::Data { &self.data } else { &self.feed };
        for pair in table.range::<&[u8]>(from..below)? {
            let (key, value) = pair?;
            if !step(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }

    fn last_feed(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.feed.last()?.map(|(key, _)| key.value().to_vec()))
    }
}

impl Write for Tables<Table<'_, &'static [u8], &'static [u8]>> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<()> {
        let table = if space == Space::Data { &mut self.data } else { &mut self.feed };
        table.insert(key, value)?;
        Ok(())
    }

    fn delete(&mut self, space: Space, key: &[u8]) -> Result<()> {
        let table = if space == Space::Data { &mut self.data } else { &mut self.feed };
        table.remove(key)?;
        Ok(())
    }
}

impl Ordered for Redb {
    fn open(dir: &Path, level: Level) -> Result<Self> {
        let db = Database::builder().set_cache_size(512 << 20).create(dir.join("redb"))?;
        let txn = db.begin_write()?;
        txn.open_table(DATA)?;
        txn.open_table(FEED)?;
        txn.commit()?;
        let durability =
            if level == Level::Sync { Durability::Immediate } else { Durability::None };
        Ok(Self { db, durability })
    }

    fn write<R>(
        &self,
        work: impl FnOnce(&mut dyn Write) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(self.durability)?;
        let mut tables = Tables { data: txn.open_table(DATA)?, feed: txn.open_table(FEED)? };
        let answer = work(&mut tables)?;
        drop(tables);
        if answer.is_some() {
            txn.commit()?;
        } else {
            txn.abort()?;
        }
        Ok(answer)
    }

    fn read<R>(&self, work: impl FnOnce(&dyn Read) -> Result<R>) -> Result<R> {
        let txn = self.db.begin_read()?;
        work(&Tables { data: txn.open_table(DATA)?, feed: txn.open_table(FEED)? })
    }

    fn settle(&mut self) -> Result<()> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(Durability::Immediate)?;
        txn.commit()?;
        self.db.compact()?;
        Ok(())
    }

    fn close(self) -> Result<()> {
        let txn = self.db.begin_write()?;
        txn.commit()?;
        Ok(())
    }
}
