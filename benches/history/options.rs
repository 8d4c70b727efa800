//! What to run: words that choose, and `name=value` arguments.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::load::Setup;

pub(crate) const HELP: &str = "\
cargo bench --bench history -- [WHAT]... [NAME=VALUE]...

What; all of it if nothing is named:
  growth    the cost of one operation in stores of one size after the other
  opened    opening: the largest of the growing stores beside the smallest, in turns
  versions  a scan of the latest versions: 1,000 versions a key beside 1
  changed   a scan of an old revision, by how many keys have changed since
  written   bytes the device was given to write for each byte put (Linux; nothing else should write)
  beside    gets beside a writer: of the same keys, of other keys, of another store
  reclaim   commits while space is given back
  large     what large values among small ones cost to write and to read
How:
  versions=1000,10000,100000,1000000   sizes of the growing stores; 10000000 takes minutes and 6 GB
  rounds=3                             measurements; the results are medians
  scale=1                              how many times larger the other stores are
  dir=DIRECTORY                        where the stores lie; default: below the target directory
  svg=FILE                             draws the growth curves
  values=half                          half of each of 256 bytes is noise; `pods`: 2 KB that change a little
  NAME=VALUE                           an option of the engine, such as history_codec=fast";

/// What is asked for.
#[derive(Debug)]
pub(crate) enum Asked {
    Run(Box<Options>),
    Help,
}

/// See [`HELP`].
#[derive(Clone, Debug)]
pub(crate) struct Options {
    what: Vec<String>,
    pub(crate) versions: Vec<u64>,
    pub(crate) rounds: usize,
    pub(crate) scale: u64,
    pub(crate) dir: PathBuf,
    pub(crate) svg: Option<PathBuf>,
    pub(crate) setup: Setup,
    /// The arguments that made `setup`.
    pub(crate) setup_args: Vec<String>,
}

const WHAT: &[&str] =
    &["growth", "opened", "versions", "changed", "written", "beside", "reclaim", "large"];

impl Setup {
    /// Takes one argument.
    pub(crate) fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        match (name, value) {
            ("values", "half") => self.pods = false,
            ("values", "pods") => self.pods = true,
            _ => self.engine.set(name, value).map_err(|error| error.to_string())?,
        }
        Ok(())
    }
}

impl Options {
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Asked, String> {
        let mut options = Self {
            what: Vec::new(),
            versions: vec![1_000, 10_000, 100_000, 1_000_000],
            rounds: 3,
            scale: 1,
            dir: Path::new(env!("CARGO_TARGET_TMPDIR")).to_owned(),
            svg: None,
            setup: Setup::default(),
            setup_args: Vec::new(),
        };
        for arg in args {
            match arg.split_once('=') {
                Some(("versions", list)) => {
                    let sizes = list.split(',').map(|value| one(&arg, value));
                    options.versions = sizes.collect::<Result<_, _>>()?;
                }
                Some(("rounds", value)) => options.rounds = one(&arg, value)?,
                Some(("scale", value)) => options.scale = one(&arg, value)?,
                Some(("dir", value)) => options.dir = value.into(),
                Some(("svg", value)) => options.svg = Some(value.into()),
                Some((name, value)) => {
                    options.setup.take(name, value)?;
                    options.setup_args.push(arg);
                }
                None => match &arg[..] {
                    "--help" | "-h" => return Ok(Asked::Help),
                    // What cargo passes to every bench.
                    "--bench" => {}
                    word if WHAT.contains(&word) => options.what.push(arg),
                    _ => return Err(format!("what is `{arg}`?")),
                },
            }
        }
        if options.rounds == 0 || options.scale == 0 || options.versions.iter().any(|n| *n < 100) {
            return Err("there must be at least a round, a scale of 1 and 100 versions".to_owned());
        }
        Ok(Asked::Run(Box::new(options)))
    }

    pub(crate) fn wants(&self, what: &str) -> bool {
        self.what.is_empty() || self.what.iter().any(|word| word == what)
    }
}

fn one<T: FromStr>(arg: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{arg}` has no such value"))
}
