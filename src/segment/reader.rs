//! An open segment: point reads, and the blocks and pages that cursors walk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_format::block::{BLOCK_HEADER_BYTES, BlockHeader, Body, Encoding};
use annals_format::checksum::FileSeed;
use annals_format::dictionary::{DICTIONARY_BYTES_MAX, DICTIONARY_HEADER_BYTES};
use annals_format::entry::EntryRef;
use annals_format::filter::{Filter, hash_key};
use annals_format::limits::PAGE_BYTES_MAX;
use annals_format::page::{Handle, Page};
use annals_format::segment::{FOOTER_BYTES, Footer, HEADER_BYTES, Header};
use annals_format::{DecodeError, FileKind, FileMeta, Place, dictionary};
use bytes::Bytes;

use super::cache::BlockCache;
use super::compress::{Dictionary, Over, decompress};
use super::context::{SegmentContext, damaged};
use super::cursor::Cursor;
use crate::error::{Error, Result};
use crate::options::ReadMode;
use crate::sync::plain::{AtomicU64, OnceLock, Ordering};
use crate::vfs::{Access, File, Map};

/// One version of one key, owning what it refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The internal key.
    pub(crate) key: Bytes,
    /// The rest.
    pub(crate) version: Version,
}

/// One version, without the key it was asked for by.
#[expect(clippy::struct_field_names, reason = "`version` is etcd's word for the number")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    /// The revision (for system keys the sequence number) that wrote it.
    pub(crate) revision: u64,
    /// Position of the write within its transaction.
    pub(crate) sub: u32,
    /// It says that the key was deleted.
    pub(crate) tombstone: bool,
    /// Revision that began the key's lifetime; 0 in a tombstone.
    pub(crate) create_revision: u64,
    /// 1 for the first version of a lifetime; 0 in a tombstone.
    pub(crate) version: u64,
    /// The lease attached; 0 = none.
    pub(crate) lease: i64,
    /// HISTORY: the revision that superseded it; else 0.
    pub(crate) death: u64,
    /// The value, kept alive with the block it lies in.
    pub(crate) value: Bytes,
}

impl Version {
    pub(super) fn new(fields: &EntryRef<'_>, value: Bytes) -> Self {
        Self {
            revision: fields.revision,
            sub: fields.sub,
            tombstone: fields.tombstone,
            create_revision: fields.create_revision,
            version: fields.version,
            lease: fields.lease,
            death: fields.death,
            value,
        }
    }
}

impl Entry {
    /// The same, borrowed.
    pub(crate) fn as_ref(&self) -> EntryRef<'_> {
        EntryRef {
            key: &self.key,
            revision: self.version.revision,
            sub: self.version.sub,
            tombstone: self.version.tombstone,
            create_revision: self.version.create_revision,
            version: self.version.version,
            lease: self.version.lease,
            death: self.version.death,
            value: &self.version.value,
        }
    }
}

/// A sealed segment file that the manifest lists.
///
/// Opening takes the file and compares its length; header and footer are read, and the file is
/// mapped, when something is first asked of it. So opening a store costs the same per file however
/// large the files are, and a file that is unlinked later stays readable.
#[derive(Debug)]
pub(crate) struct Segment {
    meta: FileMeta,
    path: PathBuf,
    file: Arc<dyn File>,
    place: Place,
    cache: BlockCache,
    read_mode: ReadMode,
    opened: OnceLock<Opened>,
}

impl Segment {
    /// Opens the file that `meta` describes.
    ///
    /// # Errors
    /// Corruption if the file is missing or has another length than the manifest says.
    pub(crate) fn open(context: &SegmentContext, meta: &FileMeta) -> Result<Self> {
        let path = context.path(meta.kind, meta.number);
        let io = |error| Error::io("open a segment", &path, error);
        let file = match context.vfs.open(&path, Access::Read) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
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
        Ok(Self {
            meta: meta.clone(),
            path,
            file,
            place: context.place(meta.kind, meta.number),
            cache: context.cache.clone(),
            read_mode: context.read_mode,
            opened: OnceLock::new(),
        })
    }

    /// What the manifest says of it.
    pub(crate) fn meta(&self) -> &FileMeta {
        &self.meta
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// False if the segment certainly has no version of `key`.
    pub(crate) fn may_contain(&self, key: &[u8]) -> Result<bool> {
        if key < self.meta.first_key.as_slice() || key > self.meta.last_key.as_slice() {
            return Ok(false);
        }
        self.opened()?.may_contain(key)
    }

    /// The newest version of `key` with a revision of at most `at`.
    ///
    /// Costs one page a level and at most one block. In L0 and HEAD the value is not copied; in
    /// HISTORY it keeps its decoded block alive.
    pub(crate) fn find(&self, key: &[u8], at: u64) -> Result<Option<Version>> {
        if at < self.meta.min_revision
            || key < self.meta.first_key.as_slice()
            || key > self.meta.last_key.as_slice()
        {
            return Ok(None);
        }
        let opened = self.opened()?;
        if !opened.may_contain(key)? {
            return Ok(None);
        }
        let Some(handle) = opened.locate(key, at)? else { return Ok(None) };
        let block = opened.block(handle, Caching::Keep, &mut None)?;
        let found = block.body(opened)?.find(key, at);
        let Some(item) = found.map_err(|error| opened.damaged_body(handle, &error))? else {
            return Ok(None);
        };
        let value = block.slice(opened, item.value_offset, item.fields.value.len())?;
        Ok(Some(Version::new(&item.fields, value)))
    }

    /// As [`find`](Self::find), with the key.
    pub(crate) fn get(&self, key: &[u8], at: u64) -> Result<Option<Entry>> {
        let found = self.find(key, at)?;
        Ok(found.map(|version| Entry { key: Bytes::copy_from_slice(key), version }))
    }

    /// A cursor over all entries, not yet at any.
    pub(crate) fn cursor(self: &Arc<Self>) -> Cursor {
        Cursor::new(Arc::clone(self), Caching::Keep)
    }

    /// A cursor for background work: it reads with `pread` and leaves map and cache alone, so that
    /// it neither evicts nor faults in anything.
    pub(crate) fn cold_cursor(self: &Arc<Self>) -> Cursor {
        Cursor::new(Arc::clone(self), Caching::Bypass)
    }

    /// The dictionary of the file's blocks, for use in the next file of its kind.
    pub(crate) fn dictionary(&self) -> Result<Option<Vec<u8>>> {
        let dictionary = self.opened()?.dictionary()?;
        Ok(dictionary.map(|dictionary| dictionary.content().to_vec()))
    }

    /// What the footer says.
    pub(crate) fn footer(&self) -> Result<&Footer> {
        Ok(self.opened()?.footer())
    }

    pub(super) fn opened(&self) -> Result<&Opened> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        // Two threads may do this at once; either result is as good.
        let opened = self.read_ends()?;
        Ok(self.opened.get_or_init(|| opened))
    }

    /// Reads and checks header and footer, and maps the file.
    fn read_ends(&self) -> Result<Opened> {
        let footer_bytes = FOOTER_BYTES as u64;
        let Some(footer_offset) =
            self.meta.bytes.checked_sub(footer_bytes).filter(|at| *at >= HEADER_BYTES as u64)
        else {
            let found = format!("{} bytes", self.meta.bytes);
            return Err(Error::corrupt(&self.path, 0, "segment", "header and footer", found));
        };
        let header = self.read(0, HEADER_BYTES)?;
        let header =
            Header::decode(&header, &self.place).map_err(|error| damaged(&self.path, 0, &error))?;
        let footer = self.read(footer_offset, FOOTER_BYTES)?;
        let footer = Footer::decode(&footer, &self.place.at(footer_offset))
            .map_err(|error| damaged(&self.path, footer_offset, &error))?;
        self.compare("class", header.class.into(), self.meta.class.into(), 12)?;
        let at = footer_offset;
        self.compare("class", footer.class.into(), self.meta.class.into(), at)?;
        self.compare("entries", footer.entries, self.meta.entries, at)?;
        self.compare("min_revision", footer.min_revision, self.meta.min_revision, at)?;
        self.compare("max_revision", footer.max_revision, self.meta.max_revision, at)?;
        self.compare("death_after", footer.death_after, self.meta.death_after, at)?;
        self.compare("death_upto", footer.death_upto, self.meta.death_upto, at)?;
        let map = match self.read_mode {
            ReadMode::Mmap => {
                let map = self.file.map(self.meta.bytes);
                Some(map.map_err(|error| Error::io("map a segment", &self.path, error))?)
            }
            ReadMode::Pread => None,
        };
        Ok(Opened {
            path: self.path.clone(),
            file: Arc::clone(&self.file),
            map,
            cache: self.cache.clone(),
            seed: FileSeed::new(&self.place),
            kind: self.meta.kind,
            number: self.meta.number,
            checked_blocks: Bits::new(footer.block_count),
            checked_pages: Bits::new(footer.page_count),
            filter: OnceLock::new(),
            dictionary: OnceLock::new(),
            footer,
        })
    }

    /// What a file says of itself and what the manifest says of it must agree.
    fn compare(&self, field: &str, found: u64, expected: u64, offset: u64) -> Result<()> {
        if found == expected {
            return Ok(());
        }
        let structure = format!("segment: {field}, against the manifest");
        let (expected, found) = (expected.to_string(), found.to_string());
        Err(Error::corrupt(&self.path, offset, structure, expected, found))
    }

    pub(super) fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        read(&*self.file, &self.path, offset, bytes)
    }
}

/// Whether what is read from the file stays in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caching {
    /// In the map or the cache.
    Keep,
    /// Nowhere.
    Bypass,
}

/// The base that was decoded last, by the offset of its block. Blocks over one base follow each
/// other, so a walk decodes each base once.
pub(super) type LastBase = Option<(u64, Bytes)>;

/// A segment whose ends have been read.
#[derive(Debug)]
pub(super) struct Opened {
    path: PathBuf,
    file: Arc<dyn File>,
    map: Option<Map>,
    cache: BlockCache,
    seed: FileSeed,
    kind: FileKind,
    number: u64,
    footer: Footer,
    /// Blocks and pages of the map whose checksum has been compared.
    checked_blocks: Bits,
    checked_pages: Bits,
    filter: OnceLock<Bytes>,
    dictionary: OnceLock<Dictionary>,
}

impl Opened {
    pub(super) const fn footer(&self) -> &Footer {
        &self.footer
    }

    pub(super) const fn kind(&self) -> FileKind {
        self.kind
    }

    pub(super) const fn seed(&self) -> FileSeed {
        self.seed
    }

    pub(super) fn damaged(&self, offset: u64, error: &DecodeError) -> Error {
        damaged(&self.path, offset, error)
    }

    /// The error for a body that does not decode. A compressed body has no offsets in the file, so
    /// the block's own offset stands for it.
    pub(super) fn damaged_body(&self, handle: Handle, error: &DecodeError) -> Error {
        damaged(&self.path, handle.offset, &DecodeError { offset: 0, ..error.clone() })
    }

    pub(super) fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        read(&*self.file, &self.path, offset, bytes)
    }

    /// Whether the filter lets `key` pass. Reads and checks the filter the first time.
    fn may_contain(&self, key: &[u8]) -> Result<bool> {
        // Nearly every read of HEAD finds its key, so there the filter would only cost.
        if self.footer.filter_bytes == 0 || self.kind == FileKind::Head {
            return Ok(true);
        }
        let offset = self.footer.filter_offset;
        let bytes = if let Some(bytes) = self.filter.get() {
            bytes
        } else {
            let bytes = self.part(offset, self.footer.filter_bytes)?;
            Filter::check_crc(&bytes, self.seed, offset)
                .map_err(|error| self.damaged(offset, &error))?;
            self.filter.get_or_init(|| bytes)
        };
        let filter = Filter::decode(bytes).map_err(|error| self.damaged(offset, &error))?;
        Ok(filter.may_contain(hash_key(key)))
    }

    /// The dictionary, if the file has one. Reads and checks it the first time.
    pub(super) fn dictionary(&self) -> Result<Option<&Dictionary>> {
        if self.footer.dictionary_bytes == 0 {
            return Ok(None);
        }
        if let Some(dictionary) = self.dictionary.get() {
            return Ok(Some(dictionary));
        }
        let Some(dictionary) = self.read_dictionary()? else { return Ok(None) };
        Ok(Some(self.dictionary.get_or_init(|| dictionary)))
    }

    /// The dictionary as the file has it now.
    pub(super) fn read_dictionary(&self) -> Result<Option<Dictionary>> {
        if self.footer.dictionary_bytes == 0 {
            return Ok(None);
        }
        let offset = self.footer.dictionary_offset();
        let limit = (DICTIONARY_HEADER_BYTES + DICTIONARY_BYTES_MAX) as u64;
        let bytes = self.footer.dictionary_bytes;
        let bytes = usize::try_from(bytes).ok().filter(|_| bytes <= limit).ok_or_else(|| {
            let expected = format!("at most {limit} bytes");
            self.corrupt(offset, "dictionary", &expected, &bytes.to_string())
        })?;
        let bytes = self.read(offset, bytes)?;
        let content = dictionary::decode(&bytes, self.seed, offset)
            .map_err(|error| self.damaged(offset, &error))?;
        Ok(Some(Dictionary::new(content)))
    }

    pub(super) fn corrupt(
        &self,
        offset: u64,
        structure: &str,
        expected: &str,
        found: &str,
    ) -> Error {
        Error::corrupt(&self.path, offset, structure, expected, found)
    }

    /// A part of the file whose length the footer has vouched for: it lies within the file.
    fn part(&self, offset: u64, bytes: u64) -> Result<Bytes> {
        let Ok(bytes) = usize::try_from(bytes) else {
            return Err(Error::invalid("a segment is too large for this machine"));
        };
        match &self.map {
            Some(map) => self.mapped_bytes(map, offset, bytes),
            None => Ok(Bytes::from(self.read(offset, bytes)?)),
        }
    }

    fn mapped_bytes(&self, map: &Map, offset: u64, bytes: usize) -> Result<Bytes> {
        // A mapped file fits the address space, so do its offsets.
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        map.bytes(start..start.saturating_add(bytes))
            .map_err(|error| Error::io("read a mapped segment", &self.path, error))
    }

    fn mapped_slice<'m>(&self, map: &'m Map, offset: u64, bytes: u32) -> Result<&'m [u8]> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        map.slice(start..start.saturating_add(bytes as usize))
            .map_err(|error| Error::io("read a mapped segment", &self.path, error))
    }

    /// The block that holds the newest version of `key` at `at`, if any block does.
    fn locate(&self, key: &[u8], at: u64) -> Result<Option<Handle>> {
        let mut handle = self.footer.root;
        for level in (0..usize::from(self.footer.height)).rev() {
            handle =
                self.with_page(handle, level, |page| Ok(page.item(page.search(key, at)?)?.child))?;
        }
        Ok((self.footer.height > 0).then_some(handle))
    }

    /// Looks at the page of `handle`, which must be of this level.
    pub(super) fn with_page<T>(
        &self,
        handle: Handle,
        level: usize,
        look: impl FnOnce(&Page<'_>) -> annals_format::error::Result<T>,
    ) -> Result<T> {
        let footer = &self.footer;
        let bounds = footer.index_offset..footer.filter_offset;
        self.check_handle("index page", handle, &bounds, footer.page_count, PAGE_BYTES_MAX)?;
        let owned;
        let bytes = if let Some(map) = &self.map {
            let bytes = self.mapped_slice(map, handle.offset, handle.bytes)?;
            if !self.checked_pages.get(handle.number) {
                Page::check_crc(bytes, self.seed, handle.offset)
                    .map_err(|error| self.damaged(handle.offset, &error))?;
                self.checked_pages.set(handle.number);
            }
            bytes
        } else {
            owned = self.cached_page(handle)?;
            &*owned
        };
        let result = Page::decode(bytes).and_then(|page| {
            if usize::from(page.level()) == level { look(&page).map(Some) } else { Ok(None) }
        });
        match result {
            Ok(Some(result)) => Ok(result),
            Ok(None) => {
                let expected = format!("level {level}");
                let structure = "index page: level";
                Err(Error::corrupt(&self.path, handle.offset, structure, expected, "another"))
            }
            Err(error) => Err(self.damaged(handle.offset, &error)),
        }
    }

    fn cached_page(&self, handle: Handle) -> Result<Bytes> {
        if let Some(bytes) = self.cache.find(self.number, handle.offset) {
            return Ok(bytes);
        }
        let bytes = Bytes::from(self.read(handle.offset, handle.bytes as usize)?);
        Page::check_crc(&bytes, self.seed, handle.offset)
            .map_err(|error| self.damaged(handle.offset, &error))?;
        self.cache.insert(self.number, handle.offset, &bytes);
        Ok(bytes)
    }

    /// The block of `handle`, decoded. `base` is kept from call to call by whoever walks blocks.
    pub(super) fn block(
        &self,
        handle: Handle,
        caching: Caching,
        base: &mut LastBase,
    ) -> Result<Block<'_>> {
        let bounds = HEADER_BYTES as u64..self.footer.index_offset;
        self.check_handle("block", handle, &bounds, self.footer.block_count, u64::from(u32::MAX))?;
        let in_place = matches!(self.kind, FileKind::L0 | FileKind::Head);
        match &self.map {
            Some(map) if in_place && caching == Caching::Keep => {
                let bytes = self.mapped_slice(map, handle.offset, handle.bytes)?;
                if !self.checked_blocks.get(handle.number) {
                    self.check_block(handle, bytes)?;
                    self.checked_blocks.set(handle.number);
                }
                let (header, stored) = self.decode_header(handle, bytes)?;
                if header.encoding == Encoding::Raw {
                    return Ok(Block::Mapped { handle, body: stored });
                }
                let body = self.decode_body(handle, &header, stored, caching, base)?;
                Ok(Block::Owned { handle, body })
            }
            _ => Ok(Block::Owned { handle, body: self.read_block(handle, caching, base)? }),
        }
    }

    fn read_block(&self, handle: Handle, caching: Caching, base: &mut LastBase) -> Result<Bytes> {
        if caching == Caching::Keep
            && let Some(body) = self.cache.find(self.number, handle.offset)
        {
            return Ok(body);
        }
        let bytes = Bytes::from(self.read(handle.offset, handle.bytes as usize)?);
        self.check_block(handle, &bytes)?;
        let (header, stored) = self.decode_header(handle, &bytes)?;
        let body = match header.encoding {
            Encoding::Raw => bytes.slice_ref(stored),
            _ => self.decode_body(handle, &header, stored, caching, base)?,
        };
        if caching == Caching::Keep {
            self.cache.insert(self.number, handle.offset, &body);
        }
        Ok(body)
    }

    fn check_block(&self, handle: Handle, bytes: &[u8]) -> Result<()> {
        BlockHeader::check_crc(bytes, self.seed, handle.offset)
            .map_err(|error| self.damaged(handle.offset, &error))
    }

    fn decode_header<'b>(
        &self,
        handle: Handle,
        bytes: &'b [u8],
    ) -> Result<(BlockHeader, &'b [u8])> {
        BlockHeader::decode(bytes, self.kind).map_err(|error| self.damaged(handle.offset, &error))
    }

    /// Decompresses a body. Its length has been bounded by the header's decoder.
    pub(super) fn decode_body(
        &self,
        handle: Handle,
        header: &BlockHeader,
        stored: &[u8],
        caching: Caching,
        base: &mut LastBase,
    ) -> Result<Bytes> {
        let base_body;
        let over = match header.encoding {
            Encoding::Raw => return Ok(Bytes::copy_from_slice(stored)),
            Encoding::Zstd => Over::Nothing,
            Encoding::ZstdDictionary => Over::Dictionary(self.dictionary()?.ok_or_else(|| {
                self.corrupt(handle.offset, "block: encoding", "a dictionary in the file", "none")
            })?),
            _ => {
                base_body = self.base(handle, header, caching, base)?;
                Over::Base(&base_body)
            }
        };
        let body = decompress(stored, header.raw_bytes as usize, over).ok_or_else(|| {
            let expected = format!("{} bytes", header.raw_bytes);
            let found = "what zstd cannot decode to that";
            self.corrupt(handle.offset, "block: stored bytes", &expected, found)
        })?;
        Ok(Bytes::from(body))
    }

    /// The body of the block that the block of `handle` is based on.
    fn base(
        &self,
        handle: Handle,
        header: &BlockHeader,
        caching: Caching,
        last: &mut LastBase,
    ) -> Result<Bytes> {
        let wrong = |found: &str| {
            self.corrupt(handle.offset, "block: base_distance", "the start of a block", found)
        };
        let offset = handle
            .offset
            .checked_sub(u64::from(header.base_distance))
            .filter(|offset| *offset >= HEADER_BYTES as u64)
            .ok_or_else(|| wrong("a place outside the blocks"))?;
        if let Some((at, body)) = last
            && *at == offset
        {
            return Ok(body.clone());
        }
        if caching == Caching::Keep
            && let Some(body) = self.cache.find(self.number, offset)
        {
            return Ok(body);
        }
        let start = self.read(offset, BLOCK_HEADER_BYTES)?;
        let bytes =
            BlockHeader::block_bytes(&start).map_err(|error| self.damaged(offset, &error))?;
        // A base ends at the latest where the block over it begins.
        let bytes = u32::try_from(bytes).ok().filter(|_| bytes <= handle.offset - offset);
        let bytes = bytes.ok_or_else(|| wrong("a block that is too long"))?;
        let block = self.read(offset, bytes as usize)?;
        let handle = Handle { offset, bytes, number: 0 };
        self.check_block(handle, &block)?;
        let (header, stored) = self.decode_header(handle, &block)?;
        if header.encoding == Encoding::ZstdBase {
            return Err(wrong("a block with a base of its own"));
        }
        let body = self.decode_body(handle, &header, stored, caching, &mut None)?;
        if caching == Caching::Keep {
            self.cache.insert(self.number, offset, &body);
        }
        *last = Some((offset, body.clone()));
        Ok(body)
    }

    /// Places that a page speaks of must lie where such things lie.
    fn check_handle(
        &self,
        structure: &'static str,
        handle: Handle,
        bounds: &std::ops::Range<u64>,
        count: u32,
        bytes_max: u64,
    ) -> Result<()> {
        let end = handle.offset.checked_add(u64::from(handle.bytes));
        let inside = handle.offset >= bounds.start && end.is_some_and(|end| end <= bounds.end);
        if inside && handle.number < count && u64::from(handle.bytes) <= bytes_max {
            return Ok(());
        }
        let expected = format!("number below {count} within {bounds:?}");
        let found = format!("{handle:?}");
        Err(Error::corrupt(&self.path, handle.offset, structure, expected, found))
    }
}

/// A decoded block: in place in the map, or in memory of its own.
#[derive(Debug)]
pub(super) enum Block<'m> {
    Mapped { handle: Handle, body: &'m [u8] },
    Owned { handle: Handle, body: Bytes },
}

impl Block<'_> {
    /// The entries.
    pub(super) fn body(&self, file: &Opened) -> Result<Body<'_>> {
        let (handle, body) = match self {
            Self::Mapped { handle, body } => (handle, *body),
            Self::Owned { handle, body } => (handle, &**body),
        };
        Body::parse(body, file.kind).map_err(|error| file.damaged_body(*handle, &error))
    }

    /// A part of the body, kept alive with it.
    fn slice(&self, file: &Opened, start: usize, bytes: usize) -> Result<Bytes> {
        if bytes == 0 {
            return Ok(Bytes::new());
        }
        match self {
            Self::Owned { body, .. } => Ok(body.slice(start..start + bytes)),
            Self::Mapped { handle, .. } => {
                let offset = handle.offset + BLOCK_HEADER_BYTES as u64 + start as u64;
                file.part(offset, bytes as u64)
            }
        }
    }

    /// The whole body, kept alive by itself.
    pub(super) fn into_bytes(self, file: &Opened) -> Result<Bytes> {
        match self {
            Self::Owned { body, .. } => Ok(body),
            Self::Mapped { body, .. } => self.slice(file, 0, body.len()),
        }
    }
}

/// A fixed set of bits that are only ever set.
#[derive(Debug)]
struct Bits(Box<[AtomicU64]>);

impl Bits {
    fn new(count: u32) -> Self {
        Self((0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Relaxed: a bit only says that somebody has compared a checksum of bytes that never change.
    fn get(&self, index: u32) -> bool {
        let word = self.0.get(index as usize / 64).map_or(0, |word| word.load(Ordering::Relaxed));
        word >> (index % 64) & 1 == 1
    }

    fn set(&self, index: u32) {
        if let Some(word) = self.0.get(index as usize / 64) {
            word.fetch_or(1 << (index % 64), Ordering::Relaxed);
        }
    }
}

fn read(file: &dyn File, path: &Path, offset: u64, bytes: usize) -> Result<Vec<u8>> {
    file.read_vec_at(bytes, offset).map_err(|error| Error::io("read a segment", path, error))
}
