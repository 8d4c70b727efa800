//! Figures for Prometheus, in its text format: etcd's names where they mean the same, `annals_` for the rest.

pub(crate) mod process;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use annals::{Latency, OpResponse, Stats, TxnResponse};
use parking_lot::Mutex;

use crate::alarm::bytes_of;

/// Counts what the services do. Names are those of etcd's metrics.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Puts, those of transactions included.
    pub puts: AtomicU64,
    /// Deletes, those of transactions included.
    pub deletes: AtomicU64,
    /// Ranges, those of transactions included.
    pub ranges: AtomicU64,
    /// Transactions.
    pub txns: AtomicU64,
    /// Watch streams that are open.
    pub watch_streams: AtomicI64,
    /// Events sent to watchers.
    pub events: AtomicU64,
    /// Leases granted.
    pub leases_granted: AtomicU64,
    /// Leases revoked.
    pub leases_revoked: AtomicU64,
    /// Leases renewed.
    pub leases_renewed: AtomicU64,
    /// Health checks that went well.
    pub healthy: AtomicU64,
    /// Health checks that did not.
    pub unhealthy: AtomicU64,
    /// Connections that are open.
    pub connections: AtomicI64,
    /// Connections whose TLS handshake failed.
    pub failed_handshakes: AtomicU64,
    /// Connections that were slowed down, since too many frames that ask for nothing came on them.
    pub slowed_connections: AtomicU64,
    /// Bytes of the bodies of gRPC requests.
    pub received_bytes: AtomicU64,
    /// Bytes of the bodies of gRPC answers.
    pub sent_bytes: AtomicU64,
    calls: Mutex<BTreeMap<Method, Calls>>,
}

/// A method of a service: both names, and how many messages go each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Method {
    pub(crate) service: &'static str,
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
}

#[derive(Debug, Default)]
struct Calls {
    started: u64,
    handled: BTreeMap<&'static str, u64>,
}

/// gRPC's codes by their numbers, as Go names them.
pub(crate) const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

impl Metrics {
    /// Counts what a transaction has done, as etcd does: one of a single operation is no transaction.
    pub(crate) fn transaction(&self, response: &TxnResponse) {
        // Relaxed everywhere: these count, and order nothing.
        let operations = self.operations(&response.responses);
        if operations > 1 {
            self.txns.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn operations(&self, responses: &[OpResponse]) -> u64 {
        let mut count = 0;
        for response in responses {
            let counter = match response {
                OpResponse::Txn(nested) => {
                    count += self.operations(&nested.responses);
                    continue;
                }
                OpResponse::Range(_) => &self.ranges,
                OpResponse::Put(_) => &self.puts,
                OpResponse::DeleteRange(_) => &self.deletes,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            count += 1;
        }
        count
    }

    pub(crate) fn started(&self, method: Method) {
        self.calls.lock().entry(method).or_default().started += 1;
    }

    pub(crate) fn handled(&self, method: Method, code: usize) {
        let code = CODES.get(code).copied().unwrap_or("Unknown");
        *self.calls.lock().entry(method).or_default().handled.entry(code).or_default() += 1;
    }

    /// Writes all counts of the services and of the process.
    pub fn write(&self, text: &mut Text) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let level = |count: &AtomicI64| count.load(Ordering::Relaxed);
        for (prefix, help) in [("etcd_mvcc", ""), ("etcd_debugging_mvcc", " (old name)")] {
            let mut count = |name: &str, what: &str, value: &AtomicU64| {
                let help = format!("Total number of {what} seen by this member.{help}");
                text.counter(&format!("{prefix}_{name}_total"), &help, of(value));
            };
            count("put", "puts", &self.puts);
            count("delete", "deletes", &self.deletes);
            count("range", "ranges", &self.ranges);
            count("txn", "txns", &self.txns);
        }
        text.gauge(
            "etcd_debugging_mvcc_watch_stream_total",
            "Total number of watch streams.",
            level(&self.watch_streams),
        );
        text.counter(
            "etcd_debugging_mvcc_events_total",
            "Total number of events sent.",
            of(&self.events),
        );
        let mut lease = |name: &str, value: &AtomicU64| {
            let help = format!("The total number of {name} leases.");
            text.counter(&format!("etcd_debugging_lease_{name}_total"), &help, of(value));
        };
        lease("granted", &self.leases_granted);
        lease("revoked", &self.leases_revoked);
        lease("renewed", &self.leases_renewed);
        let help = "The total number of successful health checks";
        text.counter("etcd_server_health_success", help, of(&self.healthy));
        text.counter(
            "etcd_server_health_failures",
            "The total number of failed health checks",
            of(&self.unhealthy),
        );
        let received = "The total number of bytes received from grpc clients.";
        text.counter(
            "etcd_network_client_grpc_received_bytes_total",
            received,
            of(&self.received_bytes),
        );
        let sent = "The total number of bytes sent to grpc clients.";
        text.counter("etcd_network_client_grpc_sent_bytes_total", sent, of(&self.sent_bytes));
        text.gauge("annals_connections", "Connections that are open.", level(&self.connections));
        let failed = of(&self.failed_handshakes);
        text.counter("annals_tls_handshake_failures_total", "TLS handshakes that failed.", failed);
        let slowed =
            "Connections on which more frames came that ask for nothing than were read at once.";
        text.counter("annals_slowed_connections_total", slowed, of(&self.slowed_connections));
        self.write_calls(text);
        process::write(text);
    }

    fn write_calls(&self, text: &mut Text) {
        let calls = self.calls.lock();
        let labels = |method: &Method| {
            let Method { service, name, kind } = method;
            format!("grpc_method=\"{name}\",grpc_service=\"{service}\",grpc_type=\"{kind}\"")
        };
        text.head(
            "grpc_server_started_total",
            "Total number of RPCs started on the server.",
            "counter",
        );
        for (method, calls) in calls.iter() {
            text.line("grpc_server_started_total", &labels(method), calls.started);
        }
        let help =
            "Total number of RPCs completed on the server, regardless of success or failure.";
        text.head("grpc_server_handled_total", help, "counter");
        for (method, calls) in calls.iter() {
            for (code, count) in &calls.handled {
                let labels = format!("grpc_code=\"{code}\",{}", labels(method));
                text.line("grpc_server_handled_total", &labels, count);
            }
        }
    }
}

/// Figures in the format of Prometheus.
#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// The text so far.
    pub fn finish(self) -> String {
        self.0
    }

    /// Begins a figure with several lines.
    pub fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One line of it.
    pub fn line(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = if labels.is_empty() {
            writeln!(self.0, "{name} {value}")
        } else {
            writeln!(self.0, "{name}{{{labels}}} {value}")
        };
    }

    /// A figure that only grows.
    pub fn counter(&mut self, name: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, help, "counter");
        self.line(name, "", value);
    }

    /// A figure that goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, help, "gauge");
        self.line(name, "", value);
    }

    /// Durations, in etcd's buckets: 1 ms and 13 doublings. Those of a store are finer; one that crosses a bound of
    /// etcd's counts above it.
    pub fn durations(&mut self, name: &str, help: &str, latency: &Latency) {
        self.head(name, help, "histogram");
        let mut bound = 1_000_000_u64;
        let mut seconds = 0.001_f64;
        for _ in 0..14 {
            let within = latency.buckets.iter().filter(|(upto, _)| *upto <= bound);
            let count = within.fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
            self.line(&format!("{name}_bucket"), &format!("le=\"{seconds}\""), count);
            bound *= 2;
            seconds *= 2.0;
        }
        self.line(&format!("{name}_bucket"), "le=\"+Inf\"", latency.count);
        // The sum is an estimate, from the upper ends of the store's buckets.
        let most = latency.max_nanos;
        let nanos = latency.buckets.iter().fold(0_u128, |sum, (upto, count)| {
            sum.saturating_add(u128::from((*upto).min(most)).saturating_mul(u128::from(*count)))
        });
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let seconds = nanos as f64 / 1e9;
        self.line(&format!("{name}_sum"), "", seconds);
        self.line(&format!("{name}_count"), "", latency.count);
    }

    /// What a store says about itself.
    pub fn stats(&mut self, stats: &Stats) {
        // As in the status, and as the quota counts.
        let total = bytes_of(stats);
        let help = "Total size of the underlying database physically allocated in bytes.";
        self.gauge("etcd_mvcc_db_total_size_in_bytes", help, total);
        self.gauge("etcd_debugging_mvcc_db_total_size_in_bytes", help, total);
        let help = "Total size of the underlying database logically in use in bytes.";
        self.gauge(
            "etcd_mvcc_db_total_size_in_use_in_bytes",
            help,
            total.saturating_sub(stats.dead_bytes),
        );
        self.gauge(
            "etcd_debugging_mvcc_current_revision",
            "The current revision of store.",
            stats.revision,
        );
        let help = "The revision of the last compaction in store.";
        self.gauge("etcd_debugging_mvcc_compact_revision", help, stats.compacted_revision);
        let help = "The total number of consensus proposals committed.";
        self.gauge("etcd_server_proposals_committed_total", help, stats.durable_revision);
        let help = "The total number of consensus proposals applied.";
        self.gauge("etcd_server_proposals_applied_total", help, stats.revision);
        let help = "Total number of watchers.";
        self.gauge("etcd_debugging_mvcc_watcher_total", help, stats.watches);
        let help = "Total number of unsynced slow watchers.";
        self.gauge("etcd_debugging_mvcc_slow_watcher_total", help, stats.watches_behind);
        self.counter(
            "etcd_debugging_server_lease_expired_total",
            "The total number of expired leases.",
            stats.leases_expired,
        );
        self.counter(
            "etcd_disk_wal_write_bytes_total",
            "Total number of bytes written in WAL, without headers and padding.",
            stats.batch_bytes,
        );
        let help = "The latency distributions of fsync called by WAL.";
        self.durations("etcd_disk_wal_fsync_duration_seconds", help, &stats.sync_latency);
        let help = "The latency distributions of commit called by backend.";
        self.durations("etcd_disk_backend_commit_duration_seconds", help, &stats.commit_latency);
        self.own(stats);
    }

    fn own(&mut self, stats: &Stats) {
        let gauges = [
            ("durable_revision", "The newest durable revision.", stats.durable_revision),
            ("incarnation", "Opens that followed no clean close.", stats.incarnation),
            ("pinned", "Views and iterators that hold on to a revision.", stats.pinned),
            ("memtable_generations", "Memtable generations.", stats.generations),
            ("memtable_bytes", "Their memory.", stats.memtable_bytes),
            ("flush_backlog_bytes", "What of it waits to be flushed.", stats.flush_backlog_bytes),
            ("live_bytes", "Bytes of the newest versions of keys.", stats.live_bytes),
            ("superseded_bytes", "Bytes of superseded versions.", stats.history_bytes),
            ("change_log_bytes", "Bytes of the changes by revision.", stats.event_bytes),
            ("dead_bytes", "Bytes that nobody can ask for.", stats.dead_bytes),
            ("wal_files", "Files of the log.", stats.wal_files),
            ("wal_bytes", "Bytes of the log.", stats.wal_bytes),
            ("cache_bytes", "Decoded blocks in memory.", stats.cache_bytes),
            ("watches", "Watches of the store.", stats.watches),
            ("watches_behind", "Watches that have something to tell.", stats.watches_behind),
            ("leases", "Leases.", stats.leases),
            (
                "lease_overdue_microseconds",
                "How long the oldest due lease waits.",
                stats.lease_overdue_micros,
            ),
            (
                "failed",
                "Whether the store accepts no more writes.",
                u64::from(stats.failure.is_some()),
            ),
            ("damaged_files", "Files that are damaged, and left as they are.", stats.damaged_files),
            (
                "keeps_all",
                "Whether nothing is forgotten, as newest versions are damaged.",
                u64::from(stats.damage.is_some()),
            ),
        ];
        for (name, help, value) in gauges {
            self.gauge(&format!("annals_{name}"), help, value);
        }
        let counters = [
            ("batches_total", "Syncs of the log.", stats.batches),
            ("batch_transactions_total", "Transactions in them.", stats.batch_transactions),
            ("conflicts_total", "Transactions that were evaluated again.", stats.conflicts),
            ("delays_total", "Commits that were slowed down.", stats.delays),
            ("waits_total", "Commits that waited for memory.", stats.waits),
            ("flushes_total", "Generations written to files.", stats.flushes),
            ("folds_total", "Folds of files into others.", stats.folds),
            ("merges_total", "Merges of files.", stats.merges),
            ("dropped_files_total", "Files dropped by compaction.", stats.dropped_files),
            ("background_bytes_total", "Bytes written in the background.", stats.background_bytes),
        ];
        for (name, help, value) in counters {
            self.counter(&format!("annals_{name}"), help, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use annals::Latency;

    use super::{Method, Metrics, Text};

    #[test]
    fn durations_are_told_in_buckets_of_etcd() {
        let latency =
            Latency::of(vec![(900_000, 3), (1_100_000, 2), (u64::MAX, 1)], 70_000_000_000);
        let mut text = Text::default();
        text.durations("x", "Help.", &latency);
        let text = text.finish();
        assert!(
            text.starts_with("# HELP x Help.\n# TYPE x histogram\nx_bucket{le=\"0.001\"} 3\n"),
            "{text}"
        );
        assert!(
            text.contains("x_bucket{le=\"0.002\"} 5\n")
                && text.contains("x_bucket{le=\"8.192\"} 5\n"),
            "{text}"
        );
        assert!(text.ends_with("x_bucket{le=\"+Inf\"} 6\nx_sum 70.0049\nx_count 6\n"), "{text}");
    }

    #[test]
    fn calls_are_counted_by_their_end() {
        let metrics = Metrics::default();
        let method = Method { service: "etcdserverpb.KV", name: "Put", kind: "unary" };
        metrics.started(method);
        metrics.handled(method, 3);
        let mut text = Text::default();
        metrics.write(&mut text);
        let text = text.finish();
        let labels =
            "grpc_method=\"Put\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"} 1\n";
        assert!(text.contains(&format!("grpc_server_started_total{{{labels}")), "{text}");
        assert!(
            text.contains(&format!(
                "grpc_server_handled_total{{grpc_code=\"InvalidArgument\",{labels}"
            )),
            "{text}"
        );
    }
}
