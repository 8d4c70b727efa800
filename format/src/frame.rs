//! A frame: one transaction as it stands in the log.
//!
//! ```text
//! frame   := header section, payload
//! header  := fixed part (64 bytes), op_count x { create_revision u64, version u64 }, crc u32
//! payload := metadata, op_count x op
//! op      := 1, lease varint, key prefixed, value prefixed      put
//!          | 2, key prefixed                                    delete
//!          | 3, revision varint                                 compact
//! ```
//!
//! A frame is encoded once, where it will stay in memory. The payload is final at once and has
//! its own CRC. What is known only when the transaction finds its place in the order (seq,
//! revision, time, and what each put makes of its key) lies in the header section, which
//! [`patch_header`] fills in, as often as the place changes. So the log, replay, watch and EVENTS
//! need no lookup to know everything about a change.
//!
//! Keys are internal keys: the byte of the key space, then the key.

use std::ops::Range;

use crc32fast::Hasher;

use crate::cursor::{Reader, SliceWriter, Writer};
use crate::error::{DecodeError, Problem, Result};
use crate::layout::{Layout, field};
use crate::limits::{
    INTERNAL_KEY_BYTES_MAX, METADATA_BYTES_MAX, TRANSACTION_BYTES_MAX, TRANSACTION_OPERATIONS_MAX,
    VALUE_BYTES_MAX,
};
use crate::place::StoreId;
use crate::varint;

/// `"anfr"`: a frame starts here.
pub const MAGIC: u32 = u32::from_le_bytes(*b"anfr");
/// Bytes of the fixed part of the header section.
pub const FIXED_BYTES: usize = 64;
/// Bytes the header section has for each operation.
pub const OPERATION_BYTES: usize = 16;
/// Bytes of the smallest frame.
pub const BYTES_MIN: usize = header_bytes(0);
/// Largest payload: a largest transaction, and the few bytes around each operation.
pub const PAYLOAD_BYTES_MAX: u64 = TRANSACTION_BYTES_MAX + 32 * TRANSACTION_OPERATIONS_MAX;

/// The key space of leases and other things the store keeps for itself.
pub const SPACE_SYSTEM: u8 = 0;
/// The key space of the user's keys; only writes to it take a revision.
pub const SPACE_USER: u8 = 1;

/// Flag: the transaction writes user keys and so takes a revision of its own.
pub const FLAG_REVISION: u32 = 1;
/// Flag: the transaction was acknowledged before it was durable.
pub const FLAG_BUFFERED: u32 = 2;

/// The fixed part of the header section.
pub const LAYOUT: Layout = Layout {
    structure: "frame header",
    fields: &[
        field(0, 4, "magic"),
        field(4, 4, "header_bytes"),
        field(8, 4, "payload_bytes"),
        field(12, 4, "payload_crc"),
        field(16, 8, "seq"),
        field(24, 8, "revision"),
        field(32, 8, "time"),
        field(40, 4, "op_count"),
        field(44, 4, "flags"),
        field(48, 4, "metadata_bytes"),
        field(52, 12, "zero"),
    ],
};
const _: () = assert!(LAYOUT.bytes() == FIXED_BYTES);
const _: () = assert!(PAYLOAD_BYTES_MAX < u32::MAX as u64);

const STRUCTURE: &str = "frame header";
const PAYLOAD: &str = "frame payload";
const CRC_BYTES: usize = 4;
const SEQ_AT: usize = 16;
const TAG_HEADER: u8 = b'h';
const TAG_PAYLOAD: u8 = b'p';
const KIND_PUT: u8 = 1;
const KIND_DELETE: u8 = 2;
const KIND_COMPACT: u8 = 3;

/// What binds a frame's checksums to its store; made once per store.
///
/// A frame has no place in a file while it is made, so its two CRCs are bound to the store and to
/// what they cover; the sectors around it bind the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    header: u32,
    payload: u32,
}

impl Binding {
    /// The binding of this store's frames.
    pub fn new(store: &StoreId) -> Self {
        let seed = |tag| crate::checksum::crc_unplaced(store, tag, &[]);
        Self { header: seed(TAG_HEADER), payload: seed(TAG_PAYLOAD) }
    }

    fn header_crc(self, bytes: &[u8]) -> u32 {
        continue_crc(self.header, bytes)
    }

    fn payload_crc(self, bytes: &[u8]) -> u32 {
        continue_crc(self.payload, bytes)
    }
}

/// One operation of a transaction. Keys are internal keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op<'a> {
    /// Writes a version of the key.
    Put {
        /// The internal key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// The lease the key is attached to; 0 = none.
        lease: i64,
    },
    /// Writes a tombstone.
    Delete {
        /// The internal key.
        key: &'a [u8],
    },
    /// Moves the watermark below which nothing is answered any more.
    Compact {
        /// The new watermark.
        revision: u64,
    },
}

impl<'a> Op<'a> {
    /// The internal key the operation writes, if it writes one.
    pub const fn key(&self) -> Option<&'a [u8]> {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => Some(key),
            Self::Compact { .. } => None,
        }
    }

    /// Whether the operation writes a user key, and so makes its transaction take a revision.
    pub fn is_user(&self) -> bool {
        self.key().is_some_and(|key| key.first() == Some(&SPACE_USER))
    }

    /// How many bytes the operation takes in the payload.
    pub fn encoded_bytes(&self) -> usize {
        let prefixed = |bytes: &[u8]| varint::len(bytes.len() as u64) + bytes.len();
        match self {
            Self::Put { key, value, lease } => {
                1 + varint::len(lease.cast_unsigned()) + prefixed(key) + prefixed(value)
            }
            Self::Delete { key } => 1 + prefixed(key),
            Self::Compact { revision } => 1 + varint::len(*revision),
        }
    }
}

/// The exact size of a frame before it is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameSize {
    /// Bytes of the header section.
    pub header_bytes: usize,
    /// Bytes of the payload.
    pub payload_bytes: usize,
    /// Operations.
    pub op_count: usize,
    user: bool,
}

impl FrameSize {
    /// The size of a frame with this metadata and these operations.
    pub fn of<'a>(metadata: &[u8], ops: impl IntoIterator<Item = Op<'a>>) -> Self {
        let (mut payload_bytes, mut op_count, mut user) = (metadata.len(), 0, false);
        for op in ops {
            payload_bytes += op.encoded_bytes();
            op_count += 1;
            user |= op.is_user();
        }
        Self { header_bytes: header_bytes(op_count), payload_bytes, op_count, user }
    }

    /// Bytes of the whole frame.
    pub const fn bytes(&self) -> usize {
        self.header_bytes + self.payload_bytes
    }

    /// Whether the transaction writes user keys and so takes a revision.
    pub const fn takes_revision(&self) -> bool {
        self.user
    }

    /// Whether the format can hold such a frame. Stores set limits well below.
    pub const fn fits(&self) -> bool {
        self.payload_bytes as u64 <= PAYLOAD_BYTES_MAX
            && self.op_count as u64 <= TRANSACTION_OPERATIONS_MAX
    }
}

/// Where an operation's bytes lie in the frame that was just encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedOp {
    /// The operation's number, from 0.
    pub index: usize,
    /// Where the internal key lies; empty for a compact operation.
    pub key: Range<usize>,
    /// Where the value lies; empty where there is none.
    pub value: Range<usize>,
}

/// Encodes a frame into `out`, which must have exactly [`FrameSize::bytes`] bytes, and tells
/// `placed` where each operation's key and value lie. Everything that depends on the place in the
/// order stays zero until [`patch_header`].
///
/// # Panics
/// If `out` does not have the size of exactly this frame.
pub fn encode<'a>(
    out: &mut [u8],
    binding: &Binding,
    size: &FrameSize,
    buffered: bool,
    metadata: &[u8],
    ops: impl IntoIterator<Item = Op<'a>>,
    mut placed: impl FnMut(EncodedOp),
) {
    assert_eq!(out.len(), size.bytes(), "a frame is encoded into exactly its size");
    let (header, payload) = out.split_at_mut(size.header_bytes);
    let mut writer = SliceWriter::new(payload);
    writer.put_bytes(metadata);
    for (index, op) in ops.into_iter().enumerate() {
        let (key, value) = put_op(&mut writer, &op);
        let shift = |range: Range<usize>| range.start + header.len()..range.end + header.len();
        placed(EncodedOp { index, key: shift(key), value: shift(value) });
    }
    assert_eq!(writer.position(), size.payload_bytes, "a payload fills exactly its size");

    let flags =
        if size.user { FLAG_REVISION } else { 0 } | if buffered { FLAG_BUFFERED } else { 0 };
    let payload_crc = binding.payload_crc(payload);
    let mut fixed = SliceWriter::new(header);
    fixed.put_u32(MAGIC);
    fixed.put_u32(narrow(size.header_bytes));
    fixed.put_u32(narrow(size.payload_bytes));
    fixed.put_u32(payload_crc);
    fixed.put_zeros(24);
    fixed.put_u32(narrow(size.op_count));
    fixed.put_u32(flags);
    fixed.put_u32(narrow(metadata.len()));
    let rest = size.header_bytes - fixed.position();
    fixed.put_zeros(rest);
}

/// Fills in what the place in the order decides, and the header's CRC. May be called again when
/// the place changes.
///
/// `ops` has one `(create_revision, version)` per operation, in order: of the version that a put
/// of a user key writes, and (0, 0) for every other operation.
///
/// # Panics
/// If `frame` is not a frame made by [`encode`], or `ops` has another number of items than it has
/// operations.
pub fn patch_header(
    frame: &mut [u8],
    binding: &Binding,
    seq: u64,
    revision: u64,
    time: i64,
    ops: impl IntoIterator<Item = (u64, u64)>,
) {
    let header_bytes = stored_header_bytes(frame).unwrap_or(0);
    let (header, _) = frame.split_at_mut(header_bytes);
    let (covered, crc) = header.split_at_mut(header_bytes - CRC_BYTES);
    let mut writer = SliceWriter::new(&mut covered[SEQ_AT..]);
    writer.put_u64(seq);
    writer.put_u64(revision);
    writer.put_i64(time);
    let mut writer = SliceWriter::new(&mut covered[FIXED_BYTES..]);
    for (create_revision, version) in ops {
        writer.put_u64(create_revision);
        writer.put_u64(version);
    }
    let written = writer.position();
    assert_eq!(
        written,
        covered.len() - FIXED_BYTES,
        "one (create_revision, version) per operation"
    );
    crc.copy_from_slice(&binding.header_crc(covered).to_le_bytes());
}

/// The header CRC as it stands in a frame: what a batch header's checksum over its frames covers.
pub fn stored_header_crc(frame: &[u8]) -> Option<[u8; 4]> {
    let end = stored_header_bytes(frame)?;
    frame.get(end.checked_sub(CRC_BYTES)?..end)?.try_into().ok()
}

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
        let within =
            |error: DecodeError| DecodeError { offset: error.offset + payload_at as u64, ..error };
        let mut payload = Reader::new(PAYLOAD, payload);
        let metadata = payload.bytes("metadata", header.metadata_bytes).map_err(within)?;
        let frame = Self {
            seq: header.seq,
            revision: header.revision,
            time: header.time,
            metadata,
            flags: header.flags,
            op_count: header.op_count,
            results: header.results,
            ops: payload.rest(),
        };
        let metadata_bytes = metadata.len() as u64;
        frame.check_ops().map_err(|error| {
            let error = within(error);
            DecodeError { offset: error.offset + metadata_bytes, ..error }
        })?;
        Ok((frame, header.frame_bytes()))
    }

    /// Walks the operations once, so that [`ops`](Self::ops) cannot fail later.
    fn check_ops(&self) -> Result<()> {
        let mut ops = self.ops();
        let mut user = false;
        for _ in 0..self.op_count {
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
            if (version == 0) != (lowest == 0) {
                return invalid("version", version);
            }
        }
        if user != self.takes_revision() {
            let found = u64::from(self.flags);
            return Err(ops.reader.error("flags", Problem::Invalid { found }));
        }
        ops.reader.finish()
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
        let seq = at_least_one(&mut reader, "seq")?;
        let revision = at_least_one(&mut reader, "revision")?;
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

const fn header_bytes(op_count: usize) -> usize {
    FIXED_BYTES + op_count * OPERATION_BYTES + CRC_BYTES
}

/// The length of the header section as it stands in the frame, if the frame holds all of it.
fn stored_header_bytes(frame: &[u8]) -> Option<usize> {
    Frame::header_bytes(frame).ok().filter(|bytes| *bytes <= frame.len())
}

fn bounded(reader: &mut Reader<'_>, field: &'static str, max: u64) -> Result<usize> {
    let at = reader.position();
    let found = u64::from(reader.u32(field)?);
    usize::try_from(found)
        .ok()
        .filter(|_| found <= max)
        .ok_or_else(|| reader.error_at(field, at, Problem::TooLong { max, found }))
}

fn at_least_one(reader: &mut Reader<'_>, field: &'static str) -> Result<u64> {
    let at = reader.position();
    let found = reader.u64(field)?;
    if found == 0 {
        return Err(reader.error_at(field, at, Problem::Invalid { found }));
    }
    Ok(found)
}

fn put_op(writer: &mut SliceWriter<'_>, op: &Op<'_>) -> (Range<usize>, Range<usize>) {
    let put_prefixed = |writer: &mut SliceWriter<'_>, bytes: &[u8]| {
        writer.put_prefixed(bytes);
        writer.position() - bytes.len()..writer.position()
    };
    match op {
        Op::Put { key, value, lease } => {
            writer.put_u8(KIND_PUT);
            writer.put_varint(lease.cast_unsigned());
            let key = put_prefixed(writer, key);
            (key, put_prefixed(writer, value))
        }
        Op::Delete { key } => {
            writer.put_u8(KIND_DELETE);
            (put_prefixed(writer, key), 0..0)
        }
        Op::Compact { revision } => {
            writer.put_u8(KIND_COMPACT);
            writer.put_varint(*revision);
            (0..0, 0..0)
        }
    }
}

fn read_op<'a>(reader: &mut Reader<'a>) -> Result<Op<'a>> {
    let kind_at = reader.position();
    match reader.u8("kind")? {
        KIND_PUT => {
            let lease = reader.varint("lease")?.cast_signed();
            let key = read_key(reader)?;
            let value = reader.prefixed("value", VALUE_BYTES_MAX)?;
            Ok(Op::Put { key, value, lease })
        }
        KIND_DELETE => Ok(Op::Delete { key: read_key(reader)? }),
        KIND_COMPACT => Ok(Op::Compact { revision: reader.varint("revision")? }),
        kind => {
            let found = u64::from(kind);
            Err(reader.error_at("kind", kind_at, Problem::Invalid { found }))
        }
    }
}

fn read_key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    let at = reader.position();
    let key = reader.prefixed("key", INTERNAL_KEY_BYTES_MAX)?;
    match key.first() {
        Some(&(SPACE_SYSTEM | SPACE_USER)) => Ok(key),
        Some(&space) => {
            Err(reader.error_at("key", at, Problem::Invalid { found: u64::from(space) }))
        }
        None => Err(reader.error_at("key", at, Problem::Truncated { needed: 1, have: 0 })),
    }
}

fn continue_crc(seed: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(seed);
    hasher.update(bytes);
    hasher.finalize()
}

/// Sizes were checked against limits below 4 GiB before they come here.
fn narrow(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: StoreId = StoreId([1; 16]);

    fn sample_ops() -> Vec<Op<'static>> {
        vec![
            Op::Put { key: b"\x01/pods/a", value: b"v1", lease: 7 },
            Op::Delete { key: b"\x01/pods/b" },
            Op::Put { key: b"\x00A", value: b"", lease: -1 },
            Op::Put { key: b"\x01z", value: &[9; 300], lease: 0 },
            Op::Compact { revision: 300 },
        ]
    }

    fn sample() -> Vec<u8> {
        let binding = Binding::new(&STORE);
        let size = FrameSize::of(b"me", sample_ops());
        let mut bytes = vec![0xee; size.bytes()];
        let mut placed = Vec::new();
        encode(&mut bytes, &binding, &size, true, b"me", sample_ops(), |op| placed.push(op));
        for (op, at) in sample_ops().iter().zip(&placed) {
            assert_eq!(&bytes[at.key.clone()], op.key().unwrap_or_default());
            if let Op::Put { value, .. } = op {
                assert_eq!(&bytes[at.value.clone()], *value);
            }
        }
        patch_header(&mut bytes, &binding, 1, 1, 1, [(1, 1), (0, 0), (0, 0), (1, 1), (0, 0)]);
        patch_header(&mut bytes, &binding, 5, 9, -2, [(9, 1), (0, 0), (0, 0), (2, 4), (0, 0)]);
        bytes
    }

    #[test]
    fn a_frame_round_trips() {
        let mut bytes = sample();
        let length = bytes.len();
        bytes.extend_from_slice(b"next frame");
        let (frame, used) = Frame::decode(&bytes, &Binding::new(&STORE)).unwrap();
        assert_eq!(used, length);
        assert_eq!((frame.seq, frame.revision, frame.time), (5, 9, -2));
        assert_eq!(frame.metadata, b"me");
        assert!(frame.is_buffered() && frame.takes_revision());
        assert_eq!(frame.ops().len(), 5);
        let ops: Vec<_> = frame.ops().collect();
        assert_eq!(ops.iter().map(|op| op.op).collect::<Vec<_>>(), sample_ops());
        assert_eq!(ops.iter().map(|op| op.sub).collect::<Vec<_>>(), [0, 1, 2, 2, 3]);
        assert_eq!((ops[3].create_revision, ops[3].version), (2, 4));
        assert_eq!(Frame::view(&bytes).unwrap(), (frame, used));
        assert_eq!(Frame::measure(&bytes, &Binding::new(&STORE)), Ok(length));
    }

    #[test]
    fn a_frame_of_another_store_fails() {
        let error = Frame::decode(&sample(), &Binding::new(&StoreId([2; 16]))).unwrap_err();
        assert!(matches!(error.problem, Problem::Checksum { .. }));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_an_error() {
        let binding = Binding::new(&STORE);
        let bytes = sample();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            Frame::decode(&damaged, &binding).unwrap_err();
            let _ = Frame::view(&damaged).map(|(frame, _)| frame.ops().count());
        }
        for cut in 0..bytes.len() {
            Frame::decode(&bytes[..cut], &binding).unwrap_err();
        }
    }

    #[test]
    fn only_writes_of_user_keys_take_a_revision() {
        let binding = Binding::new(&STORE);
        let ops = [Op::Compact { revision: 3 }, Op::Delete { key: b"\x00L" }];
        let size = FrameSize::of(&[], ops);
        assert!(!size.takes_revision());
        let mut bytes = vec![0; size.bytes()];
        encode(&mut bytes, &binding, &size, false, &[], ops, |_| ());
        patch_header(&mut bytes, &binding, 2, 1, 0, [(0, 0), (0, 0)]);
        let (frame, _) = Frame::decode(&bytes, &binding).unwrap();
        assert!(!frame.takes_revision() && !frame.is_buffered());

        // A put of a user key that claims to have no version is refused, though the CRC is right.
        let bytes = &mut sample();
        patch_header(bytes, &binding, 5, 9, 0, [(0, 0), (0, 0), (0, 0), (2, 4), (0, 0)]);
        assert_eq!(Frame::decode(bytes, &binding).unwrap_err().field, "create_revision");
    }
}
