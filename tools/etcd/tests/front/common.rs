//! A server in this process, and a client of HTTP/1.1 that shows what really came.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use annals::Options;
use annals_etcd::auth::Auth;
use annals_etcd::config::Config;
use annals_etcd::http::App;
use annals_etcd::member::Member;
use annals_etcd::serve;
use annals_etcd::server::{Server, ServerOptions};
use annals_etcd::services::Services;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// A server, over a store of its own.
pub(crate) struct Running {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) shutdown: serve::Shutdown,
    pub(crate) runtime: Runtime,
    pub(crate) ended: Option<JoinHandle<Result<(), String>>>,
    directory: TempDir,
}

impl Running {
    /// The metadata of all that has been committed so far.
    pub(crate) fn told(&self) -> Vec<String> {
        let store = annals::Store::open_read_only(self.directory.path().join("store")).unwrap();
        let told = |one: annals::Transaction| String::from_utf8_lossy(&one.metadata).into_owned();
        store.log(..).map(|one| told(one.unwrap())).collect()
    }

    /// Starts one with such flags; on a free port unless they say something else.
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::over(&Options::new(), flags)
    }

    /// The same over a store with such options.
    pub(crate) fn over(options: &Options, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut words: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        if !flags.iter().any(|flag| flag.starts_with("--listen-client-urls")) {
            words.push("--listen-client-urls=http://127.0.0.1:0".to_owned());
        }
        words.push(format!("--data-dir={}", directory.path().display()));
        let config = Config::read(&words, &[]).unwrap();
        let store = options.open(directory.path().join("store")).unwrap();
        let auth = Auth::open(directory.path(), annals_etcd::auth::AuthOptions::default()).unwrap();
        let member = Member::open(
            directory.path(),
            config.name.clone(),
            config.peers(),
            config.advertised(),
        )
        .unwrap();
        let server = Server::new(store, auth, member, ServerOptions::new(directory.path()));
        let runtime = Runtime::new().unwrap();
        let (shutdown, metrics) = (serve::Shutdown::default(), server.metrics());
        let app = App { grpc: Services::new(&server), probe: Arc::clone(&server) as _, metrics };
        let listening = runtime.block_on(async { serve::Server::bind(&config) }).unwrap();
        let addresses = listening.addresses();
        let ended = Some(runtime.spawn(listening.run(app, shutdown.clone())));
        Self { addresses, shutdown, runtime, ended, directory }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[0]
    }
}

/// An answer of HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// Reads one whole answer. One that does not end is what came until the time was over.
    pub(crate) fn read(mut from: impl io::Read) -> io::Result<Self> {
        let mut all = Vec::new();
        let mut piece = [0; 4096];
        loop {
            match from.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => all.extend_from_slice(&piece[..length]),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) || is_cut_off(&error) && !all.is_empty() =>
                {
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let all = String::from_utf8_lossy(&all).into_owned();
        let Some((head, body)) = all.split_once("\r\n\r\n") else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let status =
            head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        let head = head.to_ascii_lowercase();
        let body = if head.contains("transfer-encoding: chunked") {
            unchunk(body)
        } else {
            body.to_owned()
        };
        Ok(Self { status, head, body })
    }
}

fn is_cut_off(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

fn unchunk(mut text: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = text.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap_or(0);
        let Some(piece) = rest.get(..length).filter(|piece| !piece.is_empty()) else { break };
        whole += piece;
        text = rest.get(length + 2..).unwrap_or_default();
    }
    whole
}

/// Sends a request, and reads until the server ends the connection.
pub(crate) fn http(to: SocketAddr, line: &str, headers: &[&str], body: &str) -> Answer {
    http_for(to, line, headers, body, Duration::from_secs(120)).unwrap()
}

/// The same for at most so long: for streams.
pub(crate) fn http_for(
    to: SocketAddr,
    line: &str,
    headers: &[&str],
    body: &str,
    time: Duration,
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(time))?;
    match stream.write_all(&request(line, headers, body)) {
        // It may be refused before all of it has been sent.
        Err(error) if !is_cut_off(&error) => return Err(error),
        _ => {}
    }
    Answer::read(stream)
}

/// The bytes of a request.
pub(crate) fn request(line: &str, headers: &[&str], body: &str) -> Vec<u8> {
    let mut text =
        format!("{line} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|header| header.starts_with("Host:")) {
        text += "Host: localhost\r\n";
    }
    for header in headers {
        text += header;
        text += "\r\n";
    }
    (text + "\r\n" + body).into_bytes()
}

/// Posts JSON.
pub(crate) fn post(to: SocketAddr, path: &str, body: &str) -> Answer {
    http(to, &format!("POST {path}"), &["Content-Type: application/json"], body)
}
