//! `MANIFEST-n`: which files make up the store, and how far it has come.
//!
//! ```text
//! manifest := header (48 bytes), record_count x record, crc u32
//! record   := kind u8, length varint, that many bytes
//! ```
//!
//! A manifest is written whole, never appended to: an edit cut off by a truncation could not be
//! told from one that was never written. `CURRENT` holds the exact length and checksum of the
//! manifest in force. The encoding is canonical: equal manifests have equal bytes.

use std::collections::BTreeSet;

use crate::checksum::crc;
use crate::cursor::{Reader, Writer};
use crate::error::{Problem, Result};
use crate::file_meta::FileMeta;
use crate::layout::{Layout, field};
use crate::limits::{MANIFEST_BYTES_MAX, NUMBER_MAX, RETENTION_PREFIX_BYTES_MAX};
use crate::place::{FileKind, Place, StoreId};
use crate::seal::ManifestStamp;
use crate::wal_file::is_file_bytes;

/// `"anmf"`: a manifest starts here.
pub const MAGIC: u32 = u32::from_le_bytes(*b"anmf");
/// The version this build writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 48;

/// The byte map of the header.
pub const LAYOUT: Layout = Layout {
    structure: "manifest header",
    fields: &[
        field(0, 4, "magic"),
        field(4, 4, "format_version"),
        field(8, 16, "store"),
        field(24, 8, "number"),
        field(32, 8, "manifest_bytes"),
        field(40, 4, "record_count"),
        field(44, 4, "zero"),
    ],
};
const _: () = assert!(LAYOUT.bytes() == HEADER_BYTES);

const CRC_BYTES: usize = 4;
const RECORD: &str = "manifest record";
const KIND_STATE: u8 = 1;
const KIND_WAL: u8 = 2;
const KIND_FILE: u8 = 3;
const KIND_FLOOR: u8 = 4;

/// Which files make up the store, and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The store.
    pub store: StoreId,
    /// The manifest's number; each one written is higher.
    pub number: u64,
    /// Bumped by every unclean open: tells apart revisions that a crash took back and that were
    /// issued again.
    pub incarnation: u64,
    /// The number the next new segment file gets.
    pub next_file: u64,
    /// The watermark of `compact`; 0 = never compacted.
    pub compacted: u64,
    /// The highest revision ever durable: revisions never go back behind it.
    pub revision_floor: u64,
    /// Every frame up to this seq is in segments. It was durable in the log before.
    pub flushed_seq: u64,
    /// The revision after that frame.
    pub flushed_revision: u64,
    /// The time of that frame.
    pub flushed_time: i64,
    /// The store was closed; the last WAL file may end with a seal that names this manifest.
    pub closed: bool,
    /// The WAL files that are still needed, oldest first, numbers consecutive.
    pub wal: Vec<WalFile>,
    /// The segment files.
    pub files: Vec<FileMeta>,
    /// How far back the keys of each rule of retention could be read when the manifest was made, by which segments
    /// may have been reclaimed: the prefix of users' keys, and the oldest revision; 0 for all. A key goes by the
    /// longest prefix, and by `compacted` without one. Each prefix once, ascending. The rules themselves are
    /// records, which may be in the log alone: this is for whoever reads a damaged one.
    pub floors: Vec<(Vec<u8>, u64)>,
}

/// A WAL file the manifest lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalFile {
    /// The file's number.
    pub number: u64,
    /// The incarnation of the store when the file was made, as in its header.
    pub incarnation: u64,
    /// How long it was made.
    pub file_bytes: u64,
    /// Where its content ends for good, if that is settled: it was sealed, or recovery accepted
    /// everything before and nothing behind. The file is this long or still `file_bytes` long.
    pub end: Option<u64>,
}

impl Manifest {
    /// The manifest of a store that is being made: revision 1 and nothing in it.
    pub const fn new(store: StoreId) -> Self {
        Self {
            store,
            number: 0,
            incarnation: 1,
            next_file: 1,
            compacted: 0,
            revision_floor: 1,
            flushed_seq: 0,
            flushed_revision: 1,
            flushed_time: i64::MIN,
            closed: false,
            wal: Vec::new(),
            files: Vec::new(),
            floors: Vec::new(),
        }
    }

    /// The bytes of the file, and the stamp `CURRENT` and a closing seal refer to it by.
    pub fn encode(&self) -> (Vec<u8>, ManifestStamp) {
        let mut records = Records::default();
        records.push(KIND_STATE, |out| self.encode_state(out));
        for wal in &self.wal {
            records.push(KIND_WAL, |out| wal.encode(out));
        }
        for file in &self.files {
            records.push(KIND_FILE, |out| file.encode(out));
        }
        for (prefix, floor) in &self.floors {
            records.push(KIND_FLOOR, |out| {
                out.put_prefixed(prefix);
                out.put_varint(*floor);
            });
        }
        let total = (HEADER_BYTES + records.bytes.len() + CRC_BYTES) as u64;
        let mut out = Vec::with_capacity(HEADER_BYTES + records.bytes.len() + CRC_BYTES);
        out.put_u32(MAGIC);
        out.put_u32(FORMAT_VERSION);
        out.put_bytes(&self.store.0);
        out.put_u64(self.number);
        out.put_u64(total);
        out.put_u32(records.count);
        out.put_u32(0);
        out.put_bytes(&records.bytes);
        let crc = crc(&place(self.store, self.number), &[&out]);
        out.put_u32(crc);
        (out, ManifestStamp { number: self.number, bytes: total, crc })
    }

    /// What identifies this manifest exactly: the same as [`encode`](Self::encode) answers.
    pub fn stamp(&self) -> ManifestStamp {
        self.encode().1
    }

    /// Decodes the whole file. The checksum is checked before the version, so that damage is not
    /// taken for a newer format.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        Ok(Self::decode_stamped(bytes)?.0)
    }

    /// As [`decode`](Self::decode), with the stamp of the file as it was read.
    pub fn decode_stamped(bytes: &[u8]) -> Result<(Self, ManifestStamp)> {
        let mut reader = Reader::new(LAYOUT.structure, bytes);
        reader.magic(MAGIC)?;
        let mut version = reader.clone();
        reader.bytes("format_version", 4)?;
        let store = StoreId(reader.array("store")?);
        let mut numbers = reader.clone();
        let number = reader.u64("number")?;
        let bytes_at = reader.position();
        let found = reader.u64("manifest_bytes")?;
        let expected = bytes.len() as u64;
        if found != expected || found > MANIFEST_BYTES_MAX {
            let problem = Problem::Mismatch { expected, found };
            return Err(reader.error_at("manifest_bytes", bytes_at, problem));
        }
        let mut end = reader.clone();
        end.bytes("records", end.remaining().saturating_sub(CRC_BYTES))?;
        let crc = crc(&place(store, number), &[end.consumed()]);
        end.checksum("crc", crc)?;
        version.version(FORMAT_VERSION)?;
        numbers.number("number", 0)?;
        let record_count = reader.u32("record_count")?;
        reader.zeros("zero", 4)?;

        let mut manifest = Self { number, ..Self::new(store) };
        let records_at = reader.position() as u64;
        let records = reader.bytes("records", reader.remaining().saturating_sub(CRC_BYTES))?;
        let mut records = Reader::new(RECORD, records);
        manifest
            .decode_records(record_count, &mut records)
            .map_err(|error| error.behind(records_at))?;
        Ok((manifest, ManifestStamp { number, bytes: expected, crc }))
    }

    fn decode_records(&mut self, count: u32, records: &mut Reader<'_>) -> Result<()> {
        let mut previous_kind = 0;
        for _ in 0..count {
            let kind_at = records.position();
            let kind = records.u8("kind")?;
            // Kinds ascend, and the state stands once.
            let repeats = matches!(kind, KIND_WAL | KIND_FILE | KIND_FLOOR);
            if kind < previous_kind || (kind == previous_kind && !repeats) {
                return Err(records.error_at("kind", kind_at, Problem::Order));
            }
            if previous_kind == 0 && kind != KIND_STATE {
                return Err(records.error_at("kind", kind_at, Problem::Order));
            }
            previous_kind = kind;
            let content = records.prefixed("length", MANIFEST_BYTES_MAX)?;
            let content_at = (records.position() - content.len()) as u64;
            let mut content = Reader::new(RECORD, content);
            self.decode_record(kind, &mut content)
                .and_then(|()| content.finish())
                .map_err(|error| error.behind(content_at))?;
        }
        if previous_kind == 0 {
            return Err(records.error("kind", Problem::Truncated { needed: 1, have: 0 }));
        }
        self.check_files(records)?;
        records.finish()
    }

    /// What the records say together: so that a number is given once, and sizes can be added up.
    fn check_files(&self, records: &Reader<'_>) -> Result<()> {
        let gap = self.wal.windows(2).any(|pair| pair[0].number + 1 != pair[1].number);
        let mut numbers: Vec<u64> = self.files.iter().map(|file| file.number).collect();
        numbers.sort_unstable();
        if gap || numbers.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(records.error("number", Problem::Order));
        }
        if let Some(&found) = numbers.last().filter(|last| **last >= self.next_file) {
            return Err(records.error("next_file", Problem::Invalid { found }));
        }
        // Incarnations only ever go up.
        let made = self.files.iter().map(|file| file.incarnation).max();
        if let Some(found) = made.filter(|made| *made > self.incarnation) {
            return Err(records.error("incarnation", Problem::Invalid { found }));
        }
        // A value that a file refers to lies in a file that is there.
        let blobs = self.files.iter().filter(|file| file.kind == FileKind::Blob);
        let blobs: BTreeSet<u64> = blobs.map(|file| file.number).collect();
        let mut refers = self.files.iter().flat_map(|file| &file.blobs);
        if let Some(missing) = refers.find(|blob| !blobs.contains(&blob.file)) {
            return Err(records.error("blob_file", Problem::Invalid { found: missing.file }));
        }
        // As much as anybody reckons for a file.
        let weights = self.files.iter().map(|file| {
            let of_entries = file.entries.saturating_mul(32).saturating_add(file.value_bytes);
            file.bytes.saturating_add(of_entries)
        });
        let found = weights.fold(0, u64::saturating_add);
        if found > NUMBER_MAX {
            return Err(records.error("bytes", Problem::TooLong { max: NUMBER_MAX, found }));
        }
        Ok(())
    }

    fn decode_record(&mut self, kind: u8, content: &mut Reader<'_>) -> Result<()> {
        match kind {
            KIND_STATE => self.decode_state(content)?,
            KIND_WAL => self.wal.push(WalFile::decode(content)?),
            KIND_FILE => self.files.push(FileMeta::decode(content)?),
            KIND_FLOOR => {
                let prefix = content.prefixed("prefix", RETENTION_PREFIX_BYTES_MAX)?;
                let before = self.floors.last().map_or(&[][..], |(before, _)| before);
                if before >= prefix {
                    return Err(content.error_at("prefix", 0, Problem::Order));
                }
                self.floors.push((prefix.to_vec(), content.varint_number("floor", 0)?));
            }
            _ => {
                let found = u64::from(kind);
                return Err(content.error_at("kind", 0, Problem::Invalid { found }));
            }
        }
        Ok(())
    }

    fn encode_state(&self, out: &mut Vec<u8>) {
        out.put_varint(self.incarnation);
        out.put_varint(self.next_file);
        out.put_varint(self.compacted);
        out.put_varint(self.revision_floor);
        out.put_varint(self.flushed_seq);
        out.put_varint(self.flushed_revision);
        out.put_i64(self.flushed_time);
        out.put_u8(u8::from(self.closed));
    }

    fn decode_state(&mut self, content: &mut Reader<'_>) -> Result<()> {
        self.incarnation = content.varint_number("incarnation", 1)?;
        self.next_file = content.varint_number("next_file", 1)?;
        self.compacted = content.varint_number("compacted", 0)?;
        self.revision_floor = content.varint_number("revision_floor", 1)?;
        self.flushed_seq = content.varint_number("flushed_seq", 0)?;
        self.flushed_revision = content.varint_number("flushed_revision", 1)?;
        self.flushed_time = content.i64("flushed_time")?;
        self.closed = decode_flag(content, "closed")?;
        Ok(())
    }
}

impl WalFile {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.number);
        out.put_varint(self.incarnation);
        out.put_varint(self.file_bytes);
        out.put_u8(u8::from(self.end.is_some()));
        if let Some(end) = self.end {
            out.put_varint(end);
        }
    }

    fn decode(content: &mut Reader<'_>) -> Result<Self> {
        let number = content.varint_number("number", 1)?;
        let incarnation = content.varint_number("incarnation", 1)?;
        let file_bytes_at = content.position();
        let file_bytes = content.varint("file_bytes")?;
        if !is_file_bytes(file_bytes) {
            let problem = Problem::Invalid { found: file_bytes };
            return Err(content.error_at("file_bytes", file_bytes_at, problem));
        }
        let has_end = decode_flag(content, "has_end")?;
        let end_at = content.position();
        let end = if has_end { Some(content.varint("end")?) } else { None };
        if let Some(found) = end.filter(|end| *end > file_bytes) {
            let problem = Problem::TooLong { max: file_bytes, found };
            return Err(content.error_at("end", end_at, problem));
        }
        Ok(Self { number, incarnation, file_bytes, end })
    }
}

/// Collects records and counts them.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    content: Vec<u8>,
    count: u32,
}

impl Records {
    fn push(&mut self, kind: u8, encode: impl FnOnce(&mut Vec<u8>)) {
        self.content.clear();
        encode(&mut self.content);
        self.bytes.put_u8(kind);
        self.bytes.put_prefixed(&self.content);
        self.count += 1;
    }
}

fn decode_flag(content: &mut Reader<'_>, field: &'static str) -> Result<bool> {
    let at = content.position();
    match content.u8(field)? {
        0 => Ok(false),
        1 => Ok(true),
        other => {
            let found = u64::from(other);
            Err(content.error_at(field, at, Problem::Invalid { found }))
        }
    }
}

const fn place(store: StoreId, number: u64) -> Place {
    Place::start_of(store, FileKind::Manifest, number)
}
