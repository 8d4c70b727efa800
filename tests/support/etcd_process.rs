//! A process of etcd, or of a server that takes its flags: started on ports of its own, and gone when it is dropped.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "each of those who share it uses a part, and stops where that fails"
)]

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for one to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often it is started: somebody else may take a port between its choice and its use.
const TIMES: usize = 20;

/// A port that nobody has, nor is given: below those that the system draws for connections, each once. A client that
/// tries a port of those again and again until a server listens there may itself be given it.
pub(crate) fn free_port() -> u16 {
    // Each process its own, and those of others only where it needs many.
    const EACH: u32 = 200;
    const ALL: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = std::process::id()
            .wrapping_mul(EACH)
            .wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(10_000 + next % ALL).expect("below 30,000");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Where a server listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) client: u16,
    pub(crate) peer: u16,
}

impl Ports {
    pub(crate) fn free() -> Self {
        Self { client: free_port(), peer: free_port() }
    }

    /// Where clients ask.
    pub(crate) fn url(self) -> String {
        format!("http://127.0.0.1:{}", self.client)
    }

    pub(crate) fn peer_url(self) -> String {
        format!("http://127.0.0.1:{}", self.peer)
    }

    /// Flags of a member that is a cluster by itself.
    pub(crate) fn flags(self) -> Vec<String> {
        self.flags_with(&self.url())
    }

    /// As that, where clients ask by another URL.
    pub(crate) fn flags_with(self, client: &str) -> Vec<String> {
        let peer = self.peer_url();
        let cluster = format!("default={peer}");
        let flags = [
            ("listen-client-urls", client),
            ("advertise-client-urls", client),
            ("listen-peer-urls", &peer),
            ("initial-advertise-peer-urls", &peer),
            ("initial-cluster", &cluster),
        ];
        flags.map(|(name, value)| format!("--{name}={value}")).into()
    }

    /// Whether a server there is healthy: it has a leader, and answers.
    pub(crate) fn are_healthy(self) -> bool {
        self.ask_health().is_some_and(|answer| answer.contains(r#""health":"true""#))
    }

    fn ask_health(self) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.client)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

/// A server that has been ready.
#[derive(Debug)]
pub(crate) struct EtcdProcess {
    child: Child,
    pub(crate) ports: Ports,
}

impl EtcdProcess {
    /// Starts what `command` makes for ports, as often as it ends before `is_ready`.
    pub(crate) fn start(
        mut command: impl FnMut(Ports) -> Command,
        is_ready: impl Fn(Ports) -> bool,
    ) -> Self {
        let mut ended = String::new();
        for _ in 0..TIMES {
            let ports = Ports::free();
            match Self::start_at(ports, command(ports), &is_ready) {
                Ok(started) => return started,
                Err(why) => ended = why,
            }
        }
        panic!("started {TIMES} times, and has ended at once: {ended}");
    }

    /// Starts `command`, which listens at `ports`. An error is that it has ended, and what it said.
    pub(crate) fn start_at(
        ports: Ports,
        mut command: Command,
        is_ready: impl Fn(Ports) -> bool,
    ) -> Result<Self, String> {
        let log = tempfile::tempfile().expect("a temporary file");
        let said = log.try_clone().expect("a second handle");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut started = Self { child, ports };
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(status) = started.ended() {
                return Err(format!("{status}: {}", end_of(log)));
            }
            if is_ready(ports) {
                return Ok(started);
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("{command:?} does not answer: {}", end_of(log));
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("its state")
    }

    /// Where clients ask.
    pub(crate) fn url(&self) -> String {
        self.ports.url()
    }

    /// Kills it, and leaves what it has written.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The last that was said.
fn end_of(mut log: File) -> String {
    let mut said = Vec::new();
    let _ = log.rewind().and_then(|()| log.read_to_end(&mut said));
    String::from_utf8_lossy(&said[said.len().saturating_sub(2000)..]).into_owned()
}
