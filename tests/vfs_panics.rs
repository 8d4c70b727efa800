//! A file system, which is foreign code, panics in one of its operations. Whoever called it may see the
//! panic; nobody hangs, nothing false is acknowledged, and what was acknowledged is there afterwards.
//!
//! `ANNALS_STRIDE=n` takes every n-th operation.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use annals::clock::ManualClock;
use annals::vfs::{CrashMode, FaultVfs, MemoryVfs};
use annals::{KeyValue, Store};
use support::watchdog::Watchdog;
use support::{DIRECTORY, START_TIME, number_from_env, open_tiny, tiny};

const FOREIGN: &str = "the file system panics";

/// Silences the panics that are wanted.
fn quiet() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref() != Some(&FOREIGN) {
            before(info);
        }
    }));
}

/// Calls the store. A panic or an error is nothing; an answer is an answer.
fn call<T>(work: impl FnOnce() -> annals::Result<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()?.ok()
}

/// Puts a key of its own some times; answers the last number that was acknowledged, if any.
fn writer(store: &Store, name: u64) -> u64 {
    let mut acknowledged = 0;
    for n in 1..=12_u64 {
        let value = format!("{n} ").repeat(400);
        if call(|| store.put(format!("{name}"), &value)).is_some() {
            acknowledged = n;
        }
        if n % 4 == 0 && name == 0 {
            let _ = call(|| store.run_background());
            let _ = call(|| store.compact(store.revision()));
        }
    }
    acknowledged
}

/// The number that a value was made of, which must be whole.
fn number_in(kv: &KeyValue) -> u64 {
    let text = std::str::from_utf8(&kv.value).unwrap();
    let number = text.split(' ').next().unwrap();
    assert_eq!(text, format!("{number} ").repeat(400));
    number.parse().unwrap()
}

/// How many operations there were; and whether the panic came.
fn run(background: bool, at: u64) -> (u64, bool) {
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    let came = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&came);
    faulty.observe(move |number, _| {
        if number == at {
            counter.fetch_add(1, Ordering::Relaxed);
            std::panic::panic_any(FOREIGN);
        }
    });
    let clock = Arc::new(ManualClock::new(START_TIME));
    let options = tiny(Arc::new(faulty.clone()), clock).background(background);
    let acknowledged = match call(|| options.open(Path::new(DIRECTORY))) {
        None => vec![0, 0],
        Some(store) => {
            let acknowledged: Vec<u64> = thread::scope(|scope| {
                let writers: Vec<_> = (0..2)
                    .map(|n| {
                        scope.spawn({
                            let store = &store;
                            move || writer(store, n)
                        })
                    })
                    .collect();
                writers.into_iter().map(|writer| writer.join().unwrap()).collect()
            });
            // Reads go on, and show whole values.
            if let Some(Some(kv)) = call(|| store.get("0")) {
                assert!(number_in(&kv) >= acknowledged[0]);
            }
            let _ = call(|| store.put("more", ""));
            let _ = call(|| store.close());
            acknowledged
        }
    };
    for mode in [CrashMode::LoseAll, CrashMode::KeepAll] {
        let store = open_tiny(Arc::new(disk.crash(0, mode))).unwrap();
        for (name, acknowledged) in acknowledged.iter().enumerate() {
            let found = store.get(format!("{name}")).unwrap().map_or(0, |kv| number_in(&kv));
            assert!(found >= *acknowledged, "{name}: {found} of {acknowledged}, {mode:?}");
        }
        store.put("after", "").unwrap();
    }
    (faulty.op_count(), came.load(Ordering::Relaxed) > 0)
}

#[test]
fn a_panic_in_any_operation_hangs_nobody() {
    quiet();
    let stride = usize::try_from(number_from_env("ANNALS_STRIDE", 1)).unwrap();
    let watchdog = Watchdog::new(Duration::from_secs(60));
    for background in [false, true] {
        let operations = run(background, u64::MAX).0;
        let mut panics = 0;
        for at in (0..operations).step_by(stride) {
            watchdog.begin(format!("background {background}: operation {at} panics"));
            panics += u64::from(run(background, at).1);
        }
        println!("background {background}: {operations} operations, {panics} panics");
        assert!(panics > 20);
    }
}
