//! Three ways to give transactions their order, side by side: the commit chain, a combiner, a mutex.
//!
//! ```sh
//! cargo bench --features bench-internals --bench rivals                 # all cells, some 4 minutes
//! cargo bench --features bench-internals --bench rivals -- threads=64 load=hot stall=no
//! cargo bench --features bench-internals --bench rivals -- --help
//! ```
//!
//! # What is measured
//!
//! A transaction compares the `mod_revision` of each of its keys (1 or 10) with what it has just read
//! there, and puts 256 bytes to each; on a conflict it reads again, until it is through. What it takes
//! to do that is the same code for all three: the evaluation, the look-up of the keys, one allocation
//! for node, versions and frame, the frame's encoding and its checksums, the header that is patched
//! once the place is known. What differs is how a place is got:
//!
//! * **chain**: by a CAS on the last node. This is the store's own `commit` room, unchanged.
//! * **mutex**: `parking_lot`'s, held while the compares are looked at again, the header is patched and
//!   the versions are made the heads of their keys. All else is done outside, as in the chain.
//! * **combiner**: the same, but a thread that finds the role taken leaves its transaction on a stack,
//!   and whoever has the role serves all that lie there. A thread that finds the role free serves
//!   itself first, so alone it costs no more than the mutex.
//!
//! The two rivals know that they are alone, and store where the chain must CAS. Beside the committing
//! threads a background thread walks all frames every 10 ms, as the writer of a log would, and old
//! generations are dropped as they fill.
//!
//! The loads: `uniform` draws all keys from the whole set; `hot` makes one of them the same key in all
//! transactions. With `stall=yes` one transaction every 10 ms sleeps for 1 ms where it hurts: the
//! mutex's with the lock, the combiner's with the role, the chain's decided and not yet linked. (There
//! it has nothing that others need. Between its link and its apply, another would apply it in passing;
//! `commit/tests/shuttle.rs` parks threads there for good.)
//!
//! Each round runs the three one after the other, in turns. It counts commits first, without a clock
//! in the loop, then times every commit, conflicts included. Rates and ratios are medians of the
//! rounds, ratios of pairs from the same round; latencies are those of all rounds together.
//!
//! # What is not
//!
//! Durability: nothing is written or synced, see `benches/peers` for that. Contention of more
//! processors than the machine has: 64 threads on two cores meet when one is descheduled, not on a
//! cache line. The cost of evaluating a request: the plan is filled in by hand. Nor the order alone: in
//! uniform cells most of the time goes to cache misses on keys and to fresh memory, the same for all,
//! so ratios there are nearer to 1 than those of the orders are. And a pause of the machine's own is in
//! all three: a maximum says something when it comes again.
//!
//! Every run ends with a check that the revision has grown by the number of commits.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::cast_precision_loss, reason = "figures are printed with a few digits")]

mod combiner;
mod latency;
mod options;
mod running;
mod table;
mod ways;

use std::process::ExitCode;

use options::{Asked, Cell, Options};
use running::{Run, run};
use table::{Row, Table};
use ways::{Chain, Combiner, Mutex};

/// The ways, in the order of the columns.
const WAYS: [&str; 3] = ["chain", "combiner", "mutex"];

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Asked::Run(options)) => options,
        Ok(Asked::Help) => {
            println!("{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("{problem}\n\n{}", options::HELP);
            return ExitCode::FAILURE;
        }
    };
    let cells = options.cells();
    let mut table = Table::default();
    println!("{}", table::preamble(&options));
    println!("{}", table::RATES);
    for (number, &cell) in cells.iter().enumerate() {
        eprintln!("cell {} of {}: {cell}", number + 1, cells.len());
        let row =
            Row { cell, rounds: (0..options.rounds).map(|r| round(&options, cell, r)).collect() };
        println!("{}", row.rates());
        table.rows.push(row);
    }
    println!("\n{}\n{}", table::LATENCIES, table.latencies());
    ExitCode::SUCCESS
}

/// One run of each way, each round beginning with another.
fn round(options: &Options, cell: Cell, round: usize) -> [Run; WAYS.len()] {
    let mut runs = [const { None }; WAYS.len()];
    for turn in 0..WAYS.len() {
        let way = (round + turn) % WAYS.len();
        runs[way] = Some(match way {
            0 => run(&Chain::new(options), options, cell),
            1 => run(&Combiner::new(options, cell.threads), options, cell),
            _ => run(&Mutex::new(options), options, cell),
        });
    }
    runs.map(|run| run.unwrap_or_else(|| unreachable!("each has its turn")))
}
