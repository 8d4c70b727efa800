//! A directory in which a tool puts a store together file by file: `annals repair`.
//!
//! It is claimed like that of every store that is being made ([`new_store`](super::new_store)), so that what is left
//! when the tool is stopped is no store, and nobody else is at it.

use std::path::{Path, PathBuf};

use annals_format::FileMeta;

use crate::error::Result;
use crate::manifest::ManifestStore;
use crate::options::Options;
use crate::segment::SegmentContext;
use crate::sync::Arc;
use crate::vfs::{LockGuard, Vfs};

use super::Engine;
use super::bump::add_revision;
use super::check::{CheckReport, check_of};
use super::inspect::StoreFiles;
use super::lost_events::{self, KeptEvents};
use super::lost_newest::{self, Changed, KeptNewest};
use super::lost_past::{self, KeptHistory, LostBlock, LostPast};
use super::new_store::{check_ours, claim, directory, hold, remove_marker};
use super::retention::Before;

/// What [`PutTogether::bring_back`] has brought keys back to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BroughtBack {
    /// The revisions that did it, the first and the last; `None` where there was nothing to do.
    pub revisions: Option<(u64, u64)>,
    /// For each key the revision of the version that it is as of; `None` where it was deleted.
    pub kept: Vec<Option<u64>>,
}

/// What [`PutTogether::give_up`] has given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenUp {
    /// Which keys cannot be read as far back as before, by prefix: as that is lost, or as their rule is.
    pub past: Vec<LostPast>,
    /// The revision that was added behind the newest.
    pub added: Option<u64>,
}

/// The directory, as long as it is no store yet. It is locked; dropped, it stays what it is: no store.
#[derive(Debug)]
pub struct PutTogether {
    path: PathBuf,
    /// The file system as long as the directory is ours.
    held: Arc<dyn Vfs>,
    lock: LockGuard,
    options: Options,
}

impl PutTogether {
    /// Makes the directory, which must be absent or empty, with those for the log and for segments in it.
    ///
    /// # Errors
    /// [`ErrorKind::NotEmpty`](crate::ErrorKind::NotEmpty), [`ErrorKind::Locked`](crate::ErrorKind::Locked), or what
    /// making files answers.
    pub fn begin(directory_of: impl AsRef<Path>, options: &Options) -> Result<Self> {
        options.validate()?;
        let path = directory(&*options.vfs, directory_of.as_ref())?;
        let (lock, held) = claim(&options.vfs, &path)?;
        Ok(Self { path, held, lock, options: options.clone() })
    }

    /// Where it is, whatever links led there.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what can be read of a damaged HISTORY file of a store to a file here of another number. The manifest that
    /// will list it is to be that of the same store. Blocks that cannot be read are left out; where nothing can be
    /// read no file is written.
    ///
    /// # Errors
    /// What writing a file answers.
    pub fn keep_history(
        &self,
        files: &StoreFiles,
        meta: &FileMeta,
        number: u64,
    ) -> Result<KeptHistory> {
        let Ok(segment) = files.opened(meta) else {
            return Ok(KeptHistory { file: None, lost: vec![LostBlock::all_of(meta)] });
        };
        lost_past::keep(&segment, &self.context(files), number)
    }

    /// Writes what can be read of a damaged EVENTS file of a store to a file here of another number, and puts the other
    /// transactions together from the versions that they made. What is missing is who wrote them, and when: their time
    /// is that of the next one. Reads all files of versions that may have some of these, once for each 64 MiB of changes.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) and [`ErrorKind::Io`](crate::ErrorKind::Io) where newest versions
    /// cannot be read; what writing a file answers.
    pub fn keep_events(
        &self,
        files: &StoreFiles,
        meta: &FileMeta,
        number: u64,
    ) -> Result<KeptEvents> {
        lost_events::keep(files, meta, &self.context(files), (number, lost_events::BYTES_MAX))
    }

    /// Writes a damaged file of newest versions, of L0 or of HEAD, to a file here of another number: what can be read of
    /// it, and what EVENTS tell of the rest. Versions whose values nothing tells stand in it without (`bare`), so their keys
    /// must be brought back, and their past be given up. `changed` is what the log has. All other files of newest versions
    /// and of EVENTS are to be whole. `None` where it cannot be put together.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) and [`ErrorKind::Io`](crate::ErrorKind::Io) where others cannot
    /// be read; what writing a file answers.
    pub fn keep_newest(
        &self,
        files: &StoreFiles,
        (meta, number): (&FileMeta, u64),
        changed: &Changed,
    ) -> Result<Option<KeptNewest>> {
        lost_newest::keep(files, meta, (&self.context(files), number), changed)
    }

    fn context(&self, files: &StoreFiles) -> SegmentContext {
        let (store, incarnation) = (files.manifest().store, files.manifest().incarnation);
        SegmentContext::new(&self.path, store, incarnation, &self.options)
    }

    /// Opens what has been put there, which is a store but for what is lost of its past and its log, and gives up what
    /// that would have to answer: the floors of these keys rise to behind it, those of rules of retention, for which
    /// there may be new ones, and the watermark; and rules have come as far as the manifest says.
    /// Of no other key anything is given up. Where a key can be read behind the newest revision only, one that changes
    /// nothing is added. `has_bare`: there are versions without their value, which nobody can ask for then. Everything is
    /// folded, so that they are in no file of newest versions any more: another repair would not know them from others. Where
    /// HISTORY or EVENTS still have them they are below what can be asked for.
    ///
    /// # Errors
    /// What opening, writing and closing a store answer; `InvalidArgument` if somebody has put another store
    /// there meanwhile.
    pub fn give_up(self, lost: &[LostPast], has_bare: bool) -> Result<(Self, GivenUp)> {
        let manifests = ManifestStore::new(Arc::clone(&self.held), &*self.path).of_load();
        let manifest = manifests.load()?;
        let (floors, compacted) = manifest.map(|m| (m.floors, m.compacted)).unwrap_or_default();
        let (path, options) = self.let_go();
        let alone = options.clone().background(false);
        let (mut engine, _) = Engine::open_loading(&path, &alone)?;
        let newest = engine.latest()?.position().revision;
        let mut added = None;
        if lost.iter().any(|lost| lost.from() > newest) {
            added = Some(add_revision(&engine, &options)?);
            (engine, _) = Engine::open_loading(&path, &alone)?;
        }
        let past = engine.door().0.give_up(lost, &Before { floors: &floors, compacted })?;
        if has_bare {
            engine.reorganise()?;
        }
        engine.close()?;
        Ok((Self::held(path, &options)?, GivenUp { past, added }))
    }

    /// Lets go of the directory, for who opens what is in it.
    pub(crate) fn let_go(self) -> (PathBuf, Options) {
        let Self { path, lock, options, .. } = self;
        // Opening takes it.
        drop(lock);
        (path, options)
    }

    /// Takes what somebody has closed in a directory that is no store yet.
    ///
    /// # Errors
    /// `Locked`; `InvalidArgument` if somebody has put another store there meanwhile.
    pub(crate) fn held(path: PathBuf, options: &Options) -> Result<Self> {
        let (lock, held) = hold(&options.vfs, &path)?;
        Ok(Self { path, held, lock, options: options.clone() })
    }

    /// [Checks](crate::check) what has been put there as the store that it is to be.
    ///
    /// # Errors
    /// As for any store.
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        let manifests = ManifestStore::new(Arc::clone(&self.options.vfs), &*self.path).of_load();
        check_of(&manifests, &self.path, &self.options, progress)
    }

    /// From when this returns it is a store; or, if nothing is left in it, an empty directory.
    ///
    /// # Errors
    /// `InvalidArgument` if somebody has put another store there; what removing a file answers.
    pub fn finish(self) -> Result<()> {
        check_ours(&self.path, &*self.held)?;
        remove_marker(&*self.held, &self.path)
    }
}
