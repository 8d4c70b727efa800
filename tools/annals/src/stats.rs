//! `stats`: how far the store is, how much it holds, where the bytes are.

use std::collections::BTreeMap;

use annals::{FileStats, Stats};
use annals_format::FileKind;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use crate::args::Global;
use crate::at::rfc3339;
use crate::census;
use crate::exit::Outcome;
use crate::output::Output;
use crate::space::{self, SpaceArgs};

/// Arguments of `stats`.
#[derive(Debug, Args)]
#[command(after_help = "flushed_revision: the newest revision that is in files other than the log.
closed: whether the last writer has closed the store; false while one has it open, and after a kill.
incarnation: tells histories apart: one more after each opening that followed no clean close; a copy
begins far above.
l0, head, history, events, blobs: files of flushed, newest and superseded versions, of what changed, and of large
values;
value_bytes before compression.
live_bytes, history_bytes, event_bytes, dead_bytes: the same files, divided into what holds
the newest versions of keys that are alive, what only reads of the past need, what changed
(for `log`), and what nobody can ask for any more, which background work gives back; estimates.
wal_files, wal_bytes: the log as it lies on disk; a file of it is made whole, and then filled.
disk_bytes: the length of all files of the store.
This is what the files tell. What a program that has the store open does (memory, syncs, conflicts,
delays, waits, background work) only that program can say: the library's `Store::stats`, and `annals
top` if the program writes it down for it.

--by prefix tells which keys take how much room, the largest first, from the indexes of the files,
and of the log by reading it: fast, and beside a program that writes. Bytes are estimates within a
block; keys, which are those in files, and versions exact, unless there are thousands of prefixes.
What is in the log stays there for a while after it is in files, too. Below stands what is not in
the order of keys: events, and the room of the log that is not in use.
--by key names the largest keys. It reads every file; then events and the log are told by key, too.

Examples:
  $ annals -C store stats
  $ annals -C store stats --short -o json
  $ annals -C store stats --by prefix --depth 2 --top 10
  $ annals -C store stats --by key --prefix /config/ --top 3")]
pub(crate) struct StatsArgs {
    /// Only revisions, keys and files.
    #[arg(long)]
    short: bool,
    /// Tell instead which keys take how much room in the files.
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "short")]
    by: Option<By>,
    #[command(flatten)]
    space: SpaceArgs,
}

/// What keys are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// What they begin with: fast, from the indexes of the files.
    Prefix,
    /// Each by itself: reads all files.
    Key,
}

/// What `--short` keeps, beside the files.
const SHORT: [&str; 4] = ["keys", "time", "revision", "compacted_revision"];

/// `stats`: what `Store::stats` says of the store, by the same names, and what lies on disk.
pub(crate) fn stats(global: &Global, args: &StatsArgs, out: &mut Output) -> Outcome {
    let store = global.read()?;
    match args.by {
        Some(By::Prefix) => return space::by_prefix(global, &store, &args.space, out),
        Some(By::Key) => return census::by_key(global, &args.space, out),
        None => {}
    }
    let view = store.latest()?;
    let newest = store.log(view.revision()..=view.revision()).next();
    let time = match newest {
        Some(Ok(transaction)) => json!(rfc3339(transaction.time)),
        _ => Value::Null,
    };
    let files = crate::files::open(global)?;
    let manifest = files.manifest();
    let mut kinds: BTreeMap<FileKind, (u64, u64)> = BTreeMap::new();
    for name in files.names() {
        let (count, bytes) = kinds.entry(name.kind).or_default();
        *count += 1;
        *bytes += files.file_bytes(name).unwrap_or(0);
    }
    let mut object = Map::new();
    object.insert("store".into(), json!(manifest.store.to_string()));
    let stats = store.stats();
    object.insert("revision".into(), json!(stats.revision));
    object.insert("compacted_revision".into(), json!(stats.compacted_revision));
    object.insert("keys".into(), json!(view.count(..)?));
    object.insert("time".into(), time);
    object.insert("flushed_revision".into(), json!(manifest.flushed_revision));
    object.insert("closed".into(), json!(manifest.closed));
    object.extend(figures(&stats));
    // What a writer has made since its last manifest is known by the directory alone.
    let [count, bytes] = crate::files::log_extent(&files);
    object.insert("wal_files".into(), json!(count));
    object.insert("wal_bytes".into(), json!(bytes));
    if args.short {
        object.retain(|name, _| SHORT.contains(&name.as_str()));
    }
    object.insert("disk_bytes".into(), json!(crate::files::disk_bytes(&files)));
    let on_disk = kinds.iter().map(
        |(kind, (count, bytes))| json!({ "kind": kind.label(), "files": count, "bytes": bytes }),
    );
    object.insert("on_disk".into(), on_disk.collect());
    out.object(&Value::Object(object))
}

/// The figures that the files tell, in the order and by the names of [`Stats`]. The others are of the
/// process that has the store open. That is this command, which only reads: they would tell of nothing
/// but the command itself, most of them by a 0 that looks like an answer.
fn figures(stats: &Stats) -> Map<String, Value> {
    let files = |kind: &FileStats| {
        json!({ "files": kind.files, "bytes": kind.bytes, "entries": kind.entries,
                "value_bytes": kind.value_bytes })
    };
    let mut figures = Map::new();
    for (name, value) in [
        ("revision", json!(stats.revision)),
        ("compacted_revision", json!(stats.compacted_revision)),
        ("incarnation", json!(stats.incarnation)),
        ("l0", files(&stats.l0)),
        ("head", files(&stats.head)),
        ("history", files(&stats.history)),
        ("history_windows", json!(stats.history_windows)),
        ("events", files(&stats.events)),
        ("blobs", files(&stats.blobs)),
        ("live_bytes", json!(stats.live_bytes)),
        ("history_bytes", json!(stats.history_bytes)),
        ("event_bytes", json!(stats.event_bytes)),
        ("dead_bytes", json!(stats.dead_bytes)),
        ("wal_files", json!(stats.wal_files)),
        ("wal_bytes", json!(stats.wal_bytes)),
    ] {
        figures.insert(name.into(), value);
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_THE_PROCESS: [&str; 39] = [
        "durable_revision",
        "pinned",
        "oldest_pinned",
        "generations",
        "memtable_bytes",
        "flush_backlog_bytes",
        "cache_bytes",
        "cache_bytes_max",
        "batches",
        "batch_transactions",
        "batch_bytes",
        "sync_latency",
        "commit_latency",
        "conflicts",
        "delays",
        "delay_micros",
        "waits",
        "wait_micros",
        "flushes",
        "folds",
        "merges",
        "dropped_files",
        "manifests",
        "background_bytes",
        "background_pauses",
        "background_pause_micros",
        "watches",
        "watches_behind",
        "watch_oldest_revision",
        "watch_batches",
        "leases",
        "leases_expired",
        "lease_renewals",
        "lease_overdue_micros",
        "lease_next_micros",
        "failure",
        "no_space",
        "damage",
        "damaged_files",
    ];

    #[test]
    fn every_figure_is_shown_by_its_name_or_is_of_the_process() {
        let stats = Stats::default();
        let debug = format!("{stats:#?}");
        // The members of the outer structure: lines that are indented once.
        let members = debug.lines().filter(|line| line.starts_with("    ") && line.contains(": "));
        let names = members.filter_map(|line| line.strip_prefix("    ")?.split_once(": "));
        let names = names.map(|(name, _)| name).filter(|name| !name.starts_with(' '));
        let (process, names): (Vec<&str>, Vec<&str>) =
            names.partition(|name| OF_THE_PROCESS.contains(name));
        let shown = figures(&stats);
        assert!(shown.keys().eq(names.iter()), "{names:?}");
        assert_eq!(process, OF_THE_PROCESS);
        for kind in ["l0", "head", "history", "events", "blobs"] {
            let debug = format!("{:#?}", stats.l0);
            let members = shown[kind].as_object().unwrap();
            assert!(members.keys().all(|name| debug.contains(&format!("    {name}: "))));
            assert_eq!(members.len(), debug.lines().count() - 2);
        }
    }
}
