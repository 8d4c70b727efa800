//! The table: medians of interleaved rounds, and ratios round by round.

use std::fmt::Write as _;

/// One measure: a sample per round for each contestant.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub unit: &'static str,
    pub higher_is_better: bool,
    /// In the order of the contestants; empty where there is no such measure.
    pub samples: Vec<Vec<f64>>,
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

    /// How many times better the first contestant is than `other`: median, least, most of the rounds.
    fn ratio(&self, other: usize) -> Option<(f64, f64, f64)> {
        let (ours, theirs) = (self.samples.first()?, self.samples.get(other)?);
        let mut ratios: Vec<f64> = ours
            .iter()
            .zip(theirs)
            .map(|(a, b)| if self.higher_is_better { a / b } else { b / a })
            .collect();
        ratios.sort_by(f64::total_cmp);
        Some((median(&ratios)?, *ratios.first()?, *ratios.last()?))
    }

    /// The best contestant that is neither ours nor the bare loop.
    fn best_peer(&self, names: &[&str]) -> Option<usize> {
        let medians = self.samples.iter().zip(names).enumerate().filter_map(|(i, (s, &name))| {
            if name == "annals" || name == "bare" { None } else { Some((i, median(s)?)) }
        });
        let better = |a: &f64, b: &f64| {
            if self.higher_is_better { a.total_cmp(b) } else { b.total_cmp(a) }
        };
        medians.max_by(|a, b| better(&a.1, &b.1)).map(|best| best.0)
    }
}

/// The middle of the samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    sorted.get(sorted.len() / 2 - 1).map(|lower| f64::midpoint(*lower, upper))
}

/// Renders the table as Markdown.
pub fn markdown(rows: &[Row], names: &[&str]) -> String {
    let mut out = String::from("| measure | unit |");
    for name in names {
        let _ = write!(out, " {name} |");
    }
    let ours = names.first() == Some(&"annals");
    let bare = names.iter().position(|&name| name == "bare");
    if ours {
        out.push_str(" annals / bare | annals / best peer |");
    }
    let columns = names.len() + if ours { 2 } else { 0 };
    out.push_str("\n|---|---|");
    out.push_str(&"---:|".repeat(columns));
    out.push('\n');
    for row in rows {
        let _ = write!(out, "| {} | {} |", row.name, row.unit);
        let best = row.best_peer(names);
        for (index, samples) in row.samples.iter().enumerate() {
            let cell = median(samples).map_or_else(|| "-".to_owned(), number);
            let bold = if best == Some(index) { "**" } else { "" };
            let _ = write!(out, " {bold}{cell}{bold} |");
        }
        if ours {
            let cell = |ratio: Option<(f64, f64, f64)>| {
                ratio.map_or_else(
                    || "-".to_owned(),
                    |(mid, least, most)| {
                        format!("{}x ({}-{})", number(mid), number(least), number(most))
                    },
                )
            };
            let against_bare = cell(bare.and_then(|bare| row.ratio(bare)));
            let against_best = cell(best.and_then(|best| row.ratio(best)));
            let _ = write!(out, " {against_bare} | {against_best} |");
        }
        out.push('\n');
    }
    out
}

/// Three significant digits, thousands with commas.
fn number(value: f64) -> String {
    if value >= 1000.0 {
        let digits = format!("{value:.0}");
        let mut out = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index) % 3 == 0 {
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

    #[test]
    fn ratios_are_taken_round_by_round() {
        let mut row = Row::new("x", "ms", false, 3);
        row.samples = vec![vec![1.0, 2.0, 4.0], vec![2.0, 4.0, 8.0], vec![8.0, 8.0, 8.0]];
        assert_eq!(row.ratio(1), Some((2.0, 2.0, 2.0)));
        assert_eq!(row.best_peer(&["annals", "bare", "redb"]), Some(2));
        assert!(markdown(&[row], &["annals", "bare", "redb"]).contains("2.00x (2.00-2.00)"));
        assert_eq!(number(1_234_567.0), "1,234,567");
        assert_eq!(median(&[1.0, 3.0]), Some(2.0));
    }
}
