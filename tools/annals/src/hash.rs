//! `hash`: etcd's hash of all keys and values, to compare stores with.

use clap::Args;
use serde_json::json;

use crate::args::{Global, ReadAt};
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
  $ annals -C store hash --at 3 -o json"
)]
pub(crate) struct HashArgs {
    #[command(flatten)]
    at: ReadAt,
}

/// `hash`: of the keys and values as of a revision.
pub(crate) fn hash(global: &Global, args: &HashArgs, out: &mut Output) -> Outcome {
    let store = global.read()?;
    let found = store.hash_at(args.at.at.revision(&store)?)?;
    out.object(&json!({
        "revision": found.revision,
        "hash": found.hash,
        "compacted_revision": found.compacted,
    }))
}
