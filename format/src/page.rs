//! A page of the static B+tree over (key, revision), read in place.
//!
//! ```text
//! page := header(24) head:u64{count} item_offset:u32{count} prefix:bytes(prefix_bytes) item{count}
//! item := revision:u64 child_offset:u64 child_bytes:u32 rank:i32 key_suffix:bytes
//! ```
//!
//! An item stands for a child: a block in a leaf (level 0), a page one level down in a branch. Its
//! **separator** (prefix + key suffix, revision) divides the entries: every entry before the child
//! sorts before the separator, every entry in the child at or after it. Between two blocks it is
//! the shortest such: if both sides have the same key, (key, revision of the entry before - 1), else
//! (shortest prefix of the later key that is above the earlier key, 2^64 - 1). The first separator
//! of a file is (empty, 2^64 - 1). A branch repeats the separator of its child's first item.
//! It follows that a lookup of (key, at) needs exactly one block.
//!
//! Its **rank** is how many living keys the file's entries before the child make up, as
//! [`living`](crate::living) counts them. So the keys that live between two bounds are counted by a
//! look-up of each: the difference of two ranks, and of what lies before the bounds in their blocks.
//! A branch repeats the rank of its child's first item.
//!
//! `head` is the first eight bytes of the key suffix as a big-endian number, zero-filled, so that
//! most of a search touches one short array of numbers.
//!
//! Children are numbered: blocks in file order from 0, pages in file order from 0 (leaves first, the
//! root last). `first_child` is the number of item 0's child; the others follow without gaps.

use std::cmp::Ordering;
use std::hint::select_unpredictable;

use crate::block::compare;
use crate::checksum::FileSeed;
use crate::cursor::{Reader, Writer};
use crate::entry::common_prefix;
use crate::error::{DecodeError, Problem, Result};
use crate::layout::{Layout, field};
use crate::limits::PAGE_BYTES_MAX;

/// The first two bytes of every page: "aP".
pub const PAGE_MAGIC: u16 = u16::from_le_bytes(*b"aP");
/// Bytes of a page's header.
pub const PAGE_HEADER_BYTES: usize = 24;
/// A page is ended when it has reached this size and has two items.
pub const PAGE_BYTES_TARGET: usize = 4096;
/// Most levels a tree may have; far more than any file can fill.
pub const LEVELS_MAX: u8 = 24;

const ITEM_FIXED_BYTES: usize = 24;
const PAGE: &str = "index page";

/// The byte map of a page's header, as in SPEC-segment.md.
pub const PAGE_LAYOUT: Layout = Layout {
    structure: PAGE,
    fields: &[
        field(0, 2, "magic"),
        field(2, 1, "level"),
        field(3, 1, "zero"),
        field(4, 4, "count"),
        field(8, 4, "page_bytes"),
        field(12, 4, "first_child"),
        field(16, 4, "prefix_bytes"),
        field(20, 4, "crc"),
    ],
};

const _: () = assert!(PAGE_LAYOUT.bytes() == PAGE_HEADER_BYTES);

/// Where a block or a page lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handle {
    /// Offset in the file.
    pub offset: u64,
    /// Length, header included.
    pub bytes: u32,
    /// Number among its kind, from 0.
    pub number: u32,
}

/// The point that divides a child from everything before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Separator {
    /// Part of a key.
    pub key: Vec<u8>,
    /// Entries of exactly this key with a higher revision lie before.
    pub revision: u64,
}

impl Separator {
    /// The separator of the first block of a file.
    pub const fn first() -> Self {
        Self { key: Vec::new(), revision: u64::MAX }
    }

    /// The shortest separator between two neighbouring entries.
    pub fn between(before: (&[u8], u64), after: &[u8]) -> Self {
        let (key, revision) = before;
        if key == after {
            return Self { key: after.to_vec(), revision: revision.saturating_sub(1) };
        }
        let bytes = common_prefix(key, after) + 1;
        Self { key: after.get(..bytes).unwrap_or(after).to_vec(), revision: u64::MAX }
    }
}

/// Builds one page item by item.
#[derive(Debug)]
pub struct PageBuilder {
    level: u8,
    items: Vec<Child>,
    key_bytes: usize,
}

/// What an item says of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Divides the child from everything before it.
    pub separator: Separator,
    /// Where it lies.
    pub handle: Handle,
    /// Living keys before it.
    pub rank: i32,
}

impl PageBuilder {
    /// An empty page of this level.
    pub const fn new(level: u8) -> Self {
        Self { level, items: Vec::new(), key_bytes: 0 }
    }

    /// Appends an item; separators ascend and handle numbers follow each other.
    pub fn push(&mut self, child: Child) {
        self.key_bytes += child.separator.key.len();
        self.items.push(child);
    }

    /// Whether the page should be ended. A page has at least two items, so that every level is at
    /// most half as long as the one below.
    pub fn is_full(&self) -> bool {
        let fixed = PAGE_HEADER_BYTES + self.items.len() * (ITEM_FIXED_BYTES + 12);
        self.items.len() >= 2 && fixed + self.key_bytes >= PAGE_BYTES_TARGET
    }

    /// Whether nothing has been pushed.
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The first item.
    pub fn first(&self) -> Option<&Child> {
        self.items.first()
    }

    /// Appends the page, which begins at `offset` of its file, to `out`, and starts over. Answers
    /// its length.
    pub fn finish(&mut self, out: &mut Vec<u8>, seed: FileSeed, offset: u64) -> u32 {
        let items = std::mem::take(&mut self.items);
        self.key_bytes = 0;
        let first = items.first().map_or(&[][..], |child| &child.separator.key);
        let last = items.last().map_or(&[][..], |child| &child.separator.key);
        // Keys ascend, so what the first and the last share, all share.
        let prefix = first.get(..common_prefix(first, last)).unwrap_or_default();
        let suffix = |separator: &Separator| -> Vec<u8> {
            separator.key.get(prefix.len()..).unwrap_or_default().to_vec()
        };

        let fixed = PAGE_HEADER_BYTES + items.len() * 12 + prefix.len();
        let mut heads = Vec::new();
        let mut offsets = Vec::new();
        let mut body = Vec::new();
        for Child { separator, handle, rank } in &items {
            let suffix = suffix(separator);
            heads.put_u64(head_of(&suffix));
            offsets.put_u32(narrow(fixed + body.len()));
            body.put_u64(separator.revision);
            body.put_u64(handle.offset);
            body.put_u32(handle.bytes);
            body.put_u32(rank.cast_unsigned());
            body.put_bytes(&suffix);
        }
        let page_bytes = narrow(fixed + body.len());

        let mut header = Vec::with_capacity(PAGE_HEADER_BYTES);
        header.put_u16(PAGE_MAGIC);
        header.put_u8(self.level);
        header.put_u8(0);
        header.put_u32(narrow(items.len()));
        header.put_u32(page_bytes);
        header.put_u32(items.first().map_or(0, |child| child.handle.number));
        header.put_u32(narrow(prefix.len()));
        let crc = seed.crc(offset, &[&header, &heads, &offsets, prefix, &body]);
        out.put_bytes(&header);
        out.put_u32(crc);
        for part in [&heads, &offsets, prefix, &body] {
            out.put_bytes(part);
        }
        page_bytes
    }
}

/// Pages and keys are far below 4 GiB, see `limits`.
fn narrow(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The first eight bytes as a big-endian number, zero-filled.
fn head_of(suffix: &[u8]) -> u64 {
    match suffix.first_chunk::<8>() {
        Some(head) => u64::from_be_bytes(*head),
        None => {
            suffix.iter().zip((0..8).rev()).fold(0, |sum, (b, i)| sum | u64::from(*b) << (8 * i))
        }
    }
}

/// A page, read in place.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    bytes: &'a [u8],
    level: u8,
    first_child: u32,
    heads: &'a [[u8; 8]],
    offsets: &'a [[u8; 4]],
    prefix: &'a [u8],
}

/// An item of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageItem<'a> {
    /// The separator's key without the page's prefix.
    pub key_suffix: &'a [u8],
    /// The separator's revision.
    pub revision: u64,
    /// The child.
    pub child: Handle,
    /// Living keys in all that lies before the child.
    pub rank: i32,
}

impl<'a> Page<'a> {
    /// Finds the parts of a page, which must be all of `bytes`. The checksum is not computed;
    /// [`check_crc`](Self::check_crc) does that, once, on the first touch.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(PAGE, bytes);
        // One piece: a look-up comes here on every level.
        let [m0, m1, level, zero, header @ ..] = reader.array::<PAGE_HEADER_BYTES>("header")?;
        let [c0, c1, c2, c3, b0, b1, b2, b3, f0, f1, f2, f3, p0, p1, p2, p3, ..] = header;
        let found = u16::from_le_bytes([m0, m1]);
        if found != PAGE_MAGIC {
            let (expected, found) = (u32::from(PAGE_MAGIC), u32::from(found));
            return Err(reader.error_at("magic", 0, Problem::Magic { expected, found }));
        }
        if level >= LEVELS_MAX {
            let found = u64::from(level);
            return Err(reader.error_at("level", 2, Problem::Invalid { found }));
        }
        if zero != 0 {
            return Err(reader.error_at("zero", 3, Problem::NotZero));
        }
        let count = u32::from_le_bytes([c0, c1, c2, c3]);
        let page_bytes = u32::from_le_bytes([b0, b1, b2, b3]);
        let (expected, found) = (bytes.len() as u64, u64::from(page_bytes));
        if expected != found || found > PAGE_BYTES_MAX {
            return Err(reader.error_at("page_bytes", 8, Problem::Mismatch { expected, found }));
        }
        let first_child = u32::from_le_bytes([f0, f1, f2, f3]);
        let prefix_bytes = u32::from_le_bytes([p0, p1, p2, p3]);
        let found = u64::from(count);
        if count == 0 || found * 12 > reader.remaining() as u64 {
            return Err(reader.error_at("count", 4, Problem::Invalid { found }));
        }
        if first_child.checked_add(count).is_none() {
            let found = u64::from(first_child);
            return Err(reader.error_at("first_child", 12, Problem::Invalid { found }));
        }
        // The multiplications cannot overflow: both are bounded by the bytes that are left.
        let count = count as usize;
        let (heads, _) = reader.bytes("head", count * 8)?.as_chunks::<8>();
        let (offsets, _) = reader.bytes("item_offset", count * 4)?.as_chunks::<4>();
        let prefix = reader.bytes("prefix", prefix_bytes as usize)?;
        Ok(Self { bytes, level, first_child, heads, offsets, prefix })
    }

    /// Compares the checksum of a whole page, as given to [`decode`](Self::decode).
    pub fn check_crc(bytes: &[u8], seed: FileSeed, offset: u64) -> Result<()> {
        let mut reader = Reader::new(PAGE, bytes);
        reader.bytes("magic", PAGE_HEADER_BYTES - 4)?;
        let header = reader.consumed();
        let rest = bytes.get(PAGE_HEADER_BYTES..).unwrap_or_default();
        reader.checksum("crc", seed.crc(offset, &[header, rest]))
    }

    /// 0 for a leaf, whose children are blocks.
    pub const fn level(&self) -> u8 {
        self.level
    }

    /// How many items it has, at least 1.
    pub const fn count(&self) -> usize {
        self.heads.len()
    }

    /// What the keys of all separators begin with.
    pub const fn prefix(&self) -> &'a [u8] {
        self.prefix
    }

    /// Item `index`.
    pub fn item(&self, index: usize) -> Result<PageItem<'a>> {
        let start = self.item_offset(index)?;
        let end =
            if index + 1 < self.count() { self.item_offset(index + 1)? } else { self.bytes.len() };
        let item = self.bytes.get(start..end).and_then(<[u8]>::split_first_chunk);
        let Some((fixed, key_suffix)) = item else { return Err(item_truncated(start, end)) };
        let &[
            r0,
            r1,
            r2,
            r3,
            r4,
            r5,
            r6,
            r7,
            o0,
            o1,
            o2,
            o3,
            o4,
            o5,
            o6,
            o7,
            b0,
            b1,
            b2,
            b3,
            l0,
            l1,
            l2,
            l3,
        ]: &[u8; ITEM_FIXED_BYTES] = fixed;
        let revision = u64::from_le_bytes([r0, r1, r2, r3, r4, r5, r6, r7]);
        let offset = u64::from_le_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
        let bytes = u32::from_le_bytes([b0, b1, b2, b3]);
        // The sum was checked in `decode`; `index` is below `count`, a u32.
        let number = self.first_child.wrapping_add(narrow(index));
        let child = Handle { offset, bytes, number };
        let rank = i32::from_le_bytes([l0, l1, l2, l3]);
        Ok(PageItem { key_suffix, revision, child, rank })
    }

    /// The last item whose separator is at or before (`key`, `revision`), else the first item.
    pub fn search(&self, key: &[u8], revision: u64) -> Result<usize> {
        let Some(suffix) = key.strip_prefix(self.prefix) else {
            // The key differs from all separators in the same direction.
            return Ok(if key > self.prefix { self.count() - 1 } else { 0 });
        };
        let head = head_of(suffix);
        let first = self.heads_below(head);
        // Items `first..high` have the head of the key, and those from `high` on a higher one.
        let (mut low, mut high) = (first, self.count());
        if self.head(low) != Some(head) {
            high = low;
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.head(middle) == Some(head) && !self.is_after(middle, suffix, revision)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low.saturating_sub(1))
    }

    /// How many items have a head below this one; they come first.
    ///
    /// Which way a step goes depends on the keys, so no processor could foresee it: no step branches.
    fn heads_below(&self, head: u64) -> usize {
        let is_below =
            |other: Option<&[u8; 8]>| other.is_some_and(|o| u64::from_le_bytes(*o) < head);
        let (mut below, mut left) = (0, self.heads);
        // Invariant: `below` items come before `left` and have lower heads, what comes after it has not.
        while left.len() > 1 {
            let (before, after) = left.split_at(left.len() / 2);
            let goes_on = is_below(before.last());
            below += select_unpredictable(goes_on, before.len(), 0);
            left = select_unpredictable(goes_on, after, before);
        }
        below + usize::from(is_below(left.first()))
    }

    fn head(&self, index: usize) -> Option<u64> {
        self.heads.get(index).map(|head| u64::from_le_bytes(*head))
    }

    /// Whether the separator of an item is after (prefix + `suffix`, `revision`).
    fn is_after(&self, index: usize, suffix: &[u8], revision: u64) -> Result<bool> {
        let item = self.item(index)?;
        Ok(compare(item.key_suffix, item.revision, suffix, revision) == Ordering::Greater)
    }

    /// Checks everything a page promises by itself: items back to back in order, heads that agree,
    /// the longest prefix. Hands out the items with whole keys.
    pub fn check(&self, mut each: impl FnMut(&[u8], &PageItem<'a>)) -> Result<()> {
        let fail = |field, offset: usize, problem| DecodeError {
            structure: PAGE,
            field,
            offset: offset as u64,
            problem,
        };
        let first = PAGE_HEADER_BYTES + self.count() * 12 + self.prefix.len();
        if self.item_offset(0)? != first {
            return Err(fail("item_offset", PAGE_HEADER_BYTES, Problem::Order));
        }
        let mut last: Option<(Vec<u8>, u64)> = None;
        for index in 0..self.count() {
            let item = self.item(index)?;
            let offset = self.item_offset(index)?;
            let head = self.heads.get(index).map(|head| u64::from_le_bytes(*head));
            if head != Some(head_of(item.key_suffix)) {
                return Err(fail("head", PAGE_HEADER_BYTES + 8 * index, Problem::Order));
            }
            let mut key = self.prefix.to_vec();
            key.extend_from_slice(item.key_suffix);
            if let Some((before, revision)) = &last
                && compare(before, *revision, &key, item.revision) != Ordering::Less
            {
                return Err(fail("item", offset, Problem::Order));
            }
            each(&key, &item);
            last = Some((key, item.revision));
        }
        let first_suffix = self.item(0)?.key_suffix;
        let last_suffix = self.item(self.count() - 1)?.key_suffix;
        if common_prefix(first_suffix, last_suffix) != 0 {
            return Err(fail("prefix", first, Problem::Order));
        }
        Ok(())
    }

    fn item_offset(&self, index: usize) -> Result<usize> {
        let found = self.offsets.get(index).map_or(u32::MAX, |bytes| u32::from_le_bytes(*bytes));
        // A page is not that long, so where this is cut off it is refused too.
        let offset = usize::try_from(found).unwrap_or(usize::MAX);
        match self.bytes.len().checked_sub(ITEM_FIXED_BYTES) {
            Some(last) if offset <= last => Ok(offset),
            _ => Err(self.offset_outside(index, found)),
        }
    }

    #[cold]
    fn offset_outside(&self, index: usize, found: u32) -> DecodeError {
        let offset =
            (PAGE_HEADER_BYTES + self.count() * 8).saturating_add(index.saturating_mul(4)) as u64;
        let problem = Problem::TooLong { max: self.bytes.len() as u64, found: found.into() };
        DecodeError { structure: PAGE, field: "item_offset", offset, problem }
    }
}

#[cold]
fn item_truncated(start: usize, end: usize) -> DecodeError {
    let (needed, have) = (ITEM_FIXED_BYTES as u64, end.saturating_sub(start) as u64);
    let problem = Problem::Truncated { needed, have };
    DecodeError { structure: PAGE, field: "item", offset: start as u64, problem }
}
