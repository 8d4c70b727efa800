//! Reading a backup: its sections put together again, checked, and handed over.
//!
//! What is held is a piece of a file, or a frame, or a record, or the manifest; each is bounded by what the
//! format lets it be: 1 MiB, 1.1 GiB, 1 MiB and 256 MiB. No more is taken for it than has come of it.

use std::collections::BTreeMap;

use annals_format::backup::{Header, Kind, Part, State};
use annals_format::checksum::ContentHasher;
use annals_format::cursor::Reader;
use annals_format::frame::Binding;
use annals_format::limits::{INTERNAL_KEY_BYTES_MAX, MANIFEST_BYTES_MAX};
use annals_format::name::FileName;
use annals_format::space::Key;
use annals_format::{FileMeta, Frame, Manifest};

use crate::error::Result;

use super::stream::{StreamReader, damaged, undecodable};

/// Who gets what is in a backup; as it is, nobody.
pub(crate) trait Receiver {
    /// The manifest: before everything else.
    fn manifest(&mut self, manifest: &Manifest) -> Result<()> {
        let _ = manifest;
        Ok(())
    }

    /// The next frame, with its bytes.
    fn frame(&mut self, frame: &Frame<'_>, bytes: &[u8]) -> Result<()> {
        let _ = (frame, bytes);
        Ok(())
    }

    /// A file begins.
    fn file(&mut self, meta: &FileMeta) -> Result<()> {
        let _ = meta;
        Ok(())
    }

    /// The next bytes of the file.
    fn piece(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }

    /// The file is whole, and what it has to be.
    fn file_end(&mut self) -> Result<()> {
        Ok(())
    }

    /// The next record of the system's, of which an increment has all.
    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let _ = (key, value);
        Ok(())
    }
}

/// Reads a backup to its end. Answers the state that it leads to, and how many bytes it has.
///
/// # Errors
/// `Corrupt` with the offset in the stream; what the stream or the receiver answers.
pub(crate) fn receive(
    mut stream: StreamReader<'_, '_>,
    to: &mut dyn Receiver,
) -> Result<(State, u64)> {
    let header = *stream.header();
    let mut sections = Sections {
        to,
        binding: Binding::new(&header.store),
        section: Section::None,
        header,
        missing: BTreeMap::new(),
        seq: 0,
        revision: header.from.map_or(0, |from| from.revision),
        dense: header.kind() == Kind::Increment,
        last_key: Vec::new(),
    };
    let mut at = stream.offset();
    while let Some(piece) = stream.next()? {
        at = piece.at;
        if piece.begins {
            sections.end(at)?;
            sections.begin(piece.block.part, piece.block.number, at)?;
        }
        sections.piece(at, piece.block.offset, piece.bytes)?;
    }
    sections.end(at)?;
    sections.check(at)?;
    stream.finish()
}

/// The sections of one backup.
struct Sections<'a> {
    to: &'a mut dyn Receiver,
    binding: Binding,
    section: Section,
    header: Header,
    /// Files of the manifest that have not come yet, by number.
    missing: BTreeMap<u64, FileMeta>,
    /// That of the last frame.
    seq: u64,
    /// The revision after what has come so far.
    revision: u64,
    /// Whether every frame takes a revision.
    dense: bool,
    /// Of the last record.
    last_key: Vec<u8>,
}

/// What has come of a section.
enum Section {
    None,
    Manifest(Vec<u8>),
    Frames {
        /// The beginning of a frame.
        bytes: Vec<u8>,
        /// As many are needed to learn more of it.
        needed: usize,
    },
    File {
        meta: FileMeta,
        hasher: ContentHasher,
        bytes: u64,
    },
    /// The beginning of a record.
    System(Vec<u8>),
}

/// More than a record takes: a key, a value of 25 bytes at most, and their lengths.
const RECORD_BYTES_MAX: usize = (1 << 20) + 80;
const _: () = assert!(RECORD_BYTES_MAX as u64 >= INTERNAL_KEY_BYTES_MAX + 64);

/// Bytes of a frame that tell how long its header is.
const FRAME_HEAD: usize = 8;

impl Sections<'_> {
    fn begin(&mut self, part: Part, number: u64, at: u64) -> Result<()> {
        self.section = match part {
            Part::Manifest => Section::Manifest(Vec::new()),
            Part::Frames => Section::Frames { bytes: Vec::new(), needed: FRAME_HEAD },
            Part::File => {
                let Some(meta) = self.missing.remove(&number) else {
                    let found = format!("file {number}");
                    return Err(damaged(at, "backup block", "a file of the manifest", found));
                };
                self.to.file(&meta)?;
                Section::File { meta, hasher: ContentHasher::new(), bytes: 0 }
            }
            Part::System => Section::System(Vec::new()),
            Part::End => Section::None,
        };
        Ok(())
    }

    fn piece(&mut self, at: u64, offset: u64, piece: &[u8]) -> Result<()> {
        match &mut self.section {
            Section::None => Ok(()),
            Section::Manifest(bytes) => {
                if offset + piece.len() as u64 > MANIFEST_BYTES_MAX {
                    let most = format!("{MANIFEST_BYTES_MAX} bytes at most");
                    return Err(damaged(at, "backup: manifest", most, "more"));
                }
                bytes.extend_from_slice(piece);
                Ok(())
            }
            Section::Frames { .. } => self.frames(at, piece),
            Section::File { meta, hasher, bytes } => {
                hasher.update(piece);
                *bytes += piece.len() as u64;
                if *bytes > meta.bytes {
                    let name = FileName::new(meta.kind, meta.number);
                    let expected = format!("{} bytes", meta.bytes);
                    return Err(damaged(at, format!("backup: {name}"), expected, "more"));
                }
                self.to.piece(offset, piece)
            }
            Section::System(bytes) => {
                bytes.extend_from_slice(piece);
                self.records(at)
            }
        }
    }

    /// Hands over the records that are whole.
    fn records(&mut self, at: u64) -> Result<()> {
        let Section::System(bytes) = &mut self.section else { return Ok(()) };
        let mut reader = Reader::new("system record", bytes);
        let mut taken = 0;
        while !reader.is_empty() {
            let record = reader
                .prefixed("key", INTERNAL_KEY_BYTES_MAX)
                .and_then(|key| Ok((key, reader.prefixed("value", RECORD_BYTES_MAX as u64)?)));
            let (key, value) = match record {
                Ok(record) => record,
                Err(_) if bytes.len() - taken < RECORD_BYTES_MAX => break,
                Err(error) => return Err(undecodable(at, &error)),
            };
            match Key::decode(key) {
                Ok(Key::User(_)) | Err(_) => {
                    let found = key.escape_ascii().to_string();
                    return Err(damaged(at, "system record key", "one of the system's", found));
                }
                Ok(_) if key <= &self.last_key[..] => {
                    let found = key.escape_ascii().to_string();
                    return Err(damaged(at, "system record key", "ascending order", found));
                }
                Ok(_) => {}
            }
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
            self.to.record(key, value)?;
            taken = reader.position();
        }
        bytes.drain(..taken);
        Ok(())
    }

    /// Goes on with the frames.
    fn frames(&mut self, at: u64, mut piece: &[u8]) -> Result<()> {
        let Section::Frames { bytes, needed } = &mut self.section else { return Ok(()) };
        while !piece.is_empty() {
            let (taken, rest) = piece.split_at(needed.saturating_sub(bytes.len()).min(piece.len()));
            bytes.extend_from_slice(taken);
            piece = rest;
            if bytes.len() < *needed {
                break;
            }
            let damage = |error| undecodable(at, &error);
            let header = Frame::header_bytes(bytes).map_err(damage)?;
            if bytes.len() < header {
                *needed = header;
                continue;
            }
            let whole = Frame::measure(bytes, &self.binding).map_err(damage)?;
            if bytes.len() < whole {
                *needed = whole;
                continue;
            }
            let (frame, _) = Frame::decode(bytes, &self.binding).map_err(damage)?;
            let expected = self.seq + 1;
            let revision = self.revision + u64::from(frame.takes_revision());
            if (frame.seq, frame.revision) != (expected, revision)
                || (self.dense && !frame.takes_revision())
            {
                let expected = format!("seq {expected}, revision {revision}");
                let found = format!("seq {}, revision {}", frame.seq, frame.revision);
                return Err(damaged(at, "backup: frame", expected, found));
            }
            (self.seq, self.revision) = (frame.seq, frame.revision);
            self.to.frame(&frame, bytes)?;
            bytes.clear();
            *needed = FRAME_HEAD;
        }
        Ok(())
    }

    /// Ends a section, before what stands at `at`.
    fn end(&mut self, at: u64) -> Result<()> {
        match std::mem::replace(&mut self.section, Section::None) {
            Section::Manifest(bytes) => {
                let manifest = Manifest::decode(&bytes).map_err(|error| undecodable(at, &error))?;
                self.belongs(&manifest, at)?;
                self.to.manifest(&manifest)?;
                (self.seq, self.revision) = (manifest.flushed_seq, manifest.flushed_revision);
                let files = manifest.files.into_iter();
                self.missing = files.map(|meta| (meta.number, meta)).collect();
            }
            Section::Frames { bytes, needed } if !bytes.is_empty() => {
                let (expected, found) = (format!("{needed} bytes"), bytes.len().to_string());
                return Err(damaged(at, "backup: frame", expected, found));
            }
            Section::System(bytes) if !bytes.is_empty() => {
                let found = format!("{} bytes", bytes.len());
                return Err(damaged(at, "system record", "a whole one", found));
            }
            Section::Frames { .. } | Section::System(_) | Section::None => {}
            Section::File { meta, hasher, bytes } => {
                let found = (bytes, hasher.finish());
                if found != (meta.bytes, meta.hash) {
                    let name = FileName::new(meta.kind, meta.number);
                    let words = |(bytes, hash)| format!("{bytes} bytes, hash {hash}");
                    let expected = words((meta.bytes, meta.hash));
                    return Err(damaged(at, format!("backup: {name}"), expected, words(found)));
                }
                self.to.file_end()?;
            }
        }
        Ok(())
    }

    /// Checks that a manifest, before what stands at `at`, is that of the backup.
    fn belongs(&self, manifest: &Manifest, at: u64) -> Result<()> {
        let Manifest { store, compacted, revision_floor, incarnation, .. } = *manifest;
        let Header { store: its, compacted: to, upto, incarnation: opened, .. } = self.header;
        let is_its = (store, compacted, revision_floor, incarnation) == (its, to, upto, opened);
        if is_its && manifest.wal.is_empty() && manifest.closed {
            return Ok(());
        }
        let found = format!("manifest {} of {store}", manifest.number);
        Err(damaged(at, "backup: manifest", "what the header says", found))
    }

    /// Checks at the end, which stands at `at`, that nothing is missing.
    fn check(self, at: u64) -> Result<()> {
        if let Some((number, meta)) = self.missing.first_key_value() {
            let expected = format!("the file {}, too", FileName::new(meta.kind, *number));
            return Err(damaged(at, "backup", expected, "the end"));
        }
        if self.revision != self.header.upto {
            let (expected, found) = (self.header.upto.to_string(), self.revision.to_string());
            return Err(damaged(at, "backup: last revision", expected, found));
        }
        Ok(())
    }
}
