//! `SQLite` with kine's table: the row id is the revision, `old_value` is kept, an index on name and
//! id. WAL mode; durable with `synchronous=FULL`, else `NORMAL`. One writing connection under a
//! mutex, a pool of reading ones.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension, params};

use crate::peer::{Cas, Level, Peer, Result, Visit, VisitKey};

#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    level: Level,
    writer: Mutex<Connection>,
    readers: Mutex<Vec<Connection>>,
}

/// The table and indexes of kine, less what only its server needs.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS kine (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, created INTEGER, deleted INTEGER,
    create_revision INTEGER, prev_revision INTEGER, lease INTEGER, value BLOB, old_value BLOB);
CREATE UNIQUE INDEX IF NOT EXISTS kine_name_id ON kine (name, id);
CREATE UNIQUE INDEX IF NOT EXISTS kine_name_prev ON kine (name, prev_revision);";

const NEWEST: &str =
    "SELECT id, create_revision, value FROM kine WHERE name = ?1 ORDER BY id DESC LIMIT 1";
const INSERT: &str = "INSERT INTO kine
    (id, name, created, deleted, create_revision, prev_revision, lease, value, old_value)
    VALUES (?1, ?2, ?3, 0, ?4, ?5, 0, ?6, ?7)";
const GET: &str =
    "SELECT id, value FROM kine WHERE name = ?1 AND id <= ?2 ORDER BY id DESC LIMIT 1";
const LIST: &str = "SELECT kine.name, kine.id, kine.value FROM kine JOIN
    (SELECT MAX(id) AS id FROM kine WHERE name >= ?1 AND name < ?2 AND id <= ?3
     GROUP BY name ORDER BY name LIMIT ?4) AS newest ON newest.id = kine.id
    WHERE kine.deleted = 0 ORDER BY kine.name";

/// What changed, as kine polls for it.
const SINCE: &str = "SELECT id, name, value FROM kine WHERE id >= ?1 ORDER BY id LIMIT ?2";
/// Kine's compaction: what the rows up to a revision superseded, and the deletions among them.
const FORGET: &str = "DELETE FROM kine WHERE id IN (
    SELECT prev_revision FROM kine WHERE prev_revision != 0 AND id > ?1 AND id <= ?2
    UNION SELECT id FROM kine WHERE deleted != 0 AND id > ?1 AND id <= ?2)";

pub fn open(dir: &Path, level: Level) -> Result<Box<dyn Peer>> {
    let path = dir.join("sqlite.db");
    let writer = connect(&path, level)?;
    writer.execute_batch(SCHEMA)?;
    // The row id is the revision, and a fresh store is at revision 1.
    writer.execute("INSERT OR IGNORE INTO kine (id, name) VALUES (1, 'compact_rev_key')", [])?;
    Ok(Box::new(Sqlite { path, level, writer: Mutex::new(writer), readers: Mutex::default() }))
}

fn connect(path: &Path, level: Level) -> Result<Connection> {
    let connection = Connection::open(path)?;
    let synchronous = if level == Level::Sync { "FULL" } else { "NORMAL" };
    connection.execute_batch(&format!(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous={synchronous}; PRAGMA cache_size=-65536;
         PRAGMA mmap_size=8589934592; PRAGMA temp_store=MEMORY;"
    ))?;
    connection.set_prepared_statement_cache_capacity(16);
    Ok(connection)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text(key: &[u8]) -> Result<&str> {
    Ok(std::str::from_utf8(key)?)
}

/// A revision as `SQLite` keeps it.
fn id(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

fn revision(id: i64) -> u64 {
    u64::try_from(id).unwrap_or(0)
}

/// Puts if `seen` is `None` or the newest revision; runs inside a transaction.
fn put(
    connection: &Connection,
    key: &[u8],
    seen: Option<u64>,
    value: &[u8],
) -> Result<Option<u64>> {
    let name = text(key)?;
    let newest: Option<(i64, i64, Vec<u8>)> = connection
        .prepare_cached(NEWEST)?
        .query_row([name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let previous = newest.as_ref().map_or(0, |newest| newest.0);
    if seen.is_some_and(|seen| id(seen) != previous) {
        return Ok(None);
    }
    let last: i64 =
        connection.prepare_cached("SELECT MAX(id) FROM kine")?.query_row([], |row| row.get(0))?;
    let next = last + 1;
    let create = newest.as_ref().map_or(next, |newest| newest.1);
    let old = newest.map(|newest| newest.2);
    connection.prepare_cached(INSERT)?.execute(params![
        next,
        name,
        i64::from(old.is_none()),
        create,
        previous,
        value,
        old
    ])?;
    Ok(Some(revision(next)))
}

impl Sqlite {
    fn write<R>(&self, work: impl FnOnce(&Connection) -> Result<R>) -> Result<R> {
        let connection = lock(&self.writer);
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let answer = work(&connection)?;
        connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(answer)
    }

    fn read<R>(&self, work: impl FnOnce(&Connection) -> Result<R>) -> Result<R> {
        let pooled = lock(&self.readers).pop();
        let connection = match pooled {
            Some(connection) => connection,
            None => connect(&self.path, self.level)?,
        };
        let answer = work(&connection);
        lock(&self.readers).push(connection);
        answer
    }
}

impl Peer for Sqlite {
    fn load(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<u64> {
        self.write(|connection| {
            let mut last = 1;
            for (key, value) in pairs {
                last = put(connection, key, None, value)?.unwrap_or(last);
            }
            Ok(last)
        })
    }

    fn cas(&self, cas: Cas<'_>) -> Result<Option<u64>> {
        self.write(|connection| put(connection, cas.key, cas.seen, cas.value))
    }

    fn cas_window(&self, window: &[Cas<'_>]) -> Result<Vec<Option<u64>>> {
        self.write(|connection| {
            window.iter().map(|cas| put(connection, cas.key, cas.seen, cas.value)).collect()
        })
    }

    fn get(&self, key: &[u8], at: Option<u64>, visit: Visit<'_>) -> Result<bool> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(GET)?;
            let mut rows = statement.query(params![text(key)?, id(at.unwrap_or(u64::MAX))])?;
            let Some(row) = rows.next()? else { return Ok(false) };
            visit(revision(row.get(0)?), row.get_ref(1)?.as_blob()?);
            Ok(true)
        })
    }

    fn scan(
        &self,
        from: &[u8],
        below: &[u8],
        limit: usize,
        at: Option<u64>,
        visit: VisitKey<'_>,
    ) -> Result<usize> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(LIST)?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let at = id(at.unwrap_or(u64::MAX));
            let mut rows = statement.query(params![text(from)?, text(below)?, at, limit])?;
            let mut count = 0;
            while let Some(row) = rows.next()? {
                let name = row.get_ref(0)?.as_bytes()?;
                visit(name, revision(row.get(1)?), row.get_ref(2)?.as_blob()?);
                count += 1;
            }
            Ok(count)
        })
    }

    fn replay(&self, from: u64, limit: usize, visit: VisitKey<'_>) -> Result<Option<usize>> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(SINCE)?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let mut rows = statement.query(params![id(from), limit])?;
            let mut told = 0;
            while let Some(row) = rows.next()? {
                let name = row.get_ref(1)?.as_bytes()?;
                visit(name, revision(row.get(0)?), row.get_ref(2)?.as_blob()?);
                told += 1;
            }
            Ok(Some(told))
        })
    }

    /// As kine, which keeps how far it has come in a row of its own.
    fn forget(&self, upto: u64, batch: usize) -> Result<Option<bool>> {
        self.write(|connection| {
            let done: Option<i64> = connection
                .prepare_cached("SELECT prev_revision FROM kine WHERE id = 1")?
                .query_row([], |row| row.get(0))?;
            let (done, upto) = (done.unwrap_or(0), id(upto));
            let next = upto.min(done + i64::try_from(batch)?);
            if next <= done {
                return Ok(Some(false));
            }
            connection.prepare_cached(FORGET)?.execute([done, next])?;
            connection
                .prepare_cached("UPDATE kine SET prev_revision = ?1 WHERE id = 1")?
                .execute([next])?;
            Ok(Some(next < upto))
        })
    }

    fn settle(&mut self) -> Result<()> {
        lock(&self.readers).clear();
        let connection = lock(&self.writer);
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); VACUUM;")?;
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); ANALYZE;")?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        lock(&self.readers).clear();
        let writer = self.writer.into_inner().unwrap_or_else(PoisonError::into_inner);
        writer.close().map_err(|(_, error)| error)?;
        Ok(())
    }
}
