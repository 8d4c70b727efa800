//! A real etcd, where one is installed: started for a test on ports of its own, spoken to in JSON, and stopped by
//! its process.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::etcd_process::{EtcdProcess, Ports};

/// A server that runs as long as this lives.
pub(crate) struct Etcd {
    process: EtcdProcess,
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
        let command = |ports: Ports| {
            let mut command = Command::new("etcd");
            command.arg("--data-dir").arg(directory.path().join("data")).args(ports.flags());
            command.args(["--log-level", "error"]).args(more);
            command
        };
        let process = EtcdProcess::start(command, Ports::are_healthy);
        Some(Self { process, _directory: directory })
    }

    fn try_call(&self, path: &str, request: &Value) -> Option<Value> {
        let body = request.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.process.ports.client)).ok()?;
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
        command.arg(self.process.url()).args(["--command-timeout", "600s"]);
        let output = command.args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }
}
