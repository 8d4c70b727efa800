//! `at`: which revision a point in history is, and when that was.

use clap::Args;
use serde_json::{Value, json};

use crate::args::Global;
use crate::at::{At, rfc3339};
use crate::exit::Outcome;
use crate::output::Output;

/// Arguments of `at`.
#[derive(Debug, Args)]
#[command(
    after_help = "revision is the last one that is not after AT, time when it was committed; next_revision and
next_time are those of the one after it, where there is one. Exits 6 where nothing that old is
kept.

Examples:
  $ annals -C store at latest
  $ annals -C store at 3
  $ annals -C store at -1 --json
  $ annals -C store at 10s                             # 1 if the store is not as old"
)]
pub(crate) struct AtArgs {
    /// The point in history: a revision, a time, a day, how long ago. `annals --help` has all forms.
    #[arg(value_name = "AT", allow_hyphen_values = true)]
    at: At,
}

/// `at`: a revision and its time.
pub(crate) fn at(global: &Global, args: &AtArgs, out: &mut Output) -> Outcome {
    let store = global.read()?;
    let revision = args.at.revision(&store)?;
    // The empty store was made by no transaction.
    let time = |revision| match store.time_of(revision) {
        Ok(micros) => json!(rfc3339(micros)),
        Err(_) => Value::Null,
    };
    let newest = store.revision();
    let next = (revision < newest).then_some(revision + 1);
    out.object(&json!({
        "revision": revision,
        "time": time(revision),
        "next_revision": next,
        "next_time": next.map_or(Value::Null, time),
        "before_newest": newest.saturating_sub(revision),
        "newest_revision": newest,
        "compacted_revision": store.compacted_revision(),
    }))
}
