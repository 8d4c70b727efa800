//! Drives the binary as a user's shell would.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Options for a store whose files are all small, so that every kind is there.
pub(crate) const SMALL: [&str; 6] =
    ["-O", "memtable_bytes=65536", "-O", "wal_bytes=65536", "-O", "segment_bytes=65536"];

/// A store in a temporary directory.
pub(crate) struct Tool {
    directory: tempfile::TempDir,
}

impl Tool {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// A path beside the store.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The store's directory.
    pub(crate) fn store(&self) -> PathBuf {
        self.path("store")
    }

    /// A file beside the store.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_annals"));
        command.arg("-C").arg(self.store()).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command line.
    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        Done(self.command(arguments).output().unwrap(), arguments.join(" "))
    }

    /// Runs a command line with something on standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &[u8]) -> Done {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            // A command that refuses its input may not read all of it.
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Done(output, arguments.join(" "))
    }

    /// Runs a command that must end well; its standard output.
    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        self.run(arguments).code(0).stdout()
    }

    /// Runs a command that must end well, and reads its output as JSON; without the name of the schema, which
    /// has tests of its own.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let mut arguments = arguments.to_vec();
        arguments.extend(["-o", "json"]);
        let mut document: Value = serde_json::from_str(&self.ok(&arguments)).unwrap();
        let schema = document.as_object_mut().and_then(|members| members.remove("schema"));
        assert!(schema.is_some(), "annals {}", arguments.join(" "));
        document
    }

    /// Repairs the store into the one of `other`, and checks that the exit code says whether something is lost.
    #[track_caller]
    pub(crate) fn repaired(&self, other: &Self) -> (Value, Done) {
        let to = other.store();
        let done = self.run(&["repair", "-o", "json", "--to", to.to_str().unwrap()]);
        let told = serde_json::from_str(&done.stdout());
        let told: Value = told.unwrap_or_else(|_| panic!("{}", done.stderr()));
        let lost = |of: &str| !told[of].as_array().unwrap().is_empty();
        let none = !["lost_keys", "lost_revisions", "lost_origins"].into_iter().any(lost);
        let none = none && told["lost_entries"] == 0;
        let is_whole = none && told["past_lost"] == false;
        (told, done.code(if is_whole { 0 } else { 9 }))
    }

    /// Runs a command that must end well, and reads its output as lines of JSON.
    #[track_caller]
    pub(crate) fn lines(&self, arguments: &[&str]) -> Vec<Value> {
        let mut arguments = arguments.to_vec();
        arguments.extend(["-o", "ndjson"]);
        let text = self.ok(&arguments);
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// A member of every line.
    #[track_caller]
    pub(crate) fn column(&self, member: &str, arguments: &[&str]) -> Vec<String> {
        let lines = self.lines(arguments);
        lines
            .iter()
            .map(|line| {
                line[member].as_str().map_or_else(|| line[member].to_string(), str::to_owned)
            })
            .collect()
    }

    /// Every file of the store with its content, but LOCK.
    pub(crate) fn snapshot(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        collect(&self.store(), &mut files);
        files.sort();
        files
    }
}

fn collect(directory: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
}

/// A command that has ended.
pub(crate) struct Done(pub(crate) Output, String);

impl Done {
    /// It ended with this code.
    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Self {
        assert_eq!(self.0.status.code(), Some(code), "annals {}\n{}", self.1, self.stderr());
        self
    }

    pub(crate) fn stdout(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).unwrap()
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// It said this on standard error.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        let said = self.stderr();
        assert!(said.contains(text), "annals {}\nexpected {text:?} in: {said}", self.1);
        self
    }

    /// It wrote nothing to standard output.
    #[track_caller]
    pub(crate) fn silent(self) -> Self {
        assert!(self.0.stdout.is_empty(), "annals {}\n{}", self.1, self.stdout());
        self
    }
}

/// Options of a store whose files are small.
pub(crate) fn small() -> annals::Options {
    annals::Options::new()
        .memtable_bytes(16 << 10)
        .segment_bytes(16 << 10)
        .block_bytes(512)
        .history_block_bytes(512)
}

/// `count` records over a few keys, as lines of a history; the same for the same arguments.
pub(crate) fn history(count: u64, keys: u64, value_bytes: u64) -> String {
    let mut text = String::new();
    let mut alive = vec![false; usize::try_from(keys).unwrap()];
    let mut random = 7u64;
    for i in 0..count {
        let mut next = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % bound.max(1)
        };
        let key = next(keys);
        let alive = &mut alive[usize::try_from(key).unwrap()];
        let name = format!("/k/{key:03}");
        let (puts, deletes) = if *alive && next(10) == 0 {
            *alive = false;
            (serde_json::json!({}), serde_json::json!([name]))
        } else {
            *alive = true;
            let filling = "xyz".repeat(usize::try_from(next(value_bytes)).unwrap());
            (serde_json::json!({ name: format!("value {i} {filling}") }), serde_json::json!([]))
        };
        let line = serde_json::json!({
            "commit": format!("{i:040x}"), "time": 1_700_000_000 + i, "puts": puts, "deletes": deletes
        });
        text.push_str(&line.to_string());
        text.push('\n');
    }
    text
}
