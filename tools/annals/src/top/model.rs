//! What `top` knows: the last two looks, and how it went before.

use std::collections::VecDeque;

use annals::{Latency, Stats};
use serde_json::{Map, Value, json};

use crate::live::Live;

/// Looks whose rate is remembered.
const REMEMBERED: usize = 240;

/// One look.
#[derive(Debug)]
pub(crate) struct Sample {
    /// What is in files.
    pub(crate) files: Files,
    /// What the program says, or why none does.
    pub(crate) live: Result<Live, String>,
}

/// What is in files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    /// The newest revision, the durable one, and the watermark.
    pub(crate) revisions: [u64; 3],
    /// Kinds of files: name, files, bytes, entries.
    pub(crate) kinds: Vec<(&'static str, [u64; 3])>,
    /// What bytes are for: live, history, events, dead.
    pub(crate) shares: [u64; 4],
    /// Windows of history.
    pub(crate) windows: u64,
}

impl Files {
    /// As a store says that was opened for reading, but for the log: what was made of that since its last manifest the
    /// directory alone tells, its files and their bytes.
    pub(crate) fn of(stats: &Stats, [wal_files, wal_bytes]: [u64; 2]) -> Self {
        let kind = |kind: &annals::FileStats| [kind.files, kind.bytes, kind.entries];
        Self {
            revisions: [stats.revision, stats.durable_revision, stats.compacted_revision],
            kinds: vec![
                ("log", [wal_files, wal_bytes, 0]),
                ("l0", kind(&stats.l0)),
                ("head", kind(&stats.head)),
                ("history", kind(&stats.history)),
                ("events", kind(&stats.events)),
                ("blobs", kind(&stats.blobs)),
            ],
            shares: [stats.live_bytes, stats.history_bytes, stats.event_bytes, stats.dead_bytes],
            windows: stats.history_windows,
        }
    }

    /// As a program says.
    pub(crate) fn of_live(live: &Live) -> Self {
        let kind = |name: &'static str| {
            (name, ["files", "bytes", "entries"].map(|figure| live.file_stat(name, figure)))
        };
        let log = ("log", [live.stat("wal_files"), live.stat("wal_bytes"), 0]);
        Self {
            revisions: ["revision", "durable_revision", "compacted_revision"]
                .map(|name| live.stat(name)),
            kinds: [log]
                .into_iter()
                .chain(["l0", "head", "history", "events", "blobs"].map(kind))
                .collect(),
            shares: ["live_bytes", "history_bytes", "event_bytes", "dead_bytes"]
                .map(|name| live.stat(name)),
            windows: live.stat("history_windows"),
        }
    }
}

/// By what files are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// As data goes from one to the next.
    #[default]
    Flow,
    /// The most bytes first.
    Bytes,
    /// The most entries first.
    Entries,
}

/// What is shown.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) store: String,
    last: Option<Sample>,
    before: Option<Live>,
    /// Commits a second, the newest last.
    pub(crate) commits: VecDeque<u64>,
    pub(crate) paused: bool,
    pub(crate) sort: Sort,
}

impl Model {
    /// Of a store about which nothing is known yet.
    pub(crate) fn new(store: String) -> Self {
        let commits = VecDeque::new();
        Self { store, last: None, before: None, commits, paused: false, sort: Sort::default() }
    }

    /// Takes in what was seen, unless the picture is held.
    pub(crate) fn add(&mut self, sample: Sample) {
        if self.paused {
            return;
        }
        let last = self.last.replace(sample).and_then(|last| last.live.ok());
        // The same text again is no look of its own.
        let is_new = |before: &Live| {
            self.live().is_some_and(|live| live.number("written") > before.number("written"))
        };
        match last {
            Some(last) if is_new(&last) => {
                self.before = Some(last);
                let rate = self.rate("batch_transactions");
                self.commits.push_back(rate.map_or(0, |rate| rate as u64));
                if self.commits.len() > REMEMBERED {
                    self.commits.pop_front();
                }
            }
            Some(_) => {}
            None => self.before = None,
        }
    }

    /// What the program says.
    pub(crate) fn live(&self) -> Option<&Live> {
        self.last.as_ref()?.live.as_ref().ok()
    }

    /// Why no program says anything.
    pub(crate) fn why(&self) -> &str {
        let why = self.last.as_ref().and_then(|last| last.live.as_ref().err());
        why.map_or("", String::as_str)
    }

    /// What is in files.
    pub(crate) fn files(&self) -> Option<&Files> {
        Some(&self.last.as_ref()?.files)
    }

    /// Whether a program says something.
    pub(crate) fn is_live(&self) -> bool {
        self.live().is_some()
    }

    /// How much a figure rises in a second. `None` after one look, and after the store was opened again.
    pub(crate) fn rate(&self, name: &str) -> Option<f64> {
        let (live, before) = (self.live()?, self.before.as_ref()?);
        if live.number("pid") != before.number("pid") {
            return None;
        }
        let micros = live.number("written").checked_sub(before.number("written"))?;
        let more = live.stat(name).checked_sub(before.stat(name))?;
        (micros > 0).then(|| more as f64 * 1e6 / micros as f64)
    }

    /// How long something took between the two looks; since the store was opened if there was only one look,
    /// or nothing was measured between.
    pub(crate) fn latency(&self, name: &str) -> Option<(Latency, bool)> {
        let all = self.live()?.latency(name);
        let recent = self.before.as_ref().map(|before| all.since(&before.latency(name)));
        let recent = recent.filter(|recent| recent.count > 0 && self.rate("batches").is_some());
        Some(recent.map_or((all, false), |recent| (recent, true)))
    }

    /// The figures of the picture, as data.
    pub(crate) fn figures(&self) -> Value {
        let mut object = Map::new();
        let mut add = |name: String, value: Value| object.insert(name, value);
        add("live".into(), json!(self.is_live()));
        let files = self.files().cloned().unwrap_or_default();
        let revisions = ["revision", "durable_revision", "compacted_revision"].into_iter();
        let shares = ["live_bytes", "history_bytes", "event_bytes", "dead_bytes"].into_iter();
        for (name, value) in revisions.zip(files.revisions).chain(shares.zip(files.shares)) {
            add(name.into(), json!(value));
        }
        for (name, figure) in [
            ("commits", "batch_transactions"),
            ("syncs", "batches"),
            ("conflicts", "conflicts"),
            ("background_bytes", "background_bytes"),
            ("watch_batches", "watch_batches"),
            ("lease_renewals", "lease_renewals"),
            ("leases_expired", "leases_expired"),
        ] {
            add(format!("{name}_per_second"), json!(self.rate(figure)));
        }
        for name in ["commit", "sync"] {
            let latency = self.latency(&format!("{name}_latency")).map(|(latency, _)| latency);
            let latency = latency.filter(|latency| latency.count > 0);
            let of = |nanos: fn(&Latency) -> u64| json!(latency.as_ref().map(nanos));
            add(format!("{name}_p50_nanos"), of(|latency| latency.p50_nanos));
            add(format!("{name}_p99_nanos"), of(|latency| latency.p99_nanos));
            add(format!("{name}_max_nanos"), of(|latency| latency.max_nanos));
        }
        for name in ["failure", "no_space", "damage"] {
            add(name.into(), json!(self.live().and_then(|live| live.trouble(name))));
        }
        for name in ["watches", "watches_behind", "leases", "pinned", "damaged_files"] {
            add(name.into(), json!(self.live().map(|live| live.stat(name))));
        }
        Value::Object(object)
    }

    /// Holds the picture, or lets it go.
    pub(crate) fn pause(&mut self) {
        self.paused = !self.paused;
    }

    /// Sorts the files by something else.
    pub(crate) fn sort(&mut self) {
        self.sort = match self.sort {
            Sort::Flow => Sort::Bytes,
            Sort::Bytes => Sort::Entries,
            Sort::Entries => Sort::Flow,
        };
    }
}
