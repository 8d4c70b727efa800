//! `report`: one page about a store, with plots, for people who were not there.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "places in a plot, none of them negative"
)]

mod facts;
mod page;
mod plots;
mod svg;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::args::Global;
use crate::exit::{Failure, Outcome, say};
use crate::output::Output;

/// Arguments of `report`.
#[derive(Debug, Args)]
#[command(
    after_help = "One file, which needs no network and runs no script: how far the store is, which keys take
the room, how often keys were written, which files hold which revisions, and how long commits take.
It is made from the files, also beside a program that writes; how long commits take only that
program knows, and tells if it asks for it when it opens the store:
Options::new().live_interval_seconds(1). Where damage is in the way the page is written with what
can be read, and says so; the command exits 3.

Examples:
  $ annals -C store report --html report.html"
)]
pub(crate) struct ReportArgs {
    /// The file to write. One that is there is replaced.
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
    /// How many parts of the keys to tell apart.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=32))]
    depth: u8,
}

/// `report`: writes the page.
pub(crate) fn report(global: &Global, args: &ReportArgs, out: &mut Output) -> Outcome {
    let facts = facts::Facts::gather(global, usize::from(args.depth))?;
    let page = page::page(&facts);
    let failed = |error| Failure::io(args.html.display().to_string(), error);
    fs::write(&args.html, &page).map_err(failed)?;
    out.object(&json!({ "html": args.html.display().to_string(), "bytes": page.len() }))?;
    match facts.damage.as_slice() {
        [] => Ok(()),
        damage => {
            damage.iter().for_each(say);
            Err(Failure::Damaged)
        }
    }
}
