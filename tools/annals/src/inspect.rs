//! `inspect`.

use clap::Args;

use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output::Output;

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {}

/// `inspect`.
pub(crate) fn inspect(_global: &Global, _args: &InspectArgs, _out: &mut Output) -> Outcome {
    Err(Failure::Other("not yet".into()))
}
