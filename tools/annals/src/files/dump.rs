//! `dump`: what the files hold, entry by entry and frame by frame.

use std::ffi::OsString;

use annals_format::FileKind;
use clap::{ArgGroup, Args};
use serde_json::json;

use super::inspect::in_force;
use super::{entries, find, frames, logs, manifest, meta, open};
use crate::args::Global;
use crate::exit::Outcome;
use crate::output::Output;

/// Arguments of `dump`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags")]
#[command(group = ArgGroup::new("what").required(true).args(["file", "wal", "manifest", "keys"]))]
#[command(after_help = "Examples:
  $ annals -C store dump --wal                         # the frames of the log
  $ annals -C store dump --manifest
  $ annals -C store dump --keys --values -o ndjson")]
pub(crate) struct DumpArgs {
    /// One file: its path in the store, or its name.
    file: Option<OsString>,
    /// The frames of all WAL files.
    #[arg(long)]
    wal: bool,
    /// The manifest in force.
    #[arg(long)]
    manifest: bool,
    /// The entries of all segment files but those of events and blobs: every version of every key that has
    /// left the WAL, wherever it lies. Values in blob files are shown with the entries that refer to them.
    #[arg(long)]
    keys: bool,
    /// Write the values, too (in JSON).
    #[arg(long)]
    values: bool,
}

/// `dump`: entries and frames, with names and offsets.
pub(crate) fn dump(global: &Global, args: &DumpArgs, out: &mut Output) -> Outcome {
    let files = open(global)?;
    if args.manifest {
        return out.object(&manifest::whole(files.manifest()));
    }
    if args.wal {
        return frames::dump(&files, &logs(&files), args.values, out);
    }
    let Some(named) = &args.file else {
        let metas = files.manifest().files.iter();
        let metas: Vec<_> =
            metas.filter(|meta| !matches!(meta.kind, FileKind::Events | FileKind::Blob)).collect();
        return entries::dump(&files, &metas, args.values, out);
    };
    let name = find(&files, global.data()?, named)?;
    match name.kind {
        FileKind::Current => out.object(&json!({
            "store": files.manifest().store.to_string(),
            "manifest": files.manifest().number,
        })),
        FileKind::Manifest => {
            in_force(&files, name)?;
            out.object(&manifest::whole(files.manifest()))
        }
        FileKind::Wal => frames::dump(&files, &[name], args.values, out),
        _ => entries::dump(&files, &[meta(&files, name)?], args.values, out),
    }
}
