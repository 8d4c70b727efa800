//! `stats`: how far the store is, how much it holds, where the bytes are.

use std::collections::BTreeMap;

use annals::{FileStats, Stats};
use annals_format::FileKind;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::args::Global;
use crate::at::rfc3339;
use crate::exit::Outcome;
use crate::output::Output;

/// Arguments of `stats`.
#[derive(Debug, Args)]
#[command(after_help = "flushed_revision: the newest revision that is in files other than the log.
incarnation: how often the store was opened, counting only opens that followed no clean close.
pinned: reads that hold on to a revision, this one included. generations: tables in memory.
l0, head, history, events: files of flushed, newest and superseded versions, and of what changed;
value_bytes before compression. wal_files, wal_bytes: the log as it was made; on_disk has its length.
flush_backlog_bytes: memory of the tables that wait for their flush. delays, delay_micros: commits
slowed down by that, and for how long; waits, wait_micros: those that found no room.
cache_bytes: decoded blocks in memory. What counts work, from batches to background_bytes, counts it
since this command opened the store.")]
pub(crate) struct StatsArgs {
    /// Only revisions, keys and files.
    #[arg(long)]
    short: bool,
}

/// What `--short` keeps, beside the files.
const SHORT: [&str; 4] = ["keys", "time", "revision", "compacted_revision"];

/// `stats`: what `Store::stats` says, by the same names, and what lies on disk.
pub(crate) fn stats(global: &Global, args: &StatsArgs, out: &mut Output) -> Outcome {
    let store = global.read()?;
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
    object.insert("keys".into(), json!(view.count(..)?));
    object.insert("time".into(), time);
    object.insert("flushed_revision".into(), json!(manifest.flushed_revision));
    object.insert("closed".into(), json!(manifest.closed));
    let stats = store.stats();
    object.extend(figures(&stats));
    object.insert("transactions_per_sync".into(), json!(stats.transactions_per_sync()));
    if args.short {
        object.retain(|name, _| SHORT.contains(&name.as_str()));
    }
    let bytes: u64 = kinds.values().map(|(_, bytes)| bytes).sum();
    object.insert("disk_bytes".into(), json!(bytes));
    let on_disk = kinds.iter().map(
        |(kind, (count, bytes))| json!({ "kind": kind.label(), "files": count, "bytes": bytes }),
    );
    object.insert("on_disk".into(), on_disk.collect());
    out.object(&Value::Object(object))
}

/// The figures of an open store, in the order and by the names of [`Stats`].
fn figures(stats: &Stats) -> Map<String, Value> {
    let files = |kind: &FileStats| {
        json!({ "files": kind.files, "bytes": kind.bytes, "entries": kind.entries,
                "value_bytes": kind.value_bytes })
    };
    let mut figures = Map::new();
    for (name, value) in [
        ("revision", json!(stats.revision)),
        ("durable_revision", json!(stats.durable_revision)),
        ("compacted_revision", json!(stats.compacted_revision)),
        ("incarnation", json!(stats.incarnation)),
        ("pinned", json!(stats.pinned)),
        ("oldest_pinned", json!(stats.oldest_pinned)),
        ("generations", json!(stats.generations)),
        ("memtable_bytes", json!(stats.memtable_bytes)),
        ("flush_backlog_bytes", json!(stats.flush_backlog_bytes)),
        ("l0", files(&stats.l0)),
        ("head", files(&stats.head)),
        ("history", files(&stats.history)),
        ("history_windows", json!(stats.history_windows)),
        ("events", files(&stats.events)),
        ("wal_files", json!(stats.wal_files)),
        ("wal_bytes", json!(stats.wal_bytes)),
        ("cache_bytes", json!(stats.cache_bytes)),
        ("cache_bytes_max", json!(stats.cache_bytes_max)),
        ("batches", json!(stats.batches)),
        ("batch_transactions", json!(stats.batch_transactions)),
        ("batch_bytes", json!(stats.batch_bytes)),
        ("conflicts", json!(stats.conflicts)),
        ("delays", json!(stats.delays)),
        ("delay_micros", json!(stats.delay_micros)),
        ("waits", json!(stats.waits)),
        ("wait_micros", json!(stats.wait_micros)),
        ("flushes", json!(stats.flushes)),
        ("folds", json!(stats.folds)),
        ("merges", json!(stats.merges)),
        ("dropped_files", json!(stats.dropped_files)),
        ("manifests", json!(stats.manifests)),
        ("background_bytes", json!(stats.background_bytes)),
        ("failure", json!(stats.failure)),
    ] {
        figures.insert(name.into(), value);
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_shown_by_its_name() {
        let stats = Stats::default();
        let debug = format!("{stats:#?}");
        // The members of the outer structure: lines that are indented once.
        let members = debug.lines().filter(|line| line.starts_with("    ") && line.contains(": "));
        let names = members.filter_map(|line| line.strip_prefix("    ")?.split_once(": "));
        let names: Vec<&str> =
            names.map(|(name, _)| name).filter(|name| !name.starts_with(' ')).collect();
        let shown = figures(&stats);
        assert!(shown.keys().eq(names.iter()), "{names:?}");
        for kind in ["l0", "head", "history", "events"] {
            let debug = format!("{:#?}", stats.l0);
            let members = shown[kind].as_object().unwrap();
            assert!(members.keys().all(|name| debug.contains(&format!("    {name}: "))));
            assert_eq!(members.len(), debug.lines().count() - 2);
        }
    }
}
