//! The recorded data the tests replay: where it is, and how it spells bytes.
//!
//! The folder is named by `ANNALS_TEST_DATA`, else it is `../shared/data` beside the repository. It is
//! not part of the repository: a test that needs it says so and passes when it is absent.

#![allow(dead_code, reason = "each test uses what it needs")]

pub(crate) mod oracle;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

/// A file of the recorded data, or `None` (with a message) when it is not there.
pub(crate) fn path(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("ANNALS_TEST_DATA").map_or_else(
        || {
            let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
            // That of the tool lies deeper.
            let deeper = here.join("../../../shared/data");
            if deeper.exists() { deeper } else { here.join("../shared/data") }
        },
        PathBuf::from,
    );
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is not there (set ANNALS_TEST_DATA)", path.display());
    None
}

/// The JSON objects of a zstd-compressed file, one a line.
pub(crate) fn json_lines(path: PathBuf) -> impl Iterator<Item = Value> {
    let file = File::open(path).expect("the file opens");
    let mut decoder = zstd::Decoder::new(file).expect("a zstd frame");
    decoder.window_log_max(27).expect("the window is allowed");
    BufReader::with_capacity(1 << 20, decoder)
        .lines()
        .map(|line| serde_json::from_str(&line.expect("a line")).expect("a JSON object"))
}

/// Bytes: a string where they are UTF-8, else `{"b64": "..."}`; absent is empty.
pub(crate) fn bytes(value: &Value) -> Bytes {
    match value {
        Value::Null => Bytes::new(),
        Value::String(text) => Bytes::copy_from_slice(text.as_bytes()),
        other => {
            let text = other["b64"].as_str().expect("bytes are a string or b64");
            STANDARD.decode(text).expect("valid base64").into()
        }
    }
}

/// The same, written.
pub(crate) fn to_json(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "b64": STANDARD.encode(bytes) }),
    }
}
