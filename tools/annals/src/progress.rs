//! Progress on standard error: only on a terminal, only for work longer than a second.

use std::borrow::Cow;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that shows itself when the work turns out to be long.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    begun: Instant,
    hidden: bool,
    terminal: bool,
}

impl Progress {
    /// A bar of `total` steps (`None`: not known) of a kind, such as `records`.
    pub(crate) fn new(total: Option<u64>, what: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        let template = match total {
            Some(_) => format!("{{bar:30}} {{human_pos}}/{{human_len}} {what} {{msg}} {{eta}}"),
            None => format!("{{spinner}} {{human_pos}} {what} {{msg}} {{elapsed}}"),
        };
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        let terminal = std::io::stderr().is_terminal();
        Self { bar, begun: Instant::now(), hidden: true, terminal }
    }

    /// Goes on to a position, with a few words beside the bar.
    pub(crate) fn set(&mut self, position: u64, words: impl FnOnce() -> Cow<'static, str>) {
        if !self.terminal {
            return;
        }
        if self.hidden {
            if self.begun.elapsed() < Duration::from_secs(1) {
                return;
            }
            self.hidden = false;
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        }
        self.bar.set_message(words());
        self.bar.set_position(position);
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
