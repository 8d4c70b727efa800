//! A new store of the newest versions that can be read, and of what is known of how they came to be.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use annals::Retention;
use annals::inspect::{PutTogether, StoreFiles};
use annals_format::name::FileName;
use annals_format::retention::Rule;
use annals_format::{FileKind, FileMeta};

use super::log::LogRead;
use super::lost::Lost;
use super::past::{self, Past};
use super::salvage::Salvage;
use super::tail;
use super::written::{Made, load};
use super::{Damaged, Repaired, length, target};
use crate::args::Global;
use crate::bytes::show;
use crate::exit::{Failure, Outcome};
use crate::files::logs;
use crate::progress::Progress;

/// What a rule of retention says, for whoever sets it.
pub(super) fn retention(rule: &Rule) -> Retention {
    let all = Retention::forever();
    let all = rule.revisions.map_or(all, |count| all.keep_revisions(count));
    rule.age.map_or(all, |age| all.keep_for(Duration::from_micros(age)))
}

/// A rule as `retention set` takes it.
fn spelled(prefix: &[u8], rule: &Rule) -> String {
    let prefix = if prefix.is_empty() { "''".to_owned() } else { show(prefix, 60) };
    let age = rule.age.map(|age| format!(" --for {}s", age.div_ceil(1_000_000)));
    let revisions = rule.revisions.map(|revisions| format!(" --revisions {revisions}"));
    let forever = (age.is_none() && revisions.is_none()).then_some(" --forever");
    let (age, revisions) = (age.unwrap_or_default(), revisions.unwrap_or_default());
    format!("--prefix {prefix}{age}{revisions}{}", forever.unwrap_or_default())
}

/// What was read of a damaged store, up to some revision.
pub(super) struct Gathered {
    pub(super) salvage: Salvage,
    /// Whether the rules of retention are known for sure.
    pub(super) rules_known: bool,
    rows: Vec<(FileName, u64, &'static str, String)>,
    pub(super) lost: Lost,
}

/// How often it is tried to have a past that follows from what is known.
const TRIES: usize = 8;

/// Makes the store, if it has all of this past; `None`, and nothing is left of it, where what it begins with is not known.
pub(super) fn rebuild_whole(
    global: &Global,
    to: &Path,
    (files, past): (&StoreFiles, Past),
    damaged: &Damaged,
) -> Outcome<Option<Repaired>> {
    make(global, to, (files, Some(past)), damaged, (false, true))
}

/// Makes the store. `from_names`: the manifest was made of what lies in the directory.
pub(super) fn rebuild(
    global: &Global,
    to: &Path,
    files: &StoreFiles,
    damaged: &Damaged,
    from_names: bool,
) -> Outcome<Repaired> {
    // Names do not tell from where on there is a past.
    let past = match Past::of(global, files) {
        _ if from_names => None,
        None => tail::of_log(files)?,
        past => past,
    };
    let made = make(global, to, (files, past), damaged, (from_names, false))?;
    made.ok_or_else(|| Failure::Other("a store of any past can be made".to_owned()))
}

/// Makes the store with this past, or what follows of it. `whole`: with all of it, or not at all.
fn make(
    global: &Global,
    to: &Path,
    (files, mut past): (&StoreFiles, Option<Past>),
    damaged: &Damaged,
    (from_names, whole): (bool, bool),
) -> Outcome<Option<Repaired>> {
    // Its directory is ours as long as this reads, and has the file of what does not fit into memory.
    let target = PutTogether::begin(to, &global.engine_options()?)?;
    let mut tries = 0;
    let mut gathered = loop {
        let mut gathered = gather(target.path(), files, damaged, (past.as_ref(), from_names))?;
        let Some(known) = &mut past else { break gathered };
        let has_all = gathered.lost.has_all_between(known.from, known.newest);
        if has_all && known.follows(&mut gathered.salvage)? {
            break gathered;
        }
        tries += 1;
        let is_known = has_all && known.from < known.newest;
        past = past.filter(|_| is_known && tries < TRIES);
    };
    target::clear(target)?;
    if whole && !past.as_ref().is_some_and(Past::is_all) {
        return Ok(None);
    }
    let made = match load(global, (files, to), &mut gathered, past.as_ref())? {
        Some(made) => made,
        // It should have followed. Without a past nothing has to.
        None if whole => {
            target::clear(target::again(to, &global.engine_options()?)?)?;
            return Ok(None);
        }
        None => {
            let target = target::again(to, &global.engine_options()?)?;
            gathered = gather(target.path(), files, damaged, (None, from_names))?;
            target::clear(target)?;
            past = None;
            load(global, (files, to), &mut gathered, None)?.unwrap_or_default()
        }
    };
    let Made { dangling, past: given_up, brought_back, added } = made;
    let Gathered { salvage, rules_known, rows, mut lost } = gathered;
    lost.origins.extend(past.iter().flat_map(|past| &past.mended));
    let manifest = files.manifest();
    let past_lost = match &past {
        Some(past) => past.begins_late() || !given_up.is_empty(),
        // Names do not tell from where on there was one.
        None => from_names || past::floor(global).is_none_or(|floor| floor < salvage.revision),
    };
    let past_lost = past_lost || lost.records;
    let mut repaired = Repaired { lost, past_lost, brought_back, added, ..Repaired::by("rebuild") };
    repaired.past = given_up;
    if from_names {
        let name = FileName::new(FileKind::Manifest, manifest.number);
        let lost = "which files there are, how far they were folded and compacted: taken from the files; \
                    a key that was deleted long ago may be there again";
        repaired.note(name, 0, "made anew", lost);
    }
    for (name, bytes, what, lost) in rows {
        repaired.note(name, bytes, what, lost);
    }
    for (id, keys) in dangling {
        let name = FileName::new(FileKind::Manifest, manifest.number);
        let what = format!(
            "the time to live of lease {id}, which {keys} keys have: it is the longest now; put them again with another lease, or revoke it, which deletes them"
        );
        repaired.note(name, 0, "lease", what);
    }
    if !rules_known {
        // One that was taken back, or changed, may be found as it was, and what it forgets is gone.
        for (prefix, rule) in salvage.rules() {
            let name = FileName::new(FileKind::Manifest, manifest.number);
            let again =
                format!("set it again, if it still held: retention set {}", spelled(prefix, rule));
            repaired.note(name, 0, "rule of retention", again);
        }
        for (prefix, _) in &manifest.floors {
            if salvage.rules().all(|(found, _)| found != prefix) {
                let name = FileName::new(FileKind::Manifest, manifest.number);
                let prefix = show(prefix, 60);
                let what = format!(
                    "what it said cannot be read; if it still held, set it again: retention set --prefix {prefix}"
                );
                repaired.note(name, 0, "rule of retention", what);
            }
        }
    }
    Ok(Some(repaired))
}

/// Reads what there is, up to where the past begins that is taken along.
fn gather(
    directory: &Path,
    files: &StoreFiles,
    damaged: &Damaged,
    (past, from_names): (Option<&Past>, bool),
) -> Outcome<Gathered> {
    let manifest = files.manifest();
    let limit = past.map_or(u64::MAX, |past| past.from);
    let mut salvage = Salvage::new(directory, limit, from_names)?;
    let floors = manifest.floors.iter().map(|(_, floor)| *floor);
    salvage.forgotten = floors.fold(manifest.compacted, u64::max);
    salvage.revision = manifest.flushed_revision.max(manifest.compacted).min(limit);
    if manifest.flushed_revision <= limit {
        salvage.time = manifest.flushed_time.max(0);
    }
    let mut rows = Vec::new();
    let total = manifest.files.iter().map(|meta| meta.bytes).sum();
    let mut progress = Progress::new(Some(total), "bytes");
    let mut done = 0;
    let (mut events, others): (Vec<_>, Vec<_>) =
        manifest.files.iter().partition(|meta| meta.kind == FileKind::Events);
    events.sort_by_key(|meta| meta.min_revision);
    for meta in others.into_iter().chain(events) {
        let name = FileName::new(meta.kind, meta.number);
        let (what, lost) = segment(&mut salvage, files, meta, (damaged, past));
        rows.push((name, meta.bytes, what, lost));
        salvage.check()?;
        done += meta.bytes;
        progress.set(done, || Cow::Borrowed("read"));
    }
    drop(progress);
    let mut log = LogRead::new(manifest, from_names);
    let missing =
        |name| (name, 0, "missing", "what was committed there, if anything was".to_owned());
    for name in logs(files) {
        rows.extend(log.missing(Some(name.number)).map(missing));
        let damage = salvage.log(files, name, &mut log)?;
        salvage.check()?;
        let lost = damage.map(|damage| format!("transactions: {damage}"));
        rows.push((name, length(files, name), "read", lost.unwrap_or_default()));
    }
    rows.extend(log.missing(None).map(missing));
    let rules_known = salvage.knows_rules(!damaged.has(&[FileKind::Wal]));
    Ok(Gathered { salvage, rules_known, rows, lost: log.finish() })
}

/// Reads a segment; what became of it, and what is lost.
fn segment(
    salvage: &mut Salvage,
    files: &StoreFiles,
    meta: &FileMeta,
    (damaged, past): (&Damaged, Option<&Past>),
) -> (&'static str, String) {
    // Of what there was before the past that is taken along.
    let before = |what: &str, past: &Past| {
        if past.begins_late() {
            format!("{what}, before revision {}", past.from)
        } else {
            String::new()
        }
    };
    let both = |one: String, other: String| match (one.is_empty(), other.is_empty()) {
        (false, false) => format!("{one}; {other}"),
        _ => one + &other,
    };
    match (meta.kind, past) {
        (FileKind::L0 | FileKind::Head, _) => ("read", salvage.segment(files, meta)),
        // Read with the entries that refer to its values; what is lost is told there.
        (FileKind::Blob, _) => ("read", String::new()),
        (FileKind::Events, None) => {
            let lost = salvage.events(files, meta);
            ("read for keys and values", both("who changed what, and when".to_owned(), lost))
        }
        (FileKind::Events, Some(past)) => {
            let mut lost = salvage.events(files, meta);
            if !lost.is_empty() && !past.mended.is_empty() {
                lost += "; put together from the versions, but for who wrote them, and when";
            }
            ("read", both(before("who changed what, and when", past), lost))
        }
        // The log follows what is in segments, so none of these was the newest.
        (_, Some(past)) if past.store.is_none() => {
            ("left out", before("superseded versions", past))
        }
        (_, Some(past)) => {
            let mut lost = salvage.history(files, meta);
            if !lost.is_empty() {
                lost += "; in the new store as far as EVENTS repeat them";
            }
            ("read", both(before("superseded versions", past), lost))
        }
        _ if damaged.files.contains(&FileName::new(meta.kind, meta.number)) => (
            "left out",
            "superseded versions: they cannot all be read; the past is given up".to_owned(),
        ),
        _ => ("left out", "superseded versions: the past is given up".to_owned()),
    }
}
