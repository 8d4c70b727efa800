//! `etcdctl` against a real etcd and against this server: the same lines of shell, equal outputs and exit codes.
//!
//! Skipped, with a message, where `etcd` or `etcdctl` is not installed. Left out of the comparison are numbers that are
//! drawn (cluster, member, lease: each is called by when it first came), terms and indexes of raft, sizes, versions,
//! addresses and the log lines of `etcdctl`; whatever else may differ is named in `ALLOWED`. `ANNALS_ETCDCTL=kv` runs
//! one script; `check`, which takes minutes, runs only so.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test stops where it fails, and says what it skipped"
)]

#[path = "../../../../tests/support/etcd_process.rs"]
mod etcd_process;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use etcd_process::{EtcdProcess, Ports};
use regex::Regex;
use tempfile::TempDir;

/// Lines whose outputs differ, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("lines 1 etcdctl watch a --rev=2 -w json", HEAD_OF_THE_PAST),
    ("lines 1 etcdctl watch a --prefix --rev=2 --prev-kv -w json", HEAD_OF_THE_PAST),
    ("lines 20 etcdctl watch a --rev=2 -w fields", HEAD_OF_THE_PAST),
    (
        "etcdctl endpoint hashkv --rev=6 -w fields",
        "3.4 refuses the revision of the compaction, 3.5 and later hash it",
    ),
    (
        "etcdctl --user alice:pw snapshot save alice.db",
        "3.4 forgets to translate this one error of its own",
    ),
];

/// etcd puts the store's newest revision over events of the past though it has not told all up to there; here it is the
/// revision up to which all was told.
const HEAD_OF_THE_PAST: &str = "the head's revision is that of the last event told";

/// Given to each line: `lines N COMMAND` ends a command by a signal when it has said so much, `mirror N OPTIONS` a
/// mirror to the other server when that has so many keys. Beside them `said N` waits until the command has said so much,
/// `watched` until the server has a watch (`unwatched` none, before).
const PRELUDE: &str = r#"
export ETCDCTL_API=3 ETCDCTL_ENDPOINTS OTHER ETCDCTL_COMMAND_TIMEOUT=40s ETCDCTL_DIAL_TIMEOUT=20s
rm -f out.lines
until_true() { for i in $(seq 1200); do "$@" && return; sleep 0.05; done; }
end() { kill -TERM $1 2>/dev/null; wait $1 2>/dev/null; }
has_said() { [ -e out.lines ] && [ $(wc -l < out.lines) -ge $1 ]; }
said() { until_true has_said $1; }
has_watch() { curl -s $ETCDCTL_ENDPOINTS/metrics | grep -q "^etcd_debugging_mvcc_watcher_total $1"; }
watched() { if command -v curl > curl.path; then until_true has_watch '[1-9]'; else sleep 2; fi; }
unwatched() { if command -v curl > curl.path; then until_true has_watch 0; fi; }
lines() {
    count=$1; shift
    "$@" <&0 > out.lines 2>&1 & child=$!
    said $count
    sleep 0.3; end $child; cat out.lines
}
has_keys() { [ $(ETCDCTL_ENDPOINTS=$OTHER etcdctl get "" --prefix --keys-only | grep -c .) -ge $1 ]; }
mirror() {
    count=$1; shift
    etcdctl make-mirror "$@" $OTHER > out.mirror 2>&1 & child=$!
    until_true has_keys $count
    sleep 0.3; end $child; cat out.mirror
}
"#;

/// A server in a process of its own.
struct Server {
    process: EtcdProcess,
    _directory: TempDir,
}

impl Server {
    /// Starts `program`, which takes etcd's flags.
    fn start(program: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let command = |ports: Ports| {
            let mut command = Command::new(program);
            command.arg("--data-dir").arg(directory.path().join("data")).args(ports.flags());
            command
        };
        let process = EtcdProcess::start(command, Ports::are_healthy);
        Self { process, _directory: directory }
    }
}

/// Replaces what may be different.
struct Plain {
    found: Vec<String>,
    ids: Regex,
    /// The keys of a lease, which etcd tells in any order.
    keys: Regex,
    others: Vec<(Regex, &'static str)>,
}

impl Plain {
    fn new() -> Self {
        let others = [
            (r#"(?m)^\{"level":.*\n?"#, ""),
            (r"127\.0\.0\.1:\d+", "ADDRESS"),
            (
                r#""(raft_term|raftTerm|raftIndex|raftAppliedIndex|dbSize|dbSizeInUse|IsLearner)":[0-9a-z]+"#,
                "\"$1\":N",
            ),
            (r#""(RaftTerm|RaftIndex|RaftAppliedIndex)" : \d+"#, "\"$1\" : N"),
            (r#""version":"3[0-9.]+""#, "\"version\":V"),
            (r#""Version" : "3[0-9.]+""#, "\"Version\" : V"),
            (r"took( =)? [0-9.]+(ms|s|µs)", "took TIME"),
            (r"remaining\([0-9]+s\)", "remaining(TIME)"),
            (r#""ttl":[0-9]+"#, "\"ttl\":TIME"),
        ];
        let others = others.map(|(from, to)| (Regex::new(from).unwrap(), to));
        // Decimal, hexadecimal with and without leading zeros: of those that are drawn one in 4096 has three.
        let ids = Regex::new(r"\b([0-9]{17,20}|[0-9a-f]{11,16})\b").unwrap();
        let keys = Regex::new(r#"attached keys\(\[([^\]]*)\]\)|"keys":\[([^\]]*)\]"#).unwrap();
        Self { found: Vec::new(), ids, keys, others: others.into() }
    }

    fn of(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (from, to) in &self.others {
            text = from.replace_all(&text, *to).into_owned();
        }
        let sorted = self.keys.replace_all(&text, |found: &regex::Captures<'_>| {
            let list = found.get(1).or(found.get(2)).map_or("", |list| list.as_str());
            let mut keys: Vec<_> = list.split([' ', ',']).collect();
            keys.sort_unstable();
            format!("keys {keys:?}")
        });
        let text = sorted.into_owned();
        let found = &mut self.found;
        let named = self.ids.replace_all(&text, |id: &regex::Captures<'_>| {
            // One number in both spellings. Sixteen characters are hexadecimal, even if all are digits, unless they are an
            // id that annals-etcd picks.
            let picked = (1 << 52)..(1 << 53);
            let decimal = id[0].parse::<u64>().ok();
            let decimal = decimal.filter(|n| id[0].len() > 16 || picked.contains(n));
            let hexadecimal = || id[0].trim_start_matches('0').to_owned();
            let id = decimal.map_or_else(hexadecimal, |number| format!("{number:x}"));
            let place = found.iter().position(|known| *known == id).unwrap_or_else(|| {
                found.push(id);
                found.len() - 1
            });
            format!("ID{place}")
        });
        named.into_owned()
    }
}

/// Runs a script; what each line said, and how it ended.
fn run(program: &str, script: &str) -> Vec<String> {
    let server = Server::start(program);
    let other = script.contains("OTHER").then(|| Server::start(program));
    let directory = tempfile::tempdir().unwrap();
    let mut plain = Plain::new();
    let lines = script.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let said = lines.map(|line| {
        let done = Command::new("timeout")
            .args(["150", "sh", "-c", &format!("{PRELUDE}\n{line}")])
            .current_dir(&directory)
            .env("ETCDCTL_ENDPOINTS", server.process.url())
            .env("OTHER", other.as_ref().map_or_else(String::new, |other| other.process.url()))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        let text = format!("{out}{err}exit {:?}", done.status.code());
        plain.of(&text)
    });
    said.collect()
}

fn is_there(program: &str) -> bool {
    let mut asked = Command::new(program);
    asked.arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Plays a script on both.
fn play(name: &str) {
    let wanted = std::env::var("ANNALS_ETCDCTL").ok();
    if wanted.as_deref().unwrap_or(if name == "check" { "others" } else { name }) != name {
        return;
    }
    if !is_there("etcd") || !is_there("etcdctl") {
        println!(
            "skipped: no etcd and etcdctl here (Debian: apt-get install etcd-server etcd-client)"
        );
        return;
    }
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/etcdctl/scripts/{name}.txt"));
    let script = fs::read_to_string(path).unwrap();
    let (real, ours) = thread::scope(|scope| {
        let real = scope.spawn(|| run("etcd", &script));
        let ours = run(env!("CARGO_BIN_EXE_annals-etcd"), &script);
        (real.join().unwrap(), ours)
    });
    let lines = script.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let mut wrong = String::new();
    for (line, (real, ours)) in lines.zip(real.iter().zip(&ours)) {
        if real != ours && !ALLOWED.iter().any(|(allowed, _)| *allowed == line) {
            let _ = writeln!(wrong, "$ {line}\n--- etcd\n{real}\n--- annals-etcd\n{ours}\n");
        }
    }
    assert!(wrong.is_empty(), "{name}:\n{wrong}");
}

#[test]
fn keys_and_values() {
    play("kv");
}

#[test]
fn transactions() {
    play("txn");
}

#[test]
fn watches() {
    play("watch");
}

#[test]
fn leases() {
    play("lease");
}

#[test]
fn maintenance_and_cluster() {
    play("cluster");
}

#[test]
fn locks_and_elections() {
    play("lock");
}

#[test]
fn users_and_roles() {
    play("auth");
}

#[test]
fn checks_of_performance() {
    play("check");
}

#[test]
fn mirrors() {
    play("mirror");
}
