//! A segment of which the ends or the index cannot be read, or that has another length than it should, found again by its
//! blocks: each has a checksum that holds for its place in a file of this kind and number of the store alone.
//!
//! What is found is put into memory with an index made anew, and read as any other segment. Between blocks that are found
//! and do not follow each other are some that are damaged; in the index one stands for them, which cannot be read:
//!
//! ```text
//! file    header  block  block  ~~~~~~~  block  block  pages  [filter]  [dictionary]  footer
//! memory  header  block  block  0000~~~  block  block  ...............................  pages
//! ```
//!
//! Filter and dictionary are used where they can be read. A dictionary has a checksum for its place, too, so it is found
//! without a footer; a filter is not looked for.
//!
//! A file with the same name may be of another incarnation of the store, that of a copy. That its ends tell, as far as they
//! can be read: then it is not this file.

use std::sync::Arc;

use annals_format::FileMeta;
use annals_format::Place;
use annals_format::block::{BLOCK_HEADER_BYTES, BLOCK_MAGIC, BlockHeader, compare};
use annals_format::checksum::FileSeed;
use annals_format::dictionary::{
    self, DICTIONARY_BYTES_MAX, DICTIONARY_HEADER_BYTES, DICTIONARY_MAGIC,
};
use annals_format::filter::{Filter, Shape};
use annals_format::page::{Child, Handle, Separator};
use annals_format::segment::{FOOTER_BYTES, Footer, HEADER_BYTES, Header};
use annals_format::{FileKind, entry::EntryRef};
use bytes::Bytes;

use super::bits::Bits;
use super::blocks::{Caching, LastBase};
use super::body_cursor::BodyCursor;
use super::cache::BlockCache;
use super::compress::Dictionary;
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
use crate::vfs::{Access, File, MemoryVfs, Vfs as _};

/// Checksums are computed of so many times as many bytes as the file has, at most: there may be more that looks like a block
/// than there are blocks.
const SUMMED_MAX: u64 = 16;

/// What is read at a time; where that cannot be done, a sector after the other.
const PIECE_BYTES: usize = 64 << 10;
const SECTOR_BYTES: usize = 512;

/// A key, and the revision of its version.
type End = (Vec<u8>, u64);

/// A block that can be read, with its first entry and its last.
struct Found {
    handle: Handle,
    entries: u64,
    first: End,
    last: End,
}

/// What is left of the end of a file.
struct Ends {
    footer: Option<Footer>,
    filter: Option<(Shape, Bytes)>,
    /// The content of the dictionary.
    dictionary: Option<Bytes>,
}

impl Segment {
    /// Reads the blocks of a file that can be found, if it is not longer than `room`. `None` if there are none, or if it is
    /// another file.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn regain(
        context: &SegmentContext,
        meta: &FileMeta,
        blobs: &Blobs,
        room: u64,
    ) -> Result<Option<Self>> {
        let place = context.place(meta.kind, meta.number);
        let Some(mut content) = read_all(context, meta, room)? else { return Ok(None) };
        let ends = Ends::of(&content, &place);
        if !ends.is_of(meta, &content, &place) {
            return Ok(None);
        }
        let end = content.len() as u64;
        let found = {
            let file = opened(context, (meta, &content), (blobs, &ends), end)?;
            blocks(&file, &content, meta)
        };
        let Some(children) = children(&found, &mut content, meta, ends.footer.as_ref()) else {
            return Ok(None);
        };
        let Ok(block_count) = u32::try_from(children.len()) else { return Ok(None) };
        let Some(tree) = tree::build(children, FileSeed::new(&place), end) else { return Ok(None) };
        content.extend_from_slice(&tree.bytes);
        let mut file = opened(context, (meta, &content), (blobs, &ends), end)?;
        file.checked_blocks = Bits::new(block_count);
        file.checked_pages = Bits::new(tree.page_count);
        file.footer = Footer {
            block_count,
            page_count: tree.page_count,
            root: tree.root,
            height: tree.height,
            ..file.footer
        };
        Ok(Some(Self::of_opened(context, meta, file)))
    }
}

/// All of the file up to the length that it should have, zero where it cannot be read; `None` if it is not there, too long,
/// or ends in its header.
fn read_all(context: &SegmentContext, meta: &FileMeta, room: u64) -> Result<Option<Vec<u8>>> {
    let path = context.path(meta.kind, meta.number);
    let failed = |error| Error::io("read a segment", &path, error);
    let file = match context.vfs.open(&path, Access::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let bytes = file.len().map_err(failed)?.min(meta.bytes);
    let bytes =
        usize::try_from(bytes).ok().filter(|_| bytes > HEADER_BYTES as u64 && bytes <= room);
    Ok(bytes.map(|bytes| {
        let mut content = vec![0; bytes];
        for (piece, at) in content.chunks_mut(PIECE_BYTES).zip((0..).step_by(PIECE_BYTES)) {
            if !read_piece(&*file, piece, at) {
                for (sector, n) in piece.chunks_mut(SECTOR_BYTES).zip((0..).step_by(SECTOR_BYTES)) {
                    read_piece(&*file, sector, at + n);
                }
            }
        }
        content
    }))
}

/// Whether a piece could be read; it is zero else.
fn read_piece(file: &dyn File, piece: &mut [u8], at: u64) -> bool {
    let read = file.read_vec_at(piece.len(), at);
    let read = read.ok().filter(|read| read.len() == piece.len());
    read.is_some_and(|read| {
        piece.copy_from_slice(&read);
        true
    })
}

impl Ends {
    fn of(content: &[u8], place: &Place) -> Self {
        let footer = content.len().checked_sub(FOOTER_BYTES).and_then(|offset| {
            Footer::decode(content.get(offset..)?, &place.at(offset as u64)).ok()
        });
        let part = |offset: u64, bytes: u64| {
            let start = usize::try_from(offset).ok()?;
            content.get(start..start.checked_add(usize::try_from(bytes).ok()?)?)
        };
        let seed = FileSeed::new(place);
        let filter = footer.as_ref().filter(|footer| footer.filter_bytes > 0).and_then(|footer| {
            let bytes = Bytes::copy_from_slice(part(footer.filter_offset, footer.filter_bytes)?);
            Filter::check_crc(&bytes, seed, footer.filter_offset).ok()?;
            let filter = Filter::decode(&bytes).ok()?;
            Some((filter.shape(), bytes.slice_ref(filter.table())))
        });
        let of_footer = |footer: &Footer| {
            let (offset, bytes) = (footer.dictionary_offset(), footer.dictionary_bytes);
            let content = dictionary::decode(part(offset, bytes)?, seed, offset).ok()?;
            Some(Bytes::copy_from_slice(content))
        };
        let dictionary = match &footer {
            Some(footer) => of_footer(footer),
            None => find_dictionary(content, seed),
        };
        Self { footer, filter, dictionary }
    }

    /// Whether what can be read of the ends is what the manifest says.
    fn is_of(&self, meta: &FileMeta, content: &[u8], place: &Place) -> bool {
        let header =
            content.get(..HEADER_BYTES).and_then(|bytes| Header::decode(bytes, place).ok());
        let is_header = header.is_none_or(|header| {
            (header.class, header.incarnation) == (meta.class, meta.incarnation)
        });
        let is_footer = self.footer.as_ref().is_none_or(|footer| {
            (footer.class, footer.incarnation, footer.entries)
                == (meta.class, meta.incarnation, meta.entries)
                && (footer.min_revision, footer.max_revision)
                    == (meta.min_revision, meta.max_revision)
                && (footer.death_after, footer.death_upto) == (meta.death_after, meta.death_upto)
        });
        is_header && is_footer
    }
}

/// A dictionary, wherever it is.
fn find_dictionary(content: &[u8], seed: FileSeed) -> Option<Bytes> {
    let start = DICTIONARY_MAGIC.to_le_bytes();
    let mut left = (content.len() as u64).saturating_mul(SUMMED_MAX);
    // It is behind all blocks.
    for at in (HEADER_BYTES..content.len()).rev() {
        let rest = content.get(at..).unwrap_or_default();
        let Some(bytes) = rest.get(4..8).filter(|_| rest.starts_with(&start)) else { continue };
        let bytes = u32::from_le_bytes(bytes.try_into().ok()?) as usize;
        let section =
            (bytes <= DICTIONARY_BYTES_MAX).then(|| rest.get(..DICTIONARY_HEADER_BYTES + bytes));
        let Some(section) = section.flatten() else { continue };
        left = left.checked_sub(section.len() as u64)?;
        if let Ok(content) = dictionary::decode(section, seed, at as u64) {
            return Some(Bytes::copy_from_slice(content));
        }
    }
    None
}

/// What is read by, before there is an index: the pages are to be between this place and the end.
fn opened(
    context: &SegmentContext,
    (meta, content): (&FileMeta, &[u8]),
    (blobs, ends): (&Blobs, &Ends),
    index_offset: u64,
) -> Result<Opened> {
    let place = context.place(meta.kind, meta.number);
    let bytes = content.len() as u64;
    let context = in_memory(context, meta, content)?;
    let source = Source::open(&context, &FileMeta { bytes, ..meta.clone() })?;
    Ok(Opened {
        source: Arc::new(source),
        cache: context.cache.clone(),
        seed: FileSeed::new(&place),
        kind: meta.kind,
        number: meta.number,
        footer: Footer {
            place: place.at(bytes),
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
            block_count: u32::MAX,
            page_count: 0,
            index_offset,
            root: Handle::default(),
            height: 0,
            filter_offset: bytes,
            // That there is one; it has been read.
            filter_bytes: u64::from(ends.filter.is_some()),
            dictionary_bytes: u64::from(ends.dictionary.is_some()),
            living: 0,
        },
        blobs: Arc::clone(blobs),
        checked_blocks: Bits::new(0),
        checked_pages: Bits::new(0),
        filter: ends.filter.clone().map_or_else(OnceLock::new, OnceLock::from),
        dictionary: ends
            .dictionary
            .clone()
            .map_or_else(OnceLock::new, |content| OnceLock::from(Dictionary::new(content))),
    })
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

/// The blocks that can be found and read, in order.
fn blocks(file: &Opened, content: &[u8], meta: &FileMeta) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    let [low, high] = BLOCK_MAGIC.to_le_bytes();
    let start = [low, high, meta.kind.number()];
    let mut left = (content.len() as u64).saturating_mul(SUMMED_MAX);
    let (mut at, mut base) = (HEADER_BYTES, None);
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
        let read = is_whole.then(|| read(file, (handle, block), meta, &mut base)).flatten();
        match read.filter(|read| follows(found.last(), read, meta)) {
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

/// Whether a block can come behind another one of the file.
fn follows(before: Option<&Found>, read: &Found, meta: &FileMeta) -> bool {
    let (first, last) = (&read.first, &read.last);
    let is_behind = match before {
        Some(Found { last: (key, revision), .. }) => {
            compare(key, *revision, &first.0, first.1).is_lt()
        }
        None => meta.first_key <= first.0,
    };
    is_behind && last.0 <= meta.last_key
}

/// Reads all entries of a block; `None` where that cannot be done, or they are not of this file.
fn read(
    file: &Opened,
    (handle, block): (Handle, &[u8]),
    meta: &FileMeta,
    base: &mut LastBase,
) -> Option<Found> {
    let entries = BlockHeader::entry_count_of(block).ok()?;
    let block = file.block(handle, Caching::Bypass, base).ok()?;
    let in_groups = block.in_groups;
    let bytes = block.into_bytes(file).ok()?;
    let mut seen = Seen::default();
    if in_groups {
        let mut cursor = GroupCursor::new(Caching::Bypass, Want::Fields);
        cursor.load(handle, bytes);
        cursor.first(file).ok()?;
        while let Some(entry) = cursor.entry() {
            seen.see(&entry, meta)?;
            cursor.next(file).ok()?;
        }
    } else {
        let mut cursor = BodyCursor::default();
        cursor.load(handle, bytes);
        cursor.first(file).ok()?;
        while let Some(entry) = cursor.entry() {
            seen.see(&entry, meta)?;
            cursor.next(file).ok()?;
        }
    }
    let first = seen.first.filter(|_| seen.entries == u64::from(entries))?;
    Some(Found { handle, entries: seen.entries, first, last: seen.last })
}

/// What was seen of a block.
#[derive(Default)]
struct Seen {
    entries: u64,
    first: Option<End>,
    last: End,
}

impl Seen {
    /// `None` for an entry that cannot be of this file, or not here.
    fn see(&mut self, entry: &EntryRef<'_>, meta: &FileMeta) -> Option<()> {
        let (key, revision) = &self.last;
        let ascends =
            self.first.is_none() || compare(key, *revision, entry.key, entry.revision).is_lt();
        // A manifest that was made of names may not say.
        let revisions = meta.min_revision..=meta.max_revision;
        let is_in = meta.entries == 0 || revisions.contains(&entry.revision);
        self.first.get_or_insert_with(|| (entry.key.to_vec(), entry.revision));
        self.last.0.clear();
        self.last.0.extend_from_slice(entry.key);
        self.last.1 = entry.revision;
        self.entries += 1;
        (ascends && is_in).then_some(())
    }
}

/// The blocks, and those that stand for what is lost between them: their first bytes are made zero, so that nobody takes one
/// for a block. `None` where there are no blocks.
fn children(
    found: &[Found],
    content: &mut [u8],
    meta: &FileMeta,
    footer: Option<&Footer>,
) -> Option<Vec<Child>> {
    let last = found.last()?;
    let entries = found.iter().fold(0_u64, |sum, block| sum.saturating_add(block.entries));
    let end = footer.map_or(content.len() as u64, |footer| footer.index_offset);
    let mut children: Vec<Child> = Vec::new();
    let mut push = |separator: Separator, handle: Handle| {
        let number = u32::try_from(children.len()).ok()?;
        children.push(Child { separator, handle: Handle { number, ..handle }, rank: 0 });
        Some(())
    };
    // Where a key has more than one version, what is lost may begin with others of the last.
    let has_versions = meta.kind == FileKind::History;
    let behind = |(key, revision): &End| {
        if has_versions {
            Separator { key: key.clone(), revision: revision.saturating_sub(1) }
        } else {
            Separator { key: [&key[..], &[0]].concat(), revision: u64::MAX }
        }
    };
    let mut gap = |from: u64, to: u64| {
        let bytes = to.saturating_sub(from).min(BLOCK_HEADER_BYTES as u64);
        let start = usize::try_from(from).ok()?;
        let lost = start..start.saturating_add(usize::try_from(bytes).ok()?);
        content.get_mut(lost)?.fill(0);
        Some(Handle { offset: from, bytes: u32::try_from(bytes).ok()?, number: 0 })
    };
    let (mut upto, mut before) = (HEADER_BYTES as u64, None::<&End>);
    for block in found {
        let (key, revision) = &block.first;
        let separator = if block.handle.offset > upto {
            push(before.map_or_else(Separator::first, behind), gap(upto, block.handle.offset)?)?;
            let revision = if has_versions { *revision } else { u64::MAX };
            Separator { key: key.clone(), revision }
        } else {
            let between = |before: &End| Separator::between((&before.0, before.1), key);
            before.map_or_else(Separator::first, between)
        };
        push(separator, block.handle)?;
        upto = block.handle.offset + u64::from(block.handle.bytes);
        before = Some(&block.last);
    }
    let is_cut = match footer {
        Some(_) => upto < end,
        None => last.last.0 != meta.last_key || (has_versions && entries < meta.entries),
    };
    if is_cut {
        push(behind(&last.last), gap(upto, end)?)?;
    }
    Some(children)
}
