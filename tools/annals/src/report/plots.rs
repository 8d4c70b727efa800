//! The plots of the page.

use annals::{Latency, PrefixSpace, Space};
use annals_format::FileKind;

use crate::bytes::{human, show};
use crate::numbers::{duration, grouped};

use super::facts::File;
use super::svg::{Anchor, Svg};

/// Units that every plot is wide.
const WIDTH: f64 = 1_000.0;

/// Units that a digit is wide, or a little less.
const CHAR: f64 = 8.0;

/// Letters of a key that are shown, where one that is not ASCII may be as wide as two.
const KEY_LETTERS: usize = 76;

/// Rows of boxes that a kind of files has at most.
const ROWS_MAX: usize = 8;

/// Which keys take the room: a bar each, divided into what it is for.
pub(super) fn space(space: &Space) -> String {
    let mut rows: Vec<(String, &PrefixSpace)> = Vec::new();
    for found in &space.prefixes {
        let all = "(all other keys)".to_owned();
        let name = if found.prefix.is_empty() {
            all
        } else {
            fitting(&show(&found.prefix, KEY_LETTERS), KEY_LETTERS)
        };
        rows.push((name, found));
    }
    if space.other_prefixes > 0 {
        rows.push((format!("({} more)", grouped(space.other_prefixes)), &space.other));
    }
    let most = rows.iter().map(|(_, found)| found.bytes()).max().unwrap_or(0).max(1);
    let (row, bar) = (44.0, 14.0);
    let mut svg = Svg::new(WIDTH, row * rows.len() as f64 + 4.0);
    for (at, (name, found)) in rows.iter().enumerate() {
        let y = row * at as f64;
        svg.text("key", (0.0, y + 14.0), Anchor::Start, name);
        let keys = format!(
            "{}, about {} keys, {} versions",
            human(found.bytes()),
            grouped(found.keys),
            grouped(found.versions)
        );
        svg.text("value", (WIDTH, y + 14.0), Anchor::End, &keys);
        let mut x = 0.0;
        for (class, what, bytes) in [
            ("live", "newest versions", found.live_bytes),
            ("past", "past", found.history_bytes),
            ("dead", "dead", found.dead_bytes),
        ] {
            let width = WIDTH * bytes as f64 / most as f64;
            if bytes > 0 {
                svg.rect(class, (x, y + 20.0), (width, bar), &format!("{what}: {}", human(bytes)));
            }
            x += width;
        }
    }
    svg.end("bytes by prefix of the keys")
}

/// The beginning of a text, cut to so many letters.
pub(super) fn fitting(text: &str, letters: usize) -> String {
    let mut taken = 0;
    let fits = |c: &char| {
        taken += if c.is_ascii() { 1 } else { 2 };
        taken <= letters
    };
    let start: String = text.chars().take_while(fits).collect();
    if start.len() < text.len() { start + "..." } else { start }
}

/// Columns with a name below and a number above each.
fn columns(columns: &[(String, u64)], class: &str, unit: &str, name: &str) -> String {
    let (top, height, bottom) = (24.0, 180.0, 44.0);
    let most = columns.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    let all: u64 = columns.iter().map(|(_, count)| *count).sum();
    let mut svg = Svg::new(WIDTH, top + height + bottom);
    let step = (WIDTH / columns.len().max(1) as f64).min(110.0);
    // Names and numbers that would meet are left out.
    let longest = columns.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    let every = (((longest + 1) as f64 * CHAR) / step).ceil().max(1.0) as usize;
    for (at, (label, count)) in columns.iter().enumerate() {
        let (x, share) = (step * at as f64, *count as f64 / most as f64);
        let high = (height * share).max(if *count > 0 { 1.0 } else { 0.0 });
        let percent = 100.0 * *count as f64 / all.max(1) as f64;
        let said = format!("{label}: {} ({percent:.1} %)", grouped(*count));
        svg.rect(class, (x + step * 0.08, top + height - high), (step * 0.84, high), &said);
        let middle = x + step / 2.0;
        if at % every == 0 {
            svg.text("label", (middle, top + height + 18.0), Anchor::Middle, label);
        }
        let number = grouped(*count);
        if *count > 0 && number.len() as f64 * CHAR <= step {
            svg.text("value", (middle, top + height - high - 6.0), Anchor::Middle, &number);
        }
    }
    svg.line("axis", (0.0, top + height), (WIDTH, top + height));
    svg.text("label", (0.0, top + height + 38.0), Anchor::Start, unit);
    svg.end(name)
}

/// How many keys were written how often.
pub(super) fn versions(counts: &[u64]) -> String {
    let label = |class: usize| match class {
        0 => "1".to_owned(),
        1 => "2".to_owned(),
        class => format!("to {}", grouped(1 << class)),
    };
    let named: Vec<_> =
        counts.iter().enumerate().map(|(class, count)| (label(class), *count)).collect();
    columns(
        &named,
        "past",
        "times that a key was written since it was created, and how many keys",
        "keys by how often they were written",
    )
}

/// How many of what is measured took how long: a column for each doubling.
pub(super) fn latency(latency: &Latency, name: &str) -> String {
    let class = |upto: u64| u64::BITS - upto.leading_zeros();
    let classes: Vec<(u32, u64)> =
        latency.buckets.iter().map(|(upto, count)| (class(*upto), *count)).collect();
    let first = classes.iter().map(|(class, _)| *class).min().unwrap_or(0);
    let last = classes.iter().map(|(class, _)| *class).max().unwrap_or(0);
    let named: Vec<(String, u64)> = (first..=last.min(first + 40))
        .map(|class| {
            let count = classes.iter().filter(|(of, _)| *of == class).map(|(_, count)| count).sum();
            let upto = 1_u64.checked_shl(class).unwrap_or(u64::MAX);
            (duration(upto), count)
        })
        .collect();
    columns(&named, "live", "less than this time, a column for each doubling", name)
}

/// Which files hold which revisions: a row for each kind, or more where files overlap.
pub(super) fn timeline(files: &[File], newest: u64, compacted: u64) -> String {
    let (left, right, bar, gap) = (90.0, WIDTH - 10.0, 16.0, 4.0);
    let most = files.iter().map(|file| file.bytes).max().unwrap_or(0).max(1);
    let place = |revision: u64| {
        left + (right - left) * revision.saturating_sub(1) as f64 / newest.max(2) as f64
    };
    let mut lanes = Vec::new();
    let mut rows = 0;
    let kinds = [
        (FileKind::Events, "events"),
        (FileKind::History, "history"),
        (FileKind::Head, "head"),
        (FileKind::L0, "l0"),
        (FileKind::Blob, "blob"),
    ];
    for (kind, name) in kinds {
        let mut of_kind: Vec<File> =
            files.iter().filter(|file| file.kind == kind).copied().collect();
        of_kind.sort_by_key(|file| (file.span, file.number));
        // Each file in the first row that is free there.
        let mut ends: Vec<f64> = Vec::new();
        let mut placed = Vec::new();
        let mut left_out = 0;
        for file in of_kind {
            let (x, end) =
                (place(file.span.0), place(file.span.1 + 1).max(place(file.span.0) + 2.0));
            let row = ends.iter().position(|free| *free <= x + 0.01).unwrap_or(ends.len());
            if row >= ROWS_MAX {
                left_out += 1;
                continue;
            }
            if row == ends.len() {
                ends.push(0.0);
            }
            if let Some(free) = ends.get_mut(row) {
                *free = end;
            }
            placed.push((row, x, end, file));
        }
        let taken = ends.len().max(1) + usize::from(left_out > 0);
        lanes.push((name, rows, placed, left_out, taken));
        rows += taken;
    }
    let height = rows as f64 * (bar + gap) + 12.0 * lanes.len() as f64;
    let mut svg = Svg::new(WIDTH, height + 48.0);
    for (at, (name, first, placed, left_out, taken)) in lanes.iter().enumerate() {
        let top = *first as f64 * (bar + gap) + 12.0 * at as f64 + 4.0;
        svg.text("key", (0.0, top + 13.0), Anchor::Start, name);
        if placed.is_empty() {
            svg.text("label", (left, top + 13.0), Anchor::Start, "no files");
        }
        for (row, x, end, file) in placed {
            let said = format!(
                "{name} {:08}: revisions {} to {}, {}",
                file.number,
                grouped(file.span.0),
                grouped(file.span.1),
                human(file.bytes)
            );
            // The larger the file the fuller its colour.
            let weight = ((file.bytes as f64 / most as f64).sqrt() * 4.0).ceil().clamp(1.0, 4.0);
            let class = format!("file {name} w{weight:.0}");
            svg.rect(&class, (*x, top + *row as f64 * (bar + gap)), (end - x - 0.5, bar), &said);
        }
        if *left_out > 0 {
            let y = top + (*taken as f64 - 1.0) * (bar + gap) + 13.0;
            svg.text(
                "label",
                (left, y),
                Anchor::Start,
                &format!("and {} more that overlap these", grouped(*left_out)),
            );
        }
    }
    svg.line("axis", (left, height + 2.0), (right, height + 2.0));
    svg.text("label", (left, height + 20.0), Anchor::Start, "revision 1");
    svg.text("label", (right, height + 20.0), Anchor::End, &grouped(newest));
    if compacted > 0 {
        let x = place(compacted);
        svg.line("mark", (x, 0.0), (x, height + 26.0));
        let anchor = if x > WIDTH / 2.0 { Anchor::End } else { Anchor::Start };
        svg.text(
            "marked",
            (x, height + 40.0),
            anchor,
            &format!("compacted to {}", grouped(compacted)),
        );
    }
    svg.end("files by the revisions they hold")
}
