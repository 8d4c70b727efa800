//! The `annals` tool: read, write, inspect, verify and import stores.
//!
//! Data goes to standard output, everything else to standard error. Commands that only read open
//! the store for reading only. How a command ends is its exit code ([`exit`]).

mod args;
mod at;
mod backup;
mod bench;
mod bytes;
mod census;
mod checkpoint;
mod commands;
mod compact;
mod elsewhere;
mod exit;
mod export;
mod files;
mod follow;
mod generate;
mod hash;
mod hint;
mod import;
mod leases;
mod live;
mod numbers;
mod output;
mod points;
mod progress;
mod readers;
mod reads;
mod repair;
mod report;
mod retention;
mod revert;
mod schema;
mod schemas;
mod space;
mod stats;
mod target;
mod top;
mod tour;
mod txn;
mod verify;
mod watch;
mod whole;
mod writes;

use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches as _};

use args::Cli;
use exit::Outcome;
use output::Output;

fn main() -> ExitCode {
    let matches = args::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match run(&cli, &name(&matches)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// The name of a command, with those of the groups it is in: `lease.grant`.
fn name(matches: &ArgMatches) -> String {
    let mut names = Vec::new();
    let mut at = matches.subcommand();
    while let Some((name, matches)) = at {
        names.push(name);
        at = matches.subcommand();
    }
    names.join(".")
}

fn run(cli: &Cli, name: &str) -> Outcome {
    let mut out = Output::new(cli.global.format(), name);
    let done = commands::dispatch(cli, &mut out);
    // What was found before a failure is data too.
    let flushed = out.flush();
    done.and(flushed)
}
