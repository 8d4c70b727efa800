//! What a copy has of the files of the past that are damaged: all but what is damaged of HISTORY, and all but who wrote what,
//! and when, of EVENTS.

use annals::Options;
use annals::inspect::{LostBlock, LostPast, PutTogether, StoreFiles};
use annals_format::name::FileName;
use annals_format::{FileKind, FileMeta};

use super::Repaired;
use super::anew::is_lost;
use crate::exit::Outcome;
use crate::files::key_cell;

/// By so many prefixes the past of keys is given up at most: each makes files of its own of what is superseded from then
/// on, as long as other keys can be read further back.
const PREFIXES_MAX: usize = 16;

/// What an EVENTS file, or a HISTORY file, is called that was written anew.
const ANEW: &str = "written anew without what is damaged";

/// What was kept of the damaged files so far.
#[derive(Debug, Default)]
pub(super) struct Kept {
    anew: Vec<FileMeta>,
    /// Blocks of HISTORY that are in no file.
    blocks: Vec<LostBlock>,
    /// Up to here all keys are given up.
    all_upto: Option<u64>,
    /// The last revision of an EVENTS file of which nothing is kept: those before it are of no use, as they go on from each
    /// other.
    pub(super) after: u64,
}

impl Kept {
    /// Keeps what can be kept of a file, in one of this number.
    pub(super) fn file(
        &mut self,
        (target, options): (&PutTogether, &Options),
        files: &StoreFiles,
        (meta, number): (&FileMeta, u64),
        repaired: &mut Repaired,
    ) -> Outcome {
        let name = FileName::new(meta.kind, meta.number);
        let (what, lost) = if meta.kind == FileKind::Events {
            let kept = target.keep_events(options, files, meta, number)?;
            self.all_upto = self.all_upto.max(kept.incomplete);
            if let Some(file) = kept.file {
                let lost = events(meta, &kept.put_together);
                repaired.lost.origins.extend(kept.put_together);
                repaired.lost.origins.sort_unstable();
                self.anew.push(file);
                (ANEW, lost)
            } else {
                let (first, last) = (meta.min_revision, meta.max_revision);
                self.all_upto = self.all_upto.max(Some(last));
                self.after = self.after.max(last);
                ("left out: damaged", format!("who changed what at revisions {first} to {last}"))
            }
        } else {
            let kept = target.keep(options, files, meta, number)?;
            let lost = history(&kept.lost);
            self.blocks.extend(kept.lost);
            if let Some(file) = kept.file {
                let entries = meta.entries.saturating_sub(file.entries);
                self.anew.push(file);
                let lost = (entries > 0).then(|| format!("{entries} of {} {lost}", meta.entries));
                (ANEW, lost.unwrap_or_default())
            } else {
                ("left out: damaged", lost)
            }
        };
        repaired.note(name, meta.bytes, what, lost);
        Ok(())
    }

    /// Whose past is lost, and the files; `None` where it cannot be told whose it is.
    pub(super) fn finish(
        &mut self,
        files: &StoreFiles,
    ) -> Outcome<Option<(Vec<LostPast>, Vec<FileMeta>)>> {
        let mut lost = match files.past_of(&self.blocks, PREFIXES_MAX) {
            Err(error) if is_lost(&error) => return Ok(None),
            found => found?,
        };
        lost.extend(self.all_upto.map(|upto| LostPast { prefix: Vec::new(), upto }));
        let mut anew = std::mem::take(&mut self.anew);
        anew.retain(|meta| meta.kind != FileKind::Events || meta.max_revision > self.after);
        Ok(Some((lost, anew)))
    }
}

/// What is lost of EVENTS whose transactions were put together, in words.
fn events(meta: &FileMeta, put_together: &[(u64, u64)]) -> String {
    let count: u64 = put_together.iter().map(|(first, last)| last - first + 1).sum();
    if count == 0 {
        return String::new();
    }
    let all = meta.entries;
    format!(
        "who wrote {count} of {all} transactions, and when; put together from the versions they made"
    )
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
