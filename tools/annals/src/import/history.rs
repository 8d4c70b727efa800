//! `import history`: lines of JSON, plain or compressed with zstd.
//!
//! The resume marker of a record holds the digest (XXH3, 128 bits) of all lines up to it. On a
//! restart that many lines are read again and compared, so that only the same history is gone on
//! with - wherever it is read from, and also when lines have been added to it since.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use annals::Store;
use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

use super::line::Line;
use super::marker::{Marker, Metadata};
use super::resume::{self, Found};
use super::{HistoryArgs, Record};
use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Progress;
use crate::target::Target;
use crate::whole;

/// The longest line: a transaction of 64 MiB, the engine's default limit, with every byte of it
/// as JSON or base64 may need it in practice.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// Memory kept for lines: a longer line gives its memory back.
const LINE_BYTES_KEPT: usize = 2 << 20;

/// How many markers are compared with a file: they take 100 MB then.
const CANDIDATES_MAX: usize = 1_000_000;

/// The largest zstd window: the default limit of the zstd tool, and what the data uses.
const WINDOW_LOG_MAX: u32 = 27;

/// `import history`: a file of records.
pub(super) fn import(global: &Global, args: &HistoryArgs, out: &mut Output) -> Outcome {
    let mut lines = Lines::open(&args.file)?;
    if lines.peek()?.starts_with(whole::BEGINS) {
        return import_whole(global, args, &mut lines, out);
    }
    // What is no history makes no store.
    let mut first = if global.is_absent()? { lines.next_record()? } else { None };
    let store = super::open(global)?;
    let found = if first.is_some() { None } else { go_on(&store, &mut lines, &args.file)? };
    let complete = found.is_some() && lines.is_at_end()?;
    let already = resume::agree(&store, found.as_ref(), complete, args.append.append, out)?;
    if already == 0 && lines.number > 0 && first.is_none() {
        lines = Lines::open_again(&args.file)?;
    }
    let read = Arc::clone(&lines.read);
    let mut progress = match lines.file_bytes {
        Some(bytes) => Progress::new(Some(bytes), "bytes"),
        None => Progress::new(None, "records"),
    };
    let sized = lines.file_bytes.is_some();
    let position = |number| if sized { read.load(Ordering::Relaxed) } else { number };
    let next = || match first.take() {
        Some(record) => Ok(Some(record)),
        None => lines.next_record(),
    };
    let done = super::run(&store, next, &mut progress, position);
    progress.finish();
    // What was imported before a refusal is kept, and the store closed in order.
    let told = done.as_ref().map_or(Value::Null, |summary| summary.json(&store, already));
    let closed = super::close(store);
    let summary = done?;
    closed?;
    summary.note_times(out)?;
    out.object(&told)
}

/// Lines that say all of a store.
fn import_whole(
    global: &Global,
    args: &HistoryArgs,
    lines: &mut Lines,
    out: &mut Output,
) -> Outcome {
    if args.append.append {
        return Err(Failure::Usage(
            "what `export --base` wrote makes a new store: no --append".into(),
        ));
    }
    let target = Target::new(global.data()?);
    make_whole(global, lines, out).map_err(|failure| target.failed(failure))
}

fn make_whole(global: &Global, lines: &mut Lines, out: &mut Output) -> Outcome {
    let mut reader = whole::Reader::new(global.data()?, super::options(global)?);
    let mut progress = match lines.file_bytes {
        Some(bytes) => Progress::new(Some(bytes), "bytes"),
        None => Progress::new(None, "lines"),
    };
    while lines.advance()? {
        reader.line(&format!("{}: line {}", lines.name, lines.number), &lines.line)?;
        let read = lines.read.load(Ordering::Relaxed);
        progress.set(if lines.file_bytes.is_some() { read } else { lines.number }, || "".into());
        if lines.line.capacity() > LINE_BYTES_KEPT {
            lines.line = Vec::new();
        }
    }
    progress.finish();
    let summary = reader.summary;
    let store = reader.finish(&lines.name)?;
    let mut summary = summary.json(&store, 0);
    summary["compacted_revision"] = json!(store.compacted_revision());
    super::close(store)?;
    out.object(&summary)
}

/// Finds the last marker of these lines in the store and reads up to it; without one, to anywhere.
fn go_on(store: &Store, lines: &mut Lines, path: &Path) -> Outcome<Option<Found>> {
    // A pipe can be read once: then only the newest marker of a file of lines is tried.
    let once = path.as_os_str() == "-";
    let (mut candidates, mut newest, mut newer) = (Vec::<Candidate>::new(), None, None);
    resume::backwards(store, &mut |found| {
        if !found.marker.source.starts_with("xxh3:") {
            return Ok(true);
        }
        let record = found.marker.record;
        let followed = newer.replace(record) == record.checked_add(1);
        if candidates.is_empty() && lines.number == 0 {
            // Most often it is this one, and the rest of the log need not be read.
            if lines.skip(&found.marker)? {
                newest = Some(found);
                return Ok(false);
            }
        }
        candidates.push(Candidate { found, followed });
        Ok(!once && candidates.len() < CANDIDATES_MAX)
    })?;
    if newest.is_some() || once || lines.number == 0 {
        return Ok(newest);
    }
    *lines = Lines::open_again(path)?;
    candidates.sort_unstable_by_key(|one| (one.found.marker.record, one.found.revision));
    let (mut last, mut before): (_, Option<Marker>) = (None, None);
    for Candidate { found, followed } in candidates {
        if !lines.skip_to(found.marker.record)? {
            break;
        }
        // Where the next record follows at once, a history did not end: lines that part from it
        // there, perhaps by chance after the first, are another one. Unless what follows can be the
        // next record of yet another history, which had come as far before.
        let other = before
            .as_ref()
            .is_some_and(|b| b.record == found.marker.record && b.source != found.marker.source);
        before = Some(found.marker.clone());
        if lines.source() == found.marker.source && (other || !followed) {
            last = Some(found);
        }
    }
    if let Some(found) = &last {
        *lines = Lines::open_again(path)?;
        lines.skip_to(found.marker.record)?;
    }
    Ok(last)
}

/// A marker that lines are compared with.
struct Candidate {
    found: Found,
    /// Whether the next marker in the log is of the record after this one.
    followed: bool,
}

/// The lines of a history, numbered and digested.
struct Lines {
    name: String,
    input: Box<dyn BufRead + Send>,
    /// How many lines have been read.
    number: u64,
    digest: Xxh3,
    line: Vec<u8>,
    /// Whether the line has been read, and not been asked for.
    peeked: bool,
    /// How many bytes of the file have been read.
    read: Arc<AtomicU64>,
    file_bytes: Option<u64>,
}

impl Lines {
    fn open(path: &Path) -> Outcome<Self> {
        let read = Arc::new(AtomicU64::new(0));
        let name = path.display().to_string();
        let failed = |error| Failure::io(&name, error);
        let (input, file_bytes): (Box<dyn Read + Send>, _) = if path.as_os_str() == "-" {
            (Box::new(io::stdin()), None)
        } else {
            let file = File::open(path).map_err(failed)?;
            let metadata = file.metadata().map_err(failed)?;
            if metadata.is_dir() {
                return Err(Failure::Other(format!("{name}: it is a directory")));
            }
            (Box::new(file), metadata.is_file().then_some(metadata.len()))
        };
        let counted = Counted { input, read: Arc::clone(&read) };
        let input = decompressed(counted).map_err(failed)?;
        let (digest, line) = (Xxh3::new(), Vec::new());
        Ok(Self { name, input, number: 0, digest, line, peeked: false, read, file_bytes })
    }

    fn open_again(path: &Path) -> Outcome<Self> {
        if path.as_os_str() == "-" {
            return Err(Failure::Other(
                "standard input is not the history that the store holds, and cannot be read twice: \
                 give a file"
                    .into(),
            ));
        }
        Self::open(path)
    }

    /// The next line, which is still to be read.
    fn peek(&mut self) -> Outcome<&[u8]> {
        if !self.peeked {
            self.peeked = self.read_line()?;
        }
        Ok(&self.line)
    }

    /// Reads the next line into `self.line`; false at the end.
    fn advance(&mut self) -> Outcome<bool> {
        if !std::mem::take(&mut self.peeked) && !self.read_line()? {
            return Ok(false);
        }
        self.number += 1;
        self.digest.update(&self.line);
        self.digest.update(b"\n");
        Ok(true)
    }

    fn read_line(&mut self) -> Outcome<bool> {
        self.line.clear();
        let number = self.number + 1;
        let failed = |error| Failure::io(format!("{}: line {number}", self.name), error);
        // One byte more than a line may have, so that a longer one shows.
        let mut input = (&mut self.input).take(LINE_BYTES_MAX + 1);
        input.read_until(b'\n', &mut self.line).map_err(failed)?;
        if self.line.is_empty() {
            return Ok(false);
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if self.line.len() as u64 > LINE_BYTES_MAX {
            return Err(Failure::Other(format!(
                "{}: line {number}: longer than {LINE_BYTES_MAX} bytes",
                self.name
            )));
        }
        Ok(true)
    }

    fn source(&self) -> String {
        format!("xxh3:{:032x}", self.digest.digest128())
    }

    /// Reads the lines that a store with this marker holds already. False when they are not the
    /// same; then the position is anywhere.
    fn skip(&mut self, marker: &Marker) -> Outcome<bool> {
        if !marker.source.starts_with("xxh3:") {
            return Ok(false);
        }
        Ok(self.skip_to(marker.record)? && self.source() == marker.source)
    }

    /// Reads on to this line; false where there are not as many.
    fn skip_to(&mut self, number: u64) -> Outcome<bool> {
        while self.number < number {
            if !self.advance()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Is there no line left?
    fn is_at_end(&mut self) -> Outcome<bool> {
        let failed = |error| Failure::io(&self.name, error);
        Ok(!self.peeked && self.input.fill_buf().map_err(failed)?.is_empty())
    }

    fn next_record(&mut self) -> Outcome<Option<Record>> {
        if !self.advance()? {
            return Ok(None);
        }
        let number = self.number;
        let name = format!("{}: line {number}", self.name);
        let mut line =
            Line::parse(&self.line).map_err(|error| Failure::Other(format!("{name}: {error}")))?;
        let metadata = Metadata {
            commit: line.commit.take(),
            author: line.author.take(),
            author_time: line.author_time,
            subject: line.subject.take(),
            metadata: line.metadata.take(),
            import: Some(Marker { source: self.source(), record: number }),
        };
        if self.line.capacity() > LINE_BYTES_KEPT {
            self.line = Vec::new();
        }
        let time = line.time.0;
        let (puts, deletes) = line.into_operations();
        Ok(Some(Record { number, name, time, puts, deletes, metadata: metadata.to_stored_bytes() }))
    }
}

/// Decompresses what begins with zstd's magic number; anything else is read as it is.
fn decompressed(input: impl Read + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    // A pipe may give the magic number in pieces.
    let mut input = input;
    let mut head = Vec::new();
    (&mut input).take(4).read_to_end(&mut head)?;
    let zstd = matches!(head[..], [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18]);
    let input = BufReader::with_capacity(1 << 17, io::Cursor::new(head).chain(input));
    if !zstd {
        return Ok(Box::new(input));
    }
    let mut decoder = zstd::Decoder::with_buffer(input)?;
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    Ok(Box::new(BufReader::with_capacity(1 << 17, decoder)))
}

/// Counts what is read, for the progress bar.
struct Counted<R> {
    input: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    const TEXT: &str = "{\"time\":1,\"puts\":{\"a\":\"1\"}}\n{\"time\":2,\"deletes\":[\"a\"]}\n";

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn markers(path: &Path) -> Vec<Marker> {
        let mut lines = Lines::open(path).unwrap();
        let mut markers = Vec::new();
        while let Some(record) = lines.next_record().unwrap() {
            markers.push(Metadata::parse(&record.metadata).unwrap().import.unwrap());
        }
        markers
    }

    #[test]
    fn plain_compressed_and_without_a_last_newline_are_the_same() {
        let plain = markers(file(TEXT.as_bytes()).path());
        assert_eq!(plain.len(), 2);
        let whole = zstd::encode_all(TEXT.as_bytes(), 3).unwrap();
        assert_eq!(markers(file(&whole).path()), plain);
        let (first, second) = TEXT.split_at(20);
        let mut frames = zstd::encode_all(first.as_bytes(), 3).unwrap();
        frames.extend(zstd::encode_all(second.as_bytes(), 3).unwrap());
        assert_eq!(markers(file(&frames).path()), plain);
        assert_eq!(markers(file(TEXT.trim_end().as_bytes()).path()), plain);
    }

    /// Is interrupted before every byte.
    struct Interrupted<'a>(&'a [u8], bool);

    impl Read for Interrupted<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let length = buffer.len().min(1);
            self.0.read(&mut buffer[..length])
        }
    }

    #[test]
    fn a_signal_interrupts_nothing() {
        let expected = markers(file(TEXT.as_bytes()).path());
        for bytes in [TEXT.as_bytes().to_vec(), zstd::encode_all(TEXT.as_bytes(), 3).unwrap()] {
            let mut lines = Lines::open(file(b"").path()).unwrap();
            let bytes: &'static [u8] = bytes.leak();
            lines.input = decompressed(Interrupted(bytes, false)).unwrap();
            for marker in &expected {
                let record = lines.next_record().unwrap().unwrap();
                let metadata = Metadata::parse(&record.metadata).unwrap();
                assert_eq!(metadata.import.as_ref(), Some(marker));
            }
            assert!(lines.next_record().unwrap().is_none());
        }
    }

    #[test]
    fn only_the_same_lines_are_skipped() {
        let markers = markers(file(TEXT.as_bytes()).path());
        let same = file(format!("{TEXT}{TEXT}").as_bytes());
        let mut lines = Lines::open(same.path()).unwrap();
        assert!(lines.skip(&markers[1]).unwrap());
        assert_eq!(lines.next_record().unwrap().unwrap().number, 3);
        let other = file(TEXT.replace('a', "b").as_bytes());
        assert!(!Lines::open(other.path()).unwrap().skip(&markers[1]).unwrap());
        let short = file(TEXT.lines().next().unwrap().as_bytes());
        assert!(!Lines::open(short.path()).unwrap().skip(&markers[1]).unwrap());
    }

    #[test]
    fn a_refusal_names_the_line() {
        let file = file(format!("{TEXT}{{\"time\":3\n").as_bytes());
        let mut lines = Lines::open(file.path()).unwrap();
        lines.next_record().unwrap();
        lines.next_record().unwrap();
        assert!(lines.next_record().unwrap_err().to_string().contains(": line 3: malformed"));
    }

    #[test]
    fn a_cut_file_is_refused() {
        let whole = zstd::encode_all(TEXT.repeat(100).as_bytes(), 3).unwrap();
        let cut = file(&whole[..whole.len() - 5]);
        let mut lines = Lines::open(cut.path()).unwrap();
        let error = loop {
            match lines.next_record() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the end was not missed"),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains(": line "), "{error}");
    }
}
