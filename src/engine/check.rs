//! Checking every byte of a store without opening it: `annals verify`.
//!
//! Each file is checked by its own room; this adds what only the files together can say: that
//! every file the manifest lists is there, that EVENTS and the log leave out no revision, that every
//! value an entry refers to is in its blob file, and that every rule of retention can be read and has
//! come to a revision that is there.
//! Nothing is written. Damage is handed out, and the check goes on behind it. What could not be
//! checked is told apart from what is damaged: a file that the system does not let us read proves
//! nothing about its content.

use std::path::{Path, PathBuf};

use annals_format::name::FileName;
use annals_format::{FileKind, FileMeta, Frame, Manifest};

use crate::error::{Corruption, Error, ErrorKind, Result};
use crate::manifest::{CHECK_ATTEMPTS, ManifestStore};
use crate::options::Options;
use crate::segment::{SealedFile, SegmentContext};
use crate::sync::Arc;
use crate::wal::{self, Location, WalContext};

use super::log::check_transactions;
use super::retention::Records;

/// What a check came to.
#[derive(Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CheckReport {
    /// The damage, by file and offset as far as each is known.
    pub damage: Vec<Corruption>,
    /// How many of them cost nothing: they are in `CURRENT` or the manifest, and what was there stands in another
    /// place, too. Whatever opens the store for writing writes both anew.
    pub spared: usize,
    /// What could not be checked, and why.
    pub unchecked: Vec<Error>,
    /// A batch at the end of the log that was being written when the machine stopped. It was never
    /// acknowledged, so this is no damage.
    pub torn: Option<TornTail>,
    /// Files that were read.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// The newest durable revision found; 0 where the log could not be read.
    pub revision: u64,
    /// The watermark of compaction; 0 = never compacted.
    pub compacted: u64,
}

/// The torn end of a log, as a check found it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TornTail {
    /// The WAL file.
    pub file: PathBuf,
    /// Where what was acknowledged ends.
    pub offset: u64,
}

/// Checks every byte of the store in `directory`. `progress` is called with the bytes read so far
/// and the bytes there are.
///
/// The store may be open for writing elsewhere: then what was durable at some moment is checked.
///
/// # Errors
/// [`ErrorKind::NoStore`], [`ErrorKind::NotAStore`]: there is nothing to check. Everything else is
/// in the report.
pub fn check(
    directory: impl AsRef<Path>,
    options: &Options,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<CheckReport> {
    let directory = directory.as_ref();
    let manifests = ManifestStore::new(Arc::clone(&options.vfs), directory);
    check_of(&manifests, directory, options, progress)
}

/// [`check`], of the manifest that is found so.
pub(super) fn check_of(
    manifests: &ManifestStore,
    directory: &Path,
    options: &Options,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<CheckReport> {
    let read = |manifest: &Manifest| {
        let mut report = CheckReport::default();
        Check::new(directory, options, manifest, &mut report, progress).run();
        match manifests.damage(manifest) {
            Ok(damage) => {
                report.spared = damage.iter().filter(|error| error.corruption().is_some()).count();
                for error in damage {
                    report.note(error);
                }
            }
            Err(error) => report.note(error),
        }
        report
    };
    let sound = |report: &CheckReport| report.damage.is_empty() && report.unchecked.is_empty();
    match manifests.read_store(CHECK_ATTEMPTS, read, sound).map_err(Error::into_kind) {
        Ok(report) => Ok(report),
        Err(kind @ (ErrorKind::NoStore { .. } | ErrorKind::NotAStore { .. })) => Err(kind.into()),
        Err(kind) => {
            let mut report = CheckReport::default();
            report.note(kind.into());
            Ok(report)
        }
    }
}

impl CheckReport {
    fn note(&mut self, error: Error) {
        match error.into_kind() {
            ErrorKind::Corrupt(damage) => self.damage.push(*damage),
            other => self.unchecked.push(other.into()),
        }
    }
}

struct Check<'a> {
    directory: &'a Path,
    options: &'a Options,
    manifest: &'a Manifest,
    /// The segments, as the manifest lists them.
    segments: Vec<Arc<SealedFile>>,
    rules: Records,
    report: &'a mut CheckReport,
    progress: &'a mut dyn FnMut(u64, u64),
    total: u64,
}

impl<'a> Check<'a> {
    fn new(
        directory: &'a Path,
        options: &'a Options,
        manifest: &'a Manifest,
        report: &'a mut CheckReport,
        progress: &'a mut dyn FnMut(u64, u64),
    ) -> Self {
        let context = SegmentContext::new(directory, manifest.store, manifest.incarnation, options);
        let segments = SealedFile::all(&Arc::new(context), &manifest.files, []);
        let of_files = manifest.files.iter().map(|file| file.bytes);
        let of_wal = manifest.wal.iter().map(|file| file.end.unwrap_or(file.file_bytes));
        let total = of_files.chain(of_wal).sum();
        report.compacted = manifest.compacted;
        let rules = Records::new();
        Self { directory, options, manifest, segments, rules, report, progress, total }
    }

    fn run(&mut self) {
        self.log();
        for file in std::mem::take(&mut self.segments) {
            let meta = file.meta();
            let before = self.report.damage.len();
            if let Err(error) = self.segment(&file) {
                self.report.note(error);
            }
            let (first, upto) = self.revisions(meta);
            for damage in self.report.damage.iter_mut().skip(before) {
                *damage = damage.clone().of_revisions(first, upto);
            }
            self.advance(1, meta.bytes);
        }
        self.events();
    }

    fn advance(&mut self, files: u64, bytes: u64) {
        self.report.files += files;
        self.report.bytes += bytes;
        (self.progress)(self.report.bytes, self.total);
    }

    fn path(&self, kind: FileKind, number: u64) -> PathBuf {
        self.directory.join(FileName::new(kind, number).to_string())
    }

    fn log(&mut self) {
        let context = WalContext {
            vfs: Arc::clone(&self.options.vfs),
            dir: self.directory.to_path_buf(),
            store: self.manifest.store,
            incarnation: self.manifest.incarnation,
            wal_bytes: self.options.wal_bytes,
            quick_syncs: false,
        };
        let damage = &mut self.report.damage;
        let (mut highest, mut file) = (0, 0);
        let mut on_frame = |frame: &Frame<'_>, location: Location| {
            let floor = self.rules.highest_floor(frame);
            if floor > highest {
                (highest, file) = (floor, location.file);
            }
        };
        let mut on_damage = |found| damage.push(found);
        match wal::inspect::verify(&context, self.manifest, &mut on_frame, &mut on_damage) {
            Ok(Some(found)) => {
                let newest = found.last_revision.max(self.manifest.flushed_revision);
                self.report.revision = newest;
                self.floor();
                if highest > newest {
                    let file = self.path(FileKind::Wal, file);
                    self.report.note(Records::above(&file, highest, newest));
                }
                self.report.torn = found.torn.map(|tail| TornTail {
                    file: self.path(FileKind::Wal, tail.file),
                    offset: tail.end,
                });
            }
            // What keeps the log from being read is among the damage.
            Ok(None) => {}
            Err(error) => self.report.note(error),
        }
        let bytes = self.manifest.wal.iter().map(|file| file.end.unwrap_or(file.file_bytes)).sum();
        self.advance(self.manifest.wal.len() as u64, bytes);
    }

    /// What was once durable, or compacted, is there.
    fn floor(&mut self) {
        let (manifest, found) = (self.manifest, self.report.revision);
        for (what, least) in
            [("revision_floor", manifest.revision_floor), ("compacted", manifest.compacted)]
        {
            if found < least {
                let file = self.path(FileKind::Manifest, manifest.number);
                let expected = format!("a log up to revision {least} or later");
                let found = format!("revision {found}");
                let structure = format!("manifest: {what}");
                self.report.note(Error::corrupt(file, 0, structure, expected, found));
            }
        }
    }

    /// The revisions of what a segment holds. Records of the store's own have numbers that may be above any.
    fn revisions(&self, meta: &FileMeta) -> (u64, u64) {
        let newest = self.manifest.flushed_revision;
        (meta.min_revision.min(newest), meta.max_revision.min(newest))
    }

    fn segment(&mut self, file: &SealedFile) -> Result<()> {
        let (meta, segment) = (file.meta(), file.open()?);
        let before = self.report.damage.len();
        segment.verify(&mut |damage| self.report.damage.push(damage))?;
        if self.report.damage.len() > before {
            return Ok(());
        }
        // What is not in the segment itself: the values it refers to, and what values say.
        segment.verify_blobs(&mut |damage| self.report.damage.push(damage))?;
        match meta.kind {
            FileKind::Events => check_transactions(segment)?,
            // Without a log it is not known which revisions there are.
            FileKind::L0 | FileKind::Head if self.report.revision > 0 => {
                self.rules.check(segment, self.report.revision)?;
            }
            FileKind::L0 | FileKind::Head => self.rules.check(segment, u64::MAX)?,
            _ => {}
        }
        Ok(())
    }

    /// EVENTS hold every revision above the watermark that has left the log, each once.
    fn events(&mut self) {
        let mut spans: Vec<&FileMeta> =
            self.manifest.files.iter().filter(|meta| meta.kind == FileKind::Events).collect();
        spans.sort_unstable_by_key(|meta| meta.min_revision);
        let mut next = None;
        for meta in &spans {
            let expected = *next.get_or_insert(meta.min_revision);
            let held = meta.max_revision.saturating_sub(meta.min_revision).saturating_add(1);
            if meta.min_revision != expected || held != meta.entries {
                self.gap(meta, expected, held);
            }
            next = Some(meta.max_revision.saturating_add(1));
        }
        let oldest = spans.first().map(|meta| meta.min_revision);
        let wanted = self.manifest.compacted.max(2);
        if let (Some(oldest), Some(first)) = (oldest, spans.first())
            && oldest > wanted
        {
            self.gap(first, wanted, 0);
        }
    }

    fn gap(&mut self, meta: &FileMeta, expected: u64, held: u64) {
        self.report.note(Error::corrupt(
            self.path(FileKind::Manifest, self.manifest.number),
            0,
            format!("manifest: revisions of {}", FileName::new(meta.kind, meta.number)),
            format!("from {expected}, {held} entries"),
            format!(
                "from {} to {}, {} entries",
                meta.min_revision, meta.max_revision, meta.entries
            ),
        ));
    }
}
