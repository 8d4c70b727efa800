//! The tool beside a writer in another process, which writes, rolls its log, folds, compacts, closes and opens, and is
//! killed in between: no false damage, no mix of two moments, no hang.
//!
//! `ANNALS_BESIDE_ROUNDS=n` sets how many commands are tried, `ANNALS_BESIDE_SEED=n` which.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use annals::{ErrorKind, Options, delete, put, txn};
use common::Tool;
use serde_json::Value;

/// Says where the child is to write.
const DIRECTORY: &str = "ANNALS_BESIDE_DIRECTORY";
const KEYS: u64 = 40;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// A sequence of numbers that look as if drawn.
struct Draw(u64);

impl Draw {
    fn below(&mut self, count: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }

    fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }
}

fn options() -> Options {
    Options::new()
        .memtable_bytes(16 << 10)
        .wal_bytes(64 << 10)
        .segment_bytes(8 << 10)
        .block_bytes(512)
        .l0_files_max(2)
        .history_windows_max(3)
}

/// Not a test: the writer, where it is told so. What is under `a/` is under `b/`, too, of the same revision.
#[test]
fn writer() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let mut draw = Draw(u64::from(std::process::id()));
    loop {
        let store = match options().open(&directory) {
            Ok(store) => store,
            // The one before was killed just now.
            Err(error) if matches!(error.kind(), ErrorKind::Locked { .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        for _ in 0..draw.below(400) {
            let n = draw.below(KEYS);
            let (a, b) = (format!("a/{n:03}"), format!("b/{n:03}"));
            let value = format!("{}{}", draw.below(1 << 30), "x".repeat(draw.index(300)));
            match draw.below(20) {
                0 => drop(store.transact(txn().then([delete(&a), delete(&b)])).unwrap()),
                1 => store.flush().unwrap(),
                2 if draw.below(4) == 0 => {
                    let revision = store.revision();
                    match store.compact(revision - draw.below(revision.min(300))) {
                        Ok(_) => {}
                        Err(error) => {
                            assert!(matches!(error.kind(), ErrorKind::Compacted { .. }), "{error}");
                        }
                    }
                }
                3 if draw.below(8) == 0 => store.reorganise().unwrap(),
                _ => drop(store.transact(txn().then([put(&a, &value), put(&b, &value)])).unwrap()),
            }
        }
        store.close().unwrap();
    }
}

fn start(directory: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "writer", "--nocapture"]).env(DIRECTORY, directory);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Ends the writer; it must not have ended by itself.
fn kill(mut child: Child, case: &str) {
    let ended = child.try_wait().unwrap();
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(ended.is_none(), "{case}: the writer: {}", String::from_utf8_lossy(&output.stderr));
}

/// Waits for a command, which must not hang; maybe kills the writer meanwhile.
fn finish(mut command: Command, case: &str, after: Duration, writer: &mut Option<Child>) -> Output {
    let begun = Instant::now();
    let output = tempfile::tempfile().unwrap();
    let errors = tempfile::tempfile().unwrap();
    command.stdout(output.try_clone().unwrap()).stderr(errors.try_clone().unwrap());
    let mut child = command.spawn().unwrap();
    let mut limit = after;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            let read = |mut file: std::fs::File| {
                use std::io::{Read as _, Seek as _};
                let mut all = Vec::new();
                file.rewind().unwrap();
                file.read_to_end(&mut all).unwrap();
                all
            };
            return Output { status, stdout: read(output), stderr: read(errors) };
        }
        if begun.elapsed() > limit {
            limit = Duration::MAX;
            if let Some(writer) = writer.take() {
                kill(writer, case);
            }
        }
        if begun.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("{case}: it hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What is there is of one moment: the same under `a/` and `b/`.
fn is_of_one_moment(text: &[u8], case: &str) {
    let mut halves: [BTreeMap<String, (Value, Value)>; 2] = Default::default();
    for line in String::from_utf8_lossy(text).lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let Some(key) = line["key"].as_str() else { continue };
        let (half, rest) = key.split_once('/').unwrap();
        let what = (line["value"].clone(), line["mod_revision"].clone());
        halves[usize::from(half == "b")].insert(rest.to_owned(), what);
    }
    assert_eq!(halves[0], halves[1], "{case}");
}

#[test]
fn the_tool_beside_a_writer_that_is_killed() {
    if std::env::var(DIRECTORY).is_ok() {
        return;
    }
    let commands: [&[&str]; 13] = [
        &["verify"],
        &["verify"],
        &["range", "-o", "ndjson"],
        &["dump", "--wal", "-o", "ndjson"],
        &["dump", "--manifest", "-o", "json"],
        &["inspect", "-o", "json"],
        &["backup"],
        &["backup"],
        &["checkpoint"],
        &["log", "-o", "ndjson"],
        &["hash", "-o", "json"],
        &["stats", "-o", "json"],
        &["export"],
    ];
    let (rounds, seed) = (number("ANNALS_BESIDE_ROUNDS", 30), number("ANNALS_BESIDE_SEED", 1));
    let tool = Tool::new();
    let store = tool.store();
    drop(options().open(&store).unwrap());
    let mut writer: Option<Child> = None;
    let (mut kills, mut odd) = (0, Vec::new());
    let mut draw = Draw(seed);
    for round in 0..rounds {
        let arguments = commands[draw.index(commands.len())];
        let case = format!("round {round} (seed {seed}): {}", arguments.join(" "));
        let mut running = Some(writer.take().unwrap_or_else(|| start(&store)));
        std::thread::sleep(Duration::from_millis(draw.below(60)));
        let after =
            Duration::from_millis(if draw.below(2) == 0 { draw.below(40) } else { 600_000 });
        let made = tool.path("made");
        let mut all = arguments.to_vec();
        if matches!(arguments[0], "backup" | "checkpoint") {
            all.push(made.to_str().unwrap());
        }
        let done = finish(tool.command(&all), &case, after, &mut running);
        kills += u64::from(running.is_none());
        writer = running;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        if done.status.success() {
            match arguments[0] {
                "range" => is_of_one_moment(&done.stdout, &case),
                "backup" | "checkpoint" => {
                    let other = Tool::new();
                    if arguments[0] == "backup" {
                        other.ok(&["restore", made.to_str().unwrap()]);
                    } else {
                        std::fs::rename(&made, other.store()).unwrap();
                    }
                    other.ok(&["verify"]);
                    is_of_one_moment(other.ok(&["range", "-o", "ndjson"]).as_bytes(), &case);
                }
                _ => {}
            }
        } else {
            assert!(!said.contains("damage") && done.status.code() != Some(3), "{case}: {said}");
            odd.push(format!("{case}: {:?} {said}", done.status.code()));
        }
        let _ = std::fs::remove_dir_all(&made);
        let _ = std::fs::remove_file(&made);
    }
    if let Some(writer) = writer {
        kill(writer, "the end");
    }
    tool.ok(&["verify"]);
    println!("{rounds} commands, {kills} kills, {} refused: {odd:#?}", odd.len());
}
