//! Reads the first-parent history of a git repository through the user's own `git`.
//!
//! Two child processes: one `git log` lists the commits oldest first with what each changed
//! against its first parent, one `git cat-file --batch` hands out the contents. Both stream, so
//! memory holds one commit. Every file is a key (its path in the repository, as bytes), every
//! commit that changes the content of a file is a record. Symbolic links are stored as their
//! target text, submodules are skipped and counted, a change of the mode alone is no change.

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bytes::Bytes;

use super::Record;
use super::marker::{Marker, Metadata};

/// How many contents are asked for ahead of reading them. A request is at most 65 bytes, so all
/// of them fit a pipe and `git` can never block on us while we block on it.
const REQUESTS_AHEAD: usize = 512;

/// What was left out on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skipped {
    /// Commits that change no file's content.
    pub(crate) commits: u64,
    /// Changes of submodules.
    pub(crate) submodules: u64,
}

/// A repository.
#[derive(Clone, Debug)]
pub(crate) struct Repository {
    path: PathBuf,
}

/// Finds the repository that `path` lies in and makes sure it has a commit at `reference`.
///
/// # Errors
/// In words: no `git`, no repository, no commit.
pub(crate) fn open(path: &Path, reference: &str) -> Result<(Repository, String), String> {
    let repository = Repository { path: path.to_path_buf() };
    let commit = format!("{reference}^{{commit}}");
    let head = repository.ask(&["rev-parse", "--verify", "--quiet", "--end-of-options", &commit]);
    match head {
        Ok(head) if !head.is_empty() => Ok((repository, head)),
        Ok(_) => Err(format!("{}: git finds no commit {reference} there", path.display())),
        Err(error) => Err(error),
    }
}

impl Repository {
    fn git(&self) -> Command {
        let mut command = Command::new("git");
        // Nothing of the user's configuration may change the shape of the output.
        command.arg("-C").arg(&self.path).args(["-c", "log.showSignature=false"]);
        command.args(["-c", "log.showRoot=true", "-c", "core.quotePath=false", "--no-pager"]);
        command.env("GIT_OPTIONAL_LOCKS", "0").env("LC_ALL", "C");
        command
    }

    /// Runs a short command and returns its output without the final newline.
    fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.git().args(arguments).stdin(Stdio::null()).output();
        let output = output.map_err(|e| format!("git cannot be run: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => Ok(text.trim_end().to_owned()),
            // --quiet: the name does not resolve, which the caller puts into words.
            Some(1) if said.trim().is_empty() => Ok(String::new()),
            _ => Err(format!("{}: {}", self.path.display(), said.trim())),
        }
    }

    /// How many commits the first-parent history of `head` has.
    pub(crate) fn count(&self, head: &str) -> Result<u64, String> {
        let text = self.ask(&["rev-list", "--count", "--first-parent", head])?;
        text.parse().map_err(|_| format!("git rev-list --count says {text:?}"))
    }

    /// The ids of the first-parent history of `head`.
    pub(crate) fn first_parents(&self, head: &str) -> Result<HashSet<String>, String> {
        let text = self.ask(&["rev-list", "--first-parent", head])?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// The records after the commit `after` (all of them where it is `None`), oldest first.
    /// `first` is the number of the first commit.
    pub(crate) fn records(
        &self,
        head: &str,
        after: Option<&str>,
        first: u64,
    ) -> Result<Records, String> {
        let mut log = self.git();
        log.args(["log", "--first-parent", "--reverse", "-m", "--raw", "-z", "--no-renames"]);
        log.args(["--no-abbrev", "--no-color", "--encoding=UTF-8", "--no-notes"]);
        log.arg("--format=format:%x01%H%x1f%at%x1f%an <%ae>%x1f%s");
        log.arg(after.map_or_else(|| head.to_owned(), |after| format!("{after}..{head}")));
        let mut log = spawn(log.arg("--").stdin(Stdio::null()))?;
        let changes = BufReader::with_capacity(1 << 16, piped(log.stdout.take())?);
        let mut objects = spawn(self.git().args(["cat-file", "--batch"]).stdin(Stdio::piped()))?;
        let requests = objects.stdin.take().ok_or("git has no standard input")?;
        let contents = BufReader::with_capacity(1 << 16, piped(objects.stdout.take())?);
        let skipped = Skipped::default();
        let children = Children(vec![log, objects]);
        Ok(Records { changes, requests, contents, children, number: first, skipped })
    }
}

fn spawn(command: &mut Command) -> Result<Child, String> {
    // What git has to say goes to the user as it is.
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    command.spawn().map_err(|e| format!("git cannot be run: {e}"))
}

fn piped<T>(end: Option<T>) -> Result<T, String> {
    end.ok_or_else(|| "git has no standard output".into())
}

/// The children, ended with us however we end.
#[derive(Debug)]
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // A child that has ended already is no error.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The stream of records.
#[derive(Debug)]
pub(crate) struct Records {
    changes: BufReader<ChildStdout>,
    requests: ChildStdin,
    contents: BufReader<ChildStdout>,
    children: Children,
    number: u64,
    skipped: Skipped,
}

/// One commit as `git log` lists it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Commit {
    id: String,
    author_time: i64,
    author: String,
    subject: String,
    /// Path and object of every file that has new content.
    puts: Vec<(Bytes, String)>,
    deletes: Vec<Bytes>,
    submodules: u64,
}

impl Records {
    /// What was left out so far.
    pub(crate) fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// The next record.
    ///
    /// # Errors
    /// `git` failed or said something unexpected; in words.
    pub(crate) fn next(&mut self) -> Result<Option<Record>, String> {
        loop {
            let Some(commit) = read_commit(&mut self.changes)? else {
                self.finish()?;
                return Ok(None);
            };
            let number = self.number;
            self.number += 1;
            self.skipped.submodules += commit.submodules;
            if commit.puts.is_empty() && commit.deletes.is_empty() {
                self.skipped.commits += 1;
                continue;
            }
            let objects: Vec<&str> =
                commit.puts.iter().map(|(_, object)| object.as_str()).collect();
            let values = self.read_objects(&objects)?;
            let puts = commit.puts.iter().map(|(path, _)| path.clone()).zip(values).collect();
            let source = format!("git:{}", commit.id);
            let metadata = Metadata {
                commit: Some(commit.id.clone()),
                author: Some(commit.author),
                author_time: Some(commit.author_time),
                subject: Some(commit.subject),
                import: Some(Marker { source, record: number }),
                ..Metadata::default()
            };
            return Ok(Some(Record {
                number,
                name: format!("commit {}", commit.id),
                time: commit.author_time.saturating_mul(1_000_000),
                puts,
                deletes: commit.deletes,
                metadata: metadata.to_bytes(),
            }));
        }
    }

    /// The list has ended: by itself, or because `git log` failed?
    fn finish(&mut self) -> Result<(), String> {
        let Some(log) = self.children.0.first_mut() else { return Ok(()) };
        match log.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("git log ended with {status}")),
            Err(error) => Err(format!("git log: {error}")),
        }
    }

    fn read_objects(&mut self, objects: &[&str]) -> Result<Vec<Bytes>, String> {
        let mut values = Vec::with_capacity(objects.len());
        for some in objects.chunks(REQUESTS_AHEAD) {
            let mut text = some.join("\n");
            text.push('\n');
            let sent =
                self.requests.write_all(text.as_bytes()).and_then(|()| self.requests.flush());
            sent.map_err(|e| format!("git cat-file: {e}"))?;
            for object in some {
                values.push(read_object(&mut self.contents, object)?);
            }
        }
        Ok(values)
    }
}

/// Reads one answer of `git cat-file --batch`: `<id> <type> <size>`, newline, content, newline.
fn read_object(from: &mut impl BufRead, object: &str) -> Result<Bytes, String> {
    let mut head = String::new();
    from.read_line(&mut head).map_err(|e| format!("git cat-file: {e}"))?;
    let mut words = head.split_whitespace();
    let (id, kind, size) = (words.next(), words.next(), words.next());
    let size = size.and_then(|size| size.parse::<u64>().ok());
    let (Some(_), Some("blob"), Some(size)) = (id.filter(|id| *id == object), kind, size) else {
        return Err(format!("git cat-file: asked for {object}, got {:?}", head.trim_end()));
    };
    let mut content = Vec::new();
    let read = from.by_ref().take(size).read_to_end(&mut content);
    read.map_err(|e| format!("git cat-file: {e}"))?;
    let mut newline = [0];
    from.read_exact(&mut newline).map_err(|e| format!("git cat-file: {e}"))?;
    if content.len() as u64 != size || newline != *b"\n" {
        return Err(format!("git cat-file: {object} is cut off"));
    }
    Ok(Bytes::from(content))
}

/// Reads the next commit of `git log --raw -z`: a line that begins with 0x01, then the changes,
/// each `:<mode> <mode> <id> <id> <status>`, NUL, path, NUL. Newlines and NULs separate.
fn read_commit(from: &mut impl BufRead) -> Result<Option<Commit>, String> {
    let failed = |e: io::Error| format!("git log: {e}");
    let mut field = Vec::new();
    loop {
        match peek(from).map_err(failed)? {
            Some(0 | b'\n') => from.consume(1),
            Some(1) => break,
            Some(byte) => return Err(format!("git log: unexpected byte {byte:#04x}")),
            None => return Ok(None),
        }
    }
    read_line_or_nul(from, &mut field).map_err(failed)?;
    let mut commit = parse_head(&field)?;
    loop {
        match peek(from).map_err(failed)? {
            Some(0 | b'\n') => from.consume(1),
            Some(b':') => {
                field.clear();
                from.read_until(0, &mut field).map_err(failed)?;
                let mut path = Vec::new();
                from.read_until(0, &mut path).map_err(failed)?;
                if path.pop() != Some(0) || path.is_empty() {
                    return Err("git log: the list is cut off".into());
                }
                add_change(&mut commit, &field, Bytes::from(path))?;
            }
            _ => return Ok(Some(commit)),
        }
    }
}

fn peek(from: &mut impl BufRead) -> io::Result<Option<u8>> {
    Ok(from.fill_buf()?.first().copied())
}

/// Reads up to a newline or a NUL, which is consumed and not kept.
fn read_line_or_nul(from: &mut impl BufRead, into: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let buffer = from.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        let end = buffer.iter().position(|byte| matches!(byte, 0 | b'\n'));
        let taken = end.unwrap_or(buffer.len());
        into.extend(&buffer[..taken]);
        from.consume(taken + usize::from(end.is_some()));
        if end.is_some() {
            return Ok(());
        }
    }
}

fn parse_head(field: &[u8]) -> Result<Commit, String> {
    let text = String::from_utf8_lossy(field);
    let mut parts = text.trim_start_matches('\u{1}').splitn(4, '\u{1f}');
    let id = parts.next().unwrap_or_default().to_owned();
    if id.len() < 40 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(format!("git log: {id:?} is no commit id"));
    }
    // A few old commits carry no usable date; the time then is the previous transaction's.
    let author_time = parts.next().and_then(|t| t.parse().ok()).unwrap_or_default();
    let author = parts.next().unwrap_or_default().to_owned();
    let subject = cut(parts.next().unwrap_or_default(), 500).to_owned();
    Ok(Commit {
        id,
        author_time,
        author: cut(&author, 500).to_owned(),
        subject,
        ..Commit::default()
    })
}

/// At most `max` bytes of a text, cut between characters.
fn cut(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn add_change(commit: &mut Commit, field: &[u8], path: Bytes) -> Result<(), String> {
    let text = String::from_utf8_lossy(field);
    let mut words = text.trim_start_matches(':').trim_end_matches('\0').split(' ');
    let (old_mode, new_mode) = (words.next(), words.next());
    let (old_id, new_id) = (words.next(), words.next());
    let (Some(old_mode), Some(new_mode), Some(old_id), Some(new_id)) =
        (old_mode, new_mode, old_id, new_id)
    else {
        return Err(format!("git log: {text:?} is no change"));
    };
    let stored = |mode: &str| match mode {
        // Absent, or a submodule.
        "000000" | "160000" => Ok(false),
        _ if mode.starts_with("100") || mode == "120000" => Ok(true),
        _ => Err(format!("git log: {}: unknown mode {mode}", crate::bytes::show(&path, 200))),
    };
    let (was, is) = (stored(old_mode)?, stored(new_mode)?);
    if old_mode == "160000" || new_mode == "160000" {
        commit.submodules += 1;
    }
    match (was, is) {
        (true, true) if old_id == new_id => {}
        (_, true) => commit.puts.push((path, new_id.to_owned())),
        (true, false) => commit.deletes.push(path),
        (false, false) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests;
