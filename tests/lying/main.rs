//! A disk that lies: a write is lost, one of its sectors stays what it was, or it lands at another place of the file, or
//! in another file, and the disk says that all is well. For every write of every script, and every sector of it.
//!
//! What is owed then: nothing wrong is ever answered, and nothing panics. Either an error tells of the damage, or it
//! has done no harm. What cannot be told is counted by itself: a store that was killed and has lost the end of its log
//! looks as if what is missing had never been written; see "Not promised" in RELIABILITY.md. That is only allowed
//! if the lie was about the log, and no later batch was written behind it in its file.
//!
//! `ANNALS_STRIDE=n` takes every n-th lie, 1 all; `ANNALS_WORKLOAD` the scripts whose names contain it, alone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and tell how much they did"
)]

mod disk;
#[path = "../support/mod.rs"]
mod support;
#[path = "../workloads/mod.rs"]
mod workloads;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use annals::vfs::{FaultVfs, MemoryVfs};
use disk::{Lie, LyingVfs, Write};
use support::{DIRECTORY, parallel};
use workloads::run::Run;
use workloads::{Step, Workload, scripts};

/// What became of a lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// An error told of it, then or when the store was checked.
    Detected,
    Harmless,
    /// The end of the log of a killed store is missing, and `open` reported that something was.
    LostAndReported,
    /// The same, and nothing was there to be reported.
    LostUntold,
}

/// Runs a script on a disk that lies, and on that store again. Answers what it wrote, too.
fn run(workload: &Workload, lie: Option<(usize, Lie)>) -> Result<(End, Vec<Write>), String> {
    let disk = MemoryVfs::new();
    let faulty = FaultVfs::new(Arc::new(disk.clone()));
    let lying = LyingVfs::new(Arc::new(faulty.clone()), lie);
    let mut run = Run::on(disk, faulty, Arc::new(lying.clone()), workload.sync);
    run.damaged = lie.is_some();
    run.strict = lie.is_none();
    let mut lost = None;
    let end = [Step::Kill, Step::Open, Step::Look, Step::Background(1_000), Step::Look];
    let closing = [Step::Close, Step::Open, Step::Look, Step::Close];
    for step in workload.steps.iter().chain(&end).chain(&closing) {
        let written = lying.writes().len();
        run.step(step).map_err(|found| format!("{step:?}: {found}"))?;
        if let (Some(now), Some((at, _))) = (run.lost.take(), lie) {
            if lost.is_some() {
                return Err(format!("lost twice: {now:?} after {lost:?}"));
            }
            let writes = lying.writes();
            let Write { path, end, syncs, .. } = writes[at].clone();
            let is_log = path.extension().is_some_and(|kind| kind == "wal");
            // What the opening itself writes, which finds the end of the log there, does not count; nor does the rest
            // of the same batch.
            let behind = writes[at + 1..written]
                .iter()
                .any(|write| write.path == path && write.end > end && write.syncs > syncs);
            if !is_log || behind {
                let path = path.display();
                return Err(format!("{now:?} lost without a word, by a lie about {path}"));
            }
            lost = Some(now);
        }
    }
    let checked = annals::check(Path::new(DIRECTORY), &run.options, &mut |_, _| {});
    let damaged = checked.map_or(true, |report| !report.damage.is_empty());
    let end = match lost {
        _ if run.noticed.get() > 0 || damaged => End::Detected,
        None => End::Harmless,
        Some((_, true)) => End::LostAndReported,
        Some((_, false)) => End::LostUntold,
    };
    Ok((end, lying.writes()))
}

/// Every lie about the writes of a script.
fn lies(writes: &[Write]) -> Vec<(usize, Lie)> {
    let mut lies = Vec::new();
    for (at, write) in writes.iter().enumerate() {
        let whole = [Lie::Lost, Lie::Shifted(-1), Lie::Shifted(1), Lie::Shifted(8), Lie::Elsewhere];
        lies.extend(whole.map(|lie| (at, lie)));
        if write.sectors > 1 {
            lies.extend((0..write.sectors).map(|sector| (at, Lie::Stale(sector))));
        }
    }
    lies
}

#[test]
fn a_lie_is_detected_or_harmless() {
    let mut sum = BTreeMap::<End, u64>::new();
    for workload in scripts::chosen() {
        let name = workload.name;
        let (end, writes) =
            run(&workload, None).unwrap_or_else(|found| panic!("{name}, without a lie: {found}"));
        assert_eq!(end, End::Harmless, "{name}, without a lie");
        let all = lies(&writes);
        let chosen = parallel::sample(&all, 120);
        let ends = Mutex::new(BTreeMap::<End, u64>::new());
        parallel::each(chosen.len() as u64, |number, watchdog| {
            let lie = *chosen[usize::try_from(number).unwrap()];
            watchdog.begin(format!("{name}: {lie:?} of {:?}", writes[lie.0]));
            let (end, _) = run(&workload, Some(lie))?;
            *ends.lock().unwrap().entry(end).or_default() += 1;
            Ok(())
        });
        let ends = ends.into_inner().unwrap();
        println!("{name:14} {} of {} lies: {ends:?}", chosen.len(), all.len());
        for (end, count) in ends {
            *sum.entry(end).or_default() += count;
        }
    }
    println!("in all: {sum:?}");
    assert!(sum.contains_key(&End::Detected), "no lie was noticed");
}
