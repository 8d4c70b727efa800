//! What the machine gives without a store: a mutex, a hash table and a sorted map of version
//! vectors in memory, and a zero-filled file that each commit is written to and synced.
//!
//! It does the same work with the same bytes and promises nothing on reopening: it is the yardstick,
//! not a contestant.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use crate::peer::{Cas, Level, Peer, Result, Visit, VisitKey};

/// Bytes of the log file, which is written round and round.
pub const FILE_BYTES: u64 = 64 << 20;

type Versions = Vec<(u64, Box<[u8]>)>;

#[derive(Debug)]
struct State {
    slots: Vec<Versions>,
    hash: HashMap<Arc<[u8]>, usize>,
    sorted: BTreeMap<Arc<[u8]>, usize>,
    revision: u64,
    log: Log,
}

/// A preallocated, zero-filled file: what an append costs when neither size nor extents change.
#[derive(Debug)]
pub struct Log {
    file: File,
    at: u64,
    pending: Vec<u8>,
    level: Level,
}

impl Log {
    pub fn create(path: &Path, level: Level) -> Result<Self> {
        let file = File::create(path)?;
        let zeros = vec![0; 1 << 20];
        let mut at = 0;
        while at < FILE_BYTES {
            file.write_all_at(&zeros, at)?;
            at += zeros.len() as u64;
        }
        file.sync_all()?;
        Ok(Self { file, at: 0, pending: Vec::new(), level })
    }

    fn record(&mut self, revision: u64, key: &[u8], value: &[u8]) {
        self.pending.extend_from_slice(&revision.to_le_bytes());
        self.pending.extend_from_slice(key);
        self.pending.extend_from_slice(value);
    }

    /// Writes what is pending and, at `Sync`, waits for the disk. Buffered records gather to 64 KiB.
    pub fn commit(&mut self) -> Result<()> {
        if self.level == Level::Buffered && self.pending.len() < 64 << 10 {
            return Ok(());
        }
        if self.at + self.pending.len() as u64 > FILE_BYTES {
            self.at = 0;
        }
        self.file.write_all_at(&self.pending, self.at)?;
        self.at += self.pending.len() as u64;
        self.pending.clear();
        if self.level == Level::Sync {
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// One synced write of `records` times the bytes of one commit, with nothing else around it.
    pub fn bare_commit(&mut self, bytes: &[u8], records: usize) -> Result<()> {
        for _ in 0..records {
            self.pending.extend_from_slice(bytes);
        }
        self.commit()
    }
}

#[derive(Debug)]
pub struct Bare(RwLock<State>);

pub fn open(dir: &Path, level: Level) -> Result<Box<dyn Peer>> {
    Ok(Box::new(Bare(RwLock::new(State {
        slots: Vec::new(),
        hash: HashMap::new(),
        sorted: BTreeMap::new(),
        revision: 1,
        log: Log::create(&dir.join("bare.log"), level)?,
    }))))
}

impl State {
    fn slot(&mut self, key: &[u8]) -> usize {
        if let Some(&slot) = self.hash.get(key) {
            return slot;
        }
        let slot = self.slots.len();
        let key: Arc<[u8]> = key.into();
        self.hash.insert(Arc::clone(&key), slot);
        self.sorted.insert(key, slot);
        self.slots.push(Vec::new());
        slot
    }

    fn put(&mut self, key: &[u8], seen: Option<u64>, value: &[u8]) -> Option<u64> {
        let slot = self.slot(key);
        let revision = self.revision + 1;
        let versions = self.slots.get_mut(slot)?;
        let newest = versions.last().map_or(0, |newest| newest.0);
        if seen.is_some_and(|seen| seen != newest) {
            return None;
        }
        versions.push((revision, value.into()));
        self.revision = revision;
        self.log.record(revision, key, value);
        Some(revision)
    }

    fn find(&self, slot: usize, at: Option<u64>) -> Option<(u64, &[u8])> {
        let versions = self.slots.get(slot)?;
        let end = match at {
            None => versions.len(),
            Some(at) => versions.partition_point(|version| version.0 <= at),
        };
        let (revision, value) = versions.get(end.checked_sub(1)?)?;
        Some((*revision, value))
    }
}

impl Bare {
    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer for Bare {
    fn load(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<u64> {
        let mut state = self.write();
        for (key, value) in pairs {
            state.put(key, None, value);
        }
        state.log.commit()?;
        Ok(state.revision)
    }

    fn cas(&self, cas: Cas<'_>) -> Result<Option<u64>> {
        let mut state = self.write();
        let answer = state.put(cas.key, Some(cas.seen), cas.value);
        if answer.is_some() {
            state.log.commit()?;
        }
        Ok(answer)
    }

    fn cas_window(&self, window: &[Cas<'_>]) -> Result<Vec<Option<u64>>> {
        let mut state = self.write();
        let answers =
            window.iter().map(|cas| state.put(cas.key, Some(cas.seen), cas.value)).collect();
        state.log.commit()?;
        Ok(answers)
    }

    fn get(&self, key: &[u8], at: Option<u64>, visit: Visit<'_>) -> Result<bool> {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = state.hash.get(key).and_then(|&slot| state.find(slot, at));
        if let Some((revision, value)) = found {
            visit(revision, value);
        }
        Ok(found.is_some())
    }

    fn scan(
        &self,
        from: &[u8],
        below: &[u8],
        limit: usize,
        at: Option<u64>,
        visit: VisitKey<'_>,
    ) -> Result<usize> {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut count = 0;
        for (key, &slot) in
            state.sorted.range::<[u8], _>((Bound::Included(from), Bound::Excluded(below)))
        {
            if count == limit {
                break;
            }
            if let Some((revision, value)) = state.find(slot, at) {
                visit(key, revision, value);
                count += 1;
            }
        }
        Ok(count)
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
