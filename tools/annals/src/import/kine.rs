//! `import kine`: the table of a kine in `SQLite`, at the same revisions.
//!
//! A row is a revision, the one of its id: what `name` was set to, or that it was deleted. The row
//! `compact_rev_key` says what was compacted, and rows `gap-*` stand where an id was lost; these change no
//! key. Here every revision changes one, so what is missing is filled with puts of a key of its own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use annals::{Change, ChangeKind, KeyValue, Load, Loading, Origin, Transaction};
use bytes::Bytes;
use clap::Args;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row, params};
use serde_json::json;

use crate::args::Global;
use crate::at::At;
use crate::exit::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Progress;
use crate::target::Target;

/// The row whose `prev_revision` is what was compacted to.
const COMPACTED: &str = "compact_rev_key";

/// How the names of rows begin that stand for lost ids.
const GAP: &[u8] = b"gap-";

/// How many revisions that change no key are filled at most.
const FILLED_MAX: u64 = 10_000_000;

/// Arguments of `import kine`.
#[derive(Debug, Args)]
#[command(
    after_help = "FILE is the database of a kine that is not running, state.db of a k3s for example: with a file -wal
beside it, copy both.

The store is new, and has every revision that the file has. kine keeps no versions of keys, so
these count what is in the file, and begin with 2 where the first is not. It keeps no times: all
transactions get that of the file's last change, or --time. A key with a lease gets one of its
own, of as many seconds.

Rows that change no key (compact_rev_key, gap-*) and ids that are missing become puts of an empty
value of --gap-key, as every revision changes something here.

Examples:
  $ annals -C moved import kine state.db"
)]
pub(crate) struct KineArgs {
    /// The database.
    file: PathBuf,
    /// The time of all transactions, as RFC 3339.
    #[arg(long, value_name = "TIME")]
    time: Option<At>,
    /// The key that is put at revisions that change no other.
    #[arg(long, value_name = "KEY", default_value = "kine/gap")]
    gap_key: String,
}

/// A key that lives: the revision that made it, its version, its lease and the seconds of that.
#[derive(Clone, Copy, Debug)]
struct Living {
    create_revision: u64,
    version: u64,
    lease: i64,
    ttl: i64,
}

/// `import kine`: a store out of the table.
pub(super) fn import(global: &Global, args: &KineArgs, out: &mut Output) -> Outcome {
    let name = args.file.display().to_string();
    let io = |error| Failure::io(&*name, error);
    let changed = std::fs::metadata(&args.file).and_then(|meta| meta.modified()).map_err(io)?;
    let time = super::etcd::time(args.time, &args.file, changed)?;
    let sql = |error: rusqlite::Error| Failure::Other(format!("{name}: {error}"));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let table = Connection::open_with_flags(&args.file, flags).map_err(sql)?;
    // One moment, should somebody write after all.
    table.execute_batch("BEGIN").map_err(sql)?;
    let compacted = "SELECT COALESCE(MAX(prev_revision), 0) FROM kine WHERE name = ?1";
    let compacted: i64 =
        table.query_row(compacted, params![COMPACTED], |row| row.get(0)).map_err(sql)?;
    let compacted = u64::try_from(compacted).unwrap_or(0);
    // Before revision 2 there is nothing.
    let compacted = if compacted < 2 { 0 } else { compacted };
    let origin = Origin { time, ..Origin::default() };
    // Leases do not end before the store is in use.
    let options = super::options(global)?.lease_expiry(false);
    let mut import = Import {
        file: &args.file,
        gap_key: Bytes::copy_from_slice(args.gap_key.as_bytes()),
        time,
        compacted,
        living: HashMap::new(),
        transactions: 0,
        filled: 0,
        absent: 0,
    };
    import.without_gap_key(&table)?;
    let directory = global.data()?;
    let target = Target::new(directory);
    let mut make = || {
        let mut load = Load::create(directory, &options, compacted, &origin)?;
        import.base(&table, &mut load)?;
        let loading = import.rows(&table, load.begin()?)?;
        import.finish(loading, out)
    };
    make().map_err(|failure| target.failed(failure))
}

struct Import<'a> {
    file: &'a Path,
    gap_key: Bytes,
    time: i64,
    compacted: u64,
    living: HashMap<Bytes, Living>,
    transactions: u64,
    filled: u64,
    /// Deletions of keys that did not live.
    absent: u64,
}

impl Import<'_> {
    fn refused<T>(&self, what: impl std::fmt::Display) -> Outcome<T> {
        Err(Failure::Other(format!("{}: {what}", self.file.display())))
    }

    fn sql(&self, error: &rusqlite::Error) -> Failure {
        Failure::Other(format!("{}: {error}", self.file.display()))
    }

    /// Refuses a key for gaps that has a row.
    fn without_gap_key(&self, table: &Connection) -> Outcome {
        let query = "SELECT COUNT(*) FROM kine WHERE CAST(name AS BLOB) = ?1";
        let found: i64 = table
            .query_row(query, params![&self.gap_key[..]], |row| row.get(0))
            .map_err(|error| self.sql(&error))?;
        if found == 0 && !self.gap_key.is_empty() {
            return Ok(());
        }
        Err(Failure::Usage("--gap-key takes a key that is not in the file".into()))
    }

    /// What lived at the revision compacted to.
    fn base(&mut self, table: &Connection, load: &mut Load) -> Outcome {
        if self.compacted == 0 {
            return Ok(());
        }
        let query = "SELECT name, id, created, create_revision, lease, value FROM kine
             WHERE id IN (SELECT MAX(id) FROM kine WHERE id <= ?1 GROUP BY name) AND deleted = 0
             ORDER BY CAST(name AS BLOB)";
        let mut statement = table.prepare(query).map_err(|error| self.sql(&error))?;
        let upto = i64::try_from(self.compacted).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![upto]).map_err(|error| self.sql(&error))?;
        while let Some(row) = rows.next().map_err(|error| self.sql(&error))? {
            let found = read(row, 5).map_err(|error| self.sql(&error))?;
            if !is_key(&found.name) {
                continue;
            }
            let create_revision = if found.created {
                found.id
            } else {
                let told: i64 = row.get(3).map_err(|error| self.sql(&error))?;
                u64::try_from(told).unwrap_or(0)
            };
            if found.id < 2 || !(2..=found.id).contains(&create_revision) {
                let Found { id, .. } = found;
                return self.refused(format!(
                    "row {id} is of a key made at revision {create_revision}: here the first is 2"
                ));
            }
            let version = if create_revision == found.id { 1 } else { 2 };
            let living = Living { create_revision, version, lease: found.lease(), ttl: found.ttl };
            let kv = KeyValue {
                key: found.name.clone(),
                value: found.value,
                create_revision,
                mod_revision: found.id,
                version,
                lease: living.lease,
            };
            load.base(&kv, 0)?;
            self.living.insert(found.name, living);
        }
        Ok(())
    }

    /// What came after it.
    fn rows(&mut self, table: &Connection, mut loading: Loading) -> Outcome<Loading> {
        let mut progress = Progress::new(None, "revisions");
        let query = "SELECT name, id, created, deleted, lease, value FROM kine
             WHERE id > ?1 ORDER BY id";
        let mut statement = table.prepare(query).map_err(|error| self.sql(&error))?;
        let after = i64::try_from(self.compacted).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![after]).map_err(|error| self.sql(&error))?;
        while let Some(row) = rows.next().map_err(|error| self.sql(&error))? {
            let found = read(row, 5).map_err(|error| self.sql(&error))?;
            let deleted: i64 = row.get(3).map_err(|error| self.sql(&error))?;
            if found.id < 2 {
                if is_key(&found.name) {
                    return self.refused("row 1 is of a key: here the first revision is 2");
                }
                continue;
            }
            self.fill(&mut loading, found.id)?;
            let is_absent = deleted != 0 && !self.living.contains_key(&found.name);
            if is_absent || !is_key(&found.name) {
                self.absent += u64::from(is_absent && is_key(&found.name));
                self.fill(&mut loading, found.id + 1)?;
                continue;
            }
            let id = found.id;
            let change = self.change(found, deleted != 0);
            self.write(&mut loading, change)?;
            self.transactions += 1;
            progress.set(id, || "".into());
        }
        Ok(loading)
    }

    /// What a row does to its key.
    fn change(&mut self, found: Found, deleted: bool) -> Change {
        let (lease, ttl) = (found.lease(), found.ttl);
        let Found { name: key, id, value, .. } = found;
        if deleted {
            self.living.remove(&key);
            return super::deletion(key);
        }
        let living = self.living.entry(key.clone()).or_insert(Living {
            create_revision: id,
            version: 0,
            lease,
            ttl,
        });
        *living = Living { version: living.version + 1, lease, ttl, ..*living };
        let Living { create_revision, version, .. } = *living;
        let (kind, value) = (ChangeKind::Put, Some(value));
        Change { kind, key, sub: 0, create_revision, version, lease, value }
    }

    /// Puts the key for gaps until the next revision is this one.
    fn fill(&mut self, loading: &mut Loading, revision: u64) -> Outcome {
        let next = loading.revision() + 1;
        if revision.saturating_sub(next) > FILLED_MAX - self.filled.min(FILLED_MAX) {
            return self.refused(format!("too many ids are missing from {next} on"));
        }
        for id in next..revision {
            let (name, value) = (self.gap_key.clone(), Bytes::new());
            let change = self.change(Found { name, id, created: false, ttl: 0, value }, false);
            self.write(loading, change)?;
            self.filled += 1;
        }
        Ok(())
    }

    fn write(&self, loading: &mut Loading, change: Change) -> Outcome {
        let revision = loading.revision() + 1;
        let (time, metadata, changes) = (self.time, Bytes::new(), vec![change]);
        Ok(loading.transaction(&Transaction { revision, time, metadata, changes })?)
    }

    fn finish(&self, mut loading: Loading, out: &mut Output) -> Outcome {
        let mut leases = 0_u64;
        for living in self.living.values().filter(|living| living.lease != 0) {
            loading.lease(living.lease, living.ttl, None)?;
            leases += 1;
        }
        let store = loading.finish()?;
        let (revision, keys) = (store.revision(), store.latest()?.count(..)?);
        super::close(store)?;
        out.object(&json!({
            "revision": revision,
            "compacted_revision": self.compacted,
            "keys": keys,
            "transactions": self.transactions,
            "leases": leases,
            "revisions_filled": self.filled,
            "deletes_of_absent_keys": self.absent,
        }))
    }
}

/// A row.
struct Found {
    name: Bytes,
    id: u64,
    created: bool,
    /// Of its lease, in seconds; 0 if it has none.
    ttl: i64,
    value: Bytes,
}

impl Found {
    /// The id of its lease, which it has for itself.
    fn lease(&self) -> i64 {
        if self.ttl > 0 { i64::try_from(self.id).unwrap_or(0) } else { 0 }
    }
}

/// Reads the columns that all queries have in the same place, and the value.
fn read(row: &Row<'_>, value: usize) -> rusqlite::Result<Found> {
    // The column has the affinity of numbers: a key that looks like one is one.
    let name = match row.get_ref(0)? {
        ValueRef::Integer(number) => number.to_string().into(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Bytes::copy_from_slice(bytes),
        ValueRef::Null | ValueRef::Real(_) => Bytes::new(),
    };
    let id: i64 = row.get(1)?;
    let created: Option<i64> = row.get(2)?;
    let ttl: Option<i64> = row.get(4)?;
    let value: Option<Vec<u8>> = match row.get_ref(value)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes.to_vec()),
        _ => None,
    };
    Ok(Found {
        name,
        id: u64::try_from(id).unwrap_or(0),
        created: created.unwrap_or(0) != 0,
        ttl: ttl.unwrap_or(0).max(0),
        value: value.unwrap_or_default().into(),
    })
}

/// Whether a row is of a key, and not kine's own.
fn is_key(name: &[u8]) -> bool {
    !name.is_empty() && name != COMPACTED.as_bytes() && !name.starts_with(GAP)
}
