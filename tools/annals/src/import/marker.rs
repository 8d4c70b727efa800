//! What an import leaves in a transaction's metadata: where the transaction came from, and where
//! to go on after an interruption.
//!
//! The metadata is one JSON object. `commit` is the source's own name of the transaction; the
//! rest describes it; `import` is the resume marker. It travels with the transaction it
//! describes, so that marker and data are durable together or not at all: after a crash the
//! newest transaction says exactly how far the import got.
//!
//! Users give transactions metadata of their own, which may be JSON, too. An importer's always has
//! the marker and nothing that is not listed here; all else is bytes that mean nothing to the tool.

use annals_format::limits::METADATA_BYTES_MAX;
use serde::{Deserialize, Serialize};

use crate::bytes::Given;

/// The metadata of an imported transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "the names of the JSON form")]
pub(crate) struct Metadata {
    /// The source's name of the transaction (a git commit id).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
    /// Who wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) author: Option<String>,
    /// When, in unix seconds as the source has it. The transaction's own time never decreases
    /// and may differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) author_time: Option<i64>,
    /// The first line of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<String>,
    /// Metadata of a transaction that was not imported, carried through export and import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metadata: Option<serde_json::Value>,
    /// The resume marker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) import: Option<Marker>,
}

/// The resume marker of one record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Marker {
    /// Which source, up to and with this record: for a history file `xxh3:` and the digest of
    /// its lines 1 to `record`; for a git repository `git:` and the commit id, which names all of
    /// the history before it.
    pub(crate) source: String,
    /// The number of the record, counted from 1.
    pub(crate) record: u64,
}

impl Metadata {
    /// The metadata of a transaction, where an import wrote it.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.first() != Some(&b'{') {
            return None;
        }
        let ours: Self = serde_json::from_slice(bytes).ok()?;
        ours.import.is_some().then_some(ours)
    }

    /// What the transaction carried before it was exported and imported, where that is all it
    /// carries.
    pub(crate) fn carried(&self) -> Option<&serde_json::Value> {
        let described = self.commit.is_some()
            || self.author.is_some()
            || self.author_time.is_some()
            || self.subject.is_some();
        self.metadata.as_ref().filter(|_| !described)
    }

    /// The bytes to store. What was given as long as metadata can be has no room for the marker
    /// beside it, and is stored as it was given: an import that ends just there asks how to go on.
    pub(crate) fn to_stored_bytes(&self) -> Vec<u8> {
        let bytes = self.to_bytes();
        if bytes.len() as u64 <= METADATA_BYTES_MAX {
            return bytes;
        }
        let carried = self.carried().and_then(|carried| Given::deserialize(carried).ok());
        carried.map_or(bytes, |given| given.0.into())
    }

    /// Its JSON form.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // Strings and numbers: nothing in it can fail to serialise.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let metadata = Metadata {
            commit: Some("c0ffee".into()),
            author_time: Some(-5),
            import: Some(Marker { source: "xxh3:00".into(), record: 7 }),
            ..Metadata::default()
        };
        let bytes = metadata.to_bytes();
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            r#"{"commit":"c0ffee","author_time":-5,"import":{"source":"xxh3:00","record":7}}"#
        );
        assert_eq!(Metadata::parse(&bytes), Some(metadata));
    }

    #[test]
    fn foreign_metadata_is_not_ours() {
        for text in [
            "",
            "hello",
            "[1]",
            "{",
            "{}",
            r#"{"commit": 5}"#,
            r#"{"ticket":"OPS-17","user":"ana"}"#,
            // What is ours by its names is the user's as long as no import wrote it.
            r#"{"commit":"c0ffee"}"#,
            r#"{"metadata":"x"}"#,
            r#"{"user":"ana","import":{"source":"x","record":1}}"#,
            r#"{"import":{"source":"x","record":1,"by":"ana"}}"#,
        ] {
            assert_eq!(Metadata::parse(text.as_bytes()), None, "{text}");
        }
    }
}
