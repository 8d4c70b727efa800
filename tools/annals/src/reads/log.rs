//! `log`: the transactions, oldest first or newest first: when, what changed, with which metadata.

use std::ffi::OsString;
use std::io::{self, Write};

use annals::{Change, ChangeKind, KeyRange, Log, Store, Transaction};
use clap::Args;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::json;

use super::metadata::{metadata_cell, metadata_json};
use crate::args::{Global, Span, parse_limit};
use crate::at::{self, At};
use crate::bytes::{Spelled, show, show_beside};
use crate::exit::Outcome;
use crate::output::{Format, Output, Row};

/// Keys that a cell shows.
const KEYS_SHOWN: usize = 3;

/// Arguments of `log`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  $ annals -C store log
  $ annals -C store log --since 3 --limit 2
  $ annals -C store log --since yesterday --until now
  $ annals -C store log --reverse --limit 3            # the newest three, the newest first
  $ annals -C store log --prefix /flags/ --values -o ndjson")]
pub(crate) struct LogArgs {
    #[command(flatten)]
    span: Span,
    /// The newest first; then --limit counts from the newest on.
    #[arg(long)]
    reverse: bool,
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
        let mut what: Vec<String> = shown
            .map(|change| format!("{} {}", op(change), show_beside(&change.key, 60, " ")))
            .collect();
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

/// Transactions that are read at once, to be told in the other order.
const CHUNK: u64 = 256;

/// Transactions, the newest first.
struct Backward<'a> {
    first: u64,
    /// All after it have been read.
    end: u64,
    read: &'a dyn Fn(u64, u64) -> Log,
    /// What has been read and not been told, the newest last.
    chunk: Vec<annals::Result<Transaction>>,
}

impl Iterator for Backward<'_> {
    type Item = annals::Result<Transaction>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.chunk.is_empty() && self.end >= self.first {
            let begin = self.first.max(self.end.saturating_sub(CHUNK - 1));
            self.chunk = (self.read)(begin, self.end).collect();
            self.end = begin - 1;
        }
        self.chunk.pop()
    }
}

/// The prefix of the keys that can be read least far back.
fn strictest(store: &Store) -> String {
    let rules = store.retention().into_iter();
    let strictest = rules.max_by_key(|rule| rule.floor);
    strictest.map_or_else(String::new, |rule| show(&rule.prefix, 60))
}

/// `log`: the transactions in order.
pub(crate) fn log(global: &Global, args: &LogArgs, out: &mut Output) -> Outcome {
    let store = global.read()?;
    let range = args
        .prefix
        .as_ref()
        .map_or_else(KeyRange::all, |prefix| KeyRange::prefix(crate::bytes::of_arg(prefix)));
    let last = args.span.until.unwrap_or(At::Latest).revision(&store)?;
    let first = args.span.since.map(|since| since.first(&store)).transpose()?;
    args.span.refuse_backward(first.flatten(), last)?;
    let first = match first {
        // Says so where the revision is not there, or no longer. After the newest there is nothing yet.
        Some(Some(first)) if first <= store.revision() => store.at(first)?.revision(),
        Some(Some(first)) if matches!(args.span.since, Some(At::Time(_))) => first,
        Some(Some(first)) => store.at(first)?.revision(),
        None | Some(None) => {
            let oldest = store.oldest_readable(&range);
            // By a rule of retention, that is, if it is later than what was compacted.
            let by_rule = args.prefix.is_none() && oldest > store.compacted_revision().max(1);
            if by_rule {
                let prefix = strictest(&store);
                out.note(format_args!(
                    "keys with {prefix} cannot be read before revision {oldest}, so the log of all keys begins there; \
                     that of others goes back further: --prefix"
                ))?;
            } else if args.span.since.is_some() && oldest > 2 {
                out.note(format_args!("what was before revision {oldest} has been compacted"))?;
            }
            oldest
        }
    };
    let with_values = args.values && out.format() != Format::Table;
    let read = |first: u64, last: u64| {
        let transactions = store.log_of(first..=last, &range);
        if with_values { transactions.with_values() } else { transactions }
    };
    let (first, limit) = (first.max(2), if args.limit == 0 { u64::MAX } else { args.limit });
    let mut transactions: Box<dyn Iterator<Item = annals::Result<Transaction>>> = if first > last {
        Box::new(std::iter::empty())
    } else if args.reverse {
        Box::new(Backward { first, end: last, read: &read, chunk: Vec::new() })
    } else {
        Box::new(read(first, last))
    };
    let mut rows = out.rows("transactions");
    let mut left = limit;
    while let Some(transaction) = transactions.next() {
        rows.push(&LogRow(transaction?))?;
        left -= 1;
        if left == 0 {
            rows.cut(transactions);
            break;
        }
    }
    rows.finish(&[
        ("revision", json!(store.revision())),
        ("compacted_revision", json!(store.compacted_revision())),
        ("oldest_readable", json!(store.oldest_readable(&range))),
    ])?;
    Ok(())
}
