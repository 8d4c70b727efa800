//! Makes chosen operations fail, on the way to another file system.
//!
//! Operations are numbered from zero in the order they arrive, in all and by kind. A rule names the
//! first operation that fails, and how. [`FaultVfs::stop_after`] is the other way to fail: from a
//! point on nothing reaches the disk any more, as if the process had died there; the test then takes
//! a crash image of the disk below.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Access, DirEntry, File, LockGuard, Map, Vfs};
use crate::sync::plain::{Mutex, lock};

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The device fails (`EIO`). A failed sync loses what it should have written.
    Io,
    /// The device is full (`ENOSPC`).
    NoSpace,
    /// The process has no descriptor left for another file (`EMFILE`).
    NoDescriptor,
    /// A signal came in between (`EINTR`). The next attempt works, whether or not the rule is
    /// sticky.
    Interrupted,
    /// Half of the bytes are read or written, and that is reported. Other operations are not
    /// concerned.
    Short,
    /// Half of the bytes are written, and then the device fails. Other operations fail as with
    /// [`Fault::Io`].
    Torn,
}

/// What an operation does; every kind is counted by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Operation {
    /// Making a directory.
    CreateDir,
    /// Making a file.
    Create,
    /// Opening a file.
    Open,
    /// Renaming a file.
    Rename,
    /// Giving a file a further name.
    Link,
    /// Removing a file.
    Remove,
    /// Reading the names of a directory.
    List,
    /// Syncing a directory.
    SyncDir,
    /// Asking whether a name exists.
    Exists,
    /// Taking the lock.
    Lock,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Syncing a file.
    Sync,
    /// Setting the length of a file, or allocating it.
    SetLen,
    /// Asking for the length of a file.
    Len,
    /// Mapping a file.
    Map,
}

/// A file system that fails on request, before another one. Clones share their rules and counts.
///
/// ```
/// use std::{path::Path, sync::Arc};
/// use annals::vfs::{Fault, FaultVfs, MemoryVfs, Operation, Vfs};
///
/// let faulty = FaultVfs::new(Arc::new(MemoryVfs::new()));
/// faulty.fail(Some(Operation::Write), 1, Fault::NoSpace, false);
/// let file = faulty.create(Path::new("a"))?;
/// assert!(file.write_at(b"one", 0).is_ok());
/// assert!(file.write_at(b"two", 3).is_err());
/// assert!(file.write_at(b"two", 3).is_ok());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FaultVfs {
    inner: Arc<dyn Vfs>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    operations: u64,
    by_kind: std::collections::BTreeMap<Operation, u64>,
    rules: Vec<Rule>,
    stop_after: Option<u64>,
    fired: u64,
    observer: Option<Observer>,
}

/// Called before each operation, with its number and kind.
type Observer = Arc<dyn Fn(u64, Operation) + Send + Sync>;

#[derive(Clone, Copy, Debug)]
struct Rule {
    kind: Option<Operation>,
    nth: u64,
    fault: Fault,
    sticky: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("operations", &self.operations)
            .field("rules", &self.rules)
            .field("stop_after", &self.stop_after)
            .field("fired", &self.fired)
            .finish_non_exhaustive()
    }
}

impl FaultVfs {
    /// A file system that does what `inner` does until a rule is made.
    pub fn new(inner: Arc<dyn Vfs>) -> Self {
        Self { inner, state: Arc::default() }
    }

    /// Makes operation number `nth` (from 0; of `kind` only, if one is given) fail; if `sticky`,
    /// all later ones of the kind too.
    pub fn fail(&self, kind: Option<Operation>, nth: u64, fault: Fault, sticky: bool) {
        lock(&self.state).rules.push(Rule { kind, nth, fault, sticky });
    }

    /// Lets the first `count` operations pass and stops all later ones, as if the process had died.
    pub fn stop_after(&self, count: u64) {
        lock(&self.state).stop_after = Some(count);
    }

    /// Forgets all rules, so that everything works again. Counts go on.
    pub fn heal(&self) {
        let mut state = lock(&self.state);
        state.rules.clear();
        state.stop_after = None;
    }

    /// Has `observer` called before every operation, with the number of operations before it and
    /// its kind. The observer must not use this file system; it may use the one below.
    pub fn observe(&self, observer: impl Fn(u64, Operation) + Send + Sync + 'static) {
        lock(&self.state).observer = Some(Arc::new(observer));
    }

    /// Number of operations so far, failed ones included.
    pub fn op_count(&self) -> u64 {
        lock(&self.state).operations
    }

    /// Number of operations of a kind so far, failed ones included.
    pub fn op_count_of(&self, kind: Operation) -> u64 {
        lock(&self.state).by_kind.get(&kind).copied().unwrap_or(0)
    }

    /// Number of operations that have been made to fail.
    pub fn fired(&self) -> u64 {
        lock(&self.state).fired
    }

    /// Counts an operation, and says how it is to fail.
    fn next(&self, kind: Operation) -> Verdict {
        let mut state = lock(&self.state);
        let number = state.operations;
        state.operations += 1;
        let of_kind = state.by_kind.entry(kind).or_insert(0);
        let number_of_kind = *of_kind;
        *of_kind += 1;
        let fault = state.rules.iter().find_map(|rule| {
            let number = match rule.kind {
                None => number,
                Some(of) if of == kind => number_of_kind,
                Some(_) => return None,
            };
            let sticky = rule.sticky && rule.fault != Fault::Interrupted;
            (number == rule.nth || sticky && number > rule.nth).then_some(rule.fault)
        });
        let stopped = state.stop_after.is_some_and(|count| number >= count);
        state.fired += u64::from(stopped || fault.is_some());
        let observer = state.observer.clone();
        drop(state);
        if let Some(observer) = observer {
            observer(number, kind);
        }
        match fault {
            _ if stopped => Verdict::Stopped,
            Some(fault) => Verdict::Fails(fault),
            None => Verdict::Passes,
        }
    }

    /// For operations that cannot be done by half.
    fn check(&self, kind: Operation) -> io::Result<()> {
        match self.next(kind) {
            Verdict::Passes | Verdict::Fails(Fault::Short) => Ok(()),
            Verdict::Fails(fault) => Err(error_of(fault)),
            Verdict::Stopped => Err(stopped()),
        }
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(FaultFile { inner: file, vfs: self.clone() })
    }
}

enum Verdict {
    Passes,
    Fails(Fault),
    Stopped,
}

fn stopped() -> io::Error {
    io::Error::other("the simulated process has been stopped")
}

fn error_of(fault: Fault) -> io::Error {
    io::Error::from_raw_os_error(match fault {
        Fault::NoSpace => libc::ENOSPC,
        Fault::NoDescriptor => libc::EMFILE,
        Fault::Interrupted => libc::EINTR,
        Fault::Io | Fault::Short | Fault::Torn => libc::EIO,
    })
}

impl Vfs for FaultVfs {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.check(Operation::CreateDir)?;
        self.inner.create_dir_all(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.check(Operation::Create)?;
        Ok(self.wrap(self.inner.create(path)?))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        self.check(Operation::Open)?;
        Ok(self.wrap(self.inner.open(path, access)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Operation::Rename)?;
        self.inner.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Operation::Link)?;
        self.inner.hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check(Operation::Remove)?;
        self.inner.remove(path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.canonical(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.check(Operation::List)?;
        self.inner.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.check(Operation::SyncDir)?;
        self.inner.sync_dir(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.check(Operation::Exists)?;
        self.inner.exists(path)
    }

    fn lock(&self, path: &Path) -> io::Result<LockGuard> {
        self.check(Operation::Lock)?;
        self.inner.lock(path)
    }
}

#[derive(Debug)]
struct FaultFile {
    inner: Arc<dyn File>,
    vfs: FaultVfs,
}

impl FaultFile {
    fn check_sync(&self) -> io::Result<()> {
        let checked = self.vfs.check(Operation::Sync);
        if let Err(error) = &checked
            && error.raw_os_error().is_some()
            && error.kind() != io::ErrorKind::Interrupted
        {
            // A stopped process, which has no error number, fails no sync: what it wrote may
            // still reach the disk.
            self.inner.lose_unsynced();
        }
        checked
    }
}

impl File for FaultFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.vfs.next(Operation::Read) {
            Verdict::Passes => self.inner.read_at(buffer, offset),
            Verdict::Fails(Fault::Short) => {
                let half = buffer.len().div_ceil(2);
                self.inner.read_at(&mut buffer[..half], offset)
            }
            Verdict::Fails(fault) => Err(error_of(fault)),
            Verdict::Stopped => Err(stopped()),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let half = &bytes[..bytes.len().div_ceil(2)];
        match self.vfs.next(Operation::Write) {
            Verdict::Passes => self.inner.write_at(bytes, offset),
            Verdict::Fails(Fault::Short) => self.inner.write_at(half, offset),
            Verdict::Fails(Fault::Torn) => {
                self.inner.write_all_at(half, offset)?;
                Err(error_of(Fault::Torn))
            }
            Verdict::Fails(fault) => Err(error_of(fault)),
            Verdict::Stopped => Err(stopped()),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check_sync()?;
        self.inner.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.check_sync()?;
        self.inner.sync_all()
    }

    /// No operation: as a hint it can do nothing and fail at nothing.
    fn write_back(&self, range: Range<u64>) {
        self.inner.write_back(range);
    }

    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        self.vfs.check(Operation::SetLen)?;
        self.inner.allocate(bytes)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.vfs.check(Operation::SetLen)?;
        self.inner.set_len(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.vfs.check(Operation::Len)?;
        self.inner.len()
    }

    fn map(&self, bytes: u64) -> io::Result<Map> {
        self.vfs.check(Operation::Map)?;
        self.inner.map(bytes)
    }

    fn lose_unsynced(&self) {
        self.inner.lose_unsynced();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{CrashMode, MemoryVfs};

    fn setup() -> (MemoryVfs, FaultVfs, Arc<dyn File>) {
        let disk = MemoryVfs::new();
        let faulty = FaultVfs::new(Arc::new(disk.clone()));
        let file = faulty.create(Path::new("a")).unwrap();
        (disk, faulty, file)
    }

    #[test]
    fn a_hint_to_write_back_makes_nothing_durable_and_is_no_operation() {
        let (disk, faulty, file) = setup();
        file.write_all_at(b"x", 0).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        let operations = faulty.op_count();
        file.write_back(0..1);
        assert_eq!(faulty.op_count(), operations);
        let lost = disk.crash(1, CrashMode::LoseAll);
        assert_eq!(lost.read(Path::new("a")).unwrap(), b"");
    }

    #[test]
    fn the_nth_of_a_kind_fails_once_or_from_then_on() {
        for sticky in [false, true] {
            let (_, faulty, file) = setup();
            faulty.fail(Some(Operation::Write), 2, Fault::Io, sticky);
            let outcomes: Vec<bool> = (0..5).map(|_| file.write_at(b"x", 0).is_ok()).collect();
            assert_eq!(outcomes, [true, true, false, !sticky, !sticky]);
            assert!(file.len().is_ok());
            assert_eq!(faulty.fired(), if sticky { 3 } else { 1 });
            faulty.heal();
            assert!(file.write_at(b"x", 0).is_ok());
            assert_eq!(faulty.op_count_of(Operation::Write), 6);
        }
    }

    #[test]
    fn whole_writes_go_on_after_short_counts_and_interruptions() {
        for fault in [Fault::Short, Fault::Interrupted] {
            let (disk, faulty, file) = setup();
            faulty.fail(Some(Operation::Write), 0, fault, fault == Fault::Short);
            faulty.fail(Some(Operation::Read), 0, fault, fault == Fault::Short);
            file.write_all_at(b"0123456789", 3).unwrap();
            assert_eq!(disk.read(Path::new("a")).unwrap(), b"\0\0\x000123456789");
            assert_eq!(file.read_vec_at(13, 0).unwrap(), b"\0\0\x000123456789");
            assert!(faulty.fired() > 0);
        }
    }

    #[test]
    fn a_torn_write_leaves_half() {
        let (disk, faulty, file) = setup();
        faulty.fail(Some(Operation::Write), 0, Fault::Torn, false);
        let error = file.write_all_at(b"012345", 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        assert_eq!(disk.read(Path::new("a")).unwrap(), b"012");
    }

    #[test]
    fn a_failed_sync_keeps_nothing_and_a_stopped_one_may() {
        let (disk, faulty, file) = setup();
        faulty.sync_dir(Path::new("")).unwrap();
        file.write_all_at(b"lost", 0).unwrap();
        faulty.fail(Some(Operation::Sync), 0, Fault::Io, false);
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        assert_eq!(disk.crash(0, CrashMode::KeepAll).read(Path::new("a")).unwrap(), b"");

        let (disk, faulty, file) = setup();
        file.write_all_at(b"kept", 0).unwrap();
        faulty.stop_after(2);
        assert!(file.sync_data().is_err());
        assert!(file.write_at(b"never", 0).is_err());
        assert!(faulty.create(Path::new("b")).is_err());
        assert_eq!(disk.crash(0, CrashMode::KeepAll).read(Path::new("a")).unwrap(), b"kept");
    }

    #[test]
    fn the_observer_sees_the_disk_before_each_operation() {
        let (disk, faulty, file) = setup();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (copy, below) = (Arc::clone(&seen), disk.clone());
        faulty.observe(move |number, kind| {
            let len = below.read(Path::new("a")).unwrap().len();
            lock(&copy).push((number, kind, len));
        });
        file.write_all_at(b"12", 0).unwrap();
        file.sync_data().unwrap();
        let expected = [(1, Operation::Write, 0), (2, Operation::Sync, 2)];
        assert_eq!(*lock(&seen), expected);
    }
}
