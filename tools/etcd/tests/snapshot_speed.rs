//! How fast a database is made, and in how much memory: `cargo test -p annals-etcd --test snapshot_speed -- --ignored
//! --nocapture`. `KEYS` says how many keys and later revisions there are.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a measurement, which is read"
)]

use std::fs;
use std::time::Instant;

use annals::{Store, put};
use annals_etcd::snapshot::{Database, Extras};

/// A figure of this process in KiB.
fn memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "a measurement"]
fn speed_and_memory() {
    let keys: u64 = std::env::var("KEYS").map_or(1_000_000, |keys| keys.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("store")).unwrap();
    let key =
        |n: u64| format!("/registry/pods/default/{:032}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let value = vec![b'v'; 256];
    for first in (0..keys).step_by(100) {
        let some = first..(first + 100).min(keys);
        store.txn().then(some.map(|n| put(key(n), &value))).commit().unwrap();
    }
    let compacted = store.revision();
    for first in (0..keys).step_by(10) {
        let some = first..(first + 10).min(keys);
        store.txn().then(some.map(|n| put(key(n), &value))).commit().unwrap();
    }
    for (what, compact_to) in
        [("log alone", None), ("base and log", Some(compacted)), ("base", Some(store.revision()))]
    {
        if let Some(revision) = compact_to {
            store.compact(revision).unwrap();
        }
        store.flush().unwrap();
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = memory("VmRSS");
        let began = Instant::now();
        let database = Database::make(&store, directory.path(), &Extras::default()).unwrap();
        let took = began.elapsed().as_secs_f64();
        let summary = database.summary();
        let began = Instant::now();
        let sent: usize = database.into_blobs().map(|blob| blob.unwrap().blob.len()).sum();
        let sending = began.elapsed().as_secs_f64();
        println!(
            "{what}: {} versions, {} MiB in {took:.2} s: {:.0} versions/s, {:.0} MiB/s; {} MiB at most, {} before; \
             {:.0} MiB/s read and summed",
            summary.versions,
            summary.bytes >> 20,
            summary.versions as f64 / took,
            summary.bytes as f64 / took / f64::from(1 << 20),
            memory("VmHWM") >> 10,
            before >> 10,
            sent as f64 / sending / f64::from(1 << 20),
        );
    }
}
