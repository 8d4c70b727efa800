//! Raising the revision of a store that is being made of a backup.
//!
//! Clients of the store that was backed up may have seen revisions that the backup does not have. If the
//! restored store gave these again, to other changes, such a client would go on from a revision that it takes
//! for one it knows, and miss changes. So the store goes on `n` revisions later, as if nothing had been
//! written in them, and is compacted there: whoever asks for a revision in between is refused.
//!
//! ```text
//! 1 move everything to files, and close
//! 2 write a file of EVENTS with one transaction, which changes nothing, at the new revision; a manifest
//!   that has come to it, is compacted to it, and has no other EVENTS and an empty log
//! 3 open it, and bring every rule of retention to it
//! ```
//!
//! The log cannot leave out a revision, and EVENTS have every one from the watermark on; so the gap is below
//! the watermark, and nothing is left that knows of it. All of it is done while a file LOADING says that this is no
//! store, so there is no state in between.
//!
//! A store of which some keys can be read only behind its newest revision gets one more in the same way, without a gap, and
//! keeps its EVENTS ([`add_revision`]).

use std::path::Path;

use annals_format::events::TransactionBuilder;
use annals_format::limits::NUMBER_MAX;
use annals_format::name::{FileName, SEGMENT_DIR};
use annals_format::retention::Rule;
use annals_format::space::Key;
use annals_format::{FileKind, FileMeta};

use crate::commit::{Write, WriteKind};
use crate::error::{Error, Result};
use crate::manifest::ManifestStore;
use crate::options::Options;
use crate::segment::{NewSegment, SegmentContext, SegmentWriter};
use crate::sync::Arc;

use super::Engine;
use super::increment::Continuing;
use super::new_store::{NewLog, hold, sync_dir, write_events};

impl Continuing {
    /// Raises the revision by `by`, which is 1 or more. Answers it open again.
    ///
    /// # Errors
    /// `InvalidArgument` if there are few revisions left; what reading and writing files answers.
    pub(crate) fn bump(self, by: u64) -> Result<Self> {
        let engine = self.engine();
        flush(engine)?;
        let (last, rules) = (engine.latest()?.position(), engine.rules());
        let revision = last.revision.saturating_add(by);
        check_begin(revision)?;
        let (dir, options) = self.close()?;
        rewrite(&dir, &options, last.seq, (revision, true))?;
        let open = Self::open(&dir, &options)?;
        raise(open.engine(), &rules, revision)?;
        Ok(open)
    }
}

/// Refuses a revision for a history to begin at that leaves too few to come.
///
/// # Errors
/// `InvalidArgument`.
pub(crate) fn check_begin(revision: u64) -> Result<()> {
    if revision > NUMBER_MAX / 2 {
        return Err(Error::invalid(format!(
            "revision {revision} leaves too few revisions to come"
        )));
    }
    Ok(())
}

/// Gives a store that is being made, and was opened with these options, one revision more, which changes nothing. Closes
/// it; answers the revision.
///
/// # Errors
/// As [`Continuing::bump`].
pub(super) fn add_revision(engine: &Engine, options: &Options) -> Result<u64> {
    let mut last = engine.latest()?.position();
    loop {
        flush(engine)?;
        // Rules of retention that rise meanwhile are written, too.
        let now = engine.latest()?.position();
        if now.seq == last.seq {
            break;
        }
        last = now;
    }
    let revision = last.revision.saturating_add(1);
    check_begin(revision)?;
    let dir = engine.path().to_path_buf();
    engine.close()?;
    rewrite(&dir, options, last.seq, (revision, false))?;
    Ok(revision)
}

/// Has what is closed go on at a revision; `compacted`: and be compacted there.
fn rewrite(
    dir: &Path,
    options: &Options,
    last_seq: u64,
    (revision, compacted): (u64, bool),
) -> Result<()> {
    let (_lock, vfs) = &hold(&options.vfs, dir)?;
    let manifests = ManifestStore::new(Arc::clone(vfs), dir).of_load();
    let Some(mut manifest) = manifests.load()? else {
        return Err(Error::invalid("the store is gone that is being made here"));
    };
    if manifest.flushed_seq != last_seq {
        let what = format!("files end at {}, not at {last_seq}", manifest.flushed_seq);
        return Err(Error::invalid(what));
    }
    let old: Vec<FileName> = {
        let wal = manifest.wal.iter().map(|log| FileName::new(FileKind::Wal, log.number));
        let is_old = |meta: &&FileMeta| compacted && meta.kind == FileKind::Events;
        let events = manifest.files.iter().filter(is_old);
        wal.chain(events.map(|meta| FileName::new(meta.kind, meta.number))).collect()
    };
    let events = {
        let options = options.clone().vfs(Arc::clone(vfs));
        let context = SegmentContext::new(dir, manifest.store, manifest.incarnation, &options);
        let new = NewSegment::new(FileKind::Events, manifest.next_file);
        manifest.next_file += 1;
        let file = SegmentWriter::create(&context, new)?;
        write_events(file, TransactionBuilder::new(), (revision, manifest.flushed_time, &[]))?
    };
    sync_dir(&**vfs, &dir.join(SEGMENT_DIR))?;
    manifest.files.retain(|meta| !compacted || meta.kind != FileKind::Events);
    manifest.files.push(events);
    manifest.flushed_revision = revision;
    manifest.revision_floor = revision;
    if compacted {
        manifest.compacted = revision;
    }
    let number = manifest.wal.last().map_or(1, |log| log.number + 1);
    NewLog::create(vfs, dir, options, &manifest, number)?.seal(&mut manifest)?;
    manifests.store(&mut manifest)?;
    for name in old {
        let path = dir.join(name.to_string());
        let removed = vfs.remove_if_there(&path);
        removed.map_err(|error| Error::io("remove", &path, error))?;
    }
    Ok(())
}

/// Moves everything in memory to files.
fn flush(engine: &Engine) -> Result<()> {
    let core = &engine.0.door.0;
    core.chain.freeze();
    while core.shared.tables().frozen().next().is_some() {
        core.run_unit_or_leave()?;
    }
    Ok(())
}

/// Brings the rules of prefixes to a revision.
fn raise(engine: &Engine, rules: &[(bytes::Bytes, Rule)], revision: u64) -> Result<()> {
    let prefixed = rules.iter().filter(|(prefix, _)| !prefix.is_empty());
    let writes: Vec<Write<'static>> = prefixed
        .map(|(prefix, rule)| {
            let value = Rule { floor: revision, ..*rule }.encode();
            let kind = WriteKind::Put { value: value.into(), lease: 0 };
            Write { key: Key::Retention { prefix }.encode().into(), kind }
        })
        .collect();
    engine.apply_system(&writes)?;
    engine.flush()?;
    engine.0.door.0.load_rules()
}
