//! The operating system's files.
//!
//! Only this file, `mmap.rs`, `allocate.rs` and `write_back.rs` name `std::fs`. What is beyond plain forwarding:
//!
//! - files are made for the owner only (0600), directories likewise (0700);
//! - symbolic links, pipes and devices are refused: a store directory that somebody else can write
//!   to must not lead us to other files, nor make us hang;
//! - the lock is an advisory file lock *and* an entry in a registry of this process, since some
//!   systems let one process take its own lock twice.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::allocate::allocate;
use super::write_back::write_back;
use super::{Access, DirEntry, File, LockGuard, LockHeld, Map, Vfs};
use crate::sync::plain::{Mutex, lock};

/// The operating system's files.
///
/// ```
/// use annals::vfs::{OsVfs, Vfs};
///
/// let dir = std::env::temp_dir();
/// assert!(OsVfs::new().exists(&dir)?);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct OsVfs {}

impl OsVfs {
    /// The file system of this process.
    pub fn new() -> Self {
        Self {}
    }
}

impl Vfs for OsVfs {
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        match fs::metadata(path) {
            Ok(meta) if meta.is_dir() => return Ok(()),
            Ok(_) => {}
            // Only what is not there is made. Of what cannot be looked at (no permission, a dead disk) no
            // parent would end this: there is always one more, since that of "." is ".".
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let parent = parent_of(path);
        if parent == path {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.create_dir_all(&parent)?;
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Another process may have been faster; anything but a directory is an error.
                if !fs::metadata(path)?.is_dir() {
                    return Err(error);
                }
            }
            made => made?,
        }
        self.sync_dir(&parent)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        Ok(Arc::new(OsFile { file: Arc::new(options.open(path)?) }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(access == Access::Write);
        Ok(Arc::new(OsFile { file: Arc::new(open_regular(&mut options, path)?) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            match entry.metadata() {
                Ok(meta) => {
                    let bytes = if meta.is_dir() { 0 } else { meta.len() };
                    entries.push(DirEntry { name, bytes, is_dir: meta.is_dir() });
                }
                // Removed since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        let name =
            |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
        let mut names = fs::read_dir(path)?.map(name).collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        fs::File::open(path)?.sync_all()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match fs::symlink_metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<LockGuard> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = open_regular(&mut options, path)?;
        let meta = file.metadata()?;
        let identity = (meta.dev(), meta.ino());
        let mut held = lock(&LOCKS);
        if held.contains(&identity) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        file.try_lock().map_err(io::Error::from)?;
        held.insert(identity);
        let (path, process) = (path.to_path_buf(), std::process::id());
        Ok(Arc::new(OsLock { file, identity, path, process }))
    }
}

/// The locks that this process holds, by device and inode.
static LOCKS: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

#[derive(Debug)]
struct OsLock {
    file: fs::File,
    identity: (u64, u64),
    path: PathBuf,
    process: u32,
}

impl LockHeld for OsLock {
    fn check(&self) -> io::Result<()> {
        if self.process != std::process::id() {
            return Err(io::Error::other("the store was opened by the process this is a fork of"));
        }
        match fs::symlink_metadata(&self.path) {
            Ok(meta) if (meta.dev(), meta.ino()) == self.identity => Ok(()),
            Ok(_) => Err(io::Error::other("the store's LOCK is not the file that was locked")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(io::Error::new(
                error.kind(),
                "the store's LOCK is gone: it was removed, or the directory was moved",
            )),
            Err(error) => Err(error),
        }
    }
}

impl Drop for OsLock {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // The lock belongs to the process that took it.
            return;
        }
        let mut held = lock(&LOCKS);
        // Closing the file would release it too, but only once every copy of the descriptor is
        // closed, and a forked child may hold one.
        let _ = self.file.unlock();
        held.remove(&self.identity);
    }
}

/// Opens what must be a regular file, without following a link or waiting for a pipe's other end.
fn open_regular(options: &mut fs::OpenOptions, path: &Path) -> io::Result<fs::File> {
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

#[derive(Debug)]
struct OsFile {
    /// Shared with the maps of the file, which check its length.
    file: Arc<fs::File>,
}

impl File for OsFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn write_back(&self, range: Range<u64>) {
        write_back(&self.file, range);
    }

    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        allocate(&self.file, bytes)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn map(&self, bytes: u64) -> io::Result<Map> {
        Map::of_file(&self.file, bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_and_directories_are_for_the_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let vfs = OsVfs::new();
        let deep = dir.path().join("a/b");
        vfs.create_dir_all(&deep).unwrap();
        vfs.create_dir_all(&deep).unwrap();
        vfs.create(&deep.join("f")).unwrap();
        let _lock = vfs.lock(&deep.join("LOCK")).unwrap();
        assert_eq!(mode(&deep), 0o700);
        assert_eq!(mode(&dir.path().join("a")), 0o700);
        assert_eq!(mode(&deep.join("f")), 0o600);
        assert_eq!(mode(&deep.join("LOCK")), 0o600);
        let exists = vfs.create(&deep.join("f")).unwrap_err();
        assert_eq!(exists.kind(), io::ErrorKind::AlreadyExists);
        assert!(vfs.create_dir_all(&deep.join("f")).is_err());
    }

    #[test]
    fn links_and_pipes_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let vfs = OsVfs::new();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        vfs.create(&target).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        for access in [Access::Read, Access::Write] {
            assert_eq!(vfs.open(&link, access).unwrap_err().raw_os_error(), Some(libc::ELOOP));
            assert!(vfs.open(dir.path(), access).is_err());
        }
        assert!(vfs.lock(&link).is_err());
        assert!(vfs.exists(&link).unwrap());
        let pipe = dir.path().join("pipe");
        if std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|s| s.success()) {
            assert_eq!(
                vfs.open(&pipe, Access::Read).unwrap_err().kind(),
                io::ErrorKind::InvalidInput
            );
            assert!(vfs.open(&pipe, Access::Write).is_err());
        }
    }

    #[test]
    fn a_lock_is_held_once_under_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let vfs = OsVfs::new();
        let (path, other) = (dir.path().join("LOCK"), dir.path().join("other"));
        let held = vfs.lock(&path).unwrap();
        fs::hard_link(&path, &other).unwrap();
        for path in [&path, &other] {
            assert_eq!(vfs.lock(path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        drop(held);
        vfs.lock(&other).unwrap();
    }

    #[test]
    fn a_file_that_is_allocated_reads_as_zeros_and_has_its_space() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = OsVfs::new().create(&path).unwrap();
        // Where the file system of the test can do it.
        if file.allocate(1 << 20).unwrap() {
            assert_eq!(file.read_vec_at(1 << 20, 0).unwrap(), vec![0; 1 << 20]);
            assert_eq!(file.len().unwrap(), 1 << 20);
            assert!(fs::metadata(&path).unwrap().blocks() * 512 >= 1 << 20);
            file.write_all_at(b"x", 5000).unwrap();
            file.sync_data().unwrap();
            assert_eq!(file.len().unwrap(), 1 << 20);
        }
        let reader = OsVfs::new().open(&path, Access::Read).unwrap();
        assert!(reader.allocate(1 << 20).is_err());
        assert!(file.allocate(u64::MAX).is_err());
    }

    #[test]
    fn content_lives_through_the_handles() {
        let dir = tempfile::tempdir().unwrap();
        let vfs = OsVfs::new();
        let (path, renamed) = (dir.path().join("f"), dir.path().join("g"));
        let file = vfs.create(&path).unwrap();
        file.write_all_at(b"world", 6).unwrap();
        file.write_all_at(b"hello ", 0).unwrap();
        for range in [0..11, 4..4, 0..u64::MAX, 1 << 40..1 << 41] {
            file.write_back(range);
        }
        file.sync_data().unwrap();
        file.sync_all().unwrap();
        vfs.rename(&path, &renamed).unwrap();
        vfs.sync_dir(dir.path()).unwrap();
        let reader = vfs.open(&renamed, Access::Read).unwrap();
        assert!(reader.write_at(b"x", 0).is_err());
        assert_eq!(reader.read_vec_at(11, 0).unwrap(), b"hello world");
        assert_eq!(reader.read_vec_at(12, 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(reader.map(11).unwrap().slice(6..11).unwrap(), b"world");
        assert_eq!(reader.map(12).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let entries = vfs.list(dir.path()).unwrap();
        assert_eq!(entries, [DirEntry { name: "g".to_owned(), bytes: 11, is_dir: false }]);
        vfs.create(&dir.path().join("a")).unwrap();
        assert_eq!(vfs.names(dir.path()).unwrap(), ["a", "g"]);
        assert!(vfs.names(&path).unwrap_err().kind() == io::ErrorKind::NotFound);
        file.set_len(5).unwrap();
        assert_eq!(reader.len().unwrap(), 5);
        let linked = dir.path().join("h");
        vfs.hard_link(&renamed, &linked).unwrap();
        let taken = vfs.hard_link(&renamed, &linked).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        let other = vfs.open(&linked, Access::Read).unwrap();
        vfs.remove(&renamed).unwrap();
        assert_eq!(other.read_vec_at(5, 0).unwrap(), b"hello");
        let gone = vfs.hard_link(&renamed, &dir.path().join("i")).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        assert!(!vfs.exists(&renamed).unwrap());
        assert_eq!(reader.read_vec_at(5, 0).unwrap(), b"hello");
    }
}
