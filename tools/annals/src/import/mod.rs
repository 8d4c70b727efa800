//! `import`: histories from elsewhere, one transaction a record, one revision a transaction.
//!
//! Three threads keep the disk, the parser and the commits busy at once: one reads and parses
//! records into a queue bounded by bytes, this one submits them in order, one waits for the
//! newest ticket, so that group commit gathers whatever was submitted meanwhile.
//!
//! An import can be interrupted at any time and started again: the last transaction it made says in
//! its metadata how far it got (see [`marker`] and [`resume`]), and nothing is imported twice. What
//! was refused changed nothing; what came before it is kept.

mod etcd;
mod git;
mod git_command;
mod history;
#[cfg(feature = "kine")]
mod kine;
mod line;
mod marker;
mod queue;
mod resume;

use std::borrow::Cow;
use std::path::PathBuf;
use std::thread;

use annals::{
    Change, ChangeKind, CommitOptions, DeleteRangeRequest, Error, ErrorKind, Op, OpResponse,
    Options, Outcome as Ordered, PutRequest, Store, Ticket, Transaction, TxnRequest,
};
use bytes::Bytes;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Progress;

pub(crate) use git::open as find_repository;
#[cfg(test)]
pub(crate) use line::Line;
pub(crate) use line::{Micros, seconds};
#[cfg(test)]
pub(crate) use marker::Marker;
pub(crate) use marker::Metadata;

/// That a key is gone.
fn deletion(key: Bytes) -> Change {
    let (kind, value) = (ChangeKind::Delete, None);
    Change { kind, key, sub: 0, create_revision: 0, version: 0, lease: 0, value }
}

/// Closes the store, with no background work left over: an import is faster than that.
fn close(store: Store) -> annals::Result<()> {
    let mut worked = Ok(true);
    while matches!(worked, Ok(true)) {
        worked = store.run_background();
    }
    worked.map(drop).and(store.close())
}

/// Bytes of records that may wait between the reader and the commits.
const QUEUE_BYTES: usize = 12 << 20;

/// Bytes of records that may wait for the disk: what one write of the log gathers at most.
const UNSYNCED_BYTES: usize = 8 << 20;

/// Size of a memtable unless `-O` says otherwise: less than the engine's default, so that an import
/// stays within 512 MiB beside a zstd window of 128 MiB and records of 20 MB.
const MEMTABLE_BYTES: &str = "24M";

/// Where a history comes from.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// Read lines of JSON, plain or compressed with zstd: one line, one transaction, one revision.
    History(HistoryArgs),
    /// Read the first-parent history of a git repository: every file a key, every commit a revision.
    Git(GitArgs),
    /// Read a snapshot of an etcd: every revision, version and lease as it was there.
    Etcd(etcd::EtcdArgs),
    /// Read the database of a kine in `SQLite`: every revision as it was there.
    #[cfg(feature = "kine")]
    Kine(kine::KineArgs),
}

/// Arguments of `import history`.
#[derive(Debug, Args)]
#[command(after_help = "A line is
  {\"commit\": \"id\", \"time\": 1700000000, \"puts\": {\"KEY\": \"VALUE\"}, \"deletes\": [\"KEY\"]}
Values (and deleted keys) that are not UTF-8 are {\"b64\": \"...\"}. Times are unix seconds, or RFC 3339
(\"2023-11-14T22:13:20Z\"), and kept, but time does not go back: one that is earlier than that of the
line before, or of what is in the store, becomes that one.
Record n becomes revision n + 1 of a fresh store, so what was exported from a compacted one has other
revisions and versions there than before. A malformed line, or one without effect, is
refused with its number; the lines before it are kept. An import that was interrupted goes on
where it stopped when it is started again; where others have written since, --append agrees to that.

What `annals export --base` wrote is read as well: it makes a new store, equal to the one that was
exported.

Examples:
  $ annals -C other import history history.jsonl
  $ annals -C other import history history.jsonl       # again: nothing is imported twice")]
pub(crate) struct HistoryArgs {
    /// The file; - for standard input.
    file: PathBuf,
    #[command(flatten)]
    append: AppendArgs,
}

/// Arguments of `import git`.
#[derive(Debug, Args)]
#[command(
    after_help = "Keys are paths in the repository. Symbolic links are stored as their target,
submodules are left out, commits that change no file's content are skipped. Files and commits
beyond the engine's limits are refused: raise them with -O value_bytes_max=... and
-O transaction_bytes_max=... . Started again, it imports what was committed since; where others
have written to the store meanwhile, --append agrees to that.

Examples:
  $ annals -C other import git repo
  $ annals -C other history README"
)]
pub(crate) struct GitArgs {
    /// A path in the repository.
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Whose history to import.
    #[arg(long, value_name = "REF", default_value = "HEAD")]
    reference: String,
    #[command(flatten)]
    append: AppendArgs,
}

#[derive(Clone, Copy, Debug, Args)]
struct AppendArgs {
    /// Import into a store that holds something else, too. What is there of this history is not
    /// imported again.
    #[arg(long)]
    append: bool,
}

/// One transaction to be.
#[derive(Debug)]
pub(crate) struct Record {
    /// Its number in the source, from 1.
    pub(crate) number: u64,
    /// What to call it in a message: `line 7`.
    pub(crate) name: String,
    /// In microseconds since the Unix epoch.
    pub(crate) time: i64,
    pub(crate) puts: Vec<(Bytes, Bytes)>,
    pub(crate) deletes: Vec<Bytes>,
    pub(crate) metadata: Vec<u8>,
}

impl Record {
    /// Roughly the memory it takes.
    fn bytes(&self) -> usize {
        let puts: usize = self.puts.iter().map(|(key, value)| key.len() + value.len() + 64).sum();
        let deletes: usize = self.deletes.iter().map(|key| key.len() + 32).sum();
        puts + deletes + self.metadata.len() + 128
    }

    fn value_bytes(&self) -> u64 {
        self.puts.iter().map(|(_, value)| value.len() as u64).sum()
    }
}

/// What an import did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    records: u64,
    puts: u64,
    deletes: u64,
    absent: u64,
    value_bytes: u64,
    /// Times that were earlier than one before them, which they became.
    raised_times: u64,
}

impl Summary {
    /// Counts a transaction.
    pub(crate) fn add(&mut self, transaction: &Transaction) {
        self.records += 1;
        for change in &transaction.changes {
            match change.kind {
                ChangeKind::Put => self.puts += 1,
                ChangeKind::Delete => self.deletes += 1,
            }
            self.value_bytes += change.value.as_ref().map_or(0, |value| value.len() as u64);
        }
    }

    fn json(&self, store: &Store, already: u64) -> Value {
        let mut summary = json!({
            "records": self.records,
            "already_there": already,
            "puts": self.puts,
            "deletes": self.deletes,
            "value_bytes": self.value_bytes,
            "revision": store.revision(),
        });
        if self.absent > 0 {
            summary["deletes_of_absent_keys"] = json!(self.absent);
        }
        if self.raised_times > 0 {
            summary["raised_times"] = json!(self.raised_times);
        }
        summary
    }

    /// Says what has become of times that could not be kept.
    fn note_times(&self, out: &mut Output) -> Outcome {
        match self.raised_times {
            0 => Ok(()),
            count => out.note(format_args!(
                "{count} of {} times were earlier than one before them in the store, and became that one",
                self.records
            )),
        }
    }
}

/// `import`: a history from elsewhere.
pub(crate) fn import(global: &Global, command: &ImportCommand, out: &mut Output) -> Outcome {
    match command {
        ImportCommand::History(args) => history::import(global, args, out),
        ImportCommand::Git(args) => git_command::import(global, args, out),
        ImportCommand::Etcd(args) => etcd::import(global, args, out),
        #[cfg(feature = "kine")]
        ImportCommand::Kine(args) => kine::import(global, args, out),
    }
}

/// Opens the store to import into.
fn open(global: &Global) -> Outcome<Store> {
    Ok(options(global)?.open(global.data()?)?)
}

/// The options that an import opens a store with.
fn options(global: &Global) -> Outcome<Options> {
    let mut options = global.engine_options()?;
    if !global.options.iter().any(|option| option.starts_with("memtable_bytes=")) {
        options.set("memtable_bytes", MEMTABLE_BYTES)?;
    }
    Ok(options)
}

/// Submits every record in order and waits until all are durable.
fn run(
    store: &Store,
    mut next: impl FnMut() -> Outcome<Option<Record>> + Send,
    progress: &mut Progress,
    mut position: impl FnMut(u64) -> u64,
) -> Outcome<Summary> {
    let (sender, receiver) = queue::bounded::<Outcome<Record>>(QUEUE_BYTES);
    let (tickets, waiting) = queue::bounded::<Ticket>(UNSYNCED_BYTES);
    thread::scope(|scope| {
        scope.spawn(move || {
            loop {
                let (item, bytes, last) = match next() {
                    Ok(Some(record)) => {
                        let bytes = record.bytes();
                        (Ok(record), bytes, false)
                    }
                    Ok(None) => return,
                    Err(failure) => (Err(failure), 0, true),
                };
                if !sender.send(item, bytes) || last {
                    return;
                }
            }
        });
        let waiter = scope.spawn(move || wait_for(&waiting));
        let mut summary = Summary::default();
        let mut latest = newest_time(store)?;
        let submitted = loop {
            let Some(record) = receiver.recv() else { break Ok(()) };
            let done = record.and_then(|record| {
                let (number, time, bytes) = (record.number, record.time, record.bytes());
                let ticket = submit(store, record, &mut summary)?;
                summary.raised_times += u64::from(time < latest);
                latest = latest.max(time);
                progress.set(position(number), || Cow::Owned(format!("{number} records")));
                Ok((ticket, bytes))
            });
            match done {
                Ok((ticket, bytes)) => {
                    // The waiter has gone only if a commit failed, which it will tell.
                    if !tickets.send(ticket, bytes) {
                        break Ok(());
                    }
                }
                Err(failure) => break Err(failure),
            }
        };
        drop(receiver);
        drop(tickets);
        let waited = match waiter.join() {
            Ok(waited) => waited,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        summary.absent = waited?;
        submitted.map(|()| summary)
    })
}

/// The time below which there can be no other any more.
fn newest_time(store: &Store) -> Outcome<i64> {
    match store.revision() {
        1 => Ok(i64::MIN),
        newest => Ok(store.time_of(newest)?),
    }
}

/// Waits for every ticket; returns how many deletes found no key.
fn wait_for(tickets: &queue::Receiver<Ticket>) -> Outcome<u64> {
    let mut absent = 0;
    while let Some(ticket) = tickets.recv() {
        for response in ticket.wait()?.responses {
            if let OpResponse::DeleteRange(delete) = response {
                absent += u64::from(delete.deleted == 0);
            }
        }
    }
    Ok(absent)
}

fn submit(store: &Store, record: Record, summary: &mut Summary) -> Outcome<Ticket> {
    let value_bytes = record.value_bytes();
    let (puts, deletes) = (record.puts.len() as u64, record.deletes.len() as u64);
    let puts_ops = record
        .puts
        .into_iter()
        .map(|(key, value)| Op::Put(PutRequest { key, value, ..PutRequest::default() }));
    let delete_ops = record
        .deletes
        .into_iter()
        .map(|key| Op::DeleteRange(DeleteRangeRequest { key, ..DeleteRangeRequest::default() }));
    let request =
        TxnRequest { success: puts_ops.chain(delete_ops).collect(), ..TxnRequest::default() };
    let options = CommitOptions {
        time: Some(record.time),
        metadata: record.metadata.into(),
        ..CommitOptions::default()
    };
    let ticket =
        store.submit_with(request, options).map_err(|error| explain(&record.name, error))?;
    match ticket.outcome() {
        Ordered::Committed { .. } => {}
        _ => {
            return Err(Failure::Other(format!(
                "{}: no effect: every key it deletes is absent already",
                record.name
            )));
        }
    }
    summary.records += 1;
    summary.puts += puts;
    summary.deletes += deletes;
    summary.value_bytes += value_bytes;
    Ok(ticket)
}

/// Says which record was refused, and for a limit how to raise it.
fn explain(name: &str, error: Error) -> Failure {
    let option = match error.kind() {
        ErrorKind::KeyTooLong { .. } => "key_bytes_max",
        ErrorKind::ValueTooLong { .. } => "value_bytes_max",
        ErrorKind::TransactionTooLarge { .. } => "transaction_bytes_max",
        ErrorKind::TooManyOperations { .. } => "transaction_operations_max",
        _ => return Failure::about(name, error),
    };
    Failure::about(format!("{name}: to raise the limit, give -O {option}=..."), error)
}
