//! What all have in common that make a store in a new directory: a checkpoint, a restored backup, what another store
//! had, and a store whose revision is raised.
//!
//! ```text
//! 1 claim the directory: lock it, see that nothing is in it, put a marker there that says that it is no store
//! 2 files; what is in no file goes to a log of its own
//! 3 seal the log with the manifest that will be in force, and put that in force
//! 4 take the marker away
//! ```

use std::io;
use std::path::{Path, PathBuf};

use annals_format::entry::EntryRef;
use annals_format::events::TransactionBuilder;
use annals_format::name::{LOADING, LOCK, SEGMENT_DIR, WAL_DIR};
use annals_format::{FileMeta, Manifest};

use crate::error::{Error, ErrorKind, Result};
use crate::options::Options;
use crate::segment::SegmentWriter;
use crate::sync::Arc;
use crate::vfs::{DirEntry, HeldVfs, LockGuard, Vfs};
use crate::wal::{BatchInfo, WalContext, WalFiles, WalWriter};

/// What stands in the marker.
const NOTICE: &[u8] =
    b"A store is being put together here. If nobody is at it any more, it was not finished: remove \
the directory.\n";

/// Bytes of frames that are written together, unless one is longer.
const BATCH_BYTES: usize = 4 << 20;

/// The place of a directory, whatever links lead there; it is made where it is not there.
pub(super) fn directory(vfs: &dyn Vfs, path: &Path) -> Result<PathBuf> {
    let failed = |error| Error::of_directory(path, "look for", error);
    if !vfs.exists(path).map_err(failed)? {
        let made = vfs.create_dir_all(path);
        made.map_err(|error| Error::io("create directory", path, error))?;
    }
    vfs.canonical(path).map_err(failed)
}

/// Locks the directory, which must be empty, and marks it with a file that says that it is no store yet. Answers the
/// file system as long as the directory is ours, too: what is not finished may be taken for dead, and removed.
pub(super) fn claim(vfs: &Arc<dyn Vfs>, to: &Path) -> Result<(LockGuard, Arc<dyn Vfs>)> {
    let lock = begin(&**vfs, to)?;
    Ok(held(vfs, lock))
}

/// Locks a directory that was claimed before, if nobody has put another store there meanwhile.
pub(super) fn hold(vfs: &Arc<dyn Vfs>, to: &Path) -> Result<(LockGuard, Arc<dyn Vfs>)> {
    let (lock, held) = held(vfs, take_lock(&**vfs, to)?);
    check_ours(to, &*held)?;
    Ok((lock, held))
}

fn held(vfs: &Arc<dyn Vfs>, lock: LockGuard) -> (LockGuard, Arc<dyn Vfs>) {
    let held = Arc::new(HeldVfs::new(Arc::clone(vfs), &lock));
    (lock, held)
}

/// Locks the directory of a store.
pub(super) fn take_lock(vfs: &dyn Vfs, to: &Path) -> Result<LockGuard> {
    let path = to.join(LOCK);
    vfs.lock(&path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => ErrorKind::Locked { path: to.to_path_buf() }.into(),
        _ => Error::io("lock", path, error),
    })
}

/// Refuses a directory that has something besides the lock, if that.
fn check_empty(to: &Path, entries: &[DirEntry]) -> Result<()> {
    let marker = entries.iter().find(|entry| entry.name == LOADING);
    let Some(entry) = marker.or_else(|| entries.iter().find(|entry| entry.name != LOCK)) else {
        return Ok(());
    };
    let (path, found) = (to.to_path_buf(), entry.name.clone());
    Err(ErrorKind::NotEmpty { path, found, unfinished: marker.is_some() }.into())
}

fn begin(vfs: &dyn Vfs, to: &Path) -> Result<LockGuard> {
    let list = || vfs.list(to).map_err(|error| Error::of_directory(to, "list", error));
    let entries = list()?;
    if !entries.iter().any(|entry| entry.name == LOCK) {
        // Somebody's own directory: not even a lock is left there.
        check_empty(to, &entries)?;
    }
    let lock = take_lock(vfs, to)?;
    check_empty(to, &list()?)?;
    let path = to.join(LOADING);
    let created = vfs.create(&path);
    let file = created.map_err(|error| Error::io("create", &path, error))?;
    file.write_all_at(NOTICE, 0).map_err(|error| Error::io("write", &path, error))?;
    file.sync_all().map_err(|error| Error::io("sync", &path, error))?;
    sync_dir(vfs, to)?;
    // The directory may have been there, and its name never synced.
    if let Some(parent) = to.parent() {
        sync_dir(vfs, parent)?;
    }
    for dir in [WAL_DIR, SEGMENT_DIR] {
        let dir = to.join(dir);
        let made = vfs.create_dir_all(&dir);
        made.map_err(|error| Error::io("create directory", &dir, error))?;
    }
    Ok(lock)
}

/// The log of a new store: whole batches, written one after the other.
pub(super) struct NewLog {
    files: Arc<WalFiles>,
    writer: WalWriter,
    /// Frames that are to be written together.
    bytes: Vec<u8>,
    /// Where each frame ends.
    ends: Vec<usize>,
    /// The seq of the first.
    next: u64,
    /// The revision after the last.
    revision: u64,
}

impl NewLog {
    /// A log that goes on from where the files of a manifest have come, in a file of this number.
    pub(super) fn create(
        vfs: &Arc<dyn Vfs>,
        dir: &Path,
        options: &Options,
        manifest: &Manifest,
        number: u64,
    ) -> Result<Self> {
        let (seq, revision) = (manifest.flushed_seq, manifest.flushed_revision);
        let context = WalContext {
            vfs: Arc::clone(vfs),
            dir: dir.to_path_buf(),
            store: manifest.store,
            incarnation: manifest.incarnation,
            wal_bytes: options.wal_bytes,
            // Its syncs are few.
            quick_syncs: false,
        };
        let files = WalFiles::new(context, Vec::new(), number);
        let writer = WalWriter::create(Arc::clone(&files), seq, revision)?;
        Ok(Self { files, writer, bytes: Vec::new(), ends: Vec::new(), next: seq + 1, revision })
    }

    /// The seq of the last frame that it has been given.
    pub(super) fn last_seq(&self) -> u64 {
        self.next - 1 + self.ends.len() as u64
    }

    /// Takes the next frame, after which the store is at `revision`.
    pub(super) fn push(&mut self, frame: &[u8], revision: u64) -> Result<()> {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
        self.revision = revision;
        if self.bytes.len() >= BATCH_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        let (first_seq, last_seq) = (self.next, self.last_seq());
        if self.ends.is_empty() {
            return Ok(());
        }
        let info = BatchInfo {
            first_seq,
            last_seq,
            last_revision: self.revision,
            durable_upto: first_seq - 1,
        };
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let mut frames = starts
            .zip(&self.ends)
            .map(|(start, end)| self.bytes.get(start..*end).unwrap_or_default());
        self.writer.append(&mut frames, info)?;
        self.next = last_seq + 1;
        self.bytes.clear();
        self.ends.clear();
        Ok(())
    }

    /// Ends the log as that of a store that was closed: its seal names the manifest that will be in force, which
    /// lists it. Nothing of the manifest may be changed any more.
    pub(super) fn seal(mut self, manifest: &mut Manifest) -> Result<()> {
        self.write()?;
        manifest.wal = self.files.listed();
        manifest.closed = true;
        let next = Manifest { number: manifest.number + 1, ..manifest.clone() };
        self.writer.close(next.stamp())
    }
}

/// Writes a file of EVENTS that has one transaction.
pub(super) fn write_events(
    mut file: SegmentWriter,
    mut transaction: TransactionBuilder,
    (revision, time, metadata): (u64, i64, &[u8]),
) -> Result<FileMeta> {
    let mut value = Vec::new();
    transaction.finish(0, time, metadata, &mut value);
    let key = &revision.to_be_bytes();
    file.add(&EntryRef { key, revision, value: &value, ..EntryRef::default() })?;
    file.finish()
}

/// Sees, under the lock of a directory, that it is no store yet: else somebody has put another one there.
pub(super) fn check_ours(path: &Path, vfs: &dyn Vfs) -> Result<()> {
    let notice = path.join(LOADING);
    let is_ours = vfs.exists(&notice);
    if is_ours.map_err(|error| Error::io("look for", &notice, error))? {
        return Ok(());
    }
    Err(Error::invalid(format!("{} is another store by now", path.display())))
}

/// Takes the marker away: from when this returns there is a store.
pub(super) fn remove_marker(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let path = dir.join(LOADING);
    let removed = vfs.remove_if_there(&path);
    removed.map_err(|error| Error::io("remove", &path, error))?;
    sync_dir(vfs, dir)
}

pub(super) fn sync_dir(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    vfs.sync_dir(dir).map_err(|error| Error::io("sync directory", dir, error))
}
