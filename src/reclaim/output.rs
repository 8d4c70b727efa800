//! Writing the files that a piece of background work makes.

use annals_format::entry::{BlobRef, EntryRef};
use annals_format::{FileKind, FileMeta};

use crate::error::{Error, Result};
use crate::segment::{EntryCursor, NewSegment, SegmentContext, SegmentWriter, Training};

use super::floors::Floors;

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

/// How much is written between two calls of [`Host::pace`]. As small as the system takes well, so that
/// what the log has to wait for comes in small pieces.
pub(crate) const PACE_BYTES: u64 = 256 << 10;

/// How many times the bytes of its first and last key a file holds at least, whatever the size at
/// which files are cut: the manifest has both keys of every file, and is rewritten whole.
const BYTES_PER_BOUND: u64 = 256;

/// The size at which a file with these first and last keys is cut.
pub(crate) fn cut_bytes(segment_bytes: u64, first_key: usize, last_key: usize) -> u64 {
    let bounds = (first_key as u64).saturating_add(last_key as u64);
    segment_bytes.max(bounds.saturating_mul(BYTES_PER_BOUND))
}

/// Writes entries of one kind into files that are cut at a size. Large values of newest versions go to blob files
/// beside them; what lies in one already stays there.
///
/// Dropped without [`Output::finish`], it removes what it wrote.
pub(crate) struct Output<'a> {
    context: &'a SegmentContext,
    host: &'a dyn Host,
    kind: FileKind,
    window: Option<(u64, u64)>,
    training: Training,
    segment_bytes: u64,
    writer: Option<SegmentWriter>,
    /// Bytes of the file being written that [`Host::pace`] has been told of.
    paced: u64,
    /// Length of the first key of the file being written.
    first_key: usize,
    last_key: Vec<u8>,
    finished: Vec<FileMeta>,
    /// Where large values go, once there is one.
    blobs: Option<Box<Self>>,
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
            training: Training::Thorough,
            segment_bytes,
            writer: None,
            paced: 0,
            first_key: 0,
            last_key: Vec::new(),
            finished: Vec::new(),
            blobs: None,
        }
    }

    /// Adds the next entry, in the order of segments. A file is cut between two keys; in HISTORY
    /// one that has grown to twice the size also within a key.
    ///
    /// # Errors
    /// A version that did not die in the window of the file is refused: the window would be dropped
    /// while it can still be asked for. And what the file system answers.
    pub(crate) fn add(&mut self, entry: &EntryRef<'_>) -> Result<()> {
        let bytes = entry.value.len() as u64;
        if !self.kind.may_refer() || bytes < self.context.blob_value_bytes {
            return self.write(entry);
        }
        let blobs = self.blobs.get_or_insert_with(|| {
            let (context, host) = (self.context, self.host);
            Box::new(Output::new(context, host, FileKind::Blob, None, context.blob_file_bytes))
        });
        // `first` and `lived` stand only in L0, so only in the entry that refers to it.
        blobs.write(&EntryRef { first: 0, lived: false, ..*entry })?;
        let file = blobs.writer.as_ref().map_or(0, SegmentWriter::number);
        self.write(&EntryRef { value: &[], blob: Some(BlobRef { file, bytes }), ..*entry })
    }

    fn write(&mut self, entry: &EntryRef<'_>) -> Result<()> {
        if let Some((after, upto)) = self.window
            && !(after < entry.death && entry.death <= upto)
        {
            let death = entry.death;
            return Err(Error::invalid(format!("a death at {death}, not in ({after}, {upto}]")));
        }
        if let Some(writer) = &self.writer {
            let bytes = writer.bytes();
            let enough = cut_bytes(self.segment_bytes, self.first_key, self.last_key.len());
            let full = bytes >= enough;
            let far_too_full = self.kind == FileKind::History && bytes / 2 >= enough;
            if full && (self.last_key != entry.key || far_too_full) {
                self.cut()?;
            }
        }
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                let new = NewSegment {
                    window: self.window,
                    training: self.training,
                    ..NewSegment::new(self.kind, self.host.file_number())
                };
                self.first_key = entry.key.len();
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
        // Less than before, when what had waited for its dictionary has been compressed.
        self.paced = self.paced.min(bytes);
        if bytes.saturating_sub(self.paced) >= PACE_BYTES {
            self.host.pace(bytes.saturating_sub(self.paced))?;
            self.paced = bytes;
        }
        Ok(())
    }

    /// As [`cut`](Self::cut), with another window for the files to come.
    pub(crate) fn cut_window(&mut self, window: (u64, u64)) -> Result<()> {
        self.cut()?;
        self.window = Some(window);
        Ok(())
    }

    /// Ends the file being written, so that the next entry begins another.
    pub(crate) fn cut(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            let number = writer.number();
            match writer.finish() {
                Ok(meta) => {
                    let bytes = meta.bytes.saturating_sub(self.paced);
                    // First: if the work is given up here, the file goes with the others.
                    self.finished.push(meta);
                    self.host.pace(bytes)?;
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
        if let Some(blobs) = self.blobs.take() {
            self.finished.extend(blobs.finish()?);
        }
        self.cut()?;
        Ok(std::mem::take(&mut self.finished))
    }
}

/// Writes superseded versions into HISTORY files, each of which holds keys of one class, and begins where
/// the floor of that class is.
pub(crate) struct History<'a> {
    output: Output<'a>,
    floors: &'a Floors,
    window: (u64, u64),
    piece: Option<usize>,
}

impl<'a> History<'a> {
    /// Files of a window. What is added has died in it, and not below the floor of its key.
    pub(crate) fn new(
        context: &'a SegmentContext,
        host: &'a dyn Host,
        floors: &'a Floors,
        window: (u64, u64),
        segment_bytes: u64,
    ) -> Self {
        let kind = FileKind::History;
        let output = Output::new(context, host, kind, Some(window), segment_bytes);
        Self { output, floors, window, piece: None }
    }

    /// Trains the dictionaries of the files as said, not thoroughly.
    #[must_use]
    pub(crate) fn training(mut self, training: Training) -> Self {
        self.output.training = training;
        self
    }

    /// Adds the next entry, in the order of segments.
    pub(crate) fn add(&mut self, entry: &EntryRef<'_>) -> Result<()> {
        let piece = self.floors.classes().piece_of(entry.key);
        if self.piece != Some(piece) {
            let (after, upto) = self.window;
            let floor = self.floors.of(entry.key);
            self.output.cut_window((after.max(floor.saturating_sub(1)).min(upto), upto))?;
            self.piece = Some(piece);
        }
        self.output.add(entry)
    }

    /// As [`add`](Self::add), of an entry whose value may lie in another file than the one that `cursor` has it from.
    pub(crate) fn add_from(
        &mut self,
        cursor: &impl EntryCursor,
        entry: &EntryRef<'_>,
    ) -> Result<()> {
        if entry.blob.is_none() {
            return self.add(entry);
        }
        let value = cursor.value()?;
        self.add(&EntryRef { value: &value, blob: None, ..*entry })
    }

    /// The files, to be finished.
    pub(crate) fn into_output(self) -> Output<'a> {
        self.output
    }
}

/// Ends several outputs of one piece of work. Answers all their files.
///
/// # Errors
/// As for [`Output::finish`]; nothing of any of them is left then.
pub(super) fn finish_all<'a>(
    context: &SegmentContext,
    outputs: impl IntoIterator<Item = Output<'a>>,
) -> Result<Vec<FileMeta>> {
    let mut files = Vec::new();
    for output in outputs {
        match output.finish() {
            Ok(finished) => files.extend(finished),
            Err(error) => {
                for meta in &files {
                    // What cannot be removed is an orphan, and goes when the store is opened next.
                    let _ = context.remove(meta.kind, meta.number);
                }
                return Err(error);
            }
        }
    }
    Ok(files)
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use annals_format::StoreId;

    use super::*;
    use crate::error::ErrorKind;
    use crate::options::Options;
    use crate::sync::plain::{AtomicU64, Ordering};
    use crate::vfs::{MemoryVfs, Vfs};

    /// A store that lets everything go on.
    #[derive(Default)]
    struct Patient(AtomicU64);

    impl Host for Patient {
        fn file_number(&self) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed) + 1
        }

        fn pace(&self, _bytes: u64) -> Result<()> {
            Ok(())
        }
    }

    /// The HEAD files of 1,500 small entries with keys of a length.
    fn files(key_bytes: usize, segment_bytes: u64) -> Vec<FileMeta> {
        let options = Options::new().vfs(Arc::new(MemoryVfs::new())).block_bytes(512);
        let context = SegmentContext::new(Path::new("/store"), StoreId([7; 16]), 1, &options);
        options.vfs.create_dir_all(Path::new("/store/seg")).unwrap();
        let host = Patient::default();
        let mut output = Output::new(&context, &host, FileKind::Head, None, segment_bytes);
        for number in 0..1_500_u32 {
            let mut key = format!("\x01{number:08}").into_bytes();
            key.resize(key_bytes, b'k');
            let entry =
                EntryRef { key: &key, revision: 2, create_revision: 2, ..EntryRef::default() };
            output.add(&EntryRef { version: 1, value: b"value", ..entry }).unwrap();
        }
        output.finish().unwrap()
    }

    #[test]
    fn a_file_is_not_cut_before_it_is_large_beside_its_bounds() {
        const CUT: u64 = 8 << 10;
        let short = files(9, CUT);
        let (_, cut) = short.split_last().unwrap();
        assert!(cut.len() > 1, "{short:?}");
        assert!(cut.iter().all(|meta| (CUT..2 * CUT).contains(&meta.bytes)), "{short:?}");
        let long = files(200, CUT);
        let (_, cut) = long.split_last().unwrap();
        assert!(!cut.is_empty());
        for meta in cut {
            let bounds = (meta.first_key.len() + meta.last_key.len()) as u64;
            assert!((256 * bounds..2 * 256 * bounds).contains(&meta.bytes), "{meta:?}");
        }
    }

    #[test]
    fn a_window_takes_the_deaths_in_it_and_no_other() {
        let options = Options::new().vfs(Arc::new(MemoryVfs::new()));
        let context = SegmentContext::new(Path::new("/store"), StoreId([7; 16]), 1, &options);
        options.vfs.create_dir_all(Path::new("/store/seg")).unwrap();
        let host = Patient::default();
        let takes = |death| {
            let mut output = Output::new(&context, &host, FileKind::History, Some((5, 9)), 1 << 20);
            let version = EntryRef { key: b"\x01k", revision: 3, death, ..EntryRef::default() };
            output.add(&EntryRef { create_revision: 3, version: 1, ..version }).is_ok()
        };
        assert_eq!([4, 5, 6, 8, 9, 10].map(takes), [false, false, true, true, true, false]);
    }

    /// A store that closes as soon as it is asked.
    struct Closing;

    impl Host for Closing {
        fn file_number(&self) -> u64 {
            1
        }

        fn pace(&self, _bytes: u64) -> Result<()> {
            Err(ErrorKind::Closed.into())
        }
    }

    #[test]
    fn work_given_up_when_a_file_is_finished_leaves_no_file() {
        let disk = MemoryVfs::new();
        disk.create_dir_all(Path::new("/store/seg")).unwrap();
        let options = Options::new().vfs(Arc::new(disk.clone()));
        let context = SegmentContext::new(Path::new("/store"), StoreId([7; 16]), 1, &options);
        let mut output = Output::new(&context, &Closing, FileKind::L0, None, 1 << 20);
        let entry =
            EntryRef { key: b"\x01a", revision: 2, create_revision: 2, ..EntryRef::default() };
        output.add(&EntryRef { version: 1, value: b"v", ..entry }).unwrap();
        assert!(!disk.paths().is_empty());
        assert!(output.finish().is_err());
        assert_eq!(disk.paths(), Vec::<String>::new());
    }
}
