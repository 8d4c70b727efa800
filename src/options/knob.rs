//! One knob: its name and range, and the text it is set from.

use crate::error::{Error, ErrorKind};

use super::{GIB, KIB, MIB};

/// One knob that can be set by name.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Knob {
    /// Name, as in `-O NAME=VALUE` and as the setter of [`Options`](crate::Options).
    pub name: &'static str,
    /// What it does, its unit, range and default, in one line.
    pub what: &'static str,
    /// Range and default of a number; `None` for a word.
    pub range: Option<KnobRange>,
}

/// Range and default of a knob that is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnobRange {
    /// Smallest value.
    pub min: u64,
    /// Largest value.
    pub max: u64,
    /// Value unless set.
    pub default: u64,
}

pub(super) const fn number(
    name: &'static str,
    what: &'static str,
    min: u64,
    max: u64,
    default: u64,
) -> Knob {
    assert!(min <= default && default <= max);
    Knob { name, what, range: Some(KnobRange { min, max, default }) }
}

pub(super) const fn word(name: &'static str, what: &'static str) -> Knob {
    Knob { name, what, range: None }
}

pub(super) fn invalid(name: &str, value: &str, expected: impl Into<String>) -> Error {
    let (name, value) = (name.to_owned(), value.to_owned());
    ErrorKind::InvalidOption { name, value, expected: expected.into() }.into()
}

pub(super) fn range_text(range: KnobRange) -> String {
    format!("a number from {} to {}", range.min, range.max)
}

/// Parses a decimal number with an optional suffix that is a power of 1024.
pub(super) fn parse_number(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..)? {
        "" | "B" => 1,
        "K" | "k" | "KiB" => KIB,
        "M" | "m" | "MiB" => MIB,
        "G" | "g" | "GiB" => GIB,
        _ => return None,
    };
    // `parse` alone would take a sign.
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(unit)
}
