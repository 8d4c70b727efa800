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

use annals_format::name::{FileName, LOADING, SEGMENT_DIR};
use annals_format::{FileMeta, Frame, Manifest};

use crate::error::{Error, Result};
use crate::manifest::ManifestStore;
use crate::options::Options;
use crate::sync::Arc;
use crate::vfs::{File, HeldVfs, LockGuard, Vfs};
use crate::wal::{WalContext, WalFiles, WalWriter};

use super::bump::bump;
use super::checkpoint::{BATCH_BYTES, Batch, begin, sync_dir};
use super::increment::Continuing;
use super::open::another_history;
use super::receive::Receiver;

/// What stands in the file that says that a directory is no store yet.
const NOTICE: &[u8] =
    b"A store is being made of a backup here. If nobody is at it any more, it was not finished: \
remove the directory.\n";

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
    lock: Option<LockGuard>,
    /// The file system as long as the directory is ours: what is not finished may have been taken for dead, and
    /// removed, and begun anew.
    held: Arc<dyn Vfs>,
    manifest: Manifest,
    /// Until it is sealed.
    log: Option<Tail>,
    /// The file that is being written.
    file: Option<(Arc<dyn File>, PathBuf)>,
}

/// The end of the log.
struct Tail {
    files: Arc<WalFiles>,
    writer: WalWriter,
    batch: Batch,
    /// The revision after the last frame.
    revision: u64,
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

    /// Ends what is written: from now on there are the files of a store that was closed.
    ///
    /// # Errors
    /// What writing files answers.
    pub(crate) fn seal(&mut self) -> Result<()> {
        let made = self.made()?;
        sync_dir(&*made.held, &made.dir.join(SEGMENT_DIR))?;
        if let Some(Tail { files, mut writer, mut batch, revision }) = made.log.take() {
            batch.write(&mut writer, revision)?;
            made.manifest.wal = files.listed();
            // The seal names the manifest that will be in force.
            writer.close(made.next().stamp())?;
        }
        Ok(())
    }

    /// Puts its manifest in force, and opens it for writing. Until it is [finished](Continuing::finish) it is no
    /// store all the same.
    ///
    /// # Errors
    /// What writing files answers; as for any store.
    pub(crate) fn publish(&mut self) -> Result<Continuing> {
        let options = self.options.clone();
        let made = self.made()?;
        ManifestStore::new(Arc::clone(&made.held), &made.dir).store(&mut made.manifest)?;
        // Whoever opens it takes the lock.
        made.lock = None;
        Continuing::open(&made.dir, &options)
    }

    /// Raises the revision of what has been published and closed, and opens it again; see
    /// [`bump`](super::bump).
    ///
    /// # Errors
    /// `InvalidArgument` if there are no revisions left; what reading and writing files answers.
    pub(crate) fn bump(&mut self, by: u64) -> Result<Continuing> {
        let options = self.options.clone();
        bump(&self.made()?.dir, &options, by)
    }

    fn made(&mut self) -> Result<&mut Made> {
        self.made.as_mut().ok_or_else(nothing)
    }
}

impl Made {
    /// The manifest as it will be in force.
    fn next(&self) -> Manifest {
        Manifest { number: self.manifest.number + 1, ..self.manifest.clone() }
    }
}

impl Receiver for Restoring {
    fn manifest(&mut self, manifest: &Manifest) -> Result<()> {
        let (vfs, to) = (&self.options.vfs, &self.path);
        let exists = vfs.exists(to).map_err(|error| Error::of_directory(to, "look for", error))?;
        if !exists {
            let made = vfs.create_dir_all(to);
            made.map_err(|error| Error::io("create directory", to, error))?;
        }
        let dir = vfs.canonical(to).map_err(|error| Error::of_directory(to, "look for", error))?;
        let lock = begin(&**vfs, &dir, (LOADING, NOTICE))?;
        let held: Arc<dyn Vfs> = Arc::new(HeldVfs::new(Arc::clone(vfs), &lock));
        let mut manifest = manifest.clone();
        manifest.incarnation = another_history(manifest.incarnation, &self.options);
        let context = WalContext {
            vfs: Arc::clone(&held),
            dir: dir.clone(),
            store: manifest.store,
            wal_bytes: self.options.wal_bytes,
        };
        let files = WalFiles::new(context, Vec::new());
        let (seq, revision) = (manifest.flushed_seq, manifest.flushed_revision);
        let writer = WalWriter::create(Arc::clone(&files), 1, seq, revision)?;
        let log = Some(Tail { files, writer, batch: Batch::after(seq), revision });
        self.made = Some(Made { dir, lock: Some(lock), held, manifest, log, file: None });
        Ok(())
    }

    fn frame(&mut self, frame: &Frame<'_>, bytes: &[u8]) -> Result<()> {
        let log = self.made()?.log.as_mut().ok_or_else(nothing)?;
        log.batch.push(bytes);
        log.revision = frame.revision;
        if log.batch.bytes.len() >= BATCH_BYTES {
            log.batch.write(&mut log.writer, log.revision)?;
        }
        Ok(())
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
