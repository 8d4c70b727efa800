//! A real etcd for tests: started on ports of its own with a directory of its own, gone when it is dropped.

#![allow(dead_code, reason = "each of those who share it uses a part")]

use std::process::{Command, Stdio};
use std::time::Duration;

use annals::object::{EtcdKv, EtcdOptions};
use tempfile::TempDir;

use crate::etcd_process::{EtcdProcess, Ports};

/// A member that is a cluster by itself.
pub struct Etcd {
    process: EtcdProcess,
    directory: TempDir,
    tls: Option<Tls>,
}

/// Certificates in PEM, in files.
#[derive(Clone)]
pub struct Tls {
    /// `--cert-file` and its like.
    pub arguments: Vec<String>,
    /// With which it is asked whether it answers.
    pub options: EtcdOptions,
}

/// The server: what the variable `ETCD` names, such as another version or `annals-etcd`, or that in the path.
fn server() -> std::ffi::OsString {
    std::env::var_os("ETCD").unwrap_or_else(|| "etcd".into())
}

/// Whether etcd is installed.
pub fn is_installed() -> bool {
    let version = Command::new(server()).arg("--version").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

fn directory() -> TempDir {
    // Nothing here is to survive: memory is faster.
    let memory = std::path::Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a temporary directory")
}

fn command(directory: &TempDir, ports: Ports, tls: Option<&Tls>) -> Command {
    let mut command = Command::new(server());
    command
        .arg("--data-dir")
        .arg(directory.path())
        .args(ports.flags_with(&endpoint(ports, tls)))
        .args(["--experimental-watch-progress-notify-interval", "100ms"])
        // It has nobody to agree with: as by default it would wait a second before it is its own leader.
        .args(["--heartbeat-interval", "10", "--election-timeout", "100"])
        .args(tls.map_or(&[][..], |tls| &tls.arguments));
    command
}

fn endpoint(ports: Ports, tls: Option<&Tls>) -> String {
    format!("http{}://127.0.0.1:{}", if tls.is_some() { "s" } else { "" }, ports.client)
}

fn answers(ports: Ports, tls: Option<&Tls>) -> bool {
    let options = tls.map_or_else(EtcdOptions::new, |tls| tls.options.clone());
    let options = options.request_time(Duration::from_millis(500));
    match EtcdKv::connect([endpoint(ports, tls)], options) {
        Ok(_) => true,
        // It wants to know who asks: so it is there.
        Err(error) => error.to_string().contains("user name is empty"),
    }
}

impl Etcd {
    /// Starts one, and waits until it answers.
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// As that, with certificates.
    pub fn start_with(tls: Option<Tls>) -> Self {
        let directory = directory();
        let start = |ports| command(&directory, ports, tls.as_ref());
        let process = EtcdProcess::start(start, |ports| answers(ports, tls.as_ref()));
        Self { process, directory, tls }
    }

    pub fn endpoint(&self) -> String {
        endpoint(self.process.ports, self.tls.as_ref())
    }

    /// Kills it, and leaves what it has written.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again with what it had written.
    pub fn restart(&mut self) {
        self.kill();
        let (ports, tls) = (self.process.ports, self.tls.as_ref());
        let command = command(&self.directory, ports, tls);
        let started = EtcdProcess::start_at(ports, command, |ports| answers(ports, tls));
        self.process = started.expect("it starts again");
    }
}

/// Has `etcdctl` do something; answers what it prints.
pub fn etcdctl(endpoint: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").args(["--endpoints", endpoint]).args(arguments);
    let output = command.output().expect("etcdctl runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
