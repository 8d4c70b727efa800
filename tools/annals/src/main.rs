//! The `annals` tool: read, write, inspect, verify and import stores.
//!
//! Data goes to standard output, everything else to standard error. Commands that only read open
//! the store for reading only. How a command ends is its exit code ([`exit`]).

mod args;
mod at;
mod bytes;
mod checkpoint;
mod compact;
mod exit;
mod export;
mod files;
mod hash;
mod import;
mod leases;
mod output;
mod progress;
mod reads;
mod retention;
mod space;
mod stats;
mod tour;
mod txn;
mod verify;
mod watch;
mod writes;

use std::process::ExitCode;

use clap::FromArgMatches as _;

use args::{Cli, Command};
use exit::Outcome;
use output::Output;

fn main() -> ExitCode {
    let cli = Cli::from_arg_matches(&args::command().get_matches());
    match run(&cli.unwrap_or_else(|error| error.exit())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(cli: &Cli) -> Outcome {
    let mut out = Output::new(cli.global.output);
    let done = dispatch(cli, &mut out);
    // What was found before a failure is data too.
    let flushed = out.flush();
    done.and(flushed)
}

fn dispatch(cli: &Cli, out: &mut Output) -> Outcome {
    let global = &cli.global;
    match &cli.command {
        Command::Put(args) => writes::put(global, args, out),
        Command::Get(args) => reads::get(global, args, out),
        Command::Del(args) => writes::del(global, args, out),
        Command::Range(args) => reads::range(global, args, out),
        Command::Txn(args) => txn::txn(global, args, out),
        Command::History(args) => reads::history(global, args, out),
        Command::Diff(args) => reads::diff(global, args, out),
        Command::Log(args) => reads::log(global, args, out),
        Command::Watch(args) => watch::watch(global, args, out),
        Command::Hash(args) => hash::hash(global, args, out),
        Command::Lease(command) => leases::lease(global, command, out),
        Command::Retention(command) => retention::retention(global, command, out),
        Command::Checkpoint(args) => checkpoint::checkpoint(global, args, out),
        Command::Compact(args) => compact::compact(global, args, out),
        Command::Stats(args) => stats::stats(global, args, out),
        Command::Inspect(args) => files::inspect(global, args, out),
        Command::Dump(args) => files::dump(global, args, out),
        Command::Verify(args) => verify::verify(global, args, out),
        Command::Export(args) => export::export(global, args, out),
        Command::Import(command) => import::import(global, command, out),
        Command::Tour(args) => tour::tour(global, args, out),
    }
}
