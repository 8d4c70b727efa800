//! A simulated disk, which knows what would survive a power cut.
//!
//! The disk keeps every file twice: as a reader sees it now, and as it is on the device for certain.
//! Between the two lies an ordered list of writes and cuts that no sync has covered yet. Names are
//! kept the same way. [`MemoryVfs::crash`] makes, from one disk, another one as a machine might find
//! it after the power came back: of what was not synced, any subset may be there.
//!
//! Invariants:
//! 1. What a successful `sync_data` covered is in every crash image; likewise names and `sync_dir`.
//! 2. Within a crash image every aligned 512-byte sector of a file holds what some moment since the
//!    last sync held there, or zeros where the file has grown since; never a mixture.
//! 3. The length of a file is one of the lengths it has had since the last sync.
//! 4. Everything is a function of the calls and the seed: same calls, same images, same trace.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path};
use std::sync::Arc;

use bytes::Bytes;

use self::content::Content;
use super::{Access, DirEntry, File, LockGuard, LockHeld, Map, SECTOR_BYTES, Vfs};
use crate::sync::plain::{Mutex, MutexGuard, lock};

mod content;

/// What of the unsynced changes a crash keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CrashMode {
    /// Nothing: the disk as of the last syncs.
    LoseAll,
    /// Everything, as if the system had written all of it back just before.
    KeepAll,
    /// Any subset, chosen by the seed.
    Random,
}

/// A simulated disk in memory. Clones are handles of the same disk.
///
/// ```
/// use std::path::Path;
/// use annals::vfs::{CrashMode, MemoryVfs, Vfs};
///
/// let disk = MemoryVfs::new();
/// let file = disk.create(Path::new("a"))?;
/// file.write_all_at(b"hello", 0)?;
/// // Neither the bytes nor the name have been synced.
/// assert!(!disk.crash(0, CrashMode::LoseAll).exists(Path::new("a"))?);
/// file.sync_data()?;
/// disk.sync_dir(Path::new(""))?;
/// assert!(disk.crash(0, CrashMode::LoseAll).exists(Path::new("a"))?);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryVfs {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Debug, Default)]
struct Disk {
    files: BTreeMap<FileId, Inode>,
    next_file: FileId,
    /// Directories, by their path from the root; durable as soon as they are made.
    dirs: BTreeSet<String>,
    /// Names as they are now.
    names: BTreeMap<String, FileId>,
    /// Names that survive for certain.
    durable_names: BTreeMap<String, FileId>,
    /// Changes of names since, in order.
    pending_names: Vec<NameChange>,
    locks: BTreeSet<String>,
    operations: u64,
    trace: u64,
    /// Most bytes all files together may have.
    capacity: Option<u64>,
    used: u64,
}

type FileId = u64;

#[derive(Debug, Default)]
struct Inode {
    /// As a reader sees it.
    now: Content,
    /// As it is on the device for certain.
    durable: Content,
    /// Changes since, in order.
    pending: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, bytes: Bytes },
    Length(u64),
}

/// One change of names; it is on the device wholly or not at all.
#[derive(Clone, Debug)]
struct NameChange {
    removed: Option<String>,
    added: Option<(String, FileId)>,
}

impl MemoryVfs {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// The disk as a machine might find it after losing power now. This disk goes on unchanged.
    ///
    /// `seed` decides what [`CrashMode::Random`] keeps; the other modes ignore it. Locks are not
    /// held on the new disk, and its operations count from zero.
    pub fn crash(&self, seed: u64, mode: CrashMode) -> Self {
        let mut random = Random::new(seed);
        let mut choose = move |options: u64| match mode {
            CrashMode::LoseAll => 0,
            CrashMode::KeepAll => options - 1,
            CrashMode::Random => random.below(options),
        };
        Self { disk: Arc::new(Mutex::new(self.lock().crash(&mut choose))) }
    }

    /// Number of operations so far.
    pub fn op_count(&self) -> u64 {
        self.lock().operations
    }

    /// A hash of every operation so far, with its arguments. Two runs with the same hash did the
    /// same things in the same order.
    pub fn trace_hash(&self) -> u64 {
        self.lock().trace
    }

    /// Limits the sum of the lengths of all files; what would exceed it fails as a full disk does.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity = bytes;
    }

    /// Sum of the lengths of all files.
    pub fn used_bytes(&self) -> u64 {
        self.lock().used
    }

    /// Paths of all files, sorted.
    pub fn paths(&self) -> Vec<String> {
        self.lock().names.keys().cloned().collect()
    }

    /// The whole content of a file; not an operation.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let disk = self.lock();
        let inode = disk.named(&key_of(path))?;
        Ok(inode.now.to_vec())
    }

    /// Replaces a file, or makes it, with its content and name durable; not an operation. This is
    /// how tests damage a disk.
    pub fn overwrite(&self, path: &Path, content: &[u8]) {
        let mut disk = self.lock();
        let key = key_of(path);
        let before = disk.named(&key).map_or(0, |inode| inode.now.len());
        let content = Content::of(content);
        disk.used = disk.used - before + content.len();
        let id = disk.add_inode();
        disk.files.insert(id, Inode { now: content.clone(), durable: content, pending: vec![] });
        disk.names.insert(key.clone(), id);
        disk.durable_names.insert(key, id);
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }
}

impl Disk {
    /// Counts an operation and adds it to the trace.
    fn operation(&mut self, kind: &str, path: &str, numbers: [u64; 2], bytes: &[u8]) {
        self.operations += 1;
        let mut hash = self.trace;
        for part in [kind.as_bytes(), path.as_bytes(), bytes] {
            hash = xxhash_rust::xxh3::xxh3_64_with_seed(part, hash ^ part.len() as u64);
        }
        for number in numbers {
            hash = xxhash_rust::xxh3::xxh3_64_with_seed(&number.to_le_bytes(), hash);
        }
        self.trace = hash;
    }

    fn named(&self, key: &str) -> io::Result<&Inode> {
        let id = self.names.get(key).ok_or(io::ErrorKind::NotFound)?;
        self.inode(*id)
    }

    fn inode(&self, id: FileId) -> io::Result<&Inode> {
        self.files.get(&id).ok_or_else(gone)
    }

    fn inode_mut(&mut self, id: FileId) -> io::Result<&mut Inode> {
        self.files.get_mut(&id).ok_or_else(gone)
    }

    fn add_inode(&mut self) -> FileId {
        self.next_file += 1;
        self.files.insert(self.next_file, Inode::default());
        self.next_file
    }

    /// Makes a new file; the name is pending.
    fn create(&mut self, key: String) -> io::Result<FileId> {
        if self.names.contains_key(&key) || self.dirs.contains(&key) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.dir_of(&key)?;
        let id = self.add_inode();
        self.change_names(NameChange { removed: None, added: Some((key, id)) });
        Ok(id)
    }

    /// Checks that the directory of a name exists.
    fn dir_of(&self, key: &str) -> io::Result<()> {
        let dir = parent_of(key);
        if dir.is_empty() || self.dirs.contains(dir) {
            Ok(())
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    fn change_names(&mut self, change: NameChange) {
        let replaced = change.added.as_ref().and_then(|(name, _)| self.names.get(name).copied());
        let removed = match &change {
            NameChange { removed: Some(name), added: None } => self.names.get(name).copied(),
            _ => None,
        };
        for id in replaced.into_iter().chain(removed) {
            self.used -= self.files.get(&id).map_or(0, |inode| inode.now.len());
        }
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }

    fn sync_dir(&mut self, dir: &str) {
        let pending = std::mem::take(&mut self.pending_names);
        for change in pending {
            if change.concerns(dir) {
                change.apply(&mut self.durable_names);
            } else {
                self.pending_names.push(change);
            }
        }
    }

    /// Checks that a file may grow to `len`, and accounts for it.
    fn resize(&mut self, id: FileId, len: u64) -> io::Result<()> {
        let before = self.inode(id)?.now.len();
        let used = self.used - before.min(self.used) + len;
        if len > before && self.capacity.is_some_and(|capacity| used > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.used = used;
        Ok(())
    }

    /// A disk on which `choose(n)`, with 0 for oldest and n - 1 for newest, has decided for every
    /// unsynced thing that can be in one of `n` states.
    fn crash(&self, choose: &mut dyn FnMut(u64) -> u64) -> Self {
        let mut names = self.durable_names.clone();
        for change in &self.pending_names {
            if choose(2) == 1 {
                change.apply(&mut names);
            }
        }
        let mut disk = Self { next_file: self.next_file, ..Self::default() };
        for id in names.values() {
            if let Some(inode) = self.files.get(id) {
                let durable = inode.crash(choose);
                disk.used += durable.len();
                let inode = Inode { now: durable.clone(), durable, pending: Vec::new() };
                disk.files.insert(*id, inode);
            }
        }
        disk.dirs.clone_from(&self.dirs);
        disk.capacity = self.capacity;
        disk.names.clone_from(&names);
        disk.durable_names = names;
        disk
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, FileId>) {
        if let Some(name) = &self.removed {
            names.remove(name);
        }
        if let Some((name, id)) = &self.added {
            names.insert(name.clone(), *id);
        }
    }

    fn concerns(&self, dir: &str) -> bool {
        let names = self.removed.iter().chain(self.added.as_ref().map(|(name, _)| name));
        names.into_iter().any(|name| parent_of(name) == dir)
    }
}

impl Inode {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            change.apply(&mut self.durable);
        }
    }

    /// The content after a crash; see the invariants of the file.
    fn crash(&self, choose: &mut dyn FnMut(u64) -> u64) -> Content {
        if self.pending.is_empty() {
            return self.durable.clone();
        }
        let mut lens = vec![self.durable.len()];
        let mut sectors: BTreeMap<u64, Vec<Sector>> = BTreeMap::new();
        let mut content = self.durable.clone();
        for change in &self.pending {
            let touched = change.sectors(content.len());
            for sector in touched.clone() {
                sectors.entry(sector).or_insert_with(|| vec![read_sector(&content, sector)]);
            }
            change.apply(&mut content);
            for sector in touched {
                let after = read_sector(&content, sector);
                if let Some(states) = sectors.get_mut(&sector)
                    && states.last() != Some(&after)
                {
                    states.push(after);
                }
            }
            if lens.last() != Some(&content.len()) {
                lens.push(content.len());
            }
        }
        let len = pick(&lens, choose).copied().unwrap_or(0);
        let mut content = self.durable.clone();
        for (sector, states) in &sectors {
            let offset = sector * SECTOR_BYTES;
            if offset < len
                && let Some(state) = pick(states, choose)
            {
                content.write(offset, state);
            }
        }
        content.set_len(len);
        content
    }
}

type Sector = [u8; SECTOR_BYTES as usize];

fn read_sector(content: &Content, sector: u64) -> Sector {
    let mut bytes = [0; SECTOR_BYTES as usize];
    content.read(sector * SECTOR_BYTES, &mut bytes);
    bytes
}

fn pick<'a, T>(states: &'a [T], choose: &mut dyn FnMut(u64) -> u64) -> Option<&'a T> {
    let index = if states.len() > 1 { choose(states.len() as u64) } else { 0 };
    states.get(usize::try_from(index).ok()?)
}

impl Change {
    fn apply(&self, content: &mut Content) {
        match self {
            Self::Write { offset, bytes } => content.write(*offset, bytes),
            Self::Length(len) => content.set_len(*len),
        }
    }

    /// The sectors whose bytes change, in a file of `len` bytes.
    fn sectors(&self, len: u64) -> std::ops::Range<u64> {
        let (start, end) = match self {
            Self::Write { bytes, .. } if bytes.is_empty() => (0, 0),
            Self::Write { offset, bytes } => (*offset, offset + bytes.len() as u64),
            Self::Length(to) => (*to, len.max(*to)),
        };
        start / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES)
    }
}

impl Vfs for MemoryVfs {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let key = key_of(path);
        let mut disk = self.lock();
        disk.operation("create_dir_all", &key, [0; 2], b"");
        let mut end = 0;
        while end < key.len() {
            end = key[end + 1..].find('/').map_or(key.len(), |at| end + 1 + at);
            let dir = &key[..end];
            if disk.names.contains_key(dir) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            disk.dirs.insert(dir.to_owned());
        }
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let key = key_of(path);
        let mut disk = self.lock();
        disk.operation("create", &key, [0; 2], b"");
        let id = disk.create(key)?;
        Ok(Arc::new(MemoryFile { vfs: self.clone(), id, access: Access::Write }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let key = key_of(path);
        let mut disk = self.lock();
        disk.operation("open", &key, [u64::from(access == Access::Write), 0], b"");
        if disk.dirs.contains(&key) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let id = *disk.names.get(&key).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(MemoryFile { vfs: self.clone(), id, access }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (key_of(from), key_of(to));
        let mut disk = self.lock();
        disk.operation("rename", &from, [0; 2], to.as_bytes());
        let id = *disk.names.get(&from).ok_or(io::ErrorKind::NotFound)?;
        if disk.dirs.contains(&to) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        disk.dir_of(&to)?;
        if from != to {
            disk.change_names(NameChange { removed: Some(from), added: Some((to, id)) });
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let key = key_of(path);
        let mut disk = self.lock();
        disk.operation("remove", &key, [0; 2], b"");
        if !disk.names.contains_key(&key) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.change_names(NameChange { removed: Some(key), added: None });
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let key = key_of(path);
        let mut disk = self.lock();
        disk.operation("list", &key, [0; 2], b"");
        if !key.is_empty() && !disk.dirs.contains(&key) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let within = |name: &String| (parent_of(name) == key).then(|| base_of(name).to_owned());
        let dirs = disk.dirs.iter().filter_map(within);
        let dirs = dirs.map(|name| DirEntry { name, bytes: 0, is_dir: true });
        let files = disk.names.iter().filter_map(|(path, id)| {
            let bytes = disk.files.get(id).map_or(0, |inode| inode.now.len());
            within(path).map(|name| DirEntry { name, bytes, is_dir: false })
        });
        let mut entries: Vec<DirEntry> = dirs.chain(files).collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let key = key_of(path);
        let mut disk = self.lock();
        disk.operation("sync_dir", &key, [0; 2], b"");
        if !key.is_empty() && !disk.dirs.contains(&key) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.sync_dir(&key);
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let key = key_of(path);
        let mut disk = self.lock();
        disk.operation("exists", &key, [0; 2], b"");
        Ok(key.is_empty() || disk.names.contains_key(&key) || disk.dirs.contains(&key))
    }

    fn lock(&self, path: &Path) -> io::Result<LockGuard> {
        let key = key_of(path);
        let mut disk = self.lock();
        disk.operation("lock", &key, [0; 2], b"");
        if !disk.names.contains_key(&key) {
            disk.create(key.clone())?;
        }
        if !disk.locks.insert(key.clone()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(MemoryLock { vfs: self.clone(), key }))
    }
}

#[derive(Debug)]
struct MemoryLock {
    vfs: MemoryVfs,
    key: String,
}

impl LockHeld for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.vfs.lock().locks.remove(&self.key);
    }
}

#[derive(Debug)]
struct MemoryFile {
    vfs: MemoryVfs,
    id: FileId,
    access: Access,
}

impl MemoryFile {
    fn change(&self, kind: &str, len: impl Fn(u64) -> u64, change: Change) -> io::Result<()> {
        let mut disk = self.vfs.lock();
        match &change {
            Change::Write { offset, bytes } => disk.operation(kind, "", [self.id, *offset], bytes),
            Change::Length(len) => disk.operation(kind, "", [self.id, *len], b""),
        }
        if self.access != Access::Write {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let before = disk.inode(self.id)?.now.len();
        disk.resize(self.id, len(before))?;
        disk.inode_mut(self.id)?.change(change);
        Ok(())
    }

    fn sync(&self, kind: &str) -> io::Result<()> {
        let mut disk = self.vfs.lock();
        disk.operation(kind, "", [self.id, 0], b"");
        disk.inode_mut(self.id)?.sync();
        Ok(())
    }
}

impl File for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut disk = self.vfs.lock();
        disk.operation("read_at", "", [self.id, offset], &(buffer.len() as u64).to_le_bytes());
        Ok(disk.inode(self.id)?.now.read(offset, buffer))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let end = offset + bytes.len() as u64;
        let change = Change::Write { offset, bytes: Bytes::copy_from_slice(bytes) };
        self.change("write_at", |len| len.max(end), change)?;
        Ok(bytes.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync("sync_data")
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync("sync_all")
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.change("set_len", |_| bytes, Change::Length(bytes))
    }

    fn len(&self) -> io::Result<u64> {
        let mut disk = self.vfs.lock();
        disk.operation("len", "", [self.id, 0], b"");
        Ok(disk.inode(self.id)?.now.len())
    }

    fn map(&self, bytes: u64) -> io::Result<Map> {
        let mut disk = self.vfs.lock();
        disk.operation("map", "", [self.id, bytes], b"");
        let content = &disk.inode(self.id)?.now;
        if content.len() < bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut whole = content.to_vec();
        whole.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(Map::of_bytes(whole.into()))
    }

    fn lose_unsynced(&self) {
        if let Ok(inode) = self.vfs.lock().inode_mut(self.id) {
            inode.pending.clear();
        }
    }
}

/// A path from the root of the simulated disk, without leading, doubled or trailing separators.
fn key_of(path: &Path) -> String {
    let parts = path.components().filter_map(|component| match component {
        Component::Normal(part) => Some(part.to_string_lossy()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    parts.collect::<Vec<_>>().join("/")
}

fn parent_of(key: &str) -> &str {
    key.rsplit_once('/').map_or("", |(dir, _)| dir)
}

fn base_of(key: &str) -> &str {
    key.rsplit_once('/').map_or(key, |(_, base)| base)
}

fn gone() -> io::Error {
    io::Error::other("no such file on the simulated disk")
}

/// Splitmix64: small, and the same everywhere.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
