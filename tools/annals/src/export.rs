//! `export`: the whole history as lines of JSON, exactly the form `import history` reads.
//!
//! One line is one transaction, oldest first, streamed. Of a compacted store the oldest readable
//! revision comes first, as the state it is: lines that put every key alive there, of at most
//! [`STATE_BYTES_MAX`] each so that they can be imported again within the default limits (one
//! line for most stores, none where nothing was alive). Leases are not exported: they belong to
//! the running store. The form of `--base` has all of this: see [`whole`](crate::whole).

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ::bytes::Bytes;
use annals::{ChangeKind, KeyRange, KeyValue, Store, Transaction};
use clap::Args;

use crate::args::Global;
use crate::bytes::{self, Spelled, show};
use crate::exit::{Failure, Outcome};
use crate::import::{Metadata, seconds};
use crate::output::Output;
use crate::whole;

/// Values of one line of state.
const STATE_BYTES_MAX: usize = 16 << 20;

/// Keys of one line of state.
const STATE_KEYS_MAX: usize = 100_000;

/// Arguments of `export`.
#[derive(Debug, Args)]
#[command(
    after_help = "The lines are what `annals import history` reads; -o has no effect. A compacted store begins with
its state at the oldest revision at which every key can be read: what is gone stays gone, and an
import of it counts revisions and versions anew, from 2 and from 1. Leases are left out. Keys with
--prefix may go back further than all, by a rule of retention: see `annals retention list`.

With --base the lines say all of it, and an import makes a new store with the same revisions,
versions, leases and hash. Rules of retention are not in either: `annals backup` has them, too.

Examples:
  $ annals -C store export | annals -C other import history -
  $ annals -C store export all.jsonl.zst
  $ annals -C store export --prefix /flags/ flags.jsonl
  $ annals -C store export --base whole.jsonl.zst
  $ annals -C copy import history whole.jsonl.zst"
)]
pub(crate) struct ExportArgs {
    /// Write everything but rules of retention, with revisions, versions, order and leases: what `import history`
    /// makes an equal store of.
    #[arg(long)]
    base: bool,
    /// Only what was done to keys with this prefix.
    #[arg(long, value_name = "PREFIX", conflicts_with = "base")]
    prefix: Option<OsString>,
    /// Write to this new file, compressed where it is named .zst, rather than to standard output.
    /// Until it is whole it is named FILE.part.
    file: Option<PathBuf>,
}

impl ExportArgs {
    /// The keys that are wanted.
    fn range(&self) -> KeyRange {
        self.prefix
            .as_ref()
            .map_or_else(KeyRange::all, |prefix| KeyRange::prefix(bytes::of_arg(prefix)))
    }
}

/// `export`: the whole history.
pub(crate) fn export(global: &Global, args: &ExportArgs, out: &mut Output) -> Outcome {
    let store = global.read()?;
    let from = store.oldest_readable(args.range());
    let mut rules = store.retention();
    if let Some(prefix) = &args.prefix {
        // Of others nothing is wanted, nor is what is noted below about the rest.
        rules.retain(|rule| rule.prefix.starts_with(&bytes::of_arg(prefix)));
    }
    let kept =
        rules.iter().map(|rule| (format!("keys with {}", show(&rule.prefix, 60)), rule.floor));
    // What no rule is about is kept until it is compacted.
    let is_all = args.prefix.is_some() || rules.iter().any(|rule| rule.prefix.is_empty());
    let others = ("other keys".to_owned(), store.compacted_revision().max(1));
    for (keys, floor) in kept.chain((!is_all).then_some(others)) {
        if floor < from {
            out.note(format_args!(
                "{keys} can be read from revision {floor}, but the export begins at {from}, where all can"
            ))?;
        }
    }
    match &args.file {
        None => {
            let written = write(args, &store, &mut |line| out.bytes(line));
            written.and_then(|()| out.flush()).map_err(Failure::of_whole)
        }
        Some(path) => write_file(args, &store, path),
    }
}

/// Writes a new file.
fn write_file(args: &ExportArgs, store: &Store, path: &Path) -> Outcome {
    let name = path.display().to_string();
    let failed = |error| Failure::io(&name, error);
    let is_zst = path.extension().is_some_and(|extension| extension == "zst");
    new_file(path, |file| write_to(args, store, file, is_zst, &failed))
}

/// Makes a new file, which `write` writes and syncs. It has its name only once it is whole, so that no part
/// is taken for all of it.
pub(crate) fn new_file<T>(path: &Path, write: impl FnOnce(File) -> Outcome<T>) -> Outcome<T> {
    let name = path.display().to_string();
    let failed = |error| Failure::io(&name, error);
    if path.symlink_metadata().is_ok() {
        return Err(Failure::Other(format!("{name}: there is such a file already")));
    }
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = Path::new(&part);
    // Somebody else's, or another export at work: not ours to write over or to remove.
    let file =
        File::create_new(part).map_err(|error| Failure::io(part.display().to_string(), error))?;
    let written = write(file);
    let written = written.and_then(|done| give_name(part, path).map_err(failed).map(|()| done));
    if written.is_err() {
        let _ = fs::remove_file(part);
    }
    written
}

/// Gives a finished file its name, and replaces nothing that has come to have it.
fn give_name(part: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(part, path) {
        Ok(()) => fs::remove_file(part)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
        // A file system without links.
        Err(_) => fs::rename(part, path)?,
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn write_to(
    args: &ExportArgs,
    store: &Store,
    file: File,
    compressed: bool,
    failed: &dyn Fn(io::Error) -> Failure,
) -> Outcome {
    let mut file = BufWriter::with_capacity(1 << 17, file);
    if compressed {
        let mut encoder = zstd::Encoder::new(&mut file, 3).map_err(failed)?;
        write(args, store, &mut |line| encoder.write_all(line).map_err(failed))?;
        encoder.finish().map_err(failed)?;
    } else {
        write(args, store, &mut |line| file.write_all(line).map_err(failed))?;
    }
    let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)
}

fn write(args: &ExportArgs, store: &Store, line: &mut dyn FnMut(&[u8]) -> Outcome) -> Outcome {
    if args.base {
        return whole::write(store, line);
    }
    let range = args.range();
    let compacted = store.oldest_readable(&range);
    let latest = store.latest()?.revision();
    if compacted > 1 {
        write_state(store, &range, compacted, line)?;
    }
    let first = compacted.max(1) + 1;
    if first > latest {
        return Ok(());
    }
    for transaction in store.log_of(first..=latest, &range).with_values() {
        line(&transaction_line(transaction?)?)?;
    }
    Ok(())
}

fn write_state(
    store: &Store,
    range: &KeyRange,
    revision: u64,
    line: &mut dyn FnMut(&[u8]) -> Outcome,
) -> Outcome {
    let transaction = store.log_of(revision..=revision, range).next().and_then(Result::ok);
    let time = transaction.map_or(0, |transaction| transaction.time);
    let mut puts: Vec<(Bytes, Bytes)> = Vec::new();
    let mut bytes = 0;
    for kv in store.at(revision)?.range(range) {
        let KeyValue { key, value, .. } = kv?;
        if bytes + value.len() > STATE_BYTES_MAX && !puts.is_empty() || puts.len() >= STATE_KEYS_MAX
        {
            line(&encode(&Head { time, ..Head::default() }, &puts, &[])?)?;
            puts.clear();
            bytes = 0;
        }
        bytes += key.len() + value.len();
        puts.push((key, value));
    }
    if puts.is_empty() {
        return Ok(());
    }
    line(&encode(&Head { time, ..Head::default() }, &puts, &[])?)
}

fn transaction_line(transaction: Transaction) -> Outcome<Vec<u8>> {
    let mut puts = Vec::new();
    let mut deletes = Vec::new();
    for change in transaction.changes {
        match (change.kind, change.value) {
            (ChangeKind::Delete, _) => deletes.push(change.key),
            (ChangeKind::Put, Some(value)) => puts.push((change.key, value)),
            (ChangeKind::Put, None) => {
                return Err(Failure::Other(format!(
                    "{}: its value at revision {} is not kept",
                    show(&change.key, 200),
                    transaction.revision
                )));
            }
        }
    }
    puts.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    deletes.sort_unstable();
    let head = Head::new(transaction.time, &transaction.metadata);
    encode(&head, &puts, &deletes)
}

/// What a line says besides its operations.
#[derive(Debug, Default)]
struct Head {
    time: i64,
    origin: Metadata,
}

impl Head {
    fn new(time: i64, metadata: &[u8]) -> Self {
        let origin = match Metadata::parse(metadata) {
            // The marker of an import is about that import, not about the transaction.
            Some(ours) => Metadata { import: None, ..ours },
            None if metadata.is_empty() => Metadata::default(),
            None => Metadata { metadata: Some(bytes::json(metadata)), ..Metadata::default() },
        };
        Self { time, origin }
    }
}

fn encode(head: &Head, puts: &[(Bytes, Bytes)], deletes: &[Bytes]) -> Outcome<Vec<u8>> {
    let bytes: usize = puts.iter().map(|(key, value)| key.len() + value.len() + 8).sum();
    let mut line = Vec::with_capacity(bytes + bytes / 8 + 256);
    write!(line, "{{\"commit\":")?;
    serde_json::to_writer(&mut line, &head.origin.commit)?;
    write!(line, ",\"time\":{},\"puts\":{{", seconds(head.time))?;
    let mut binary = Vec::new();
    let mut first = true;
    for (key, value) in puts {
        // The name of a JSON member can only be text.
        let Ok(key_text) = std::str::from_utf8(key) else {
            binary.push((Spelled(key), Spelled(value)));
            continue;
        };
        if !first {
            line.push(b',');
        }
        first = false;
        serde_json::to_writer(&mut line, key_text)?;
        line.push(b':');
        serde_json::to_writer(&mut line, &Spelled(value))?;
    }
    line.push(b'}');
    if !binary.is_empty() {
        line.extend_from_slice(b",\"puts_b64\":");
        serde_json::to_writer(&mut line, &binary)?;
    }
    line.extend_from_slice(b",\"deletes\":");
    let deletes: Vec<Spelled<'_>> = deletes.iter().map(|key| Spelled(key)).collect();
    serde_json::to_writer(&mut line, &deletes)?;
    // What is left of it: author, author_time, subject, metadata; most often nothing.
    let rest = Metadata { commit: None, ..head.origin.clone() }.to_bytes();
    if let Some(members @ [_, ..]) = rest.get(1..rest.len().saturating_sub(1)) {
        line.push(b',');
        line.extend_from_slice(members);
    }
    line.extend_from_slice(b"}\n");
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_the_recorded_history() {
        let origin = Metadata { commit: Some("c0".into()), ..Metadata::default() };
        let head = Head { time: 5_000_000, origin };
        let puts = [("/a".into(), "x\n\u{e9}".into()), ("/b".into(), vec![0xff].into())];
        let line = encode(&head, &puts, &["/c".into()]).unwrap();
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "{\"commit\":\"c0\",\"time\":5,\"puts\":{\"/a\":\"x\\n\u{e9}\",\"/b\":{\"b64\":\"/w==\"}},\"deletes\":[\"/c\"]}\n"
        );
    }

    #[test]
    fn markers_stay_and_other_metadata_goes_along() {
        let metadata = Metadata {
            commit: Some("c".into()),
            import: Some(crate::import::Marker { source: "x".into(), record: 1 }),
            ..Metadata::default()
        };
        assert_eq!(
            Head::new(0, &metadata.to_bytes()).origin,
            Metadata { import: None, ..metadata }
        );
        assert_eq!(Head::new(0, b"note").origin.metadata, Some("note".into()));
        assert_eq!(Head::new(0, b"").origin, Metadata::default());
        let line = encode(&Head::new(0, b"note"), &[], &["k".into()]).unwrap();
        let line = crate::import::Line::parse(&line).unwrap();
        assert_eq!(line.metadata, Some("note".into()));
    }
}
