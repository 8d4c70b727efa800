//! `hash`: etcd's hash of all keys and values, to compare stores with.

use clap::Args;
use serde_json::json;

use crate::args::Global;
use crate::at::At;
use crate::exit::Outcome;
use crate::output::Output;

/// Arguments of `hash`.
#[derive(Debug, Args)]
#[command(
    after_help = "The hash is that of `etcdctl endpoint hashkv --rev REV`: of every version after the compacted
revision, and of what is alive of older ones. Stores with the same transactions that were
compacted to the same revision have the same.

Examples:
  $ annals -C store hash
  $ annals -C store hash --rev 3 -o json"
)]
pub(crate) struct HashArgs {
    /// Hash the store as of `latest`, a revision, or an RFC 3339 time.
    #[arg(
        long,
        alias = "at",
        value_name = "latest|REV|TIME",
        default_value = "latest",
        allow_negative_numbers = true
    )]
    rev: At,
}

/// `hash`: of the keys and values as of a revision.
pub(crate) fn hash(global: &Global, args: &HashArgs, out: &mut Output) -> Outcome {
    let store = global.read()?;
    let found = store.hash_at(args.rev.0)?;
    out.object(&json!({
        "revision": found.revision,
        "hash": found.hash,
        "compacted": found.compacted,
    }))
}
