//! `diff`: the state at one revision, of this store or of a copy, against the state at another.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write};

use annals::{Diff, KeyRange, KeyValue};
use clap::Args;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::json;

use super::delta::Delta;
use super::rows::KvRow;
use crate::args::{Global, parse_limit};
use crate::at::At;
use crate::bytes::{self, Spelled, show, show_line};
use crate::elsewhere::{FromArgs, differences};
use crate::exit::{Failure, Outcome};
use crate::output::{Format, Output, Row};

/// Arguments of `diff`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  $ annals -C store diff 3                             # what has changed since
  $ annals -C store diff 3 5 --prefix /flags/
  $ annals -C store diff -2 --values
  $ annals -C store diff 3 now --values -o ndjson
  $ annals -C store backup monday.backup
  $ annals -C store diff latest --from monday.backup   # what is not as it was in a backup")]
pub(crate) struct DiffArgs {
    /// The earlier state: a point in history, such as 7, -1, yesterday or 24h.
    #[arg(value_name = "AT", allow_hyphen_values = true)]
    old: At,
    /// The later state, always of this store.
    #[arg(value_name = "AT", default_value = "latest", allow_hyphen_values = true)]
    new: At,
    #[command(flatten)]
    from: FromArgs,
    /// Only keys that begin with this.
    #[arg(long, value_name = "PREFIX", default_value = "")]
    prefix: OsString,
    /// At most this many; 0 for all.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = parse_limit, allow_negative_numbers = true)]
    limit: u64,
    /// Show what became of the values, too: members of JSON documents, lines of texts.
    #[arg(long)]
    values: bool,
}

#[derive(Debug)]
struct DiffRow {
    diff: Diff,
    values: bool,
}

impl DiffRow {
    fn parts(&self) -> (&'static str, Option<&KeyValue>, Option<&KeyValue>) {
        match &self.diff {
            Diff::Added(new) => ("added", None, Some(new)),
            Diff::Changed { old, new } => ("changed", Some(old), Some(new)),
            Diff::Removed(old) => ("removed", Some(old), None),
        }
    }
}

impl Serialize for DiffRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (change, old, new) = self.parts();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("key", &Spelled(self.diff.key()))?;
        map.serialize_entry("change", change)?;
        for (name, side) in [("old", old), ("new", new)] {
            if let Some(kv) = side {
                map.serialize_entry(name, &KvRow { kv, with_value: self.values })?;
            }
        }
        if let (true, Some(old), Some(new)) = (self.values, old, new) {
            map.serialize_entry("diff", &Delta::of(&old.value, &new.value).form())?;
        }
        map.end()
    }
}

impl Row for DiffRow {
    const COLUMNS: &'static [&'static str] =
        &["change", "old revision", "old bytes", "new revision", "new bytes", "key"];

    fn cells(&self) -> Vec<String> {
        let (change, old, new) = self.parts();
        let revision = |kv: &KeyValue| kv.mod_revision.to_string();
        let length = |kv: &KeyValue| kv.value.len().to_string();
        vec![
            change.to_owned(),
            old.map(revision).unwrap_or_default(),
            old.map(length).unwrap_or_default(),
            new.map(revision).unwrap_or_default(),
            new.map(length).unwrap_or_default(),
            show(self.diff.key(), 120),
        ]
    }

    fn raw(&self, out: &mut dyn Write) -> io::Result<()> {
        let sign: &[u8] = match self.diff {
            Diff::Added(_) => b"+ ",
            Diff::Changed { .. } => b"~ ",
            Diff::Removed(_) => b"- ",
        };
        out.write_all(sign)?;
        out.write_all(self.diff.key())?;
        out.write_all(b"\n")
    }
}

/// `diff`: what differs between two states.
pub(crate) fn diff(global: &Global, args: &DiffArgs, out: &mut Output) -> Outcome {
    let store = global.read()?;
    let elsewhere = args.from.open(global)?;
    let old = args.old.revision(elsewhere.as_ref().map_or(&store, |elsewhere| &elsewhere.store))?;
    let new = args.new.revision(&store)?;
    let range = KeyRange::prefix(bytes::of_arg(&args.prefix));
    if let Some(elsewhere) = &elsewhere {
        let differences = differences(&elsewhere.store.at(old)?, &store.at(new)?, &range);
        return show_all(differences, (old, new), args, out);
    }
    if old > new {
        return Err(Failure::Usage(format!(
            "revision {old} is after revision {new}: give the earlier one first"
        )));
    }
    show_all(store.diff(old, new, range)?, (old, new), args, out)
}

fn show_all(
    mut differences: impl Iterator<Item = annals::Result<Diff>>,
    (old, new): (u64, u64),
    args: &DiffArgs,
    out: &mut Output,
) -> Outcome {
    if args.values && out.format() == Format::Table {
        return in_lines(differences, args.limit, out);
    }
    let mut rows = out.rows("diff");
    let limit = if args.limit == 0 { u64::MAX } else { args.limit };
    let mut count = 0;
    while let Some(diff) = differences.next() {
        rows.push(&DiffRow { diff: diff?, values: args.values })?;
        count += 1;
        if count == limit {
            rows.cut(differences);
            break;
        }
    }
    rows.finish(&[("from", json!(old)), ("to", json!(new))])?;
    Ok(())
}

/// For people: each key in a line, and what became of its value below.
fn in_lines(
    mut differences: impl Iterator<Item = annals::Result<Diff>>,
    limit: u64,
    out: &mut Output,
) -> Outcome {
    let mut left = if limit == 0 { u64::MAX } else { limit };
    while left > 0
        && let Some(diff) = differences.next()
    {
        let row = DiffRow { diff: diff?, values: true };
        let (change, old, new) = row.parts();
        let of = |kv: Option<&KeyValue>| {
            kv.map_or_else(|| "-".to_owned(), |kv| kv.mod_revision.to_string())
        };
        let mut text =
            format!("{change} {}  {} -> {}\n", show(row.diff.key(), 120), of(old), of(new));
        let lines = match (old, new) {
            (Some(old), Some(new)) => Delta::of(&old.value, &new.value).lines(),
            (None, Some(only)) => vec![format!("+ {}", show_line(&only.value, 120))],
            (Some(only), None) => vec![format!("- {}", show_line(&only.value, 120))],
            (None, None) => Vec::new(),
        };
        for line in lines {
            let _ = writeln!(text, "    {line}");
        }
        out.bytes(text.as_bytes())?;
        left -= 1;
    }
    match differences.count() {
        0 => Ok(()),
        more => out.bytes(format!("... {more} more\n").as_bytes()),
    }
}
