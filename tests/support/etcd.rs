//! A real etcd for tests: started on ports of its own with a directory of its own, gone when it is dropped.

#![allow(dead_code, reason = "each of those who share it uses a part")]

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use annals::object::{EtcdKv, EtcdOptions};
use tempfile::TempDir;

/// Long enough for an etcd to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A member that is a cluster by itself.
pub struct Etcd {
    child: Child,
    port: u16,
    peer: u16,
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

/// A port that nobody has just now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of this machine");
    listener.local_addr().expect("its address").port()
}

fn directory() -> TempDir {
    // Nothing here is to survive: memory is faster.
    let memory = std::path::Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a temporary directory")
}

fn url(port: u16, tls: Option<&Tls>) -> String {
    format!("http{}://127.0.0.1:{port}", if tls.is_some() { "s" } else { "" })
}

fn run(directory: &TempDir, port: u16, peer: u16, tls: Option<&Tls>) -> Child {
    let (client, peer) = (url(port, tls), url(peer, None));
    let null = Stdio::null;
    Command::new(server())
        .arg("--data-dir")
        .arg(directory.path())
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .args(["--experimental-watch-progress-notify-interval", "100ms"])
        // It has nobody to agree with: as by default it would wait a second before it is its own leader.
        .args(["--heartbeat-interval", "10", "--election-timeout", "100"])
        .args(tls.map_or(&[][..], |tls| &tls.arguments))
        .stdin(null())
        .stdout(null())
        .stderr(null())
        .spawn()
        .expect("etcd is started")
}

impl Etcd {
    /// Starts one, and waits until it answers.
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// As that, with certificates.
    pub fn start_with(tls: Option<Tls>) -> Self {
        // Somebody else may take a port between its choice and its use.
        loop {
            let (directory, port, peer) = (directory(), free_port(), free_port());
            let child = run(&directory, port, peer, tls.as_ref());
            let mut etcd = Self { child, port, peer, directory, tls: tls.clone() };
            if etcd.wait() {
                return etcd;
            }
        }
    }

    /// Waits until it answers; answers whether it does.
    fn wait(&mut self) -> bool {
        let begin = Instant::now();
        loop {
            if self.child.try_wait().expect("its state").is_some() {
                return false;
            }
            let options =
                self.tls.as_ref().map_or_else(EtcdOptions::new, |tls| tls.options.clone());
            let options = options.request_time(Duration::from_millis(500));
            match EtcdKv::connect([self.endpoint()], options) {
                Ok(_) => return true,
                // It wants to know who asks: so it is there.
                Err(error) if error.to_string().contains("user name is empty") => return true,
                Err(_) => {}
            }
            assert!(begin.elapsed() < PATIENCE, "etcd does not answer");
        }
    }

    pub fn endpoint(&self) -> String {
        url(self.port, self.tls.as_ref())
    }

    /// Kills it, and leaves what it has written.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again with what it had written.
    pub fn restart(&mut self) {
        self.kill();
        self.child = run(&self.directory, self.port, self.peer, self.tls.as_ref());
        assert!(self.wait(), "it starts again");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
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
