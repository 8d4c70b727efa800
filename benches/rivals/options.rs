//! What to run: `name=value` arguments, and the cells they leave.

use std::fmt;
use std::str::FromStr;

pub(crate) const HELP: &str = "\
cargo bench --features bench-internals --bench rivals -- [NAME=VALUE]...

Cells to run; a list, separated by commas, each:
  threads=1,2,8,64      committing threads; any numbers
  load=uniform,hot      all keys from the whole set; or one of them the same for all
  keys=1,10             keys of a transaction
  stall=no,yes          whether one transaction every 10 ms sleeps 1 ms in its critical part
How:
  seconds=0.3           of a run, once for the rate and once more for the latencies
  rounds=3              runs of each way; the results are medians
  --long                seconds=2 rounds=9
  set=16384             distinct keys, a power of two
  memtable_mib=32       size of a generation; about four of them are in memory at a time";

/// What is asked for.
#[derive(Debug)]
pub(crate) enum Asked {
    Run(Options),
    Help,
}

/// See [`HELP`].
#[derive(Clone, Debug)]
pub(crate) struct Options {
    threads: Vec<usize>,
    loads: Vec<Load>,
    keys: Vec<usize>,
    stalls: Vec<Stalls>,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) set: usize,
    pub(crate) memtable_mib: usize,
}

/// Which keys a transaction takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Uniform,
    Hot,
}

/// Whether transactions stall now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stalls {
    No,
    Yes,
}

/// One combination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) threads: usize,
    pub(crate) load: Load,
    pub(crate) keys: usize,
    pub(crate) stalls: Stalls,
}

impl Options {
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Asked, String> {
        let mut options = Self {
            threads: vec![1, 2, 8, 64],
            loads: vec![Load::Uniform, Load::Hot],
            keys: vec![1, 10],
            stalls: vec![Stalls::No, Stalls::Yes],
            seconds: 0.3,
            rounds: 3,
            set: 1 << 14,
            memtable_mib: 32,
        };
        for arg in args {
            match arg.split_once('=') {
                Some(("threads", list)) => options.threads = values(&arg, list)?,
                Some(("load", list)) => options.loads = values(&arg, list)?,
                Some(("keys", list)) => options.keys = values(&arg, list)?,
                Some(("stall", list)) => options.stalls = values(&arg, list)?,
                Some(("seconds", value)) => options.seconds = one(&arg, value)?,
                Some(("rounds", value)) => options.rounds = one(&arg, value)?,
                Some(("set", value)) => options.set = one(&arg, value)?,
                Some(("memtable_mib", value)) => options.memtable_mib = one(&arg, value)?,
                _ => match &arg[..] {
                    "--long" => (options.seconds, options.rounds) = (2.0, 9),
                    "--help" | "-h" => return Ok(Asked::Help),
                    // What cargo passes to every bench.
                    "--bench" => {}
                    _ => return Err(format!("what is `{arg}`?")),
                },
            }
        }
        options.check().map(|()| Asked::Run(options))
    }

    fn check(&self) -> Result<(), String> {
        let refused = |what: &str| Err(what.to_string());
        if self.threads.contains(&0) || self.keys.contains(&0) || self.rounds == 0 {
            return refused("there must be at least one thread, one key and one round");
        }
        if !(0.01..=3600.0).contains(&self.seconds) {
            return refused("seconds must be from 0.01 to 3600");
        }
        if !self.set.is_power_of_two() || !(64..=1 << 24).contains(&self.set) {
            return refused("the set must be a power of two from 64 to 2^24");
        }
        if self.keys.iter().any(|&keys| keys > self.set) {
            return refused("a transaction cannot have more keys than there are");
        }
        if !(1..=4096).contains(&self.memtable_mib) {
            return refused("memtable_mib must be from 1 to 4096");
        }
        // Both ways of being full are in play: bytes end a generation, distinct keys never do.
        let mib = self.set.max(*self.keys.iter().max().unwrap_or(&1) * 4) / 1024;
        if self.memtable_mib <= mib {
            return refused("the keys alone would fill a generation");
        }
        Ok(())
    }

    /// The cells, in the order of the table.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &stalls in &self.stalls {
            for &keys in &self.keys {
                for &load in &self.loads {
                    for &threads in &self.threads {
                        cells.push(Cell { threads, load, keys, stalls });
                    }
                }
            }
        }
        cells
    }

    pub(crate) fn memtable_bytes(&self) -> usize {
        self.memtable_mib << 20
    }

    /// Room for the keys of a generation: all, and the hot one.
    pub(crate) fn memtable_keys(&self) -> usize {
        self.set + 64
    }
}

fn one<T: FromStr>(arg: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{arg}` has no such value"))
}

fn values<T: FromStr>(arg: &str, list: &str) -> Result<Vec<T>, String> {
    list.split(',').map(|value| one(arg, value)).collect()
}

impl FromStr for Load {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        [Self::Uniform, Self::Hot].into_iter().find(|load| load.to_string() == word).ok_or(())
    }
}

impl FromStr for Stalls {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        [Self::No, Self::Yes].into_iter().find(|stalls| stalls.to_string() == word).ok_or(())
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Uniform { "uniform" } else { "hot" })
    }
}

impl fmt::Display for Stalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::No { "no" } else { "yes" })
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { threads, load, keys, stalls } = self;
        write!(f, "threads={threads} load={load} keys={keys} stall={stalls}")
    }
}
