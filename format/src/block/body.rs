//! A body, read in place: point reads, runs of entries, and the proof of what a body promises.

use std::cmp::Ordering;

use super::compare;
use crate::cursor::Reader;
use crate::entry::{self, EntryRef, Item, Neighbour};
use crate::error::{DecodeError, Problem, Result};
use crate::place::FileKind;

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
            if self.starts_at_or_before(middle, key, at)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low.saturating_sub(1))
    }

    /// Whether a run begins at or before (`key`, `at`).
    fn starts_at_or_before(&self, index: usize, key: &[u8], at: u64) -> Result<bool> {
        let offset = self.run_offset(index)?;
        // Only the key is looked at unless it is the same.
        if let Some(first) = self.entries.get(offset..).and_then(entry::whole_key) {
            match first.cmp(key) {
                Ordering::Less => return Ok(true),
                Ordering::Greater => return Ok(false),
                // Where a key has one version, nothing of the key lies before this one.
                Ordering::Equal if self.kind.has_one_version() => return Ok(true),
                Ordering::Equal => {}
            }
        }
        let item = self.resume(offset, Neighbour::default()).next().transpose()?;
        Ok(item.is_some_and(|item| {
            compare(item.suffix, item.fields.revision, key, at) != Ordering::Greater
        }))
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
        // A run, step by step in place: handing items out would copy each of them twice.
        let mut reader = Reader::new("entry", self.entries);
        reader.bytes("start", self.run_offset(run)?)?;
        let mut neighbour = Neighbour::default();
        while !reader.is_empty() {
            let item = entry::decode(&mut reader, self.kind, &neighbour)?;
            neighbour = Neighbour::of(&item);
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
                    if !self.kind.has_one_version()
                        && item.fields.revision < revision
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
                self.neighbour = Neighbour::of(&item);
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
