//! Makes blocks of bodies: entries back to back, stored as they are or compressed as a whole.
//!
//! HISTORY waits with its first blocks until it is decided whether the file gets a dictionary. Large
//! versions of one key are stored over the block of the newest of them.

use annals_format::block::{BodyBuilder, Encoding, RawBlock};
use annals_format::entry::EntryRef;
use annals_format::page::Separator;
use annals_format::{FileKind, living};

use super::compress::{Compressor, compress_over};
use super::context::SegmentContext;
use super::sink::{Sink, Stored};
use super::train;
use crate::error::Result;

/// Versions of one key that are on average at least this long are stored over a base.
const BASED_BYTES_MIN: usize = 4 << 10;

/// The blocks of a segment being written.
#[derive(Debug)]
pub(super) struct BodiesOut {
    kind: FileKind,
    level: i32,
    block_bytes: usize,
    body: BodyBuilder,
    /// The separator before the block being built.
    separator: Separator,
    /// The block being built begins with the key that the block before ended with.
    continues: bool,
    /// Keys that begin in the block being built.
    new_keys: usize,
    /// What its entries weigh.
    weight: i64,
    /// Blocks waiting for the dictionary to be trained on them.
    waiting: Vec<Waiting>,
    waiting_bytes: usize,
    compressor: Option<Compressor>,
    /// HISTORY: what was trained, if it pays.
    dictionary: Option<Vec<u8>>,
    /// HISTORY: what the next blocks of the same key may be stored over.
    base: Option<Base>,
}

/// A finished block that is not yet stored.
#[derive(Debug)]
struct Waiting {
    separator: Separator,
    /// It begins with the key that the block before ended with.
    continues: bool,
    /// It ends with another key than it begins with.
    changes: bool,
    weight: i64,
    block: RawBlock,
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

impl BodiesOut {
    /// Blocks for a file of this kind.
    pub(super) fn new(context: &SegmentContext, kind: FileKind) -> Self {
        let compressor = match kind {
            // HISTORY decides about its dictionary first.
            FileKind::History => None,
            kind if kind.is_stored_raw() => None,
            _ => Some(Compressor::new(context.level, None)),
        };
        let mapped = kind.is_stored_raw();
        Self {
            kind,
            level: context.level,
            block_bytes: if mapped { context.block_bytes } else { context.history_block_bytes },
            body: BodyBuilder::new(kind),
            separator: Separator::first(),
            continues: false,
            new_keys: 0,
            weight: 0,
            waiting: Vec::new(),
            waiting_bytes: 0,
            compressor,
            dictionary: None,
            base: None,
        }
    }

    /// Adds the next entry; `last` is the one before it.
    pub(super) fn push(
        &mut self,
        sink: &mut Sink,
        entry: &EntryRef<'_>,
        last: Option<(&[u8], u64)>,
    ) -> Result<()> {
        let same_key = last.is_some_and(|(key, _)| key == entry.key);
        if let Some(last) = last.filter(|_| self.must_cut(entry)) {
            self.cut(sink)?;
            self.separator = Separator::between(last, entry.key);
            self.continues = same_key;
            self.new_keys = 0;
        }
        self.body.push(entry);
        self.weight += living::weight(self.kind, entry.key, entry);
        self.new_keys += usize::from(!same_key);
        Ok(())
    }

    /// Bytes of what is not in the file yet, before compression.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes + self.body.raw_bytes()
    }

    /// Stores what is left, and answers the dictionary of the file.
    pub(super) fn finish(mut self, sink: &mut Sink) -> Result<Option<Vec<u8>>> {
        self.cut(sink)?;
        self.train(sink, true)?;
        Ok(self.dictionary)
    }

    /// Whether the block being built ends before this entry: a block is at most as long as it
    /// should be, or holds a single entry.
    fn must_cut(&self, entry: &EntryRef<'_>) -> bool {
        let with_entry = self.body.raw_bytes() + entry.key.len() + entry.value.len();
        !self.body.is_empty() && with_entry > self.block_bytes
    }

    /// Ends the block being built.
    fn cut(&mut self, sink: &mut Sink) -> Result<()> {
        if self.body.is_empty() {
            return Ok(());
        }
        let block = self.body.finish();
        let separator = std::mem::replace(&mut self.separator, Separator::first());
        let bytes = block.body.len();
        let changes = self.new_keys > usize::from(!self.continues);
        let weight = std::mem::take(&mut self.weight);
        let block = Waiting { separator, continues: self.continues, changes, weight, block };
        if self.kind != FileKind::History || self.compressor.is_some() {
            return self.store(sink, block);
        }
        self.waiting_bytes += bytes;
        self.waiting.push(block);
        if self.waiting_bytes >= train::WAITING_BYTES { self.train(sink, false) } else { Ok(()) }
    }

    /// Decides on the dictionary and stores the blocks that waited for it.
    fn train(&mut self, sink: &mut Sink, complete: bool) -> Result<()> {
        if self.kind != FileKind::History || self.compressor.is_some() {
            return Ok(());
        }
        let bodies = self.waiting.iter().map(|waiting| &*waiting.block.body);
        self.dictionary = train::train(bodies, train::BLOCK_DICTIONARY_BYTES, self.level, complete);
        self.compressor = Some(Compressor::new(self.level, self.dictionary.as_deref()));
        self.waiting_bytes = 0;
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().try_for_each(|block| self.store(sink, block))
    }

    /// Compresses a block and appends it.
    fn store(&mut self, sink: &mut Sink, waiting: Waiting) -> Result<()> {
        let Waiting { separator, continues, changes, weight, block } = waiting;
        let offset = sink.offset();
        let based = if continues { self.compress_over_base(&block, offset) } else { None };
        let full = match &self.compressor {
            Some(compressor) if based.is_none() => compressor.compress(&block.body),
            _ => None,
        };
        let dictionary = self.compressor.as_ref().is_some_and(Compressor::has_dictionary);
        let (encoding, bytes, base_distance) = match (&based, &full) {
            (Some((stored, distance)), _) => (Encoding::ZstdBase, stored, *distance),
            (None, Some(stored)) if dictionary => (Encoding::ZstdDictionary, stored, 0),
            (None, Some(stored)) => (Encoding::Zstd, stored, 0),
            (None, None) => (Encoding::Raw, &block.body, 0),
        };
        let stored_bytes = bytes.len();
        let raw_bytes = block.body.len();
        let entry_count = block.entry_count;
        let stored = Stored { encoding, bytes, raw_bytes, entry_count, base_distance, weight };
        sink.block(separator, &stored)?;
        if based.is_none() && self.kind == FileKind::History {
            self.base =
                Some(Base { offset, body: block.body, stored_bytes, least: usize::MAX, excess: 0 });
        } else if changes {
            self.base = None;
        }
        Ok(())
    }

    /// The block over the base, and how far away that is, if this is worth the second decoding.
    fn compress_over_base(&mut self, block: &RawBlock, offset: u64) -> Option<(Vec<u8>, u32)> {
        let entry_bytes = block.body.len() / usize::try_from(block.entry_count).ok()?.max(1);
        if entry_bytes < BASED_BYTES_MIN {
            return None;
        }
        let base = self.base.as_mut()?;
        let distance = u32::try_from(offset - base.offset).ok()?;
        let stored = compress_over(&block.body, &base.body, self.level)?;
        base.accepts(stored.len()).then_some((stored, distance))
    }
}
