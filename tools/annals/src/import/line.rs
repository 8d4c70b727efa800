//! One line of a history file: one JSON object, one transaction, one revision.
//!
//! ```json
//! {"commit": "sha", "time": 1462840837, "puts": {"/a": "text", "/b": {"b64": "//4="}}, "deletes": ["/c"]}
//! ```
//!
//! - `time` is in unix seconds, whole or with a fraction of up to six digits.
//! - `commit` may be `null` or absent; `puts` and `deletes` may be absent, but not both empty.
//! - A key is named at most once in a line.
//! - Some members only `annals export` writes, where it must: `puts_b64`, a list of
//!   `[key, value]` pairs for keys that are not UTF-8 (a JSON member name cannot be); `author`,
//!   `author_time` and `subject` of a git commit; and `metadata`, the opaque metadata of a
//!   transaction that no import wrote.
//!
//! Anything else is malformed and refused: a misspelt member must not silently lose data.

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::bytes::Given;

/// A parsed line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    #[serde(default)]
    pub(crate) commit: Option<String>,
    pub(crate) time: Micros,
    #[serde(default)]
    puts: Puts,
    #[serde(default)]
    puts_b64: Vec<(Given, Given)>,
    #[serde(default)]
    deletes: Vec<Given>,
    #[serde(default)]
    pub(crate) author: Option<String>,
    #[serde(default)]
    pub(crate) author_time: Option<i64>,
    #[serde(default)]
    pub(crate) subject: Option<String>,
    #[serde(default)]
    pub(crate) metadata: Option<serde_json::Value>,
}

impl Line {
    /// Parses and checks one line (without its newline, which would not matter).
    ///
    /// # Errors
    /// What is wrong with it, in words; the caller knows the line number.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let mut line: Self = serde_json::from_slice(text).map_err(|e| describe(&e))?;
        line.puts.0.append(&mut line.puts_b64);
        if line.puts.0.is_empty() && line.deletes.is_empty() {
            return Err("no effect: it neither puts nor deletes anything".into());
        }
        let mut seen = HashSet::with_capacity(line.puts.0.len() + line.deletes.len());
        for key in line.puts.0.iter().map(|(key, _)| key).chain(&line.deletes) {
            if key.0.is_empty() {
                return Err("malformed: an empty key".into());
            }
            if !seen.insert(&key.0) {
                let key = crate::bytes::show(&key.0, 80);
                return Err(format!("malformed: the key {key} is named twice"));
            }
        }
        Ok(line)
    }

    /// The operations: puts, then deletes.
    pub(crate) fn into_operations(self) -> (Vec<(Bytes, Bytes)>, Vec<Bytes>) {
        (
            self.puts.0.into_iter().map(|(key, value)| (key.0, value.0)).collect(),
            self.deletes.into_iter().map(|key| key.0).collect(),
        )
    }
}

/// serde's message with the column alone: "line 1" would be taken for the line of the file.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((message, _)) => format!("malformed: {message} at column {}", error.column()),
        None => format!("malformed: {text}"),
    }
}

#[derive(Debug, Default)]
struct Puts(Vec<(Given, Given)>);

impl<'de> Deserialize<'de> for Puts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PutsVisitor;

        impl<'de> Visitor<'de> for PutsVisitor {
            type Value = Puts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of keys and values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Puts, A::Error> {
                let mut puts = Vec::new();
                while let Some(put) = map.next_entry()? {
                    puts.push(put);
                }
                Ok(Puts(puts))
            }
        }

        deserializer.deserialize_map(PutsVisitor)
    }
}

/// A time in microseconds since the Unix epoch, written as seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Micros(pub(crate) i64);

impl<'de> Deserialize<'de> for Micros {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MicrosVisitor;

        impl Visitor<'_> for MicrosVisitor {
            type Value = Micros;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time in unix seconds")
            }

            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Micros, E> {
                let micros = seconds.checked_mul(1_000_000);
                micros.map(Micros).ok_or_else(|| E::custom("the time is out of range"))
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Micros, E> {
                let seconds = i64::try_from(seconds);
                self.visit_i64(seconds.map_err(|_| E::custom("the time is out of range"))?)
            }

            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Micros, E> {
                let micros = (seconds * 1e6).round();
                // Up to 2^53 microseconds (the year 2255) every one is exact.
                if micros.abs() >= 9_007_199_254_740_992.0 {
                    return Err(E::custom("the time is out of range"));
                }
                #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
                Ok(Micros(micros as i64))
            }
        }

        deserializer.deserialize_any(MicrosVisitor)
    }
}

/// Writes a time in seconds as [`Line`] reads it: whole seconds as an integer.
pub(crate) fn seconds(micros: i64) -> serde_json::Value {
    if micros % 1_000_000 == 0 {
        return (micros / 1_000_000).into();
    }
    #[expect(clippy::cast_precision_loss, reason = "exact until the year 2255")]
    let seconds = micros as f64 / 1e6;
    seconds.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_line() {
        let line = Line::parse(
            br#"{"commit":"c","time":12,"puts":{"/a":"x\ny","/b":{"b64":"//4="}},"deletes":["/c",{"b64":"/w=="}]}"#,
        )
        .unwrap();
        assert_eq!(line.commit.as_deref(), Some("c"));
        assert_eq!(line.time, Micros(12_000_000));
        let (puts, deletes) = line.into_operations();
        assert_eq!(puts[0], ("/a".into(), "x\ny".into()));
        assert_eq!(puts[1].1, &[0xff, 0xfe][..]);
        assert_eq!(deletes, [&b"/c"[..], &[0xff]]);
    }

    #[test]
    fn times_round_trip() {
        for micros in [0, -1, 1, 1_700_000_000_123_456, -1_700_000_000_654_321, 5_000_000] {
            let text = format!("{{\"time\":{},\"deletes\":[\"k\"]}}", seconds(micros));
            assert_eq!(Line::parse(text.as_bytes()).unwrap().time, Micros(micros), "{text}");
        }
    }

    #[test]
    fn refusals() {
        for (text, why) in [
            ("", "EOF"),
            ("{", "EOF"),
            ("[]", "malformed"),
            (r#"{"puts":{"a":"1"}}"#, "missing field `time`"),
            (r#"{"time":"x","puts":{"a":"1"}}"#, "unix seconds"),
            (r#"{"time":1e300,"puts":{"a":"1"}}"#, "out of range"),
            (r#"{"time":9223372036854775807,"puts":{"a":"1"}}"#, "out of range"),
            (r#"{"time":1,"puts":{},"deletes":[]}"#, "no effect"),
            (r#"{"time":1}"#, "no effect"),
            (r#"{"time":1,"puts":{"a":1}}"#, "b64"),
            (r#"{"time":1,"put":{"a":"1"}}"#, "unknown field"),
            (r#"{"time":1,"puts":{"":"1"}}"#, "empty key"),
            (r#"{"time":1,"puts":{"a":"1","a":"2"}}"#, "named twice"),
            (r#"{"time":1,"puts":{"a":"1"},"deletes":["a"]}"#, "named twice"),
            (r#"{"time":1,"deletes":["a","a"]}"#, "named twice"),
            (r#"{"time":1,"puts":{"a":"1"}} x"#, "trailing"),
            (r#"{"time":1,"time":2,"puts":{"a":"1"}}"#, "duplicate field"),
        ] {
            let error = Line::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
            assert!(!error.contains("line 1"), "{error}");
        }
    }

    #[test]
    fn keys_that_are_not_utf8() {
        let line = Line::parse(br#"{"time":1,"puts_b64":[[{"b64":"/w=="},"v"]]}"#).unwrap();
        assert_eq!(line.into_operations().0, [(vec![0xff].into(), "v".into())]);
    }
}
