//! Sorted sources of keys: a memtable generation, an L0 file, the files of HEAD.
//!
//! A scan merges several of them. A source walks *distinct keys* in either direction and, standing
//! on a key, says what it knows of the key as of a revision; how many versions of the key it holds
//! is its own affair.

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
    /// HEAD has a version, but a later one: HISTORY may have the answer.
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
    /// Whether every key has one version (HEAD).
    single: bool,
    /// L0: the key stood on, since asking for its versions moves the cursor.
    key: Option<Vec<u8>>,
    /// L0: whether the cursor came to the key from before, and so stands on its newest version.
    forward: bool,
}

/// Versions to step over before the index is asked instead.
const STEPS_MAX: usize = 8;

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
    pub(super) fn answer(&mut self, at: u64, keys_only: bool) -> Result<Answer> {
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
    fn new(files: Vec<Arc<SealedFile>>, single: bool) -> Self {
        Self { files, at: 0, cursor: None, single, key: None, forward: true }
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let at = self.files.partition_point(|file| file.meta().last_key.as_slice() < key);
        if self.enter(at)? {
            self.on(|cursor| cursor.seek(key, u64::MAX))?;
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
        if self.single {
            return self.cursor.as_ref().and_then(Cursor::entry).map(|entry| entry.key);
        }
        self.key.as_deref()
    }

    fn next(&mut self) -> Result<()> {
        if self.single {
            self.on(Cursor::next)?;
            return self.settle(true);
        }
        let Some(key) = self.key.take() else { return Ok(()) };
        if let Some(cursor) = &mut self.cursor {
            let mut steps = 0;
            while cursor.entry().is_some_and(|entry| entry.key == key) {
                if steps == STEPS_MAX {
                    // The shortest key after this one: past all its versions.
                    let mut after = key.clone();
                    after.push(0);
                    cursor.seek(&after, u64::MAX)?;
                    break;
                }
                cursor.next()?;
                steps += 1;
            }
        }
        self.settle(true)
    }

    fn prev(&mut self) -> Result<()> {
        if self.single {
            self.on(Cursor::prev)?;
            return self.settle(false);
        }
        let Some(key) = self.key.take() else { return Ok(()) };
        self.on(|cursor| cursor.seek_before(&key))?;
        self.settle(false)
    }

    fn answer(&mut self, at: u64, keys_only: bool) -> Result<Answer> {
        let Some(cursor) = &mut self.cursor else { return Ok(Answer::Below) };
        if self.single {
            let Some(entry) = cursor.entry() else { return Ok(Answer::Below) };
            // Of a system key there is no other version.
            return Ok(if entry.revision <= at || is_system(entry.key) {
                Answer::Found(HistoryRecord::of_cursor(cursor, keys_only))
            } else {
                Answer::Superseded
            });
        }
        let Some(key) = self.key.as_deref() else { return Ok(Answer::Below) };
        // Walking forward the cursor stands on the newest version of the key, and the answer is
        // there or near. Walking back it stands on the oldest.
        let mut steps = if self.forward { 0 } else { STEPS_MAX };
        if !self.forward {
            cursor.seek(key, at)?;
        }
        while cursor.entry().is_some_and(|entry| entry.key == key && entry.revision > at) {
            if steps == STEPS_MAX {
                cursor.seek(key, at)?;
                break;
            }
            cursor.next()?;
            steps += 1;
        }
        if cursor.entry().is_some_and(|entry| entry.key == key) {
            return Ok(Answer::Found(HistoryRecord::of_cursor(cursor, keys_only)));
        }
        Ok(Answer::Below)
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
        self.key = None;
    }

    fn on(&mut self, step: impl FnOnce(&mut Cursor) -> Result<()>) -> Result<()> {
        self.cursor.as_mut().map_or(Ok(()), step)
    }

    /// Goes on to the neighbouring file where the cursor has run out of its own, and notes the key.
    fn settle(&mut self, forward: bool) -> Result<()> {
        while let Some(cursor) = &self.cursor {
            if let Some(entry) = cursor.entry() {
                if !self.single {
                    self.key = Some(entry.key.to_vec());
                    self.forward = forward;
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
        self.key = None;
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
    pub(super) fn of_cursor(cursor: &Cursor, keys_only: bool) -> Self {
        let entry = cursor.entry().unwrap_or_default();
        Self {
            record: Record {
                key: Bytes::copy_from_slice(entry.key),
                value: if keys_only { Bytes::new() } else { cursor.value() },
                create_revision: entry.create_revision,
                mod_revision: entry.revision,
                sub: entry.sub,
                version: entry.version,
                lease: entry.lease,
            },
            tombstone: entry.tombstone,
        }
    }
}
