//! The tree of a bucket, built from its leaves up while they are written.
//!
//! A leaf is written when the next element does not fit in. Of each level above, the children that have no page yet
//! are in memory: those of one page, and two. For no branch may have a single child: when bbolt deletes in a leaf
//! without neighbours, it panics. So a branch is written when two children are left for the next.

use std::collections::VecDeque;
use std::io::{Seek, Write};

use crate::Result;

use super::bucket_header;
use super::pages::{BRANCH, ELEMENT_BYTES, HEADER_BYTES, LEAF, PAGE_BYTES, Pages, header};

/// A bucket of no more bytes lies within the page that has its name: so bbolt does.
const INLINE_BYTES_MAX: usize = PAGE_BYTES / 4;
/// bbolt takes no longer key, and no longer value.
const KEY_BYTES_MAX: usize = 32_768;
const VALUE_BYTES_MAX: usize = (1 << 31) - 2;

/// A page that has been written, with its first key.
type Child = (Vec<u8>, u64);

#[derive(Debug)]
pub(super) struct Tree {
    /// What its elements have.
    flags: u32,
    leaf: Leaf,
    last_key: Vec<u8>,
    /// Those above the leaves, from below.
    levels: Vec<Level>,
}

/// A leaf that is not written yet.
#[derive(Debug, Default)]
struct Leaf {
    /// The bytes of key and value of each element.
    lengths: Vec<(usize, usize)>,
    data: Vec<u8>,
}

/// The pages of a level that are not in a branch yet.
#[derive(Debug, Default)]
struct Level {
    children: VecDeque<Child>,
    /// What they take in a branch.
    bytes: usize,
}

fn child_bytes((key, _): &Child) -> usize {
    ELEMENT_BYTES + key.len()
}

/// The number for a field of four bytes, of what is below 2 GiB.
fn le32(number: usize) -> [u8; 4] {
    u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes()
}

impl Leaf {
    fn bytes(&self) -> usize {
        HEADER_BYTES + ELEMENT_BYTES * self.lengths.len() + self.data.len()
    }

    fn elements(&self, flags: u32) -> Vec<u8> {
        let mut elements = Vec::with_capacity(ELEMENT_BYTES * self.lengths.len());
        let mut at = 0;
        for (index, (key, value)) in self.lengths.iter().enumerate() {
            let pos = ELEMENT_BYTES * (self.lengths.len() - index) + at;
            elements.extend(flags.to_le_bytes());
            elements.extend([pos, *key, *value].into_iter().flat_map(le32));
            at += key + value;
        }
        elements
    }

    fn first_key(&self) -> Vec<u8> {
        let bytes = self.lengths.first().map_or(0, |(key, _)| *key);
        self.data.get(..bytes).unwrap_or_default().to_vec()
    }

    fn clear(&mut self) {
        self.lengths.clear();
        self.data.clear();
        // A value of many MiB is not kept room for.
        self.data.shrink_to(16 * PAGE_BYTES);
    }
}

impl Level {
    fn push(&mut self, child: Child) {
        self.bytes += child_bytes(&child);
        self.children.push_back(child);
    }

    /// How many of the first fit in a page: two at least.
    fn fitting(&self) -> usize {
        let mut left = PAGE_BYTES - HEADER_BYTES;
        let fits = |child: &&Child| {
            let taken = left.checked_sub(child_bytes(child));
            left = taken.unwrap_or(0);
            taken.is_some()
        };
        self.children.iter().take_while(fits).count().max(2)
    }

    /// Whether a page is full, and two are left for the next.
    fn is_due(&self) -> bool {
        HEADER_BYTES + self.bytes > PAGE_BYTES && self.children.len() >= self.fitting() + 2
    }

    /// Writes a branch of the first `count` children.
    fn write<W: Write + Seek>(&mut self, pages: &mut Pages<W>, count: usize) -> Result<Child> {
        let children: Vec<Child> = self.children.drain(..count.min(self.children.len())).collect();
        self.bytes -= children.iter().map(child_bytes).sum::<usize>();
        let (mut elements, mut keys) = (Vec::new(), Vec::new());
        for (index, (key, id)) in children.iter().enumerate() {
            let pos = ELEMENT_BYTES * (children.len() - index) + keys.len();
            elements.extend([pos, key.len()].into_iter().flat_map(le32));
            elements.extend(id.to_le_bytes());
            keys.extend_from_slice(key);
        }
        let id = pages.write(BRANCH, children.len(), &[&elements, &keys])?;
        let first = children.into_iter().next().map_or_else(Vec::new, |(key, _)| key);
        Ok((first, id))
    }
}

impl Tree {
    pub(super) fn new(flags: u32) -> Self {
        Self { flags, leaf: Leaf::default(), last_key: Vec::new(), levels: Vec::new() }
    }

    pub(super) fn put<W: Write + Seek>(
        &mut self,
        pages: &mut Pages<W>,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            let (key, value) = (key.len(), value.len());
            return Err(pages.refused(format!("a key of {key} bytes with a value of {value}")));
        }
        if self.last_key[..] >= *key {
            let what = format!("key {} is not after the one before it", key.escape_ascii());
            return Err(pages.refused(what));
        }
        let more = ELEMENT_BYTES + key.len() + value.len();
        if !self.leaf.lengths.is_empty() && self.leaf.bytes() + more > PAGE_BYTES {
            self.end_leaf(pages)?;
        }
        self.leaf.lengths.push((key.len(), value.len()));
        self.leaf.data.extend_from_slice(key);
        self.leaf.data.extend_from_slice(value);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    /// The whole bucket, if it is small enough to lie within a page.
    pub(super) fn inline(&self) -> Option<Vec<u8>> {
        let fits = self.levels.is_empty() && self.leaf.bytes() <= INLINE_BYTES_MAX;
        let header = header(0, LEAF, self.leaf.lengths.len(), 0);
        let elements = self.leaf.elements(self.flags);
        fits.then(|| [&bucket_header(0)[..], &header, &elements, &self.leaf.data].concat())
    }

    /// Ends it. Answers its root.
    pub(super) fn finish<W: Write + Seek>(mut self, pages: &mut Pages<W>) -> Result<u64> {
        if self.levels.is_empty() {
            return self.write_leaf(pages);
        }
        self.end_leaf(pages)?;
        let mut at = 0;
        while let Some(level) = self.levels.get_mut(at) {
            // A level of one page is the root.
            if level.children.len() == 1 && self.levels.len() == at + 1 {
                break;
            }
            while let Some(level) = self.levels.get_mut(at).filter(|l| !l.children.is_empty()) {
                let (fitting, all) = (level.fitting(), level.children.len());
                let count = match all.saturating_sub(fitting) {
                    // Two have to be left. Where no more than two fit, three long keys share a page that overflows.
                    1 if fitting > 2 => fitting - 1,
                    0 | 1 => all,
                    _ => fitting,
                };
                let branch = level.write(pages, count)?;
                self.level(at + 1).push(branch);
            }
            at += 1;
        }
        let root = self.levels.last().and_then(|level| level.children.front());
        root.map(|(_, id)| *id).ok_or_else(|| pages.refused("a tree without a root"))
    }

    fn level(&mut self, at: usize) -> &mut Level {
        if self.levels.len() <= at {
            self.levels.resize_with(at + 1, Level::default);
        }
        &mut self.levels[at]
    }

    fn write_leaf<W: Write + Seek>(&mut self, pages: &mut Pages<W>) -> Result<u64> {
        let elements = self.leaf.elements(self.flags);
        let id = pages.write(LEAF, self.leaf.lengths.len(), &[&elements, &self.leaf.data])?;
        self.leaf.clear();
        Ok(id)
    }

    fn end_leaf<W: Write + Seek>(&mut self, pages: &mut Pages<W>) -> Result<()> {
        let mut child = (self.leaf.first_key(), 0);
        child.1 = self.write_leaf(pages)?;
        for at in 0.. {
            let level = self.level(at);
            level.push(child);
            if !level.is_due() {
                break;
            }
            let count = level.fitting();
            child = level.write(pages, count)?;
        }
        Ok(())
    }
}
