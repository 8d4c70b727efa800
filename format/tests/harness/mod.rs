//! Annotated dumps and systematic damage, for the golden files and the damage tests.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test that is how to fail")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use annals_format::cursor::Reader;
use annals_format::layout::Layout;
use annals_format::{DecodeError, Problem};

/// Builds an annotated dump: one line a field, in the form of `Layout::annotate`.
pub(crate) struct Dump<'a> {
    /// What is still to be dumped.
    pub(crate) reader: Reader<'a>,
    text: String,
}

impl<'a> Dump<'a> {
    pub(crate) fn new(title: &str, bytes: &'a [u8]) -> Self {
        Self { reader: Reader::new("golden", bytes), text: format!("# {title}\n") }
    }

    pub(crate) fn bytes(&mut self, count: usize, name: &str) -> &'a [u8] {
        let at = self.reader.position();
        let bytes = self.reader.bytes("piece", count).unwrap();
        let mut hex = String::new();
        for byte in bytes {
            write!(hex, "{byte:02x}").unwrap();
        }
        writeln!(self.text, "{at:04x} +{count:<3} {hex:<32}  {name}").unwrap();
        bytes
    }

    pub(crate) fn layout(&mut self, layout: &Layout) {
        let bytes = self.reader.bytes("structure", layout.bytes()).unwrap();
        self.text += &layout.annotate(bytes);
    }

    pub(crate) fn varint(&mut self, name: &str) -> u64 {
        let mut ahead = self.reader.clone();
        let value = ahead.varint("varint").unwrap();
        self.bytes(ahead.position() - self.reader.position(), name);
        value
    }

    pub(crate) fn prefixed(&mut self, name: &str) {
        let length = self.varint(&format!("{name} length"));
        self.bytes(usize::try_from(length).unwrap(), name);
    }

    pub(crate) fn comment(&mut self, text: &str) {
        writeln!(self.text, "# {text}").unwrap();
    }

    pub(crate) fn finish(self) -> String {
        self.reader.finish().unwrap();
        self.text
    }
}

/// Compares a dump with its golden file and answers the bytes the file holds.
pub(crate) fn golden(name: &str, dump: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, dump).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text, dump, "{name}");
    let mut bytes = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let offset = usize::from_str_radix(words.next().unwrap(), 16).unwrap();
        let count: usize = words.next().unwrap().strip_prefix('+').unwrap().parse().unwrap();
        assert_eq!(offset, bytes.len(), "{line}");
        let hex = if count == 0 { "" } else { words.next().unwrap() };
        assert_eq!(hex.len(), count * 2, "{line}");
        bytes.extend((0..count).map(|at| u8::from_str_radix(&hex[at * 2..][..2], 16).unwrap()));
    }
    bytes
}

/// Flips every bit and cuts every length, and checks which error comes of it.
pub(crate) fn damage_everywhere(
    bytes: &[u8],
    magic: bool,
    decode: &dyn Fn(&[u8]) -> Result<(), DecodeError>,
    is_expected: &dyn Fn(usize, &DecodeError) -> bool,
) {
    decode(bytes).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let error = decode(&damaged).expect_err("damaged");
        let in_magic = magic && bit < 32;
        let expected = match error.problem {
            Problem::Magic { .. } => in_magic,
            Problem::Checksum { .. } => !in_magic,
            _ => is_expected(bit / 8, &error),
        };
        assert!(expected, "bit {bit}: {error}");
        assert!(error.offset <= bytes.len() as u64, "bit {bit}: {error}");
    }
    for cut in 0..bytes.len() {
        let error = decode(&bytes[..cut]).expect_err("cut");
        let expected = match error.problem {
            Problem::Truncated { needed, have } => needed > have,
            _ => is_expected(cut, &error),
        };
        assert!(expected, "cut at {cut}: {error}");
    }
}

/// No other error than the usual ones.
pub(crate) const NEVER: &dyn Fn(usize, &DecodeError) -> bool = &|_, _| false;
