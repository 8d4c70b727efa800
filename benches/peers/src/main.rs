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
mod config;
mod data;
mod peer;
mod peers;
mod phases;
mod reads;
mod recipe;
mod report;

use std::process::ExitCode;

use crate::config::Config;
use crate::peer::Result;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("annals-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let Some(config) = Config::from_args(std::env::args().skip(1))? else { return Ok(()) };
    std::fs::create_dir_all(&config.dir)?;
    let rows = phases::all(&config);
    std::fs::remove_dir_all(&config.dir)?;
    println!(
        "Medians of {} interleaved rounds of {:.2} s; {} keys written to, {} versions a key in the \
         histories. The best peer of a row is bold; ratios are how many times better annals is, \
         with the least and the most of the rounds.\n",
        config.rounds,
        config.time.as_secs_f64(),
        config.keys(phases::FIELD_KEYS),
        config.versions,
    );
    print!("{}", report::markdown(&rows?, &config.names()));
    println!("\n{}", phases::NOTES);
    Ok(())
}
