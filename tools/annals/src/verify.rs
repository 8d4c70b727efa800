//! `verify`.

use clap::Args;

use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output::Output;

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {}

/// `verify`.
pub(crate) fn verify(_global: &Global, _args: &VerifyArgs, _out: &mut Output) -> Outcome {
    Err(Failure::Other("not yet".into()))
}
