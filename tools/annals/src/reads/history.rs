//! `history`: every retained version of a key, newest first, with when and by whom.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write};

use annals::{KeyRange, Version};
use clap::Args;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::json;

use super::delta::Delta;
use super::metadata::{metadata_cell, metadata_json};
use crate::args::{Global, Span, parse_limit};
use crate::at::{self, At};
use crate::bytes::{self, Spelled, show, show_line};
use crate::exit::{Failure, Outcome};
use crate::follow::Seen;
use crate::output::{Format, Output, Row};

/// Arguments of `history`.
#[derive(Debug, Args)]
#[command(
    after_help = "Who did it is in the metadata that the writer gave: `annals put --metadata`, and every transaction
of a program can have some. --diff says what each version changed: members of JSON documents,
lines of texts. --follow tells the oldest first, and then what comes, until it is interrupted;
what was told is durable.

Examples:
  $ annals -C store history /flags/dark
  $ annals -C store history /config/app --diff
  $ annals -C store history /flags/dark --since 24h --until now
  $ annals -C store history /flags/dark --since 3 -o ndjson
  $ annals -C store history /flags/dark --follow --limit 2"
)]
pub(crate) struct HistoryArgs {
    /// The key.
    key: OsString,
    /// At most this many versions; 0 for all.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = parse_limit, allow_negative_numbers = true)]
    limit: u64,
    /// Leave the values out.
    #[arg(long)]
    keys_only: bool,
    /// Show what each version changed of the one before.
    #[arg(long, conflicts_with = "keys_only")]
    diff: bool,
    /// Tell what comes, too, as it comes.
    #[arg(long, conflicts_with = "until")]
    follow: bool,
    #[command(flatten)]
    span: Span,
}

#[derive(Debug)]
struct VersionRow<'a> {
    version: &'a Version,
    with_value: bool,
    /// What it changed, where that is asked for and known.
    delta: Option<Delta>,
}

impl Serialize for VersionRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let version = self.version;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("key", &Spelled(&version.key))?;
        map.serialize_entry("mod_revision", &version.mod_revision)?;
        map.serialize_entry("deleted", &version.tombstone)?;
        if !version.tombstone {
            if self.with_value {
                map.serialize_entry("value", &Spelled(&version.value))?;
            }
            map.serialize_entry("create_revision", &version.create_revision)?;
            map.serialize_entry("version", &version.version)?;
            map.serialize_entry("lease", &version.lease)?;
        }
        if let Some(origin) = &version.origin {
            map.serialize_entry("time", &at::rfc3339(origin.time))?;
            if !origin.metadata.is_empty() {
                map.serialize_entry("metadata", &metadata_json(&origin.metadata))?;
            }
        }
        if let Some(delta) = &self.delta {
            map.serialize_entry("diff", &delta.form())?;
        }
        map.end()
    }
}

impl Row for VersionRow<'_> {
    const COLUMNS: &'static [&'static str] =
        &["revision", "time", "what", "create", "version", "bytes", "metadata", "value"];

    fn cells(&self) -> Vec<String> {
        let version = self.version;
        let origin = version.origin.as_ref();
        let mut cells = vec![
            version.mod_revision.to_string(),
            origin.map(|origin| at::rfc3339(origin.time)).unwrap_or_default(),
        ];
        if version.tombstone {
            cells.push("delete".into());
            cells.extend([String::new(), String::new(), String::new()]);
        } else {
            cells.push("put".into());
            cells.push(version.create_revision.to_string());
            cells.push(version.version.to_string());
            let bytes =
                if self.with_value { version.value.len().to_string() } else { String::new() };
            cells.push(bytes);
        }
        cells.push(origin.map(|origin| metadata_cell(&origin.metadata)).unwrap_or_default());
        cells.push(if self.with_value { show(&version.value, 40) } else { String::new() });
        cells
    }

    fn raw(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.version.mod_revision)?;
        if self.with_value {
            out.write_all(&self.version.value)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

impl VersionRow<'_> {
    /// For people, in lines of their own: what it is, and what it changed.
    fn lines(&self) -> String {
        let version = self.version;
        let mut text = format!("{} ", version.mod_revision);
        if let Some(origin) = &version.origin {
            let _ = write!(text, "{} ", at::rfc3339(origin.time));
        }
        text.push_str(if version.tombstone { "delete" } else { "put" });
        if let Some(origin) = version.origin.as_ref().filter(|origin| !origin.metadata.is_empty()) {
            let _ = write!(text, "  ({})", metadata_cell(&origin.metadata));
        }
        text.push('\n');
        let value = || vec![show_line(&version.value, 120)];
        let lines = match &self.delta {
            _ if version.tombstone || !self.with_value => Vec::new(),
            Some(delta) => delta.lines(),
            None => value(),
        };
        for line in lines {
            let _ = writeln!(text, "    {line}");
        }
        text
    }
}

/// The versions of a key from some point on, the newest first, and after them the one before, where it is
/// kept.
struct Versions {
    iter: annals::History,
    first: u64,
    next: Option<Version>,
}

impl Versions {
    fn new(mut iter: annals::History, first: u64) -> Outcome<Self> {
        let next = iter.next().transpose()?;
        Ok(Self { iter, first, next })
    }

    /// A version, and the one before it.
    fn step(&mut self) -> Outcome<Option<(Version, Option<Version>)>> {
        let Some(version) = self.next.take().filter(|next| next.mod_revision >= self.first) else {
            return Ok(None);
        };
        self.next = self.iter.next().transpose()?;
        Ok(Some((version, self.next.clone())))
    }
}

impl HistoryArgs {
    /// A version as it is shown, with what it changed of the one before.
    fn row<'a>(&self, version: &'a Version, before: Option<&Version>) -> VersionRow<'a> {
        let before = before.filter(|before| self.diff && !before.tombstone && !version.tombstone);
        let delta = before.map(|before| Delta::of(&before.value, &version.value));
        VersionRow { version, with_value: !self.keys_only, delta }
    }

    fn limit(&self) -> u64 {
        if self.limit == 0 { u64::MAX } else { self.limit }
    }
}

/// `history`: the versions of a key.
pub(crate) fn history(global: &Global, args: &HistoryArgs, out: &mut Output) -> Outcome {
    if args.follow {
        return follow(global, args, out);
    }
    let store = global.read()?;
    let key = bytes::of_arg(&args.key);
    let view = args.span.until.unwrap_or(At::Latest).view(&store)?;
    let first = args.span.since.map(|since| since.first(&store)).transpose()?;
    let mut iter = view.history(&key).with_origin();
    let mut nothing = "no version of it is kept";
    args.span.refuse_backward(first.flatten(), view.revision())?;
    match first {
        Some(Some(first))
            if first > view.revision() && !matches!(args.span.since, Some(At::Time(_))) =>
        {
            store.at(first)?;
        }
        // Says so where that is no longer kept.
        Some(Some(first)) => iter = iter.since(first.min(view.revision())),
        Some(None) => {
            let oldest = store.oldest_readable(KeyRange::key(&key));
            if oldest > 2 {
                out.note(format_args!("what was before revision {oldest} has been compacted"))?;
            }
        }
        None => {}
    }
    if first.is_some() {
        nothing = "it had no new version then";
    }
    let mut versions = Versions::new(iter, first.flatten().unwrap_or(0))?;
    let as_lines = args.diff && out.format() == Format::Table;
    let mut left = args.limit();
    let mut told = false;
    if as_lines {
        while left > 0
            && let Some((version, before)) = versions.step()?
        {
            out.bytes(args.row(&version, before.as_ref()).lines().as_bytes())?;
            (told, left) = (true, left - 1);
        }
    } else {
        let mut rows = out.rows("versions");
        while left > 0
            && let Some((version, before)) = versions.step()?
        {
            rows.push(&args.row(&version, before.as_ref()))?;
            (told, left) = (true, left - 1);
        }
        if left == 0 {
            rows.cut(std::iter::from_fn(|| versions.step().transpose()));
        }
        let compacted = json!(store.compacted_revision());
        let oldest = json!(store.oldest_readable(KeyRange::key(&key)));
        rows.finish(&[
            ("revision", json!(view.revision())),
            ("compacted_revision", compacted),
            ("oldest_readable", oldest),
        ])?;
    }
    if told { Ok(()) } else { Err(Failure::NotFound(format!("{}: {nothing}", show(&key, 200)))) }
}

/// `history --follow`: what is there, the oldest first, and what comes.
fn follow(global: &Global, args: &HistoryArgs, out: &mut Output) -> Outcome {
    let key = bytes::of_arg(&args.key);
    let mut left = args.limit();
    let mut last: Option<Version> = None;
    // The revision up to which all has been told.
    let mut upto = None;
    let mut since = args.span.since;
    let mut seen = Seen::new(global.data()?);
    loop {
        seen.look();
        let store = global.read()?;
        let view = store.latest()?;
        // What is counted from the newest revision on is meant from the one that was the newest at first.
        if let Some(at @ (At::Latest | At::Back(_))) = since {
            since = at.first(&store)?.map(At::Revision);
        }
        // A time that is to come has another first revision each time.
        let begin = since.map(|since| since.first(&store)).transpose()?.flatten();
        let first = begin.max(upto.map(|upto: u64| upto + 1));
        // The newest come first, and values can be large: the revisions now, each version when it is told.
        let mut iter = view.history(&key).keys_only();
        if let Some(first) = first {
            // Says so where what is next has been compacted before it could be told.
            iter = iter.since(first.min(view.revision()));
        }
        let mut versions = Versions::new(iter, first.unwrap_or(0))?;
        let mut found = Vec::new();
        while let Some((version, _)) = versions.step()? {
            found.push(version.mod_revision);
        }
        // The oldest one may be from before all that can be read, where it still lived.
        let oldest = store.oldest_readable(KeyRange::key(&key));
        for revision in found.into_iter().rev() {
            let mut versions = view.history(&key).with_origin().until(revision.max(oldest));
            let Some(version) = versions.next().transpose()? else { continue };
            let before = match (&last, args.diff) {
                (None, true) => versions.next().transpose()?,
                _ => None,
            };
            let row = args.row(&version, last.as_ref().or(before.as_ref()));
            match out.format() {
                Format::Table => out.bytes(row.lines().as_bytes())?,
                Format::Json | Format::Ndjson => {
                    let mut line = serde_json::to_vec(&row)?;
                    line.push(b'\n');
                    out.bytes(&line)?;
                }
                Format::Raw => {
                    let mut raw = Vec::new();
                    row.raw(&mut raw)?;
                    out.bytes(&raw)?;
                }
            }
            last = Some(version);
            left -= 1;
            if left == 0 {
                return Ok(());
            }
        }
        out.flush()?;
        upto = Some(view.revision());
        drop((view, store));
        seen.wait(None);
    }
}
