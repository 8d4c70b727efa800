//! `checkpoint`: a copy of a store that shares its files, also while a program writes.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::args::Global;
use crate::backup::note_users;
use crate::exit::Outcome;
use crate::output::Output;
use crate::target::Target;

/// Arguments of `checkpoint`.
#[derive(Debug, Args)]
#[command(
    after_help = "The copy is a store of its own, with every revision that can be read. It shares the files
of the store by hard links, as files never change; so it is made in no time, and takes hardly any
room. On another file system the files are copied. A program may write to the store meanwhile: the
copy has what was durable when this command began.

If the command is interrupted or fails, TO is no store, and the next command on it says so: remove
it.

Examples:
  $ annals -C store checkpoint backups/monday
  $ annals -C backups/monday verify"
)]
pub(crate) struct CheckpointArgs {
    /// The directory of the copy: absent, or empty.
    #[arg(value_name = "TO")]
    to: PathBuf,
}

/// `checkpoint`: the copy, and what it took.
pub(crate) fn checkpoint(global: &Global, args: &CheckpointArgs, out: &mut Output) -> Outcome {
    let store = global.read()?;
    let target = Target::new(&args.to);
    let made = store.checkpoint(&args.to).map_err(|error| target.failed(error.into()))?;
    note_users(global.data()?, out)?;
    out.object(&json!({
        "revision": made.revision,
        "linked_files": made.linked_files,
        "linked_bytes": made.linked_bytes,
        "copied_files": made.copied_files,
        "copied_bytes": made.copied_bytes,
        "log_bytes": made.log_bytes,
    }))
}
