//! Reading one WAL file, batch by batch, with memory for one batch.
//!
//! [`WalScan`] judges every sector it reads and applies the tail rule of the room's page; of batches that it
//! is told to pass over, the first sector alone. It
//! decides nothing about the log as a whole: where a file has to end is recovery's business.

mod header;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_format::batch::{BYTES as BATCH_HEADER_BYTES, BatchHeader, BatchKind, FramesCrc};
use annals_format::checksum::FileSeed;
use annals_format::cursor::is_zero;
use annals_format::frame::Binding;
use annals_format::seal::Seal;
use annals_format::sector::{DATA_BYTES, PAGE_BYTES, SECTOR_BYTES, Sector};
use annals_format::wal_file::WalFileHeader;
use annals_format::{FileKind, Frame, Place};

use super::found::{Found, Tail, stored_offset};
use super::window::Window;
use super::{Location, WalContext, undecodable};
use crate::error::{Corruption, Error, Result};
use crate::vfs::{Access, File};

/// How often bytes that a live writer may be changing are looked at again before they are judged.
const LIVE_ATTEMPTS: u32 = 8;

/// Reads one WAL file front to back.
#[derive(Debug)]
pub(crate) struct WalScan {
    window: Window,
    path: PathBuf,
    place: Place,
    binding: Binding,
    /// Where reading stops: the file's length, or its recorded end.
    limit: u64,
    live: bool,
    header: Option<WalFileHeader>,
    /// Where the next batch is expected.
    offset: u64,
    batch_seq: u64,
    previous_crc: u32,
    last_seq: Option<u64>,
    last_revision: Option<u64>,
    /// Batches that end before this seq are passed over.
    flushed_seq: u64,
    body: Vec<u8>,
}

/// A batch that has been read whole into the scan's body.
struct Whole {
    header: BatchHeader,
    crc: u32,
}

/// What stands at the place of the next batch.
enum Next {
    Whole(Whole),
    Tail(Tail),
}

impl WalScan {
    /// Opens file `number` to be read up to `limit` bytes. `live`: another process may be writing
    /// to it.
    pub(crate) fn open(context: &WalContext, number: u64, limit: u64, live: bool) -> Result<Self> {
        let path = context.path(number);
        let file = context.vfs.open(&path, Access::Read);
        let file = file.map_err(|error| Error::io("open", &path, error))?;
        Ok(Self::over(context, file, number, limit, live))
    }

    /// As [`open`](Self::open), of a file that is open.
    pub(crate) fn over(
        context: &WalContext,
        file: Arc<dyn File>,
        number: u64,
        limit: u64,
        live: bool,
    ) -> Self {
        let place = Place::start_of(context.store, FileKind::Wal, number);
        Self {
            window: Window::new(file, FileSeed::new(&place), limit, live),
            path: context.path(number),
            place,
            binding: Binding::new(&context.store),
            limit,
            live,
            header: None,
            offset: 0,
            batch_seq: 0,
            previous_crc: 0,
            last_seq: None,
            last_revision: None,
            flushed_seq: 0,
            body: Vec::new(),
        }
    }

    /// The log so far, which the first frame of this file has to continue.
    pub(crate) const fn continue_from(&mut self, last_seq: u64, last_revision: Option<u64>) {
        self.last_seq = Some(last_seq);
        self.last_revision = last_revision;
    }

    /// Has batches passed over whose last frame has a seq below this one: of such a batch the header is
    /// checked, and that it follows the one before, but nothing else is read. The one with this seq is read,
    /// so as to see that the log and the segments speak of the same transaction.
    pub(crate) const fn pass_over(&mut self, flushed_seq: u64) {
        self.flushed_seq = flushed_seq;
    }

    /// The file header, once [`next`](Self::next) has been called, if the file has one.
    pub(crate) const fn header(&self) -> Option<&WalFileHeader> {
        self.header.as_ref()
    }

    /// Where the next batch is expected: the end of everything found so far.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// The file.
    pub(crate) const fn file(&self) -> &Arc<dyn File> {
        &self.window.file
    }

    /// Looks at one sector, where nobody is writing, wherever the scan stands.
    pub(crate) fn sector(&mut self, offset: u64) -> Result<Sector<'_>> {
        self.window.settled_sector(&self.path, offset)
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the next batch, handing its frames to `on_frame`.
    ///
    /// # Errors
    /// Corruption, with the offset of the sector or field; or what `on_frame` answers.
    pub(crate) fn next(
        &mut self,
        on_frame: &mut dyn FnMut(&Frame<'_>, Location) -> Result<()>,
    ) -> Result<Found> {
        let mut attempt = 1;
        let next = loop {
            match self.read_next() {
                // Between two looks at a live file it grows; what seemed missing is there now.
                Err(error)
                    if self.live && attempt < LIVE_ATTEMPTS && error.corruption().is_some() =>
                {
                    attempt += 1;
                    self.window.forget();
                }
                other => break other?,
            }
        };
        match next {
            Next::Tail(tail) => Ok(Found::End(tail)),
            Next::Whole(whole) => self.accept(&whole, on_frame),
        }
    }

    /// After damage: goes to the next batch that starts behind it, wherever that is, and lets the
    /// log go on from there. Answers its offset, or `None` if there is none.
    pub(crate) fn resync(&mut self) -> Result<Option<u64>> {
        let mut offset = self.offset.saturating_add(SECTOR_BYTES as u64);
        while offset < self.limit {
            if offset.is_multiple_of(PAGE_BYTES as u64)
                && let Sector::Written { first: true, data } =
                    self.window.settled_sector(&self.path, offset)?
                && let Ok((header, _)) = BatchHeader::decode(data, &self.place.at(offset))
            {
                self.offset = offset;
                self.batch_seq = header.batch_seq.wrapping_sub(1);
                self.previous_crc = header.previous_crc;
                self.last_seq = Some(header.first_seq - 1);
                self.last_revision = None;
                return Ok(Some(offset));
            }
            offset += SECTOR_BYTES as u64;
        }
        Ok(None)
    }

    /// A damage of this file.
    pub(crate) fn damage(
        &self,
        offset: u64,
        structure: &str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Error {
        Corruption {
            file: self.path.clone(),
            offset,
            structure: structure.to_owned(),
            expected: expected.into(),
            found: found.into(),
            revision: self.last_revision.map(|revision| revision + 1),
            revision_upto: None,
        }
        .into()
    }

    fn read_next(&mut self) -> Result<Next> {
        if self.offset == 0
            && let Some(tail) = self.read_header_page()?
        {
            return Ok(Next::Tail(tail));
        }
        if self.offset >= self.limit {
            let end = self.offset;
            return Ok(Next::Tail(Tail { end, torn_sectors: 0, missing: end }));
        }
        self.read_batch()
    }

    fn decode_header(&self, offset: u64, data: &[u8; DATA_BYTES]) -> Result<(BatchHeader, u32)> {
        let revision = self.last_revision.map(|revision| revision + 1);
        let (header, crc) = BatchHeader::decode(data, &self.place.at(offset))
            .map_err(|error| undecodable(&self.path, offset, &error, revision))?;
        let (expected, found) = (self.limit - offset, header.stored_bytes());
        if found > expected {
            let expected = format!("a batch of at most {expected} bytes");
            return Err(self.damage(offset, "batch header", expected, found.to_string()));
        }
        Ok((header, crc))
    }

    /// Reads the batch at `self.offset` into `self.body`, or judges what stands there instead.
    fn read_batch(&mut self) -> Result<Next> {
        let start = self.offset;
        let (header, crc) = match self.window.sector(&self.path, start)? {
            Sector::Written { first: true, data } => {
                let data = *data;
                self.decode_header(start, &data)?
            }
            Sector::Unwritten => return self.judge_tail(start, None, start).map(Next::Tail),
            Sector::Rotten { expected, found } => return Err(self.rot(start, expected, found)),
            Sector::Written { first: false, .. } => {
                return Err(self.damage(start, "batch", "a first sector", "another sector"));
            }
        };
        self.check_chain(start, &header)?;
        if self.passed_over(&header).is_some() {
            return Ok(Next::Whole(Whole { header, crc }));
        }
        let end = start + header.stored_bytes();
        self.body.clear();
        for offset in (start..end).step_by(SECTOR_BYTES) {
            match self.window.sector(&self.path, offset)? {
                Sector::Written { first, data } if first == (offset == start) => {
                    self.body.extend_from_slice(data);
                }
                Sector::Unwritten => {
                    return self.judge_tail(start, Some(end), offset).map(Next::Tail);
                }
                Sector::Rotten { expected, found } => {
                    return Err(self.rot(offset, expected, found));
                }
                Sector::Written { .. } => {
                    let found = "the first sector of a batch";
                    return Err(self.damage(offset, "batch", "a sector of the batch", found));
                }
            }
        }
        let logical = usize::try_from(header.logical_bytes()).unwrap_or(usize::MAX);
        let padding = stored_offset(start, header.logical_bytes());
        self.check_padding(padding, self.body.get(logical..))?;
        self.body.truncate(logical);
        Ok(Next::Whole(Whole { header, crc }))
    }

    /// The seq of the last frame of a batch that is to be passed over.
    fn passed_over(&self, header: &BatchHeader) -> Option<u64> {
        let others = u64::from(header.frame_count).checked_sub(1)?;
        let last = header.first_seq.checked_add(others)?;
        (last < self.flushed_seq).then_some(last)
    }

    fn check_chain(&self, offset: u64, header: &BatchHeader) -> Result<()> {
        let (previous, found) = (u64::from(self.previous_crc), u64::from(header.previous_crc));
        let first_seq = self.last_seq.map_or(header.first_seq, |last| last + 1);
        let checks = [
            ("batch header batch_seq", self.batch_seq.wrapping_add(1), header.batch_seq),
            ("batch header previous_crc", previous, found),
            ("batch header first_seq", first_seq, header.first_seq),
        ];
        for (structure, expected, found) in checks {
            if expected != found {
                let (expected, found) = (expected.to_string(), found.to_string());
                return Err(self.damage(offset, structure, expected, found));
            }
        }
        Ok(())
    }

    /// Hands over the frames of a whole batch, or reads its seal.
    fn accept(
        &mut self,
        batch: &Whole,
        on_frame: &mut dyn FnMut(&Frame<'_>, Location) -> Result<()>,
    ) -> Result<Found> {
        let start = self.offset;
        let Whole { header, crc } = batch;
        let found = match (header.kind, self.passed_over(header)) {
            (BatchKind::Frames, Some(last)) => {
                (self.last_seq, self.last_revision) = (Some(last), None);
                Found::PassedOver(last)
            }
            (BatchKind::Frames, None) => {
                self.accept_frames(header, on_frame)?;
                Found::Batch(*header)
            }
            (BatchKind::Seal, _) => Found::Seal(start, self.read_seal(header)?),
        };
        self.offset = start + header.stored_bytes();
        self.batch_seq = header.batch_seq;
        self.previous_crc = *crc;
        if let Found::Seal(..) = found {
            self.check_unwritten(self.offset, self.limit, "space behind a seal")?;
        }
        Ok(found)
    }

    fn accept_frames(
        &mut self,
        header: &BatchHeader,
        on_frame: &mut dyn FnMut(&Frame<'_>, Location) -> Result<()>,
    ) -> Result<()> {
        let start = self.offset;
        let body = std::mem::take(&mut self.body);
        let mut frames_crc = FramesCrc::default();
        let mut position = BATCH_HEADER_BYTES;
        for (seq, _) in (header.first_seq..).zip(0..header.frame_count) {
            let bytes = body.get(position..).unwrap_or_default();
            let revision = self.last_revision.map(|revision| revision + 1);
            let (frame, used) = Frame::decode(bytes, &self.binding).map_err(|mut error| {
                let at = position as u64 + error.offset;
                error.offset = 0;
                undecodable(&self.path, stored_offset(start, at), &error, revision)
            })?;
            let offset = stored_offset(start, position as u64);
            let expected = self
                .last_revision
                .map_or(frame.revision, |last| last + u64::from(frame.takes_revision()));
            if frame.seq != seq || frame.revision != expected {
                let expected = format!("seq {seq} and revision {expected}");
                let found = format!("seq {} and revision {}", frame.seq, frame.revision);
                return Err(self.damage(offset, "frame header", expected, found));
            }
            frames_crc.push(bytes);
            let location =
                Location { file: self.place.file, batch_offset: start, offset, bytes: used as u64 };
            on_frame(&frame, location)?;
            self.last_seq = Some(seq);
            self.last_revision = Some(frame.revision);
            position += used;
        }
        let (expected, found) = (header.frames_crc, frames_crc.finish());
        if position != body.len() || expected != found {
            let expected = format!("{} bytes of frames, {expected:#010x}", body.len());
            let found = format!("{position} bytes, {found:#010x}");
            return Err(self.damage(start, "batch header frames_crc", expected, found));
        }
        self.body = body;
        Ok(())
    }

    fn read_seal(&self, header: &BatchHeader) -> Result<Seal> {
        let start = self.offset;
        let body = self.body.get(BATCH_HEADER_BYTES..).unwrap_or_default();
        let seal = Seal::decode(body, &self.place.at(start)).map_err(|error| {
            undecodable(&self.path, start + BATCH_HEADER_BYTES as u64, &error, None)
        })?;
        let last_revision = self.last_revision.unwrap_or(seal.last_revision);
        if seal.last_seq + 1 != header.first_seq || seal.last_revision != last_revision {
            let expected = format!("seq {} and revision {last_revision}", header.first_seq - 1);
            let found = format!("seq {} and revision {}", seal.last_seq, seal.last_revision);
            return Err(self.damage(start, "seal", expected, found));
        }
        Ok(seal)
    }

    /// The tail rule. `start` is where no complete batch stands, `missing` its first sector that
    /// was never written, `extent` where its last sector ends, if its header says so.
    fn judge_tail(&mut self, start: u64, extent: Option<u64>, missing: u64) -> Result<Tail> {
        let mut torn_sectors = 0;
        let mut offset = start;
        while offset < self.limit {
            match self.window.sector(&self.path, offset)? {
                Sector::Unwritten => {}
                Sector::Rotten { expected, found } => {
                    return Err(self.rot(offset, expected, found));
                }
                Sector::Written { first, .. } => {
                    // The first batch of a file is written together with its header.
                    let of_this = offset == start || (start == 0 && offset == PAGE_BYTES as u64);
                    let later_batch = first && !of_this;
                    if later_batch || extent.is_some_and(|extent| offset >= extent) {
                        let found = format!("none, though offset {offset} was written later");
                        return Err(self.damage(missing, "batch", "a complete batch", found));
                    }
                    torn_sectors += 1;
                }
            }
            offset += SECTOR_BYTES as u64;
        }
        Ok(Tail { end: start, torn_sectors, missing })
    }

    fn check_unwritten(&mut self, start: u64, end: u64, structure: &str) -> Result<()> {
        let mut offset = start;
        while offset < end {
            if self.window.sector(&self.path, offset)? != Sector::Unwritten {
                return Err(self.damage(offset, structure, "zero bytes", "other bytes"));
            }
            offset += SECTOR_BYTES as u64;
        }
        Ok(())
    }

    fn check_padding(&self, offset: u64, padding: Option<&[u8]>) -> Result<()> {
        if padding.is_none_or(is_zero) {
            return Ok(());
        }
        Err(self.damage(offset, "sector padding", "zero bytes", "other bytes"))
    }

    fn rot(&self, offset: u64, expected: u32, found: u32) -> Error {
        let (expected, found) = (format!("checksum {expected:#010x}"), format!("{found:#010x}"));
        self.damage(offset, "sector", expected, found)
    }
}
