//! The records of rules: how they are found on open, and what must be true of each wherever it lies.

use std::path::{Path, PathBuf};

use annals_format::frame::Op;
use annals_format::name::{CURRENT, FileName};
use annals_format::retention::Rule;
use annals_format::space::{self, Key, SYSTEM};
use annals_format::{DecodeError, FileKind, Frame};
use bytes::Bytes;

use crate::error::{Error, Result};
use crate::segment::Segment;
use crate::sync::Arc;
use crate::sync::plain::lock;

use super::super::core::Core;
use super::super::scan::Scan;
use super::super::tables::{FileSet, SealedFile};
use super::Rules;

/// Where all records of rules lie: a half-open range of internal keys.
pub(in crate::engine) struct Records {
    start: Vec<u8>,
    end: Vec<u8>,
}

/// What is wrong with a record.
enum Wrong {
    Undecodable(DecodeError),
    /// It has come to a revision that is not there.
    Floor(u64),
}

impl Wrong {
    /// As damage of a file, in a store whose newest revision is `newest`.
    fn of(self, file: &Path, newest: u64) -> Error {
        match self {
            // Where in the file is not known here.
            Self::Undecodable(error) => {
                Error::undecodable(file, 0, &DecodeError { offset: 0, ..error })
            }
            Self::Floor(floor) => {
                let (expected, found) = (format!("revision {newest} at most"), floor.to_string());
                Error::corrupt(file, 0, "retention value: floor", expected, found)
            }
        }
    }
}

/// The prefix and the rule of a record, in a store whose newest revision is `newest`.
fn record<'k>(key: &'k [u8], value: &[u8], newest: u64) -> Result<(&'k [u8], Rule), Wrong> {
    let Key::Retention { prefix } = Key::decode(key).map_err(Wrong::Undecodable)? else {
        // Nothing else is in the range.
        return Ok((&[], Rule::default()));
    };
    let rule = Rule::decode(value).map_err(Wrong::Undecodable)?;
    if rule.floor > newest { Err(Wrong::Floor(rule.floor)) } else { Ok((prefix, rule)) }
}

impl Records {
    pub(in crate::engine) fn new() -> Self {
        let start = Key::Retention { prefix: &[] }.encode();
        Self { start, end: vec![SYSTEM, space::RECORD_RETENTION + 1] }
    }

    fn meet(&self, first: &[u8], last: &[u8]) -> bool {
        *first < self.end[..] && *last >= self.start[..]
    }

    /// Checks every record in a segment file of a store whose newest revision is `newest`.
    ///
    /// # Errors
    /// `Corrupt`, with the file, if one of them says nothing; or what reading answers.
    pub(in crate::engine) fn check(&self, segment: &Arc<Segment>, newest: u64) -> Result<()> {
        let meta = segment.meta();
        if !self.meet(&meta.first_key, &meta.last_key) {
            return Ok(());
        }
        let mut cursor = segment.cursor();
        cursor.seek(&self.start, u64::MAX)?;
        while let Some(entry) = cursor.entry().filter(|entry| *entry.key < self.end[..]) {
            if !entry.tombstone {
                let found = record(entry.key, &cursor.value()?, newest);
                found.map_err(|wrong| wrong.of(segment.path(), newest))?;
            }
            cursor.next()?;
        }
        Ok(())
    }

    /// The highest floor of the records in a frame of the log, which has been decoded; 0 without any.
    pub(in crate::engine) fn highest_floor(&self, frame: &Frame<'_>) -> u64 {
        let floors = frame.ops().filter_map(|op| match op.op {
            Op::Put { key, value, .. } if self.meet(key, key) => Rule::decode(value).ok(),
            _ => None,
        });
        floors.map(|rule| rule.floor).max().unwrap_or(0)
    }

    /// The error of a floor in a log file that is above the newest revision.
    pub(in crate::engine) fn above(file: &Path, floor: u64, newest: u64) -> Error {
        Wrong::Floor(floor).of(file, newest)
    }
}

impl Core {
    /// Learns the rules that the records tell of: at the end of opening a store, and when others have been put
    /// in their place that nobody but the caller reads yet.
    ///
    /// # Errors
    /// What reading answers; `Corrupt` if a rule has come further than the store.
    pub(in crate::engine) fn load_rules(&self) -> Result<()> {
        let position = self.visible();
        let records = Records::new();
        // Most stores have no rule, and opening one is to open no file for that.
        let mut tables = self.shared.tables();
        let meets =
            |file: &&Arc<SealedFile>| records.meet(&file.meta().first_key, &file.meta().last_key);
        let (l0, head) = (tables.files.l0.iter(), tables.files.head.iter());
        let files: Vec<_> = l0.chain(head).filter(meets).cloned().collect();
        tables.files = Arc::new(FileSet::new(files.iter().cloned()));
        let mut rules: Vec<(Bytes, Rule)> = Vec::new();
        let range = (&records.start[..], &records.end[..]);
        for found in Scan::new(tables, position.seq, range, false, None) {
            let found = found?;
            match record(&found.key, &found.value, position.revision) {
                Ok((prefix, rule)) => rules.push((found.key.slice_ref(prefix), rule)),
                Err(wrong) => {
                    // Whichever file it is from; if none, it was in the log.
                    for file in &files {
                        records.check(file.open()?, position.revision)?;
                    }
                    return Err(wrong.of(&self.last_of_log(), position.revision));
                }
            }
        }
        if !rules.is_empty() || self.retention.rules().all().next().is_some() {
            self.retention.publish(Rules::new(rules));
            self.shared.worker.ring();
        }
        Ok(())
    }

    /// The newest file of the log.
    fn last_of_log(&self) -> PathBuf {
        let last = lock(&self.state).manifest.wal.last().map(|file| file.number);
        let name = last.map(|number| FileName::new(FileKind::Wal, number).to_string());
        self.path.join(name.as_deref().unwrap_or(CURRENT))
    }
}
