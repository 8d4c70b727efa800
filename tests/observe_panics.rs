//! Whoever listens to the library and panics harms nothing, with the features `tracing` and `metrics`.

#![cfg(all(feature = "tracing", feature = "metrics"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use annals::vfs::MemoryVfs;
use annals::{Durability, Options};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use support::watchdog::Watchdog;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};

/// How often somebody was told.
static TOLD: AtomicU64 = AtomicU64::new(0);

/// Panics whatever it is told.
struct Panics;

fn told() -> ! {
    TOLD.fetch_add(1, Ordering::Relaxed);
    panic!("a listener that panics, as this test wants it")
}

impl Recorder for Panics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        told()
    }

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        told()
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        told()
    }

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        told()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        told()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        told()
    }
}

/// Panics in every call about a span of which it was told.
struct Late;

impl Subscriber for Late {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // Each second one has no span at all.
        if TOLD.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            told()
        } else {
            Id::from_u64(1)
        }
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        told()
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {
        told()
    }

    fn event(&self, _: &Event<'_>) {
        told()
    }

    fn enter(&self, _: &Id) {
        told()
    }

    fn exit(&self, _: &Id) {
        told()
    }

    fn try_close(&self, _: Id) -> bool {
        told()
    }
}

#[test]
fn a_listener_that_panics_harms_nothing() {
    let watchdog = Watchdog::new(Duration::from_secs(60));
    watchdog.begin("listeners that panic");
    metrics::set_global_recorder(Panics).unwrap();
    tracing::subscriber::set_global_default(Late).unwrap();
    // Thousands of messages say nothing.
    std::panic::set_hook(Box::new(|_| ()));
    for durability in [Durability::Sync, Durability::Buffered] {
        let options = Options::new().vfs(Arc::new(MemoryVfs::new())).durability(durability);
        let store = options.open("store").unwrap();
        thread::scope(|scope| {
            for writer in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for n in 0..100 {
                        store.put(format!("{writer}/{n}"), "").unwrap();
                    }
                });
            }
        });
        store.reorganise().unwrap();
        store.stats();
        store.checkpoint("copy").unwrap();
        store.close().unwrap();
        let store = options.open("store").unwrap();
        assert_eq!(store.revision(), 401);
    }
    assert!(TOLD.load(Ordering::Relaxed) > 1000);
}
