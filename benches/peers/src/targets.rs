//! What the commit path is to reach, and what it reached in this run.
//!
//! T1: one client at the speed of a bare write and sync. T2: 64 tickets at the speed of 64 records to
//! a bare sync. T3: 64 blocking threads share syncs. T4: durable commits ahead of every peer, as it is
//! and under a group commit. T5: buffered commits ahead of every peer. T12: commits are hardly held up
//! while the past is forgotten, and less than in any peer. T15: a replay of old changes at least as fast as the
//! best peer's. Ratios are medians of the
//! ratios of the rounds, with the least and the most; other figures are medians of the rounds.

use std::fmt::Write as _;

use crate::commits::Measured;
use crate::past::{FORGETTING, REPLAY, TIMES_IDLE};
use crate::peer::{Contestant, Level, Role};
use crate::report::{Row, number, place};

/// One line of the table.
#[derive(Clone, Debug)]
struct Target {
    name: &'static str,
    measure: String,
    target: String,
    reached: String,
    met: bool,
}

/// How far ahead of somebody annals has to be.
#[derive(Clone, Copy, Debug)]
enum Ahead {
    /// At least so many times as fast.
    AtLeast(f64),
    Any,
}

impl Ahead {
    fn said(self) -> String {
        match self {
            Self::AtLeast(times) => format!(">= {}x", number(times)),
            Self::Any => "ahead".to_owned(),
        }
    }

    fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(times) => ratio >= times,
            Self::Any => ratio > 1.0,
        }
    }
}

/// Renders the targets as a Markdown table; empty if no cell that has one was measured.
pub fn table(cells: &[Measured], histories: &[Row], contestants: &[Contestant]) -> String {
    let Some(ours) = place(contestants, Role::Annals) else { return String::new() };
    let judge = Judge { contestants, ours };
    let mut lines: Vec<Target> = cells.iter().flat_map(|cell| judge.cell(cell)).collect();
    lines.extend(histories.iter().flat_map(|row| judge.history(row)));
    lines.sort_by(|a, b| a.name.cmp(b.name));
    let mut out = String::new();
    if lines.is_empty() {
        return out;
    }
    out.push_str("| measure | target | reached | met |\n|---|---|---|---|\n");
    for Target { name, measure, target, reached, met } in lines {
        let met = if met { "yes" } else { "no" };
        let _ = writeln!(out, "| {name}: {measure} | {target} | {reached} | {met} |");
    }
    out
}

struct Judge<'a> {
    contestants: &'a [Contestant],
    ours: usize,
}

impl Judge<'_> {
    fn cell(&self, measured: &Measured) -> Vec<Target> {
        match measured.cell.level {
            Level::Sync => self.durable(measured),
            Level::Buffered => self.buffered(measured),
        }
    }

    fn history(&self, row: &Row) -> Vec<Target> {
        let peers = [Role::Peer];
        let lines = match &*row.name {
            REPLAY => vec![
                self.ahead("T15", row, &peers, Ahead::AtLeast(1.0)),
                self.ahead("T15 (an aim)", row, &peers, Ahead::AtLeast(2.0)),
            ],
            FORGETTING => {
                let best = row.best(self.contestants, &peers);
                vec![best.and_then(|best| self.lower("T12", row, best))]
            }
            TIMES_IDLE => vec![self.at_most("T12", row, 1.5)],
            _ => Vec::new(),
        };
        lines.into_iter().flatten().collect()
    }

    fn durable(&self, measured: &Measured) -> Vec<Target> {
        let (cell, rate) = (measured.cell, &measured.rate);
        let (tickets, crowd) = (cell.window > 1, cell.threads >= 64);
        let mut lines = Vec::new();
        if !cell.hot {
            match (tickets, cell.threads) {
                (false, 1) => {
                    lines.extend(self.ahead("T1", rate, &[Role::Bare], Ahead::AtLeast(0.9)));
                }
                (true, _) => {
                    lines.extend(self.ahead("T2", rate, &[Role::Bare], Ahead::AtLeast(0.9)));
                }
                (false, 64..) => {
                    lines.extend(self.ahead("T3", rate, &[Role::Bare], Ahead::AtLeast(15.0)));
                    lines.extend(self.at_least("T3", &measured.per_sync, 25.0));
                }
                _ => {}
            }
        }
        let (over_bare, over_grouped) = match (tickets, crowd) {
            (true, _) => (Ahead::AtLeast(20.0), Ahead::AtLeast(3.0)),
            (false, true) => (Ahead::Any, Ahead::AtLeast(1.5)),
            (false, false) => (Ahead::Any, Ahead::Any),
        };
        lines.extend(self.ahead("T4", rate, &[Role::Peer], over_bare));
        lines.extend(self.ahead("T4", rate, &[Role::Grouped], over_grouped));
        if crowd {
            let fastest = rate.best(self.contestants, &[Role::Grouped]);
            lines.extend(fastest.and_then(|best| self.lower("T4", &measured.p99, best)));
        }
        lines
    }

    fn buffered(&self, measured: &Measured) -> Vec<Target> {
        let (cell, rate) = (measured.cell, &measured.rate);
        let everybody = [Role::Peer, Role::Grouped];
        let mut lines = Vec::new();
        lines.extend(self.ahead("T5", rate, &everybody, Ahead::Any));
        let slow = &measured.p999;
        let least = slow.best(self.contestants, &everybody);
        lines.extend(least.and_then(|best| self.lower("T5", slow, best)));
        if cell.threads == 1 && !cell.hot {
            lines.extend(self.ahead("T5 (an aim)", rate, &everybody, Ahead::AtLeast(10.0)));
            lines.extend(self.at_least("T5 (an aim)", rate, 1e6));
        }
        lines
    }

    /// Annals against the best of some.
    fn ahead(&self, name: &'static str, row: &Row, of: &[Role], ahead: Ahead) -> Option<Target> {
        let best = row.best(self.contestants, of)?;
        let ratio = row.ratio(self.ours, best)?;
        let whom = match of {
            [Role::Bare] => "the bare loop",
            [Role::Peer] => "the best peer",
            [Role::Grouped] => "the best grouped peer",
            _ => "the best peer, grouped or not",
        };
        let (ours, theirs) = (number(row.median(self.ours)?), number(row.median(best)?));
        let best = self.contestants.get(best)?.name;
        Some(Target {
            name,
            measure: format!("{} / {whom}", row.name),
            target: ahead.said(),
            reached: format!("{ratio}: {ours} to {theirs} {} ({best})", row.unit),
            met: ahead.is_met(ratio.median),
        })
    }

    /// Annals by itself.
    fn at_least(&self, name: &'static str, row: &Row, least: f64) -> Option<Target> {
        let reached = row.median(self.ours)?;
        Some(Target {
            name,
            measure: format!("{}, {}", row.name, row.unit),
            target: format!(">= {}", number(least)),
            reached: number(reached),
            met: reached >= least,
        })
    }

    /// Annals by itself, where less is better.
    fn at_most(&self, name: &'static str, row: &Row, most: f64) -> Option<Target> {
        let reached = row.median(self.ours)?;
        Some(Target {
            name,
            measure: row.name.clone(),
            target: format!("<= {}x", number(most)),
            reached: format!("{}x", number(reached)),
            met: reached <= most,
        })
    }

    /// A latency of annals against that of one other.
    fn lower(&self, name: &'static str, row: &Row, other: usize) -> Option<Target> {
        let (ours, theirs) = (row.median(self.ours)?, row.median(other)?);
        let other = self.contestants.get(other)?.name;
        Some(Target {
            name,
            measure: format!("{}, {}", row.name, row.unit),
            target: format!("below {other}'s"),
            reached: format!("{} to {}", number(ours), number(theirs)),
            met: ours < theirs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commits::Cell;
    use crate::peers;

    const NAMES: [&str; 4] = ["annals", "bare", "fjall", "fjall+group"];

    fn rendered(cell: Cell, rates: [f64; 4], latencies: [f64; 4]) -> String {
        let contestants: Vec<_> =
            peers::ALL.iter().filter(|one| NAMES.contains(&one.name)).copied().collect();
        let mut measured = Measured::new(cell, 4);
        for (index, (rate, latency)) in rates.into_iter().zip(latencies).enumerate() {
            measured.rate.push(index, rate);
            measured.p99.push(index, latency);
            measured.p999.push(index, latency);
            measured.per_sync.push(index, 24.0);
        }
        table(&[measured], &[], &contestants)
    }

    fn verdicts(table: &str) -> Vec<(&str, bool)> {
        table
            .lines()
            .skip(2)
            .map(|line| {
                let mut columns = line.split(" | ");
                let measure = columns.next().unwrap_or("").trim_start_matches("| ");
                (measure, columns.last() == Some("yes |"))
            })
            .collect()
    }

    #[test]
    fn each_cell_is_held_against_its_targets() {
        let cell = |level, threads, window, hot| Cell {
            name: "x",
            level,
            threads,
            window,
            hot,
            update: false,
        };
        let one = cell(Level::Sync, 1, 1, false);
        assert_eq!(
            verdicts(&rendered(one, [91.0, 100.0, 90.0, 92.0], [1.0; 4])),
            [
                ("T1: x / the bare loop", true),
                ("T4: x / the best peer", true),
                ("T4: x / the best grouped peer", false),
            ]
        );
        let tickets = cell(Level::Sync, 1, 64, false);
        assert_eq!(
            verdicts(&rendered(tickets, [300.0, 400.0, 15.0, 101.0], [1.0; 4])),
            [
                ("T2: x / the bare loop", false),
                ("T4: x / the best peer", true),
                ("T4: x / the best grouped peer", false),
            ]
        );
        let crowd = cell(Level::Sync, 64, 1, false);
        assert_eq!(
            verdicts(&rendered(crowd, [150.0, 10.0, 15.0, 100.0], [5.0, 0.0, 0.0, 4.0])),
            [
                ("T3: x / the bare loop", true),
                ("T3: x: grouped, commits/sync", false),
                ("T4: x / the best peer", true),
                ("T4: x / the best grouped peer", true),
                ("T4: x: p99, us", false),
            ]
        );
        let lazy = cell(Level::Buffered, 1, 1, false);
        assert_eq!(
            verdicts(&rendered(lazy, [9e5, 2e6, 1e5, 5e4], [4.0, 0.0, 9.0, 5.0])),
            [
                ("T5: x / the best peer, grouped or not", true),
                ("T5: x: p99.9, us", true),
                ("T5 (an aim): x / the best peer, grouped or not", false),
                ("T5 (an aim): x, commits/s", false),
            ]
        );
        assert_eq!(
            verdicts(&rendered(cell(Level::Buffered, 8, 1, true), [0.9; 4], [1.0; 4])).len(),
            2
        );
    }
}
