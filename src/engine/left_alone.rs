//! Background work and damage: a file that cannot be read is left as it is, and the rest of the work goes on.
//!
//! Folds, merges and their like read sealed files and write new ones, which nothing names until a manifest does. If one
//! of those they read turns out to be damaged, what was written is removed and everything is as it was: no reason to end
//! writing, which a program may need more than it needs that file. So the file is noted here, and no work is chosen any
//! more that would read it, until the store is opened anew.
//!
//! What is not folded stays in L0, and flushes do not wait for folds that will not come: L0 files are merged with each
//! other, as long as that makes none that is very large. What is not merged stays one more
//! place to look at for reads of the past. Nobody is answered otherwise than before.
//!
//! Invariants:
//!
//! 1. Only damage of a file that the tables in force have is left alone, before the manifest of the work is put in
//!    force. Any other failure, and any of what is written, ends writing.
//! 2. Each failure that is left alone notes one file more: work that meets the same damage twice, because it was chosen
//!    in spite of the note, ends writing. So background work comes to an end.
//! 3. With a file of newest versions that is left alone nothing is forgotten
//!    ([`SegmentContext::has_unreadable`](crate::segment::SegmentContext::has_unreadable)).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use annals_format::FileMeta;

use crate::error::{Error, Result};
use crate::observe;
use crate::sync::Arc;
use crate::sync::plain::{AtomicBool, Mutex, Ordering, lock};

use super::core::Core;
use super::tables::{FileSet, SealedFile};

/// The files that are left alone, by number, each with the damage that was met.
#[derive(Debug, Default)]
pub(super) struct LeftAlone {
    any: AtomicBool,
    files: Mutex<BTreeMap<u64, Error>>,
}

impl LeftAlone {
    /// Whether nothing is to read this file: it is damaged, or a blob file to which it refers is.
    pub(super) fn has(&self, file: &SealedFile) -> bool {
        self.any.load(Ordering::Relaxed) && self.why(file).is_some()
    }

    fn why(&self, file: &SealedFile) -> Option<Error> {
        let noted = lock(&self.files);
        let blobs = file.meta().blobs.iter().map(|blob| blob.file);
        let mut numbers = std::iter::once(file.meta().number).chain(blobs);
        numbers.find_map(|number| noted.get(&number)).cloned()
    }

    /// The files that were found damaged.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        lock(&self.files).values().filter_map(|met| met.file().map(Path::to_path_buf)).collect()
    }

    /// Why L0 is not folded into HEAD, if so.
    pub(super) fn unfoldable(&self, files: &FileSet) -> Option<Error> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        files.l0.iter().chain(&files.head).find_map(|file| self.why(file))
    }

    /// Whether [`Core::leave_alone`] has taken the error.
    pub(super) fn has_met(&self, error: &Error) -> bool {
        error.is_damage()
            && self.any.load(Ordering::Relaxed)
            && lock(&self.files).values().any(|met| met.file() == error.file())
    }
}

impl Core {
    /// Notes the file of which background work has met damage. False if the error is another one, or the file was noted
    /// already.
    pub(super) fn leave_alone(&self, error: &Error) -> bool {
        if !error.is_damage() {
            return false;
        }
        let files = self.shared.tables().files;
        let path = |file: &SealedFile| self.context.path(file.meta().kind, file.meta().number);
        let is_it = |file: &&Arc<SealedFile>| error.file() == Some(path(file).as_path());
        files.all().find(is_it).is_some_and(|file| self.leave_file(file.meta(), error))
    }

    /// Notes that a file is damaged. False if it was noted already.
    pub(super) fn leave_file(&self, meta: &FileMeta, error: &Error) -> bool {
        // A contradiction between two files is not noted by those who read them.
        self.context.note(meta.kind, error);
        let is_news = lock(&self.left_alone.files).insert(meta.number, error.clone()).is_none();
        self.left_alone.any.store(true, Ordering::Relaxed);
        if is_news {
            observe::left_alone(&self.path, error);
            // Flushes may have waited for a fold.
            self.wake_flushed();
        }
        is_news
    }

    /// The damage because of which a file in force is left alone.
    pub(super) fn left_damage(&self) -> Option<Error> {
        self.shared.tables().files.all().find_map(|file| self.left_alone.why(file))
    }

    /// How many files in force are left alone: those that are damaged themselves.
    pub(super) fn left_alone_files(&self) -> u64 {
        let noted = lock(&self.left_alone.files);
        let files = self.shared.tables().files;
        files.all().filter(|file| noted.contains_key(&file.meta().number)).count() as u64
    }

    /// As [`run_unit`](Self::run_unit), for who goes on with other work where a file is damaged: that there is one is
    /// what was done.
    pub(super) fn run_unit_or_leave(&self) -> Result<bool> {
        self.or_leave(self.run_unit())
    }

    /// Notes how a piece of work went, in the same way.
    pub(super) fn settle(&self, done: Result<bool>) -> Result<bool> {
        self.note_failure(&done);
        self.or_leave(done)
    }

    fn or_leave(&self, done: Result<bool>) -> Result<bool> {
        match done {
            // Not if it was met again, which has ended writing.
            Err(error) if self.left_alone.has_met(&error) => self.check_writable().map(|()| true),
            done => done,
        }
    }
}
