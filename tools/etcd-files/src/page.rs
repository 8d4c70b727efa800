//! A page of bbolt: its header and its elements, and the keys and values of these as they are asked for.
//!
//! A page may span any number of pages of the file, most of which nothing was ever written to. So what is in
//! memory of one is the elements, 1 MiB at most, and of the rest a piece of 64 KiB, or one key with its value.

use crate::bytes::{u16_at, u32_at, u64_at};
use crate::{Error, Result, Source};

pub(crate) const HEADER_BYTES: u64 = 16;
pub(crate) const ELEMENT_BYTES: u64 = 16;
pub(crate) const FLAG_BRANCH: u16 = 1;
pub(crate) const FLAG_LEAF: u16 = 2;
const FLAG_BUCKET: u32 = 1;
/// What is read of a page at once, but for a value that is longer.
const PIECE_BYTES: u64 = 1 << 16;

/// Where an element lies in its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The leaf page; 0 in a bucket that lies within a page.
    pub(crate) page: u64,
    /// Where the key begins in the page; the value follows.
    pub(crate) pos: u32,
    key_bytes: u32,
    value_bytes: u32,
    index: u16,
    is_bucket: bool,
}

impl Place {
    /// Bytes of key and value.
    fn bytes(self) -> u64 {
        u64::from(self.key_bytes) + u64::from(self.value_bytes)
    }

    /// Where the value ends in the page.
    pub(crate) fn end(self) -> u64 {
        u64::from(self.pos) + self.bytes()
    }
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
}

impl Item<'_> {
    /// A refusal of this element.
    pub fn refused(&self, what: impl Into<String>) -> Error {
        Error::refused(self.page, self.offset, what)
    }
}

/// Where the bytes of a page are.
#[derive(Clone, Copy)]
pub(crate) struct Area<'a> {
    pub(crate) source: &'a dyn Source,
    /// Where it begins in the source, and its length.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    /// The page in its bucket.
    pub(crate) id: u64,
    /// The page in the file and the offset, for a refusal.
    pub(crate) number: u64,
    pub(crate) offset: u64,
}

impl Area<'_> {
    pub(crate) fn refused(&self, at: u64, what: impl Into<String>) -> Error {
        Error::refused(self.number, self.offset.saturating_add(at), what)
    }

    fn element_at(&self, index: u16) -> u64 {
        self.offset.saturating_add(HEADER_BYTES + ELEMENT_BYTES * u64::from(index))
    }

    /// Fills `buffer` with so many bytes of the page.
    pub(crate) fn read(&self, buffer: &mut Vec<u8>, at: u64, bytes: u64) -> Result<()> {
        buffer.clear();
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX);
        if buffer.try_reserve_exact(wanted).is_err() {
            return Err(self.refused(at, format!("no memory for {bytes} bytes")));
        }
        buffer.resize(wanted, 0);
        let read = self.source.read(buffer, self.start.saturating_add(at));
        read.map_err(|error| Error::Io { offset: self.offset.saturating_add(at), error })
    }

    /// An element that has been there.
    pub(crate) fn again<T>(
        &self,
        place: Place,
        see: impl FnOnce(&Item<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut bytes = Vec::new();
        self.read(&mut bytes, u64::from(place.pos), place.bytes())?;
        see(&self.item(place, &bytes)?)
    }

    fn item<'b>(&self, place: Place, bytes: &'b [u8]) -> Result<Item<'b>> {
        let key_bytes = usize::try_from(place.key_bytes).unwrap_or(usize::MAX);
        let offset = self.element_at(place.index);
        let Some((key, value)) = bytes.split_at_checked(key_bytes) else {
            return Err(Error::refused(self.number, offset, "an element that is cut"));
        };
        let Place { is_bucket, .. } = place;
        Ok(Item { place, page: self.number, offset, is_bucket, key, value })
    }
}

/// A page that is being read.
pub(crate) struct Page<'a> {
    pub(crate) area: Area<'a>,
    pub(crate) flags: u16,
    pub(crate) count: u16,
    elements: Vec<u8>,
    /// A piece of the page, and where it begins there.
    piece: Vec<u8>,
    piece_at: u64,
}

impl<'a> Page<'a> {
    /// Reads header and elements.
    pub(crate) fn read(area: Area<'a>) -> Result<Self> {
        let mut piece = Vec::new();
        area.read(&mut piece, 0, area.bytes.min(PIECE_BYTES))?;
        let flags = u16_at(&piece, 8).unwrap_or_default();
        let count = u16_at(&piece, 10).unwrap_or_default();
        let mut page = Self { area, flags, count, elements: Vec::new(), piece, piece_at: 0 };
        let bytes = ELEMENT_BYTES * u64::from(count);
        let fit = area.bytes.saturating_sub(HEADER_BYTES) / ELEMENT_BYTES;
        // What is neither is refused, or is a list of numbers.
        if ![FLAG_BRANCH, FLAG_LEAF].contains(&flags) {
            return Ok(page);
        }
        if fit < u64::from(count) {
            let at = HEADER_BYTES + ELEMENT_BYTES * fit;
            return Err(area.refused(at, "an element behind the end of the page"));
        }
        page.elements = page.bytes(HEADER_BYTES, bytes)?.to_vec();
        Ok(page)
    }

    /// Bytes of the page, which has them.
    fn bytes(&mut self, at: u64, bytes: u64) -> Result<&[u8]> {
        let end = self.piece_at + self.piece.len() as u64;
        if at < self.piece_at || at + bytes > end {
            let rest = self.area.bytes.saturating_sub(at);
            self.area.read(&mut self.piece, at, bytes.max(PIECE_BYTES.min(rest)))?;
            self.piece_at = at;
        }
        let within = at.saturating_sub(self.piece_at);
        let [from, to] = [within, within + bytes].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        let found = self.piece.get(from..to);
        found.ok_or_else(|| self.area.refused(at, "bytes behind the end of the page"))
    }

    /// The four numbers of an element, and where it begins.
    fn element(&self, index: u16) -> Result<(u64, [u32; 4])> {
        let at = HEADER_BYTES + ELEMENT_BYTES * u64::from(index);
        let start = usize::from(index) * 16;
        let part = |n: usize| u32_at(&self.elements, start + 4 * n);
        match (part(0), part(1), part(2), part(3)) {
            (Some(a), Some(b), Some(c), Some(d)) => Ok((at, [a, b, c, d])),
            _ => Err(self.area.refused(at, "an element behind the end of the page")),
        }
    }

    /// Where the bytes of an element begin in the page, if all of them are behind the elements.
    fn data(&self, at: u64, pos: u32, bytes: u64) -> Result<u64> {
        let start = at + u64::from(pos);
        let elements = HEADER_BYTES + self.elements.len() as u64;
        if start < elements || start + bytes > self.area.bytes {
            return Err(self
                .area
                .refused(at, "an element whose key and value are not in the page"));
        }
        Ok(start)
    }

    /// An element of a branch: the page below it, and its key.
    pub(crate) fn child(&mut self, index: u16) -> Result<(u64, &[u8])> {
        let (at, [pos, key_bytes, low, high]) = self.element(index)?;
        let start = self.data(at, pos, u64::from(key_bytes))?;
        let id = u64::from(high) << 32 | u64::from(low);
        Ok((id, self.bytes(start, u64::from(key_bytes))?))
    }

    /// Bytes of a branch as its elements tell.
    pub(crate) fn branch_bytes(&self) -> Result<u64> {
        let mut bytes = HEADER_BYTES + self.elements.len() as u64;
        for index in 0..self.count {
            let (_, [_, key_bytes, ..]) = self.element(index)?;
            bytes += u64::from(key_bytes);
        }
        Ok(bytes)
    }

    /// An element of a leaf.
    pub(crate) fn item(&mut self, index: u16) -> Result<Item<'_>> {
        let (at, [flags, pos, key_bytes, value_bytes]) = self.element(index)?;
        let bytes = u64::from(key_bytes) + u64::from(value_bytes);
        let start = self.data(at, pos, bytes)?;
        let Ok(pos) = u32::try_from(start) else {
            return Err(self.area.refused(at, "an element too far from the beginning of its page"));
        };
        let (area, is_bucket) = (self.area, flags & FLAG_BUCKET != 0);
        let place = Place { page: area.id, pos, key_bytes, value_bytes, index, is_bucket };
        area.item(place, self.bytes(start, bytes)?)
    }

    /// The numbers of a freelist, each of which is after the one before.
    pub(crate) fn numbers(&mut self, mut see: impl FnMut(u64, u64) -> Result<()>) -> Result<()> {
        let (mut at, mut count) = (HEADER_BYTES, u64::from(self.count));
        if self.count == u16::MAX {
            count = u64_at(self.bytes(at, 8)?, 0).unwrap_or_default();
            at += 8;
        }
        if count > self.area.bytes.saturating_sub(at) / 8 {
            return Err(self.area.refused(10, format!("{count} numbers are not in the page")));
        }
        for _ in 0..count {
            see(at, u64_at(self.bytes(at, 8)?, 0).unwrap_or_default())?;
            at += 8;
        }
        Ok(())
    }
}
