//! The tail of the log: batches in, bytes out, one sync each.

use std::path::PathBuf;
use std::sync::Arc;

use annals_format::batch::{BYTES as BATCH_HEADER_BYTES, BatchHeader, BatchKind, FramesCrc};
use annals_format::checksum::FileSeed;
use annals_format::seal::{BYTES as SEAL_BYTES, Seal, SealKind};
use annals_format::sector::{PAGE_BYTES, SectorBuffer, stored_bytes};
use annals_format::wal_file::WalFileHeader;
use annals_format::{FileKind, ManifestStamp, Place, WalFile};

use super::files::WalFiles;
use crate::error::{Error, ErrorKind, Result};
use crate::vfs::File;

/// Memory the append buffer keeps between batches; a larger one is given back.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// What a batch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchInfo {
    /// The seq of its first frame.
    pub(crate) first_seq: u64,
    /// The seq of its last frame.
    pub(crate) last_seq: u64,
    /// The revision after the last frame.
    pub(crate) last_revision: u64,
    /// The highest seq known durable before this batch.
    pub(crate) durable_upto: u64,
}

/// The writer of the log, owned by whoever holds the sync role.
///
/// After an error it refuses everything: what the failed write left behind is for recovery to
/// judge.
#[derive(Debug)]
pub(crate) struct WalWriter {
    files: Arc<WalFiles>,
    active: Active,
    buffer: SectorBuffer,
    last_seq: u64,
    last_revision: u64,
    broken: Option<Arc<Error>>,
}

/// The file that is being written.
#[derive(Debug)]
struct Active {
    file: Arc<dyn File>,
    path: PathBuf,
    place: Place,
    seed: FileSeed,
    header: WalFileHeader,
    /// Where the next batch goes; page 0 is the header's, written with the first batch.
    tail: u64,
    batch_seq: u64,
    previous_crc: u32,
}

impl WalWriter {
    /// Goes on with the log in a new file; `last_seq` and `last_revision` are those of
    /// the log so far. The file is durable under its name on return, and stays all zero until the
    /// first batch; list it in a manifest before appending.
    ///
    /// # Errors
    /// The file could not be made.
    pub(crate) fn create(files: Arc<WalFiles>, last_seq: u64, last_revision: u64) -> Result<Self> {
        let (number, file_bytes, file) = files.take(0)?;
        let previous = files.listed().last().map_or(0, |last| last.number);
        let active = Active::new(&files, file, number, file_bytes, previous, last_seq + 1);
        files.push(active.listed());
        files.began(active.room());
        let buffer = SectorBuffer::default();
        Ok(Self { files, active, buffer, last_seq, last_revision, broken: None })
    }

    /// The files of the log; shared with the background worker.
    pub(crate) const fn files(&self) -> &Arc<WalFiles> {
        &self.files
    }

    /// Makes one batch of these frames durable: one write, one sync. On return it is.
    ///
    /// The frames must be the ones from `info.first_seq` to `info.last_seq`, in order.
    ///
    /// # Errors
    /// After any error the outcome of this batch is unknown and the writer is of no more use.
    pub(crate) fn append(
        &mut self,
        frames: &mut dyn Iterator<Item = &[u8]>,
        info: BatchInfo,
    ) -> Result<()> {
        self.check_usable()?;
        let outcome = self.try_append(frames, info);
        self.remember(outcome)
    }

    /// Ends the log: a seal that names the manifest in force, synced; then the file is cut to its
    /// length and the spare removed.
    ///
    /// # Errors
    /// What was appended stays durable whatever fails here.
    pub(crate) fn close(mut self, manifest: ManifestStamp) -> Result<()> {
        self.check_usable()?;
        self.write_seal(SealKind::Closed { manifest })?;
        let Active { file, path, tail, .. } = &self.active;
        file.set_len(*tail).map_err(|error| Error::io("truncate", path, error))?;
        file.sync_all().map_err(|error| Error::io("sync", path, error))?;
        self.files.end_last(*tail, self.last_seq);
        self.files.remove_spare()
    }

    fn try_append(
        &mut self,
        frames: &mut dyn Iterator<Item = &[u8]>,
        info: BatchInfo,
    ) -> Result<()> {
        // The batch header goes in front once it is known.
        self.buffer.clear();
        self.buffer.push(&[0; BATCH_HEADER_BYTES]);
        let mut frame_count = 0_u64;
        let mut frames_crc = FramesCrc::default();
        for frame in frames {
            frames_crc.push(frame);
            self.buffer.push(frame);
            frame_count += 1;
        }
        let expected = (info.last_seq + 1).saturating_sub(info.first_seq);
        if frame_count != expected || info.first_seq != self.last_seq + 1 || frame_count == 0 {
            let (first, last, before) = (info.first_seq, info.last_seq, self.last_seq);
            let what = format!("{frame_count} frames cannot be {first} to {last} after {before}");
            return Err(Error::invalid(what));
        }
        let needed = stored_bytes(self.buffer.logical_bytes());
        if self.active.room() < needed {
            self.roll(needed)?;
        }
        let frames_bytes = self.buffer.logical_bytes() - BATCH_HEADER_BYTES as u64;
        let header = BatchHeader {
            kind: BatchKind::Frames,
            batch_seq: self.active.batch_seq + 1,
            previous_crc: self.active.previous_crc,
            frame_count: u32::try_from(frame_count).unwrap_or(u32::MAX),
            body_bytes: frames_bytes,
            first_seq: info.first_seq,
            durable_upto: info.durable_upto,
            frames_crc: frames_crc.finish(),
        };
        self.active.write(&mut self.buffer, &header)?;
        self.last_seq = info.last_seq;
        self.last_revision = info.last_revision;

        if self.buffer.capacity() > BUFFER_BYTES_KEPT {
            self.buffer = SectorBuffer::default();
        }
        let Active { header, tail, .. } = &self.active;
        self.files.wrote(frames_bytes, self.active.room(), *tail > header.file_bytes / 2);
        Ok(())
    }

    /// Seals the file and goes on in the next, which has room for `needed` bytes of frames.
    fn roll(&mut self, needed: u64) -> Result<()> {
        let WalFileHeader { number, .. } = self.active.header;
        let (next_file, next_file_bytes, file) = self.files.take(needed)?;
        self.write_seal(SealKind::Rolled { next_file, next_file_bytes })?;
        self.files.end_last(self.active.tail, self.last_seq);
        let first_seq = self.last_seq + 1;
        let files = &self.files;
        self.active = Active::new(files, file, next_file, next_file_bytes, number, first_seq);
        self.files.push(self.active.listed());
        self.files.began(self.active.room());
        Ok(())
    }

    fn write_seal(&mut self, kind: SealKind) -> Result<()> {
        let seal = Seal { kind, last_seq: self.last_seq, last_revision: self.last_revision };
        let header = BatchHeader {
            kind: BatchKind::Seal,
            batch_seq: self.active.batch_seq + 1,
            previous_crc: self.active.previous_crc,
            frame_count: 0,
            body_bytes: SEAL_BYTES as u64,
            first_seq: self.last_seq + 1,
            durable_upto: self.last_seq,
            frames_crc: 0,
        };
        // Not the frames' buffer: that may hold the batch that did not fit.
        let mut buffer = SectorBuffer::default();
        buffer.push(&[0; BATCH_HEADER_BYTES]);
        buffer.push(&seal.encode(&self.active.place.at(self.active.tail)));
        self.active.write(&mut buffer, &header)
    }

    fn check_usable(&self) -> Result<()> {
        match &self.broken {
            None => Ok(()),
            Some(cause) => Err(ErrorKind::Poisoned { cause: Arc::clone(cause) }.into()),
        }
    }

    fn remember(&mut self, outcome: Result<()>) -> Result<()> {
        if let Err(error) = &outcome {
            self.broken = Some(Arc::new(error.clone()));
        }
        outcome
    }
}

impl Active {
    fn new(
        files: &WalFiles,
        file: Arc<dyn File>,
        number: u64,
        file_bytes: u64,
        previous_file: u64,
        first_seq: u64,
    ) -> Self {
        let context = files.context();
        let place = Place::start_of(context.store, FileKind::Wal, number);
        let header = WalFileHeader {
            store: context.store,
            number,
            file_bytes,
            previous_file,
            first_seq,
            incarnation: context.incarnation,
        };
        Self {
            file,
            path: context.path(number),
            place,
            seed: FileSeed::new(&place),
            header,
            tail: PAGE_BYTES as u64,
            batch_seq: 0,
            previous_crc: header.crc(),
        }
    }

    /// How a manifest lists the file.
    const fn listed(&self) -> WalFile {
        let WalFileHeader { number, incarnation, file_bytes, .. } = self.header;
        WalFile { number, incarnation, file_bytes, end: None }
    }

    /// Bytes left for batches.
    const fn room(&self) -> u64 {
        self.header.file_bytes - self.tail - PAGE_BYTES as u64
    }

    /// Writes the batch in `buffer`, whose first bytes become its header, and syncs.
    fn write(&mut self, buffer: &mut SectorBuffer, header: &BatchHeader) -> Result<()> {
        let (bytes, crc) = header.encode(&self.place.at(self.tail));
        buffer.overwrite_start(&bytes);
        buffer.seal(self.seed, self.tail);
        if self.batch_seq == 0 {
            let mut page = SectorBuffer::default();
            page.push(&self.header.encode());
            page.seal(self.seed, 0);
            self.write_at(page.sealed(), 0)?;
        }
        self.write_at(buffer.sealed(), self.tail)?;
        self.file.sync_data().map_err(|error| Error::io("sync", &self.path, error))?;
        self.tail += buffer.sealed().len() as u64;
        self.batch_seq += 1;
        self.previous_crc = crc;
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|error| Error::io("write", &self.path, error))
    }
}
