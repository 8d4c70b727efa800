//! Reading a frame: borrowed, bounded, and walked whole before anything is answered.

use super::op::read_op;
use super::{
    Binding, CRC_BYTES, FIXED_BYTES, FLAG_BUFFERED, FLAG_REVISION, MAGIC, OPERATION_BYTES, Op,
    PAYLOAD_BYTES_MAX, STRUCTURE, header_bytes,
};
use crate::cursor::Reader;
use crate::error::{DecodeError, Problem, Result};
use crate::limits::{METADATA_BYTES_MAX, TRANSACTION_OPERATIONS_MAX};

const PAYLOAD: &str = "frame payload";

/// A decoded frame; it borrows from the bytes it was decoded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The place in the order: dense, one per frame, from 1.
    pub seq: u64,
    /// The store's revision after this transaction.
    pub revision: u64,
    /// When, in microseconds since the Unix epoch.
    pub time: i64,
    /// The caller's opaque metadata.
    pub metadata: &'a [u8],
    flags: u32,
    op_count: usize,
    compact: Option<u64>,
    results: &'a [u8],
    ops: &'a [u8],
}

/// One operation of a decoded frame, with what it made of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameOp<'a> {
    /// The operation.
    pub op: Op<'a>,
    /// How many writes of user keys come before it in the transaction: the `sub` of its revision.
    pub sub: u32,
    /// The `create_revision` of the version written; 0 unless a user key was put.
    pub create_revision: u64,
    /// The `version` of the version written; 0 unless a user key was put.
    pub version: u64,
}

impl<'a> Frame<'a> {
    /// Decodes the frame at the start of `bytes` and checks all of it; answers the frame and how
    /// many bytes it takes.
    pub fn decode(bytes: &'a [u8], binding: &Binding) -> Result<(Self, usize)> {
        Self::decode_with(bytes, Some(binding))
    }

    /// The same without the two checksums, for frames that never left this process's memory.
    pub fn view(bytes: &'a [u8]) -> Result<(Self, usize)> {
        Self::decode_with(bytes, None)
    }

    /// How many bytes the frame at the start of `bytes` takes, from its checked header alone;
    /// `bytes` may end with the header.
    pub fn measure(bytes: &'a [u8], binding: &Binding) -> Result<usize> {
        let (header, _) = Header::decode(bytes, Some(binding))?;
        Ok(header.frame_bytes())
    }

    /// Bytes that [`measure`](Self::measure) needs, read from the first eight bytes of a frame;
    /// bounded, but not yet covered by a checksum.
    pub fn header_bytes(bytes: &[u8]) -> Result<usize> {
        let mut reader = Reader::new(STRUCTURE, bytes);
        reader.magic(MAGIC)?;
        let at = reader.position();
        let found = u64::from(reader.u32("header_bytes")?);
        let max = header_bytes(0) as u64 + TRANSACTION_OPERATIONS_MAX * OPERATION_BYTES as u64;
        usize::try_from(found)
            .ok()
            .filter(|_| found <= max && found >= header_bytes(0) as u64)
            .ok_or_else(|| reader.error_at("header_bytes", at, Problem::TooLong { max, found }))
    }

    /// Whether the transaction writes user keys, and so took its revision.
    pub const fn takes_revision(&self) -> bool {
        self.flags & FLAG_REVISION != 0
    }

    /// Whether the transaction was acknowledged before it was durable.
    pub const fn is_buffered(&self) -> bool {
        self.flags & FLAG_BUFFERED != 0
    }

    /// The watermark it sets, if it sets one.
    pub const fn compact(&self) -> Option<u64> {
        self.compact
    }

    /// How many operations it has.
    pub const fn op_count(&self) -> usize {
        self.op_count
    }

    /// The operations, in order.
    pub const fn ops(&self) -> Ops<'a> {
        Ops { results: self.results, reader: Reader::new(PAYLOAD, self.ops), sub: 0 }
    }

    fn decode_with(bytes: &'a [u8], binding: Option<&Binding>) -> Result<(Self, usize)> {
        let (header, mut reader) = Header::decode(bytes, binding)?;
        let payload_at = reader.position();
        let payload = reader.bytes("payload", header.payload_bytes)?;
        if let Some(binding) = binding {
            let (expected, found) = (header.payload_crc, binding.payload_crc(payload));
            if expected != found {
                let problem = Problem::Checksum { expected, found };
                return Err(reader.error_at("payload", payload_at, problem));
            }
        }
        let within = |error: DecodeError| error.behind(payload_at as u64);
        let mut payload = Reader::new(PAYLOAD, payload);
        let metadata = payload.bytes("metadata", header.metadata_bytes).map_err(within)?;
        let mut frame = Self {
            seq: header.seq,
            revision: header.revision,
            time: header.time,
            metadata,
            flags: header.flags,
            op_count: header.op_count,
            compact: None,
            results: header.results,
            ops: payload.rest(),
        };
        let metadata_bytes = metadata.len() as u64;
        let checked = frame.check_ops().and_then(|()| match binding {
            Some(_) => frame.check_keys(),
            None => Ok(()),
        });
        checked.map_err(|error| {
            let error = within(error);
            error.behind(metadata_bytes)
        })?;
        Ok((frame, header.frame_bytes()))
    }

    /// Walks the operations once, so that [`ops`](Self::ops) cannot fail later.
    fn check_ops(&mut self) -> Result<()> {
        let mut ops = self.ops();
        let mut user = false;
        for index in 0..self.op_count {
            let at = ops.reader.position();
            let FrameOp { op, create_revision, version, .. } = ops.step()?;
            user |= op.is_user();
            let invalid =
                |field, found| Err(ops.reader.error_at(field, at, Problem::Invalid { found }));
            let (lowest, highest) = match op {
                Op::Put { .. } if op.is_user() => (1, self.revision),
                _ => (0, 0),
            };
            if create_revision < lowest || create_revision > highest {
                return invalid("create_revision", create_revision);
            }
            // The first version of a lifetime is the one that begins it, and each further one
            // takes a revision of its own.
            let possible = match self.revision.checked_sub(create_revision) {
                _ if lowest == 0 => version == 0,
                Some(0) => version == 1,
                Some(later) => version >= 2 && version - 1 <= later,
                None => false,
            };
            if !possible {
                return invalid("version", version);
            }
            if let Op::Compact { revision } = op {
                self.compact = Some(revision);
                if revision == 0 || revision > self.revision {
                    return invalid("revision", revision);
                }
                if index + 1 != self.op_count {
                    return Err(ops.reader.error_at("kind", at, Problem::Order));
                }
            }
        }
        if user != self.takes_revision() {
            let found = u64::from(self.flags);
            return Err(ops.reader.error("flags", Problem::Invalid { found }));
        }
        ops.reader.finish()
    }

    /// No key is written twice.
    fn check_keys(&self) -> Result<()> {
        let keys = || self.ops().filter_map(|op| op.op.key());
        if keys().is_sorted_by(|one, next| one < next) {
            return Ok(());
        }
        // As many as the results of the header have room for.
        let mut keys: Vec<&[u8]> = keys().collect();
        keys.sort_unstable();
        if keys.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(self.ops().reader.error("key", Problem::Order));
        }
        Ok(())
    }
}

/// The operations of a frame, in order.
#[derive(Debug, Clone)]
pub struct Ops<'a> {
    results: &'a [u8],
    reader: Reader<'a>,
    sub: u32,
}

impl<'a> Ops<'a> {
    fn step(&mut self) -> Result<FrameOp<'a>> {
        let op = read_op(&mut self.reader)?;
        let mut results = Reader::new(STRUCTURE, self.results);
        let create_revision = results.u64("create_revision")?;
        let version = results.u64("version")?;
        self.results = results.rest();
        let sub = self.sub;
        self.sub += u32::from(op.is_user());
        Ok(FrameOp { op, sub, create_revision, version })
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = FrameOp<'a>;

    fn next(&mut self) -> Option<FrameOp<'a>> {
        // The frame was walked when it was decoded, so an error cannot come up here.
        if self.results.is_empty() { None } else { self.step().ok() }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.results.len() / OPERATION_BYTES;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Ops<'_> {}

/// The header section, checked.
struct Header<'a> {
    payload_bytes: usize,
    payload_crc: u32,
    seq: u64,
    revision: u64,
    time: i64,
    op_count: usize,
    flags: u32,
    metadata_bytes: usize,
    results: &'a [u8],
}

impl<'a> Header<'a> {
    const fn frame_bytes(&self) -> usize {
        header_bytes(self.op_count) + self.payload_bytes
    }

    /// Decodes the header section at the start of `bytes`; the reader stands behind it.
    fn decode(bytes: &'a [u8], binding: Option<&Binding>) -> Result<(Self, Reader<'a>)> {
        let section_bytes = Frame::header_bytes(bytes)?;
        let mut reader = Reader::new(STRUCTURE, bytes);
        let covered = reader.clone().bytes("header", section_bytes)?;
        let covered = covered.get(..section_bytes - CRC_BYTES).unwrap_or_default();
        if let Some(binding) = binding {
            let mut end = reader.clone();
            end.bytes("header", section_bytes - CRC_BYTES)?;
            end.checksum("header_crc", binding.header_crc(covered))?;
        }
        reader.bytes("magic", 8)?;
        let payload_bytes = bounded(&mut reader, "payload_bytes", PAYLOAD_BYTES_MAX)?;
        let payload_crc = reader.u32("payload_crc")?;
        let seq = reader.number("seq", 1)?;
        let revision = reader.number("revision", 1)?;
        let time = reader.i64("time")?;
        let op_count_at = reader.position();
        let op_count = bounded(&mut reader, "op_count", TRANSACTION_OPERATIONS_MAX)?;
        if header_bytes(op_count) != section_bytes {
            let expected = header_bytes(op_count) as u64;
            let problem = Problem::Mismatch { expected, found: section_bytes as u64 };
            return Err(reader.error_at("op_count", op_count_at, problem));
        }
        let flags_at = reader.position();
        let flags = reader.u32("flags")?;
        if flags & !(FLAG_REVISION | FLAG_BUFFERED) != 0 {
            let found = u64::from(flags);
            return Err(reader.error_at("flags", flags_at, Problem::Invalid { found }));
        }
        let metadata_bytes = bounded(&mut reader, "metadata_bytes", METADATA_BYTES_MAX)?;
        reader.zeros("zero", FIXED_BYTES - reader.position())?;
        let results = reader.bytes("results", op_count * OPERATION_BYTES)?;
        reader.bytes("header_crc", CRC_BYTES)?;
        let header = Self {
            payload_bytes,
            payload_crc,
            seq,
            revision,
            time,
            op_count,
            flags,
            metadata_bytes,
            results,
        };
        Ok((header, reader))
    }
}

fn bounded(reader: &mut Reader<'_>, field: &'static str, max: u64) -> Result<usize> {
    let at = reader.position();
    let found = u64::from(reader.u32(field)?);
    usize::try_from(found)
        .ok()
        .filter(|_| found <= max)
        .ok_or_else(|| reader.error_at(field, at, Problem::TooLong { max, found }))
}
