//! Where the groups of a block lie, and which of them has a version.

use memchr::memchr;
use xxhash_rust::xxh3::xxh3_64;

use super::GROUPS_MAX;
use super::head::Group;
use crate::cursor::Reader;
use crate::error::{DecodeError, Problem, Result};
use crate::limits::INTERNAL_KEY_BYTES_MAX;

/// The groups of a block, read in place.
#[derive(Clone, Copy, Debug)]
pub struct Groups<'a> {
    stored: &'a [u8],
    prefix: &'a [u8],
    ends: &'a [[u8; 4]],
    hashes: &'a [u8],
    /// Where the directory ends and the first group begins.
    begin: usize,
}

const GROUPS: &str = "groups";

/// What the directory of a block says of a key, of which this is what follows the prefix.
pub(super) fn key_hash(suffix: &[u8]) -> u8 {
    let [low, ..] = xxh3_64(suffix).to_le_bytes();
    low
}

impl<'a> Groups<'a> {
    /// Finds the groups in the stored bytes of a block of encoding 5. Costs nothing; proves only that
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
        let hashes = reader.bytes("key_hash", count)?;
        Ok(Self { stored, prefix, ends, hashes, begin: reader.position() })
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
    ///
    /// Only groups of the key are looked at, and those few that have its hash by chance: each that a search by
    /// halves would look at instead lies elsewhere in memory, and is seldom in a cache.
    pub fn find(&self, key: &[u8], at: u64) -> Result<Option<(Group<'a>, usize)>> {
        let Some(suffix) = key.strip_prefix(self.prefix) else { return Ok(None) };
        let hash = key_hash(suffix);
        let mut index = 0;
        while let Some(before) = memchr(hash, self.hashes.get(index..).unwrap_or_default()) {
            index += before;
            let (found, revision) = self.first(index)?;
            if found == suffix {
                return if revision <= at {
                    Ok(Some((self.group(index)?, 0)))
                } else {
                    self.find_older(index, suffix, at)
                };
            }
            index += 1;
        }
        Ok(None)
    }

    /// The same, where `newest`, the first of all groups of the key, begins after `at`.
    fn find_older(
        &self,
        newest: usize,
        suffix: &[u8],
        at: u64,
    ) -> Result<Option<(Group<'a>, usize)>> {
        let same = |hash: &&u8| self.hashes.get(newest) == Some(*hash);
        let alike = self.hashes.iter().skip(newest).take_while(same).count();
        let (mut low, mut high) = (newest + 1, newest + alike);
        // Invariant: groups below `low` are of the key and begin after `at`; groups from `high` on are not or do not.
        while low < high {
            let middle = usize::midpoint(low, high);
            let (found, revision) = self.first(middle)?;
            if found == suffix && revision > at {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let group = self.group(low - 1)?;
        if let Some(version) = group.position_at(at) {
            return Ok(Some((group, version)));
        }
        // All versions of the key so far are later than `at`; the next group begins at or before it.
        if low < newest + alike && self.first(low)?.0 == suffix {
            return Ok(Some((self.group(low)?, 0)));
        }
        Ok(None)
    }

    /// Whether the directory says of a group what its key is.
    pub(super) fn check_hash(&self, index: usize, suffix: &[u8]) -> Result<()> {
        let found = self.hashes.get(index).copied().unwrap_or_default();
        let expected = key_hash(suffix);
        if found == expected {
            return Ok(());
        }
        let offset = (self.begin - self.hashes.len() + index) as u64;
        let problem = Problem::Mismatch { expected: expected.into(), found: found.into() };
        Err(DecodeError { structure: GROUPS, field: "key_hash", offset, problem })
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
        let ends_at = self.begin.saturating_sub(self.hashes.len() + self.ends.len() * 4);
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
