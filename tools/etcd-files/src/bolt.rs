//! Files of bbolt, for reading: pages, the trees they make up, and the buckets that these are.
//!
//! ```text
//! page    := id:u64 flags:u16 count:u16 overflow:u32    and content, over 1 + overflow pages of the file
//! meta    := page, then magic:u32 version:u32 page_size:u32 flags:u32 root:{pgid:u64 sequence:u64}
//!            freelist:u64 high_water:u64 txid:u64 fnv1a:u64       pages 0 and 1; the valid one with the higher txid counts
//! branch  := page, then count x {pos:u32 key_bytes:u32 pgid:u64}
//! leaf    := page, then count x {flags:u32 pos:u32 key_bytes:u32 value_bytes:u32}
//! bucket  := root:u64 sequence:u64, and where root is 0 a leaf page, with its header
//! free    := page, then count x id:u64; a count of 0xffff is in the first of these
//! ```
//!
//! Numbers are little-endian. `pos` counts from the element itself; a value follows its key. A bucket is the
//! value of a leaf element with flag 1.
//!
//! Bounds: the pages of the file that those in a walk span are counted; and a walk goes 64 pages deep. Keys ascend
//! over a whole bucket, and no two elements share bytes: so what is handed out is no longer than the file. What
//! of a page is in memory says `page.rs`.
//!
//! Pages have no checksums. So that damage to a tree does not pass for a smaller one, a page below a branch has
//! to begin with the key that the branch has for it, must not be empty, and not be in the list of free pages. That
//! of etcd 3.4 has no such list: an old copy of a page in place of the new one then goes unnoticed.

use crate::bytes::{u16_at, u32_at, u64_at};
use crate::page::{Area, ELEMENT_BYTES, FLAG_BRANCH, FLAG_LEAF, HEADER_BYTES, Page};
use crate::{Error, Result, Source};

pub use crate::page::{Item, Place};

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
/// Bytes of a bucket before the page within.
const BUCKET_BYTES: usize = 16;
/// Bytes of a meta page that are its own: up to the checksum, and with it.
const META_SUMMED_BYTES: usize = 56;
const META_BYTES: usize = META_SUMMED_BYTES + 8;
/// Where the content of a page begins.
const META_AT: usize = 16;
const PAGE_BYTES_MIN: u64 = 1 << 10;
const PAGE_BYTES_MAX: u64 = 1 << 24;
const FLAG_META: u16 = 4;
const FLAG_FREE: u16 = 16;
/// The page of the list of free pages where there is none.
const NO_FREELIST: u64 = u64::MAX;
/// bbolt takes no longer key.
const KEY_BYTES_MAX: usize = 1 << 15;
const DEPTH_MAX: u32 = 64;
/// What a page spans at most: a value is shorter than 2 GiB.
const SPAN_BYTES_MAX: u64 = 2 << 30;

/// A file of bbolt.
#[derive(Debug)]
pub struct Bolt<S> {
    source: S,
    page_bytes: u64,
    /// Pages from this one on are not used.
    high_water: u64,
    root: u64,
    /// Pages that are not in use, ascending.
    free: Vec<u64>,
}

/// A bucket: a tree of its own, or a page within that of the bucket it is in.
#[derive(Clone, Debug)]
pub struct Bucket(Root);

#[derive(Clone, Debug)]
enum Root {
    Page(u64),
    Inline { page: u64, offset: u64, bytes: Vec<u8> },
}

impl Item<'_> {
    /// The bucket that it is.
    ///
    /// # Errors
    /// It is none.
    pub fn bucket(&self) -> Result<Bucket> {
        let parts = self.value.split_at_checked(BUCKET_BYTES);
        let Some((Some(root), inline)) = parts.map(|(bucket, rest)| (u64_at(bucket, 0), rest))
        else {
            return Err(self.refused("a bucket of less than 16 bytes"));
        };
        if !self.is_bucket {
            return Err(self.refused("a value where a bucket should be"));
        }
        Ok(Bucket(match root {
            0 => Root::Inline { page: self.page, offset: self.offset, bytes: inline.to_vec() },
            page => Root::Page(page),
        }))
    }
}

/// The checksum of a meta page, as bbolt makes it.
pub fn meta_checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// What a meta page says.
#[derive(Clone, Copy, Debug)]
struct Meta {
    page_bytes: u64,
    root: u64,
    freelist: u64,
    high_water: u64,
    transaction: u64,
}

impl Meta {
    /// Reads one, with its page header; `None` if it is none.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let flags = u16_at(bytes, 8)?;
        let meta = bytes.get(META_AT..META_AT + META_BYTES)?;
        let (summed, _) = meta.split_at_checked(META_SUMMED_BYTES)?;
        let sound = flags == FLAG_META
            && u32_at(meta, 0)? == MAGIC
            && u32_at(meta, 4)? == VERSION
            && u64_at(meta, META_SUMMED_BYTES)? == meta_checksum(summed);
        let page_bytes = u64::from(u32_at(meta, 8)?);
        let sized =
            page_bytes.is_power_of_two() && (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page_bytes);
        (sound && sized).then_some(Self {
            page_bytes,
            root: u64_at(meta, 16)?,
            freelist: u64_at(meta, 32)?,
            high_water: u64_at(meta, 40)?,
            transaction: u64_at(meta, 48)?,
        })
    }
}

impl<S: Source> Bolt<S> {
    /// Opens the first `bytes` of a file.
    ///
    /// # Errors
    /// It is no such file, or cut.
    pub fn open(source: S, bytes: u64) -> Result<Self> {
        let meta_at = |offset: u64| {
            let mut buffer = [0; META_AT + META_BYTES];
            let end = offset.saturating_add(buffer.len() as u64);
            if end > bytes {
                return Ok(None);
            }
            let read = source.read(&mut buffer, offset);
            read.map_err(|error| Error::Io { offset, error })?;
            Ok(Meta::decode(&buffer))
        };
        let first = meta_at(0)?;
        let mut newest = first;
        let mut sizes = PAGE_BYTES_MIN..=PAGE_BYTES_MAX;
        if let Some(first) = first {
            sizes = first.page_bytes..=first.page_bytes;
        }
        // Where the first is damaged, the second stands at the size of a page, whatever that is.
        let mut page_bytes = *sizes.start();
        while page_bytes <= *sizes.end() {
            if let Some(second) = meta_at(page_bytes)?
                && second.page_bytes == page_bytes
                && newest.is_none_or(|newest| newest.transaction < second.transaction)
            {
                newest = Some(second);
            }
            page_bytes *= 2;
        }
        let Some(Meta { page_bytes, root, freelist, high_water, .. }) = newest else {
            return Err(Error::refused(
                0,
                0,
                "no page tells what this file is: it is none of bbolt's",
            ));
        };
        if high_water > bytes / page_bytes {
            let what =
                format!("the file has {} pages, and should have {high_water}", bytes / page_bytes);
            return Err(Error::refused(0, bytes, what));
        }
        let mut bolt = Self { source, page_bytes, high_water, root, free: Vec::new() };
        if freelist != NO_FREELIST {
            bolt.free = bolt.freelist(freelist)?;
        }
        Ok(bolt)
    }

    fn freelist(&self, id: u64) -> Result<Vec<u64>> {
        let mut page = self.page(id)?;
        let area = page.area;
        if page.flags != FLAG_FREE {
            return Err(area.refused(8, format!("flags {:#x}, no list of pages", page.flags)));
        }
        let mut free = Vec::new();
        page.numbers(|at, id| {
            if id < 2 || id >= self.high_water || free.last().is_some_and(|last| *last >= id) {
                return Err(area.refused(at, format!("page {id} cannot be in this list")));
            }
            free.push(id);
            Ok(())
        })?;
        Ok(free)
    }

    /// What it is read from.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Hands out each bucket with its name.
    ///
    /// # Errors
    /// A page is damaged; or what `see` answers.
    pub fn buckets<E: From<Error>>(
        &self,
        mut see: impl FnMut(&[u8], Bucket) -> Result<(), E>,
    ) -> Result<(), E> {
        self.walk(&Bucket(Root::Page(self.root)), |item| see(item.key, item.bucket()?))
    }

    /// Hands out the elements of a bucket, by key.
    ///
    /// # Errors
    /// A page is damaged; or what `see` answers.
    pub fn walk<E: From<Error>>(
        &self,
        bucket: &Bucket,
        mut see: impl FnMut(&Item<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut walk = Walk { spanned: 0, begins: None, last_key: None, see: &mut see };
        match &bucket.0 {
            Root::Page(root) => self.tree(*root, 0, &mut walk),
            Root::Inline { page, offset, bytes } => {
                let bytes = bytes.as_slice();
                let mut page = Page::read(inline(&bytes, *page, *offset))?;
                if page.flags != FLAG_LEAF {
                    let what = "a bucket within a page that is no leaf";
                    return Err(page.area.refused(0, what).into());
                }
                walk.leaf(&mut page)
            }
        }
    }

    /// An element again, which a walk has handed out.
    ///
    /// # Errors
    /// The file has changed since.
    pub fn again<T>(
        &self,
        bucket: &Bucket,
        place: Place,
        see: impl FnOnce(&Item<'_>) -> Result<T>,
    ) -> Result<T> {
        match &bucket.0 {
            Root::Page(_) => {
                let offset = place.page.saturating_mul(self.page_bytes);
                let area = Area {
                    source: &self.source,
                    start: offset,
                    bytes: place.end(),
                    id: place.page,
                    number: place.page,
                    offset,
                };
                area.again(place, see)
            }
            Root::Inline { page, offset, bytes } => {
                let bytes = bytes.as_slice();
                inline(&bytes, *page, *offset).again(place, see)
            }
        }
    }

    fn tree<E: From<Error>>(&self, id: u64, depth: u32, walk: &mut Walk<'_, E>) -> Result<(), E> {
        let mut page = self.page(id)?;
        let area = page.area;
        let span = area.bytes / self.page_bytes;
        walk.spanned += span;
        if walk.spanned > self.high_water {
            return Err(area.refused(0, "a page is in the tree twice").into());
        }
        if depth >= DEPTH_MAX {
            return Err(area.refused(0, "the tree is too deep").into());
        }
        let next_free = self.free.get(self.free.partition_point(|free| *free < id));
        if next_free.is_some_and(|free| *free - id < span) {
            return Err(area.refused(0, "a page of the tree is in the list of free pages").into());
        }
        match page.flags {
            // Only a bucket that is empty has such a page.
            FLAG_LEAF | FLAG_BRANCH
                if page.count == 0 && (depth > 0 || page.flags == FLAG_BRANCH) =>
            {
                Err(area.refused(10, "a page of the tree that is empty").into())
            }
            FLAG_LEAF => walk.leaf(&mut page),
            FLAG_BRANCH => {
                // bbolt takes as many pages as it needs; some versions one more.
                if area.bytes > (page.branch_bytes()? / self.page_bytes + 2) * self.page_bytes {
                    return Err(area
                        .refused(12, format!("a branch that spans {span} pages"))
                        .into());
                }
                for index in 0..page.count {
                    let (child, key) = page.child(index)?;
                    if key.len() > KEY_BYTES_MAX {
                        let at = HEADER_BYTES + ELEMENT_BYTES * u64::from(index);
                        return Err(area.refused(at, "a key that is too long").into());
                    }
                    walk.begins_with(&area, key)?;
                    walk.begins = Some(key.to_vec());
                    self.tree(child, depth + 1, walk)?;
                }
                Ok(())
            }
            flags => {
                Err(area.refused(8, format!("flags {flags:#x}, neither branch nor leaf")).into())
            }
        }
    }

    /// A page, with those that it spans beyond its own.
    fn page(&self, id: u64) -> Result<Page<'_>> {
        let start = id.saturating_mul(self.page_bytes);
        let refused = |what: String| Err(Error::refused(id, start, what));
        if id >= self.high_water || id < 2 {
            return refused(format!("no page for data: those are 2 to {}", self.high_water));
        }
        let mut header = [0; META_AT];
        let read = self.source.read(&mut header, start);
        read.map_err(|error| Error::Io { offset: start, error })?;
        let own = u64_at(&header, 0).unwrap_or_default();
        if own != id {
            return refused(format!("the page says that it is page {own}"));
        }
        let span = u64::from(u32_at(&header, 12).unwrap_or_default()) + 1;
        let bytes = span.saturating_mul(self.page_bytes);
        if span > self.high_water - id || bytes > SPAN_BYTES_MAX {
            return refused(format!("it spans {span} pages"));
        }
        Page::read(Area { source: &self.source, start, bytes, id, number: id, offset: start })
    }
}

/// The page of a bucket that lies within another.
fn inline<'a>(bytes: &'a &'a [u8], number: u64, offset: u64) -> Area<'a> {
    Area { source: bytes, start: 0, bytes: bytes.len() as u64, id: 0, number, offset }
}

/// A walk over a bucket.
struct Walk<'w, E> {
    /// Pages of the file that those read so far span.
    spanned: u64,
    /// The key that the branch above has for the page that comes.
    begins: Option<Vec<u8>>,
    last_key: Option<Vec<u8>>,
    see: &'w mut dyn FnMut(&Item<'_>) -> Result<(), E>,
}

impl<E: From<Error>> Walk<'_, E> {
    /// A page begins with this key.
    fn begins_with(&mut self, area: &Area<'_>, key: &[u8]) -> Result<()> {
        match self.begins.take() {
            Some(begins) if begins != key => {
                let what = "the page begins with another key than the branch above it says";
                Err(area.refused(HEADER_BYTES, what))
            }
            _ => Ok(()),
        }
    }

    fn leaf(&mut self, page: &mut Page<'_>) -> Result<(), E> {
        let (area, mut end) = (page.area, 0);
        for index in 0..page.count {
            let item = page.item(index)?;
            self.begins_with(&area, item.key)?;
            // Else a short file could stand for any amount of data.
            if u64::from(item.place.pos) < end {
                return Err(item
                    .refused("an element that shares bytes with the one before it")
                    .into());
            }
            end = item.place.end();
            if self.last_key.as_deref().is_some_and(|last| last >= item.key) {
                return Err(item.refused("a key that is not after the one before it").into());
            }
            let last = self.last_key.get_or_insert_default();
            last.clear();
            last.extend_from_slice(item.key);
            (self.see)(&item)?;
        }
        Ok(())
    }
}
