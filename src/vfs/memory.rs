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

use std::io;
use std::path::{Component, Path};
use std::sync::Arc;

use bytes::Bytes;

use self::content::Content;
use self::disk::{Change, Disk, FileId, Inode, NameChange, parent_of};
use super::{Access, DirEntry, File, LockGuard, LockHeld, Map, Vfs};
use crate::sync::plain::{Mutex, MutexGuard, lock};

mod content;
mod disk;
#[cfg(test)]
mod tests;
mod torn;

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

impl MemoryVfs {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// The disk as a machine might find it after losing power now. This disk goes on unchanged.
    ///
    /// `seed` decides what [`CrashMode::Random`] keeps; the other modes ignore it. Locks are not
    /// held on the new disk, and its operations count from zero.
    #[must_use]
    pub fn crash(&self, seed: u64, mode: CrashMode) -> Self {
        let mut random = Random::new(seed);
        // Even odds for everything would hardly ever lose or keep just one thing.
        let style = random.below(4);
        let mut choose = move |states: u64| match mode {
            CrashMode::LoseAll => 0,
            CrashMode::KeepAll => states - 1,
            CrashMode::Random => match (style, random.below(16)) {
                (1, 1..) => states - 1,
                (2, 1..) => 0,
                _ => random.below(states),
            },
        };
        self.crash_by(&mut choose)
    }

    /// Every disk that a crash now could leave, if they are at most `most`; else nothing.
    pub fn crash_every(&self, most: usize) -> Option<Vec<Self>> {
        let mut images = Vec::new();
        // The choices of one image, each with the number it was made from: an odometer.
        let mut choices: Vec<(u64, u64)> = Vec::new();
        loop {
            if images.len() == most {
                return None;
            }
            let mut at = 0;
            images.push(self.crash_by(&mut |states| {
                if at == choices.len() {
                    choices.push((0, states));
                }
                at += 1;
                choices[at - 1].0
            }));
            while choices.pop_if(|(choice, states)| *choice + 1 == *states).is_some() {}
            match choices.last_mut() {
                Some((choice, _)) => *choice += 1,
                None => return Some(images),
            }
        }
    }

    /// Whether everything is synced, so that a crash would change nothing.
    pub fn is_settled(&self) -> bool {
        self.disk().is_settled()
    }

    fn crash_by(&self, choose: &mut dyn FnMut(u64) -> u64) -> Self {
        Self { disk: Arc::new(Mutex::new(self.disk().crash(choose))) }
    }

    /// Number of operations so far.
    pub fn op_count(&self) -> u64 {
        self.disk().operations
    }

    /// A hash of every operation so far, with its arguments. Two runs with the same hash did the
    /// same things in the same order.
    pub fn trace_hash(&self) -> u64 {
        self.disk().trace
    }

    /// Limits the sum of the lengths of all files; what would exceed it fails as a full disk does.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.disk().capacity = bytes;
    }

    /// Sum of the lengths of all files.
    pub fn used_bytes(&self) -> u64 {
        self.disk().used
    }

    /// Paths of all files, sorted.
    pub fn paths(&self) -> Vec<String> {
        self.disk().names.keys().cloned().collect()
    }

    /// The whole content of a file; not an operation.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if there is no such file.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let disk = self.disk();
        let inode = disk.named(&key_of(path))?;
        Ok(inode.now.to_vec())
    }

    /// Replaces a file, or makes it, with its content and name durable; not an operation. Other names of
    /// the file keep what it was. This is how tests damage a disk.
    pub fn overwrite(&self, path: &Path, content: &[u8]) {
        let mut disk = self.disk();
        let key = key_of(path);
        let content = Content::of(content);
        disk.used += content.len();
        let id = disk.add_inode();
        disk.files.insert(id, Inode { now: content.clone(), durable: content, pending: vec![] });
        if let Some(before) = disk.names.insert(key.clone(), id) {
            disk.release(before);
        }
        disk.durable_names.insert(key, id);
    }

    /// Removes a file, durably; not an operation. This is how tests damage a disk.
    pub fn forget(&self, path: &Path) {
        let mut disk = self.disk();
        let key = key_of(path);
        if let Some(before) = disk.names.remove(&key) {
            disk.release(before);
        }
        disk.durable_names.remove(&key);
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }
}

impl Vfs for MemoryVfs {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let key = key_of(path);
        let mut disk = self.disk();
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
        let mut disk = self.disk();
        disk.operation("create", &key, [0; 2], b"");
        let id = disk.create(key)?;
        Ok(Arc::new(MemoryFile { vfs: self.clone(), id, access: Access::Write }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let key = key_of(path);
        let mut disk = self.disk();
        disk.operation("open", &key, [u64::from(access == Access::Write), 0], b"");
        if disk.dirs.contains(&key) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let id = *disk.names.get(&key).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(MemoryFile { vfs: self.clone(), id, access }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (key_of(from), key_of(to));
        let mut disk = self.disk();
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

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (key_of(from), key_of(to));
        let mut disk = self.disk();
        disk.operation("hard_link", &from, [0; 2], to.as_bytes());
        let id = *disk.names.get(&from).ok_or(io::ErrorKind::NotFound)?;
        disk.check_new(&to)?;
        disk.change_names(NameChange { removed: None, added: Some((to, id)) });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let key = key_of(path);
        let mut disk = self.disk();
        disk.operation("remove", &key, [0; 2], b"");
        if !disk.names.contains_key(&key) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.change_names(NameChange { removed: Some(key), added: None });
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let key = key_of(path);
        let mut disk = self.disk();
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
        let mut disk = self.disk();
        disk.operation("sync_dir", &key, [0; 2], b"");
        if !key.is_empty() && !disk.dirs.contains(&key) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.sync_dir(&key);
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let key = key_of(path);
        let mut disk = self.disk();
        disk.operation("exists", &key, [0; 2], b"");
        Ok(key.is_empty() || disk.names.contains_key(&key) || disk.dirs.contains(&key))
    }

    fn lock(&self, path: &Path) -> io::Result<LockGuard> {
        let key = key_of(path);
        let mut disk = self.disk();
        disk.operation("lock", &key, [0; 2], b"");
        if !disk.names.contains_key(&key) {
            disk.create(key.clone())?;
        }
        if !disk.locks.insert(key.clone()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Arc::new(MemoryLock { vfs: self.clone(), key }))
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
        self.vfs.disk().locks.remove(&self.key);
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
        let mut disk = self.vfs.disk();
        match &change {
            Change::Write { offset, bytes } => disk.operation(kind, "", [self.id, *offset], bytes),
            Change::Length(len) => disk.operation(kind, "", [self.id, *len], b""),
        }
        if self.access != Access::Write {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let before = disk.inode(self.id)?.now.len();
        disk.resize(self.id, len(before))?;
        if matches!(change, Change::Write { .. }) {
            disk.written(self.id);
        }
        disk.inode_mut(self.id)?.change(change);
        Ok(())
    }

    fn sync(&self, kind: &str) -> io::Result<()> {
        let mut disk = self.vfs.disk();
        disk.operation(kind, "", [self.id, 0], b"");
        disk.inode_mut(self.id)?.sync();
        Ok(())
    }
}

impl File for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut disk = self.vfs.disk();
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

    /// As the length of a file: what was allocated and not synced a crash may take back.
    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        self.change("allocate", |len| len.max(bytes), Change::Length(bytes))?;
        Ok(true)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.change("set_len", |_| bytes, Change::Length(bytes))
    }

    fn len(&self) -> io::Result<u64> {
        let mut disk = self.vfs.disk();
        disk.operation("len", "", [self.id, 0], b"");
        Ok(disk.inode(self.id)?.now.len())
    }

    fn map(&self, bytes: u64) -> io::Result<Map> {
        let mut disk = self.vfs.disk();
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
        if let Ok(inode) = self.vfs.disk().inode_mut(self.id) {
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

fn base_of(key: &str) -> &str {
    key.rsplit_once('/').map_or(key, |(_, base)| base)
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
