//! What leases cost: to renew one among many, to hold them in memory, and to end very many at once.
//!
//! ```sh
//! cargo bench --bench lease                      # all of it, about two minutes
//! cargo bench --bench lease -- quick             # proves that it works
//! cargo bench --bench lease -- renew             # or: storm
//! ```
//!
//! **renew**: nanoseconds of a keep-alive of random leases by one thread, and by eight at once, among 1,000,
//! 100,000 and 1,000,000 leases, and the memory that the process took for each lease, its record included.
//!
//! **storm**: 100,000 leases with a key each end at one moment, while eight threads commit. The time of their
//! commits before, and while leases end: p50, p99 and the greatest; and how long the ends took.
//!
//! The store lies below the target directory; that of `renew` is `Buffered`, that of `storm` is not.
#![expect(clippy::expect_used, reason = "a bench that cannot do its work has nothing to measure")]
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::cast_precision_loss, reason = "figures are printed with a few digits")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use annals::clock::ManualClock;
use annals::{Durability, LeaseGrantRequest, Options, PutRequest, Store, Ticket, put, txn};

/// In microseconds.
const HOUR: i64 = 3_600_000_000;

fn main() {
    let (quick, wanted) = common::asked();
    if wanted("renew") {
        println!(
            "{:>10} {:>16} {:>20} {:>14}",
            "leases", "1 thread (ns)", "8 threads (ns each)", "B/lease"
        );
        for leases in if quick { [1_000, 2_000, 4_000] } else { [1_000, 100_000, 1_000_000] } {
            renew(leases, if quick { 10_000 } else { 2_000_000 });
        }
    }
    if wanted("storm") {
        storm(if quick { 1_000 } else { 100_000 });
    }
}

fn store(durability: Durability, clock: Option<Arc<ManualClock>>) -> Store {
    let dir = common::directory("lease-bench");
    let options = Options::new().durability(durability);
    let options = match clock {
        Some(clock) => options.clock(clock),
        None => options,
    };
    options.open(dir).expect("a store")
}

/// What the process takes of memory, in bytes; 0 where that cannot be asked.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn renew(leases: u64, renewals: u64) {
    let store = store(Durability::Buffered, None);
    let before = resident();
    for n in 0..leases {
        let id = i64::try_from(n + 1).expect("a small number");
        store.lease_grant_with(LeaseGrantRequest::new(id, 3600)).expect("granted");
    }
    let bytes = resident().saturating_sub(before) as f64 / leases as f64;
    let one = by(1, &store, leases, renewals);
    let eight = by(8, &store, leases, renewals / 8);
    println!("{leases:>10} {one:>16.0} {eight:>20.0} {bytes:>14.0}");
}

/// Nanoseconds of a renewal, by so many threads at once.
fn by(threads: u64, store: &Store, leases: u64, renewals: u64) -> f64 {
    let begun = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut state = thread + 1;
                for _ in 0..renewals {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let id = i64::try_from((state >> 33) % leases + 1).expect("a small number");
                    store.lease_keep_alive(id).expect("renewed");
                }
            });
        }
    });
    begun.elapsed().as_nanos() as f64 / renewals as f64
}

fn storm(leases: u64) {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000_000));
    let store = store(Durability::Sync, Some(Arc::clone(&clock)));
    thread::scope(|scope| {
        // Grants wait for a sync each, and share it.
        for thread in 0..32 {
            let store = &store;
            scope.spawn(move || {
                let mut tickets: Vec<Ticket> = Vec::new();
                for n in (thread..leases).step_by(32) {
                    let id = i64::try_from(n + 1).expect("a small number");
                    store.lease_grant_with(LeaseGrantRequest::new(id, 3600)).expect("granted");
                    let key = PutRequest::new(format!("session/{n}"), "me").lease(id);
                    tickets.push(store.submit(txn().then([key])).expect("attached"));
                }
                for ticket in tickets {
                    ticket.wait().expect("durable");
                }
            });
        }
    });
    let calm = committing(&store, || thread::sleep(Duration::from_millis(1 + leases / 50)));
    let begun = Instant::now();
    let busy = committing(&store, || {
        clock.advance(HOUR + 1_000_000);
        while store.stats().leases_expired < leases {
            thread::sleep(Duration::from_millis(1));
        }
    });
    let took = begun.elapsed().as_secs_f64();
    for (when, mut times) in [("calm", calm), ("storm", busy)] {
        times.sort_unstable();
        let at =
            |share: usize| times.get(times.len() * share / 1000).map_or(0, Duration::as_micros);
        let greatest = times.last().map_or(0, Duration::as_micros);
        let (count, p50, p99) = (times.len(), at(500), at(990));
        println!("{when:>6}: {count} commits, p50 {p50} us, p99 {p99} us, greatest {greatest} us");
    }
    println!("{leases} leases ended in {took:.2} s, {:.0} a second", leases as f64 / took);
}

/// How long the commits of eight threads take while something is done.
fn committing(store: &Store, work: impl FnOnce()) -> Vec<Duration> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let threads = std::array::from_fn::<_, 8, _>(|thread| {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut times = Vec::new();
                while !is_over.load(Ordering::Acquire) {
                    let begun = Instant::now();
                    let write = put(format!("other/{thread}/{}", times.len() % 1000), "value");
                    store.transact(txn().then([write])).expect("committed");
                    times.push(begun.elapsed());
                }
                times
            })
        });
        work();
        is_over.store(true, Ordering::Release);
        threads.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect()
    })
}
