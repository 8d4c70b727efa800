//! A copy of the store that shares its files: made while others write, in the time that it takes to name the
//! files.
//!
//! ```text
//! 1 make the directory, lock it as a writer of it does, see that nothing is in it, and make a file
//!   INCOMPLETE, which says that this is no store yet
//! 2 link every segment file: those of now without the lock of the state, what came meanwhile with it;
//!   with it also look what is visible, and in which generations what is in no file lies
//! 3 write what is in no file to a log of its own, and seal it as a close does
//! 4 copy what could not be linked, and sync the names
//! 5 store the manifest, CURRENT last; remove INCOMPLETE; let go of the lock
//! ```
//!
//! Why 2 finds every file: a file of the manifest in force is removed only after another manifest has been put
//! in force, which takes the lock. Commits never take it. What is visible is asked for before the tables,
//! so that these have it (invariant 3 of [`tables`](super::tables)), and no flush comes in between.
//!
//! Why files can be shared: a segment file is never written to once a manifest names it.
//!
//! A crash before CURRENT is there leaves INCOMPLETE and no store, a crash after it a complete one, from which
//! whoever opens it for writing removes INCOMPLETE. The store itself is only read. With the lock held no
//! other checkpoint, and nobody who opens the copy, comes in between.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use annals_format::checksum::ContentHasher;
use annals_format::name::{CURRENT, FileName, INCOMPLETE, LOADING, LOCK, SEGMENT_DIR, WAL_DIR};
use annals_format::{FileMeta, Manifest};

use crate::error::{Error, ErrorKind, Result};
use crate::index::{FrameCursor, Place, Position};
use crate::manifest::ManifestStore;
use crate::observe::{Span, Task};
use crate::sync::Arc;
use crate::sync::plain::lock;
use crate::vfs::{DirEntry, HeldVfs, LockGuard, Vfs};
use crate::wal::{BatchInfo, WalContext, WalFiles, WalWriter};

use super::core::Core;
use super::open::another_history;
use super::tables::{FileSet, SealedFile, Tables};

/// What stands in the file that says that a directory is no store yet.
const NOTICE: &[u8] =
    b"A copy of a store is being made here. If there is no CURRENT beside this file and \
nobody is at it any more, the copy was not finished: remove the directory.\n";

/// Bytes of a file that are copied at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Bytes of frames that make up a batch, unless one is longer.
pub(super) const BATCH_BYTES: usize = 4 << 20;

/// What a checkpoint has; made by [`Store::checkpoint`](crate::Store::checkpoint).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Checkpoint {
    /// The newest revision in it.
    pub revision: u64,
    /// Files that it shares with the store.
    pub linked_files: u64,
    /// Their bytes, which take no room a second time.
    pub linked_bytes: u64,
    /// Files that were copied, as they could not be shared.
    pub copied_files: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Bytes written for what was in no file yet.
    pub log_bytes: u64,
}

/// What is put in a checkpoint, as of one moment.
struct Content {
    manifest: Manifest,
    tables: Tables,
    visible: Place,
}

impl Core {
    /// Makes a copy of what is visible in a directory that is absent or empty.
    ///
    /// # Errors
    /// `InvalidArgument` if the directory is not empty or in the store's own, `Locked`: then it is as it was.
    /// `Closed`, and what reading and writing files answers: then it is no store, and is to be removed.
    pub(super) fn checkpoint(&self, to: &Path) -> Result<Checkpoint> {
        self.check_open()?;
        let span = Span::of(Task::Checkpoint);
        let _within = span.enter();
        let made = self.make_checkpoint(to);
        if let Ok(made) = &made {
            let Checkpoint { linked_files, copied_files, linked_bytes, copied_bytes, .. } = made;
            span.revision(made.revision);
            span.size(linked_files + copied_files, linked_bytes + copied_bytes + made.log_bytes);
        }
        match made {
            // Files are not to be had any more once the lock is given up.
            Err(_) if self.check_open().is_err() => Err(ErrorKind::Closed.into()),
            made => made,
        }
    }

    fn make_checkpoint(&self, to: &Path) -> Result<Checkpoint> {
        let vfs = &self.options.vfs;
        self.check_outside(to)?;
        let exists = vfs.exists(to).map_err(|error| Error::of_directory(to, "look for", error))?;
        if !exists {
            let made = vfs.create_dir_all(to);
            made.map_err(|error| Error::io("create directory", to, error))?;
        }
        // Links may have been made meanwhile: from here on it is one place.
        let real = vfs.canonical(to).map_err(|error| Error::of_directory(to, "look for", error))?;
        let to = &*real;
        self.check_outside(to)?;
        let lock = begin(&**vfs, to, (INCOMPLETE, NOTICE))?;
        // Only as long as the directory is ours: what is not finished may be taken for dead, and removed.
        let vfs: &Arc<dyn Vfs> = &(Arc::new(HeldVfs::new(Arc::clone(vfs), &lock)) as _);

        let linked = BTreeSet::new();
        let mut links = Links { core: self, vfs: &**vfs, to, linked, refused: false };
        let Content { mut manifest, tables, visible } = self.content(&mut links)?;
        let mut done = Checkpoint {
            revision: visible.position.revision,
            linked_files: 0,
            linked_bytes: 0,
            copied_files: 0,
            copied_bytes: 0,
            log_bytes: 0,
        };
        let context = WalContext {
            vfs: Arc::clone(vfs),
            dir: to.to_path_buf(),
            store: manifest.store,
            wal_bytes: self.options.wal_bytes,
        };
        let log_files = WalFiles::new(context, Vec::new());
        let (seq, revision) = (manifest.flushed_seq, manifest.flushed_revision);
        let mut log = WalWriter::create(Arc::clone(&log_files), 1, seq, revision)?;
        done.log_bytes = append_frames(&mut log, &tables, seq, visible.position)?;
        // The memory of the generations can go before files are copied, which may take long.
        let files = Arc::clone(&tables.files);
        drop(tables);

        for meta in &manifest.files {
            if links.linked.contains(&meta.number) {
                done.linked_files += 1;
                done.linked_bytes += meta.bytes;
            } else {
                self.copy(&files, meta, &**vfs, &links.path(meta))?;
                done.copied_files += 1;
                done.copied_bytes += meta.bytes;
            }
        }
        drop(files);
        sync_dir(&**vfs, &to.join(SEGMENT_DIR))?;

        manifest.wal = log_files.listed();
        manifest.compacted = manifest.compacted.max(visible.compacted);
        manifest.revision_floor = visible.position.revision;
        manifest.closed = true;
        manifest.incarnation = another_history(manifest.incarnation, &self.options);
        // The seal names the manifest that will be in force.
        let next = Manifest { number: manifest.number + 1, ..manifest.clone() };
        log.close(next.stamp())?;
        ManifestStore::new(Arc::clone(vfs), to).store(&mut manifest)?;

        let notice = to.join(INCOMPLETE);
        let removed = vfs.remove_if_there(&notice);
        removed.map_err(|error| Error::io("remove", &notice, error))?;
        sync_dir(&**vfs, to)?;
        Ok(done)
    }

    /// Refuses a directory within the store's own.
    fn check_outside(&self, to: &Path) -> Result<()> {
        let vfs = &self.options.vfs;
        // Of what is not there yet, the directory it will be in.
        let there = to.ancestors().find_map(|path| {
            let real = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            Some((vfs.canonical(real).ok()?, to.strip_prefix(path).unwrap_or(to)))
        });
        let Some((real, missing)) = there else { return Ok(()) };
        if missing.components().any(|part| part == Component::ParentDir) {
            let what = format!("{}: there is no directory before the ..", to.display());
            return Err(Error::invalid(what));
        }
        if real.starts_with(&self.path) {
            return Err(Error::invalid("a checkpoint cannot be in the directory of its store"));
        }
        Ok(())
    }

    /// Links the files, and finds what else there is.
    fn content(&self, links: &mut Links<'_>) -> Result<Content> {
        // Most of it without holding up background work.
        let early = lock(&self.state).manifest.files.clone();
        links.link(&early)?;
        let content = {
            let state = lock(&self.state);
            let manifest = state.manifest.clone();
            links.link(&manifest.files)?;
            let visible = self.visible_place();
            Content { manifest, tables: self.shared.tables(), visible }
        };
        let needed: BTreeSet<u64> = content.manifest.files.iter().map(|meta| meta.number).collect();
        for meta in early.iter().filter(|meta| !needed.contains(&meta.number)) {
            links.unlink(meta)?;
        }
        Ok(content)
    }

    /// Copies a file, which may have lost its name since.
    fn copy(&self, files: &FileSet, meta: &FileMeta, vfs: &dyn Vfs, path: &Path) -> Result<()> {
        let here = files.all().find(|file| file.meta().number == meta.number).cloned();
        let source = here.unwrap_or_else(|| SealedFile::new(&self.context, meta.clone()));
        let source = source.open()?;
        let created = vfs.create(path);
        let file = created.map_err(|error| Error::io("create", path, error))?;
        let mut hasher = ContentHasher::new();
        let mut offset = 0;
        while offset < meta.bytes {
            let count = usize::try_from(PIECE_BYTES.min(meta.bytes - offset)).unwrap_or(0);
            let piece = source.read(offset, count)?;
            hasher.update(&piece);
            file.write_all_at(&piece, offset).map_err(|error| Error::io("write", path, error))?;
            offset += piece.len() as u64;
        }
        let (expected, found) = (meta.hash, hasher.finish());
        if found != expected {
            let (expected, found) = (expected.to_string(), found.to_string());
            return Err(Error::corrupt(source.path(), 0, "content hash", expected, found));
        }
        file.sync_all().map_err(|error| Error::io("sync", path, error))
    }
}

/// The segment files of a checkpoint.
struct Links<'a> {
    core: &'a Core,
    vfs: &'a dyn Vfs,
    to: &'a Path,
    /// Numbers of the files that are linked.
    linked: BTreeSet<u64>,
    /// Nothing can be linked there: it is not tried for each file.
    refused: bool,
}

impl Links<'_> {
    fn path(&self, meta: &FileMeta) -> PathBuf {
        self.to.join(FileName::new(meta.kind, meta.number).to_string())
    }

    /// Links those that are not linked yet and can be.
    fn link(&mut self, files: &[FileMeta]) -> Result<()> {
        for meta in files {
            if self.refused || self.linked.contains(&meta.number) {
                continue;
            }
            let (from, to) = (self.core.context.path(meta.kind, meta.number), self.path(meta));
            match self.vfs.hard_link(&from, &to) {
                Ok(()) => {
                    self.linked.insert(meta.number);
                }
                Err(error) if may_be_copied(error.kind()) => {
                    let of_all = [io::ErrorKind::CrossesDevices, io::ErrorKind::Unsupported];
                    self.refused = of_all.contains(&error.kind());
                }
                Err(error) => return Err(Error::io("link", from, error)),
            }
        }
        Ok(())
    }

    /// Takes a link back.
    fn unlink(&mut self, meta: &FileMeta) -> Result<()> {
        if self.linked.remove(&meta.number) {
            let path = self.path(meta);
            let removed = self.vfs.remove(&path);
            removed.map_err(|error| Error::io("remove", &path, error))?;
        }
        Ok(())
    }
}

/// Whether a file that cannot be linked for this reason can be copied: the file systems differ, or cannot do
/// it, or refuse it for this file; or a live writer has removed the name beside this reader, who has the
/// file open.
fn may_be_copied(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::CrossesDevices
            | io::ErrorKind::Unsupported
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::TooManyLinks
            | io::ErrorKind::NotFound
    )
}

/// Refuses a directory that has something besides the lock, if that.
fn check_empty(to: &Path, entries: &[DirEntry]) -> Result<()> {
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    let what = match entries.iter().find(|entry| entry.name != LOCK) {
        None => return Ok(()),
        Some(_) if has(INCOMPLETE) && !has(CURRENT) => {
            "has a copy of a store that was not finished: remove it".to_owned()
        }
        Some(_) if has(LOADING) => "has a store that was not finished: remove it".to_owned(),
        Some(entry) => format!("is not empty: it holds {}", entry.name),
    };
    Err(Error::invalid(format!("{} {what}", to.display())))
}

/// Locks the directory, which must be empty, and marks it with a file that says that it is no store yet.
pub(super) fn begin(
    vfs: &dyn Vfs,
    to: &Path,
    (marker, notice): (&str, &[u8]),
) -> Result<LockGuard> {
    let list = || vfs.list(to).map_err(|error| Error::of_directory(to, "list", error));
    let entries = list()?;
    if !entries.iter().any(|entry| entry.name == LOCK) {
        // Somebody's own directory: not even a lock is left there.
        check_empty(to, &entries)?;
    }
    let path = to.join(LOCK);
    let lock = vfs.lock(&path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => ErrorKind::Locked { path: to.to_path_buf() }.into(),
        _ => Error::io("lock", path, error),
    })?;
    check_empty(to, &list()?)?;
    let path = to.join(marker);
    let created = vfs.create(&path);
    let file = created.map_err(|error| Error::io("create", &path, error))?;
    file.write_all_at(notice, 0).map_err(|error| Error::io("write", &path, error))?;
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

/// Writes the frames after `flushed_seq` up to `last` to a log. Answers their bytes.
fn append_frames(
    log: &mut WalWriter,
    tables: &Tables,
    flushed_seq: u64,
    last: Position,
) -> Result<u64> {
    let mut batch = Batch::after(flushed_seq);
    for generation in tables.generations.iter().rev() {
        let mut frames: FrameCursor = generation.frames();
        while let Some(frame) = frames.next(last.seq) {
            let position = frame.position();
            // A generation whose flush has failed at its end has been written to files all the same.
            if position.seq <= flushed_seq {
                continue;
            }
            batch.push(frame.bytes());
            if batch.bytes.len() >= BATCH_BYTES {
                batch.write(log, position.revision)?;
            }
        }
    }
    batch.write(log, last.revision)?;
    if batch.next != last.seq + 1 {
        let what = format!("the frames end before {}, not at {}", batch.next, last.seq);
        return Err(Error::invalid(what));
    }
    Ok(batch.written)
}

/// Frames that are written together.
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    /// Where each frame ends.
    ends: Vec<usize>,
    /// The seq of the first.
    next: u64,
    written: u64,
}

impl Batch {
    /// An empty one, after a frame.
    pub(super) fn after(seq: u64) -> Self {
        Self { bytes: Vec::new(), ends: Vec::new(), next: seq + 1, written: 0 }
    }

    /// Takes a frame.
    pub(super) fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    /// Writes it, if it has any, with the revision after its last frame.
    pub(super) fn write(&mut self, log: &mut WalWriter, last_revision: u64) -> Result<()> {
        if self.ends.is_empty() {
            return Ok(());
        }
        let first_seq = self.next;
        let last_seq = first_seq + self.ends.len() as u64 - 1;
        let durable_upto = first_seq - 1;
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let mut frames = starts
            .zip(&self.ends)
            .map(|(start, end)| self.bytes.get(start..*end).unwrap_or_default());
        log.append(&mut frames, BatchInfo { first_seq, last_seq, last_revision, durable_upto })?;
        self.written += self.bytes.len() as u64;
        self.next = last_seq + 1;
        self.bytes.clear();
        self.ends.clear();
        Ok(())
    }
}

pub(super) fn sync_dir(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    vfs.sync_dir(dir).map_err(|error| Error::io("sync directory", dir, error))
}
