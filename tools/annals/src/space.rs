//! `stats --by prefix`: which keys take how much room.

use std::ffi::OsString;
use std::io::{self, Write};

use annals::inspect::StoreFiles;
use annals::{PrefixSpace, SpaceOptions, Store};
use annals_format::FileKind;
use clap::Args;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::json;

use crate::args::{Global, parse_limit};
use crate::bytes::{self, Spelled, count, human, show};
use crate::census::{self, Takes};
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

/// Prefixes that are asked of the store; those beyond are told together.
const PREFIXES_MAX: usize = 4096;

/// The room of keys with one prefix, or of several.
#[derive(Debug, Default)]
struct SpaceRow {
    /// For people, where it is more than one.
    name: Option<String>,
    found: PrefixSpace,
    log: u64,
}

impl SpaceRow {
    fn bytes(&self) -> u64 {
        self.found.bytes() + self.log
    }

    fn add(&mut self, other: &Self) {
        let (sum, more) = (&mut self.found, &other.found);
        sum.live_bytes += more.live_bytes;
        sum.history_bytes += more.history_bytes;
        sum.dead_bytes += more.dead_bytes;
        sum.keys += more.keys;
        sum.versions += more.versions;
        self.log += other.log;
    }
}

impl Serialize for SpaceRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let found = &self.found;
        let mut map = serializer.serialize_map(None)?;
        if self.name.is_none() {
            map.serialize_entry("prefix", &Spelled(&found.prefix))?;
        }
        map.serialize_entry("bytes", &self.bytes())?;
        map.serialize_entry("live_bytes", &found.live_bytes)?;
        map.serialize_entry("history_bytes", &found.history_bytes)?;
        map.serialize_entry("dead_bytes", &found.dead_bytes)?;
        map.serialize_entry("log_bytes", &self.log)?;
        map.serialize_entry("keys", &found.keys)?;
        map.serialize_entry("versions", &found.versions)?;
        map.end()
    }
}

impl Row for SpaceRow {
    const COLUMNS: &'static [&'static str] =
        &["prefix", "bytes", "live", "history", "dead", "log", "keys", "versions"];

    fn cells(&self) -> Vec<String> {
        let found = &self.found;
        let name = match &self.name {
            Some(name) => name.clone(),
            None if found.prefix.is_empty() => "''".to_owned(),
            None => show(&found.prefix, 120),
        };
        // Which of what is in the log alone lives is not told apart: that is not none.
        let in_log_alone = self.log > 0 && found.bytes() == 0;
        let told = |text: String| if in_log_alone { "-".to_owned() } else { text };
        vec![
            name,
            human(self.bytes()),
            told(human(found.live_bytes)),
            told(human(found.history_bytes)),
            told(human(found.dead_bytes)),
            human(self.log),
            told(found.keys.to_string()),
            found.versions.to_string(),
        ]
    }

    fn raw(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{} ", self.bytes())?;
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
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let top = if args.top == 0 { usize::MAX } else { size(args.top) };
    let options = SpaceOptions::new()
        .prefix(args.prefix.as_deref().map(bytes::of_arg).unwrap_or_default())
        .delimiter(args.delimiter)
        .depth(size(args.depth.into()))
        .top(top.max(PREFIXES_MAX));
    let files = crate::files::open(global)?;
    let (mut log, given_up) = census::of_log(&files, &|key| options.label(key))?;
    let used: u64 = log.values().map(Takes::all).sum();
    let rest_of = Rest::of(&files, used);
    let space = store.space(options)?;
    let mut found: Vec<SpaceRow> = Vec::new();
    for in_files in space.prefixes {
        let takes = log.remove(in_files.prefix.as_ref()).unwrap_or_default();
        let mut row = SpaceRow { name: None, found: in_files, log: takes.all() };
        row.found.versions += takes.versions;
        found.push(row);
    }
    for (prefix, takes) in log {
        let mut row = SpaceRow { log: takes.all(), ..SpaceRow::default() };
        (row.found.prefix, row.found.versions) = (prefix.into(), takes.versions);
        found.push(row);
    }
    found.sort_by(|a, b| {
        b.bytes().cmp(&a.bytes()).then_with(|| a.found.prefix.cmp(&b.found.prefix))
    });
    let others = found.split_off(top.min(found.len()));
    let count_of_others = space.other_prefixes + others.len() as u64;
    let name = Some(format!("({})", count(count_of_others, "other")));
    let mut rest = SpaceRow { name, found: space.other, log: 0 };
    for row in &others {
        rest.add(row);
    }
    let format = out.format();
    if found.is_empty() && format == Format::Table {
        return out.note("there are no such keys");
    }
    let mut rows = out.rows("prefixes");
    for row in &found {
        rows.push(row)?;
    }
    if count_of_others > 0 && format == Format::Table {
        rows.push(&rest)?;
    }
    let tail = [
        ("other_prefixes", json!(count_of_others)),
        ("other", json!(rest)),
        ("event_file_bytes", json!(rest_of.events)),
        ("log_file_bytes", json!(rest_of.log)),
        ("other_file_bytes", json!(rest_of.other)),
        ("disk_bytes", json!(rest_of.disk)),
        ("given_up", json!(given_up)),
    ];
    rows.finish(&tail)?;
    if rest_of.is_all_in_log {
        out.note(
            "everything is still in the log, whose keys and past are not told apart; `annals reorganise` moves it to \
             files",
        )?;
    }
    if given_up > 0 {
        out.note(
            "there are too many prefixes to count each in the log: what is told of one there may be too little, \
             and the rest of the log too much",
        )?;
    }
    if format == Format::Table {
        let Rest { events, unused, disk, .. } = rest_of;
        let (events, unused, disk) = (human(events), human(unused), human(disk));
        let text = format!(
            "\nbeside these: events {events}, the rest of the log {unused}; all files together {disk}\n"
        );
        out.bytes(text.as_bytes())?;
    }
    Ok(())
}

/// The files that are not in the order of keys.
struct Rest {
    events: u64,
    log: u64,
    /// What of the log holds none of the keys: it is made whole, and then filled.
    unused: u64,
    other: u64,
    disk: u64,
    /// No file has keys in their order.
    is_all_in_log: bool,
}

impl Rest {
    fn of(files: &StoreFiles, used: u64) -> Self {
        let mut rest =
            Self { events: 0, log: 0, unused: 0, other: 0, disk: 0, is_all_in_log: used > 0 };
        for name in files.names() {
            let bytes = files.file_bytes(name).unwrap_or(0);
            rest.disk += bytes;
            match name.kind {
                FileKind::Events => rest.events += bytes,
                FileKind::Wal => rest.log += bytes,
                FileKind::L0 | FileKind::Head | FileKind::History | FileKind::Blob => {
                    rest.is_all_in_log = false;
                }
                _ => rest.other += bytes,
            }
        }
        rest.unused = rest.log.saturating_sub(used);
        rest
    }
}
