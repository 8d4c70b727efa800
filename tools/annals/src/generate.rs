//! `completions` and `man`: what shells and `man` know of the command line, made from the command line itself.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use serde_json::json;

use crate::exit::{Failure, Outcome};
use crate::output::Output;

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  $ annals completions bash > annals.bash              # then: source annals.bash
  $ annals completions zsh > _annals                   # in a directory of $fpath
  $ annals completions fish > annals.fish              # in ~/.config/fish/completions")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  $ annals man > annals.1                              # then: man ./annals.1
  $ annals man --dir man1                              # a page for each command")]
pub(crate) struct ManArgs {
    /// Write a page for each command into this directory, which is made where it is not there.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// `completions`: a script for a shell.
pub(crate) fn completions(args: &CompletionsArgs, out: &mut Output) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::args::command(), "annals", &mut script);
    out.bytes(&script)
}

/// Without the commands that only show the help of others: they are no pages of a manual.
fn without_help(command: Command) -> Command {
    let is_help = command.get_name() == "help";
    command.hide(is_help).mut_subcommands(without_help)
}

/// `man`: the pages of the manual.
pub(crate) fn man(args: &ManArgs, out: &mut Output) -> Outcome {
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(crate::args::command()).render(&mut page)?;
        return out.bytes(&page);
    };
    let failed = |error| Failure::io(dir.display().to_string(), error);
    std::fs::create_dir_all(dir).map_err(failed)?;
    let mut command = crate::args::command();
    command.build();
    clap_mangen::generate_to(without_help(command), dir).map_err(failed)?;
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if name.starts_with("annals") && name.ends_with(".1") {
            pages.push(name);
        }
    }
    pages.sort();
    out.object(&json!({ "dir": dir.display().to_string(), "pages": pages }))
}
