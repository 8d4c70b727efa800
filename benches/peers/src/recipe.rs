//! Revisions and history on top of an ordered map with transactions: the recipe a user of redb,
//! LMDB or fjall would follow (and etcd and kine do).
//!
//! Two key spaces. `Data`: `key 0x00 BE(!revision)` -> create revision, version, value, so that the
//! newest version of a key comes first. `Feed`: `BE(revision)` -> key, for watching and compaction.
//! A compare-and-swap reads the newest version inside the one write transaction. Scans step over at
//! most [`STEPS_MAX`] versions of a key and then seek to the next key. Keys hold no byte below 2.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::peer::{Cas, Level, Peer, Result, Visit, VisitKey};

/// Versions of one key a scan steps over before it seeks.
pub const STEPS_MAX: usize = 8;

/// The two key spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Data,
    Feed,
}

/// Visits pairs in order until it returns false.
pub type Step<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;

/// Reading inside a transaction.
pub trait Read {
    fn range(&self, space: Space, from: &[u8], below: &[u8], step: Step<'_>) -> Result<()>;
    /// The greatest key of the feed.
    fn last_feed(&self) -> Result<Option<Vec<u8>>>;
}

/// Writing inside a transaction; reads see what was written.
pub trait Write: Read {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<()>;
    fn delete(&mut self, space: Space, key: &[u8]) -> Result<()>;
}

/// An ordered map with transactions of which one writes at a time.
pub trait Ordered: Send + Sync + Sized + 'static {
    fn open(dir: &Path, level: Level) -> Result<Self>;
    /// Commits what `work` wrote if it returns `Some`, else takes it back.
    fn write<R>(&self, work: impl FnOnce(&mut dyn Write) -> Result<Option<R>>)
    -> Result<Option<R>>;
    fn read<R>(&self, work: impl FnOnce(&dyn Read) -> Result<R>) -> Result<R>;
    fn settle(&mut self) -> Result<()>;
    fn close(self) -> Result<()>;
}

/// The recipe over a map.
#[derive(Debug)]
pub struct Recipe<M> {
    map: M,
    /// The last revision given out; written only inside the map's one write transaction.
    revision: AtomicU64,
}

/// Opens a store that follows the recipe over `M`.
pub fn open<M: Ordered>(dir: &Path, level: Level) -> Result<Box<dyn Peer>> {
    let map = M::open(dir, level)?;
    let last = map.read(|read| read.last_feed())?;
    let revision = last.as_deref().and_then(|key| key.first_chunk::<8>());
    let revision = revision.map_or(1, |bytes| u64::from_be_bytes(*bytes));
    Ok(Box::new(Recipe { map, revision: AtomicU64::new(revision) }))
}

/// A newest version, without its value.
#[derive(Clone, Copy, Debug)]
struct Head {
    revision: u64,
    create: u64,
    version: u64,
}

fn data_key(key: &[u8], revision: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 9);
    out.extend_from_slice(key);
    out.push(0);
    out.extend_from_slice(&(!revision).to_be_bytes());
    out
}

/// The first data key after every version of `key`.
fn after(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 1);
    out.extend_from_slice(key);
    out.push(1);
    out
}

fn split(data_key: &[u8]) -> Option<(&[u8], u64)> {
    let (rest, revision) = data_key.split_last_chunk::<8>()?;
    let key = rest.strip_suffix(&[0])?;
    Some((key, !u64::from_be_bytes(*revision)))
}

fn decode(value: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (create, rest) = value.split_first_chunk::<8>()?;
    let (version, rest) = rest.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*create), u64::from_be_bytes(*version), rest))
}

fn head(read: &dyn Read, key: &[u8]) -> Result<Option<Head>> {
    let mut found = None;
    read.range(Space::Data, &data_key(key, u64::MAX), &after(key), &mut |k, v| {
        if let (Some((_, revision)), Some((create, version, _))) = (split(k), decode(v)) {
            found = Some(Head { revision, create, version });
        }
        false
    })?;
    Ok(found)
}

/// Writes one version; `old` is what it supersedes.
fn put(
    write: &mut dyn Write,
    revision: u64,
    key: &[u8],
    value: &[u8],
    old: Option<Head>,
) -> Result<()> {
    let create = old.map_or(revision, |head| head.create);
    let version = old.map_or(1, |head| head.version + 1);
    let mut bytes = Vec::with_capacity(value.len() + 16);
    bytes.extend_from_slice(&create.to_be_bytes());
    bytes.extend_from_slice(&version.to_be_bytes());
    bytes.extend_from_slice(value);
    write.put(Space::Data, &data_key(key, revision), &bytes)?;
    write.put(Space::Feed, &revision.to_be_bytes(), key)
}

impl<M: Ordered> Peer for Recipe<M> {
    fn load(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<u64> {
        let last = self.map.write(|write| {
            let mut revision = self.revision.load(Ordering::Acquire);
            for (key, value) in pairs {
                revision += 1;
                let old = head(&*write, key)?;
                put(write, revision, key, value, old)?;
            }
            self.revision.store(revision, Ordering::Release);
            Ok(Some(revision))
        })?;
        Ok(last.unwrap_or(1))
    }

    fn cas(&self, cas: Cas<'_>) -> Result<Option<u64>> {
        self.map.write(|write| {
            let old = head(&*write, cas.key)?;
            if !cas.holds(old.map_or(0, |head| head.revision)) {
                return Ok(None);
            }
            let revision = self.revision.load(Ordering::Acquire) + 1;
            put(write, revision, cas.key, cas.value, old)?;
            self.revision.store(revision, Ordering::Release);
            Ok(Some(revision))
        })
    }

    fn cas_window(&self, window: &[Cas<'_>]) -> Result<Vec<Option<u64>>> {
        let mut answers = Vec::with_capacity(window.len());
        self.map.write(|write| {
            let first = self.revision.load(Ordering::Acquire);
            let mut revision = first;
            for cas in window {
                let old = head(&*write, cas.key)?;
                if cas.holds(old.map_or(0, |head| head.revision)) {
                    revision += 1;
                    put(write, revision, cas.key, cas.value, old)?;
                    answers.push(Some(revision));
                } else {
                    answers.push(None);
                }
            }
            self.revision.store(revision, Ordering::Release);
            // Where every compare failed there is nothing to commit, nor to sync.
            Ok((revision > first).then_some(()))
        })?;
        Ok(answers)
    }

    fn get(&self, key: &[u8], at: Option<u64>, visit: Visit<'_>) -> Result<bool> {
        let from = data_key(key, at.unwrap_or(u64::MAX));
        let mut found = false;
        self.map.read(|read| {
            read.range(Space::Data, &from, &after(key), &mut |k, v| {
                if let (Some((_, revision)), Some((_, _, value))) = (split(k), decode(v)) {
                    visit(revision, value);
                    found = true;
                }
                false
            })
        })?;
        Ok(found)
    }

    fn scan(
        &self,
        from: &[u8],
        below: &[u8],
        limit: usize,
        at: Option<u64>,
        visit: VisitKey<'_>,
    ) -> Result<usize> {
        let at = at.unwrap_or(u64::MAX);
        self.map.read(|read| scan(read, from, below, limit, at, visit))
    }

    fn replay(&self, from: u64, limit: usize, visit: VisitKey<'_>) -> Result<Option<usize>> {
        let mut told = 0;
        self.map.read(|read| {
            let mut failed = None;
            read.range(Space::Feed, &from.to_be_bytes(), &[u8::MAX; 8], &mut |feed, key| {
                let Some(revision) = feed.first_chunk::<8>() else { return false };
                let revision = u64::from_be_bytes(*revision);
                let looked = read.range(
                    Space::Data,
                    &data_key(key, revision),
                    &after(key),
                    &mut |_, value| {
                        if let Some((_, _, value)) = decode(value) {
                            visit(key, revision, value);
                            told += 1;
                        }
                        false
                    },
                );
                failed = looked.err();
                failed.is_none() && told < limit
            })?;
            failed.map_or(Ok(()), Err)
        })?;
        Ok(Some(told))
    }

    fn forget(&self, upto: u64, batch: usize) -> Result<Option<bool>> {
        let more = self.map.write(|write| {
            let mut feed = Vec::new();
            write.range(
                Space::Feed,
                &[0; 8],
                &(upto + 1).to_be_bytes(),
                &mut |revision, key| {
                    feed.push((revision.to_vec(), key.to_vec()));
                    feed.len() < batch
                },
            )?;
            for (revision, key) in &feed {
                let at = revision.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                let (mut newest, from) = (at, data_key(key, upto));
                write.range(Space::Data, &from, &after(key), &mut |found, _| {
                    newest = split(found).map_or(at, |(_, revision)| revision);
                    false
                })?;
                if newest > at {
                    write.delete(Space::Data, &data_key(key, at))?;
                }
                write.delete(Space::Feed, revision)?;
            }
            Ok((!feed.is_empty()).then_some(feed.len() == batch))
        })?;
        Ok(Some(more.unwrap_or(false)))
    }

    fn settle(&mut self) -> Result<()> {
        self.map.settle()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.map.close()
    }
}

fn scan(
    read: &dyn Read,
    from: &[u8],
    below: &[u8],
    limit: usize,
    at: u64,
    visit: VisitKey<'_>,
) -> Result<usize> {
    let mut from = from.to_vec();
    let mut count = 0;
    let mut current: Vec<u8> = Vec::new();
    loop {
        let mut answered = false;
        let mut steps = 0;
        let mut seek = None;
        current.clear();
        read.range(Space::Data, &from, below, &mut |k, v| {
            let (Some((key, revision)), Some((_, _, value))) = (split(k), decode(v)) else {
                return false;
            };
            if key == current.as_slice() {
                steps += 1;
            } else {
                current.clear();
                current.extend_from_slice(key);
                (answered, steps) = (false, 0);
            }
            if !answered && revision <= at {
                visit(key, revision, value);
                count += 1;
                answered = true;
                return count < limit;
            }
            if steps >= STEPS_MAX {
                seek = Some(if answered { after(key) } else { data_key(key, at) });
            }
            seek.is_none()
        })?;
        match seek {
            Some(next) => from = next,
            None => return Ok(count),
        }
    }
}
