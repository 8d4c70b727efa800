//! Writes one segment, front to back, from sorted entries.

use std::path::PathBuf;
use std::sync::Arc;

use annals_format::block::{
    BLOCK_HEADER_BYTES, BlockHeader, BodyBuilder, Encoding, RawBlock, compare,
};
use annals_format::checksum::{ContentHasher, FileSeed};
use annals_format::entry::EntryRef;
use annals_format::limits::{BLOCK_RAW_BYTES_MAX, INTERNAL_KEY_BYTES_MAX};
use annals_format::page::{Handle, Separator};
use annals_format::segment::{Footer, HEADER_BYTES, Header};
use annals_format::{FileKind, FileMeta, Place, dictionary, filter};

use super::compress::{Compressor, compress_over};
use super::context::SegmentContext;
use super::{train, tree};
use crate::error::{Error, Result};
use crate::vfs::{File, Vfs};

/// What a new segment is.
#[derive(Clone, Debug)]
pub(crate) struct NewSegment {
    /// Its number, never used before in this store.
    pub(crate) number: u64,
    /// One of the four kinds of segment.
    pub(crate) kind: FileKind,
    /// Retention class.
    pub(crate) class: u32,
    /// HISTORY: the window (after, upto] of deaths. `None` = what the entries say.
    pub(crate) window: Option<(u64, u64)>,
}

impl NewSegment {
    /// A segment of the default class, without a window given.
    pub(crate) const fn new(kind: FileKind, number: u64) -> Self {
        Self { number, kind, class: 0, window: None }
    }
}

/// Bytes gathered before they are written to the file.
const WRITE_BYTES: usize = 1 << 20;
/// Versions of one key that are on average at least this long are stored over a base.
const BASED_BYTES_MIN: usize = 4 << 10;
/// What an entry may take beside key and value.
const ENTRY_OVERHEAD_BYTES: u64 = 64;

/// Writes one segment. Entries are added in order; [`finish`](Self::finish) makes the file durable.
///
/// The file has its final name from the start: a file that no manifest lists is removed when the
/// store is opened. Bytes are written strictly in sequence and hashed on the way.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    vfs: Arc<dyn Vfs>,
    file: Arc<dyn File>,
    path: PathBuf,
    new: NewSegment,
    place: Place,
    seed: FileSeed,
    level: i32,
    block_bytes: usize,

    body: BodyBuilder,
    /// The separator before the block being built.
    separator: Separator,
    /// The block being built begins with the key that the block before ended with.
    continues: bool,
    /// Keys in the blocks before the one being built.
    keys_before: u64,
    /// Blocks waiting for the dictionary to be trained on them.
    waiting: Vec<Waiting>,
    waiting_bytes: usize,
    compressor: Option<Compressor>,
    /// HISTORY: what was trained, if it pays.
    dictionary: Option<Vec<u8>>,
    /// HISTORY: what the next blocks of the same key may be stored over.
    base: Option<Base>,

    buffer: Vec<u8>,
    /// Bytes handed to the file.
    written: u64,
    hasher: ContentHasher,
    blocks: Vec<(Separator, Handle)>,
    hashes: Vec<u64>,
    counts: Counts,
}

/// A finished block that is not yet stored.
#[derive(Debug)]
pub(super) struct Waiting {
    separator: Separator,
    /// It begins with the key that the block before ended with.
    continues: bool,
    /// It ends with another key than it begins with.
    changes: bool,
    pub(super) block: RawBlock,
}

/// A block stored in full that later versions of the key at its end can be stored over.
#[derive(Debug)]
struct Base {
    offset: u64,
    body: Vec<u8>,
    stored_bytes: usize,
    /// The least that a block over it took, and by how much the others exceeded that in sum.
    least: usize,
    excess: usize,
}

impl Base {
    /// Whether a block that takes `bytes` over this base should. Differences from the base add up
    /// as versions go by; once they have cost as much as another full block would, that comes.
    fn accepts(&mut self, bytes: usize) -> bool {
        self.least = self.least.min(bytes);
        self.excess += bytes - self.least;
        bytes < self.stored_bytes / 4 * 3 && self.excess < self.stored_bytes
    }
}

#[derive(Debug, Default)]
struct Counts {
    entries: u64,
    keys: u64,
    tombstones: u64,
    value_bytes: u64,
    min_revision: u64,
    max_revision: u64,
    min_death: u64,
    max_death: u64,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    last_revision: u64,
}

impl SegmentWriter {
    /// Makes the file, which must not exist.
    pub(crate) fn create(context: &SegmentContext, new: NewSegment) -> Result<Self> {
        if !new.kind.is_segment() {
            return Err(Error::invalid(format!("{:?} is no kind of segment", new.kind)));
        }
        let path = context.path(new.kind, new.number);
        let file = context
            .vfs
            .create(&path)
            .map_err(|error| Error::io("create a segment", &path, error))?;
        let place = context.place(new.kind, new.number);
        let compressor = match new.kind {
            // HISTORY decides about its dictionary first.
            FileKind::L0 | FileKind::Head | FileKind::History => None,
            _ => Some(Compressor::new(context.level, None)),
        };
        let mapped = matches!(new.kind, FileKind::L0 | FileKind::Head);
        let mut buffer = Vec::with_capacity(WRITE_BYTES);
        Header { place, class: new.class }.encode(&mut buffer);
        Ok(Self {
            vfs: Arc::clone(&context.vfs),
            file,
            path,
            place,
            seed: FileSeed::new(&place),
            level: context.level,
            block_bytes: if mapped { context.block_bytes } else { context.history_block_bytes },
            body: BodyBuilder::new(new.kind),
            separator: Separator::first(),
            continues: false,
            keys_before: 0,
            waiting: Vec::new(),
            waiting_bytes: 0,
            compressor,
            dictionary: None,
            base: None,
            buffer,
            written: 0,
            hasher: ContentHasher::new(),
            blocks: Vec::new(),
            hashes: Vec::new(),
            counts: Counts::default(),
            new,
        })
    }

    /// Adds the next entry: key ascending, revision descending within a key.
    ///
    /// # Errors
    /// An entry out of order or above the limits of the format is refused and changes nothing.
    /// After any other error the file is of no use; call [`abandon`](Self::abandon).
    pub(crate) fn add(&mut self, entry: &EntryRef<'_>) -> Result<()> {
        self.check(entry)?;
        let same_key = self.counts.entries > 0 && entry.key == self.counts.last_key;
        if self.must_cut(entry) {
            self.cut_block()?;
            let last = (&*self.counts.last_key, self.counts.last_revision);
            self.separator = Separator::between(last, entry.key);
            self.continues = same_key;
            self.keys_before = self.counts.keys;
        }
        self.body.push(entry);
        self.count(entry, same_key);
        Ok(())
    }

    /// Bytes of the file so far, as if all blocks were stored: what is still to be compressed
    /// counts as it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.offset() + (self.waiting_bytes + self.body.raw_bytes()) as u64
    }

    /// The number of the file.
    pub(crate) fn number(&self) -> u64 {
        self.new.number
    }

    /// Entries added so far.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> u64 {
        self.counts.entries
    }

    /// Writes the rest, syncs the file and answers what the manifest must know of it. The name
    /// becomes durable when the caller syncs the directory.
    pub(crate) fn finish(mut self) -> Result<FileMeta> {
        self.cut_block()?;
        self.train(true)?;
        let index_offset = self.offset();
        let blocks = std::mem::take(&mut self.blocks);
        let block_count = u32::try_from(blocks.len())
            .map_err(|_| Error::invalid("a segment has more than 2^32 blocks"))?;
        let tree = tree::build(blocks, self.seed, index_offset)
            .ok_or_else(|| Error::invalid("a segment has more than 2^32 pages"))?;
        self.append(&tree.bytes)?;

        let filter_offset = self.offset();
        let hashes = std::mem::take(&mut self.hashes);
        if !hashes.is_empty() {
            let mut section = Vec::new();
            filter::encode(&mut section, &hashes, self.seed, filter_offset);
            self.append(&section)?;
        }
        let dictionary_offset = self.offset();
        if let Some(content) = self.dictionary.take() {
            let mut section = Vec::new();
            dictionary::encode(&mut section, &content, self.seed, dictionary_offset);
            self.append(&section)?;
        }

        let (death_after, death_upto) = self.window();
        let counts = std::mem::take(&mut self.counts);
        let footer = Footer {
            place: self.place.at(self.offset()),
            class: self.new.class,
            entries: counts.entries,
            keys: counts.keys,
            tombstones: counts.tombstones,
            value_bytes: counts.value_bytes,
            min_revision: counts.min_revision,
            max_revision: counts.max_revision,
            death_after,
            death_upto,
            block_count,
            page_count: tree.page_count,
            index_offset,
            root: tree.root,
            height: tree.height,
            filter_offset,
            filter_bytes: dictionary_offset - filter_offset,
            dictionary_bytes: self.offset() - dictionary_offset,
        };
        footer.encode(&mut self.buffer);
        self.write_out()?;
        self.file.sync_data().map_err(|error| Error::io("sync a segment", &self.path, error))?;
        Ok(FileMeta {
            number: self.new.number,
            kind: self.new.kind,
            class: self.new.class,
            bytes: self.written,
            hash: self.hasher.finish(),
            entries: counts.entries,
            value_bytes: counts.value_bytes,
            first_key: counts.first_key,
            last_key: counts.last_key,
            min_revision: counts.min_revision,
            max_revision: counts.max_revision,
            death_after,
            death_upto,
        })
    }

    /// Gives up: removes the file.
    pub(crate) fn abandon(self) -> Result<()> {
        self.vfs
            .remove(&self.path)
            .map_err(|error| Error::io("remove a segment", &self.path, error))
    }

    fn check(&self, entry: &EntryRef<'_>) -> Result<()> {
        let counts = &self.counts;
        let in_order = counts.entries == 0
            || compare(&counts.last_key, counts.last_revision, entry.key, entry.revision).is_lt();
        let what = if !in_order {
            "entries of a segment must ascend by key and descend by revision"
        } else if entry.key.len() as u64 > INTERNAL_KEY_BYTES_MAX {
            "a key is longer than a segment can hold"
        } else if (entry.key.len() + entry.value.len()) as u64 + ENTRY_OVERHEAD_BYTES
            > BLOCK_RAW_BYTES_MAX
        {
            "a value is longer than a segment can hold"
        } else if self.new.kind == FileKind::History && entry.death <= entry.revision {
            "a superseded version must have died after it was written"
        } else if entry.tombstone && !entry.value.is_empty() {
            "a tombstone cannot have a value"
        } else {
            return Ok(());
        };
        Err(Error::invalid(what))
    }

    /// Whether the block being built ends before this entry: a block is at most as long as it
    /// should be, or holds a single entry.
    fn must_cut(&self, entry: &EntryRef<'_>) -> bool {
        let with_entry = self.body.raw_bytes() + entry.key.len() + entry.value.len();
        !self.body.is_empty() && with_entry > self.block_bytes
    }

    fn count(&mut self, entry: &EntryRef<'_>, same_key: bool) {
        if !same_key && self.new.kind != FileKind::Events {
            self.hashes.push(filter::hash_key(entry.key));
        }
        let counts = &mut self.counts;
        if counts.entries == 0 {
            counts.first_key = entry.key.to_vec();
            (counts.min_revision, counts.max_revision) = (entry.revision, entry.revision);
            (counts.min_death, counts.max_death) = (entry.death, entry.death);
        }
        if !same_key {
            counts.keys += 1;
            counts.last_key.clear();
            counts.last_key.extend_from_slice(entry.key);
        }
        counts.entries += 1;
        counts.tombstones += u64::from(entry.tombstone);
        counts.value_bytes += entry.value.len() as u64;
        counts.last_revision = entry.revision;
        counts.min_revision = counts.min_revision.min(entry.revision);
        counts.max_revision = counts.max_revision.max(entry.revision);
        counts.min_death = counts.min_death.min(entry.death);
        counts.max_death = counts.max_death.max(entry.death);
    }

    fn window(&self) -> (u64, u64) {
        match (self.new.kind, self.new.window) {
            (FileKind::History, Some(window)) => window,
            (FileKind::History, None) => {
                (self.counts.min_death.saturating_sub(1), self.counts.max_death)
            }
            _ => (0, 0),
        }
    }

    /// Ends the block being built.
    fn cut_block(&mut self) -> Result<()> {
        if self.body.is_empty() {
            return Ok(());
        }
        let block = self.body.finish();
        let separator = std::mem::replace(&mut self.separator, Separator::first());
        let bytes = block.body.len();
        let new_keys = self.counts.keys - self.keys_before;
        let changes = new_keys > u64::from(!self.continues);
        let block = Waiting { separator, continues: self.continues, changes, block };
        if self.new.kind != FileKind::History || self.compressor.is_some() {
            return self.store(block);
        }
        self.waiting_bytes += bytes;
        self.waiting.push(block);
        if self.waiting_bytes >= train::SAMPLE_BYTES { self.train(false) } else { Ok(()) }
    }

    /// Decides on the dictionary and stores the blocks that waited for it.
    fn train(&mut self, complete: bool) -> Result<()> {
        if self.new.kind != FileKind::History || self.compressor.is_some() {
            return Ok(());
        }
        self.dictionary = train::train(&self.waiting, self.level, complete);
        self.compressor = Some(Compressor::new(self.level, self.dictionary.as_deref()));
        self.waiting_bytes = 0;
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().try_for_each(|block| self.store(block))
    }

    /// Compresses a block and appends it.
    fn store(&mut self, waiting: Waiting) -> Result<()> {
        let Waiting { separator, continues, changes, block } = waiting;
        let offset = self.offset();
        let based = if continues { self.compress_over_base(&block) } else { None };
        let full = match &self.compressor {
            Some(compressor) if based.is_none() => compressor.compress(&block.body),
            _ => None,
        };
        let dictionary = self.compressor.as_ref().is_some_and(Compressor::has_dictionary);
        let (encoding, stored, base_distance) = match (&based, &full) {
            (Some((stored, distance)), _) => (Encoding::ZstdBase, stored, *distance),
            (None, Some(stored)) if dictionary => (Encoding::ZstdDictionary, stored, 0),
            (None, Some(stored)) => (Encoding::Zstd, stored, 0),
            (None, None) => (Encoding::Raw, &block.body, 0),
        };
        let too_many = || Error::invalid("a segment has more than 2^32 blocks");
        let too_long = || Error::invalid("a block is longer than a segment can hold");
        let header = BlockHeader {
            kind: self.new.kind,
            encoding,
            raw_bytes: u32::try_from(block.body.len()).map_err(|_| too_long())?,
            stored_bytes: u32::try_from(stored.len()).map_err(|_| too_long())?,
            entry_count: block.entry_count,
            base_distance,
        };
        let handle = Handle {
            offset,
            bytes: u32::try_from(BLOCK_HEADER_BYTES + stored.len()).map_err(|_| too_long())?,
            number: u32::try_from(self.blocks.len()).map_err(|_| too_many())?,
        };
        header.encode(&mut self.buffer, self.seed, offset, stored);
        self.blocks.push((separator, handle));
        if based.is_none() && self.new.kind == FileKind::History {
            let stored_bytes = stored.len();
            self.base =
                Some(Base { offset, body: block.body, stored_bytes, least: usize::MAX, excess: 0 });
        } else if changes {
            self.base = None;
        }
        if self.buffer.len() >= WRITE_BYTES { self.write_out() } else { Ok(()) }
    }

    /// The block over the base, and how far away that is, if this is worth the second decoding.
    fn compress_over_base(&mut self, block: &RawBlock) -> Option<(Vec<u8>, u32)> {
        let entry_bytes = block.body.len() / usize::try_from(block.entry_count).ok()?.max(1);
        if entry_bytes < BASED_BYTES_MIN {
            return None;
        }
        let offset = self.offset();
        let base = self.base.as_mut()?;
        let distance = u32::try_from(offset - base.offset).ok()?;
        let stored = compress_over(&block.body, &base.body, self.level)?;
        base.accepts(stored.len()).then_some((stored, distance))
    }

    /// Where the next byte will be.
    fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES { self.write_out() } else { Ok(()) }
    }

    fn write_out(&mut self) -> Result<()> {
        self.hasher.update(&self.buffer);
        self.file
            .write_all_at(&self.buffer, self.written)
            .map_err(|error| Error::io("write a segment", &self.path, error))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

const _: () = assert!(HEADER_BYTES < WRITE_BYTES);
