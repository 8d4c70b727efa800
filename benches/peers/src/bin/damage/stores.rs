//! The stores, each as plainly as its own documentation shows: written in one transaction, closed; opened, read.

use std::path::Path;

use annals::put;
use heed::types::Bytes;
use heed::{CommitOrAbort, EnvOpenOptions};
use redb::{Database, ReadableDatabase, TableDefinition};
use rusqlite::Connection;

use crate::Result;

/// Keys and values.
type Pairs = [(Vec<u8>, Vec<u8>)];
/// What getting every key gave, and what a scan of all gave.
type Found = (Vec<Option<Vec<u8>>>, Vec<(Vec<u8>, Vec<u8>)>);

pub struct Store {
    pub name: &'static str,
    /// What its own documentation promises of damage that a read meets.
    pub scope: &'static str,
    pub write: fn(&Path, &Pairs) -> Result<()>,
    pub read: fn(&Path, &Pairs) -> Result<Found>,
}

pub const ALL: &[Store] = &[
    Store { name: "annals", scope: "yes, each", write: write_annals, read: read_annals },
    Store {
        name: "redb",
        scope: "no: in repair and check_integrity",
        write: write_redb,
        read: read_redb,
    },
    Store {
        name: "fjall",
        scope: "yes, of blocks and journal",
        write: write_fjall,
        read: read_fjall,
    },
    Store { name: "LMDB", scope: "it has none", write: write_lmdb, read: read_lmdb },
    Store {
        name: "SQLite",
        scope: "of its WAL alone; the pages have none by default",
        write: write_sqlite,
        read: read_sqlite,
    },
];

fn write_annals(dir: &Path, pairs: &Pairs) -> Result<()> {
    let store = annals::Store::open(dir.join("annals"))?;
    for chunk in pairs.chunks(100) {
        store.txn().then(chunk.iter().map(|(key, value)| put(key, value))).commit()?;
    }
    store.reorganise()?;
    Ok(store.close()?)
}

fn read_annals(dir: &Path, pairs: &Pairs) -> Result<Found> {
    let store = annals::Store::open(dir.join("annals"))?;
    let mut got = Vec::new();
    for (key, _) in pairs {
        got.push(store.get(key)?.map(|kv| kv.value.to_vec()));
    }
    let mut scanned = Vec::new();
    for kv in store.latest()?.range(..) {
        let kv = kv?;
        scanned.push((kv.key.to_vec(), kv.value.to_vec()));
    }
    store.close()?;
    Ok((got, scanned))
}

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("data");

fn write_redb(dir: &Path, pairs: &Pairs) -> Result<()> {
    let db = Database::create(dir.join("redb"))?;
    let txn = db.begin_write()?;
    let mut table = txn.open_table(TABLE)?;
    for (key, value) in pairs {
        table.insert(key.as_slice(), value.as_slice())?;
    }
    drop(table);
    Ok(txn.commit()?)
}

fn read_redb(dir: &Path, pairs: &Pairs) -> Result<Found> {
    let db = Database::open(dir.join("redb"))?;
    let txn = db.begin_read()?;
    let table = txn.open_table(TABLE)?;
    let mut got = Vec::new();
    for (key, _) in pairs {
        got.push(table.get(key.as_slice())?.map(|value| value.value().to_vec()));
    }
    let mut scanned = Vec::new();
    for pair in table.range::<&[u8]>(..)? {
        let (key, value) = pair?;
        scanned.push((key.value().to_vec(), value.value().to_vec()));
    }
    Ok((got, scanned))
}

fn write_fjall(dir: &Path, pairs: &Pairs) -> Result<()> {
    let db = fjall::SingleWriterTxDatabase::builder(dir.join("fjall")).open()?;
    let data = db.keyspace("data", fjall::KeyspaceCreateOptions::default)?;
    let mut txn = db.write_tx();
    for (key, value) in pairs {
        txn.insert(&data, key.as_slice(), value.as_slice());
    }
    txn.commit()?;
    data.inner().rotate_memtable_and_wait()?;
    Ok(db.persist(fjall::PersistMode::SyncAll)?)
}

fn read_fjall(dir: &Path, pairs: &Pairs) -> Result<Found> {
    use fjall::Readable as _;
    let db = fjall::SingleWriterTxDatabase::builder(dir.join("fjall")).open()?;
    let data = db.keyspace("data", fjall::KeyspaceCreateOptions::default)?;
    let mut got = Vec::new();
    for (key, _) in pairs {
        got.push(data.inner().get(key)?.map(|value| value.to_vec()));
    }
    let mut scanned = Vec::new();
    for item in db.read_tx().range::<&[u8], _>(data.inner(), ..) {
        let (key, value) = item.into_inner()?;
        scanned.push((key.to_vec(), value.to_vec()));
    }
    Ok((got, scanned))
}

fn lmdb(dir: &Path) -> Result<(heed::Env, heed::Database<'static, Bytes, Bytes>)> {
    let dir = dir.join("lmdb");
    std::fs::create_dir_all(&dir)?;
    let mut options = EnvOpenOptions::new();
    options.map_size(64 << 20).max_dbs(1);
    // SAFETY: nobody else opens or changes the directory while it is open.
    let env = unsafe { options.open(dir)? };
    let txn = env.write_txn()?;
    let opened = env.create_databases_and_commit(txn, |open, txn| {
        let data = open.create_database::<Bytes, Bytes>(txn, Some("data"))?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(data))
    })?;
    let data = opened.commit().ok_or("the database was not made")?;
    Ok((env, data))
}

fn write_lmdb(dir: &Path, pairs: &Pairs) -> Result<()> {
    let (env, data) = lmdb(dir)?;
    let mut txn = env.write_txn()?;
    for (key, value) in pairs {
        data.put(&mut txn, key, value)?;
    }
    txn.commit()?;
    env.force_sync()?;
    env.prepare_for_closing().wait();
    Ok(())
}

fn read_lmdb(dir: &Path, pairs: &Pairs) -> Result<Found> {
    let (env, data) = lmdb(dir)?;
    let txn = env.read_txn()?;
    let mut got = Vec::new();
    for (key, _) in pairs {
        got.push(data.get(&txn, key)?.map(<[u8]>::to_vec));
    }
    let mut scanned = Vec::new();
    for pair in data.iter(&txn)? {
        let (key, value) = pair?;
        scanned.push((key.to_vec(), value.to_vec()));
    }
    Ok((got, scanned))
}

fn sqlite(dir: &Path) -> Result<Connection> {
    let db = Connection::open(dir.join("sqlite.db"))?;
    db.execute_batch("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;")?;
    Ok(db)
}

fn write_sqlite(dir: &Path, pairs: &Pairs) -> Result<()> {
    let db = sqlite(dir)?;
    db.execute_batch("CREATE TABLE data (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID; BEGIN;")?;
    for (key, value) in pairs {
        db.prepare_cached("INSERT INTO data VALUES (?1, ?2)")?.execute((key, value))?;
    }
    db.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE);")?;
    db.close().map_err(|(_, error)| error)?;
    Ok(())
}

fn read_sqlite(dir: &Path, pairs: &Pairs) -> Result<Found> {
    let db = sqlite(dir)?;
    let mut got = Vec::new();
    for (key, _) in pairs {
        let mut statement = db.prepare_cached("SELECT value FROM data WHERE key = ?1")?;
        let mut rows = statement.query([key])?;
        got.push(rows.next()?.map(|row| row.get(0)).transpose()?);
    }
    let mut scanned = Vec::new();
    let mut statement = db.prepare("SELECT key, value FROM data ORDER BY key")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        scanned.push((row.get(0)?, row.get(1)?));
    }
    Ok((got, scanned))
}
