//! Where an import goes on: at the last marker of its source in the store's log.
//!
//! Most often that marker is in the newest transaction. Where others have written since, the log
//! is read backwards for it, so that nothing is imported twice; then the user has to agree
//! (`--append`), since what they wrote lies between the old records and the new.

use std::borrow::Cow;

use annals::{ErrorKind, Store};

use super::marker::{Marker, Metadata};
use crate::bytes::count;
use crate::exit::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Progress;

/// Revisions that are read at a time: the log is read forwards, and searched backwards.
const CHUNK: u64 = 4096;

/// Longest source that an import names: its kind and a digest.
const SOURCE_BYTES_MAX: usize = 128;

/// How far a source has been imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The revision of its last record in the store.
    pub(super) revision: u64,
    pub(super) marker: Marker,
}

/// Hands out the markers in the log, newest first, until `each` returns false.
pub(super) fn backwards(store: &Store, each: &mut dyn FnMut(Found) -> Outcome<bool>) -> Outcome {
    let newest = store.revision();
    let mut progress = Progress::new(Some(newest), "revisions");
    let mut end = newest.saturating_add(1);
    // The last transaction alone first: it is the answer for an import that is gone on with.
    let mut first = newest;
    'chunks: loop {
        // It rises as rules forget, which they do when the store has just been opened.
        first = first.max(store.oldest_readable(..).max(2));
        if first >= end {
            break;
        }
        let mut chunk = Vec::new();
        for transaction in store.log(first..end) {
            let transaction = match transaction {
                Err(error) if matches!(error.kind(), ErrorKind::Compacted { .. }) => {
                    continue 'chunks;
                }
                transaction => transaction?,
            };
            let metadata = Metadata::parse(&transaction.metadata);
            let marker = metadata.and_then(|metadata| metadata.import);
            // Who writes a longer one is no import, and must not fill the memory.
            if let Some(marker) = marker.filter(|marker| marker.source.len() <= SOURCE_BYTES_MAX) {
                chunk.push(Found { revision: transaction.revision, marker });
            }
        }
        while let Some(found) = chunk.pop() {
            if !each(found)? {
                return Ok(());
            }
        }
        end = first;
        first = end.saturating_sub(CHUNK);
        progress.set(newest - end, || Cow::Borrowed("looked back"));
    }
    Ok(())
}

/// The number of the last record that is there; 0 for none. `complete` says that the source has
/// none beyond it.
///
/// # Errors
/// Something else is in the store, too, and `append` was not given.
pub(super) fn agree(
    store: &Store,
    found: Option<&Found>,
    complete: bool,
    append: bool,
    out: &mut Output,
) -> Outcome<u64> {
    let newest = store.revision();
    let Some(Found { revision, marker }) = found else {
        if append || newest <= 1 {
            return Ok(0);
        }
        return Err(Failure::Other(format!(
            "the store holds something else already (revision {newest}): --append imports all \
             of this after it"
        )));
    };
    let record = marker.record;
    let others = newest - revision;
    if others > 0 && !complete && !append {
        let them = if others == 1 { "it" } else { "them" };
        let others = count(others, "revision");
        return Err(Failure::Other(format!(
            "the store holds this up to record {record} (revision {revision}), and {others} \
             of something else since: --append goes on after record {record}, behind \
             {them}"
        )));
    }
    out.note(format_args!("going on after record {record}"))?;
    Ok(record)
}
