//! A file system for whoever holds a store's lock: names change only while the lock protects them.
//!
//! A writer reaches its files by path. When somebody removes `LOCK`, or puts another directory in
//! the place of the store's, the paths lead to what another writer may own; to go on would destroy
//! both stores. So before every operation on a name the lock is looked at.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use super::{Access, DirEntry, File, LockGuard, LockHeld, Vfs};

/// Asks whether a lock still protects its store, without keeping it.
#[derive(Clone, Debug)]
pub(crate) struct Held(Weak<dyn LockHeld>);

impl Held {
    pub(crate) fn new(lock: &LockGuard) -> Self {
        Self(Arc::downgrade(lock))
    }

    /// Fails once the lock has been given up, or protects nothing any more.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.0.upgrade() {
            Some(lock) => lock.check(),
            None => Err(io::Error::other("the store's lock has been given up")),
        }
    }
}

/// See the module. Once the lock is given up, names change no more.
#[derive(Debug)]
pub(crate) struct HeldVfs {
    inner: Arc<dyn Vfs>,
    held: Held,
}

impl HeldVfs {
    /// The file system, as long as the lock holds.
    pub(crate) fn new(inner: Arc<dyn Vfs>, lock: &LockGuard) -> Self {
        Self { inner, held: Held::new(lock) }
    }
}

impl Vfs for HeldVfs {
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.canonical(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.held.check()?;
        self.inner.create_dir_all(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.held.check()?;
        self.inner.create(path)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        if access == Access::Write {
            self.held.check()?;
        }
        self.inner.open(path, access)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.held.check()?;
        self.inner.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.held.check()?;
        self.inner.hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.held.check()?;
        self.inner.remove(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.list(path)
    }

    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        self.inner.names(path)
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
