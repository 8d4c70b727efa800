//! A walk over the blocks of a segment that looks at its index alone, unless it is asked how many entries a block
//! has, or which.
//!
//! The separator before a block is the shortest that there is, see `annals_format::page`. So it tells
//! of the keys at both its sides:
//!
//! * the first key of the block behind it begins with the separator;
//! * the last key of the block before it begins with all but the last byte of the separator; and if
//!   a key has versions in both, it is the separator itself.
//!
//! At the ends of the file the keys are those that the manifest names. Where blocks are lost of a file that was found by its
//! blocks (`regain`), what stands for them begins behind the entry before, and no key of theirs is behind the next separator.

use std::ops::Range;
use std::sync::Arc;

use annals_format::block::{BLOCK_HEADER_BYTES, BlockHeader};
use annals_format::entry::EntryRef;
use annals_format::living;
use annals_format::page::Handle;
use annals_format::segment::HEADER_BYTES;
use bytes::Bytes;

use super::reader::Segment;
use super::tree::Path;
use crate::error::Result;

/// Answers the value of an entry.
pub(crate) type ValueOf<'a> = &'a dyn Fn() -> Result<Bytes>;

/// A walk over the blocks, at one of them or at the end.
#[derive(Debug)]
pub(crate) struct Leaves {
    segment: Arc<Segment>,
    /// At the block after this one.
    path: Path,
    block: Option<Handle>,
    after: Option<Handle>,
    /// The separator before the block after this one.
    separator: Vec<u8>,
    first: Vec<u8>,
    last: Vec<u8>,
    /// What the entries before the block weigh, and those before the block after it.
    rank: i64,
    rank_after: i64,
}

impl Leaves {
    /// A walk that begins at the first block that can hold a key at or after `key`.
    pub(crate) fn from(segment: &Arc<Segment>, key: &[u8]) -> Result<Self> {
        let mut walk = Self {
            segment: Arc::clone(segment),
            path: Path::default(),
            block: None,
            after: None,
            separator: Vec::new(),
            first: Vec::new(),
            last: Vec::new(),
            rank: 0,
            rank_after: 0,
        };
        let file = segment.opened()?;
        walk.after = walk.path.seek(file, key, u64::MAX)?;
        (_, walk.rank_after) = walk.path.separator(file, &mut walk.separator)?;
        walk.next()?;
        Ok(walk)
    }

    /// Calls `each` at every block in order, until it answers false.
    ///
    /// # Errors
    /// The index cannot be read, or what `each` answers.
    pub(crate) fn each(
        segment: &Arc<Segment>,
        each: &mut dyn FnMut(&Self) -> Result<bool>,
    ) -> Result<()> {
        let mut walk = Self::from(segment, &[])?;
        while walk.span().is_some() && each(&walk)? {
            walk.next()?;
        }
        Ok(())
    }

    /// Where the block lies among all blocks, in bytes; `None` at the end.
    pub(crate) fn span(&self) -> Option<Range<u64>> {
        let block = self.block?;
        let start = block.offset.saturating_sub(HEADER_BYTES as u64);
        Some(start..start + u64::from(block.bytes))
    }

    /// What the first key of the block begins with, or is.
    pub(crate) fn first(&self) -> &[u8] {
        &self.first
    }

    /// What the last key of the block begins with, or is.
    pub(crate) fn last(&self) -> &[u8] {
        &self.last
    }

    /// No key of the block is after this one: it is the last, or what the next block's begin from.
    pub(crate) fn upto(&self) -> &[u8] {
        if self.after.is_some() { &self.separator } else { &self.last }
    }

    /// How many keys the block's entries make live, see [`annals_format::living`].
    pub(crate) fn living(&self) -> i64 {
        self.rank_after.saturating_sub(self.rank)
    }

    /// How many entries the block has. Reads its header.
    pub(crate) fn entries(&self) -> Result<u64> {
        let Some(block) = self.block else { return Ok(0) };
        let file = self.segment.opened()?;
        let header = file.read(block.offset, BLOCK_HEADER_BYTES.min(block.bytes as usize))?;
        let count = BlockHeader::entry_count_of(&header);
        count.map(u64::from).map_err(|error| file.damaged(block.offset, &error))
    }

    /// Calls `each` for every entry of the block, with what answers its value, wherever that lies, and what it weighs.
    /// Reads the block.
    pub(crate) fn read(&self, each: &mut dyn FnMut(&EntryRef<'_>, ValueOf<'_>, i64)) -> Result<()> {
        let Some(block) = self.block else { return Ok(()) };
        let (key, revision) = self.segment.first_entry(block)?;
        let mut cursor = self.segment.cold_cursor();
        cursor.seek(&key, revision)?;
        let count = self.entries()?;
        for n in 1..=count {
            let Some(entry) = cursor.entry() else { break };
            let weight = living::weight(self.segment.meta().kind, entry.key, &entry);
            each(&entry, &|| cursor.value(), weight);
            if n < count {
                // After the last one it would read the next block, whose damage is not that of this one.
                cursor.next()?;
            }
        }
        Ok(())
    }

    /// Goes to the next block.
    pub(crate) fn next(&mut self) -> Result<()> {
        let file = self.segment.opened()?;
        (self.block, self.rank) = (self.after, self.rank_after);
        let Some(block) = self.block else { return Ok(()) };
        file.check_place(block)?;
        let (meta, last) = (self.segment.meta(), &mut self.last);
        std::mem::swap(&mut self.first, &mut self.separator);
        if block.number == 0 {
            self.first.clone_from(&meta.first_key);
        }
        self.after = self.path.next(file)?;
        if self.after.is_none() {
            self.rank_after = file.footer().living;
            last.clone_from(&meta.last_key);
            return Ok(());
        }
        let (revision, rank) = self.path.separator(file, &mut self.separator)?;
        self.rank_after = rank;
        last.clone_from(&self.separator);
        if revision == u64::MAX {
            last.pop();
        }
        Ok(())
    }
}

impl Segment {
    /// Bytes of all blocks.
    pub(crate) fn block_bytes(&self) -> Result<u64> {
        Ok(self.footer()?.index_offset.saturating_sub(HEADER_BYTES as u64))
    }
}
