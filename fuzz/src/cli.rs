//! What the `annals` tool reads from files and standard input: lines of a history, and transactions.
//!
//! The modules are the tool's own, which is a program and not a library.

use std::time::Duration;

use annals::vfs::MemoryVfs;
use annals::{CommitOptions, Effect, Store};

use crate::import_line::Line;
use crate::input::Input;
use crate::{dir, txn_json, txn_text};

/// One line of a history.
pub(crate) fn import_line(data: &[u8]) -> bool {
    let Ok(line) = Line::parse(data) else { return false };
    let again = Line::parse(data).expect("as before");
    assert_eq!(format!("{line:?}"), format!("{again:?}"));
    let (puts, deletes) = line.into_operations();
    assert!(!puts.is_empty() || !deletes.is_empty());
    let keys = puts.iter().map(|(key, _)| key).chain(&deletes);
    assert!(keys.into_iter().all(|key| !key.is_empty()));
    let bytes: usize = puts.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert!(bytes <= data.len(), "text takes no more than its JSON");
    true
}

/// A transaction, as text or as JSON by the first byte. A store takes it, or refuses it and changes nothing.
pub(crate) fn txn(data: &[u8]) -> bool {
    let mut input = Input(data);
    let parsed = if input.byte() & 1 == 0 {
        let Ok(text) = std::str::from_utf8(input.0) else { return false };
        txn_text::parse(text)
    } else {
        txn_json::parse(input.0)
    };
    let request = match parsed {
        Ok(request) => request,
        Err(why) => {
            assert!(!why.is_empty());
            return false;
        }
    };
    for compare in &request.compare {
        assert!(txn_json::compare(compare).is_object());
    }
    let disk = MemoryVfs::new();
    let store = Store::open_with(dir::DIR, &dir::options(&disk)).expect("a new store");
    store.lease_grant(7, Duration::from_secs(60)).expect("a lease");
    for key in ["k", "key1", "/pods/a"] {
        store.put(key, "1").expect("a put");
    }
    let before = store.revision();
    match store.transact_with(request, CommitOptions::default()) {
        Ok(answer) => {
            assert!(answer.revision == before || answer.revision == before + 1);
            assert_eq!(store.revision(), answer.revision);
            true
        }
        Err(error) => {
            assert_eq!((error.effect(), store.revision()), (Effect::None, before), "{error}");
            false
        }
    }
}

/// Lines that are accepted.
pub(crate) fn lines() -> Vec<(&'static str, &'static str)> {
    vec![
        (
            "line",
            r#"{"commit":"sha","time":1462840837,"puts":{"/a":"text","/b":{"b64":"//4="}},"deletes":["/c"]}"#,
        ),
        ("fraction", r#"{"time":-1.000001,"deletes":["a\u0000b",{"b64":"//4="}]}"#),
        (
            "exported",
            r#"{"commit":null,"time":2,"puts_b64":[["//4=","AA=="]],"author":"a","author_time":1,"subject":"s","metadata":{"b64":"AA=="}}"#,
        ),
    ]
}

/// Transactions that are accepted, by name and form.
pub(crate) fn transactions() -> Vec<(&'static str, u8, &'static str)> {
    let json = r#"{"compare":[{"key":"k","result":"LESS","target":"VALUE","value":"2"}],
        "success":[{"put":{"key":"/b/1","value":"v","lease":7,"prev_kv":true}},
        {"range":{"key":"/a","range_end":"/z","limit":1,"sort_order":"DESCEND","sort_target":"MOD"}},
        {"txn":{"compare":[],"success":[{"delete_range":{"key":"key1","prev_kv":true}}],"failure":[]}}]}"#;
    vec![
        (
            "text",
            0,
            "mod(\"key1\") > \"0\"\n\nput key1 \"overwrote key1\"\nget k --prefix\n\nput key1 \"created key1\"\n",
        ),
        (
            "options",
            0,
            "value(\"k\") = \"1\"\nlease(\"k\") != \"7\"\n\ndel key1 --prefix\nput a b --lease=7\n",
        ),
        ("json", 1, json),
    ]
}
