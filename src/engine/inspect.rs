//! Looking into the files of a store without opening it: for tools.
//!
//! Nothing is written, no lock is taken, nothing is recovered. What is handed out has been checked
//! like everything else that is read from a file; damage in a WAL file is handed out as a piece of
//! it, anywhere else it ends the walk.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;

use annals_format::name::{FileName, SEGMENT_DIR, WAL_DIR};
use annals_format::segment::{Footer, HEADER_BYTES};
use annals_format::{FileKind, FileMeta, Manifest};

use super::retention::Before;
use crate::error::{Error, Result};
use crate::manifest::{ManifestStore, OPENING_ATTEMPTS};
use crate::options::Options;
use crate::reclaim::floors::Floors;
use crate::segment::{Cursor, Leaves, SealedFile, Segment, SegmentContext};
use crate::sync::Arc;
use crate::vfs::{Access, File};
use crate::wal::WalContext;

pub use super::lost_era::EventFloors;
pub use super::lost_events::KeptEvents;
pub use super::lost_newest::{Changed, KeptNewest};
pub use super::lost_past::{KeptHistory, LostBlock, LostPast};
pub use super::put_together::{BroughtBack, GivenUp, PutTogether};
pub use crate::segment::{BlockInfo, PageInfo};
pub use crate::wal::{Location, WalPart};
pub use annals_format::entry::EntryRef;

/// Files that are read by their blocks are held in memory.
const REGAINED_BYTES_MAX: u64 = 1 << 30;

/// The files of a store, as its manifest in force lists them. All are open, so that a live writer
/// may fold and remove them: what was there at one moment can be looked into for as long as this
/// lives.
#[derive(Debug)]
pub struct StoreFiles {
    manifest: Manifest,
    wal: WalContext,
    /// What lay in the directories, and its length.
    names: BTreeMap<FileName, u64>,
    /// `None` for one that was removed before it was opened.
    logs: BTreeMap<u64, Result<Option<Arc<dyn File>>>>,
    /// As the manifest lists them.
    segments: Vec<Result<Arc<Segment>>>,
    /// How many bytes of files may still be held in memory.
    room: u64,
}

impl StoreFiles {
    /// Reads the manifest of the store in `directory`, and opens its files. One that cannot be opened
    /// is an error only when it is asked for.
    ///
    /// # Errors
    /// [`ErrorKind::NoStore`](crate::ErrorKind::NoStore),
    /// [`ErrorKind::NotAStore`](crate::ErrorKind::NotAStore),
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt),
    /// [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn open(directory: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let directory = directory.as_ref();
        let manifests = ManifestStore::new(Arc::clone(&options.vfs), directory);
        let read = |manifest: &Manifest| Self::of(directory, options, manifest.clone());
        manifests
            .read_store(OPENING_ATTEMPTS, read, |files| files.as_ref().is_ok_and(Self::are_whole))?
    }

    fn of(directory: &Path, options: &Options, manifest: Manifest) -> Result<Self> {
        let wal = WalContext {
            vfs: Arc::clone(&options.vfs),
            dir: directory.to_path_buf(),
            store: manifest.store,
            incarnation: manifest.incarnation,
            wal_bytes: options.wal_bytes,
            quick_syncs: false,
        };
        let context = SegmentContext::new(directory, manifest.store, manifest.incarnation, options);
        let open = |file: &Arc<SealedFile>| {
            file.hold()?;
            file.open().cloned()
        };
        let segments = SealedFile::all(&Arc::new(context), &manifest.files, []);
        let segments = segments.iter().map(open).collect();
        let names = names(&wal)?;
        let mut logs = BTreeMap::new();
        let named = names.keys().filter(|name| name.kind == FileKind::Wal);
        for number in named.map(|name| name.number).chain(manifest.wal.iter().map(|f| f.number)) {
            let path = directory.join(FileName::new(FileKind::Wal, number).to_string());
            let opened = match wal.vfs.open(&path, Access::Read) {
                Ok(file) => Ok(Some(file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(Error::io("open", path, error)),
            };
            logs.insert(number, opened);
        }
        Ok(Self { manifest, wal, names, logs, segments, room: REGAINED_BYTES_MAX })
    }

    fn are_whole(&self) -> bool {
        let is_open = |log: &Result<Option<_>>| matches!(log, Ok(Some(_)));
        self.segments.iter().all(Result::is_ok) && self.logs.values().all(is_open)
    }

    /// The manifest in force.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The length of a file of the store; `None` if there is no such file.
    pub fn file_bytes(&self, name: FileName) -> Option<u64> {
        self.names.get(&name).copied()
    }

    /// The names of the store's files that exist, in order.
    pub fn names(&self) -> impl Iterator<Item = FileName> {
        let is_gone = |number| matches!(self.logs.get(&number), Some(Ok(None)));
        let names = self.names.keys().copied();
        names.filter(move |name| name.kind != FileKind::Wal || !is_gone(name.number))
    }

    /// Walks over the whole of a WAL file: offset, length and what is there. A frame comes before
    /// the batch it is in. Behind the end that the manifest records may lie a torn batch that
    /// recovery has dropped.
    ///
    /// # Errors
    /// The file cannot be read, or what `each` answers. Damage is a piece, not an error, but for a
    /// file that the manifest lists and that is not there.
    pub fn wal(
        &self,
        number: u64,
        each: &mut dyn FnMut(u64, u64, &WalPart<'_>) -> Result<()>,
    ) -> Result<()> {
        let name = FileName::new(FileKind::Wal, number);
        let log = self.logs.get(&number).cloned().transpose()?.flatten();
        let (Some(log), Some(bytes)) = (log, self.file_bytes(name)) else {
            let path = self.wal.dir.join(name.to_string());
            let listed = self.manifest.wal.iter().any(|file| file.number == number);
            return Err(if listed {
                Error::corrupt(path, 0, "wal file", "a file", "none")
            } else {
                Error::io("open", path, io::ErrorKind::NotFound.into())
            });
        };
        crate::wal::inspect::walk(&self.wal, log, number, bytes, each)
    }

    /// A segment file that the manifest lists.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if it is not there, or its length is not
    /// what the manifest says; [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn segment(&self, meta: &FileMeta) -> Result<SegmentFile> {
        self.opened(meta).map(SegmentFile)
    }

    /// Has a segment file read by its blocks, where its header, index or footer cannot be read, or its length is another:
    /// from then on all of it can be read but the blocks that are damaged. It is held in memory; of more than 1 GiB of files
    /// no more are. Answers whether that was needed and possible; of a blob file, or one that cannot be opened, it is not.
    pub fn regain(&mut self, meta: &FileMeta, options: &Options) -> bool {
        let index = self.opened(meta).and_then(|file| Leaves::each(&file, &mut |_| Ok(true)));
        if index.is_ok() || meta.kind == FileKind::Blob {
            return false;
        }
        let Manifest { store, incarnation, files, .. } = &self.manifest;
        let context = SegmentContext::new(&self.wal.dir, *store, *incarnation, options);
        let sealed = SealedFile::all(&Arc::new(context), files, []);
        let mut places = sealed.iter().zip(&mut self.segments);
        let Some((sealed, opened)) = places.find(|(sealed, _)| sealed.meta() == meta) else {
            return false;
        };
        let Ok(Some(regained)) = sealed.regain(self.room) else { return false };
        self.room = self.room.saturating_sub(meta.bytes);
        *opened = Ok(Arc::new(regained));
        true
    }

    pub(super) fn opened(&self, meta: &FileMeta) -> Result<Arc<Segment>> {
        let mut listed = self.manifest.files.iter().zip(&self.segments);
        match listed.find(|(file, _)| *file == meta) {
            Some((_, opened)) => opened.clone(),
            None => Err(Error::invalid("the manifest lists no such segment file")),
        }
    }

    /// Whose past is lost with blocks of HISTORY files, by few prefixes: each key by itself if there are no more than 16,
    /// else together with its neighbours. Reads the newest versions of the keys that may have been in the blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) and [`ErrorKind::Io`](crate::ErrorKind::Io) where these
    /// cannot be read.
    pub fn past_of(&self, lost: &[LostBlock]) -> Result<Vec<LostPast>> {
        super::lost_past::past_of(self, lost)
    }

    /// From where on keys can be read, as the manifest says.
    pub(super) fn floors(&self) -> Floors {
        let Manifest { floors, compacted, .. } = &self.manifest;
        Before { floors, compacted: *compacted }.floors()
    }

    /// What is lost of the past of keys, of each up to a revision, by few prefixes: as [`past_of`](Self::past_of).
    pub fn past_of_keys<'k>(
        &self,
        lost: impl IntoIterator<Item = (&'k [u8], u64)>,
    ) -> Vec<LostPast> {
        super::lost_past::past_of_keys(self, lost.into_iter())
    }
}

/// Hands out the entries from where a cursor is on.
fn walk(mut cursor: Cursor, each: &mut dyn FnMut(&EntryRef<'_>) -> Result<bool>) -> Result<()> {
    while let Some(entry) = cursor.entry() {
        let more = if entry.blob.is_some() {
            each(&EntryRef { value: &cursor.value()?, ..entry })?
        } else {
            each(&entry)?
        };
        if !more {
            break;
        }
        cursor.next()?;
    }
    Ok(())
}

/// The names of a store's files, and their lengths.
fn names(store: &WalContext) -> Result<BTreeMap<FileName, u64>> {
    let mut names = BTreeMap::new();
    for (directory, slash) in [("", ""), (WAL_DIR, "/"), (SEGMENT_DIR, "/")] {
        let path = store.dir.join(directory);
        let entries = match store.vfs.list(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            entries => entries.map_err(|error| Error::io("list", &path, error))?,
        };
        for entry in entries.iter().filter(|entry| !entry.is_dir) {
            if let Some(name) = FileName::parse(&format!("{directory}{slash}{}", entry.name)) {
                names.insert(name, entry.bytes);
            }
        }
    }
    Ok(names)
}

/// Which keys a block has, as its file's index tells.
#[derive(Clone, Debug)]
pub struct BlockKeys<'a> {
    /// Where the block lies in the file, in bytes.
    pub place: Range<u64>,
    /// What its first key begins with, or is: no key of the block is before it. An internal key.
    pub first: &'a [u8],
    /// No key of the block is after it.
    pub upto: &'a [u8],
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

    /// The keys of its blocks, in file order, by the index alone: of damaged blocks, too. Until `each` answers false.
    ///
    /// # Errors
    /// As [`SegmentFile::footer`], and what `each` answers.
    pub fn block_keys(&self, each: &mut dyn FnMut(BlockKeys<'_>) -> Result<bool>) -> Result<()> {
        Leaves::each(&self.0, &mut |block| {
            let Some(span) = block.span() else { return Ok(false) };
            let place = span.start + HEADER_BYTES as u64..span.end + HEADER_BYTES as u64;
            each(BlockKeys { place, first: block.first(), upto: block.upto() })
        })
    }

    /// Its index pages from the root down, until `each` answers false.
    ///
    /// # Errors
    /// As [`SegmentFile::footer`], and what `each` answers.
    pub fn pages(&self, each: &mut dyn FnMut(PageInfo) -> Result<bool>) -> Result<()> {
        self.0.pages(each)
    }

    /// Its entries in order, with their values wherever these lie (`blob` still says where), until `each` answers
    /// false.
    ///
    /// # Errors
    /// As [`SegmentFile::footer`], and what `each` answers.
    pub fn entries(&self, each: &mut dyn FnMut(&EntryRef<'_>) -> Result<bool>) -> Result<()> {
        let mut cursor = self.0.cold_cursor();
        cursor.seek_first()?;
        walk(cursor, each)
    }

    /// Its entries from the first one of `key` on, until `each` answers false.
    ///
    /// # Errors
    /// As [`SegmentFile::footer`], and what `each` answers.
    pub fn entries_from(
        &self,
        key: &[u8],
        each: &mut dyn FnMut(&EntryRef<'_>) -> Result<bool>,
    ) -> Result<()> {
        let mut cursor = self.0.cold_cursor();
        cursor.seek(key, u64::MAX)?;
        walk(cursor, each)
    }

    /// Its entries in order, but those of damaged blocks, and those whose value cannot be read where it lies. `lost` is
    /// told of both: of a damaged block without an entry, of a value with the entry that refers to it.
    ///
    /// # Errors
    /// The footer or the index cannot be read: what has not been handed out by then is lost, too.
    pub fn salvage(
        &self,
        each: &mut dyn FnMut(&EntryRef<'_>),
        lost: &mut dyn FnMut(&Error, Option<&EntryRef<'_>>),
    ) -> Result<()> {
        Leaves::each(&self.0, &mut |block| {
            let read = block.read(&mut |entry, value, _| match value() {
                Ok(value) => each(&EntryRef { value: &value, ..*entry }),
                Err(error) => lost(&error, Some(entry)),
            });
            if let Err(error) = read {
                lost(&error, None);
            }
            Ok(true)
        })
    }

    /// Whether its filter lets an internal key pass. One that the file has always passes; a few that it lacks
    /// do, too. A file without a filter lets all pass.
    ///
    /// # Errors
    /// As [`SegmentFile::footer`].
    pub fn may_contain(&self, key: &[u8]) -> Result<bool> {
        self.0.may_contain(key)
    }
}
