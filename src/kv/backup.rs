//! Backups: a store as one stream, made while others write, or what came to it after a revision.

use std::io::Write;

use annals_format::backup::{Header, State};

use crate::engine::{Content, Frames, StreamWriter, write_records};
use crate::error::{Error, ErrorKind, Result};

use super::hash::{Hashing, KvHash};
use super::load::event;
use super::log::Log;
use super::range::KeyRange;
use super::seam::{self, Engine};
use super::space;

/// What was written to a backup; made by [`Store::backup`](crate::Store::backup).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BackupReport {
    /// The revision it continues; `None` for a full one.
    pub from: Option<u64>,
    /// The newest revision in it.
    pub revision: u64,
    /// Files of the store in it.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
    /// Bytes of the backup.
    pub bytes: u64,
    /// The hash of the store as of the revision, which a restore compares.
    pub hash: KvHash,
}

/// Writes what is visible to a stream.
pub(super) fn backup(engine: &Engine, to: &mut dyn Write) -> Result<BackupReport> {
    let (hashing, mut content) = Hashing::of(engine, &mut || {
        let content: Content = engine.content()?;
        Ok((content.revision(), content))
    })?;
    // First: it holds on to every revision, however slow the one who takes the stream is.
    let hash = hashing.finish()?;
    let mut out = StreamWriter::begin(to, &content.header())?;
    content.write_state(&mut out)?;
    content.write_files(&mut out)?;
    check_kept(engine, hash.revision)?;
    let bytes = out.finish(&state_of(&hash))?;
    let (files, file_bytes) = content.files();
    Ok(BackupReport { from: None, revision: hash.revision, files, file_bytes, bytes, hash })
}

/// Refuses what the store has lost meanwhile: what was not durable when the log failed.
fn check_kept(engine: &Engine, revision: u64) -> Result<()> {
    match engine.failure() {
        Some(error) if engine.revision() < revision => Err(error),
        _ => Ok(()),
    }
}

/// Writes what came after `since` to a stream.
pub(super) fn backup_from(engine: &Engine, since: u64, to: &mut dyn Write) -> Result<BackupReport> {
    if since == 0 {
        return Err(Error::invalid("revisions begin with 1"));
    }
    let (hashing, (before, view, log)) = Hashing::of(engine, &mut || {
        let view = engine.latest_of_both_spaces()?;
        // What its rules have come to.
        engine.settle_rules();
        let revision = view.revision();
        if since > revision {
            return Err(ErrorKind::FutureRevision { requested: since, current: revision }.into());
        }
        let (start, end) = space::user_range(&KeyRange::all());
        let compacted = engine.oldest_of(&start..&end);
        let before = Hashing::begin(engine, compacted, since)?;
        let log = Log::new(engine, Some(since + 1), revision + 1, &KeyRange::all());
        Ok((revision, (before, view, log)))
    })?;
    let header = Header {
        store: engine.store_id(),
        from: Some(state_of(&before.finish()?)),
        upto: hashing.revision(),
        compacted: view.compacted(),
        incarnation: engine.incarnation(),
    };
    let mut out = StreamWriter::begin(to, &header)?;
    if since < header.upto {
        let mut frames = Frames::begin(&mut out, &header)?;
        for transaction in log.with_values() {
            let transaction = transaction?;
            frames.push(&seam::Transaction {
                revision: transaction.revision,
                time: transaction.time,
                metadata: transaction.metadata,
                events: transaction.changes.iter().map(event).collect(),
            })?;
        }
    }
    write_records(&mut out, &view)?;
    let hash = hashing.finish()?;
    check_kept(engine, hash.revision)?;
    let bytes = out.finish(&state_of(&hash))?;
    let (from, revision) = (Some(since), hash.revision);
    Ok(BackupReport { from, revision, files: 0, file_bytes: 0, bytes, hash })
}

pub(super) fn state_of(hash: &KvHash) -> State {
    let KvHash { hash, revision, compacted } = *hash;
    State { revision, compacted, hash }
}
