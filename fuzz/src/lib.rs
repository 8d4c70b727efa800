//! Fuzz targets of annals.
//!
//! A target is a plain function from bytes to "did the input get through": it panics where a decoder
//! panics, allocates without bounds, contradicts itself or encodes differently from what it decoded.
//! `cargo test` runs every target over `corpus/TARGET/`; on nightly the same functions are libFuzzer
//! binaries (`./smoke SECONDS`, or `cargo fuzz run TARGET`).
//!
//! The first byte of an input holds flags. [`FIX`] repairs the checksums of the input before it is
//! decoded, for else nothing a fuzzer does to the bytes would get past them.

mod apply;
pub mod archive;
mod backup;
mod bbolt;
mod built;
mod cli;
mod copies;
mod decoders;
mod dir;
mod fix;
mod groups;
mod input;
mod model;
pub mod mutate;
mod object;
mod ops;
mod pages;
mod records;
pub mod seeds;
mod selector;
mod wal;

// The tool's own modules, for `cli`; each names the others from the root.
#[allow(dead_code, reason = "the tool uses the rest")]
#[path = "../../tools/annals/src/bytes.rs"]
mod bytes;
#[allow(dead_code, reason = "the tool uses the rest")]
#[path = "../../tools/annals/src/import/line.rs"]
mod import_line;
#[allow(dead_code, reason = "the tool uses the rest")]
#[path = "../../tools/annals/src/txn/json.rs"]
mod txn_json;
#[allow(dead_code, reason = "the tool uses the rest")]
#[path = "../../tools/annals/src/txn/text.rs"]
mod txn_text;

/// In the tool this is in a module with much else.
mod writes {
    pub(crate) fn parse_lease(text: &str) -> Result<i64, String> {
        let parsed = match text.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16),
            None => text.parse(),
        };
        parsed.map_err(|_| "no lease".into())
    }
}

/// Answers are not what is fuzzed here.
mod reads {
    pub(crate) fn kv_json(_: &annals::KeyValue, _: bool) -> serde_json::Value {
        serde_json::Value::Null
    }
}

#[cfg(fuzzing)]
#[doc(hidden)]
pub use libfuzzer_sys;

use annals_format::{FileKind, Place, StoreId};

/// Flag of an input's first byte: make the checksums right first.
pub const FIX: u8 = 1;

/// The store every input belongs to.
pub const STORE: StoreId = StoreId([7; 16]);

/// A target: whether the bytes were accepted as what they claim to be.
pub type Target = fn(&[u8]) -> bool;

/// Every target, by the name of its binary and its corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("wal_frame", wal::frame),
    ("wal_file", wal::file),
    ("block", decoders::block),
    ("groups", groups::groups),
    ("page", decoders::page),
    ("segment", decoders::segment),
    ("manifest", decoders::manifest),
    ("current", decoders::current),
    ("events", decoders::events),
    ("bbolt", bbolt::database),
    ("backup", backup::backup),
    ("object_patch", object::patch),
    ("object_apply", apply::applied),
    ("object_list", pages::pages),
    ("selector", selector::selector),
    ("records", records::records),
    ("built", built::built),
    ("import_line", cli::import_line),
    ("txn", cli::txn),
    ("open_dir", dir::open),
    ("ops_vs_model", ops::against_model),
    ("copies", copies::copies),
];

/// Runs the target called `name`.
///
/// # Panics
/// If there is no such target, or if it has found something.
pub fn run(name: &str, data: &[u8]) -> bool {
    let target = TARGETS.iter().find(|target| target.0 == name);
    target.expect("no such target").1(data)
}

/// The binary of a target: libFuzzer's entry to it and to [`mutate`](crate::mutate::mutate); elsewhere it runs the files
/// named as arguments.
#[macro_export]
macro_rules! target {
    ($name:literal) => {
        #[cfg(fuzzing)]
        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| {
            $crate::run($name, data);
        });

        #[cfg(fuzzing)]
        $crate::libfuzzer_sys::fuzz_mutator!(|data: &mut [u8],
                                              size: usize,
                                              max_size: usize,
                                              seed: u32| {
            let plain = &mut $crate::libfuzzer_sys::fuzzer_mutate;
            $crate::mutate::mutate($name, data, size, max_size, seed, plain)
        });

        #[cfg(not(fuzzing))]
        fn main() -> std::io::Result<()> {
            $crate::run_files($name)
        }
    };
}

/// Runs a target over the files named on the command line: how a finding is looked at.
///
/// # Errors
/// If a file cannot be read.
pub fn run_files(name: &str) -> std::io::Result<()> {
    for path in std::env::args().skip(1) {
        let accepted = run(name, &std::fs::read(&path)?);
        println!("{path}: {}", if accepted { "accepted" } else { "refused" });
    }
    Ok(())
}

/// The start of file `number` of a kind.
pub(crate) fn place(kind: FileKind, number: u64) -> Place {
    Place::start_of(STORE, kind, number)
}
