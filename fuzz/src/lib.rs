//! Fuzz targets of annals.
//!
//! A target is a plain function from bytes to "did the input get through": it panics where a decoder
//! panics, allocates without bounds, contradicts itself or encodes differently from what it decoded.
//! `cargo test` runs every target over `corpus/TARGET/`; on nightly the same functions are libFuzzer
//! binaries (`./smoke SECONDS`, or `cargo fuzz run TARGET`).
//!
//! The first byte of an input holds flags. [`FIX`] repairs the checksums of the input before it is
//! decoded, for else nothing a fuzzer does to the bytes would get past them.

pub mod archive;
mod backup;
mod bbolt;
mod decoders;
mod dir;
mod fix;
mod groups;
mod input;
mod model;
mod object;
mod ops;
pub mod seeds;
mod wal;

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
    ("open_dir", dir::open),
    ("ops_vs_model", ops::against_model),
];

/// Runs the target called `name`.
///
/// # Panics
/// If there is no such target, or if it has found something.
pub fn run(name: &str, data: &[u8]) -> bool {
    let target = TARGETS.iter().find(|target| target.0 == name);
    target.expect("no such target").1(data)
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
