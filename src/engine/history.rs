//! All versions of one key, newest first.
//!
//! Generations have contiguous pieces of the key's past, one older than the other, and all of them
//! newer than the files. The files have its versions mixed: L0 and HEAD one each, which nothing
//! superseded in its own generation, and the windows of HISTORY those between. So the files are merged
//! by revision. A file is opened when a version of it can be the next: the manifest says how new its
//! versions are at most.
//!
//! The end is decided by the watermark, not by what happens to be on disk: the newest version at
//! or before the watermark is the last one given, unless it is an older tombstone.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::index::Generation;
use crate::segment::{Cursor, Want};
use crate::sync::Arc;

use super::pins::Pin;
use super::record::HistoryRecord;
use super::tables::{SealedFile, Tables};

/// The versions of a key, newest first. After an error it ends.
#[derive(Debug)]
pub(crate) struct History {
    key: Bytes,
    /// The newest revision to give out.
    at: u64,
    watermark: u64,
    keys_only: bool,
    /// Generations not yet looked into, newest first.
    generations: VecDeque<Arc<Generation>>,
    /// Files not yet opened, each with a revision that no version it can give is above; lowest first.
    files: Vec<(u64, Arc<SealedFile>)>,
    /// Opened files, each at the newest version of the key that it has not given.
    cursors: Vec<Cursor>,
    /// Versions of a generation, taken out at once: they are few, and the values shared.
    ready: VecDeque<HistoryRecord>,
    /// The last revision given out.
    last: Option<u64>,
    done: bool,
    /// Given instead of the first version.
    pub(super) refused: Option<Error>,
    _pin: Option<Arc<Pin>>,
}

impl History {
    /// The versions at or before `at` that the watermark leaves.
    pub(super) fn new(
        tables: &Tables,
        key: &[u8],
        (at, watermark): (u64, u64),
        keys_only: bool,
        pin: Option<Arc<Pin>>,
    ) -> Self {
        let set = &tables.files;
        let newest = set.l0.iter().filter(|file| file.covers(key)).chain(set.head_of(key));
        let newest = newest.map(|file| (file.meta().max_revision.min(at), Arc::clone(file)));
        let windows = set.windows.iter().filter(|window| window.upto > watermark);
        let superseded = windows.flat_map(|window| {
            // A version is older than what superseded it.
            let below = window.upto.saturating_sub(1).min(at);
            let bound = move |file: &Arc<SealedFile>| below.min(file.meta().max_revision);
            window.files_of(key).map(move |file| (bound(file), Arc::clone(file)))
        });
        let mut files: Vec<_> = newest.chain(superseded).collect();
        files.sort_by_key(|(bound, _)| *bound);
        Self {
            key: Bytes::copy_from_slice(key),
            at,
            watermark,
            keys_only,
            generations: tables.generations.iter().cloned().collect(),
            files,
            cursors: Vec::new(),
            ready: VecDeque::new(),
            last: None,
            done: false,
            refused: None,
            _pin: pin,
        }
    }

    /// The next version, and the revision that superseded it where the source knows it, else 0.
    fn step(&mut self) -> Result<Option<(HistoryRecord, u64)>> {
        loop {
            if let Some(found) = self.ready.pop_front() {
                return Ok(Some((found, 0)));
            }
            let Some(generation) = self.generations.pop_front() else { break };
            let Some(node) = generation.find(&self.key) else { continue };
            let versions = node.versions().skip_while(|version| version.at() > self.at);
            self.ready.extend(versions.map(|version| {
                let key = self.key.clone();
                HistoryRecord::of_memory(&generation, key, version, self.keys_only)
            }));
        }
        self.step_in_files()
    }

    /// As [`Self::step`], when nothing is left in memory.
    fn step_in_files(&mut self) -> Result<Option<(HistoryRecord, u64)>> {
        loop {
            let newest = (0..self.cursors.len()).max_by_key(|at| self.revision_of(*at));
            let revision = newest.map(|at| self.revision_of(at));
            if let Some((_, file)) = self.files.pop_if(|(bound, _)| revision < Some(*bound)) {
                self.open(&file)?;
                continue;
            }
            let Some(cursor) = newest.and_then(|at| self.cursors.get_mut(at)) else {
                return Ok(None);
            };
            let death = cursor.entry().map_or(0, |entry| entry.death);
            let found = HistoryRecord::of_cursor(cursor, self.keys_only)?;
            cursor.next()?;
            self.cursors.retain(|cursor| is_at(cursor, &self.key));
            return Ok(Some((found, death)));
        }
    }

    /// The revision that an opened file would give next.
    fn revision_of(&self, cursor: usize) -> u64 {
        let entry = self.cursors.get(cursor).and_then(Cursor::entry);
        entry.map_or(0, |entry| entry.revision)
    }

    /// Puts a cursor to the newest version in a file that can be given, if there is one.
    fn open(&mut self, file: &SealedFile) -> Result<()> {
        let segment = file.open()?;
        if segment.may_contain(&self.key)? {
            let mut cursor = segment.cursor_for(Want::unless(self.keys_only));
            cursor.seek(&self.key, self.at)?;
            if is_at(&cursor, &self.key) {
                self.cursors.push(cursor);
            }
        }
        Ok(())
    }
}

/// Whether a cursor is at a version of the key.
fn is_at(cursor: &Cursor, key: &[u8]) -> bool {
    cursor.entry().is_some_and(|entry| entry.key == key)
}

impl Iterator for History {
    type Item = Result<HistoryRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.refused.take() {
            self.done = true;
            return Some(Err(error));
        }
        while !self.done {
            let (found, death) = match self.step() {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
            };
            let revision = found.record.mod_revision;
            if self.last.is_some_and(|last| revision >= last) {
                continue;
            }
            self.last = Some(revision);
            // Superseded by a tombstone that is forgotten already, or by what was given out last.
            if death != 0 && death <= self.watermark {
                break;
            }
            if revision <= self.watermark {
                self.done = true;
                if found.tombstone && revision < self.watermark {
                    break;
                }
            }
            return Some(Ok(found));
        }
        self.done = true;
        None
    }
}

impl std::iter::FusedIterator for History {}
