//! `compact`: first the plan, then, with `--confirm`, the deed. `reorganise`: the files anew, with all they hold.

use std::path::Path;
use std::time::Duration;

use annals::{Error, ErrorKind, Store, View};
use annals_format::FileKind;
use annals_format::name::FileName;
use clap::{ArgGroup, Args};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::args::Global;
use crate::at::{At, length};
use crate::exit::{Failure, Outcome};
use crate::files::disk_bytes;
use crate::output::Output;
use crate::repair;
use crate::verify::check;

/// Arguments of `compact`.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("what").args(["at", "keep", "older"]).required(true),
    after_help = "Without --confirm the plan is printed and the command exits 7, with --dry-run 0: the revisions
that can no longer be read, the files that go at once, and those of which a part may go. The store
is verified first: if newest versions are damaged it is left as it is, as what would go may be
what repairs it. What is still in the log alone (after flushed_revision) is in neither list. Reads
at AT itself stay possible, and so do events from AT on with what each key was before. Keys that
have a rule of their own (`annals retention`) are left to that. Where nothing that old is kept,
nothing is done.

Examples:
  $ annals -C store compact --at 4 --dry-run           # says what it would do
  $ annals -C store compact --older 30d --dry-run
  $ annals -C store compact --keep 3                   # exits 7: without --confirm nothing is done
  $ annals -C store compact --keep 3 --confirm
  $ annals -C store get /flags/dark --at 3             # exits 6"
)]
pub(crate) struct CompactArgs {
    /// What shall stay readable from on: a revision, a time, how long ago.
    // etcdctl calls a revision --rev.
    #[arg(long, alias = "rev", value_name = "AT", allow_hyphen_values = true)]
    at: Option<At>,
    /// Keep the newest revision, and this many before it.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    keep: Option<u64>,
    /// Keep every state that was the newest within this time: 90s, 15m, 1h, 30d.
    #[arg(long, value_name = "TIME", value_parser = length)]
    older: Option<Duration>,
    /// Only print the plan.
    #[arg(long, conflicts_with = "confirm")]
    dry_run: bool,
    /// Do it, and wait until the space has been given back.
    #[arg(long)]
    confirm: bool,
}

/// Arguments of `reorganise`.
#[derive(Debug, Args)]
#[command(
    after_help = "A store does this by itself as it grows, and when nobody writes to it for some seconds; this does
all of it now. Nothing is forgotten. It may write as much as the store has, and needs that much room
meanwhile.

Examples:
  $ annals -C store reorganise"
)]
pub(crate) struct ReorganiseArgs {}

impl CompactArgs {
    /// The oldest revision that shall stay readable; `None` where nothing is as old as was said.
    fn revision(&self, store: &Store) -> Outcome<Option<u64>> {
        if let Some(at) = self.at {
            return Ok(Some(at.revision(store)?));
        }
        if let Some(keep) = self.keep {
            return Ok(store.revision().checked_sub(keep).filter(|revision| *revision > 0));
        }
        let age = i64::try_from(self.older.unwrap_or_default().as_micros()).unwrap_or(i64::MAX);
        let time = Timestamp::now().as_microsecond().saturating_sub(age);
        match store.revision_at_time(time) {
            // Revision 1 is before all that was written.
            Ok(revision) => Ok(Some(revision).filter(|revision| *revision > 1)),
            Err(error) => match *error.kind() {
                ErrorKind::NoRevisionAtTime { .. } => Ok(None),
                ErrorKind::TimeUnknown { first, .. } => Ok(Some(first).filter(|first| *first > 1)),
                _ => Err(error.into()),
            },
        }
    }
}

/// `compact`: forget what only reads below a revision can see.
pub(crate) fn compact(global: &Global, args: &CompactArgs, out: &mut Output) -> Outcome {
    let store = global.read()?;
    let (revision, compacted) = (store.revision(), store.compacted_revision());
    let nothing = |out: &mut Output| {
        let bytes = disk_bytes(&crate::files::open(global)?);
        out.note(format_args!("already compacted to {compacted}; nothing to do"))?;
        out.object(&told(compacted, revision, bytes, bytes))
    };
    let rev = match args.revision(&store)? {
        // What was said in other words than a revision may have been done already.
        Some(rev) if rev >= compacted || args.at.is_some() => rev,
        _ => return nothing(out),
    };
    // Says so where the revision is not there, or no longer.
    let view = store.at(rev)?;
    if rev < compacted {
        // Some keys have a rule of their own, and can be read there.
        let (requested, prefix) = (rev, None);
        return Err(Error::from(ErrorKind::Compacted { requested, compacted, prefix }).into());
    }
    if rev == compacted {
        return nothing(out);
    }
    if !args.confirm {
        let plan = plan(global, &store, &view)?;
        out.object(&plan)?;
        out.flush()?;
        if args.dry_run {
            return Ok(());
        }
        out.note("nothing was changed; --confirm does it")?;
        return Err(Failure::Unconfirmed);
    }
    drop(view);
    drop(store);
    let (_, told) = write_anew(global, |store| store.compact(rev))?;
    out.object(&told)
}

/// `reorganise`: the files anew, with all they hold.
pub(crate) fn reorganise(global: &Global, out: &mut Output) -> Outcome {
    let ((), told) = write_anew(global, |_| Ok(()))?;
    out.object(&told)
}

/// Does something to the store, and then all background work that is left. Answers what came of it, and what is told
/// of the store after it.
pub(crate) fn write_anew<T>(
    global: &Global,
    first: impl FnOnce(&Store) -> annals::Result<T>,
) -> Outcome<(T, Value)> {
    refuse_damaged(global)?;
    let before = disk_bytes(&crate::files::open(global)?);
    // No worker: the space is given back by this thread, so that it is known when it is done.
    let options = global.engine_options()?.create(false).background(false);
    let store = options.open(global.data()?)?;
    let done = first(&store);
    let work = if done.is_ok() { store.reorganise() } else { Ok(()) };
    let (compacted, revision) = (store.compacted_revision(), store.revision());
    let closed = store.close();
    let done = done?;
    // What was to be done first is done.
    work.map_err(|error| match error.corruption() {
        Some(_) => Failure::about(
            format!("compacted to {compacted}, and done but for what needs this file"),
            error,
        ),
        None => error.into(),
    })?;
    closed?;
    let after = disk_bytes(&crate::files::open(global)?);
    Ok((done, told(compacted, revision, before, after)))
}

/// Refuses a store of which newest versions are damaged, before anything is forgotten that would make up for them.
/// Damage of the past may go with it.
fn refuse_damaged(global: &Global) -> Outcome {
    let data = global.data()?;
    // Not for nothing: one that is open for writing is refused in the end.
    drop(repair::held(data)?);
    let is_newest = |file: &Path| {
        let inside = file.strip_prefix(data).ok().and_then(Path::to_str);
        let kind = inside.and_then(FileName::parse).map(|name| name.kind);
        matches!(kind, Some(FileKind::L0 | FileKind::Head | FileKind::Blob))
    };
    let report = check(data, global, "checked")?;
    let damage = report.damage.into_iter();
    let damage = damage.map(|damage| Error::from(ErrorKind::Corrupt(Box::new(damage))));
    // What cannot be read may be damaged, too.
    let found = damage.chain(report.unchecked).find(|error| match error.kind() {
        ErrorKind::Corrupt(damage) => is_newest(&damage.file),
        ErrorKind::Io { path, .. } => is_newest(path),
        _ => false,
    });
    match found {
        Some(error) => Err(Failure::about("nothing was changed, as a repair may need it", error)),
        None => Ok(()),
    }
}

fn told(compacted: u64, revision: u64, before: u64, after: u64) -> Value {
    json!({
        "compacted_revision": compacted,
        "revision": revision,
        "disk_bytes_before": before,
        "disk_bytes_after": after,
    })
}

/// What would go.
fn plan(global: &Global, store: &Store, view: &View) -> Outcome<Value> {
    let (revision, compacted) = (store.revision(), store.compacted_revision());
    let rev = view.revision();
    let rules: Vec<_> =
        store.retention().into_iter().filter(|rule| !rule.prefix.is_empty()).collect();
    // A file of events goes when no rule needs it either, one of HISTORY by that of its keys.
    let least = rules.iter().map(|rule| rule.floor).fold(rev, u64::min);
    let rule_of = |key: &[u8]| {
        let is_of = |prefix: &[u8]| key.get(1..).is_some_and(|key| key.starts_with(prefix));
        let of_key = rules.iter().filter(|rule| is_of(&rule.prefix));
        of_key.max_by_key(|rule| rule.prefix.len()).map(|rule| (&rule.prefix, rule.floor))
    };
    let floor_of = |first: &[u8], last: &[u8]| match (rule_of(first), rule_of(last)) {
        (None, None) => rev,
        (first, last) if first == last => first.map_or(rev, |(_, floor)| floor),
        _ => least,
    };
    // Not known where some keys cannot be read any more.
    let keys = match view.count(..) {
        Err(error) if matches!(error.kind(), ErrorKind::Compacted { .. }) => None,
        counted => Some(counted?),
    };
    let files = crate::files::open(global)?;
    let (mut gone, mut partly) = (Vec::new(), Vec::new());
    for meta in &files.manifest().files {
        let (goes, part) = match meta.kind {
            // As the engine drops them: what died exactly at the revision is kept, as the previous
            // value of an event that can still be watched.
            FileKind::History => {
                let floor = floor_of(&meta.first_key, &meta.last_key);
                (meta.death_upto < floor, meta.death_after < floor)
            }
            FileKind::Events => (meta.max_revision < least, meta.min_revision < least),
            _ => (false, false),
        };
        let row = json!({
            "file": FileName::new(meta.kind, meta.number).to_string(),
            "bytes": meta.bytes,
            "entries": meta.entries,
        });
        if goes {
            gone.push(row);
        } else if part {
            partly.push(row);
        }
    }
    let sum = |rows: &[Value]| rows.iter().filter_map(|row| row["bytes"].as_u64()).sum::<u64>();
    Ok(json!({
        "compact_to": rev,
        "revision": revision,
        "compacted_revision": compacted,
        "revisions": rev - compacted.max(1),
        "flushed_revision": files.manifest().flushed_revision,
        "keys_at_revision": keys,
        "disk_bytes": disk_bytes(&files),
        "bytes_of_whole_files": sum(&gone),
        "bytes_of_files_in_part": sum(&partly),
        "files_that_go": gone,
        "files_in_part": partly,
    }))
}
