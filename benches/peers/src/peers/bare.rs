//! What the machine gives without a store: a mutex, a hash table and a sorted map in memory, and a
//! zero-filled file.
//!
//! It is the yardstick, not a contestant: it does less than annals for the same commits and promises
//! nothing on reopening. Its records are the revision, the key and the value, without headers or
//! checksums. Synced, each commit is one write of whole zero-padded 4 KiB pages and one fdatasync, as
//! annals' are: partial pages would cost the disk no less and would have it write pages again.
//! Buffered, a background thread writes what gathers in a buffer. Histories are loaded as vectors of
//! versions; a compare-and-swap replaces the newest version in place.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::thread::{self, JoinHandle};

use crate::peer::{Cas, Level, Peer, Result, Visit, VisitKey};

/// Bytes of the log file, which is written round and round.
const FILE_BYTES: u64 = 64 << 20;
const PAGE_BYTES: usize = 4096;
/// Buffered records that are handed to the background thread together.
const BUFFER_BYTES: usize = 64 << 10;
/// Buffered records that may gather while it writes.
const BUFFER_BYTES_MAX: usize = 8 << 20;

type Versions = Vec<(u64, Box<[u8]>)>;

#[derive(Debug)]
struct State {
    slots: Vec<Versions>,
    hash: HashMap<Arc<[u8]>, usize>,
    sorted: BTreeMap<Arc<[u8]>, usize>,
    revision: u64,
    log: Log,
}

/// The log: records gather, a commit makes them what the level promises.
#[derive(Debug)]
pub struct Log {
    pending: Vec<u8>,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    Synced(Ring),
    Background(Background),
}

/// A preallocated, zero-filled file: what an append costs when neither size nor extents change.
#[derive(Debug)]
struct Ring {
    file: File,
    at: u64,
}

/// A thread that writes full buffers and gives them back empty.
#[derive(Debug)]
struct Background {
    full: SyncSender<Vec<u8>>,
    /// In a mutex only so that it can be shared; nobody waits for it.
    empty: Mutex<Receiver<Vec<u8>>>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Ring {
    fn create(path: &Path) -> Result<Self> {
        let file = File::create(path)?;
        let zeros = vec![0; 1 << 20];
        let mut at = 0;
        while at < FILE_BYTES {
            file.write_all_at(&zeros, at)?;
            at += zeros.len() as u64;
        }
        file.sync_all()?;
        Ok(Self { file, at: 0 })
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if self.at + bytes.len() as u64 > FILE_BYTES {
            self.at = 0;
        }
        self.file.write_all_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

impl Background {
    fn start(mut ring: Ring) -> Result<Self> {
        let (full, to_write) = sync_channel::<Vec<u8>>(1);
        let (written, empty) = sync_channel::<Vec<u8>>(2);
        written.send(Vec::with_capacity(2 * BUFFER_BYTES))?;
        let thread = thread::spawn(move || {
            for mut buffer in to_write {
                ring.write(&buffer)?;
                buffer.clear();
                if written.send(buffer).is_err() {
                    break;
                }
            }
            Ok(())
        });
        Ok(Self { full, empty: Mutex::new(empty), thread })
    }

    /// Hands over what is pending once it is much; waits only if that is far too much.
    fn take(&mut self, pending: &mut Vec<u8>) -> Result<()> {
        if pending.len() < BUFFER_BYTES {
            return Ok(());
        }
        let empty = self.empty.get_mut().unwrap_or_else(PoisonError::into_inner);
        let buffer = match empty.try_recv() {
            Err(TryRecvError::Empty) if pending.len() < BUFFER_BYTES_MAX => return Ok(()),
            Err(TryRecvError::Empty) => empty.recv()?,
            received => received?,
        };
        self.full.send(std::mem::replace(pending, buffer))?;
        Ok(())
    }

    fn finish(self) -> Result<()> {
        drop(self.full);
        Ok(self.thread.join().map_err(|_| "the writing thread panicked")??)
    }
}

impl Log {
    pub fn create(path: &Path, level: Level) -> Result<Self> {
        let ring = Ring::create(path)?;
        let sink = match level {
            Level::Sync => Sink::Synced(ring),
            Level::Buffered => Sink::Background(Background::start(ring)?),
        };
        Ok(Self { pending: Vec::with_capacity(2 * BUFFER_BYTES), sink })
    }

    fn record(&mut self, revision: u64, key: &[u8], value: &[u8]) {
        self.pending.extend_from_slice(&revision.to_le_bytes());
        self.pending.extend_from_slice(key);
        self.pending.extend_from_slice(value);
    }

    /// Writes what is pending in whole pages and waits for the disk, or leaves it to the thread.
    fn commit(&mut self) -> Result<()> {
        match &mut self.sink {
            Sink::Synced(ring) => {
                self.pending.resize(self.pending.len().next_multiple_of(PAGE_BYTES), 0);
                ring.write(&self.pending)?;
                self.pending.clear();
                ring.file.sync_data()?;
                Ok(())
            }
            Sink::Background(background) => background.take(&mut self.pending),
        }
    }

    /// One commit of `records` records of the same bytes, with nothing else around it.
    pub fn bare_commit(&mut self, bytes: &[u8], records: usize) -> Result<()> {
        for _ in 0..records {
            self.pending.extend_from_slice(bytes);
        }
        self.commit()
    }

    fn close(self) -> Result<()> {
        match self.sink {
            Sink::Synced(_) => Ok(()),
            Sink::Background(background) => background.finish(),
        }
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

    fn load(&mut self, key: &[u8], value: &[u8]) {
        let slot = self.slot(key);
        self.revision += 1;
        if let Some(versions) = self.slots.get_mut(slot) {
            versions.push((self.revision, value.into()));
        }
        self.log.record(self.revision, key, value);
    }

    fn cas(&mut self, cas: Cas<'_>) -> Option<u64> {
        let newest = self.hash.get(cas.key).and_then(|&slot| self.slots.get_mut(slot)?.last_mut());
        let newest = newest.filter(|newest| cas.holds(newest.0))?;
        self.revision += 1;
        newest.0 = self.revision;
        if newest.1.len() == cas.value.len() {
            newest.1.copy_from_slice(cas.value);
        } else {
            newest.1 = cas.value.into();
        }
        self.log.record(self.revision, cas.key, cas.value);
        Some(self.revision)
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
            state.load(key, value);
        }
        state.log.commit()?;
        Ok(state.revision)
    }

    fn cas(&self, cas: Cas<'_>) -> Result<Option<u64>> {
        let mut state = self.write();
        let answer = state.cas(cas);
        if answer.is_some() {
            state.log.commit()?;
        }
        Ok(answer)
    }

    fn cas_window(&self, window: &[Cas<'_>]) -> Result<Vec<Option<u64>>> {
        let mut state = self.write();
        let answers: Vec<_> = window.iter().map(|&cas| state.cas(cas)).collect();
        if answers.iter().any(Option::is_some) {
            state.log.commit()?;
        }
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
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).log.close()
    }
}
