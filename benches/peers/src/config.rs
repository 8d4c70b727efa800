//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use crate::peer::{Contestant, Result};
use crate::peers;

/// How large, how long, who.
#[derive(Clone, Debug)]
pub struct Config {
    pub dir: PathBuf,
    pub rounds: usize,
    pub time: Duration,
    /// Multiplies the number of keys.
    pub scale: f64,
    pub versions: u64,
    /// Only measures whose name contains this.
    pub only: Option<String>,
    pub contestants: Vec<Contestant>,
    pub quick: bool,
}

const USAGE: &str = "\
annals-peers: annals beside redb, LMDB, fjall, SQLite and SurrealKV, in one run.

Usage: annals-peers [--quick] [--rounds N] [--seconds S] [--scale F] [--versions N]
                    [--only TEXT] [--peers NAME,NAME] [--dir DIR]

  --quick      3 short rounds over small stores: a smoke test, under three minutes
  --rounds N   interleaved rounds of each measure (default 5)
  --seconds S  time of one measure of one store in one round (default 1)
  --scale F    multiplies the number of keys (default 1: 20,000 keys written to; histories of
               4,000 keys with small values and 400 Pods)
  --versions N versions of each key of the histories (default 100)
  --only TEXT  measures whose name contains TEXT
  --peers ...  contestants by the names in the table's head (annals and bare always take part)
  --dir DIR    where the stores are made and removed (default: the system's place for temporary
               files; it must be on a real disk for the synced figures to mean anything)

Prints a Markdown table on stdout and progress on stderr.";

impl Config {
    /// Reads the arguments; `None` if help was asked for, which was printed then.
    pub fn from_args(mut args: impl Iterator<Item = String>) -> Result<Option<Self>> {
        let mut config = Self {
            dir: std::env::temp_dir(),
            rounds: 5,
            time: Duration::from_secs(1),
            scale: 1.0,
            versions: 100,
            only: None,
            contestants: peers::ALL.to_vec(),
            quick: false,
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--quick" => {
                    config.quick = true;
                    config.rounds = 3;
                    config.time = Duration::from_millis(250);
                    config.scale = 0.25;
                    config.versions = 40;
                }
                "--rounds" => config.rounds = value()?.parse()?,
                "--seconds" => config.time = Duration::from_secs_f64(value()?.parse()?),
                "--scale" => config.scale = value()?.parse()?,
                "--versions" => config.versions = value()?.parse()?,
                "--only" => config.only = Some(value()?),
                "--dir" => config.dir = value()?.into(),
                "--peers" => config.keep_only(&value()?)?,
                "--bench" => {}
                "-h" | "--help" => {
                    println!("{USAGE}");
                    return Ok(None);
                }
                other => return Err(format!("unknown argument {other}\n\n{USAGE}").into()),
            }
        }
        config.dir = config.dir.join(format!("annals-peers-{}", std::process::id()));
        Ok(Some(config))
    }

    fn keep_only(&mut self, list: &str) -> Result<()> {
        let wanted: Vec<&str> = list.split(',').map(str::trim).collect();
        for name in &wanted {
            if !peers::ALL.iter().any(|peer| peer.name.eq_ignore_ascii_case(name)) {
                return Err(format!("no contestant is called {name}").into());
            }
        }
        self.contestants.retain(|peer| {
            peer.name == "annals"
                || peer.name == "bare"
                || wanted.iter().any(|name| peer.name.eq_ignore_ascii_case(name))
        });
        Ok(())
    }

    /// Whether a measure is asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|text| name.contains(text.as_str()))
    }

    /// `count` keys at scale 1.
    pub fn keys(&self, count: u64) -> u64 {
        ((count as f64 * self.scale) as u64).max(64)
    }

    /// The names of the contestants.
    pub fn names(&self) -> Vec<&'static str> {
        self.contestants.iter().map(|peer| peer.name).collect()
    }
}
