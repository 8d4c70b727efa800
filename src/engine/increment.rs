//! What came to a store after a revision: written to a backup, and applied to a store that is being made of one.
//!
//! Transactions are written as frames, which are made for the backup, since those of the log are gone once
//! they are flushed. They are [applied](super::load) one after the other, as another store had them: each has
//! to get its revision, and each change its numbers. The records of the system's keys are all there are; both
//! sides ascend by key, so what differs is found in one walk.

use std::iter::Peekable;
use std::path::{Path, PathBuf};

use annals_format::Frame;
use annals_format::backup::{Codec, Header, Part};
use annals_format::cursor::Writer as _;
use annals_format::frame::{Binding, FrameSize, Op, encode, patch_header};
use annals_format::space::{SYSTEM, USER};
use bytes::Bytes;

use crate::commit::{InternalKey, Write, WriteKind};
use crate::error::{Error, Result};
use crate::options::{Durability, Options};

use super::new_store::{hold, remove_marker};
use super::receive::Receiver;
use super::record::{Event, Events, Record, Transaction};
use super::scan::Scan;
use super::stream::StreamWriter;
use super::{Engine, View};

/// Bytes of frames that are applied before they are made durable.
const UNSYNCED_BYTES: usize = 4 << 20;

/// Records that are written in one transaction, and bytes of their keys.
const RECORDS_TOGETHER: usize = 4096;
const RECORD_BYTES_TOGETHER: usize = 1 << 20;

/// The bounds of the system's keys.
const RECORDS: (&[u8], &[u8]) = (&[SYSTEM], &[SYSTEM + 1]);

/// Writes the frames of an increment.
pub(crate) struct Frames<'o, 'a> {
    out: &'o mut StreamWriter<'a>,
    binding: Binding,
    seq: u64,
    frame: Vec<u8>,
}

impl<'o, 'a> Frames<'o, 'a> {
    /// Begins them.
    ///
    /// # Errors
    /// What the stream answers.
    pub(crate) fn begin(out: &'o mut StreamWriter<'a>, header: &Header) -> Result<Self> {
        out.section(Part::Frames, 0, Codec::Zstd)?;
        Ok(Self { out, binding: Binding::new(&header.store), seq: 0, frame: Vec::new() })
    }

    /// Writes the next one, of which every put has its value.
    ///
    /// # Errors
    /// What the stream answers.
    pub(crate) fn push(&mut self, transaction: &Transaction) -> Result<()> {
        let Transaction { revision, time, metadata, events } = transaction;
        let internal = |event: &Event| [&[USER], &event.key[..]].concat();
        let keys: Vec<Vec<u8>> = events.iter().map(internal).collect();
        let ops = events.iter().zip(&keys).map(|(event, key)| {
            let value = event.value.as_deref().unwrap_or_default();
            if event.delete {
                Op::Delete { key }
            } else {
                Op::Put { key, value, lease: event.lease }
            }
        });
        let size = FrameSize::of(metadata, ops.clone());
        self.frame.clear();
        self.frame.resize(size.bytes(), 0);
        encode(&mut self.frame, &self.binding, &size, false, metadata, ops, |_| ());
        self.seq += 1;
        let numbers = |event: &Event| {
            if event.delete { (0, 0) } else { (event.create_revision, event.version) }
        };
        let results = events.iter().map(numbers);
        patch_header(&mut self.frame, &self.binding, self.seq, *revision, *time, results);
        self.out.write(&self.frame)
    }
}

/// Writes the records of the system's keys.
///
/// # Errors
/// What the stream and reading files answer.
pub(crate) fn write_records(out: &mut StreamWriter<'_>, view: &View) -> Result<()> {
    out.section(Part::System, 0, Codec::Zstd)?;
    let mut bytes = Vec::new();
    for record in view.scan(RECORDS.0, RECORDS.1, false) {
        let record = record?;
        bytes.clear();
        bytes.put_prefixed(&record.key);
        bytes.put_prefixed(&record.value);
        out.write(&bytes)?;
    }
    Ok(())
}

/// A store that is being made of a backup, to which increments are applied.
#[derive(Debug)]
pub(crate) struct Continuing {
    engine: Engine,
    options: Options,
    /// Bytes that are not durable yet.
    unsynced: usize,
    /// The records that were there, from the first that has not been compared.
    old: Option<Peekable<Scan>>,
    writes: Vec<Write<'static>>,
    /// That the keys of these have.
    record_bytes: usize,
}

impl Continuing {
    /// Opens what is no store yet.
    ///
    /// # Errors
    /// As for any store.
    pub(super) fn open(dir: &Path, options: &Options) -> Result<Self> {
        // Nothing is written but what is applied: rules of retention would write at the time of the clock.
        let options = options.clone().create(false).retention_interval_seconds(0);
        let (engine, _) = Engine::open_loading(dir, &options)?;
        Ok(Self { engine, options, unsynced: 0, old: None, writes: Vec::new(), record_bytes: 0 })
    }

    /// What there is so far.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The next increment has been handed over: ends it, and makes it durable.
    ///
    /// # Errors
    /// What writing answers.
    pub(crate) fn end(&mut self, header: &Header) -> Result<()> {
        self.compare(None)?;
        self.old = None;
        self.write()?;
        if header.compacted > self.engine.compacted_revision() {
            self.engine.transact(Some(Durability::Buffered), &mut |_, plan| {
                plan.compact = Some(header.compacted);
                Ok(true)
            })?;
        }
        self.flush()?;
        // Readers go by the rules that have come, and by what these have forgotten.
        self.engine.0.door.0.load_rules()
    }

    /// Closes it, and leaves what is no store yet. Answers where it lies, and with which options it was open.
    pub(super) fn close(self) -> Result<(PathBuf, Options)> {
        let dir = self.engine.path().to_path_buf();
        self.engine.close()?;
        Ok((dir, self.options))
    }

    /// Ends all of it: from when this returns it is a store.
    ///
    /// # Errors
    /// What writing files answers. It may be a store then, which is complete, or none.
    pub(crate) fn finish(self) -> Result<()> {
        // It looks closed before it is a store, so that no store is ever seen that was not closed.
        let (dir, options) = self.close()?;
        let (_lock, vfs) = hold(&options.vfs, &dir)?;
        remove_marker(&*vfs, &dir)
    }

    fn flush(&mut self) -> Result<()> {
        self.unsynced = 0;
        self.engine.flush()
    }

    /// Takes back the records before this one, which are not there any more, and makes this one what it is.
    fn compare(&mut self, record: Option<(&[u8], &[u8])>) -> Result<()> {
        if self.old.is_none() {
            // What has been applied is visible, and so are the records from before.
            self.flush()?;
            let view = self.engine.latest_of_both_spaces()?;
            self.old = Some(view.scan(RECORDS.0, RECORDS.1, false).peekable());
        }
        let mut same = false;
        while let Some(old) = self.old.as_mut().and_then(Peekable::peek) {
            let Record { key, value, .. } = match old {
                Ok(old) => old,
                Err(error) => return Err(error.clone()),
            };
            if let Some((new, wanted)) = record {
                if &key[..] > new {
                    break;
                }
                if &key[..] == new {
                    same = &value[..] == wanted;
                    self.old.as_mut().and_then(Iterator::next);
                    break;
                }
            }
            let key = InternalKey::from_slice(key);
            self.writes.push(Write { key, kind: WriteKind::Delete });
            self.old.as_mut().and_then(Iterator::next);
            self.write_many()?;
        }
        if let Some((key, value)) = record.filter(|_| !same) {
            let key = InternalKey::from_slice(key);
            let kind = WriteKind::Put { value: value.to_vec().into(), lease: 0 };
            self.writes.push(Write { key, kind });
            self.write_many()?;
        }
        Ok(())
    }

    fn write_many(&mut self) -> Result<()> {
        self.record_bytes += self.writes.last().map_or(0, |write| write.key.len());
        let is_much =
            self.writes.len() >= RECORDS_TOGETHER || self.record_bytes >= RECORD_BYTES_TOGETHER;
        if is_much { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.engine.apply_system(&self.writes)?;
        self.writes.clear();
        self.record_bytes = 0;
        Ok(())
    }
}

impl Receiver for Continuing {
    fn frame(&mut self, frame: &Frame<'_>, bytes: &[u8]) -> Result<()> {
        let mut events = Events::with_capacity(frame.ops().len());
        for op in frame.ops() {
            let (key, value, lease) = match op.op {
                Op::Put { key, value, lease } => (key, Some(Bytes::copy_from_slice(value)), lease),
                Op::Delete { key } => (key, None, 0),
                Op::Compact { .. } => (&[][..], None, 0),
            };
            let Some((&USER, key)) = key.split_first() else {
                let what = format!("the increment has a record in revision {}", frame.revision);
                return Err(Error::invalid(what));
            };
            events.push(Event {
                key: Bytes::copy_from_slice(key),
                delete: value.is_none(),
                value,
                sub: op.sub,
                create_revision: op.create_revision,
                version: op.version,
                lease,
            });
        }
        let metadata = Bytes::copy_from_slice(frame.metadata);
        let (revision, time) = (frame.revision, frame.time);
        self.engine.apply(&Transaction { revision, time, metadata, events })?;
        self.unsynced += bytes.len();
        if self.unsynced >= UNSYNCED_BYTES {
            self.flush()?;
        }
        // Where no thread does it.
        while !self.engine.options().background && self.engine.run_background()? {}
        Ok(())
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.compare(Some((key, value)))
    }
}

/// Handles are printed by those who hold them: nothing that is stored.
impl std::fmt::Debug for Frames<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frames").field("seq", &self.seq).finish_non_exhaustive()
    }
}
