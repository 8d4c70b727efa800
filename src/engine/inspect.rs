//! Looking into the files of a store without opening it: for tools.
//!
//! Nothing is written, no lock is taken, nothing is recovered. What is handed out has been checked
//! like everything else that is read from a file; damage in a WAL file is handed out as a piece of
//! it, anywhere else it ends the walk.

use std::path::{Path, PathBuf};

use annals_format::name::{CURRENT, FileName};
use annals_format::segment::Footer;
use annals_format::{FileKind, FileMeta, Manifest};

use crate::error::{Error, ErrorKind, Result};
use crate::manifest::ManifestStore;
use crate::options::Options;
use crate::segment::{Segment, SegmentContext};
use crate::sync::Arc;
use crate::vfs::Access;
use crate::wal::WalContext;

pub use crate::segment::{BlockInfo, PageInfo};
pub use crate::wal::{Location, WalPart};
pub use annals_format::entry::EntryRef;

/// The files of a store, as its manifest in force lists them.
#[derive(Debug)]
pub struct StoreFiles {
    directory: PathBuf,
    manifest: Manifest,
    segments: SegmentContext,
    wal: WalContext,
}

impl StoreFiles {
    /// Reads the manifest of the store in `directory`.
    ///
    /// # Errors
    /// [`ErrorKind::NoStore`], [`ErrorKind::NotAStore`], [`ErrorKind::Corrupt`].
    pub fn open(directory: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let directory = directory.as_ref().to_path_buf();
        let manifest = ManifestStore::new(Arc::clone(&options.vfs), &directory).load()?;
        let Some(manifest) = manifest else {
            return Err(ErrorKind::NoStore { path: directory }.into());
        };
        let segments = SegmentContext::new(&directory, manifest.store, options);
        let wal = WalContext {
            vfs: Arc::clone(&options.vfs),
            dir: directory.clone(),
            store: manifest.store,
            wal_bytes: options.wal_bytes,
        };
        Ok(Self { directory, manifest, segments, wal })
    }

    /// The manifest in force.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The length of a file of the store; `None` if there is no such file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub fn file_bytes(&self, name: FileName) -> Result<Option<u64>> {
        let path = self.directory.join(name.to_string());
        match self.wal.vfs.open(&path, Access::Read) {
            Ok(file) => {
                let bytes = file.len().map_err(|e| Error::io("read length of", &path, e))?;
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("open", &path, error)),
        }
    }

    /// The names of the store's files that exist, in order.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub fn names(&self) -> Result<Vec<FileName>> {
        let mut names = Vec::new();
        if self.file_bytes(FileName::new(FileKind::Current, 0))?.is_some() {
            names.push(FileName::new(FileKind::Current, 0));
        }
        for directory in ["", annals_format::name::WAL_DIR, annals_format::name::SEGMENT_DIR] {
            let path = self.directory.join(directory);
            let entries = self.wal.vfs.list(&path).map_err(|e| Error::io("list", &path, e))?;
            let mut found: Vec<FileName> = entries
                .iter()
                .filter(|entry| !entry.is_dir && entry.name != CURRENT)
                .filter_map(|entry| {
                    let slash = if directory.is_empty() { "" } else { "/" };
                    FileName::parse(&format!("{directory}{slash}{}", entry.name))
                })
                .collect();
            found.sort_unstable();
            names.extend(found);
        }
        Ok(names)
    }

    /// Walks over the whole of a WAL file: offset, length and what is there. A frame comes before
    /// the batch it is in. Behind the end that the manifest records may lie a torn batch that
    /// recovery has dropped.
    ///
    /// # Errors
    /// The file cannot be read, or what `each` answers. Damage is a piece, not an error.
    pub fn wal(
        &self,
        number: u64,
        each: &mut dyn FnMut(u64, u64, &WalPart<'_>) -> Result<()>,
    ) -> Result<()> {
        let name = FileName::new(FileKind::Wal, number);
        let Some(bytes) = self.file_bytes(name)? else {
            let path = self.directory.join(name.to_string());
            return Err(Error::io("open", path, std::io::ErrorKind::NotFound.into()));
        };
        crate::wal::inspect::walk(&self.wal, number, bytes, each)
    }

    /// Opens a segment file that the manifest lists.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if its length is not what the manifest says, [`ErrorKind::Io`].
    pub fn segment(&self, meta: &FileMeta) -> Result<SegmentFile> {
        Ok(SegmentFile(Arc::new(Segment::open(&self.segments, meta)?)))
    }
}

/// A segment file.
#[derive(Debug)]
pub struct SegmentFile(Arc<Segment>);

impl SegmentFile {
    /// What its footer says.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`], [`ErrorKind::Io`].
    pub fn footer(&self) -> Result<&Footer> {
        self.0.footer()
    }

    /// Its blocks in file order, until `each` answers false.
    ///
    /// # Errors
    /// As [`SegmentFile::footer`], and what `each` answers.
    pub fn blocks(&self, each: &mut dyn FnMut(BlockInfo) -> Result<bool>) -> Result<()> {
        self.0.blocks(each)
    }

    /// Its index pages from the root down, until `each` answers false.
    ///
    /// # Errors
    /// As [`SegmentFile::footer`], and what `each` answers.
    pub fn pages(&self, each: &mut dyn FnMut(PageInfo) -> Result<bool>) -> Result<()> {
        self.0.pages(each)
    }

    /// Its entries in order, until `each` answers false.
    ///
    /// # Errors
    /// As [`SegmentFile::footer`], and what `each` answers.
    pub fn entries(&self, each: &mut dyn FnMut(&EntryRef<'_>) -> Result<bool>) -> Result<()> {
        let mut cursor = self.0.cold_cursor();
        cursor.seek_first()?;
        while let Some(entry) = cursor.entry() {
            if !each(&entry)? {
                break;
            }
            cursor.next()?;
        }
        Ok(())
    }
}
