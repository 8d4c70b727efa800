//! `backup` and `restore`: a store as one file or stream, and a store made of one.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, IsTerminal as _, Read, Write};
use std::path::{Path, PathBuf};

use annals::{BackupReport, Error, ErrorKind, Options, RestoreOptions, RestoreReport, Store};
use clap::Args;
use serde_json::{Value, json};

use crate::args::Global;
use crate::exit::{Failure, Outcome, say};
use crate::export::new_file;
use crate::output::Output;
use crate::progress::Progress;
use crate::target::Target;

/// Bytes that are read from and written to a file at once.
const BUFFER_BYTES: usize = 1 << 20;

/// How standard input and output are named.
const STANDARD: &str = "-";

/// Arguments of `backup`.
#[derive(Debug, Args)]
#[command(
    after_help = "A backup is one stream with everything that can be read of the store, at every revision,
compressed and checked by checksums; leases and rules of retention go with it. A program may write
to the store meanwhile: the backup has what was durable when this command began. Beside the store
of an annals-etcd lies auth.json, its users and roles: copy that, too.

What it tells on standard output goes to standard error where the backup itself goes there.

Examples:
  $ annals -C store backup monday.backup
  $ annals inspect monday.backup
  $ annals -C store backup tuesday.backup --from 9      # the revision that Monday's has
  $ annals -C store backup - | annals -C copy restore -      # or by way of ssh, to another machine"
)]
pub(crate) struct BackupArgs {
    /// The new file, not in the store's own directory, or - for standard output. Until it is whole the file
    /// is named FILE.part.
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// Write only what came after this revision, the one that the backup before told: `restore` applies it
    /// to that one.
    #[arg(long, value_name = "REV", value_parser = crate::args::parse_revision)]
    from: Option<u64>,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
#[command(
    after_help = "The directory that -C names must be absent or empty. The store has the revisions and the identity
of the one that was backed up. Every byte of the backup is checked, and at the end the store has
to have the hash (`annals hash`) that the other one had. If the command is interrupted or fails,
the directory is no store, and the next command on it says so: remove it.

Examples:
  $ annals -C store backup monday.backup
  $ annals -C copy restore monday.backup
  $ annals -C copy verify
  $ annals -C store backup tuesday.backup --from 9
  $ annals -C later restore monday.backup tuesday.backup --bump-revision 1000000"
)]
pub(crate) struct RestoreArgs {
    /// The backup, and the increments that continue it, in their order; - for standard input.
    #[arg(value_name = "FILE|-", required = true)]
    files: Vec<PathBuf>,
    /// Go on this many revisions later, compacted there: for a store that takes the place of a lost one, whose
    /// clients may know later revisions than the backup has. With more than were ever made after it they are refused, and list
    /// anew, rather than miss changes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    bump_revision: Option<u64>,
}

/// `backup`: the store into a stream.
pub(crate) fn backup(global: &Global, args: &BackupArgs, out: &mut Output) -> Outcome {
    let store = global.read()?;
    if args.file != Path::new(STANDARD) {
        refuse_within(global.data()?, &args.file)?;
        let name = args.file.display().to_string();
        let made = new_file(&args.file, |file| {
            let mut to = BufWriter::with_capacity(BUFFER_BYTES, file);
            let made = write(&store, args.from, &mut to, &name)?;
            let file = to.into_inner().map_err(|error| Failure::io(&name, error.into_error()))?;
            file.sync_all().map_err(|error| Failure::io(&name, error))?;
            Ok(made)
        })?;
        note_users(global.data()?, out)?;
        return out.object(&report(&made));
    }
    if io::stdout().is_terminal() {
        let what = "a backup is no text for a terminal: name a file, or lead it elsewhere";
        return Err(Failure::Usage(what.into()));
    }
    let made = write(&store, args.from, out.stream(), "standard output")?;
    out.flush().map_err(Failure::of_whole)?;
    note_users(global.data()?, out)?;
    let BackupReport { revision, bytes, hash, .. } = made;
    out.note(format_args!("revision {revision}, {bytes} bytes, hash {}", hash.hash))
}

/// Says where a copy of the store is not all that is there: beside the store of an `annals-etcd` are its users, without
/// whom nobody is asked who he is.
pub(crate) fn note_users(store: &Path, out: &mut Output) -> Outcome {
    let Ok(store) = store.canonicalize() else { return Ok(()) };
    let users = store.with_file_name("auth.json");
    let has_users = |text: String| {
        text.contains("\"format\":\"annals-etcd auth\"")
            && (text.contains("\"enabled\":true") || !text.contains("\"users\":[]"))
    };
    if fs::read_to_string(&users).is_ok_and(has_users) {
        out.note(format_args!(
            "the users and roles of annals-etcd are not in it: copy {}, too, and put it beside the store before a server is \
             started there, which asks for no password without it",
            users.display()
        ))?;
    }
    Ok(())
}

/// Refuses a file in the directory of the store, where only the store's own belong: a backup there is lost with it.
fn refuse_within(store: &Path, file: &Path) -> Outcome {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new(".")).canonicalize();
    // What is not there, or cannot be looked at, is told where it is opened.
    let (Ok(store), Ok(parent)) = (store.canonicalize(), parent) else { return Ok(()) };
    if parent.starts_with(store) {
        let file = file.display();
        return Err(Failure::Usage(format!(
            "{file}: is within the store itself: name another place"
        )));
    }
    Ok(())
}

fn write(
    store: &Store,
    from: Option<u64>,
    to: &mut dyn Write,
    name: &str,
) -> Outcome<BackupReport> {
    let mut to = Told { of: to, done: 0, progress: Progress::new(None, "bytes"), failure: None };
    let made = match from {
        None => store.backup(&mut to),
        Some(revision) => store.backup_from(revision, &mut to),
    };
    made.map_err(|error| match to.failure.take() {
        Some(error) => Failure::io(name, error),
        None => {
            if from.is_some() && matches!(error.kind(), ErrorKind::Compacted { .. }) {
                say("what has been forgotten since cannot be in an increment: take a full backup");
            }
            error.into()
        }
    })
}

fn report(made: &BackupReport) -> Value {
    json!({
        "from": made.from,
        "revision": made.revision,
        "files": made.files,
        "file_bytes": made.file_bytes,
        "bytes": made.bytes,
        "hash": made.hash.hash,
        "compacted_revision": made.hash.compacted,
    })
}

/// `restore`: a store of a backup, and of what came after it.
pub(crate) fn restore(global: &Global, args: &RestoreArgs, out: &mut Output) -> Outcome {
    let (directory, options) = (global.data()?, global.engine_options()?);
    let options = RestoreOptions::new().options(options);
    let options = options.bump_revision(args.bump_revision.unwrap_or(0));
    let target = Target::new(directory);
    let made = restored(&args.files, directory, &options);
    let made = made.map_err(|failure| target.failed(failure))?;
    out.object(&json!({
        "revision": made.revision,
        "files": made.files,
        "file_bytes": made.file_bytes,
        "increments": made.increments,
        "bytes": made.bytes,
        "hash": made.hash.hash,
        "compacted_revision": made.hash.compacted,
    }))
}

fn restored(
    files: &[PathBuf],
    directory: &Path,
    options: &RestoreOptions,
) -> Outcome<RestoreReport> {
    if files.iter().filter(|file| *file == Path::new(STANDARD)).count() > 1 {
        return Err(Failure::Usage("standard input can be read only once: name - once".into()));
    }
    read(files, &mut |from| annals::restore(from, directory, options))
}

/// Makes a store of a backup and its increments, for who only wants to look into it.
pub(crate) fn unpack(files: &[PathBuf], directory: &Path, options: &Options) -> Outcome {
    restored(files, directory, &RestoreOptions::new().options(options.clone())).map(drop)
}

/// Reads files as one stream. Errors about it name the file, and where in it.
fn read<T>(
    files: &[PathBuf],
    run: &mut dyn FnMut(&mut dyn Read) -> annals::Result<T>,
) -> Outcome<T> {
    let sources = files.iter().map(|file| open(file)).collect::<Outcome<Vec<_>>>()?;
    let total = sources.iter().try_fold(0, |sum, (_, bytes, _)| Some(sum + (*bytes)?));
    let mut parts = Vec::new();
    let mut stream: Box<dyn Read> = Box::new(io::empty());
    for (source, bytes, name) in sources {
        parts.push((bytes, name));
        stream = Box::new(stream.chain(source));
    }
    let progress = Progress::new(total, "bytes");
    let mut from = Told { of: &mut *stream, done: 0, progress, failure: None };
    run(&mut from).map_err(|error| match from.failure.take() {
        Some(error) => {
            let (_, name) = part_of(&parts, from.done);
            Failure::io(name, error)
        }
        None => in_backup(error, &parts),
    })
}

/// The part of a stream that has an offset, and where it begins.
fn part_of(parts: &[(Option<u64>, String)], offset: u64) -> (u64, String) {
    let mut start = 0;
    let mut last = (0, String::new());
    for (bytes, name) in parts {
        last = (start, name.clone());
        match bytes {
            Some(bytes) if start + bytes <= offset => start += bytes,
            _ => break,
        }
    }
    last
}

/// A stream to read, its length if that is known, and its name.
type Source = (Box<dyn Read>, Option<u64>, String);

fn open(path: &Path) -> Outcome<Source> {
    if path == Path::new(STANDARD) {
        return Ok((Box::new(io::stdin().lock()), None, "standard input".to_owned()));
    }
    let name = path.display().to_string();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Failure::NotFound(format!("{name}: no such file")),
        _ => Failure::io(&name, error),
    };
    let file = File::open(path).map_err(failed)?;
    let total = file.metadata().map_err(failed)?.len();
    Ok((Box::new(BufReader::with_capacity(BUFFER_BYTES, file)), Some(total), name))
}

/// Names the backup in an error that is about it.
fn in_backup(error: Error, parts: &[(Option<u64>, String)]) -> Failure {
    match error.into_kind() {
        ErrorKind::Corrupt(mut damage) if damage.file == Path::new("backup") => {
            let (start, name) = part_of(parts, damage.offset);
            damage.offset -= start;
            Error::from(damage.in_file(Path::new(&name))).into()
        }
        other => Error::from(other).into(),
    }
}

/// Is this file a backup?
pub(crate) fn is_backup(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && u32::from_le_bytes(magic) == annals_format::backup::MAGIC
}

/// `inspect` of a backup.
pub(crate) fn inspect(path: &Path, out: &mut Output) -> Outcome {
    let found = read(&[path.to_path_buf()], &mut |from| annals::inspect_backup(from))?;
    let parts: Vec<Value> = found
        .iter()
        .map(|part| {
            json!({
            "store": part.store,
            "from": part.from,
            "revision": part.revision,
            "compacted_revision": part.compacted,
            "incarnation": part.incarnation,
            "files": part.files,
            "file_bytes": part.file_bytes,
            "transactions": part.transactions,
            "records": part.records,
            "bytes": part.bytes,
            "hash": part.hash.hash,
            })
        })
        .collect();
    match <[Value; 1]>::try_from(parts) {
        Ok([part]) => out.object(&part),
        Err(parts) => out.object(&json!({ "backups": parts })),
    }
}

/// A stream whose bytes are counted and shown, and whose failure is kept as it was.
struct Told<'a, S: ?Sized> {
    of: &'a mut S,
    done: u64,
    progress: Progress,
    failure: Option<io::Error>,
}

impl<S: ?Sized> Told<'_, S> {
    fn note(&mut self, moved: io::Result<usize>) -> io::Result<usize> {
        match moved {
            Ok(count) => {
                self.done += count as u64;
                self.progress.set(self.done, || Cow::Borrowed(""));
                Ok(count)
            }
            Err(error) => {
                let kind = error.kind();
                if kind != io::ErrorKind::Interrupted {
                    self.failure = Some(error);
                }
                Err(kind.into())
            }
        }
    }
}

impl<S: Write + ?Sized> Write for Told<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.of.write(bytes);
        self.note(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.of.flush().map(|()| 0);
        self.note(flushed).map(|_| ())
    }
}

impl<S: Read + ?Sized> Read for Told<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.of.read(buffer);
        self.note(read)
    }
}
