//! `--auto-compaction-mode` and `--auto-compaction-retention`.

use std::time::Duration;

use crate::config::Config;
use crate::config::flags::parse_duration;

/// How the past is given up by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AutoCompaction {
    /// It is not.
    Off,
    /// What is older than this.
    Periodic(Duration),
    /// What is that many revisions back.
    Revision(i64),
}

impl Config {
    /// How the past is given up by itself.
    ///
    /// # Errors
    /// The mode is none, or the retention is no number or duration.
    pub fn auto_compaction(&self) -> Result<AutoCompaction, String> {
        let text = self.auto_compaction_retention.as_str();
        let wrong = |what: &str| format!("--auto-compaction-retention {text:?} is no {what}");
        let number = text.parse::<i64>().ok();
        match self.auto_compaction_mode.as_str() {
            "revision" | "periodic" if text.is_empty() || number == Some(0) => {
                Ok(AutoCompaction::Off)
            }
            "revision" => number
                .filter(|number| *number > 0)
                .map(AutoCompaction::Revision)
                .ok_or_else(|| wrong("number of revisions")),
            "periodic" => {
                let time = match number {
                    Some(hours) => {
                        u64::try_from(hours).ok().and_then(|hours| hours.checked_mul(3600))
                    }
                    None => {
                        return Ok(periodic(parse_duration(text).map_err(|_| wrong("duration"))?));
                    }
                };
                let time = time.ok_or_else(|| wrong("number of hours"))?;
                Ok(periodic(Duration::from_secs(time)))
            }
            mode => {
                Err(format!("unsupported --auto-compaction-mode {mode:?}: periodic or revision"))
            }
        }
    }
}

fn periodic(time: Duration) -> AutoCompaction {
    if time.is_zero() { AutoCompaction::Off } else { AutoCompaction::Periodic(time) }
}
