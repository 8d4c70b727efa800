//! What the library tells `tracing` and `metrics`, where the features of these names ask for that; without them
//! every function here is empty, and nothing else asks which features there are.
//!
//! Names are public: they stand in the table in `lib.rs`, which tests compare with the code.
//!
//! Who listens is foreign code, called by the leader of a sync, too: if it panics nothing is told, and nothing
//! else happens.

use std::path::Path;

use crate::error::Error;

/// Counters.
pub(crate) const COMMITS: &str = "annals_commits_total";
pub(crate) const CONFLICTS: &str = "annals_conflicts_total";
pub(crate) const FLUSHES: &str = "annals_flush_total";
pub(crate) const FOLDS: &str = "annals_fold_total";
pub(crate) const MERGES: &str = "annals_merge_total";
pub(crate) const BACKGROUND_BYTES: &str = "annals_background_bytes_total";
pub(crate) const LEASES_EXPIRED: &str = "annals_lease_expired_total";

/// Histograms.
pub(crate) const COMMIT_SECONDS: &str = "annals_commit_seconds";
pub(crate) const SYNC_SECONDS: &str = "annals_sync_seconds";
pub(crate) const BATCH_COMMITS: &str = "annals_batch_commits";

#[cfg(any(test, feature = "metrics"))]
const OBJECT_SECONDS: &str = "annals_object_seconds";

/// Gauges.
pub(crate) const REVISION: &str = "annals_revision";
pub(crate) const DURABLE_REVISION: &str = "annals_durable_revision";
pub(crate) const MEMTABLE_BYTES: &str = "annals_memtable_bytes";
pub(crate) const L0_BYTES: &str = "annals_l0_bytes";
pub(crate) const HEAD_BYTES: &str = "annals_head_bytes";
pub(crate) const HISTORY_BYTES: &str = "annals_history_bytes";
pub(crate) const EVENTS_BYTES: &str = "annals_events_bytes";
pub(crate) const BLOBS_BYTES: &str = "annals_blobs_bytes";
pub(crate) const WAL_BYTES: &str = "annals_wal_bytes";
pub(crate) const WATCHES: &str = "annals_watches";
pub(crate) const WATCH_LAG: &str = "annals_watch_lag_revisions";
pub(crate) const LEASES: &str = "annals_leases";
pub(crate) const PINNED_OLDEST: &str = "annals_pinned_oldest";
pub(crate) const FAILED: &str = "annals_failed";
pub(crate) const NO_SPACE: &str = "annals_no_space";
pub(crate) const KEEPS_ALL: &str = "annals_keeps_all";
pub(crate) const DAMAGED_FILES: &str = "annals_damaged_files";

/// Tells whoever listens; a panic of theirs was told by itself.
#[cfg(any(feature = "tracing", feature = "metrics"))]
fn guarded<T>(tell: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(tell)).ok()
}

/// Whether anybody can see gauges.
pub(crate) const HAS_GAUGES: bool = cfg!(feature = "metrics");

/// Work that takes a while, and has a span.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task {
    Open,
    Recover,
    Commit,
    Sync,
    Flush,
    Fold,
    Merge,
    Checkpoint,
    Backup,
    Restore,
    LeaseExpiry,
}

/// The span of a piece of work, from when it is made until it is dropped.
#[must_use = "the span ends when this is dropped"]
#[derive(Debug)]
pub(crate) struct Span {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
    /// Unless nobody listens.
    #[cfg(feature = "tracing")]
    begun: Option<crate::clock::Stopwatch>,
}

/// While this is held, what happens in the thread is within the span.
#[must_use = "the span is left when this is dropped"]
#[derive(Debug)]
pub(crate) struct Within<'s> {
    /// Until it is left.
    #[cfg(feature = "tracing")]
    entered: Option<tracing::span::Entered<'s>>,
    #[cfg(not(feature = "tracing"))]
    _span: std::marker::PhantomData<&'s Span>,
}

#[cfg(feature = "tracing")]
macro_rules! span {
    ($level:ident, $name:literal) => {{
        use tracing::field::Empty;
        tracing::span!(
            tracing::Level::$level,
            $name,
            revision = Empty,
            files = Empty,
            bytes = Empty,
            micros = Empty
        )
    }};
}

impl Span {
    /// Begins a piece of work.
    #[cfg(feature = "tracing")]
    pub(crate) fn of(task: Task) -> Self {
        let span = guarded(|| match task {
            Task::Open => span!(INFO, "annals.open"),
            Task::Recover => span!(INFO, "annals.recover"),
            Task::Commit => span!(TRACE, "annals.commit"),
            Task::Sync => span!(TRACE, "annals.sync"),
            Task::Flush => span!(DEBUG, "annals.flush"),
            Task::Fold => span!(DEBUG, "annals.fold"),
            Task::Merge => span!(DEBUG, "annals.merge"),
            Task::Checkpoint => span!(INFO, "annals.checkpoint"),
            Task::Backup => span!(INFO, "annals.backup"),
            Task::Restore => span!(INFO, "annals.restore"),
            Task::LeaseExpiry => span!(DEBUG, "annals.lease_expiry"),
        });
        let span = span.unwrap_or_else(tracing::Span::none);
        let begun = (!span.is_disabled()).then(crate::clock::Stopwatch::start);
        Self { span, begun }
    }

    /// Begins a piece of work.
    #[cfg(not(feature = "tracing"))]
    pub(crate) fn of(_: Task) -> Self {
        Self {}
    }

    /// Enters it.
    #[cfg(feature = "tracing")]
    pub(crate) fn enter(&self) -> Within<'_> {
        Within { entered: guarded(|| self.span.enter()) }
    }

    /// Enters it.
    #[cfg(not(feature = "tracing"))]
    #[expect(clippy::unused_self, reason = "there is nothing to enter")]
    pub(crate) fn enter(&self) -> Within<'_> {
        Within { _span: std::marker::PhantomData }
    }

    /// Notes up to which revision it has come.
    pub(crate) fn revision(&self, revision: u64) {
        self.note("revision", revision);
    }

    /// Notes how much it has read or written.
    pub(crate) fn size(&self, files: u64, bytes: u64) {
        self.note("files", files);
        self.note("bytes", bytes);
    }

    #[cfg(feature = "tracing")]
    fn note(&self, field: &'static str, value: u64) {
        guarded(|| self.span.record(field, value));
    }

    #[cfg(not(feature = "tracing"))]
    #[expect(clippy::unused_self, reason = "nobody is told")]
    fn note(&self, _: &'static str, _: u64) {}
}

#[cfg(feature = "tracing")]
impl Drop for Span {
    fn drop(&mut self) {
        if let Some(begun) = self.begun {
            self.note("micros", begun.micros());
        }
        let span = std::mem::replace(&mut self.span, tracing::Span::none());
        guarded(|| drop(span));
    }
}

#[cfg(feature = "tracing")]
impl Drop for Within<'_> {
    fn drop(&mut self) {
        let entered = self.entered.take();
        guarded(|| drop(entered));
    }
}

/// A call of the storage of objects, from when this is made until it is dropped.
#[cfg(feature = "object")]
#[must_use = "the call ends when this is dropped"]
pub(crate) struct ObjectCall<'c> {
    #[cfg(any(feature = "tracing", feature = "metrics"))]
    call: (&'static str, &'c dyn std::fmt::Display, &'c str, crate::clock::Stopwatch),
    #[cfg(not(any(feature = "tracing", feature = "metrics")))]
    _call: std::marker::PhantomData<&'c str>,
}

/// Calls of objects that take longer are told one by one: as those of Kubernetes.
#[cfg(all(feature = "object", feature = "tracing"))]
const SLOW_NANOS: u64 = 500_000_000;

#[cfg(feature = "object")]
impl<'c> ObjectCall<'c> {
    /// Begins a call: its verb, the resource, and the key or prefix.
    pub(crate) fn begin(
        verb: &'static str,
        resource: &'c dyn std::fmt::Display,
        key: &'c str,
    ) -> Self {
        #[cfg(any(feature = "tracing", feature = "metrics"))]
        return Self { call: (verb, resource, key, crate::clock::Stopwatch::start()) };
        #[cfg(not(any(feature = "tracing", feature = "metrics")))]
        {
            let _ = (verb, resource, key);
            Self { _call: std::marker::PhantomData }
        }
    }
}

#[cfg(all(feature = "object", any(feature = "tracing", feature = "metrics")))]
impl Drop for ObjectCall<'_> {
    #[cfg_attr(
        feature = "metrics",
        expect(clippy::cast_precision_loss, reason = "what metrics takes")
    )]
    fn drop(&mut self) {
        let (verb, resource, key, begun) = &self.call;
        let nanos = begun.nanos();
        #[cfg(feature = "metrics")]
        guarded(|| {
            let resource = resource.to_string();
            metrics::histogram!(OBJECT_SECONDS, "verb" => *verb, "resource" => resource)
                .record(nanos as f64 / 1e9);
        });
        #[cfg(feature = "tracing")]
        if nanos > SLOW_NANOS {
            guarded(|| {
                tracing::warn!(
                    name: "annals.object_slow",
                    verb,
                    %resource,
                    key,
                    micros = nanos / 1_000,
                    "a call of the storage of objects has taken long"
                );
            });
        }
        #[cfg(not(feature = "tracing"))]
        let _ = key;
    }
}

/// The store accepts no more writes.
pub(crate) fn poisoned(store: &Path, error: &Error) {
    #[cfg(feature = "tracing")]
    guarded(|| {
        tracing::error!(
            name: "annals.poisoned",
            store = %store.display(),
            %error,
            "the store accepts no more writes until it is opened again"
        );
    });
    #[cfg(not(feature = "tracing"))]
    let _ = (store, error);
}

/// Background work waits for space on the disk.
pub(crate) fn no_space(store: &Path, error: &Error) {
    #[cfg(feature = "tracing")]
    guarded(|| {
        tracing::warn!(
            name: "annals.no_space",
            store = %store.display(),
            %error,
            "background work waits for space on the disk"
        );
    });
    #[cfg(not(feature = "tracing"))]
    let _ = (store, error);
}

/// A batch that was never acknowledged was dropped at the end of the log.
pub(crate) fn torn_tail(file: &Path, offset: u64, bytes: u64) {
    #[cfg(feature = "tracing")]
    guarded(|| {
        tracing::warn!(
            name: "annals.torn_tail",
            file = %file.display(),
            offset,
            bytes,
            "the log ended in a batch that was not written to its end, and was never acknowledged"
        );
    });
    #[cfg(not(feature = "tracing"))]
    let _ = (file, offset, bytes);
}

/// What says which files a store has is damaged in one of its two places.
pub(crate) fn manifest_damaged(error: &Error) {
    #[cfg(feature = "tracing")]
    guarded(|| {
        tracing::warn!(
            name: "annals.manifest_damaged",
            %error,
            "CURRENT or the manifest is damaged, and what it says stands in another place, too"
        );
    });
    #[cfg(not(feature = "tracing"))]
    let _ = error;
}

/// Newest versions are damaged, so from now on nothing is forgotten.
pub(crate) fn damaged(error: &Error) {
    #[cfg(feature = "tracing")]
    guarded(|| {
        tracing::warn!(
            name: "annals.damaged",
            %error,
            "newest versions are damaged: nothing is forgotten from now on, as that may make up for them"
        );
    });
    #[cfg(not(feature = "tracing"))]
    let _ = error;
}

/// Background work goes on without a file that is damaged.
pub(crate) fn left_alone(store: &Path, error: &Error) {
    #[cfg(feature = "tracing")]
    guarded(|| {
        tracing::warn!(
            name: "annals.left_alone",
            store = %store.display(),
            %error,
            "background work has met damage: it leaves the file as it is, and goes on with what does not need it"
        );
    });
    #[cfg(not(feature = "tracing"))]
    let _ = (store, error);
}

/// So many more.
pub(crate) fn count(metric: &'static str, more: u64) {
    #[cfg(feature = "metrics")]
    guarded(|| metrics::counter!(metric).increment(more));
    #[cfg(not(feature = "metrics"))]
    let _ = (metric, more);
}

/// One value of many.
#[cfg_attr(feature = "metrics", expect(clippy::cast_precision_loss, reason = "what metrics takes"))]
pub(crate) fn sample(metric: &'static str, value: u64) {
    #[cfg(feature = "metrics")]
    guarded(|| metrics::histogram!(metric).record(value as f64));
    #[cfg(not(feature = "metrics"))]
    let _ = (metric, value);
}

/// One duration of many.
#[cfg_attr(feature = "metrics", expect(clippy::cast_precision_loss, reason = "what metrics takes"))]
pub(crate) fn duration(metric: &'static str, nanos: u64) {
    #[cfg(feature = "metrics")]
    guarded(|| metrics::histogram!(metric).record(nanos as f64 / 1e9));
    #[cfg(not(feature = "metrics"))]
    let _ = (metric, nanos);
}

/// How it is just now in the store of a directory.
#[cfg_attr(feature = "metrics", expect(clippy::cast_precision_loss, reason = "what metrics takes"))]
pub(crate) fn gauge(store: &Path, metric: &'static str, value: u64) {
    #[cfg(feature = "metrics")]
    guarded(|| metrics::gauge!(metric, "store" => store.display().to_string()).set(value as f64));
    #[cfg(not(feature = "metrics"))]
    let _ = (store, metric, value);
}

/// Says what the metrics are, to whoever collects them.
pub(crate) fn describe() {
    #[cfg(feature = "metrics")]
    for (metric, kind, what) in METRICS {
        guarded(|| match *kind {
            "counter" => metrics::describe_counter!(*metric, *what),
            "gauge" => metrics::describe_gauge!(*metric, *what),
            _ => metrics::describe_histogram!(*metric, *what),
        });
    }
}

/// Every metric: its name, its kind, and what it tells, as in the table in `lib.rs`.
#[cfg(any(test, feature = "metrics"))]
const METRICS: &[(&str, &str, &str)] = &[
    (COMMITS, "counter", "commits made durable, grants of leases and compactions too"),
    (CONFLICTS, "counter", "transactions evaluated again inside their call"),
    (FLUSHES, "counter", "memtable generations written to files"),
    (FOLDS, "counter", "folds of L0 files into HEAD and HISTORY"),
    (
        MERGES,
        "counter",
        "merges of files, files written again for what is dead in them, moves of blobs",
    ),
    (BACKGROUND_BYTES, "counter", "bytes written by background work"),
    (LEASES_EXPIRED, "counter", "leases that ended because their time was over"),
    (
        COMMIT_SECONDS,
        "histogram",
        "commits from call to answer; of those that wait for no sync one in 64",
    ),
    (SYNC_SECONDS, "histogram", "writes of the log, each with its sync"),
    (BATCH_COMMITS, "histogram", "commits that share a sync"),
    (OBJECT_SECONDS, "histogram", "calls of the storage of objects"),
    (REVISION, "gauge", "newest visible revision"),
    (DURABLE_REVISION, "gauge", "newest durable revision"),
    (MEMTABLE_BYTES, "gauge", "memory of the memtable generations"),
    (L0_BYTES, "gauge", "files of flushed generations"),
    (HEAD_BYTES, "gauge", "files of newest versions"),
    (HISTORY_BYTES, "gauge", "files of superseded versions"),
    (EVENTS_BYTES, "gauge", "files of what changed"),
    (BLOBS_BYTES, "gauge", "files of large values"),
    (WAL_BYTES, "gauge", "files of the log"),
    (WATCHES, "gauge", "watches that have not ended"),
    (WATCH_LAG, "gauge", "revisions the watch that is furthest behind has yet to look at"),
    (LEASES, "gauge", "leases with a time"),
    (PINNED_OLDEST, "gauge", "oldest revision that a view or iterator holds; 0 if none does"),
    (FAILED, "gauge", "1 if the store accepts no more writes"),
    (NO_SPACE, "gauge", "1 if background work waits for space, or for a descriptor"),
    (KEEPS_ALL, "gauge", "1 if nothing is forgotten, as newest versions are damaged"),
    (DAMAGED_FILES, "gauge", "damaged files that background work leaves alone"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_in_the_documentation_has_every_metric_as_it_is() {
        let rows: Vec<Vec<&str>> = include_str!("lib.rs")
            .lines()
            .filter(|line| line.starts_with("//! | `annals_"))
            .map(|line| line.trim_start_matches("//! |").split('|').map(str::trim).collect())
            .collect();
        let told: Vec<(&str, &str, &str)> =
            rows.iter().map(|row| (row[0].trim_matches('`'), row[1], row[2])).collect();
        assert_eq!(told, METRICS);
    }
}
