//! `log`: the transactions, oldest first: when, what changed, with which metadata.

use std::ffi::OsString;
use std::io::{self, Write};

use annals::{Change, ChangeKind, KeyRange, Transaction};
use clap::Args;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::json;

use super::history::{metadata_cell, metadata_json};
use crate::args::{Global, parse_limit, parse_revision};
use crate::at;
use crate::bytes::{Spelled, show};
use crate::exit::Outcome;
use crate::output::{Output, Row};

/// Keys that a cell shows.
const KEYS_SHOWN: usize = 3;

/// Arguments of `log`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  $ annals -C store log
  $ annals -C store log --from 3 --limit 2
  $ annals -C store log --prefix /flags/ --values -o ndjson")]
pub(crate) struct LogArgs {
    /// The first revision; without it the oldest that is kept.
    #[arg(long, value_name = "REV", value_parser = parse_revision, allow_negative_numbers = true)]
    from: Option<u64>,
    /// Only what was done to keys that begin with this. It goes back as far as these are kept.
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<OsString>,
    /// At most this many; 0 for all.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = parse_limit, allow_negative_numbers = true)]
    limit: u64,
    /// Write the values, too (not in a table).
    #[arg(long)]
    values: bool,
}

#[derive(Debug)]
struct LogRow(Transaction);

struct ChangeForm<'a>(&'a Change);

impl Serialize for ChangeForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let change = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("op", op(change))?;
        map.serialize_entry("key", &Spelled(&change.key))?;
        if change.kind == ChangeKind::Put {
            if let Some(value) = &change.value {
                map.serialize_entry("value", &Spelled(value))?;
            }
            map.serialize_entry("create_revision", &change.create_revision)?;
            map.serialize_entry("version", &change.version)?;
            map.serialize_entry("lease", &change.lease)?;
        }
        map.end()
    }
}

fn op(change: &Change) -> &'static str {
    match change.kind {
        ChangeKind::Put => "put",
        ChangeKind::Delete => "delete",
    }
}

impl Serialize for LogRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("revision", &self.0.revision)?;
        map.serialize_entry("time", &at::rfc3339(self.0.time))?;
        if !self.0.metadata.is_empty() {
            map.serialize_entry("metadata", &metadata_json(&self.0.metadata))?;
        }
        let changes: Vec<_> = self.0.changes.iter().map(ChangeForm).collect();
        map.serialize_entry("changes", &changes)?;
        map.end()
    }
}

impl Row for LogRow {
    const COLUMNS: &'static [&'static str] = &["revision", "time", "changes", "metadata", "what"];

    fn cells(&self) -> Vec<String> {
        let changes = &self.0.changes;
        let shown = changes.iter().take(KEYS_SHOWN);
        let mut what: Vec<String> =
            shown.map(|change| format!("{} {}", op(change), show(&change.key, 60))).collect();
        if changes.len() > KEYS_SHOWN {
            what.push(format!("... {} more", changes.len() - KEYS_SHOWN));
        }
        vec![
            self.0.revision.to_string(),
            at::rfc3339(self.0.time),
            changes.len().to_string(),
            metadata_cell(&self.0.metadata),
            what.join(", "),
        ]
    }

    fn raw(&self, out: &mut dyn Write) -> io::Result<()> {
        for change in &self.0.changes {
            write!(out, "{} {} ", self.0.revision, op(change))?;
            out.write_all(&change.key)?;
            out.write_all(b"\n")?;
            if let Some(value) = &change.value {
                out.write_all(value)?;
                out.write_all(b"\n")?;
            }
        }
        Ok(())
    }
}

/// `log`: the transactions in order.
pub(crate) fn log(global: &Global, args: &LogArgs, out: &mut Output) -> Outcome {
    let store = global.read()?;
    let view = store.latest()?;
    // Says so where the revision is not there, or no longer.
    let range = args
        .prefix
        .as_ref()
        .map_or_else(KeyRange::all, |prefix| KeyRange::prefix(crate::bytes::of_arg(prefix)));
    let first = match args.from {
        Some(from) => store.at(from)?.revision(),
        None => store.oldest_readable(&range),
    };
    let mut transactions = store.log_of(first.max(2)..=view.revision(), range);
    if args.values && out.format() != crate::output::Format::Table {
        transactions = transactions.with_values();
    }
    let mut rows = out.rows("transactions");
    let mut left = if args.limit == 0 { u64::MAX } else { args.limit };
    while let Some(transaction) = transactions.next() {
        rows.push(&LogRow(transaction?))?;
        left -= 1;
        if left == 0 {
            rows.cut(transactions);
            break;
        }
    }
    let tail =
        [("revision", json!(view.revision())), ("compacted", json!(store.compacted_revision()))];
    rows.finish(&tail)?;
    Ok(())
}
