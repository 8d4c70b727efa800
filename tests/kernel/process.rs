//! A child process, and what it said before it ended.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::session::setting;
use crate::work::Token;

/// How to start this very program as a child: the test that does so, in which role.
pub fn arguments() -> [&'static str; 5] {
    ["child::of_these_tests", "--exact", "--ignored", "--nocapture", "--test-threads=1"]
}

/// A child to be.
pub fn command(role: &str, directory: &Path) -> Command {
    let mut command = Command::new(program());
    command.args(arguments());
    prepare(&mut command, role, directory);
    command
}

pub fn program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Tells a child what it is.
pub fn prepare(command: &mut Command, role: &str, directory: &Path) {
    command.env("ANNALS_KERNEL_ROLE", role).env("ANNALS_KERNEL_DIR", directory);
    command.env("RUST_BACKTRACE", "0");
}

/// The role of this process, if it is a child.
pub fn role() -> Option<String> {
    setting("ROLE")
}

/// A child that runs.
#[derive(Debug)]
pub struct Running {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
    errors: Arc<Mutex<String>>,
}

/// A child that has ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub heard: Heard,
    /// What it wrote to its standard error.
    pub errors: String,
}

/// What a child said; `session` tells which lines there are.
#[derive(Debug, Default)]
pub struct Heard {
    pub opened: Option<u64>,
    pub acknowledged: Vec<(u64, Token)>,
    pub compacted: u64,
    pub told: Vec<(u64, Option<String>)>,
    pub granted: Vec<i64>,
    pub revoking: Vec<i64>,
    pub revoked: Vec<i64>,
    pub errors: Vec<String>,
    pub late: Vec<String>,
    pub ended: bool,
    /// Lines of other kinds.
    pub others: Vec<String>,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (said, errors) =
            (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(String::new())));
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let to = Arc::clone(&said);
        let lines = thread::spawn(move || {
            let mut out = BufReader::new(out);
            let mut line = Vec::new();
            // A line that was cut off is none.
            while out.read_until(b'\n', &mut line).is_ok() && line.pop() == Some(b'\n') {
                to.lock().unwrap().push(String::from_utf8_lossy(&line).into_owned());
                line.clear();
            }
        });
        let to = Arc::clone(&errors);
        let texts = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = BufReader::new(err).read_to_end(&mut text);
            *to.lock().unwrap() = String::from_utf8_lossy(&text).into_owned();
        });
        Self { child, said, readers: vec![lines, texts], errors }
    }

    /// Waits until it has said so many lines that begin with `start`; false if it ends before.
    pub fn hears(&mut self, start: &str, count: usize) -> bool {
        let patience = Instant::now() + Duration::from_secs(60);
        loop {
            let ended = self.child.try_wait().unwrap().is_some();
            if self.hears_now(start, count) {
                return true;
            }
            if ended || Instant::now() > patience {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Whether it has said so many lines that begin with `start`.
    pub fn hears_now(&self, start: &str, count: usize) -> bool {
        let lines = self.said.lock().unwrap();
        lines.iter().filter(|line| line.starts_with(start)).count() >= count
    }

    /// `kill -9`.
    pub fn kill(mut self) -> Ended {
        self.child.kill().unwrap();
        self.end(Duration::from_secs(60)).expect("a killed process ends")
    }

    /// Gives it something to read.
    pub fn tell(&mut self, text: &str) {
        use std::io::Write as _;
        if let Some(input) = &mut self.child.stdin {
            let _ = input.write_all(text.as_bytes()).and_then(|()| input.flush());
        }
    }

    /// Ends its standard input, and waits for it; `None` when that takes too long (then it is killed).
    pub fn end(mut self, patience: Duration) -> Option<Ended> {
        drop(self.child.stdin.take());
        let until = Instant::now() + patience;
        let mut hung = false;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > until && !hung {
                hung = true;
                self.child.kill().unwrap();
            }
            thread::sleep(Duration::from_millis(1));
        };
        for reader in std::mem::take(&mut self.readers) {
            reader.join().unwrap();
        }
        let (lines, errors) = (self.said.lock().unwrap(), self.errors.lock().unwrap());
        let heard = Heard::of(&lines);
        (!hung).then(|| Ended { status, heard, errors: errors.clone() })
    }
}

/// A test that fails leaves no child behind.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Neither a panic nor an end by a signal other than these.
    pub fn is_orderly(&self, signals: &[i32]) -> Result<(), String> {
        let signal = self.status.signal();
        let fine = signal.map_or(self.status.success(), |signal| signals.contains(&signal));
        if fine && !self.errors.contains("panicked at") {
            return Ok(());
        }
        Err(format!("it ended with {}:\n{}\n{:?}", self.status, self.errors, self.heard.errors))
    }
}

impl Heard {
    fn of(lines: &[String]) -> Self {
        let mut heard = Self::default();
        for line in lines {
            // The test harness may have begun the first line.
            let line = line.strip_prefix("test child::of_these_tests ... ").unwrap_or(line);
            if heard.take(line).is_none() {
                heard.others.push(line.to_owned());
            }
        }
        heard
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        match kind {
            "O" => self.opened = Some(rest.split(' ').next()?.parse().ok()?),
            "A" => {
                let (revision, token) = rest.split_once(' ')?;
                self.acknowledged.push((revision.parse().ok()?, Token::parse(token)?));
            }
            "C" => self.compacted = self.compacted.max(rest.parse().ok()?),
            "W" => {
                let (revision, digest) = rest.split_once(' ')?;
                self.told.push((revision.parse().ok()?, Some(digest.to_owned())));
            }
            "X" => self.told.push((rest.parse().ok()?, None)),
            "G" => self.granted.push(rest.parse().ok()?),
            "V" => self.revoking.push(rest.parse().ok()?),
            "v" => self.revoked.push(rest.parse().ok()?),
            "E" => self.errors.push(rest.to_owned()),
            "LATE" => self.late.push(rest.to_owned()),
            "END" => self.ended = true,
            _ => return None,
        }
        Some(())
    }
}
