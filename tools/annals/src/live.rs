//! `live.json`: what a program that has the store open tells of it.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use annals::Latency;
use annals_format::name::LIVE;
use serde_json::Value;

use crate::at::rfc3339;

/// How to have a program write it.
pub(crate) const HINT: &str = "A program that has the store open tells more: Options::new().live_interval_seconds(1); annals-etcd does at /metrics";

/// A file that is longer is none of ours.
const BYTES_MAX: u64 = 1 << 20;

/// Seconds beyond two intervals after which a program counts as gone, though there is a process of its number.
const PATIENCE: u64 = 5;

/// What the file says.
#[derive(Clone, Debug)]
pub(crate) struct Live(Value);

impl Live {
    /// What a program says that has the store open now.
    ///
    /// # Errors
    /// In words, why nobody says anything.
    pub(crate) fn read(store: &Path) -> Result<Self, String> {
        let path = store.join(LIVE);
        let is_sane = fs::metadata(&path).is_ok_and(|meta| meta.len() <= BYTES_MAX);
        let text = is_sane.then(|| fs::read_to_string(&path).ok()).flatten();
        let text = text.ok_or_else(|| HINT.to_owned())?;
        let live =
            Self::of(&text).ok_or_else(|| format!("{} is not understood", path.display()))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let patience = if live.process_is_gone() { 0 } else { PATIENCE };
        if live.written_seconds() + 2 * live.number("interval_seconds") + patience < now {
            let written = rfc3339(live.0["written"].as_i64().unwrap_or(0));
            return Err(format!(
                "the program that wrote {LIVE} is gone: it did so last at {written}"
            ));
        }
        Ok(live)
    }

    /// A text of the schema that is understood here.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let live = Self(serde_json::from_str(text).ok()?);
        (live.0["schema"] == "annals.live/1" && live.0["stats"].is_object()).then_some(live)
    }

    /// Whether no process has its number (Linux). It may have another number here, where it runs in a container.
    fn process_is_gone(&self) -> bool {
        let processes = Path::new("/proc");
        processes.join("self").exists() && !processes.join(self.number("pid").to_string()).exists()
    }

    fn written_seconds(&self) -> u64 {
        self.number("written") / 1_000_000
    }

    /// A number of its own.
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or(0)
    }

    /// A figure of the store; 0 if it is not told.
    pub(crate) fn stat(&self, name: &str) -> u64 {
        self.0["stats"][name].as_u64().unwrap_or(0)
    }

    /// A figure of the store, if there is one.
    pub(crate) fn stat_if(&self, name: &str) -> Option<u64> {
        self.0["stats"][name].as_u64()
    }

    /// A figure of its files of one kind.
    pub(crate) fn file_stat(&self, kind: &str, name: &str) -> u64 {
        self.0["stats"][kind][name].as_u64().unwrap_or(0)
    }

    /// What is wrong: `failure`, `no_space` or `damage` of the store's figures, if so.
    pub(crate) fn trouble(&self, name: &str) -> Option<&str> {
        self.0["stats"][name].as_str()
    }

    /// How long something takes.
    pub(crate) fn latency(&self, name: &str) -> Latency {
        let latency = &self.0["stats"][name];
        let pairs = latency["buckets"].as_array().into_iter().flatten();
        let pairs = pairs.filter_map(|pair| Some((pair[0].as_u64()?, pair[1].as_u64()?)));
        Latency::of(pairs.collect(), latency["max_nanos"].as_u64().unwrap_or(0))
    }

    /// The watches that are furthest behind: the first revision due to each, and its keys.
    pub(crate) fn slowest_watches(&self) -> Vec<(u64, String)> {
        let watches = self.0["slowest_watches"].as_array().into_iter().flatten();
        let told = watches.map(|watch| {
            let start = watch["start"].as_str().unwrap_or_default();
            let end = watch["end"].as_str().unwrap_or("the end");
            (watch["due"].as_u64().unwrap_or(0), format!("{start} .. {end}"))
        });
        told.collect()
    }

    /// The revisions that are held, ascending, and by how many readers.
    pub(crate) fn pins(&self) -> Vec<(u64, u64)> {
        let pins = self.0["pins"].as_array().into_iter().flatten();
        pins.filter_map(|pin| Some((pin["revision"].as_u64()?, pin["count"].as_u64()?))).collect()
    }
}
