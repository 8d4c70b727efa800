//! `history`: every retained version of a key, newest first, with when and by whom.

use std::ffi::OsString;
use std::io::{self, Write};

use annals::Version;
use clap::Args;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::{Value, json};

use crate::args::{Global, ReadAt, parse_limit};
use crate::at::{self, At};
use crate::bytes::{self, Given, Spelled, show};
use crate::exit::{Failure, Outcome};
use crate::import::Metadata;
use crate::output::{Output, Row};

/// Arguments of `history`.
#[derive(Debug, Args)]
#[command(after_help = "--since and --at bound it: what the key had from one point to the other.

Examples:
  $ annals -C store history /flags/dark
  $ annals -C store history /flags/dark --limit 1 --at 4
  $ annals -C store history /flags/dark --since 3 -o ndjson")]
pub(crate) struct HistoryArgs {
    /// The key.
    key: OsString,
    /// At most this many versions; 0 for all.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = parse_limit, allow_negative_numbers = true)]
    limit: u64,
    /// Leave the values out.
    #[arg(long)]
    keys_only: bool,
    #[command(flatten)]
    at: ReadAt,
    /// Go back to `latest`, a revision or an RFC 3339 time: to what the key had then.
    #[arg(long, value_name = "latest|REV|TIME", allow_negative_numbers = true)]
    since: Option<At>,
}

/// Metadata as it is stored: an importer's as the object it is, anything else as bytes.
pub(crate) fn stored_metadata(metadata: &[u8]) -> Value {
    match Metadata::parse(metadata) {
        Some(ours) => serde_json::to_value(ours).unwrap_or_default(),
        None if metadata.is_empty() => Value::Null,
        None => bytes::json(metadata),
    }
}

/// Metadata as it was given: what came through an export and an import looks as before.
pub(crate) fn metadata_json(metadata: &[u8]) -> Value {
    match Metadata::parse(metadata).as_ref().and_then(Metadata::carried) {
        Some(carried) => carried.clone(),
        None => stored_metadata(metadata),
    }
}

/// Metadata in a cell: commit and subject where there are such, else what there is.
pub(super) fn metadata_cell(metadata: &[u8]) -> String {
    const WIDTH: usize = 40;
    let Some(ours) = Metadata::parse(metadata) else { return show(metadata, WIDTH) };
    match ours.carried() {
        Some(Value::String(text)) => show(text.as_bytes(), WIDTH),
        Some(other) => match serde_json::from_value::<Given>(other.clone()) {
            Ok(bytes) => show(&bytes.0, WIDTH),
            Err(_) => show(other.to_string().as_bytes(), WIDTH),
        },
        None => {
            let commit = ours.commit.unwrap_or_default();
            let subject = ours.subject.unwrap_or_default();
            let short = commit.get(..12).unwrap_or(&commit);
            show(format!("{short} {subject}").trim().as_bytes(), WIDTH)
        }
    }
}

#[derive(Debug)]
struct VersionRow<'a> {
    version: &'a Version,
    with_value: bool,
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

/// `history`: the versions of a key.
pub(crate) fn history(global: &Global, args: &HistoryArgs, out: &mut Output) -> Outcome {
    let store = global.read()?;
    let key = bytes::of_arg(&args.key);
    let view = args.at.at.view(&store)?;
    let limit = if args.limit == 0 { u64::MAX } else { args.limit };
    let mut rows = out.rows("versions");
    let mut count = 0;
    let mut versions = view.history(&key).with_origin();
    if let Some(since) = args.since {
        versions = versions.since(since.0);
    }
    while let Some(version) = versions.next() {
        let version = version?;
        let with_value = !args.keys_only;
        rows.push(&VersionRow { version: &version, with_value })?;
        count += 1;
        if count == limit {
            rows.cut(versions);
            break;
        }
    }
    let tail =
        [("revision", json!(view.revision())), ("compacted", json!(store.compacted_revision()))];
    if rows.finish(&tail)? == 0 {
        let key = show(&key, 200);
        let what = if args.since.is_some() {
            "it had no version then"
        } else {
            "no version of it is kept"
        };
        return Err(Failure::NotFound(format!("{key}: {what}")));
    }
    Ok(())
}
