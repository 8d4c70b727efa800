//! A new store of the newest versions that can be read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use annals::inspect::{PutTogether, StoreFiles};
use annals::{LEASE_TTL_MAX, Load, Origin};
use annals_format::name::FileName;
use annals_format::retention::Rule;
use annals_format::{FileKind, FileMeta};

use super::log::LogRead;
use super::lost::Lost;
use super::runs::{Newest, Runs};
use super::salvage::{Leases, Salvage};
use super::{Damaged, Repaired, length, target};
use crate::args::Global;
use crate::bytes::show;
use crate::exit::Outcome;
use crate::files::logs;
use crate::progress::Progress;

/// A rule as `retention set` takes it.
fn spelled(prefix: &[u8], rule: &Rule) -> String {
    let prefix = show(prefix, 60);
    let age = rule.age.map(|age| format!(" --for {}s", age.div_ceil(1_000_000)));
    let revisions = rule.revisions.map(|revisions| format!(" --revisions {revisions}"));
    let forever = (age.is_none() && revisions.is_none()).then_some(" --forever");
    let (age, revisions) = (age.unwrap_or_default(), revisions.unwrap_or_default());
    format!("--prefix {prefix}{age}{revisions}{}", forever.unwrap_or_default())
}

/// Makes the store. `from_names`: the manifest was made of what lies in the directory.
pub(super) fn rebuild(
    global: &Global,
    to: &Path,
    files: &StoreFiles,
    damaged: &Damaged,
    from_names: bool,
) -> Outcome<Repaired> {
    let manifest = files.manifest();
    // Its directory is ours as long as this reads, and has the file of what does not fit into memory.
    let target = PutTogether::begin(to, &global.engine_options()?)?;
    let mut salvage = Salvage::new(target.path())?;
    salvage.revision = manifest.flushed_revision.max(manifest.compacted);
    salvage.time = manifest.flushed_time.max(0);
    let mut rows = Vec::new();
    let total = manifest.files.iter().map(|meta| meta.bytes).sum();
    let mut progress = Progress::new(Some(total), "bytes");
    let mut done = 0;
    for meta in &manifest.files {
        let name = FileName::new(meta.kind, meta.number);
        let (what, lost) = segment(&mut salvage, files, meta, damaged);
        rows.push((name, meta.bytes, what, lost));
        salvage.check()?;
        done += meta.bytes;
        progress.set(done, || Cow::Borrowed("read"));
    }
    drop(progress);
    let mut log = LogRead::new(manifest.flushed_revision);
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
    let mut lost = log.finish();
    target::clear(target)?;
    let (leases, rules) = (salvage.leases, salvage.rules);
    let dangling =
        load(global, to, (salvage.revision, salvage.time), salvage.keys, &leases, &mut lost)?;
    let mut repaired = Repaired { way: "rebuild", files: Vec::new(), lost };
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
            "the time to live of lease {id}, which {keys} keys have: it is the longest now; revoke it, or grant another"
        );
        repaired.note(name, 0, "lease", what);
    }
    for (prefix, (_, rule)) in &rules {
        let Some(rule) = rule else { continue };
        let name = FileName::new(FileKind::Manifest, manifest.number);
        let again = format!("set it again: retention set {}", spelled(prefix, rule));
        repaired.note(name, 0, "rule of retention", again);
    }
    Ok(repaired)
}

/// Reads a segment; what became of it, and what is lost.
fn segment(
    salvage: &mut Salvage,
    files: &StoreFiles,
    meta: &FileMeta,
    damaged: &Damaged,
) -> (&'static str, String) {
    match meta.kind {
        FileKind::L0 | FileKind::Head => ("read", salvage.segment(files, meta)),
        FileKind::Events => match salvage.events(files, meta) {
            lost if lost.is_empty() => {
                ("read for keys and values", "who changed what, and when".to_owned())
            }
            lost => ("read for keys and values", format!("who changed what, and when; {lost}")),
        },
        _ if damaged.0.contains(&FileName::new(meta.kind, meta.number)) => (
            "left out",
            "superseded versions: they cannot all be read; the past is given up".to_owned(),
        ),
        _ => ("left out", "superseded versions: the past is given up".to_owned()),
    }
}

/// Writes the store, which has come to this revision and time; notes the keys of which something newer was written
/// than what was found. Answers the leases that are lost, with how many keys have each: no key has a lease that is not there, so
/// these are granted anew, with the longest time there is.
fn load(
    global: &Global,
    to: &Path,
    (revision, time): (u64, i64),
    keys: Runs,
    leases: &Leases,
    lost: &mut Lost,
) -> Outcome<BTreeMap<i64, u64>> {
    // What follows the base begins with the next revision.
    let compacted = revision.max(2);
    let origin = Origin { time, ..Origin::default() };
    let mut load = Load::create(to, &global.engine_options()?, compacted, &origin)?;
    let mut dangling = BTreeMap::new();
    keys.each(&mut |key, found| {
        if let Some((revision, kept)) = found.lost() {
            lost.key(&key, revision, kept);
        }
        let Some(Newest { sub, alive: Some(kv), .. }) = found.newest else { return Ok(()) };
        let is_there = leases.get(&kv.lease).is_some_and(|(_, lease)| lease.is_some());
        if kv.lease != 0 && !is_there {
            *dangling.entry(kv.lease).or_default() += 1;
        }
        Ok(load.base(&kv, sub)?)
    })?;
    let mut loading = load.begin()?;
    for (id, (_, lease)) in leases {
        if let Some(lease) = lease {
            loading.lease(*id, lease.ttl, lease.remaining)?;
        }
    }
    for id in dangling.keys() {
        loading.lease(*id, LEASE_TTL_MAX, None)?;
    }
    loading.finish()?.close()?;
    Ok(dangling)
}
