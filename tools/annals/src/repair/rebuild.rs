//! A new store of the newest versions that can be read.

use std::borrow::Cow;
use std::path::Path;

use annals::inspect::StoreFiles;
use annals::{Load, Origin};
use annals_format::name::FileName;
use annals_format::retention::Rule;
use annals_format::{FileKind, FileMeta};

use super::log::LogRead;
use super::salvage::Salvage;
use super::{Damaged, Repaired, length};
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
    let mut salvage = Salvage {
        revision: manifest.flushed_revision.max(manifest.compacted),
        time: manifest.flushed_time.max(0),
        ..Salvage::default()
    };
    let mut rows = Vec::new();
    let total = manifest.files.iter().map(|meta| meta.bytes).sum();
    let mut progress = Progress::new(Some(total), "bytes");
    let mut done = 0;
    for meta in &manifest.files {
        let name = FileName::new(meta.kind, meta.number);
        let (what, lost) = segment(&mut salvage, files, meta, damaged);
        rows.push((name, meta.bytes, what, lost));
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
        let lost = damage.map(|damage| format!("transactions: {damage}"));
        rows.push((name, length(files, name), "read", lost.unwrap_or_default()));
    }
    rows.extend(log.missing(None).map(missing));
    let mut lost = log.finish();
    salvage.lost(&mut lost);
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
    load(global, to, &salvage)?;
    for (prefix, (_, rule)) in &salvage.rules {
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
        _ if damaged.0.contains(&FileName::new(meta.kind, meta.number)) => {
            ("left out", "damaged; the past is given up".to_owned())
        }
        _ => ("left out", "superseded versions: the past is given up".to_owned()),
    }
}

/// Writes the store.
fn load(global: &Global, to: &Path, salvage: &Salvage) -> Outcome {
    // What follows the base begins with the next revision.
    let compacted = salvage.revision.max(2);
    let origin = Origin { time: salvage.time, ..Origin::default() };
    let mut load = Load::create(to, &global.engine_options()?, compacted, &origin)?;
    for newest in salvage.keys.values() {
        if let Some(kv) = &newest.alive {
            load.base(kv, newest.sub)?;
        }
    }
    let mut loading = load.begin()?;
    for (id, (_, lease)) in &salvage.leases {
        if let Some(lease) = lease {
            loading.lease(*id, lease.ttl, lease.remaining)?;
        }
    }
    Ok(loading.finish()?.close()?)
}
