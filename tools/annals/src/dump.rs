//! `dump`.

use clap::Args;

use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output::Output;

/// Arguments of `dump`.
#[derive(Debug, Args)]
pub(crate) struct DumpArgs {}

/// `dump`.
pub(crate) fn dump(_global: &Global, _args: &DumpArgs, _out: &mut Output) -> Outcome {
    Err(Failure::Other("not yet".into()))
}
