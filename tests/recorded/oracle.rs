//! What git answers about the recorded history of Kubernetes objects: states, single values, lists. Record n is
//! revision n + 1.

use std::path::PathBuf;

use annals::{ErrorKind, Store, View};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The answers.
pub(crate) struct Oracle {
    answers: Value,
}

impl Oracle {
    /// Those of a file.
    pub(crate) fn read(path: PathBuf) -> Self {
        let text = std::fs::read(path).expect("the oracle is read");
        Self { answers: serde_json::from_slice(&text).expect("JSON") }
    }

    /// Checks every answer between two records, and that older ones are refused. Returns how many
    /// there were.
    pub(crate) fn check(&self, store: &Store, from: u64, to: u64) -> u64 {
        let mut checked = 0;
        for (kind, check) in [
            ("states", state as fn(&View, &Value)),
            ("probes", probe as fn(&View, &Value)),
            ("lists", list as fn(&View, &Value)),
        ] {
            for answer in self.answers[kind].as_array().expect("a list of answers") {
                let record = answer["seq"].as_u64().expect("a record number");
                if record > to {
                    continue;
                }
                match store.at(record + 1) {
                    Ok(view) => check(&view, answer),
                    Err(error) if record < from => {
                        assert!(matches!(error.kind(), ErrorKind::Compacted { .. }), "{error}");
                        continue;
                    }
                    Err(error) => panic!("record {record}: {error}"),
                }
                assert!(record >= from, "record {record} has been compacted, but was read");
                checked += 1;
            }
        }
        checked
    }
}

/// The whole live state: number of keys, and a digest over keys and values.
fn state(view: &View, expected: &Value) {
    let mut digest = Sha256::new();
    let mut keys = 0;
    for kv in view.range(..) {
        let kv = kv.expect("a key-value");
        keys += 1;
        for part in [&kv.key, &kv.value] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
    }
    assert_eq!((keys, hex(digest)), (number(expected, "keys"), text(expected, "sha256")));
}

/// One key: its value and its numbers, or that it is not alive.
fn probe(view: &View, expected: &Value) {
    let found = view.get(text(expected, "key")).expect("a read");
    let Some(kv) = found else {
        assert!(expected["value_sha256"].is_null(), "{expected}");
        return;
    };
    assert_eq!(hex(Sha256::new_with_prefix(&kv.value)), text(expected, "value_sha256"));
    let numbers = (kv.create_revision - 1, kv.mod_revision - 1, kv.version);
    let told = ["create_seq", "mod_seq", "version"].map(|field| number(expected, field));
    assert_eq!(numbers, told.into(), "{expected}");
    let history = view.history(&kv.key).next().expect("it has a history").expect("a version");
    assert_eq!(history.into_key_value(), Some(kv));
}

/// The keys under a prefix.
fn list(view: &View, expected: &Value) {
    let prefix = text(expected, "prefix");
    let mut digest = Sha256::new();
    let mut keys = 0;
    for kv in view.prefix(&prefix).keys_only() {
        let kv = kv.expect("a key");
        keys += 1;
        digest.update((kv.key.len() as u64).to_le_bytes());
        digest.update(&kv.key);
    }
    assert_eq!((keys, hex(digest)), (number(expected, "count"), text(expected, "sha256")));
    let backwards = view.prefix(&prefix).keys_only().rev().count() as u64;
    assert_eq!(backwards, keys);
}

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("{field} in {value}"))
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("{field} in {value}")).to_owned()
}

fn hex(digest: Sha256) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for byte in digest.finalize() {
        write!(text, "{byte:02x}").expect("a string takes it");
    }
    text
}
