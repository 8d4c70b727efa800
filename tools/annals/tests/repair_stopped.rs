//! A repair that is stopped: whatever is there then is no store, or the whole one, and the next one says what to do.
//!
//! `strace` stops it at a call of the system, or lets that fail as on a full disk; without `strace` a limit of the
//! length of files does, at fewer places. `ANNALS_REPAIR_STOPS=n` sets how many places are tried (0: all).
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and says what it skipped"
)]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{SMALL, Tool};

/// The calls by which files come to be what they are.
const CALLS: &str = "openat,mkdir,write,pwrite64,copy_file_range,sendfile,ftruncate,fsync,fdatasync,rename,unlink,\
                     unlinkat,rmdir,flock";

/// What is damaged, and in how many files: the log, the past, or newest versions that nothing else has, so that a copy is made; or
/// the same in two files, so that the store is rebuilt.
const DAMAGES: [(&str, &str, usize); 4] =
    [("wal", ".wal", 1), ("seg", ".head", 1), ("seg", ".head", 2), ("seg", ".hist", 1)];

/// A store of which something is damaged.
fn damaged(directory: &str, ending: &str, count: usize) -> Tool {
    let tool = Tool::new();
    let file = tool.file("h.jsonl", common::history(3000, 400, 200));
    let options = [&SMALL[..], &["-O", "event_value_bytes=0"]].concat();
    tool.ok(&[&options[..], &["import", "history", &file]].concat());
    for n in 0..5 {
        tool.ok(&["put", "/last", &n.to_string()]);
    }
    let entries = std::fs::read_dir(tool.store().join(directory)).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_str().unwrap().ends_with(ending));
    paths.sort();
    assert!(paths.len() >= count, "{paths:?}");
    for path in &paths[..count] {
        let mut content = std::fs::read(path).unwrap();
        content[200] ^= 0x55;
        std::fs::write(path, content).unwrap();
    }
    tool.run(&["verify"]).code(3);
    tool
}

fn strace(tool: &Tool, to: &Path, options: &[&str]) -> Output {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq"]).args(options).arg(env!("CARGO_BIN_EXE_annals"));
    command.arg("-C").arg(tool.store()).arg("repair").arg("--to").arg(to);
    command.stdin(Stdio::null()).output().unwrap()
}

/// Runs a command line on another store than the tool's.
fn run(store: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_annals"));
    command.arg("-C").arg(store).args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn refused(done: &Output, why: &str) {
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(1) && said.contains(why), "{:?} {said}", done.status);
}

/// Whether a repair has made a store, be it without all that was committed.
fn has_made(done: &Output) -> bool {
    matches!(done.status.code(), Some(0 | 9))
}

/// What a directory is, after whatever happened to the repair: answers whether it is a store.
fn look(tool: &Tool, to: &Path, case: &str, again: bool) -> bool {
    let store = to.to_str().unwrap();
    let names = std::fs::read_dir(to).map_or(Vec::new(), |entries| {
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    });
    let opened = run(to, &["range", "--limit", "1"]);
    let verified = run(to, &["verify"]);
    let code = |done: &Output| done.status.code();
    if names.iter().all(|name| name == "LOCK") {
        // Nothing is there yet, or no more.
        assert_eq!((code(&opened), code(&verified)), (Some(1), Some(1)), "{case}: {names:?}");
    } else if names.iter().any(|name| name == "LOADING") {
        for done in [opened, verified, run(to, &["put", "a", "b"])] {
            refused(&done, "was not finished: remove it");
        }
        let said = tool.run(&["repair", "--to", store]).code(1);
        said.says("it holds a store that was not finished: remove it before another try");
        if again {
            std::fs::remove_dir_all(to).unwrap();
        }
    } else {
        assert_eq!((code(&opened), code(&verified)), (Some(0), Some(0)), "{case}: {names:?}");
        // No version that has no value, as that is lost.
        let bare = run(to, &["range", "-o", "ndjson"]);
        let bare = String::from_utf8_lossy(&bare.stdout).matches("\"value\":\"\"").count();
        assert_eq!(bare, 0, "{case}");
        return true;
    }
    if again {
        assert!(has_made(&tool.run(&["repair", "--to", store]).0));
        assert!(run(to, &["verify"]).status.success());
    }
    false
}

#[test]
fn of_the_log_stopped_at_any_call() {
    stopped_at_any_call(DAMAGES[0]);
}

#[test]
fn of_newest_versions_stopped_at_any_call() {
    stopped_at_any_call(DAMAGES[1]);
}

#[test]
fn of_two_files_stopped_at_any_call() {
    stopped_at_any_call(DAMAGES[2]);
}

#[test]
fn of_the_past_stopped_at_any_call() {
    stopped_at_any_call(DAMAGES[3]);
}

fn stopped_at_any_call((directory, ending, count): (&str, &str, usize)) {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("there is no strace");
        return;
    }
    let wanted = std::env::var("ANNALS_REPAIR_STOPS").map_or(16, |n| n.parse::<usize>().unwrap());
    let mut outcomes = BTreeMap::new();
    let tool = damaged(directory, ending, count);
    let before = tool.snapshot();
    let log = tool.path("calls");
    let traced = strace(
        &tool,
        &tool.path("whole"),
        &["-e", &format!("trace={CALLS}"), "-o", log.to_str().unwrap()],
    );
    assert!(has_made(&traced), "{}", String::from_utf8_lossy(&traced.stderr));
    // Before the first is made, nothing is.
    let calls = std::fs::read_to_string(&log).unwrap();
    let mut made: BTreeMap<&str, usize> = BTreeMap::new();
    let mut places = Vec::new();
    let mut begun = false;
    for line in calls.lines() {
        let Some((_, call)) = line.split_once(' ') else { continue };
        let Some((name, _)) = call.trim_start().split_once('(') else { continue };
        let nth = made.entry(name).or_default();
        *nth += 1;
        begun |= name == "mkdir" && line.contains("whole");
        if begun {
            places.push((name, *nth));
        }
    }
    let stride = if wanted == 0 { 1 } else { places.len().div_ceil(wanted) };
    for (n, (call, nth)) in places.iter().step_by(stride).enumerate() {
        for fault in ["signal=KILL", "error=ENOSPC"] {
            let case = format!("{count} {ending}: {call} {nth}: {fault}");
            let to = tool.path("to");
            let inject = format!("inject={call}:{fault}:when={nth}+");
            let done = strace(&tool, &to, &["-e", &inject, "-o", "/dev/null"]);
            let is_store = look(&tool, &to, &case, n % 8 == 0);
            assert!(is_store || !has_made(&done), "{case}");
            *outcomes.entry((fault, is_store)).or_insert(0) += 1;
            let _ = std::fs::remove_dir_all(&to);
        }
    }
    assert_eq!(tool.snapshot(), before, "the original");
    println!("{count} {ending}: what was stopped how, and whether there was a store: {outcomes:?}");
}

#[test]
fn stopped_by_a_limit() {
    let (mut stopped, mut whole) = (0, 0);
    for (directory, ending, count) in DAMAGES {
        let tool = damaged(directory, ending, count);
        for (signal, limit) in
            [0, 1, 8, 32, 96, 1024].iter().flat_map(|n| [("", n), ("trap '' XFSZ;", n)])
        {
            let to = tool.path("to");
            let script = format!("{signal} ulimit -f {limit}; exec \"$@\"");
            let mut command = Command::new("sh");
            command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_annals"), "-C"]);
            command.arg(tool.store()).arg("repair").arg("--to").arg(&to);
            let done = command.stdin(Stdio::null()).output().unwrap();
            let is_store = look(&tool, &to, &format!("{ending}: {script}"), *limit == 8);
            assert_eq!(is_store, has_made(&done), "{script}");
            *(if is_store { &mut whole } else { &mut stopped }) += 1;
            let _ = std::fs::remove_dir_all(&to);
        }
    }
    assert!(stopped > 0 && whole > 0);
    println!("{stopped} stopped, {whole} whole");
}

#[test]
fn two_at_once() {
    let tool = damaged("wal", ".wal", 1);
    let to = tool.path("to");
    let arguments = ["repair", "--to", to.to_str().unwrap()];
    for _ in 0..8 {
        let children: Vec<_> = (0..3).map(|_| tool.command(&arguments).spawn().unwrap()).collect();
        let done: Vec<_> =
            children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        let codes: Vec<_> = done.iter().map(|done| done.status.code().unwrap()).collect();
        let well = codes.iter().filter(|code| **code == 0).count();
        assert_eq!(well, 1, "{codes:?} {done:?}");
        assert!(codes.iter().all(|code| [0, 1, 2, 4].contains(code)), "{codes:?}");
        assert!(run(&to, &["verify"]).status.success());
        std::fs::remove_dir_all(&to).unwrap();
    }
}
