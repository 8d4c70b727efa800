//! Finding the true end of the log, and all frames up to it that are in no segment.
//!
//! The manifest lists the files it knew of; a file that was rolled over names its successor in its
//! seal; so the row is complete, and a missing, truncated, extended, exchanged or foreign file is
//! found. Only the last file may have an open end, and there the tail rule decides.

use std::io;

use annals_format::limits::NUMBER_MAX;
use annals_format::seal::{Seal, SealKind};
use annals_format::sector::{PAGE_BYTES, SECTOR_BYTES};
use annals_format::{Frame, Manifest, WalFile};

use super::files::for_chunks;
use super::files::{self, LogFile};
use super::found::{Found, Tail};
use super::reader::WalScan;
use super::unnamed::find_unnamed_data;
use super::{Location, WalContext};
use crate::error::{Error, Result};
use crate::vfs::Access;

/// For whom the log is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The store's only writer: the end found is settled, leftovers are removed.
    Writer,
    /// A reader beside a writer that may be alive: nothing is written.
    ReadOnly,
    /// As `ReadOnly`, for who wants to know whether all of it is whole: nothing is passed over.
    Verify,
}

/// What was found at the end of the log instead of a complete batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TailReport {
    /// The number of the file.
    pub(crate) file: u64,
    /// Where the log ends.
    pub(crate) end: u64,
    /// Bytes dropped behind it, in sectors that had been written.
    pub(crate) dropped_bytes: u64,
    /// The first sector of the dropped batch that had never been written.
    pub(crate) missing: u64,
}

/// The log as recovery found it.
#[derive(Debug, Clone)]
pub(crate) struct Recovered {
    /// The seq of the last frame; that of the last flushed one if the log holds none.
    pub(crate) last_seq: u64,
    /// The revision after it.
    pub(crate) last_revision: u64,
    /// Every file of the log, oldest first, each with its end.
    pub(crate) files: Vec<LogFile>,
    /// The number for the file the log goes on in.
    pub(crate) next_number: u64,
    /// A batch that was torn, and dropped.
    pub(crate) torn: Option<TailReport>,
    /// Whether the log ends with the seal of a clean close.
    pub(crate) closed: bool,
}

/// Reads the log that `manifest` describes, handing over every frame behind `flushed_seq`. Batches before the
/// one with that frame are in segments, and passed over by their headers: so it takes the time of what has not been
/// flushed, and, where the batches before are small, of reading their file without looking at it.
///
/// In [`Mode::Writer`] everything that is needed is validated first; then the last accepted batch is written
/// again and synced, since its pages may never have reached the device, and files that nothing
/// names are removed. Record [`Recovered::files`] in a manifest, then call [`settle`].
///
/// # Errors
/// Corruption, with file and offset; or what `on_frame` answers. Nothing has been written then.
pub(crate) fn recover(
    context: &WalContext,
    manifest: &Manifest,
    mode: Mode,
    on_frame: &mut dyn FnMut(&Frame<'_>, Location) -> Result<()>,
) -> Result<Recovered> {
    let listing = files::list(context)?;
    let unnamed = find_unnamed_data(context, manifest, &listing)?;
    let mut recovery = Recovery::new(context, manifest, mode, on_frame);
    let mut next = recovery.row.first().copied();
    while let Some(file) = next {
        next = recovery.read_file(file)?;
    }
    recovery.check_end()?;
    let next_number = recovery.files.last().map_or(1, |last| last.file.number + 1);
    if mode == Mode::Writer && next_number > NUMBER_MAX {
        return Err(Error::invalid("the log has no file numbers left"));
    }
    for (number, damage) in unnamed {
        if number >= next_number {
            return Err(damage);
        }
    }
    if mode == Mode::Writer {
        recovery.write_last_batch_again()?;
        // Spares, and what is behind a manifest that lists it no more.
        let first = manifest.wal.first().map_or(1, |first| first.number);
        let row = first..next_number;
        let spares = listing.files.iter().filter(|(number, _)| !row.contains(number));
        let mut removed = false;
        for path in spares
            .map(|(number, _)| context.path(*number))
            .chain(listing.unfinished.iter().map(|name| context.wal_dir().join(name)))
        {
            files::remove_if_there(context, &path)?;
            removed = true;
        }
        if removed {
            files::sync_dir(context)?;
        }
    }
    Ok(Recovered {
        last_seq: recovery.last_seq,
        last_revision: recovery.last_revision,
        files: recovery.files,
        next_number,
        torn: recovery.torn,
        closed: recovery.closed,
    })
}

/// After a manifest with the recovered files is in force: cuts what lies behind their ends.
///
/// # Errors
/// The system refused. The store is correct all the same, and the next open tries again.
pub(crate) fn settle(context: &WalContext, recovered: &[LogFile]) -> Result<()> {
    for log in recovered {
        let Some(end) = log.file.end else { continue };
        let path = context.path(log.file.number);
        let file = context.vfs.open(&path, Access::Write);
        let file = file.map_err(|error| Error::io("open", &path, error))?;
        if file.len().map_err(|error| Error::io("read length of", &path, error))? != end {
            file.set_len(end).map_err(|error| Error::io("truncate", &path, error))?;
            file.sync_all().map_err(|error| Error::io("sync", &path, error))?;
        }
    }
    Ok(())
}

struct Recovery<'a> {
    context: &'a WalContext,
    manifest: &'a Manifest,
    mode: Mode,
    on_frame: &'a mut dyn FnMut(&Frame<'_>, Location) -> Result<()>,
    row: Vec<WalFile>,
    last_seq: u64,
    last_revision: u64,
    /// The seq, and the revision if it was read, that the next frame has to continue; unknown before the first
    /// one of the log.
    before: Option<(u64, Option<u64>)>,
    /// The time of the last frame read, and the last watermark set.
    last_time: i64,
    last_compact: u64,
    files: Vec<LogFile>,
    /// The last complete batch: file, start, end.
    last_batch: Option<(u64, u64, u64)>,
    torn: Option<TailReport>,
    closed: bool,
}

impl<'a> Recovery<'a> {
    fn new(
        context: &'a WalContext,
        manifest: &'a Manifest,
        mode: Mode,
        on_frame: &'a mut dyn FnMut(&Frame<'_>, Location) -> Result<()>,
    ) -> Self {
        Self {
            context,
            manifest,
            mode,
            on_frame,
            row: manifest.wal.clone(),
            last_seq: manifest.flushed_seq,
            last_revision: manifest.flushed_revision,
            before: None,
            last_time: i64::MIN,
            last_compact: 0,
            files: Vec::new(),
            last_batch: None,
            torn: None,
            closed: false,
        }
    }

    /// Reads one file and answers the next, as the manifest or a seal names it.
    fn read_file(&mut self, wal: WalFile) -> Result<Option<WalFile>> {
        let length = self.length_of(&wal)?;
        let limit = wal.end.unwrap_or(length);
        let live = self.mode != Mode::Writer;
        let mut scan = WalScan::open(self.context, wal.number, limit, live)?;
        if let Some((seq, revision)) = self.before {
            scan.continue_from(seq, revision);
        }
        if self.mode != Mode::Verify {
            scan.pass_over(self.manifest.flushed_seq);
        }
        let (sealed, tail) = loop {
            // From 0 for the first batch: the header is written, and written again, with it.
            let start = scan.offset();
            let found = self.step(&mut scan)?;
            let end = scan.offset();
            if let Found::End(tail) = found {
                break (None, tail);
            }
            self.last_batch = Some((wal.number, start, end));
            if let Found::PassedOver(last) = found {
                self.before = Some((last, None));
            }
            if let Found::Seal(_, seal) = found {
                break (Some(seal), Tail { end, torn_sectors: 0, missing: end });
            }
        };
        self.check_header(&scan, &wal)?;
        if live && wal.end.is_none() {
            // What was read may be in the page cache only; from here on it is relied on.
            let synced = scan.file().sync_data();
            synced.map_err(|error| Error::io("sync", scan.path(), error))?;
        }
        self.check_file_end(&scan, &wal, length, sealed.as_ref(), &tail)?;
        self.follow(&scan, &wal, sealed.as_ref(), &tail)
    }

    /// One batch; its frames go to the caller unless they are in segments already.
    fn step(&mut self, scan: &mut WalScan) -> Result<Found> {
        let manifest = self.manifest;
        let flushed_seq = manifest.flushed_seq;
        let path = scan.path().to_path_buf();
        let Self { on_frame, before, last_time, last_compact, last_seq, last_revision, .. } = self;
        scan.next(&mut |frame, location| {
            let refused = |expected: String, found: String| {
                Err(Error::corrupt(&path, location.offset, "frame", expected, found))
            };
            if before.is_none() && frame.seq > flushed_seq + 1 {
                let expected = format!("seq {} or lower", flushed_seq + 1);
                return refused(expected, format!("seq {}", frame.seq));
            }
            // Where the log passes from segments to memory it has to continue them.
            let step = match frame.seq.checked_sub(flushed_seq) {
                Some(0) => Some(0),
                Some(1) => Some(u64::from(frame.takes_revision())),
                _ => None,
            };
            let revision = step.map_or(frame.revision, |step| manifest.flushed_revision + step);
            if frame.revision != revision {
                return refused(format!("revision {revision}"), frame.revision.to_string());
            }
            let flushed_time =
                if frame.seq < flushed_seq { i64::MIN } else { manifest.flushed_time };
            let earliest = flushed_time.max(*last_time);
            if frame.time < earliest {
                return refused(format!("time {earliest} or later"), frame.time.to_string());
            }
            *last_time = frame.time;
            if let Some(compact) = frame.compact() {
                if compact <= *last_compact {
                    let expected = format!("a compaction above {last_compact}");
                    return refused(expected, compact.to_string());
                }
                *last_compact = compact;
            }
            *before = Some((frame.seq, Some(frame.revision)));
            if frame.seq <= flushed_seq {
                return Ok(());
            }
            (*last_seq, *last_revision) = (frame.seq, frame.revision);
            on_frame(frame, location)
        })
    }

    /// The length of a file, if it is one that the file may have.
    fn length_of(&self, wal: &WalFile) -> Result<u64> {
        let path = self.context.path(wal.number);
        let missing = || Error::corrupt(&path, 0, "wal file", "a file", "none");
        let file = match self.context.vfs.open(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing()),
            Err(error) => return Err(Error::io("open", &path, error)),
        };
        let length = file.len().map_err(|error| Error::io("read length of", &path, error))?;
        let may_be_cut = match wal.end {
            Some(end) => length == end,
            // Closing cuts the file behind its seal; that there is one is checked later.
            None => self.manifest.closed && length.is_multiple_of(PAGE_BYTES as u64) && length > 0,
        };
        if length == wal.file_bytes || (may_be_cut && length < wal.file_bytes) {
            return Ok(length);
        }
        let expected = match wal.end {
            Some(end) => format!("{end} or {} bytes", wal.file_bytes),
            None => format!("{} bytes", wal.file_bytes),
        };
        let offset = length.min(wal.file_bytes);
        Err(Error::corrupt(&path, offset, "wal file length", expected, format!("{length} bytes")))
    }

    fn check_header(&self, scan: &WalScan, wal: &WalFile) -> Result<()> {
        let Some(header) = scan.header() else { return Ok(()) };
        let previous = self.files.last().map(|last| last.file.number);
        let previous = previous.unwrap_or(header.previous_file);
        for (offset, structure, expected, found) in [
            (32, "wal file header file_bytes", wal.file_bytes, header.file_bytes),
            (40, "wal file header previous_file", previous, header.previous_file),
            // Of another copy of the store, where it is not the same.
            (56, "wal file header incarnation", wal.incarnation, header.incarnation),
        ] {
            if expected != found {
                let (expected, found) = (expected.to_string(), found.to_string());
                return Err(scan.damage(offset, structure, expected, found));
            }
        }
        Ok(())
    }

    fn check_file_end(
        &self,
        scan: &WalScan,
        wal: &WalFile,
        length: u64,
        sealed: Option<&Seal>,
        tail: &Tail,
    ) -> Result<()> {
        if let Some(end) = wal.end {
            if tail.end != end {
                let found = format!("the end at {}", tail.end);
                return Err(scan.damage(
                    tail.missing,
                    "wal file",
                    format!("batches to {end}"),
                    found,
                ));
            }
            return Ok(());
        }
        match sealed.map(|seal| seal.kind) {
            Some(SealKind::Closed { manifest }) => {
                let stamp = self.manifest.stamp();
                if length != tail.end && length != wal.file_bytes {
                    let expected = format!("{} bytes", tail.end);
                    return Err(scan.damage(
                        tail.end,
                        "wal file length",
                        expected,
                        length.to_string(),
                    ));
                }
                if manifest == stamp && self.manifest.closed {
                    return Ok(());
                }
                let expected = format!("the stamp of manifest {}", stamp.number);
                let found = format!("that of manifest {}", manifest.number);
                Err(scan.damage(tail.end, "seal manifest", expected, found))
            }
            Some(SealKind::Rolled { .. }) | None if length == wal.file_bytes => Ok(()),
            _ => {
                let found = format!("the end at {}", tail.end);
                Err(scan.damage(tail.missing, "wal file", "a closing seal", found))
            }
        }
    }

    /// Notes the file, and answers the one that has to come next.
    fn follow(
        &mut self,
        scan: &WalScan,
        wal: &WalFile,
        sealed: Option<&Seal>,
        tail: &Tail,
    ) -> Result<Option<WalFile>> {
        if let Some(seal) = sealed {
            let flushed_seq = self.manifest.flushed_seq;
            if self.before.is_none() && seal.last_seq > flushed_seq {
                let (expected, found) = (format!("frames from seq {}", flushed_seq + 1), "none");
                return Err(scan.damage(tail.end, "wal file", expected, found));
            }
            self.before = Some((seal.last_seq, Some(seal.last_revision)));
        }
        let last_seq = self.before.map_or(0, |(seq, _)| seq);
        let file = WalFile { end: Some(tail.end), ..*wal };
        self.files.push(LogFile { file, last_seq });
        let listed = self.row.get(self.files.len()).copied();
        let rolled = match sealed.map(|seal| seal.kind) {
            Some(SealKind::Rolled { next_file, next_file_bytes }) => {
                Some(WalFile { number: next_file, file_bytes: next_file_bytes, end: None, ..*wal })
            }
            _ => None,
        };
        let open_end = wal.end.is_none() && rolled.is_none();
        let next = listed.or(rolled);
        if let Some(next) = next {
            let named = rolled.unwrap_or(next);
            let same = WalFile { end: None, ..next } == WalFile { end: None, ..named };
            if open_end || next.number != wal.number + 1 || !same {
                let expected = format!("a seal that names file {}", next.number);
                return Err(scan.damage(tail.end, "wal file", expected, "none"));
            }
        }
        if tail.torn_sectors > 0 {
            self.torn = Some(TailReport {
                file: wal.number,
                end: tail.end,
                dropped_bytes: tail.torn_sectors * SECTOR_BYTES as u64,
                missing: tail.missing,
            });
        }
        self.closed = matches!(sealed.map(|seal| seal.kind), Some(SealKind::Closed { .. }))
            && wal.end.is_none();
        Ok(next)
    }

    /// What is in segments was durable in the log before, so the log cannot end before it.
    fn check_end(&self) -> Result<()> {
        let Some((seq, _)) = self.before else { return Ok(()) };
        let Some(last) = self.files.last() else { return Ok(()) };
        if seq >= self.manifest.flushed_seq {
            return Ok(());
        }
        let path = self.context.path(last.file.number);
        let expected = format!("frames up to seq {}", self.manifest.flushed_seq);
        let end = last.file.end.unwrap_or(0);
        Err(Error::corrupt(path, end, "wal file", expected, format!("the last is {seq}")))
    }

    /// The last batch was accepted because it can be read; whether it was ever synced is unknown,
    /// and its pages may be clean without having been written. So it is written once more.
    fn write_last_batch_again(&self) -> Result<()> {
        let batch_file = self.last_batch.map(|(number, ..)| number);
        if let Some((number, start, end)) = self.last_batch {
            self.write_again(number, start, end)?;
        }
        // A file can have its header before its first batch; its end is recorded, too.
        match self.files.last() {
            Some(LogFile { file: WalFile { number, end: Some(end), .. }, .. })
                if Some(*number) != batch_file =>
            {
                self.write_again(*number, 0, *end)
            }
            _ => Ok(()),
        }
    }

    fn write_again(&self, number: u64, start: u64, end: u64) -> Result<()> {
        let path = self.context.path(number);
        let file = self.context.vfs.open(&path, Access::Write);
        let file = file.map_err(|error| Error::io("open", &path, error))?;
        for_chunks(&path, &*file, start, end, &mut |bytes, offset| {
            file.write_all_at(bytes, offset).map_err(|error| Error::io("write", &path, error))
        })?;
        file.sync_data().map_err(|error| Error::io("sync", &path, error))
    }
}
