//! `import git`: the command around [`git`](super::git).

use std::sync::Mutex;

use serde_json::json;

use super::GitArgs;
use super::git::{self, Records, Skipped};
use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Progress;

/// `import git`: the first-parent history of a repository.
pub(super) fn import(global: &Global, args: &GitArgs, out: &mut Output) -> Outcome {
    let (repository, head) = git::open(&args.path, &args.reference).map_err(Failure::Other)?;
    let total = repository.count(&head).map_err(Failure::Other)?;
    let store = super::open(global)?;
    let marker = super::last_marker(&store)?.and_then(|metadata| metadata.import);
    let last = marker
        .as_ref()
        .and_then(|marker| Some((marker.source.strip_prefix("git:")?.to_owned(), marker.record)));
    let known = match &last {
        Some((commit, _)) => repository.contains(&head, commit).map_err(Failure::Other)?,
        None => false,
    };
    let after = last.filter(|_| known);
    if after.is_none() {
        super::refuse_other(&store, args.append.append, "something else")?;
    }
    let already = after.as_ref().map_or(0, |(_, record)| *record);
    let records = repository.records(&head, after.as_ref().map(|(id, _)| id.as_str()), already + 1);
    let records: Mutex<Records> = Mutex::new(records.map_err(Failure::Other)?);
    let mut progress = Progress::new(Some(total), "commits");
    let next = || match records.lock() {
        Ok(mut records) => records.next().map_err(Failure::Other),
        Err(_) => Ok(None),
    };
    let done = super::run(&store, next, &mut progress, |number| number);
    progress.finish();
    let skipped = records.lock().map_or(Skipped::default(), |records| records.skipped());
    let summary = done.as_ref().map(|summary| summary.json(&store, already)).ok();
    let closed = store.close();
    done?;
    closed?;
    let Some(mut summary) = summary else { return Ok(()) };
    summary["head"] = json!(head);
    summary["commits_without_effect"] = json!(skipped.commits);
    summary["submodule_changes_skipped"] = json!(skipped.submodules);
    out.object(&summary)
}
