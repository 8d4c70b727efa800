//! The metadata of a transaction, as it is shown.

use serde_json::Value;

use crate::bytes::{self, Given, show};
use crate::import::Metadata;

/// Metadata as it is stored: an importer's as the object it is, anything else as bytes.
pub(crate) fn stored_metadata(metadata: &[u8]) -> Value {
    match Metadata::parse(metadata) {
        Some(ours) => serde_json::to_value(ours).unwrap_or_default(),
        None if metadata.is_empty() => Value::Null,
        None => bytes::json(metadata),
    }
}

/// Metadata as it was given: what came through an export and an import looks as before.
pub(crate) fn metadata_json(metadata: &[u8]) -> Value {
    match Metadata::parse(metadata).as_ref().and_then(Metadata::carried) {
        Some(carried) => carried.clone(),
        None => stored_metadata(metadata),
    }
}

/// Metadata in a cell: commit and subject where there are such, else what there is.
pub(crate) fn metadata_cell(metadata: &[u8]) -> String {
    const WIDTH: usize = 40;
    let Some(ours) = Metadata::parse(metadata) else { return show(metadata, WIDTH) };
    match ours.carried() {
        Some(Value::String(text)) => show(text.as_bytes(), WIDTH),
        Some(other) => match serde_json::from_value::<Given>(other.clone()) {
            Ok(bytes) => show(&bytes.0, WIDTH),
            Err(_) => show(other.to_string().as_bytes(), WIDTH),
        },
        None => {
            let commit = ours.commit.unwrap_or_default();
            let subject = ours.subject.unwrap_or_default();
            let short = commit.get(..12).unwrap_or(&commit);
            show(format!("{short} {subject}").trim().as_bytes(), WIDTH)
        }
    }
}
