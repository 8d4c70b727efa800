//! `compact`.

use clap::Args;

use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output::Output;

/// Arguments of `compact`.
#[derive(Debug, Args)]
pub(crate) struct CompactArgs {
    /// The revision.
    #[arg(long, value_name = "REV")]
    rev: u64,
    /// Do it.
    #[arg(long)]
    confirm: bool,
}

/// `compact`.
pub(crate) fn compact(_global: &Global, _args: &CompactArgs, _out: &mut Output) -> Outcome {
    Err(Failure::Other("not yet".into()))
}
