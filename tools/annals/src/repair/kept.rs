//! What a copy has of the files that are damaged: all but what is damaged of HISTORY; all but who wrote what,
//! and when, of EVENTS; and of newest versions what can be read, and what EVENTS tell of the others.

use annals::inspect::{Changed, LostBlock, LostPast, PutTogether, StoreFiles, WalPart};
use annals_format::frame::Op;
use annals_format::name::FileName;
use annals_format::space::Key;
use annals_format::{FileKind, FileMeta};

use super::Repaired;
use super::salvage::KeyGap;
use crate::exit::Outcome;
use crate::files::{key_cell, log_end, logs, walk};

/// What became of a file that another one was written of.
const ANEW: &str = "written anew without what is damaged";

/// What was kept of the damaged files so far.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) files: Vec<FileMeta>,
    /// Blocks of HISTORY that are in no file.
    blocks: Vec<LostBlock>,
    /// Keys of which the newest version stands in a file without its value, and its revision.
    pub(super) bare: Vec<(Vec<u8>, u64)>,
    /// Whether any version stands in a file without its value.
    pub(super) has_bare: bool,
    /// Keys of which a version is lost, and what superseded it.
    superseded: Vec<(Vec<u8>, u64)>,
}

impl Kept {
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

    /// Keeps what can be kept of a file of newest versions, the only one that is damaged; answers whether that can be done.
    pub(super) fn newest(
        &mut self,
        target: &PutTogether,
        files: &StoreFiles,
        (meta, number): (&FileMeta, u64),
        repaired: &mut Repaired,
    ) -> Outcome<bool> {
        let changed = changed(files)?;
        let Some(kept) = target.keep_newest(files, (meta, number), &changed)? else {
            return Ok(false);
        };
        let count = kept.without_value + kept.unknown;
        let lost = (count > 0).then(|| {
            let told = told(meta.kind, &kept.lost);
            let why = kept.damage.map(|why| format!(": {why}")).unwrap_or_default();
            format!("{count} of {} entries, of keys from {told}{why}", meta.entries)
        });
        let name = FileName::new(meta.kind, meta.number);
        repaired.note(name, meta.bytes, ANEW, lost.unwrap_or_default());
        let gap = |block: &LostBlock| -> KeyGap { block.first.clone()..=block.last.clone() };
        let gaps: Vec<_> = kept.lost.iter().map(gap).collect();
        repaired.lost.entries(kept.unknown, &gaps);
        self.files.extend(kept.file);
        self.bare.extend(kept.bare);
        self.has_bare |= kept.without_value > 0;
        self.superseded.extend(kept.superseded);
        Ok(true)
    }

    /// Whose past is lost, with the keys that were brought back at a revision.
    pub(super) fn lost(&self, files: &StoreFiles, back: Option<u64>) -> Outcome<Vec<LostPast>> {
        if self.blocks.is_empty() {
            let back = self.bare.iter().filter_map(|(key, _)| Some((&key[..], back?)));
            let keys = self.superseded.iter().map(|(key, upto)| (&key[..], *upto));
            return Ok(files.past_of_keys(keys.chain(back)));
        }
        Ok(files.past_of(&self.blocks)?)
    }
}

/// What the log has changed behind what is in files.
fn changed(files: &StoreFiles) -> Outcome<Changed> {
    let flushed = files.manifest().flushed_seq;
    let mut changed = Changed::new();
    for name in logs(files) {
        let end = log_end(files, name);
        walk(|step| {
            files.wal(name.number, &mut |offset, _, part| {
                if let WalPart::Frame(frame, _) = part
                    && frame.seq > flushed
                    && offset < end
                {
                    for op in frame.ops() {
                        let (key, lived) = match op.op {
                            Op::Put { key, .. } => (key, op.version > 1),
                            Op::Delete { key } => (key, true),
                            Op::Compact { .. } => continue,
                        };
                        if let Ok(Key::User(key)) = Key::decode(key) {
                            changed.entry(key.to_vec()).or_insert((frame.revision, lived));
                        }
                    }
                }
                step(Ok(())).map(|_| ())
            })
        })?;
    }
    Ok(changed)
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
    let told = told(FileKind::History, lost);
    let upto = lost.iter().map(|block| block.file.death_upto).max().unwrap_or(0);
    format!("versions, of keys from {told}, superseded up to revision {upto}")
}

/// The keys that blocks are between, in words.
fn told(kind: FileKind, lost: &[LostBlock]) -> String {
    let told = lost.iter().map(|block| {
        let cell = |key: &[u8]| key_cell(kind, key, usize::MAX);
        format!("{} to {}", cell(&block.first), cell(&block.last))
    });
    told.collect::<Vec<_>>().join(", ")
}
