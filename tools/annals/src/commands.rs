//! The commands: their names, what each is for, and who runs it. Their arguments lie beside their code.

use clap::Subcommand;

use crate::args::Cli;
use crate::exit::Outcome;
use crate::output::Output;
use crate::{
    backup, bench, checkpoint, compact, export, files, generate, hash, import, leases, points,
    readers, reads, repair, report, retention, revert, schema, stats, top, tour, txn, verify,
    watch, writes,
};

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a key.
    Put(writes::PutArgs),
    /// Read a key. Exits 5 when it is not alive.
    Get(reads::GetArgs),
    /// Delete a key, or a range of keys at one revision.
    Del(writes::DelArgs),
    /// Read a range of keys.
    Range(reads::RangeArgs),
    /// Run a transaction: if all comparisons hold, then do this, else that.
    Txn(txn::TxnArgs),
    /// Show every retained version of a key, newest first.
    History(reads::HistoryArgs),
    /// Compare the states at two revisions.
    Diff(reads::DiffArgs),
    /// Put keys back to what they were, at one revision.
    Revert(revert::RevertArgs),
    /// Show the transactions in order: when, what changed, with which metadata.
    Log(reads::LogArgs),
    /// Tell what changes, as it comes, also while a program writes the store.
    Watch(watch::WatchArgs),
    /// Hash all keys and values as etcd does, to compare stores with.
    Hash(hash::HashArgs),
    /// Grant, list and revoke leases.
    #[command(
        subcommand,
        after_help = "Examples:
  $ annals -C store lease grant 60 --id 9
  $ annals -C store put /session/me here --lease 9     # the key goes with the lease
  $ annals -C store lease revoke 9"
    )]
    Lease(leases::LeaseCommand),
    /// Say how long the keys with a prefix are kept, list such rules, and apply them.
    #[command(
        subcommand,
        after_help = "Examples:
  $ annals -C store retention set --prefix /events/ --for 1h
  $ annals -C store retention list
  $ annals -C store retention apply"
    )]
    Retention(retention::RetentionCommand),
    /// Forget what only reads below a revision can see, and give its space back.
    Compact(compact::CompactArgs),
    /// Move what is in the log to files, and make all files as small and as quick to read as they can be.
    Reorganise(compact::ReorganiseArgs),
    /// Make a copy of the store that shares its files, also while a program writes.
    Checkpoint(checkpoint::CheckpointArgs),
    /// Write the store to a file or stream, compressed and with checksums, also while a program writes.
    Backup(backup::BackupArgs),
    /// Restore a backup into a new store.
    Restore(backup::RestoreArgs),
    /// Show revisions, keys, files and bytes.
    #[command(alias = "info")]
    Stats(stats::StatsArgs),
    /// Show the store at a glance, again and again: rates, latency, files, watches, leases.
    Top(top::TopArgs),
    /// Write a page about the store, with plots: space, versions, files, latency.
    Report(report::ReportArgs),
    /// Show what the files are made of; of a backup, check all of it.
    Inspect(files::InspectArgs),
    /// Show what the files hold: entries, frames, the manifest.
    Dump(files::DumpArgs),
    /// List the files that hold versions and events, with what each spans.
    Segments(files::SegmentsArgs),
    /// List the files of the log, with what each has and how it ends.
    Wal(files::WalArgs),
    /// Show the manifest: which files make up the store.
    Manifest(files::ManifestArgs),
    /// Show which files contain a key, and why a look-up opens or skips each.
    Find(files::FindArgs),
    /// Show which revision a point in history is, and when it was committed.
    At(points::AtArgs),
    /// List the processes that have the store open, and the removed files they keep on disk.
    Readers(readers::ReadersArgs),
    /// Check every byte of every file. Writes nothing. Exits 3 when something is damaged.
    Verify(verify::VerifyArgs),
    /// Recover what can be read of a damaged store into a new one. Never writes to the original.
    Repair(repair::RepairArgs),
    /// Export the history as JSON lines for `import history`; --base preserves revisions, versions and leases.
    Export(export::ExportArgs),
    /// Read a history into the store.
    #[command(
        subcommand,
        after_help = "Examples:
  $ annals -C other import history history.jsonl
  $ annals -C another import git repo"
    )]
    Import(import::ImportCommand),
    /// Show what a store can do, with the git history of a repository.
    Tour(tour::TourArgs),
    /// Measure for a few seconds what a store does here, on this disk.
    Bench(bench::BenchArgs),
    /// Write a script that completes commands and options in a shell.
    Completions(generate::CompletionsArgs),
    /// Print the JSON schema of a command's output.
    Schema(schema::SchemaArgs),
    /// Write the manual pages.
    Man(generate::ManArgs),
}

/// Runs the command.
pub(crate) fn dispatch(cli: &Cli, out: &mut Output) -> Outcome {
    let global = &cli.global;
    match &cli.command {
        Command::Put(args) => writes::put(global, args, out),
        Command::Get(args) => reads::get(global, args, out),
        Command::Del(args) => writes::del(global, args, out),
        Command::Range(args) => reads::range(global, args, out),
        Command::Txn(args) => txn::txn(global, args, out),
        Command::History(args) => reads::history(global, args, out),
        Command::Diff(args) => reads::diff(global, args, out),
        Command::Revert(args) => revert::revert(global, args, out),
        Command::Log(args) => reads::log(global, args, out),
        Command::Watch(args) => watch::watch(global, args, out),
        Command::Hash(args) => hash::hash(global, args, out),
        Command::Lease(command) => leases::lease(global, command, out),
        Command::Retention(command) => retention::retention(global, command, out),
        Command::Checkpoint(args) => checkpoint::checkpoint(global, args, out),
        Command::Compact(args) => compact::compact(global, args, out),
        Command::Reorganise(_) => compact::reorganise(global, out),
        Command::Backup(args) => backup::backup(global, args, out),
        Command::Restore(args) => backup::restore(global, args, out),
        Command::Stats(args) => stats::stats(global, args, out),
        Command::Top(args) => top::top(global, args, out),
        Command::Report(args) => report::report(global, args, out),
        Command::Inspect(args) => files::inspect(global, args, out),
        Command::Dump(args) => files::dump(global, args, out),
        Command::Segments(args) => files::segments(global, args, out),
        Command::Wal(args) => files::wal(global, args, out),
        Command::Manifest(args) => files::manifest_of(global, args, out),
        Command::Find(args) => files::find_key(global, args, out),
        Command::At(args) => points::at(global, args, out),
        Command::Readers(args) => readers::readers(global, args, out),
        Command::Verify(args) => verify::verify(global, args, out),
        Command::Repair(args) => repair::repair(global, args, out),
        Command::Export(args) => export::export(global, args, out),
        Command::Import(command) => import::import(global, command, out),
        Command::Tour(args) => tour::tour(global, args, out),
        Command::Bench(args) => bench::bench(global, args, out),
        Command::Completions(args) => generate::completions(args, out),
        Command::Schema(args) => schema::schema(args, out),
        Command::Man(args) => generate::man(args, out),
    }
}
