//! A frozen generation becomes files: one L0 with its versions, EVENTS with its transactions.

use annals_format::entry::EntryRef;
use annals_format::events::{EventKind, EventRef, TransactionBuilder};
use annals_format::{FileKind, FileMeta, Frame, space};

use crate::error::{Error, Result};
use crate::index::{FrameRef, Generation, Version};
use crate::options::Options;
use crate::segment::SegmentContext;
use crate::sync::Arc;

use super::output::{Host, Output};

/// Writes a frozen generation, whose every transaction is durable. Answers the files, of which there
/// are none if nothing was written to the generation.
///
/// # Errors
/// What the file system answers; nothing of it is left then.
pub(crate) fn flush(
    context: &SegmentContext,
    host: &dyn Host,
    generation: &Arc<Generation>,
    options: &Options,
) -> Result<Vec<FileMeta>> {
    // One file for all keys: a reader looks into every L0 file.
    let mut versions = Output::new(context, host, FileKind::L0, None, u64::MAX);
    let mut keys = generation.cursor();
    keys.seek_first();
    while let Some(node) = keys.node() {
        // Of a system key only the newest version is ever read.
        let count = if space::is_system(node.key()) { 1 } else { usize::MAX };
        let mut oldest = node.versions().last();
        for version in node.versions().take(count) {
            // The oldest version that came with it is told of the newest only.
            let (first, lived) = match oldest.take() {
                Some(oldest) => (oldest, oldest.is_tombstone() || oldest.version() > 1),
                // Superseded: it counts for nothing, see `annals_format::living`.
                None => (version, !version.is_tombstone()),
            };
            let entry = entry_of(node.key(), version);
            versions.add(&EntryRef { first: first.at(), lived, ..entry })?;
        }
        keys.next();
    }
    let mut events = Output::new(context, host, FileKind::Events, None, options.segment_bytes);
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
    let mut files = versions.finish()?;
    match events.finish() {
        Ok(events) => files.extend(events),
        Err(error) => {
            for meta in &files {
                let _ = context.remove(meta.kind, meta.number);
            }
            return Err(error);
        }
    }
    Ok(files)
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
