//! What a person wants to see of a segment: its blocks and pages, one by one.

use std::sync::Arc;

use annals_format::block::{BlockHeader, Body, Encoding};
use annals_format::group::Groups;
use annals_format::page::Handle;

use super::blocks::{Block, Caching};
use super::opened::Opened;
use super::reader::Segment;
use super::tree::Path;
use crate::error::Result;

/// A data block, as inspected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// Offset in the file.
    pub offset: u64,
    /// Length in the file, header included.
    pub bytes: u32,
    /// Number in the file, from 0.
    pub number: u32,
    /// How the body is stored.
    pub encoding: Encoding,
    /// Offset of the block that this one is stored over.
    pub base_offset: Option<u64>,
    /// Bytes of the body; of groups the bytes of all values.
    pub raw_bytes: u32,
    /// Entries.
    pub entry_count: u32,
    /// Groups that the entries are in, if the block holds groups.
    pub groups: Option<usize>,
    /// The first key.
    pub first_key: Vec<u8>,
    /// The revision of the first entry.
    pub first_revision: u64,
}

/// An index page, as inspected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageInfo {
    /// Offset in the file.
    pub offset: u64,
    /// Length.
    pub bytes: u32,
    /// Number in the file, from 0; the root is the last.
    pub number: u32,
    /// 0 for a leaf.
    pub level: u8,
    /// Items.
    pub count: usize,
    /// What all its separators begin with.
    pub prefix: Vec<u8>,
}

/// What a block begins with.
struct First {
    groups: Option<usize>,
    key: Vec<u8>,
    revision: u64,
}

impl Block<'_> {
    fn first(&self, file: &Opened) -> annals_format::error::Result<First> {
        let bytes = self.bytes.as_slice();
        if self.in_groups {
            let groups = Groups::parse(bytes)?;
            let first = groups.group(0)?;
            let key = [groups.prefix(), first.key_suffix()].concat();
            let revision = first.newest().revision;
            return Ok(First { groups: Some(groups.count()), key, revision });
        }
        let first = Body::parse(bytes, file.kind())?.run(0)?.next().transpose()?;
        Ok(First {
            groups: None,
            key: first.map_or_else(Vec::new, |item| item.suffix.to_vec()),
            revision: first.map_or(0, |item| item.fields.revision),
        })
    }
}

impl Segment {
    /// Hands out the blocks in file order until `each` answers false. Reads every block it hands
    /// out.
    pub(crate) fn blocks(
        self: &Arc<Self>,
        each: &mut dyn FnMut(BlockInfo) -> Result<bool>,
    ) -> Result<()> {
        let file = self.opened()?;
        let mut path = Path::default();
        let mut base = None;
        let mut next = path.first(file)?;
        while let Some(handle) = next {
            let header = file.read(handle.offset, handle.bytes as usize)?;
            let (header, _) = BlockHeader::decode(&header, file.kind())
                .map_err(|error| file.damaged(handle.offset, &error))?;
            let block = file.block(handle, Caching::Bypass, &mut base)?;
            let first = block.first(file).map_err(|error| file.damaged_body(handle, &error))?;
            let info = BlockInfo {
                offset: handle.offset,
                bytes: handle.bytes,
                number: handle.number,
                encoding: header.encoding,
                base_offset: (header.base_distance > 0)
                    .then(|| handle.offset.saturating_sub(u64::from(header.base_distance))),
                raw_bytes: header.raw_bytes,
                entry_count: header.entry_count,
                groups: first.groups,
                first_key: first.key,
                first_revision: first.revision,
            };
            if !each(info)? {
                return Ok(());
            }
            next = path.next(file)?;
        }
        Ok(())
    }

    /// The key and the revision of the first entry of a block, which is read for it.
    pub(super) fn first_entry(&self, handle: Handle) -> Result<(Vec<u8>, u64)> {
        let file = self.opened()?;
        let block = file.block(handle, Caching::Bypass, &mut None)?;
        let first = block.first(file).map_err(|error| file.damaged_body(handle, &error))?;
        Ok((first.key, first.revision))
    }

    /// Hands out the pages from the root down, in the order of a walk, until `each` answers false.
    pub(crate) fn pages(&self, each: &mut dyn FnMut(PageInfo) -> Result<bool>) -> Result<()> {
        let file = self.opened()?;
        let footer = file.footer();
        if footer.height == 0 {
            return Ok(());
        }
        let mut waiting: Vec<(Handle, usize)> = vec![(footer.root, usize::from(footer.height) - 1)];
        while let Some((handle, level)) = waiting.pop() {
            let (info, children) = file.with_page(handle, level, |page| {
                let info = PageInfo {
                    offset: handle.offset,
                    bytes: handle.bytes,
                    number: handle.number,
                    level: page.level(),
                    count: page.count(),
                    prefix: page.prefix().to_vec(),
                };
                let mut children = Vec::new();
                for index in (0..if level > 0 { page.count() } else { 0 }).rev() {
                    children.push(page.item(index)?.child);
                }
                Ok((info, children))
            })?;
            if !each(info)? {
                return Ok(());
            }
            waiting.extend(children.into_iter().map(|child| (child, level - 1)));
        }
        Ok(())
    }
}
