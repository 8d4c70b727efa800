//! annals beside the stores a user could take instead, in one run.
//!
//! Every measure is taken in rounds; in each round every store has its turn, in an order that
//! rotates, so that a noisy minute of the machine hits all of them. Figures are medians of the rounds,
//! ratios are taken round by round. Synced commits really sync; a bare loop does the same work with
//! the same bytes beside them; what was acknowledged is read back after reopening.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures for people; nothing here is exact to the last digit"
)]

mod cas;
mod commits;
mod config;
mod data;
mod histories;
#[path = "../../rivals/latency.rs"]
mod latency;
mod past;
mod peer;
mod peers;
mod reads;
mod recipe;
mod report;
mod running;
mod targets;

use std::process::ExitCode;

use crate::commits::Measured;
use crate::config::Config;
use crate::peer::{Level, Result};
use crate::reads::Kind;
use crate::report::Row;

/// Printed under the tables.
const NOTES: &str = "\
*bare*: durable, 1 client and 64 tickets: a write of the records in whole 4 KiB pages into a zero-filled file and an \
fdatasync, and nothing else; durable with more threads: a mutex around a hash table, write and \
fdatasync each; buffered: the same mutex and hash table and a buffer that a background thread \
writes; reads: a hash table and a sorted map of version vectors in memory; disk bytes: the same \
versions sorted by key in 16 KiB blocks of zstd level 3. *+group*: the store under a group commit \
written by hand: threads queue, one commits all that wait in one native transaction and answers each. *64 tickets*: one thread \
with 64 commits outstanding; a peer as it is commits the 64 one after the other, *+group* commits \
each window in one native transaction. Latencies are of a commit from its first try to its success, \
with 64 tickets of the whole window. *grouped*: commits to a sync; of a peer, to a native \
transaction.";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("annals-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Everything that was asked for.
#[derive(Debug, Default)]
struct Report {
    cells: Vec<Measured>,
    histories: Vec<Row>,
    /// Nanoseconds of the bench's own work per commit, blocking and in a window.
    own_work: (f64, f64),
}

fn measure(config: &Config) -> Result<Report> {
    let mut report = Report { own_work: commits::own_work(config)?, ..Report::default() };
    for level in [Level::Sync, Level::Buffered] {
        let (cells, opened) = commits::measure(config, level)?;
        report.cells.extend(cells);
        report.histories.extend(opened);
    }
    for kind in [Kind::Small, Kind::Pod] {
        report.histories.extend(histories::measure(config, kind)?);
    }
    Ok(report)
}

fn run() -> Result<()> {
    let Some(config) = Config::from_args(std::env::args().skip(1))? else { return Ok(()) };
    std::fs::create_dir_all(&config.dir)?;
    let report = measure(&config);
    std::fs::remove_dir_all(&config.dir)?;
    let Report { cells, histories, own_work } = report?;
    println!(
        "Medians of {} interleaved rounds of {:.2} s; {} keys written to, {} versions a key in the \
         histories. The best peer of a row is bold; ratios are how many times better annals is, \
         with the least and the most of the rounds. Of each commit the bench itself takes {:.0} ns, \
         of one in a window {:.0} ns (measured over a store that does nothing).",
        config.rounds,
        config.time.as_secs_f64(),
        config.keys(commits::FIELD_KEYS),
        config.versions,
        own_work.0,
        own_work.1,
    );
    let all = &config.contestants;
    let rates = cells.iter().map(|cell| &cell.rate);
    section("Commits", &report::table(rates, all, true));
    section("Targets", &targets::table(&cells, &histories, all));
    section(
        "Latencies, conflicts and groups of commits",
        &report::table(cells.iter().flat_map(Measured::details), all, false),
    );
    section("Histories and opening", &report::table(&histories, config.ungrouped(), true));
    println!("\n{NOTES}");
    Ok(())
}

fn section(title: &str, table: &str) {
    if !table.is_empty() {
        print!("\n## {title}\n\n{table}");
    }
}
