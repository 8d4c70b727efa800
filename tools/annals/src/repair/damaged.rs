//! Which files of a store are damaged.

use std::collections::BTreeSet;
use std::path::Path;

use annals::inspect::StoreFiles;
use annals::{CheckReport, ErrorKind, Options};
use annals_format::name::FileName;
use annals_format::{FileKind, FileMeta};

/// What is damaged, but for `CURRENT` and the manifest: the store was opened, so what they say is known.
#[derive(Debug)]
pub(super) struct Damaged {
    pub(super) files: BTreeSet<FileName>,
    /// Those of them that cannot be read to the end.
    lossy: BTreeSet<FileName>,
}

impl Damaged {
    pub(super) fn of(data: &Path, report: &CheckReport) -> Self {
        let files = report.damage.iter().map(|damage| damage.file.as_path());
        // What the system does not let us read cannot be copied either.
        let refused = report.unchecked.iter().filter_map(|error| match error.kind() {
            ErrorKind::Io { path, .. } => Some(path.as_path()),
            _ => None,
        });
        let files = files.chain(refused);
        let inside = files.filter_map(|file| file.strip_prefix(data).ok()?.to_str());
        let names = inside.filter_map(FileName::parse);
        let leads = |name: &FileName| matches!(name.kind, FileKind::Current | FileKind::Manifest);
        let files: BTreeSet<_> = names.filter(|name| !leads(name)).collect();
        Self { lossy: files.clone(), files }
    }

    /// Has files of which the index cannot be read, but the blocks can, read by these. Where that is all of a file, nothing
    /// of it is lost.
    pub(super) fn regain(&mut self, files: &mut StoreFiles, options: &Options) {
        let is_damaged = |meta: &&FileMeta| self.files.contains(&name_of(meta));
        let metas: Vec<_> = files.manifest().files.iter().filter(is_damaged).cloned().collect();
        for meta in metas.iter().filter(|meta| files.regain(meta, options)).collect::<Vec<_>>() {
            let mut is_whole = true;
            let read = files
                .segment(meta)
                .and_then(|file| file.salvage(&mut |_| (), &mut |_, _| is_whole = false));
            if read.is_ok() && is_whole {
                self.lossy.remove(&name_of(meta));
            }
        }
    }

    /// Whether something may be lost of a file of these kinds.
    pub(super) fn has(&self, kinds: &[FileKind]) -> bool {
        self.lossy.iter().any(|name| kinds.contains(&name.kind))
    }

    /// Whether the newest versions are all there, or but for one file that all others may make up for.
    pub(super) fn can_be_copied(&self) -> bool {
        let newest = self.has(&[FileKind::L0, FileKind::Head]);
        !self.has(&[FileKind::Blob]) && (!newest || self.lossy.len() == 1)
    }

    /// Whether something is lost of HISTORY, and of nothing but the past.
    pub(super) fn is_of_history(&self) -> bool {
        let is_past = |name: &FileName| matches!(name.kind, FileKind::History | FileKind::Events);
        self.has(&[FileKind::History]) && self.lossy.iter().all(is_past)
    }
}

fn name_of(meta: &FileMeta) -> FileName {
    FileName::new(meta.kind, meta.number)
}
