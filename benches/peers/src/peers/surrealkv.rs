//! `SurrealKV` twice: with its own versions (the revision is the timestamp), and as a plain ordered
//! map under the recipe.
//!
//! Both keep one writer at a time behind a mutex, since revisions must be dense and in the order of
//! the commits. `get` does not tell the timestamp of what it gives, so the revision is kept in front
//! of the value; there is no scan at a timestamp, so `history` is read and stepped over.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use surrealkv::{
    CompactRangeOptions, Durability, HistoryOptions, LSMIterator, Transaction, Tree, TreeBuilder,
};
use tokio::runtime::Runtime;

use crate::peer::{Cas, Level, Peer, Result, Visit, VisitKey};
use crate::recipe::{Ordered, Read, Space, Step, Write};

/// A tree with the runtime its tasks live in.
struct Base {
    runtime: Runtime,
    tree: Tree,
    durability: Durability,
    one_writer: Mutex<()>,
}

impl Base {
    fn open(dir: &Path, level: Level, versioned: bool) -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let entered = runtime.enter();
        let mut builder =
            TreeBuilder::new().with_path(dir.to_path_buf()).with_block_cache_capacity(512 << 20);
        if versioned {
            builder = builder.with_versioning(true, 0);
        }
        let tree = builder.build()?;
        drop(entered);
        let durability =
            if level == Level::Sync { Durability::Immediate } else { Durability::Eventual };
        Ok(Self { runtime, tree, durability, one_writer: Mutex::new(()) })
    }

    fn write<R>(
        &self,
        work: impl FnOnce(&mut Transaction) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let _one = self.one_writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut txn = self.tree.begin()?.with_durability(self.durability);
        let answer = work(&mut txn)?;
        if answer.is_some() {
            self.runtime.block_on(txn.commit())?;
        } else {
            txn.rollback();
        }
        Ok(answer)
    }

    fn settle(&self) -> Result<()> {
        let _entered = self.runtime.enter();
        let options = CompactRangeOptions { flush_memtable: true, ..Default::default() };
        self.tree.compact_range(None, None, &options)?;
        Ok(())
    }

    fn close(self) -> Result<()> {
        self.runtime.block_on(self.tree.close())?;
        Ok(())
    }
}

/// The greatest key that begins with `prefix`, which does not end in 0xff.
fn last(txn: &Transaction, prefix: u8) -> Result<Option<Vec<u8>>> {
    let mut iter = txn.range([prefix].as_slice(), [prefix + 1].as_slice())?;
    Ok(if iter.seek_last()? { Some(iter.key().user_key()[1..].to_vec()) } else { None })
}

fn prefixed(prefix: u8, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 1);
    out.push(prefix);
    out.extend_from_slice(key);
    out
}

const DATA: u8 = b'd';
const FEED: u8 = b'f';

/// A plain ordered map for the recipe.
pub struct Plain(Base);

struct View<'a>(&'a mut Transaction);
struct ReadView(Transaction);

fn range(txn: &Transaction, space: Space, from: &[u8], below: &[u8], step: Step<'_>) -> Result<()> {
    let prefix = if space == Space::Data { DATA } else { FEED };
    let mut iter = txn.range(prefixed(prefix, from), prefixed(prefix, below))?;
    let mut more = iter.seek_first()?;
    while more && iter.valid() {
        if !step(&iter.key().user_key()[1..], &iter.value_ref()?) {
            break;
        }
        more = iter.next()?;
    }
    Ok(())
}

impl Read for View<'_> {
    fn range(&self, space: Space, from: &[u8], below: &[u8], step: Step<'_>) -> Result<()> {
        range(self.0, space, from, below, step)
    }

    fn last_feed(&self) -> Result<Option<Vec<u8>>> {
        last(self.0, FEED)
    }
}

impl Read for ReadView {
    fn range(&self, space: Space, from: &[u8], below: &[u8], step: Step<'_>) -> Result<()> {
        range(&self.0, space, from, below, step)
    }

    fn last_feed(&self) -> Result<Option<Vec<u8>>> {
        last(&self.0, FEED)
    }
}

impl Write for View<'_> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<()> {
        let prefix = if space == Space::Data { DATA } else { FEED };
        self.0.set(prefixed(prefix, key), value)?;
        Ok(())
    }

    fn delete(&mut self, space: Space, key: &[u8]) -> Result<()> {
        let prefix = if space == Space::Data { DATA } else { FEED };
        self.0.delete(prefixed(prefix, key))?;
        Ok(())
    }
}

impl Ordered for Plain {
    fn open(dir: &Path, level: Level) -> Result<Self> {
        Base::open(dir, level, false).map(Self)
    }

    fn write<R>(
        &self,
        work: impl FnOnce(&mut dyn Write) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        self.0.write(|txn| work(&mut View(txn)))
    }

    fn read<R>(&self, work: impl FnOnce(&dyn Read) -> Result<R>) -> Result<R> {
        work(&ReadView(self.0.tree.begin_with_mode(surrealkv::Mode::ReadOnly)?))
    }

    fn settle(&mut self) -> Result<()> {
        self.0.settle()
    }

    fn close(self) -> Result<()> {
        self.0.close()
    }
}

/// `SurrealKV`'s own versions.
struct Native {
    base: Base,
    revision: AtomicU64,
}

pub fn open_native(dir: &Path, level: Level) -> Result<Box<dyn Peer>> {
    let base = Base::open(dir, level, true)?;
    let newest = last(&base.tree.begin()?, FEED)?;
    let revision = newest.as_deref().and_then(|key| key.first_chunk::<8>());
    let revision = AtomicU64::new(revision.map_or(1, |bytes| u64::from_be_bytes(*bytes)));
    Ok(Box::new(Native { base, revision }))
}

/// The revision in front of a value, and the value.
fn decode(stored: &[u8]) -> Option<(u64, &[u8])> {
    let (revision, value) = stored.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*revision), value))
}

/// Puts if `seen` is `None` or the newest revision.
fn put(
    txn: &mut Transaction,
    key: &[u8],
    seen: Option<u64>,
    value: &[u8],
    revision: u64,
) -> Result<bool> {
    let name = prefixed(DATA, key);
    if let Some(seen) = seen {
        let newest = txn.get(&name)?;
        if newest.as_deref().and_then(decode).map_or(0, |(revision, _)| revision) != seen {
            return Ok(false);
        }
    }
    let mut stored = Vec::with_capacity(value.len() + 8);
    stored.extend_from_slice(&revision.to_be_bytes());
    stored.extend_from_slice(value);
    txn.set_at(name, stored, revision)?;
    txn.set_at(prefixed(FEED, &revision.to_be_bytes()), key, revision)?;
    Ok(true)
}

impl Peer for Native {
    fn load(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<u64> {
        let last = self.base.write(|txn| {
            let mut revision = self.revision.load(Ordering::Acquire);
            for (key, value) in pairs {
                revision += 1;
                put(txn, key, None, value, revision)?;
            }
            self.revision.store(revision, Ordering::Release);
            Ok(Some(revision))
        })?;
        Ok(last.unwrap_or(1))
    }

    fn cas(&self, cas: Cas<'_>) -> Result<Option<u64>> {
        self.base.write(|txn| {
            let revision = self.revision.load(Ordering::Acquire) + 1;
            if !put(txn, cas.key, cas.seen, cas.value, revision)? {
                return Ok(None);
            }
            self.revision.store(revision, Ordering::Release);
            Ok(Some(revision))
        })
    }

    fn cas_window(&self, window: &[Cas<'_>]) -> Result<Vec<Option<u64>>> {
        let mut answers = Vec::with_capacity(window.len());
        self.base.write(|txn| {
            let first = self.revision.load(Ordering::Acquire);
            let mut revision = first;
            for cas in window {
                let done = put(txn, cas.key, cas.seen, cas.value, revision + 1)?;
                revision += u64::from(done);
                answers.push(done.then_some(revision));
            }
            self.revision.store(revision, Ordering::Release);
            // Where every compare failed there is nothing to commit, nor to sync.
            Ok((revision > first).then_some(()))
        })?;
        Ok(answers)
    }

    fn get(&self, key: &[u8], at: Option<u64>, visit: Visit<'_>) -> Result<bool> {
        let txn = self.base.tree.begin_with_mode(surrealkv::Mode::ReadOnly)?;
        let name = prefixed(DATA, key);
        let stored = match at {
            None => txn.get(name)?,
            Some(at) => txn.get_at(name, at)?,
        };
        let Some((revision, value)) = stored.as_deref().and_then(decode) else { return Ok(false) };
        visit(revision, value);
        Ok(true)
    }

    fn scan(
        &self,
        from: &[u8],
        below: &[u8],
        limit: usize,
        at: Option<u64>,
        visit: VisitKey<'_>,
    ) -> Result<usize> {
        let txn = self.base.tree.begin_with_mode(surrealkv::Mode::ReadOnly)?;
        let (from, below) = (prefixed(DATA, from), prefixed(DATA, below));
        if let Some(at) = at {
            let options = HistoryOptions::new().with_ts_range(0, at);
            scan_iter(txn.history_with_options(from, below, &options)?, limit, visit)
        } else {
            scan_iter(txn.range(from, below)?, limit, visit)
        }
    }

    fn settle(&mut self) -> Result<()> {
        self.base.settle()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.base.close()
    }
}

/// The first entry of each key.
fn scan_iter(mut iter: impl LSMIterator, limit: usize, visit: VisitKey<'_>) -> Result<usize> {
    let mut count = 0;
    let mut previous: Vec<u8> = Vec::new();
    let mut more = iter.seek_first()?;
    while more && iter.valid() && count < limit {
        let key = iter.key().user_key();
        if key != previous.as_slice() {
            previous.clear();
            previous.extend_from_slice(key);
            if let Some((revision, value)) = decode(&iter.value_ref()?) {
                visit(&previous[1..], revision, value);
                count += 1;
            }
        }
        more = iter.next()?;
    }
    Ok(count)
}
