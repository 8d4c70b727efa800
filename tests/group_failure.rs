//! Group commit fails, at every write, every sync and every other operation, while eight clients
//! commit: some block, some hold tickets, some await them.
//!
//! What is owed then: whoever was promised nothing learns that the outcome is unknown, or that there
//! was none; nothing that begins later is taken; the store goes on showing what is durable, and
//! nothing else; and whatever a crash leaves of the disk, the store opened again has a dense prefix
//! of the order, of whole transactions, with every acknowledged one in it.
//!
//! A failing case names the command that repeats it: `ANNALS_CASE=KIND:N:FAULT:STICKY:SEED`. Sizes,
//! windows and crash images follow from the seed; which commits meet in one sync does not, as the
//! threads are the system's to schedule, so a repetition may have to be repeated.
//! `ANNALS_STRIDE=n` takes only every n-th position.

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
use std::time::Duration;

use annals::ErrorKind;
use annals::clock::ManualClock;
use annals::vfs::{Fault, FaultVfs, MemoryVfs, Operation};
use support::clients::{self, Ended, Journal};
use support::watchdog::Watchdog;
use support::{DIRECTORY, START_TIME, number_from_env, tiny};

/// One position of one kind of operation, and how it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    kind: Operation,
    n: u64,
    fault: Fault,
    sticky: bool,
    seed: u64,
}

impl Case {
    fn name(&self) -> String {
        let Self { kind, n, fault, sticky, seed } = self;
        format!("{kind:?}:{n}:{fault:?}:{sticky}:{seed}")
    }

    /// Whether this is what `ANNALS_CASE` asks for, or nothing is asked for.
    fn is_wanted(&self) -> bool {
        std::env::var("ANNALS_CASE").map_or(true, |wanted| wanted == self.name())
    }
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    fired: bool,
    acknowledged: u64,
    unknown: u64,
    refused: u64,
}

fn run(case: Case) -> Tally {
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    let options = tiny(Arc::new(faulty.clone()), Arc::new(ManualClock::new(START_TIME)));
    let store = options.background(true).open(Path::new(DIRECTORY)).unwrap();
    let first = faulty.op_count_of(case.kind);
    faulty.fail(Some(case.kind), first + case.n, case.fault, case.sticky);

    let journal = Journal::default();
    clients::run(&store, &journal, case.seed);
    let fired = faulty.fired() > 0;
    let told = journal.has_failed();
    assert!(fired || !told, "an error without a fault");
    // What has failed stays so, whatever works again.
    faulty.heal();
    // Only if the log is well, and flush was what failed, there is something left to be written.
    let flushed = store.flush();
    let durable = store.durable_revision();
    // Whom the last batches were for may all have dropped their tickets: then `flush` is first told.
    let failed = told || flushed.is_err();
    if !told && let Err(error) = flushed {
        assert!(fired && journal.is_forgotten_behind(durable), "behind {durable}: {error}");
        assert!(matches!(error.kind(), ErrorKind::OutcomeUnknown { .. }), "{error:?}");
    }
    journal.check_outcomes(durable);
    if failed {
        // The store reads on, at what is durable.
        assert_eq!(store.revision(), durable, "a failed store shows what is durable");
        journal.check_state(&store.latest().unwrap(), durable);
        clients::refuses_writes(&store);
        assert_eq!(store.durable_revision(), durable, "and nothing becomes durable any more");
    } else {
        journal.check_state(&store.latest().unwrap(), store.revision());
    }
    // What a power cut would leave now, and what is there when the process has gone.
    let images = clients::images(&disk, case.seed);
    drop(store);
    for (name, image) in images.into_iter().chain([("after the process", disk)]) {
        let found = catch_unwind(AssertUnwindSafe(|| journal.check_reopened(&image)));
        assert!(found.is_ok(), "reopened, {name}: {:?}", image.paths());
    }
    let count = |ended: fn(&Ended) -> bool| journal.count(ended);
    Tally {
        fired,
        acknowledged: count(|ended| matches!(ended, Ended::Acknowledged { .. })),
        unknown: count(|ended| matches!(ended, Ended::Unknown { .. })),
        refused: count(|ended| matches!(ended, Ended::Refused)),
    }
}

/// Fails each position of a kind, until there is none of that number any more.
fn sweep(kind: Operation, ways: &[(Fault, bool)]) -> Tally {
    /// A schedule with few batches may miss a position that the next one has.
    const MISSES_MAX: u32 = 3;
    let watchdog = Watchdog::new(Duration::from_secs(60));
    let stride = number_from_env("ANNALS_STRIDE", 1);
    let (mut sum, mut positions) = (Tally::default(), 0);
    for (way, (fault, sticky)) in ways.iter().copied().enumerate() {
        let mut misses = 0;
        for n in (0..).step_by(usize::try_from(stride).unwrap()) {
            let seed = n * 10 + way as u64;
            let case = Case { kind, n, fault, sticky, seed };
            if !case.is_wanted() {
                if n > 10_000 {
                    break;
                }
                continue;
            }
            watchdog.begin(case.name());
            let tally = catch_unwind(|| run(case)).unwrap_or_else(|_| {
                let name = case.name();
                panic!("repeat with: ANNALS_CASE={name} cargo test --test group_failure")
            });
            sum.acknowledged += tally.acknowledged;
            sum.unknown += tally.unknown;
            sum.refused += tally.refused;
            positions += u64::from(tally.fired);
            misses = if tally.fired { 0 } else { misses + 1 };
            if misses == MISSES_MAX {
                break;
            }
        }
    }
    let Tally { acknowledged, unknown, refused, .. } = sum;
    println!(
        "{kind:?}: {positions} faults; of the commits {acknowledged} were acknowledged, {unknown} \
         unknown, {refused} refused"
    );
    sum.fired = positions > 0;
    sum
}

fn all_of(case: &str) -> bool {
    let wanted = std::env::var("ANNALS_CASE");
    wanted.map_or(true, |wanted| {
        println!("{case}: only {wanted}");
        false
    })
}

#[test]
fn every_write_fails_under_eight_clients() {
    let ways =
        [(Fault::Io, false), (Fault::Io, true), (Fault::Torn, false), (Fault::NoSpace, true)];
    let sum = sweep(Operation::Write, &ways);
    if all_of("writes") {
        assert!(sum.fired && sum.acknowledged > 0 && sum.unknown > 0 && sum.refused > 0);
    }
}

#[test]
fn every_sync_fails_under_eight_clients() {
    let sum = sweep(Operation::Sync, &[(Fault::Io, false), (Fault::Io, true)]);
    if all_of("syncs") {
        assert!(sum.fired && sum.acknowledged > 0 && sum.unknown > 0 && sum.refused > 0);
    }
}

#[test]
fn everything_else_fails_under_eight_clients() {
    let kinds = [
        Operation::Create,
        Operation::Open,
        Operation::Read,
        Operation::Rename,
        Operation::Remove,
        Operation::SyncDir,
        Operation::SetLen,
        Operation::Len,
        Operation::Map,
    ];
    let mut fired = 0;
    for kind in kinds {
        fired += u32::from(sweep(kind, &[(Fault::Io, false), (Fault::Io, true)]).fired);
    }
    if all_of("the others") {
        // Whether files are opened or cut in so short a run is the store's affair.
        assert!(fired >= 3, "{fired} kinds");
    }
}

/// Nobody waits for the commit whose sync fails: the next one to ask is told.
#[test]
fn a_forgotten_commit_is_told_to_whoever_flushes() {
    let faulty = FaultVfs::new(Arc::new(MemoryVfs::new()));
    let options = tiny(Arc::new(faulty.clone()), Arc::new(ManualClock::new(START_TIME)));
    let store = options.background(true).open(Path::new(DIRECTORY)).unwrap();
    store.put("kept", "").unwrap();
    faulty.fail(Some(Operation::Sync), faulty.op_count_of(Operation::Sync), Fault::Io, false);
    drop(store.submit(annals::txn().then([annals::put("forgotten", "")])).unwrap());
    let told = store.flush().unwrap_err().into_kind();
    assert!(matches!(told, ErrorKind::OutcomeUnknown { revision: 3, .. }), "{told:?}");
    assert_eq!((store.revision(), store.durable_revision()), (2, 2));
    clients::refuses_writes(&store);
}
