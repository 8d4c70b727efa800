//! The tables: medians of interleaved rounds, and ratios round by round.

use std::fmt::{self, Write as _};

use crate::peer::{Contestant, Role};

/// One measure: a sample per round for each contestant.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub unit: &'static str,
    pub higher_is_better: bool,
    /// In the order of the contestants; empty where there is no such measure.
    pub samples: Vec<Vec<f64>>,
}

/// A ratio: the median of the rounds, the least and the most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, least, most } = *self;
        write!(f, "{}x ({}-{})", number(median), number(least), number(most))
    }
}

impl Row {
    pub fn new(name: &str, unit: &'static str, higher_is_better: bool, contestants: usize) -> Self {
        Self {
            name: name.to_owned(),
            unit,
            higher_is_better,
            samples: vec![Vec::new(); contestants],
        }
    }

    pub fn push(&mut self, contestant: usize, sample: f64) {
        if let Some(samples) = self.samples.get_mut(contestant) {
            samples.push(sample);
        }
    }

    pub fn median(&self, contestant: usize) -> Option<f64> {
        median(self.samples.get(contestant)?)
    }

    /// How many times better `ours` is than `theirs`.
    pub fn ratio(&self, ours: usize, theirs: usize) -> Option<Ratio> {
        let (ours, theirs) = (self.samples.get(ours)?, self.samples.get(theirs)?);
        let mut ratios: Vec<f64> = ours
            .iter()
            .zip(theirs)
            .map(|(a, b)| if self.higher_is_better { a / b } else { b / a })
            .collect();
        ratios.sort_by(f64::total_cmp);
        Some(Ratio { median: median(&ratios)?, least: *ratios.first()?, most: *ratios.last()? })
    }

    /// The contestant with the best median among those with one of these roles.
    pub fn best(&self, contestants: &[Contestant], roles: &[Role]) -> Option<usize> {
        let better = |a: &f64, b: &f64| {
            if self.higher_is_better { a.total_cmp(b) } else { b.total_cmp(a) }
        };
        (0..contestants.len())
            .filter(|&index| contestants.get(index).is_some_and(|one| roles.contains(&one.role)))
            .filter_map(|index| Some((index, self.median(index)?)))
            .max_by(|a, b| better(&a.1, &b.1))
            .map(|best| best.0)
    }
}

/// Where the contestant with a role that only one has is.
pub fn place(contestants: &[Contestant], role: Role) -> Option<usize> {
    contestants.iter().position(|contestant| contestant.role == role)
}

/// The middle of the samples.
fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    sorted.get(sorted.len() / 2 - 1).map(|lower| f64::midpoint(*lower, upper))
}

/// Renders rows as a Markdown table, with annals' ratios to the bare loop and to the best peers if
/// asked for; empty if there are no rows.
pub fn table<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    contestants: &[Contestant],
    with_ratios: bool,
) -> String {
    let mut rows = rows.into_iter().peekable();
    let mut out = String::new();
    if rows.peek().is_none() {
        return out;
    }
    let columns: &[(&str, Role)] =
        &[("bare", Role::Bare), ("best peer", Role::Peer), ("best grouped", Role::Grouped)];
    let there = |role| with_ratios && place(contestants, role).is_some();
    let ratios: Vec<_> = columns.iter().filter(|column| there(column.1)).collect();
    out.push_str("| measure | unit |");
    for contestant in contestants {
        let _ = write!(out, " {} |", contestant.name);
    }
    for (title, _) in &ratios {
        let _ = write!(out, " annals / {title} |");
    }
    out.push_str("\n|---|---|");
    out.push_str(&"---:|".repeat(contestants.len() + ratios.len()));
    out.push('\n');
    for row in rows {
        let _ = write!(out, "| {} | {} |", row.name, row.unit);
        let best = [Role::Peer, Role::Grouped].map(|role| row.best(contestants, &[role]));
        for index in 0..contestants.len() {
            let cell = row.median(index).map_or_else(|| "-".to_owned(), number);
            let bold = if best.contains(&Some(index)) { "**" } else { "" };
            let _ = write!(out, " {bold}{cell}{bold} |");
        }
        for (_, role) in &ratios {
            let ours = place(contestants, Role::Annals);
            let theirs = row.best(contestants, &[*role]);
            let ratio = ours.zip(theirs).and_then(|(ours, theirs)| row.ratio(ours, theirs));
            let cell = ratio.map_or_else(|| "-".to_owned(), |ratio| ratio.to_string());
            let _ = write!(out, " {cell} |");
        }
        out.push('\n');
    }
    out
}

/// Three significant digits, thousands with commas.
pub fn number(value: f64) -> String {
    if value >= 1000.0 {
        let digits = format!("{value:.0}");
        let mut out = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                out.push(',');
            }
            out.push(digit);
        }
        out
    } else if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers;

    fn some(names: &[&str]) -> Vec<Contestant> {
        peers::ALL.iter().filter(|one| names.contains(&one.name)).copied().collect()
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let mut row = Row::new("x", "ms", false, 3);
        row.samples = vec![vec![1.0, 2.0, 4.0], vec![2.0, 4.0, 8.0], vec![8.0, 8.0, 8.0]];
        let contestants = some(&["annals", "bare", "redb"]);
        let ratio = row.ratio(0, 1).map(|ratio| ratio.to_string());
        assert_eq!(ratio.as_deref(), Some("2.00x (2.00-2.00)"));
        assert_eq!(row.best(&contestants, &[Role::Peer]), Some(2));
        assert_eq!(
            table([&row], &contestants, true),
            "| measure | unit | annals | bare | redb | annals / bare | annals / best peer |\n\
             |---|---|---:|---:|---:|---:|---:|\n\
             | x | ms | 2.00 | 4.00 | **8.00** | 2.00x (2.00-2.00) | 4.00x (2.00-8.00) |\n"
        );
        assert_eq!(table([], &contestants, true), "");
        assert_eq!(number(1_234_567.0), "1,234,567");
        assert_eq!(median(&[1.0, 3.0]), Some(2.0));
    }
}
