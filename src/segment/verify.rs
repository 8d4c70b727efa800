//! Reads every byte of a segment and reports everything that is wrong.
//!
//! It trusts nothing it has not checked and goes on where it can: a damaged block does not hide
//! damage behind it. What is checked, beyond each structure's own checksum:
//!
//! * the parts follow each other without gaps, pages are numbered and linked as they should be;
//! * separators are exactly those that lie between the entries, entries are in order;
//! * ranks are what the entries before them weigh;
//! * the filter passes every key;
//! * counts, revisions and deaths in the footer and in the manifest are those of the entries;
//! * the content hash of the file is the manifest's.
//!
//! Memory: one block, one page, 40 bytes a page and a block; not the file.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;

use annals_format::block::{BlockHeader, Body, Encoding, compare};
use annals_format::checksum::{ContentHasher, FileSeed};
use annals_format::entry::{BlobRef, EntryRef};
use annals_format::filter::{Filter, hash_key};
use annals_format::group::{Groups, Scratch};
use annals_format::limits::PAGE_BYTES_MAX;
use annals_format::page::{Child, Handle, PAGE_HEADER_BYTES, Page, Separator};
use annals_format::segment::HEADER_BYTES;
use annals_format::{FileKind, FileMeta, living};

use super::blocks::{Caching, LastBase};
use super::group_codec::BlockCodec;
use super::opened::Opened;
use super::reader::Segment;
use crate::error::{Corruption, Error, ErrorKind, Result};

/// Bytes read at a time for the content hash.
const HASH_BYTES: usize = 1 << 20;

impl Segment {
    /// Checks every byte of the file and hands out what is wrong with it.
    ///
    /// # Errors
    /// Only if the file cannot be read; damage is no error of this call.
    pub(crate) fn verify(&self, report: &mut dyn FnMut(Corruption)) -> Result<()> {
        self.verify_hash(report)?;
        let Some(file) = reported(self.opened(), report)? else { return Ok(()) };
        let mut check = Check { file, meta: self.meta(), report, sums: Sums::default() };
        check.dictionary()?;
        let filter = check.filter()?;
        let blocks = check.pages()?;
        check.blocks(&blocks, filter.as_deref())?;
        check.totals();
        Ok(())
    }

    fn verify_hash(&self, report: &mut dyn FnMut(Corruption)) -> Result<()> {
        let mut hasher = ContentHasher::new();
        let mut offset = 0;
        while offset < self.meta().bytes {
            let left = usize::try_from(self.meta().bytes - offset).unwrap_or(HASH_BYTES);
            let bytes = self.read(offset, left.min(HASH_BYTES))?;
            hasher.update(&bytes);
            offset += bytes.len() as u64;
        }
        let (expected, found) = (self.meta().hash, hasher.finish());
        if expected != found {
            report(Corruption {
                file: self.path().to_path_buf(),
                offset: 0,
                structure: "segment: content hash, against the manifest".to_owned(),
                expected: expected.to_string(),
                found: found.to_string(),
                revision: None,
                revision_upto: None,
            });
        }
        Ok(())
    }
}

/// Hands damage out and everything else on.
pub(super) fn reported<T>(
    result: Result<T>,
    report: &mut dyn FnMut(Corruption),
) -> Result<Option<T>> {
    match result.map_err(Error::into_kind) {
        Ok(value) => Ok(Some(value)),
        Err(ErrorKind::Corrupt(corruption)) => {
            report(*corruption);
            Ok(None)
        }
        Err(kind) => Err(kind.into()),
    }
}

/// What the entries amount to.
#[derive(Debug, Default)]
struct Sums {
    entries: u64,
    keys: u64,
    tombstones: u64,
    value_bytes: u64,
    living: i64,
    revisions: Option<(u64, u64)>,
    deaths: Option<(u64, u64)>,
    /// Bytes that entries refer to, by blob file.
    blobs: BTreeMap<u64, u64>,
    first_key: Option<Vec<u8>>,
    last: Option<(Vec<u8>, u64)>,
    /// All blocks could be decoded, so the sums are comparable.
    complete: bool,
}

struct Check<'a> {
    file: &'a Opened,
    meta: &'a FileMeta,
    report: &'a mut dyn FnMut(Corruption),
    sums: Sums,
}

impl Check<'_> {
    fn seed(&self) -> FileSeed {
        self.file.seed()
    }

    fn wrong(&mut self, offset: u64, structure: &str, expected: &dyn Display, found: &dyn Display) {
        let error = self.file.corrupt(offset, structure, &expected.to_string(), &found.to_string());
        if let ErrorKind::Corrupt(corruption) = error.into_kind() {
            (self.report)(*corruption);
        }
    }

    fn equal(&mut self, offset: u64, structure: &str, expected: u64, found: u64) {
        if expected != found {
            self.wrong(offset, structure, &expected, &found);
        }
    }

    fn dictionary(&mut self) -> Result<()> {
        let file = self.file;
        // Whatever was read before came through the same check of the checksum.
        reported(file.read_dictionary(), self.report)?;
        Ok(())
    }

    fn filter(&mut self) -> Result<Option<Vec<u8>>> {
        let footer = self.file.footer();
        let offset = footer.filter_offset;
        if footer.filter_bytes == 0 {
            if self.meta.kind.has_filter() && footer.entries > 0 {
                self.wrong(offset, "filter", &"a filter", &"none");
            }
            return Ok(None);
        }
        let Ok(bytes) = usize::try_from(footer.filter_bytes) else { return Ok(None) };
        let bytes = self.file.read(offset, bytes)?;
        let checked = Filter::check_crc(&bytes, self.seed(), offset)
            .and_then(|()| Filter::decode(&bytes).map(|_| ()))
            .map_err(|error| self.file.damaged(offset, &error));
        Ok(reported(checked, self.report)?.map(|()| bytes))
    }

    /// Checks all pages in file order and answers the blocks that the leaves speak of.
    fn pages(&mut self) -> Result<Vec<Child>> {
        let footer = *self.file.footer();
        let mut offset = footer.index_offset;
        let mut blocks = Vec::new();
        // The pages of the level below the one being read that no page has spoken of yet.
        let mut waiting = VecDeque::new();
        let mut level = 0;
        let mut above = Vec::new();
        for number in 0..footer.page_count {
            let Some((handle, page_level, children)) = self.page(offset, number)? else {
                return Ok(blocks);
            };
            if page_level != level {
                if page_level != level + 1 || !waiting.is_empty() {
                    self.wrong(offset, "index page: level", &level, &page_level);
                    return Ok(blocks);
                }
                waiting = std::mem::take(&mut above).into();
                level = page_level;
            }
            let Some(first) = children.first().cloned() else { return Ok(blocks) };
            if level == 0 {
                blocks.extend(children);
            } else {
                for child in children {
                    if waiting.pop_front() != Some(child) {
                        self.wrong(offset, "index page: item", &"the next page below", &"another");
                        return Ok(blocks);
                    }
                }
            }
            above.push(Child { handle, ..first });
            offset += u64::from(handle.bytes);
        }
        self.equal(offset, "index pages: end", footer.filter_offset, offset);
        let roots: Vec<Handle> = above.iter().map(|page| page.handle).collect();
        let expected = if footer.page_count == 0 { vec![] } else { vec![footer.root] };
        if roots != expected || !waiting.is_empty() {
            self.wrong(
                footer.root.offset,
                "index: root",
                &format_args!("{expected:?}"),
                &format_args!("{roots:?}"),
            );
        }
        let height = if footer.page_count == 0 { 0 } else { u64::from(level) + 1 };
        self.equal(footer.root.offset, "footer: height", height, u64::from(footer.height));
        Ok(blocks)
    }

    /// The page at `offset`; `None` if it is damaged, so that the next cannot be found.
    fn page(&mut self, offset: u64, number: u32) -> Result<Option<(Handle, u8, Vec<Child>)>> {
        let file = self.file;
        let left = file.footer().filter_offset.saturating_sub(offset);
        let read = |bytes: u64| -> Result<Vec<u8>> {
            file.read(offset, usize::try_from(bytes.min(left)).unwrap_or(0))
        };
        let header = read(PAGE_HEADER_BYTES as u64)?;
        // The page's own length, believed only as far as the index reaches and up to the limit.
        let bytes = header.get(8..12).and_then(|bytes| bytes.first_chunk::<4>());
        let bytes = bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let page_bytes = read(u64::from(bytes).min(PAGE_BYTES_MAX))?;
        let checked = Page::check_crc(&page_bytes, self.seed(), offset).and_then(|()| {
            let page = Page::decode(&page_bytes)?;
            let mut children = Vec::new();
            page.check(|key, item| {
                let separator = Separator { key: key.to_vec(), revision: item.revision };
                children.push(Child { separator, handle: item.child, rank: item.rank });
            })?;
            Ok((Handle { offset, bytes, number }, page.level(), children))
        });
        reported(checked.map_err(|error| file.damaged(offset, &error)), self.report)
    }

    fn blocks(&mut self, blocks: &[Child], filter: Option<&[u8]>) -> Result<()> {
        let footer = *self.file.footer();
        let filter = filter.and_then(|bytes| Filter::decode(bytes).ok());
        let mut base = None;
        let mut offset = HEADER_BYTES as u64;
        self.sums.complete = blocks.len() as u64 == u64::from(footer.block_count);
        if !self.sums.complete {
            let found = blocks.len();
            self.wrong(footer.index_offset, "index: blocks", &footer.block_count, &found);
        }
        for (number, child) in (0_u64..).zip(blocks) {
            let handle = &child.handle;
            self.equal(handle.offset, "block: number", number, u64::from(handle.number));
            self.equal(handle.offset, "block: offset", offset, handle.offset);
            offset = handle.offset.saturating_add(u64::from(handle.bytes));
            if handle.offset < HEADER_BYTES as u64 || offset > footer.index_offset {
                self.sums.complete = false;
                self.wrong(handle.offset, "block: end", &footer.index_offset, &offset);
                return Ok(());
            }
            let checked = self.block(child, filter.as_ref(), &mut base);
            if reported(checked, self.report)?.is_none() {
                self.sums.complete = false;
                // What lies before the next block is not known any more.
                self.sums.last = None;
            }
        }
        if self.sums.complete {
            self.equal(offset, "blocks: end", footer.index_offset, offset);
        }
        Ok(())
    }

    fn block(
        &mut self,
        Child { separator, handle, rank }: &Child,
        filter: Option<&Filter<'_>>,
        base: &mut LastBase,
    ) -> Result<()> {
        let (file, handle) = (self.file, *handle);
        // After a damaged block nothing is known of what lies before.
        if self.sums.complete && i64::from(*rank) != self.sums.living {
            let found = self.sums.living;
            self.wrong(handle.offset, "index page: rank of this block", &found, rank);
        }
        let bytes = file.read(handle.offset, handle.bytes as usize)?;
        let (header, stored) = BlockHeader::check_crc(&bytes, file.seed(), handle.offset)
            .and_then(|()| BlockHeader::decode(&bytes, file.kind()))
            .map_err(|error| file.damaged(handle.offset, &error))?;
        let mut problem = None;
        let sums = &mut self.sums;
        let mut first_of_block = true;
        let each = |entry: &EntryRef<'_>, key: &[u8]| {
            if std::mem::take(&mut first_of_block) {
                let last = sums.last.as_ref();
                let expected = last.map(|(last, rev)| Separator::between((last, *rev), key));
                let in_order = last.is_none_or(|(last, revision)| {
                    compare(last, *revision, key, entry.revision).is_lt()
                });
                let is_first = sums.complete && sums.entries == 0;
                let first = is_first && *separator != Separator::first();
                if !in_order || first || expected.is_some_and(|e| e != *separator) {
                    problem = Some("block: separator");
                }
            }
            if filter.is_some_and(|filter| !filter.may_contain(hash_key(key))) {
                problem = Some("filter: a key of this block");
            }
            sums.take(entry, key, file.kind());
        };
        let checked = if header.encoding == Encoding::Groups {
            let mut last = None;
            let mut codec = BlockCodec::new(file, handle, Caching::Bypass, &mut last)?;
            let scratch = &mut Scratch::default();
            Groups::parse(stored)
                .and_then(|groups| groups.check(&header, &mut codec, scratch, each))
        } else {
            let body = file.decode_body(handle, &header, stored, Caching::Bypass, base)?;
            Body::parse(&body, file.kind()).and_then(|body| body.check(header.entry_count, each))
        };
        checked.map_err(|error| file.damaged_body(handle, &error))?;
        if let Some(structure) = problem {
            self.wrong(handle.offset, structure, &"one that agrees with the entries", &"another");
        }
        Ok(())
    }

    /// Compares what the entries amount to with footer and manifest.
    fn totals(&mut self) {
        if !self.sums.complete {
            return;
        }
        let sums = std::mem::take(&mut self.sums);
        let footer = *self.file.footer();
        let at = footer.place.offset;
        let (min_revision, max_revision) = sums.revisions.unwrap_or_default();
        self.equal(at, "footer: entries", sums.entries, footer.entries);
        self.equal(at, "footer: keys", sums.keys, footer.keys);
        self.equal(at, "footer: tombstones", sums.tombstones, footer.tombstones);
        self.equal(at, "footer: value_bytes", sums.value_bytes, footer.value_bytes);
        if sums.living != footer.living {
            self.wrong(at, "footer: living", &sums.living, &footer.living);
        }
        self.equal(at, "footer: min_revision", min_revision, footer.min_revision);
        self.equal(at, "footer: max_revision", max_revision, footer.max_revision);
        self.equal(at, "manifest: value_bytes", sums.value_bytes, self.meta.value_bytes);
        let blobs = sums.blobs.into_iter().map(|(file, bytes)| BlobRef { file, bytes });
        if !blobs.eq(self.meta.blobs.iter().copied()) {
            self.wrong(at, "manifest: blob files", &"those of the entries", &"others");
        }
        if let Some((first, last)) = sums.deaths.filter(|_| self.meta.kind == FileKind::History)
            && (first <= footer.death_after || last > footer.death_upto)
        {
            let window = format!("({}, {}]", footer.death_after, footer.death_upto);
            self.wrong(at, "footer: window", &format_args!("{first}..={last}"), &window);
        }
        let first_key = sums.first_key.unwrap_or_default();
        let last_key = sums.last.map_or_else(Vec::new, |(key, _)| key);
        if first_key != self.meta.first_key || last_key != self.meta.last_key {
            self.wrong(at, "manifest: first and last key", &"those of the entries", &"others");
        }
    }
}

impl Sums {
    fn take(&mut self, entry: &EntryRef<'_>, key: &[u8], kind: FileKind) {
        self.entries += 1;
        self.living += living::weight(kind, key, entry);
        self.tombstones += u64::from(entry.tombstone);
        self.value_bytes += entry.value.len() as u64;
        if let Some(blob) = entry.blob {
            let all = self.blobs.entry(blob.file).or_default();
            *all = all.saturating_add(blob.bytes);
        }
        let span = |span: Option<(u64, u64)>, value: u64| {
            Some(span.map_or((value, value), |(min, max)| (min.min(value), max.max(value))))
        };
        self.revisions = span(self.revisions, entry.revision);
        if kind == FileKind::L0 {
            self.revisions = span(self.revisions, entry.first);
        }
        self.deaths = span(self.deaths, entry.death);
        if self.first_key.is_none() {
            self.first_key = Some(key.to_vec());
        }
        match &mut self.last {
            Some((last, revision)) if last == key => *revision = entry.revision,
            last => {
                self.keys += 1;
                let (bytes, revision) = last.get_or_insert_default();
                bytes.clear();
                bytes.extend_from_slice(key);
                *revision = entry.revision;
            }
        }
    }
}
