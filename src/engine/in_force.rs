//! A manifest with an edit is put in force, or nothing has changed.

use annals_format::{FileMeta, Manifest};

use crate::error::Result;
use crate::index::{Place, Position};
use crate::sync::Ordering;
use crate::wal::WalFiles;

use super::core::{Core, State};

impl Core {
    /// Makes the names of new files durable, or removes them.
    pub(super) fn sync_names(&self, added: &[FileMeta]) -> Result<()> {
        if added.is_empty() {
            return Ok(());
        }
        self.context.sync_dir().inspect_err(|_| self.discard(added))
    }

    /// Removes files that no manifest has named.
    pub(super) fn discard(&self, files: &[FileMeta]) {
        for file in files {
            // What cannot be removed is an orphan, and goes when the store is opened next.
            let _ = self.context.remove(file.kind, file.number);
        }
    }

    /// Stores the manifest, with what is known now of everything that is not a file.
    pub(super) fn store_manifest(&self, state: &mut State) -> Result<()> {
        self.put_in_force(state, &[], |_| ())
    }

    /// The same with an edit, which names new files.
    ///
    /// # Errors
    /// Either nothing has changed, and the new files are removed; or it is not known which manifest is in force, and
    /// writing has ended.
    pub(super) fn put_in_force(
        &self,
        state: &mut State,
        added: &[FileMeta],
        edit: impl FnOnce(&mut Manifest),
    ) -> Result<()> {
        let mut manifest = state.manifest.clone();
        self.bring_up_to_date(&mut manifest, state.wal.as_deref());
        edit(&mut manifest);
        self.counters.manifests.fetch_add(1, Ordering::Relaxed);
        let prepared = state.store.prepare(&mut manifest);
        // No number is used twice.
        state.manifest.number = manifest.number;
        let prepared = prepared.inspect_err(|_| self.discard(added))?;
        state.store.enforce(prepared).inspect_err(|error| self.fail(error))?;
        state.manifest = manifest;
        Ok(())
    }

    /// Notes in a manifest what is known now of everything that is not a file.
    fn bring_up_to_date(&self, manifest: &mut Manifest, wal: Option<&WalFiles>) {
        // Only what is durable: a watermark that a crash takes back would leave a store that has
        // lost what it must answer. It is asked for first, so the floor is not below it.
        let watermark = || manifest.compacted.max(self.chain.durable_place().compacted);
        // Before files go by these: the table that the reclaim went by, or a later one.
        let (compacted, floors) = self.retention.listed_with(watermark);
        let durable = self.chain.durable();
        manifest.next_file = self.next_file.load(Ordering::Acquire);
        (manifest.compacted, manifest.floors) = (compacted, floors);
        manifest.revision_floor = manifest.revision_floor.max(durable.revision);
        if let Some(wal) = wal {
            manifest.wal = wal.listed();
        }
    }

    /// Brings the manifest of a copy to what is visible in that. For who has the rules of retention
    /// [standing still](super::retention::Retention::still) from before that was fixed until now: floors are of the
    /// records that are in the copy, no others.
    pub(super) fn bring_copy_to(&self, manifest: &mut Manifest, visible: Place) {
        let watermark = || manifest.compacted.max(visible.compacted);
        let (compacted, floors) = self.retention.listed_with(watermark);
        (manifest.compacted, manifest.floors) = (compacted, floors);
        manifest.revision_floor = visible.position.revision;
    }
}

/// Notes that everything up to `last` is in files.
pub(super) fn flushed(manifest: &mut Manifest, last: Position, files: &[FileMeta]) {
    manifest.files.extend(files.iter().cloned());
    manifest.flushed_seq = last.seq;
    manifest.flushed_revision = last.revision;
    manifest.flushed_time = last.time;
}
