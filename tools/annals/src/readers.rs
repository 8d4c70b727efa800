//! `readers`: which processes have the store open, and what they keep from being given back.
//!
//! A store knows the views of its own process only. What others have open the system knows: descriptors and
//! maps, of files that have been removed, too, whose room is given back when the last of these is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use clap::Args;
use serde_json::json;

use crate::args::Global;
use crate::exit::Outcome;
use crate::live::Live;
use crate::output::{Output, listed};

/// Arguments of `readers`.
#[derive(Debug, Args)]
#[command(
    after_help = "writer: holds the lock of the store. removed_files: files that are no longer part of the store,
which the process still reads; held_bytes is their room on disk, given back when they are closed.
Only processes that this user may look into are seen (as root: all). pins: the revisions that
views of the writer hold, as it tells them in live.json (`annals help top`). Linux only: elsewhere
the list is empty.

Examples:
  $ annals -C store readers
  $ annals -C store readers --json"
)]
pub(crate) struct ReadersArgs {}

listed! {
    /// A process.
    ReaderRow: "pid", "command", "writer", "open_files", "removed_files", "held_bytes"
}

/// What the system marks the path of a removed file with.
const REMOVED: &str = " (deleted)";

/// What a process has open of a store.
#[derive(Debug, Default)]
struct Reader {
    writer: bool,
    open: BTreeSet<String>,
    /// Bytes on disk, by inode.
    removed: BTreeMap<u64, u64>,
}

/// `readers`: a line for each process.
pub(crate) fn readers(global: &Global, _args: &ReadersArgs, out: &mut Output) -> Outcome {
    let data = global.data()?;
    // Says so where there is no store.
    let files = crate::files::open(global)?;
    drop(files);
    let store = fs::canonicalize(data).unwrap_or_else(|_| data.clone());
    let (mut unseen, mut held) = (0_u64, 0);
    let mut rows = out.rows("readers");
    let mut pids: Vec<u32> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    for pid in pids.into_iter().filter(|pid| *pid != std::process::id()) {
        let process = Path::new("/proc").join(pid.to_string());
        let Some(reader) = look(&process, &store) else {
            unseen += u64::from(process.exists());
            continue;
        };
        if reader.open.is_empty() && reader.removed.is_empty() {
            continue;
        }
        let bytes: u64 = reader.removed.values().sum();
        held += bytes;
        let command = fs::read(process.join("comm")).unwrap_or_default();
        rows.push(&ReaderRow(json!({
            "pid": pid,
            "command": String::from_utf8_lossy(&command).trim_end(),
            "writer": reader.writer,
            "open_files": reader.open.len(),
            "removed_files": reader.removed.len(),
            "held_bytes": bytes,
        })))?;
    }
    // What the writer's own views hold it tells by itself, if it does.
    let pins = Live::read(data).map(|live| live.pins()).unwrap_or_default();
    let told = |(revision, count): &(u64, u64)| json!({ "revision": revision, "count": count });
    let readers = rows.finish(&[
        ("held_bytes", json!(held)),
        ("unseen_processes", json!(unseen)),
        ("pins", pins.iter().map(told).collect()),
    ])?;
    if let Some((oldest, _)) = pins.first() {
        let count: u64 = pins.iter().map(|(_, count)| count).sum();
        out.note(format_args!("its writer has {count} views; the oldest holds revision {oldest}"))?;
    }
    if readers == 0 {
        out.note("no process has the store open")?;
    }
    if unseen > 0 {
        out.note(format_args!("{unseen} processes of others could not be looked into"))?;
    }
    Ok(())
}

/// What a process has open below a directory; `None` where that may not be looked at.
fn look(process: &Path, store: &Path) -> Option<Reader> {
    let mut reader = Reader::default();
    for entry in fs::read_dir(process.join("fd")).ok()?.flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let Ok(inside) = target.strip_prefix(store) else { continue };
        let name = inside.to_string_lossy();
        match name.strip_suffix(REMOVED) {
            Some(_) => {
                if let Ok(meta) = fs::metadata(entry.path()) {
                    reader.removed.insert(meta.ino(), meta.blocks() * 512);
                }
            }
            None => {
                reader.writer |= name == "LOCK";
                reader.open.insert(name.into_owned());
            }
        }
    }
    for line in fs::read_to_string(process.join("maps")).unwrap_or_default().lines() {
        // address perms offset dev inode path
        let mut fields = line.splitn(6, ' ');
        let range = fields.next().unwrap_or_default();
        let inode = fields.nth(3).and_then(|inode| inode.parse::<u64>().ok());
        let path = fields.next().unwrap_or_default().trim_start();
        let Ok(inside) = Path::new(path).strip_prefix(store) else { continue };
        let name = inside.to_string_lossy();
        match name.strip_suffix(REMOVED) {
            Some(_) => {
                let ends = range
                    .split_once('-')
                    .map(|(from, to)| (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16)));
                if let (Some((Ok(from), Ok(to))), Some(inode)) = (ends, inode) {
                    reader.removed.entry(inode).or_insert(to.saturating_sub(from));
                }
            }
            None => drop(reader.open.insert(name.into_owned())),
        }
    }
    Some(reader)
}
