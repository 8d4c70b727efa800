//! A data block: a checked header and a run of sorted entries.
//!
//! ```text
//! block   := header(24) stored(stored_bytes)
//! stored  := body | zstd(body) | zstd(body, prefix)          as `encoding` says
//! body    := entry* restart_offset:u32{restart_count} restart_count:u32
//! ```
//!
//! Entries ascend by key and descend by revision within a key. Keys are prefix-compressed, except at
//! **restart points**, whose offsets stand at the end: a search is a binary search over the restart
//! points and a scan of the few entries of one run.
//!
//! Invariants: the body is never empty; the first restart is at 0; restarts ascend; an entry at a
//! restart point shares nothing with the entry before it. [`Body::check`] proves all of it; readers
//! that skip the proof (because the CRC was right) still never panic: every step is bounded.

use std::cmp::Ordering;

use crate::checksum::FileSeed;
use crate::cursor::{Reader, Writer};
use crate::entry::{self, EntryRef, Item, Neighbour};
use crate::error::{DecodeError, Problem, Result};
use crate::layout::{Layout, field};
use crate::limits;
use crate::place::FileKind;

/// The first two bytes of every data block: "aB".
pub const BLOCK_MAGIC: u16 = u16::from_le_bytes(*b"aB");
/// Bytes of a [`BlockHeader`].
pub const BLOCK_HEADER_BYTES: usize = 24;
/// At most this many entries lie between two restart points.
pub const RESTART_INTERVAL: u32 = 16;
/// In uncompressed blocks a run ends after this many bytes, so that a lookup skips few values.
const RUN_BYTES_MAX: usize = 512;

/// How a block's body is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encoding {
    /// As it is.
    Raw = 0,
    /// One zstd frame.
    Zstd = 1,
    /// One zstd frame over the file's dictionary.
    ZstdDictionary = 2,
    // 3 is kept for groups of versions that are read without decoding a whole block.
    /// One zstd frame over the body of an earlier block, as its prefix. See `base`.
    ZstdBase = 4,
}

/// What stands before a block's stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The kind of the file.
    pub kind: FileKind,
    /// How the body is stored.
    pub encoding: Encoding,
    /// Bytes of the body.
    pub raw_bytes: u32,
    /// Bytes that follow the header.
    pub stored_bytes: u32,
    /// Entries in the body, at least 1.
    pub entry_count: u32,
    /// With [`Encoding::ZstdBase`] how far before this block its base begins, in bytes; else 0. The
    /// base is never itself based on another block, so decoding takes at most two steps.
    pub base_distance: u32,
}

impl Encoding {
    /// The encoding with this number, if this build knows it.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Raw),
            1 => Some(Self::Zstd),
            2 => Some(Self::ZstdDictionary),
            4 => Some(Self::ZstdBase),
            _ => None,
        }
    }

    /// The number that stands on disk.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl BlockHeader {
    /// The byte map, as in SPEC-segment.md.
    pub const LAYOUT: Layout = Layout {
        structure: "block header",
        fields: &[
            field(0, 2, "magic"),
            field(2, 1, "kind"),
            field(3, 1, "encoding"),
            field(4, 4, "raw_bytes"),
            field(8, 4, "stored_bytes"),
            field(12, 4, "entry_count"),
            field(16, 4, "base_distance"),
            field(20, 4, "crc"),
        ],
    };

    /// Appends the header and the stored bytes of a block that begins at `offset` of its file.
    pub fn encode(&self, out: &mut Vec<u8>, seed: FileSeed, offset: u64, stored: &[u8]) {
        debug_assert_eq!(stored.len() as u64, u64::from(self.stored_bytes));
        let mut header = Vec::with_capacity(BLOCK_HEADER_BYTES);
        header.put_u16(BLOCK_MAGIC);
        header.put_u8(self.kind.number());
        header.put_u8(self.encoding.number());
        header.put_u32(self.raw_bytes);
        header.put_u32(self.stored_bytes);
        header.put_u32(self.entry_count);
        header.put_u32(self.base_distance);
        let crc = seed.crc(offset, &[&header, stored]);
        header.put_u32(crc);
        out.put_bytes(&header);
        out.put_bytes(stored);
    }

    /// Reads a whole block: its header and its stored bytes, which must be all of `bytes`.
    ///
    /// The fields are bounded but the checksum is not computed; [`check_crc`](Self::check_crc) does
    /// that, once, on the first touch of a block.
    pub fn decode(bytes: &[u8], kind: FileKind) -> Result<(Self, &[u8])> {
        let mut reader = Reader::new(Self::LAYOUT.structure, bytes);
        let found = reader.u16("magic")?;
        if found != BLOCK_MAGIC {
            let (expected, found) = (u32::from(BLOCK_MAGIC), u32::from(found));
            return Err(reader.error_at("magic", 0, Problem::Magic { expected, found }));
        }
        let (expected, found) = (kind.number(), reader.u8("kind")?);
        if expected != found {
            let (expected, found) = (u64::from(expected), u64::from(found));
            return Err(reader.error_at("kind", 2, Problem::Mismatch { expected, found }));
        }
        let number = reader.u8("encoding")?;
        let Some(encoding) = Encoding::from_number(number) else {
            let found = u64::from(number);
            return Err(reader.error_at("encoding", 3, Problem::Invalid { found }));
        };
        let (raw_bytes, stored_bytes) = (reader.u32("raw_bytes")?, reader.u32("stored_bytes")?);
        let entry_count = reader.u32("entry_count")?;
        let base_distance = reader.u32("base_distance")?;
        reader.u32("crc")?;
        let stored = reader.rest();
        if stored.len() as u64 != u64::from(stored_bytes) {
            let (expected, found) = (stored.len() as u64, u64::from(stored_bytes));
            return Err(reader.error_at("stored_bytes", 8, Problem::Mismatch { expected, found }));
        }
        let (max, found) = (limits::BLOCK_RAW_BYTES_MAX, u64::from(raw_bytes));
        if found > max {
            return Err(reader.error_at("raw_bytes", 4, Problem::TooLong { max, found }));
        }
        // A block that does not shrink is stored raw, so these two say the same thing.
        if (encoding == Encoding::Raw) != (raw_bytes == stored_bytes) || raw_bytes < stored_bytes {
            return Err(reader.error_at("raw_bytes", 4, Problem::Invalid { found }));
        }
        if entry_count == 0 || entry_count > raw_bytes {
            let found = u64::from(entry_count);
            return Err(reader.error_at("entry_count", 12, Problem::Invalid { found }));
        }
        if (encoding == Encoding::ZstdBase) != (base_distance != 0) {
            let found = u64::from(base_distance);
            return Err(reader.error_at("base_distance", 16, Problem::Invalid { found }));
        }
        let header = Self { kind, encoding, raw_bytes, stored_bytes, entry_count, base_distance };
        Ok((header, stored))
    }

    /// The length of the block that begins with `bytes`, its header included. To be believed only
    /// as far as the file reaches: nothing is checked.
    pub fn block_bytes(bytes: &[u8]) -> Result<u64> {
        let mut reader = Reader::new(Self::LAYOUT.structure, bytes);
        reader.bytes("magic", 8)?;
        Ok(BLOCK_HEADER_BYTES as u64 + u64::from(reader.u32("stored_bytes")?))
    }

    /// Compares the checksum of a whole block, as given to [`decode`](Self::decode).
    pub fn check_crc(bytes: &[u8], seed: FileSeed, offset: u64) -> Result<()> {
        let mut reader = Reader::new(Self::LAYOUT.structure, bytes);
        reader.bytes("magic", BLOCK_HEADER_BYTES - 4)?;
        let header = reader.consumed();
        let stored = bytes.get(BLOCK_HEADER_BYTES..).unwrap_or_default();
        reader.checksum("crc", seed.crc(offset, &[header, stored]))
    }
}

const _: () = assert!(BlockHeader::LAYOUT.bytes() == BLOCK_HEADER_BYTES);

/// Builds the body of a block entry by entry.
#[derive(Debug)]
pub struct BodyBuilder {
    kind: FileKind,
    out: Vec<u8>,
    restarts: Vec<u32>,
    entry_count: u32,
    key: Vec<u8>,
    neighbour: Neighbour,
    run_start: usize,
    run_entries: u32,
}

/// A finished body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawBlock {
    /// The body, not yet compressed.
    pub body: Vec<u8>,
    /// Entries in it.
    pub entry_count: u32,
}

impl BodyBuilder {
    /// An empty body for a file of this kind.
    pub fn new(kind: FileKind) -> Self {
        Self {
            kind,
            out: Vec::new(),
            restarts: Vec::new(),
            entry_count: 0,
            key: Vec::new(),
            neighbour: Neighbour::default(),
            run_start: 0,
            run_entries: 0,
        }
    }

    /// Appends an entry, which must sort after the one before it. The caller has checked its key
    /// and value against the limits of the format.
    pub fn push(&mut self, entry: &EntryRef<'_>) {
        let run_full = self.run_entries >= RESTART_INTERVAL
            || (is_uncompressed(self.kind) && self.out.len() - self.run_start >= RUN_BYTES_MAX);
        if self.entry_count == 0 || run_full {
            // A body is below 4 GiB, see `limits`.
            self.restarts.push(u32::try_from(self.out.len()).unwrap_or(u32::MAX));
            self.run_start = self.out.len();
            self.run_entries = 0;
            self.neighbour.present = false;
        }
        let previous = self.neighbour.present.then_some((&*self.key, self.neighbour));
        entry::encode(&mut self.out, self.kind, entry, previous);
        self.key.clear();
        self.key.extend_from_slice(entry.key);
        self.neighbour = Neighbour {
            key_bytes: entry.key.len(),
            revision: entry.revision,
            create_revision: entry.create_revision,
            version: entry.version,
            present: true,
        };
        self.entry_count += 1;
        self.run_entries += 1;
    }

    /// Bytes the body would have if it were finished now.
    pub fn raw_bytes(&self) -> usize {
        self.out.len() + 4 * (self.restarts.len() + 1)
    }

    /// Whether nothing has been pushed.
    pub const fn is_empty(&self) -> bool {
        self.entry_count == 0
    }

    /// Ends the body and starts over.
    pub fn finish(&mut self) -> RawBlock {
        for restart in &self.restarts {
            self.out.put_u32(*restart);
        }
        self.out.put_u32(u32::try_from(self.restarts.len()).unwrap_or(u32::MAX));
        let block = RawBlock { body: std::mem::take(&mut self.out), entry_count: self.entry_count };
        self.restarts.clear();
        self.entry_count = 0;
        self.run_start = 0;
        self.run_entries = 0;
        self.neighbour.present = false;
        block
    }
}

const fn is_uncompressed(kind: FileKind) -> bool {
    matches!(kind, FileKind::L0 | FileKind::Head)
}

/// A decoded body, read in place.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a> {
    kind: FileKind,
    entries: &'a [u8],
    restarts: &'a [[u8; 4]],
}

const BODY: &str = "block body";

impl<'a> Body<'a> {
    /// Finds the parts of a body. Costs nothing; proves only that the parts are where they should.
    pub fn parse(body: &'a [u8], kind: FileKind) -> Result<Self> {
        let fail = |field, problem| DecodeError {
            structure: BODY,
            field,
            offset: body.len().saturating_sub(4) as u64,
            problem,
        };
        let truncated = Problem::Truncated { needed: 4, have: body.len() as u64 };
        let (rest, count) =
            body.split_last_chunk::<4>().ok_or_else(|| fail("restart_count", truncated))?;
        let count = u32::from_le_bytes(*count);
        let bytes = u64::from(count) * 4;
        let entries_bytes = (rest.len() as u64)
            .checked_sub(bytes)
            .filter(|_| count > 0)
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or_else(|| fail("restart_count", Problem::Invalid { found: count.into() }))?;
        let (entries, restarts) = rest.split_at(entries_bytes);
        let (restarts, _) = restarts.as_chunks::<4>();
        Ok(Self { kind, entries, restarts })
    }

    /// How many runs there are, at least 1.
    pub const fn run_count(&self) -> usize {
        self.restarts.len()
    }

    /// Bytes taken by the entries.
    pub const fn entries_bytes(&self) -> usize {
        self.entries.len()
    }

    /// Where run `index` begins.
    pub fn run_offset(&self, index: usize) -> Result<usize> {
        let end = self.entries.len();
        let found = self.restarts.get(index).map_or(u32::MAX, |bytes| u32::from_le_bytes(*bytes));
        usize::try_from(found).ok().filter(|offset| *offset < end).ok_or(DecodeError {
            structure: BODY,
            field: "restart_offset",
            offset: end as u64,
            problem: Problem::TooLong { max: end as u64, found: found.into() },
        })
    }

    /// The entries from run `index` to the end of the block.
    pub fn run(&self, index: usize) -> Result<Run<'a>> {
        Ok(self.resume(self.run_offset(index)?, Neighbour::default()))
    }

    /// The entries from `offset` on, where the entry before `offset` was `neighbour`.
    pub fn resume(&self, offset: usize, neighbour: Neighbour) -> Run<'a> {
        let mut reader = Reader::new("entry", self.entries);
        let skipped = reader.bytes("start", offset.min(self.entries.len()));
        debug_assert!(skipped.is_ok(), "the offset is bounded");
        Run { kind: self.kind, reader, neighbour }
    }

    /// The run that an entry at `offset` belongs to.
    pub fn run_of(&self, offset: usize) -> usize {
        let starts_before = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes) as usize <= offset;
        self.restarts.partition_point(starts_before).saturating_sub(1)
    }

    /// The run to scan for the first entry at or after (`key`, `at`): the last that begins at or
    /// before it, else the first.
    pub fn seek(&self, key: &[u8], at: u64) -> Result<usize> {
        let (mut low, mut high) = (0, self.restarts.len());
        // Invariant: runs below `low` begin at or before the target, runs from `high` on after it.
        while low < high {
            let middle = usize::midpoint(low, high);
            let item = self.run(middle)?.next().transpose()?;
            let at_or_before = item.is_some_and(|item| {
                compare(item.suffix, item.fields.revision, key, at) != Ordering::Greater
            });
            if at_or_before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low.saturating_sub(1))
    }

    /// The newest version of `key` with a revision of at most `at`, if this block has it.
    ///
    /// Keys are never put together: it is enough to know how much of the target the entry before
    /// shared with it.
    pub fn find(&self, key: &[u8], at: u64) -> Result<Option<Item<'a>>> {
        let run = self.seek(key, at)?;
        let next_run =
            if run + 1 < self.run_count() { self.run_offset(run + 1)? } else { usize::MAX };
        let mut matched = 0;
        for item in self.run(run)? {
            let item = item?;
            if item.offset >= next_run {
                // The next run begins after the target; the key is whole there.
                return Ok((item.suffix == key && item.fields.revision <= at).then_some(item));
            }
            if item.shared < matched {
                // It differs from its predecessor, upwards, inside what that shared with the target.
                return Ok(None);
            }
            if item.shared > matched {
                // It agrees with its predecessor where that was already below the target.
                continue;
            }
            let wanted = key.get(matched..).unwrap_or_default();
            let common = entry::common_prefix(item.suffix, wanted);
            match (item.suffix.get(common), wanted.get(common)) {
                (None, None) if item.fields.revision <= at => return Ok(Some(item)),
                (Some(_), None) => return Ok(None),
                (Some(have), Some(want)) if have > want => return Ok(None),
                _ => matched += common,
            }
        }
        Ok(None)
    }

    /// Checks everything a body promises and hands out its entries with whole keys.
    pub fn check(
        &self,
        entry_count: u32,
        mut each: impl FnMut(&EntryRef<'a>, &[u8]),
    ) -> Result<()> {
        let mut run = self.resume(0, Neighbour::default());
        let mut key = Vec::new();
        let mut runs = 0;
        let mut count = 0_u64;
        let mut last: Option<u64> = None;
        loop {
            let offset = run.position();
            let starts_run = runs < self.run_count() && self.run_offset(runs)? == offset;
            if starts_run {
                runs += 1;
                run.neighbour.present = false;
            }
            let Some(item) = run.next().transpose()? else { break };
            let order = |field| DecodeError {
                structure: "entry",
                field,
                offset: offset as u64,
                problem: Problem::Order,
            };
            let rest = key.get(item.shared..).unwrap_or_default();
            match (last, item.suffix.cmp(rest)) {
                (None, _) if starts_run => {}
                (Some(_), Ordering::Greater)
                    if starts_run || entry::common_prefix(item.suffix, rest) == 0 => {}
                (Some(revision), Ordering::Equal)
                    if item.fields.revision < revision
                        && (starts_run || item.suffix.is_empty()) => {}
                _ => return Err(order("suffix")),
            }
            key.truncate(item.shared);
            key.extend_from_slice(item.suffix);
            last = Some(item.fields.revision);
            count += 1;
            each(&item.fields, &key);
        }
        if runs != self.run_count() {
            self.run_offset(runs)?;
            let offset = self.entries.len() as u64;
            let (structure, field) = (BODY, "restart_offset");
            return Err(DecodeError { structure, field, offset, problem: Problem::Order });
        }
        if count != u64::from(entry_count) {
            let problem = Problem::Mismatch { expected: entry_count.into(), found: count };
            return Err(DecodeError { structure: BODY, field: "entry_count", offset: 0, problem });
        }
        Ok(())
    }
}

/// The entries of a block from a restart point on.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    kind: FileKind,
    reader: Reader<'a>,
    neighbour: Neighbour,
}

impl Run<'_> {
    /// Where the next entry begins.
    pub const fn position(&self) -> usize {
        self.reader.position()
    }

    /// What the next entry is compared with.
    pub const fn neighbour(&self) -> Neighbour {
        self.neighbour
    }
}

impl<'a> Iterator for Run<'a> {
    type Item = Result<Item<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        match entry::decode(&mut self.reader, self.kind, &self.neighbour) {
            Ok(item) => {
                self.neighbour = Neighbour {
                    key_bytes: item.shared + item.suffix.len(),
                    revision: item.fields.revision,
                    create_revision: item.fields.create_revision,
                    version: item.fields.version,
                    present: true,
                };
                Some(Ok(item))
            }
            Err(error) => {
                // Nothing after a damaged entry can be found.
                self.reader = Reader::new("entry", &[]);
                Some(Err(error))
            }
        }
    }
}

/// The order of entries: key ascending, then revision descending.
pub fn compare(a_key: &[u8], a_revision: u64, b_key: &[u8], b_revision: u64) -> Ordering {
    a_key.cmp(b_key).then(b_revision.cmp(&a_revision))
}
