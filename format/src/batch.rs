//! A batch: one write of the log, with everything one sync made durable.
//!
//! ```text
//! batch := header (64 bytes), body
//! body  := frame_count x frame      kind 1
//!        | seal                     kind 2
//! ```
//!
//! A batch starts on a page boundary and flows through the data of consecutive sectors. Each
//! names the checksum of the one before it, so that a batch cannot be left out or exchanged.

use crate::checksum::crc;
use crate::cursor::{Reader, SliceWriter, Writer};
use crate::error::{Problem, Result};
use crate::frame;
use crate::layout::{Layout, field};
use crate::limits::BATCH_BODY_BYTES_MAX;
use crate::place::Place;
use crate::seal;
use crate::sector::stored_bytes;

/// `"anbt"`: a batch starts here.
pub const MAGIC: u32 = u32::from_le_bytes(*b"anbt");
/// Bytes of the header.
pub const BYTES: usize = 64;

/// The byte map of the header.
pub const LAYOUT: Layout = Layout {
    structure: "batch header",
    fields: &[
        field(0, 4, "magic"),
        field(4, 1, "kind"),
        field(5, 3, "zero"),
        field(8, 8, "batch_seq"),
        field(16, 4, "previous_crc"),
        field(20, 4, "frame_count"),
        field(24, 8, "body_bytes"),
        field(32, 8, "first_seq"),
        field(40, 8, "durable_upto"),
        field(48, 4, "frames_crc"),
        field(52, 8, "zero"),
        field(60, 4, "crc"),
    ],
};
const _: () = assert!(LAYOUT.bytes() == BYTES);

/// What the body of a batch is. Zero is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BatchKind {
    /// Frames, back to back.
    Frames = 1,
    /// A seal: the last thing in its file.
    Seal = 2,
}

/// The header of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// What the body is.
    pub kind: BatchKind,
    /// The batch's number in its file, from 1.
    pub batch_seq: u64,
    /// The `crc` of the batch before it; of the file header for the first of a file.
    pub previous_crc: u32,
    /// How many frames the body holds; 0 for a seal.
    pub frame_count: u32,
    /// How long the body is.
    pub body_bytes: u64,
    /// The seq of the first frame; for a seal, the seq the next frame will have.
    pub first_seq: u64,
    /// The highest seq known durable before this batch was written.
    pub durable_upto: u64,
    /// The CRC of the frames' stored header CRCs, in order; see [`FramesCrc`]. 0 for a seal.
    pub frames_crc: u32,
}

impl BatchHeader {
    /// The bytes of the header of a batch at `place`, and its CRC.
    pub fn encode(&self, place: &Place) -> ([u8; BYTES], u32) {
        let mut bytes = [0; BYTES];
        let mut writer = SliceWriter::new(&mut bytes);
        writer.put_u32(MAGIC);
        writer.put_u8(self.kind as u8);
        writer.put_zeros(3);
        writer.put_u64(self.batch_seq);
        writer.put_u32(self.previous_crc);
        writer.put_u32(self.frame_count);
        writer.put_u64(self.body_bytes);
        writer.put_u64(self.first_seq);
        writer.put_u64(self.durable_upto);
        writer.put_u32(self.frames_crc);
        writer.put_zeros(8);
        let (covered, stored) = bytes.split_at_mut(BYTES - 4);
        let crc = crc(place, &[covered]);
        stored.copy_from_slice(&crc.to_le_bytes());
        (bytes, crc)
    }

    /// Decodes the header at the start of `bytes`, of a batch at `place`; answers it and its CRC.
    pub fn decode(bytes: &[u8], place: &Place) -> Result<(Self, u32)> {
        let mut reader = Reader::new(LAYOUT.structure, bytes);
        reader.magic(MAGIC)?;
        let mut end = reader.clone();
        end.bytes("header", BYTES - 8)?;
        let found = crc(place, &[end.consumed()]);
        end.checksum("crc", found)?;

        let kind_at = reader.position();
        let kind = match reader.u8("kind")? {
            1 => BatchKind::Frames,
            2 => BatchKind::Seal,
            kind => {
                let found = u64::from(kind);
                return Err(reader.error_at("kind", kind_at, Problem::Invalid { found }));
            }
        };
        reader.zeros("zero", 3)?;
        let batch_seq = reader.number("batch_seq", 1)?;
        let previous_crc = reader.u32("previous_crc")?;
        let frame_count_at = reader.position();
        let frame_count = reader.u32("frame_count")?;
        let body_bytes_at = reader.position();
        let body_bytes = reader.u64("body_bytes")?;
        let first_seq = reader.next_number("first_seq")?;
        let durable_at = reader.position();
        let durable_upto = reader.u64("durable_upto")?;
        let frames_crc = reader.u32("frames_crc")?;
        reader.zeros("zero", 8)?;

        let least = match kind {
            BatchKind::Frames => u64::from(frame_count) * frame::BYTES_MIN as u64,
            BatchKind::Seal => seal::BYTES as u64,
        };
        if body_bytes < least || body_bytes > BATCH_BODY_BYTES_MAX {
            let problem = Problem::TooLong { max: BATCH_BODY_BYTES_MAX, found: body_bytes };
            return Err(reader.error_at("body_bytes", body_bytes_at, problem));
        }
        if (frame_count == 0) != (kind == BatchKind::Seal) {
            let found = u64::from(frame_count);
            let problem = Problem::Invalid { found };
            return Err(reader.error_at("frame_count", frame_count_at, problem));
        }
        if durable_upto >= first_seq {
            let problem = Problem::Invalid { found: durable_upto };
            return Err(reader.error_at("durable_upto", durable_at, problem));
        }
        let header = Self {
            kind,
            batch_seq,
            previous_crc,
            frame_count,
            body_bytes,
            first_seq,
            durable_upto,
            frames_crc,
        };
        Ok((header, found))
    }

    /// Bytes of header and body.
    pub const fn logical_bytes(&self) -> u64 {
        BYTES as u64 + self.body_bytes
    }

    /// Bytes the batch takes in the file: whole pages.
    pub const fn stored_bytes(&self) -> u64 {
        stored_bytes(self.logical_bytes())
    }
}

/// Computes [`BatchHeader::frames_crc`].
///
/// It covers the header CRC of every frame, and those cover the headers and payloads: so the
/// leader binds all frames to the batch at the price of four bytes each.
#[derive(Debug, Default)]
pub struct FramesCrc(crc32fast::Hasher);

impl FramesCrc {
    /// Takes in the next frame. Bytes that do not start with a whole frame header count as nothing;
    /// decoding them fails elsewhere.
    pub fn push(&mut self, frame: &[u8]) {
        self.0.update(&frame::stored_header_crc(frame).unwrap_or_default());
    }

    /// The checksum of the frames taken in.
    pub fn finish(self) -> u32 {
        self.0.finalize()
    }
}
