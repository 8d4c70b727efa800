//! Wakers are foreign code: they may panic, hold on to the store, or wait for somebody. What they do
//! harms their own task at most.

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod support;

use std::future::Future as _;
use std::path::Path;
use std::sync::Arc;
use std::task::Context;
use std::thread;
use std::time::Duration;

use annals::clock::ManualClock;
use annals::vfs::MemoryVfs;
use annals::{Options, Store, TxnRequest, put, txn};
use support::gate::{GateVfs, log_syncs};
use support::watchdog::Watchdog;
use support::{DIRECTORY, START_TIME, tiny, wakers};

fn setup(case: &str) -> (GateVfs, Options, Watchdog) {
    let watchdog = Watchdog::new(Duration::from_secs(60));
    watchdog.begin(case);
    let gate = GateVfs::new(Arc::new(MemoryVfs::new()), log_syncs);
    let options = tiny(Arc::new(gate.clone()), Arc::new(ManualClock::new(START_TIME)));
    (gate, options.background(true), watchdog)
}

fn open(options: &Options) -> Store {
    options.open(Path::new(DIRECTORY)).unwrap()
}

fn request(key: &str) -> TxnRequest {
    txn().then([put(key, "")])
}

#[test]
fn a_waker_that_panics_harms_nobody_else() {
    let (gate, options, _watchdog) = setup("a waker that panics");
    let store = open(&options);
    for round in 0..2 {
        gate.shut();
        thread::scope(|scope| {
            // A thread of a user's leads, or the log thread does.
            if round == 0 {
                scope.spawn(|| store.put("lead", "").unwrap());
                gate.wait_until_held();
            }
            for n in 0..3 {
                let ticket = store.submit(request(&format!("{n}"))).unwrap();
                scope.spawn(move || ticket.wait().unwrap());
            }
            let mut bad = Box::pin(store.submit(request("bad")).unwrap());
            let waker = wakers::panics();
            assert!(bad.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            gate.wait_until_held();
            // Whoever drops it last meets its panic: this is to be the store, not the test.
            drop((bad, waker));
            gate.open();
        });
        store.put("after", "").unwrap();
    }
    store.close().unwrap();
}

#[test]
fn the_last_store_may_go_with_a_waker() {
    let (gate, options, _watchdog) = setup("the last store in a waker");
    for round in 0..50 {
        let store = open(&options);
        assert_eq!(store.incarnation(), 1, "closed cleanly every time");
        store.put("a", "").unwrap();
        gate.shut();
        let mut ticket = Box::pin(store.submit(request("b")).unwrap());
        let waker = wakers::keeps(store);
        assert!(ticket.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        gate.wait_until_held();
        drop((ticket, waker));
        gate.open();
        // It closes by itself, in a thread of its own.
        while let Err(error) = options.open(Path::new(DIRECTORY)).and_then(Store::close) {
            assert!(error.to_string().contains("open for writing"), "round {round}: {error}");
            thread::yield_now();
        }
    }
}
