//! `top`: a store at a glance, again and again.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures to look at, none of them negative"
)]

mod draw;
mod model;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::follow::Seen;
use crate::live::Live;
use crate::output::{Format, Output};

use model::{Files, Model, Sample};

/// Columns and rows of a frame that goes to no terminal.
const FRAME: (u16, u16) = (100, 30);

/// Arguments of `top`.
#[derive(Debug, Args)]
#[command(
    after_help = "Rates and latencies are those of the time between two looks. They, and memory, watches, leases and
readers, only the program can tell that has the store open; it does if it asks for it when it opens
the store: Options::new().live_interval_seconds(1). Without that, top shows what the files tell.

Keys: q ends it, p holds the picture and lets it go again, s sorts the files by something else.

Examples:
  $ annals -C store top --once"
)]
pub(crate) struct TopArgs {
    /// Print one picture, or with -o json its figures, and end.
    #[arg(long)]
    once: bool,
    /// How often to look, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
}

/// `top`: shows the store until somebody ends it.
pub(crate) fn top(global: &Global, args: &TopArgs, out: &mut Output) -> Outcome {
    let interval = Duration::from_secs(args.interval);
    let mut looker = Looker { global, seen: None };
    let mut model = Model::new(global.data()?.display().to_string());
    model.add(looker.look(&model)?);
    if args.once {
        if model.is_live() {
            sleep(interval);
            model.add(looker.look(&model)?);
        }
        if out.format() != Format::Table {
            return out.object(&model.figures());
        }
        let (width, height) = FRAME;
        // It has no terminal that could fail.
        let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
        let Ok(_) = terminal.draw(|frame| draw::draw(frame, &model));
        return out.bytes(text(terminal.backend().buffer()).as_bytes());
    }
    if !io::stdout().is_terminal() {
        return Err(Failure::Usage("top needs a terminal; --once prints one picture".into()));
    }
    let mut terminal = ratatui::init();
    let shown = run(&mut terminal, &mut model, &mut looker, interval);
    ratatui::restore();
    shown
}

fn run(
    terminal: &mut ratatui::DefaultTerminal,
    model: &mut Model,
    looker: &mut Looker<'_>,
    interval: Duration,
) -> Outcome {
    let on_terminal = |error| Failure::io("the terminal", error);
    let mut looked = Instant::now();
    loop {
        terminal.draw(|frame| draw::draw(frame, model)).map_err(on_terminal)?;
        let left = interval.saturating_sub(looked.elapsed());
        if event::poll(left).map_err(on_terminal)? {
            if let Event::Key(key) = event::read().map_err(on_terminal)?
                && key.kind == KeyEventKind::Press
            {
                let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    KeyCode::Char('c') if is_interrupt => return Ok(()),
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('p') => model.pause(),
                    KeyCode::Char('s') => model.sort(),
                    _ => {}
                }
            }
        } else {
            looked = Instant::now();
            let sample = looker.look(model)?;
            model.add(sample);
        }
    }
}

/// Looks at the store. What it opened is kept until the files say that there is more.
struct Looker<'g> {
    global: &'g Global,
    seen: Option<Seen>,
}

impl Looker<'_> {
    fn look(&mut self, model: &Model) -> Outcome<Sample> {
        let path: &Path = self.global.data()?;
        let live = Live::read(path);
        let files = match (&live, model.files()) {
            // All that the files tell, a program that lives tells, too.
            (Ok(live), _) => Files::of_live(live),
            (_, Some(files)) if self.seen.as_ref().is_some_and(|seen| !seen.differs()) => {
                files.clone()
            }
            _ => {
                self.seen = Some(Seen::now(path));
                let stats = self.global.read()?.stats();
                Files::of(&stats, crate::files::log_extent(&crate::files::open(self.global)?))
            }
        };
        if live.is_ok() {
            self.seen = None;
        }
        Ok(Sample { files, live })
    }
}

/// A picture as lines of text.
fn text(buffer: &Buffer) -> String {
    let area = buffer.area;
    let mut text = String::new();
    for y in area.top()..area.bottom() {
        let cells = (area.left()..area.right()).filter_map(|x| buffer.cell((x, y)));
        let line: String = cells.map(ratatui::buffer::Cell::symbol).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
