//! What a store remembers of damage when it is opened again.
//!
//! Once newest versions could not be read, nothing is forgotten while the store is open
//! ([`has_unreadable`](crate::segment::SegmentContext::has_unreadable)): what else there is may be what repairs them. Whoever
//! opens the store next has not met that damage, and would forget at once what was kept. So a file `DAMAGED` in the directory
//! names the file that is damaged, one line with its name. Who opens the store for writing checks that file as a whole, and
//! goes by what it finds: the damage is there, and nothing is forgotten this time, either; or it is not, or the file is
//! gone, and so is the note.
//!
//! The note is written before the next piece of background work, or by the close: if a crash comes in between, or there
//! is no room for it, damage has to be met anew.

use std::io;

use annals_format::name::{DAMAGED, FileName, UNFINISHED};

use crate::error::{Corruption, Error, ErrorKind, Result};
use crate::sync::Arc;
use crate::sync::plain::Ordering;
use crate::vfs::Access;

use super::core::Core;
use super::tables::SealedFile;

/// No name of a file is longer.
const NOTE_BYTES_MAX: u64 = 256;

impl Core {
    /// Leaves a note for whoever opens the store next, once, if there is something to be noted.
    pub(super) fn leave_note(&self) {
        let Some(error) = self.context.unreadable() else { return };
        if !self.damage_noted.load(Ordering::Relaxed) {
            // If it could not be written, it is tried again with the next piece of work.
            let written = self.write_note(error);
            self.damage_noted.store(written.is_ok(), Ordering::Relaxed);
        }
    }

    fn write_note(&self, error: &Error) -> io::Result<()> {
        let name = error.file().and_then(|file| file.strip_prefix(&self.path).ok());
        let Some(name) = name else { return Ok(()) };
        let vfs = &self.options.vfs;
        let unfinished = self.path.join(format!("{DAMAGED}{UNFINISHED}"));
        vfs.remove_if_there(&unfinished)?;
        let file = vfs.create(&unfinished)?;
        file.write_all_at(format!("{}\n", name.display()).as_bytes(), 0)?;
        file.sync_all()?;
        vfs.rename(&unfinished, &self.path.join(DAMAGED))?;
        vfs.sync_dir(&self.path)
    }

    /// Goes by the note that is there, if one is.
    ///
    /// # Errors
    /// What reading the note or removing it answers. Damage of the file that it names is none.
    pub(super) fn heed_note(&self) -> Result<()> {
        let path = self.path.join(DAMAGED);
        let vfs = &self.options.vfs;
        let note = match vfs.open(&path, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.and_then(|file| {
                let bytes = file.len()?.min(NOTE_BYTES_MAX);
                file.read_vec_at(usize::try_from(bytes).unwrap_or(0), 0)
            }),
        };
        let note = note.map_err(|error| Error::io("read", &path, error))?;
        let name = String::from_utf8_lossy(&note);
        let name = FileName::parse(name.trim_end());
        let files = self.shared.tables().files;
        let is_it = |file: &&Arc<SealedFile>| {
            name.is_some_and(|name| {
                (name.kind, name.number) == (file.meta().kind, file.meta().number)
            })
        };
        if let Some(file) = files.all().find(is_it)
            && let Some(error) = damage_of(file)
        {
            if !error.is_damage() {
                // It is not known how the file is: the note stays.
                return Err(error);
            }
            self.context.note(file.meta().kind, &error);
            self.damage_noted.store(self.context.has_unreadable(), Ordering::Relaxed);
        }
        if self.context.has_unreadable() {
            return Ok(());
        }
        let removed = vfs.remove_if_there(&path);
        removed.map_err(|error| Error::io("remove", &path, error))
    }
}

/// What is wrong with a file, or with values that it refers to.
fn damage_of(file: &SealedFile) -> Option<Error> {
    let mut first: Option<Corruption> = None;
    let mut note = |damage: Corruption| {
        first.get_or_insert(damage);
    };
    let read = file.open().and_then(|segment| {
        segment.verify(&mut note)?;
        segment.verify_blobs(&mut note)
    });
    let found = first.map(|damage| ErrorKind::Corrupt(Box::new(damage)).into());
    found.or(read.err())
}
