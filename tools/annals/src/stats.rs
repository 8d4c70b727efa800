//! `stats`: how far the store is, how much it holds, where the bytes are.

use std::collections::BTreeMap;

use annals_format::FileKind;
use clap::Args;
use serde_json::{Value, json};

use crate::args::Global;
use crate::at::rfc3339;
use crate::exit::Outcome;
use crate::output::Output;

/// Arguments of `stats`.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {}

/// What the files of one kind amount to.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    files: u64,
    bytes: u64,
    entries: u64,
    value_bytes: u64,
}

/// `stats`: figures of the store on disk.
pub(crate) fn stats(global: &Global, _args: &StatsArgs, out: &mut Output) -> Outcome {
    let store = global.read()?;
    let view = store.latest()?;
    let keys = view.count(..)?;
    let newest = store.log(view.revision()..=view.revision()).next();
    let time = match newest {
        Some(Ok(transaction)) => json!(rfc3339(transaction.time)),
        _ => Value::Null,
    };
    let files = crate::files::open(global)?;
    let manifest = files.manifest();
    let mut sums: BTreeMap<FileKind, Sum> = BTreeMap::new();
    for name in files.names() {
        let sum = sums.entry(name.kind).or_default();
        sum.files += 1;
        sum.bytes += files.file_bytes(name).unwrap_or(0);
    }
    for meta in &manifest.files {
        let sum = sums.entry(meta.kind).or_default();
        sum.entries += meta.entries;
        sum.value_bytes += meta.value_bytes;
    }
    let total: u64 = sums.values().map(|sum| sum.bytes).sum();
    let kinds: Vec<Value> = sums
        .iter()
        .map(|(kind, sum)| {
            json!({ "kind": kind.label(), "files": sum.files, "bytes": sum.bytes,
                    "entries": sum.entries, "value_bytes": sum.value_bytes })
        })
        .collect();
    out.object(&json!({
        "store": manifest.store.to_string(),
        "revision": view.revision(),
        "compacted": store.compacted_revision(),
        "time": time,
        "keys": keys,
        "bytes": total,
        "in_files_up_to_revision": manifest.flushed_revision,
        "closed": manifest.closed,
        "incarnation": manifest.incarnation,
        "files": kinds,
    }))
}
