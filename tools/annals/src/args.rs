//! The command line: what every command shares. A command's own arguments lie beside its code.

use std::fmt::Write as _;
use std::path::PathBuf;

use annals::inspect::StoreFiles;
use annals::{ErrorKind, KNOBS, Knob, KnobRange, Options, Store};
use clap::{Args, CommandFactory as _, Parser};

use crate::at::{At, SPELLING};
use crate::commands::Command;
use crate::exit::{CODES, Failure, Outcome, say};
use crate::output::Format;

/// What one begins with.
const EXAMPLES: &str = "\
Examples:
  $ annals -C new put greeting hello       # makes a store in the directory `new`
  $ annals -C new get greeting
  $ annals -C new history greeting         # every version of it
  $ annals help range                      # what a command takes, with examples";

/// Read, write, inspect, verify and import annals stores.
///
/// A store keeps every version of every key. Every committed transaction has a revision, counted
/// from 2; reads can name any revision that is still kept. Commands that only read never
/// write anything, not even a lock, and work beside a program that has the store open.
#[derive(Debug, Parser)]
#[command(
    name = "annals",
    version,
    after_help = format!("{EXAMPLES}\n\n{CODES}"),
    after_long_help = format!("{EXAMPLES}\n\n{SPELLING}\n\n{CODES}\n\n{}", engine_options_help()),
    propagate_version = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// The directory of the store. Every command needs it but `tour`, `bench`, `completions`, `schema` and `man`, and
    /// `inspect` of a backup. put, txn, lease grant, import and restore make a store where there is none.
    #[arg(short = 'C', long = "data", value_name = "DIR", global = true)]
    pub(crate) data: Option<PathBuf>,
    /// How data is written to standard output.
    #[arg(short, long, value_name = "FORMAT", global = true, value_enum, default_value_t)]
    pub(crate) output: Format,
    /// The same as `-o json`.
    #[arg(long, global = true, conflicts_with = "output")]
    pub(crate) json: bool,
    /// An engine option, such as `memtable_bytes=64M`; `annals --help` lists them. Can be repeated.
    #[arg(short = 'O', value_name = "NAME=VALUE", global = true)]
    pub(crate) options: Vec<String>,
}

/// The command line. In the usage of a command stands the store, too, which clap leaves out.
pub(crate) fn command() -> clap::Command {
    let mut command = Cli::command();
    command.build();
    name_store(&mut command);
    command
}

fn name_store(command: &mut clap::Command) {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replacen("[OPTIONS]", "-C <DIR> [OPTIONS]", 1);
    // A backup is a file of its own.
    let also = if command.get_name() == "inspect" {
        "\n       annals inspect [OPTIONS] <BACKUP>"
    } else {
        ""
    };
    *command = std::mem::take(command).override_usage(usage + also);
    let needs_it = |command: &&mut clap::Command| !NEED_NO_STORE.contains(&command.get_name());
    command.get_subcommands_mut().filter(needs_it).for_each(name_store);
}

/// Commands that do without `-C`.
const NEED_NO_STORE: [&str; 6] = ["tour", "bench", "completions", "schema", "man", "help"];

impl Global {
    /// How data is written.
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.output }
    }

    /// The directory of the store.
    pub(crate) fn data(&self) -> Outcome<&PathBuf> {
        let data = self.data.as_ref();
        data.ok_or_else(|| Failure::Usage("which store? Give -C DIR".into()))
    }

    /// The engine's options with every `-O` applied.
    pub(crate) fn engine_options(&self) -> Outcome<Options> {
        self.options_over(Options::new())
    }

    /// Options with every `-O` applied.
    pub(crate) fn options_over(&self, mut options: Options) -> Outcome<Options> {
        for option in &self.options {
            let Some((name, value)) = option.split_once('=') else {
                return Err(Failure::Usage(format!("-O {option}: expected NAME=VALUE")));
            };
            options.set(name, value)?;
        }
        Ok(options)
    }

    /// Opens the store for reading only.
    pub(crate) fn read(&self) -> Outcome<Store> {
        Ok(Store::open_read_only_with(self.data()?, &self.engine_options()?)?)
    }

    /// Opens a store that is there for reading and writing.
    pub(crate) fn write_existing(&self) -> Outcome<Store> {
        Ok(Store::open_with(self.data()?, &self.engine_options()?.create(false))?)
    }

    /// Is there no store?
    pub(crate) fn is_absent(&self) -> Outcome<bool> {
        match StoreFiles::open(self.data()?, &self.engine_options()?) {
            Ok(_) => Ok(false),
            Err(error) if matches!(error.kind(), ErrorKind::NoStore { .. }) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the store for reading and writing; makes it if there is none, and says so: the name may be a typing error.
    pub(crate) fn write(&self) -> Outcome<Store> {
        let store = Store::open_with(self.data()?, &self.engine_options()?)?;
        if store.open_report().created {
            say(format_args!("made a new store in {}", self.data()?.display()));
        }
        Ok(store)
    }
}

/// The part of history that a command tells.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Span {
    /// Begin with the first revision that is not before this point in history.
    #[arg(long, alias = "from", value_name = "AT", allow_hyphen_values = true)]
    pub(crate) since: Option<At>,
    /// End with the last revision that is not after this one.
    #[arg(long, value_name = "AT", allow_hyphen_values = true)]
    pub(crate) until: Option<At>,
}

impl Span {
    /// Refuses a part that ends before it begins, given the first revision and the last. Where nothing has come
    /// since a time, the first is the one that is to come, and the part is only empty.
    pub(crate) fn refuse_backward(&self, first: Option<u64>, last: u64) -> Outcome {
        let (Some(since), Some(until), Some(first)) = (self.since, self.until, first) else {
            return Ok(());
        };
        let backward = match (since, until) {
            (At::Time(since), At::Time(until)) => since > until,
            (At::Time(_), _) => first > last.saturating_add(1),
            _ => first > last,
        };
        if backward {
            let what = format!("what begins at {since} (--since) cannot end at {until} (--until)");
            return Err(Failure::Usage(what));
        }
        Ok(())
    }
}

/// The engine's options, for `--help`.
fn engine_options_help() -> String {
    let mut text = "Engine options (-O NAME=VALUE; K, M and G are powers of 1024):".to_owned();
    for Knob { name, what, range, .. } in KNOBS {
        // What is too long for a line goes on below where it began.
        let _ = write!(text, "\n  {name}\n      {what}");
        if let Some(KnobRange { min, max, default, .. }) = range {
            let spell = |n: &u64| if name.contains("bytes") { short(*n) } else { n.to_string() };
            let (min, max, default) = (spell(min), spell(max), spell(default));
            let _ = write!(text, "; {min} to {max}, default {default}");
        }
    }
    text
}

/// A number of bytes as `-O` takes it, in the largest unit that holds it whole.
fn short(bytes: u64) -> String {
    let units = [("G", 30), ("M", 20), ("K", 10)];
    let whole = |shift: u32| bytes > 0 && bytes.trailing_zeros() >= shift;
    match units.into_iter().find(|(_, shift)| whole(*shift)) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// A limit of rows.
pub(crate) fn parse_limit(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected how many at most, or 0 for all".into())
}

/// A revision.
pub(crate) fn parse_revision(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a revision, such as 7".into())
}

/// Where a read looks.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ReadAt {
    /// Read the store as of this point in history: a revision, a time, how long ago. `annals --help` has all
    /// ways to spell one.
    // etcdctl calls a revision --rev.
    #[arg(
        long,
        alias = "rev",
        value_name = "AT",
        default_value = "latest",
        allow_hyphen_values = true
    )]
    pub(crate) at: At,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn the_usage_of_a_command_names_the_store_it_needs() {
        let mut command = command();
        let mut usages = vec![command.render_usage().to_string()];
        let is_help = |command: &&mut clap::Command| command.get_name() == "help";
        for sub in command.get_subcommands_mut().filter(|sub| !is_help(sub)) {
            usages.push(sub.render_usage().to_string());
            let subs = sub.get_subcommands_mut().filter(|sub| !is_help(sub));
            usages.extend(subs.map(|sub| sub.render_usage().to_string()));
        }
        let without = usages.iter().filter(|usage| !usage.contains("-C <DIR> [OPTIONS]"));
        let none = [
            "Usage: annals tour [OPTIONS] [PATH]",
            "Usage: annals bench [OPTIONS] <WHAT>",
            "Usage: annals completions [OPTIONS] <SHELL>",
            "Usage: annals schema [OPTIONS] [COMMAND]...",
            "Usage: annals man [OPTIONS]",
        ];
        assert_eq!(without.collect::<Vec<_>>(), none);
        assert!(usages.contains(&"Usage: annals get -C <DIR> [OPTIONS] <KEY>".to_owned()));
        let inspect = "Usage: annals inspect -C <DIR> [OPTIONS] [FILE]\n       annals inspect [OPTIONS] <BACKUP>";
        assert!(usages.contains(&inspect.to_owned()));
        assert!(usages.contains(&"Usage: annals lease list -C <DIR> [OPTIONS]".to_owned()));
    }

    #[test]
    fn global_arguments_go_before_and_after_the_command() {
        for line in ["annals -C d -o ndjson get k", "annals get k -C d -o ndjson"] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(cli.global.output, Format::Ndjson);
            assert_eq!(cli.global.data, Some("d".into()));
        }
    }

    #[test]
    fn the_help_lists_every_engine_option() {
        let help = engine_options_help();
        for knob in KNOBS {
            let mut lines = help.lines().skip_while(|line| line.trim_start() != knob.name);
            let line = lines.nth(1).unwrap();
            let Some(range) = knob.range else { continue };
            // What it says can be given.
            let (_, numbers) = line.rsplit_once("; ").unwrap();
            let (range_text, default) = numbers.split_once(", default ").unwrap();
            let (min, max) = range_text.split_once(" to ").unwrap();
            for (text, number) in [(min, range.min), (max, range.max), (default, range.default)] {
                let mut options = Options::new();
                options.set(knob.name, text).unwrap();
                let debug = format!("{options:?}");
                assert!(debug.contains(&format!("{}: {number},", knob.name)), "{line}");
            }
        }
    }

    #[test]
    fn an_empty_prefix_is_an_argument() {
        let line = ["annals", "-C", "d", "range", "--prefix", ""];
        assert!(matches!(Cli::try_parse_from(line).unwrap().command, Command::Range(_)));
    }
}
