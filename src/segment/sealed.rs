//! A segment file that the manifest lists, opened on first use.

use std::collections::BTreeMap;
use std::sync::Arc;

use annals_format::order::has_begun;
use annals_format::{FileKind, FileMeta};

use super::context::SegmentContext;
use super::reader::Segment;
use crate::error::Result;
use crate::sync::plain::OnceLock;

/// A sealed file, opened on first use.
#[derive(Debug)]
pub(crate) struct SealedFile {
    meta: FileMeta,
    context: Arc<SegmentContext>,
    /// The files that its entries refer to.
    blobs: Blobs,
    opened: OnceLock<Arc<Segment>>,
}

/// The blob files that the entries of a file refer to, in the order of their numbers.
pub(crate) type Blobs = Arc<[Arc<SealedFile>]>;

impl SealedFile {
    /// A file not yet opened whose references are not followed: a blob file, or one that is only copied.
    pub(crate) fn alone(context: &Arc<SegmentContext>, meta: FileMeta) -> Arc<Self> {
        Self::new(context, meta, Arc::default())
    }

    fn new(context: &Arc<SegmentContext>, meta: FileMeta, blobs: Blobs) -> Arc<Self> {
        Arc::new(Self { meta, context: Arc::clone(context), blobs, opened: OnceLock::new() })
    }

    /// Files not yet opened, which may refer to each other and to the blob files of `others`.
    pub(crate) fn all<'f>(
        context: &Arc<SegmentContext>,
        files: &[FileMeta],
        others: impl IntoIterator<Item = &'f Arc<Self>>,
    ) -> Vec<Arc<Self>> {
        let others = others.into_iter().filter(|file| file.meta.kind == FileKind::Blob).cloned();
        let blobs = files.iter().filter(|meta| meta.kind == FileKind::Blob);
        let blobs = blobs.map(|meta| Self::alone(context, meta.clone()));
        let blobs: BTreeMap<u64, Arc<Self>> =
            others.chain(blobs).map(|file| (file.meta.number, file)).collect();
        let sealed = |meta: &FileMeta| match blobs.get(&meta.number) {
            Some(blob) => Arc::clone(blob),
            None => {
                // One that is not there is told when a value of it is wanted.
                let refers = meta.blobs.iter().filter_map(|blob| blobs.get(&blob.file));
                Self::new(context, meta.clone(), refers.cloned().collect())
            }
        };
        files.iter().map(sealed).collect()
    }

    /// What the manifest says of it.
    pub(crate) fn meta(&self) -> &FileMeta {
        &self.meta
    }

    /// The opened file.
    ///
    /// Two threads may open it at once. Either result is as good, the later one is dropped, and neither
    /// waits for the other longer than it takes to move a pointer.
    pub(crate) fn open(&self) -> Result<&Arc<Segment>> {
        if let Some(segment) = self.opened.get() {
            return Ok(segment);
        }
        match Segment::open(&self.context, &self.meta, &self.blobs) {
            Ok(segment) => {
                let segment = Arc::new(segment);
                Ok(self.opened.get_or_init(|| segment))
            }
            // Whoever removes a file holds it first: if it has gone since this thread looked, it is
            // open by now.
            Err(error) => {
                let opened = self.opened.get();
                if opened.is_none() {
                    self.context.note(self.meta.kind, &error);
                }
                opened.ok_or(error)
            }
        }
    }

    /// The file as far as its blocks can be found, where its ends or its index cannot be read; it is held in memory, if it is
    /// not longer than `room`. `None` if there are none, or if it is another file.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn regain(&self, room: u64) -> Result<Option<Segment>> {
        Segment::regain(&self.context, &self.meta, &self.blobs, room)
    }

    /// Whether the file has been opened.
    #[cfg(test)]
    pub(crate) fn is_open(&self) -> bool {
        self.opened.get().is_some()
    }

    /// Opens the file so that it stays readable when its name is removed.
    pub(crate) fn hold(&self) -> Result<()> {
        self.open()?.hold()
    }

    /// Whether it is folded in part.
    pub(crate) fn is_begun(&self) -> bool {
        !self.meta.folded_to.is_empty()
    }

    /// The same file with another mark up to which it is folded. It must be open, so that whoever holds
    /// this one and whoever holds that one read through one door.
    pub(crate) fn folded_to(&self, key: &[u8]) -> Result<Arc<Self>> {
        let opened = OnceLock::from(Arc::clone(self.open()?));
        let meta = FileMeta { folded_to: key.to_vec(), ..self.meta.clone() };
        let (context, blobs) = (Arc::clone(&self.context), Arc::clone(&self.blobs));
        Ok(Arc::new(Self { meta, context, blobs, opened }))
    }

    /// Whether the part of the file that counts has the key in its range.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        let FileMeta { first_key, last_key, folded_to, .. } = &self.meta;
        first_key.as_slice() <= key && key <= last_key.as_slice() && has_begun(folded_to, key)
    }
}
