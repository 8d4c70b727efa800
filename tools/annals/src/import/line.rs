//! One line of a history file: one JSON object, one transaction, one revision.
//!
//! ```json
//! {"commit": "sha", "time": 1462840837, "puts": {"/a": "text", "/b": {"b64": "//4="}}, "deletes": ["/c"]}
//! ```
//!
//! - `time` is in unix seconds, whole or with a fraction of up to six digits, or a text as in RFC 3339.
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
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use jiff::Timestamp;
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A parsed line. All its keys and values lie in one piece of memory: a history has millions of
/// small ones, and they come and go together.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) commit: Option<String>,
    pub(crate) time: Micros,
    pub(crate) author: Option<String>,
    pub(crate) author_time: Option<i64>,
    pub(crate) subject: Option<String>,
    pub(crate) metadata: Option<Value>,
    bytes: Bytes,
    puts: Vec<(Range<usize>, Range<usize>)>,
    deletes: Vec<Range<usize>>,
}

impl Line {
    /// Parses and checks one line (without its newline, which would not matter).
    ///
    /// # Errors
    /// What is wrong with it, in words; the caller knows the line number.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        if text.starts_with(b"\xef\xbb\xbf") {
            return Err("malformed: it begins with a byte order mark".into());
        }
        let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
        if first.is_some_and(|byte| *byte != b'{') {
            let found = crate::bytes::show(text, 40);
            return Err(format!("malformed: expected a JSON object, {{...}}, found {found}"));
        }
        // Text takes no more than its JSON spelling does, nor do bytes as base64.
        let mut bytes = Vec::with_capacity(text.len());
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let parsed = LineSeed(&mut bytes).deserialize(&mut deserializer);
        let parsed = parsed.and_then(|line| deserializer.end().map(|()| line));
        let mut line = parsed.map_err(|e| describe(&e))?;
        line.bytes = Bytes::from(bytes);
        if line.puts.is_empty() && line.deletes.is_empty() {
            return Err("no effect: it neither puts nor deletes anything".into());
        }
        line.check_keys()?;
        Ok(line)
    }

    fn check_keys(&self) -> Result<(), String> {
        let mut seen = HashSet::with_capacity(self.puts.len() + self.deletes.len());
        for key in self.puts.iter().map(|(key, _)| key).chain(&self.deletes) {
            let key = self.bytes.get(key.clone()).unwrap_or_default();
            if key.is_empty() {
                return Err("malformed: an empty key".into());
            }
            if !seen.insert(key) {
                let key = crate::bytes::show(key, 80);
                return Err(format!("malformed: the key {key} is named twice"));
            }
        }
        Ok(())
    }

    /// The operations: puts, then deletes.
    pub(crate) fn into_operations(self) -> (Vec<(Bytes, Bytes)>, Vec<Bytes>) {
        let slice = |range: Range<usize>| self.bytes.slice(range);
        let puts = self.puts.into_iter().map(|(key, value)| (slice(key), slice(value))).collect();
        (puts, self.deletes.into_iter().map(slice).collect())
    }
}

/// Reads a line; keys and values go to the vector.
struct LineSeed<'a>(&'a mut Vec<u8>);

const MEMBERS: [&str; 9] = [
    "commit",
    "time",
    "puts",
    "puts_b64",
    "deletes",
    "author",
    "author_time",
    "subject",
    "metadata",
];

impl<'de> DeserializeSeed<'de> for LineSeed<'_> {
    type Value = Line;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Line, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for LineSeed<'_> {
    type Value = Line;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Line, A::Error> {
        let mut line = Line {
            commit: None,
            time: Micros(0),
            author: None,
            author_time: None,
            subject: None,
            metadata: None,
            bytes: Bytes::new(),
            puts: Vec::new(),
            deletes: Vec::new(),
        };
        let mut seen = [false; MEMBERS.len()];
        while let Some(name) = map.next_key::<String>()? {
            let Some(at) = MEMBERS.iter().position(|member| *member == name) else {
                return Err(de::Error::unknown_field(&name, &MEMBERS));
            };
            if std::mem::replace(&mut seen[at], true) {
                return Err(de::Error::custom(format!("duplicate field `{name}`")));
            }
            match MEMBERS[at] {
                "commit" => line.commit = map.next_value()?,
                "time" => line.time = map.next_value()?,
                "puts" => map.next_value_seed(PutsSeed(self.0, &mut line.puts))?,
                "puts_b64" => map.next_value_seed(PairsSeed(self.0, &mut line.puts))?,
                "deletes" => map.next_value_seed(KeysSeed(self.0, &mut line.deletes))?,
                "author" => line.author = map.next_value()?,
                "author_time" => line.author_time = map.next_value()?,
                "subject" => line.subject = map.next_value()?,
                _ => line.metadata = Some(map.next_value()?),
            }
        }
        if seen[1] { Ok(line) } else { Err(de::Error::missing_field("time")) }
    }
}

/// Reads bytes in either spelling; they go to the vector, their place in it is the value.
struct BytesSeed<'a>(&'a mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for BytesSeed<'_> {
    type Value = Range<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Range<usize>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BytesSeed<'_> {
    type Value = Range<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or {\"b64\": \"...\"}")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Range<usize>, E> {
        let start = self.0.len();
        self.0.extend_from_slice(text.as_bytes());
        Ok(start..self.0.len())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Range<usize>, A::Error> {
        let text = crate::bytes::base64_member(&mut map)?;
        let start = self.0.len();
        BASE64.decode_vec(text, self.0).map_err(de::Error::custom)?;
        Ok(start..self.0.len())
    }
}

type Put = (Range<usize>, Range<usize>);

/// Reads an object of keys and values.
struct PutsSeed<'a>(&'a mut Vec<u8>, &'a mut Vec<Put>);

impl<'de> DeserializeSeed<'de> for PutsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for PutsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of keys and values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(BytesSeed(self.0))? {
            let value = map.next_value_seed(BytesSeed(self.0))?;
            self.1.push((key, value));
        }
        Ok(())
    }
}

/// Reads a list of pairs of key and value.
struct PairsSeed<'a>(&'a mut Vec<u8>, &'a mut Vec<Put>);

impl<'de> DeserializeSeed<'de> for PairsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for PairsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of pairs of key and value")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut pair = Vec::new();
        while list.next_element_seed(KeysSeed(self.0, &mut pair))?.is_some() {
            let (Some(value), Some(key), None) = (pair.pop(), pair.pop(), pair.pop()) else {
                return Err(de::Error::custom("expected pairs of key and value"));
            };
            self.1.push((key, value));
        }
        Ok(())
    }
}

/// Reads a list of keys.
struct KeysSeed<'a>(&'a mut Vec<u8>, &'a mut Vec<Range<usize>>);

impl<'de> DeserializeSeed<'de> for KeysSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for KeysSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of keys")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(key) = list.next_element_seed(BytesSeed(self.0))? {
            self.1.push(key);
        }
        Ok(())
    }
}

/// serde's message with the column alone: "line 1" would be taken for the line of the file.
fn describe(error: &serde_json::Error) -> String {
    let text = crate::bytes::json_error(error);
    match text.rsplit_once(" at line ") {
        Some((message, _)) => format!("malformed: {message} at column {}", error.column()),
        None => format!("malformed: {text}"),
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
                f.write_str("a time in unix seconds, or a text as 2023-11-14T22:13:20Z")
            }

            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Micros, E> {
                let micros = seconds.checked_mul(1_000_000);
                micros.map(Micros).ok_or_else(|| E::custom("the time is out of range"))
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Micros, E> {
                let seconds = i64::try_from(seconds);
                self.visit_i64(seconds.map_err(|_| E::custom("the time is out of range"))?)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Micros, E> {
                let time = text.parse::<Timestamp>().ok().filter(|_| !text.contains('['));
                time.map(|time| Micros(time.as_microsecond()))
                    .ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
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
pub(crate) fn seconds(micros: i64) -> Value {
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
    fn times_as_texts() {
        for (text, micros) in [
            ("1970-01-01T00:00:12Z", 12_000_000),
            ("2023-11-14T23:13:20.000001+01:00", 1_700_000_000_000_001),
            ("1969-12-31T23:59:59.5Z", -500_000),
        ] {
            let line = format!("{{\"time\":\"{text}\",\"deletes\":[\"k\"]}}");
            assert_eq!(Line::parse(line.as_bytes()).unwrap().time, Micros(micros), "{text}");
        }
        for text in [
            "",
            "yesterday",
            "12",
            "2023-11-14",
            "2023-11-14T23:13:20",
            "2023-11-14T23:13:20+01:00[Europe/Rome]",
        ] {
            let line = format!("{{\"time\":\"{text}\",\"deletes\":[\"k\"]}}");
            let error = Line::parse(line.as_bytes()).unwrap_err();
            assert!(error.contains("2023-11-14T22:13:20Z"), "{text}: {error}");
        }
    }

    #[test]
    fn refusals() {
        for (text, why) in [
            ("", "EOF"),
            ("{", "EOF"),
            ("[]", "malformed: expected a JSON object, {...}, found []"),
            ("not JSON", "found not JSON"),
            (r#"{"time":nothing}"#, "expected null, true or false at column"),
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
