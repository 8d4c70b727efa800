//! A store as a stream, as of one moment, while others write.
//!
//! What is in it is found as for a [checkpoint](super::checkpoint): the manifest, what is visible and the
//! tables, under the lock of the state. Instead of their names the files themselves are held on to: whoever
//! removes a file that the tables show keeps it readable for those who have them. Files that only the
//! manifest knows yet are opened under the lock. The memory of what is in no file is written first, and let
//! go.

use std::collections::HashMap;

use annals_format::backup::{Codec, Header, Part};
use annals_format::checksum::ContentHasher;
use annals_format::name::FileName;
use annals_format::{FileKind, Manifest};

use crate::error::{Error, ErrorKind, Result};
use crate::index::{FrameCursor, Place};
use crate::sync::Arc;
use crate::sync::plain::lock;

use super::core::Core;
use super::stream::StreamWriter;
use super::tables::{SealedFile, Tables};

/// Bytes of a file that are read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// What goes into a backup, as of one moment.
#[derive(Debug)]
pub(crate) struct Content {
    core: Arc<Core>,
    manifest: Manifest,
    visible: Place,
    /// Until the state is written.
    tables: Option<Tables>,
    /// By number.
    files: Vec<Arc<SealedFile>>,
}

impl Content {
    /// What is visible now.
    ///
    /// # Errors
    /// `Closed`; what opening a file answers.
    pub(super) fn of(core: &Arc<Core>) -> Result<Self> {
        core.check_open()?;
        let content = {
            let _still = core.retention.still();
            let state = lock(&core.state);
            let mut manifest = state.manifest.clone();
            let visible = core.visible_place();
            core.bring_copy_to(&mut manifest, visible);
            let tables = core.shared.tables();
            let shown: HashMap<u64, &Arc<SealedFile>> =
                tables.files.all().map(|file| (file.meta().number, file)).collect();
            let mut files = Vec::with_capacity(manifest.files.len());
            for meta in &manifest.files {
                files.push(match shown.get(&meta.number).copied() {
                    Some(file) => Arc::clone(file),
                    None => {
                        let file = SealedFile::alone(&core.context, meta.clone());
                        file.hold()?;
                        file
                    }
                });
            }
            files.sort_unstable_by_key(|file| file.meta().number);
            Self { core: Arc::clone(core), manifest, visible, tables: Some(tables), files }
        };
        Ok(content)
    }

    /// The newest revision in it.
    pub(crate) fn revision(&self) -> u64 {
        self.visible.position.revision
    }

    /// How many files it has, and their bytes.
    pub(crate) fn files(&self) -> (u64, u64) {
        let bytes = self.files.iter().map(|file| file.meta().bytes).sum();
        (self.files.len() as u64, bytes)
    }

    /// The header of its backup.
    pub(crate) fn header(&self) -> Header {
        let Manifest { store, incarnation, compacted, .. } = self.manifest;
        Header { store, from: None, upto: self.revision(), compacted, incarnation }
    }

    /// Writes the manifest, and what is in no file yet.
    ///
    /// # Errors
    /// What the stream answers.
    pub(crate) fn write_state(&mut self, out: &mut StreamWriter<'_>) -> Result<()> {
        let manifest = Manifest { closed: true, wal: Vec::new(), ..self.manifest.clone() };
        out.section(Part::Manifest, 0, Codec::Zstd)?;
        out.write(&manifest.encode().0)?;
        let Some(tables) = self.tables.take() else { return Ok(()) };
        out.section(Part::Frames, 0, Codec::Zstd)?;
        let (first, last) = (manifest.flushed_seq, self.visible.position.seq);
        let mut seq = first;
        for generation in tables.generations.iter().rev() {
            let mut frames: FrameCursor = generation.frames();
            while let Some(frame) = frames.next(last) {
                // A generation whose flush has failed at its end has been written to files all the same.
                if frame.position().seq > first {
                    out.write(frame.bytes())?;
                    seq += 1;
                }
            }
        }
        if seq != last.max(first) {
            let what = format!("the frames end at {seq}, not at {last}");
            return Err(Error::invalid(what));
        }
        Ok(())
    }

    /// Writes the files.
    ///
    /// # Errors
    /// What the stream answers; `Corrupt` if a file is not what it was; `Closed`.
    pub(crate) fn write_files(&self, out: &mut StreamWriter<'_>) -> Result<()> {
        for file in &self.files {
            match self.write_file(file, out) {
                // Files are not to be had any more once the lock is given up.
                Err(_) if self.core.check_open().is_err() => return Err(ErrorKind::Closed.into()),
                written => written?,
            }
        }
        Ok(())
    }

    fn write_file(&self, file: &SealedFile, out: &mut StreamWriter<'_>) -> Result<()> {
        self.core.check_open()?;
        let meta = file.meta();
        // What is compressed already is not compressed again.
        let codec = match meta.kind {
            FileKind::History | FileKind::Events => Codec::Raw,
            _ => Codec::Zstd,
        };
        out.section(Part::File, meta.number, codec)?;
        let source = file.open()?;
        let mut hasher = ContentHasher::new();
        let mut offset = 0;
        while offset < meta.bytes {
            let count = usize::try_from(PIECE_BYTES.min(meta.bytes - offset)).unwrap_or(0);
            let piece = source.read(offset, count)?;
            hasher.update(&piece);
            out.write(&piece)?;
            offset += piece.len() as u64;
        }
        let (expected, found) = (meta.hash, hasher.finish());
        if found != expected {
            let structure = format!("content hash of {}", FileName::new(meta.kind, meta.number));
            let (expected, found) = (expected.to_string(), found.to_string());
            return Err(source.corrupt(&structure, expected, found));
        }
        Ok(())
    }
}
