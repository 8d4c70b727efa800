//! What a store remembers of damage when it is opened again.
//!
//! Once newest versions could not be read, nothing is forgotten while the store is open
//! ([`has_unreadable`](crate::segment::SegmentContext::has_unreadable)): what else there is may be what repairs them. Whoever
//! opens the store next has not met that damage, and would forget at once what was kept. So a file `DAMAGED` in the directory
//! names the files that are damaged, a line each. Who opens the store for writing checks these files as a whole, and
//! goes by what it finds: the damage is there, and nothing is forgotten this time, either; or it is not, or the files are
//! gone, and so is the note.
//!
//! The note is written before the next piece of background work, or by the close: if a crash comes in between, or there
//! is no room for it, damage has to be met anew.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use annals_format::FileKind;
use annals_format::name::{DAMAGED, FileName, UNFINISHED};

use crate::error::{Corruption, Error, ErrorKind, Result};
use crate::sync::plain::Ordering;
use crate::vfs::Access;

use super::core::Core;
use super::tables::SealedFile;

/// More is not read. A note that is longer is cut at a name, whose file has to be met anew.
const NOTE_BYTES_MAX: u64 = 64 << 10;

impl Core {
    /// Leaves a note for whoever opens the store next, if there is something to be noted that is not yet.
    pub(super) fn leave_note(&self) {
        let Some(first) = self.context.unreadable() else { return };
        let paths = self.left_alone.paths();
        let names: BTreeSet<FileName> = paths
            .iter()
            .map(PathBuf::as_path)
            .chain(first.file())
            .filter_map(|path| FileName::parse(path.strip_prefix(&self.path).ok()?.to_str()?))
            .filter(|name| is_of_newest(name.kind))
            .collect();
        if names.len() as u64 > self.damage_noted.load(Ordering::Relaxed) {
            // If it could not be written, it is tried again with the next piece of work.
            if self.write_note(&names).is_ok() {
                self.damage_noted.store(names.len() as u64, Ordering::Relaxed);
            }
        }
    }

    fn write_note(&self, names: &BTreeSet<FileName>) -> io::Result<()> {
        let mut lines: Vec<String> = names.iter().map(FileName::to_string).collect();
        lines.push(String::new());
        let vfs = &self.options.vfs;
        let unfinished = self.path.join(format!("{DAMAGED}{UNFINISHED}"));
        vfs.remove_if_there(&unfinished)?;
        let file = vfs.create(&unfinished)?;
        file.write_all_at(lines.join("\n").as_bytes(), 0)?;
        file.sync_all()?;
        vfs.rename(&unfinished, &self.path.join(DAMAGED))?;
        vfs.sync_dir(&self.path)
    }

    /// Goes by the note that is there, if one is.
    ///
    /// # Errors
    /// What reading the note or removing it answers, and what says nothing of a file that it names: then the note stays.
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
        let note = String::from_utf8_lossy(&note);
        let names: BTreeSet<FileName> = note.lines().filter_map(FileName::parse).collect();
        let files = self.shared.tables().files;
        for file in files.all() {
            let meta = file.meta();
            if !is_of_newest(meta.kind) || !names.contains(&FileName::new(meta.kind, meta.number)) {
                continue;
            }
            match damage_of(file) {
                Some(error) if error.is_damage() => {
                    self.leave_file(meta, &error);
                }
                // It is not known how the file is.
                Some(error) => return Err(error),
                None => {}
            }
        }
        if self.context.has_unreadable() {
            return Ok(());
        }
        let removed = vfs.remove_if_there(&path);
        removed.map_err(|error| Error::io("remove", &path, error))
    }
}

/// Whether newest versions are lost with a file of this kind.
fn is_of_newest(kind: FileKind) -> bool {
    matches!(kind, FileKind::L0 | FileKind::Head | FileKind::Blob)
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
