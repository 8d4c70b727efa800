//! `find`: where a key is, and why a look-up opens a file or leaves it alone.

use std::ffi::OsString;

use annals::inspect::{StoreFiles, WalPart};
use annals_format::frame::Op;
use annals_format::name::FileName;
use annals_format::space::Key;
use annals_format::{FileKind, FileMeta};
use clap::Args;
use serde_json::{Value, json};

use super::{logs, name_of, open, walk};
use crate::args::Global;
use crate::bytes::{self, json as spell, show};
use crate::exit::{Failure, Outcome};
use crate::output::{Format, Output, listed};

/// Arguments of `find`.
#[derive(Debug, Args)]
#[command(
    after_help = "A line for each file of the store. What is only in the log is in memory while the store is open:
opening reads it. Of the other files a look-up opens those whose first and last key include the
key and whose filter lets it pass: a filter lets pass every key that the file has, and a few that
it has not. Files of events are in the order of revisions, and opened for `log` and `watch` alone; blob
files are opened for a value that an entry of l0 or head refers to.
Exits 5 where no file has the key.

Examples:
  $ annals -C store find /flags/dark
  $ annals -C store find /pods/z                       # exits 5
  $ annals -C store find /pods/a --json"
)]
pub(crate) struct FindArgs {
    /// The key.
    key: OsString,
}

listed! {
    /// A file, and what it has of the key.
    FoundRow: "file", "kind", "opened", "versions", "why", "revisions"
}

/// Revisions that are named, and of them those in a table: the newest of each file.
const REVISIONS_MAX: usize = 1000;
const REVISIONS_SHOWN: usize = 8;

/// What a file has of the key.
#[derive(Debug, Default)]
struct Found {
    versions: u64,
    revisions: Vec<u64>,
}

impl Found {
    fn note(&mut self, revision: u64) {
        self.versions += 1;
        if self.revisions.len() < REVISIONS_MAX {
            self.revisions.push(revision);
        }
    }

    fn shown(&self) -> String {
        let shown = self.revisions.iter().take(REVISIONS_SHOWN).map(u64::to_string);
        let mut text = shown.collect::<Vec<_>>().join(" ");
        if self.versions > REVISIONS_SHOWN as u64 {
            text.push_str(" ...");
        }
        text
    }

    fn row(&self, name: FileName, opened: bool, why: String) -> Value {
        json!({
            "file": name.to_string(),
            "kind": name.kind.label(),
            "opened": opened,
            "versions": self.versions,
            "why": why,
            "revisions": self.revisions,
        })
    }
}

/// `find`: every file, with what it has of the key.
pub(crate) fn find_key(global: &Global, args: &FindArgs, out: &mut Output) -> Outcome {
    let key = bytes::of_arg(&args.key);
    let internal = Key::User(&key).encode();
    let files = open(global)?;
    let mut versions = 0;
    let is_table = out.format() == Format::Table;
    let mut rows = out.rows("files");
    let mut push = |(found, mut row): (Found, Value)| {
        versions += found.versions;
        if is_table {
            row["revisions"] = found.shown().into();
        }
        rows.push(&FoundRow(row))
    };
    for name in logs(&files) {
        push(in_log(&files, name, &internal)?)?;
    }
    for meta in &files.manifest().files {
        push(in_segment(&files, meta, &internal)?)?;
    }
    rows.finish(&[("key", spell(&key)), ("versions", json!(versions))])?;
    if versions == 0 {
        return Err(Failure::NotFound(format!("{}: no file has it", show(&key, 200))));
    }
    Ok(())
}

fn in_log(files: &StoreFiles, name: FileName, key: &[u8]) -> Outcome<(Found, Value)> {
    let mut found = Found::default();
    let (mut damage, mut last_seq) = (None, 0);
    walk(|step| {
        files.wal(name.number, &mut |_, _, part| {
            match part {
                WalPart::Frame(frame, _) => {
                    last_seq = frame.seq;
                    let has = |op: &Op<'_>| match op {
                        Op::Put { key: of, .. } | Op::Delete { key: of } => *of == key,
                        Op::Compact { .. } => false,
                    };
                    if frame.ops().any(|op| has(&op.op)) {
                        found.note(frame.revision);
                    }
                }
                WalPart::Damage(problem) => damage = Some(problem.to_string()),
                _ => {}
            }
            step(Ok(())).map(|_| ())
        })
    })?;
    let is_needed = last_seq > files.manifest().flushed_seq;
    let why = match damage {
        Some(damage) => format!("damaged: {damage}"),
        None if is_needed => "the log: read when the store is opened".to_owned(),
        None => "the log: all of it is in other files, too".to_owned(),
    };
    let row = found.row(name, true, why);
    Ok((found, row))
}

fn in_segment(files: &StoreFiles, meta: &FileMeta, key: &[u8]) -> Outcome<(Found, Value)> {
    let (name, mut found) = (name_of(meta), Found::default());
    let leave = |found: Found, why: &str| {
        let row = found.row(name, false, why.to_owned());
        Ok((found, row))
    };
    if meta.kind == FileKind::Events {
        return leave(found, "by revision, not by key");
    }
    if meta.kind == FileKind::Blob {
        return leave(found, "opened where an entry of l0 or head refers to it");
    }
    if key < meta.first_key.as_slice() {
        return leave(found, "begins after the key");
    }
    if key > meta.last_key.as_slice() {
        return leave(found, "ends before the key");
    }
    if key < meta.folded_to.as_slice() {
        return leave(found, "folded: what it had of the key is in head and history");
    }
    let segment = files.segment(meta)?;
    if !segment.may_contain(key)? {
        return leave(found, "its filter knows that the key is not there");
    }
    walk(|step| {
        segment.entries_from(key, &mut |entry| {
            let is_it = entry.key == key;
            if is_it {
                found.note(entry.revision);
            }
            step(Ok(()))?;
            Ok(is_it)
        })
    })?;
    let why = if found.versions > 0 {
        "has it"
    } else {
        "its filter lets the key pass, but it is not there"
    };
    let row = found.row(name, true, why.to_owned());
    Ok((found, row))
}
