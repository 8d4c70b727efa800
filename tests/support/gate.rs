//! A file system whose writes and syncs of chosen files wait at a gate until a test lets them pass.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use annals::vfs::{Access, DirEntry, File, LockGuard, Map, Operation, Vfs};

/// Which operations on which files are concerned.
type Chosen = fn(&Path, Operation) -> bool;

/// The file system. Clones share their gate, which is open at first.
#[derive(Clone, Debug)]
pub struct GateVfs {
    inner: Arc<dyn Vfs>,
    gate: Arc<Gate>,
}

#[derive(Debug)]
struct Gate {
    chosen: Chosen,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    shut: bool,
    /// How long what passes is made to take.
    slowness: Duration,
    /// Operations that stand before the gate.
    held: usize,
}

impl GateVfs {
    /// Before another file system.
    pub fn new(inner: Arc<dyn Vfs>, chosen: Chosen) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self { inner, gate: Arc::new(Gate { chosen, state, changed }) }
    }

    /// From now on the chosen operations wait.
    pub fn shut(&self) {
        self.change(|state| state.shut = true);
    }

    /// Lets everything pass.
    pub fn open(&self) {
        self.change(|state| state.shut = false);
    }

    /// Makes each chosen operation take this much longer.
    pub fn slow(&self, by: Duration) {
        self.change(|state| state.slowness = by);
    }

    /// Returns when at least one operation stands before the gate.
    pub fn wait_until_held(&self) {
        let state = self.gate.state.lock().unwrap();
        drop(self.gate.changed.wait_while(state, |state| state.held == 0).unwrap());
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.gate.state.lock().unwrap());
        self.gate.changed.notify_all();
    }

    fn wrap(&self, path: &Path, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(GateFile { inner, path: path.to_path_buf(), gate: Arc::clone(&self.gate) })
    }
}

impl Gate {
    fn pass(&self, path: &Path, operation: Operation) {
        if !(self.chosen)(path, operation) {
            return;
        }
        let mut state = self.state.lock().unwrap();
        state.held += 1;
        self.changed.notify_all();
        state = self.changed.wait_while(state, |state| state.shut).unwrap();
        state.held -= 1;
        let slowness = state.slowness;
        drop(state);
        std::thread::sleep(slowness);
    }
}

/// Writes and syncs of segments.
pub fn segments(path: &Path, operation: Operation) -> bool {
    matches!(operation, Operation::Write | Operation::Sync) && is_in(path, "seg")
}

/// Syncs of the log.
pub fn log_syncs(path: &Path, operation: Operation) -> bool {
    operation == Operation::Sync && is_in(path, "wal")
}

fn is_in(path: &Path, directory: &str) -> bool {
    path.parent().is_some_and(|parent| parent.ends_with(directory))
}

impl Vfs for GateVfs {
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
struct GateFile {
    inner: Arc<dyn File>,
    path: PathBuf,
    gate: Arc<Gate>,
}

impl File for GateFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.gate.pass(&self.path, Operation::Write);
        self.inner.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.gate.pass(&self.path, Operation::Sync);
        self.inner.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.gate.pass(&self.path, Operation::Sync);
        self.inner.sync_all()
    }

    fn write_back(&self, range: Range<u64>) {
        self.inner.write_back(range);
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
