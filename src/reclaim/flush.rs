//! A frozen generation becomes files: one L0 with the newest version of every key, HISTORY with the
//! versions that were superseded within the generation, EVENTS with its transactions.
//!
//! ```text
//!   versions of a key in the generation, newest first     9        7        4      (5 and older: before)
//!                                                         |        |        |
//!                                       L0 <-- first 4 ---+        |        |
//!                                       HISTORY <------- death 9 --+        |
//!                                       HISTORY <---------------- death 7 --+
//! ```
//!
//! A version that was superseded here is written to HISTORY at once, and by no fold again. What the
//! oldest version here superseded lies in older files; `first` says so to whoever looks there.

use annals_format::entry::EntryRef;
use annals_format::events::{EventKind, EventRef, TransactionBuilder};
use annals_format::{FileKind, FileMeta, Frame, space};

use crate::error::{Error, Result};
use crate::index::{FrameRef, Generation, KeyNode, Version};
use crate::options::Options;
use crate::segment::{SegmentContext, Training};
use crate::sync::Arc;

use super::floors::Floors;
use super::fold::keeps;
use super::output::{History, Host, Output, finish_all};

/// Writes a frozen generation, whose every transaction is durable. Answers the files, of which there
/// are none if nothing was written to the generation. What died below the floor of its key is left out.
///
/// # Errors
/// What the file system answers; nothing of it is left then.
pub(crate) fn flush(
    context: &SegmentContext,
    host: &dyn Host,
    generation: &Arc<Generation>,
    floors: &Floors,
    options: &Options,
) -> Result<Vec<FileMeta>> {
    // One file for all keys: a reader looks into every L0 file.
    let mut newest = Output::new(context, host, FileKind::L0, None, u64::MAX);
    let last = generation.last().unwrap_or_default();
    let window = (generation.root().position().revision, last.revision);
    let cut = options.segment_bytes;
    let superseded = History::new(context, host, floors, window, cut);
    // Commits may wait for this, and windows of flushes are merged before long.
    let mut superseded = superseded.training(Training::Quick);
    let mut keys = generation.cursor();
    keys.seek_first();
    while let Some(node) = keys.node() {
        flush_key(node, floors.of(node.key()), &mut newest, &mut superseded)?;
        keys.next();
    }
    let mut events = Output::new(context, host, FileKind::Events, None, cut);
    let mut frames = generation.frames();
    let mut builder = TransactionBuilder::new();
    let mut value = Vec::new();
    while let Some(frame) = frames.next(u64::MAX) {
        if frame.takes_revision() {
            let revision = frame.position().revision;
            value.clear();
            encode_events(&frame, options.event_value_bytes, &mut builder, &mut value)?;
            let key = &revision.to_be_bytes();
            events.add(&EntryRef { key, revision, value: &value, ..EntryRef::default() })?;
        }
    }
    let outputs = [newest, superseded.into_output(), events];
    let mut files = finish_all(context, outputs)?;
    for file in files.iter_mut().filter(|file| file.kind == FileKind::L0) {
        file.last_seq = last.seq;
    }
    Ok(files)
}

/// Writes the newest version of a key to one file, and those that it and its like superseded to the
/// other.
fn flush_key(
    node: &KeyNode,
    watermark: u64,
    newest: &mut Output<'_>,
    superseded: &mut History<'_>,
) -> Result<()> {
    let key = node.key();
    let mut versions = node.versions();
    let Some(head) = versions.next() else { return Ok(()) };
    let mut oldest = head;
    for version in versions {
        let death = oldest.at();
        oldest = version;
        let entry = EntryRef { death, ..entry_of(key, version) };
        // Of a system key only the newest version is ever read.
        if !space::is_system(key) && keeps(&entry, watermark) {
            superseded.add(&entry)?;
        }
    }
    // A tombstone, and every version but the first of a lifetime, comes after a version that lived.
    let lived = oldest.is_tombstone() || oldest.version() > 1;
    newest.add(&EntryRef { first: oldest.at(), lived, ..entry_of(key, head) })
}

fn entry_of<'a>(key: &'a [u8], version: &'a Version) -> EntryRef<'a> {
    EntryRef {
        key,
        revision: version.at(),
        sub: version.sub(),
        tombstone: version.is_tombstone(),
        create_revision: version.create_revision(),
        version: version.version(),
        lease: version.lease(),
        value: version.value(),
        ..EntryRef::default()
    }
}

fn encode_events(
    frame: &FrameRef<'_>,
    repeated_bytes_max: u64,
    builder: &mut TransactionBuilder,
    out: &mut Vec<u8>,
) -> Result<()> {
    let (decoded, _) = Frame::view(frame.bytes())
        .map_err(|error| Error::invalid(format!("a frame in memory is damaged: {error}")))?;
    for change in frame.changes() {
        let Some((&space::USER, key)) = change.key.key().split_first() else { continue };
        let version = change.version;
        let kind = if version.is_tombstone() { EventKind::Delete } else { EventKind::Put };
        builder.push(&EventRef {
            kind,
            key,
            sub: version.sub(),
            create_revision: version.create_revision(),
            version: version.version(),
            lease: version.lease(),
            value_bytes: version.value().len() as u64,
            value: Some(version.value()).filter(|value| value.len() as u64 <= repeated_bytes_max),
        });
    }
    builder.finish(u64::from(decoded.is_buffered()) * 2, decoded.time, decoded.metadata, out);
    Ok(())
}
