//! The keys of a range as of a revision, in either direction.
//!
//! ```text
//!   generations, L0 files (newest first)   HEAD
//!          \________ merge by key __________/
//!                        |  newest version <= R of each key
//!                        |  only where a file has passed it over: one probe of HISTORY
//!                        v
//!                 living keys, in order
//! ```
//!
//! Both ends may be taken from in turn: each end has sources of its own, opened when it is first
//! used, and the range shrinks with every key given out. Memory is bounded whatever the range.

use std::mem;

use annals_format::space::{self, is_system};

use crate::error::{Error, Result};
use crate::index::Position;
use crate::segment::Want;
use crate::sync::Arc;

use super::pins::Pin;
use super::read;
use super::record::Record;
use super::source::{Answer, Source};
use super::tables::{SealedFile, Tables};

/// The living keys of a range, as of one revision.
///
/// After an error it ends.
#[derive(Debug)]
pub(crate) struct Scan {
    tables: Tables,
    at: u64,
    keys_only: bool,
    /// What is left: from here ...
    start: Vec<u8>,
    /// ... to before here.
    end: Vec<u8>,
    /// The key stood on: memory that is used again for each.
    key: Vec<u8>,
    forward: Option<Merge>,
    backward: Option<Merge>,
    done: bool,
    /// Given instead of the first record.
    pub(super) refused: Option<Error>,
    /// Keeps the revision readable where the scan outlives its view.
    _pin: Option<Arc<Pin>>,
}

/// Several sources, merged.
#[derive(Debug)]
pub(super) struct Merge {
    /// Newest first.
    sources: Vec<Source>,
}

impl Scan {
    /// The range from `start` to before `end` (empty: to the end of the space of `start`).
    pub(super) fn new(
        tables: Tables,
        at: u64,
        (start, end): (&[u8], &[u8]),
        keys_only: bool,
        pin: Option<Arc<Pin>>,
    ) -> Self {
        let end = if end.is_empty() { end_of_space(start) } else { end.to_vec() };
        let done = start >= end.as_slice();
        let start = start.to_vec();
        Self {
            tables,
            at,
            keys_only,
            start,
            end,
            key: Vec::new(),
            forward: None,
            backward: None,
            done,
            refused: None,
            _pin: pin,
        }
    }

    fn step_forward(&mut self) -> Result<Option<Record>> {
        let mut merge = match self.forward.take() {
            Some(merge) => merge,
            None => {
                let mut merge = Merge::of(&self.tables, (&self.start, &self.end));
                merge.seek(&self.start)?;
                merge
            }
        };
        while let Some(least) = merge.least() {
            if merge.key(least).is_none_or(|key| key >= self.end.as_slice()) {
                break;
            }
            self.key.clear();
            self.key.extend_from_slice(merge.key(least).unwrap_or_default());
            let found = merge.answer(&self.tables, &self.key, self.at, self.keys_only)?;
            merge.next(&self.key)?;
            if let Some(record) = found {
                self.key.push(0);
                mem::swap(&mut self.start, &mut self.key);
                self.forward = Some(merge);
                return Ok(Some(record));
            }
        }
        self.done = true;
        Ok(None)
    }

    fn step_backward(&mut self) -> Result<Option<Record>> {
        let mut merge = match self.backward.take() {
            Some(merge) => merge,
            None => {
                let mut merge = Merge::of(&self.tables, (&self.start, &self.end));
                merge.seek_before(&self.end)?;
                merge
            }
        };
        while let Some(greatest) = merge.greatest() {
            if merge.key(greatest).is_none_or(|key| key < self.start.as_slice()) {
                break;
            }
            self.key.clear();
            self.key.extend_from_slice(merge.key(greatest).unwrap_or_default());
            let found = merge.answer(&self.tables, &self.key, self.at, self.keys_only)?;
            merge.prev(&self.key)?;
            if let Some(record) = found {
                mem::swap(&mut self.end, &mut self.key);
                self.backward = Some(merge);
                return Ok(Some(record));
            }
        }
        self.done = true;
        Ok(None)
    }

    fn fused(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<Option<Record>>,
    ) -> Option<Result<Record>> {
        if self.done {
            return None;
        }
        if let Some(error) = self.refused.take() {
            self.done = true;
            return Some(Err(error));
        }
        let result = step(self);
        self.done |= result.is_err();
        result.transpose()
    }
}

impl Iterator for Scan {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        self.fused(Self::step_forward)
    }
}

impl DoubleEndedIterator for Scan {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.fused(Self::step_backward)
    }
}

impl std::iter::FusedIterator for Scan {}

impl Merge {
    /// Every source of the newest versions that can have keys of a range. No other file is read: what is damaged there
    /// keeps nobody from this range.
    fn of(tables: &Tables, (start, end): (&[u8], &[u8])) -> Self {
        let meets = |file: &&Arc<SealedFile>| {
            let meta = file.meta();
            meta.last_key.as_slice() >= start && meta.first_key.as_slice() < end
        };
        let files = &tables.files;
        let mut sources: Vec<Source> = tables.generations.iter().map(Source::memory).collect();
        sources.extend(files.l0.iter().filter(meets).map(Source::l0));
        let head: Vec<_> = files.head.iter().filter(meets).cloned().collect();
        if !head.is_empty() {
            sources.push(Source::head(head));
        }
        Self { sources }
    }

    /// Sends every source to its first key at or after `key`.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.sources.iter_mut().try_for_each(|source| source.seek(key))?;
        self.sources.retain(|source| source.key().is_some());
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.sources.iter_mut().try_for_each(|source| source.seek_before(key))?;
        self.sources.retain(|source| source.key().is_some());
        Ok(())
    }

    /// The source with the least key.
    pub(super) fn least(&self) -> Option<usize> {
        (0..self.sources.len()).min_by(|a, b| self.key(*a).cmp(&self.key(*b)))
    }

    fn greatest(&self) -> Option<usize> {
        (0..self.sources.len()).max_by(|a, b| self.key(*a).cmp(&self.key(*b)))
    }

    /// The key of a source.
    pub(super) fn key(&self, source: usize) -> Option<&[u8]> {
        self.sources.get(source)?.key()
    }

    /// The version of `key`, which the sources stand on or have passed, as of `at`; `None` if the
    /// key does not live then.
    fn answer(
        &self,
        tables: &Tables,
        key: &[u8],
        at: u64,
        keys_only: bool,
    ) -> Result<Option<Record>> {
        for source in self.sources.iter().filter(|source| source.key() == Some(key)) {
            match source.answer(at, keys_only)? {
                Answer::Found(found) if found.tombstone => return Ok(None),
                Answer::Found(found) => return Ok(Some(found.record)),
                Answer::Below => {}
                Answer::Absent => return Ok(None),
                Answer::Superseded => {
                    let found = read::in_history(&tables.files, key, at, Want::unless(keys_only))?;
                    return Ok(found.filter(|found| !found.tombstone).map(|found| found.record));
                }
            }
        }
        Ok(None)
    }

    /// Moves every source that stands on `key` to its next one.
    pub(super) fn next(&mut self, key: &[u8]) -> Result<()> {
        let mut gone = false;
        for source in self.sources.iter_mut().filter(|source| source.key() == Some(key)) {
            source.next()?;
            gone |= source.key().is_none();
        }
        if gone {
            self.sources.retain(|source| source.key().is_some());
        }
        Ok(())
    }

    fn prev(&mut self, key: &[u8]) -> Result<()> {
        let mut gone = false;
        for source in self.sources.iter_mut().filter(|source| source.key() == Some(key)) {
            source.prev()?;
            gone |= source.key().is_none();
        }
        if gone {
            self.sources.retain(|source| source.key().is_some());
        }
        Ok(())
    }
}

/// The first key after every key of the space of `key`.
pub(super) fn end_of_space(key: &[u8]) -> Vec<u8> {
    let space = key.first().copied().unwrap_or(space::USER);
    vec![space.saturating_add(1)]
}

/// What versions of a key are compared with as of a position: its revision, or in the system space
/// its seq.
pub(super) fn at_for(key: &[u8], position: Position) -> u64 {
    if is_system(key) { position.seq } else { position.revision }
}
