//! Background work that fails in one thread while another one waits to do some: the one that waits must not go on
//! from what the failed one has left half done.
//!
//! `ANNALS_CASES=n` sets how many cases are tried.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use annals::clock::ManualClock;
use annals::vfs::{CrashMode, Fault, FaultVfs, MemoryVfs, Operation};
use annals::{Store, check};
use support::{DIRECTORY, START_TIME, number_from_env, tiny};

#[test]
fn nobody_goes_on_where_another_one_has_failed() {
    let cases = number_from_env("ANNALS_CASES", 400);
    let (mut failed, mut told) = (0, 0);
    for case in 0..cases {
        let disk = MemoryVfs::new();
        let faulty = Arc::new(FaultVfs::new(Arc::new(disk.clone())));
        let clock = Arc::new(ManualClock::new(START_TIME));
        let options = tiny(Arc::<FaultVfs>::clone(&faulty), Arc::clone(&clock));
        let store = Store::open_with(DIRECTORY, &options).unwrap();
        let put = |store: &Store, round: usize| {
            for key in 0..6_usize {
                store.put(format!("key/{key}"), vec![b'a'; 30 + 10 * key + round]).unwrap();
            }
        };
        put(&store, 0);
        store.reorganise().unwrap();
        put(&store, 1);
        // One name is not changed, once: mostly that of a manifest.
        let renames = faulty.op_count_of(Operation::Rename);
        faulty.fail(Some(Operation::Rename), renames + case % 3, Fault::Io, false);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Acquire) && store.run_background().is_ok() {
                        thread::yield_now();
                    }
                });
            }
            told += u64::from(store.reorganise().is_err());
            done.store(true, Ordering::Release);
        });
        failed += u64::from(faulty.fired() > 0);
        drop(store);
        let image = disk.crash(case, CrashMode::KeepAll);
        let options = tiny(Arc::new(image), clock);
        let report = check(DIRECTORY, &options, &mut |_, _| ()).unwrap();
        assert!(report.damage.is_empty() && report.unchecked.is_empty(), "case {case}: {report:?}");
        let store = Store::open_with(DIRECTORY, &options).unwrap();
        assert_eq!(store.revision(), 13, "case {case}");
        assert_eq!(store.log(..).count(), 12, "case {case}");
    }
    println!(
        "{cases} cases: something failed in {failed}, and `reorganise` was told of it in {told}"
    );
    assert!(failed * 2 > cases, "{failed} of {cases} failed");
}
