//! The B+tree over the blocks of a segment: built in one go, walked by a path of slots.
//!
//! Which block can hold (key, revision) is decided by separators alone, see `annals_format::page`.

use annals_format::checksum::FileSeed;
use annals_format::page::{Child, Handle, LEVELS_MAX, PageBuilder};

use super::opened::Opened;
use crate::error::Result;

/// A finished tree.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// All pages, back to back.
    pub(super) bytes: Vec<u8>,
    pub(super) page_count: u32,
    pub(super) root: Handle,
    pub(super) height: u8,
}

/// Builds the pages over `blocks`, the first page being at `offset` of the file. `None` if the tree
/// would be out of bounds, which no file that can be written is.
pub(super) fn build(blocks: Vec<Child>, seed: FileSeed, offset: u64) -> Option<Tree> {
    let mut tree = Tree::default();
    let mut items = blocks;
    let mut level = 0;
    while !items.is_empty() {
        if level >= LEVELS_MAX {
            return None;
        }
        let mut above = Vec::new();
        let mut page = PageBuilder::new(level);
        let mut children = items.into_iter().peekable();
        while let Some(child) = children.next() {
            page.push(child);
            if page.is_full() || children.peek().is_none() {
                let first = page.first()?.clone();
                let start = offset.checked_add(tree.bytes.len() as u64)?;
                let bytes = page.finish(&mut tree.bytes, seed, start);
                let handle = Handle { offset: start, bytes, number: tree.page_count };
                tree.page_count = tree.page_count.checked_add(1)?;
                above.push(Child { handle, ..first });
            }
        }
        level += 1;
        if let [root] = above.as_slice() {
            tree.root = root.handle;
            tree.height = level;
            return Some(tree);
        }
        items = above;
    }
    Some(tree)
}

/// A way from the root to a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Path {
    /// From the root to the leaf.
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    page: Handle,
    slot: usize,
    count: usize,
}

/// Which item of a page to take on the way down.
#[derive(Clone, Copy)]
enum Way<'k> {
    First,
    Last,
    Target(&'k [u8], u64),
}

impl Path {
    /// Goes to the block that holds the first entry at or after (`key`, `at`), unless that is the
    /// first entry of the block after it.
    pub(super) fn seek(&mut self, file: &Opened, key: &[u8], at: u64) -> Result<Option<Handle>> {
        self.restart(file, Way::Target(key, at))
    }

    /// Goes to the first block.
    pub(super) fn first(&mut self, file: &Opened) -> Result<Option<Handle>> {
        self.restart(file, Way::First)
    }

    /// Goes to the last block.
    pub(super) fn last(&mut self, file: &Opened) -> Result<Option<Handle>> {
        self.restart(file, Way::Last)
    }

    /// Goes to the next block.
    pub(super) fn next(&mut self, file: &Opened) -> Result<Option<Handle>> {
        while let Some(step) = self.steps.last_mut() {
            if step.slot + 1 < step.count {
                step.slot += 1;
                return self.descend(file, Way::First);
            }
            self.steps.pop();
        }
        Ok(None)
    }

    /// Goes to the block before.
    pub(super) fn prev(&mut self, file: &Opened) -> Result<Option<Handle>> {
        while let Some(step) = self.steps.last_mut() {
            if step.slot > 0 {
                step.slot -= 1;
                return self.descend(file, Way::Last);
            }
            self.steps.pop();
        }
        Ok(None)
    }

    /// The revision of the separator before the block it is at, and what the entries before that weigh; the
    /// separator's key is put into `key`.
    pub(super) fn separator(&self, file: &Opened, key: &mut Vec<u8>) -> Result<(u64, i64)> {
        key.clear();
        let Some(&Step { page, slot, .. }) = self.steps.last() else { return Ok((u64::MAX, 0)) };
        file.with_page(page, 0, |page| {
            let item = page.item(slot)?;
            key.extend_from_slice(page.prefix());
            key.extend_from_slice(item.key_suffix);
            Ok((item.revision, i64::from(item.rank)))
        })
    }

    fn restart(&mut self, file: &Opened, way: Way<'_>) -> Result<Option<Handle>> {
        self.steps.clear();
        if file.footer().height == 0 {
            return Ok(None);
        }
        self.enter(file, file.footer().root, way)?;
        self.descend(file, way)
    }

    /// From the slot of the lowest step down to a block.
    fn descend(&mut self, file: &Opened, way: Way<'_>) -> Result<Option<Handle>> {
        let height = usize::from(file.footer().height);
        while let Some(&Step { page, slot, .. }) = self.steps.last() {
            let child =
                file.with_page(page, height - self.steps.len(), |page| Ok(page.item(slot)?.child))?;
            if self.steps.len() == height {
                return Ok(Some(child));
            }
            self.enter(file, child, way)?;
        }
        Ok(None)
    }

    fn enter(&mut self, file: &Opened, page: Handle, way: Way<'_>) -> Result<()> {
        let level = usize::from(file.footer().height) - self.steps.len() - 1;
        let (slot, count) = file.with_page(page, level, |page| {
            let slot = match way {
                Way::First => 0,
                Way::Last => page.count() - 1,
                Way::Target(key, at) => page.search(key, at)?,
            };
            Ok((slot, page.count()))
        })?;
        self.steps.push(Step { page, slot, count });
        Ok(())
    }
}
