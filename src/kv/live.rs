//! Figures of an open store in a file of its directory, for people and tools beside the program.
//!
//! The file says how it was a moment ago and is nothing the store ever reads. It is written under another name
//! and renamed, without a sync, so who reads it finds one whole text or another. What keeps it from being
//! written is told to nobody: there is none then, or an old one, which says when it was written.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use annals_format::name::{LIVE, UNFINISHED};

use crate::engine::{Attendant, FileStats, Latency, Stats};
use crate::error::Result;
use crate::sync::Arc;

use super::extension::Lagging;
use super::seam::Door;
use super::store::{Rooms, Store};

/// Bytes of the file at most.
const BYTES_MAX: usize = 64 << 10;

/// Pinned revisions, and watches, that are told at most.
const TOLD_MAX: usize = 64;

/// Bytes of a key that are told at most.
const KEY_BYTES: usize = 48;

/// Bytes of a failure that are told at most.
const FAILURE_BYTES: usize = 1 << 10;

/// What the thread has of the store: nothing that keeps it open.
struct Live {
    door: Door,
    rooms: Arc<dyn Rooms>,
    interval: Duration,
}

/// Begins to write the file, where the options ask for it.
///
/// # Errors
/// The system refuses a thread.
pub(crate) fn begin(store: &Store) -> Result<()> {
    let options = store.engine().options();
    if options.live_interval_seconds == 0 || !options.background {
        return Ok(());
    }
    let interval = Duration::from_secs(options.live_interval_seconds);
    let live = Live { door: store.engine().door(), rooms: store.rooms(), interval };
    let duty = move |me: &Attendant| {
        // Who reads it must not take a store that was closed for one that stands still.
        let _ = if me.is_dismissed() { live.remove() } else { live.write() };
        Some(live.interval)
    };
    store.engine().attend("annals-live", Box::new(duty)).map(drop)
}

impl Live {
    fn write(&self) -> io::Result<()> {
        let (vfs, path) = (&self.door.options().vfs, self.door.path());
        let unfinished = path.join(format!("{LIVE}{UNFINISHED}"));
        vfs.remove_if_there(&unfinished)?;
        let file = vfs.create(&unfinished)?;
        file.write_all_at(self.text().as_bytes(), 0)?;
        vfs.rename(&unfinished, &path.join(LIVE))
    }

    fn remove(&self) -> io::Result<()> {
        let (vfs, path) = (&self.door.options().vfs, self.door.path());
        vfs.remove_if_there(&path.join(format!("{LIVE}{UNFINISHED}")))?;
        vfs.remove_if_there(&path.join(LIVE))
    }

    fn text(&self) -> String {
        let mut stats = self.door.stats();
        self.rooms.count(&mut stats);
        let watches = self.rooms.lagging(TOLD_MAX);
        let text = self.text_of(&stats, &watches);
        // All that has no bound of its own is cut; this is for what nobody has thought of.
        if text.len() > BYTES_MAX { self.text_of(&stats, &[]) } else { text }
    }

    fn text_of(&self, stats: &Stats, watches: &[Lagging]) -> String {
        let mut json = Json::default();
        json.text("schema", "annals.live/1");
        json.text("version", env!("CARGO_PKG_VERSION"));
        json.number("pid", u64::from(std::process::id()));
        json.raw("written", self.door.options().clock.now_micros());
        json.number("interval_seconds", self.interval.as_secs());
        json.raw("stats", json_of(stats));
        let pins = self.door.pins();
        let pins = pins.iter().take(TOLD_MAX);
        json.list(
            "pins",
            pins.map(|(revision, count)| {
                let mut pin = Json::default();
                pin.number("revision", *revision);
                pin.number("count", *count);
                pin.end()
            }),
        );
        json.list(
            "slowest_watches",
            watches.iter().map(|lagging| {
                let mut watch = Json::default();
                watch.text("start", &shown(&lagging.start));
                watch.raw(
                    "end",
                    lagging.end.as_ref().map_or("null".to_owned(), |end| quoted(&shown(end))),
                );
                watch.number("due", lagging.due);
                watch.end()
            }),
        );
        json.end() + "\n"
    }
}

/// The beginning of a key, with what is not printable as `\xNN`.
fn shown(key: &[u8]) -> String {
    let mut shown = key
        .iter()
        .take(KEY_BYTES)
        .flat_map(|byte| byte.escape_ascii())
        .map(char::from)
        .collect::<String>();
    if key.len() > KEY_BYTES {
        shown.push_str("...");
    }
    shown
}

/// A text as JSON has it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if u32::from(c) < 0x20 => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// An object that is being written.
#[derive(Default)]
struct Json(String);

impl Json {
    fn raw(&mut self, name: &str, value: impl std::fmt::Display) {
        let comma = if self.0.is_empty() { "" } else { "," };
        let _ = write!(self.0, "{comma}\"{name}\":{value}");
    }

    fn number(&mut self, name: &str, value: u64) {
        self.raw(name, value);
    }

    fn text(&mut self, name: &str, value: &str) {
        self.raw(name, quoted(value));
    }

    fn list(&mut self, name: &str, values: impl Iterator<Item = String>) {
        let values: Vec<String> = values.collect();
        self.raw(name, format_args!("[{}]", values.join(",")));
    }

    fn end(self) -> String {
        format!("{{{}}}", self.0)
    }
}

/// A figure as JSON has it.
trait Figure {
    fn json(&self) -> String;
}

impl Figure for u64 {
    fn json(&self) -> String {
        self.to_string()
    }
}

impl Figure for Option<u64> {
    fn json(&self) -> String {
        self.map_or_else(|| "null".to_owned(), |value| value.to_string())
    }
}

impl Figure for Option<String> {
    fn json(&self) -> String {
        let cut = |text: &String| quoted(&text.chars().take(FAILURE_BYTES / 4).collect::<String>());
        self.as_ref().map_or_else(|| "null".to_owned(), cut)
    }
}

/// Writes an object of fields by their names.
macro_rules! object {
    ($of:expr, $($name:ident),*) => {{
        let mut json = Json::default();
        $(json.raw(stringify!($name), $of.$name.json());)*
        json.end()
    }};
}

impl Figure for FileStats {
    fn json(&self) -> String {
        object!(self, files, bytes, entries, value_bytes)
    }
}

impl Figure for Latency {
    fn json(&self) -> String {
        object!(self, count, p50_nanos, p99_nanos, max_nanos, buckets)
    }
}

impl Figure for Vec<(u64, u64)> {
    fn json(&self) -> String {
        let pairs: Vec<String> =
            self.iter().map(|(upto, count)| format!("[{upto},{count}]")).collect();
        format!("[{}]", pairs.join(","))
    }
}

#[rustfmt::skip]
fn json_of(stats: &Stats) -> String {
    object!(stats, revision, durable_revision, compacted_revision, incarnation, pinned, oldest_pinned,
        generations, memtable_bytes, flush_backlog_bytes, l0, head, history, history_windows, events,
        blobs, live_bytes, history_bytes, event_bytes, dead_bytes, wal_files, wal_bytes, cache_bytes,
        cache_bytes_max, batches, batch_transactions, batch_bytes, sync_latency, commit_latency,
        conflicts, delays, delay_micros, waits, wait_micros, flushes, folds, merges, dropped_files,
        manifests, background_bytes, background_pauses, background_pause_micros, watches,
        watches_behind, watch_oldest_revision, watch_batches, leases, leases_expired, lease_renewals,
        lease_overdue_micros, lease_next_micros, failure, no_space, damage, damaged_files)
}

#[cfg(test)]
mod tests;
