//! The knobs that can be set by name: their names and ranges, and the text they are set from.

use annals_format::limits;

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

/// Every knob that can be set by name.
pub const KNOBS: &[Knob] = &[
    word("durability", "sync or buffered: when a commit is acknowledged (default sync)"),
    word("create", "true or false: make a new store where there is none (default true)"),
    word("read_mode", "mmap or pread: how sealed files are read (default mmap)"),
    word(
        "history_codec",
        "zstd-blocks, raw, fast or small: how superseded versions are stored (default fast)",
    ),
    word("background", "true or false: have background threads (default true)"),
    word("lease_expiry", "true or false: leases end when their time is over (default true)"),
    number("memtable_bytes", "size of one memtable generation", 16 * KIB, 4 * GIB, 32 * MIB),
    number("wal_bytes", "size a WAL file grows to", limits::WAL_BYTES_MIN, 4 * GIB, 64 * MIB),
    number("segment_bytes", "size at which a segment file is cut", 4 * KIB, 4 * GIB, 32 * MIB),
    number("block_bytes", "size of a block of newest versions", 512, 256 * KIB, 8 * KIB),
    number(
        "history_block_bytes",
        "size of a block of history before compression",
        512,
        256 * KIB,
        16 * KIB,
    ),
    number("history_level", "zstd level of history and events", 1, 19, 1),
    number("event_value_bytes", "longest value that events repeat", 0, MIB, KIB),
    number(
        "blob_value_bytes",
        "length from which on newest values are put in blob files",
        64,
        4 * GIB,
        64 * KIB,
    ),
    number("l0_files_max", "L0 files from which on they are folded or merged", 1, 64, 4),
    number(
        "history_windows_max",
        "history windows of a class beyond which some are merged",
        2,
        1024,
        12,
    ),
    number(
        "background_bytes_per_sync",
        "what folds, merges and trims may write for each sync of the log",
        4 * KIB,
        4 * GIB,
        256 * KIB,
    ),
    number(
        "retention_interval_seconds",
        "how often rules of retention are applied, 0 for never",
        0,
        365 * 86_400,
        60,
    ),
    number(
        "lease_checkpoint_interval_seconds",
        "how much longer a lease may live because of a crash, 0 for any time",
        0,
        86_400,
        60,
    ),
    number(
        "live_interval_seconds",
        "how often figures are written to live.json for `annals top`, 0 for never",
        0,
        86_400,
        0,
    ),
    number("cache_bytes", "memory for decoded blocks", 0, 1 << 40, 64 * MIB),
    // What is written must be readable: these end where the format does.
    number("key_bytes_max", "longest key", 1, limits::KEY_BYTES_MAX, limits::KEY_BYTES_DEFAULT),
    number(
        "value_bytes_max",
        "longest value",
        0,
        limits::VALUE_BYTES_MAX,
        limits::VALUE_BYTES_DEFAULT,
    ),
    number(
        "transaction_bytes_max",
        "largest encoded transaction",
        4 * KIB,
        limits::TRANSACTION_BYTES_MAX,
        limits::TRANSACTION_BYTES_DEFAULT,
    ),
    number(
        "transaction_operations_max",
        "most operations in a transaction",
        1,
        limits::TRANSACTION_OPERATIONS_MAX,
        limits::TRANSACTION_OPERATIONS_DEFAULT,
    ),
    number(
        "metadata_bytes_max",
        "longest metadata of a transaction",
        0,
        limits::METADATA_BYTES_MAX,
        limits::METADATA_BYTES_MAX,
    ),
];

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
