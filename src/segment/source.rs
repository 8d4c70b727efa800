//! Where the bytes of a segment come from: the map of its file, or `pread`.
//!
//! No descriptor is held for a file, see [`Handles`]: a store may have more files than a process may
//! have descriptors. A map needs none. What is read with `pread` takes the descriptor that is there,
//! or opens the file again.
//!
//! Invariant: what could be read once stays readable after the file has lost its name. A mapped file
//! stays readable through its map. Of one that is not mapped, whoever removes the name, or reads
//! beside a writer who may, calls [`Source::hold`] before.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_format::{DecodeError, FileMeta};
use bytes::Bytes;

use super::context::{SegmentContext, note};
use super::handles::Handles;
use crate::error::{Error, Result};
use crate::options::ReadMode;
use crate::sync::plain::{AtomicBool, OnceLock, Ordering};
use crate::vfs::{Access, File, Map, Vfs};

/// The bytes of one file.
#[derive(Debug)]
pub(super) struct Source {
    vfs: Arc<dyn Vfs>,
    handles: Handles,
    number: u64,
    path: PathBuf,
    map: Option<Map>,
    held: OnceLock<Arc<dyn File>>,
    /// Set where something cannot be read; `None` for the past, without which newest versions are as they are.
    unreadable: Option<Arc<OnceLock<Error>>>,
    /// Set once something of this file could not be read.
    suspect: AtomicBool,
}

impl Source {
    /// Opens the file that `meta` describes, and maps it if files of the store are mapped.
    ///
    /// # Errors
    /// Corruption if the file is missing or has another length than the manifest says.
    pub(super) fn open(context: &SegmentContext, meta: &FileMeta) -> Result<Self> {
        let path = context.path(meta.kind, meta.number);
        let unreadable = context.unreadable_of(meta.kind);
        let io = |error| Error::io("open a segment", &path, error);
        let file = match context.vfs.open(&path, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let expected = format!("the file, of {} bytes", meta.bytes);
                return Err(Error::corrupt(&path, 0, "segment", expected, "no file"));
            }
            opened => opened.map_err(io)?,
        };
        let bytes = file.len().map_err(io)?;
        if bytes != meta.bytes {
            let expected = format!("{} bytes", meta.bytes);
            let found = format!("{bytes} bytes");
            return Err(Error::corrupt(&path, bytes.min(meta.bytes), "segment", expected, found));
        }
        let map = match context.read_mode {
            ReadMode::Mmap => {
                let map = file.map(meta.bytes);
                Some(map.map_err(|error| Error::io("map a segment", &path, error))?)
            }
            ReadMode::Pread => None,
        };
        context.handles.keep(meta.number, &file);
        Ok(Self {
            vfs: Arc::clone(&context.vfs),
            handles: context.handles.clone(),
            number: meta.number,
            path,
            map,
            held: OnceLock::new(),
            unreadable,
            suspect: AtomicBool::new(false),
        })
    }

    /// What was found is not what should be there.
    #[cold]
    pub(super) fn corrupt(
        &self,
        offset: u64,
        structure: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Error {
        self.noted(Error::corrupt(&self.path, offset, structure, expected, found))
    }

    /// What was found does not decode.
    #[cold]
    pub(super) fn undecodable(&self, offset: u64, error: &DecodeError) -> Error {
        self.noted(Error::undecodable(&self.path, offset, error))
    }

    fn noted(&self, error: Error) -> Error {
        note(self.unreadable.as_deref(), &error);
        if error.is_damage() {
            self.suspect.store(true, Ordering::Relaxed);
        }
        error
    }

    /// Whether damage was met, here or in a file of newest versions as this is one: then what was checked may not be so any
    /// more, as pages of a map are read from the device again, and is checked at each read.
    #[inline]
    pub(super) fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Relaxed)
            || self.unreadable.as_ref().is_some_and(|met| met.get().is_some())
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is mapped.
    pub(super) const fn is_mapped(&self) -> bool {
        self.map.is_some()
    }

    /// Keeps the file readable whatever becomes of its name: with a descriptor, if it is not mapped.
    pub(super) fn hold(&self) -> Result<()> {
        if self.is_mapped() || self.held.get().is_some() {
            return Ok(());
        }
        let file = self.file().map_err(|error| self.error(error))?;
        if let Some(file) = file {
            // Two threads may do this at once; either descriptor is as good.
            let _ = self.held.set(file);
        }
        self.handles.forget(self.number);
        Ok(())
    }

    /// Reads bytes with `pread`; from the map if the file has lost its name.
    pub(super) fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let read = match self.file() {
            Ok(Some(file)) => file.read_vec_at(bytes, offset),
            Ok(None) => return Ok(self.slice(offset, bytes)?.unwrap_or_default().to_vec()),
            Err(error) => Err(error),
        };
        read.map_err(|error| self.error(error))
    }

    /// Bytes in place in the map; `None` if the file is not mapped.
    pub(super) fn slice(&self, offset: u64, bytes: usize) -> Result<Option<&[u8]>> {
        self.of_map(offset, bytes, Map::slice)
    }

    /// As [`slice`](Self::slice), keeping the map alive.
    pub(super) fn bytes(&self, offset: u64, bytes: usize) -> Result<Option<Bytes>> {
        self.of_map(offset, bytes, Map::bytes)
    }

    fn of_map<'m, T>(
        &'m self,
        offset: u64,
        bytes: usize,
        part: impl FnOnce(&'m Map, std::ops::Range<usize>) -> io::Result<T>,
    ) -> Result<Option<T>> {
        let Some(map) = &self.map else { return Ok(None) };
        // A mapped file fits the address space, so do its offsets.
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let part = part(map, start..start.saturating_add(bytes));
        part.map(Some)
            .map_err(|error| self.noted(Error::io("read a mapped segment", &self.path, error)))
    }

    /// A descriptor of the file; `None` if it has lost its name and is mapped.
    fn file(&self) -> io::Result<Option<Arc<dyn File>>> {
        let here = self.held.get().cloned();
        if let Some(file) = here.or_else(|| self.handles.find(self.number)) {
            return Ok(Some(file));
        }
        match self.vfs.open(&self.path, Access::Read) {
            Ok(file) => {
                self.handles.keep(self.number, &file);
                Ok(Some(file))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => match self.held.get() {
                // Whoever removes a name holds the file first: since this thread looked.
                Some(file) => Ok(Some(Arc::clone(file))),
                None if self.is_mapped() => Ok(None),
                None => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    fn error(&self, error: io::Error) -> Error {
        if error.kind() == io::ErrorKind::NotFound {
            // Not noted: whoever has removed it could not hold it.
            return Error::corrupt(&self.path, 0, "segment", "the file", "no file");
        }
        self.noted(Error::io("read a segment", &self.path, error))
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.handles.forget(self.number);
    }
}
