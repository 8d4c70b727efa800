//! Files of bbolt, for reading: pages, the trees they make up, and the buckets that these are.
//!
//! ```text
//! page    := id:u64 flags:u16 count:u16 overflow:u32    and content, over 1 + overflow pages of the file
//! meta    := page, then magic:u32 version:u32 page_size:u32 flags:u32 root:{pgid:u64 sequence:u64}
//!            freelist:u64 high_water:u64 txid:u64 fnv1a:u64       pages 0 and 1; the valid one with the higher txid counts
//! branch  := page, then count x {pos:u32 key_bytes:u32 pgid:u64}
//! leaf    := page, then count x {flags:u32 pos:u32 key_bytes:u32 value_bytes:u32}
//! bucket  := root:u64 sequence:u64, and where root is 0 a leaf page, with its header
//! ```
//!
//! Numbers are little-endian. `pos` counts from the element itself; a value follows its key. A bucket is the
//! value of a leaf element with flag 1.
//!
//! Bounds: a page is read once in a walk, as the pages of the file that it spans are counted; and a walk goes
//! 64 pages deep. Keys ascend over a whole bucket, and no two elements share bytes: so what is handed out is
//! no longer than the file.

use crate::{Error, Result, Source};

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 16;
const ELEMENT_BYTES: usize = 16;
/// Bytes of a bucket before the page within.
const BUCKET_BYTES: usize = 16;
/// Bytes of a meta page that are its own: up to the checksum, and with it.
const META_SUMMED_BYTES: usize = 56;
const META_BYTES: usize = META_SUMMED_BYTES + 8;
const PAGE_BYTES_MIN: u64 = 1 << 10;
const PAGE_BYTES_MAX: u64 = 1 << 24;
const FLAG_BRANCH: u16 = 1;
const FLAG_LEAF: u16 = 2;
const FLAG_META: u16 = 4;
const FLAG_BUCKET: u32 = 1;
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
}

/// A bucket: a tree of its own, or a page within that of the bucket it is in.
#[derive(Clone, Debug)]
pub struct Bucket(Root);

#[derive(Clone, Debug)]
enum Root {
    Page(u64),
    Inline { page: u64, offset: u64, bytes: Vec<u8> },
}

/// Where an element lies in its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The leaf page; 0 in a bucket that lies within a page.
    page: u64,
    index: u16,
}

/// An element of a bucket.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Where it lies.
    pub place: Place,
    /// The page, for a refusal.
    pub page: u64,
    /// Where the element begins in the file, for a refusal.
    pub offset: u64,
    /// Whether the value is a bucket.
    pub is_bucket: bool,
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// Where the key begins in its page.
    start: usize,
}

impl Item<'_> {
    /// A refusal of this element.
    pub fn refused(&self, what: impl Into<String>) -> Error {
        Error::refused(self.page, self.offset, what)
    }

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

/// The bytes of a page, and where they are.
struct Page<'a> {
    /// The page in the file, and the offset, for a refusal.
    number: u64,
    offset: u64,
    /// The page in its bucket.
    id: u64,
    bytes: &'a [u8],
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
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
    high_water: u64,
    transaction: u64,
}

impl Meta {
    /// Reads one, with its page header; `None` if it is none.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let flags = u16_at(bytes, 8)?;
        let meta = bytes.get(HEADER_BYTES..HEADER_BYTES + META_BYTES)?;
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
            let mut buffer = [0; HEADER_BYTES + META_BYTES];
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
        let Some(Meta { page_bytes, root, high_water, .. }) = newest else {
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
        Ok(Self { source, page_bytes, high_water, root })
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
        let mut walk = Walk { spanned: 0, last_key: None, see: &mut see };
        match &bucket.0 {
            Root::Page(root) => self.tree(*root, 0, &mut walk),
            Root::Inline { .. } => walk.leaf(&bucket.inline()?),
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
                let bytes = self.read(place.page)?;
                see(&self.page(place.page, &bytes).item(place.index)?)
            }
            Root::Inline { .. } => see(&bucket.inline()?.item(place.index)?),
        }
    }

    fn tree<E: From<Error>>(&self, id: u64, depth: u32, walk: &mut Walk<'_, E>) -> Result<(), E> {
        let bytes = self.read(id)?;
        let page = self.page(id, &bytes);
        walk.spanned += bytes.len() as u64 / self.page_bytes;
        if walk.spanned > self.high_water {
            return Err(page.refused(0, "a page is in the tree twice").into());
        }
        if depth >= DEPTH_MAX {
            return Err(page.refused(0, "the tree is too deep").into());
        }
        match page.flags() {
            FLAG_LEAF => walk.leaf(&page),
            FLAG_BRANCH => {
                for index in 0..page.count() {
                    self.tree(page.child(index)?, depth + 1, walk)?;
                }
                Ok(())
            }
            flags => {
                Err(page.refused(8, format!("flags {flags:#x}, neither branch nor leaf")).into())
            }
        }
    }

    fn page<'a>(&self, id: u64, bytes: &'a [u8]) -> Page<'a> {
        Page { number: id, offset: id.saturating_mul(self.page_bytes), id, bytes }
    }

    /// The bytes of a page, with those that it spans beyond its own.
    fn read(&self, id: u64) -> Result<Vec<u8>> {
        let refused =
            |what: String| Err(Error::refused(id, id.saturating_mul(self.page_bytes), what));
        if id >= self.high_water || id < 2 {
            return refused(format!("no page for data: those are 2 to {}", self.high_water));
        }
        let offset = id * self.page_bytes;
        let io = |error| Error::Io { offset, error };
        let mut header = [0; HEADER_BYTES];
        self.source.read(&mut header, offset).map_err(io)?;
        let own = u64_at(&header, 0).unwrap_or_default();
        if own != id {
            return refused(format!("the page says that it is page {own}"));
        }
        let span = u64::from(u32_at(&header, 12).unwrap_or_default()) + 1;
        let bytes = span.saturating_mul(self.page_bytes);
        if span > self.high_water - id || bytes > SPAN_BYTES_MAX {
            return refused(format!("it spans {span} pages"));
        }
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut buffer = Vec::new();
        if buffer.try_reserve_exact(bytes).is_err() {
            return refused(format!("no memory for {bytes} bytes"));
        }
        buffer.resize(bytes, 0);
        self.source.read(&mut buffer, offset).map_err(io)?;
        Ok(buffer)
    }
}

impl Bucket {
    /// The page of a bucket that lies within another.
    fn inline(&self) -> Result<Page<'_>> {
        let Root::Inline { page, offset, bytes } = &self.0 else {
            return Err(Error::refused(0, 0, "a bucket of its own"));
        };
        let page = Page { number: *page, offset: *offset, id: 0, bytes };
        if page.flags() != FLAG_LEAF {
            return Err(page.refused(0, "a bucket within a page that is no leaf"));
        }
        Ok(page)
    }
}

impl<'a> Page<'a> {
    fn refused(&self, at: usize, what: impl Into<String>) -> Error {
        Error::refused(self.number, self.offset.saturating_add(at as u64), what)
    }

    fn flags(&self) -> u16 {
        u16_at(self.bytes, 8).unwrap_or_default()
    }

    fn count(&self) -> u16 {
        u16_at(self.bytes, 10).unwrap_or_default()
    }

    fn element(&self, index: u16) -> Result<(usize, &'a [u8])> {
        let at = HEADER_BYTES + ELEMENT_BYTES * usize::from(index);
        let element = self.bytes.get(at..at + ELEMENT_BYTES);
        let element = element.filter(|_| index < self.count());
        Ok((at, element.ok_or_else(|| self.refused(at, "an element behind the end of the page"))?))
    }

    /// The page below an element of a branch.
    fn child(&self, index: u16) -> Result<u64> {
        let (at, element) = self.element(index)?;
        u64_at(element, 8).ok_or_else(|| self.refused(at, "an element that is cut"))
    }

    /// An element of a leaf.
    fn item(&self, index: u16) -> Result<Item<'a>> {
        let (at, element) = self.element(index)?;
        let part = |place| u32_at(element, place).unwrap_or_default();
        let [flags, pos, key_bytes, value_bytes] = [part(0), part(4), part(8), part(12)];
        let rest = self.bytes.get(at..).unwrap_or_default();
        // On 32 bits, too, what does not fit is not there.
        let [pos, key_bytes, value_bytes] =
            [pos, key_bytes, value_bytes].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        let of_elements = HEADER_BYTES + ELEMENT_BYTES * usize::from(self.count()) - at;
        let found = rest.get(pos..).filter(|_| pos >= of_elements).and_then(|rest| {
            let (key, rest) = rest.split_at_checked(key_bytes)?;
            Some((key, rest.get(..value_bytes)?))
        });
        let Some((key, value)) = found else {
            return Err(self.refused(at, "an element whose key and value are not in the page"));
        };
        Ok(Item {
            place: Place { page: self.id, index },
            page: self.number,
            offset: self.offset.saturating_add(at as u64),
            is_bucket: flags & FLAG_BUCKET != 0,
            key,
            value,
            start: at + pos,
        })
    }
}

/// A walk over a bucket.
struct Walk<'w, E> {
    /// Pages of the file that those read so far span.
    spanned: u64,
    last_key: Option<Vec<u8>>,
    see: &'w mut dyn FnMut(&Item<'_>) -> Result<(), E>,
}

impl<E: From<Error>> Walk<'_, E> {
    fn leaf(&mut self, page: &Page<'_>) -> Result<(), E> {
        let mut end = 0;
        for index in 0..page.count() {
            let item = page.item(index)?;
            // Else a short file could stand for any amount of data.
            if item.start < end {
                return Err(item
                    .refused("an element that shares bytes with the one before it")
                    .into());
            }
            end = item.start + item.key.len() + item.value.len();
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
