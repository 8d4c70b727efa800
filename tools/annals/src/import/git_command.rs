//! `import git`: the command around [`git`](super::git).

use std::sync::Mutex;

use annals::Store;
use serde_json::{Value, json};

use super::GitArgs;
use super::git::{self, Records, Repository, Skipped};
use super::resume::{self, Found};
use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Progress;

/// `import git`: the first-parent history of a repository.
pub(super) fn import(global: &Global, args: &GitArgs, out: &mut Output) -> Outcome {
    let (repository, head) = git::open(&args.path, &args.reference).map_err(Failure::Other)?;
    let total = repository.count(&head).map_err(Failure::Other)?;
    let store = super::open(global)?;
    let found = last_commit(&store, &repository, &head)?;
    let after = found.as_ref().and_then(|found| found.marker.source.strip_prefix("git:"));
    let complete = after == Some(head.as_str());
    let already = resume::agree(&store, found.as_ref(), complete, args.append.append, out)?;
    let records = repository.records(&head, after, already + 1);
    let records: Mutex<Records> = Mutex::new(records.map_err(Failure::Other)?);
    let mut progress = Progress::new(Some(total), "commits");
    let next = || match records.lock() {
        Ok(mut records) => records.next().map_err(Failure::Other),
        Err(_) => Ok(None),
    };
    let done = super::run(&store, next, &mut progress, |number| number);
    progress.finish();
    let skipped = records.lock().map_or(Skipped::default(), |records| records.skipped());
    let mut told = done.as_ref().map_or(Value::Null, |summary| summary.json(&store, already));
    let closed = super::close(store);
    let summary = done?;
    closed?;
    summary.note_times(out)?;
    told["head"] = json!(head);
    told["commits_without_effect"] = json!(skipped.commits);
    told["submodule_changes_skipped"] = json!(skipped.submodules);
    out.object(&told)
}

/// The last commit in the store that the history of `head` has.
fn last_commit(store: &Store, repository: &Repository, head: &str) -> Outcome<Option<Found>> {
    let mut history = None;
    let mut last = None;
    resume::backwards(store, &mut |found| {
        let Some(commit) = found.marker.source.strip_prefix("git:") else { return Ok(true) };
        let history = match &mut history {
            Some(history) => history,
            None => history.insert(repository.first_parents(head).map_err(Failure::Other)?),
        };
        if !history.contains(commit) {
            return Ok(true);
        }
        last = Some(found);
        Ok(false)
    })?;
    Ok(last)
}
