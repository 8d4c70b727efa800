//! The manifest on disk: which one is in force, and how a new one takes its place.
//!
//! ```text
//! MANIFEST-n.tmp  written whole, synced, renamed to MANIFEST-n, directory synced
//! CURRENT.tmp     written whole, synced, renamed to CURRENT, directory synced: now n is in force
//! MANIFEST-m      removed, for every other m
//! ```
//!
//! Invariants:
//! 1. `CURRENT` always names a manifest that is complete and durable under its name.
//! 2. A file without the suffix `.tmp` is complete.
//! 3. A directory without `CURRENT` holds no acknowledged data: either nothing was ever stored
//!    there, or the crash came while the store was being made. Anything else is corruption.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_format::current::{BYTES as CURRENT_BYTES, Current};
use annals_format::limits::MANIFEST_BYTES_MAX;
use annals_format::name::{CURRENT, FileName, LOCK, SEGMENT_DIR, UNFINISHED, WAL_DIR};
use annals_format::{DecodeError, FileKind, Manifest, Problem};

use crate::error::{Error, ErrorKind, Result};
use crate::vfs::{Access, Vfs};

/// How often a reader looks again when the manifest it was about to read has been replaced.
const ATTEMPTS: u32 = 16;

/// Loads and stores the manifest of one store.
#[derive(Debug, Clone)]
pub(crate) struct ManifestStore {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
}

impl ManifestStore {
    /// The manifest of the store in `dir`.
    pub(crate) fn new(vfs: Arc<dyn Vfs>, dir: impl Into<PathBuf>) -> Self {
        Self { vfs, dir: dir.into() }
    }

    /// Reads the manifest in force; `None` if there is no store here and one may be made: the
    /// directory is absent, empty, or holds what a crash left of an unfinished start.
    ///
    /// # Errors
    /// - [`ErrorKind::NotAStore`]: there are other things in the directory;
    /// - [`ErrorKind::Corrupt`]: a store without `CURRENT`, or files that do not decode or do not
    ///   belong together;
    /// - [`ErrorKind::UnsupportedVersion`].
    pub(crate) fn load(&self) -> Result<Option<Manifest>> {
        let mut attempt = 1;
        loop {
            let Some(current) = self.read_current()? else {
                self.check_no_store()?;
                return Ok(None);
            };
            match self.read_manifest(&current) {
                Ok(manifest) => return Ok(Some(manifest)),
                // A live writer may have put another one in force meanwhile.
                Err(error) => {
                    if attempt == ATTEMPTS || self.read_current()?.as_ref() == Some(&current) {
                        return Err(error);
                    }
                    attempt += 1;
                }
            }
        }
    }

    /// Puts this manifest in force under the next number, which it sets. On return it is durable.
    ///
    /// # Errors
    /// After an error either the old or the new manifest is in force when the store is reopened:
    /// go on only after reopening.
    pub(crate) fn store(&self, manifest: &mut Manifest) -> Result<()> {
        manifest.number += 1;
        let (bytes, stamp) = manifest.encode();
        if stamp.bytes > MANIFEST_BYTES_MAX {
            let what = format!("a manifest of {} bytes is too long", stamp.bytes);
            return Err(Error::invalid(what));
        }
        let name = FileName::new(FileKind::Manifest, manifest.number);
        self.replace(&name.to_string(), &bytes)?;
        let current = Current { store: manifest.store, manifest: stamp };
        self.replace(CURRENT, &current.encode())?;
        self.remove_others(manifest.number)
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
                match self.vfs.remove(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(Error::io("remove", &path, error));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Writes a file whole under another name, syncs it, renames it, and syncs the name.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let unfinished = self.dir.join(format!("{name}{UNFINISHED}"));
        match self.vfs.remove(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("remove", &unfinished, error));
            }
            _ => {}
        }
        let created = self.vfs.create(&unfinished);
        let file = created.map_err(|error| Error::io("create", &unfinished, error))?;
        file.write_all_at(bytes, 0).map_err(|error| Error::io("write", &unfinished, error))?;
        file.sync_all().map_err(|error| Error::io("sync", &unfinished, error))?;
        let renamed = self.vfs.rename(&unfinished, &self.dir.join(name));
        renamed.map_err(|error| Error::io("rename", &unfinished, error))?;
        let synced = self.vfs.sync_dir(&self.dir);
        synced.map_err(|error| Error::io("sync directory", &self.dir, error))
    }

    fn read_current(&self) -> Result<Option<Current>> {
        let path = self.dir.join(CURRENT);
        // One byte more than it may have, so that a longer file shows.
        let Some(bytes) = self.read(&path, CURRENT_BYTES as u64 + 1)? else { return Ok(None) };
        let decoded = Current::decode(&bytes);
        decoded.map(Some).map_err(|error| undecodable(&path, &error))
    }

    fn read_manifest(&self, current: &Current) -> Result<Manifest> {
        let stamp = current.manifest;
        let path = self.dir.join(FileName::new(FileKind::Manifest, stamp.number).to_string());
        let Some(bytes) = self.read(&path, MANIFEST_BYTES_MAX)? else {
            return Err(Error::corrupt(path, 0, "manifest", "the file CURRENT names", "none"));
        };
        let manifest = Manifest::decode(&bytes).map_err(|error| undecodable(&path, &error))?;
        let found = manifest.stamp();
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
            Err(error) => return Err(Error::io("open", path, error)),
        };
        let length = file.len().map_err(|error| Error::io("read length of", path, error))?;
        let length = usize::try_from(length.min(bytes_max)).unwrap_or(usize::MAX);
        let bytes = file.read_vec_at(length, 0);
        bytes.map(Some).map_err(|error| Error::io("read", path, error))
    }

    /// Without `CURRENT`: checks that nothing here can be a store that lost it.
    fn check_no_store(&self) -> Result<()> {
        let lost = |file: PathBuf, found: String| {
            let expected = "no data, as there is no CURRENT";
            Err(Error::corrupt(file, 0, "store", expected, found))
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
                None if name == LOCK || name.starts_with('.') || name == "lost+found" => {}
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
        let manifest = Manifest::decode(&bytes).map_err(|error| undecodable(path, &error))?;
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
            if entry.is_dir || entry.name.ends_with(UNFINISHED) {
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
        match self.vfs.list(&self.dir) {
            Ok(entries) => Ok(entries.into_iter().map(|entry| entry.name).collect()),
            Err(error) if is_absent(&error) => Ok(Vec::new()),
            Err(error) => Err(Error::io("list", &self.dir, error)),
        }
    }
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn undecodable(path: &Path, error: &DecodeError) -> Error {
    if let Problem::Version { supported, found } = error.problem {
        return ErrorKind::UnsupportedVersion { file: path.to_path_buf(), found, supported }.into();
    }
    let structure = format!("{} {}", error.structure, error.field);
    Error::corrupt(path, error.offset, structure, error.problem.expected(), error.problem.found())
}
