//! `inspect`: what the store is made of, and what one file is made of.

use std::ffi::OsString;
use std::path::Path;

use annals::inspect::{StoreFiles, WalPart};
use annals_format::name::FileName;
use annals_format::seal::SealKind;
use annals_format::{FileKind, Frame};
use clap::Args;
use serde_json::{Value, json};

use super::{find, key_json, manifest, meta, open, walk};
use crate::args::Global;
use crate::backup;
use crate::exit::{Failure, Outcome};
use crate::output::Output;

/// Arguments of `inspect`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  $ annals -C store inspect
  $ annals -C store inspect CURRENT
  $ annals -C store backup monday.backup && annals inspect monday.backup
  $ annals -C store inspect $(ls store/wal | tail -1)   # the newest file of the log")]
pub(crate) struct InspectArgs {
    /// Look into this file: its path in the store, or its name; or a backup, which needs no store.
    /// Without it: all files in a row.
    file: Option<OsString>,
}

/// `inspect`: structures, with names and offsets.
pub(crate) fn inspect(global: &Global, args: &InspectArgs, out: &mut Output) -> Outcome {
    // No file of a store begins as a backup does.
    if let Some(path) = args.file.as_deref().map(Path::new).filter(|path| backup::is_backup(path)) {
        return backup::inspect(path, out);
    }
    let files = open(global)?;
    let Some(named) = &args.file else {
        let mut object = manifest::facts(files.manifest());
        object.insert("wal".into(), manifest::wal(&files));
        object.insert("segments".into(), manifest::segments(files.manifest()));
        return out.object(&Value::Object(object));
    };
    let name = find(&files, global.data()?, named)?;
    match name.kind {
        FileKind::Current => out.object(&json!({
            "file": name.to_string(),
            "bytes": files.file_bytes(name),
            "store": files.manifest().store.to_string(),
            "manifest": FileName::new(FileKind::Manifest, files.manifest().number).to_string(),
        })),
        FileKind::Manifest => {
            in_force(&files, name).and_then(|()| out.object(&manifest::whole(files.manifest())))
        }
        FileKind::Wal => wal(&files, name, out),
        _ => segment(&files, name, out),
    }
}

/// Refuses a manifest that is not the one in force, which is all that is ever read.
pub(super) fn in_force(files: &StoreFiles, name: FileName) -> Outcome {
    if name.number == files.manifest().number {
        return Ok(());
    }
    Err(Failure::Other(format!("{name}: not in force, so not part of the store")))
}

fn segment(files: &StoreFiles, name: FileName, out: &mut Output) -> Outcome {
    let meta = meta(files, name)?;
    let segment = files.segment(meta)?;
    let footer = *segment.footer()?;
    let mut blocks = Vec::new();
    segment.blocks(&mut |block| {
        blocks.push(json!({
            "offset": block.offset,
            "bytes": block.bytes,
            "number": block.number,
            "encoding": format!("{:?}", block.encoding).to_lowercase(),
            "raw_bytes": block.raw_bytes,
            "entries": block.entry_count,
            "groups": block.groups,
            "first_revision": block.first_revision,
            "first_key": key_json(meta.kind, &block.first_key),
        }));
        Ok(true)
    })?;
    let mut pages = Vec::new();
    segment.pages(&mut |page| {
        pages.push(json!({
            "offset": page.offset,
            "bytes": page.bytes,
            "number": page.number,
            "level": page.level,
            "items": page.count,
            "prefix": crate::bytes::json(&page.prefix),
        }));
        Ok(true)
    })?;
    pages.sort_by_key(|page| page["offset"].as_u64());
    out.object(&json!({
        "file": name.to_string(),
        "kind": meta.kind.label(),
        "bytes": meta.bytes,
        "hash": meta.hash.to_string(),
        "incarnation": footer.incarnation,
        "entries": footer.entries,
        "keys": footer.keys,
        "tombstones": footer.tombstones,
        "living": footer.living,
        "value_bytes": footer.value_bytes,
        "min_revision": footer.min_revision,
        "max_revision": footer.max_revision,
        "death_after": footer.death_after,
        "death_upto": footer.death_upto,
        "block_count": footer.block_count,
        "page_count": footer.page_count,
        "height": footer.height,
        "parts": [
            part("header", 0, annals_format::segment::HEADER_BYTES as u64),
            part("blocks", 64, footer.index_offset.saturating_sub(64)),
            part("index", footer.index_offset, footer.filter_offset.saturating_sub(footer.index_offset)),
            part("filter", footer.filter_offset, footer.filter_bytes),
            part("dictionary", footer.dictionary_offset(), footer.dictionary_bytes),
            part("footer", footer.place.offset, annals_format::segment::FOOTER_BYTES as u64),
        ],
        "blocks": blocks,
        "pages": pages,
    }))
}

fn part(name: &str, offset: u64, bytes: u64) -> Value {
    json!({ "part": name, "offset": offset, "bytes": bytes })
}

fn wal(files: &StoreFiles, name: FileName, out: &mut Output) -> Outcome {
    let mut parts = Vec::new();
    let mut damaged = false;
    walk(|step| {
        files.wal(name.number, &mut |offset, bytes, part| {
            damaged |= matches!(part, WalPart::Damage(_));
            parts.push(wal_part(offset, bytes, part));
            step(Ok(())).map(|_| ())
        })
    })?;
    parts.sort_by_key(|part| (part["offset"].as_u64(), part["what"] == "frame"));
    out.object(&json!({
        "file": name.to_string(),
        "bytes": files.file_bytes(name),
        "parts": parts,
    }))?;
    if damaged { Err(Failure::Damaged) } else { Ok(()) }
}

/// A piece of a WAL file.
fn wal_part(offset: u64, bytes: u64, part: &WalPart<'_>) -> Value {
    let (what, detail) = match part {
        WalPart::FileHeader(header) => (
            "file header",
            json!({ "number": header.number, "file_bytes": header.file_bytes,
                    "previous_file": header.previous_file, "first_seq": header.first_seq,
                    "incarnation": header.incarnation }),
        ),
        WalPart::Frame(frame, _) => ("frame", frame_facts(frame)),
        WalPart::Batch(batch) => (
            "batch",
            json!({ "batch": batch.batch_seq, "frames": batch.frame_count,
                    "body_bytes": batch.body_bytes, "first_seq": batch.first_seq,
                    "durable_upto": batch.durable_upto }),
        ),
        WalPart::Seal(seal) => {
            let mut detail =
                json!({ "last_seq": seal.last_seq, "last_revision": seal.last_revision });
            match seal.kind {
                SealKind::Rolled { next_file, .. } => detail["next_file"] = json!(next_file),
                SealKind::Closed { manifest } => {
                    detail["closed_with_manifest"] = json!(manifest.number);
                }
            }
            ("seal", detail)
        }
        WalPart::Unwritten => ("unwritten", json!({})),
        WalPart::Torn { sectors, missing } => {
            ("torn", json!({ "sectors_written": sectors, "first_missing": missing }))
        }
        WalPart::Damage(damage) => (
            "damage",
            json!({ "at": damage.offset, "structure": damage.structure,
                    "expected": damage.expected, "found": damage.found }),
        ),
    };
    let mut object = json!({ "what": what, "offset": offset, "bytes": bytes });
    if let (Some(object), Value::Object(detail)) = (object.as_object_mut(), detail) {
        object.extend(detail);
    }
    object
}

/// What a frame says of itself.
pub(super) fn frame_facts(frame: &Frame<'_>) -> Value {
    json!({
        "seq": frame.seq,
        "revision": frame.revision,
        "time": frame.takes_revision().then(|| crate::at::rfc3339(frame.time)),
        "takes_revision": frame.takes_revision(),
        "buffered": frame.is_buffered(),
        "operations": frame.op_count(),
        "metadata": crate::reads::stored_metadata(frame.metadata),
    })
}
