//! `repair`: another store, of what can still be read of a damaged one.
//!
//! The original is never written to. There are two ways; the first of them that can be gone is taken:
//!
//! * **copy**: only of the log, of the past, or of one file of newest versions something is lost. The file of newest versions is
//!   put together of what can be read of it and of what EVENTS tell. The log is written anew up to where something is
//!   missing, as if the machine had stopped there; the blocks of HISTORY that are damaged are left out, and the copy gives up
//!   what these had to answer: their keys can be read from behind it. What is damaged of EVENTS is put together from the
//!   versions. Files of which all blocks can be read are written anew, too. Everything else is copied as it is. So is it
//!   where CURRENT alone is damaged, and the manifest it named is whole.
//! * **rebuild**: something is lost of two files of newest versions, of blob files, or of one and the log or the past; or of
//!   HISTORY, and EVENTS tell all of it. What can be read of them, and of those before them, makes a new store that has
//!   every transaction as it was. EVENTS repeat many values, so they fill gaps, and tell which keys are lost: these give
//!   up the past that would show it, and are brought back to what they were before. Where the damaged store cannot be
//!   opened for reading, as its log, or the header, index or footer of a file is damaged, or the first block, in which
//!   leases and rules are looked for, the past is what the log tells behind the last transaction that is lost ([`tail`]). It is
//!   given up where no manifest is whole: then what lies in the directory is what there is.

mod anew;
mod copy;
mod current;
mod damaged;
mod found;
mod kept;
mod log;
mod lost;
mod mend;
mod past;
mod readable;
mod rebuild;
mod runs;
mod salvage;
mod tail;
mod target;
mod tell;
mod unknown;
mod written;

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use annals::inspect::{LostPast, PutTogether, StoreFiles};
use annals::{CheckReport, ErrorKind};
use annals_format::FileKind;
use annals_format::name::{FileName, LOCK};
use bytes::Bytes;
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Global;
use crate::bytes::show;
use crate::exit::{Failure, Outcome};
use crate::output::{Output, Row, cell};
use crate::target::Target;
use crate::verify::{check, shown};

use damaged::Damaged;
use kept::Kept;
use lost::Lost;
use past::Past;

/// Arguments of `repair`.
#[derive(Debug, Args)]
#[command(
    after_help = "The original is only read. The report has a line for each file: what became of it, and what of it
is lost. way: copy, where only of the log, the past, or one file of newest versions something is
lost (but where what HISTORY has lost is all told by EVENTS, rebuild); else rebuild. A damaged log
ends where something of it is in no file any more. Blocks are found also where the header, the
index or the footer of their file is damaged: that alone loses nothing. Superseded versions that
cannot be read are left out, and past_given_up names the keys they may have been of: prefix (a
key, and all that begin with it; of many damaged keys what neighbours have in common), and from,
the first revision they can be read at; of more than one prefix of a key the greatest from counts.
Where that is behind the newest revision, one that changes nothing is added (added_revision). All
other keys can be read as before; a range that has one of these is refused below that, and so is
the log without --prefix. Damage of the record of who changed what costs who and when: what was
changed the versions tell. A rebuilt store has the newest versions that can be read, and their
past, where the damaged store can still be opened for reading, else what the log tells of it
behind the last transaction that is lost, and behind what any rule or compaction has forgotten;
but not what rules of retention have kept longer for some keys than for others.

lost_keys names the keys of which something newer was written than could be read, and what is
there instead (kept: as they were at a revision, or nothing). Where the lost version belongs to
the past that is kept, they were brought back to that by a revision of its own, behind the newest
(brought_back_at), so that no cache takes it for what it was. lost_entries is how many newest
versions there were at most of which only the range of keys is known, where a line of the report
says which; such a key may be absent, or as it was before. lost_revisions names the transactions
of the log that cannot be read. Those behind damage in the log are left out of a copy, as the ones
before them are missing; with --newest a store is rebuilt that has those behind the damage as they
were, and what was there before them only as it was last: a key that was changed by what is lost,
and never since, is what it was before that. To have both, repair twice, and bring the copy to the
other's state: `annals -C copy revert latest --prefix '' --from newest`. lost_records says that
rules, leases or compactions of the log are lost. Where no manifest is
whole, the files in the directory are taken for the store. A lease that is lost but for its keys
has the longest time to live in the new store: to revoke it deletes them, to put them with another
lease does not. Rules of retention are in a rebuilt one only if all can be read, else the report
names those that were found, to be set again. Of a log that is cut what came behind the cut is
left out, rules and compactions as well; what these had forgotten stays forgotten.

The new store is verified before the command ends. A store that a program has open for writing is
not repaired. The exit code is 9 where lost_keys or lost_revisions name something, lost_entries is
not 0, where past_lost says that the past of some key begins later than it did, and where
lost_origins names revisions whose metadata and time are lost (they have the time of the next one;
a copy refuses to say what was there at a time among theirs); else 0: also then the report may
name what could be lost. Keep the damaged store until what you need of it is elsewhere. A backup
is better: `annals help backup`.

Examples:
  $ annals -C store repair --to saved
  $ annals -C saved verify"
)]
pub(crate) struct RepairArgs {
    /// The directory of the new store: absent, or empty.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Where the log is damaged: rather what was written behind the damage than the past.
    #[arg(long)]
    newest: bool,
}

/// What became of a file.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct FileRow(Value);

impl Row for FileRow {
    const COLUMNS: &'static [&'static str] = &["file", "bytes", "what", "lost"];

    /// Nothing is cut: what was lost is what a repair is read for.
    fn cells(&self) -> Vec<String> {
        let whole = |value: &Value| match value.as_str() {
            Some(text) => show(text.as_bytes(), usize::MAX),
            None => cell(value),
        };
        Self::COLUMNS.iter().map(|name| self.0.get(name).map(whole).unwrap_or_default()).collect()
    }

    fn raw(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.cells().join("\t"))
    }
}

/// What was done.
#[derive(Debug)]
struct Repaired {
    way: &'static str,
    files: Vec<FileRow>,
    lost: Lost,
    /// Whether some key cannot be read as far back as in the damaged store.
    past_lost: bool,
    /// The keys whose past is lost, and up to where.
    past: Vec<LostPast>,
    /// The revision that brought keys back to what they were before what is lost, or deleted them.
    brought_back: Option<(u64, u64)>,
    /// A revision that changes nothing, behind the newest, as keys whose past is lost can be read from there on only.
    added: Option<u64>,
    /// Whether the damaged store can be opened for reading.
    opens: bool,
    /// Where the damaged store is.
    original: PathBuf,
}

impl Repaired {
    fn by(way: &'static str) -> Self {
        let (files, lost, past) = (Vec::new(), Lost::default(), Vec::new());
        let (past_lost, brought_back, added, opens) = (false, None, None, false);
        let original = PathBuf::new();
        Self { way, files, lost, past_lost, past, brought_back, added, opens, original }
    }

    fn note(&mut self, name: FileName, bytes: u64, what: &str, lost: impl Into<String>) {
        let lost: String = lost.into();
        let lost = (!lost.is_empty()).then_some(lost);
        let file = name.to_string();
        self.files
            .push(FileRow(json!({ "file": file, "bytes": bytes, "what": what, "lost": lost })));
    }
}

/// `repair`: another store of what can be read.
pub(crate) fn repair(global: &Global, args: &RepairArgs, out: &mut Output) -> Outcome {
    let data = global.data()?;
    let to = args.to.as_path();
    let original = data.clone();
    check_outside(data, to)?;
    target::check_empty(to)?;
    readable::check(data)?;
    let made = Target::new(to);
    let _held = held(data)?;
    // Where CURRENT is damaged, a directory in which another one stands beside the same files.
    let stand_in = match crate::files::open(global) {
        Err(Failure::Engine { error, about }) if error.corruption().is_some() => {
            let found = current::stand_in(data)?;
            Some(found.ok_or(Failure::Engine { error, about })?)
        }
        _ => None,
    };
    let data = stand_in.as_ref().map_or(data.as_path(), current::StandIn::path);
    let global = &Global { data: Some(data.to_path_buf()), ..global.clone() };
    let from_names = stand_in.as_ref().is_some_and(|stand_in| stand_in.from_names);
    match &stand_in {
        Some(_) if from_names => out.note(
            "no manifest is whole; the files in the directory are taken for those of the store",
        )?,
        Some(_) => {
            out.note("CURRENT, or the manifest it names, is damaged; the newest one that is whole stands in for it")?;
        }
        None => {}
    }
    let mut files = crate::files::open(global)?;
    let report = check(data, global, "checked")?;
    let mut damaged = Damaged::of(data, &report);
    damaged.regain(&mut files, &global.engine_options()?);
    if report.damage.is_empty() && stand_in.is_none() {
        out.note("nothing is damaged; a copy is made all the same")?;
    }
    let rather_newest = args.newest && damaged.has(&[FileKind::Wal]);
    let past = if from_names { None } else { past_beyond_copy(global, &files, &damaged) };
    let whole = match past {
        Some(past) => rebuild::rebuild_whole(global, to, (&files, past), &damaged)
            .map_err(|failure| made.failed(failure))?,
        None => None,
    };
    let copied = if whole.is_none() && !from_names && !rather_newest && damaged.can_be_copied() {
        copied(global, data, to, (&files, &damaged), out).map_err(|failure| made.failed(failure))?
    } else {
        None
    };
    let (repaired, report) = match (whole, copied) {
        (None, Some(copied)) => copied,
        (whole, _) => {
            let rebuilt = || rebuild::rebuild(global, to, &files, &damaged, from_names);
            let rebuilt = whole.map_or_else(rebuilt, Ok);
            (rebuilt.map_err(|failure| made.failed(failure))?, check(to, global, "verified")?)
        }
    };
    let opens = repaired.past_lost && global.read().is_ok();
    let repaired = Repaired { opens, original, ..repaired };
    tell::tell(&Global { data: Some(to.to_path_buf()), ..global.clone() }, repaired, &report, out)
}

/// The past that a rebuilt store would have, where only that is damaged, and of that HISTORY: where EVENTS repeat all that
/// is lost, nothing is. What EVENTS have lost a copy has from the versions.
fn past_beyond_copy(global: &Global, files: &StoreFiles, damaged: &Damaged) -> Option<Past> {
    if !damaged.is_of_history() {
        return None;
    }
    Past::of(global, files).filter(Past::is_all)
}

/// Makes a copy, and verifies it; `None`, and nothing is left of it, where it would not be sound.
fn copied(
    global: &Global,
    data: &Path,
    to: &Path,
    (files, damaged): (&StoreFiles, &Damaged),
    out: &mut Output,
) -> Outcome<Option<(Repaired, CheckReport)>> {
    let options = global.engine_options()?;
    let mut target = PutTogether::begin(to, &options)?;
    let repaired = match copy::copy(data, &target, files, damaged) {
        // Newest versions that the check could read.
        Err(Failure::Engine { error, .. }) if error.corruption().is_some() => {
            out.note(format_args!("a copy would not be sound: {error}"))?;
            None
        }
        copied => copied?,
    };
    if let Some((mut repaired, anew)) = repaired {
        let log_lost = damaged.has(&[FileKind::Wal]);
        target = match settle(target, files, &anew, log_lost, &mut repaired) {
            Err(Failure::Engine { error, .. }) if error.corruption().is_some() => {
                out.note(format_args!("a copy would not be sound: {error}"))?;
                target::clear(target::again(to, &options)?)?;
                return Ok(None);
            }
            settled => settled?,
        };
        let report = shown("verified", |step| target.check(step))?;
        let unsound = report.damage.first().map(ToString::to_string);
        match unsound.or_else(|| report.unchecked.first().map(ToString::to_string)) {
            None => {
                target.finish()?;
                return Ok(Some((repaired, report)));
            }
            Some(why) => out.note(format_args!("a copy would not be sound: {why}"))?,
        }
    }
    target::clear(target)?;
    Ok(None)
}

/// Sees to it that nobody can read of a copy what is not in it.
fn settle(
    target: PutTogether,
    files: &StoreFiles,
    anew: &Kept,
    log_lost: bool,
    repaired: &mut Repaired,
) -> Outcome<PutTogether> {
    let (mut target, back) = target.bring_back(&anew.bare)?;
    for ((key, revision), kept) in anew.bare.iter().zip(&back.kept) {
        repaired.lost.key(&Bytes::copy_from_slice(key), *revision, *kept);
    }
    repaired.brought_back = back.revisions;
    let lost = anew.lost(files, back.revisions.map(|(_, last)| last))?;
    // What was forgotten by rules of which the records may be in what is left out of the log is not there either.
    if !lost.is_empty() || log_lost || anew.has_bare {
        let given_up;
        (target, given_up) = target.give_up(&lost, anew.has_bare)?;
        repaired.past_lost = !given_up.past.is_empty();
        (repaired.past, repaired.added) = (given_up.past, given_up.added);
    }
    Ok(target)
}

/// Keeps programs from opening the store for writing while it is read, if one has not done so; nothing is written for
/// that. `None` where there is no lock that could be held.
pub(crate) fn held(data: &Path) -> Outcome<Option<File>> {
    let path = data.join(LOCK);
    // Whatever else has this name is not waited for.
    let is_file = path.symlink_metadata().is_ok_and(|meta| meta.is_file());
    let Some(lock) = is_file.then(|| File::open(&path)).and_then(Result::ok) else {
        return Ok(None);
    };
    match lock.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            Err(annals::Error::from(ErrorKind::Locked { path: data.to_path_buf() }).into())
        }
        // A file system without locks, say: a repair does without.
        Err(TryLockError::Error(_)) => Ok(None),
        Ok(()) => Ok(Some(lock)),
    }
}

/// Refuses a directory within that of the original, which is only read.
fn check_outside(data: &Path, to: &Path) -> Outcome {
    let Ok(data) = data.canonicalize() else { return Ok(()) };
    let to = std::path::absolute(to).map_err(|e| Failure::io(to.display().to_string(), e))?;
    // Of what is not there yet, the directory it will be in.
    if to
        .ancestors()
        .find_map(|path| path.canonicalize().ok())
        .is_some_and(|real| real.starts_with(&data))
    {
        let text = "it is in the directory of the store: give another one";
        return Err(Failure::Other(format!("{}: {text}", to.display())));
    }
    Ok(())
}

/// Writes a file that is not there, down to the device.
fn write_new(path: &Path, mut content: impl Read) -> Outcome {
    let failed = |error| Failure::io(path.display().to_string(), error);
    let mut options = File::options();
    options.write(true).create_new(true);
    // As the store makes its files.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path).map_err(failed)?;
    io::copy(&mut content, &mut file).and_then(|_| file.sync_all()).map_err(failed)
}

/// The length of a file of the store.
fn length(files: &StoreFiles, name: FileName) -> u64 {
    files.file_bytes(name).unwrap_or(0)
}
