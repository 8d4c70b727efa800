//! A log written anew: what can be read of a damaged one, as far as nothing is missing.
//!
//! What is in segments is not needed again. So damage that comes before the first transaction that is in no other file costs
//! nothing, and neither does any other behind which the log can be read without a gap. Transactions behind a gap are
//! left out: a store has every revision.

use std::path::Path;

use annals::inspect::{StoreFiles, WalPart};
use annals::{Error, ErrorKind};
use annals_format::batch::{BYTES as BATCH_HEADER_BYTES, BatchHeader, BatchKind, FramesCrc};
use annals_format::checksum::FileSeed;
use annals_format::frame::{self, Binding, Frame, FrameSize};
use annals_format::name::FileName;
use annals_format::seal::SealKind;
use annals_format::sector::{PAGE_BYTES, SectorBuffer, stored_bytes};
use annals_format::wal_file::WalFileHeader;
use annals_format::{FileKind, Manifest, Place, WalFile};

use super::{Repaired, write_new};
use crate::exit::{Failure, Outcome};
use crate::files::{log_end, logs, walk};

/// Bytes of frames that are written together, unless one is longer.
const BATCH_BYTES: usize = 4 << 20;

/// The transactions that are in no other file, as far as they follow each other.
#[derive(Debug)]
pub(super) struct Anew {
    binding: Binding,
    first_seq: u64,
    frames: Vec<Vec<u8>>,
    seq: u64,
    /// The revision after the last of them.
    pub(super) revision: u64,
    /// Something could not be read since the last frame: there may have been others.
    gap: bool,
    /// Something is missing for sure.
    ended: bool,
    /// Transactions behind that, and the newest revision among them.
    behind: u64,
    upto: Option<u64>,
    /// The file that follows, as the last seal names it.
    next: Option<u64>,
    rows: Vec<Row>,
}

/// A file of the damaged log.
#[derive(Debug)]
struct Row {
    name: FileName,
    bytes: u64,
    /// The first damage that may have cost something.
    damage: Option<String>,
    /// Damage that cost nothing.
    harmless: bool,
    behind: u64,
}

/// Whether a file, or the rest of one, cannot be had for this reason, but others can.
pub(super) fn is_lost(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt(_) | ErrorKind::Io { .. })
}

impl Anew {
    /// Reads the log, and notes what becomes of its files.
    pub(super) fn read(files: &StoreFiles, repaired: &mut Repaired) -> Outcome<Self> {
        let manifest = files.manifest();
        let mut anew = Self {
            binding: Binding::new(&manifest.store),
            first_seq: manifest.flushed_seq + 1,
            frames: Vec::new(),
            seq: manifest.flushed_seq,
            revision: manifest.flushed_revision,
            gap: false,
            ended: false,
            behind: 0,
            upto: None,
            next: None,
            rows: Vec::new(),
        };
        // What comes before the first one listed is left over.
        let first = manifest.wal.first().map_or(u64::MAX, |first| first.number);
        for name in logs(files).into_iter().filter(|name| name.number >= first) {
            anew.missing(Some(name.number));
            anew.file(files, name)?;
        }
        anew.missing(None);
        anew.told(repaired);
        Ok(anew)
    }

    /// Notes the file that should come before the one of this number, or at the end, and is not there.
    fn missing(&mut self, number: Option<u64>) {
        let Some(next) = self.next.take().filter(|next| Some(*next) != number) else { return };
        self.row(FileName::new(FileKind::Wal, next), 0);
        self.damaged("it is not there".to_owned());
    }

    fn row(&mut self, name: FileName, bytes: u64) {
        self.rows.push(Row { name, bytes, damage: None, harmless: false, behind: 0 });
    }

    fn damaged(&mut self, what: String) {
        self.gap = true;
        if let Some(row) = self.rows.last_mut() {
            row.damage.get_or_insert(what);
        }
    }

    fn file(&mut self, files: &StoreFiles, name: FileName) -> Outcome {
        let bytes = files.file_bytes(name).unwrap_or(0);
        self.row(name, bytes);
        let listed = files.manifest().wal.iter().find(|file| file.number == name.number);
        let end = log_end(files, name);
        let mut made = listed.map_or(0, |file| file.file_bytes);
        let mut sealed = false;
        let walked = walk(|step| {
            files.wal(name.number, &mut |offset, _, part| {
                match part {
                    // A recovery has dropped it.
                    _ if offset >= end => {}
                    WalPart::FileHeader(header) => made = header.file_bytes,
                    WalPart::Damage(found) => self.damaged(found.to_string()),
                    WalPart::Frame(frame, _) => self.frame(frame),
                    WalPart::Seal(seal) => {
                        sealed = true;
                        if let SealKind::Rolled { next_file, .. } = seal.kind {
                            self.next = Some(next_file);
                        }
                    }
                    _ => {}
                }
                step(Ok(())).map(|_| ())
            })
        });
        match walked {
            Err(Failure::Engine { error, .. }) if is_lost(&error) => {
                self.damaged(error.to_string());
            }
            walked => walked?,
        }
        if !sealed && bytes < made.min(end) {
            self.damaged(format!("it is cut at {bytes} of {made} bytes"));
        }
        Ok(())
    }

    fn frame(&mut self, frame: &Frame<'_>) {
        let revision = self.revision + u64::from(frame.takes_revision());
        let is_next = frame.seq == self.seq + 1 && frame.revision == revision;
        if self.ended || (frame.seq > self.seq && !is_next) {
            self.ended = true;
            self.behind += u64::from(frame.takes_revision());
            self.upto = self.upto.max(Some(frame.revision));
            if let Some(row) = self.rows.last_mut() {
                row.behind += u64::from(frame.takes_revision());
            }
            return;
        }
        if std::mem::take(&mut self.gap) {
            for row in &mut self.rows {
                row.harmless |= row.damage.take().is_some();
            }
        }
        if is_next {
            self.frames.push(self.encoded(frame));
            (self.seq, self.revision) = (frame.seq, frame.revision);
        }
    }

    fn encoded(&self, frame: &Frame<'_>) -> Vec<u8> {
        let ops = || frame.ops().map(|op| op.op);
        let size = FrameSize::of(frame.metadata, ops());
        let mut bytes = vec![0; size.bytes()];
        let buffered = frame.is_buffered();
        frame::encode(&mut bytes, &self.binding, &size, buffered, frame.metadata, ops(), |_| ());
        let results = frame.ops().map(|op| (op.create_revision, op.version));
        let (seq, revision) = (frame.seq, frame.revision);
        frame::patch_header(&mut bytes, &self.binding, seq, revision, frame.time, results);
        bytes
    }

    fn told(&mut self, repaired: &mut Repaired) {
        for Row { name, bytes, damage, harmless, behind } in self.rows.drain(..) {
            let readable =
                format!("{behind} transactions can be read, but not what came before them");
            let (what, lost) = match damage {
                Some(damage) if behind > 0 => {
                    ("read, damaged", format!("what was committed there: {damage}; {readable}"))
                }
                Some(damage) => ("read, damaged", format!("what was committed there: {damage}")),
                None if behind > 0 => ("left out: it follows damage", readable),
                None if harmless => {
                    ("read, damaged where all of it is in other files", String::new())
                }
                None => ("read", String::new()),
            };
            repaired.note(name, bytes, what, lost);
        }
        if self.ended || self.gap {
            repaired.lost.transactions(self.revision + 1, self.upto, self.behind);
        }
    }

    /// Writes the log; answers how the manifest is to list it.
    pub(super) fn write(&self, to: &Path, manifest: &Manifest) -> Outcome<WalFile> {
        let number = manifest.wal.first().map_or(1, |first| first.number);
        let batches = self.batches();
        let bodies = batches.iter().map(|batch| BATCH_HEADER_BYTES + sum(batch));
        let stored: u64 = bodies.map(|logical| stored_bytes(logical as u64)).sum();
        let file_bytes = PAGE_BYTES as u64 + stored.max(PAGE_BYTES as u64);
        let header = WalFileHeader {
            store: manifest.store,
            number,
            file_bytes,
            previous_file: 0,
            first_seq: self.first_seq,
            incarnation: manifest.incarnation,
        };
        let place = Place::start_of(manifest.store, FileKind::Wal, number);
        let seed = FileSeed::new(&place);
        let mut content = Vec::new();
        let append = |content: &mut Vec<u8>, parts: &mut dyn Iterator<Item = &[u8]>| {
            let mut buffer = SectorBuffer::default();
            parts.for_each(|part| buffer.push(part));
            buffer.seal(seed, content.len() as u64);
            content.extend_from_slice(buffer.sealed());
        };
        // A header stands with the first batch, or not at all.
        if !batches.is_empty() {
            append(&mut content, &mut std::iter::once(&header.encode()[..]));
        }
        let (mut previous_crc, mut first_seq) = (header.crc(), self.first_seq);
        for (batch_seq, batch) in (1..).zip(batches) {
            let mut frames_crc = FramesCrc::default();
            for frame in batch {
                frames_crc.push(frame);
            }
            let head = BatchHeader {
                kind: BatchKind::Frames,
                batch_seq,
                previous_crc,
                frame_count: u32::try_from(batch.len()).unwrap_or(u32::MAX),
                body_bytes: sum(batch) as u64,
                first_seq,
                durable_upto: first_seq - 1,
                frames_crc: frames_crc.finish(),
            };
            let (bytes, crc) = head.encode(&place.at(content.len() as u64));
            let frames = batch.iter().map(Vec::as_slice);
            append(&mut content, &mut std::iter::once(&bytes[..]).chain(frames));
            (previous_crc, first_seq) = (crc, first_seq + batch.len() as u64);
        }
        content.resize(usize::try_from(file_bytes).unwrap_or(content.len()), 0);
        let name = FileName::new(FileKind::Wal, number).to_string();
        write_new(&to.join(name), &content[..])?;
        Ok(WalFile { number, incarnation: header.incarnation, file_bytes, end: None })
    }

    /// The frames, as they are written together.
    fn batches(&self) -> Vec<&[Vec<u8>]> {
        let mut batches = Vec::new();
        let (mut start, mut bytes) = (0, 0);
        for (at, frame) in self.frames.iter().enumerate() {
            if bytes > 0 && bytes + frame.len() > BATCH_BYTES {
                batches.extend(self.frames.get(start..at));
                (start, bytes) = (at, 0);
            }
            bytes += frame.len();
        }
        let last = self.frames.get(start..).filter(|last| !last.is_empty());
        batches.extend(last);
        batches
    }
}

fn sum(frames: &[Vec<u8>]) -> usize {
    frames.iter().map(Vec::len).sum()
}
