//! What differs between two revisions.
//!
//! A key can differ only if it has a version in (from, to]. Such a version is in a generation, an
//! L0 file, HEAD or a window whose span of revisions meets (from, to]; the other files are not
//! opened. The keys of those sources are merged in order, and each is read at both revisions.
//!
//! Whether anything differs at all is quicker told ([`has_changed`]): by the first such version that is the newest of
//! its key.

use bytes::Bytes;

use crate::error::Result;
use crate::index::Newest;
use crate::segment::{Cursor, Want};
use crate::sync::Arc;

use super::pins::Pin;
use super::read;
use super::record::Difference;
use super::tables::{SealedFile, Tables};

/// The keys of a range whose state differs between two revisions, in key order. After an error it
/// ends.
#[derive(Debug)]
pub(crate) struct Diff {
    tables: Tables,
    from: u64,
    to: u64,
    end: Vec<u8>,
    sources: Vec<Changed>,
    started: Option<Vec<u8>>,
    done: bool,
    _pins: Vec<Arc<Pin>>,
}

/// The keys of one source that have a version in (from, to].
#[derive(Debug)]
enum Changed {
    Memory(crate::index::KeyCursor),
    File(Box<ChangedInFile>),
}

#[derive(Debug)]
struct ChangedInFile {
    file: Arc<SealedFile>,
    cursor: Option<Cursor>,
}

impl Diff {
    /// The differences of a range, `end` exclusive.
    pub(super) fn new(
        tables: Tables,
        (from, to): (u64, u64),
        start: &[u8],
        end: Vec<u8>,
        pins: Vec<Arc<Pin>>,
    ) -> Self {
        let files = &tables.files;
        let meets = |file: &&Arc<SealedFile>| {
            let meta = file.meta();
            meta.max_revision > from
                && meta.min_revision <= to
                && meta.first_key.as_slice() < end.as_slice()
                && meta.last_key.as_slice() >= start
        };
        // A version that was born in (from, to] died after `from`.
        let windows = files.windows.iter().filter(|window| window.upto > from);
        let sealed =
            files.l0.iter().chain(&files.head).chain(windows.flat_map(|window| &window.files));
        let mut sources: Vec<Changed> =
            tables.generations.iter().map(|g| Changed::Memory(g.cursor())).collect();
        sources.extend(sealed.filter(meets).map(|file| {
            Changed::File(Box::new(ChangedInFile { file: Arc::clone(file), cursor: None }))
        }));
        let done = from >= to;
        let started = Some(start.to_vec());
        Self { tables, from, to, end, sources, started, done, _pins: pins }
    }

    fn step(&mut self) -> Result<Option<Difference>> {
        let (from, to) = (self.from, self.to);
        if let Some(start) = self.started.take() {
            for source in &mut self.sources {
                source.seek(&start)?;
                source.settle(from, to, &self.end)?;
            }
        }
        loop {
            let least = self.sources.iter().filter_map(Changed::key).min();
            let Some(key) = least.filter(|key| *key < self.end.as_slice()) else {
                return Ok(None);
            };
            let key = Bytes::copy_from_slice(key);
            for source in &mut self.sources {
                if source.key() == Some(&key) {
                    source.next(&key)?;
                    source.settle(from, to, &self.end)?;
                }
            }
            let old = read::get(&self.tables, &key, from)?;
            let new = read::get(&self.tables, &key, to)?;
            let same = match (&old, &new) {
                (None, None) => true,
                (Some(old), Some(new)) => old.mod_revision == new.mod_revision,
                _ => false,
            };
            if !same {
                return Ok(Some(Difference { key, old, new }));
            }
        }
    }
}

/// Whether a key of a range has got a version in (from, to], tombstones included; `end` is exclusive. Only the newest versions
/// are looked at, so `to` must be the state that the tables are of, and whatever died after `from` must be kept, by a
/// pin: else a tombstone may be gone.
pub(super) fn has_changed(
    tables: &Tables,
    (from, to): (u64, u64),
    start: &[u8],
    end: &[u8],
) -> Result<bool> {
    let files = &tables.files;
    let meets = |file: &&Arc<SealedFile>| {
        let meta = file.meta();
        meta.max_revision > from
            && meta.first_key.as_slice() < end
            && meta.last_key.as_slice() >= start
    };
    let memory = tables.generations.iter().map(|generation| Changed::Memory(generation.cursor()));
    let sealed = files.l0.iter().chain(&files.head).filter(meets).map(|file| {
        Changed::File(Box::new(ChangedInFile { file: Arc::clone(file), cursor: None }))
    });
    for mut source in memory.chain(sealed) {
        source.seek(start)?;
        source.settle(from, to, end)?;
        if source.key().is_some_and(|key| key < end) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Iterator for Diff {
    type Item = Result<Difference>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let step = self.step();
        self.done = !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}

impl std::iter::FusedIterator for Diff {}

impl Changed {
    fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Memory(cursor) => cursor.node().map(crate::index::KeyNode::key),
            Self::File(file) => file.cursor.as_ref().and_then(Cursor::entry).map(|entry| entry.key),
        }
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        match self {
            Self::Memory(cursor) => cursor.seek(key),
            Self::File(file) => {
                let mut cursor = file.file.open()?.cursor_for(Want::Fields);
                cursor.seek(key, u64::MAX)?;
                file.cursor = Some(cursor);
            }
        }
        Ok(())
    }

    /// Goes past `key`, which it stands on.
    fn next(&mut self, key: &[u8]) -> Result<()> {
        match self {
            Self::Memory(cursor) => cursor.next(),
            Self::File(file) => {
                if let Some(cursor) = &mut file.cursor {
                    let after = [key, &[0]].concat();
                    cursor.seek(&after, u64::MAX)?;
                }
            }
        }
        Ok(())
    }

    /// Goes on to the next place where a version in (from, to] stands.
    fn settle(&mut self, from: u64, to: u64, end: &[u8]) -> Result<()> {
        match self {
            Self::Memory(cursor) => {
                while let Some(node) = cursor.node() {
                    let newest = node.newest_at(to);
                    let changed = matches!(newest, Newest::Known(stub) if stub.revision > from);
                    if changed || node.key() >= end {
                        break;
                    }
                    cursor.next();
                }
            }
            Self::File(file) => {
                let Some(cursor) = &mut file.cursor else { return Ok(()) };
                while let Some(entry) = cursor.entry() {
                    if entry.revision > from && entry.revision <= to || entry.key >= end {
                        break;
                    }
                    cursor.next()?;
                }
            }
        }
        Ok(())
    }
}
