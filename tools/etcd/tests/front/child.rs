//! A server in a process of its own: what it logs, the signals it gets, how it ends.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

/// What has not happened by then will not happen.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// A server, killed with this.
pub(crate) struct Spawned {
    pub(crate) address: SocketAddr,
    pub(crate) child: Child,
    log: Receiver<Value>,
    reader: JoinHandle<()>,
}

/// Each line of its log, as it comes. Read by a thread: nothing waits for the test. It ends when nobody listens.
fn read(log: ChildStderr) -> (Receiver<Value>, JoinHandle<()>) {
    let (to, lines) = channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
            if to.send(line).is_err() {
                return;
            }
        }
    });
    (lines, reader)
}

impl Spawned {
    /// Starts one, and waits until it serves.
    pub(crate) fn start(directory: &Path, flags: &[String]) -> Self {
        let mut this = Self::begin(directory, flags);
        let serves = this.wait_for("serving client traffic");
        this.address = serves["address"].as_str().unwrap().parse().unwrap();
        this
    }

    /// Starts one.
    pub(crate) fn begin(directory: &Path, flags: &[String]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_annals-etcd"));
        if !flags.iter().any(|flag| flag.starts_with("--listen-client-urls")) {
            command.arg("--listen-client-urls=http://127.0.0.1:0");
        }
        let mut child = command
            .env_clear()
            .env("ETCD_DATA_DIR", directory)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (log, reader) = read(child.stderr.take().unwrap());
        Self { address: SocketAddr::from(([0; 4], 0)), child, log, reader }
    }

    /// The next line of the log that begins so.
    pub(crate) fn wait_for(&self, text: &str) -> Value {
        let end = Instant::now() + LONG;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.log.recv_timeout(left) else { panic!("{text:?} was not said") };
            if line["msg"].as_str().is_some_and(|msg| msg.starts_with(text)) {
                return line;
            }
        }
    }

    /// The next line of the log.
    pub(crate) fn next_line(&self) -> Value {
        self.log.recv_timeout(LONG).unwrap()
    }

    /// Listens to it no more: what it says is written to nobody. Done when this says so, which takes a line of the log.
    pub(crate) fn is_unheard(&mut self) -> bool {
        drop(self.child.stdout.take());
        self.log = channel().1;
        self.reader.is_finished()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        kill.args([&format!("-{name}"), &self.child.id().to_string()]);
        assert!(kill.status().unwrap().success());
    }

    /// Waits until it has ended.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        while begun.elapsed() < LONG {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end");
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
