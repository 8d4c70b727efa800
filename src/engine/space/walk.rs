//! The files of a survey, block by block: what each takes of its file.

use std::collections::{BTreeMap, VecDeque};

use annals_format::FileKind;

use super::{Amount, PrefixSpace, SpaceQuery, add, is_past};
use crate::engine::shares::{Divided, share};
use crate::engine::tables::{FileSet, SealedFile};
use crate::error::Result;
use crate::segment::Leaves;
use crate::sync::Arc;

/// Files in key order.
#[derive(Debug)]
pub(super) struct Stream {
    /// Each with how many bytes of it others refer to.
    files: VecDeque<(Arc<SealedFile>, u64)>,
    keep: u64,
    pub(super) at: Option<Walk>,
}

/// A walk over a file.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) leaves: Leaves,
    /// Bytes of all blocks, and of those that a fold has taken over, which come first.
    block_bytes: u64,
    folded_blocks: u64,
    /// Of the blocks that a fold has taken over.
    folded: PrefixSpace,
    /// Whether its entries are versions, and not what versions refer to.
    has_versions: bool,
    /// Of the others.
    rest: PrefixSpace,
}

pub(super) fn streams(files: &FileSet, prefix: &[u8], keep: u64) -> Vec<Stream> {
    // The keys of blob files overlap, as those of L0 do.
    let alone = files.l0.iter().chain(&files.blobs).map(std::slice::from_ref);
    let windows = files.windows.iter().map(|window| &*window.files);
    let has_some = |file: &&Arc<SealedFile>| {
        file.meta().last_key.as_slice() >= prefix && !is_past(prefix, &file.meta().first_key)
    };
    let with_use = |file: &Arc<SealedFile>| (Arc::clone(file), files.referenced(file).all());
    alone
        .chain([&*files.head])
        .chain(windows)
        .map(|files| Stream {
            files: files.iter().filter(has_some).map(with_use).collect(),
            keep,
            at: None,
        })
        .collect()
}

impl Stream {
    /// Goes to the next block that can hold a key at or after `from`.
    pub(super) fn next(&mut self, from: &[u8]) -> Result<Option<&Walk>> {
        if let Some(walk) = &mut self.at {
            walk.leaves.next()?;
        }
        while self.at.as_ref().is_none_or(|walk| walk.leaves.span().is_none()) {
            self.at = match self.files.pop_front() {
                Some((file, referenced)) => Some(Walk::new(&file, referenced, from, self.keep)?),
                None => return Ok(None),
            };
        }
        Ok(self.at.as_ref())
    }
}

impl Walk {
    fn new(file: &SealedFile, referenced: u64, from: &[u8], keep: u64) -> Result<Self> {
        let segment = file.open()?;
        let block_bytes = segment.block_bytes()?;
        let Divided { folded_blocks, folded, rest } = Divided::of(file, referenced, keep);
        Ok(Self {
            leaves: Leaves::from(segment, from)?,
            has_versions: file.meta().kind != FileKind::Blob,
            block_bytes,
            folded_blocks,
            folded: PrefixSpace { dead_bytes: folded, ..PrefixSpace::default() },
            rest: PrefixSpace {
                live_bytes: rest.live,
                history_bytes: rest.history,
                dead_bytes: rest.dead,
                ..PrefixSpace::default()
            },
        })
    }

    /// Whether a fold has taken the block over.
    fn is_folded(&self) -> bool {
        self.leaves.span().unwrap_or_default().end <= self.folded_blocks
    }

    /// What the block takes of the file. Over all blocks it adds up to the file.
    pub(super) fn amount(&self) -> Result<Amount> {
        let span = self.leaves.span().unwrap_or_default();
        let is_folded = self.is_folded();
        let (total, before, all) = if is_folded {
            (&self.folded, 0, self.folded_blocks)
        } else {
            (&self.rest, self.folded_blocks, self.block_bytes.saturating_sub(self.folded_blocks))
        };
        let upto = |figure, offset: u64| share(figure, offset.saturating_sub(before), all);
        let mut of = total.map(|figure| upto(figure, span.end) - upto(figure, span.start));
        of.versions = if self.has_versions { self.leaves.entries()? } else { 0 };
        // The keys of what a fold has taken over are those of HEAD.
        let living = if is_folded { 0 } else { self.leaves.living() };
        Ok(Amount { of, living })
    }
}

impl Walk {
    /// Divides what the block takes as its entries are: room by their length.
    pub(super) fn divide(
        &self,
        query: &SpaceQuery,
        amount: &Amount,
        open: &mut BTreeMap<Vec<u8>, Amount>,
    ) -> Result<()> {
        /// What an entry takes beside its key and value, more or less.
        const ENTRY_BYTES: u64 = 12;
        let is_folded = self.is_folded();
        let mut parts: Vec<(Option<Vec<u8>>, u64, u64, i64)> = Vec::new();
        self.leaves.read(&mut |entry, _, weight| {
            let label = query.label(entry.key);
            let bytes = (entry.key.len() + entry.value.len()) as u64 + ENTRY_BYTES;
            let weight = if is_folded { 0 } else { weight };
            match parts.last_mut() {
                Some((last, versions, length, living)) if last.as_deref() == label => {
                    (*versions, *length, *living) =
                        (*versions + 1, *length + bytes, *living + weight);
                }
                _ => parts.push((label.map(<[u8]>::to_vec), 1, bytes, weight)),
            }
        })?;
        let all: u64 = parts.iter().map(|(_, _, length, _)| length).sum();
        let mut upto = 0;
        for (label, versions, length, living) in parts {
            let part = |figure| share(figure, upto + length, all) - share(figure, upto, all);
            let versions = if self.has_versions { versions } else { 0 };
            let of = PrefixSpace { versions, ..amount.of.map(part) };
            add(open, label.as_deref(), &Amount { of, living });
            upto += length;
        }
        Ok(())
    }
}
