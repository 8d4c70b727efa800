//! Writing the files that a piece of background work makes.

use annals_format::entry::EntryRef;
use annals_format::{FileKind, FileMeta};

use crate::error::Result;
use crate::segment::{NewSegment, SegmentContext, SegmentWriter};

/// What a piece of work needs of the engine while it runs.
pub(crate) trait Host {
    /// A file number never used before.
    fn file_number(&self) -> u64;

    /// Called after about every [`PACE_BYTES`] written: the place to let commits go first, and to
    /// stop when the store is closing.
    ///
    /// # Errors
    /// The work is to be given up.
    fn pace(&self, bytes: u64) -> Result<()>;
}

/// How much is written between two calls of [`Host::pace`].
pub(crate) const PACE_BYTES: u64 = 1 << 20;

/// Writes entries of one kind into files that are cut at a size.
///
/// Dropped without [`Output::finish`], it removes what it wrote.
pub(crate) struct Output<'a> {
    context: &'a SegmentContext,
    host: &'a dyn Host,
    kind: FileKind,
    window: Option<(u64, u64)>,
    segment_bytes: u64,
    writer: Option<SegmentWriter>,
    /// Bytes of the file being written that [`Host::pace`] has been told of.
    paced: u64,
    last_key: Vec<u8>,
    finished: Vec<FileMeta>,
}

impl<'a> Output<'a> {
    /// Files of a kind; `window` is that of HISTORY.
    pub(crate) fn new(
        context: &'a SegmentContext,
        host: &'a dyn Host,
        kind: FileKind,
        window: Option<(u64, u64)>,
        segment_bytes: u64,
    ) -> Self {
        Self {
            context,
            host,
            kind,
            window,
            segment_bytes,
            writer: None,
            paced: 0,
            last_key: Vec::new(),
            finished: Vec::new(),
        }
    }

    /// Adds the next entry, in the order of segments. A file is cut between two keys; in HISTORY
    /// one that has grown to twice the size also within a key.
    pub(crate) fn add(&mut self, entry: &EntryRef<'_>) -> Result<()> {
        if let Some(writer) = &self.writer {
            let bytes = writer.bytes();
            let full = bytes >= self.segment_bytes;
            let far_too_full = self.kind == FileKind::History && bytes / 2 >= self.segment_bytes;
            if full && (self.last_key != entry.key || far_too_full) {
                self.cut()?;
            }
        }
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                let new = NewSegment {
                    window: self.window,
                    ..NewSegment::new(self.kind, self.host.file_number())
                };
                SegmentWriter::create(self.context, new)?
            }
        };
        let added = writer.add(entry);
        let bytes = writer.bytes();
        self.writer = Some(writer);
        added?;
        if self.last_key != entry.key {
            self.last_key.clear();
            self.last_key.extend_from_slice(entry.key);
        }
        if bytes.saturating_sub(self.paced) >= PACE_BYTES {
            self.host.pace(bytes.saturating_sub(self.paced))?;
            self.paced = bytes;
        }
        Ok(())
    }

    /// Ends the file being written, so that the next entry begins another.
    pub(crate) fn cut(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            let number = writer.number();
            match writer.finish() {
                Ok(meta) => {
                    self.host.pace(meta.bytes.saturating_sub(self.paced))?;
                    self.finished.push(meta);
                }
                Err(error) => {
                    let _ = self.context.remove(self.kind, number);
                    return Err(error);
                }
            }
        }
        self.paced = 0;
        Ok(())
    }

    /// Ends the last file and answers all of them; none if nothing was added. The caller syncs the
    /// directory.
    pub(crate) fn finish(mut self) -> Result<Vec<FileMeta>> {
        self.cut()?;
        Ok(std::mem::take(&mut self.finished))
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        // Whatever cannot be removed is an orphan, and goes when the store is opened next.
        if let Some(writer) = self.writer.take() {
            let _ = writer.abandon();
        }
        for meta in &self.finished {
            let _ = self.context.remove(meta.kind, meta.number);
        }
    }
}
