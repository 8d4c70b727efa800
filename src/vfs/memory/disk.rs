//! The state of a simulated disk, and what a crash makes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use bytes::Bytes;

use super::content::Content;
use crate::vfs::SECTOR_BYTES;

#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) files: BTreeMap<FileId, Inode>,
    next_file: FileId,
    /// Directories, by their path from the root; durable as soon as they are made.
    pub(super) dirs: BTreeSet<String>,
    /// Names as they are now.
    pub(super) names: BTreeMap<String, FileId>,
    /// Names that survive for certain.
    pub(super) durable_names: BTreeMap<String, FileId>,
    /// Changes of names since, in order.
    pending_names: Vec<NameChange>,
    /// The file of the last change, if that was a write and is not synced.
    in_flight: Option<FileId>,
    pub(super) locks: BTreeSet<String>,
    pub(super) operations: u64,
    pub(super) trace: u64,
    /// Most bytes all files together may have.
    pub(super) capacity: Option<u64>,
    pub(super) used: u64,
}

pub(super) type FileId = u64;

#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    /// As a reader sees it.
    pub(super) now: Content,
    /// As it is on the device for certain.
    pub(super) durable: Content,
    /// Changes since, in order.
    pub(super) pending: Vec<Change>,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { offset: u64, bytes: Bytes },
    Length(u64),
}

/// One change of names; it is on the device wholly or not at all.
#[derive(Clone, Debug)]
pub(super) struct NameChange {
    pub(super) removed: Option<String>,
    pub(super) added: Option<(String, FileId)>,
}

/// A write that was taken back.
#[derive(Debug)]
pub(super) struct InFlight {
    id: FileId,
    offset: u64,
    bytes: Bytes,
}

impl InFlight {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// How many sectors it touches.
    pub(super) fn sectors(&self) -> u64 {
        self.end().div_ceil(SECTOR_BYTES) - self.offset / SECTOR_BYTES
    }
}

impl Disk {
    /// Counts an operation and adds it to the trace.
    pub(super) fn operation(&mut self, kind: &str, path: &str, numbers: [u64; 2], bytes: &[u8]) {
        self.operations += 1;
        if !matches!(kind, "open" | "list" | "exists" | "read_at" | "len" | "map") {
            self.in_flight = None;
        }
        let mut hash = self.trace;
        for part in [kind.as_bytes(), path.as_bytes(), bytes] {
            hash = xxhash_rust::xxh3::xxh3_64_with_seed(part, hash ^ part.len() as u64);
        }
        for number in numbers {
            hash = xxhash_rust::xxh3::xxh3_64_with_seed(&number.to_le_bytes(), hash);
        }
        self.trace = hash;
    }

    pub(super) fn named(&self, key: &str) -> io::Result<&Inode> {
        let id = self.names.get(key).ok_or(io::ErrorKind::NotFound)?;
        self.inode(*id)
    }

    pub(super) fn inode(&self, id: FileId) -> io::Result<&Inode> {
        self.files.get(&id).ok_or_else(gone)
    }

    pub(super) fn inode_mut(&mut self, id: FileId) -> io::Result<&mut Inode> {
        self.files.get_mut(&id).ok_or_else(gone)
    }

    pub(super) fn add_inode(&mut self) -> FileId {
        self.next_file += 1;
        self.files.insert(self.next_file, Inode::default());
        self.next_file
    }

    /// Makes a new file; the name is pending.
    pub(super) fn create(&mut self, key: String) -> io::Result<FileId> {
        self.check_new(&key)?;
        let id = self.add_inode();
        self.change_names(NameChange { removed: None, added: Some((key, id)) });
        Ok(id)
    }

    /// Checks that a name can be given.
    pub(super) fn check_new(&self, key: &str) -> io::Result<()> {
        if self.names.contains_key(key) || self.dirs.contains(key) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.dir_of(key)
    }

    /// Checks that the directory of a name exists.
    pub(super) fn dir_of(&self, key: &str) -> io::Result<()> {
        let dir = parent_of(key);
        if dir.is_empty() || self.dirs.contains(dir) {
            Ok(())
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    pub(super) fn change_names(&mut self, change: NameChange) {
        let replaced = change.added.as_ref().and_then(|(name, _)| self.names.get(name).copied());
        let removed = match &change {
            NameChange { removed: Some(name), added: None } => self.names.get(name).copied(),
            _ => None,
        };
        change.apply(&mut self.names);
        self.pending_names.push(change);
        for id in replaced.into_iter().chain(removed) {
            self.release(id);
        }
    }

    /// Gives back the room of a file that has lost a name, if that was its last.
    pub(super) fn release(&mut self, id: FileId) {
        if self.names.values().all(|named| *named != id) {
            self.used -= self.files.get(&id).map_or(0, |inode| inode.now.len());
        }
    }

    pub(super) fn sync_dir(&mut self, dir: &str) {
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
    pub(super) fn resize(&mut self, id: FileId, len: u64) -> io::Result<()> {
        let before = self.inode(id)?.now.len();
        let used = self.used - before.min(self.used) + len;
        if len > before && self.capacity.is_some_and(|capacity| used > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.used = used;
        Ok(())
    }

    /// The same disk once more, without locks.
    pub(super) fn fork(&self) -> Self {
        Self { locks: BTreeSet::new(), ..self.clone() }
    }

    /// Notes that a file has been written to just now.
    pub(super) fn written(&mut self, id: FileId) {
        self.in_flight = Some(id);
    }

    /// Takes back the write in flight, if there is one.
    pub(super) fn take_in_flight(&mut self) -> Option<InFlight> {
        let id = self.in_flight.take()?;
        let inode = self.files.get_mut(&id)?;
        let Some(Change::Write { offset, bytes }) = inode.pending.pop() else { return None };
        inode.now = inode.durable.clone();
        for change in &inode.pending {
            change.apply(&mut inode.now);
        }
        Some(InFlight { id, offset, bytes })
    }

    /// Makes durable those sectors of a write that `arrived` answers for by their number within it. Answers
    /// whether the file is there.
    pub(super) fn write_part(&mut self, write: &InFlight, arrived: impl Fn(u64) -> bool) -> bool {
        let Some(inode) = self.files.get_mut(&write.id) else { return false };
        let before = inode.now.len();
        let first = write.offset / SECTOR_BYTES;
        let mut any = false;
        for number in (0..write.sectors()).filter(|number| arrived(*number)) {
            let start = ((first + number) * SECTOR_BYTES).max(write.offset);
            let end = ((first + number + 1) * SECTOR_BYTES).min(write.end());
            let within = |at: u64| usize::try_from(at - write.offset).unwrap_or(usize::MAX);
            inode.now.write(start, &write.bytes[within(start)..within(end)]);
            any = true;
        }
        if any && inode.now.len() < write.end() {
            inode.now.set_len(write.end());
        }
        inode.durable = inode.now.clone();
        self.used += inode.now.len() - before;
        true
    }

    pub(super) fn content_hash(&self) -> u64 {
        let mut hash = self.dirs.len() as u64;
        for (name, id) in &self.names {
            hash = xxhash_rust::xxh3::xxh3_64_with_seed(name.as_bytes(), hash);
            if let Some(inode) = self.files.get(id) {
                hash = inode.now.hash(hash);
            }
        }
        hash
    }

    pub(super) fn is_settled(&self) -> bool {
        let named = self.names.values().filter_map(|id| self.files.get(id));
        self.pending_names.is_empty() && named.into_iter().all(|inode| inode.pending.is_empty())
    }

    /// A disk on which `choose(n)`, with 0 for oldest and n - 1 for newest, has decided for every
    /// unsynced thing that can be in one of `n` states.
    pub(super) fn crash(&self, choose: &mut dyn FnMut(u64) -> u64) -> Self {
        let mut names = self.durable_names.clone();
        for change in &self.pending_names {
            if choose(2) == 1 {
                change.apply(&mut names);
            }
        }
        let mut disk = Self { next_file: self.next_file, ..Self::default() };
        for id in names.values().collect::<BTreeSet<_>>() {
            // However many names lead to it, it is one file, and in one state.
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
    pub(super) fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }

    pub(super) fn sync(&mut self) {
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

type Sector = [u8; 512];

fn read_sector(content: &Content, sector: u64) -> Sector {
    let mut bytes = [0; 512];
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

pub(super) fn parent_of(key: &str) -> &str {
    key.rsplit_once('/').map_or("", |(dir, _)| dir)
}

fn gone() -> io::Error {
    io::Error::other("no such file on the simulated disk")
}
