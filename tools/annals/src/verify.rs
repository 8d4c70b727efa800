//! `verify`: every byte of every file, writing nothing.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;

use annals::{CheckReport, Corruption};
use clap::Args;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::json;

use crate::args::Global;
use crate::bytes::count;
use crate::exit::{Failure, Outcome};
use crate::files::{DamagedKeys, damaged_keys};
use crate::output::{Output, Row, cell};
use crate::progress::Progress;

/// Arguments of `verify`.
#[derive(Debug, Args)]
#[command(
    after_help = "Damage is listed on standard output: file, offset, structure, what was expected and what was
found; then the first and the last revision that it may be of, and keys, or how they begin, between
which its keys are.
Whether they are lost says `annals repair`, which takes them from other files where it can. Exits 3
for damage, 1 where something could not be checked, 0 when all is well. Of the log no commit behind
damage can be read any more, and files that follow it may not be found: then they are named as not
checked. A batch at the end of the log that was being written when the machine
stopped is no damage: nobody was told that it was durable. It is mentioned on standard error.

Examples:
  $ annals -C store verify
  $ annals -C nowhere verify                           # exits 1: there is no store"
)]
pub(crate) struct VerifyArgs {}

#[derive(Debug)]
struct DamageRow<'a>(&'a Corruption, Option<&'a DamagedKeys>);

impl Serialize for DamageRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("file", &self.0.file.to_string_lossy())?;
        map.serialize_entry("offset", &self.0.offset)?;
        map.serialize_entry("structure", &self.0.structure)?;
        map.serialize_entry("expected", &self.0.expected)?;
        map.serialize_entry("found", &self.0.found)?;
        map.serialize_entry("revision", &self.0.revision)?;
        map.serialize_entry("revision_upto", &self.0.revision_upto)?;
        map.serialize_entry("key", &self.1.map(|keys| &keys.first))?;
        map.serialize_entry("key_upto", &self.1.map(|keys| &keys.upto))?;
        map.end()
    }
}

impl Row for DamageRow<'_> {
    const COLUMNS: &'static [&'static str] = &[
        "file",
        "offset",
        "structure",
        "expected",
        "found",
        "revision",
        "revision_upto",
        "key",
        "key_upto",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.0.file.display().to_string(),
            self.0.offset.to_string(),
            self.0.structure.clone(),
            self.0.expected.clone(),
            self.0.found.clone(),
            self.0.revision.map(|revision| revision.to_string()).unwrap_or_default(),
            self.0.revision_upto.map(|revision| revision.to_string()).unwrap_or_default(),
            self.1.map(|keys| cell(&keys.first)).unwrap_or_default(),
            self.1.map(|keys| cell(&keys.upto)).unwrap_or_default(),
        ]
    }

    fn raw(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.0)
    }
}

/// `verify`: the list of damage.
pub(crate) fn verify(global: &Global, _args: &VerifyArgs, out: &mut Output) -> Outcome {
    let report = check(global.data()?, global, "checked")?;
    let (files, bytes) = extent(global, &report);
    let mut rows = out.rows("damage");
    let keys = match crate::files::open(global) {
        Ok(files) => damaged_keys(&files, global.data()?, &report.damage),
        // The damage is in what says which files there are.
        Err(_) => vec![None; report.damage.len()],
    };
    for (damage, keys) in report.damage.iter().zip(&keys) {
        rows.push(&DamageRow(damage, keys.as_ref()))?;
    }
    rows.finish(&[
        ("unchecked", report.unchecked.iter().map(ToString::to_string).collect()),
        ("files", json!(files)),
        ("bytes", json!(bytes)),
        ("revision", json!(report.revision)),
        ("compacted_revision", json!(report.compacted)),
    ])?;
    out.flush()?;
    if let Some(torn) = &report.torn {
        out.note(format_args!(
            "{}: ends at offset {} with a batch that was being written when the machine \
             stopped; it was never acknowledged, and the next open for writing drops it",
            torn.file.display(),
            torn.offset
        ))?;
    }
    for error in &report.unchecked {
        out.note(format_args!("not checked: {error}"))?;
    }
    let extent = format!("{}, {}", count(files, "file"), count(bytes, "byte"));
    match (report.damage.len() as u64, report.unchecked.len()) {
        (0, 0) => {
            let revision = report.revision;
            let readable = match report.compacted {
                0 => format!("every revision up to {revision} is readable"),
                compacted => format!("revisions {compacted} to {revision} are readable"),
            };
            // A rule of retention lets its keys be read from further back, or not so far.
            let ruled = global.read().is_ok_and(|store| !store.retention().is_empty());
            let ruled = if ruled { ", but for what `annals retention list` says" } else { "" };
            out.note(format_args!("no damage in {extent}; {readable}{ruled}"))
        }
        (0, _) => Err(Failure::Other("something could not be checked".into())),
        (places, _) => {
            out.note(format_args!("{} in {extent}", count(places, "damaged place")))?;
            if report.spared == report.damage.len() && report.unchecked.is_empty() {
                out.note(
                    "nothing is lost: what is damaged stands in another place, too. Whatever opens the store for writing writes \
                     both anew, as `annals reorganise` does; then look at the disk",
                )?;
                return Err(Failure::Damaged);
            }
            let meanwhile = match global.read() {
                Ok(_) => "What is not damaged can be read meanwhile",
                Err(_) => "Until then it cannot be opened",
            };
            out.note(format_args!(
                "what to do: keep the directory as it is. Where there is a backup, and `annals backup INCREMENT --from REV` of \
                 what came after it succeeds, `annals restore BACKUP INCREMENT` loses nothing. Else restore the backup, or let \
                 `annals repair --to DIR` save what can be read; it names the keys that are lost. {meanwhile}"
            ))?;
            Err(Failure::Damaged)
        }
    }
}

/// The files that were checked and their bytes as they lie on disk: what `stats` counts, too.
fn extent(global: &Global, report: &CheckReport) -> (u64, u64) {
    match crate::files::open(global) {
        Ok(files) => crate::files::in_force(&files)
            .fold((0, 0), |(count, bytes), (_, length)| (count + 1, bytes + length)),
        // The damage is in what says which files there are: then only what was read counts.
        Err(_) => (report.files.max(1), report.bytes),
    }
}

/// Checks a store, and shows how far that is.
pub(crate) fn check(data: &Path, global: &Global, what: &'static str) -> Outcome<CheckReport> {
    let options = global.engine_options()?;
    shown(what, |step| annals::check(data, &options, step))
}

/// Runs a check, which is told whom to tell how far it is.
pub(crate) fn shown(
    what: &'static str,
    check: impl FnOnce(&mut dyn FnMut(u64, u64)) -> annals::Result<CheckReport>,
) -> Outcome<CheckReport> {
    let mut progress: Option<Progress> = None;
    Ok(check(&mut |done, total| {
        let bar = progress.get_or_insert_with(|| Progress::new(Some(total), "bytes"));
        bar.set(done, || Cow::Borrowed(what));
    })?)
}
