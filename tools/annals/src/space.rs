//! `stats --by prefix`: which keys take how much room.

use std::ffi::OsString;
use std::io::{self, Write};

use annals::{PrefixSpace, SpaceOptions, Store};
use annals_format::FileKind;
use clap::Args;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::json;

use crate::args::{Global, parse_limit};
use crate::bytes::{self, Spelled, count, human, show};
use crate::exit::Outcome;
use crate::output::{Format, Output, Row};

/// Arguments of `stats --by prefix`.
#[derive(Debug, Args)]
pub(crate) struct SpaceArgs {
    /// With --by: only keys that begin with this.
    #[arg(long, value_name = "PREFIX", requires = "by")]
    pub(crate) prefix: Option<OsString>,
    /// With --by prefix: how many parts of the keys to tell apart, behind the prefix; 0 for one sum.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "by")]
    depth: u32,
    /// With --by prefix: the byte that ends a part of a key.
    #[arg(long, value_name = "C", default_value = "/", value_parser = parse_byte, requires = "by")]
    delimiter: u8,
    /// With --by: list at most this many; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = parse_limit, allow_negative_numbers = true, requires = "by")]
    pub(crate) top: u64,
}

fn parse_byte(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] => Ok(*byte),
        _ => Err("expected one byte, such as / or :".into()),
    }
}

/// The room of keys with one prefix, or of several.
struct SpaceRow<'a> {
    /// For people, where it is more than one.
    name: Option<String>,
    found: &'a PrefixSpace,
}

impl Serialize for SpaceRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let found = self.found;
        let mut map = serializer.serialize_map(None)?;
        if self.name.is_none() {
            map.serialize_entry("prefix", &Spelled(&found.prefix))?;
        }
        map.serialize_entry("bytes", &found.bytes())?;
        map.serialize_entry("live_bytes", &found.live_bytes)?;
        map.serialize_entry("history_bytes", &found.history_bytes)?;
        map.serialize_entry("dead_bytes", &found.dead_bytes)?;
        map.serialize_entry("keys", &found.keys)?;
        map.serialize_entry("versions", &found.versions)?;
        map.end()
    }
}

impl Row for SpaceRow<'_> {
    const COLUMNS: &'static [&'static str] =
        &["prefix", "bytes", "live", "history", "dead", "keys", "versions"];

    fn cells(&self) -> Vec<String> {
        let found = self.found;
        let name = match &self.name {
            Some(name) => name.clone(),
            None if found.prefix.is_empty() => "''".to_owned(),
            None => show(&found.prefix, 120),
        };
        vec![
            name,
            human(found.bytes()),
            human(found.live_bytes),
            human(found.history_bytes),
            human(found.dead_bytes),
            found.keys.to_string(),
            found.versions.to_string(),
        ]
    }

    fn raw(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{} ", self.found.bytes())?;
        out.write_all(&self.found.prefix)?;
        out.write_all(b"\n")
    }
}

/// The prefixes that take most.
pub(crate) fn by_prefix(
    global: &Global,
    store: &Store,
    args: &SpaceArgs,
    out: &mut Output,
) -> Outcome {
    let rest_of = Rest::of(global)?;
    let all = |number: u64| if number == 0 { u64::MAX } else { number };
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let options = SpaceOptions::new()
        .prefix(args.prefix.as_deref().map(bytes::of_arg).unwrap_or_default())
        .delimiter(args.delimiter)
        .depth(size(args.depth.into()))
        .top(size(all(args.top)));
    let space = store.space(options)?;
    if space.prefixes.is_empty() && out.format() == Format::Table {
        let log = human(rest_of.log);
        return out
            .note(format!("no such keys are in files; what is newest is in the log ({log})"));
    }
    let format = out.format();
    let mut rows = out.rows("prefixes");
    for found in &space.prefixes {
        rows.push(&SpaceRow { name: None, found })?;
    }
    let others = count(space.other_prefixes, "other");
    let rest = SpaceRow { name: Some(format!("({others})")), found: &space.other };
    if space.other_prefixes > 0 && format == Format::Table {
        rows.push(&rest)?;
    }
    let tail = [
        ("other_prefixes", json!(space.other_prefixes)),
        ("other", json!(rest)),
        ("event_file_bytes", json!(rest_of.events)),
        ("log_file_bytes", json!(rest_of.log)),
        ("other_file_bytes", json!(rest_of.other)),
        ("disk_bytes", json!(rest_of.disk)),
    ];
    rows.finish(&tail)?;
    if format == Format::Table {
        let Rest { events, log, disk, .. } = rest_of;
        let (events, log, disk) = (human(events), human(log), human(disk));
        let text =
            format!("\nbeside these: events {events}, log {log}; all files together {disk}\n");
        out.bytes(text.as_bytes())?;
    }
    Ok(())
}

/// The files that are not in the order of keys.
struct Rest {
    events: u64,
    log: u64,
    other: u64,
    disk: u64,
}

impl Rest {
    fn of(global: &Global) -> Outcome<Self> {
        let files = crate::files::open(global)?;
        let mut rest = Self { events: 0, log: 0, other: 0, disk: 0 };
        for name in files.names() {
            let bytes = files.file_bytes(name).unwrap_or(0);
            rest.disk += bytes;
            match name.kind {
                FileKind::Events => rest.events += bytes,
                FileKind::Wal => rest.log += bytes,
                FileKind::L0 | FileKind::Head | FileKind::History => {}
                _ => rest.other += bytes,
            }
        }
        Ok(rest)
    }
}
