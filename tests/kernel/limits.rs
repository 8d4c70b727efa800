//! K5: no room, no descriptors, no memory. Each call that fails says so, or the process ends as the system
//! ends such processes; and the store opens with everything that was acknowledged.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::disk::{Skip, Tmpfs};
use crate::kill::session;
use crate::oracle::Oracle;
use crate::process::{Ended, Running, command};
use crate::session::{number, setting};
use crate::sys;
use crate::syscalls::judge;

/// Takes on the limits that the parent has set for this process.
pub fn take_on() {
    if number("IGNORE", 0) == 1 {
        sys::ignore_file_size_signal();
    }
    for (name, resource) in
        [("FSIZE", libc::RLIMIT_FSIZE), ("NOFILE", libc::RLIMIT_NOFILE), ("AS", libc::RLIMIT_AS)]
    {
        let Some(mut to) = setting(name).and_then(|text| text.parse().ok()) else { continue };
        if name == "AS" {
            // As much more than there is already.
            let pages = fs::read_to_string("/proc/self/statm").unwrap();
            to += pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096;
        }
        sys::limit(resource, to).unwrap();
    }
    if let Some(group) = setting("CGROUP") {
        fs::write(Path::new(&group).join("cgroup.procs"), "0").unwrap();
        // Ends by itself, if nobody ends it.
        std::thread::spawn(|| {
            let mut hog = Vec::new();
            while hog.len() < 400 {
                hog.push(vec![1_u8; 1 << 20]);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
    }
}

/// A session with limits; lets it go on until nothing is acknowledged any more, or for a while.
fn limited(oracle: &Oracle, number: u64, limits: &[(&str, &str)]) -> Ended {
    let mut command = crate::kill::command_of(oracle, number);
    for (name, value) in limits {
        command.env(format!("ANNALS_KERNEL_{name}"), value);
    }
    let mut running = Running::start(command);
    let until = Instant::now() + Duration::from_millis(400);
    while Instant::now() < until && !running.has_ended() {
        std::thread::sleep(Duration::from_millis(2));
    }
    running.end(Duration::from_secs(60)).unwrap_or_else(|| panic!("{limits:?}: it hangs"))
}

/// Names and values of limits, and by which signals they may end a process.
type Case = (&'static [(&'static str, &'static str)], &'static [i32]);

/// Without limits it goes on.
fn goes_on(oracle: &mut Oracle, number: u64, case: &str) {
    let mut running = session(oracle, number);
    assert!(running.hears("A ", 5), "{case}: {:?}", running.kill());
    let ended = running.end(Duration::from_secs(60)).unwrap();
    assert!(ended.heard.errors.is_empty() && ended.heard.ended, "{case}: {ended:?}");
    oracle.verify(&ended.heard, number).unwrap_or_else(|wrong| panic!("{case}: {wrong}"));
}

#[test]
fn a_full_disk_takes_nothing_back() {
    let tmpfs = match Tmpfs::new("2m") {
        Ok(tmpfs) => tmpfs,
        Err(why) => return println!("the full disk skipped: {why}"),
    };
    let mut oracle = Oracle::new(tmpfs.path().join("store"));
    let filler = tmpfs.path().join("filler");
    let mut refused = 0;
    for round in 0..4 {
        // All but so much is taken.
        fs::write(&filler, vec![1; [900 << 10, 600 << 10, 300 << 10, 0][round]]).unwrap();
        let number = round as u64 * 2 + 1;
        let mut running = session(&oracle, number);
        // Each of four threads tries four times; if the store could not even be opened, once.
        while !running.has_ended() && !running.hears_now("E ", 16) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let ended = running.end(Duration::from_secs(60)).expect("a full disk is no reason to hang");
        let case = format!("round {round}");
        ended.is_orderly(&[]).unwrap_or_else(|why| panic!("{case}: {why}"));
        assert!(!ended.heard.errors.is_empty(), "{case}: {ended:?}");
        let said = &ended.heard.errors[0];
        assert!(said.contains("no space left"), "{case}: {said}");
        refused += ended.heard.errors.len();
        // A reader needs no room.
        oracle.verify(&ended.heard, 0).unwrap_or_else(|wrong| panic!("{case}: {wrong}"));
    }
    // There never was so much room that it could go on for long; now there is.
    drop(fs::remove_file(&filler));
    let larger = ["-o", "remount,size=20m"];
    let status = std::process::Command::new("mount").args(larger).arg(tmpfs.path()).status();
    assert!(status.is_ok_and(|status| status.success()));
    goes_on(&mut oracle, 10, "with room");
    println!("full disks: {refused} calls refused, {} commits there", oracle.acknowledged);
}

#[test]
fn limits_of_the_process_take_nothing_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut oracle = Oracle::new(dir.path().join("store"));
    goes_on(&mut oracle, 1, "at first");
    let mut number = 2;
    let (mut refused, mut ended_by) = (0, 0);
    let cases: &[Case] = &[
        // A file that is too long for its limit is an error where the signal is ignored, else the end.
        (&[("FSIZE", "4096"), ("IGNORE", "1")], &[]),
        (&[("FSIZE", "30000"), ("IGNORE", "1")], &[]),
        (&[("FSIZE", "65600"), ("IGNORE", "1")], &[]),
        (&[("FSIZE", "30000")], &[libc::SIGXFSZ]),
        (&[("FSIZE", "4096")], &[libc::SIGXFSZ]),
        (&[("NOFILE", "16")], &[]),
        (&[("NOFILE", "9")], &[]),
        (&[("NOFILE", "12")], &[]),
        (&[("NOFILE", "24")], &[]),
    ];
    for (limits, signals) in cases {
        let case = format!("{limits:?}");
        let ended = limited(&oracle, number, limits);
        ended.is_orderly(signals).unwrap_or_else(|why| panic!("{case}: {why}"));
        refused += ended.heard.errors.len();
        ended_by += usize::from(ended.status.signal().is_some());
        oracle.verify(&ended.heard, number).unwrap_or_else(|wrong| panic!("{case}: {wrong}"));
        goes_on(&mut oracle, number + 1, &case);
        number += 2;
    }
    println!(
        "limits: {} cases, {refused} calls refused, {ended_by} ended by a signal, {} commits there",
        cases.len(),
        oracle.acknowledged
    );
}

#[test]
fn a_process_without_memory_takes_nothing_back() {
    let dir = tempfile::tempdir().unwrap();
    let (mut died, mut refused) = (0, 0);
    let kilobytes = [0, 100, 300, 600, 1_000, 1_500, 2_000, 3_000, 4_000, 6_000, 10_000, 20_000];
    for more in kilobytes {
        let directory = dir.path().join(format!("store-{more}"));
        let mut command = command("sweep", &directory);
        command.env("ANNALS_KERNEL_AS", (more << 10).to_string());
        let ended = Running::start(command).end(Duration::from_secs(60)).expect("it ends");
        let verdict = judge(&ended, false, &directory);
        died += u32::from(verdict.unwrap_or_else(|why| panic!("{more} KiB: {why}")));
        refused += ended.heard.errors.len();
    }
    println!("without memory: {} sizes, {died} ended, {refused} calls refused", kilobytes.len());
}

/// A group of processes that may not take more memory than so much.
struct Group(PathBuf);

impl Group {
    fn new() -> Result<Self, Skip> {
        let name = format!("annals-kernel-{}", std::process::id());
        let bytes = "33554432";
        let kinds = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
            ("/sys/fs/cgroup/unified", "memory.max"),
        ];
        for (root, file) in kinds {
            let group = Path::new(root).join(&name);
            if fs::create_dir(&group).is_ok() {
                let group = Self(group);
                if fs::write(group.0.join(file), bytes).is_ok() {
                    return Ok(group);
                }
            }
        }
        Err("no group of processes with a limit of memory can be made here".to_owned())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            match fs::remove_dir(&self.0) {
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
                Ok(()) => return,
            }
        }
        eprintln!("{} is left", self.0.display());
    }
}

#[test]
fn a_process_that_is_ended_for_its_memory_takes_nothing_back() {
    let group = match Group::new() {
        Ok(group) => group,
        Err(why) => return println!("the limit of a group's memory skipped: {why}"),
    };
    let dir = tempfile::tempdir().unwrap();
    let mut oracle = Oracle::new(dir.path().join("store"));
    let mut ended_by = 0;
    for number in 1..5 {
        let mut command = crate::kill::command_of(&oracle, number);
        command.env("ANNALS_KERNEL_CGROUP", &group.0);
        let mut running = Running::start(command);
        let until = Instant::now() + Duration::from_secs(10);
        while !running.has_ended() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        let ended = running.end(Duration::from_secs(60)).expect("it ends");
        ended.is_orderly(&[libc::SIGKILL]).unwrap();
        ended_by += u32::from(ended.status.signal().is_some());
        oracle.verify(&ended.heard, number).unwrap();
    }
    println!(
        "a group's memory: 4 processes, {ended_by} ended, {} commits there",
        oracle.acknowledged
    );
}
