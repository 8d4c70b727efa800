//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use crate::peer::{Contestant, Result, Role};
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
    /// Only measures whose name contains one of these; all if there are none.
    pub only: Vec<String>,
    pub contestants: Vec<Contestant>,
    pub quick: bool,
}

const USAGE: &str = "\
annals-peers: annals beside redb, LMDB, fjall, SQLite and SurrealKV, in one run.

Usage: annals-peers [--quick] [--rounds N] [--seconds S] [--scale F] [--versions N]
                    [--only TEXT]... [--peers NAME,NAME] [--dir DIR]

  --quick      3 very short rounds over small stores: a smoke test of two minutes, no figures
  --rounds N   interleaved rounds of each measure (default 5)
  --seconds S  time of one measure of one store in one round (default 0.6)
  --scale F    multiplies the number of keys (default 1: 20,000 keys written to; histories of
               4,000 keys with small values and 400 Pods)
  --versions N versions of each key of the histories (default 100)
  --only TEXT  measures whose name contains TEXT, as \"durable\", \"64 t\", \"hot\"; may be repeated
  --peers ...  contestants by the names in the table's head; \"fjall\" brings \"fjall+group\" along
               (annals and bare always take part; \"annals\" alone leaves the peers out)
  --dir DIR    where the stores are made and removed (default: the system's place for temporary
               files; it must be on a real disk for the synced figures to mean anything)

Prints Markdown tables on stdout and progress on stderr.";

impl Config {
    /// Reads the arguments; `None` if help was asked for, which was printed then.
    pub fn from_args(mut args: impl Iterator<Item = String>) -> Result<Option<Self>> {
        let mut config = Self {
            dir: std::env::temp_dir(),
            rounds: 5,
            time: Duration::from_millis(600),
            scale: 1.0,
            versions: 100,
            only: Vec::new(),
            contestants: peers::ALL.to_vec(),
            quick: false,
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--quick" => {
                    config.quick = true;
                    config.rounds = 3;
                    config.time = Duration::from_millis(60);
                    config.scale = 0.1;
                    config.versions = 20;
                }
                "--rounds" => config.rounds = value()?.parse()?,
                "--seconds" => config.time = Duration::from_secs_f64(value()?.parse()?),
                "--scale" => config.scale = value()?.parse()?,
                "--versions" => config.versions = value()?.parse()?,
                "--only" => config.only.push(value()?),
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
            let ungrouped = peer.name.strip_suffix("+group").unwrap_or(peer.name);
            let named = |name: &&str| {
                name.eq_ignore_ascii_case(peer.name) || name.eq_ignore_ascii_case(ungrouped)
            };
            matches!(peer.role, Role::Annals | Role::Bare) || wanted.iter().any(named)
        });
        Ok(())
    }

    /// Whether a measure is asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| name.contains(text.as_str()))
    }

    /// `count` keys at scale 1.
    pub fn keys(&self, count: u64) -> u64 {
        ((count as f64 * self.scale) as u64).max(64)
    }

    /// The contestants without those under a group commit, which come last.
    pub fn ungrouped(&self) -> &[Contestant] {
        let grouped = self.contestants.iter().position(|one| one.role == Role::Grouped);
        self.contestants.get(..grouped.unwrap_or(self.contestants.len())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_brings_its_grouped_self_along() {
        let config = |list: &str| {
            let args = ["--peers", list, "--only", "hot", "--only", "64 t"].map(str::to_owned);
            Config::from_args(args.into_iter()).ok().flatten()
        };
        let names = |list| -> Vec<_> {
            let config = config(list);
            config.into_iter().flat_map(|config| config.contestants).map(|one| one.name).collect()
        };
        assert_eq!(names("FJALL"), ["annals", "bare", "fjall", "fjall+group"]);
        assert_eq!(names("redb+group"), ["annals", "bare", "redb+group"]);
        assert_eq!(names("annals"), ["annals", "bare"]);
        assert_eq!(names("nobody").len(), 0);
        let config = config("fjall");
        assert_eq!(config.as_ref().map(|config| config.ungrouped().len()), Some(3));
        let wanted = |name| config.as_ref().map(|config| config.wants(name));
        assert_eq!(wanted("durable CAS, 64 threads"), Some(true));
        assert_eq!(wanted("durable CAS, 8 threads"), Some(false));
    }
}
