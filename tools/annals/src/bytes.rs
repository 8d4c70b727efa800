//! How bytes are spelled for people and in JSON.
//!
//! Keys and values are bytes. In JSON they are a string where they are UTF-8, else
//! `{"b64": "..."}` (standard base64 with padding), in every command, in both directions. In
//! tables they are escaped and, where spaces would look like the end of a cell, put in quotes, so that
//! a value can never move the cursor or fake a column, and cut to a width. Nothing here loses a byte on the way in.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Bytes on their way out: a JSON string where they are UTF-8, else `{"b64": "..."}`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spelled<'a>(pub(crate) &'a [u8]);

impl Serialize for Spelled<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Ok(text) = std::str::from_utf8(self.0) {
            return serializer.serialize_str(text);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("b64", &BASE64.encode(self.0))?;
        map.end()
    }
}

/// The JSON value of [`Spelled`].
pub(crate) fn json(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::String(text.to_owned()),
        Err(_) => serde_json::json!({ "b64": BASE64.encode(bytes) }),
    }
}

/// Bytes on their way in: the same two spellings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given(pub(crate) Bytes);

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(GivenVisitor)
    }
}

struct GivenVisitor;

impl<'de> Visitor<'de> for GivenVisitor {
    type Value = Given;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or {\"b64\": \"...\"}")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Given, E> {
        Ok(Given(Bytes::copy_from_slice(text.as_bytes())))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Given, E> {
        Ok(Given(Bytes::from(text.into_bytes())))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Given, A::Error> {
        let text = base64_member(&mut map)?;
        let bytes = BASE64.decode(text.as_bytes()).map_err(de::Error::custom)?;
        Ok(Given(Bytes::from(bytes)))
    }
}

/// The text of `{"b64": "..."}`, which must be all there is.
pub(crate) fn base64_member<'de, A: MapAccess<'de>>(map: &mut A) -> Result<String, A::Error> {
    let Some((name, text)) = map.next_entry::<String, String>()? else {
        return Err(de::Error::missing_field("b64"));
    };
    if name != "b64" {
        return Err(de::Error::unknown_field(&name, &["b64"]));
    }
    if map.next_key::<String>()?.is_some() {
        return Err(de::Error::custom("\"b64\" must be the only member"));
    }
    Ok(text)
}

/// The bytes of a command-line argument, as the user's shell passed them.
pub(crate) fn of_arg(argument: &OsStr) -> Bytes {
    Bytes::copy_from_slice(argument.as_encoded_bytes())
}

/// Bytes for a table cell: printable UTF-8 as it is, everything else escaped, at most `max`
/// characters followed by `...` where something was cut. In quotes where it has spaces that look like the
/// end of a cell.
pub(crate) fn show(bytes: &[u8], max: usize) -> String {
    show_beside(bytes, max, "  ")
}

/// As [`show`], where something else than two spaces also tells it from what stands beside it.
pub(crate) fn show_beside(bytes: &[u8], max: usize, mark: &str) -> String {
    let (out, cut) = escape(bytes, max);
    let quoted =
        out.starts_with(' ') || out.ends_with(' ') || out.contains("  ") || out.contains(mark);
    let out = if quoted { format!("\"{}\"", out.replace('"', "\\\"")) } else { out };
    out + cut
}

/// As [`show`], for what has the rest of a line to itself.
pub(crate) fn show_line(bytes: &[u8], max: usize) -> String {
    let (out, cut) = escape(bytes, max);
    out + cut
}

/// The first characters with all escaped that is not printable, and what to write for the rest.
fn escape(bytes: &[u8], max: usize) -> (String, &'static str) {
    let mut out = String::new();
    let mut count = 0;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if count >= max {
                return (out, "...");
            }
            count += 1;
            match c {
                '\\' => out.push_str("\\\\"),
                c if is_printable(c) => out.push(c),
                c => out.extend(c.escape_default()),
            }
        }
        for byte in chunk.invalid() {
            if count >= max {
                return (out, "...");
            }
            count += 1;
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    (out, "")
}

/// Whether a character can be seen, or is the space: none that moves the cursor, turns the direction or has no
/// width, and no other space.
fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        // Letters and symbols that are blank all the same.
        '\u{115f}' | '\u{1160}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}' => false,
        // The standard library knows the categories, and escapes by them what is for programmers to read. What
        // stands before it keeps an accent, which joins what it follows, from being escaped.
        c => {
            let mut text = [b'a'; 5];
            let end = 1 + c.encode_utf8(&mut text[1..]).len();
            std::str::from_utf8(&text[..end]).is_ok_and(|text| text.escape_debug().count() == 2)
        }
    }
}

/// A number of bytes for people: exact below 10 KiB, else three digits and a binary unit.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 10 * 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// What is wrong with a JSON text, in words that are not the parser's own.
pub(crate) fn json_error(error: &serde_json::Error) -> String {
    error.to_string().replace("expected ident", "expected null, true or false")
}

/// A number of things: `1 file`, `2 files`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_a_string_for_utf8_and_base64_for_the_rest() {
        assert_eq!(json(b"a\nb"), serde_json::json!("a\nb"));
        assert_eq!(json(&[0xff, 0xfe]), serde_json::json!({"b64": "//4="}));
        for bytes in [&b""[..], b"x", "\u{0}\u{7f}\u{20ac}".as_bytes(), &[0xff], &[0, 0x80]] {
            let text = serde_json::to_string(&Spelled(bytes)).unwrap();
            assert_eq!(serde_json::from_str::<Given>(&text).unwrap().0, bytes);
            assert_eq!(serde_json::to_string(&json(bytes)).unwrap(), text);
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in
            ["1", "null", "[1]", "{}", r#"{"b65":""}"#, r#"{"b64":"","x":1}"#, r#"{"b64":"?"}"#]
        {
            assert!(serde_json::from_str::<Given>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn cells_are_escaped_and_cut() {
        assert_eq!(show(b"a\x1b[2Jb\n", 99), "a\\u{1b}[2Jb\\n");
        assert_eq!(show(&[b'a', 0xff], 99), "a\\xff");
        assert_eq!(show(b"abcdef", 3), "abc...");
        assert_eq!(show(b"abc", 3), "abc");
    }

    #[test]
    fn a_cell_turns_hides_and_moves_nothing() {
        for c in [
            '\u{0}',
            '\u{7f}',
            '\u{9b}',
            '\u{a0}',
            '\u{ad}',
            '\u{61c}',
            '\u{115f}',
            '\u{180e}',
            '\u{200b}',
            '\u{200d}',
            '\u{200f}',
            '\u{2003}',
            '\u{2028}',
            '\u{2029}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{2800}',
            '\u{3000}',
            '\u{3164}',
            '\u{feff}',
            '\u{fff9}',
            '\u{e0041}',
            '\u{10fffd}',
        ] {
            let escaped = format!("b\\u{{{:x}}}c", u32::from(c));
            assert_eq!(show(format!("b{c}c").as_bytes(), 99), escaped);
            assert_eq!(show_line(format!("b{c}c").as_bytes(), 99), escaped);
        }
        // With accents of their own, without words of Latin, and beyond the first plane.
        for text in
            ["caf\u{e9}", "cafe\u{301}", "\u{5e9}\u{5dc}", "\u{65e5}\u{672c}", "\u{1f980}", "'~\""]
        {
            assert_eq!(show(text.as_bytes(), 99), text);
        }
    }

    #[test]
    fn a_cell_does_not_look_like_two() {
        for (bytes, shown) in [
            ("a  9  9  fake", r#""a  9  9  fake""#),
            (" a", r#"" a""#),
            ("a ", r#""a ""#),
            ("\"a\"  \\ 9", r#""\"a\"  \\ 9""#),
            ("a b", "a b"),
            ("\"a b\"", "\"a b\""),
            ("", ""),
        ] {
            assert_eq!(show(bytes.as_bytes(), 99), shown);
        }
        assert_eq!(show(b"a  bc", 4), "\"a  b\"...");
        assert_eq!(show(b"abc  d", 3), "abc...");
        assert_eq!(show_beside(b"1, was 2", 99, ", was "), "\"1, was 2\"");
        assert_eq!(show_beside(b"1  2", 99, ", was "), "\"1  2\"");
        assert_eq!(show_line(b"  a  b", 99), "  a  b");
    }

    #[test]
    fn human_sizes() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(10 * 1024), "10.0 KiB");
        assert_eq!(human(8_408_680), "8.02 MiB");
        assert_eq!(human(2_657_421_378), "2.47 GiB");
        assert_eq!(human(u64::MAX), "16384 PiB");
    }
}
