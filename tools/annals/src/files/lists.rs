//! `segments`, `wal` and `manifest`: the files of a store, a line each.

use annals::inspect::{StoreFiles, WalPart};
use annals_format::FileKind;
use annals_format::name::FileName;
use annals_format::seal::SealKind;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::{logs, manifest, open, walk};
use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output::{Output, listed};

/// Arguments of `segments`.
#[derive(Debug, Args)]
#[command(
    after_help = "l0 is what was flushed and not folded yet, head the newest version of each key, history the
superseded ones, events what changed, by revision, blob large values that l0 and head refer to.
death_after and death_upto: the versions in a file of history were superseded after the one and up to the
other revision.

Examples:
  $ annals -C store segments
  $ annals -C store segments --kind history --json"
)]
pub(crate) struct SegmentsArgs {
    /// Only files of this kind.
    #[arg(long, value_enum, value_name = "KIND")]
    kind: Option<Kind>,
}

/// Kinds of segment files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Flushed, not folded.
    L0,
    /// Newest versions.
    Head,
    /// Superseded versions.
    History,
    /// What changed.
    Events,
    /// Large values.
    Blob,
}

impl Kind {
    fn is(self, kind: FileKind) -> bool {
        let kind_of = match self {
            Self::L0 => FileKind::L0,
            Self::Head => FileKind::Head,
            Self::History => FileKind::History,
            Self::Events => FileKind::Events,
            Self::Blob => FileKind::Blob,
        };
        kind == kind_of
    }
}

/// Arguments of `wal`.
#[derive(Debug, Args)]
#[command(
    after_help = "state: open, what the writer was writing last; rolled, full and followed by another; closed, by
the last writer; torn, with a batch at its end that was never acknowledged; damaged; empty.
used_bytes: up to the end of what was written. Frames are transactions, and what else has to be
durable (leases, rules, compactions). `dump --wal` shows them. Exits 3 when something is damaged.

Examples:
  $ annals -C store wal
  $ annals -C store wal --json"
)]
pub(crate) struct WalArgs {}

/// Arguments of `manifest`.
#[derive(Debug, Args)]
#[command(
    after_help = "The manifest in force says which files make up the store. Anything else in the directories is
never read.

Examples:
  $ annals -C store manifest
  $ annals -C store manifest --json"
)]
pub(crate) struct ManifestArgs {}

listed! {
    /// A segment file.
    SegmentRow: "file", "kind", "bytes", "entries", "min_revision", "max_revision", "death_after", "death_upto",
        "first_key", "last_key"
}

listed! {
    /// A file of the log.
    WalRow: "file", "bytes", "used_bytes", "frames", "first_revision", "last_revision", "state"
}

/// `segments`: a line for each file.
pub(crate) fn segments(global: &Global, args: &SegmentsArgs, out: &mut Output) -> Outcome {
    let files = open(global)?;
    let mut rows = out.rows("segments");
    let (mut count, mut bytes) = (0_u64, 0);
    for meta in &files.manifest().files {
        if args.kind.is_none_or(|kind| kind.is(meta.kind)) {
            rows.push(&SegmentRow(manifest::segment(meta)))?;
            (count, bytes) = (count + 1, bytes + meta.bytes);
        }
    }
    rows.finish(&[("files", json!(count)), ("bytes", json!(bytes))])?;
    Ok(())
}

/// `wal`: a line for each file of the log.
pub(crate) fn wal(global: &Global, _args: &WalArgs, out: &mut Output) -> Outcome {
    let files = open(global)?;
    let mut rows = out.rows("wal");
    let mut damaged = false;
    for name in logs(&files) {
        let object = log(&files, name)?;
        damaged |= object["state"] == "damaged";
        rows.push(&WalRow(object))?;
    }
    rows.finish(&[])?;
    if damaged { Err(Failure::Damaged) } else { Ok(()) }
}

/// What a file of the log has.
fn log(files: &StoreFiles, name: FileName) -> Outcome<Value> {
    let (mut frames, mut used) = (0_u64, 0);
    let (mut first, mut last) = (None, None);
    let mut state = "empty";
    let mut damage = None;
    let walked = walk(|step| {
        files.wal(name.number, &mut |offset, bytes, part| {
            match part {
                WalPart::Frame(frame, _) => {
                    frames += 1;
                    if frame.takes_revision() {
                        first = first.or(Some(frame.revision));
                        last = Some(frame.revision);
                    }
                    if state == "empty" {
                        state = "open";
                    }
                }
                WalPart::Seal(seal) if state != "damaged" => {
                    state = match seal.kind {
                        SealKind::Rolled { .. } => "rolled",
                        SealKind::Closed { .. } => "closed",
                    };
                }
                WalPart::Torn { .. } if state != "damaged" => state = "torn",
                WalPart::Damage(found) => {
                    state = "damaged";
                    damage = Some(found.to_string());
                }
                _ => {}
            }
            if !matches!(part, WalPart::Unwritten | WalPart::Torn { .. } | WalPart::Damage(_)) {
                used = used.max(offset + bytes);
            }
            step(Ok(())).map(|_| ())
        })
    });
    if let Err(Failure::Engine { error, .. }) = walked {
        state = "damaged";
        damage = Some(error.to_string());
    } else {
        walked?;
    }
    let mut object = json!({
        "file": name.to_string(),
        "bytes": files.file_bytes(name),
        "used_bytes": used,
        "frames": frames,
        "first_revision": first,
        "last_revision": last,
        "state": state,
    });
    if let Some(damage) = damage {
        object["damage"] = json!(damage);
    }
    Ok(object)
}

/// `manifest`: what it says.
pub(crate) fn manifest_of(global: &Global, _args: &ManifestArgs, out: &mut Output) -> Outcome {
    out.object(&manifest::whole(open(global)?.manifest()))
}
