//! The results as Markdown.

use std::fmt::Write as _;
use std::thread;

use crate::load::Run;
use crate::options::Options;
use crate::servers::Kind;

/// What was reached by each server, round by round.
#[derive(Debug)]
pub(crate) struct Measure {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) target: Option<Target>,
    pub(crate) reached: Vec<Vec<f64>>,
}

/// What ours is to be, as a multiple of etcd's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

/// What was asked for, and on what.
pub(crate) fn preamble(options: &Options) -> String {
    let Options { seconds, rounds, keys, beside, .. } = options;
    let processors = thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("unknown");
    let beside = beside.as_deref().unwrap_or("not told");
    format!(
        "{rounds} rounds of {seconds} s in turns, medians; ratios of the same round: median (least to most). Values of 256 B, \
         {keys} keys. {processors} processors, which the servers share with the client, a program of one thread; \
         load average before: {load}. Beside it: {beside}.\n"
    )
}

/// The head of the table.
pub(crate) fn head(kinds: &[Kind]) -> String {
    let mut head = "| measure | unit |".to_owned();
    let mut line = "|---|---|".to_owned();
    for kind in kinds {
        let _ = write!(head, " {} |", kind.name);
        line += "---:|";
    }
    for kind in &kinds[1..] {
        let _ = write!(head, " beside {} |", kind.name);
        line += "---|";
    }
    format!("{head} target | met |\n{line}---|---|")
}

impl Measure {
    /// The row of the table.
    pub(crate) fn row(&self) -> String {
        let mut row = format!("| {} | {} |", self.name, self.unit);
        for reached in &self.reached {
            let _ = write!(row, " {} |", figure(median(reached.clone())));
        }
        let mut met = true;
        for rival in &self.reached[1..] {
            let pairs = self.reached[0].iter().zip(rival);
            let mut ratios: Vec<f64> = pairs.map(|(ours, theirs)| ours / theirs).collect();
            ratios.sort_by(f64::total_cmp);
            let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
            let middle = median(ratios);
            let _ = match self.reached[0].len() {
                1 => write!(row, " {middle:.2}x |"),
                _ => write!(row, " {middle:.2}x ({least:.2}-{most:.2}) |"),
            };
            met &= match self.target {
                Some(Target::AtLeast(least)) => middle >= least,
                Some(Target::AtMost(most)) => middle <= most,
                None => true,
            };
        }
        let met = if met { "yes" } else { "no" };
        let _ = match self.target {
            _ if self.reached.len() == 1 => write!(row, " | |"),
            Some(Target::AtLeast(least)) => write!(row, " >= {least}x | {met} |"),
            Some(Target::AtMost(most)) => write!(row, " <= {most}x | {met} |"),
            None => write!(row, " | |"),
        };
        row
    }
}

/// The rows of runs, a list for each server.
pub(crate) fn of_runs(name: &str, what: &'static str, runs: &[Vec<Run>]) -> Vec<Measure> {
    let each = |figure: &dyn Fn(&Run) -> f64| {
        runs.iter().map(|runs| runs.iter().map(figure).collect()).collect::<Vec<Vec<f64>>>()
    };
    let nanos = |run: &Run, per_myriad| run.latency.nanos(per_myriad) as f64 / 1000.0;
    let row = |unit, target, reached| Measure { name: name.to_owned(), unit, target, reached };
    vec![
        row(what, Some(Target::AtLeast(2.0)), each(&|run| run.per_second)),
        row("p50, us", None, each(&|run| nanos(run, 5_000))),
        row("p99, us", Some(Target::AtMost(0.5)), each(&|run| nanos(run, 9_900))),
        row("max, us", None, each(&|run| nanos(run, 10_000))),
        row("server's CPU, us each", None, each(&|run| run.cpu * 1e6)),
    ]
}

/// Of an even number the upper one.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

/// Three digits, or all of a large number.
fn figure(number: f64) -> String {
    if number < 10.0 {
        return format!("{number:.2}");
    }
    if number < 100.0 {
        return format!("{number:.1}");
    }
    let digits = format!("{number:.0}");
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}
