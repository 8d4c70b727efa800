//! The manifest on disk: which one is in force, and how a new one takes its place.
//!
//! ```text
//! MANIFEST-n.tmp  written whole, synced, renamed to MANIFEST-n, directory synced
//! CURRENT.tmp     written whole, synced, renamed to CURRENT, directory synced: now n is in force
//! MANIFEST-m      removed, for every other m
//! ```
//!
//! `CURRENT` has a copy of the manifest, before and behind which it says which that is. So damage in one of these three
//! parts costs nothing, and none of the manifest does, nor its loss: the store is opened by what is whole, reports the
//! rest ([`ManifestStore::damage`]), and the next manifest takes the place of both.
//!
//! Invariants:
//! 1. `CURRENT` always names a manifest that is complete and durable under its name.
//! 2. A file without the suffix `.tmp` is complete.
//! 3. A directory without `CURRENT` holds no acknowledged data: either nothing was ever stored
//!    there, or the crash came while the store was being made. Anything else is corruption.
//! 4. Where the manifest that `CURRENT` names is gone, the copy of it counts only if there is no newer one: else
//!    `CURRENT` is not the last one. Beside a manifest that is there, and damaged, a newer one was never put in force.
//!    So a writer that has found none writes it again ([`ManifestStore::mend`]) before it makes another.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use annals_format::current::{BYTES as CURRENT_BYTES, Current, CurrentFile};
use annals_format::limits::MANIFEST_BYTES_MAX;
use annals_format::name::{
    CURRENT, FileName, LIVE, LOADING, LOCK, SEGMENT_DIR, UNFINISHED, WAL_DIR,
};
use annals_format::{FileKind, Manifest, Problem};

use crate::error::{Error, ErrorKind, Result};
use crate::sync::sleep;
use crate::vfs::{Access, Vfs};

/// How often a reader looks again when the manifest it was about to read has been replaced.
const ATTEMPTS: u32 = 16;
/// The same of an opening. Beside a writer of tiny files, on a machine in use, two of three come too late: 16 in a row once
/// in some hundred openings.
pub(crate) const OPENING_ATTEMPTS: u32 = 1000;
/// The same of a check, which reads all there is each time.
pub(crate) const CHECK_ATTEMPTS: u32 = 16;
/// How often a directory is tried to be synced that cannot be opened for want of a descriptor, and after what pause each
/// time: for a second in all.
const DESCRIPTOR_ATTEMPTS: u32 = 200;
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(5);
/// How much of `CURRENT` is read: as long as it can be, and one byte more, so that a longer file shows.
const CURRENT_READ_MAX: u64 = MANIFEST_BYTES_MAX + 2 * CURRENT_BYTES as u64 + 1;

/// Loads and stores the manifest of one store.
#[derive(Debug, Clone)]
pub(crate) struct ManifestStore {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    /// Whether a store that is still being put together is read, too.
    loading: bool,
}

/// What `CURRENT` says.
#[derive(Debug)]
struct Named {
    current: Current,
    bytes: Vec<u8>,
    /// Why there is not more of them.
    unread: Option<Error>,
}

/// A manifest that is on the disk and only has to be put in force.
#[derive(Debug)]
pub(crate) struct Prepared {
    number: u64,
}

impl ManifestStore {
    /// The manifest of the store in `dir`.
    pub(crate) fn new(vfs: Arc<dyn Vfs>, dir: impl Into<PathBuf>) -> Self {
        Self { vfs, dir: dir.into(), loading: false }
    }

    /// The same for who puts the store together: see [`LOADING`].
    pub(crate) fn of_load(self) -> Self {
        Self { loading: true, ..self }
    }

    /// Reads the manifest in force; `None` if there is no store here and one may be made: the
    /// directory is absent, empty, or holds what a crash left of an unfinished start.
    ///
    /// # Errors
    /// - [`ErrorKind::NotAStore`]: there are other things in the directory, or it is a file, or a store was
    ///   being put together here, which was not finished;
    /// - [`ErrorKind::Corrupt`]: a store without `CURRENT`, or files that do not decode or do not
    ///   belong together;
    /// - [`ErrorKind::UnsupportedVersion`].
    pub(crate) fn load(&self) -> Result<Option<Manifest>> {
        self.check_loaded()?;
        let mut attempt = 1;
        loop {
            let named = self.read_current()?;
            let loaded = match &named {
                Some(named) => self.read_manifest(&named.current).map(Some),
                None => self.check_no_store().map(|()| None),
            };
            let Err(error) = loaded else { return loaded };
            // A live writer may have put another one in force meanwhile, or the first.
            let now = self.read_current()?.map(|now| now.current);
            if attempt == ATTEMPTS || now == named.as_ref().map(|named| named.current) {
                let copy = named.map(|named| self.copied(&named)).transpose()?.flatten();
                return copy.map(Some).ok_or(error);
            }
            attempt += 1;
        }
    }

    /// What is damaged of `CURRENT` and of this manifest, which was loaded: the rest has made up for it. Nothing where
    /// a live writer has put another one in force since.
    ///
    /// # Errors
    /// `CURRENT` cannot be read any more.
    pub(crate) fn damage(&self, manifest: &Manifest) -> Result<Vec<Error>> {
        let in_force = || -> Result<_> {
            let named = self.read_current()?;
            Ok(named.filter(|named| named.current.manifest.number == manifest.number))
        };
        let Some(Named { current, bytes, unread }) = in_force()? else { return Ok(Vec::new()) };
        let path = self.dir.join(CURRENT);
        let damaged = |error| Error::undecodable(&path, 0, &error);
        let file = CurrentFile::decode(&bytes).map_err(damaged)?;
        let mut found: Vec<Error> = unread.into_iter().collect();
        found.extend(file.damage.clone().into_iter().chain(file.manifest().err()).map(damaged));
        found.extend(self.read_manifest(&current).err());
        let moved = !found.is_empty() && in_force()?.is_none();
        Ok(if moved { Vec::new() } else { found })
    }

    /// Writes this manifest, which was loaded, again under its name, where it cannot be read there: see the module.
    /// For a writer.
    ///
    /// # Errors
    /// [`ErrorKind::Io`], [`ErrorKind::NoSpace`].
    pub(crate) fn mend(&self, manifest: &Manifest) -> Result<()> {
        let (bytes, stamp) = manifest.encode();
        if self.read_manifest(&Current { store: manifest.store, manifest: stamp }).is_ok() {
            return Ok(());
        }
        let name = FileName::new(FileKind::Manifest, manifest.number).to_string();
        self.write(&name, &bytes)?;
        self.rename(&name)
    }

    /// Reads the store as its manifest describes it, beside a writer that may be alive. If that does
    /// not go `well`, it is tried again as often as another manifest is in force by then: a live
    /// writer removes files that it lists no more. Answers how the last attempt went.
    ///
    /// # Errors
    /// As [`load`](Self::load); [`ErrorKind::NoStore`]; `InvalidArgument` when the store has changed at
    /// every attempt.
    pub(crate) fn read_store<T>(
        &self,
        attempts: u32,
        mut read: impl FnMut(&Manifest) -> T,
        well: impl Fn(&T) -> bool,
    ) -> Result<T> {
        let load = || {
            let loaded = self.load()?;
            loaded.ok_or_else(|| Error::from(ErrorKind::NoStore { path: self.dir.clone() }))
        };
        let mut manifest = load()?;
        let mut attempt = 1;
        loop {
            let outcome = read(&manifest);
            if well(&outcome) {
                return Ok(outcome);
            }
            let now = load()?;
            if now.number == manifest.number {
                return Ok(outcome);
            }
            if attempt == attempts {
                return Err(Error::invalid("the store changes faster than it can be read"));
            }
            manifest = now;
            attempt += 1;
        }
    }

    /// Puts this manifest in force under the next number, which it sets. On return it is durable.
    ///
    /// # Errors
    /// After an error either the old or the new manifest is in force when the store is reopened:
    /// go on only after reopening.
    pub(crate) fn store(&self, manifest: &mut Manifest) -> Result<()> {
        let prepared = self.prepare(manifest)?;
        self.enforce(prepared)
    }

    /// Writes this manifest under the next number, which it sets, and what will name it, but does not put it in force.
    ///
    /// # Errors
    /// After an error the old manifest is in force, and another one may be prepared.
    pub(crate) fn prepare(&self, manifest: &mut Manifest) -> Result<Prepared> {
        manifest.number += 1;
        let (bytes, stamp) = manifest.encode();
        if stamp.bytes > MANIFEST_BYTES_MAX {
            let what = format!("a manifest of {} bytes is too long", stamp.bytes);
            return Err(Error::invalid(what));
        }
        // What cannot be read back must not come in force.
        if let Err(error) = Manifest::decode(&bytes) {
            return Err(Error::invalid(format!("the manifest cannot be written: {error}")));
        }
        let name = FileName::new(FileKind::Manifest, manifest.number).to_string();
        let current = Current { store: manifest.store, manifest: stamp };
        self.write(&name, &bytes)?;
        self.rename(&name)?;
        self.write(CURRENT, &CurrentFile::encode(&current, &bytes)).inspect_err(|error| {
            // The next attempt makes another.
            self.remove_for_space(&name, error);
        })?;
        Ok(Prepared { number: manifest.number })
    }

    /// Puts the manifest in force that was prepared last. On return it is durable.
    ///
    /// # Errors
    /// As for [`store`](Self::store).
    pub(crate) fn enforce(&self, prepared: Prepared) -> Result<()> {
        self.rename(CURRENT)?;
        match self.remove_others(prepared.number) {
            // It is in force; the next one removes them.
            Err(error) if error.is_shortage() => Ok(()),
            removed => removed,
        }
    }

    /// Removes manifests other than `number` and files that were never finished. What is lost
    /// with them is nothing: they are not in force.
    pub(crate) fn remove_others(&self, number: u64) -> Result<()> {
        for name in self.names()? {
            let other = FileName::parse(&name)
                .is_some_and(|name| name.kind == FileKind::Manifest && name.number != number);
            let unfinished = name.strip_suffix(UNFINISHED).and_then(FileName::parse).is_some();
            if other || unfinished {
                let path = self.dir.join(&name);
                let removed = self.vfs.remove_if_there(&path);
                removed.map_err(|error| Error::io("remove", &path, error))?;
            }
        }
        Ok(())
    }

    /// Writes a file whole under another name, and syncs it.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let unfinished = self.dir.join(format!("{name}{UNFINISHED}"));
        let removed = self.vfs.remove_if_there(&unfinished);
        removed.map_err(|error| Error::io("remove", &unfinished, error))?;
        let created = self.vfs.create(&unfinished);
        let file = created.map_err(|error| Error::io("create", &unfinished, error))?;
        let written = file.write_all_at(bytes, 0).map_err(|e| Error::io("write", &unfinished, e));
        written
            .and_then(|()| file.sync_all().map_err(|e| Error::io("sync", &unfinished, e)))
            .inspect_err(|error| self.remove_for_space(&format!("{name}{UNFINISHED}"), error))
    }

    /// Removes what was just made, where there is no space for what belongs to it: it is tried again, and others need
    /// the space. If that fails, it is removed once a manifest has come in force.
    fn remove_for_space(&self, name: &str, error: &Error) {
        if error.is_shortage() {
            let _ = self.vfs.remove_if_there(&self.dir.join(name));
        }
    }

    /// Gives a file that was written so its name, and syncs that.
    fn rename(&self, name: &str) -> Result<()> {
        let unfinished = self.dir.join(format!("{name}{UNFINISHED}"));
        let renamed = self.vfs.rename(&unfinished, &self.dir.join(name));
        renamed.map_err(|error| Error::io("rename", &unfinished, error))?;
        // To be synced a directory is opened. Where there is no descriptor for it that is no failed sync: others give theirs
        // back, and to fail here ends writing.
        let mut attempt = 1;
        loop {
            let synced = self.vfs.sync_dir(&self.dir);
            let synced = synced.map_err(|error| Error::io("sync directory", &self.dir, error));
            let lacks = |error: &Error| error.is_shortage() && !error.is_no_space();
            if attempt == DESCRIPTOR_ATTEMPTS || !synced.as_ref().is_err_and(lacks) {
                return synced;
            }
            attempt += 1;
            sleep(DESCRIPTOR_PAUSE);
        }
    }

    /// Which manifest is in force, and the bytes that say so.
    fn read_current(&self) -> Result<Option<Named>> {
        let path = self.dir.join(CURRENT);
        let (bytes, unread) = match self.read(&path, CURRENT_READ_MAX) {
            Ok(bytes) => (bytes, None),
            // Its begin is enough, if that can be read.
            Err(error) => match self.read(&path, CURRENT_BYTES as u64) {
                Ok(begin) => (begin, Some(error)),
                Err(_) => return Err(error),
            },
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let decoded = CurrentFile::decode(&bytes).map(|file| file.current);
        let current = decoded.map_err(|error| Error::undecodable(&path, 0, &error))?;
        Ok(Some(Named { current, bytes, unread }))
    }

    /// The copy in `CURRENT` of the manifest in force, which cannot be read; `None` where the copy does not count, or
    /// there is none that is whole.
    ///
    /// # Errors
    /// [`ErrorKind::UnsupportedVersion`], [`ErrorKind::Io`].
    fn copied(&self, named: &Named) -> Result<Option<Manifest>> {
        let number = named.current.manifest.number;
        let names = self.names()?;
        let names = names.iter().filter_map(|name| FileName::parse(name));
        let manifests = names.filter(|name| name.kind == FileKind::Manifest);
        let numbers: Vec<u64> = manifests.map(|name| name.number).collect();
        if !numbers.contains(&number) && numbers.iter().any(|&other| other > number) {
            return Ok(None);
        }
        let path = self.dir.join(CURRENT);
        match CurrentFile::decode(&named.bytes).and_then(|file| file.manifest()) {
            Ok(copy) => Ok(copy),
            Err(newer) if matches!(newer.problem, Problem::Version { .. }) => {
                Err(Error::undecodable(&path, 0, &newer))
            }
            Err(_) => Ok(None),
        }
    }

    fn read_manifest(&self, current: &Current) -> Result<Manifest> {
        let stamp = current.manifest;
        let path = self.dir.join(FileName::new(FileKind::Manifest, stamp.number).to_string());
        let Some(bytes) = self.read(&path, MANIFEST_BYTES_MAX)? else {
            return Err(Error::corrupt(path, 0, "manifest", "the file CURRENT names", "none"));
        };
        let (manifest, found) = Manifest::decode_stamped(&bytes)
            .map_err(|error| Error::undecodable(&path, 0, &error))?;
        if found != stamp || manifest.store != current.store {
            let expected =
                format!("number {}, {} bytes, {:#010x}", stamp.number, stamp.bytes, stamp.crc);
            let found =
                format!("number {}, {} bytes, {:#010x}", found.number, found.bytes, found.crc);
            return Err(Error::corrupt(path, 0, "manifest", expected, found));
        }
        Ok(manifest)
    }

    /// Reads a small file of at most `bytes_max` bytes; `None` if there is none.
    fn read(&self, path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>> {
        let file = match self.vfs.open(path, Access::Read) {
            Ok(file) => file,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(Error::of_directory(&self.dir, "open", error));
            }
            Err(error) => return Err(Error::io("open", path, error)),
        };
        let length = file.len().map_err(|error| Error::io("read length of", path, error))?;
        let length = usize::try_from(length.min(bytes_max)).unwrap_or(usize::MAX);
        let bytes = file.read_vec_at(length, 0);
        bytes.map(Some).map_err(|error| Error::io("read", path, error))
    }

    /// Refuses a store that is not whole.
    fn check_loaded(&self) -> Result<()> {
        let path = self.dir.join(LOADING);
        if self.loading {
            return Ok(());
        }
        let found = self.vfs.exists(&path);
        if !found.map_err(|error| Error::of_directory(&self.dir, "look into", error))? {
            return Ok(());
        }
        let detail = "a store was being put together here, and was not finished: remove it";
        Err(ErrorKind::NotAStore { path: self.dir.clone(), detail: detail.to_owned() }.into())
    }

    /// Without `CURRENT`: checks that nothing here can be a store that lost it.
    fn check_no_store(&self) -> Result<()> {
        let lost = |file: PathBuf, what: String| {
            let found = format!("none, and {what} in {}", file.display());
            Err(Error::corrupt(self.dir.join(CURRENT), 0, "CURRENT", "a file", found))
        };
        for name in self.names()? {
            let path = self.dir.join(&name);
            match FileName::parse(&name) {
                Some(manifest) => {
                    if !self.is_unused(&path, manifest.number)? {
                        return lost(path, "a manifest in use".to_owned());
                    }
                }
                None if name == WAL_DIR || name == SEGMENT_DIR => {
                    if let Some(file) = self.first_with_data(&path)? {
                        return lost(path.join(&file), "data".to_owned());
                    }
                }
                None if name == LOADING && self.loading => {}
                None if name == LOCK || name.strip_suffix(UNFINISHED).unwrap_or(&name) == LIVE => {}
                None if name.starts_with('.') || name == "lost+found" => {}
                None if name.strip_suffix(UNFINISHED).and_then(FileName::parse).is_some() => {}
                None => {
                    let detail = format!("it holds {name}");
                    return Err(ErrorKind::NotAStore { path: self.dir.clone(), detail }.into());
                }
            }
        }
        Ok(())
    }

    /// Whether a manifest is the first of a store that never got further.
    fn is_unused(&self, path: &Path, number: u64) -> Result<bool> {
        let Some(bytes) = self.read(path, MANIFEST_BYTES_MAX)? else { return Ok(true) };
        let manifest =
            Manifest::decode(&bytes).map_err(|error| Error::undecodable(path, 0, &error))?;
        let unused = Manifest::new(manifest.store);
        Ok(number == 1
            && manifest.files.is_empty()
            && manifest.flushed_seq == unused.flushed_seq
            && manifest.compacted == unused.compacted
            && manifest.revision_floor == unused.revision_floor)
    }

    /// The first finished file of a directory that is not all zero.
    fn first_with_data(&self, dir: &Path) -> Result<Option<String>> {
        let entries = self.vfs.list(dir).map_err(|error| Error::io("list", dir, error))?;
        for entry in entries {
            let finished = entry.name.strip_suffix(UNFINISHED);
            let directory = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let parsed = |name: &str| FileName::parse(&format!("{directory}/{name}"));
            if entry.is_dir || parsed(finished.unwrap_or(&entry.name)).is_none() {
                let detail = format!("it holds {directory}/{}", entry.name);
                return Err(ErrorKind::NotAStore { path: self.dir.clone(), detail }.into());
            }
            if finished.is_some() {
                continue;
            }
            if !self.is_zero(&dir.join(&entry.name), entry.bytes)? {
                return Ok(Some(entry.name));
            }
        }
        Ok(None)
    }

    fn is_zero(&self, path: &Path, bytes: u64) -> Result<bool> {
        const CHUNK: u64 = 1 << 20;
        let opened = self.vfs.open(path, Access::Read);
        let file = opened.map_err(|error| Error::io("open", path, error))?;
        let mut offset = 0;
        while offset < bytes {
            let count = usize::try_from(CHUNK.min(bytes - offset)).unwrap_or(0);
            let chunk = file.read_vec_at(count, offset);
            let chunk = chunk.map_err(|error| Error::io("read", path, error))?;
            if !annals_format::cursor::is_zero(&chunk) {
                return Ok(false);
            }
            offset += CHUNK;
        }
        Ok(true)
    }

    /// The names in the store's directory; none if it does not exist.
    fn names(&self) -> Result<Vec<String>> {
        match self.vfs.names(&self.dir) {
            Ok(names) => Ok(names),
            Err(error) if is_absent(&error) => Ok(Vec::new()),
            Err(error) => Err(Error::of_directory(&self.dir, "list", error)),
        }
    }
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

#[cfg(test)]
mod tests;
