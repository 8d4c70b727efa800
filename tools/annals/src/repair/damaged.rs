//! Which files of a store are damaged.

use std::collections::BTreeSet;
use std::path::Path;

use annals::inspect::StoreFiles;
use annals::{CheckReport, ErrorKind, Options};
use annals_format::name::FileName;
use annals_format::{FileKind, FileMeta};

/// What is damaged, but for `CURRENT` and the manifest: the store was opened, so what they say is known.
#[derive(Debug)]
pub(super) struct Damaged(pub(super) BTreeSet<FileName>);

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
        Self(names.filter(|name| !leads(name)).collect())
    }

    /// Has files of which the index cannot be read, but the blocks can, read by these.
    pub(super) fn regain(&self, files: &mut StoreFiles, options: &Options) {
        let is_damaged = |meta: &&FileMeta| self.0.contains(&FileName::new(meta.kind, meta.number));
        let metas: Vec<_> = files.manifest().files.iter().filter(is_damaged).cloned().collect();
        for meta in metas {
            files.regain(&meta, options);
        }
    }

    pub(super) fn has(&self, kinds: &[FileKind]) -> bool {
        self.0.iter().any(|name| kinds.contains(&name.kind))
    }
}
