//! `stats`.

use clap::Args;

use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output::Output;

/// Arguments of `stats`.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {}

/// `stats`.
pub(crate) fn stats(_global: &Global, _args: &StatsArgs, _out: &mut Output) -> Outcome {
    Err(Failure::Other("not yet".into()))
}
