//! Segments for the tests of background work.

use std::path::Path;

use annals_format::entry::EntryRef;
use annals_format::{FileKind, FileMeta, StoreId};

use super::floors::Floors;
use super::merge::{Replacement, Work};
use super::output::{Host, Output};
use crate::error::Result;
use crate::options::Options;
use crate::segment::{Segment, SegmentContext};
use crate::sync::Arc;
use crate::sync::plain::{AtomicU64, Ordering};
use crate::vfs::{MemoryVfs, Vfs as _};

/// A host that lets every work be done.
pub(super) struct Patient(AtomicU64);

impl Host for Patient {
    fn file_number(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn pace(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}

/// A store of nothing but segments.
pub(super) struct Files {
    pub(super) disk: MemoryVfs,
    context: SegmentContext,
    host: Patient,
}

impl Files {
    pub(super) fn new() -> Self {
        let disk = MemoryVfs::new();
        disk.create_dir_all(Path::new("/store/seg")).unwrap();
        let options = Options::new().vfs(Arc::new(disk.clone()));
        let context = SegmentContext::new(Path::new("/store"), StoreId([7; 16]), 1, &options);
        Self { disk, context, host: Patient(AtomicU64::new(0)) }
    }

    pub(super) fn work(&self, watermark: u64) -> Work<'_> {
        let (context, host, floors) = (&self.context, &self.host, Floors::all(watermark));
        Work { context, host, floors, segment_bytes: 1 << 20 }
    }

    pub(super) fn segment(
        &self,
        kind: FileKind,
        window: Option<(u64, u64)>,
        entries: &[EntryRef<'_>],
    ) -> Arc<Segment> {
        let mut output = Output::new(&self.context, &self.host, kind, window, 1 << 20);
        for entry in entries {
            output.add(entry).unwrap();
        }
        self.open(&output.finish().unwrap()[0])
    }

    pub(super) fn open(&self, meta: &FileMeta) -> Arc<Segment> {
        Arc::new(Segment::open(&self.context, meta, &Arc::default()).unwrap())
    }

    /// Kind, key, revision, death and `first` of all entries of what a piece of work has made.
    pub(super) fn made(&self, made: &Replacement) -> Vec<(FileKind, Vec<u8>, u64, u64, u64)> {
        let mut found = Vec::new();
        for meta in &made.added {
            let mut cursor = self.open(meta).cold_cursor();
            cursor.seek_first().unwrap();
            while let Some(entry) = cursor.entry() {
                let (key, first) = (entry.key.to_vec(), entry.first);
                found.push((meta.kind, key, entry.revision, entry.death, first));
                cursor.next().unwrap();
            }
        }
        found
    }
}

pub(super) fn entry(key: &[u8], revision: u64) -> EntryRef<'_> {
    EntryRef { key, revision, create_revision: 1, version: 1, ..EntryRef::default() }
}

pub(super) fn flushed(key: &[u8], revision: u64, first: u64) -> EntryRef<'_> {
    EntryRef { first, ..entry(key, revision) }
}

pub(super) fn dead(key: &[u8], revision: u64, death: u64) -> EntryRef<'_> {
    EntryRef { death, ..entry(key, revision) }
}
