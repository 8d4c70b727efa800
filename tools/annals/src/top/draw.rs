//! The picture: everything that is known, on whatever room there is.

use annals::Latency;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table, Wrap};

use crate::bytes::human;
use crate::numbers::{duration, grouped};

use super::model::{Files, Model, Sort};

/// Draws what the model knows.
pub(crate) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let [title, rates, files, readers, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(10),
        Constraint::Length(9),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(head(model), title);
    if model.is_live() {
        let [left, right] = halves(rates);
        work(frame, left, model);
        latency(frame, right, model);
    } else {
        let text = Paragraph::new(model.why()).wrap(Wrap { trim: true });
        frame.render_widget(text.block(Block::bordered().title(" program ")), rates);
    }
    if let Some(known) = model.files() {
        let [left, right] = halves(files);
        kinds(frame, left, known, model.sort);
        shares(frame, right, known);
    }
    if model.is_live() {
        let [left, right] = halves(readers);
        watches(frame, left, model);
        leases(frame, right, model);
    }
    let keys = " q end   p hold   s sort files ";
    let state = if model.paused { "HELD" } else { "" };
    frame.render_widget(Line::from(vec![faint(keys), strong(state)]), foot);
}

fn halves(area: Rect) -> [Rect; 2] {
    Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(area)
}

fn faint(text: &str) -> Span<'_> {
    Span::styled(text, Style::new().add_modifier(Modifier::DIM))
}

fn strong(text: &str) -> Span<'_> {
    Span::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(rate) if rate < 10.0 => format!("{rate:.1}"),
        Some(rate) => grouped(rate.round() as u64),
    }
}

fn head(model: &Model) -> Line<'_> {
    let mut spans = vec![strong(" annals top  "), Span::raw(&model.store)];
    if let Some(Files { revisions: [revision, durable, compacted], .. }) = model.files() {
        spans.push(Span::raw(format!("   revision {}", grouped(*revision))));
        if durable != revision {
            spans.push(Span::raw(format!(" (durable {})", grouped(*durable))));
        }
        if *compacted > 0 {
            spans.push(Span::raw(format!("   compacted to {}", grouped(*compacted))));
        }
    }
    if let Some(live) = model.live() {
        spans.push(Span::raw(format!("   pid {}", live.number("pid"))));
        let troubles = [
            ("FAILED", live.trouble("failure").is_some()),
            ("NO SPACE", live.trouble("no_space").is_some()),
            ("DAMAGED", live.trouble("damage").is_some() || live.stat("damaged_files") > 0),
        ];
        for (name, _) in troubles.iter().filter(|(_, is_so)| *is_so) {
            spans.push(Span::styled(format!("   {name}"), Style::new().fg(Color::Red)));
        }
    }
    Line::from(spans)
}

/// Pairs of a name and a value, the values to the right.
fn pairs(frame: &mut Frame<'_>, area: Rect, title: &str, pairs: Vec<(&str, String)>) {
    let rows = pairs.into_iter().map(|(name, value)| {
        Row::new([Line::from(name.to_owned()), Line::from(value).alignment(Alignment::Right)])
    });
    let widths = [Constraint::Min(18), Constraint::Min(14)];
    let block = Block::bordered().title(format!(" {title} "));
    frame.render_widget(Table::new(rows, widths).block(block), area);
}

fn work(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let [figures, line] = Layout::vertical([Constraint::Length(7), Constraint::Min(3)]).areas(area);
    let (commits, syncs) = (model.rate("batch_transactions"), model.rate("batches"));
    let together = commits.zip(syncs).filter(|(_, syncs)| *syncs > 0.0);
    let written = model.rate("background_bytes").map(|bytes| human(bytes as u64));
    let stat = |name: &str| model.live().map_or(0, |live| live.stat(name));
    let background = format!("{}/{}/{}", stat("flushes"), stat("folds"), stat("merges"));
    pairs(
        frame,
        figures,
        "a second",
        vec![
            ("commits", rate(commits)),
            (
                "syncs (commits in one)",
                format!("{} ({})", rate(syncs), rate(together.map(|(c, s)| c / s))),
            ),
            ("conflicts", rate(model.rate("conflicts"))),
            (
                "delayed, waiting",
                format!("{}, {}", rate(model.rate("delays")), rate(model.rate("waits"))),
            ),
            ("background writes", format!("{} ({background})", written.unwrap_or("-".to_owned()))),
        ],
    );
    let commits: Vec<u64> = model.commits.iter().copied().collect();
    let room = usize::from(line.width.saturating_sub(2));
    let shown = commits.get(commits.len().saturating_sub(room)..).unwrap_or_default();
    let most = shown.iter().max().copied().unwrap_or(0);
    let title = format!(" commits a second, at most {} ", grouped(most));
    let line_of = Sparkline::default().data(shown).style(Style::new().fg(Color::Cyan));
    frame.render_widget(line_of.block(Block::bordered().title(title)), line);
}

fn latency(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let [times, memory] = Layout::vertical([Constraint::Length(5), Constraint::Min(3)]).areas(area);
    let of = |name: &str| model.latency(name).unwrap_or_default();
    let (commit, sync) = (of("commit_latency"), of("sync_latency"));
    let cells = |(name, (Latency { count, p50_nanos, p99_nanos, max_nanos, .. }, recent)): (
        &str,
        (Latency, bool),
    )| {
        let since = if recent { "" } else { " *" };
        let time = |nanos| if count == 0 { "-".to_owned() } else { duration(nanos) };
        let cells = [p50_nanos, p99_nanos, max_nanos]
            .map(time)
            .map(|time| Line::from(time).alignment(Alignment::Right));
        Row::new([Line::from(format!("{name}{since}"))].into_iter().chain(cells))
    };
    let all_recent = commit.1 && sync.1;
    let heads = ["", "p50", "p99", "max"].map(|head| Line::from(head).alignment(Alignment::Right));
    let widths =
        [Constraint::Min(10), Constraint::Length(9), Constraint::Length(9), Constraint::Length(9)];
    let table = Table::new([("commit", commit), ("sync", sync)].map(cells), widths);
    let title = if all_recent { " latency " } else { " latency (* since it was opened) " };
    frame.render_widget(table.header(Row::new(heads)).block(Block::bordered().title(title)), times);
    let stat = |name: &str| model.live().map_or(0, |live| live.stat(name));
    pairs(
        frame,
        memory,
        "memory",
        vec![
            ("memtables", format!("{} in {}", human(stat("memtable_bytes")), stat("generations"))),
            ("waiting for a flush", human(stat("flush_backlog_bytes"))),
            (
                "block cache",
                format!("{} of {}", human(stat("cache_bytes")), human(stat("cache_bytes_max"))),
            ),
        ],
    );
}

fn kinds(frame: &mut Frame<'_>, area: Rect, files: &Files, sort: Sort) {
    let mut kinds = files.kinds.clone();
    match sort {
        Sort::Flow => {}
        Sort::Bytes => kinds.sort_by_key(|(_, [_, bytes, _])| std::cmp::Reverse(*bytes)),
        Sort::Entries => kinds.sort_by_key(|(_, [_, _, entries])| std::cmp::Reverse(*entries)),
    }
    let by = match sort {
        Sort::Flow => "",
        Sort::Bytes => "by bytes ",
        Sort::Entries => "by entries ",
    };
    let right = |text: String| Line::from(text).alignment(Alignment::Right);
    let row = |(name, [count, bytes, entries]): (&str, [u64; 3])| {
        let entries = if name == "log" { "-".to_owned() } else { grouped(entries) };
        Row::new([
            Line::from(name.to_owned()),
            right(grouped(count)),
            right(human(bytes)),
            right(entries),
        ])
    };
    let heads = ["kind", "files", "bytes", "entries"];
    let heads =
        heads.map(|head| if head == "kind" { Line::from(head) } else { right(head.to_owned()) });
    let widths =
        [Constraint::Length(8), Constraint::Length(8), Constraint::Min(11), Constraint::Min(12)];
    let title = format!(" files {by}");
    let table = Table::new(kinds.into_iter().map(row), widths).header(Row::new(heads));
    frame.render_widget(table.block(Block::bordered().title(title)), area);
}

fn shares(frame: &mut Frame<'_>, area: Rect, files: &Files) {
    let block = Block::bordered().title(" what the bytes are for ");
    let all: u64 = files.shares.iter().sum();
    let names = ["newest versions", "the past", "what changed", "dead"];
    let colors = [Color::Green, Color::Blue, Color::Magenta, Color::Red];
    let room = u64::from(area.width.saturating_sub(33));
    let mut lines: Vec<Line<'_>> = (names.into_iter().zip(colors).zip(files.shares))
        .map(|((name, color), bytes)| {
            let filled = (bytes * room).checked_div(all).unwrap_or(0).max(u64::from(bytes > 0));
            let bar = "#".repeat(usize::try_from(filled).unwrap_or(0));
            let text = format!(" {name:<15} {:>10}  ", human(bytes));
            Line::from(vec![Span::raw(text), Span::styled(bar, Style::new().fg(color))])
        })
        .collect();
    lines.push(Line::from(format!(" {:<15} {:>10}", "windows of past", files.windows)));
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn watches(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let Some(live) = model.live() else { return };
    let newest = live.stat("revision");
    let mut lines = vec![Line::from(format!(
        " {} ({} behind), {} batches a second",
        grouped(live.stat("watches")),
        grouped(live.stat("watches_behind")),
        rate(model.rate("watch_batches"))
    ))];
    for (due, keys) in live.slowest_watches() {
        let behind = grouped((newest + 1).saturating_sub(due));
        lines.push(Line::from(format!(" {behind:>9} behind  {keys}")));
    }
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" watches ")), area);
}

fn leases(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let Some(live) = model.live() else { return };
    let next = live
        .stat_if("lease_next_micros")
        .map_or("-".to_owned(), |micros| duration(micros.saturating_mul(1_000)));
    let mut lines = vec![
        Line::from(format!(
            " leases    {}, the next may end in {next}",
            grouped(live.stat("leases"))
        )),
        Line::from(format!(
            "           {} renewed, {} ended a second",
            rate(model.rate("lease_renewals")),
            rate(model.rate("leases_expired"))
        )),
    ];
    let overdue = live.stat("lease_overdue_micros");
    if overdue > 0 {
        lines.push(Line::from(format!(
            "           overdue for {}",
            duration(overdue.saturating_mul(1_000))
        )));
    }
    let oldest = live
        .stat_if("oldest_pinned")
        .map_or(String::new(), |oldest| format!(", the oldest at {}", grouped(oldest)));
    lines.push(Line::from(format!(" readers   {}{oldest}", grouped(live.stat("pinned")))));
    for (revision, count) in live.pins() {
        lines.push(Line::from(format!("           {count} at revision {}", grouped(revision))));
    }
    frame.render_widget(
        Paragraph::new(lines).block(Block::bordered().title(" leases and readers ")),
        area,
    );
}
