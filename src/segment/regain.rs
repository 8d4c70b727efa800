//! A segment of which the ends or the index cannot be read, or that has another length than it should, found again by its
//! blocks: each has a checksum that holds for its place in this file of this store alone.
//!
//! What is found is put into memory behind a header, an index and a footer that are made anew, and read as any other
//! segment. Between blocks that are found and do not follow each other are some that are damaged; in the index one stands
//! for them, which cannot be read:
//!
//! ```text
//! file    header  block  block  ~~~~~~~  block  block  pages  [filter]  [dictionary]  footer
//! memory  header  block  block   block   block  block  ...............................  pages  [dictionary]  footer
//! ```
//!
//! Blocks of HISTORY that need a dictionary can be read where the footer says where it is.

use std::sync::Arc;

use annals_format::FileMeta;
use annals_format::block::{BLOCK_MAGIC, BlockHeader, compare};
use annals_format::checksum::FileSeed;
use annals_format::page::{Child, Handle, Separator};
use annals_format::segment::{FOOTER_BYTES, Footer, HEADER_BYTES, Header};
use annals_format::{Place, dictionary};

use super::bits::Bits;
use super::blocks::Caching;
use super::body_cursor::BodyCursor;
use super::cache::BlockCache;
use super::context::SegmentContext;
use super::group_cursor::GroupCursor;
use super::handles::Handles;
use super::opened::Opened;
use super::reader::{Segment, Want};
use super::sealed::Blobs;
use super::source::Source;
use super::tree;
use crate::error::{Error, Result};
use crate::options::ReadMode;
use crate::sync::plain::OnceLock;
use crate::vfs::{Access, MemoryVfs, Vfs as _};

/// The longest file that is put into memory.
const BYTES_MAX: u64 = 1 << 30;

/// Checksums are computed of so many times as many bytes as the file has, at most: there may be more that looks like a block
/// than there are blocks.
const SUMMED_MAX: u64 = 16;

/// A key, and the revision of its version.
type End = (Vec<u8>, u64);

/// A block that can be read, with its first entry and its last.
struct Found {
    handle: Handle,
    entries: u64,
    first: End,
    last: End,
}

impl Segment {
    /// Reads the blocks of a file that can be found. `None` if there are none, or the file is longer than 1 GiB.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn regain(
        context: &SegmentContext,
        meta: &FileMeta,
        blobs: &Blobs,
    ) -> Result<Option<Self>> {
        let place = context.place(meta.kind, meta.number);
        let Some(content) = read_all(context, meta)? else { return Ok(None) };
        let found = blocks(&opened(context, meta, blobs, &content)?, &content, meta);
        let dictionary = old_dictionary(&content, &place);
        let Some(mut image) = image(content, &found, (meta, &place)) else { return Ok(None) };
        finish(&mut image, dictionary.as_deref(), (meta, &place));
        let bytes = image.bytes.len() as u64;
        let context = in_memory(context, meta, &image.bytes)?;
        let regained = Self::open(&context, &FileMeta { bytes, ..meta.clone() }, blobs)?;
        regained.opened()?;
        Ok(Some(regained.known_as(meta)))
    }
}

/// All of the file; `None` if it is not there, or too long.
fn read_all(context: &SegmentContext, meta: &FileMeta) -> Result<Option<Vec<u8>>> {
    let path = context.path(meta.kind, meta.number);
    let failed = |error| Error::io("read a segment", &path, error);
    let file = match context.vfs.open(&path, Access::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let bytes = file.len().map_err(failed)?;
    // Where the header was.
    let bytes = usize::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes > HEADER_BYTES && *bytes as u64 <= BYTES_MAX);
    bytes.map(|bytes| file.read_vec_at(bytes, 0).map_err(failed)).transpose()
}

/// A context in which the file has this content. Errors name it as ever.
fn in_memory(context: &SegmentContext, meta: &FileMeta, content: &[u8]) -> Result<SegmentContext> {
    let (vfs, path) = (MemoryVfs::new(), context.path(meta.kind, meta.number));
    let failed = |error| Error::io("hold in memory", &path, error);
    if let Some(directory) = path.parent() {
        vfs.create_dir_all(directory).map_err(failed)?;
    }
    let file = vfs.create(&path).map_err(failed)?;
    file.write_all_at(content, 0).map_err(failed)?;
    Ok(SegmentContext {
        vfs: Arc::new(vfs),
        handles: Handles::new(),
        cache: BlockCache::new(0),
        // Whoever made this knows that it is damaged.
        unreadable: Arc::default(),
        read_mode: ReadMode::Pread,
        ..context.clone()
    })
}

/// The file before there is an index, so that what is found of blocks can be read.
fn opened(
    context: &SegmentContext,
    meta: &FileMeta,
    blobs: &Blobs,
    content: &[u8],
) -> Result<Opened> {
    let place = context.place(meta.kind, meta.number);
    let bytes = content.len() as u64;
    let context = in_memory(context, meta, content)?;
    let source = Source::open(&context, &FileMeta { bytes, ..meta.clone() })?;
    let footer = old_footer(content, &place);
    let part = |of: fn(&Footer) -> u64| footer.as_ref().map_or(0, of);
    Ok(Opened {
        source: Arc::new(source),
        cache: context.cache.clone(),
        seed: FileSeed::new(&place),
        kind: meta.kind,
        number: meta.number,
        footer: Footer {
            block_count: u32::MAX,
            filter_offset: part(|footer| footer.filter_offset),
            filter_bytes: part(|footer| footer.filter_bytes),
            dictionary_bytes: part(|footer| footer.dictionary_bytes),
            ..new_footer(meta, place.at(bytes), bytes)
        },
        blobs: Arc::clone(blobs),
        checked_blocks: Bits::new(0),
        checked_pages: Bits::new(0),
        filter: OnceLock::new(),
        dictionary: OnceLock::new(),
    })
}

/// The footer, if it can be read.
fn old_footer(content: &[u8], place: &Place) -> Option<Footer> {
    let offset = content.len().checked_sub(FOOTER_BYTES)?;
    Footer::decode(content.get(offset..)?, &place.at(offset as u64)).ok()
}

/// The content of the dictionary, if that can be read.
fn old_dictionary(content: &[u8], place: &Place) -> Option<Vec<u8>> {
    let footer = old_footer(content, place).filter(|footer| footer.dictionary_bytes > 0)?;
    let start = usize::try_from(footer.dictionary_offset()).ok()?;
    let end = start.checked_add(usize::try_from(footer.dictionary_bytes).ok()?)?;
    let seed = FileSeed::new(place);
    let found = dictionary::decode(content.get(start..end)?, seed, footer.dictionary_offset());
    found.ok().map(<[u8]>::to_vec)
}

/// A footer over blocks up to here, and nothing else.
fn new_footer(meta: &FileMeta, place: Place, blocks_end: u64) -> Footer {
    Footer {
        place,
        class: meta.class,
        incarnation: meta.incarnation,
        entries: meta.entries,
        keys: 0,
        tombstones: 0,
        value_bytes: meta.value_bytes,
        min_revision: meta.min_revision,
        max_revision: meta.max_revision,
        death_after: meta.death_after,
        death_upto: meta.death_upto,
        block_count: 0,
        page_count: 0,
        index_offset: blocks_end,
        root: Handle::default(),
        height: 0,
        filter_offset: blocks_end,
        filter_bytes: 0,
        dictionary_bytes: 0,
        living: 0,
    }
}

/// The blocks that can be found and read, in order.
fn blocks(file: &Opened, content: &[u8], meta: &FileMeta) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    let [low, high] = BLOCK_MAGIC.to_le_bytes();
    let start = [low, high, meta.kind.number()];
    let mut left = (content.len() as u64).saturating_mul(SUMMED_MAX);
    let mut at = HEADER_BYTES;
    while let Some(next) = content.get(at..).and_then(|rest| position(rest, start)) {
        at += next;
        let rest = content.get(at..).unwrap_or_default();
        let bytes = BlockHeader::block_bytes(rest).ok().and_then(|bytes| u32::try_from(bytes).ok());
        let block = bytes.and_then(|bytes| Some((bytes, rest.get(..bytes as usize)?)));
        let Some((bytes, block)) = block else {
            at += 1;
            continue;
        };
        let Some(after) = left.checked_sub(bytes.into()) else { break };
        left = after;
        let handle = Handle { offset: at as u64, bytes, number: 0 };
        let is_whole = BlockHeader::check_crc(block, file.seed, handle.offset).is_ok();
        let read = is_whole.then(|| ends(file, handle, block).ok()).flatten();
        let follows = |read: &Found| {
            let (first, last) = (&read.first, &read.last);
            let behind = match found.last() {
                Some(Found { last: (key, revision), .. }) => {
                    compare(key, *revision, &first.0, first.1).is_lt()
                }
                None => meta.first_key <= first.0,
            };
            behind && last.0 <= meta.last_key && compare(&first.0, first.1, &last.0, last.1).is_le()
        };
        match read.filter(follows) {
            Some(read) => {
                found.push(read);
                at += block.len();
            }
            None => at += 1,
        }
    }
    found
}

/// Where these bytes are first.
fn position(content: &[u8], start: [u8; 3]) -> Option<usize> {
    content.windows(start.len()).position(|window| window == start)
}

/// What a block begins and ends with. Whether all of it decodes is asked by whoever reads it.
fn ends(file: &Opened, handle: Handle, block: &[u8]) -> Result<Found> {
    let entries = BlockHeader::entry_count_of(block);
    let entries = entries.map_err(|error| file.damaged(handle.offset, &error))?;
    let block = file.block(handle, Caching::Bypass, &mut None)?;
    let in_groups = block.in_groups;
    let bytes = block.into_bytes(file)?;
    let end = |entry: Option<annals_format::entry::EntryRef<'_>>| {
        entry.map_or_else(End::default, |entry| (entry.key.to_vec(), entry.revision))
    };
    let [first, last] = if in_groups {
        let mut cursor = GroupCursor::new(Caching::Bypass, Want::Fields);
        cursor.load(handle, bytes);
        cursor.first(file)?;
        let first = end(cursor.entry());
        cursor.last(file)?;
        [first, end(cursor.entry())]
    } else {
        let mut cursor = BodyCursor::default();
        cursor.load(handle, bytes);
        cursor.first(file)?;
        let first = end(cursor.entry());
        cursor.last(file)?;
        [first, end(cursor.entry())]
    };
    Ok(Found { handle, entries: entries.into(), first, last })
}

/// The file in memory.
struct Image {
    bytes: Vec<u8>,
    block_count: u32,
    index_offset: u64,
    tree: tree::Tree,
}

/// What is in front of the footer, with an index of these blocks; `None` where there are none, or what is between them is
/// longer than a block can be.
fn image(content: Vec<u8>, found: &[Found], (meta, place): (&FileMeta, &Place)) -> Option<Image> {
    let index_offset = content.len() as u64;
    let children = children(found, index_offset, meta)?;
    let (class, incarnation, mut header) = (meta.class, meta.incarnation, Vec::new());
    Header { place: *place, class, incarnation }.encode(&mut header);
    let mut bytes = content;
    bytes.get_mut(..HEADER_BYTES)?.copy_from_slice(&header);
    let block_count = u32::try_from(children.len()).ok()?;
    let tree = tree::build(children, FileSeed::new(place), index_offset)?;
    bytes.extend_from_slice(&tree.bytes);
    Some(Image { bytes, block_count, index_offset, tree })
}

/// The blocks, and those that stand for what is lost between them.
fn children(found: &[Found], end: u64, meta: &FileMeta) -> Option<Vec<Child>> {
    let last = found.last()?;
    let entries = found.iter().fold(0_u64, |sum, block| sum.saturating_add(block.entries));
    let one_version = meta.kind.has_one_version();
    let mut children: Vec<Child> = Vec::new();
    let mut push = |separator: Separator, handle: Handle| {
        let number = u32::try_from(children.len()).ok()?;
        children.push(Child { separator, handle: Handle { number, ..handle }, rank: 0 });
        Some(())
    };
    // What is lost may begin with anything behind the entry before it.
    let behind = |(key, revision): &End| {
        if one_version {
            Separator { key: [&key[..], &[0]].concat(), revision: u64::MAX }
        } else {
            Separator { key: key.clone(), revision: revision.saturating_sub(1) }
        }
    };
    let gap = |from: u64, to: u64| {
        let bytes = u32::try_from(to.checked_sub(from)?).ok()?;
        Some(Handle { offset: from, bytes, number: 0 })
    };
    let (mut upto, mut before, mut has_gaps) = (HEADER_BYTES as u64, None::<&End>, false);
    for block in found {
        let (key, revision) = &block.first;
        let separator = if block.handle.offset > upto {
            has_gaps = true;
            push(before.map_or_else(Separator::first, behind), gap(upto, block.handle.offset)?)?;
            let revision = if one_version { u64::MAX } else { *revision };
            Separator { key: key.clone(), revision }
        } else {
            let between = |before: &End| Separator::between((&before.0, before.1), key);
            before.map_or_else(Separator::first, between)
        };
        push(separator, block.handle)?;
        upto = block.handle.offset + u64::from(block.handle.bytes);
        before = Some(&block.last);
    }
    let is_short = !has_gaps && entries < meta.entries;
    if last.last.0 != meta.last_key || is_short {
        push(behind(&last.last), gap(upto, end)?)?;
    }
    Some(children)
}

/// Writes what is behind the index.
fn finish(image: &mut Image, dictionary: Option<&[u8]>, (meta, place): (&FileMeta, &Place)) {
    let filter_offset = image.bytes.len() as u64;
    if let Some(content) = dictionary {
        dictionary::encode(&mut image.bytes, content, FileSeed::new(place), filter_offset);
    }
    let end = image.bytes.len() as u64;
    let footer = Footer {
        block_count: image.block_count,
        page_count: image.tree.page_count,
        root: image.tree.root,
        height: image.tree.height,
        filter_offset,
        dictionary_bytes: end - filter_offset,
        ..new_footer(meta, place.at(end), image.index_offset)
    };
    footer.encode(&mut image.bytes);
}
