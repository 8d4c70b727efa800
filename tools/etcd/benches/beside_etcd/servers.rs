//! The servers: processes of their own, each with an empty directory, and what the system says of them.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::clients::Clients;
use crate::etcd_process::free_port;

/// A kind of server.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) name: String,
    program: PathBuf,
    ours: bool,
}

/// Ours, and each etcd of the variable `ETCD`, or the one that is in the path.
pub(crate) fn kinds(only_ours: bool) -> Vec<Kind> {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_annals-etcd"));
    let mut kinds = vec![Kind { name: "annals-etcd".to_owned(), program, ours: true }];
    if only_ours {
        return kinds;
    }
    let programs = std::env::var("ETCD").unwrap_or_else(|_| "etcd".to_owned());
    for program in programs.split(':').map(PathBuf::from) {
        let told = Command::new(&program).arg("--version").output();
        let told = told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned());
        let version =
            told.as_deref().unwrap_or("").lines().next().and_then(|line| line.rsplit(' ').next());
        match version {
            Some(version) => {
                kinds.push(Kind { name: format!("etcd {version}"), program, ours: false });
            }
            None => eprintln!("no etcd to be had by `{}`: it is left out", program.display()),
        }
    }
    kinds
}

/// A server that answers.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) kind: Kind,
    pub(crate) address: String,
    ports: (u16, u16),
    directory: tempfile::TempDir,
    process: Child,
}

/// How a server is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Kill,
    Terminate,
}

impl Server {
    pub(crate) async fn start(kind: Kind, below: &Path) -> Self {
        let directory = tempfile::Builder::new().prefix("beside-etcd-").tempdir_in(below);
        let directory = directory.expect("a directory");
        let ports = (free_port(), free_port());
        let process = spawn(&kind, directory.path(), ports);
        let address = format!("127.0.0.1:{}", ports.0);
        let mut server = Self { kind, address, ports, directory, process };
        server.answer().await;
        server
    }

    /// Ends the server and starts it again: how long from its start to its first answer to a linearizable get.
    pub(crate) async fn restart(&mut self, ending: Ending) -> Duration {
        match ending {
            Ending::Kill => self.process.kill().expect("it is ours"),
            Ending::Terminate => {
                let pid = self.pid().to_string();
                Command::new("kill").args(["-TERM", &pid]).status().expect("kill");
            }
        }
        self.process.wait().expect("it is ours");
        let begun = Instant::now();
        self.process = spawn(&self.kind, self.directory.path(), self.ports);
        self.answer().await;
        begun.elapsed()
    }

    /// Waits for the first answer.
    async fn answer(&mut self) {
        for _ in 0..60_000 {
            if let Some(status) = self.process.try_wait().expect("it is ours") {
                panic!("{} has ended: {status}", self.kind.name);
            }
            if TcpStream::connect(&self.address).is_ok()
                && let Some(mut clients) = Clients::try_connect(&self.address).await
                && clients.answers().await
            {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("{} does not answer", self.kind.name);
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Seconds of processor that it has used.
    pub(crate) fn cpu(&self) -> f64 {
        /// What the kernel counts in, on every Linux.
        const TICKS: f64 = 100.0;
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it runs");
        // Behind the name, which may hold anything: the times are fields 14 and 15 of all.
        let rest = stat.rsplit(')').next().unwrap_or_default();
        let ticks = rest.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<f64>().ok());
        ticks.sum::<f64>() / TICKS
    }

    /// Resident memory in MiB: all, and what is no mapped file.
    pub(crate) fn memory(&self) -> [f64; 2] {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        ["VmRSS:", "RssAnon:"].map(|name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
            kib.unwrap_or(0.0) / 1024.0
        })
    }

    /// MiB that its directory takes on the disk.
    pub(crate) fn disk(&self) -> f64 {
        let told = Command::new("du").args(["-s", "-B1"]).arg(self.directory.path()).output();
        let told = String::from_utf8(told.expect("du").stdout).unwrap_or_default();
        let bytes = told.split_whitespace().next().and_then(|bytes| bytes.parse::<f64>().ok());
        bytes.unwrap_or(0.0) / f64::from(1 << 20)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(kind: &Kind, directory: &Path, (client, peer): (u16, u16)) -> Child {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let mut command = Command::new(&kind.program);
    // All that would be a flag of etcd's stays out.
    command.env_clear().envs(std::env::vars().filter(|(name, _)| !name.starts_with("ETCD")));
    command.arg("--data-dir").arg(directory.join("data"));
    command.args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)]);
    command.args(["--quota-backend-bytes", &(8_u64 << 30).to_string()]);
    if !kind.ours {
        command.args(["--listen-peer-urls", &url(peer)]);
        command.args(["--initial-advertise-peer-urls", &url(peer)]);
        command.args(["--initial-cluster", &format!("default={}", url(peer))]);
    }
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| panic!("{}: {error}", kind.name))
}
