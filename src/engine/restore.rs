//! Making a store of what a backup has.
//!
//! ```text
//! 1 make the directory, lock it, see that nothing is in it, and make a file LOADING, which says that this is
//!   no store yet, whatever else is there
//! 2 write the frames to a log, and every segment file; sync them
//! 3 seal the log as a close does; sync the names
//! 4 store the manifest, CURRENT last
//! 5 open it for writing, and look at it; apply increments; raise its revision
//! 6 remove LOADING
//! ```
//!
//! A crash before LOADING is removed leaves no store, a crash after it a complete one.

use std::path::{Path, PathBuf};

use annals_format::name::{FileName, SEGMENT_DIR};
use annals_format::{FileMeta, Frame, Manifest};

use crate::error::{Error, Result};
use crate::manifest::ManifestStore;
use crate::options::Options;
use crate::sync::Arc;
use crate::vfs::{File, LockGuard, Vfs};

use super::increment::Continuing;
use super::new_store::{NewLog, claim, directory, sync_dir};
use super::open::another_history;
use super::receive::Receiver;

/// A store that is being made of a backup.
#[derive(Debug)]
pub(crate) struct Restoring {
    path: PathBuf,
    options: Options,
    /// Once the manifest is there.
    made: Option<Made>,
}

/// What there is of it.
struct Made {
    /// The directory, whatever becomes of the links that led to it.
    dir: PathBuf,
    /// Until somebody else has it.
    lock: LockGuard,
    /// The file system as long as the directory is ours: what is not finished may have been taken for dead, and
    /// removed, and begun anew.
    held: Arc<dyn Vfs>,
    manifest: Manifest,
    /// What came in no file.
    log: NewLog,
    /// The file that is being written.
    file: Option<(Arc<dyn File>, PathBuf)>,
}

impl Restoring {
    /// A store to be made in a directory that is absent or empty. Nothing is done yet.
    ///
    /// # Errors
    /// `InvalidOption`.
    pub(crate) fn new(path: &Path, options: &Options) -> Result<Self> {
        options.validate()?;
        Ok(Self { path: path.to_path_buf(), options: options.clone(), made: None })
    }

    /// Ends what is written, puts its manifest in force, and opens it for writing: until it is
    /// [finished](Continuing::finish) it is no store all the same. Answers how many files came, and their bytes, too.
    ///
    /// # Errors
    /// What writing files answers; as for any store.
    pub(crate) fn publish(self) -> Result<(Continuing, u64, u64)> {
        let Made { dir, lock, held, mut manifest, log, .. } = self.made.ok_or_else(nothing)?;
        let bytes = manifest.files.iter().map(|meta| meta.bytes).sum();
        sync_dir(&*held, &dir.join(SEGMENT_DIR))?;
        log.seal(&mut manifest)?;
        ManifestStore::new(held, &dir).store(&mut manifest)?;
        // Whoever opens it takes the lock.
        drop(lock);
        let open = Continuing::open(&dir, &self.options)?;
        Ok((open, manifest.files.len() as u64, bytes))
    }

    fn made(&mut self) -> Result<&mut Made> {
        self.made.as_mut().ok_or_else(nothing)
    }
}

impl Receiver for Restoring {
    fn manifest(&mut self, manifest: &Manifest) -> Result<()> {
        let dir = directory(&*self.options.vfs, &self.path)?;
        let (lock, held) = claim(&self.options.vfs, &dir)?;
        let mut manifest = manifest.clone();
        manifest.incarnation = another_history(manifest.incarnation, &self.options);
        let log = NewLog::create(&held, &dir, &self.options, &manifest, 1)?;
        self.made = Some(Made { dir, lock, held, manifest, log, file: None });
        Ok(())
    }

    fn frame(&mut self, frame: &Frame<'_>, bytes: &[u8]) -> Result<()> {
        self.made()?.log.push(bytes, frame.revision)
    }

    fn file(&mut self, meta: &FileMeta) -> Result<()> {
        let made = self.made()?;
        let path = made.dir.join(FileName::new(meta.kind, meta.number).to_string());
        let file = made.held.create(&path).map_err(|error| Error::io("create", &path, error))?;
        made.file = Some((file, path));
        Ok(())
    }

    fn piece(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (file, path) = self.made()?.file.as_ref().ok_or_else(nothing)?;
        file.write_all_at(bytes, offset).map_err(|error| Error::io("write", path, error))?;
        file.write_back(offset..offset + bytes.len() as u64);
        Ok(())
    }

    fn file_end(&mut self) -> Result<()> {
        let (file, path) = self.made()?.file.take().ok_or_else(nothing)?;
        file.sync_all().map_err(|error| Error::io("sync", path, error))
    }
}

fn nothing() -> Error {
    Error::invalid("a part of a backup came before what it needs")
}

/// Handles are printed by those who hold them: nothing that is stored.
impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Made").field("dir", &self.dir).finish_non_exhaustive()
    }
}
