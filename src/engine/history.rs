//! All versions of one key, newest first.
//!
//! The places a version can be in are ordered by age: generations, L0 files, HEAD, windows from the
//! newest. Each holds a contiguous piece of the key's past, newest first; the history is one piece
//! after the other, read as it is asked for.
//!
//! The end is decided by the watermark, not by what happens to be on disk: the newest version at
//! or before the watermark is the last one given, unless it is an older tombstone.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::error::{Error, Result};
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
    /// What has not been begun, newest first.
    pieces: VecDeque<Piece>,
    cursor: Option<Cursor>,
    /// Versions of a generation, taken out at once: they are few, and the values shared.
    ready: VecDeque<HistoryRecord>,
    /// The last revision given out.
    last: Option<u64>,
    done: bool,
    /// Given instead of the first version.
    pub(super) refused: Option<Error>,
    _pin: Option<Arc<Pin>>,
}

#[derive(Debug)]
enum Piece {
    Memory(Arc<crate::index::Generation>),
    File(Arc<SealedFile>),
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
        let files = &tables.files;
        let mut pieces: VecDeque<Piece> =
            tables.generations.iter().map(|g| Piece::Memory(Arc::clone(g))).collect();
        let l0 = files.l0.iter().filter(|file| file.covers(key));
        let windows = files.windows.iter().rev().filter(|window| window.upto > watermark);
        // Versions of a key in two neighbours of a window: the newer are in the first.
        let windows = windows.flat_map(|window| window.files_of(key));
        let sealed = l0.chain(files.head_of(key)).chain(windows);
        pieces.extend(sealed.map(|file| Piece::File(Arc::clone(file))));
        Self {
            key: Bytes::copy_from_slice(key),
            at,
            watermark,
            keys_only,
            pieces,
            cursor: None,
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
            if let Some(cursor) = &mut self.cursor {
                if let Some(entry) = cursor.entry().filter(|entry| entry.key == self.key) {
                    let death = entry.death;
                    let found = HistoryRecord::of_cursor(cursor, self.keys_only);
                    cursor.next()?;
                    return Ok(Some((found, death)));
                }
                self.cursor = None;
            }
            match self.pieces.pop_front() {
                None => return Ok(None),
                Some(Piece::Memory(generation)) => {
                    let Some(node) = generation.find(&self.key) else { continue };
                    let versions = node.versions().skip_while(|version| version.at() > self.at);
                    self.ready.extend(versions.map(|version| {
                        let key = self.key.clone();
                        HistoryRecord::of_memory(&generation, key, version, self.keys_only)
                    }));
                }
                Some(Piece::File(file)) => {
                    let segment = file.open()?;
                    if segment.may_contain(&self.key)? {
                        let mut cursor = segment.cursor_for(Want::unless(self.keys_only));
                        cursor.seek(&self.key, self.at)?;
                        self.cursor = Some(cursor);
                    }
                }
            }
        }
    }
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
