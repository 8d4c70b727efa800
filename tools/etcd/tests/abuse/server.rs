//! A server in a process of its own, and its clients.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use annals_etcd::proto::etcdserverpb as pb;
use pb::kv_client::KvClient;
use pb::watch_request::RequestUnion;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};
use tonic::transport::{Channel, Endpoint};

/// What must have happened by then would not happen later either.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// One server at a time: what one test does to it is not to be another's trouble.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Whether there is time for more.
pub(crate) fn is_long() -> bool {
    std::env::var("ANNALS_ABUSE").is_ok_and(|value| value == "long")
}

/// A number for the usual form, or ten times as much for the long one.
pub(crate) fn scaled(number: usize) -> usize {
    if is_long() { number * 10 } else { number }
}

/// A server, ended with this.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    child: Child,
    flags: Vec<String>,
    directory: TempDir,
    panicked: Arc<AtomicBool>,
    _alone: MutexGuard<'static, ()>,
}

/// Starts one, and waits until it serves.
fn spawn(directory: &Path, flags: &[String], panicked: Arc<AtomicBool>) -> (Child, SocketAddr) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_annals-etcd"))
        .env_clear()
        .args(["--listen-client-urls=http://127.0.0.1:0", "--shutdown-timeout=2s"])
        .env("ETCD_DATA_DIR", directory)
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut address = None;
    while address.is_none() {
        let line = lines.next().expect("it says where it listens").unwrap();
        let line: Value = serde_json::from_str(&line).unwrap_or_default();
        let serves = "serving client traffic insecurely; this is strongly discouraged!";
        if line["msg"] == serves {
            address = line["address"].as_str().and_then(|address| address.parse().ok());
        }
    }
    // It must never wait for who reads its log.
    std::thread::spawn(move || {
        for line in lines
            .map_while(Result::ok)
            .filter(|line| line.contains("panicked") || line.contains("failed"))
        {
            eprintln!("{line}");
            panicked.fetch_or(line.contains("panicked"), Ordering::Relaxed);
        }
    });
    (child, address.unwrap())
}

/// Seconds of processor time that a process has taken so far.
pub(crate) fn processor(process: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields = stat.rsplit(") ").next().unwrap().split(' ').collect::<Vec<_>>();
    // The user's and the system's, in hundredths.
    [11, 12].iter().map(|field| fields[*field].parse::<f64>().unwrap() / 100.0).sum()
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Seconds of processor time that it has taken so far.
    pub(crate) fn processor(&self) -> f64 {
        processor(&self.child.id().to_string())
    }

    pub(crate) async fn start(flags: &[&str]) -> Self {
        let alone = ALONE.lock().await;
        let directory = tempfile::tempdir().unwrap();
        let panicked = Arc::default();
        let flags: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let (child, address) = spawn(directory.path(), &flags, Arc::clone(&panicked));
        Self { address, child, flags, directory, panicked, _alone: alone }
    }

    /// Ends it by a signal, and starts it anew over the same data.
    pub(crate) fn restart(&mut self, signal: &str) {
        self.signal(signal);
        self.child.wait().unwrap();
        (self.child, self.address) =
            spawn(self.directory.path(), &self.flags, Arc::clone(&self.panicked));
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Bytes in memory: now, and at most so far.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap() << 10
        };
        (field("VmRSS:"), field("VmHWM:"))
    }

    /// Says how much memory it took, and that this is no more than so many MiB.
    pub(crate) fn check_memory(&self, what: &str, mebibytes: u64) {
        let (now, most) = self.memory();
        eprintln!("{what}: {} MiB, at most {} MiB", now >> 20, most >> 20);
        assert!(most >> 20 <= mebibytes, "{what}: {} MiB", most >> 20);
    }

    /// Threads of the server.
    pub(crate) fn threads(&self) -> usize {
        fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().count()
    }

    /// Bytes of its files, those without a name too.
    pub(crate) fn open_bytes(&self) -> u64 {
        let files = fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        files
            .filter_map(|file| fs::metadata(file.ok()?.path()).ok())
            .filter(fs::Metadata::is_file)
            .map(|file| file.len())
            .sum()
    }

    /// A connection of its own.
    pub(crate) async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        endpoint.timeout(LONG).connect().await.unwrap()
    }

    /// A connection of which nobody takes more than a window's worth for a stream, and that waits for ever.
    pub(crate) async fn patient(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        let endpoint = endpoint.initial_connection_window_size(64 << 20);
        endpoint.initial_stream_window_size(65_535).connect().await.unwrap()
    }

    pub(crate) async fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel().await).max_decoding_message_size(usize::MAX)
    }

    /// Whether a client like any other is served, in all that it may ask.
    pub(crate) async fn check_serves(&self) {
        assert!(!self.panicked.load(Ordering::Relaxed));
        let mut kv = self.kv().await;
        kv.put(put("serves", "yes")).await.unwrap();
        // A large one takes another way than a small one.
        let all = pb::RangeRequest { limit: 1000, keys_only: true, ..prefix("") };
        let all = kv.range(all).await.unwrap().into_inner();
        assert!(all.count > 0);
        let one = pb::RangeRequest { key: "serves".into(), ..Default::default() };
        assert_eq!(kv.range(one).await.unwrap().into_inner().kvs[0].value, "yes");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> pb::PutRequest {
    pb::PutRequest { key: key.into().into(), value: value.into().into(), ..Default::default() }
}

/// All keys that begin so; every key for none. The prefix ends with a letter.
pub(crate) fn prefix(prefix: &str) -> pb::RangeRequest {
    let (key, end) = bounds(prefix);
    pb::RangeRequest { key: key.into(), range_end: end.into(), ..Default::default() }
}

fn bounds(prefix: &str) -> (Vec<u8>, Vec<u8>) {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        None => (vec![0], vec![0]),
        Some(last) => {
            *last += 1;
            (prefix.into(), end)
        }
    }
}

/// The wish to watch all keys that begin so, from a revision on.
pub(crate) fn watch(of: &str, start_revision: i64) -> pb::WatchRequest {
    let (key, end) = bounds(of);
    let create = pb::WatchCreateRequest {
        key: key.into(),
        range_end: end.into(),
        start_revision,
        ..Default::default()
    };
    pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }
}
