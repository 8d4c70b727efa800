//! Sorted sources of keys: a memtable generation, an L0 file, the files of HEAD.
//!
//! A scan merges several of them. A source walks *distinct keys* in either direction and, standing
//! on a key, says what it knows of the key as of a revision. A generation has all its versions of the
//! key, a file the newest: see [`read`](super::read) for what follows from it.

use annals_format::order::{has_begun, later};
use annals_format::space::is_system;
use bytes::Bytes;

use crate::error::Result;
use crate::index::{Generation, KeyCursor, Lookup};
use crate::segment::Cursor;
use crate::sync::Arc;

use super::record::{HistoryRecord, Record};
use super::tables::SealedFile;

/// What a source knows of a key as of a revision.
#[derive(Debug)]
pub(super) enum Answer {
    /// The newest version at or before the revision; no older source matters.
    Found(HistoryRecord),
    /// Nothing: ask older sources.
    Below,
    /// Nothing, and older sources know nothing either.
    Absent,
    /// HISTORY has the answer if there is one; no older source matters.
    Superseded,
}

/// A sorted source of distinct keys.
#[derive(Debug)]
pub(super) enum Source {
    /// A memtable generation.
    Memory(KeyCursor),
    /// Sealed files.
    Files(Box<FileSource>),
}

/// Sealed files that lie one after the other: one L0 file, or all of HEAD.
#[derive(Debug)]
pub(super) struct FileSource {
    files: Vec<Arc<SealedFile>>,
    /// The file the cursor is in.
    at: usize,
    cursor: Option<Cursor>,
    /// Whether this is HEAD, below which there is only HISTORY.
    head: bool,
    /// Keys before this one do not count: they are folded.
    from: Vec<u8>,
}

impl Source {
    /// The keys of a generation.
    pub(super) fn memory(generation: &Arc<Generation>) -> Self {
        Self::Memory(generation.cursor())
    }

    /// The keys of one L0 file.
    pub(super) fn l0(file: &Arc<SealedFile>) -> Self {
        Self::Files(Box::new(FileSource::new(vec![Arc::clone(file)], false)))
    }

    /// The keys of HEAD, or of a run of its files.
    pub(super) fn head(files: Vec<Arc<SealedFile>>) -> Self {
        Self::Files(Box::new(FileSource::new(files, true)))
    }

    /// Goes to the first key at or after `key`.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<()> {
        match self {
            Self::Memory(cursor) => {
                cursor.seek(key);
                Ok(())
            }
            Self::Files(files) => files.seek(key),
        }
    }

    /// Goes to the last key before `key`.
    pub(super) fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        match self {
            Self::Memory(cursor) => {
                cursor.seek_before(key);
                Ok(())
            }
            Self::Files(files) => files.seek_before(key),
        }
    }

    /// The key stood on.
    pub(super) fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Memory(cursor) => cursor.node().map(crate::index::KeyNode::key),
            Self::Files(files) => files.key(),
        }
    }

    /// Goes to the next key.
    pub(super) fn next(&mut self) -> Result<()> {
        match self {
            Self::Memory(cursor) => {
                cursor.next();
                Ok(())
            }
            Self::Files(files) => files.next(),
        }
    }

    /// Goes to the key before.
    pub(super) fn prev(&mut self) -> Result<()> {
        match self {
            Self::Memory(cursor) => {
                cursor.prev();
                Ok(())
            }
            Self::Files(files) => files.prev(),
        }
    }

    /// What is known of the key stood on as of `at`.
    pub(super) fn answer(&self, at: u64, keys_only: bool) -> Result<Answer> {
        match self {
            Self::Memory(cursor) => Ok(memory_answer(cursor, at, keys_only)),
            Self::Files(files) => files.answer(at, keys_only),
        }
    }
}

fn memory_answer(cursor: &KeyCursor, at: u64, keys_only: bool) -> Answer {
    let Some(node) = cursor.node() else { return Answer::Below };
    match node.at(at) {
        Lookup::Found(version) => {
            let generation = cursor.generation();
            let key = Bytes::copy_from_slice(node.key());
            Answer::Found(HistoryRecord::of_memory(generation, key, version, keys_only))
        }
        Lookup::Below => Answer::Below,
        Lookup::Absent => Answer::Absent,
    }
}

impl FileSource {
    fn new(files: Vec<Arc<SealedFile>>, head: bool) -> Self {
        let from = files.first().map(|file| file.meta().folded_to.clone()).unwrap_or_default();
        Self { files, at: 0, cursor: None, head, from }
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let at = self.files.partition_point(|file| file.meta().last_key.as_slice() < key);
        if self.enter(at)? {
            let from = later(key, &self.from);
            self.cursor.as_mut().map_or(Ok(()), |cursor| cursor.seek(from, u64::MAX))?;
        }
        self.settle(true)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let after = self.files.partition_point(|file| file.meta().first_key.as_slice() < key);
        let Some(at) = after.checked_sub(1) else {
            self.leave();
            return Ok(());
        };
        if self.enter(at)? {
            self.on(|cursor| cursor.seek_before(key))?;
        }
        self.settle(false)
    }

    fn key(&self) -> Option<&[u8]> {
        self.cursor.as_ref().and_then(Cursor::entry).map(|entry| entry.key)
    }

    fn next(&mut self) -> Result<()> {
        self.on(Cursor::next)?;
        self.settle(true)
    }

    fn prev(&mut self) -> Result<()> {
        self.on(Cursor::prev)?;
        self.settle(false)
    }

    fn answer(&self, at: u64, keys_only: bool) -> Result<Answer> {
        let Some(cursor) = &self.cursor else { return Ok(Answer::Below) };
        let Some(entry) = cursor.entry() else { return Ok(Answer::Below) };
        let begun = self.head || entry.first <= at;
        // Of a system key the versions in between are nowhere: it is read as of now.
        if entry.revision <= at || begun && is_system(entry.key) {
            Ok(Answer::Found(HistoryRecord::of_cursor(cursor, keys_only)?))
        } else if begun {
            Ok(Answer::Superseded)
        } else {
            Ok(Answer::Below)
        }
    }

    /// Opens file `at`; false past the last.
    fn enter(&mut self, at: usize) -> Result<bool> {
        let Some(file) = self.files.get(at) else {
            self.leave();
            return Ok(false);
        };
        if self.cursor.is_none() || self.at != at {
            self.cursor = Some(file.open()?.cursor());
            self.at = at;
        }
        Ok(true)
    }

    fn leave(&mut self) {
        self.cursor = None;
    }

    fn on(&mut self, step: impl FnOnce(&mut Cursor) -> Result<()>) -> Result<()> {
        self.cursor.as_mut().map_or(Ok(()), step)
    }

    /// Goes on to the neighbouring file where the cursor has run out of its own.
    fn settle(&mut self, forward: bool) -> Result<()> {
        while let Some(cursor) = &self.cursor {
            if let Some(entry) = cursor.entry() {
                // Forward it began there.
                if !forward && !has_begun(&self.from, entry.key) {
                    self.leave();
                }
                return Ok(());
            }
            let next = if forward { Some(self.at + 1) } else { self.at.checked_sub(1) };
            match next {
                Some(at) if self.enter(at)? => {
                    self.on(
                        |cursor| if forward { cursor.seek_first() } else { cursor.seek_last() },
                    )?;
                }
                Some(_) => {}
                None => self.leave(),
            }
        }
        Ok(())
    }
}

impl HistoryRecord {
    /// A version of a generation.
    pub(super) fn of_memory(
        generation: &Arc<Generation>,
        key: Bytes,
        version: &crate::index::Version,
        keys_only: bool,
    ) -> Self {
        let value = if keys_only { Bytes::new() } else { generation.value(version) };
        Self {
            record: Record {
                key,
                value,
                create_revision: version.create_revision(),
                mod_revision: version.at(),
                sub: version.sub(),
                version: version.version(),
                lease: version.lease(),
            },
            tombstone: version.is_tombstone(),
        }
    }

    /// The version a cursor stands on.
    pub(super) fn of_cursor(cursor: &Cursor, keys_only: bool) -> Result<Self> {
        let entry = cursor.entry().unwrap_or_default();
        let value = if keys_only { Bytes::new() } else { cursor.value()? };
        Ok(Self {
            record: Record {
                key: Bytes::copy_from_slice(entry.key),
                value,
                create_revision: entry.create_revision,
                mod_revision: entry.revision,
                sub: entry.sub,
                version: entry.version,
                lease: entry.lease,
            },
            tombstone: entry.tombstone,
        })
    }
}
