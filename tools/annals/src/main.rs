//! The `annals` tool: read, write, inspect, verify and import stores.
//!
//! Data goes to standard output, everything else to standard error. Commands that only read open
//! the store for reading only. How a command ends is its exit code ([`exit`]).

mod args;
mod at;
mod backup;
mod bytes;
mod checkpoint;
mod commands;
mod compact;
mod exit;
mod export;
mod files;
mod follow;
mod generate;
mod hash;
mod import;
mod leases;
mod live;
mod numbers;
mod output;
mod progress;
mod reads;
mod report;
mod retention;
mod space;
mod stats;
mod top;
mod tour;
mod txn;
mod verify;
mod watch;
mod writes;

use std::process::ExitCode;

use clap::FromArgMatches as _;

use args::Cli;
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
    let mut out = Output::new(cli.global.format());
    let done = commands::dispatch(cli, &mut out);
    // What was found before a failure is data too.
    let flushed = out.flush();
    done.and(flushed)
}
