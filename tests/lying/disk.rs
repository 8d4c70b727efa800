//! A disk that lies once: it says that it has written, and has not, or not there.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use annals::vfs::{Access, DirEntry, File, LockGuard, Map, SECTOR_BYTES, Vfs};

/// What becomes of a write that is said to have succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Nothing of it is written.
    Lost,
    /// One of its sectors stays what it was.
    Stale(u64),
    /// It is written so many sectors further back, or forth, in the same file.
    Shifted(i64),
    /// It is written at its place in another file that is open.
    Elsewhere,
}

/// A write.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) path: PathBuf,
    pub(crate) sectors: u64,
    pub(crate) end: u64,
    /// How many syncs there had been.
    pub(crate) syncs: u64,
}

#[derive(Debug, Default)]
struct State {
    writes: Vec<Write>,
    syncs: u64,
    lie: Option<(usize, Lie)>,
    open: BTreeMap<PathBuf, Weak<dyn File>>,
}

/// The file system. Clones share what they know.
#[derive(Clone, Debug)]
pub(crate) struct LyingVfs {
    inner: Arc<dyn Vfs>,
    state: Arc<Mutex<State>>,
}

impl LyingVfs {
    pub(crate) fn new(inner: Arc<dyn Vfs>, lie: Option<(usize, Lie)>) -> Self {
        Self { inner, state: Arc::new(Mutex::new(State { lie, ..State::default() })) }
    }

    /// Every write so far, lies included.
    pub(crate) fn writes(&self) -> Vec<Write> {
        self.state.lock().unwrap().writes.clone()
    }

    fn wrap(&self, path: &Path, inner: Arc<dyn File>) -> Arc<dyn File> {
        let path = final_name(path);
        self.state.lock().unwrap().open.insert(path.clone(), Arc::downgrade(&inner));
        Arc::new(LyingFile { inner, path, vfs: self.clone() })
    }
}

/// The name that a file has in the end.
fn final_name(path: &Path) -> PathBuf {
    if path.extension().is_some_and(|end| end == "tmp") {
        path.with_extension("")
    } else {
        path.to_path_buf()
    }
}

impl Vfs for LyingVfs {
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.canonical(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(path, self.inner.create(path)?))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(path, self.inner.open(path, access)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn lock(&self, path: &Path) -> io::Result<LockGuard> {
        self.inner.lock(path)
    }
}

#[derive(Debug)]
struct LyingFile {
    inner: Arc<dyn File>,
    path: PathBuf,
    vfs: LyingVfs,
}

impl LyingFile {
    /// What is done instead of a write.
    fn lie(&self, lie: Lie, bytes: &[u8], offset: u64) -> io::Result<()> {
        match lie {
            Lie::Lost => Ok(()),
            Lie::Stale(sector) => {
                let first = offset / SECTOR_BYTES + sector;
                let within = |at: u64| usize::try_from(at.saturating_sub(offset)).unwrap();
                let start = within(first * SECTOR_BYTES).min(bytes.len());
                let end = within((first + 1) * SECTOR_BYTES).min(bytes.len());
                self.inner.write_all_at(&bytes[..start], offset)?;
                if end < bytes.len() {
                    self.inner.write_all_at(&bytes[end..], offset + end as u64)?;
                }
                Ok(())
            }
            Lie::Shifted(sectors) => {
                let by = sectors * SECTOR_BYTES.cast_signed();
                match offset.checked_add_signed(by) {
                    Some(place) => self.inner.write_all_at(bytes, place),
                    None => Ok(()),
                }
            }
            Lie::Elsewhere => {
                let other = {
                    let state = self.vfs.state.lock().unwrap();
                    let others = state.open.iter().filter(|(path, _)| **path != self.path);
                    others.rev().find_map(|(_, file)| file.upgrade())
                };
                // It may be open for reading alone: then the write is lost.
                drop(other.map(|other| other.write_all_at(bytes, offset)));
                Ok(())
            }
        }
    }
}

impl File for LyingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let lie = {
            let mut state = self.vfs.state.lock().unwrap();
            let number = state.writes.len();
            let end = offset + bytes.len() as u64;
            let sectors = end.div_ceil(SECTOR_BYTES) - offset / SECTOR_BYTES;
            let (path, syncs) = (self.path.clone(), state.syncs);
            state.writes.push(Write { path, sectors, end, syncs });
            state.lie.filter(|(at, _)| *at == number).map(|(_, lie)| lie)
        };
        match lie {
            None => self.inner.write_at(bytes, offset),
            Some(lie) => self.lie(lie, bytes, offset).map(|()| bytes.len()),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.vfs.state.lock().unwrap().syncs += 1;
        self.inner.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.inner.sync_all()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.inner.set_len(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn map(&self, bytes: u64) -> io::Result<Map> {
        self.inner.map(bytes)
    }

    fn lose_unsynced(&self) {
        self.inner.lose_unsynced();
    }
}
