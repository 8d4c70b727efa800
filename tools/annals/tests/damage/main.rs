//! `repair` and `verify` on the worst stores: the store of `tests/damage`, with files of every kind, damaged in every way.
//!
//! Whatever the damage: the original stays as it is, byte for byte; what `repair` makes is a sound store; at the revisions that it
//! answers, it answers what was there; and what is not there is named in the report.
//!
//! `ANNALS_REPAIRS=n` says how many; `ANNALS_FIRST_SEED=n` where they begin.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "tests fail by panicking and tell how much they did"
)]

#[path = "../../../../tests/damage/harm.rs"]
mod harm;
#[path = "../../../../tests/damage/made.rs"]
mod made;
mod named;
mod salvage;
#[path = "../../../../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::SystemTime;

use annals::vfs::MemoryVfs;

/// A directory that holds what a simulated disk does.
struct Laid {
    directory: tempfile::TempDir,
}

impl Laid {
    fn of(disk: &MemoryVfs) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for made in ["wal", "seg"] {
            std::fs::create_dir_all(directory.path().join("store").join(made)).unwrap();
        }
        for path in disk.paths() {
            std::fs::write(directory.path().join(&path), disk.read(Path::new(&path)).unwrap())
                .unwrap();
        }
        Self { directory }
    }

    fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    fn repaired(&self) -> PathBuf {
        self.directory.path().join("repaired")
    }

    /// Every file with its bytes and when it was written.
    fn snapshot(&self) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
        let mut found = BTreeMap::new();
        let mut waiting = vec![self.store()];
        while let Some(directory) = waiting.pop() {
            for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
                let meta = entry.metadata().unwrap();
                if meta.is_dir() {
                    waiting.push(entry.path());
                } else {
                    let content = std::fs::read(entry.path()).unwrap();
                    found.insert(entry.path(), (content, meta.modified().unwrap()));
                }
            }
        }
        found
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_annals"));
        command.arg("-C").arg(self.store()).args(arguments).stdin(Stdio::null());
        command.output().unwrap()
    }

    fn repair(&self, more: &[&str]) -> Output {
        let to = self.repaired();
        let arguments = ["repair", "-o", "json", "--to", to.to_str().unwrap()];
        self.run(&[&arguments, more].concat())
    }
}
