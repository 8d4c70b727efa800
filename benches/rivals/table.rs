//! The results as Markdown.

use std::fmt::Write as _;
use std::thread;

use crate::WAYS;
use crate::latency::Latency;
use crate::options::{Cell, Options};
use crate::running::Run;

/// The heads of the two tables.
pub(crate) const RATES: &str = "\
| threads | load | keys | stall | chain | combiner | mutex | chain/combiner | chain/mutex | conflicts per commit |
|--:|---|--:|---|--:|--:|--:|---|---|---|";
pub(crate) const LATENCIES: &str = "\
Microseconds of a commit: p50 / p99 / p99.9 / p99.99 / max.

| threads | load | keys | stall | chain | combiner | mutex |
|--:|---|--:|---|---|---|---|";

/// What is said of each distribution, in 10,000ths.
const PERCENTILES: [u64; 4] = [5_000, 9_900, 9_990, 9_999];

/// The rounds of a cell.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) cell: Cell,
    pub(crate) rounds: Vec<[Run; WAYS.len()]>,
}

/// All cells.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) rows: Vec<Row>,
}

/// What was asked for, and on what.
pub(crate) fn preamble(options: &Options) -> String {
    let processors = thread::available_parallelism().map_or(0, usize::from);
    let Options { seconds, rounds, set, memtable_mib, .. } = options;
    format!(
        "In memory, no log. Million commits/s, medians of {rounds} rounds of {seconds} s in turns; ratios \
         of the same round: median (least to most).\n256 B to each key, {set} keys, generations of \
         {memtable_mib} MiB, {processors} processors. Conflicts: chain, combiner, mutex.\n"
    )
}

impl Row {
    /// The row of the first table.
    pub(crate) fn rates(&self) -> String {
        let mut row = self.name();
        for way in 0..WAYS.len() {
            let rate = median(self.each(|runs| runs[way].commits_per_second));
            let _ = write!(row, " {:.2} |", rate / 1e6);
        }
        for rival in 1..WAYS.len() {
            let mut ratios =
                self.each(|runs| runs[0].commits_per_second / runs[rival].commits_per_second);
            ratios.sort_by(f64::total_cmp);
            let ends = ratios.first().zip(ratios.last()).unwrap_or((&0.0, &0.0));
            let (least, most) = (*ends.0, *ends.1);
            let _ = write!(row, " {:.2} ({least:.2} to {most:.2}) |", median(ratios));
        }
        let conflicts = |way: usize| median(self.each(|runs| runs[way].conflicts_per_commit));
        let _ = write!(row, " {:.2}, {:.2}, {:.2} |", conflicts(0), conflicts(1), conflicts(2));
        row
    }

    fn latencies(&self) -> String {
        let mut row = self.name();
        for way in 0..WAYS.len() {
            let mut all = Latency::default();
            self.rounds.iter().for_each(|runs| all.add(&runs[way].latency));
            for percentile in PERCENTILES {
                let _ = write!(row, " {} /", micros(all.nanos(percentile)));
            }
            let _ = write!(row, " {} |", micros(all.nanos(10_000)));
        }
        row
    }

    fn name(&self) -> String {
        let Cell { threads, load, keys, stalls } = self.cell;
        format!("| {threads} | {load} | {keys} | {stalls} |")
    }

    fn each(&self, figure: impl Fn(&[Run; WAYS.len()]) -> f64) -> Vec<f64> {
        self.rounds.iter().map(figure).collect()
    }
}

impl Table {
    /// The rows of the second table.
    pub(crate) fn latencies(&self) -> String {
        self.rows.iter().map(|row| row.latencies() + "\n").collect()
    }
}

/// Of an even number the upper one.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

fn micros(nanos: u64) -> String {
    let micros = nanos as f64 / 1000.0;
    if micros < 10.0 {
        return format!("{micros:.2}");
    }
    let digits = format!("{micros:.0}");
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}
