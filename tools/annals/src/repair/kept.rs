//! What a copy has of the files of the past that are damaged: all but what is damaged of HISTORY, and all but who wrote what,
//! and when, of EVENTS.

use annals::inspect::{LostBlock, LostPast, PutTogether, StoreFiles};
use annals_format::name::FileName;
use annals_format::{FileKind, FileMeta};

use super::Repaired;
use crate::exit::Outcome;
use crate::files::key_cell;

/// What became of a file that another one was written of.
const ANEW: &str = "written anew without what is damaged";

/// What was kept of the damaged files so far.
#[derive(Debug, Default)]
pub(super) struct KeptPast {
    pub(super) files: Vec<FileMeta>,
    /// Blocks of HISTORY that are in no file.
    blocks: Vec<LostBlock>,
}

impl KeptPast {
    /// Keeps what can be kept of a file, in one of this number.
    pub(super) fn file(
        &mut self,
        target: &PutTogether,
        files: &StoreFiles,
        (meta, number): (&FileMeta, u64),
        repaired: &mut Repaired,
    ) -> Outcome {
        let name = FileName::new(meta.kind, meta.number);
        if meta.kind == FileKind::Events {
            let kept = target.keep_events(files, meta, number)?;
            repaired.note(name, meta.bytes, ANEW, events(meta, &kept.mended));
            repaired.lost.origins.extend(kept.mended);
            repaired.lost.origins.sort_unstable();
            self.files.push(kept.file);
            return Ok(());
        }
        let kept = target.keep_history(files, meta, number)?;
        let lost = history(&kept.lost);
        self.blocks.extend(kept.lost);
        if let Some(file) = kept.file {
            let entries = meta.entries.saturating_sub(file.entries);
            let lost = (entries > 0).then(|| format!("{entries} of {} {lost}", meta.entries));
            repaired.note(name, meta.bytes, ANEW, lost.unwrap_or_default());
            self.files.push(file);
        } else {
            repaired.note(name, meta.bytes, "left out: damaged", lost);
        }
        Ok(())
    }

    /// Whose past is lost.
    pub(super) fn lost(&self, files: &StoreFiles) -> Outcome<Vec<LostPast>> {
        Ok(files.past_of(&self.blocks)?)
    }
}

/// What is lost of EVENTS whose transactions were put together, in words.
fn events(meta: &FileMeta, mended: &[(u64, u64)]) -> String {
    let count: u64 = mended.iter().map(|(first, last)| last - first + 1).sum();
    if count == 0 {
        return String::new();
    }
    let all = meta.entries;
    format!("who wrote {count} of {all} transactions, and when; what they wrote the versions tell")
}

/// Which superseded versions are lost, in words.
fn history(lost: &[LostBlock]) -> String {
    let told = lost.iter().map(|block| {
        let cell = |key: &[u8]| key_cell(FileKind::History, key, usize::MAX);
        format!("{} to {}", cell(&block.first), cell(&block.last))
    });
    let told = told.collect::<Vec<_>>().join(", ");
    let upto = lost.iter().map(|block| block.file.death_upto).max().unwrap_or(0);
    format!("versions, of keys from {told}, superseded up to revision {upto}")
}
