//! The binary: its log, its signals, its exit codes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::child::Spawned;
use crate::common::{Answer, request};

fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_annals-etcd"));
    command.env_clear();
    command
}

#[test]
fn it_says_what_scripts_wait_for_and_ends_by_a_signal() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    let mut child = binary()
        .args([
            "-name",
            "m1",
            "--listen-client-urls",
            "http://127.0.0.1:0",
            "--frob",
            "--snapshot-count=5",
        ])
        .env("ETCD_DATA_DIR", directory.path().join("data"))
        .env("NOTIFY_SOCKET", &socket)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut wait_for = |text: &str| {
        loop {
            let line = lines.next().unwrap_or_else(|| panic!("{text:?} was not said")).unwrap();
            let value: Value =
                serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"));
            if value["msg"] == text {
                return value;
            }
        }
    };
    assert_eq!(wait_for("this setting is unknown and is ignored")["setting"], "frob");
    wait_for("ready to serve client requests");
    wait_for("serving client traffic insecurely; this is strongly discouraged!");
    let mut told = [0; 32];
    let length = manager.recv(&mut told).unwrap();
    assert_eq!(&told[..length], b"READY=1");
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    wait_for("closed etcd server");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // The store was closed: nothing has to be read again.
    let store = annals::Store::open(directory.path().join("data/store")).unwrap();
    assert_eq!(store.stats().incarnation, 1);
}

#[test]
fn one_that_says_nothing_serves_as_the_others_do() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    for level in ["debug", "warn", "error", "fatal"] {
        let mut child = binary()
            .args(["--log-level", level, "--listen-client-urls"])
            .arg(format!("unix://{}", socket.display()))
            .env("ETCD_DATA_DIR", directory.path().join(level))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stream = loop {
            if let Ok(stream) = UnixStream::connect(&socket) {
                break stream;
            }
            assert_eq!(child.try_wait().unwrap(), None, "{level}");
            std::thread::sleep(Duration::from_millis(10));
        };
        (&stream).write_all(&request("GET /health", &[], "")).unwrap();
        assert_eq!(Answer::read(&stream).unwrap().status, 200, "{level}");
        let killed = Command::new("kill").arg(child.id().to_string()).status().unwrap();
        assert!(killed.success());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{level}");
    }
}

#[test]
fn a_wrong_line_is_refused() {
    let wrong = binary().args(["--max-txn-ops", "many"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let open = binary().args(["--listen-client-urls", "http://0.0.0.0:0"]).output().unwrap();
    assert_eq!(open.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&open.stderr).contains("--allow-insecure-network"));
    let version = binary().arg("--version").output().unwrap();
    assert!(version.status.success());
    assert!(String::from_utf8_lossy(&version.stdout).starts_with("etcd Version: 3."));
}

/// Without users nobody is asked who asks, which a restored backup of a server that had some must not hide.
#[test]
fn a_store_that_came_without_users_is_told_of_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = annals::Store::open(directory.path().join("store")).unwrap();
    store.put("/secret", "1").unwrap();
    store.close().unwrap();
    for (was_here, expected) in [(false, true), (true, false)] {
        let mut server = Spawned::begin(directory.path(), &[]);
        let mut told = false;
        loop {
            let line = server.next_line();
            let said = line["msg"].as_str().unwrap_or_default();
            told |= said.starts_with("the store is not new, and no users came with it");
            if said.starts_with("serving client traffic") {
                break;
            }
        }
        assert_eq!(told, expected, "was here before: {was_here}");
        server.signal("TERM");
        assert!(server.ended().success());
    }
}

#[test]
fn a_damaged_store_is_refused_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = annals::Store::open(&path).unwrap();
    for n in 0..20 {
        store.put("/k", n.to_string()).unwrap();
    }
    store.close().unwrap();
    let wal = std::fs::read_dir(path.join("wal")).unwrap().map(|file| file.unwrap().path());
    let wal = wal.min().unwrap();
    let mut bytes = std::fs::read(&wal).unwrap();
    bytes[4200] ^= 1;
    std::fs::write(&wal, bytes).unwrap();
    let refused = binary().arg("--data-dir").arg(directory.path()).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains(&format!("`annals -C {} verify`", path.display())), "{said}");
}
