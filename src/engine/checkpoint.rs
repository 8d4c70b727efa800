//! A copy of the store that shares its files: made while others write, in the time that it takes to name the
//! files.
//!
//! ```text
//! 1 make the directory, lock it as a writer of it does, see that nothing is in it, and make a file
//!   LOADING, which says that this is no store yet
//! 2 link every segment file: those of now without the lock of the state, what came meanwhile with it;
//!   with it also look what is visible, and in which generations what is in no file lies
//! 3 write what is in no file to a log of its own, and seal it as a close does
//! 4 copy what could not be linked, and sync the names
//! 5 store the manifest, CURRENT last; remove LOADING; let go of the lock
//! ```
//!
//! Why 2 finds every file: a file of the manifest in force is removed only after another manifest has been put
//! in force, which takes the lock. Commits never take it. What is visible is asked for before the tables,
//! so that these have it (invariant 3 of [`tables`](super::tables)), and no flush comes in between.
//!
//! Why files can be shared: a segment file is never written to once a manifest names it.
//!
//! A crash before LOADING is removed leaves no store, a crash after it a complete one. The store itself is only read. With the lock held no
//! other checkpoint, and nobody who opens the copy, comes in between.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use annals_format::checksum::ContentHasher;
use annals_format::name::{FileName, SEGMENT_DIR};
use annals_format::{FileMeta, Manifest};

use crate::error::{Error, ErrorKind, Result};
use crate::index::{FrameCursor, Place, Position};
use crate::manifest::ManifestStore;
use crate::observe::{Span, Task};
use crate::sync::Arc;
use crate::sync::plain::lock;
use crate::vfs::Vfs;

use super::core::Core;
use super::new_store::{NewLog, claim, directory, remove_marker, sync_dir};
use super::open::another_history;
use super::tables::{FileSet, SealedFile, Tables};

/// Bytes of a file that are copied at once.
const PIECE_BYTES: u64 = 1 << 20;

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
    /// `NotEmpty`, `InvalidArgument` if the directory is in the store's own, `Locked`: then it is as it was.
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
        // Links may have been made meanwhile: from here on it is one place.
        let real = directory(&**vfs, to)?;
        let to = &*real;
        self.check_outside(to)?;
        let (_lock, vfs) = &claim(vfs, to)?;

        let linked = BTreeSet::new();
        let mut links = Links { core: self, vfs: &**vfs, to, linked, refused: false };
        let Content { mut manifest, tables, visible } = self.content(&mut links)?;
        manifest.incarnation = another_history(manifest.incarnation, &self.options);
        let mut done = Checkpoint {
            revision: visible.position.revision,
            linked_files: 0,
            linked_bytes: 0,
            copied_files: 0,
            copied_bytes: 0,
            log_bytes: 0,
        };
        let mut log = NewLog::create(vfs, to, &self.options, &manifest, 1)?;
        done.log_bytes = append_frames(&mut log, &tables, visible.position)?;
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

        log.seal(&mut manifest)?;
        ManifestStore::new(Arc::clone(vfs), to).store(&mut manifest)?;

        remove_marker(&**vfs, to)?;
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
            let _still = self.retention.still();
            let state = lock(&self.state);
            let mut manifest = state.manifest.clone();
            links.link(&manifest.files)?;
            let visible = self.visible_place();
            self.bring_copy_to(&mut manifest, visible);
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
        let source = here.unwrap_or_else(|| SealedFile::alone(&self.context, meta.clone()));
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
            return Err(source.corrupt("content hash", expected, found));
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

/// Writes the frames that are in no file yet, up to `last`, to a log. Answers their bytes.
fn append_frames(log: &mut NewLog, tables: &Tables, last: Position) -> Result<u64> {
    let flushed_seq = log.last_seq();
    let mut bytes = 0;
    for generation in tables.generations.iter().rev() {
        let mut frames: FrameCursor = generation.frames();
        while let Some(frame) = frames.next(last.seq) {
            let position = frame.position();
            // A generation whose flush has failed at its end has been written to files all the same.
            if position.seq <= flushed_seq {
                continue;
            }
            bytes += frame.bytes().len() as u64;
            log.push(frame.bytes(), position.revision)?;
        }
    }
    if log.last_seq() != last.seq {
        let what = format!("the frames end at {}, not at {}", log.last_seq(), last.seq);
        return Err(Error::invalid(what));
    }
    Ok(bytes)
}
