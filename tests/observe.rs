//! The tables of spans, events and metrics in the documentation are what a program gets to see, with the
//! features `tracing` and `metrics`. One test, as what collects them is there once for the whole process.

#![cfg(all(feature = "tracing", feature = "metrics"))]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use annals::clock::ManualClock;
use annals::vfs::{Fault, FaultVfs, MemoryVfs, Operation};
use annals::{Durability, ErrorKind, Options, RestoreOptions, Store, put, version};
use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// Names and levels of spans and events, and which fields were recorded.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>);

struct Fields<'a>(&'a mut BTreeSet<String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, _: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_owned());
    }
}

/// A row of the table.
fn row(name: &str, level: Level) -> String {
    format!("{name} {}", level.as_str().to_lowercase())
}

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Seen {
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let name = row(span.metadata().name(), *span.metadata().level());
        self.0.lock().unwrap().entry(name).or_default();
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let meta = context.span(id).unwrap().metadata();
        let mut seen = self.0.lock().unwrap();
        values.record(&mut Fields(seen.get_mut(&row(meta.name(), *meta.level())).unwrap()));
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let meta = event.metadata();
        let mut seen = self.0.lock().unwrap();
        event.record(&mut Fields(seen.entry(row(meta.name(), *meta.level())).or_default()));
    }
}

/// The first cells of the rows of the tables whose first cell begins so.
fn table(begins: &str) -> BTreeSet<String> {
    let rows = include_str!("../src/lib.rs").lines().filter_map(|line| line.strip_prefix("//! | "));
    let rows = rows.filter(|row| row.starts_with(begins));
    let rows = rows.filter(|row| cfg!(feature = "object") || !row.contains("annals_object"));
    let rows = rows.filter(|row| cfg!(feature = "object") || !row.contains("annals.object"));
    let cells = rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        format!("{} {}", cells[0].trim_matches('`'), cells[1])
    });
    cells.collect()
}

/// Every metric there is, with its kind, and whether anything was ever added to it; and the labels of histograms.
fn metrics(snapshotter: &Snapshotter) -> (BTreeMap<String, bool>, BTreeSet<String>) {
    let all = snapshotter.snapshot().into_vec();
    let mut calls = BTreeSet::new();
    let metrics = all.into_iter().map(|(key, _, _, value)| {
        let kind = match key.kind() {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let labels: Vec<&str> = key.key().labels().map(metrics::Label::key).collect();
        let expected: &[&str] = match kind {
            "gauge" => &["store"],
            _ if key.key().name() == "annals_object_seconds" => &["verb", "resource"],
            _ => &[],
        };
        assert_eq!(labels, expected, "{key:?}");
        if kind == "histogram" && !labels.is_empty() {
            let values: Vec<&str> = key.key().labels().map(metrics::Label::value).collect();
            calls.insert(values.join(" "));
        }
        let moved = match value {
            DebugValue::Counter(value) => value > 0,
            DebugValue::Gauge(value) => value.0 > 0.0,
            DebugValue::Histogram(values) => values.iter().all(|value| value.0 > 0.0),
        };
        (format!("{} {kind}", key.key().name()), moved)
    });
    // A gauge is moved if that of one store is.
    let mut all: BTreeMap<String, bool> = BTreeMap::new();
    for (name, moved) in metrics {
        *all.entry(name).or_default() |= moved;
    }
    (all, calls)
}

/// Threads write one key on a condition until two have met.
fn conflict(store: &Store) {
    let write = || {
        let met = (0..1_000_000).any(|_| {
            let txn = store.txn().when([version("shared").ne(u64::MAX)]).then([put("shared", "")]);
            txn.durability(Durability::Buffered).commit().unwrap();
            store.stats().conflicts > 0
        });
        assert!(met, "four threads have never met");
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(write);
        }
    });
}

/// Does everything that the tables tell of.
fn exercise() {
    let memory = MemoryVfs::new();
    let (disk, clock) = (FaultVfs::new(Arc::new(memory.clone())), Arc::new(ManualClock::new(1)));
    let options = Options::new().vfs(Arc::new(disk.clone())).clock(clock.clone());
    let options =
        options.background(false).memtable_bytes(64 << 10).l0_files_max(4).history_windows_max(2);
    // One of the values is large.
    let options = options.blob_value_bytes(4_000);
    let store = options.open("store").unwrap();
    let watch = store.watch("a").start().unwrap();
    let lease = store.lease_grant(0, Duration::from_secs(5)).unwrap();
    let long = store.lease_grant(0, Duration::from_secs(50_000)).unwrap();
    assert_ne!(lease.id, long.id);
    for round in 0..6 {
        for n in 0..20 {
            store.put(if n == 0 { "a".to_owned() } else { n.to_string() }, [round; 100]).unwrap();
        }
        store.reorganise().unwrap();
    }
    conflict(&store);
    clock.advance(6_000_000);
    while store.run_background().unwrap() {}
    assert_eq!(store.stats().leases_expired, 1);
    // However much that was: what is flushed next has large values.
    store.reorganise().unwrap();
    let view = store.latest().unwrap();
    while store.stats().flush_backlog_bytes == 0 {
        store.put("a", [7; 5_000]).unwrap();
    }
    while store.stats().l0.files == 0 {
        assert!(store.run_background().unwrap());
    }
    store.put("b", "").unwrap();
    store.checkpoint("copy").unwrap();
    let mut backup = Vec::new();
    store.backup(&mut backup).unwrap();
    annals::restore(&backup[..], "restored", &RestoreOptions::new().options(options.clone()))
        .unwrap();
    store.stats();
    drop((view, watch));
    store.close().unwrap();

    let full = options.open("full").unwrap();
    full.put("c", [1; 5_000]).unwrap();
    // The disk is full when the flush makes its first file.
    let next = disk.op_count_of(Operation::Create);
    disk.fail(Some(Operation::Create), next, Fault::NoSpace, false);
    let refused = full.reorganise().unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::NoSpace { .. }), "{refused}");
    full.stats();
    full.close().unwrap();

    let torn = options.open("torn").unwrap();
    let next = disk.op_count_of(Operation::Write);
    disk.fail(Some(Operation::Write), next, Fault::Torn, false);
    let refused = torn.put("d", vec![2; 50_000]).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::OutcomeUnknown { .. }));
    torn.stats();
    drop(torn);
    let torn = options.open("torn").unwrap();
    assert!(torn.open_report().dropped.is_some());
    torn.close().unwrap();

    let current = Path::new("store/CURRENT");
    let mut content = memory.read(current).unwrap();
    content[30] ^= 1;
    memory.overwrite(current, &content);
    let store = options.open("store").unwrap();
    assert_eq!(store.open_report().damage.len(), 1);
    store.close().unwrap();
    for path in memory.paths().iter().filter(|path| path.contains(".head")) {
        let mut content = memory.read(Path::new(path)).unwrap();
        content.iter_mut().skip(60).for_each(|byte| *byte ^= 1);
        memory.overwrite(Path::new(path), &content);
    }
    // Leases are looked for there.
    let refused = options.open("store").unwrap_err();
    assert!(refused.corruption().is_some(), "{refused}");
    work_beside_damage(&options, &memory);
}

/// A fold meets a block that is damaged.
fn work_beside_damage(options: &Options, disk: &MemoryVfs) {
    let store = options.open("damaged").unwrap();
    for n in 0..100_u8 {
        store.put([n], [n; 200]).unwrap();
    }
    store.reorganise().unwrap();
    store.close().unwrap();
    let is_head = |path: &&String| path.contains("damaged") && path.contains(".head");
    for path in disk.paths().iter().filter(is_head) {
        let mut content = disk.read(Path::new(path)).unwrap();
        let middle = content.len() / 2;
        content[middle] ^= 1;
        disk.overwrite(Path::new(path), &content);
    }
    let store = options.open("damaged").unwrap();
    store.put([200], "").unwrap();
    let refused = store.reorganise().unwrap_err();
    assert!(refused.corruption().is_some(), "{refused}");
    store.put([201], "").unwrap();
    store.stats();
}

/// Calls of every verb, one of which takes long.
#[cfg(feature = "object")]
fn calls_of_objects() {
    use annals::object::{
        DeleteOptions, GetOptions, GroupResource, GuaranteedUpdateOptions, Kind, ListOptions,
        Objects, Preconditions, Result, Storage, Transformer,
    };
    use serde_json::json;

    /// Reads what is slow more slowly than a call may be without being told of.
    #[derive(Debug)]
    struct Slow;

    impl Transformer for Slow {
        fn from_storage(&self, data: &[u8], _: &[u8]) -> Result<(Vec<u8>, bool)> {
            thread::sleep(Duration::from_millis(501));
            Ok((data.to_vec(), false))
        }

        fn to_storage(&self, data: &[u8], _: &[u8]) -> Result<Vec<u8>> {
            Ok(data.to_vec())
        }
    }

    let store = Options::new().vfs(Arc::new(MemoryVfs::new())).open("store").unwrap();
    let store = Arc::new(store);
    let pods =
        Storage::new(Arc::clone(&store), "/registry", GroupResource::new("", "pods"), "/pods");
    pods.create("/pods/web", json!({}), 0).unwrap();
    pods.clone().transformer(Arc::new(Slow)).get("/pods/web", &GetOptions::default()).unwrap();
    pods.list("/pods", &ListOptions { recursive: true, ..ListOptions::default() }).unwrap();
    pods.count("/pods").unwrap();
    let none = Preconditions::none();
    let mut change = |_, _| Ok((json!({"spec": 1}), None));
    pods.guaranteed_update(
        "/pods/web",
        GuaranteedUpdateOptions::default(),
        &none,
        &mut change,
        None,
    )
    .unwrap();
    pods.delete("/pods/web", &none, &mut |_| Ok(()), None).unwrap();

    // What cannot be read is deleted in a way of its own.
    store.put("/registry/vaults/default/a", "no JSON").unwrap();
    let vaults = Objects::new(store, Kind::new("v1", "Vault", "vaults"));
    let options = DeleteOptions { ignore_store_read_error: true, ..DeleteOptions::default() };
    vaults.delete("default", "a", &options).unwrap();
}

#[test]
fn the_tables_in_the_documentation_are_what_a_program_sees() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().unwrap();
    let seen = Seen::default();
    let subscriber = tracing_subscriber::registry().with(seen.clone());
    tracing::subscriber::set_global_default(subscriber).unwrap();

    exercise();
    #[cfg(feature = "object")]
    calls_of_objects();

    let spans = seen.0.lock().unwrap();
    assert_eq!(spans.keys().cloned().collect::<BTreeSet<_>>(), table("`annals."));
    for (name, fields) in spans.iter() {
        let is_event =
            ["poisoned", "torn_tail", "damaged", "left_alone", "object_slow", "no_space"]
                .iter()
                .any(|event| name.contains(event));
        assert!(is_event || fields.contains("micros"), "{name}: {fields:?}");
    }
    let fields = |name: &str| spans[name].iter().map(String::as_str).collect::<Vec<_>>();
    for task in [
        "backup info",
        "restore info",
        "flush debug",
        "fold debug",
        "sync trace",
        "checkpoint info",
        "recover info",
    ] {
        let told = fields(&format!("annals.{task}"));
        assert_eq!(told, ["bytes", "files", "micros", "revision"], "{task}");
    }
    assert_eq!(fields("annals.torn_tail warn"), ["bytes", "file", "message", "offset"]);
    assert_eq!(fields("annals.manifest_damaged warn"), ["error", "message"]);
    assert_eq!(fields("annals.damaged warn"), ["error", "message"]);
    assert_eq!(fields("annals.left_alone warn"), ["error", "message", "store"]);
    assert_eq!(fields("annals.no_space warn"), ["error", "message", "store"]);

    if cfg!(feature = "object") {
        let told = fields("annals.object_slow warn");
        assert_eq!(told, ["key", "message", "micros", "resource", "verb"]);
    }

    let (metrics, calls) = metrics(&snapshotter);
    if cfg!(feature = "object") {
        let all = ["count", "create", "delete", "get", "list", "update"];
        let mut all: BTreeSet<_> = all.iter().map(|verb| format!("{verb} pods")).collect();
        all.insert("delete vaults".to_owned());
        assert_eq!(calls, all);
    }
    assert_eq!(metrics.keys().cloned().collect::<BTreeSet<_>>(), table("`annals_"));
    let still: Vec<_> = metrics.iter().filter(|(_, moved)| !**moved).collect();
    assert!(still.is_empty(), "{still:?}");
}
