//! Where the groups of a block lie, and which of them has a version.

use std::cmp::Ordering;

use super::GROUPS_MAX;
use super::head::Group;
use crate::block;
use crate::cursor::Reader;
use crate::error::{DecodeError, Problem, Result};
use crate::limits::INTERNAL_KEY_BYTES_MAX;

/// The groups of a block, read in place.
#[derive(Clone, Copy, Debug)]
pub struct Groups<'a> {
    stored: &'a [u8],
    prefix: &'a [u8],
    ends: &'a [[u8; 4]],
    /// Where the directory ends and the first group begins.
    begin: usize,
}

const GROUPS: &str = "groups";

impl<'a> Groups<'a> {
    /// Finds the groups in the stored bytes of a block of encoding 3. Costs nothing; proves only that
    /// there is a directory.
    pub fn parse(stored: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(GROUPS, stored);
        let count = usize::from(reader.u16("group_count")?);
        if !(1..=GROUPS_MAX).contains(&count) {
            let found = count as u64;
            return Err(reader.error_at("group_count", 0, Problem::Invalid { found }));
        }
        let prefix = reader.prefixed("prefix", INTERNAL_KEY_BYTES_MAX)?;
        let (ends, _) = reader.bytes("group_end", (count - 1) * 4)?.as_chunks::<4>();
        Ok(Self { stored, prefix, ends, begin: reader.position() })
    }

    /// How many groups there are, at least 1.
    pub const fn count(&self) -> usize {
        self.ends.len() + 1
    }

    /// What all keys of the block begin with.
    pub const fn prefix(&self) -> &'a [u8] {
        self.prefix
    }

    /// Group number `index`. Its head is decoded, of the rest only the bounds.
    pub fn group(&self, index: usize) -> Result<Group<'a>> {
        let (start, end) = self.span(index)?;
        Group::parse(self.stored.get(..end).unwrap_or_default(), start, index)
    }

    /// The newest version of `key` with a revision of at most `at`, if the block has it: its group, and
    /// its number in that.
    pub fn find(&self, key: &[u8], at: u64) -> Result<Option<(Group<'a>, usize)>> {
        let Some(suffix) = key.strip_prefix(self.prefix) else { return Ok(None) };
        let (mut low, mut high) = (1, self.count());
        // Invariant: groups below `low` begin at or before the target, or are the first; groups from
        // `high` on begin after it.
        while low < high {
            let middle = usize::midpoint(low, high);
            let (found, revision) = self.first(middle)?;
            if block::compare(found, revision, suffix, at) == Ordering::Greater {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let group = self.group(low - 1)?;
        if group.key_suffix() == suffix
            && let Some(version) = group.position_at(at)
        {
            return Ok(Some((group, version)));
        }
        // All versions of the key so far are later than `at`; the next group begins at or before it.
        if low < self.count() && self.first(low)?.0 == suffix {
            return Ok(Some((self.group(low)?, 0)));
        }
        Ok(None)
    }

    /// Key suffix and newest revision of a group.
    fn first(&self, index: usize) -> Result<(&'a [u8], u64)> {
        let (start, end) = self.span(index)?;
        Group::first(self.stored.get(..end).unwrap_or_default(), start)
    }

    /// Where group `index` begins and ends.
    pub(super) fn span(&self, index: usize) -> Result<(usize, usize)> {
        let start = match index.checked_sub(1) {
            None => Some(self.begin),
            Some(before) => self.end(before),
        };
        let end = if index == self.ends.len() { Some(self.stored.len()) } else { self.end(index) };
        match (start, end) {
            (Some(start), Some(end))
                if self.begin <= start && start < end && end <= self.stored.len() =>
            {
                Ok((start, end))
            }
            _ => Err(self.error(index, start, end)),
        }
    }

    fn end(&self, index: usize) -> Option<usize> {
        usize::try_from(u32::from_le_bytes(*self.ends.get(index)?)).ok()
    }

    #[cold]
    fn error(&self, index: usize, start: Option<usize>, end: Option<usize>) -> DecodeError {
        let ends_at = self.begin.saturating_sub(self.ends.len() * 4);
        let problem = match (start, end) {
            (Some(_), Some(end)) if end > self.stored.len() => {
                Problem::TooLong { max: self.stored.len() as u64, found: end as u64 }
            }
            (Some(_), Some(_)) => Problem::Order,
            _ => Problem::TooLong { max: self.ends.len() as u64, found: index as u64 },
        };
        let offset = (ends_at + index.min(self.ends.len()) * 4) as u64;
        DecodeError { structure: GROUPS, field: "group_end", offset, problem }
    }
}
