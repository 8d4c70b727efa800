//! K4: every call of the system that a store makes fails once, or goes on failing, or is the last thing the
//! process does. `strace` injects it; one thread does the same calls in the same order every time, so that
//! each has a number.
//!
//! `ANNALS_SYSCALLS=n` sets how many cases are tried (0: all), `ANNALS_KILL_SEED=n` which. Without, as many as
//! there is time for.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::oracle::Oracle;
use crate::process::{Ended, Running, arguments, prepare, program};
use crate::single::beside;
use crate::support::number_from_env;
use crate::support::random::Random;

/// Calls that belong to the test's own output, or that cannot fail.
const LEFT_OUT: &[&str] = &[
    "write",
    "read",
    "close",
    "munmap",
    "exit_group",
    "brk",
    "futex",
    "rt_sigaction",
    "rt_sigprocmask",
    "sigaltstack",
    "poll",
    "getpid",
    "gettid",
    "sched_yield",
    "mremap",
    "mprotect",
    "getrandom",
    "fcntl",
];

/// What one call can be made to do.
fn faults(call: &str) -> &'static [&'static str] {
    match call {
        "pwrite64" => &[
            "error=EIO",
            "error=ENOSPC",
            "error=ENOSPC+",
            "error=EINTR",
            "retval=0",
            "signal=KILL",
        ],
        "pread64" => &["error=EIO", "error=EIO+", "error=EINTR"],
        "fsync" | "fdatasync" => {
            &["error=EIO", "error=ENOSPC", "error=EIO+", "error=EINTR", "signal=KILL"]
        }
        "openat" => &[
            "error=EMFILE",
            "error=EMFILE+",
            "error=EIO",
            "error=ENOSPC",
            "error=EINTR",
            "signal=KILL",
        ],
        "mmap" => &["error=ENOMEM", "error=ENOMEM+"],
        "madvise" => &["error=EFAULT", "error=EIO", "error=ENOMEM"],
        "flock" => &["error=EIO", "error=EWOULDBLOCK", "error=EINTR"],
        "rename" | "renameat" | "renameat2" | "unlink" | "unlinkat" | "link" | "linkat"
        | "mkdir" | "ftruncate" | "fallocate" => {
            &["error=EIO", "error=ENOSPC", "error=EINTR", "error=EIO+", "signal=KILL"]
        }
        _ => &["error=EIO", "error=EIO+"],
    }
}

/// One call that fails.
#[derive(Clone, Debug)]
struct Case {
    call: String,
    position: u64,
    fault: &'static str,
}

fn strace(directory: &Path, options: &[String]) -> Running {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq"]).args(options).arg(program()).args(arguments());
    prepare(&mut command, "sweep", directory);
    Running::start(command)
}

/// How often each call is made: before the store is opened, and until all is done.
fn count(directory: &Path) -> Result<BTreeMap<String, (u64, u64)>, String> {
    let log = directory.with_extension("strace");
    let options = ["-o".to_owned(), log.to_str().unwrap().to_owned()];
    if Command::new("strace").arg("-V").output().is_err() {
        return Err("there is no strace".to_owned());
    }
    let ended = strace(directory, &options).end(Duration::from_secs(60)).ok_or("it hangs")?;
    if !ended.heard.others.iter().any(|line| line == "BEGIN") || !ended.status.success() {
        return Err(format!("strace does not work here: {}", ended.errors));
    }
    assert!(ended.heard.ended && ended.heard.errors.is_empty(), "{:?}", ended.heard);
    let mut calls: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut begun = false;
    for line in fs::read_to_string(&log).unwrap().lines() {
        let line = line.split_once(' ').map_or("", |(_, call)| call.trim_start());
        if line.starts_with("write(1, \"BEGIN") {
            begun = true;
        } else if line.starts_with("write(1, \"END") {
            break;
        }
        let Some((call, _)) = line.split_once('(') else { continue };
        let (before, all) = calls.entry(call.to_owned()).or_default();
        *before += u64::from(!begun);
        *all += 1;
    }
    calls.retain(|call, (before, all)| before < all && !LEFT_OUT.contains(&call.as_str()));
    Ok(calls)
}

/// What came of a case: whether the process died of it.
fn run(case: &Case, root: &Path) -> Result<bool, String> {
    let Case { call, position, fault } = case;
    let directory = root.join(format!("{call}-{position}-{fault}"));
    let (what, when) = match fault.strip_suffix('+') {
        Some(fault) => (fault, format!("{position}+")),
        None => (*fault, position.to_string()),
    };
    let inject = format!("inject={call}:{what}:when={when}");
    let trace = format!("trace={call}");
    let options = ["-o", "/dev/null", "--seccomp-bpf", "-e", &trace, "-e", &inject];
    let options = options.map(str::to_owned);
    let ended = strace(&directory, &options).end(Duration::from_secs(30)).ok_or("it hangs")?;
    let verdict = judge(&ended, *fault == "signal=KILL", &directory);
    if verdict.is_ok() {
        let _ = (fs::remove_dir_all(&directory), fs::remove_dir_all(beside(&directory)));
    }
    verdict
}

/// What came of the role `sweep`: whether the process died, as it may if it was killed or got no memory.
pub fn judge(ended: &Ended, killed: bool, directory: &Path) -> Result<bool, String> {
    let heard = &ended.heard;
    // The Rust library ends a process that gets no memory.
    let no_memory = ended.errors.contains("memory allocation of");
    let begun = heard.others.iter().any(|line| line == "BEGIN");
    let signals: &[i32] = match (killed, no_memory) {
        (true, _) => &[libc::SIGKILL],
        (_, true) => &[libc::SIGABRT],
        _ => &[],
    };
    if begun {
        ended.is_orderly(signals)?;
    }
    if let Some(wrong) = heard.others.iter().find(|line| line.starts_with("WRONG")) {
        return Err(wrong.clone());
    }
    if begun && !heard.ended && !killed && !no_memory {
        return Err(format!("it ended early: {} {}", ended.status, ended.errors));
    }
    let mut oracle = Oracle::new(directory.to_path_buf());
    if !heard.acknowledged.is_empty() || directory.join("CURRENT").exists() {
        // Opened for writing: what was left behind is cleared away.
        oracle.verify(heard, 1)?;
    }
    let copy = beside(directory);
    if copy.join("CURRENT").exists() {
        let options = crate::session::options(annals::ReadMode::Pread);
        let report = annals::check(&copy, &options, &mut |_, _| ());
        let report = match report {
            // It was not finished, and says so.
            Err(error) if matches!(error.kind(), annals::ErrorKind::NotAStore { .. }) => {
                return Ok(killed || no_memory);
            }
            report => report.map_err(|error| format!("the checkpoint: {error}"))?,
        };
        if !report.damage.is_empty() || !report.unchecked.is_empty() {
            return Err(format!("the checkpoint: {report:?}"));
        }
    }
    Ok(killed || no_memory)
}

#[test]
fn whatever_call_fails_nothing_acknowledged_is_lost() {
    let begun = Instant::now();
    let dir = tempfile::tempdir().unwrap();
    let calls = match count(&dir.path().join("counted")) {
        Ok(calls) => calls,
        Err(why) => return println!("the sweep of system calls skipped: {why}"),
    };
    let mut cases = Vec::new();
    for (call, &(before, all)) in &calls {
        for position in before + 1..=all {
            for fault in faults(call) {
                cases.push(Case { call: call.clone(), position, fault });
            }
        }
    }
    let there = cases.len();
    let seed = number_from_env("ANNALS_KILL_SEED", 1);
    let mut random = Random::new(seed);
    for index in (1..there).rev() {
        cases.swap(index, random.index(index + 1));
    }
    let wanted = number_from_env("ANNALS_SYSCALLS", u64::MAX);
    let (most, patience) = match wanted {
        0 => (there, Duration::MAX),
        u64::MAX => (there, Duration::from_secs(15)),
        wanted => (usize::try_from(wanted).unwrap(), Duration::MAX),
    };
    cases.truncate(most);
    let (next, died, wrong) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while begun.elapsed() < patience
                    && let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    match run(case, dir.path()) {
                        Ok(dead) => drop(died.fetch_add(usize::from(dead), Ordering::Relaxed)),
                        Err(why) => {
                            println!("{case:?}: {why}");
                            wrong.lock().unwrap().push(format!("{case:?}: {why}"));
                        }
                    }
                }
            });
        }
    });
    let done = next.into_inner().min(cases.len());
    let wrong = wrong.into_inner().unwrap();
    println!(
        "{done} of {there} cases in {:?} over {} calls, of which {} died as they had to; seed {seed}; calls: {calls:?}",
        begun.elapsed(),
        calls.len(),
        died.into_inner()
    );
    if !wrong.is_empty() {
        let kept = dir.keep();
        panic!("{} cases went wrong, see {}: {}", wrong.len(), kept.display(), wrong.join("\n"));
    }
}
