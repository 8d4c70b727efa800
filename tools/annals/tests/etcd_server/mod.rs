//! A real etcd, where one is installed: started for a test on ports of its own, spoken to in JSON, and stopped by
//! its process.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// A server that runs as long as this lives.
pub(crate) struct Etcd {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

/// Bytes as etcd's JSON has them.
pub(crate) fn b64(bytes: impl AsRef<[u8]>) -> Value {
    json!(STANDARD.encode(bytes))
}

/// The same, read; absent is empty.
pub(crate) fn bytes(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap_or_default()).unwrap()
}

/// A number, which is a string; absent is 0.
pub(crate) fn number(value: &Value) -> u64 {
    value.as_str().map_or(0, |text| text.parse().unwrap())
}

/// The same, with a sign.
pub(crate) fn signed(value: &Value) -> i64 {
    value.as_str().map_or(0, |text| text.parse().unwrap())
}

fn installed(program: &str) -> bool {
    let version = Command::new(program).arg("--help").output();
    version.is_ok_and(|output| output.status.success())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Etcd {
    /// Starts one with further arguments; `None` (with a message) where none is installed.
    pub(crate) fn start(more: &[&str]) -> Option<Self> {
        for program in ["etcd", "etcdctl"] {
            if !installed(program) {
                println!("skipped: there is no {program} here (Debian: etcd-server, etcd-client)");
                return None;
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let (port, peer_port) = (free_port(), free_port());
        let [client, peer] = [port, peer_port].map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(directory.path().join("data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}"), "--log-level", "error"]);
        command.args(more).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let etcd = Self { child, port, _directory: directory };
        for _ in 0..300 {
            let ready = etcd.try_call("/v3/maintenance/status", &json!({}));
            if ready.is_some_and(|status| number(&status["leader"]) != 0) {
                return Some(etcd);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("etcd does not answer");
    }

    fn try_call(&self, path: &str, request: &Value) -> Option<Value> {
        let body = request.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let head = format!(
            "POST {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(body.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let body = answer.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
        serde_json::from_slice(&answer[body..]).ok()
    }

    /// A request that must be answered well.
    #[track_caller]
    pub(crate) fn call(&self, path: &str, request: &Value) -> Value {
        let answer = self.try_call(path, request).unwrap();
        assert!(answer.get("error").is_none(), "{path}: {answer}");
        answer
    }

    /// All keys as of a revision.
    pub(crate) fn state(&self, revision: u64) -> Value {
        let all = b64([0]);
        let range = json!({ "key": all, "range_end": all, "revision": revision.to_string() });
        self.call("/v3/kv/range", &range)["kvs"].take()
    }

    /// Its answer to `endpoint hashkv`, which is not spoken in JSON.
    pub(crate) fn hash(&self, revision: u64) -> u64 {
        let revision = revision.to_string();
        let answer = self.ctl(&["endpoint", "hashkv", "--rev", &revision, "-w", "json"]);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer[0]["HashKV"]["hash"].as_u64().unwrap()
    }

    /// A snapshot, while it goes on.
    pub(crate) fn snapshot(&self, to: &Path) {
        self.ctl(&["snapshot", "save", to.to_str().unwrap()]);
    }

    fn ctl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg("--endpoints");
        command.arg(format!("http://127.0.0.1:{}", self.port)).args(["--command-timeout", "600s"]);
        let output = command.args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
