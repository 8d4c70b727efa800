//! What to run: arguments, and what they leave.

use std::path::PathBuf;
use std::str::FromStr;

pub(crate) const HELP: &str = "\
ETCD=PATH[:PATH]... cargo bench -p annals-etcd --bench beside_etcd -- [OPTION]...

  --dir DIR       where the servers keep their data; the target directory if none is named
  --rounds N      runs of each cell on each server, in turns; results are medians (5)
  --seconds S     of a run (2)
  --keys N        keys of the large load, up to 10,000,000 (1000000)
  --only PART     cells whose name has this in it; again for more
  --quick         one short round of everything over 2,000 keys: proves that it works
  --ours          annals-etcd alone
  --beside TEXT   what else the machine was doing, to be told with the results";

/// What is asked for.
#[derive(Debug)]
pub(crate) enum Asked {
    Run(Options),
    Help,
    /// Nothing is to be measured: the tests are being run.
    Test,
}

/// See [`HELP`].
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) dir: PathBuf,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) keys: u64,
    only: Vec<String>,
    pub(crate) quick: bool,
    pub(crate) ours: bool,
    pub(crate) beside: Option<String>,
}

impl Options {
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Asked, String> {
        let mut options = Self {
            dir: env!("CARGO_TARGET_TMPDIR").into(),
            rounds: 5,
            seconds: 2.0,
            keys: 1_000_000,
            only: Vec::new(),
            quick: false,
            ours: false,
            beside: None,
        };
        let (mut args, mut bench) = (args, false);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} takes a value"));
            match &arg[..] {
                "--dir" => options.dir = value()?.into(),
                "--rounds" => options.rounds = number(&arg, &value()?)?,
                "--seconds" => options.seconds = number(&arg, &value()?)?,
                "--keys" => options.keys = number(&arg, &value()?)?,
                "--only" => options.only.push(value()?),
                "--beside" => options.beside = Some(value()?),
                "--ours" => options.ours = true,
                "--quick" => {
                    (options.quick, options.rounds) = (true, 1);
                    (options.seconds, options.keys) = (0.3, 2000);
                }
                "--help" | "-h" => return Ok(Asked::Help),
                // What cargo passes to every bench, and does not when it runs them as tests.
                "--bench" => bench = true,
                "--test" => return Ok(Asked::Test),
                _ => return Err(format!("what is `{arg}`?")),
            }
        }
        if !bench {
            return Ok(Asked::Test);
        }
        if options.rounds == 0 || !(0.05..=600.0).contains(&options.seconds) {
            return Err("there must be a round, of 0.05 to 600 seconds".to_owned());
        }
        if !(2000..=10_000_000).contains(&options.keys) {
            return Err("keys must be from 2,000 to 10,000,000".to_owned());
        }
        Ok(Asked::Run(options))
    }

    /// Whether a cell is wanted, which all are where none is named.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }
}

fn number<T: FromStr>(arg: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{arg} {value}`: no such number"))
}
