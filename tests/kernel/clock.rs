//! A clock that jumps between two processes: the system's monotonic clock begins anew at each start of the machine,
//! and so may stand anywhere when a store is opened again. No lease ends for that.
//!
//! Time namespaces move the monotonic clock of a process alone. The wall clock is everybody's, so it jumps in a
//! store that has a clock of its own.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use annals::clock::ManualClock;
use annals::{LeaseGrantRequest, PutRequest, ReadMode};

use crate::process::{Running, arguments, prepare, program};
use crate::session::{directory, number, options, say};

const LEASE: i64 = 7;
const TTL: i64 = 1_000;

/// Grants the lease, or finds it; keeps it for a moment, and does not close the store.
pub fn lease() {
    let store = options(ReadMode::Mmap).open(directory()).unwrap();
    if number("SESSION", 0) == 0 {
        store.lease_grant_with(LeaseGrantRequest::new(LEASE, TTL)).unwrap();
        store.put_with(PutRequest::new("key", "value").lease(LEASE)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(150));
    let left = store.lease_time_to_live(LEASE, true).unwrap();
    say(&format!("LEFT {left:?}"));
    let left = left.expect("the lease lives");
    let seconds = left.remaining.as_secs_f64();
    assert!((900.0..=1000.0).contains(&seconds), "{left:?}");
    assert!(store.get("key").unwrap().is_some_and(|kv| kv.lease == LEASE));
    say("READY");
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
    store.close().unwrap();
    say("END");
}

#[test]
fn a_monotonic_clock_that_jumps_ends_no_lease() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let clocks = ["0", "100000000", "5000", "300000000", "0"];
    for (session, seconds) in clocks.into_iter().enumerate() {
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(["--fork", "--kill-child", "--time"]);
            command.args(["--monotonic", seconds, "--boottime", seconds]);
            command
        };
        let tried = unshare().arg("true").output();
        if !tried.as_ref().is_ok_and(|output| output.status.success()) {
            return println!("monotonic clocks that jump skipped: {tried:?}");
        }
        let mut command = unshare();
        command.arg(program()).args(arguments());
        prepare(&mut command, "lease", &store);
        command.env("ANNALS_KERNEL_SESSION", session.to_string());
        let mut running = Running::start(command);
        let ready = running.hears("READY", 1);
        // Closed and killed in turn.
        let ended = if session % 2 == 0 {
            running.end(Duration::from_secs(30)).expect("it ends")
        } else {
            running.kill()
        };
        assert!(ready, "clock at {seconds}: {ended:?}");
        // With the one that is killed its child ends, but perhaps not at once.
        for _ in 0..500 {
            match options(ReadMode::Mmap).lease_expiry(false).open(&store) {
                Ok(store) => {
                    store.close().unwrap();
                    break;
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
    println!("{} monotonic clocks: the lease lives", clocks.len());
}

#[test]
fn a_wall_clock_that_jumps_ends_no_lease_and_keeps_none() {
    const SECOND: i64 = 1_000_000;
    let dir = tempfile::tempdir().unwrap();
    let start = 1_700_000_000 * SECOND;
    let clock = Arc::new(ManualClock::new(start));
    let options =
        options(ReadMode::Mmap).background(false).clock(Arc::<ManualClock>::clone(&clock));
    let mut store = options.open(dir.path()).unwrap();
    store.lease_grant_with(LeaseGrantRequest::new(LEASE, TTL)).unwrap();
    store.put_with(PutRequest::new("key", "value").lease(LEASE)).unwrap();
    let jumps = [start + 10 * 365 * 86_400 * SECOND, 0, start, i64::MAX / 2, start - TTL * SECOND];
    for (passed, jump) in (0..).zip(jumps) {
        clock.set_now(jump);
        while store.run_background().unwrap() {}
        let left = store.lease_time_to_live(LEASE, false).unwrap().expect("it lives");
        // Ten seconds pass in each round, by the clock that does not jump.
        let expected = TTL - passed * 10;
        assert_eq!(i64::try_from(left.remaining.as_secs()).unwrap(), expected, "at {jump}");
        clock.advance(10 * SECOND);
        if passed % 2 == 1 {
            store.close().unwrap();
            store = options.open(dir.path()).unwrap();
        }
    }
    clock.set_now(0);
    clock.advance((TTL - 40) * SECOND);
    while store.run_background().unwrap() {}
    assert!(store.lease_time_to_live(LEASE, false).unwrap().is_none());
    assert!(store.get("key").unwrap().is_none());
    store.close().unwrap();
}
